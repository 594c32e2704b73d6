//! Error labels: they determine how a driver handles an error.
//!
//! A label follows from the code and from the request: a write that can be sent again, a statement
//! or the end of a transaction, a `getMore` of a change stream.

use marula_error::Code;
use marula_operation::targets;

use crate::request::Request;
use crate::transactions::TRANSIENT;

/// A driver sends the write again.
pub(crate) const RETRYABLE: &str = "RetryableWriteError";
/// A driver opens the change stream again at its last position.
const RESUMABLE: &str = "ResumableChangeStreamError";
/// A driver does not open it again.
const NOT_RESUMABLE: &str = "NonResumableChangeStreamError";

/// Codes after which a driver sends a retryable write again.
/// Source: driver specification "Retryable Writes", "Determining Retryable Errors".
const RETRYABLE_CODES: &[i32] =
    &[6, 7, 89, 91, 134, 189, 262, 317, 358, 384, 9001, 10_107, 11_600, 11_602, 13_435, 13_436];

/// Codes after which a driver resumes a change stream.
/// Source: driver specification "Change Streams", "Resumable Error"; recorded from mongod 6.0.
const RESUMABLE_CODES: &[i32] = &[
    6, 7, 63, 89, 91, 133, 134, 150, 189, 234, 262, 317, 358, 384, 9001, 10_107, 11_600, 11_602,
    13_388, 13_435, 13_436,
];
/// Codes after which it does not, whichever request failed. Source: recorded from mongod 6.0.
const NOT_RESUMABLE_CODES: &[i32] = &[280, 286];

/// Codes with which mongod sends the version of its topology, so that drivers look for the primary
/// again. Source: recorded from mongod 6.0.
const TOPOLOGY_CODES: &[i32] = &[189, 10_107, 11_602, 13_435, 13_436];

/// Returns the label of a request that failed with this code.
pub(crate) fn label_of(request: &Request<'_>, code: Code) -> Option<&'static str> {
    if is_retryable(request, code) {
        return Some(RETRYABLE);
    }
    if NOT_RESUMABLE_CODES.contains(&code.number()) {
        return Some(NOT_RESUMABLE);
    }
    (request.transaction.is_some() && targets::is_transient(code)).then_some(TRANSIENT)
}

/// Returns whether a request is to be sent again unchanged after this code, of the request or of
/// its write concern.
pub(crate) fn is_retryable(request: &Request<'_>, code: Code) -> bool {
    let ends_transaction = matches!(request.command.name, "commitTransaction" | "abortTransaction");
    request.txn_number.is_some()
        && (request.transaction.is_none() || ends_transaction)
        && RETRYABLE_CODES.contains(&code.number())
}

/// Returns the label of a change stream that failed with this code.
pub(crate) fn label_of_stream(code: Code) -> Option<&'static str> {
    match code.number() {
        number if RESUMABLE_CODES.contains(&number) => Some(RESUMABLE),
        number if NOT_RESUMABLE_CODES.contains(&number) => Some(NOT_RESUMABLE),
        _ => None,
    }
}

/// Returns whether the version of the topology is sent with this code.
pub(crate) fn sends_topology(code: Code) -> bool {
    TOPOLOGY_CODES.contains(&code.number())
}
