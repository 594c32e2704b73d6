//! `dataSize`: the size of a collection's documents, or of those in a range of an index.

use std::time::Instant;

use marula_bson::{Doc, DocWriter, Value, long};
use marula_db::{Collection, Namespace};
use marula_error::{Result, errors};
use marula_operation::targets;
use marula_plan::{Emit, Execution, Hint, Query, planner};
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;

use super::{Auth, Command, Outcome};
use crate::auth::check::Check;
use crate::context::Context;
use crate::request::Request;

errors! {
    name_type(kind: &str) = BadValue, "collection name has invalid type {kind}";
    bound_type(bound: &str) = BadValue, "{bound} key must be an object";
    bound_missing(missing: &str, given: &str) = BadValue, "{missing} must be set if {given} is set";
}

pub(super) static COMMAND: Command = Command {
    name: "dataSize",
    aliases: &["datasize"],
    help: "Returns the size of a collection's documents in bytes, or of those in a range of an index.",
    ends_with_client: true,
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let started = Instant::now();
    let name = match request.first.value.get() {
        Value::String(name) | Value::Symbol(name) => name.to_string(),
        other => return Err(name_type(other.kind().alias())),
    };
    let ns = match Namespace::parse(&name) {
        Ok(ns) => ns,
        // No collection can have this name, so that the size is 0.
        Err(_) if names_both(&name) => {
            reply.append("size", 0).append("numObjects", 0).append("millis", 0);
            return Ok(Outcome::Done);
        }
        Err(error) => return Err(error),
    };
    let range = Range::read(request)?;
    let mut total = Total::default();
    let collection = ctx.server.db.collection(&ns);
    if let Some(collection) = &collection {
        targets::check_not_view(collection)?;
    }
    // Of an empty collection nothing else is looked at, as of one that does not exist.
    if let Some(collection) = collection.filter(|collection| collection.count() > 0) {
        let estimates = request.flag("estimate");
        reply.append("estimate", estimates);
        let limit = |name: &str| {
            #[allow(clippy::cast_possible_truncation)]
            let limit =
                request.arg(name).and_then(|limit| limit.as_f64()).map(|limit| limit as i64);
            limit.filter(|&limit| limit > 0).unwrap_or(i64::MAX)
        };
        let bounds = Total { bytes: limit("maxSize"), documents: limit("maxObjects") };
        let is_bounded = bounds != Total { bytes: i64::MAX, documents: i64::MAX };
        if range.is_none() && (estimates || !is_bounded) {
            // The counters of the collection are exact, so that they are also the result if no
            // estimate is wanted.
            total = Total { bytes: collection.size_bytes(), documents: collection.count() };
        } else {
            let Some(query) = query(&collection, range)? else {
                return Ok(Outcome::Failed(
                    "couldn't find valid index containing key pattern".to_owned(),
                ));
            };
            let plan = planner::plan(&collection.state(), &query)?;
            let mut execution = Execution::new(collection.clone(), plan, query);
            let mut is_reached = false;
            execution.run(ctx.unit, &mut || ctx.check_interrupt(), &mut |found| {
                total.bytes += long(found.doc.as_bytes().len());
                total.documents += 1;
                is_reached = total.bytes > bounds.bytes || total.documents > bounds.documents;
                Ok(if is_reached { Emit::Enough } else { Emit::Taken })
            })?;
            if is_reached {
                reply.append("maxReached", true);
            }
        }
    }
    reply.append("size", Value::whole(total.bytes));
    reply.append("numObjects", Value::whole(total.documents));
    reply.append("millis", Value::whole(started.elapsed().as_millis()));
    Ok(Outcome::Done)
}

/// Returns whether a name has a database part and a collection part.
fn names_both(name: &str) -> bool {
    name.split_once('.').is_some_and(|(db, collection)| !db.is_empty() && !collection.is_empty())
}

#[derive(Default, PartialEq)]
struct Total {
    bytes: i64,
    documents: i64,
}

/// The range of an index whose documents are measured.
struct Range<'a> {
    key: Doc<'a>,
    min: Doc<'a>,
    max: Doc<'a>,
}

impl<'a> Range<'a> {
    fn read(request: &Request<'a>) -> Result<Option<Self>> {
        // A bound is present even if its value is null, which is then rejected.
        let given = |name: &str| {
            request.args.iter().find(|arg| arg.name == name).map(|arg| arg.value.get())
        };
        let (min, max) = match (given("min"), given("max")) {
            (None, None) => return Ok(None),
            (Some(_), None) => return Err(bound_missing("max", "min")),
            (None, Some(_)) => return Err(bound_missing("min", "max")),
            (Some(min), Some(max)) => (min, max),
        };
        let min = min.as_doc().ok_or_else(|| bound_type("min"))?;
        let max = max.as_doc().ok_or_else(|| bound_type("max"))?;
        if min.is_empty() && max.is_empty() {
            return Ok(None);
        }
        let key = request.arg("keyPattern").and_then(|key| key.as_doc()).unwrap_or(Doc::EMPTY);
        Ok(Some(Range { key, min, max }))
    }
}

/// Returns the query for a range of an index; `None` if no index has that key pattern.
fn query(collection: &Collection, range: Option<Range<'_>>) -> Result<Option<Query>> {
    let context = QueryContext::default();
    let mut query = Query::new(Filter::everything(&context), context);
    let Some(Range { key, min, max }) = range else { return Ok(Some(query)) };
    let names: Vec<_> = min.iter().map(|field| field.name).collect();
    let state = collection.state();
    let found = state.indexes.iter().find(|index| match key.is_empty() {
        true => index.spec.key.as_doc().iter().map(|field| field.name).eq(names.iter().copied()),
        false => marula_db::index::spec::same_pattern(index.spec.key.as_doc(), key),
    });
    let Some(index) = found else { return Ok(None) };
    query.hint = Some(Hint::Name(index.spec.name.clone()));
    query.min = Some(min.to_buf());
    query.max = Some(max.to_buf());
    Ok(Some(query))
}

/// Requires the privilege to read the collection, which the command names with its database.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    if let Value::String(name) = request.first.value.get() {
        let ns = Namespace::parse(&name.to_string())?;
        check.needs_on(ns.db(), ns.collection(), &["find"]);
    }
    Ok(())
}
