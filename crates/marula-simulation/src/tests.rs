//! The promises of several nodes, in any order of their calls and with faults of the store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use marula_bson::{DocBuf, doc};
use marula_db::{Transaction, TransactionLimits, Unit};
use marula_error::{Result, codes};
use parking_lot::Mutex;

use crate::cluster::{Cluster, Node, int, is_conflict, ns};
use crate::history::{Operation, What, is_linearizable};

/// Runs a test with seeds: `least` of them, or as many as `MARULA_RUNS` says.
fn with_seeds(name: &str, least: u64, test: impl Fn(u64)) {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    let first = number("MARULA_SEED").unwrap_or(1);
    for seed in first..first + number("MARULA_RUNS").unwrap_or(least) {
        println!(
            "to repeat: MARULA_RUNS=1 MARULA_SEED={seed} cargo test -p marula-simulation {name}"
        );
        test(seed);
    }
}

/// Random numbers of one thread.
struct Dice(u64);

impl Dice {
    fn of(seed: u64, thread: usize) -> Self {
        Dice((seed * 31 + thread as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, end: i32) -> i32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let random = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        i32::try_from(random % end as u64).expect("it is below an i32")
    }
}

fn works<'w>(
    cluster: &'w Cluster,
    work: impl Fn(usize, &Node) + Send + Sync + Copy + 'w,
) -> Vec<Box<dyn FnOnce() + Send + 'w>> {
    let of = |(number, node): (usize, &'w Node)| {
        Box::new(move || work(number, node)) as Box<dyn FnOnce() + Send + 'w>
    };
    cluster.nodes.iter().enumerate().map(of).collect()
}

/// The number of registers.
const KEYS: i32 = 2;

/// Reads, writes and compare-and-set of documents by `_id` have one order.
#[test]
fn registers_are_linearizable() {
    with_seeds("registers_are_linearizable", 40, |seed| {
        for (id, history) in histories(seed).iter().enumerate() {
            assert!(is_linearizable(0, history), "document {id}: {history:#?}");
        }
    });
}

#[test]
fn a_seed_repeats_a_run() {
    for seed in [3, 4] {
        assert_eq!(histories(seed), histories(seed));
    }
    assert_ne!(histories(3), histories(4));
}

/// Lets three nodes use registers, and returns what each register went through.
fn histories(seed: u64) -> Vec<Vec<Operation>> {
    let cluster = Cluster::start(seed, 3);
    for id in 0..KEYS {
        cluster.nodes[0].insert("c", &doc! { "_id": id, "v": 0 }).expect("there are no faults");
    }
    let clock = AtomicU64::new(0);
    let histories = Mutex::new(vec![Vec::new(); KEYS as usize]);
    let tick = || clock.fetch_add(1, Ordering::Relaxed);
    let (now, note) = (&tick, &histories);
    let work = move |thread: usize, node: &Node| {
        let mut dice = Dice::of(seed, thread);
        for round in 0..6 {
            let (id, kind) = (dice.below(KEYS), dice.below(3));
            let new = 100 * (thread as i32 + 1) + round;
            let begin = now();
            let (what, is_known) = match kind {
                0 => match node.find("c", id) {
                    Ok(doc) => (What::Read(int(doc.expect("it is there").as_doc(), "v")), true),
                    Err(_) => continue,
                },
                1 => match set(node, id, None, new) {
                    Err(error) if is_conflict(&error) => continue,
                    done => (What::Write(new), done.is_ok()),
                },
                _ => {
                    let seen = node.find("c", id).ok().flatten();
                    let from = seen.map_or(0, |doc| int(doc.as_doc(), "v"));
                    match set(node, id, Some(from), new) {
                        Err(error) if is_conflict(&error) => continue,
                        done => (What::Swap(from, new, done.as_ref().ok().copied()), done.is_ok()),
                    }
                }
            };
            let end = is_known.then(now);
            note.lock()[id as usize].push(Operation { begin, end, what });
        }
    };
    cluster.run(seed, works(&cluster, work));
    let found = cluster.check("c");
    let mut histories = histories.into_inner();
    for (id, history) in histories.iter_mut().enumerate() {
        let what = What::Read(int(found[id].as_doc(), "v"));
        history.push(Operation { begin: tick(), end: Some(tick()), what });
    }
    histories
}

/// Sets the value of a register, if it is `from`; returns whether it was.
fn set(node: &Node, id: i32, from: Option<i32>, to: i32) -> Result<bool> {
    let _moment = node.db.begin_operation()?;
    let mut was = false;
    let mut change = |doc: marula_bson::Doc<'_>| {
        was = from.is_none_or(|from| int(doc, "v") == from);
        was.then(|| doc! { "_id": id, "v": to })
    };
    node.update(Unit::new(&node.db), "c", id, &mut change)?;
    Ok(was)
}

/// Transactions that move money between documents, on all nodes: the sum is the same at each moment
/// that any node reads.
#[test]
fn money_is_neither_made_nor_lost() {
    const ACCOUNTS: i32 = 4;
    static COMMITTED: AtomicU64 = AtomicU64::new(0);
    with_seeds("money_is_neither_made_nor_lost", 20, |seed| {
        let cluster = Cluster::start(seed, 3);
        for id in 0..ACCOUNTS {
            cluster.nodes[0]
                .insert("c", &doc! { "_id": id, "v": 100 })
                .expect("there are no faults");
        }
        let sum = |docs: &[DocBuf]| docs.iter().map(|doc| int(doc.as_doc(), "v")).sum::<i32>();
        cluster.run(
            seed,
            works(&cluster, move |thread, node| {
                let mut dice = Dice::of(seed, thread);
                for _ in 0..4 {
                    let (from, to) = (dice.below(ACCOUNTS), dice.below(ACCOUNTS));
                    if from != to && transfer(node, from, to).is_ok() {
                        COMMITTED.fetch_add(1, Ordering::Relaxed);
                    }
                    if let Ok(docs) = node.try_all("c") {
                        assert_eq!(sum(&docs), 100 * ACCOUNTS);
                    }
                }
            }),
        );
        assert_eq!(sum(&cluster.check("c")), 100 * ACCOUNTS);
    });
    assert_ne!(COMMITTED.load(Ordering::Relaxed), 0, "no transfer has come through");
}

const LIMITS: TransactionLimits = TransactionLimits {
    lock_timeout: Duration::ZERO,
    bytes_max: 1 << 20,
    total_bytes_max: 1 << 30,
};

fn transfer(node: &Node, from: i32, to: i32) -> Result<()> {
    let transaction = Transaction::begin(&node.db, LIMITS)?;
    let unit = Unit::new(&node.db).within(&transaction);
    for (id, amount) in [(from, -7), (to, 7)] {
        let mut change =
            |doc: marula_bson::Doc<'_>| Some(doc! { "_id": id, "v": int(doc, "v") + amount });
        if let Err(error) = node.update(unit, "c", id, &mut change) {
            transaction.abort();
            return Err(error);
        }
    }
    transaction.commit(None)
}

/// A transaction of the version at which its node has learned of an index, with which nothing was
/// committed in between.
#[test]
fn a_transaction_begins_when_another_node_has_just_built_an_index() {
    let cluster = Cluster::start(1, 2);
    cluster.nodes[0].insert("c", &doc! { "_id": 1, "v": 0 }).expect("there are no faults");
    for (round, direction) in [(1, 1), (2, -1)] {
        let spec = doc! { "key": { "v": direction }, "name": format!("v_{direction}").as_str() };
        cluster.nodes[1].index("c", &spec).expect("there are no faults");
        let node = &cluster.nodes[0];
        let _moment = node.db.begin_operation().expect("there are no faults");
        let transaction = Transaction::begin(&node.db, LIMITS).expect("there are no faults");
        let unit = Unit::new(&node.db).within(&transaction);
        for step in 0..3 {
            let mut change =
                |_: marula_bson::Doc<'_>| Some(doc! { "_id": 1, "v": 10 * round + step });
            node.update(unit, "c", 1, &mut change).expect("the index is of that moment");
        }
        transaction.commit(None).expect("there is no other");
    }
    cluster.check("c");
}

/// A unique index is built on one node while two insert the same keys: either it is there and each
/// key is there once, or the build has failed.
#[test]
fn a_unique_index_is_built_while_others_insert_duplicates() {
    with_seeds("a_unique_index_is_built_while_others_insert_duplicates", 50, |seed| {
        let cluster = Cluster::start(seed, 3);
        for id in 0..4 {
            cluster.nodes[0]
                .insert("c", &doc! { "_id": id, "k": id })
                .expect("there are no faults");
        }
        let built = Mutex::new(None);
        let outcome = &built;
        cluster.run(
            seed,
            works(&cluster, move |thread, node| {
                if thread == 0 {
                    let spec = doc! { "key": { "k": 1 }, "name": "k", "unique": true };
                    *outcome.lock() = Some(node.index("c", &spec));
                    return;
                }
                let mut dice = Dice::of(seed, thread);
                for round in 0..15 {
                    let id = 100 * thread as i32 + round;
                    let _ = node.insert("c", &doc! { "_id": id, "k": 10 + dice.below(60) });
                }
            }),
        );
        let docs = cluster.check("c");
        let mut keys: Vec<i32> = docs.iter().map(|doc| int(doc.as_doc(), "k")).collect();
        keys.sort_unstable();
        let has_duplicates = keys.windows(2).any(|pair| pair[0] == pair[1]);
        let outcome = built.into_inner().expect("the build has ended");
        for node in &cluster.nodes {
            let _moment = node.db.begin_operation().expect("there are no faults");
            let state = node.db.collection(&ns("c")).expect("it is there").state();
            assert!(state.building.is_empty() || outcome.is_err(), "a build is left");
            let is_there = state.index("k").is_some();
            assert!(!is_there || !has_duplicates, "{keys:?}");
            match &outcome {
                Ok(()) => assert!(is_there, "it was built"),
                Err(error) if error.code() == codes::DuplicateKey => assert!(!is_there),
                Err(_) => {}
            }
        }
    });
}

/// A collection is dropped on one node while others write: each insert is in the old collection, in
/// a new one, or has failed, and what is left agrees with itself.
#[test]
fn a_collection_is_dropped_while_others_write() {
    with_seeds("a_collection_is_dropped_while_others_write", 10, |seed| {
        let cluster = Cluster::start(seed, 3);
        cluster.nodes[0].index("c", &doc! { "key": { "k": 1 }, "name": "k" }).expect("no faults");
        cluster.run(
            seed,
            works(&cluster, move |thread, node| {
                let mut dice = Dice::of(seed, thread);
                for round in 0..5 {
                    if thread == 0 {
                        if dice.below(2) == 0 {
                            let _ = node.drop("c");
                        } else {
                            let _ = node.index("c", &doc! { "key": { "k": 1 }, "name": "k" });
                        }
                    } else {
                        let id = 100 * thread as i32 + round;
                        let _ = node.insert("c", &doc! { "_id": id, "k": [id, id + 1] });
                    }
                }
            }),
        );
        cluster.check("c");
    });
}

/// An array makes an index multikey on one node while another plans with it: a reader that
/// sees the document sees the mark at the same moment.
#[test]
fn an_index_becomes_multikey_while_others_plan() {
    with_seeds("an_index_becomes_multikey_while_others_plan", 10, |seed| {
        let cluster = Cluster::start(seed, 3);
        cluster.nodes[0].index("c", &doc! { "key": { "k": 1 }, "name": "k" }).expect("no faults");
        cluster.run(
            seed,
            works(&cluster, move |thread, node| {
                if thread == 0 {
                    let _ = node.insert("c", &doc! { "_id": 1, "k": [1, 2] });
                    return;
                }
                for _ in 0..8 {
                    // A read may fail; the mark may not be missing.
                    let _ = check_mark(node);
                }
            }),
        );
        cluster.check("c");
    });
}

fn check_mark(node: &Node) -> Result<()> {
    let _moment = node.db.begin_operation()?;
    let Some(collection) = node.db.collection(&ns("c")) else { return Ok(()) };
    let unit = Unit::new(&node.db);
    let is_marked = collection.state().index("k").is_some_and(|index| index.is_multikey());
    let found = collection.find_id(unit.view(), 1.into(), &mut Vec::new())?;
    assert!(found.is_none() || is_marked, "a plan would find the document twice");
    Ok(())
}
