//! `filemd5`: the MD5 checksum of a file in GridFS.
//!
//! A request with `md5state` continues an earlier checksum. The state contains only the number of
//! its chunks, which are hashed again.
//! Source: manual "filemd5"; errors recorded from mongod 6.0.

use marula_bson::{Binary, Doc, DocBuf, DocWriter, Value, doc, hex};
use marula_db::index::IndexKind;
use marula_db::{Collection, Namespace};
use marula_error::{Error, Result, errors};
use marula_operation::args;
use marula_plan::{Emit, Execution, Hint, Query, planner};
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;
use md5::{Digest, Md5};

use super::{Auth, Command, Outcome};
use crate::auth::check::Check;
use crate::context::Context;
use crate::request::Request;

errors! {
    root_type() = InvalidNamespace, "'root' must be of type String";
    no_index(ns: &Namespace) = NoQueryExecutionPlans, "error processing query: ns={ns} planner returned error :: caused by :: No indexed plans available, and running with 'notablescan'";
    out_of_order() = 10_040, "chunks out of order";
    data_type(kind: &str) = 50_849, "The element that calls binDataClean() must be type of BinData, but type of {kind} found.";
    data_missing() = 50_848, "The element that calls binDataClean() must be type of BinData, but type of misisng found. Field name is required";
}

pub(super) static COMMAND: Command = Command {
    name: "filemd5",
    help: "Returns the MD5 checksum of a file in GridFS.",
    ends_with_client: true,
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = chunks(request)?;
    let is_partial = request.flag("partialOk");
    let mut sum = Sum { context: Md5::new(), next: 0 };
    let collection = ctx.server.db.collection(&ns);
    if let (true, Some(collection), Some(done)) = (is_partial, &collection, state(request)) {
        sum.add(ctx, collection, request, done)?;
    }
    #[allow(clippy::cast_possible_truncation)]
    if is_partial && let Some(start) = request.arg("startAt").and_then(|start| start.as_f64()) {
        sum.next = start as i64;
    }
    let added = match &collection {
        Some(collection) => sum.add(ctx, collection, request, i64::MAX),
        None => Ok(()),
    };
    match added {
        // With `partialOk` the checksum ends at the first missing chunk.
        Err(error) if is_partial && error.code().number() == OUT_OF_ORDER => {}
        added => added.map_err(|error: Error| match error.code().number() {
            OUT_OF_ORDER | 50_848 | 50_849 => {
                error.caused_by("Executor error during filemd5 command")
            }
            _ => error,
        })?,
    }
    if is_partial {
        let bytes = &sum.next.to_le_bytes();
        reply.append("md5state", Binary { subtype: 0, bytes });
    }
    reply.append("numChunks", Value::whole(sum.next));
    reply.append("md5", hex::text(&sum.context.finalize()).as_str());
    Ok(Outcome::Done)
}

const OUT_OF_ORDER: i32 = 10_040;

/// The state of a checksum.
struct Sum {
    context: Md5,
    /// The number of the next chunk.
    next: i64,
}

impl Sum {
    /// Adds the chunks from `next` to `end`, exclusive.
    fn add(
        &mut self,
        ctx: &Context<'_>,
        collection: &std::sync::Arc<Collection>,
        request: &Request<'_>,
        end: i64,
    ) -> Result<()> {
        let context = QueryContext::default();
        let file = request.first.value.get();
        let filter = DocBuf::build(|out| {
            out.append("files_id", file);
            out.append("n", &doc! { "$gte": self.next });
        });
        let index = index(collection).ok_or_else(|| no_index(&collection.namespace()))?;
        let mut query = Query::new(Filter::parse(filter.as_doc(), &context)?, context);
        query.hint = Some(Hint::Name(index));
        args::apply_sort(&mut query, doc! { "files_id": 1, "n": 1 }.as_doc())?;
        let plan = planner::plan(&collection.state(), &query)?;
        let mut execution = Execution::new(collection.clone(), plan, query);
        execution.run(ctx.unit, &mut || ctx.check_interrupt(), &mut |found| {
            if self.next >= end {
                return Ok(Emit::Enough);
            }
            self.take(found.doc)?;
            Ok(Emit::Taken)
        })?;
        Ok(())
    }

    fn take(&mut self, chunk: Doc<'_>) -> Result<()> {
        if chunk.get("n").and_then(|n| n.as_exact_i64()) != Some(self.next) {
            return Err(out_of_order());
        }
        match chunk.get("data") {
            Some(Value::Binary(Binary { bytes, .. })) => self.context.update(bytes),
            Some(other) => return Err(data_type(other.kind().alias())),
            None => return Err(data_missing()),
        }
        self.next += 1;
        Ok(())
    }
}

/// Returns the name of an index whose first field is `files_id`.
fn index(collection: &Collection) -> Option<String> {
    let state = collection.state();
    let leads = |key: Doc<'_>| key.iter().next().is_some_and(|first| first.name == "files_id");
    let found = state.indexes.iter().find(|index| {
        let spec = &index.spec;
        let is_plain = matches!(spec.kind, IndexKind::Ordinary) && spec.partial.is_none();
        is_plain && !spec.sparse && !spec.hidden && leads(spec.key.as_doc())
    });
    found.map(|index| index.spec.name.clone())
}

/// Returns the number of chunks of an earlier part of the checksum.
fn state(request: &Request<'_>) -> Option<i64> {
    match request.arg("md5state") {
        Some(Value::Binary(Binary { bytes, .. })) => {
            Some(i64::from_le_bytes(bytes.try_into().ok()?))
        }
        _ => None,
    }
}

/// Returns the collection of the chunks of the bucket `root`.
fn chunks(request: &Request<'_>) -> Result<Namespace> {
    let root = match request.body.get("root") {
        None => String::new(),
        Some(Value::String(root)) => root.to_string(),
        Some(_) => return Err(root_type()),
    };
    let root = if root.is_empty() { "fs" } else { &root };
    Namespace::new(request.db, &format!("{root}.chunks"))
}

/// Requires the privilege to read the chunks.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let ns = chunks(request)?;
    check.needs_on(ns.db(), ns.collection(), &["find"]);
    Ok(())
}
