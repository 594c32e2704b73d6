//! The targets and the errors that all writes share.

use marula_db::Collection;
use marula_error::{Code, Error, Result, errors};

errors! {
    namespace_is_view(ns: &str) = CommandNotSupportedOnView, "Namespace {ns} is a view, not a collection";
    namespace_is_time_series(ns: &str) = CommandNotSupportedOnView, "Namespace {ns} is a timeseries collection";
    /// A numbered write is one of many documents.
    pub not_retryable(form: &str) = InvalidOptions, "Cannot use (or request) retryable writes with {form}";
}

/// Refuses a view, which has no documents of its own.
///
/// Errors: `namespace_is_view`, `namespace_is_time_series`.
pub fn check_not_view(collection: &Collection) -> Result<()> {
    let state = collection.state();
    match (&state.options.view, &state.options.time_series) {
        (Some(_), Some(_)) => Err(namespace_is_time_series(collection.namespace().as_str())),
        (Some(_), None) => Err(namespace_is_view(collection.namespace().as_str())),
        (None, _) => Ok(()),
    }
}

/// Returns whether an error ends the whole command rather than one statement of it.
pub fn ends_command(error: &Error) -> bool {
    error.is_postponed() || error.code().is_interruption()
}

/// Codes of errors after which a client may repeat its whole transaction.
///
/// Source: recorded from mongod 6.0.
const TRANSIENT_CODES: &[i32] = &[
    6, 7, 24, 63, 89, 91, 112, 134, 150, 189, 239, 246, 250, 251, 262, 267, 272, 317, 321, 325,
    364, 384, 9_001, 10_107, 11_600, 11_602, 13_435, 13_436,
];

/// Returns whether the client may repeat its whole transaction after an error with this code.
pub fn is_transient(code: Code) -> bool {
    TRANSIENT_CODES.contains(&code.number())
}
