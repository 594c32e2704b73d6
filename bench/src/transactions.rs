//! The rows of transactions: each is several requests over one connection, begun with a number and
//! ended by a commit. The servers are replica sets of one node, where mongod has transactions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::bson::{self, Doc};
use crate::documents;
use crate::fill::{BATCH, HOT_DOCUMENTS, drop_collection};
use crate::load::{Blocking, Work};
use crate::message::{self, Random, Template, oid};
use crate::requests::{SESSION_MARK, session};
use crate::side::Side;

/// The operations of a row.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Transaction {
    /// Two updates and a commit.
    Updates,
    /// One insert into each of two collections, and a commit.
    Inserts,
    /// A thousand documents by the hundred, and a commit.
    Many,
    /// No transaction: a read of 101 documents at one moment.
    SnapshotRead,
    /// No transaction: inserts of one document, with an oplog.
    InsertsAlone,
    /// No transaction: updates of one document, with an oplog.
    UpdatesAlone,
    /// The same while a transaction holds 100,000 other documents.
    UpdatesBeside,
}

/// Documents of a transaction that is held open.
const HELD_DOCUMENTS: usize = 100_000;
/// Documents of [`Transaction::Many`], and of each of its inserts.
const MANY: (usize, usize) = (1_000, 100);
/// Connections with separate documents.
const APART: usize = 32;
/// Documents of a read at one moment.
const READ: usize = 101;

const OID_MARK: [u8; 12] = [0xEE; 12];
const NUMBER_MARK: i64 = 0x0CCC_CCCC_CCCC_CCCC;

/// Numbers of transactions and of documents: each is used once.
static NEXT: AtomicU64 = AtomicU64::new(1);

fn next() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Makes a server that was started with `--replSet` the set's only member.
pub(crate) fn initiate(side: &Side) -> Result<(), String> {
    let mut control = Blocking::new(side.address)?;
    let member = Doc::new().int("_id", 0).str("host", &side.address.to_string());
    let config = Doc::new().str("_id", "rs0").array("members", vec![member]);
    // A server that needs no initiation reports that it is initialized.
    let _ = control.command(Doc::new().doc("replSetInitiate", config).str("$db", "admin"));
    let begin = Instant::now();
    loop {
        let hello = control.command(Doc::new().int("hello", 1).str("$db", "admin"))?;
        if bson::field(&hello, "isWritablePrimary")
            .is_some_and(|(_, value)| value.starts_with(&[1]))
        {
            return Ok(());
        }
        if begin.elapsed() > Duration::from_secs(30) {
            return Err(format!("{} did not become primary", side.name));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The fields of a transaction in a request: its number, and its start in the first one.
fn inside(body: Doc, is_first: bool) -> Doc {
    let body = body.doc("lsid", Doc::new().uuid("id", SESSION_MARK));
    let body = body.long("txnNumber", NUMBER_MARK).bool("autocommit", false);
    if is_first { body.bool("startTransaction", true) } else { body }
}

fn update(is_first: bool) -> Template {
    let set = Doc::new().str("name", "VALUEVAL in this field now");
    let update = Doc::new().doc("q", Doc::new().str("code", "CODECODE"));
    let update = update.doc("u", Doc::new().doc("$set", set)).finish();
    let body = inside(Doc::new().str("update", "hot").bool("ordered", true), is_first);
    Template::new(body.str("$db", "bench"), Some(("updates", &[update])))
}

fn insert(collection: &str, count: usize, is_first: bool) -> Template {
    let body = inside(Doc::new().str("insert", collection).bool("ordered", true), is_first);
    let document =
        Doc::new().oid("_id", OID_MARK).str("name", "a name of usual length").int("n", 7);
    let documents = vec![document.finish(); count];
    Template::new(body.str("$db", "bench"), Some(("documents", &documents)))
}

fn commit() -> Template {
    let body = inside(Doc::new().int("commitTransaction", 1), false);
    Template::new(body.doc("writeConcern", Doc::new().int("w", 1)).str("$db", "admin"), None)
}

/// The places of a request that change.
struct Step {
    template: Template,
    session: usize,
    number: usize,
    codes: Vec<usize>,
    values: Vec<usize>,
    ids: Vec<usize>,
}

impl Step {
    fn new(template: Template) -> Step {
        let holds = |mark: &[u8]| template.bytes.windows(mark.len()).any(|bytes| bytes == mark);
        let places = |mark: &[u8]| if holds(mark) { template.places(mark) } else { Vec::new() };
        Step {
            session: places(&SESSION_MARK)[0],
            number: places(&NUMBER_MARK.to_le_bytes())[0],
            codes: places(b"CODECODE"),
            values: places(b"VALUEVAL"),
            ids: places(&OID_MARK),
            template,
        }
    }
}

/// Transactions of the same steps, on every connection one after the other.
pub(crate) struct Transactions {
    steps: Vec<Step>,
    /// Of each connection: the number of its transaction, and its next step.
    connections: Vec<(u64, usize)>,
    random: Random,
    /// The number of units that count as one operation.
    pub(crate) units: u64,
}

impl Transactions {
    pub(crate) fn new(kind: Transaction, connections: usize) -> Transactions {
        let (many, each) = MANY;
        let (mut templates, units) = match kind {
            Transaction::Inserts => (vec![insert("left", 1, true), insert("right", 1, false)], 1),
            Transaction::Many => {
                let batches = (0..many / each).map(|batch| insert("many", each, batch == 0));
                (batches.collect(), many)
            }
            _ => (vec![update(true), update(false)], 1),
        };
        templates.push(commit());
        Transactions {
            steps: templates.into_iter().map(Step::new).collect(),
            connections: vec![(0, 0); connections],
            random: Random::new(11),
            units: units as u64,
        }
    }

    /// Returns the number of requests of one transaction.
    pub(crate) fn requests(&self) -> u64 {
        self.steps.len() as u64
    }
}

impl Work for Transactions {
    fn request(&mut self, connection: usize) -> Option<&[u8]> {
        let (number, place) = &mut self.connections[connection];
        if *place == 0 {
            *number = next();
        }
        let steps = self.steps.len();
        let step = &mut self.steps[*place];
        *place = (*place + 1) % steps;
        let template = &mut step.template;
        template.put(step.session, &session(connection));
        template.put(step.number, &(*number as i64).to_le_bytes());
        for code in &step.codes {
            // Documents of this connection alone: conflicts are not measured.
            let own = self.random.below(HOT_DOCUMENTS / APART) * APART + connection % APART;
            template.put(*code, documents::code(own).as_bytes());
        }
        for value in &step.values {
            template.put(*value, &self.random.letters());
        }
        for id in &step.ids {
            template.put(*id, &oid(next()));
        }
        Some(&step.template.bytes)
    }

    fn check(&mut self, reply: &[u8]) -> Result<(), String> {
        let reply = message::succeeded(reply)?;
        match bson::number(reply, "n") {
            Some(0.0) => Err("a statement has changed nothing".into()),
            _ => Ok(()),
        }
    }
}

/// Reads of neighbouring documents at one moment.
pub(crate) struct SnapshotReads {
    template: Template,
    random: Random,
    documents: usize,
    id: usize,
    session: usize,
}

impl SnapshotReads {
    pub(crate) fn new(documents: usize) -> SnapshotReads {
        let filter = Doc::new().doc("_id", Doc::new().oid("$gte", OID_MARK));
        let body = Doc::new().str("find", "find").doc("filter", filter);
        let body = body.int("limit", READ as i32).bool("singleBatch", true);
        let body = body.doc("readConcern", Doc::new().str("level", "snapshot"));
        let body = body.doc("lsid", Doc::new().uuid("id", SESSION_MARK)).str("$db", "bench");
        let template = Template::new(body, None);
        let (id, session) = (template.places(&OID_MARK)[0], template.places(&SESSION_MARK)[0]);
        SnapshotReads { template, random: Random::new(12), documents, id, session }
    }
}

impl Work for SnapshotReads {
    fn request(&mut self, connection: usize) -> Option<&[u8]> {
        let from = self.random.below(self.documents.saturating_sub(READ)) as u64;
        self.template.put(self.id, &oid(from));
        self.template.put(self.session, &session(connection));
        Some(&self.template.bytes)
    }

    fn check(&mut self, reply: &[u8]) -> Result<(), String> {
        message::succeeded(reply)?;
        if reply.len() < READ * 250 { Err("documents are missing".into()) } else { Ok(()) }
    }
}

/// A transaction that holds many documents while it lives.
pub(crate) struct Held {
    connection: Blocking,
    number: u64,
}

impl Held {
    pub(crate) fn begin(side: &Side) -> Result<Held, String> {
        let mut connection = Blocking::new(side.address)?;
        drop_collection(&mut connection, "held");
        connection.command(Doc::new().str("create", "held").str("$db", "bench"))?;
        let number = next();
        for batch in 0..HELD_DOCUMENTS / BATCH {
            let mut step = Step::new(insert("held", BATCH, batch == 0));
            step.template.put(step.session, &session(usize::MAX));
            step.template.put(step.number, &(number as i64).to_le_bytes());
            for id in &step.ids {
                step.template.put(*id, &oid(next()));
            }
            connection.send(&step.template.bytes)?;
        }
        Ok(Held { connection, number })
    }

    /// Ends it.
    pub(crate) fn end(mut self) -> Result<(), String> {
        let body = inside(Doc::new().int("abortTransaction", 1), false).str("$db", "admin");
        let mut step = Step::new(Template::new(body, None));
        step.template.put(step.session, &session(usize::MAX));
        step.template.put(step.number, &(self.number as i64).to_le_bytes());
        self.connection.send(&step.template.bytes).map(|_| ())
    }
}
