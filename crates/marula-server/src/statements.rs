//! The statements of a write command: their numbers, and whether an error ends the list.

use marula_bson::Value;
use marula_db::session::StatementIds;
use marula_error::{Result, errors};

use crate::fields;
use crate::request::Request;

errors! {
    statement_ids(ids: usize, statements: usize) = InvalidLength, "Number of statement ids must match the number of batch entries. Got {ids} statement ids but {statements} operations.";
}

/// Returns whether an error ends the statements of a command: `ordered`.
/// In a transaction each error ends it, and the list with it.
pub(crate) fn is_ordered(request: &Request<'_>) -> bool {
    request.transaction.is_some()
        || request.arg("ordered").is_none_or(|ordered| ordered.is_truthy())
}

fn number(id: Value<'_>) -> i32 {
    id.as_exact_i64().and_then(|id| i32::try_from(id).ok()).unwrap_or(0)
}

/// Returns the number of a command's first or only statement: `stmtId`.
pub(crate) fn read_id(request: &Request<'_>) -> i32 {
    request.arg("stmtId").map_or(0, number)
}

/// Returns the numbers of a command's `count` statements: `stmtIds`, or counted up from `stmtId`.
pub(crate) fn read_ids(request: &Request<'_>, count: usize) -> Result<StatementIds> {
    let Some(listed) = request.arg("stmtIds").and_then(|ids| ids.as_array()) else {
        return Ok(StatementIds::From(read_id(request)));
    };
    let mut ids = Vec::new();
    for (at, id) in listed.values().enumerate() {
        match id {
            Value::Int32(id) => ids.push(id),
            Value::Null | Value::Undefined => {}
            other => {
                let (place, kind) = (request.command.name, other.kind().alias());
                return Err(fields::element_type(place, "stmtIds", at, kind, "int"));
            }
        }
    }
    if ids.len() != count {
        return Err(statement_ids(ids.len(), count));
    }
    Ok(StatementIds::Listed(ids))
}
