//! The simulated store keeps the promises of a backend, FoundationDB's limits, and its word about
//! faults.

use super::*;
use crate::kv_contract::{self, Scope};

fn store(faults: Faults) -> Sim {
    Sim::new(StepClock::new(Duration::from_micros(10)), faults)
}

macro_rules! promises {
    ($($promise:ident)*) => {
        $(#[test] fn $promise() {
            kv_contract::$promise(&Scope { kv: &store(Faults::default()), root: b"r/".to_vec() });
        })*
    };
}

crate::for_each_kv_promise!(promises);

fn set(key: &str) -> Mutation {
    Mutation::Set(key.as_bytes().to_vec(), b"1".to_vec())
}

fn commit(mutations: Vec<Mutation>) -> Commit {
    Commit { mutations, ..Commit::default() }
}

fn is_there(sim: &Sim, key: &str) -> bool {
    let at = sim.read_version().expect("a version");
    sim.get(at, key.as_bytes()).expect("it reads").is_some()
}

#[test]
fn versions_live_five_seconds() {
    let sim = store(Faults::default());
    let at = sim.read_version().expect("a version");
    let mut late = commit(vec![set("a")]);
    late.read_version = Some(at);
    late.reads.push(Conflict::Key(b"b".to_vec()));
    sim.clock().pass(Duration::from_millis(4_900));
    assert_eq!(sim.get(at, b"a"), Ok(None));
    sim.commit(&late).expect("it is young enough");
    sim.clock().pass(Duration::from_millis(200));
    assert_eq!(sim.get(at, b"a"), Err(KvError::TooOld));
    assert_eq!(sim.commit(&late), Err(KvError::TooOld));
    // A commit that has read nothing is never too old.
    late.reads.clear();
    sim.commit(&late).expect("it has read nothing");
    assert!(is_there(&sim, "a"), "an idle store gives new versions");
}

#[test]
fn versions_that_nobody_gave_out_are_refused() {
    let sim = store(Faults::default());
    let at = sim.read_version().expect("a version");
    assert_eq!(sim.get(at + 1, b"a"), Err(KvError::TooOld));
}

#[test]
fn stamped_keys_have_the_stamp_of_their_commit() {
    let sim = store(Faults::default());
    let stamped =
        Mutation::SetStamped { prefix: b"l".to_vec(), suffix: b"x".to_vec(), value: vec![1] };
    let stamps: Vec<Stamp> =
        (0..3).map(|_| sim.commit(&commit(vec![stamped.clone()])).expect("it commits")).collect();
    let at = sim.read_version().expect("a version");
    let range = KeyRange::prefix(b"l");
    let limit = BlockLimit { entries_max: 10, bytes_max: 1000 };
    let block = sim.range(at, &range, Direction::Forward, limit).expect("it reads");
    let wanted = stamps.iter().map(|stamp| [b"l", &stamp.to_bytes()[..], b"x"].concat());
    assert!(block.entries.into_iter().map(|(key, _)| key).eq(wanted));
}

#[test]
fn ranges_conflict() {
    let sim = store(Faults::default());
    let at = sim.read_version().expect("a version");
    sim.commit(&commit(vec![set("m")])).expect("it commits");
    for (range, conflicts) in [("a".."m", false), ("a".."n", true), ("m".."m\0", true)] {
        let range =
            KeyRange { start: range.start.as_bytes().to_vec(), end: range.end.as_bytes().to_vec() };
        let mut reading = commit(Vec::new());
        reading.read_version = Some(at);
        reading.reads.push(Conflict::Range(range));
        assert_eq!(sim.commit(&reading).is_err(), conflicts);
    }
    let mut claiming = commit(Vec::new());
    claiming.writes.push(Conflict::Range(KeyRange::prefix(b"claimed")));
    let at = sim.read_version().expect("a version");
    sim.commit(&claiming).expect("it commits");
    let mut reading = commit(vec![set("x")]);
    reading.read_version = Some(at);
    reading.reads.push(Conflict::Key(b"claimed/1".to_vec()));
    assert_eq!(sim.commit(&reading), Err(KvError::Conflict));
}

#[test]
fn unknown_commits_are_made_or_not_or_late() {
    let unknown = |faults: Faults| {
        let sim = store(faults);
        assert_eq!(sim.commit(&commit(vec![set("a")])), Err(KvError::Unknown));
        sim.set_faults(Faults::default());
        let before = {
            let state = sim.state.lock();
            state.tree.get(b"a").is_some()
        };
        sim.settle();
        (before, is_there(&sim, "a"))
    };
    assert_eq!(unknown(Faults { unknown_done: 1000, ..Faults::default() }), (true, true));
    assert_eq!(unknown(Faults { unknown_not_done: 1000, ..Faults::default() }), (false, false));
    assert_eq!(unknown(Faults { unknown_late: 1000, ..Faults::default() }), (false, true));
}

#[test]
fn a_late_commit_that_meets_a_conflict_is_not_made() {
    let sim = store(Faults { unknown_late: 1000, ..Faults::default() });
    let at = sim.read_version().expect("a version");
    let mut late = commit(vec![set("a")]);
    late.read_version = Some(at);
    late.reads.push(Conflict::Key(b"guard".to_vec()));
    assert_eq!(sim.commit(&late), Err(KvError::Unknown));
    sim.set_faults(Faults::default());
    let state = &mut *sim.state.lock();
    let late = std::mem::take(&mut state.late);
    state.commit(&commit(vec![set("guard")]), 0).expect("it commits");
    assert_eq!(state.commit(&late[0], 0), Err(KvError::Conflict));
}

#[test]
fn faults_repeat_by_their_seed() {
    let run = |seed| {
        let sim = store(Faults {
            seed,
            unknown_done: 50,
            unknown_not_done: 50,
            unknown_late: 50,
            false_conflict: 100,
            too_old: 50,
            slow_read: 100,
            pause: 50,
            unavailable: 50,
        });
        let mut outcomes = Vec::new();
        for n in 0..300 {
            let at = sim.read_version();
            let mut commit = commit(vec![set(&n.to_string())]);
            commit.read_version = at.as_ref().ok().copied();
            if at.is_ok() {
                commit.reads.push(Conflict::Key(b"x".to_vec()));
            }
            outcomes.push(format!("{:?} {:?}", at, sim.commit(&commit)));
        }
        sim.settle();
        outcomes.push(format!("{:?}", sim.state.lock().tree.weight().keys));
        outcomes
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let all = run(3).join("\n");
    for kind in ["Unknown", "Conflict", "TooOld", "Unavailable", "Ok"] {
        assert!(all.contains(kind), "no {kind} came");
    }
}
