//! The adapter over the simulated store keeps the promises of an engine, also when faults come.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use marula_storage::contract;
use marula_storage::{Direction, Error, KeyRange, Space, Store, Txn, View};

use crate::kv::{BlockLimit, Kv};
use crate::sim::{Faults, PAUSE, Sim, StepClock};
use crate::{Distributed, LeaseOptions, Options, survey};

fn sim(faults: Faults) -> Arc<Sim> {
    Arc::new(Sim::new(StepClock::new(Duration::from_micros(1)), faults))
}

fn open_over(sim: Arc<Sim>) -> Arc<dyn Store> {
    Arc::new(Distributed::open(sim, Options::default()).expect("the store opens"))
}

fn commit(store: &dyn Store, fill: impl FnOnce(&mut dyn Txn)) {
    let mut txn = store.begin();
    fill(&mut *txn);
    txn.commit().expect("a commit succeeds");
}

fn get(view: &dyn View, space: Space, key: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    view.get(space, key, &mut |value| found = Some(value.to_vec())).expect("it reads");
    found
}

fn counter(view: &dyn View, key: &[u8]) -> i64 {
    get(view, Space::Catalog, key)
        .map_or(0, |value| i64::from_le_bytes(value.try_into().expect("a counter has 8 bytes")))
}

fn keys(view: &dyn View, space: Space, range: &KeyRange, direction: Direction) -> Vec<Vec<u8>> {
    let mut cursor = view.cursor(space, range, direction).expect("it opens");
    let mut keys = Vec::new();
    while cursor.advance().expect("it advances") {
        keys.push(cursor.key().to_vec());
    }
    keys
}

fn everything() -> KeyRange {
    KeyRange { start: Vec::new(), end: vec![0xFF; 8] }
}

/// The number of keys of the simulated store, the adapter's own included.
fn stored_keys(sim: &Sim, prefix: &[u8]) -> usize {
    let at = sim.read_version().expect("a version");
    let limit = BlockLimit { entries_max: usize::MAX, bytes_max: usize::MAX };
    let block = sim.range(at, &KeyRange::prefix(prefix), Direction::Forward, limit);
    block.expect("it reads").entries.len()
}

mod without_faults {
    use super::*;

    fn open(_folder: &Path) -> Arc<dyn Store> {
        open_over(sim(Faults::default()))
    }

    macro_rules! promises {
        ($($promise:ident)*) => { $(#[test] fn $promise() { contract::$promise(&open); })* };
    }

    marula_storage::for_each_promise!(promises);
}

/// Commits of unknown outcome, of each kind, conflicts out of nothing, slow reads, and a store that
/// is not reached now and then.
mod with_faults {
    use super::*;

    fn open(folder: &Path) -> Arc<dyn Store> {
        let faults = Faults {
            seed: folder.as_os_str().len() as u64,
            unknown_done: 40,
            unknown_not_done: 40,
            unknown_late: 40,
            slow_read: 1,
            unavailable: 5,
            ..Faults::default()
        };
        open_over(sim(faults))
    }

    macro_rules! promises {
        ($($promise:ident)*) => { $(#[test] fn $promise() { contract::$promise(&open); })* };
    }

    marula_storage::for_each_promise!(promises);
}

/// A commit of unknown outcome is made once, whether the store had made it, had not, or makes it
/// later; counters show it.
#[test]
fn commits_are_made_once() {
    let runs = std::env::var("MARULA_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    let first = std::env::var("MARULA_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for seed in first..first + runs {
        println!("to repeat: MARULA_RUNS=1 MARULA_SEED={seed} cargo test commits_are_made_once");
        let sim = sim(Faults {
            seed,
            unknown_done: 100,
            unknown_not_done: 100,
            unknown_late: 100,
            false_conflict: 50,
            too_old: 20,
            slow_read: 20,
            pause: 10,
            unavailable: 0,
        });
        let store = open_over(sim.clone());
        let mut done = 0;
        while done < 60 {
            let mut txn = store.begin();
            let key = [b'k', done as u8 % 5];
            let outcome = txn.guard(&[(Space::Records, &key)]).and_then(|()| {
                let mut old = 0;
                txn.view().get(Space::Records, &key, &mut |value| old = value[0])?;
                txn.put(Space::Records, &key, &[old + 1]);
                txn.add(b"count", 1);
                txn.commit()
            });
            match outcome {
                Ok(_) => done += 1,
                Err(Error::Conflict | Error::TooOld) => {}
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
        sim.set_faults(Faults::default());
        sim.settle();
        assert_eq!(counter(&*store, b"count"), 60, "seed {seed}");
        for key in 0..5 {
            let value = get(&*store, Space::Records, &[b'k', key]);
            assert_eq!(value.as_deref(), Some(&[12][..]), "seed {seed}");
        }
    }
}

/// Two processes over one store: none overwrites what the other has written since it looked.
#[test]
fn processes_do_not_overlook_each_other() {
    let sim = sim(Faults { seed: 1, unknown_done: 20, unknown_late: 20, ..Faults::default() });
    let stores = [open_over(sim.clone()), open_over(sim.clone())];
    let key = (Space::Records, &b"sum"[..]);
    thread::scope(|scope| {
        for store in &stores {
            for _ in 0..2 {
                scope.spawn(move || {
                    let mut done = 0;
                    while done < 200 {
                        let mut txn = store.begin();
                        if txn.guard(&[key]).is_err() {
                            continue;
                        }
                        let old = get(txn.view(), key.0, key.1)
                            .map_or(0, |value| u32::from_le_bytes(value.try_into().expect("4")));
                        txn.put(key.0, key.1, &(old + 1).to_le_bytes());
                        match txn.commit() {
                            Ok(_) => done += 1,
                            Err(Error::Conflict) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        }
    });
    sim.settle();
    for store in &stores {
        assert_eq!(get(&**store, key.0, key.1).as_deref(), Some(&800u32.to_le_bytes()[..]));
    }
    let (one, other) = (&stores[0], &stores[1]);
    let mut txn = one.begin();
    txn.guard(&[key]).expect("it is free");
    commit(&**other, |txn| txn.put(key.0, key.1, b"theirs"));
    txn.put(key.0, key.1, b"mine");
    assert!(matches!(txn.commit(), Err(Error::Conflict)));
    assert_eq!(get(&**one, key.0, key.1).as_deref(), Some(&b"theirs"[..]));
}

/// Round trips of the operations that the layers above are made of.
#[test]
fn round_trips_are_few() {
    let sim = sim(Faults::default());
    let store = open_over(sim);
    let trips = || -> i64 {
        let rows = store.statistics();
        rows.iter()
            .filter(|(name, _)| name.starts_with("round trips."))
            .map(|(_, count)| count)
            .sum()
    };
    let count = |work: &mut dyn FnMut()| {
        let before = trips();
        work();
        trips() - before
    };
    let names: Vec<[u8; 2]> = (0..100).map(|number| [b'k', number]).collect();
    commit(&*store, |txn| names.iter().for_each(|key| txn.put(Space::Records, key, &[0; 500])));
    let list: Vec<&[u8]> = names.iter().map(|key| &key[..]).collect();
    assert_eq!(count(&mut || drop(get(&*store, Space::Records, &names[0]))), 2, "version and key");
    let many = &mut || drop(store.get_many(Space::Records, &list).expect("it reads"));
    assert_eq!(count(many), 2, "a hundred keys");
    let scan = &mut || {
        assert_eq!(keys(&*store, Space::Records, &everything(), Direction::Forward).len(), 100);
    };
    assert_eq!(count(scan), 2, "a hundred entries");
    let insert = &mut || {
        let mut txn = store.begin();
        txn.guard(&[(Space::Indexes, b"a"), (Space::Indexes, b"b")]).expect("they are free");
        for key in [b"a", b"b"] {
            assert_eq!(get(txn.view(), Space::Indexes, key), None);
        }
        txn.put(Space::Records, b"new", b"document");
        txn.add(b"count", 1);
        txn.commit().expect("it commits");
    };
    assert_eq!(count(insert), 3, "version, unique keys, commit");
    let large = &mut || commit(&*store, |txn| txn.put(Space::Records, b"large", &[1; 1 << 20]));
    assert_eq!(count(large), 2, "version and commit");
    assert_eq!(count(&mut || drop(get(&*store, Space::Records, b"large"))), 3, "and its parts");
}

/// A document of 16 MB is larger than a commit of the store; nothing of it is seen before its
/// commit, and what a process that died has staged goes with the next one.
#[test]
fn large_values_are_staged() {
    let sim = sim(Faults::default());
    let lease = || Some(LeaseOptions { expiry: Duration::ZERO, ..LeaseOptions::new("a".into()) });
    let open = || {
        let options = Options { lease: lease(), ..Options::default() };
        Arc::new(Distributed::open(sim.clone(), options).expect("the store opens"))
    };
    let store = open();
    let value: Vec<u8> = (0..16u32 << 20).map(|n| (n / 1000) as u8).collect();
    commit(&*store, |txn| txn.put(Space::Records, b"doc", &value));
    assert!(get(&*store, Space::Records, b"doc") == Some(value.clone()));
    let parts = stored_keys(&sim, b"marula/\x21");
    assert_eq!(parts, value.len().div_ceil(90_000));
    // Replaced, and removed.
    commit(&*store, |txn| txn.put(Space::Records, b"doc", &value[1..]));
    assert_eq!(stored_keys(&sim, b"marula/\x21"), parts);
    assert!(get(&*store, Space::Records, b"doc").as_deref() == Some(&value[1..]));
    commit(&*store, |txn| txn.delete(Space::Records, b"doc"));
    assert_eq!(stored_keys(&sim, b"marula/\x21"), 0);
    // A commit that fails leaves nothing.
    let mut txn = store.begin();
    txn.guard(&[(Space::Records, b"doc")]).expect("it is free");
    commit(&*open_over(sim.clone()), |txn| txn.put(Space::Records, b"doc", b"theirs"));
    txn.put(Space::Records, b"doc", &value);
    assert!(matches!(txn.commit(), Err(Error::Conflict)));
    assert_eq!(stored_keys(&sim, b"marula/\x21"), 0);
    assert_eq!(stored_keys(&sim, b"marula/\x05"), 0);
    // The staged parts of a process that is gone.
    sim.set_faults(Faults { seed: 3, unknown_not_done: 1000, ..Faults::default() });
    let mut txn = store.begin();
    txn.put(Space::Records, b"lost", &value);
    txn.commit().expect_err("nothing gets through");
    sim.set_faults(Faults::default());
    let note = [&[1u8, 0, 0, 0, 3][..], b"m/x", b"marula/\x21lost\x00\x0112345678"].concat();
    let left = crate::kv::Mutation::Set(b"marula/\x0512345678".to_vec(), note);
    let part = crate::kv::Mutation::Set(b"marula/\x21lost\x00\x01123456780000".to_vec(), vec![1]);
    let commit = crate::kv::Commit { mutations: vec![left, part], ..Default::default() };
    sim.commit(&commit).expect("it commits");
    store.close().expect("it closes");
    let store = open();
    assert_eq!(stored_keys(&sim, b"marula/\x05"), 0);
    assert_eq!(stored_keys(&sim, b"marula/\x21"), 0);
    store.close().expect("it closes");
}

/// A value that was overwritten unseen leaves parts, which a compaction removes; parts in use stay.
#[test]
fn compaction_removes_parts_of_nothing() {
    let sim = sim(Faults::default());
    let store = open_over(sim.clone());
    for key in ["a", "b", "c"] {
        commit(&*store, |txn| txn.put(Space::Records, key.as_bytes(), &[7; 200_000]));
    }
    commit(&*store, |txn| txn.put(Space::Records, b"b", b"small"));
    assert_eq!(stored_keys(&sim, b"marula/\x21"), 9);
    store.compact(Space::Records, &everything(), &mut || true).expect("it compacts");
    assert_eq!(stored_keys(&sim, b"marula/\x21"), 6);
    assert_eq!(get(&*store, Space::Records, b"c"), Some(vec![7; 200_000]));
    store.drop_range(Space::Records, &KeyRange::prefix(b"a")).expect("it drops");
    assert_eq!(stored_keys(&sim, b"marula/\x21"), 3);
    assert_eq!(store.check().expect("it checks"), Vec::<String>::new());
}

/// Keys of any length keep their order, both ways, in ranges that end among them, and by seeks.
#[test]
fn long_keys_keep_their_order() {
    let store = open_over(sim(Faults::default()));
    let mut wanted: Vec<Vec<u8>> = vec![b"a".to_vec(), b"z".to_vec()];
    for length in [3_999, 4_000, 4_001, 4_002, 9_000, 120_000] {
        for last in [b"a", b"k", b"z"] {
            wanted.push([&vec![b'k'; length][..], last].concat());
        }
    }
    wanted.push([&vec![b'k'; 3_000][..], &vec![b'l'; 3_000][..]].concat());
    wanted.sort();
    for (number, key) in wanted.iter().enumerate() {
        commit(&*store, |txn| txn.put(Space::Indexes, key, &[number as u8]));
    }
    for key in &wanted {
        let number = get(&*store, Space::Indexes, key).expect("it is there")[0];
        assert!(wanted[usize::from(number)] == *key);
    }
    assert_eq!(get(&*store, Space::Indexes, &vec![b'k'; 50_000]), None);
    for (start, first) in wanted.iter().enumerate() {
        for (end, last) in wanted.iter().enumerate().skip(start) {
            let range = KeyRange { start: first.clone(), end: last.clone() };
            let up = keys(&*store, Space::Indexes, &range, Direction::Forward);
            assert!(up == wanted[start..end], "from {start} to {end}");
            let mut down = keys(&*store, Space::Indexes, &range, Direction::Backward);
            down.reverse();
            assert!(down == up, "from {end} down to {start}");
        }
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor = store.cursor(Space::Indexes, &everything(), direction).expect("it opens");
        for (number, key) in wanted.iter().enumerate() {
            assert!(cursor.seek(key).expect("it seeks") && cursor.key() == *key);
            assert_eq!(cursor.value(), [number as u8]);
            let next = match direction {
                Direction::Forward => wanted.get(number + 1),
                Direction::Backward => number.checked_sub(1).map(|number| &wanted[number]),
            };
            let moved = cursor.advance().expect("it advances");
            assert!(next.is_some() == moved && next.is_none_or(|next| cursor.key() == *next));
        }
    }
    for key in &wanted {
        commit(&*store, |txn| txn.delete(Space::Indexes, key));
    }
    assert!(keys(&*store, Space::Indexes, &everything(), Direction::Forward).is_empty());
}

/// A walk over the newest state outlives the store's versions; one over a moment says that it is
/// too old, as a commit says that it conflicts.
#[test]
fn versions_grow_too_old() {
    let sim = sim(Faults::default());
    let store = open_over(sim.clone());
    for part in 0..10u8 {
        commit(&*store, |txn| {
            (0..100u8).for_each(|number| txn.put(Space::Records, &[part, number], &[0; 100]));
        });
    }
    let view = store.clone().view().expect("a view");
    let mut cursor =
        store.cursor(Space::Records, &everything(), Direction::Forward).expect("a cursor opens");
    let mut fixed =
        view.cursor(Space::Records, &everything(), Direction::Forward).expect("it opens");
    assert!(fixed.advance().expect("it advances"));
    let mut count = 0;
    while cursor.advance().expect("it goes on") {
        count += 1;
        if count % 150 == 0 {
            sim.clock().pass(PAUSE);
        }
    }
    assert_eq!(count, 1000);
    let outcome = loop {
        match fixed.advance() {
            Ok(true) => {}
            outcome => break outcome,
        }
    };
    assert!(matches!(outcome, Err(Error::TooOld)));
    assert!(matches!(fixed.advance(), Err(Error::TooOld)), "it goes on failing");
    assert!(matches!(view.get(Space::Records, b"x", &mut |_| ()), Err(Error::TooOld)));
    let mut txn = store.begin();
    txn.guard(&[(Space::Records, b"k")]).expect("it is free");
    sim.clock().pass(PAUSE);
    txn.put(Space::Records, b"k", b"v");
    assert!(matches!(txn.commit(), Err(Error::Conflict)), "it is begun again");
    let mut txn = store.begin_since(&*view);
    assert!(matches!(txn.guard(&[(Space::Records, b"k")]), Err(Error::TooOld)));
}

/// A transaction that is too large for one commit fails, and nothing of it is there.
#[test]
fn commits_that_are_too_large_are_refused() {
    let store = open_over(sim(Faults::default()));
    let mut txn = store.begin();
    for number in 0..20_000u32 {
        txn.put(Space::Records, &number.to_be_bytes(), &[0; 600]);
    }
    assert!(matches!(txn.commit(), Err(Error::TooLarge)));
    assert_eq!(keys(&*store, Space::Records, &everything(), Direction::Forward).len(), 0);
}

/// Options of a process with a lease; times are in milliseconds.
fn options(name: &str, beat: u64, expiry: u64) -> Options {
    let lease = LeaseOptions {
        beat: Duration::from_millis(beat),
        expiry: Duration::from_millis(expiry),
        ..LeaseOptions::new(name.to_owned())
    };
    Options { lease: Some(lease), ..Options::default() }
}

/// An owner that was stopped for long finds that the store is another's: its commits fail.
#[test]
fn a_stopped_owner_has_lost_the_store() {
    let sim = sim(Faults::default());
    // Its heart beats once in an hour: to others it is stopped.
    let stopped = Distributed::open(sim.clone(), options("stopped", 3_600_000, 0));
    let stopped = stopped.expect("the store is free");
    let mut txn = stopped.begin();
    txn.guard(&[(Space::Records, b"k")]).expect("it is free");
    let next = Distributed::open(sim.clone(), options("next", 5, 20)).expect("it takes over");
    txn.put(Space::Records, b"k", b"stopped");
    assert!(matches!(txn.commit(), Err(Error::Conflict)), "its commit comes too late");
    commit(&next, |txn| txn.put(Space::Records, b"k", b"next"));
    let refused = Distributed::open(sim.clone(), options("third", 5, 60_000));
    let refused = refused.err().expect("the store is in use").to_string();
    assert!(refused.contains("in use by another Marula process (next)"), "{refused}");
    next.close().expect("it closes");
    Distributed::open(sim, options("third", 5, 60_000)).expect("the store is free at once");
}

/// It has lost it also for what it begins only now, which has read nothing before.
#[test]
fn a_stopped_owner_begins_nothing() {
    let sim = sim(Faults::default());
    let stopped = Distributed::open(sim.clone(), options("stopped", 3_600_000, 0));
    let stopped = stopped.expect("the store is free");
    let next = Distributed::open(sim.clone(), options("next", 5, 20)).expect("it takes over");
    let mut txn = stopped.begin();
    txn.put(Space::Records, b"k", b"stopped");
    let error = txn.commit().expect_err("the store is another's").to_string();
    assert!(error.contains("must be restarted"), "{error}");
    assert_eq!(get(&next, Space::Records, b"k"), None);
    next.close().expect("it closes");
}

/// A live owner notices that it has lost the store, and refuses everything.
#[test]
fn an_owner_notices_its_loss() {
    let sim = sim(Faults::default());
    let lease = LeaseOptions { beat: Duration::from_millis(2), ..LeaseOptions::new("a".into()) };
    let options = Options { lease: Some(lease), ..Options::default() };
    let store = Distributed::open(sim.clone(), options).expect("the store is free");
    let other = crate::kv::Mutation::Set(b"marula/\x02".to_vec(), b"12345678other".to_vec());
    sim.commit(&crate::kv::Commit { mutations: vec![other], ..Default::default() })
        .expect("it commits");
    let error = loop {
        match store.get(Space::Records, b"k", &mut |_| ()) {
            Ok(_) => thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("another process has taken over from this one"), "{error}");
    // It does not take the other's place away at its end.
    store.close().expect("it closes");
    let at = sim.read_version().expect("a version");
    assert_eq!(sim.get(at, b"marula/\x02").expect("it reads"), Some(b"12345678other".to_vec()));
}

/// A store of another format is not touched.
#[test]
fn another_format_is_refused() {
    let sim = sim(Faults::default());
    open_over(sim.clone());
    let other = crate::kv::Mutation::Set(b"marula/\x01".to_vec(), vec![9]);
    sim.commit(&crate::kv::Commit { mutations: vec![other], ..Default::default() })
        .expect("it commits");
    let refused = Distributed::open(sim, Options::default()).err().expect("it is refused");
    assert!(refused.to_string().contains("format"), "{refused}");
}

/// Several processes over one store: several adapters over one simulated store.
mod nodes {
    use marula_storage::nodes::Nodes;

    use super::*;

    fn open(sim: &Arc<Sim>, name: &str, beat_ms: u64, expiry_ms: u64) -> Arc<Distributed> {
        let options = Options { is_shared: true, ..options(name, beat_ms, expiry_ms) };
        Arc::new(Distributed::open(sim.clone(), options).expect("the store opens"))
    }

    fn node(store: &Distributed) -> &dyn Nodes {
        store.nodes().expect("the store is shared")
    }

    /// A commit that guards a key, and writes it.
    fn write(store: &Distributed, key: &[u8], changes_epoch: bool) -> Result<(), Error> {
        let mut txn = store.begin();
        txn.guard(&[(Space::Records, key)])?;
        txn.put(Space::Records, key, b"value");
        if changes_epoch {
            txn.change_epoch();
        }
        txn.commit().map(drop)
    }

    #[test]
    fn each_has_a_number_until_it_ends() {
        let sim = sim(Faults::default());
        let [a, b, c] = ["a", "b", "c"].map(|name| open(&sim, name, 1_000, 60_000));
        let numbers: Vec<u32> = [&a, &b, &c].map(|store| node(store).own().number).to_vec();
        assert_eq!(numbers, [0, 1, 2]);
        b.close().expect("it closes");
        let names = |store| {
            let list = node(store).list().expect("they are read");
            list.into_iter().map(|node| node.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&a), ["a", "c"]);
        let d = open(&sim, "d", 1_000, 60_000);
        assert_eq!(node(&d).own().number, 1);
        assert_ne!(node(&d).own().id, node(&b).own().id);
        assert_eq!(names(&c), ["a", "d", "c"]);
    }

    #[test]
    fn nobody_writes_under_an_epoch_that_has_passed() {
        let sim = sim(Faults::default());
        let [a, b] = ["a", "b"].map(|name| open(&sim, name, 1_000, 60_000));
        write(&a, b"1", false).expect("it commits");
        write(&b, b"2", false).expect("it commits");
        assert!(!node(&b).is_stale());
        // The node that changes the epoch goes along.
        write(&a, b"3", true).expect("it commits");
        write(&a, b"4", false).expect("it commits");
        assert!(matches!(write(&b, b"5", false), Err(Error::Conflict)));
        assert!(node(&b).is_stale());
        assert_eq!(get(&*b, Space::Records, b"5"), None);
        // A transaction that has read before the change does not commit either.
        let (_, epoch) = node(&b).view().expect("a moment");
        node(&b).accept(epoch);
        let mut txn = b.begin();
        txn.guard(&[(Space::Records, b"6")]).expect("it is free");
        write(&a, b"7", true).expect("it commits");
        txn.put(Space::Records, b"6", b"value");
        assert!(matches!(txn.commit(), Err(Error::Conflict)));
        // Two changes at once: one of them, and its node goes on.
        let (_, epoch) = node(&b).view().expect("a moment");
        node(&b).accept(epoch);
        assert_eq!(node(&a).accepted(), epoch);
        let outcomes = thread::scope(|scope| {
            let runs = [&a, &b].map(|store| scope.spawn(|| write(store, b"8", true).is_ok()));
            runs.map(|run| run.join().expect("it ends"))
        });
        assert!(outcomes[0] || outcomes[1]);
        let (_, epoch) = node(&a).view().expect("a moment");
        let current = [&a, &b].map(|store| node(store).accepted() == epoch);
        assert!(current.contains(&true) && current != [true, true], "{current:?} {outcomes:?}");
    }

    /// Writes without guards are of an owner; they commit, but their node does not take over what
    /// it has not read.
    #[test]
    fn a_change_beside_another_is_not_taken_for_the_only_one() {
        let sim = sim(Faults::default());
        let [a, b] = ["a", "b"].map(|name| open(&sim, name, 1_000, 60_000));
        write(&a, b"1", true).expect("it commits");
        let mut txn = b.begin();
        txn.put(Space::Catalog, b"entry", b"value");
        txn.change_epoch();
        txn.commit().expect("it commits");
        assert!(node(&b).is_stale());
        assert!(matches!(write(&a, b"2", false), Err(Error::Conflict)));
        assert!(matches!(write(&b, b"2", false), Err(Error::Conflict)));
    }

    #[test]
    fn readers_learn_of_another_epoch_before_they_read() {
        let sim = sim(Faults::default());
        let [a, b] = ["a", "b"].map(|name| open(&sim, name, 1_000, 60_000));
        let renewals = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let (weak, count) = (Arc::downgrade(&b), renewals.clone());
        node(&b).on_new_epoch(Box::new(move || {
            let b = weak.upgrade().expect("it is used");
            node(&b).accept(node(&b).view()?.1);
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        }));
        let renewed = || renewals.load(std::sync::atomic::Ordering::Relaxed);
        get(&*b, Space::Records, b"1");
        assert_eq!(renewed(), 0);
        write(&a, b"1", true).expect("it commits");
        assert!(get(&*b, Space::Records, b"1").is_some());
        assert_eq!(renewed(), 1);
        // An operation reads one moment, and says of which epoch.
        let epoch = b.begin_operation().expect("a moment");
        assert_eq!(epoch, node(&b).accepted());
        write(&a, b"2", true).expect("it commits");
        assert_eq!(get(&*b, Space::Records, b"2"), None);
        assert_eq!(renewed(), 1);
        b.end_operation();
        assert!(get(&*b, Space::Records, b"2").is_some());
        assert_eq!(renewed(), 2);
    }

    /// Its first read brings the moment along. By an older epoch it does nothing at all.
    #[test]
    fn an_operation_that_has_read_nothing_is_repeated() {
        let sim = sim(Faults::default());
        let [a, b] = ["a", "b"].map(|name| open(&sim, name, 1_000, 60_000));
        let trips = |store: &Distributed| {
            let all = store.statistics().into_iter();
            all.filter(|(name, _)| name.starts_with("round trips")).map(|(_, count)| count).sum()
        };
        let before: i64 = trips(&b);
        b.begin_repeatable().expect("it begins");
        assert_eq!(get(&*b, Space::Records, b"1"), None);
        assert_eq!(trips(&b), before + 1);
        assert!(!b.must_repeat().expect("it is known"));
        write(&b, b"own", false).expect("it commits");
        assert!(get(&*b, Space::Records, b"own").is_some(), "its own writes are shown");
        b.end_operation();

        write(&a, b"1", true).expect("it commits");
        let (mut visit, everything) = (|_: &[u8]| (), everything());
        let first_reads: [&dyn Fn() -> bool; 4] = [
            &|| b.get(Space::Records, b"1", &mut |_| ()).is_err(),
            &|| b.get_many(Space::Records, &[b"1"]).is_err(),
            &|| b.cursor(Space::Records, &everything, Direction::Forward).is_err(),
            &|| write(&b, b"2", false).is_err(),
        ];
        for read in first_reads {
            b.begin_repeatable().expect("it begins");
            assert!(read());
            // It goes on to fail, whatever it does.
            b.get(Space::Records, b"1", &mut visit).expect_err("it must be repeated");
            write(&b, b"2", false).expect_err("it must be repeated");
            let mut blind = b.begin();
            blind.put(Space::Records, b"2", b"value");
            blind.commit().expect_err("it must be repeated");
            assert!(b.must_repeat().expect("it is known"));
            b.end_operation();
        }
        // It has decided by memory alone.
        b.begin_repeatable().expect("it begins");
        assert!(b.must_repeat().expect("it is known"));
        let epoch = b.begin_operation().expect("a moment");
        node(&b).accept(epoch);
        assert!(get(&*b, Space::Records, b"1").is_some());
        assert_eq!(get(&*b, Space::Records, b"2"), None);
        assert!(!b.must_repeat().expect("it is known"));
        b.end_operation();
    }

    /// It may have taken from memory what is older than memory is at its end.
    #[test]
    fn an_operation_that_began_by_older_memory_is_repeated() {
        let sim = sim(Faults::default());
        let [a, b] = ["a", "b"].map(|name| open(&sim, name, 1_000, 60_000));
        for (key, reads) in [(b"1", false), (b"2", true)] {
            b.begin_repeatable().expect("it begins");
            write(&a, key, true).expect("it commits");
            // Another thread of this node reads the catalogue meanwhile.
            let (_, epoch) = node(&b).view().expect("a moment");
            node(&b).accept(epoch);
            if reads {
                b.get(Space::Records, key, &mut |_| ()).expect_err("it must be repeated");
            }
            assert!(b.must_repeat().expect("it is known"));
            b.end_operation();
            b.begin_repeatable().expect("it begins");
            assert!(get(&*b, Space::Records, key).is_some());
            assert!(!b.must_repeat().expect("it is known"));
            b.end_operation();
        }
    }

    /// The layers above date a change by the moment at which they have read it: an operation of an
    /// earlier moment would be refused, though the change was made before that.
    #[test]
    fn an_operation_older_than_what_is_in_memory_is_repeated() {
        let sim = sim(Faults::default());
        let [a, b] = ["a", "b"].map(|name| open(&sim, name, 1_000, 60_000));
        write(&a, b"1", true).expect("it commits");
        let at = b.shared().now().expect("a moment");
        write(&a, b"2", false).expect("it commits");
        // Another thread of this node reads the catalogue meanwhile.
        let (_, epoch) = node(&b).view().expect("a moment");
        assert_eq!(at.epoch, epoch);
        node(&b).accept(epoch);
        b.begin_repeatable().expect("it begins");
        b.shared().keep_first(at).expect_err("memory is newer");
        assert!(b.must_repeat().expect("it is known"));
        b.end_operation();
        b.begin_repeatable().expect("it begins");
        let at = b.shared().now().expect("a moment");
        b.shared().keep_first(at).expect("memory is older");
        b.end_operation();
    }

    #[test]
    fn one_at_a_time_holds_the_lock_and_its_end_frees_it() {
        let sim = sim(Faults::default());
        let [a, b] = ["a", "b"].map(|name| open(&sim, name, 1_000, 60_000));
        assert!(node(&a).try_lock().expect("it is reached"));
        assert!(!node(&b).try_lock().expect("it is reached"));
        node(&b).unlock();
        assert!(!node(&b).try_lock().expect("the lock is not its own"));
        node(&a).unlock();
        assert!(node(&b).try_lock().expect("it is reached"));
        assert!(!node(&a).try_lock().expect("it is reached"));
        b.close().expect("it closes");
        assert!(node(&a).try_lock().expect("it is reached"));
    }

    /// A node that was stopped finds its place taken, whatever it was about to write.
    #[test]
    fn a_stopped_node_writes_no_more() {
        let sim = sim(Faults::default());
        // Its heart beats once in an hour: to others it is stopped.
        let stopped = open(&sim, "stopped", 3_600_000, 60_000);
        assert!(node(&stopped).try_lock().expect("it is reached"));
        let mut blind = stopped.begin();
        blind.put(Space::Records, b"blind", b"value");
        let mut begun = stopped.begin();
        begun.guard(&[(Space::Records, b"begun")]).expect("it is free");
        begun.put(Space::Records, b"begun", b"value");
        let live = open(&sim, "live", 5, 50);
        while node(&live).list().expect("they are read").len() > 1 {
            thread::yield_now();
        }
        assert!(node(&live).try_lock().expect("it is free"));
        // Neither does it when another has its number.
        let next = open(&sim, "next", 5, 60_000);
        assert_eq!(node(&next).own().number, 0);
        assert!(matches!(begun.commit(), Err(Error::Conflict)));
        let is_lost = |outcome: Option<Error>| {
            outcome.is_some_and(|error| error.to_string().contains("must be restarted"))
        };
        assert!(is_lost(blind.commit().err()));
        assert!(is_lost(write(&stopped, b"k", false).err()));
        assert!(is_lost(node(&stopped).try_lock().err()));
        assert_eq!(get(&*live, Space::Records, b"blind"), None);
        write(&live, b"k", false).expect("it commits");
    }

    #[test]
    fn a_store_is_shared_or_one_processes() {
        let sim = sim(Faults::default());
        let alone = |expiry_ms| Distributed::open(sim.clone(), options("alone", 5, expiry_ms));
        let node = open(&sim, "node", 5, 60_000);
        let refused = alone(60_000).err().expect("the store is in use").to_string();
        assert!(refused.contains("in use by another Marula process (node)"), "{refused}");
        node.close().expect("it closes");
        let owner = alone(60_000).expect("the store is free");
        let lease =
            LeaseOptions { beat: Duration::from_millis(5), ..LeaseOptions::new("b".into()) };
        let options = Options { lease: Some(lease), is_shared: true, ..Options::default() };
        let refused = Distributed::open(sim.clone(), options).err().expect("it has an owner");
        assert!(refused.to_string().contains("(alone)"), "{refused}");
        owner.close().expect("it closes");
        drop(open(&sim, "node", 3_600_000, 60_000));
        // A node that has died without a word.
        std::mem::forget(open(&sim, "dead", 3_600_000, 60_000));
        alone(30).expect("it is found out that nobody lives");
    }

    /// Both see the owner's end, and neither takes the other for an owner.
    #[test]
    fn two_nodes_start_after_an_owner_has_died() {
        let sim = sim(Faults::default());
        let dead = Distributed::open(sim.clone(), options("dead", 3_600_000, 60_000));
        std::mem::forget(dead.expect("the store is free"));
        thread::scope(|scope| {
            let start = |name| {
                scope.spawn({
                    let sim = &sim;
                    move || open(sim, name, 5, 60)
                })
            };
            let nodes = ["a", "b"].map(start).map(|node| node.join().expect("it starts"));
            assert_eq!(node(&nodes[0]).list().expect("they are read").len(), 2);
        });
    }

    /// A look from outside distinguishes living processes from dead ones, and has their records.
    #[test]
    fn a_survey_names_the_living() {
        let sim = sim(Faults::default());
        let survey = || survey::survey(sim.clone(), b"marula/").expect("it can be reached");
        let nobody = survey().processes.expect("it can be read");
        assert!(nobody.nodes.is_empty() && nobody.owner.is_none());
        let lease = LeaseOptions {
            host: "a:27017".into(),
            version: "1.2.3".into(),
            beat: Duration::from_millis(5),
            ..LeaseOptions::new("a".into())
        };
        let options = Options { lease: Some(lease), is_shared: true, ..Options::default() };
        let alive = Distributed::open(sim.clone(), options).expect("the store opens");
        std::mem::forget(open(&sim, "dead", 3_600_000, 60_000));
        let seen = survey();
        let living = seen.processes.expect("it can be read").nodes;
        let nodes: Vec<(&str, bool)> =
            living.iter().map(|seen| (&*seen.process.name, seen.is_alive)).collect();
        assert_eq!(nodes, [("a", true), ("dead", false)]);
        let first = &living[0].process;
        assert_eq!((&*first.host, &*first.version), ("a:27017", "1.2.3"));
        assert!(0 < first.started_ms && first.started_ms <= first.ping_ms);
        assert!(seen.cluster.is_healthy() && seen.cluster.members.len() == 1);
        alive.close().expect("it closes");
    }

    /// Parts that another process is about to make a value of are not collected.
    #[test]
    fn what_others_stage_stays() {
        let sim = sim(Faults::default());
        let a = open(&sim, "a", 1_000, 60_000);
        let note = [&[1u8, 0, 0, 0, 3][..], b"m/x", b"marula/\x21lost\x00\x0112345678"].concat();
        let staged = crate::kv::Mutation::Set(b"marula/\x0512345678".to_vec(), note);
        let part =
            crate::kv::Mutation::Set(b"marula/\x21lost\x00\x01123456780000".to_vec(), vec![1]);
        let mutations = vec![staged, part];
        sim.commit(&crate::kv::Commit { mutations, ..Default::default() }).expect("it commits");
        a.compact(Space::Records, &everything(), &mut || true).expect("it compacts");
        assert_eq!(stored_keys(&sim, b"marula/\x21"), 1);
        let open = open(&sim, "b", 1_000, 60_000);
        assert_eq!(stored_keys(&sim, b"marula/\x21"), 1, "it is not alone");
        drop(open);
    }

    /// A commit that guards a key, writes it and takes the next number of the turn; the record of
    /// the number names the key.
    fn write_in_turn(store: &Distributed, key: &[u8]) -> Result<u64, Error> {
        let mut txn = store.begin();
        txn.guard(&[(Space::Records, key)])?;
        txn.put(Space::Records, key, b"value");
        let mut taken = 0;
        txn.commit_in_turn(b"turn", &mut |last, txn| {
            let last = last.map_or(0, |last| u64::from_be_bytes(last.try_into().expect("8 bytes")));
            taken = last + 1;
            txn.put(Space::Catalog, b"turn", &taken.to_be_bytes());
            txn.put(Space::Indexes, &taken.to_be_bytes(), key);
            txn.add(b"count", 1);
        })?;
        Ok(taken)
    }

    #[test]
    fn commits_in_turn_have_one_order() {
        const EACH: usize = 40;
        let faults = Faults {
            seed: 7,
            unknown_done: 20,
            unknown_not_done: 20,
            unknown_late: 20,
            false_conflict: 20,
            ..Faults::default()
        };
        let sim = sim(faults);
        let [a, b] = ["a", "b"].map(|name| open(&sim, name, 1_000, 60_000));
        let numbers =
            |view: &dyn View| keys(view, Space::Indexes, &everything(), Direction::Forward);
        thread::scope(|scope| {
            for (store, thread) in [(&a, 0_u8), (&a, 1), (&b, 2), (&b, 3)] {
                scope.spawn(move || {
                    for round in 0..EACH {
                        let key = [thread, round as u8];
                        while let Err(error) = write_in_turn(store, &key) {
                            assert!(matches!(error, Error::Conflict), "{error}");
                        }
                    }
                });
            }
            // A view that shows a number shows all before it.
            for store in [&a, &b, &a, &b] {
                let view = Store::view(store.clone()).expect("a view");
                let last = get(&*view, Space::Catalog, b"turn");
                let last =
                    last.map_or(0, |last| u64::from_be_bytes(last.try_into().expect("8 bytes")));
                assert_eq!(numbers(&*view).len() as u64, last);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let expected: Vec<Vec<u8>> =
            (1..=4 * EACH as u64).map(|number| number.to_be_bytes().to_vec()).collect();
        assert_eq!(numbers(&*a), expected);
        assert_eq!(counter(&*a, b"count"), 4 * EACH as i64);
    }

    #[test]
    fn a_commit_in_turn_conflicts_with_a_change_of_what_it_guards() {
        let sim = sim(Faults::default());
        let [a, b] = ["a", "b"].map(|name| open(&sim, name, 1_000, 60_000));
        let mut txn = a.begin();
        txn.guard(&[(Space::Records, b"guarded")]).expect("a guard");
        write(&b, b"guarded", false).expect("it commits");
        let mut calls = 0;
        let outcome = txn.commit_in_turn(b"turn", &mut |_, _| calls += 1);
        assert!(matches!(outcome, Err(Error::Conflict)) && calls == 0, "{outcome:?}");
        // Another key is nothing to it, and neither is an earlier turn.
        let mut txn = a.begin();
        txn.guard(&[(Space::Records, b"guarded")]).expect("a guard");
        write_in_turn(&b, b"another").expect("it commits");
        let mut last = None;
        let outcome = txn.commit_in_turn(b"turn", &mut |value, txn| {
            last = value.map(<[u8]>::to_vec);
            txn.put(Space::Catalog, b"turn", &2_u64.to_be_bytes());
        });
        assert!(outcome.is_ok() && last == Some(1_u64.to_be_bytes().to_vec()), "{outcome:?}");
        // Nobody commits by a memory that is of another epoch.
        write(&b, b"new epoch", true).expect("it commits");
        assert!(matches!(write_in_turn(&a, b"late"), Err(Error::Conflict)));
    }
}
