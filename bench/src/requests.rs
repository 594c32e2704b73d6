//! The requests of rows with a single kind of request: finds by `_id`, updates, inserts, scans.

use crate::bson::{self, Doc};
use crate::documents;
use crate::fill::{BATCH, HOT_DOCUMENTS, insert};
use crate::load::Work;
use crate::message::{self, Random, Template, oid};

/// The session that a driver names in each command: one per connection.
pub(crate) fn session(connection: usize) -> [u8; 16] {
    let mut id = [0x5E; 16];
    id[8..].copy_from_slice(&(connection as u64).to_be_bytes());
    id[6] = 0x4E;
    id[8] = 0x80;
    id
}

pub(crate) const SESSION_MARK: [u8; 16] = [0xDA; 16];
const OID_MARK: [u8; 12] = [0xEE; 12];

fn with_session(body: Doc) -> Doc {
    body.doc("lsid", Doc::new().uuid("id", SESSION_MARK)).str("$db", "bench")
}

/// Finds one document by `_id`.
pub(crate) struct FindById {
    template: Template,
    random: Random,
    documents: usize,
    id: usize,
    session: usize,
}

impl FindById {
    pub(crate) fn new(documents: usize) -> FindById {
        let filter = Doc::new().oid("_id", OID_MARK);
        let body = Doc::new()
            .str("find", "find")
            .doc("filter", filter)
            .int("limit", 1)
            .bool("singleBatch", true);
        let template = Template::new(with_session(body), None);
        let (id, session) = (template.places(&OID_MARK)[0], template.places(&SESSION_MARK)[0]);
        FindById { template, random: Random::new(1), documents, id, session }
    }
}

impl Work for FindById {
    fn request(&mut self, connection: usize) -> Option<&[u8]> {
        let number = self.random.below(self.documents) as u64;
        self.template.put(self.id, &oid(number));
        self.template.put(self.session, &session(connection));
        Some(&self.template.bytes)
    }

    fn check(&mut self, reply: &[u8]) -> Result<(), String> {
        message::succeeded(reply)?;
        // A reply without the document is shorter than the document.
        if reply.len() < 300 { Err("find did not return the document".into()) } else { Ok(()) }
    }
}

/// Updates 15 strings of a document by its unique code.
pub(crate) struct UpdateHot {
    template: Template,
    random: Random,
    code: usize,
    session: usize,
    values: Vec<usize>,
}

impl UpdateHot {
    pub(crate) fn new() -> UpdateHot {
        let set = documents::HOT_FIELDS
            .iter()
            .fold(Doc::new(), |set, field| set.str(field, "VALUEVAL in this field now"));
        let update = Doc::new()
            .doc("q", Doc::new().str("code", "CODECODE"))
            .doc("u", Doc::new().doc("$set", set))
            .finish();
        let body = Doc::new().str("update", "hot").bool("ordered", true);
        let template = Template::new(with_session(body), Some(("updates", &[update])));
        let (code, session) = (template.places(b"CODECODE")[0], template.places(&SESSION_MARK)[0]);
        let values = template.places(b"VALUEVAL");
        UpdateHot { template, random: Random::new(2), code, session, values }
    }
}

impl Work for UpdateHot {
    fn request(&mut self, connection: usize) -> Option<&[u8]> {
        let code = documents::code(self.random.below(HOT_DOCUMENTS));
        self.template.put(self.code, code.as_bytes());
        self.template.put(self.session, &session(connection));
        for place in &self.values {
            let letters = self.random.letters();
            self.template.bytes[*place..*place + 8].copy_from_slice(&letters);
        }
        Some(&self.template.bytes)
    }

    fn check(&mut self, reply: &[u8]) -> Result<(), String> {
        expect_n(message::succeeded(reply)?, 1)
    }
}

fn expect_n(reply: &[u8], n: usize) -> Result<(), String> {
    match bson::number(reply, "n") {
        Some(got) if got as usize == n => Ok(()),
        got => Err(format!("n is {got:?}, not {n}")),
    }
}

/// Inserts orders one by one.
pub(crate) struct InsertOrders {
    template: Template,
    random: Random,
    next: u64,
    id: usize,
    session: usize,
    customer: usize,
    created: usize,
    total: usize,
}

impl InsertOrders {
    pub(crate) fn new() -> InsertOrders {
        let body = Doc::new().str("insert", "orders").bool("ordered", true);
        let template =
            Template::new(with_session(body), Some(("documents", &[documents::order().finish()])));
        InsertOrders {
            id: template.places(&OID_MARK)[0],
            session: template.places(&SESSION_MARK)[0],
            customer: template.places(b"CCCCCCCC")[0],
            created: template.places(&0x0DDD_DDDD_DDDD_DDDDi64.to_le_bytes())[0],
            total: template.places(&[0xEF; 8])[0],
            template,
            random: Random::new(3),
            next: 0,
        }
    }
}

impl Work for InsertOrders {
    fn request(&mut self, connection: usize) -> Option<&[u8]> {
        self.next += 1;
        let template = &mut self.template;
        template.put(self.id, &oid(self.next));
        template.put(self.session, &session(connection));
        template.put(self.customer, format!("{:08}", self.random.below(50_000)).as_bytes());
        template.put(self.created, &(1_700_000_000_000 + self.next as i64).to_le_bytes());
        template.put(self.total, &(self.random.below(1_000_000) as f64 / 100.0).to_le_bytes());
        Some(&template.bytes)
    }

    fn check(&mut self, reply: &[u8]) -> Result<(), String> {
        expect_n(message::succeeded(reply)?, 1)
    }
}

/// Inserts products by the thousand, to the last of them.
pub(crate) struct InsertProducts {
    next: usize,
    documents: usize,
    request: Vec<u8>,
}

impl InsertProducts {
    pub(crate) fn new(documents: usize) -> InsertProducts {
        InsertProducts { next: 0, documents, request: Vec::new() }
    }
}

impl Work for InsertProducts {
    fn request(&mut self, _: usize) -> Option<&[u8]> {
        if self.next >= self.documents {
            return None;
        }
        let end = self.documents.min(self.next + BATCH);
        let batch: Vec<_> =
            (self.next..end).map(|number| documents::product(number as u64)).collect();
        self.next = end;
        self.request = insert("products", &batch).bytes;
        Some(&self.request)
    }

    fn check(&mut self, reply: &[u8]) -> Result<(), String> {
        let reply = message::succeeded(reply)?;
        expect_n(reply, BATCH.min(self.documents))
    }
}

/// Searches all products for a value that does not occur.
pub(crate) struct ScanProducts {
    template: Template,
    left: usize,
}

impl ScanProducts {
    pub(crate) fn new(times: usize) -> ScanProducts {
        // A field in the middle of the document, with a value of the usual length.
        let body = Doc::new()
            .str("find", "products")
            .doc("filter", Doc::new().str("colour", "no such colour"));
        ScanProducts { template: Template::new(body.str("$db", "bench"), None), left: times }
    }
}

impl Work for ScanProducts {
    fn request(&mut self, _: usize) -> Option<&[u8]> {
        self.left = self.left.checked_sub(1)?;
        Some(&self.template.bytes)
    }

    fn check(&mut self, reply: &[u8]) -> Result<(), String> {
        message::succeeded(reply)?;
        if reply.len() > 300 { Err("the scan found something".into()) } else { Ok(()) }
    }
}
