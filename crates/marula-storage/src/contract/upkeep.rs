//! Promises about ingestion, dropped ranges, compaction, statistics and checks.

use super::*;

/// Ingests `count` keys of 8 bytes, ascending from `first`, with values of `size` bytes.
fn ingest(store: &dyn Store, space: Space, first: u64, count: u64, size: usize) {
    let mut next = first;
    store
        .ingest(space, &mut |key, value| {
            if next == first + count {
                return Ok(false);
            }
            key.clear();
            key.extend_from_slice(&next.to_be_bytes());
            value.clear();
            value.resize(size, next as u8);
            next += 1;
            Ok(true)
        })
        .expect("an ingestion succeeds");
}

/// Ingested keys are visible at once together with other keys, can be changed, and survive what
/// commits survive.
pub fn ingested_keys_are_there(open: Open) {
    let folder = Folder::new();
    let mut store = open(folder.path());
    put_records(&*store, [[0u8; 8], [0xF0; 8]]);
    let before = store.clone().view().expect("a view opens");
    ingest(&*store, Space::Records, 1 << 20, 3000, 300);
    ingest(&*store, Space::Indexes, 5, 10, 0);
    ingest(&*store, Space::Catalog, 5, 0, 0);
    assert_eq!(scan(&*before, Space::Records, &everything(), Direction::Forward).len(), 2);
    drop(before);
    let check = |store: &dyn Store, changed: &[u8]| {
        assert_eq!(scan(store, Space::Records, &everything(), Direction::Forward).len(), 3002);
        assert_eq!(scan(store, Space::Indexes, &everything(), Direction::Backward).len(), 10);
        let key = ((1u64 << 20) + 77).to_be_bytes();
        assert_eq!(get(store, Space::Records, key).as_deref(), Some(changed));
    };
    check(&*store, &[77; 300]);
    commit(&*store, |txn| txn.put(Space::Records, &((1u64 << 20) + 77).to_be_bytes(), b"changed"));
    check(&*store, b"changed");
    if store.caps().is_persistent {
        drop(store);
        store = open(folder.path());
        check(&*store, b"changed");
    }
    // A source that fails leaves no keys in the store.
    let mut count = 0;
    store
        .ingest(Space::Records, &mut |key, value| {
            count += 1;
            key.clear();
            key.extend_from_slice(&[0x70, count]);
            value.clear();
            if count == 5 {
                return Err(crate::store::Error::Unavailable("the source ends".into()));
            }
            Ok(true)
        })
        .expect_err("the source fails");
    check(&*store, b"changed");
}

/// A dropped range is empty, its neighbours are not, and dropping it again does nothing.
pub fn dropped_ranges_are_gone(open: Open) {
    let folder = Folder::new();
    let mut store = open(folder.path());
    for part in 0..4u64 {
        ingest(&*store, Space::Records, part << 32, 500, 1000);
    }
    put_records(&*store, [(2u64 << 32 | 7).to_be_bytes(), (3u64 << 32 | 7).to_be_bytes()]);
    let dropped = KeyRange::prefix(&2u32.to_be_bytes());
    store.drop_range(Space::Records, &dropped).expect("a drop succeeds");
    store.drop_range(Space::Records, &dropped).expect("a second drop succeeds");
    store.drop_range(Space::Indexes, &dropped).expect("a drop of nothing succeeds");
    store.drop_range(Space::Records, &range("b", "a")).expect("a drop of no range succeeds");
    for round in 0..2 {
        for part in 0..4u32 {
            let range = KeyRange::prefix(&part.to_be_bytes());
            let wanted = if part == 2 { 0 } else { 500 };
            let found = scan(&*store, Space::Records, &range, Direction::Forward);
            assert_eq!(found.len(), wanted, "part {part} in round {round}");
        }
        if store.caps().is_persistent {
            drop(store);
            store = open(folder.path());
        }
    }
    commit(&*store, |txn| txn.put(Space::Records, &(2u64 << 32).to_be_bytes(), b"new"));
    assert_eq!(scan(&*store, Space::Records, &dropped, Direction::Forward).len(), 1);
}

/// A dropped range stays readable in views of earlier moments, whatever is written into the range
/// later, and is empty in all other views.
pub fn dropped_ranges_stay_in_older_views(open: Open) {
    let store = Fixture::new(open);
    for part in 0..3u8 {
        ingest(&*store, Space::Records, u64::from(part) << 56, 2000, 100);
    }
    put_records(&*store, [[1, 7], [2, 7]]);
    let before = store.view();
    let everything_before = scan(&*before, Space::Records, &everything(), Direction::Forward);
    let dropped = range([1], [2]);
    store.drop_range(Space::Records, &dropped).expect("a drop succeeds");
    let after = store.view();
    commit(&*store, |txn| txn.put(Space::Records, &[1, 8], b"new"));
    store.compact(Space::Records, &everything(), &mut || true).expect("a compaction succeeds");
    assert!(scan(&*before, Space::Records, &everything(), Direction::Forward) == everything_before);
    assert_eq!(get(&*before, Space::Records, [1, 7]).as_deref(), Some(&[1, 7][..]));
    assert_eq!(scan(&*after, Space::Records, &dropped, Direction::Forward), []);
    drop(before);
    drop(after);
    store.drop_range(Space::Records, &range([2], [3])).expect("a drop succeeds");
    assert_eq!(scan(&*store, Space::Records, &everything(), Direction::Forward).len(), 2001);
    assert_eq!(get(&*store, Space::Records, [1, 8]).as_deref(), Some(&b"new"[..]));
}

/// A compaction changes only the space that the data takes.
pub fn compaction_keeps_the_data(open: Open) {
    let store = Fixture::new(open);
    let mut random = Random::new(3);
    for _ in 0..20 {
        commit(&*store, |txn| {
            for _ in 0..100 {
                let key = random.below(1000).to_be_bytes();
                match random.below(3) {
                    0 => txn.delete(Space::Records, &key),
                    _ => txn.put(Space::Records, &key, &random.bytes(200)),
                }
            }
        });
    }
    let before = scan(&*store, Space::Records, &everything(), Direction::Forward);
    let snapshot = store.view();
    for range in [everything(), range([0], [1]), range("b", "a")] {
        store.compact(Space::Records, &range, &mut || true).expect("a compaction succeeds");
        assert!(scan(&*store, Space::Records, &everything(), Direction::Forward) == before);
    }
    assert!(
        scan(&*snapshot, Space::Records, &everything(), Direction::Backward).len() == before.len()
    );
}

/// A compaction ends early, without an error and without damage, when `progress` returns `false`.
pub fn compaction_stops_on_request(open: Open) {
    let store = Fixture::new(open);
    ingest(&*store, Space::Records, 0, 2000, 100);
    store.compact(Space::Records, &everything(), &mut || false).expect("a compaction stops");
    assert_eq!(scan(&*store, Space::Records, &everything(), Direction::Forward).len(), 2000);
    put_records(&*store, ["more"]);
}

/// Estimates have the right magnitude once the data is in the store's files.
pub fn ranges_are_estimated(open: Open) {
    let store = Fixture::new(open);
    let empty = store.range_stats(Space::Records, &everything()).expect("an estimate succeeds");
    assert_eq!(empty.keys, 0);
    ingest(&*store, Space::Records, 0, 10_000, 500);
    ingest(&*store, Space::Records, 1 << 32, 10_000, 500);
    for (range, wanted) in [
        (everything(), 20_000u64),
        (KeyRange::prefix(&1u32.to_be_bytes()), 10_000),
        (KeyRange::prefix(&2u32.to_be_bytes()), 0),
        (range("b", "a"), 0),
    ] {
        let stats = store.range_stats(Space::Records, &range).expect("an estimate succeeds");
        assert!(
            stats.keys >= wanted / 2 && stats.keys <= wanted * 2,
            "{} keys of {wanted}",
            stats.keys
        );
        assert!(stats.disk_bytes <= wanted * 1100, "{} bytes", stats.disk_bytes);
    }
}

/// Split points ascend within the range and leave no part with nearly all keys.
pub fn split_points_cut_a_range(open: Open) {
    let store = Fixture::new(open);
    assert!(store.split_points(Space::Records, &everything(), 4).expect("it splits").is_empty());
    // The values do not compress, so that the store has several blocks and files to split between.
    let mut random = Random::new(4);
    let mut next = 0u64;
    store
        .ingest(Space::Records, &mut |key, value| {
            key.clear();
            key.extend_from_slice(&next.to_be_bytes());
            *value = random.bytes(500);
            next += 1;
            Ok(next <= 40_000)
        })
        .expect("an ingestion succeeds");
    let within = range(10_000u64.to_be_bytes(), 30_000u64.to_be_bytes());
    for parts in [0, 1, 2, 4, 8] {
        let points = store.split_points(Space::Records, &within, parts).expect("it splits");
        assert!(points.len() < parts.max(1) * 2, "{} points for {parts} parts", points.len());
        assert!(points.is_sorted_by(|left, right| left < right));
        assert!(points.iter().all(|point| *within.start < **point && **point < *within.end));
        let mut edges: Vec<&[u8]> = vec![&within.start];
        edges.extend(points.iter().map(Vec::as_slice));
        edges.push(&within.end);
        let sizes: Vec<usize> = edges
            .windows(2)
            .map(|edge| {
                scan(&*store, Space::Records, &range(edge[0], edge[1]), Direction::Forward).len()
            })
            .collect();
        assert_eq!(sizes.iter().sum::<usize>(), 20_000);
        if parts > 1 {
            assert!(sizes.iter().all(|&size| size < 20_000 * 3 / 4 + 1), "parts of {sizes:?}");
        }
    }
    assert!(store.split_points(Space::Records, &range("b", "a"), 4).expect("it splits").is_empty());
}

/// Each statistic has a unique, non-empty name.
pub fn statistics_have_names(open: Open) {
    let store = Fixture::new(open);
    put_records(&*store, ["a"]);
    let mut names: Vec<String> = store.statistics().into_iter().map(|(name, _)| name).collect();
    assert!(!names.is_empty());
    assert!(names.iter().all(|name| !name.is_empty()));
    names.sort();
    assert!(names.is_sorted_by(|left, right| left < right), "a name is there twice: {names:?}");
}

/// `check` finds nothing wrong in an intact store.
pub fn check_finds_nothing_wrong(open: Open) {
    let store = Fixture::new(open);
    assert_eq!(store.check().expect("a check succeeds"), Vec::<String>::new());
    ingest(&*store, Space::Records, 0, 1000, 100);
    put_records(&*store, (0..500u16).map(|n| n.to_le_bytes()));
    commit(&*store, |txn| txn.clear_range(Space::Records, &range([3], [200])));
    assert_eq!(store.check().expect("a check succeeds"), Vec::<String>::new());
}
