//! Promises about stamps, syncs, closing and reopening.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;

/// A commit that starts after another commit has ended has the greater stamp.
pub fn stamps_ascend(open: Open) {
    let store = Fixture::new(open);
    let mut last = store.moment();
    for n in 0..20u8 {
        let stamp = commit(&*store, |txn| txn.put(Space::Records, &[n], &[n]));
        assert!(stamp > last, "{stamp:?} after {last:?}");
        assert!(store.moment() >= stamp);
        last = stamp;
    }
}

/// `sync` returns, for commits new and old, from many threads at once.
pub fn sync_returns(open: Open) {
    let store = Fixture::new(open);
    let store: &dyn Store = &*store;
    store.sync(store.moment()).expect("a sync of nothing succeeds");
    thread::scope(|scope| {
        for thread in 0..8u8 {
            scope.spawn(move || {
                for round in 0..5u8 {
                    let stamp =
                        commit(store, |txn| txn.put(Space::Records, &[thread, round], b"x"));
                    store.sync(stamp).expect("a sync succeeds");
                    store.sync(stamp).expect("a second sync succeeds");
                }
            });
        }
    });
    store.sync(Stamp::default()).expect("a sync of the past succeeds");
}

/// `on_sync` calls back exactly once per stamp and does not block its caller.
pub fn on_sync_calls_back(open: Open) {
    let store = Fixture::new(open);
    let (called, calls) = mpsc::channel();
    for n in 0..100u8 {
        let stamp = commit(&*store, |txn| txn.put(Space::Records, &[n], &[n]));
        let called = called.clone();
        store.on_sync(
            stamp,
            Box::new(move |result| {
                result.expect("a sync succeeds");
                called.send(n).expect("the test listens");
            }),
        );
    }
    drop(called);
    let mut numbers = Vec::new();
    for _ in 0..100 {
        numbers.push(calls.recv_timeout(Duration::from_secs(30)).expect("every callback comes"));
    }
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..100));
}

/// Committed data is present after a persistent store is opened again, also without
/// [`Store::close`].
pub fn commits_survive_reopening(open: Open) {
    let folder = Folder::new();
    let mut store = open(folder.path());
    if !store.caps().is_persistent {
        return;
    }
    let mut last = Stamp::default();
    for round in 0..4u8 {
        for space in Space::ALL {
            commit(&*store, |txn| txn.put(space, &[round], &[round; 100]));
        }
        commit(&*store, |txn| {
            txn.add(b"\xFErounds", 1);
            txn.clear_range(Space::Records, &range([round, 0], [round, 9]));
        });
        let newest = store.moment();
        assert!(newest > last, "stamps go on after reopening");
        last = newest;
        if round % 2 == 0 {
            store.close().expect("the store closes");
        }
        drop(store);
        store = open(folder.path());
        for space in Space::ALL {
            let rows = scan(&*store, space, &range("", [0xF0]), Direction::Forward);
            let wanted = (0..=round).map(|n| (vec![n], vec![n; 100]));
            assert!(rows.into_iter().eq(wanted), "{space:?} after round {round}");
        }
        let rounds = get(&*store, Space::Catalog, b"\xFErounds").expect("the counter is there");
        assert_eq!(rounds, i64::from(round + 1).to_le_bytes());
    }
}

/// After `close` no transaction or read starts; closing again does nothing.
pub fn close_ends_it(open: Open) {
    let store = Fixture::new(open);
    put_records(&*store, ["a"]);
    store.close().expect("the store closes");
    store.close().expect("the store closes again");
    let mut txn = store.begin();
    txn.put(Space::Records, b"b", b"b");
    txn.commit().expect_err("a commit after the close fails");
    store.get(Space::Records, b"a", &mut |_| ()).expect_err("a read after the close fails");
    assert!(store.store.clone().view().is_err(), "a view after the close fails");
    assert!(store.cursor(Space::Records, &everything(), Direction::Forward).is_err());
    let (called, calls) = mpsc::channel();
    store.on_sync(Stamp::default(), Box::new(move |_| called.send(()).expect("the test listens")));
    calls.recv_timeout(Duration::from_secs(10)).expect("a callback after the close comes too");
}
