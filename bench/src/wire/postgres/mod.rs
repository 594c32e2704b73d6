//! PostgreSQL's protocol 3 with documents as JSONB: a table `(id PRIMARY KEY, doc jsonb)` for a
//! collection, prepared statements, binary parameters.
//!
//! Messages and SCRAM are the crate `postgres-protocol`'s, sockets are the load generator's, so
//! that this client costs about what that of MongoDB's protocol costs. The SQL is in `sql`, a
//! connection of its own in `session`.

use std::net::TcpStream;

use bytes::BytesMut;
use postgres_protocol::message::frontend;

use crate::json;
use crate::operation::{
    Collection, Condition, Field, FieldKind, Index, KeyKind, Operation, Shape, Value,
};
use crate::wire::{Admin, Wire};

mod session;
mod sql;

pub(crate) use session::Login;
use session::{Session, columns, error_text, messages};
use sql::{Statement, batch_insert, index_sql, parameters, statement};

/// Operations on one table over PostgreSQL's protocol.
pub(crate) struct PostgresWire {
    login: Login,
    shapes: &'static [Shape],
    statements: Vec<Statement>,
    /// The statement that inserts several rows at once.
    batch: Statement,
    durable: bool,
    /// For each connection, a bit for each statement that it has prepared; the last bit is the
    /// batch's.
    prepared: Vec<u64>,
    buffer: BytesMut,
}

impl PostgresWire {
    /// `durable`: a commit waits for the log to be on disk, PostgreSQL's `synchronous_commit`.
    pub(crate) fn new(
        login: Login,
        collection: Collection,
        shapes: &'static [Shape],
        durable: bool,
    ) -> PostgresWire {
        let statements = shapes.iter().map(|shape| statement(&collection, shape)).collect();
        let batch = batch_insert(&collection);
        let (prepared, buffer) = (Vec::new(), BytesMut::new());
        PostgresWire { login, shapes, statements, batch, durable, prepared, buffer }
    }
}

impl Wire for PostgresWire {
    fn connect(&self) -> Result<TcpStream, String> {
        Ok(Session::open(&self.login, self.durable)?.stream)
    }

    fn whole(&self, reply: &[u8]) -> bool {
        // The last message of every answer is ReadyForQuery, and nothing follows it.
        let ends = reply.len().checked_sub(6).map(|at| &reply[at..at + 5]);
        ends == Some(&[b'Z', 0, 0, 0, 5])
            && messages(reply).last().is_some_and(|last| last.0 == b'Z')
    }

    fn encode(&mut self, connection: usize, operation: &Operation, out: &mut Vec<u8>) {
        if self.prepared.len() <= connection {
            self.prepared.resize(connection + 1, 0);
        }
        let shape = &self.shapes[operation.shape];
        let (place, statement) = match operation.documents.len() {
            0 | 1 => (operation.shape, &self.statements[operation.shape]),
            _ => (63, &self.batch),
        };
        let name = format!("s{place}");
        let fits = "statements and parameters of the comparisons fit their messages";
        self.buffer.clear();
        if self.prepared[connection] & (1 << place) == 0 {
            self.prepared[connection] |= 1 << place;
            let Statement { sql, types } = statement;
            frontend::parse(&name, sql, types.iter().copied(), &mut self.buffer).expect(fits);
        }
        // Parameters are binary; of the answer, keys and JSON are text.
        frontend::bind(
            "",
            &name,
            [1],
            parameters(shape, operation),
            |parameter, out| parameter.put(out),
            [0],
            &mut self.buffer,
        )
        .unwrap_or_else(|_| panic!("{fits}"));
        frontend::execute("", 0, &mut self.buffer).expect(fits);
        frontend::sync(&mut self.buffer);
        out.extend_from_slice(&self.buffer);
    }

    fn check(
        &mut self,
        _: usize,
        operation: &mut Operation,
        reply: &[u8],
        _: &mut Vec<u8>,
    ) -> Result<bool, String> {
        let shape = &self.shapes[operation.shape];
        let mut last = None;
        let mut done = None;
        for (tag, body) in messages(reply) {
            match tag {
                b'E' => return Err(error_text(body)),
                b'C' => done = Some(String::from_utf8_lossy(&body[..body.len() - 1]).into_owned()),
                b'D' => {
                    operation.found += 1;
                    let [Some(id), Some(doc)] = columns(body)[..] else {
                        return Err("a row has not two columns".into());
                    };
                    check_row(shape, operation, id, doc, &mut last)?;
                }
                _ => {}
            }
        }
        let done = done.ok_or("the server did not complete the statement")?;
        match shape {
            Shape::Find { .. } => operation.check_found()?,
            _ => {
                let n = done.rsplit(' ').next().and_then(|word| word.parse::<u64>().ok());
                if n != Some(operation.weight()) {
                    return Err(format!("a write answered '{done}', not {}", operation.weight()));
                }
            }
        }
        Ok(false)
    }
}

/// Rejects a row that does not match the operation.
fn check_row(
    shape: &Shape,
    operation: &Operation,
    id: &str,
    doc: &str,
    last: &mut Option<i64>,
) -> Result<(), String> {
    let Shape::Find { conditions, sort, .. } = shape else {
        return Err("a write returned rows".into());
    };
    for (condition, value) in conditions.iter().zip(&operation.values) {
        if !holds(id, doc, condition, value) {
            return Err(format!("a row does not fulfil {condition:?} {value:?}"));
        }
    }
    if let Some(field) = sort {
        let now = json::field(doc, field.name).and_then(|text| text.parse().ok());
        if now < *last {
            return Err(format!("the rows are not sorted by '{}'", field.name));
        }
        *last = now;
    }
    if let Some(content) = &operation.content {
        let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        if parse(doc).is_none() || parse(doc) != parse(&json::of(content)) {
            return Err(format!("the row with {:?} is another one", operation.values));
        }
    }
    Ok(())
}

fn holds(id: &str, doc: &str, condition: &Condition, value: &Value) -> bool {
    let got = match condition {
        Condition::Key => Some(id),
        Condition::Equal(field) | Condition::AtLeast(field) => json::field(doc, field.name),
    };
    let Some(got) = got else { return false };
    match (condition, value) {
        (Condition::Equal(Field { kind: FieldKind::Tags, .. }), Value::Text(tag)) => {
            got.contains(&format!("\"{tag}\""))
        }
        (_, Value::Text(wanted)) => got == wanted,
        (_, Value::Number(wanted)) => match (condition, got.parse::<i64>()) {
            (_, Err(_)) => false,
            (Condition::AtLeast(_), Ok(got)) => got >= *wanted,
            (_, Ok(got)) => got == *wanted,
        },
    }
}

/// A connection to PostgreSQL for commands that are not measured.
pub(crate) struct PostgresAdmin {
    session: Session,
}

impl PostgresAdmin {
    pub(crate) fn new(login: &Login) -> Result<PostgresAdmin, String> {
        Ok(PostgresAdmin { session: Session::open(login, false)? })
    }
}

impl Admin for PostgresAdmin {
    fn version(&mut self) -> Result<String, String> {
        let rows = self.session.query("SHOW server_version")?;
        let version = rows.first().and_then(|row| row.first()).cloned().unwrap_or_default();
        Ok(format!("PostgreSQL {version}"))
    }

    fn create(&mut self, collection: &Collection) -> Result<(), String> {
        let name = collection.name;
        let key = match collection.key {
            KeyKind::Number => "bigint",
            KeyKind::Text => "text",
        };
        self.session.query(&format!("DROP TABLE IF EXISTS {name}"))?;
        let create = format!("CREATE TABLE {name} (id {key} PRIMARY KEY, doc jsonb NOT NULL)");
        self.session.query(&create).map(|_| ())
    }

    fn index(&mut self, collection: &Collection, index: &Index) -> Result<(), String> {
        self.session.query(&index_sql(collection, index)).map(|_| ())
    }

    fn analyze(&mut self, collection: &Collection) -> Result<(), String> {
        self.session.query(&format!("VACUUM ANALYZE {}", collection.name)).map(|_| ())
    }

    fn compact(&mut self, collection: &Collection) -> Result<(), String> {
        self.session.query(&format!("VACUUM FULL ANALYZE {}", collection.name)).map(|_| ())
    }

    fn flush(&mut self) -> Result<(), String> {
        // Only a superuser may; for others the server's own checkpoints must suffice.
        match self.session.query("CHECKPOINT") {
            Err(error) if error.contains("42501") => Ok(()),
            other => other.map(|_| ()),
        }
    }

    fn sizes(&mut self, collection: &Collection) -> Result<(u64, u64), String> {
        let name = collection.name;
        let sql = format!("SELECT pg_table_size('{name}'), pg_indexes_size('{name}')");
        let rows = self.session.query(&sql)?;
        let of = |place: usize| {
            rows.first()
                .and_then(|row| row.get(place))
                .and_then(|text| text.parse().ok())
                .unwrap_or(0)
        };
        Ok((of(0), of(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_last_message() {
        let login = Login {
            address: ([127, 0, 0, 1], 1).into(),
            user: String::new(),
            password: String::new(),
            database: String::new(),
        };
        let items = Collection { name: "items", key: KeyKind::Number };
        let wire = PostgresWire::new(login, items, &[], false);
        let mut answer = vec![b'2', 0, 0, 0, 4, b'C', 0, 0, 0, 13];
        answer.extend_from_slice(b"INSERT 0\0");
        answer.extend_from_slice(&[b'Z', 0, 0, 0, 5, b'I']);
        for end in 0..answer.len() {
            assert!(!wire.whole(&answer[..end]), "{end}");
        }
        assert!(wire.whole(&answer));
    }
}
