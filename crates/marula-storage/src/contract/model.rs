//! Random writes and reads against a model.

use std::collections::BTreeMap;

use super::*;
use crate::delta;

type Model = [BTreeMap<Vec<u8>, Vec<u8>>; Space::ALL.len()];

/// A store returns the same results as a [`BTreeMap`] through random writes, snapshots, compactions
/// and reopenings.
///
/// `MARULA_SEED` repeats one run; `MARULA_RUNS` sets the number of runs.
pub fn random_writes_match_a_model(open: Open) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("MARULA_SEED") {
        return run(open, seed);
    }
    for seed in 1..=number("MARULA_RUNS").unwrap_or(6) {
        println!("to repeat: MARULA_SEED={seed} cargo test random_writes_match_a_model");
        run(open, seed);
    }
}

fn run(open: Open, seed: u64) {
    let mut random = Random::new(seed);
    let folder = Folder::new();
    let mut store = open(folder.path());
    let mut model = Model::default();
    for _ in 0..120 {
        let snapshot_model = model.clone();
        {
            let snapshot = store.clone().view().expect("a view opens");
            for _ in 0..=random.below(3) {
                write(&*store, &mut model, &mut random);
            }
            compare(&*snapshot, &snapshot_model, &mut random);
        }
        compare(&*store, &model, &mut random);
        match random.below(40) {
            0 | 1 => {
                let space = Space::ALL[random.below(3)];
                store.compact(space, &everything(), &mut || true).expect("a compaction succeeds");
            }
            2 => {
                let range = random_range(&mut random);
                store.drop_range(Space::Indexes, &range).expect("a drop succeeds");
                clear(&mut model, Space::Indexes, &range);
            }
            3 if store.caps().is_persistent => {
                drop(store);
                store = open(folder.path());
            }
            _ => {}
        }
    }
    for space in Space::ALL {
        let found = scan(&*store, space, &everything(), Direction::Forward);
        assert!(found.into_iter().eq(model[space as usize].clone()), "{space:?} at the end");
    }
    assert_eq!(store.check().expect("a check succeeds"), Vec::<String>::new());
}

/// A short key over a small alphabet, so that keys collide; one in twenty is long.
fn random_key(random: &mut Random) -> Vec<u8> {
    let len = if random.below(20) == 0 { 40 } else { random.below(4) };
    (0..len).map(|_| [0x00, 0x01, 0x41, 0x42, 0xFE][random.below(5)]).collect()
}

fn random_range(random: &mut Random) -> KeyRange {
    let (one, other) = (random_key(random), random_key(random));
    if one < other { range(one, other) } else { range(other, one) }
}

fn clear(model: &mut Model, space: Space, range: &KeyRange) {
    model[space as usize].retain(|key, _| *key < range.start || *key >= range.end);
}

/// Runs a random transaction; commits it or drops it.
fn write(store: &dyn Store, model: &mut Model, random: &mut Random) {
    let mut changed = model.clone();
    let mut txn = store.begin();
    for _ in 0..random.below(30) {
        let space = Space::ALL[random.below(3)];
        // Counters have keys of their own.
        let mut key = random_key(random);
        match random.below(12) {
            0 => {
                let range = random_range(random);
                txn.clear_range(space, &range);
                clear(&mut changed, space, &range);
            }
            1 | 2 => {
                key.insert(0, 0xFD);
                let delta = random.next() as i64;
                txn.add(&key, delta);
                let counter = changed[Space::Catalog as usize].entry(key).or_insert(vec![0; 8]);
                let old = i64::from_le_bytes(counter.as_slice().try_into().expect("8 bytes"));
                *counter = old.wrapping_add(delta).to_le_bytes().to_vec();
            }
            3 => {
                if random.below(2) == 0 {
                    key.insert(0, 0xFD);
                }
                txn.delete(space, &key);
                changed[space as usize].remove(&key);
            }
            4 | 5 => {
                let Some(old) = changed[space as usize].get_mut(&key) else { continue };
                let (mut new, mut delta) = (old.clone(), Vec::new());
                for _ in 0..random.below(3) {
                    let place = random.below(new.len() + 1);
                    let removed = random.below(20).min(new.len() - place);
                    let inserted = random.below(20);
                    let inserted = random.bytes(inserted);
                    new.splice(place..place + removed, inserted);
                }
                match delta::between(old, &new, &mut delta) {
                    true => txn.change(space, &key, &new, &delta),
                    false => txn.put(space, &key, &new),
                }
                *old = new;
            }
            _ => {
                let len = [0, 1, 30, 300, 3000, 5000, 9000][random.below(7)];
                let value = random.bytes(len);
                txn.put(space, &key, &value);
                changed[space as usize].insert(key, value);
            }
        }
    }
    if random.below(10) == 0 {
        return;
    }
    txn.commit().expect("a commit succeeds");
    *model = changed;
}

/// Compares a few random reads.
fn compare(read: &dyn View, model: &Model, random: &mut Random) {
    for space in Space::ALL {
        let model = &model[space as usize];
        for _ in 0..3 {
            let key = random_key(random);
            assert!(get(read, space, &key).as_ref() == model.get(&key), "get {key:02x?}");
        }
        let range = random_range(random);
        let mut wanted: Entries = model
            .range(range.start.clone()..range.end.clone())
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        assert!(scan(read, space, &range, Direction::Forward) == wanted, "scan {range:02x?} up");
        wanted.reverse();
        assert!(scan(read, space, &range, Direction::Backward) == wanted, "scan {range:02x?} down");
        wanted.reverse();
        compare_walk(read, space, &range, &wanted, random);
    }
}

/// Moves a cursor by random seeks and advances and compares its key after each move.
fn compare_walk(
    read: &dyn View,
    space: Space,
    range: &KeyRange,
    wanted: &Entries,
    random: &mut Random,
) {
    let is_forward = random.below(2) == 0;
    let direction = if is_forward { Direction::Forward } else { Direction::Backward };
    let mut cursor = read.cursor(space, range, direction).expect("a cursor opens");
    // The keys in the cursor's direction; `at` is the model's index into them.
    let ordered: Vec<&Vec<u8>> = if is_forward {
        wanted.iter().map(|(key, _)| key).collect()
    } else {
        wanted.iter().rev().map(|(key, _)| key).collect()
    };
    let mut at = None;
    for _ in 0..12 {
        let found;
        if random.below(3) == 0 {
            let key = random_key(random);
            found = cursor.seek(&key).expect("a seek succeeds");
            at =
                Some(ordered.partition_point(|other| {
                    if is_forward { **other < key } else { **other > key }
                }));
        } else {
            found = cursor.advance().expect("a cursor advances");
            at = Some(at.map_or(0, |at| (at + 1).min(ordered.len())));
        }
        let expected = at.and_then(|at| ordered.get(at).copied());
        assert_eq!(
            found.then(|| cursor.key().to_vec()).as_ref(),
            expected,
            "a walk in {range:02x?}"
        );
    }
}
