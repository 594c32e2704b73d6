//! PostgreSQL's protocol 3 with documents as JSONB: a table `(id PRIMARY KEY, doc jsonb)` for a collection, prepared
//! statements, binary parameters.
//!
//! Messages and SCRAM are the crate `postgres-protocol`'s, sockets are the load generator's, so that this client costs
//! about what that of MongoDB's protocol costs. SQL is what a user of JSONB would write: `doc->>'code' = $1` over an
//! expression index, `doc->'tags' @> $1` over a GIN index, `doc || $2` to set fields.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use bytes::BytesMut;
use postgres_protocol::authentication::{md5_hash, sasl};
use postgres_protocol::message::frontend;
use postgres_protocol::{IsNull, types};

use crate::bson;
use crate::json;
use crate::operation::{
    Collection, Condition, Field, FieldKind, Index, KeyKind, Operation, Shape, Value,
};
use crate::wire::{Admin, Wire};

/// Where a PostgreSQL server is, and who asks.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) address: SocketAddr,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) database: String,
}

/// Object identifiers of PostgreSQL's types.
mod oid {
    pub(super) const TEXT: u32 = 25;
    pub(super) const INT8: u32 = 20;
    pub(super) const JSONB: u32 = 3802;
    pub(super) const INT8_ARRAY: u32 = 1016;
    pub(super) const TEXT_ARRAY: u32 = 1009;
    pub(super) const JSONB_ARRAY: u32 = 3807;
}

/// The SQL of a shape.
struct Statement {
    sql: String,
    types: Vec<u32>,
}

/// Operations on one table over PostgreSQL's protocol.
pub(crate) struct PostgresWire {
    login: Login,
    shapes: &'static [Shape],
    statements: Vec<Statement>,
    /// What inserts several rows at once.
    batch: Statement,
    durable: bool,
    /// For each connection, a bit for each statement that it has prepared; the last bit is the batch's.
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

/// The expression that stands for a field, in queries and in indexes.
fn expression(field: &Field) -> String {
    match field.kind {
        FieldKind::Text => format!("(doc->>'{}')", field.name),
        FieldKind::Number => format!("((doc->>'{}')::bigint)", field.name),
        FieldKind::Tags => format!("(doc->'{}')", field.name),
    }
}

fn key_type(collection: &Collection) -> u32 {
    match collection.key {
        KeyKind::Number => oid::INT8,
        KeyKind::Text => oid::TEXT,
    }
}

/// The SQL of a condition whose parameter is `$place`, and that parameter's type.
fn condition(collection: &Collection, condition: &Condition, place: usize) -> (String, u32) {
    let of = |field: &Field, sign: &str| {
        let kind = if field.kind == FieldKind::Number { oid::INT8 } else { oid::TEXT };
        (format!("{} {sign} ${place}", expression(field)), kind)
    };
    match condition {
        Condition::Key => (format!("id = ${place}"), key_type(collection)),
        Condition::Equal(field) if field.kind == FieldKind::Tags => {
            (format!("{} @> ${place}", expression(field)), oid::JSONB)
        }
        Condition::Equal(field) => of(field, "="),
        Condition::AtLeast(field) => of(field, ">="),
    }
}

/// One statement for any number of rows, so that it can be prepared: the rows are two arrays.
fn batch_insert(collection: &Collection) -> Statement {
    let (keys, name) = match collection.key {
        KeyKind::Number => (oid::INT8_ARRAY, "bigint"),
        KeyKind::Text => (oid::TEXT_ARRAY, "text"),
    };
    let table = collection.name;
    Statement {
        sql: format!(
            "INSERT INTO {table} (id, doc) SELECT * FROM unnest($1::{name}[], $2::jsonb[])"
        ),
        types: vec![keys, oid::JSONB_ARRAY],
    }
}

fn statement(collection: &Collection, shape: &Shape) -> Statement {
    let table = collection.name;
    match shape {
        Shape::Insert => Statement {
            sql: format!("INSERT INTO {table} (id, doc) VALUES ($1, $2)"),
            types: vec![key_type(collection), oid::JSONB],
        },
        Shape::Update { by, .. } => {
            let (where_, kind) = condition(collection, by, 1);
            Statement {
                sql: format!("UPDATE {table} SET doc = doc || $2 WHERE {where_}"),
                types: vec![kind, oid::JSONB],
            }
        }
        Shape::Find { conditions, sort, skip, limit } => {
            let (wheres, types): (Vec<_>, Vec<_>) = conditions
                .iter()
                .enumerate()
                .map(|(i, one)| condition(collection, one, i + 1))
                .unzip();
            let mut sql = format!("SELECT id, doc FROM {table}");
            if !wheres.is_empty() {
                sql += &format!(" WHERE {}", wheres.join(" AND "));
            }
            if let Some(field) = sort {
                sql += &format!(" ORDER BY {}", expression(field));
            }
            if *limit > 0 {
                sql += &format!(" LIMIT {limit}");
            }
            if *skip > 0 {
                sql += &format!(" OFFSET {skip}");
            }
            Statement { sql, types }
        }
    }
}

/// One parameter in binary form.
enum Parameter {
    Text(String),
    Number(i64),
    Jsonb(String),
    Keys(Vec<Value>),
    Jsonbs(Vec<String>),
}

fn put_jsonb(json: &str, out: &mut BytesMut) {
    // Binary JSONB is a version, then the text.
    out.extend_from_slice(&[1]);
    out.extend_from_slice(json.as_bytes());
}

fn put_key(key: &Value, out: &mut BytesMut) {
    match key {
        Value::Text(text) => out.extend_from_slice(text.as_bytes()),
        Value::Number(number) => types::int8_to_sql(*number, out),
    }
}

type Problem = Box<dyn std::error::Error + Sync + Send>;

fn put_array<T>(
    elements: &[T],
    element_oid: u32,
    put: impl Fn(&T, &mut BytesMut),
    out: &mut BytesMut,
) -> Result<(), Problem> {
    let dimension = types::ArrayDimension { len: elements.len() as i32, lower_bound: 1 };
    types::array_to_sql(
        Some(dimension),
        element_oid,
        elements,
        |element, out| {
            put(element, out);
            Ok(IsNull::No)
        },
        out,
    )
}

impl Parameter {
    fn put(&self, out: &mut BytesMut) -> Result<IsNull, Problem> {
        match self {
            Parameter::Text(text) => out.extend_from_slice(text.as_bytes()),
            Parameter::Number(number) => types::int8_to_sql(*number, out),
            Parameter::Jsonb(json) => put_jsonb(json, out),
            Parameter::Keys(keys) => {
                let number = matches!(keys.first(), Some(Value::Number(_)));
                let kind = if number { oid::INT8 } else { oid::TEXT };
                put_array(keys, kind, put_key, out)?;
            }
            Parameter::Jsonbs(jsons) => {
                put_array(jsons, oid::JSONB, |json, out| put_jsonb(json, out), out)?;
            }
        }
        Ok(IsNull::No)
    }
}

/// The `_id` of one of our documents.
fn key_of(document: &[u8]) -> Value {
    match bson::text(document, "_id") {
        Some(text) => Value::Text(text),
        None => {
            Value::Number(bson::number(document, "_id").expect("every document has a key") as i64)
        }
    }
}

fn parameters(shape: &Shape, operation: &Operation) -> Vec<Parameter> {
    let plain = |value: &Value| match value {
        Value::Text(text) => Parameter::Text(text.clone()),
        Value::Number(number) => Parameter::Number(*number),
    };
    match shape {
        Shape::Insert if operation.documents.len() == 1 => {
            let document = &operation.documents[0];
            vec![plain(&key_of(document)), Parameter::Jsonb(json::of(document))]
        }
        Shape::Insert => vec![
            Parameter::Keys(operation.documents.iter().map(|doc| key_of(doc)).collect()),
            Parameter::Jsonbs(operation.documents.iter().map(|doc| json::of(doc)).collect()),
        ],
        Shape::Update { set, .. } => {
            let mut changes = String::from("{");
            for (field, value) in set.iter().zip(&operation.values[1..]) {
                if changes.len() > 1 {
                    changes.push(',');
                }
                json::write_string(field, &mut changes);
                changes.push(':');
                match value {
                    Value::Text(text) => json::write_string(text, &mut changes),
                    Value::Number(number) => changes += &number.to_string(),
                }
            }
            changes.push('}');
            vec![plain(&operation.values[0]), Parameter::Jsonb(changes)]
        }
        Shape::Find { conditions, .. } => conditions
            .iter()
            .zip(&operation.values)
            .map(|(condition, value)| match (condition, value) {
                (Condition::Equal(Field { kind: FieldKind::Tags, .. }), Value::Text(tag)) => {
                    let mut json = String::from("[");
                    json::write_string(tag, &mut json);
                    json.push(']');
                    Parameter::Jsonb(json)
                }
                _ => plain(value),
            })
            .collect(),
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

/// Refuses a row that is not what the operation asked for.
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

/// The messages of an answer: tag and body, as many as are whole.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let length = u32::from_be_bytes(bytes.get(1..5)?.try_into().ok()?) as usize;
        let body = bytes.get(5..(length + 1).max(5))?;
        let tag = bytes[0];
        bytes = &bytes[(length + 1).max(5)..];
        Some((tag, body))
    })
}

/// The columns of a DataRow, as text.
fn columns(body: &[u8]) -> Vec<Option<&str>> {
    let mut rest = body.get(2..).unwrap_or_default();
    let mut found = Vec::with_capacity(2);
    while let Some(length) = rest.get(..4) {
        let length = i32::from_be_bytes(length.try_into().expect("four bytes"));
        let end = 4 + length.max(0) as usize;
        let Some(text) = rest.get(4..end) else { break };
        found.push(std::str::from_utf8(text).ok().filter(|_| length >= 0));
        rest = &rest[end..];
    }
    found
}

/// What an ErrorResponse says: its message, and its code.
fn error_text(body: &[u8]) -> String {
    let part = |tag: u8| {
        let field = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&tag));
        field.map_or(String::new(), |field| String::from_utf8_lossy(&field[1..]).into_owned())
    };
    format!("the server answered an error: {} ({})", part(b'M'), part(b'C'))
}

/// One blocking connection, logged in.
pub(crate) struct Session {
    stream: TcpStream,
}

impl Session {
    pub(crate) fn open(login: &Login, durable: bool) -> Result<Session, String> {
        let stream = TcpStream::connect(login.address)
            .map_err(|error| format!("no connection to {}: {error}", login.address))?;
        stream.set_nodelay(true).expect("a connected socket takes options");
        let mut session = Session { stream };
        let options = format!("-c synchronous_commit={}", if durable { "on" } else { "off" });
        let parameters = [
            ("user", login.user.as_str()),
            ("database", login.database.as_str()),
            ("application_name", "marula bench"),
            ("client_encoding", "UTF8"),
            ("options", options.as_str()),
        ];
        session.send(|out| frontend::startup_message(parameters, out))?;
        session.log_in(login)?;
        Ok(session)
    }

    fn send(
        &mut self,
        put: impl FnOnce(&mut BytesMut) -> std::io::Result<()>,
    ) -> Result<(), String> {
        let mut buffer = BytesMut::new();
        put(&mut buffer)
            .and_then(|()| self.stream.write_all(&buffer))
            .map_err(|error| format!("the server hung up: {error}"))
    }

    fn receive(&mut self) -> Result<(u8, Vec<u8>), String> {
        let fail = |error: std::io::Error| format!("the server hung up: {error}");
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).map_err(fail)?;
        let length = u32::from_be_bytes(head[1..].try_into().expect("four bytes")) as usize;
        let mut body = vec![0; length.saturating_sub(4)];
        self.stream.read_exact(&mut body).map_err(fail)?;
        match head[0] {
            b'E' => Err(error_text(&body)),
            tag => Ok((tag, body)),
        }
    }

    fn log_in(&mut self, login: &Login) -> Result<(), String> {
        let password = login.password.as_bytes();
        let fail = |error: std::io::Error| format!("cannot log in: {error}");
        let mut scram = None;
        loop {
            let (tag, body) = self.receive()?;
            if tag == b'Z' {
                return Ok(());
            }
            if tag != b'R' {
                continue;
            }
            let kind =
                body.get(..4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes);
            let data = body.get(4..).unwrap_or_default();
            match kind {
                Some(0) => {}
                Some(3) => self.send(|out| frontend::password_message(password, out))?,
                Some(5) => {
                    let salt = data.try_into().map_err(|_| "the salt has not four bytes")?;
                    let hash = md5_hash(login.user.as_bytes(), password, salt);
                    self.send(|out| frontend::password_message(hash.as_bytes(), out))?;
                }
                Some(10) => {
                    let binding = sasl::ChannelBinding::unsupported();
                    let begun = sasl::ScramSha256::new(password, binding);
                    self.send(|out| {
                        frontend::sasl_initial_response(sasl::SCRAM_SHA_256, begun.message(), out)
                    })?;
                    scram = Some(begun);
                }
                Some(11) => {
                    let scram = scram.as_mut().ok_or("SCRAM goes on that was not begun")?;
                    scram.update(data).map_err(fail)?;
                    self.send(|out| frontend::sasl_response(scram.message(), out))?;
                }
                Some(12) => {
                    scram
                        .as_mut()
                        .ok_or("SCRAM ends that was not begun")?
                        .finish(data)
                        .map_err(fail)?;
                }
                other => return Err(format!("cannot log in: unknown method {other:?}")),
            }
        }
    }

    /// Runs SQL and returns the rows' columns as text.
    pub(crate) fn query(&mut self, sql: &str) -> Result<Vec<Vec<String>>, String> {
        self.send(|out| frontend::query(sql, out))?;
        let mut rows = Vec::new();
        let mut failed = None;
        loop {
            match self.receive() {
                Ok((b'D', body)) => {
                    rows.push(
                        columns(&body).into_iter().map(|c| c.unwrap_or("").to_owned()).collect(),
                    );
                }
                Ok((b'Z', _)) => return failed.map_or(Ok(rows), Err),
                Ok(_) => {}
                // After an error the server still says that it is ready, unless it hung up.
                Err(error) if failed.is_none() && error.contains("answered an error") => {
                    failed = Some(format!("{error} in: {sql}"));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// One connection to PostgreSQL for what is not measured.
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
        // Only a superuser may; to others the server's own checkpoints must do.
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

fn index_sql(collection: &Collection, index: &Index) -> String {
    let unique = if index.unique { "UNIQUE " } else { "" };
    let expressions: Vec<String> = index.fields.iter().map(expression).collect();
    let on = match index.fields {
        [Field { kind: FieldKind::Tags, .. }] => {
            format!("USING gin ({} jsonb_path_ops)", expressions[0])
        }
        _ => format!("({})", expressions.join(", ")),
    };
    let table = collection.name;
    format!("CREATE {unique}INDEX {table}_{} ON {table} {on}", index.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{number, tags, text};

    const ITEMS: Collection = Collection { name: "items", key: KeyKind::Number };

    fn check(shape: Shape, wanted: &str) {
        assert_eq!(statement(&ITEMS, &shape).sql, wanted);
    }

    #[test]
    fn shapes_are_sql() {
        check(Shape::Insert, "INSERT INTO items (id, doc) VALUES ($1, $2)");
        let batch = "INSERT INTO items (id, doc) SELECT * FROM unnest($1::bigint[], $2::jsonb[])";
        assert_eq!(batch_insert(&ITEMS).sql, batch);
        check(
            Shape::Update { by: Condition::Equal(text("code")), set: &["a"] },
            "UPDATE items SET doc = doc || $2 WHERE (doc->>'code') = $1",
        );
        const RANGE: &[Condition] =
            &[Condition::AtLeast(number("size")), Condition::Equal(text("code"))];
        const TAGS: &[Condition] = &[Condition::Equal(tags("tags"))];
        check(
            Shape::Find { conditions: RANGE, sort: Some(number("age")), skip: 5, limit: 10 },
            "SELECT id, doc FROM items WHERE ((doc->>'size')::bigint) >= $1 AND \
             (doc->>'code') = $2 ORDER BY ((doc->>'age')::bigint) LIMIT 10 OFFSET 5",
        );
        check(
            Shape::Find { conditions: TAGS, sort: None, skip: 0, limit: 0 },
            "SELECT id, doc FROM items WHERE (doc->'tags') @> $1",
        );
    }

    #[test]
    fn indexes_are_sql() {
        const CODE: &[Field] = &[text("code")];
        const TAGS: &[Field] = &[tags("tags")];
        const TWO: &[Field] = &[text("brand"), number("price")];
        let check = |fields, unique, wanted: &str| {
            assert_eq!(index_sql(&ITEMS, &Index { name: "i", fields, unique }), wanted);
        };
        check(CODE, true, "CREATE UNIQUE INDEX items_i ON items ((doc->>'code'))");
        check(
            TAGS,
            false,
            "CREATE INDEX items_i ON items USING gin ((doc->'tags') jsonb_path_ops)",
        );
        check(
            TWO,
            false,
            "CREATE INDEX items_i ON items ((doc->>'brand'), ((doc->>'price')::bigint))",
        );
    }

    #[test]
    fn an_answer_is_whole_with_its_last_message() {
        let login = Login {
            address: ([127, 0, 0, 1], 1).into(),
            user: String::new(),
            password: String::new(),
            database: String::new(),
        };
        let wire = PostgresWire::new(login, ITEMS, &[], false);
        let mut answer = vec![b'2', 0, 0, 0, 4, b'C', 0, 0, 0, 13];
        answer.extend_from_slice(b"INSERT 0\0");
        answer.extend_from_slice(&[b'Z', 0, 0, 0, 5, b'I']);
        for end in 0..answer.len() {
            assert!(!wire.whole(&answer[..end]), "{end}");
        }
        assert!(wire.whole(&answer));
    }
}
