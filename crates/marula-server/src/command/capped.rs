//! `convertToCapped` and `cloneCollectionAsCapped`: copy a collection's newest documents to a
//! capped collection.
//!
//! The documents are copied in natural order into a new capped collection, which removes the oldest
//! ones when it is full; those that are certain to be removed are not copied. `convertToCapped`
//! then renames it to the name of the source, in one change of the catalogue.

use std::sync::Arc;

use marula_bson::{ByteSlice, DocBuf, DocWriter, Value, long};
use marula_db::write::InsertReport;
use marula_db::{Collection, CollectionOptions, Namespace};
use marula_error::{Result, errors};
use marula_operation::targets;
use marula_plan::{Emit, End, Execution, Query, planner};
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;

use super::{Auth, Command, Named, Outcome};
use crate::auth::check::Check;
use crate::context::Context;
use crate::request::Request;

errors! {
    source_not_found(ns: &Namespace) = NamespaceNotFound, "source collection {ns} does not exist";
    target_exists(to: &Namespace, from: &Namespace) = NamespaceExists, "cloneCollectionAsCapped failed - destination collection {to} already exists. source collection: {from}";
    source_type() = TypeMismatch, "'cloneCollectionAsCapped' must be of type String";
    target_type() = TypeMismatch, "'toCollection' must be of type String";
    invalid_name(which: &str, name: &str) = InvalidNamespace, "Invalid {which} collection name: {name}";
    size_negative() = BadValue, "size has to be >= 0";
}

pub(super) static CONVERT: Command = Command {
    name: "convertToCapped",
    help: "Converts a collection to a capped one with its newest documents and the index on _id.",
    writes: true,
    takes_write_concern: true,
    named: Named::OLD_BY_NAME,
    auth: Auth::Collection(&["convertToCapped"]),
    run: convert,
    ..Command::DEFAULT
};

pub(super) static CLONE: Command = Command {
    name: "cloneCollectionAsCapped",
    help: "Copies a collection's newest documents into a new capped collection.",
    writes: true,
    takes_write_concern: true,
    auth: Auth::Content(clone_demands),
    run: clone,
    ..Command::DEFAULT
};

/// The minimum size of a capped collection, in bytes.
const SIZE_MIN: i64 = 4096;
/// As in mongod, the oldest documents are not copied, up to this part of those that do not fit into
/// twice the size.
const SURPLUS_SHARE: i64 = 4;
/// The size of the documents that are copied in one txn, in bytes.
const COPY_BYTES: usize = 1024 * 1024;

fn convert(ctx: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = request.namespace()?;
    let size = match size(request)? {
        Some(size) => size,
        None => return Ok(Outcome::Failed("invalid command spec".to_owned())),
    };
    let source = source(ctx, &ns)?;
    let temporary = Namespace::new(
        ns.db(),
        &format!("tmp{}.convertToCapped.{}", ctx.server.operations.next_id(), ns.collection()),
    )?;
    // After a crash the source is unchanged, and the next start removes the temporary copy.
    let options = capped_options(&source, size)?.temporary();
    let db = &ctx.server.db;
    let replaced = db.create_collection(&temporary, options).and_then(|target| {
        db.replace_by_copy(&source, &target, &mut || copy(ctx, &source, &target, size))
    });
    if let Err(error) = replaced {
        // The temporary collection is useless now. It may not exist, so that an error of the drop
        // is ignored.
        let _ = db.drop_collection(&temporary);
        return Err(error);
    }
    Ok(Outcome::Done)
}

fn clone(ctx: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let from = match request.first.value.get() {
        Value::String(from) => from.to_str_lossy().into_owned(),
        _ => return Err(source_type()),
    };
    let to = match request.arg("toCollection") {
        Some(Value::String(to)) => to.to_str_lossy().into_owned(),
        _ => return Err(target_type()),
    };
    for (which, name) in [("source", &from), ("target", &to)] {
        if name.is_empty() || name.contains('$') {
            return Err(invalid_name(which, name));
        }
    }
    let size_given = request.arg("size").and_then(|size| size.as_f64());
    if size_given.is_some_and(f64::is_nan) {
        return Err(size_negative());
    }
    if size_given.is_none_or(|size| size == 0.0) {
        return Ok(Outcome::Failed("invalid command spec".to_owned()));
    }
    let (from, to) = (Namespace::new(request.db, &from)?, Namespace::new(request.db, &to)?);
    let source = source(ctx, &from)?;
    if ctx.server.db.collection(&to).is_some() {
        return Err(target_exists(&to, &from));
    }
    // A size between zero and one byte is rounded up.
    let size = size(request)?.unwrap_or(1);
    let target = ctx.server.db.create_collection(&to, capped_options(&source, size)?)?;
    copy(ctx, &source, &target, size)?;
    Ok(Outcome::Done)
}

/// Returns the requested size in bytes; `None` if it is absent or zero.
///
/// Errors: `size_negative`.
fn size(request: &Request<'_>) -> Result<Option<i64>> {
    #[allow(clippy::cast_possible_truncation)]
    match request.arg("size").and_then(|size| size.as_f64()).map(|size| size as i64) {
        None | Some(0) => Ok(None),
        Some(..0) => Err(size_negative()),
        size => Ok(size),
    }
}

fn source(ctx: &Context<'_>, ns: &Namespace) -> Result<Arc<Collection>> {
    let collection = ctx.server.db.collection(ns).ok_or_else(|| source_not_found(ns))?;
    targets::check_not_view(&collection)?;
    ctx.check_user_writes(ns.db())?;
    Ok(collection)
}

/// Returns the source's options, changed to a capped collection of `size` bytes.
fn capped_options(source: &Collection, size: i64) -> Result<CollectionOptions> {
    let old = source.state().options.document.clone();
    let options = DocBuf::build(|out| {
        out.append("capped", true);
        out.append("size", Value::whole(size));
        // The time to live is that of the clustered index.
        let is_kept = |name: &[u8]| {
            !matches!(name, b"capped" | b"size" | b"clusteredIndex" | b"expireAfterSeconds")
        };
        for element in old.as_doc().iter().filter(|element| is_kept(element.name)) {
            out.append_raw(element.name, element.value);
        }
    });
    CollectionOptions::parse(options.as_doc())
}

/// Copies the source's newest documents into `target`, which holds `size` bytes.
fn copy(ctx: &Context<'_>, source: &Arc<Collection>, target: &Collection, size: i64) -> Result<()> {
    let context = QueryContext::default();
    let query = Query::new(Filter::everything(&context), context);
    let plan = planner::plan(&source.state(), &query)?;
    let mut execution = Execution::new(source.clone(), plan, query);
    let mut op = marula_db::WriteOp::new(ctx.unit, ctx.now_ms);
    (op.bypass_validation, op.is_copy) = (true, true);
    let mut surplus = source.size_bytes() - size.max(SIZE_MIN).saturating_mul(2);
    loop {
        let mut documents: Vec<DocBuf> = Vec::new();
        let mut bytes = 0;
        let end = execution.run(ctx.unit, &mut || ctx.check_interrupt(), &mut |found| {
            let length = found.doc.as_bytes().len();
            if surplus > 0 {
                surplus -= SURPLUS_SHARE * long(length);
                return Ok(Emit::Taken);
            }
            bytes += length;
            documents.push(found.doc.to_buf());
            Ok(if bytes < COPY_BYTES { Emit::Taken } else { Emit::Enough })
        })?;
        let mut report = InsertReport::default();
        let mut docs = documents.iter().map(DocBuf::as_doc);
        op.insert(target, &mut docs, true, &mut report)?;
        if let Some((_, error)) = report.errors.into_iter().next() {
            return Err(error);
        }
        if end == End::Exhausted {
            return Ok(());
        }
    }
}

/// Requires the privileges to read the source and to write to the target.
fn clone_demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let from = request.namespace()?;
    check.needs_on(from.db(), from.collection(), &["find"]);
    if let Some(to) = request.text("toCollection") {
        let to = to.to_string();
        check.needs_on(from.db(), &to, &["insert", "createIndex", "convertToCapped"]);
    }
    Ok(())
}
