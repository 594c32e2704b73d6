//! Promises about reads, cursors and snapshots.

use std::thread;
use std::time::Duration;

use super::*;

/// Keys are ordered as unsigned bytes; a prefix sorts before the keys that it begins.
pub fn keys_are_ordered_bytes(open: Open) {
    let store = Fixture::new(open);
    let sorted: [&[u8]; 9] =
        [b"", b"\0", b"\0\0", b"\x01", b"a", b"a\0", b"b", b"\x7f\xff", b"\x80"];
    put_records(&*store, sorted.iter().rev());
    let found = scan(&*store, Space::Records, &everything(), Direction::Forward);
    assert_eq!(found.iter().map(|(key, _)| key.as_slice()).collect::<Vec<_>>(), sorted);
    for key in sorted {
        assert_eq!(get(&*store, Space::Records, key).as_deref(), Some(key));
    }
    assert_eq!(get(&*store, Space::Records, "aa"), None);
}

/// The same key in two spaces is two entries.
pub fn spaces_are_apart(open: Open) {
    let store = Fixture::new(open);
    for space in Space::ALL {
        assert_eq!(get(&*store, space, "k"), None);
        commit(&*store, |txn| txn.put(space, b"k", format!("{space:?}").as_bytes()));
    }
    commit(&*store, |txn| txn.delete(Space::Records, b"k"));
    assert_eq!(get(&*store, Space::Catalog, "k").as_deref(), Some(&b"Catalog"[..]));
    assert_eq!(get(&*store, Space::Records, "k"), None);
    assert_eq!(get(&*store, Space::Indexes, "k").as_deref(), Some(&b"Indexes"[..]));
}

/// `get_many` returns each value at the position of its key, also for duplicate and missing keys.
pub fn get_many_keeps_positions(open: Open) {
    let store = Fixture::new(open);
    put_records(&*store, ["a", "b", "d"]);
    let asked: [&[u8]; 6] = [b"d", b"c", b"a", b"a", b"", b"b"];
    let mut sorted = asked;
    sorted.sort();
    let snapshot = store.view();
    for read in [&*store as &dyn View, &*snapshot] {
        for asked in [&asked[..], &sorted, &asked[..1], &asked[1..2], &[]] {
            let values = read.get_many(Space::Records, asked).expect("a read succeeds");
            for (place, key) in asked.iter().enumerate() {
                let is_there = b"abd".windows(1).any(|one| one == *key);
                let wanted = if is_there { Looked::Found(key) } else { Looked::Absent };
                assert_eq!(values.get(place), wanted, "{place} of {asked:?}");
            }
        }
    }
}

/// Values read by `get_many` stay unchanged while others write; keys that it leaves unread are
/// found by `get`.
pub fn get_many_holds_what_it_read(open: Open) {
    let store = Fixture::new(open);
    let keys: Vec<String> = (0..100).map(|n| format!("key{n:03}")).collect();
    let value = |key: &str| key.repeat(20_000).into_bytes();
    let write = |of: &dyn Fn(&str) -> Vec<u8>| {
        for part in keys.chunks(10) {
            commit(&*store, |txn| {
                part.iter().for_each(|key| txn.put(Space::Records, key.as_bytes(), &of(key)));
            });
        }
    };
    write(&value);
    let asked: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let values = store.get_many(Space::Records, &asked).expect("a read succeeds");
    let is_found = |place| matches!(values.get(place), Looked::Found(_));
    assert!((0..keys.len()).any(is_found), "one is read whatever its size");
    write(&|key| key.as_bytes().to_vec());
    for (place, key) in keys.iter().enumerate() {
        match values.get(place) {
            Looked::Found(found) => assert!(found == value(key), "{key} has changed"),
            Looked::Absent => panic!("{key} is there"),
            Looked::Unread => {
                assert_eq!(get(&*store, Space::Records, key).as_deref(), Some(key.as_bytes()));
            }
        }
    }
}

/// A cursor walks in both directions over more keys than fit in one node, block or buffer.
pub fn cursors_go_both_ways(open: Open) {
    let store = Fixture::new(open);
    let names: Vec<String> = (0..5000).map(|n| format!("key{n:06}")).collect();
    for part in names.chunks(700) {
        put_records(&*store, part);
    }
    let mut found = scan(&*store, Space::Records, &everything(), Direction::Forward);
    assert!(found.iter().map(|(key, _)| key.as_slice()).eq(names.iter().map(String::as_bytes)));
    assert!(found.iter().all(|(key, value)| key == value));
    found.reverse();
    assert_eq!(scan(&*store, Space::Records, &everything(), Direction::Backward), found);
    let snapshot = store.view();
    assert_eq!(scan(&*snapshot, Space::Records, &everything(), Direction::Backward), found);
}

/// The start of a range is inclusive, its end exclusive; a range may be empty or inverted.
pub fn cursors_keep_to_their_range(open: Open) {
    let store = Fixture::new(open);
    put_records(&*store, ["a", "b", "ba", "c", "d"]);
    for (start, end, wanted) in [
        ("", "z", "a b ba c d"),
        ("a", "d", "a b ba c"),
        ("b", "c", "b ba"),
        ("b\0", "c\0", "ba c"),
        ("aa", "b", ""),
        ("b", "b", ""),
        ("c", "b", ""),
        ("e", "z", ""),
        ("", "a", ""),
        ("", "", ""),
    ] {
        let range = range(start, end);
        let names = |direction| -> Vec<String> {
            scan(&*store, Space::Records, &range, direction)
                .into_iter()
                .map(|(key, _)| String::from_utf8(key).expect("keys are text here"))
                .collect()
        };
        assert_eq!(names(Direction::Forward).join(" "), wanted, "up from {start:?} to {end:?}");
        let mut down = names(Direction::Backward);
        down.reverse();
        assert_eq!(down.join(" "), wanted, "down from {end:?} to {start:?}");
    }
}

/// `seek` moves to the nearest key in the cursor's direction, forwards or back, within the range;
/// `advance` continues from there.
pub fn cursors_seek(open: Open) {
    let store = Fixture::new(open);
    put_records(&*store, ["a", "c", "e", "g", "i"]);
    let within = range("c", "h");
    let check = |direction, seeks: &[(&str, &str)]| {
        let mut cursor = store.cursor(Space::Records, &within, direction).expect("a cursor opens");
        for &(key, wanted) in seeks {
            let mut found = Vec::new();
            if cursor.seek(key.as_bytes()).expect("a seek succeeds") {
                found.push(cursor.key().to_vec());
                assert_eq!(cursor.key(), cursor.value());
                if cursor.advance().expect("a cursor advances") {
                    found.push(cursor.key().to_vec());
                }
            } else {
                assert!(!cursor.advance().expect("a cursor advances"), "a failed seek is the end");
            }
            let found = String::from_utf8(found.join(&b' ')).expect("keys are text here");
            assert_eq!(found, wanted, "{direction:?} seek to {key:?}");
        }
    };
    check(
        Direction::Forward,
        &[("d", "e g"), ("c", "c e"), ("", "c e"), ("g", "g"), ("gg", ""), ("z", ""), ("a", "c e")],
    );
    check(
        Direction::Backward,
        &[
            ("d", "c"),
            ("e", "e c"),
            ("h", "g e"),
            ("i", "g e"),
            ("z", "g e"),
            ("b", ""),
            ("g", "g e"),
        ],
    );
    let mut unused = store.cursor(Space::Records, &within, Direction::Forward).expect("it opens");
    assert!(unused.advance().expect("it advances"));
    assert_eq!(unused.key(), b"c");
    assert!(unused.seek(b"c").expect("it seeks"));
    assert_eq!(unused.key(), b"c");
}

/// A cursor shows the data that was committed when it was opened, whatever is committed later.
pub fn cursors_see_one_moment(open: Open) {
    let store = Fixture::new(open);
    let names: Vec<String> = (0..300).map(|n| format!("{n:03}")).collect();
    put_records(&*store, &names);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor =
            store.cursor(Space::Records, &everything(), direction).expect("a cursor opens");
        commit(&*store, |txn| {
            txn.put(Space::Records, b"0005", b"new");
            txn.put(Space::Records, b"150", b"changed");
            txn.delete(Space::Records, b"200");
        });
        assert!(cursor.seek(b"150").expect("it seeks"));
        assert_eq!(cursor.value(), b"150");
        let before = if direction == Direction::Forward { "000" } else { "299" };
        assert!(cursor.seek(before.as_bytes()).expect("it seeks"));
        let mut count = 1;
        while cursor.advance().expect("it advances") {
            assert_eq!(cursor.key(), cursor.value());
            count += 1;
        }
        assert_eq!(count, 300);
        drop(cursor);
        commit(&*store, |txn| {
            txn.delete(Space::Records, b"0005");
            txn.put(Space::Records, b"150", b"150");
            txn.put(Space::Records, b"200", b"200");
        });
    }
}

/// A fixed view stays unchanged over all spaces and all kinds of writes; the store itself moves.
pub fn fixed_views_never_move(open: Open) {
    let store = Fixture::new(open);
    put_records(&*store, ["a", "b", "c"]);
    commit(&*store, |txn| {
        txn.add(b"count", 3);
        txn.put(Space::Indexes, b"i", b"1");
    });
    let view = |read: &dyn View| {
        (
            scan(read, Space::Records, &everything(), Direction::Forward),
            get(read, Space::Indexes, "i"),
            get(read, Space::Records, "b"),
            counter(read, "count"),
        )
    };
    let first = store.view();
    let before = view(&*first);
    commit(&*store, |txn| {
        txn.put(Space::Records, b"b", b"changed");
        txn.delete(Space::Records, b"a");
        txn.put(Space::Records, b"d", b"d");
        txn.put(Space::Indexes, b"i", b"2");
        txn.add(b"count", 4);
    });
    let second = store.view();
    let between = view(&*second);
    commit(&*store, |txn| {
        txn.clear_range(Space::Records, &everything());
        txn.delete(Space::Indexes, b"i");
        txn.delete(Space::Catalog, b"count");
    });
    assert_eq!(view(&*first), before);
    assert_eq!(view(&*second), between);
    assert_eq!((before.3, between.3), (3, 7));
    assert_eq!(between.0.len(), 3);
    assert_eq!(view(&*store), (Vec::new(), None, None, 0));
    assert!(first.is_fixed() && !store.is_fixed());
    assert!(first.moment() < second.moment() && second.moment() < store.moment());
    assert!(!first.has_moved(first.moment()) && store.has_moved(first.moment()));
    drop(first);
    assert_eq!(view(&*second), between);
}

/// After `pass(n)` a cursor is on the same key as after `n` calls of `advance`, in both directions
/// and from any position.
pub fn cursors_pass_keys(open: Open) {
    let store = Fixture::new(open);
    put_records(&*store, (0..20_u8).map(|number| [b'p', number]));
    let within = KeyRange { start: vec![b'p', 2], end: vec![b'p', 17] };
    for direction in [Direction::Forward, Direction::Backward] {
        let cursor = || store.cursor(Space::Records, &within, direction).expect("a cursor opens");
        for (first, count) in [(0, 0), (0, 1), (0, 7), (1, 7), (3, 12), (3, 13), (0, 15), (0, 99)] {
            let (mut passing, mut stepping) = (cursor(), cursor());
            let mut stepped = 0;
            for step in 0..first + count {
                if stepping.advance().expect("a cursor advances") && step >= first {
                    stepped += 1;
                }
                if step < first {
                    passing.advance().expect("a cursor advances");
                }
            }
            let passed = passing.pass(count).expect("a cursor passes keys");
            let case = format!("{direction:?}, {count} after {first}");
            assert_eq!(passed, stepped, "{case}");
            if passed == count && first + count > 0 {
                assert_eq!(passing.key(), stepping.key(), "{case}");
            }
            let (one, other) = (passing.advance(), stepping.advance());
            assert_eq!(one.expect("it advances"), other.expect("it advances"), "{case}: more");
        }
    }
}

/// A read that begins after a commit sees that commit, while others write and read the same keys.
pub fn reads_never_go_back(open: Open) {
    const KEYS: usize = 4;
    const WRITES: u64 = 3000;
    let fixture = Fixture::new(open);
    let keys: Vec<[u8; 12]> = (0..KEYS).map(|key| [b'k' + key as u8; 12]).collect();
    let committed: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    let (store, keys, committed): (&dyn Store, _, _) = (&*fixture, &keys, &committed);
    let is_over = || committed.iter().all(|count| count.load(Ordering::SeqCst) == WRITES);
    thread::scope(|scope| {
        for (key, count) in keys.iter().zip(committed) {
            scope.spawn(move || {
                for number in 1..=WRITES {
                    // Some values are large, some keys are absent.
                    let mut value = number.to_le_bytes().to_vec();
                    value.resize(8 + (number % 7 * 300) as usize, 0);
                    commit(store, |txn| match number % 5 {
                        0 => txn.delete(Space::Records, key),
                        _ => txn.put(Space::Records, key, &value),
                    });
                    count.store(number, Ordering::SeqCst);
                }
            });
        }
        let reader = |by: usize| {
            let mut turn = by;
            while !is_over() {
                turn += 1;
                let place = turn % KEYS;
                let least = committed[place].load(Ordering::SeqCst);
                let seen = match by {
                    0 => get(store, Space::Records, keys[place]).map(|value| number(&value)),
                    1 => {
                        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_slice()).collect();
                        let found = store.get_many(Space::Records, &keys).expect("it reads");
                        match found.get(place) {
                            Looked::Found(value) => Some(number(value)),
                            Looked::Absent => None,
                            Looked::Unread => continue,
                        }
                    }
                    _ => {
                        let snapshot = fixture.view();
                        let one = get(&*snapshot, Space::Records, keys[place]);
                        thread::yield_now();
                        let other = get(&*snapshot, Space::Records, keys[place]);
                        assert_eq!(one, other, "a snapshot stands still");
                        one.map(|value| number(&value))
                    }
                };
                let newest = committed[place].load(Ordering::SeqCst) + 1;
                match seen {
                    Some(seen) => {
                        assert!(seen >= least && seen <= newest, "{least} {seen} {newest}")
                    }
                    // Only every fifth write removes the key.
                    None => {
                        assert!((least..=newest).any(|number| number % 5 == 0), "{least} {newest}")
                    }
                }
            }
        };
        (0..3).for_each(|by| drop(scope.spawn(move || reader(by))));
    });
}

/// A reader that takes the first or the last key of a range again and again gets each, whatever has
/// been deleted there, and wherever others put new ones in the meantime. Views opened on the way
/// still show the keys of their moment.
pub fn queues_lose_no_key(open: Open) {
    const PRODUCERS: u8 = 2;
    const KEYS: usize = 1_000;
    for direction in [Direction::Forward, Direction::Backward] {
        let store = Fixture::new(open);
        let queue = KeyRange::prefix(b"queue");
        let produce = |producer: u8| {
            let mut random = Random::new(producer.into());
            for _ in 0..KEYS {
                let place = random.next().to_be_bytes();
                let key = [b"queue", &place[..], &[producer]].concat();
                let mut txn = store.begin();
                txn.put(Space::Indexes, &key, b"");
                if random.next().is_multiple_of(8) {
                    thread::sleep(Duration::from_micros(200));
                }
                txn.commit().expect("a commit succeeds");
            }
        };
        let mut views = Vec::new();
        let mut taken = 0;
        thread::scope(|scope| {
            for producer in 0..PRODUCERS {
                scope.spawn(move || produce(producer));
            }
            while taken < KEYS * usize::from(PRODUCERS) {
                let mut txn = store.begin();
                {
                    let cursor = store.cursor(Space::Indexes, &queue, direction);
                    let mut cursor = cursor.expect("a cursor opens");
                    if !cursor.advance().expect("a cursor advances") {
                        thread::yield_now();
                        continue;
                    }
                    txn.delete(Space::Indexes, cursor.key());
                }
                txn.commit().expect("a commit succeeds");
                taken += 1;
                if taken.is_multiple_of(200) {
                    let view = store.view();
                    let shown = scan(&*view, Space::Indexes, &queue, Direction::Forward);
                    views.push((view, shown));
                }
            }
        });
        assert_eq!(scan(&*store, Space::Indexes, &queue, direction), []);
        for (view, shown) in &views {
            for direction in [Direction::Forward, Direction::Backward] {
                let mut found = scan(&**view, Space::Indexes, &queue, direction);
                if direction == Direction::Backward {
                    found.reverse();
                }
                assert_eq!(found, *shown, "{direction:?}");
            }
        }
    }
}
