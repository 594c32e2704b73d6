//! `applyOps`: applies entries of an oplog: inserts, deletions by `_id` and entries that do nothing.
//!
//! Source: manual "applyOps"; errors recorded from mongod 6.0.

use marula_bson::{ByteSlice, Doc, DocWriter, Value};
use marula_db::write::InsertReport;
use marula_db::{Namespace, WriteOp};
use marula_error::{Error, Result, errors};

use super::{Auth, Command, Outcome};
use crate::auth::check::{Check, Target};
use crate::context::Context;
use crate::request::Request;
use crate::writes;

errors! {
    wrong_type(field: &str, expected: &str, kind: &str) = TypeMismatch, "Wrong type for '{field}'. Expected a {expected}, got a {kind}.";
    missing(field: &str) = NoSuchKey, "Wrong type for '{field}'. Expected a string, got a missing.";
    unknown_op(op: &str) = BadValue, "Enumeration value '{op}' for field 'OplogEntryBase.op' is not a valid value.";
    not_supported(op: &str) = CommandNotSupported, "entries of an oplog of the kind '{op}' cannot be applied on this server";
}

pub(super) static COMMAND: Command = Command {
    name: "applyOps",
    help: "Applies entries of an oplog: inserts, deletions by _id, and entries that do nothing.",
    writes: true,
    takes_write_concern: true,
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let entries = match request.first.value.get() {
        Value::Array(entries) => entries,
        other => return Err(wrong_type("applyOps", "array", other.kind().alias())),
    };
    for (at, entry) in entries.values().enumerate() {
        match entry {
            Value::Document(entry) if entry.get("op").is_none() => return Err(missing("op")),
            Value::Document(_) => {}
            other => return Err(wrong_type(&at.to_string(), "object", other.kind().alias())),
        }
    }
    let mut results = Vec::new();
    let mut failure = None;
    for entry in entries.values().filter_map(|entry| entry.as_doc()) {
        let op = entry.get("op").and_then(|op| op.as_str()).unwrap_or_default().to_string();
        let outcome = apply(ctx, &op, entry);
        if op != "n" {
            results.push(outcome.is_ok());
        }
        if let Err(error) = outcome {
            failure = Some(error);
            break;
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    reply.append("applied", i32::try_from(results.len()).unwrap_or(i32::MAX));
    let mut out = reply.begin_array("results");
    results.into_iter().for_each(|result| {
        out.push(result);
    });
    out.finish();
    Ok(Outcome::Done)
}

fn apply(ctx: &Context<'_>, op: &str, entry: Doc<'_>) -> Result<(), Error> {
    let doc = entry.get("o").and_then(|o| o.as_doc()).unwrap_or(Doc::EMPTY);
    let ns = || {
        let ns = entry.get("ns").and_then(|ns| ns.as_str()).ok_or_else(|| missing("ns"))?;
        let ns = Namespace::parse(&ns.to_str_lossy())?;
        writes::check_writable(&ns)?;
        Ok::<_, Error>(ns)
    };
    let db = &ctx.server.db;
    let mut write = WriteOp::new(db, ctx.now_ms);
    match op {
        "n" => Ok(()),
        "i" => {
            let collection = db.collection_or_create(&ns()?)?;
            writes::check_not_view(&collection)?;
            // An entry may be applied twice: the second time it puts the same document in the first one's place.
            remove(&mut write, &collection, doc)?;
            let mut report = InsertReport::default();
            write.insert(&collection, &mut std::iter::once(doc), true, &mut report)?;
            report.errors.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
        }
        "d" => match db.collection(&ns()?) {
            Some(collection) => {
                writes::check_not_view(&collection)?;
                remove(&mut write, &collection, doc)
            }
            None => Ok(()),
        },
        "u" | "c" | "m" => Err(not_supported(op)),
        _ => Err(unknown_op(op)),
    }
}

/// Removes the document that has the same `_id`, where there is one.
fn remove(write: &mut WriteOp<'_>, collection: &marula_db::Collection, doc: Doc<'_>) -> Result<()> {
    let Some(id) = doc.get("_id") else { return Ok(()) };
    let record = collection.find_id(write.db.store(), id, &mut Vec::new())?;
    if let Some(record) = record {
        write.delete(collection, &record, &mut |_| Ok(true), None)?;
    }
    Ok(())
}

/// What a user needs to apply entries: to do so at all, and what each of them does.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    check.needs(Target::Cluster, &["applyOps"]);
    let entries = request.first.value.get().as_array().unwrap_or(Doc::EMPTY);
    for entry in entries.values().filter_map(|entry| entry.as_doc()) {
        let text = |name: &str| entry.get(name).and_then(|text| text.as_str());
        let actions: &[&str] = match text("op").map(|op| op.to_string()).as_deref() {
            // An entry takes the place of the document that has its _id.
            Some("i") => &["insert", "update"],
            Some("u") => &["update"],
            Some("d") => &["remove"],
            _ => continue,
        };
        if let Some(ns) = text("ns") {
            let ns = Namespace::parse(&ns.to_str_lossy())?;
            check.needs_on(ns.db(), ns.collection(), actions);
        }
    }
    Ok(())
}
