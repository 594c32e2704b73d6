//! The stored JavaScript of a database, for `$where` and `mapReduce`: the documents of its
//! `system.js`.

use marula_bson::{DocBuf, DocWriter, Type, Value};
use marula_db::{Db, Namespace, Unit};
use marula_error::{Result, errors};
use marula_storage::Direction;

errors! {
    name_not_text(id: &Value<'_>) = 10_209, "name has to be a string: _id: {id}";
    no_value() = 10_210, "value has to be set";
    code_with_scope(name: &str) = 4_546_000, "BSON type 'CodeWithScope' not supported in system.js scripts. As an alternative use 'Code'. Script _id value: '{name}'";
}

/// Returns the values by their names.
///
/// Errors: those of documents with another form.
pub(crate) fn read(db: &Db, database: &str) -> Result<DocBuf> {
    let ns = Namespace::new(database, "system.js")?;
    let Some(collection) = db.collection(&ns) else { return Ok(DocBuf::new()) };
    let mut bytes = Vec::new();
    let mut found = DocWriter::new(&mut bytes);
    let mut cursor = collection.scan(Unit::new(db).view(), Direction::Forward)?;
    while cursor.advance()? {
        let doc = cursor.doc();
        let id = doc.get("_id").unwrap_or(Value::Null);
        let name = id.as_str().ok_or_else(|| name_not_text(&id))?.to_string();
        let value = doc.get_raw(b"value").ok_or_else(no_value)?;
        if value.kind() == Type::CodeWithScope {
            return Err(code_with_scope(&name));
        }
        found.append_raw(name, value);
    }
    found.finish();
    Ok(DocBuf::trusted(bytes))
}
