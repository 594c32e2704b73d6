//! Requests of one node to the others, which go through the store: nodes need no connection to each
//! other, and no key of each other.
//!
//! ```text
//! requester                      store                                    each other node
//! commit: requests, signals ───► request  node requester serial part
//!                                signal   node ◄────────────────────────── always looks at it
//!                                                                          reads, executes
//!                                reply    requester serial node part ◄──── commit: the reply,
//! watches its own signal  ◄───── signal   requester                        request cleared
//! commit: all of it cleared
//! ```
//!
//! A request whose reply has not been committed is executed again, so it must be one that can be.
//! The requests and replies of nodes that have ended are cleared with their other keys.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use marula_storage::nodes::Execute;
use marula_storage::{Direction, KeyRange};
use rand::RngExt;

use crate::kv::{BlockLimit, Commit, Conflict, KvError, Mutation, Result, Version};
use crate::layout::PART_BYTES;
use crate::shared::Shared;

/// The interval at which a node looks whether it has requests.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The number of times that a commit is tried.
const TRIES_MAX: usize = 100;

/// The longest request or reply.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Sends a request to nodes; returns the replies that were received before the timeout, by node.
pub(crate) fn send(
    shared: &Shared,
    own: u32,
    others: &[u32],
    request: &[u8],
    timeout: Duration,
) -> Result<HashMap<u32, Vec<u8>>> {
    if request.len() > MESSAGE_BYTES_MAX {
        return Err(KvError::TooLarge);
    }
    let (layout, serial) = (&shared.layout, rand::rng().random::<u64>());
    for &to in others {
        let mut mutations = put(&layout.request(to, own, serial), request);
        mutations.push(Mutation::Set(layout.request_signal(to), serial.to_be_bytes().to_vec()));
        commit(shared, &mutations)?;
    }
    let replies = wait(shared, own, serial, others.len(), timeout);
    // Nodes that have not replied by now do so no more.
    let requests = others.iter().map(|&to| all_of(&layout.request(to, own, serial)));
    let leftovers = requests.chain([all_of(&layout.replies(own, serial))]);
    commit(shared, &leftovers.map(Mutation::ClearRange).collect::<Vec<_>>())?;
    replies
}

/// Makes changes that depend on nothing.
fn commit(shared: &Shared, mutations: &[Mutation]) -> Result<()> {
    for _ in 0..TRIES_MAX {
        let commit = Commit { mutations: mutations.to_vec(), ..Commit::default() };
        match shared.commit(commit) {
            Err(KvError::Conflict | KvError::TooOld) => {}
            outcome => return outcome.map(drop),
        }
    }
    Err(KvError::Conflict)
}

/// Waits for the replies to a request of this node.
fn wait(
    shared: &Shared,
    own: u32,
    serial: u64,
    count: usize,
    timeout: Duration,
) -> Result<HashMap<u32, Vec<u8>>> {
    let until = Instant::now() + timeout;
    let layout = &shared.layout;
    let (signal, prefix) = (layout.reply_signal(own), layout.replies(own, serial));
    loop {
        let (seen, entries) = shared.at_newest(|at| {
            Ok((shared.kv_get(at, &signal)?, read_all(shared, at, &all_of(&prefix))?))
        })?;
        let mut replies: HashMap<u32, Vec<u8>> = HashMap::new();
        for (key, part) in entries {
            let from = number(key.get(prefix.len()..))?;
            replies.entry(from).or_default().extend_from_slice(&part);
        }
        let left = until.saturating_duration_since(Instant::now());
        if replies.len() == count || left.is_zero() {
            return Ok(replies);
        }
        shared.kv.watch(&signal, seen.as_deref(), left)?;
    }
}

/// The thread that executes the requests of other nodes.
pub(crate) struct Executor {
    is_over: Arc<AtomicBool>,
}

impl Executor {
    /// Starts the thread of the node with this number.
    pub(crate) fn start(shared: &Arc<Shared>, own: u32, execute: Execute) -> Executor {
        let is_over = Arc::new(AtomicBool::new(false));
        let (shared, ends) = (shared.clone(), is_over.clone());
        let run = move || {
            let mut seen = None;
            while !ends.load(Ordering::Acquire) && shared.check_open().is_ok() {
                if let Err(error) = look(&shared, own, &mut seen, &execute) {
                    tracing::debug!(%error, "requests of other nodes could not be executed");
                }
                std::thread::sleep(LOOK_INTERVAL);
            }
        };
        let thread = std::thread::Builder::new().name("node-requests".to_owned()).spawn(run);
        thread.expect("a thread can be started at start-up");
        Executor { is_over }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // It ends by itself, and what it does until then the store refuses.
        self.is_over.store(true, Ordering::Release);
    }
}

/// Executes the requests that have been received since the signal was `seen`.
fn look(shared: &Shared, own: u32, seen: &mut Option<Vec<u8>>, execute: &Execute) -> Result<()> {
    let layout = &shared.layout;
    let (at, signal) = shared.now_with(Some(&layout.request_signal(own)))?;
    if signal == *seen {
        return Ok(());
    }
    let prefix = layout.requests(own);
    let mut requests: HashMap<(u32, u64), Vec<u8>> = HashMap::new();
    for (key, part) in read_all(shared, at.version, &all_of(&prefix))? {
        let rest = key.get(prefix.len()..);
        let serial = rest.and_then(|rest| rest.get(4..12)?.try_into().ok().map(u64::from_be_bytes));
        let serial = serial.ok_or_else(unknown_key)?;
        requests.entry((number(rest)?, serial)).or_default().extend_from_slice(&part);
    }
    let mut is_done = true;
    for ((from, serial), request) in requests {
        let reply = execute(&request);
        let (place, requester) = (layout.request(own, from, serial), layout.node(from));
        let mut mutations = vec![Mutation::ClearRange(all_of(&place))];
        let is_awaited =
            reply.len() <= MESSAGE_BYTES_MAX && shared.kv_get(at.version, &requester)?.is_some();
        if is_awaited {
            mutations.extend(put(&layout.reply(from, serial, own), &reply));
            mutations.push(Mutation::Set(layout.reply_signal(from), serial.to_be_bytes().to_vec()));
        }
        let outcome = shared.commit(Commit {
            read_version: Some(at.version),
            reads: vec![Conflict::Key(part(&place, 0)), Conflict::Key(requester)],
            writes: Vec::new(),
            mutations,
        });
        match outcome {
            Ok(_) => {}
            // The requester waits no longer, or the store was in doubt: the next look decides.
            Err(KvError::Conflict) => is_done = false,
            Err(error) => return Err(error),
        }
    }
    if is_done {
        *seen = signal;
    }
    Ok(())
}

/// The mutations that store a message at `place`, in parts.
fn put(place: &[u8], message: &[u8]) -> Vec<Mutation> {
    // There is a first part of an empty message, too.
    let parts = message.chunks(PART_BYTES).chain(message.is_empty().then_some(&[][..]));
    parts.zip(0..).map(|(bytes, at)| Mutation::Set(part(place, at), bytes.to_vec())).collect()
}

/// The key of a part of the message at `place`.
fn part(place: &[u8], number: u32) -> Vec<u8> {
    [place, &number.to_be_bytes()].concat()
}

/// The number of a node at the start of the rest of a key.
fn number(rest: Option<&[u8]>) -> Result<u32> {
    let number = rest.and_then(|rest| rest.first_chunk());
    number.map(|number| u32::from_be_bytes(*number)).ok_or_else(unknown_key)
}

fn unknown_key() -> KvError {
    KvError::Corrupt("a request among nodes has a key of no known form".to_owned())
}

/// All keys that begin so and go on with numbers.
fn all_of(prefix: &[u8]) -> KeyRange {
    KeyRange { start: prefix.to_vec(), end: [prefix, &[0xFF; 17]].concat() }
}

fn read_all(shared: &Shared, at: Version, range: &KeyRange) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let limit = BlockLimit { entries_max: 1_000, bytes_max: 1 << 20 };
    let (mut found, mut rest) = (Vec::new(), range.clone());
    loop {
        let block = shared.kv_range(at, &rest, Direction::Forward, limit)?;
        let last = block.entries.last().map(|(key, _)| [&key[..], &[0]].concat());
        found.extend(block.entries);
        match last.filter(|_| block.has_more) {
            Some(next) => rest.start = next,
            None => return Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use marula_storage::Store;

    use super::*;
    use crate::kv::Kv;
    use crate::layout::Layout;
    use crate::sim::{Faults, Sim, StepClock};
    use crate::{Distributed, LeaseOptions, Options};

    const LONG: Duration = Duration::from_secs(60);

    fn sim(faults: Faults) -> Arc<Sim> {
        Arc::new(Sim::new(StepClock::new(Duration::from_micros(1)), faults))
    }

    fn open(sim: &Arc<Sim>, name: &str) -> Distributed {
        let lease = LeaseOptions { expiry: LONG, ..LeaseOptions::new(name.to_owned()) };
        let options = Options { lease: Some(lease), is_shared: true, ..Options::default() };
        Distributed::open(sim.clone(), options).expect("the store opens")
    }

    /// Has a node reply with its name in front of the request; returns the number of requests.
    fn reply(store: &Distributed, name: &'static str) -> Arc<AtomicU64> {
        let count = Arc::new(AtomicU64::new(0));
        let counted = count.clone();
        store.nodes().expect("it is shared").on_request(Box::new(move |request| {
            counted.fetch_add(1, Ordering::Relaxed);
            [name.as_bytes(), request].concat()
        }));
        count
    }

    fn request(
        store: &Distributed,
        to: &[u32],
        request: &[u8],
        timeout: Duration,
    ) -> HashMap<u32, Vec<u8>> {
        store.nodes().expect("it is shared").request(to, request, timeout).expect("it is sent")
    }

    /// The number of keys of requests and replies.
    fn messages(sim: &Sim) -> usize {
        let at = sim.read_version().expect("a version");
        let limit = BlockLimit { entries_max: usize::MAX, bytes_max: usize::MAX };
        let count = |area: u8| {
            let range = all_of(&[&b"marula/"[..], &[area]].concat());
            sim.range(at, &range, Direction::Forward, limit).expect("it reads").entries.len()
        };
        count(0x0B) + count(0x0D)
    }

    #[test]
    fn a_request_is_executed_by_the_nodes_that_it_names() {
        let sim = sim(Faults::default());
        let [a, b, c] = ["a", "b", "c"].map(|name| open(&sim, name));
        let counts = [reply(&a, "a"), reply(&b, "b"), reply(&c, "c")];
        let long = vec![7; 2 * PART_BYTES + 1];
        for content in [&b""[..], b"x", &long] {
            let replies = request(&a, &[1, 2], content, LONG);
            assert_eq!(replies.len(), 2);
            assert_eq!(replies[&1], [b"b", content].concat());
            assert_eq!(replies[&2], [b"c", content].concat());
        }
        assert_eq!(request(&c, &[0], b"y", LONG)[&0], b"ay");
        assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [1, 3, 3]);
        assert_eq!(messages(&sim), 0);
    }

    #[test]
    fn a_node_without_a_reply_is_waited_for_until_the_timeout() {
        let sim = sim(Faults::default());
        let [a, b, silent] = ["a", "b", "silent"].map(|name| open(&sim, name));
        reply(&b, "b");
        let began = Instant::now();
        let replies = request(&a, &[1, 2], b"x", Duration::from_secs(1));
        assert!(began.elapsed() >= Duration::from_secs(1));
        assert_eq!(replies.keys().collect::<Vec<_>>(), [&1]);
        // Nothing is left for it to execute late.
        let count = reply(&silent, "silent");
        std::thread::sleep(2 * LOOK_INTERVAL);
        assert_eq!((count.load(Ordering::Relaxed), messages(&sim)), (0, 0));
    }

    #[test]
    fn what_a_node_leaves_is_cleared_when_it_ends() {
        let sim = sim(Faults::default());
        let [_a, b] = ["a", "b"].map(|name| open(&sim, name));
        let place = Layout::new(b"marula/").request(1, 0, 5);
        sim.commit(&Commit { mutations: put(&place, b"x"), ..Commit::default() })
            .expect("it commits");
        assert_eq!(messages(&sim), 1);
        b.close().expect("it closes");
        assert_eq!(messages(&sim), 0);
    }

    #[test]
    fn requests_survive_faults() {
        let runs =
            std::env::var("MARULA_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
        for seed in 0..runs {
            let faults = Faults {
                seed,
                unknown_done: 20,
                unknown_not_done: 20,
                false_conflict: 20,
                too_old: 10,
                ..Faults::default()
            };
            let sim = sim(faults);
            let [a, b] = ["a", "b"].map(|name| open(&sim, name));
            let count = reply(&b, "b");
            for number in 0_u8..5 {
                let replies = request(&a, &[1], &[number], LONG);
                assert_eq!(replies.get(&1), Some(&vec![b'b', number]), "seed {seed}");
            }
            assert!(count.load(Ordering::Relaxed) >= 5);
        }
    }
}
