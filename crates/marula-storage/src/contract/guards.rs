//! Promises about guards and counters of concurrent transactions.

use std::sync::Barrier;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::store::Error;

/// No write is lost when two transactions guard the same key and write the value they read plus
/// one.
pub fn guards_exclude(open: Open) {
    let store = Fixture::new(open);
    increment_concurrently(&*store, 8, 150, &["a", "b", "c"]);
}

/// Many threads that guard one key all make progress.
pub fn guards_of_one_key_starve_nobody(open: Open) {
    let store = Fixture::new(open);
    increment_concurrently(&*store, 64, 20, &["hot"]);
}

/// Threads increment numbers by guard, read and write; a wrong sum means a lost update.
fn increment_concurrently(store: &dyn Store, threads: u64, rounds: u64, names: &[&str]) {
    let read = |name: &str| {
        let value = get(store, Space::Records, name);
        value.map_or(0, |value| u64::from_le_bytes(value.try_into().expect("8 bytes")))
    };
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for round in 0..rounds {
                    let name = names[(thread + round) as usize % names.len()];
                    retry(|| {
                        let mut txn = store.begin();
                        txn.guard(&[(Space::Records, name.as_bytes())])?;
                        txn.put(Space::Records, name.as_bytes(), &(read(name) + 1).to_le_bytes());
                        txn.commit()
                    });
                }
            });
        }
    });
    let sum: u64 = names.iter().map(|name| read(name)).sum();
    assert_eq!(sum, threads * rounds, "increments were lost");
}

/// Runs `attempt` until it does not conflict. Panics after 1,000 conflicts, so that a test ends.
fn retry<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> T {
    for _ in 0..1000 {
        match attempt() {
            Ok(done) => return done,
            Err(Error::Conflict) => continue,
            Err(error) => panic!("a transaction fails: {error}"),
        }
    }
    panic!("a transaction conflicts 1000 times: it starves");
}

/// A transaction releases its keys when it ends, committed or not; guarding a key twice is allowed.
pub fn guards_release(open: Open) {
    let store = Fixture::new(open);
    let key: (Space, &[u8]) = (Space::Records, b"k");
    for does_commit in [true, false, true] {
        let mut txn = store.begin();
        txn.guard(&[key]).expect("a free key is guarded");
        txn.guard(&[key]).expect("an own key is guarded again");
        txn.guard(&[key, (Space::Indexes, b"k"), key, (Space::Records, b"l")])
            .expect("own and free keys are guarded together");
        if does_commit {
            txn.put(key.0, key.1, b"1");
            txn.commit().expect("a commit succeeds");
        } else {
            drop(txn);
        }
    }
    let mut txn = store.begin();
    txn.guard(&[]).expect("nothing is guarded");
    txn.guard(&[key]).expect("a released key is guarded");
    // A guarded transaction may end on another thread than the one that began it.
    thread::scope(|scope| {
        scope.spawn(move || drop(txn));
    });
    store.begin().guard(&[key]).expect("a released key is guarded");
}

/// A read after a guard shows the value that the last holder committed.
pub fn guards_show_the_newest(open: Open) {
    let store = Fixture::new(open);
    let store: &dyn Store = &*store;
    let key: (Space, &[u8]) = (Space::Records, b"k");
    let (guarded, is_guarded) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut txn = store.begin();
            txn.guard(&[key]).expect("a free key is guarded");
            guarded.send(()).expect("the other thread listens");
            thread::sleep(Duration::from_millis(5));
            txn.put(key.0, key.1, b"new");
            txn.commit().expect("a commit succeeds");
        });
        is_guarded.recv().expect("the other thread guards");
        retry(|| {
            let mut txn = store.begin();
            txn.guard(&[key])?;
            assert_eq!(get(store, key.0, key.1).as_deref(), Some(&b"new"[..]));
            txn.commit()
        });
    });
}

/// A guard with a timeout of zero conflicts at once when another transaction holds the key, either
/// at the guard or, where guards are optimistic, at the commit; with a timeout it conflicts in
/// bounded time.
pub fn guards_without_timeout_conflict_at_once(open: Open) {
    let store = Fixture::new(open);
    let keys: [(Space, &[u8]); 2] = [(Space::Records, b"k"), (Space::Records, b"free")];
    let mut holder = store.begin();
    holder.guard(&keys[..1]).expect("a free key is guarded");
    for timeout in [Duration::ZERO, Duration::from_millis(20)] {
        let started = Instant::now();
        let mut txn = store.begin();
        let guarded = txn.guard_within(&keys, timeout);
        assert!(started.elapsed() < Duration::from_secs(5), "a guard waits for ever");
        if let Err(error) = guarded {
            assert!(matches!(error, Error::Conflict), "{error}");
            // The keys that the failed call had claimed are free again.
            store.begin().guard_within(&keys[1..], Duration::ZERO).expect("a free key is guarded");
        }
    }
    holder.put(Space::Records, b"k", b"1");
    holder.commit().expect("the holder commits");
}

/// Transactions that guard keys in opposite orders never deadlock.
pub fn guards_in_opposite_orders_end(open: Open) {
    let store = Fixture::new(open);
    let store: &dyn Store = &*store;
    let names: Vec<String> = (0..6).map(|n| format!("key{n}")).collect();
    let names = &names;
    let barrier = &Barrier::new(4);
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let mut random = Random::new(thread + 1);
                barrier.wait();
                for round in 0..60 {
                    // Each attempt uses another order.
                    retry(|| {
                        let mut order: Vec<&String> = names.iter().collect();
                        if (thread + round) % 2 == 0 {
                            order.reverse();
                        }
                        order.rotate_left(random.below(names.len()));
                        let mut txn = store.begin();
                        for name in order.iter().take(3) {
                            txn.guard(&[(Space::Records, name.as_bytes())])?;
                            txn.put(Space::Records, name.as_bytes(), &[0]);
                        }
                        txn.commit()
                    });
                }
            });
        }
    });
}

/// While a value is visited the same view can be read, in a transaction too: an update decides by
/// other keys whether it may be made.
pub fn a_visit_may_read_more(open: Open) {
    let store = Fixture::new(open);
    commit(&*store, |txn| {
        txn.put(Space::Records, b"a", b"1");
        txn.put(Space::Indexes, b"b", b"2");
    });
    let read_both = |view: &dyn View| {
        let mut inner = None;
        let found = view.get(Space::Records, b"a", &mut |outer| {
            inner = Some((
                outer.to_vec(),
                get(view, Space::Indexes, b"b"),
                get(view, Space::Records, b"a"),
            ));
        });
        assert!(found.expect("a read succeeds"));
        inner.expect("it was visited")
    };
    let expected = (b"1".to_vec(), Some(b"2".to_vec()), Some(b"1".to_vec()));
    assert_eq!(read_both(&*store), expected);
    assert_eq!(read_both(&*store.view()), expected);
    let mut txn = store.begin();
    assert_eq!(read_both(txn.view()), expected);
    txn.guard(&[(Space::Records, b"a"), (Space::Indexes, b"b")]).expect("free keys are guarded");
    assert_eq!(read_both(txn.view()), expected);
}

/// Guarded keys do not change in a transaction's view until its end, for values of all sizes and
/// for missing keys; of two writers of such a key one is rejected.
pub fn guarded_keys_stay_in_the_view(open: Open) {
    let store = Fixture::new(open);
    let large = vec![7; 300_000];
    commit(&*store, |txn| {
        txn.put(Space::Records, b"large", &large);
        txn.put(Space::Records, b"small", b"1");
    });
    let keys: [(Space, &[u8]); 3] =
        [(Space::Records, b"large"), (Space::Records, b"small"), (Space::Records, b"none")];
    for (space, key) in keys {
        let mut txn = store.begin();
        txn.guard(&keys).expect("free keys are guarded");
        let before: Vec<_> = keys.iter().map(|(space, key)| get(txn.view(), *space, key)).collect();
        let mut other = store.begin();
        let guarded = other.guard_within(&[(space, key)], Duration::ZERO);
        other.put(space, key, b"theirs");
        let is_theirs = guarded.and_then(|()| other.commit()).is_ok();
        let found = txn.view().get_many(Space::Records, &keys.map(|(_, key)| key));
        let found = found.expect("a read succeeds");
        for (place, before) in before.iter().enumerate() {
            match (found.get(place), before) {
                (Looked::Found(value), Some(before)) => assert!(value == before.as_slice()),
                (Looked::Absent, None) | (Looked::Unread, _) => {}
                (found, _) => panic!("a guarded key has changed: {place} is {found:?}"),
            }
        }
        drop(found);
        txn.put(space, key, b"mine");
        assert_eq!(txn.commit().is_ok(), !is_theirs, "of two writers one commits");
        let wanted: &[u8] = if is_theirs { b"theirs" } else { b"mine" };
        assert_eq!(get(&*store, space, key).as_deref(), Some(wanted));
    }
}

/// Counter increments are never lost: without guards, among other writes, and after reopening a
/// persistent store.
pub fn counters_commute(open: Open) {
    let folder = Folder::new();
    let store = open(folder.path());
    let shared: &dyn Store = &*store;
    thread::scope(|scope| {
        for thread in 0..8i64 {
            scope.spawn(move || {
                for round in 0..100 {
                    commit(shared, |txn| {
                        txn.add(b"count", 1);
                        txn.add(b"bytes", thread * 1000 + round);
                        txn.add(b"bytes", -round);
                        txn.put(Space::Records, format!("{thread}/{round}").as_bytes(), b"x");
                    });
                }
            });
        }
    });
    commit(shared, |txn| txn.add(b"wraps", i64::MAX));
    commit(shared, |txn| txn.add(b"wraps", 2));
    let check = |store: &dyn Store| {
        assert_eq!(counter(store, "count"), 800);
        assert_eq!(counter(store, "bytes"), (0..8).map(|thread| thread * 1000 * 100).sum::<i64>());
        assert_eq!(counter(store, "wraps"), i64::MIN + 1);
        assert_eq!(counter(store, "absent"), 0);
    };
    check(&*store);
    store.compact(Space::Catalog, &everything(), &mut || true).expect("a compaction succeeds");
    check(&*store);
    if store.caps().is_persistent {
        store.close().expect("the store closes");
        drop(store);
        let store = open(folder.path());
        check(&*store);
        commit(&*store, |txn| txn.add(b"count", -800));
        assert_eq!(counter(&*store, "count"), 0);
    }
}

/// A transaction that began since a view guards only keys that are unchanged since that view, and
/// reads that view.
pub fn guards_since_a_view_conflict_on_changed_keys(open: Open) {
    let store = Fixture::new(open);
    let key = |name: &'static str| (Space::Records, name.as_bytes());
    put_records(&*store, ["changed", "deleted", "same", "rewritten"]);
    commit(&*store, |txn| txn.put(Space::Indexes, b"changed", b""));
    let view = store.view();
    commit(&*store, |txn| {
        txn.put(Space::Records, b"changed", b"other");
        txn.put(Space::Records, b"added", b"");
        txn.delete(Space::Records, b"deleted");
        txn.delete(Space::Records, b"never");
        txn.put(Space::Records, b"beside", b"");
    });
    let begin = || store.begin_since(&*view);
    for name in ["changed", "added", "deleted"] {
        let outcome = begin().guard(&[key("same"), key(name)]);
        assert!(matches!(outcome, Err(Error::Conflict)), "{name} has changed since");
        assert!(store.changed_since(Space::Records, name.as_bytes(), &*view).expect("it reads"));
        store.begin().guard(&[key(name)]).expect("a conflict leaves nothing claimed");
    }
    let mut txn = begin();
    let unchanged =
        [key("same"), key("never"), key("rewritten"), (Space::Indexes, &b"changed"[..])];
    txn.guard(&unchanged).expect("none of these has changed since");
    for (space, key) in unchanged {
        assert!(!store.changed_since(space, key, &*view).expect("it reads"));
    }
    assert_eq!(get(txn.view(), Space::Records, "changed").as_deref(), Some(&b"changed"[..]));
    let mut other = store.begin();
    assert!(other.guard_within(&[key("same")], Duration::ZERO).is_err(), "it is claimed");
    assert_eq!(get(other.view(), Space::Records, "changed").as_deref(), Some(&b"other"[..]));
    txn.put(Space::Records, b"same", b"mine");
    txn.commit().expect("a commit succeeds");
    assert_eq!(get(&*store, Space::Records, "same").as_deref(), Some(&b"mine"[..]));
    let outcome = begin().guard(&[key("same")]);
    assert!(matches!(outcome, Err(Error::Conflict)), "its own commit is a change too");
}
