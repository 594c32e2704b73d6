//! Several processes serve a store: the *nodes*.
//!
//! Each has a number, a key under it with a random id, and a heartbeat that it counts up. Every
//! commit of a node claims to have read its key. Each node watches the heartbeats of the others: a
//! heartbeat that stands still for [`LeaseOptions::expiry`] is of a node that has ended, and the
//! key of that node is removed. A node that was only stopped for so long cannot commit any more
//! when it goes on, and learns that by its next heartbeat. Clocks of different machines are never
//! compared.
//!
//! ```text
//! key        value
//! node       id(8) process(4) started(8) host 0 version 0 name
//!                                         process: the upper half of the numbers of its slots
//!                                         started: by its own clock, in ms since 1970
//! heartbeat  see `heartbeat`
//! lock       number(4) id(8)              the node that changes the catalogue
//! registry   id(8)                        the node that was added last
//! ```
//!
//! A process that wants the store for itself (see [`lease`]) and nodes exclude each
//! other: a new node reads the owner's key and writes the registry's; a new owner reads the
//! registry's and writes the owner's.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use marula_storage::nodes::{Execute, NODE_BITS, Node};
use marula_storage::{Direction, Epoch, Nodes, View};
use rand::RngExt;

use crate::heartbeat::{self, Heartbeat};
use crate::kv::{BlockLimit, Commit, Conflict, KvError, Mutation, Result, Version};
use crate::lease::{self, LeaseOptions};
use crate::requests::{self, Executor};
use crate::shared::{At, Shared, store_error};
use crate::view::FixedView;

/// The number of nodes that a store may have.
const NODES_MAX: u32 = 1 << NODE_BITS;

/// Brings the memory of the layers above up to date.
type Renew = Box<dyn Fn() -> marula_storage::Result<()> + Send + Sync>;

/// The epoch, as far as this process knows it.
#[derive(Default)]
pub(crate) struct Sharing {
    accepted: AtomicU64,
    /// A version at which memory was of the accepted epoch.
    accepted_at: AtomicU64,
    is_stale: AtomicBool,
    renew: OnceLock<Renew>,
}

thread_local! {
    /// Whether this thread is bringing memory up to date.
    static IS_RENEWING: Cell<bool> = const { Cell::new(false) };
}

impl Sharing {
    pub(crate) fn accepted(&self) -> Epoch {
        self.accepted.load(Ordering::Acquire)
    }

    /// Notes an epoch that was read from the store.
    pub(crate) fn note_seen(&self, epoch: Epoch) {
        if epoch != self.accepted() {
            self.is_stale.store(true, Ordering::Release);
        }
    }

    /// Accepts an epoch that a commit of this process has made of `from`.
    pub(crate) fn follow(&self, from: Epoch, to: Epoch) {
        let _ = self.accepted.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether memory is of this moment: of its epoch, and read no later, for the layers above date
    /// changes by the moment at which they have read them.
    pub(crate) fn is_of(&self, at: At) -> bool {
        self.accepted() == at.epoch && self.accepted_at.load(Ordering::Acquire) <= at.version
    }

    fn accept(&self, epoch: Epoch, at: Version) {
        self.is_stale.store(false, Ordering::Release);
        self.accepted_at.fetch_max(at, Ordering::AcqRel);
        self.accepted.store(epoch, Ordering::Release);
    }

    /// Brings memory up to date; returns whether it has.
    pub(crate) fn renew(&self) -> marula_storage::Result<bool> {
        let Some(renew) = self.renew.get() else { return Ok(false) };
        if IS_RENEWING.replace(true) {
            // A read of this very renewal.
            return Ok(false);
        }
        let outcome = renew();
        IS_RENEWING.set(false);
        outcome.map(|()| true)
    }
}

/// The keys of a node and their values.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Record {
    key: Vec<u8>,
    value: Vec<u8>,
    beat: Option<Vec<u8>>,
}

impl Record {
    fn process(&self) -> Option<u32> {
        self.value.get(8..12)?.try_into().ok().map(u32::from_be_bytes)
    }

    fn name(&self) -> String {
        self.node(0).name
    }

    /// The node with this number and this record.
    fn node(&self, number: u32) -> Node {
        node_of(number, &self.value, self.beat.as_deref().unwrap_or_default())
    }
}

/// The node with this number, this value of its key, and this heartbeat.
fn node_of(number: u32, value: &[u8], beat: &[u8]) -> Node {
    let long = |at: usize| {
        let bytes = value.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, i64::from_be_bytes)
    };
    let mut texts = value.get(20..).unwrap_or_default().splitn(3, |byte| *byte == 0);
    let mut text = || String::from_utf8_lossy(texts.next().unwrap_or_default()).into_owned();
    let (host, version, name) = (text(), text(), text());
    let (id, started_ms, ping_ms) = (long(0), long(12), heartbeat::ping_ms(beat));
    Node { number, id, name, host, version, started_ms, ping_ms }
}

/// The record of a node that starts now.
fn record_of(id: u64, process: u32, options: &LeaseOptions) -> Vec<u8> {
    let text = |text: &str| text.replace('\0', "").into_bytes();
    let texts = [text(&options.host), text(&options.version), text(&options.name)];
    let started = heartbeat::now_ms().to_be_bytes();
    [&id.to_be_bytes()[..], &process.to_be_bytes(), &started, &texts.join(&0)].concat()
}

/// The nodes that the store names, in the order of their numbers: also those that have ended and
/// whose end no other has noticed yet.
pub(crate) fn list(shared: &Shared) -> Result<Vec<Node>> {
    Ok(beats(shared)?.into_iter().map(|(node, _)| node).collect())
}

/// The same, with their heartbeats.
pub(crate) fn beats(shared: &Shared) -> Result<Vec<(Node, Vec<u8>)>> {
    let (_, nodes) = read(shared)?;
    let beat = |record: &Record| record.beat.clone().unwrap_or_default();
    let mut found: Vec<(Node, Vec<u8>)> =
        nodes.iter().map(|(number, record)| (record.node(*number), beat(record))).collect();
    found.sort_by_key(|(node, _)| node.number);
    Ok(found)
}

/// The nodes of a store, by number, and the version at which they were read.
fn read(shared: &Shared) -> Result<(Version, HashMap<u32, Record>)> {
    let limit = BlockLimit { entries_max: 2 * NODES_MAX as usize, bytes_max: 1 << 22 };
    shared.at_newest(|at| {
        let mut nodes: HashMap<u32, Record> = HashMap::new();
        let mut beats = HashMap::new();
        let mut rest = shared.layout.nodes();
        loop {
            let block = shared.kv_range(at, &rest, Direction::Forward, limit)?;
            let last = block.entries.last().map(|(key, _)| [&key[..], &[0]].concat());
            for (key, value) in block.entries {
                match shared.layout.parse_node(&key) {
                    Some((number, false)) => {
                        nodes.insert(number, Record { key, value, beat: None });
                    }
                    Some((number, true)) => drop(beats.insert(number, value)),
                    None => {
                        return Err(KvError::Corrupt("a node has a key of no known form".into()));
                    }
                }
            }
            match last.filter(|_| block.has_more) {
                Some(next) => rest.start = next,
                None => break,
            }
        }
        for (number, record) in &mut nodes {
            record.beat = beats.remove(number);
        }
        Ok((at, nodes))
    })
}

/// Waits until it is known which nodes live, and removes the others; returns the name of one that
/// lives.
pub(crate) fn find_living(shared: &Shared, options: &LeaseOptions) -> Result<Option<String>> {
    let began = Instant::now();
    let (_, first) = read(shared)?;
    let mut known = first.clone();
    loop {
        if known.is_empty() {
            return Ok(None);
        }
        std::thread::sleep(options.beat.min(options.expiry));
        let (at, now) = read(shared)?;
        if let Some((_, record)) =
            now.iter().find(|(number, record)| first.get(number) != Some(*record))
        {
            return Ok(Some(record.name()));
        }
        if began.elapsed() >= options.expiry {
            for (number, record) in &now {
                remove(shared, at, *number, record)?;
            }
        }
        known = now;
    }
}

/// Removes a node that has ended, its slots and the messages to it, unless it goes on.
fn remove(shared: &Shared, at: Version, number: u32, record: &Record) -> Result<()> {
    let layout = &shared.layout;
    let beat = layout.node_heartbeat(number);
    let mut mutations = vec![Mutation::Clear(record.key.clone()), Mutation::Clear(beat.clone())];
    mutations.extend(record.process().map(|of| Mutation::ClearRange(layout.slots_of(of))));
    mutations.extend(layout.messages_to(number).map(Mutation::ClearRange));
    let outcome = shared.kv_commit(&Commit {
        read_version: Some(at),
        reads: vec![Conflict::Key(record.key.clone()), Conflict::Key(beat)],
        writes: Vec::new(),
        mutations,
    });
    match outcome {
        // It is looked at again.
        Ok(_) | Err(KvError::Conflict | KvError::Unknown | KvError::TooOld) => Ok(()),
        Err(error) => Err(error),
    }
}

/// This process as a node of its store.
pub(crate) struct Membership {
    shared: Arc<Shared>,
    number: u32,
    /// The value of its key.
    record: Vec<u8>,
    heartbeat: Heartbeat,
    executor: OnceLock<Executor>,
}

impl Membership {
    /// Adds this process to the nodes of the store.
    ///
    /// Errors: [`KvError::Unavailable`] when a process has the store for itself.
    pub(crate) fn join(shared: &Arc<Shared>, options: &LeaseOptions) -> Result<Membership> {
        let id: u64 = rand::rng().random();
        let process = shared.slots.process();
        let record = record_of(id, process, options);
        let layout = &shared.layout;
        let (number, is_alone) = loop {
            lease::free(shared, options)?;
            let (at, nodes) = read(shared)?;
            let own = nodes.iter().find(|(_, other)| other.value == record);
            if let Some((number, _)) = own {
                break (*number, nodes.len() == 1);
            }
            let number = (0..NODES_MAX).find(|number| !nodes.contains_key(number));
            let number = number
                .ok_or_else(|| KvError::Unavailable("the store has too many nodes".to_owned()))?;
            let node = layout.node(number);
            let commit = Commit {
                read_version: Some(at),
                reads: vec![Conflict::Key(node.clone()), Conflict::Key(layout.owner())],
                writes: Vec::new(),
                mutations: vec![
                    Mutation::Set(node, record.clone()),
                    Mutation::Set(layout.node_heartbeat(number), heartbeat::value(0)),
                    Mutation::Set(layout.registry(), id.to_be_bytes().to_vec()),
                ],
            };
            match shared.kv_commit(&commit) {
                // Whatever came of it shows when the nodes are read again.
                Ok(_) | Err(KvError::Conflict | KvError::Unknown | KvError::TooOld) => {}
                Err(error) => return Err(error),
            }
        };
        shared.fence_in(layout.node(number), record.clone());
        let _ = shared.sharing.set(Sharing::default());
        if is_alone {
            lease::clean_up(shared)?;
        }
        let (mut watch, own, lease) = (Watch::default(), record.clone(), options.clone());
        let run = move |shared: &Shared| watch.beat(shared, number, &own, &lease);
        let heartbeat = Heartbeat::start("node", options.beat, shared, run);
        tracing::info!(number, "this process is a node of the store");
        let executor = OnceLock::new();
        Ok(Membership { shared: shared.clone(), number, record, heartbeat, executor })
    }

    /// Leaves the store, so that others need not wait to see that this process has ended.
    /// Idempotent.
    pub(crate) fn leave(&self) {
        if !self.heartbeat.stop() {
            return;
        }
        if let Ok((at, nodes)) = read(&self.shared)
            && let Some(own) = nodes.get(&self.number)
            && own.value == self.record
        {
            // Others wait a little longer where this fails.
            let _ = remove(&self.shared, at, self.number, own);
        }
    }

    fn sharing(&self) -> &Sharing {
        self.shared.sharing.get().expect("a node shares the store")
    }

    /// The value of the lock while this node holds it.
    fn own_lock(&self) -> Vec<u8> {
        [&self.number.to_be_bytes()[..], &self.record[..8]].concat()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The other nodes as this one has seen them.
#[derive(Default)]
struct Watch {
    seen: HashMap<u32, (Record, Instant)>,
    /// The time of the last look, for a pause of this process says nothing of the others.
    last: Option<Instant>,
}

impl Watch {
    /// One beat, and a look at the others; returns whether this process is still a node.
    fn beat(
        &mut self,
        shared: &Shared,
        number: u32,
        record: &[u8],
        options: &LeaseOptions,
    ) -> Result<bool> {
        let (at, nodes) = read(shared)?;
        let Some(own) = nodes.get(&number).filter(|own| own.value == record) else {
            return Ok(false);
        };
        let (place, beat) = (own.key.clone(), own.beat.clone());
        heartbeat::count_up(shared, at, place, shared.layout.node_heartbeat(number), beat)?;
        self.look(shared, at, number, nodes, options)?;
        Ok(true)
    }

    fn look(
        &mut self,
        shared: &Shared,
        at: Version,
        own: u32,
        nodes: HashMap<u32, Record>,
        options: &LeaseOptions,
    ) -> Result<()> {
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last > options.expiry / 2) {
            self.seen.clear();
        }
        self.last = Some(now);
        self.seen.retain(|number, _| nodes.contains_key(number));
        for (number, record) in nodes {
            if number == own {
                continue;
            }
            match self.seen.get(&number) {
                Some((known, since)) if *known == record => {
                    if now - *since >= options.expiry {
                        tracing::warn!(
                            number,
                            name = record.name(),
                            "a node has ended without a word"
                        );
                        remove(shared, at, number, &record)?;
                    }
                }
                _ => drop(self.seen.insert(number, (record, now))),
            }
        }
        Ok(())
    }
}

impl Nodes for Membership {
    fn own(&self) -> Node {
        node_of(self.number, &self.record, &heartbeat::value(0))
    }

    fn list(&self) -> marula_storage::Result<Vec<Node>> {
        list(&self.shared).map_err(store_error)
    }

    fn request(
        &self,
        to: &[u32],
        request: &[u8],
        timeout: Duration,
    ) -> marula_storage::Result<HashMap<u32, Vec<u8>>> {
        requests::send(&self.shared, self.number, to, request, timeout).map_err(store_error)
    }

    fn on_request(&self, execute: Execute) {
        self.executor.get_or_init(|| Executor::start(&self.shared, self.number, execute));
    }

    fn on_new_epoch(&self, renew: Renew) {
        let _ = self.sharing().renew.set(renew);
    }

    fn view(&self) -> marula_storage::Result<(Arc<dyn View>, Epoch)> {
        let at = self.shared.now().map_err(store_error)?;
        let view = FixedView { shared: self.shared.clone(), at: at.version };
        Ok((Arc::new(view), at.epoch))
    }

    fn accepted(&self) -> Epoch {
        self.sharing().accepted()
    }

    fn accept(&self, epoch: Epoch) {
        self.sharing().accept(epoch, self.shared.newest());
    }

    fn is_stale(&self) -> bool {
        self.sharing().is_stale.load(Ordering::Acquire)
    }

    fn try_lock(&self) -> marula_storage::Result<bool> {
        let shared = &self.shared;
        let key = shared.layout.catalogue_lock();
        let own = self.own_lock();
        let take = || {
            let (at, held) = shared.at_newest(|at| Ok((at, shared.kv_get(at, &key)?)))?;
            let mut reads = vec![Conflict::Key(key.clone())];
            if let Some(held) = held.filter(|held| *held != own) {
                let (number, id) = held
                    .split_first_chunk::<4>()
                    .ok_or_else(|| KvError::Corrupt("the catalogue's lock is damaged".into()))?;
                let node = shared.layout.node(u32::from_be_bytes(*number));
                if shared.kv_get(at, &node)?.is_some_and(|node| node.starts_with(id)) {
                    return Ok(false);
                }
                reads.push(Conflict::Key(node));
            }
            shared.commit(Commit {
                read_version: Some(at),
                reads,
                writes: Vec::new(),
                mutations: vec![Mutation::Set(key.clone(), own.clone())],
            })?;
            Ok(true)
        };
        match take() {
            Err(KvError::Conflict | KvError::TooOld) => {
                self.shared.check_open().map_err(store_error)?;
                Ok(false)
            }
            outcome => outcome.map_err(store_error),
        }
    }

    fn unlock(&self) {
        let shared = &self.shared;
        let key = shared.layout.catalogue_lock();
        let release = || {
            let (at, held) = shared.at_newest(|at| Ok((at, shared.kv_get(at, &key)?)))?;
            if held.is_some_and(|held| held == self.own_lock()) {
                shared.commit(Commit {
                    read_version: Some(at),
                    reads: vec![Conflict::Key(key.clone())],
                    writes: Vec::new(),
                    mutations: vec![Mutation::Clear(key.clone())],
                })?;
            }
            Ok::<_, KvError>(())
        };
        for _ in 0..UNLOCK_TRIES_MAX {
            match release() {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, "the catalogue's lock could not be released"),
            }
        }
        tracing::error!(
            "the catalogue's lock could not be released: no node can change the catalogue until this one ends"
        );
    }
}

/// The number of times that the release of the lock is tried.
const UNLOCK_TRIES_MAX: usize = 5;
