//! `$jsonSchema`: documents described by JSON Schema, draft 4, with MongoDB's `bsonType`.

use marula_bson::RawValue;
use marula_error::{Result, errors};

use crate::context::Context;
use crate::filter::Node;

errors! {
    /// The operand is no object.
    schema_not_an_object() = TypeMismatch, "$jsonSchema must be an object";
    /// Schemas are not carried out yet.
    not_implemented() = NotImplemented, "$jsonSchema is not implemented";
}

/// Parses a schema into the filter that says the same.
pub(crate) fn parse(operand: RawValue<'_>, _context: &Context) -> Result<Node> {
    match operand.get().as_doc() {
        Some(_) => Err(not_implemented()),
        None => Err(schema_not_an_object()),
    }
}
