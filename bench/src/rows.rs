//! The rows of the table: the requests of each, with the required and the desired ratio to mongod.

use std::time::Duration;

use crate::bson::Doc;
use crate::fill::{
    BATCH, count, create_indexes, drop_collection, fill, load_hot, load_records, load_shelf,
};
use crate::index_build::{self, BuildIndex};
use crate::load::{self, Blocking, Measured, Work};
use crate::lookups::{Lookup, Lookups};
use crate::pipelines::{self, CUSTOMERS, ORDERS, Pipeline, Pipelines, SMALL};
use crate::requests::{FindById, InsertOrders, InsertProducts, ScanProducts, UpdateHot};
use crate::side::Side;
use crate::streams::{self, Stream};
use crate::table::TableArgs;
use crate::transactions::{self, Held, SnapshotReads, Transaction, Transactions};

/// The quantities that the ratio of a row compares.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Measure {
    /// Server CPU per operation, Marula's over mongod's: smaller is better.
    Cpu,
    /// Throughput compared with Marula's own in the row before: larger is better.
    ThroughputOfRowAbove,
    /// Bytes on disk, Marula's over mongod's: smaller is better.
    Disk,
    /// The median wait of the client, Marula's over mongod's: smaller is better.
    Wait,
    /// The median wait of Marula's client, divided by these microseconds: smaller is better.
    WaitWithin(f64),
}

/// One row.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) connections: usize,
    pub(crate) measure: Measure,
    pub(crate) must: f64,
    pub(crate) aim: f64,
    workload: Workload,
}

#[derive(Clone, Copy, PartialEq)]
enum Workload {
    FindById,
    UpdateHot,
    InsertOrders,
    InsertProducts,
    ScanProducts,
    IndexProducts,
    DiskProducts,
    Lookup(Lookup),
    Pipeline(Pipeline),
    Transaction(Transaction),
    Stream(Stream),
}

const fn row(
    name: &'static str,
    title: &'static str,
    connections: usize,
    measure: Measure,
    must: f64,
    aim: f64,
    workload: Workload,
) -> Row {
    Row { name, title, connections, measure, must, aim, workload }
}

/// The table, in the order it is measured.
pub(crate) static ROWS: &[Row] = &[
    row(
        "find-1",
        "find one 300-byte document by _id",
        1,
        Measure::Cpu,
        0.4,
        0.25,
        Workload::FindById,
    ),
    row(
        "find-100",
        "find one 300-byte document by _id",
        100,
        Measure::Cpu,
        0.3,
        0.15,
        Workload::FindById,
    ),
    row(
        "update-1",
        "updateOne, 15 strings, unique index",
        1,
        Measure::Cpu,
        0.5,
        0.25,
        Workload::UpdateHot,
    ),
    row(
        "update-32",
        "updateOne, 15 strings, unique index",
        32,
        Measure::Cpu,
        0.5,
        0.25,
        Workload::UpdateHot,
    ),
    row(
        "update-1024",
        "the same: throughput beside 32 connections",
        1024,
        Measure::ThroughputOfRowAbove,
        0.9,
        1.0,
        Workload::UpdateHot,
    ),
    row(
        "insert-32",
        "insertOne, 3 secondary indexes",
        32,
        Measure::Cpu,
        0.75,
        0.5,
        Workload::InsertOrders,
    ),
    row(
        "load",
        "insertMany by 1,000, 2.6 KB products",
        1,
        Measure::Cpu,
        1.0,
        0.6,
        Workload::InsertProducts,
    ),
    row(
        "scan",
        "full scan of the products, no match",
        1,
        Measure::Cpu,
        0.5,
        0.3,
        Workload::ScanProducts,
    ),
    row(
        "index",
        "createIndex on a number, 100,000 products",
        1,
        Measure::Cpu,
        0.6,
        0.3,
        Workload::IndexProducts,
    ),
    row(
        "disk",
        "bytes on disk of the products, compacted",
        1,
        Measure::Disk,
        1.0,
        0.7,
        Workload::DiskProducts,
    ),
    row(
        "lookup-none",
        "find by index, no match",
        32,
        Measure::Cpu,
        0.4,
        0.2,
        Workload::Lookup(Lookup::None),
    ),
    row(
        "lookup-group",
        "find 9,091 products of 2.6 KB by index",
        1,
        Measure::Cpu,
        0.6,
        0.3,
        Workload::Lookup(Lookup::Group),
    ),
    row(
        "lookup-count",
        "count 9,091 by index",
        1,
        Measure::Cpu,
        0.4,
        0.2,
        Workload::Lookup(Lookup::CountGroup),
    ),
    row(
        "lookup-range",
        "range of 500, sorted, skip 100, limit 10",
        1,
        Measure::Cpu,
        0.4,
        0.25,
        Workload::Lookup(Lookup::Range),
    ),
    row(
        "lookup-order",
        "order of an index, skip 5,000, limit 10",
        1,
        Measure::Cpu,
        0.4,
        0.2,
        Workload::Lookup(Lookup::Order),
    ),
    row(
        "lookup-label",
        "find 38 products by an array's element",
        1,
        Measure::Cpu,
        0.6,
        0.3,
        Workload::Lookup(Lookup::Label),
    ),
    row(
        "pipeline-group",
        "$match + $group by 100 keys, 200,000 small documents",
        1,
        Measure::Cpu,
        0.5,
        0.3,
        Workload::Pipeline(Pipeline::MatchGroup),
    ),
    row(
        "pipeline-unwind",
        "$unwind + $group + $sort, the same",
        1,
        Measure::Cpu,
        0.5,
        0.3,
        Workload::Pipeline(Pipeline::Unwind),
    ),
    row(
        "pipeline-join",
        "$lookup 10,000 x 10,000 by an index",
        1,
        Measure::Cpu,
        0.5,
        0.3,
        Workload::Pipeline(Pipeline::Join),
    ),
    row(
        "pipeline-top",
        "$sort + $limit 100, 200,000 small documents",
        1,
        Measure::Cpu,
        0.5,
        0.3,
        Workload::Pipeline(Pipeline::SortLimit),
    ),
    row(
        "pipeline-order",
        "$sort of all + $group, the same",
        1,
        Measure::Cpu,
        0.5,
        0.3,
        Workload::Pipeline(Pipeline::SortGroup),
    ),
    row(
        "pipeline-bucket",
        "$bucket, the same",
        1,
        Measure::Cpu,
        0.5,
        0.2,
        Workload::Pipeline(Pipeline::Bucket),
    ),
    row(
        "pipeline-facet",
        "$facet of a group and a bucket, the same",
        1,
        Measure::Cpu,
        0.5,
        0.3,
        Workload::Pipeline(Pipeline::Facet),
    ),
    row(
        "pipeline-brand",
        "$group by brand, 100,000 products",
        1,
        Measure::Cpu,
        0.5,
        0.3,
        Workload::Pipeline(Pipeline::Brand),
    ),
    row(
        "txn-update-1",
        "two updates in a transaction, and its commit",
        1,
        Measure::Cpu,
        0.5,
        0.25,
        Workload::Transaction(Transaction::Updates),
    ),
    row(
        "txn-update-32",
        "two updates in a transaction, and its commit",
        32,
        Measure::Cpu,
        0.5,
        0.25,
        Workload::Transaction(Transaction::Updates),
    ),
    row(
        "txn-insert",
        "an insert into each of two collections, and the commit",
        1,
        Measure::Cpu,
        0.5,
        0.25,
        Workload::Transaction(Transaction::Inserts),
    ),
    row(
        "txn-many",
        "1,000 inserts in one transaction, per document",
        1,
        Measure::Cpu,
        0.8,
        0.5,
        Workload::Transaction(Transaction::Many),
    ),
    row(
        "txn-read",
        "read of 101 documents at one moment",
        1,
        Measure::Cpu,
        0.5,
        0.25,
        Workload::Transaction(Transaction::SnapshotRead),
    ),
    row(
        "oplog-insert",
        "insertOne, 3 secondary indexes, with an oplog",
        32,
        Measure::Cpu,
        0.5,
        0.3,
        Workload::Transaction(Transaction::InsertsAlone),
    ),
    row(
        "oplog-update",
        "updateOne, 15 strings, unique index, with an oplog",
        32,
        Measure::Cpu,
        0.5,
        0.3,
        Workload::Transaction(Transaction::UpdatesAlone),
    ),
    row(
        "txn-alone",
        "updateOne beside no transaction",
        32,
        Measure::Cpu,
        0.5,
        0.25,
        Workload::Transaction(Transaction::UpdatesAlone),
    ),
    row(
        "txn-beside",
        "the same beside one of 100,000 documents: throughput",
        32,
        Measure::ThroughputOfRowAbove,
        0.95,
        1.0,
        Workload::Transaction(Transaction::UpdatesBeside),
    ),
    row(
        "stream-100",
        "100 change streams, 5,000 documents/s: per event",
        100,
        Measure::Cpu,
        0.5,
        0.25,
        Workload::Stream(Stream::Hundred),
    ),
    row(
        "stream-wait",
        "insertOne until its event: wait",
        1,
        Measure::Wait,
        1.0,
        0.5,
        Workload::Stream(Stream::Wait),
    ),
    row(
        "stream-resume",
        "resumeAfter far back: wait, of 50 ms",
        1,
        Measure::WaitWithin(50_000.0),
        1.0,
        0.1,
        Workload::Stream(Stream::Resume),
    ),
];

/// The result of one side in one row: the median of its runs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reached {
    pub(crate) per_second: f64,
    pub(crate) cpu_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) disk_mb: f64,
    pub(crate) wait_us: f64,
}

/// A row with its numbers; a side that was not requested is `None`.
pub(crate) struct RowResult {
    pub(crate) row: &'static Row,
    pub(crate) marula: Option<Reached>,
    pub(crate) mongod: Option<Reached>,
    pub(crate) floor: Option<Reached>,
    pub(crate) ratio: Option<f64>,
}

/// Measures the rows that the args name.
pub(crate) fn measure(args: &TableArgs) -> Result<Vec<RowResult>, String> {
    let is_asked = |row: &&Row| {
        args.rows.is_empty() || args.rows.iter().any(|name| row.name.starts_with(name.as_str()))
    };
    let rows: Vec<&'static Row> = ROWS.iter().filter(is_asked).collect();
    let mut results = Vec::new();
    let needs_set =
        |row: &Row| matches!(row.workload, Workload::Transaction(_) | Workload::Stream(_));
    for rows in rows.chunk_by(|&a, &b| needs_set(a) == needs_set(b)) {
        let mut sides = start(args, needs_set(rows[0]))?;
        // Rows that are compared with each other take turns, as the sides do.
        for group in rows.chunk_by(|_, next| next.measure == Measure::ThroughputOfRowAbove) {
            results.extend(measure_group(group, &mut sides, args)?);
        }
        for side in &sides {
            eprintln!("bench: {} used at most {} MB of memory", side.name, side.memory_mb());
        }
    }
    Ok(results)
}

/// Starts the servers that the args name; as replica sets of one node, for transactions.
fn start(args: &TableArgs, are_replica_sets: bool) -> Result<Vec<Side>, String> {
    let mut sides = Vec::new();
    let set: &[&str] = if are_replica_sets { &["--replSet", "rs0"] } else { &[] };
    let words = |path: &str, own: &[&str]| -> Vec<String> {
        [&[path], own, set].concat().into_iter().map(str::to_owned).collect()
    };
    if let Some(path) = &args.marula {
        sides.push(Side::start("marula", &words(path, &["serve"]))?);
    }
    if let Some(path) = &args.mongod {
        let quiet = ["--quiet", "--setParameter", "diagnosticDataCollectionEnabled=false"];
        sides.push(Side::start("mongod", &words(path, &quiet))?);
    }
    if are_replica_sets {
        sides.iter().try_for_each(transactions::initiate)?;
        return Ok(sides);
    }
    let myself = std::env::current_exe().map_err(|error| error.to_string())?;
    sides.push(Side::start("floor", &[myself.display().to_string(), "echo".into()])?);
    Ok(sides)
}

/// Measures a row, or several that are compared with each other.
fn measure_group(
    group: &[&'static Row],
    sides: &mut [Side],
    args: &TableArgs,
) -> Result<Vec<RowResult>, String> {
    for row in group {
        eprintln!("bench: {} ({} connections)", row.title, row.connections);
    }
    // By row, then by side.
    let mut runs: Vec<Vec<Vec<Reached>>> = vec![vec![Vec::new(); sides.len()]; group.len()];
    let once = group.iter().any(|row| matches!(row.workload, Workload::DiskProducts));
    for _ in 0..if once { 1 } else { args.runs } {
        for (place, side) in sides.iter_mut().enumerate() {
            for (row, runs) in group.iter().zip(&mut runs) {
                if side.name == "floor" && row.workload != Workload::FindById {
                    continue;
                }
                let reached = one_run(row, side, args).map_err(|error| {
                    format!("row '{}' against {}: {error}", row.name, side.name)
                })?;
                runs[place].push(reached);
            }
        }
    }
    let side = |name: &str| sides.iter().position(|side| side.name == name);
    let results = group.iter().enumerate().map(|(number, &row)| {
        let runs_of = |number: usize, name: &str| side(name).map(|place| &*runs[number][place]);
        let of = |name: &str| runs_of(number, name).filter(|runs| !runs.is_empty()).map(median);
        let (marula, mongod, floor) = (of("marula"), of("mongod"), of("floor"));
        let ratio = match row.measure {
            Measure::Cpu => marula.zip(mongod).map(|(a, b)| a.cpu_us / b.cpu_us),
            Measure::Disk => marula.zip(mongod).map(|(a, b)| a.disk_mb / b.disk_mb),
            Measure::Wait => marula.zip(mongod).map(|(a, b)| a.wait_us / b.wait_us),
            Measure::WaitWithin(us) => marula.map(|side| side.wait_us / us),
            // Only runs that followed each other are compared: the machine's speed may change
            // within a minute.
            Measure::ThroughputOfRowAbove => number.checked_sub(1).and_then(|above| {
                let pairs = runs_of(number, "marula")?.iter().zip(runs_of(above, "marula")?);
                Some(middle(pairs.map(|(a, b)| a.per_second / b.per_second)))
            }),
        };
        RowResult { row, marula, mongod, floor, ratio }
    });
    Ok(results.collect())
}

/// The median.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

fn median(runs: &[Reached]) -> Reached {
    let of = |pick: fn(&Reached) -> f64| middle(runs.iter().map(pick));
    Reached {
        per_second: of(|run| run.per_second),
        cpu_us: of(|run| run.cpu_us),
        p99_us: of(|run| run.p99_us),
        disk_mb: of(|run| run.disk_mb),
        wait_us: of(|run| run.wait_us),
    }
}

fn one_run(row: &Row, side: &mut Side, args: &TableArgs) -> Result<Reached, String> {
    // One connection: client and server share a core, because the cost of a wake-up across cores
    // would be counted for neither.
    side.pin(if row.connections == 1 { 1 } else { 2 });
    let echo = side.name == "floor";
    match row.workload {
        Workload::FindById => {
            if !echo {
                load_records(side, args.documents)?;
            }
            timed(row, side, args, &mut FindById::new(args.documents), None)
        }
        Workload::UpdateHot => {
            load_hot(side)?;
            timed(row, side, args, &mut UpdateHot::new(), None)
        }
        Workload::InsertOrders => insert_orders(row, side, args),
        Workload::InsertProducts => load_products(row, side, args),
        Workload::ScanProducts => {
            if count(side, "products")? != args.documents {
                load_products(row, side, args)?;
            }
            let mut scan = ScanProducts::new(if args.smoke { 1 } else { 4 });
            timed(row, side, args, &mut scan, Some(4))
        }
        Workload::IndexProducts => {
            if count(side, "products")? != args.documents {
                load_products(row, side, args)?;
            }
            // It exists from the run before, or not at all.
            let _ = Blocking::new(side.address)?.command(index_build::drop_index());
            side.settle(Duration::from_secs(if args.smoke { 0 } else { 5 }));
            timed(row, side, args, &mut BuildIndex::new(), Some(1))
        }
        Workload::Lookup(lookup) => {
            load_shelf(side, args.documents)?;
            timed(row, side, args, &mut Lookups::new(lookup, args.documents), None)
        }
        Workload::Pipeline(pipeline) => {
            load_for_pipeline(pipeline, row, side, args)?;
            // A number of transactions, not a time: one may take a second, and an interrupted one
            // would be counted wrongly.
            let mut work = Pipelines::new(pipeline, args.documents);
            timed(row, side, args, &mut work, Some(1))?;
            work.repeat(if args.smoke { 1 } else { 4 });
            timed(row, side, args, &mut work, Some(4))
        }
        Workload::Transaction(kind) => transact(kind, row, side, args),
        Workload::Stream(kind) => follow(kind, side, args),
        Workload::DiskProducts => {
            // A separate folder: collections dropped by other rows may still be waiting for their
            // removal.
            let mut fresh = side.another()?;
            let side = &mut fresh;
            load_products(row, side, args)?;
            let mut control = Blocking::new(side.address)?;
            let key = |name: &str| Doc::new().int(name, 1);
            create_indexes(
                &mut control,
                "products",
                &[
                    ("sku", key("sku"), true),
                    ("categoryPrice", key("category").int("price", 1), false),
                ],
            )?;
            control.command(Doc::new().str("compact", "products").str("$db", "bench"))?;
            control.command(Doc::new().int("fsync", 1).str("$db", "admin"))?;
            side.settle(Duration::from_secs(if args.smoke { 0 } else { 30 }));
            Ok(Reached { disk_mb: side.disk_bytes() as f64 / 1e6, ..Reached::default() })
        }
    }
}

/// Inserts orders one by one into a collection with three indexes.
fn insert_orders(row: &Row, side: &mut Side, args: &TableArgs) -> Result<Reached, String> {
    let mut control = Blocking::new(side.address)?;
    drop_collection(&mut control, "orders");
    let key = |name: &str| Doc::new().int(name, 1);
    create_indexes(
        &mut control,
        "orders",
        &[
            ("customer", key("customer"), false),
            ("created", key("created"), false),
            ("statusTotal", key("status").int("total", -1), false),
        ],
    )?;
    timed(row, side, args, &mut InsertOrders::new(), None)
}

/// Runs a row of transactions.
fn transact(
    kind: Transaction,
    row: &Row,
    side: &mut Side,
    args: &TableArgs,
) -> Result<Reached, String> {
    match kind {
        Transaction::SnapshotRead => {
            load_records(side, args.documents)?;
            return timed(row, side, args, &mut SnapshotReads::new(args.documents), None);
        }
        Transaction::InsertsAlone => return insert_orders(row, side, args),
        Transaction::UpdatesAlone => {
            load_hot(side)?;
            return timed(row, side, args, &mut UpdateHot::new(), None);
        }
        Transaction::UpdatesBeside => {
            load_hot(side)?;
            let held = Held::begin(side)?;
            let reached = timed(row, side, args, &mut UpdateHot::new(), None);
            held.end()?;
            return reached;
        }
        Transaction::Updates => load_hot(side)?,
        Transaction::Inserts | Transaction::Many => {
            let mut control = Blocking::new(side.address)?;
            for name in ["left", "right", "many"] {
                drop_collection(&mut control, name);
                control.command(Doc::new().str("create", name).str("$db", "bench"))?;
            }
        }
    }
    let mut work = Transactions::new(kind, row.connections);
    let reached = timed(row, side, args, &mut work, None)?;
    // Interrupted transactions hold their collections.
    let end = Doc::new().array("killAllSessions", Vec::new()).str("$db", "admin");
    Blocking::new(side.address)?.command(end)?;
    // The count is of requests.
    let each = work.units as f64 / work.requests() as f64;
    Ok(Reached { per_second: reached.per_second * each, cpu_us: reached.cpu_us / each, ..reached })
}

/// Runs a row of change streams.
fn follow(kind: Stream, side: &mut Side, args: &TableArgs) -> Result<Reached, String> {
    let followed = streams::run(kind, side, args.seconds)?;
    let events = followed.events.max(1) as f64;
    Ok(Reached {
        per_second: events / followed.seconds,
        cpu_us: followed.cpu_ns as f64 / 1000.0 / events,
        wait_us: followed.wait_us,
        ..Reached::default()
    })
}

/// Runs `work` for the args' time, or to its end when it has a number of operations.
fn timed(
    row: &Row,
    side: &mut Side,
    args: &TableArgs,
    work: &mut dyn Work,
    operations: Option<usize>,
) -> Result<Reached, String> {
    let address = side.address;
    let (warm_up, time) = match operations {
        Some(_) => (Duration::ZERO, None),
        None => (
            Duration::from_secs_f64(args.seconds / 4.0),
            Some(Duration::from_secs_f64(args.seconds)),
        ),
    };
    let measured = load::run(address, row.connections, warm_up, time, work, &mut || side.cpu_ns())?;
    Ok(reached(&measured, 1))
}

fn reached(measured: &Measured, each: u64) -> Reached {
    let operations = (measured.operations * each).max(1) as f64;
    Reached {
        per_second: operations / measured.seconds,
        cpu_us: measured.cpu_ns as f64 / 1000.0 / operations,
        p99_us: measured.p99_us,
        ..Reached::default()
    }
}

/// Loads the collections of a pipeline, unless they exist.
fn load_for_pipeline(
    pipeline: Pipeline,
    row: &Row,
    side: &mut Side,
    args: &TableArgs,
) -> Result<(), String> {
    let small_count = pipelines::small_count(args.documents);
    let join_count = pipelines::join_count(args.documents);
    match pipeline {
        Pipeline::Brand if count(side, "products")? != args.documents => {
            load_products(row, side, args).map(|_| ())
        }
        Pipeline::Brand => Ok(()),
        Pipeline::Join => {
            let number = ("number", Doc::new().int("number", 1), false);
            fill(side, CUSTOMERS, join_count, &[number], &pipelines::customers)?;
            let orders = |begin, end| pipelines::orders(begin, end, join_count);
            fill(side, ORDERS, join_count, &[], &orders)
        }
        _ => fill(side, SMALL, small_count, &[], &pipelines::small),
    }
}

/// Drops and loads the products; the time is the load's, the CPU that of the load and the flushing
/// it causes.
fn load_products(row: &Row, side: &mut Side, args: &TableArgs) -> Result<Reached, String> {
    drop_collection(&mut Blocking::new(side.address)?, "products");
    side.pin(2);
    side.settle(Duration::from_secs(if args.smoke { 0 } else { 10 }));
    let mut work = InsertProducts::new(args.documents);
    let before = side.cpu_ns();
    let address = side.address;
    let mut measured =
        load::run(address, row.connections, Duration::ZERO, None, &mut work, &mut || {
            side.cpu_ns()
        })?;
    Blocking::new(address)?.command(Doc::new().int("fsync", 1).str("$db", "admin"))?;
    side.settle(Duration::from_secs(if args.smoke { 0 } else { 10 }));
    measured.cpu_ns = side.cpu_ns() - before;
    side.pin(if row.connections == 1 && row.workload != Workload::InsertProducts { 1 } else { 2 });
    Ok(reached(&measured, BATCH.min(args.documents) as u64))
}
