//! Nodes over one simulated store.

use std::sync::Arc;
use std::time::Duration;

use marula_bson::{Doc, DocBuf};
use marula_db::build::BuildOptions;
use marula_db::write::{Change, InsertReport, Written};
use marula_db::{Collection, Db, IndexSpec, Namespace, Unit, WriteOp, validate};
use marula_distributed::kv::{
    Block, BlockLimit, Commit, Estimate, Kv, Limits, Result as KvResult, Version,
};
use marula_distributed::sim::{Faults, Sim, StepClock};
use marula_distributed::{Distributed, LeaseOptions, Options};
use marula_error::{Result, codes};
use marula_query::update::Touched;
use marula_storage::{ClusterStatus, Direction, KeyRange, Stamp};

use crate::turns::Turns;

/// A store that passes the turn on at each call.
struct Paced {
    sim: Arc<Sim>,
    turns: Arc<Turns>,
}

impl Paced {
    fn call<T>(&self, call: impl FnOnce(&Sim) -> T) -> T {
        self.turns.pass();
        let result = call(&self.sim);
        // Others may run before this node learns what has happened.
        self.turns.pass();
        result
    }
}

impl Kv for Paced {
    fn name(&self) -> &'static str {
        self.sim.name()
    }

    fn is_persistent(&self) -> bool {
        self.sim.is_persistent()
    }

    fn limits(&self) -> &Limits {
        self.sim.limits()
    }

    fn read_version(&self) -> KvResult<Version> {
        self.call(|sim| sim.read_version())
    }

    fn get(&self, at: Version, key: &[u8]) -> KvResult<Option<Vec<u8>>> {
        self.call(|sim| sim.get(at, key))
    }

    fn get_many(&self, at: Version, keys: &[Vec<u8>]) -> KvResult<Vec<Option<Vec<u8>>>> {
        self.call(|sim| sim.get_many(at, keys))
    }

    fn range(
        &self,
        at: Version,
        range: &KeyRange,
        direction: Direction,
        limit: BlockLimit,
    ) -> KvResult<Block> {
        self.call(|sim| sim.range(at, range, direction, limit))
    }

    fn commit(&self, commit: &Commit) -> KvResult<Stamp> {
        self.call(|sim| sim.commit(commit))
    }

    fn watch(&self, key: &[u8], seen: Option<&[u8]>, timeout: Duration) -> KvResult<bool> {
        self.call(|sim| sim.watch(key, seen, timeout))
    }

    fn estimate(&self, range: &KeyRange) -> KvResult<Estimate> {
        self.call(|sim| sim.estimate(range))
    }

    fn split_points(&self, range: &KeyRange, parts: usize) -> KvResult<Vec<Vec<u8>>> {
        self.call(|sim| sim.split_points(range, parts))
    }

    fn status(&self) -> KvResult<ClusterStatus> {
        self.sim.status()
    }
}

/// A simulated store and its nodes.
pub(crate) struct Cluster {
    pub(crate) sim: Arc<Sim>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) nodes: Vec<Node>,
}

/// A database over the store.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) db: Arc<Db>,
}

/// Faults of all kinds that a node survives, by this seed.
pub(crate) fn faults(seed: u64) -> Faults {
    Faults {
        seed,
        unknown_done: 20,
        unknown_not_done: 20,
        unknown_late: 20,
        false_conflict: 30,
        too_old: 10,
        slow_read: 10,
        ..Faults::default()
    }
}

impl Cluster {
    /// Nodes that begin without faults and without turns.
    pub(crate) fn start(seed: u64, count: usize) -> Self {
        let clock = StepClock::new(Duration::from_micros(50));
        let sim = Arc::new(Sim::new(clock, Faults::default()));
        let turns = Turns::new(seed);
        let open = |number| {
            let kv = Arc::new(Paced { sim: sim.clone(), turns: turns.clone() });
            // A heartbeat would be a thread that takes no turns.
            let hour = Duration::from_secs(3_600);
            let name = format!("node {number}");
            let lease = LeaseOptions { beat: hour, expiry: hour, ..LeaseOptions::new(name) };
            let options = Options { lease: Some(lease), is_shared: true, ..Options::default() };
            let store = Distributed::open(kv, options).expect("the store opens");
            let db = Arc::new(Db::open(Arc::new(store)).expect("the database opens"));
            db.follow_store();
            Node { db }
        };
        let nodes = (0..count).map(open).collect();
        Cluster { sim, turns, nodes }
    }

    /// Runs the work of each node, by turns and with faults; then the faults end, and what is late
    /// comes.
    pub(crate) fn run(&self, seed: u64, works: Vec<Box<dyn FnOnce() + Send + '_>>) {
        self.sim.set_faults(faults(seed));
        self.turns.run(works);
        self.sim.set_faults(Faults::default());
        self.sim.settle();
    }

    /// Checks that each node shows the same documents, that indexes and counters agree with them,
    /// and returns them.
    pub(crate) fn check(&self, name: &str) -> Vec<DocBuf> {
        let shown: Vec<Vec<DocBuf>> = self.nodes.iter().map(|node| node.all(name)).collect();
        assert!(shown.iter().all(|docs| *docs == shown[0]), "{shown:?}");
        for node in &self.nodes {
            let _moment = node.db.begin_operation().expect("it begins");
            node.db.renew_counters().expect("they are read");
            let Some(collection) = node.db.collection(&ns(name)) else {
                assert!(shown[0].is_empty());
                continue;
            };
            let report = validate::check(&node.db, &collection, &mut || Ok(()));
            let report = report.expect("it is checked");
            assert!(report.is_valid(), "{:?}", report.errors);
            assert_eq!(report.records, collection.count());
        }
        shown.into_iter().next().expect("there is a node")
    }
}

/// The collection of this name.
pub(crate) fn ns(name: &str) -> Namespace {
    Namespace::new("db", name).expect("the name is valid")
}

/// An integer of a document.
pub(crate) fn int(doc: Doc<'_>, field: &str) -> i32 {
    let number = doc.get(field).and_then(|value| value.as_exact_i64());
    number.and_then(|number| i32::try_from(number).ok()).expect("it is an integer")
}

impl Node {
    /// The collection, as the newest catalogue has it.
    fn collection(&self, name: &str) -> Result<Option<Arc<Collection>>> {
        Ok(self.db.collection(&ns(name)))
    }

    /// The document with this `_id`.
    pub(crate) fn find(&self, name: &str, id: i32) -> Result<Option<DocBuf>> {
        let _moment = self.db.begin_operation()?;
        let Some(collection) = self.collection(name)? else { return Ok(None) };
        self.find_in(Unit::new(&self.db), &collection, id)
    }

    fn find_in(&self, unit: Unit<'_>, collection: &Collection, id: i32) -> Result<Option<DocBuf>> {
        let mut scratch = Vec::new();
        let Some(record) = collection.find_id(unit.view(), id.into(), &mut scratch)? else {
            return Ok(None);
        };
        let mut found = None;
        let mut visit = |doc: Doc<'_>| found = Some(doc.to_buf());
        collection.get(unit.view(), record.as_bytes(), &mut scratch, &mut visit)?;
        Ok(found)
    }

    /// All documents of one moment, in the order of their `_id`.
    pub(crate) fn all(&self, name: &str) -> Vec<DocBuf> {
        self.try_all(name).expect("there are no faults")
    }

    pub(crate) fn try_all(&self, name: &str) -> Result<Vec<DocBuf>> {
        let _moment = self.db.begin_operation()?;
        let Some(collection) = self.collection(name)? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        let mut cursor = collection.scan(Unit::new(&self.db).view(), Direction::Forward)?;
        while cursor.advance()? {
            found.push(cursor.doc().to_buf());
        }
        found.sort_by_key(|doc| int(doc.as_doc(), "_id"));
        Ok(found)
    }

    /// Inserts a document; creates the collection if it does not exist.
    pub(crate) fn insert(&self, name: &str, doc: &DocBuf) -> Result<()> {
        let _moment = self.db.begin_operation()?;
        let collection = self.db.collection_or_create(&ns(name))?;
        let mut report = InsertReport::default();
        let mut docs = std::iter::once(doc.as_doc());
        let mut op = WriteOp::new(Unit::new(&self.db), 0);
        op.insert(&collection, &mut docs, true, &mut report)?;
        report.errors.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Changes the document with this `_id` to what `change` makes of it; `None` leaves it.
    pub(crate) fn update(
        &self,
        unit: Unit<'_>,
        name: &str,
        id: i32,
        change: &mut dyn FnMut(Doc<'_>) -> Option<DocBuf>,
    ) -> Result<Written> {
        let Some(collection) = unit.collection(&ns(name)) else { return Ok(Written::Skipped) };
        let mut scratch = Vec::new();
        let found = collection.find_id(unit.view(), id.into(), &mut scratch)?;
        let Some(record) = found else { return Ok(Written::Skipped) };
        let mut replace = |doc: Doc<'_>, out: &mut Vec<u8>| {
            let Some(new) = change(doc) else { return Ok(Change::Same) };
            out.clear();
            out.extend_from_slice(new.as_doc().as_bytes());
            Ok(Change::Replace(Touched::All))
        };
        WriteOp::new(unit, 0).update(&collection, &record, &mut replace, None)
    }

    /// Builds an index.
    pub(crate) fn index(&self, name: &str, spec: &DocBuf) -> Result<()> {
        let _moment = self.db.begin_operation()?;
        let collection = self.db.collection_or_create(&ns(name))?;
        let spec = IndexSpec::parse(spec.as_doc(), None)?;
        let options = BuildOptions {
            memory_bytes_max: 1 << 20,
            is_collection_new: false,
            watch: &mut |_| Ok(()),
        };
        self.db.build_indexes(&collection, &[spec], options).map(drop)
    }

    /// Drops a collection, if it exists.
    pub(crate) fn drop(&self, name: &str) -> Result<()> {
        let _moment = self.db.begin_operation()?;
        match self.db.drop_collection(&ns(name)) {
            Err(error) if error.code() != codes::NamespaceNotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether an error says that nothing was done.
pub(crate) fn is_conflict(error: &marula_error::Error) -> bool {
    error.code() == codes::WriteConflict
}
