//! Cursors between two commands, as `{ $currentOp: { idleCursors: true } }` shows them.

use marula_bson::{Doc, DocBuf, Value, long};

use super::{Cursors, Entry, Parked};
use crate::auth::name::Name;
use crate::context::Context;

/// The documents and batches that a cursor has returned so far.
#[derive(Clone, Default, Debug)]
pub struct History {
    created_ms: i64,
    documents: u64,
    batches: u64,
}

impl History {
    /// The history of a cursor whose first batch, of `documents`, is in this command's reply.
    pub(crate) fn begin(ctx: &Context<'_>, documents: usize) -> Self {
        History { created_ms: ctx.now_ms, documents: documents as u64, batches: 1 }
    }

    /// Counts a further batch.
    pub(crate) fn add_batch(&mut self, documents: usize) {
        self.documents += documents as u64;
        self.batches += 1;
    }
}

/// Lists the idle cursors, each with its user.
pub(crate) fn list(cursors: &Cursors, host: &str) -> Vec<(Option<Name>, DocBuf)> {
    let mut found = Vec::new();
    for shard in &cursors.shards {
        for (id, entry) in &*shard.lock() {
            let Entry::Idle { cursor, last_use_ms, .. } = entry else { continue };
            let user = cursor.owner.as_ref().map(|owner| owner.user.clone());
            found.push((user, describe(*id, cursor, *last_use_ms, host)));
        }
    }
    found
}

fn describe(id: i64, cursor: &Parked, last_use_ms: i64, host: &str) -> DocBuf {
    let history = &cursor.history;
    DocBuf::build(|out| {
        out.append("type", "idleCursor").append("host", host);
        out.append("ns", cursor.namespace.as_str());
        if let Some(owner) = &cursor.owner {
            let (user, db) = (owner.user.name.as_str(), owner.user.db.as_str());
            out.begin_array("effectiveUsers").begin_doc().append("user", user).append("db", db);
        }
        if let Some(lsid) = &cursor.lsid {
            lsid.write(&mut out.begin_doc("lsid"));
        }
        if let Some(summary) = cursor.source.plan_summary() {
            out.append("planSummary", summary.as_str());
        }
        let origin = cursor.origin.as_doc();
        let is_stream = is_change_stream(origin);
        let is_set = |name| is_stream || origin.get(name) == Some(Value::Boolean(true));
        let mut section = out.begin_doc("cursor");
        section.append("cursorId", id);
        section.append("createdDate", Value::DateTime(history.created_ms));
        section.append("lastAccessDate", Value::DateTime(last_use_ms));
        section.append("nDocsReturned", long(history.documents));
        section.append("nBatchesReturned", long(history.batches));
        section.append("noCursorTimeout", cursor.no_timeout);
        section.append("tailable", is_set("tailable")).append("awaitData", is_set("awaitData"));
        section.append("originatingCommand", origin);
    })
}

fn is_change_stream(origin: Doc<'_>) -> bool {
    let stages = origin.get("pipeline").and_then(|stages| stages.as_array());
    let first = stages.and_then(|stages| stages.values().next());
    first.and_then(|stage| stage.as_doc()).is_some_and(|stage| stage.get("$changeStream").is_some())
}
