//! Shared parts of the commands that write: the session's number, the target, the permitted
//! namespaces.

use marula_db::catalog::shown;
use marula_db::time_series::BUCKETS_PREFIX;
use marula_db::{Namespace, WriteOp};
use marula_error::{Result, errors};
use marula_query::update::EmptyTimestamps;

use crate::context::Context;
use crate::fields::{Field, Types};
use crate::request::Request;

/// The field that stores empty timestamps unchanged.
pub(crate) const BYPASS_EMPTY_TS_REPLACEMENT: Field =
    Field::optional("bypassEmptyTsReplacement", Types::BOOLEAN).or(bypass_not_boolean);

errors! {
    bypass_not_boolean(kind: &str) = TypeMismatch, "Field 'bypassEmptyTsReplacement' should be a boolean value, but found: {kind}";
    not_of_buckets() = 5_916_400, "'isTimeseriesNamespace' parameter can only be set when the request is sent on system.buckets namespace";
    records_not_writable() = 40_528, "Direct writes against config.transactions cannot be performed using a transaction or on a session.";
    system_in_transaction(ns: &Namespace) = 50_791, "Cannot write to system collection {ns} within a transaction.";
    not_writable(ns: &str) = InvalidNamespace, "cannot write to {ns}";
}

/// Starts a write with the options of its request, and with the session's record if the request is
/// numbered.
///
/// Errors: a number older than the session's newest. The operation is postponed if an earlier
/// attempt still runs and this thread must not wait for it.
pub(crate) fn begin<'s>(ctx: &Context<'s>, request: &Request<'_>) -> Result<WriteOp<'s>> {
    let mut op = WriteOp::new(ctx.unit, ctx.now_ms);
    op.may_wait = ctx.may_wait();
    op.user_writes = ctx.user_writes();
    op.bypass_validation = request.flag("bypassDocumentValidation");
    op.empty_timestamps = empty_timestamps(request);
    // The statements of a client's transaction are not recorded one by one.
    let number = request.txn_number.filter(|_| ctx.entered.is_none());
    if let (Some(lsid), Some(number)) = (&request.lsid, number) {
        let sessions = ctx.server.db.sessions();
        let (view, may_wait) = (ctx.unit.view(), ctx.may_wait());
        let check = &ctx.connection.operation.record_check;
        let numbered = sessions.begin(view, lsid.key(), number, ctx.now_ms, may_wait, check)?;
        op.numbered = Some(numbered);
    }
    Ok(op)
}

/// Returns the treatment of empty timestamps in the documents of a request.
fn empty_timestamps(request: &Request<'_>) -> EmptyTimestamps {
    match request.flag("bypassEmptyTsReplacement") {
        true => EmptyTimestamps::Kept,
        false => EmptyTimestamps::Filled,
    }
}

/// Checks that clients may write to `ns`, whether it exists or not: some collections are the
/// server's own, and some names are not permitted.
pub(crate) fn check_writable(ns: &Namespace) -> Result<()> {
    match (ns.db(), ns.collection()) {
        (_, "system.views" | "system.profile") => Err(not_writable(ns.as_str())),
        ("config", "transactions") => Err(records_not_writable()),
        ("local", oplog) if oplog.starts_with("oplog.") => Err(not_writable(ns.as_str())),
        _ => ns.check_creatable(),
    }
}

/// Returns whether a name is one of the system's own, also if a client may create the collection.
pub(crate) fn is_system(ns: &Namespace) -> bool {
    ns.collection().starts_with("system.")
}

/// Like [`check_writable`], for documents: those of system collections are not written in a
/// transaction.
pub(crate) fn check_target(ctx: &Context<'_>, ns: &Namespace) -> Result<()> {
    if ctx.entered.is_some() && is_system(ns) {
        return Err(system_in_transaction(ns));
    }
    shown::check_not_of_cluster(ns, ctx.server.db.engine().is_remote)?;
    check_writable(ns)
}

/// Checks a command that claims to name a time-series collection by its buckets.
pub(crate) fn check_names_buckets(request: &Request<'_>, ns: &Namespace) -> Result<()> {
    let is_of_buckets = ns.collection().starts_with(BUCKETS_PREFIX);
    match request.flag("isTimeseriesNamespace") && !is_of_buckets {
        true => Err(not_of_buckets()),
        false => Ok(()),
    }
}
