//! The end of a reply: `ok`, errors, write concern errors, the cluster time, and the wait for the
//! disk.

use std::sync::Arc;

use marula_bson::{ByteSlice, DocWriter, Element, RawValue, Type, Value};
use marula_error::Error;
use marula_storage::Stamp;
use marula_wire::ReplyBuffer;
use marula_wire::reply::write_error;

use crate::command::hello::write_topology_version;
use crate::error_labels::{self, RETRYABLE};
use crate::fail_point::Failure;
use crate::net::service::{Arm, Step};
use crate::request::Request;
use crate::server::Server;

/// Errors of a write that found other data than it needs. A member of a replica set adds whether
/// the write concern is satisfied, because another client may have written that data; it does not
/// for errors in the request itself. NamespaceNotFound, IndexNotFound, NamespaceExists,
/// DuplicateKey.
const STATE_CODES: &[i32] = &[26, 27, 48, 11_000];

/// `$clusterTime` at the time zero, with the signature of a member without keys. Every reply to a
/// driver has one: it is copied rather than built.
const CLUSTER_TIME: [u8; 88] = *b"\x58\0\0\0\
    \x11clusterTime\0\0\0\0\0\0\0\0\0\
    \x03signature\0\x33\0\0\0\
    \x05hash\0\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \x12keyId\0\0\0\0\0\0\0\0\0\0\0";

/// The position of the time in it.
const TIME_AT: usize = 17;

/// Returns the number of a write's statements that an earlier attempt had executed.
pub(super) fn retried(reply: &ReplyBuffer) -> u64 {
    let Some((reply, _)) = reply.written() else { return 0 };
    let count = |field: Element<'_>| match field.name.as_bytes() {
        b"retriedStmtIds" => Some(field.value.get().as_array()?.iter().count() as u64),
        b"retriedStmtId" => Some(1),
        _ => None,
    };
    reply.iter().find_map(count).unwrap_or(0)
}

/// Completes a written reply; waits for the disk if the write concern asks for it.
pub(super) fn finish(
    server: &Arc<Server>,
    request: &Request<'_>,
    mut body: DocWriter<'_>,
    stamp_before: Option<Stamp>,
    failure: Option<&Failure>,
) -> Step {
    let concern = request.awaited_concern();
    match failure.and_then(|failure| failure.write_concern_error.as_ref()) {
        Some(error) => {
            body.append("writeConcernError", error);
        }
        None => {
            if let Some(concern) = concern
                && let Some(error) = concern.unsatisfied()
            {
                concern.write_error(&error, &mut body);
            }
        }
    }
    body.append("ok", 1.0);
    if let Some(failure) = failure {
        failure.label_concern(request, &mut body);
    }
    append_cluster_time(server, Some(request), &mut body);
    drop(body);
    let stamp = server.db.moment();
    match concern {
        // A write that changed nothing may depend on another's write that is not yet on disk; only
        // if there never was a write is there nothing to wait for.
        Some(concern) if concern.wants_sync() && stamp_before.is_some() => {
            Step::Hold(wait_for_sync(server.clone(), stamp))
        }
        _ => Step::Reply,
    }
}

fn wait_for_sync(server: Arc<Server>, stamp: Stamp) -> Arm {
    Box::new(move |wake| {
        let done = move |outcome: marula_storage::Result<()>| match outcome {
            Ok(()) => wake.wake(),
            Err(error) => {
                // The write is in the log, but may not be on disk: it must not be acknowledged.
                tracing::error!(%error, "a write that was to be on disk could not be synced");
                wake.hang_up();
            }
        };
        server.db.on_sync(stamp, Box::new(done));
    })
}

/// Appends the common end of all successful replies.
pub(super) fn append_tail(server: &Server, request: &Request<'_>, body: &mut DocWriter<'_>) {
    body.append("ok", 1.0);
    append_cluster_time(server, Some(request), body);
}

/// Appends the times of a replica set's member, or of a router: those at which a change stream can
/// start, and after which a session reads. A router without an oplog appends them only for
/// sessions: other clients have no use for them.
pub(super) fn append_cluster_time(
    server: &Server,
    request: Option<&Request<'_>>,
    body: &mut DocWriter<'_>,
) {
    let is_of_session = request.is_some_and(|request| request.lsid.is_some());
    if !is_of_session && server.options.repl_set.is_none() && !server.db.oplog().is_on() {
        return;
    }
    let timestamp = server.db.newest_timestamp(server.now_ms());
    let mut cluster_time = CLUSTER_TIME;
    cluster_time[TIME_AT..TIME_AT + 8].copy_from_slice(&timestamp.to_le_bytes());
    body.append_raw("$clusterTime", RawValue::new(Type::Document, &cluster_time));
    body.append("operationTime", Value::Timestamp(timestamp));
}

/// Writes the reply of a request that failed.
pub(super) fn answer_error(
    server: &Server,
    request: Option<&Request<'_>>,
    error: &Error,
    reply: &mut ReplyBuffer,
) {
    let is_retryable =
        request.is_some_and(|request| error_labels::is_retryable(request, error.code()));
    let labelled = is_retryable.then(|| error.clone().with_label(RETRYABLE));
    let mut body = reply.body();
    if let Some(request) = request
        && STATE_CODES.contains(&error.code().number())
        && let Some(concern) = &request.write_concern
        && let Some(error) = concern.unsatisfied()
    {
        concern.write_error(&error, &mut body);
    }
    if error_labels::sends_topology(error.code()) {
        write_topology_version(server, &mut body);
    }
    write_error(&mut body, labelled.as_ref().unwrap_or(error));
    append_cluster_time(server, request, &mut body);
}

#[cfg(test)]
mod tests {
    use marula_bson::{Binary, doc};

    use super::*;

    #[test]
    fn a_cluster_time_is_a_document() {
        let mut bytes = CLUSTER_TIME;
        bytes[TIME_AT..TIME_AT + 8].copy_from_slice(&7_u64.to_le_bytes());
        let hash = Binary { subtype: 0, bytes: &[0; 20] };
        let built = doc! {
            "clusterTime": Value::Timestamp(7),
            "signature": { "hash": hash, "keyId": 0_i64 },
        };
        assert_eq!(bytes, built.as_doc().as_bytes());
    }
}
