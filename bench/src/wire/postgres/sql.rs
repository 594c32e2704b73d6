//! The SQL of operations and indexes, as a user of JSONB would write it: `doc->>'code' = $1` over
//! an expression index, `doc->'tags' @> $1` over a GIN index, `doc || $2` to set fields; and the
//! parameters in binary form.

use bytes::BytesMut;
use postgres_protocol::{IsNull, types};

use crate::bson;
use crate::json;
use crate::operation::{
    Collection, Condition, Field, FieldKind, Index, KeyKind, Operation, Shape, Value,
};

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
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) types: Vec<u32>,
}

/// Returns the expression for a field, in queries and in indexes.
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
pub(super) fn batch_insert(collection: &Collection) -> Statement {
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

pub(super) fn statement(collection: &Collection, shape: &Shape) -> Statement {
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
pub(super) enum Parameter {
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

pub(super) type Problem = Box<dyn std::error::Error + Sync + Send>;

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
    pub(super) fn put(&self, out: &mut BytesMut) -> Result<IsNull, Problem> {
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

/// Returns the `_id` of a generated document.
fn key_of(document: &[u8]) -> Value {
    match bson::text(document, "_id") {
        Some(text) => Value::Text(text),
        None => {
            Value::Number(bson::number(document, "_id").expect("every document has a key") as i64)
        }
    }
}

pub(super) fn parameters(shape: &Shape, operation: &Operation) -> Vec<Parameter> {
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

pub(super) fn index_sql(collection: &Collection, index: &Index) -> String {
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
}
