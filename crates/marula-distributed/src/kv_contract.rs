//! The tests that every backend passes.
//!
//! A *promise* is a function that takes a store, whose keys below [`Scope::root`] are its own, and
//! panics when the store breaks it. A backend's tests make a `#[test]` of each with
//! [`for_each_kv_promise!`](crate::for_each_kv_promise).

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use marula_storage::{Direction, KeyRange, Stamp, store};

use crate::kv::{BlockLimit, Commit, Conflict, Kv, KvError, Mutation, Version};

/// Calls a macro with the name of every promise of a backend.
#[macro_export]
macro_rules! for_each_kv_promise {
    ($callback:ident) => {
        $callback! {
            reads_are_of_their_version ranges_come_in_blocks conflicts_are_found
            conflicts_of_what_is_not_there writes_alone_conflict_with_nothing
            mutations_are_made_in_order additions_commute
            additions_are_of_their_commits commits_have_limits watches_end estimates_are_near random_commits_match_a_model
        }
    };
}

/// A store, and the part of it that a promise may use.
pub struct Scope<'k> {
    /// The store.
    pub kv: &'k dyn Kv,
    /// In front of every key.
    pub root: Vec<u8>,
}

impl Scope<'_> {
    fn key(&self, key: impl AsRef<[u8]>) -> Vec<u8> {
        [&self.root, key.as_ref()].concat()
    }

    fn range(&self, start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> KeyRange {
        KeyRange { start: self.key(start), end: self.key(end) }
    }

    fn whole(&self) -> KeyRange {
        KeyRange { start: self.root.clone(), end: store::prefix_end(&self.root).expect("it ends") }
    }

    fn version(&self) -> Version {
        self.kv.read_version().expect("a version is read")
    }

    fn get(&self, at: Version, key: &str) -> Option<Vec<u8>> {
        self.kv.get(at, &self.key(key)).expect("a key is read")
    }

    fn set(&self, key: &str, value: &str) -> Mutation {
        Mutation::Set(self.key(key), value.as_bytes().to_vec())
    }

    fn commit(&self, mutations: Vec<Mutation>) -> Stamp {
        let commit = Commit { mutations, ..Commit::default() };
        self.kv.commit(&commit).expect("a commit succeeds")
    }

    /// Commits a write of `written` that has read `reads` at `at`.
    fn commit_reading(
        &self,
        at: Version,
        reads: &[Conflict],
        written: &str,
    ) -> Result<Stamp, KvError> {
        self.kv.commit(&Commit {
            read_version: Some(at),
            reads: reads.to_vec(),
            mutations: vec![self.set(written, "x")],
            ..Commit::default()
        })
    }

    /// All keys and values, by blocks of this many.
    fn scan(&self, at: Version, range: &KeyRange, direction: Direction, by: usize) -> Entries {
        let mut rest = range.clone();
        let mut found = Vec::new();
        loop {
            let limit = BlockLimit { entries_max: by, bytes_max: usize::MAX };
            let block = self.kv.range(at, &rest, direction, limit).expect("a range is read");
            assert!(block.entries.len() <= by);
            let last = block.entries.last().map(|(key, _)| key.clone());
            found.extend(block.entries);
            match (block.has_more, last, direction) {
                (false, ..) => return found,
                (true, None, _) => panic!("an empty block says that there is more"),
                (true, Some(last), Direction::Forward) => rest.start = [&last[..], &[0]].concat(),
                (true, Some(last), Direction::Backward) => rest.end = last,
            }
        }
    }
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads show what was committed before their version was given, and nothing later.
pub fn reads_are_of_their_version(scope: &Scope<'_>) {
    scope.commit(vec![scope.set("a", "1"), scope.set("b", "1")]);
    let before = scope.version();
    let stamp = scope.commit(vec![
        scope.set("a", "2"),
        Mutation::Clear(scope.key("b")),
        scope.set("c", "2"),
    ]);
    let after = scope.version();
    assert!(before < stamp.version && stamp.version <= after, "{before} {stamp:?} {after}");
    assert_eq!(scope.get(before, "a").as_deref(), Some(&b"1"[..]));
    assert_eq!(scope.get(before, "b").as_deref(), Some(&b"1"[..]));
    assert_eq!(scope.get(before, "c"), None);
    assert_eq!(scope.get(after, "a").as_deref(), Some(&b"2"[..]));
    assert_eq!(scope.get(after, "b"), None);
    let keys: Vec<Vec<u8>> = ["c", "b", "a", "a"].iter().map(|key| scope.key(key)).collect();
    let many = scope.kv.get_many(after, &keys).expect("keys are read");
    let one = |text: &str| Some(text.as_bytes().to_vec());
    assert_eq!(many, [one("2"), None, one("2"), one("2")]);
    assert_eq!(scope.scan(before, &scope.whole(), Direction::Forward, 10).len(), 2);
    let newer = scope.commit(vec![scope.set("a", "3")]);
    assert!(newer > stamp, "stamps ascend");
}

/// A range comes in blocks, both ways, and says when there is more; an empty one has nothing.
pub fn ranges_come_in_blocks(scope: &Scope<'_>) {
    let mutations = (0..25u8).map(|n| Mutation::Set(scope.key([b'k', n]), vec![n; 100])).collect();
    scope.commit(mutations);
    let at = scope.version();
    let range = scope.range([b'k', 3], [b'k', 20]);
    for by in [1, 3, 16, 17, 100] {
        let up = scope.scan(at, &range, Direction::Forward, by);
        let mut down = scope.scan(at, &range, Direction::Backward, by);
        down.reverse();
        assert_eq!(up, down);
        let wanted = (3..20u8).map(|n| (scope.key([b'k', n]), vec![n; 100]));
        assert!(up.into_iter().eq(wanted), "blocks of {by}");
    }
    let limit = BlockLimit { entries_max: 100, bytes_max: 1 };
    let block = scope.kv.range(at, &range, Direction::Forward, limit).expect("a range is read");
    assert!(
        !block.entries.is_empty() && block.has_more,
        "the first entry comes, whatever its size"
    );
    for (start, end) in [("k\x03", "k\x03"), ("k\x09", "k\x03"), ("z", "zz")] {
        for direction in [Direction::Forward, Direction::Backward] {
            assert_eq!(scope.scan(at, &scope.range(start, end), direction, 5), []);
        }
    }
}

/// A commit that has read what a later one has written fails and changes nothing.
pub fn conflicts_are_found(scope: &Scope<'_>) {
    scope.commit(vec![scope.set("a", "1"), scope.set("b", "1")]);
    let at = scope.version();
    scope.commit(vec![scope.set("a", "2")]);
    let key = |key: &str| Conflict::Key(scope.key(key));
    let outcome = scope.commit_reading(at, &[key("b"), key("a")], "new");
    assert_eq!(outcome, Err(KvError::Conflict));
    assert_eq!(scope.get(scope.version(), "new"), None);
    scope.commit_reading(at, &[key("b")], "new").expect("what it has read is unchanged");
    assert_eq!(scope.get(scope.version(), "new").as_deref(), Some(&b"x"[..]));
    scope.commit_reading(scope.version(), &[key("a")], "a").expect("it has read the newest");
    let at = scope.version();
    scope.commit(vec![Mutation::Clear(scope.key("b"))]);
    let outcome = scope.commit_reading(at, &[key("b")], "new");
    assert_eq!(outcome, Err(KvError::Conflict), "a removal is a change");
    let at = scope.version();
    scope.commit(vec![Mutation::Add(scope.key("count"), 1)]);
    let outcome = scope.commit_reading(at, &[key("count")], "new");
    assert_eq!(outcome, Err(KvError::Conflict), "an addition is a change");
}

/// A key that was absent when it was read, and is there now, conflicts; a cleared range does where
/// it held the key.
pub fn conflicts_of_what_is_not_there(scope: &Scope<'_>) {
    let key = |key: &str| Conflict::Key(scope.key(key));
    let at = scope.version();
    scope.commit(vec![scope.set("new", "1")]);
    assert_eq!(scope.commit_reading(at, &[key("new")], "x"), Err(KvError::Conflict));
    scope.commit_reading(at, &[key("other")], "x").expect("it is still not there");
    scope.commit(vec![scope.set("r1", "1"), scope.set("r2", "1"), scope.set("s", "1")]);
    let at = scope.version();
    scope.commit(vec![Mutation::ClearRange(scope.range("r", "s"))]);
    assert_eq!(scope.commit_reading(at, &[key("r1")], "x"), Err(KvError::Conflict));
    scope.commit_reading(at, &[key("s")], "x").expect("a range's end is not in it");
}

/// Commits that have read nothing never conflict.
pub fn writes_alone_conflict_with_nothing(scope: &Scope<'_>) {
    std::thread::scope(|threads| {
        for thread in 0..4u8 {
            threads.spawn(move || {
                for round in 0..25u8 {
                    scope.commit(vec![Mutation::Set(scope.key("same"), vec![thread, round])]);
                }
            });
        }
    });
    assert!(scope.get(scope.version(), "same").is_some_and(|value| value[1] == 24));
}

/// Later changes of one commit are made on top of earlier ones.
pub fn mutations_are_made_in_order(scope: &Scope<'_>) {
    scope.commit(vec![scope.set("old", "1"), scope.set("oldest", "1")]);
    scope.commit(vec![
        scope.set("a", "1"),
        scope.set("a", "2"),
        scope.set("b", "1"),
        Mutation::Clear(scope.key("b")),
        Mutation::Clear(scope.key("c")),
        scope.set("c", "1"),
        scope.set("okay", "1"),
        Mutation::ClearRange(scope.range("o", "p")),
        scope.set("old", "again"),
        Mutation::Add(scope.key("n"), 5),
        Mutation::Clear(scope.key("n")),
        Mutation::Add(scope.key("n"), 2),
        Mutation::Add(scope.key("n"), -7),
        Mutation::ClearRange(scope.range("z", "y")),
    ]);
    let text = |text: &str| text.as_bytes().to_vec();
    let wanted = [
        (scope.key("a"), text("2")),
        (scope.key("c"), text("1")),
        (scope.key("n"), (-5i64).to_le_bytes().to_vec()),
        (scope.key("old"), text("again")),
    ];
    assert_eq!(scope.scan(scope.version(), &scope.whole(), Direction::Forward, 100), wanted);
}

/// Additions from many threads lose nothing, and wrap.
pub fn additions_commute(scope: &Scope<'_>) {
    std::thread::scope(|threads| {
        for thread in 0..4i64 {
            threads.spawn(move || {
                for _ in 0..25 {
                    scope.commit(vec![
                        Mutation::Add(scope.key("count"), 1),
                        Mutation::Add(scope.key("sum"), -thread),
                    ]);
                }
            });
        }
    });
    scope.commit(vec![Mutation::Add(scope.key("wraps"), i64::MAX)]);
    scope.commit(vec![Mutation::Add(scope.key("wraps"), 2)]);
    let at = scope.version();
    let number = |key| {
        let value = scope.get(at, key).expect("it is there");
        i64::from_le_bytes(value.try_into().expect("8 bytes"))
    };
    assert_eq!([number("count"), number("sum"), number("wraps")], [100, -150, i64::MIN + 1]);
}

/// Commits that add to one counter at the same time, and guard and set a register each: each that
/// succeeds has its own stamp, and has changed the register that it has read.
pub fn additions_are_of_their_commits(scope: &Scope<'_>) {
    const REGISTERS: usize = 3;
    let number = |value: Option<Vec<u8>>| {
        value.map_or(0, |value| i64::from_le_bytes(value.try_into().expect("8 bytes")))
    };
    let register = |number: usize| scope.key(format!("register {number}"));
    let increment = |place: usize| {
        loop {
            let at = scope.version();
            let key = register(place);
            let value = number(scope.kv.get(at, &key).expect("it reads"));
            let outcome = scope.kv.commit(&Commit {
                read_version: Some(at),
                reads: vec![Conflict::Key(key.clone())],
                writes: Vec::new(),
                mutations: vec![
                    Mutation::Set(key, (value + 1).to_le_bytes().to_vec()),
                    Mutation::Add(scope.key("total"), 1),
                ],
            });
            match outcome {
                Err(KvError::Conflict) => {}
                outcome => return outcome.expect("a commit succeeds"),
            }
        }
    };
    let increment = &increment;
    let stamps: Vec<Stamp> = std::thread::scope(|threads| {
        let each =
            |thread: usize| (0..20).map(move |round| increment((thread + round) % REGISTERS));
        let running: Vec<_> =
            (0..8).map(|thread| threads.spawn(move || each(thread).collect::<Vec<_>>())).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect()
    });
    let at = scope.version();
    let sum: i64 = (0..REGISTERS).map(|n| number(scope.get(at, &format!("register {n}")))).sum();
    assert_eq!([number(scope.get(at, "total")), sum], [160, 160]);
    let different: HashSet<Stamp> = stamps.iter().copied().collect();
    assert_eq!(different.len(), stamps.len(), "no two commits have one stamp");
    assert!(stamps.iter().all(|stamp| stamp.version <= at));
}

/// A commit over a limit is refused and changes nothing; one at the limit is taken.
pub fn commits_have_limits(scope: &Scope<'_>) {
    let limits = scope.kv.limits();
    let value = limits.value_bytes_max.min(limits.commit_bytes_max / 4);
    scope.commit(vec![Mutation::Set(scope.key("large"), vec![7; value])]);
    assert_eq!(scope.get(scope.version(), "large").map(|value| value.len()), Some(value));
    let refused = |mutations: Vec<Mutation>| {
        let outcome = scope.kv.commit(&Commit { mutations, ..Commit::default() });
        assert_eq!(outcome, Err(KvError::TooLarge));
    };
    let long = vec![b'k'; limits.key_bytes_max - scope.root.len()];
    scope.commit(vec![Mutation::Set(scope.key(&long), Vec::new())]);
    refused(vec![Mutation::Set(scope.key([&long[..], b"k"].concat()), Vec::new())]);
    if limits.value_bytes_max < limits.commit_bytes_max {
        refused(vec![Mutation::Set(scope.key("new"), vec![0; limits.value_bytes_max + 1])]);
    }
    let count = limits.commit_bytes_max / value + 1;
    let many = (0..count)
        .map(|n| Mutation::Set(scope.key(format!("m{n}")), vec![0; value]))
        .collect::<Vec<_>>();
    refused(many);
    assert_eq!(scope.get(scope.version(), "m0"), None);
}

/// A watch ends when the value is another, and when its time is up.
pub fn watches_end(scope: &Scope<'_>) {
    scope.commit(vec![scope.set("w", "1")]);
    let watch = |seen: Option<&[u8]>, timeout: Duration| {
        scope.kv.watch(&scope.key("w"), seen, timeout).expect("a watch ends")
    };
    assert!(watch(None, Duration::from_secs(30)), "it is another already");
    watch(Some(b"1"), Duration::from_millis(20));
    std::thread::scope(|threads| {
        threads.spawn(|| scope.commit(vec![scope.set("w", "2")]));
        while scope.get(scope.version(), "w").as_deref() == Some(b"1") {
            watch(Some(b"1"), Duration::from_secs(30));
        }
    });
}

/// Estimates are no wild guesses, and split points lie in their range.
pub fn estimates_are_near(scope: &Scope<'_>) {
    for part in 0..20u8 {
        let entries = (0..100u8).map(|n| Mutation::Set(scope.key([part, n]), vec![1; 300]));
        scope.commit(entries.collect());
    }
    let weight = 2000 * (scope.root.len() as u64 + 302);
    let estimate = scope.kv.estimate(&scope.whole()).expect("an estimate");
    if let Some(bytes) = estimate.bytes {
        assert!(bytes <= weight * 2, "{bytes} bytes for {weight}");
    }
    if let Some(keys) = estimate.keys {
        assert!((1000..=4000).contains(&keys), "{keys} keys for 2000");
    }
    let points = scope.kv.split_points(&scope.whole(), 4).expect("split points");
    assert!(points.is_sorted_by(|one, other| one < other));
    assert!(points.iter().all(|point| Conflict::Range(scope.whole()).contains(point)));
}

/// Random commits, some of which conflict, leave what a map and a list of changes say.
pub fn random_commits_match_a_model(scope: &Scope<'_>) {
    let mut random = Random(0x1234_5678_9ABC_DEF1);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut older: Vec<(Version, BTreeMap<Vec<u8>, Vec<u8>>)> = Vec::new();
    // The keys that each commit wrote, and its version.
    let mut written: Vec<(Version, Vec<Vec<u8>>)> = Vec::new();
    for _ in 0..150 {
        older.push((scope.version(), model.clone()));
        let (at, _) = &older[older.len() - 1 - random.below(older.len().min(4))];
        let mut changed = model.clone();
        let mut keys = Vec::new();
        let mut commit = Commit { read_version: Some(*at), ..Commit::default() };
        for _ in 0..random.below(3) {
            commit.reads.push(Conflict::Key(scope.key([b'a' + random.below(8) as u8])));
        }
        for _ in 0..=random.below(4) {
            let key = scope.key([b'a' + random.below(8) as u8]);
            keys.push(key.clone());
            if random.below(3) == 0 {
                commit.mutations.push(Mutation::Clear(key.clone()));
                changed.remove(&key);
            } else {
                let value = vec![random.below(256) as u8; random.below(40)];
                commit.mutations.push(Mutation::Set(key.clone(), value.clone()));
                changed.insert(key, value);
            }
        }
        let later = written.iter().filter(|(version, _)| version > at);
        let mut later = later.flat_map(|(_, keys)| keys);
        let conflicts = later.any(|key| commit.reads.iter().any(|read| read.contains(key)));
        match scope.kv.commit(&commit) {
            Ok(stamp) => {
                // Absent before and after is no change to everyone.
                assert!(!conflicts || scope.kv.name() == "etcd", "a conflict is overlooked");
                written.push((stamp.version, keys));
                model = changed;
            }
            Err(KvError::Conflict) => assert!(conflicts, "a conflict out of nothing"),
            Err(error) => panic!("a commit fails: {error}"),
        }
        for (at, model) in older.iter().rev().take(3) {
            let found = scope.scan(*at, &scope.whole(), Direction::Forward, 3);
            assert!(found.into_iter().eq(model.clone()), "the state at {at}");
        }
    }
    assert!(written.len() > 20 && written.len() < 150, "{} commits", written.len());
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit as u64) as usize
    }
}
