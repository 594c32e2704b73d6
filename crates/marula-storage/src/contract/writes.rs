//! Promises about the writes of transactions.

use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;
use crate::delta;

/// A reader sees all writes of a commit or none of them.
pub fn commits_are_atomic(open: Open) {
    let fixture = Fixture::new(open);
    let store: &dyn Store = &*fixture;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..=400u64 {
                commit(store, |txn| {
                    for space in Space::ALL {
                        for key in [b"x", b"y"] {
                            txn.put(space, key, &round.to_le_bytes());
                        }
                    }
                });
            }
            is_over.store(true, Ordering::Release);
        });
        let mut last = 0;
        while !is_over.load(Ordering::Acquire) {
            let snapshot = fixture.view();
            let rounds: Vec<Option<Vec<u8>>> = Space::ALL
                .iter()
                .flat_map(|&space| [get(&*snapshot, space, "x"), get(&*snapshot, space, "y")])
                .collect();
            assert!(rounds.iter().all(|round| *round == rounds[0]), "half a commit: {rounds:?}");
            let Some(round) = &rounds[0] else { continue };
            let round = u64::from_le_bytes(round.as_slice().try_into().expect("8 bytes"));
            assert!(round >= last, "commits become visible in order");
            last = round;
        }
        writer.join().expect("the writer succeeds");
    });
}

/// Writes of a transaction that was dropped are never visible; reads do not see uncommitted writes.
pub fn undone_when_dropped(open: Open) {
    let store = Fixture::new(open);
    put_records(&*store, ["a"]);
    let mut txn = store.begin();
    txn.guard(&[(Space::Records, b"a")]).expect("a free key is guarded");
    txn.put(Space::Records, b"a", b"changed");
    txn.put(Space::Records, b"b", b"new");
    txn.add(b"count", 1);
    txn.clear_range(Space::Records, &everything());
    assert_eq!(keys(&*store, Space::Records), ["a"]);
    drop(txn);
    assert_eq!(get(&*store, Space::Records, "a").as_deref(), Some(&b"a"[..]));
    assert_eq!(keys(&*store, Space::Records), ["a"]);
    assert_eq!(counter(&*store, "count"), 0);
}

/// The last write to a key in a transaction wins.
pub fn later_writes_win(open: Open) {
    let store = Fixture::new(open);
    put_records(&*store, ["old", "oldest"]);
    commit(&*store, |txn| {
        txn.put(Space::Records, b"a", b"1");
        txn.put(Space::Records, b"a", b"2");
        txn.put(Space::Records, b"b", b"1");
        txn.delete(Space::Records, b"b");
        txn.delete(Space::Records, b"c");
        txn.put(Space::Records, b"c", b"1");
        txn.put(Space::Records, b"okay", b"1");
        txn.clear_range(Space::Records, &range("o", "p"));
        txn.put(Space::Records, b"old", b"again");
        txn.add(b"n", 5);
        txn.delete(Space::Catalog, b"n");
        txn.add(b"n", 2);
        txn.add(b"n", -7);
    });
    assert_eq!(keys(&*store, Space::Records), ["a", "c", "old"]);
    assert_eq!(get(&*store, Space::Records, "a").as_deref(), Some(&b"2"[..]));
    assert_eq!(get(&*store, Space::Records, "old").as_deref(), Some(&b"again"[..]));
    assert_eq!(counter(&*store, "n"), -5);
    commit(&*store, |_| {});
    commit(&*store, |txn| txn.delete(Space::Records, b"absent"));
    assert_eq!(keys(&*store, Space::Records), ["a", "c", "old"]);
}

/// `clear_range` removes exactly the committed keys of its range and space.
pub fn clear_range_clears_what_it_should(open: Open) {
    let store = Fixture::new(open);
    let fill = || {
        commit(&*store, |txn| {
            for space in Space::ALL {
                for key in ["a", "b", "ba", "c", "d"] {
                    txn.put(space, key.as_bytes(), b"");
                }
            }
        });
    };
    for (start, end, left) in [
        ("b", "c", "a c d"),
        ("", "z", ""),
        ("c", "b", "a b ba c d"),
        ("b", "b", "a b ba c d"),
        ("ba", "ba\0", "a b c d"),
        ("e", "z", "a b ba c d"),
    ] {
        fill();
        commit(&*store, |txn| txn.clear_range(Space::Records, &range(start, end)));
        assert_eq!(keys(&*store, Space::Records).join(" "), left, "clear {start:?} to {end:?}");
        let rest: Vec<bool> = ["a", "b", "ba", "c", "d"]
            .iter()
            .map(|key| get(&*store, Space::Records, key).is_some())
            .collect();
        assert_eq!(
            rest.iter().filter(|&&is_there| is_there).count(),
            left.split_whitespace().count()
        );
        for space in [Space::Catalog, Space::Indexes] {
            assert_eq!(keys(&*store, space).join(" "), "a b ba c d");
        }
    }
    commit(&*store, |txn| txn.clear_range(Space::Records, &everything()));
    commit(&*store, |txn| txn.put(Space::Records, b"b", b"back"));
    assert_eq!(get(&*store, Space::Records, "b").as_deref(), Some(&b"back"[..]));
}

/// The empty key is a key, and an empty value is a value.
pub fn empty_keys_and_values_are_kept(open: Open) {
    let store = Fixture::new(open);
    for space in Space::ALL {
        commit(&*store, |txn| {
            txn.put(space, b"", b"of the empty key");
            txn.put(space, b"empty", b"");
        });
        assert_eq!(get(&*store, space, "").as_deref(), Some(&b"of the empty key"[..]));
        assert_eq!(get(&*store, space, "empty").as_deref(), Some(&b""[..]));
        assert_eq!(keys(&*store, space), ["", "empty"]);
        let mut txn = store.begin();
        txn.guard(&[(space, b"")]).expect("the empty key is guarded");
        txn.delete(space, b"");
        txn.commit().expect("a commit succeeds");
        assert_eq!(keys(&*store, space), ["empty"]);
    }
}

/// Values of every size up to the largest document, 16 MB, plus its overhead are kept.
pub fn large_values_are_kept(open: Open) {
    let store = Fixture::new(open);
    let limit = store.caps().value_bytes_max;
    let mut random = Random::new(1);
    for size in [1, 255, 4096, 16_384, 65_537, 1 << 20, (16 << 20) + 16_384] {
        if size > limit {
            continue;
        }
        let value = random.bytes(size);
        commit(&*store, |txn| txn.put(Space::Records, b"large", &value));
        assert!(get(&*store, Space::Records, "large") == Some(value.clone()), "{size} bytes");
        let found = scan(&*store, Space::Records, &everything(), Direction::Forward);
        assert!(found == [(b"large".to_vec(), value)], "{size} bytes by cursor");
    }
    let long = random.bytes(store.caps().key_bytes_max.min(9000));
    commit(&*store, |txn| txn.put(Space::Indexes, &long, b"of a long key"));
    assert_eq!(get(&*store, Space::Indexes, &long).as_deref(), Some(&b"of a long key"[..]));
}

/// `size` grows by at least the bytes written and starts at zero for each transaction.
pub fn write_sizes_add_up(open: Open) {
    let store = Fixture::new(open);
    let mut txn = store.begin();
    assert_eq!(txn.size(), 0);
    let mut least = 0;
    for n in 0..100 {
        txn.put(Space::Records, format!("key{n}").as_bytes(), &[0; 1000]);
        least += 1000;
    }
    assert!(txn.size() >= least && txn.size() < 2 * least, "{}", txn.size());
    assert_eq!(store.begin().size(), 0);
}

/// A value that is changed by deltas is read as the last one, by every way to read it, in the
/// middle of others, in older views as it was, and after a compaction.
pub fn deltas_lead_to_the_value(open: Open) {
    let folder = Folder::new();
    let mut store = open(folder.path());
    let mut random = Random::new(1);
    let mut values: Vec<Vec<u8>> = (0..3).map(|_| random.bytes(50_000)).collect();
    let key = |number: usize| [b'k', number as u8];
    commit(&*store, |txn| {
        (0..3).for_each(|number| txn.put(Space::Records, &key(number), &values[number]));
    });
    for round in 0..200 {
        let (before, old) = (store.clone().view().expect("a view opens"), values.clone());
        commit(&*store, |txn| {
            // One of them twice in the same transaction.
            for number in [round % 3, (round + 1) % 3, round % 3] {
                let value = &mut values[number];
                let (place, len) = (random.below(40_000), [8, 3][random.below(2)]);
                let mut new = value.clone();
                new.splice(place..place + 8, random.bytes(len));
                let mut delta = Vec::new();
                assert!(delta::between(value, &new, &mut delta));
                txn.change(Space::Records, &key(number), &new, &delta);
                *value = new;
            }
            assert_eq!(txn.size() < 1000, store.caps().keeps_deltas);
        });
        let is_read = |view: &dyn View, values: &[Vec<u8>]| {
            let names = [key(0), key(1), key(2)];
            let many = view.get_many(Space::Records, &names.each_ref().map(|name| &name[..]));
            let many = many.expect("they are read");
            let scanned = scan(view, Space::Records, &everything(), Direction::Backward);
            (0..3).all(|number| {
                let value = &values[number];
                matches!(many.get(number), Looked::Found(found) if found == value.as_slice())
                    && get(view, Space::Records, names[number]).as_ref() == Some(value)
                    && scanned[2 - number].1 == *value
            })
        };
        assert!(is_read(&*before, &old), "before {round}");
        drop(before);
        match round % 50 {
            20 => store.compact(Space::Records, &everything(), &mut || true).expect("it compacts"),
            40 if store.caps().is_persistent => {
                drop(store);
                store = open(folder.path());
            }
            _ => {}
        }
        assert!(is_read(&*store, &values), "after {round}");
    }
    commit(&*store, |txn| txn.delete(Space::Records, &key(1)));
    assert_eq!(get(&*store, Space::Records, key(1)), None);
}
