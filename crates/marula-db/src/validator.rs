//! Applying a collection's validator to a document that is about to be stored.

use marula_bson::{Doc, DocBuf, Value};
use marula_error::{Result, errors};

use crate::catalog::options::{ValidationAction, ValidationLevel};
use crate::collection::{Collection, State};

errors! {
    document_failed() = DocumentValidationFailure, "Document failed validation";
}

/// Checks `new` against the validator; `old` is the document that an update changes.
///
/// Errors: `document_failed`, with `errInfo.failingDocumentId`.
pub fn check_validator(
    state: &State,
    collection: &Collection,
    new: Doc<'_>,
    old: Option<Doc<'_>>,
) -> Result<()> {
    let Some(validator) = &state.options.validator else { return Ok(()) };
    if validator.level == ValidationLevel::Off || validator.filter.matches(new)? {
        return Ok(());
    }
    if validator.level == ValidationLevel::Moderate
        && let Some(old) = old
        && !validator.filter.matches(old)?
    {
        return Ok(());
    }
    let id = new.get("_id").unwrap_or(Value::Null);
    if validator.action == ValidationAction::Warn {
        tracing::warn!(ns = %collection.namespace(), %id, "a document failed validation and is stored");
        return Ok(());
    }
    let info = DocBuf::build(|info| {
        info.append("failingDocumentId", id);
    });
    let fields = DocBuf::build(|fields| {
        fields.append("errInfo", &info);
    });
    Err(document_failed().with_fields(fields.as_doc().elements_bytes().to_vec()))
}
