//! MongoDB's protocol, as a driver of MongoDB 6.0 uses it: OP_MSG, a session per connection, no
//! compression.

use std::net::{SocketAddr, TcpStream};

use crate::bson::{self, Doc};
use crate::load::{self, Blocking};
use crate::message::{self, Template};
use crate::operation::{Collection, Condition, FieldKind, Index, Operation, Shape, Value};
use crate::wire::scram::Credentials;
use crate::wire::{Admin, Wire};

/// The database that comparisons use.
const DATABASE: &str = "marula_bench";

/// The address of a server of MongoDB's protocol, and the user.
#[derive(Clone)]
pub(crate) struct MongoLogin {
    pub(crate) address: SocketAddr,
    pub(crate) credentials: Option<Credentials>,
}

impl MongoLogin {
    fn connect(&self) -> Result<TcpStream, String> {
        let stream = load::connect(self.address)?;
        let Some(credentials) = &self.credentials else { return Ok(stream) };
        let mut connection = Blocking::over(stream);
        credentials.log_in(&mut connection).map_err(|error| format!("cannot log in: {error}"))?;
        Ok(connection.into_stream())
    }
}

/// Operations on one collection over MongoDB's protocol.
pub(crate) struct MongoWire {
    login: MongoLogin,
    collection: Collection,
    shapes: &'static [Shape],
    durable: bool,
}

impl MongoWire {
    /// `durable`: writes wait for the journal.
    pub(crate) fn new(
        login: MongoLogin,
        collection: Collection,
        shapes: &'static [Shape],
        durable: bool,
    ) -> MongoWire {
        MongoWire { login, collection, shapes, durable }
    }

    /// Adds the fields that a driver adds to a command.
    fn framed(&self, connection: usize, body: Doc) -> Doc {
        let body = body.doc("lsid", Doc::new().uuid("id", session(connection)));
        let body = match self.durable {
            true => body.doc("writeConcern", Doc::new().int("w", 1).bool("j", true)),
            false => body,
        };
        body.str("$db", DATABASE)
    }
}

/// The session that a driver names in each command: one per connection.
fn session(connection: usize) -> [u8; 16] {
    let mut id = [0x5E; 16];
    id[8..].copy_from_slice(&(connection as u64).to_be_bytes());
    id[6] = 0x4E;
    id[8] = 0x80;
    id
}

fn with_value(doc: Doc, name: &str, value: &Value) -> Doc {
    match value {
        Value::Text(text) => doc.str(name, text),
        Value::Number(number) => doc.long(name, *number),
    }
}

fn condition_name(condition: &Condition) -> &'static str {
    match condition {
        Condition::Key => "_id",
        Condition::Equal(field) | Condition::AtLeast(field) => field.name,
    }
}

fn filter(conditions: &[Condition], values: &[Value]) -> Doc {
    conditions.iter().zip(values).fold(Doc::new(), |doc, (condition, value)| {
        let name = condition_name(condition);
        match condition {
            Condition::Key | Condition::Equal(_) => with_value(doc, name, value),
            Condition::AtLeast(_) => doc.doc(name, with_value(Doc::new(), "$gte", value)),
        }
    })
}

impl Wire for MongoWire {
    fn connect(&self) -> Result<TcpStream, String> {
        self.login.connect()
    }

    fn whole(&self, reply: &[u8]) -> bool {
        message::whole(reply)
    }

    fn encode(&mut self, connection: usize, operation: &Operation, out: &mut Vec<u8>) {
        let name = self.collection.name;
        let template = match &self.shapes[operation.shape] {
            Shape::Insert => {
                let body = Doc::new().str("insert", name).bool("ordered", true);
                let body = self.framed(connection, body);
                Template::new(body, Some(("documents", &operation.documents)))
            }
            Shape::Update { by, set } => {
                let changes = set
                    .iter()
                    .zip(&operation.values[1..])
                    .fold(Doc::new(), |doc, (field, value)| with_value(doc, field, value));
                let q = filter(std::slice::from_ref(by), &operation.values[..1]);
                let update = Doc::new().doc("q", q).doc("u", Doc::new().doc("$set", changes));
                let body = Doc::new().str("update", name).bool("ordered", true);
                Template::new(self.framed(connection, body), Some(("updates", &[update.finish()])))
            }
            Shape::Find { conditions, sort, skip, limit } => {
                let mut body = Doc::new()
                    .str("find", name)
                    .doc("filter", filter(conditions, &operation.values));
                if let Some(field) = sort {
                    body = body.doc("sort", Doc::new().int(field.name, 1));
                }
                if *skip > 0 {
                    body = body.int("skip", *skip as i32);
                }
                if *limit > 0 {
                    body = body.int("limit", *limit as i32);
                }
                if *limit == 1 {
                    body = body.bool("singleBatch", true);
                }
                // Drivers send no write concern with a read.
                let body = body.doc("lsid", Doc::new().uuid("id", session(connection)));
                Template::new(body.str("$db", DATABASE), None)
            }
        };
        out.extend_from_slice(&template.bytes);
    }

    fn check(
        &mut self,
        connection: usize,
        operation: &mut Operation,
        reply: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, String> {
        let reply = message::succeeded(reply)?;
        let Shape::Find { conditions, sort, .. } = &self.shapes[operation.shape] else {
            let n = bson::number(reply, "n");
            return match n == Some(operation.weight() as f64) {
                true => Ok(false),
                false => Err(format!("a write answered n: {n:?}, not {}", operation.weight())),
            };
        };
        let Some((3, cursor)) = bson::field(reply, "cursor") else {
            return Err("the reply to find has no cursor".into());
        };
        let batch = bson::field(cursor, "firstBatch").or_else(|| bson::field(cursor, "nextBatch"));
        let Some((4, batch)) = batch else { return Err("the cursor has no batch".into()) };
        let mut last = None;
        for document in bson::documents(batch) {
            operation.found += 1;
            for (condition, value) in conditions.iter().zip(&operation.values) {
                if !holds(document, condition, value) {
                    return Err(format!("a document does not fulfil {condition:?} {value:?}"));
                }
            }
            if let Some(field) = sort {
                let now = bson::number(document, field.name);
                if now < last {
                    return Err(format!("the documents are not sorted by '{}'", field.name));
                }
                last = now;
            }
            if let Some(content) = &operation.content
                && content != document
            {
                return Err(format!("the document with {:?} is another one", operation.values));
            }
        }
        let id = match bson::field(cursor, "id") {
            Some((0x12, value)) => value[..8].try_into().map_or(0, i64::from_le_bytes),
            _ => return Err("the cursor has no id".into()),
        };
        if id == 0 {
            return operation.check_found().map(|()| false);
        }
        let body = Doc::new()
            .long("getMore", id)
            .str("collection", self.collection.name)
            .doc("lsid", Doc::new().uuid("id", session(connection)))
            .str("$db", DATABASE);
        out.extend_from_slice(&Template::new(body, None).bytes);
        Ok(true)
    }
}

/// Returns whether a document of a reply meets a condition of its query.
fn holds(document: &[u8], condition: &Condition, value: &Value) -> bool {
    let name = condition_name(condition);
    if let Condition::Equal(field) = condition
        && field.kind == FieldKind::Tags
    {
        let Value::Text(wanted) = value else { return false };
        let Some((4, array)) = bson::field(document, name) else { return false };
        // The tags of the comparisons are distinct words; an array of strings contains them as
        // bytes.
        return (0..8).any(|place| bson::text(array, &place.to_string()).as_ref() == Some(wanted));
    }
    match value {
        Value::Text(wanted) => match bson::field(document, name) {
            Some((2, bytes)) => {
                let end = 4 + wanted.len();
                bytes.get(4..end) == Some(wanted.as_bytes()) && bytes.get(end) == Some(&0)
            }
            _ => false,
        },
        Value::Number(wanted) => {
            let Some(got) = bson::number(document, name) else { return false };
            let wanted = *wanted as f64;
            match condition {
                Condition::Key | Condition::Equal(_) => got == wanted,
                Condition::AtLeast(_) => got >= wanted,
            }
        }
    }
}

/// A connection to a server of MongoDB's protocol for commands that are not measured.
pub(crate) struct MongoAdmin {
    control: Blocking,
}

impl MongoAdmin {
    pub(crate) fn new(login: &MongoLogin) -> Result<MongoAdmin, String> {
        Ok(MongoAdmin { control: Blocking::over(login.connect()?) })
    }
}

impl Admin for MongoAdmin {
    fn version(&mut self) -> Result<String, String> {
        let info = self.control.command(Doc::new().int("buildInfo", 1).str("$db", "admin"))?;
        let version = bson::text(&info, "version").unwrap_or_default();
        // Marula reports its own name and version in addition to the version that it supports.
        Ok(match bson::text(&info, "marula") {
            Some(own) => format!("Marula {own} (speaks {version})"),
            None => format!("MongoDB protocol, version {version}"),
        })
    }

    fn create(&mut self, collection: &Collection) -> Result<(), String> {
        // A missing collection counts as dropped.
        let _ = self.control.command(Doc::new().str("drop", collection.name).str("$db", DATABASE));
        let create = Doc::new().str("create", collection.name).str("$db", DATABASE);
        self.control.command(create).map(|_| ())
    }

    fn index(&mut self, collection: &Collection, index: &Index) -> Result<(), String> {
        let key = index.fields.iter().fold(Doc::new(), |key, field| key.int(field.name, 1));
        let mut spec = Doc::new().doc("key", key).str("name", index.name);
        if index.unique {
            spec = spec.bool("unique", true);
        }
        let command = Doc::new()
            .str("createIndexes", collection.name)
            .array("indexes", vec![spec])
            .str("$db", DATABASE);
        self.control.command(command).map(|_| ())
    }

    fn analyze(&mut self, _: &Collection) -> Result<(), String> {
        Ok(())
    }

    fn compact(&mut self, collection: &Collection) -> Result<(), String> {
        let compact = Doc::new().str("compact", collection.name).str("$db", DATABASE);
        self.control.command(compact).map(|_| ())
    }

    fn flush(&mut self) -> Result<(), String> {
        self.control.command(Doc::new().int("fsync", 1).str("$db", "admin")).map(|_| ())
    }

    fn sizes(&mut self, collection: &Collection) -> Result<(u64, u64), String> {
        let stats = Doc::new().str("collStats", collection.name).str("$db", DATABASE);
        let stats = self.control.command(stats)?;
        let of = |name: &str| bson::number(&stats, name).unwrap_or(0.0) as u64;
        Ok((of("storageSize"), of("totalIndexSize")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{number, tags, text};

    #[test]
    fn conditions_hold_or_not() {
        let document = Doc::new()
            .long("_id", 5)
            .str("name", "abc")
            .strings("tags", &["x", "y"])
            .int("size", 7)
            .finish();
        let check = |condition, value, wanted| {
            assert_eq!(holds(&document, &condition, &value), wanted, "{condition:?} {value:?}");
        };
        let word = |text: &str| Value::Text(text.into());
        check(Condition::Key, Value::Number(5), true);
        check(Condition::Key, Value::Number(6), false);
        check(Condition::Equal(text("name")), word("abc"), true);
        check(Condition::Equal(text("name")), word("ab"), false);
        check(Condition::Equal(text("missing")), word("ab"), false);
        check(Condition::Equal(tags("tags")), word("y"), true);
        check(Condition::Equal(tags("tags")), word("z"), false);
        check(Condition::AtLeast(number("size")), Value::Number(7), true);
        check(Condition::AtLeast(number("size")), Value::Number(8), false);
    }

    /// Asks a wire for `shape` and answers it with `reply`; the complaint, if any.
    fn complaint(shape: usize, expected: u64, reply: Doc) -> Option<String> {
        const SHAPES: &[Shape] = &[
            Shape::Insert,
            Shape::Find { conditions: &[Condition::Key], sort: None, skip: 0, limit: 1 },
            Shape::Find { conditions: &[], sort: Some(number("size")), skip: 0, limit: 0 },
        ];
        let collection = Collection { name: "c", key: crate::operation::KeyKind::Number };
        let nobody = MongoLogin { address: ([127, 0, 0, 1], 1).into(), credentials: None };
        let mut wire = MongoWire::new(nobody, collection, SHAPES, false);
        let values = if shape == 1 { vec![Value::Number(5)] } else { vec![] };
        let mut operation = Operation { shape, values, expected, ..Operation::default() };
        let reply = Template::new(reply, None).bytes;
        wire.check(0, &mut operation, &reply, &mut Vec::new()).err()
    }

    #[test]
    fn wrong_answers_are_refused() {
        let found = |documents: Vec<Doc>| {
            let cursor = Doc::new().array("firstBatch", documents).long("id", 0).str("ns", "d.c");
            Doc::new().doc("cursor", cursor).double("ok", 1.0)
        };
        let size = |size| Doc::new().int("size", size);
        let check = |shape, expected, reply, wanted: Option<&str>| {
            let got = complaint(shape, expected, reply);
            match wanted {
                None => assert_eq!(got, None),
                Some(part) => assert!(got.as_ref().is_some_and(|e| e.contains(part)), "{got:?}"),
            }
        };
        let five = || vec![Doc::new().long("_id", 5)];
        check(0, 0, Doc::new().int("n", 1).double("ok", 1.0), None);
        check(0, 0, Doc::new().int("n", 0).double("ok", 1.0), Some("not 1"));
        check(0, 0, Doc::new().double("ok", 1.0), Some("not 1"));
        let failed = Doc::new().double("ok", 0.0).str("errmsg", "no");
        check(0, 0, failed, Some("the server answered an error: no"));
        check(1, 1, found(five()), None);
        check(1, 1, found(vec![]), Some("returned 0 documents, not 1"));
        check(1, 1, found(vec![Doc::new().long("_id", 6)]), Some("does not fulfil"));
        check(1, 1, Doc::new().double("ok", 1.0), Some("no cursor"));
        check(2, 2, found(vec![size(1), size(2)]), None);
        check(2, 2, found(vec![size(2), size(1)]), Some("not sorted"));
    }

    #[test]
    fn conditions_are_a_filter() {
        let conditions = [Condition::Key, Condition::AtLeast(number("size"))];
        let made = filter(&conditions, &[Value::Number(1), Value::Number(9)]).finish();
        let wanted = Doc::new().long("_id", 1).doc("size", Doc::new().long("$gte", 9)).finish();
        assert_eq!(made, wanted);
    }
}
