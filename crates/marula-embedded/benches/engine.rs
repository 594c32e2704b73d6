//! The cost of engine operations, in microseconds of CPU time of the whole process, including
//! background work.
//!
//! `cargo bench -p marula-embedded` measures; `cargo test` runs the same code with tiny inputs. A
//! name as the argument selects one measurement. Numbers on two busy cores of a virtual machine
//! differ by a quarter between runs.

use std::fs;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use marula_embedded::{Embedded, EmbeddedOptions};
use marula_storage::contract::Folder;
use marula_storage::{Direction, KeyRange, Looked, Space, Store, View};

/// The size of a run.
struct Scale {
    documents: u64,
    records: u64,
    operations: u64,
}

/// The measurements: a name, and a function that runs on an empty store.
const MEASUREMENTS: [(&str, fn(&Arc<Embedded>, &Scale)); 4] = [
    ("load and scan", load_and_scan),
    ("get through an index", get_through_an_index),
    ("small commits", small_commits),
    ("updates", updates),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let scale = if arguments.iter().any(|argument| argument == "--bench") {
        Scale { documents: 100_000, records: 300_000, operations: 300_000 }
    } else {
        Scale { documents: 2_000, records: 2_000, operations: 1_000 }
    };
    let chosen = arguments.iter().find(|argument| !argument.starts_with('-'));
    for (name, measure) in MEASUREMENTS {
        if chosen.is_none_or(|chosen| name.contains(chosen.as_str())) {
            let folder = Folder::new();
            let store =
                Arc::new(Embedded::open(EmbeddedOptions::new(folder.path())).expect("it opens"));
            measure(&store, &scale);
        }
    }
}

/// CPU nanoseconds of the process, including threads that have ended; in steps of 10 ms.
fn cpu_nanos() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("linux");
    let fields = stat.rsplit(')').next().expect("the name is in parentheses").split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks * 10_000_000
}

fn timed(what: &str, count: u64, work: impl FnOnce()) {
    let (cpu, wall) = (cpu_nanos(), Instant::now());
    work();
    let wall = wall.elapsed().as_nanos() as f64 / 1000.0 / count as f64;
    let cpu = (cpu_nanos() - cpu) as f64 / 1000.0 / count as f64;
    println!("{what:44} {cpu:8.2} µs CPU {wall:8.2} µs wall, {count} times");
}

/// A pseudo-random number.
fn scatter(number: u64) -> u64 {
    let number = (number ^ (number >> 31)).wrapping_mul(0x7FB5_D329_728E_A185);
    (number ^ (number >> 27)).wrapping_mul(0x81DA_DEF4_BC2D_D44D) >> 20
}

/// A value of words and numbers, which compresses to about half its size, as documents do.
fn fill(value: &mut Vec<u8>, size: usize, seed: u64) {
    const WORDS: [&str; 8] =
        ["city", "customer", "\0\0\0\u{2}name\0", "street", "amount", "2024-", "true", "order"];
    value.clear();
    let mut number = seed;
    while value.len() < size {
        number = scatter(number.wrapping_add(seed | 1));
        value.extend_from_slice(WORDS[(number & 7) as usize].as_bytes());
        value.extend_from_slice(&number.to_le_bytes()[1..5]);
    }
    value.truncate(size);
}

fn record_key(id: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[3] = 7;
    key[4..].copy_from_slice(&id.to_be_bytes());
    key
}

fn index_key(id: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[3] = 8;
    key[4..12].copy_from_slice(&scatter(id).to_be_bytes());
    key[12..].copy_from_slice(&(id as u32).to_be_bytes());
    key
}

/// Loads documents with one index entry each, and one counter per batch.
fn load(store: &Arc<Embedded>, count: u64, size: usize) {
    let mut value = Vec::new();
    let mut id = 0;
    while id < count {
        let mut txn = store.begin();
        for _ in 0..1000.min(count - id) {
            fill(&mut value, size, id);
            txn.put(Space::Records, &record_key(id), &value);
            txn.put(Space::Indexes, &index_key(id), &id.to_be_bytes());
            id += 1;
        }
        txn.add(b"count", 1000);
        txn.add(b"bytes", 1000 * size as i64);
        txn.commit().expect("it commits");
    }
}

fn load_and_scan(store: &Arc<Embedded>, scale: &Scale) {
    const SIZE: usize = 2600;
    timed("making 2.6 KB documents (to subtract)", scale.documents, || {
        let mut value = Vec::new();
        for id in 0..scale.documents {
            fill(&mut value, SIZE, id);
            black_box(&value);
        }
    });
    timed("load of 2.6 KB documents by 1000", scale.documents, || {
        load(store, scale.documents, SIZE)
    });
    let range = KeyRange::prefix(&[0, 0, 0, 7]);
    let scan = |direction| {
        let mut sum = 0;
        let mut cursor = store.cursor(Space::Records, &range, direction).expect("it opens");
        while cursor.advance().expect("it advances") {
            sum += cursor.value()[cursor.value().len() / 2] as usize + cursor.key().len();
        }
        black_box(sum);
    };
    timed("scan up, as loaded, per document", scale.documents, || scan(Direction::Forward));
    timed("compaction, per document", scale.documents, || {
        store.compact(Space::Records, &range, &mut || true).expect("it compacts");
    });
    timed("scan up, cold cache, per document", scale.documents, || scan(Direction::Forward));
    timed("scan up, warm, per document", scale.documents, || scan(Direction::Forward));
    timed("scan down, warm, per document", scale.documents, || scan(Direction::Backward));
    let stats = store.range_stats(Space::Records, &range).expect("it estimates");
    println!("{:44} {:8} bytes per document", "size compacted", stats.disk_bytes / scale.documents);
    timed("opening a cursor and one step", scale.operations, || {
        for n in 0..scale.operations {
            let key = record_key(scatter(n) % scale.documents);
            let one = KeyRange { start: key.to_vec(), end: vec![0, 0, 0, 8] };
            let mut cursor = store.cursor(Space::Records, &one, Direction::Forward).expect("opens");
            black_box(cursor.advance().expect("it advances"));
        }
    });
    timed("estimate of a range", 10_000, || {
        for n in 0..10_000u64 {
            let key = record_key(scatter(n) % scale.documents);
            let part = KeyRange { start: key.to_vec(), end: vec![0, 0, 0, 8] };
            black_box(store.range_stats(Space::Records, &part).expect("it estimates"));
        }
    });
    timed("snapshot, opened and closed", scale.operations, || {
        for _ in 0..scale.operations {
            black_box(store.clone().view().expect("it opens"));
        }
    });
}

fn get_through_an_index(store: &Arc<Embedded>, scale: &Scale) {
    load(store, scale.records, 300);
    let gets = |read: &dyn View| {
        for n in 0..scale.operations {
            let key = index_key(scatter(n) % scale.records);
            let mut id = [0; 8];
            let found = read.get(Space::Indexes, &key, &mut |value| id.copy_from_slice(value));
            assert!(found.expect("it reads"), "the entry is there");
            let key = record_key(u64::from_be_bytes(id));
            let found = read.get(Space::Records, &key, &mut |value| {
                black_box(value[0]);
            });
            assert!(found.expect("it reads"), "the record is there");
        }
    };
    timed("two gets, as loaded", scale.operations, || gets(&**store));
    for space in [Space::Indexes, Space::Records] {
        store.compact(space, &KeyRange::prefix(&[0]), &mut || true).expect("it compacts");
    }
    gets(&**store);
    timed("two gets, compacted and warm", scale.operations, || gets(&**store));
    let snapshot = store.clone().view().expect("it opens");
    timed("two gets of a snapshot", scale.operations, || gets(&*snapshot));
    timed("gets of what is not there", scale.operations, || {
        for n in 0..scale.operations {
            let key = index_key(scale.records + n);
            assert!(!store.get(Space::Indexes, &key, &mut |_| ()).expect("it reads"));
        }
    });
    timed("get_many of 32 scattered records, each", scale.operations, || {
        for round in 0..scale.operations / 32 {
            get_many(store, 32, |n| scatter(round * 32 + n) % scale.records);
        }
    });
    timed("get_many of 32 records, each 11th", scale.operations, || {
        for round in 0..scale.operations / 32 {
            get_many(store, 32, |n| (round * 32 + n) * 11 % scale.records);
        }
    });
}

/// Looks up `count` records at once.
fn get_many(store: &Arc<Embedded>, count: u64, id: impl Fn(u64) -> u64) {
    let keys: Vec<[u8; 12]> = (0..count).map(|n| record_key(id(n))).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let values = store.get_many(Space::Records, &keys).expect("it reads");
    for place in 0..keys.len() {
        assert!(matches!(values.get(place), Looked::Found(_)), "the record is there");
    }
}

fn small_commits(store: &Arc<Embedded>, scale: &Scale) {
    let mut value = Vec::new();
    fill(&mut value, 600, 1);
    timed("commit of one key, 600 bytes", scale.operations, || {
        for id in 0..scale.operations {
            let mut txn = store.begin();
            txn.put(Space::Records, &record_key(id), &value);
            txn.commit().expect("it commits");
        }
    });
    timed("commit of 4 keys of 300 bytes", scale.operations, || {
        for id in 0..scale.operations {
            let mut txn = store.begin();
            for part in 0..4u64 {
                txn.put(Space::Indexes, &index_key(id * 4 + part), &value[..300]);
            }
            txn.commit().expect("it commits");
        }
    });
    timed("insert: guard, 2 keys, 2 counters", scale.operations, || {
        for id in 0..scale.operations {
            let (record, index) = (record_key(1 << 40 | id), index_key(1 << 40 | id));
            let mut txn = store.begin();
            txn.guard(&[(Space::Indexes, &index)]).expect("it is free");
            let is_there = store.get(Space::Indexes, &index, &mut |_| ()).expect("it reads");
            assert!(!is_there);
            txn.put(Space::Records, &record, &value);
            txn.put(Space::Indexes, &index, &id.to_be_bytes());
            txn.add(b"count", 1);
            txn.add(b"bytes", 600);
            txn.commit().expect("it commits");
        }
    });
}

fn updates(store: &Arc<Embedded>, scale: &Scale) {
    load(store, scale.records, 300);
    let update = |id: u64| {
        let key = record_key(id);
        let mut txn = store.begin();
        // On a busy machine a guard may time out; then it is retried, as every caller does.
        while txn.guard(&[(Space::Records, &key)]).is_err() {}
        let mut changed = [0; 300];
        store
            .get(Space::Records, &key, &mut |value| changed.copy_from_slice(value))
            .expect("reads");
        changed[150] = changed[150].wrapping_add(1);
        txn.put(Space::Records, &key, &changed);
        txn.commit().expect("it commits");
    };
    timed("update: guard, get, put", scale.operations, || {
        (0..scale.operations).for_each(|n| update(scatter(n) % scale.records));
    });
    for threads in [2, 8, 64] {
        timed(&format!("the same by {threads} threads"), scale.operations, || {
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let range = (0..scale.operations).skip(thread).step_by(threads);
                    scope.spawn(move || range.for_each(|n| update(scatter(n) % scale.records)));
                }
            });
        });
        timed(&format!("one hot document, {threads} threads"), scale.operations / 10, || {
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    let count = scale.operations / 10 / threads as u64;
                    scope.spawn(move || (0..count).for_each(|_| update(5)));
                }
            });
        });
    }
}
