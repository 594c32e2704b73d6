//! The cost of a point read when the data is ten times the cache: file reads, counted by the
//! operating system.

use std::fs;

use marula_embedded::{Embedded, EmbeddedOptions};
use marula_storage::contract::Folder;
use marula_storage::{Space, Store, View};

const CACHE_BYTES: usize = 3 << 20;
const VALUE_BYTES: usize = 1_000;
const KEYS: u64 = 10 * CACHE_BYTES as u64 / VALUE_BYTES as u64;
const READS: u64 = 2_000;

/// A cheap mixer: keys and values that are unsorted and incompressible.
fn mixed(number: u64) -> u64 {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    state = (state ^ (state >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    state ^ (state >> 32)
}

fn value(number: u64) -> Vec<u8> {
    (0..VALUE_BYTES as u64 / 8).flat_map(|word| mixed(number ^ word << 32).to_le_bytes()).collect()
}

/// Writes every key, unordered, and a third of them again, so that they are on several levels.
fn filled(folder: &Folder, space: Space) -> Embedded {
    let mut options = EmbeddedOptions::new(folder.path());
    options.cache_bytes = CACHE_BYTES;
    options.memtable_bytes = 1 << 20;
    let store = Embedded::open(options).expect("the store opens");
    let numbers = (0..KEYS).chain((0..KEYS).step_by(3));
    let numbers: Vec<u64> = numbers.collect();
    for batch in numbers.chunks(200) {
        let mut txn = store.begin();
        for &number in batch {
            txn.put(space, &mixed(number).to_be_bytes(), &value(number));
        }
        txn.commit().expect("it is written");
    }
    store
}

/// The number of reads by this thread so far, including those of this function.
fn reads_of_this_thread() -> u64 {
    let counters = fs::read_to_string("/proc/thread-self/io").expect("Linux counts reads");
    let line = counters.lines().find_map(|line| line.strip_prefix("syscr: "));
    line.and_then(|count| count.parse().ok()).expect("a count of reads")
}

/// Blocks read for `READS` keys from `first` on, and the number of keys found.
fn blocks_read(store: &Embedded, space: Space, first: u64) -> (u64, u64) {
    let mut found = 0;
    let before = reads_of_this_thread();
    for read in 0..READS {
        // The keys are far apart: neighbours in a block would be found in the cache.
        let number = first + read * 7_919 % KEYS;
        let key = mixed(number).to_be_bytes();
        let mut visit = |bytes: &[u8]| assert!(bytes == value(number), "the value of {number}");
        found += u64::from(store.get(space, &key, &mut visit).expect("it is read"));
    }
    (reads_of_this_thread() - before, found)
}

#[test]
fn a_read_of_a_key_costs_one_block_and_of_none_almost_nothing() {
    for space in [Space::Records, Space::Indexes] {
        let folder = Folder::new();
        let store = filled(&folder, space);
        let (blocks, found) = blocks_read(&store, space, 0);
        println!("{space:?}: {blocks} blocks for {found} keys");
        assert_eq!(found, READS);
        // Nine of ten keys are not in the cache; filters give false positives once in a hundred for
        // each level without the key.
        assert!(
            blocks >= READS / 2,
            "{blocks} blocks for {READS} keys of {space:?}: are they counted?"
        );
        assert!(blocks <= READS + READS / 10, "{blocks} blocks for {READS} keys of {space:?}");
        if space == Space::Indexes {
            let (blocks, found) = blocks_read(&store, space, KEYS);
            println!("{space:?}: {blocks} blocks for keys that are not there");
            assert_eq!(found, 0);
            assert!(blocks <= READS / 10, "{blocks} blocks for {READS} keys that are not there");
        }
    }
}
