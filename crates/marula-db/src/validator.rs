//! Applies a collection's validator to a document that is about to be stored.

use marula_bson::{Doc, DocBuf, ext_json, uuid};
use marula_error::{Result, errors};
use marula_query::validation;

use crate::catalog::options::{CollectionOptions, ValidationAction, ValidationLevel, Validator};
use crate::collection::{Collection, State};
use crate::namespace::Namespace;
use crate::time_series::BUCKETS_PREFIX;

errors! {
    document_failed() = DocumentValidationFailure, "Document failed validation";
    /// The database is one of the server's own.
    not_in_internal_database(ns: &str, uuid: &str, db: &str) = InvalidOptions, "Document validators are not allowed on collection {ns} with UUID {uuid} in the {db} internal database";
    /// The collection is one of the server's own.
    not_on_system_collection(ns: &str, uuid: &str) = InvalidOptions, "Document validators not allowed on system collection {ns} with UUID {uuid}";
}

/// Checks `new` against the validator; `old` is the document before an update.
///
/// Errors: `document_failed`, with the reason in `errInfo`.
pub fn check_validator(
    state: &State,
    collection: &Collection,
    new: Doc<'_>,
    old: Option<Doc<'_>>,
) -> Result<()> {
    let Some(validator) = &state.options.validator else { return Ok(()) };
    if validator.level == ValidationLevel::Off || holds(validator, new) {
        return Ok(());
    }
    if validator.level == ValidationLevel::Moderate && old.is_some_and(|old| !holds(validator, old))
    {
        return Ok(());
    }
    let info = validation::failure(validator.document.as_doc(), &validator.context, new)?;
    if validator.action == ValidationAction::Warn {
        let id = info.as_doc().get("failingDocumentId");
        let attr = DocBuf::build(|out| {
            out.append("namespace", collection.namespace().as_str());
            // The rest holds what the document does.
            let mut info = out.begin_doc("errInfo");
            id.into_iter().for_each(|id| {
                info.append("failingDocumentId", id);
            });
        });
        let attr = ext_json::to_string(attr.as_doc(), ext_json::Mode::Relaxed);
        tracing::warn!(target: "STORAGE", id = 20_294, attr, "Document would fail validation");
        return Ok(());
    }
    let fields = DocBuf::build(|fields| {
        fields.append("errInfo", &info);
    });
    Err(document_failed().with_fields(fields.as_doc().elements_bytes().to_vec()))
}

/// Returns whether a stored document satisfies the validator, unless that is off.
pub fn is_compliant(options: &CollectionOptions, doc: Doc<'_>) -> bool {
    match &options.validator {
        Some(validator) => validator.level == ValidationLevel::Off || holds(validator, doc),
        None => true,
    }
}

/// Returns whether the document matches. Conditions are evaluated in text order: an expression that
/// fails before the result is decided fails the validation.
fn holds(validator: &Validator, doc: Doc<'_>) -> bool {
    validator.filter.matches_as_written(doc).unwrap_or(false)
}

/// Checks that the collection may have the validator in its options.
///
/// Errors: `not_in_internal_database`, `not_on_system_collection`.
pub fn check_place(ns: &Namespace, uuid: &[u8; 16], options: &CollectionOptions) -> Result<()> {
    if options.validator.is_none() || ns.collection().starts_with(BUCKETS_PREFIX) {
        return Ok(());
    }
    match ns.db() {
        db @ ("admin" | "local" | "config") => {
            Err(not_in_internal_database(ns.as_str(), &uuid::text(uuid), db))
        }
        _ if ns.is_system() => Err(not_on_system_collection(ns.as_str(), &uuid::text(uuid))),
        _ => Ok(()),
    }
}
