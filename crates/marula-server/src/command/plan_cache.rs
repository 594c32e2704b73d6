//! `planCacheClear`, `planCacheListFilters`, `planCacheSetFilter`, `planCacheClearFilters`.
//!
//! Which plan has won a trial is remembered by the shape of the query; clearing forgets that for the whole collection,
//! whichever shape was named, since it is cheap to find out again. There are no index filters to list, and none can be
//! set: a query's `hint` says what one would.
//! Source: manual "Query Plan Cache Commands"; errors recorded from mongod 6.0.

use marula_bson::{DocWriter, Type, Value};
use marula_error::{Result, errors};
use marula_plan::choice::PlanCache;
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;

use super::{Auth, Command, Outcome};
use crate::context::Context;
use crate::request::Request;
use crate::writes;

errors! {
    query_type() = BadValue, "required field query must be an object";
    optional_type(field: &str) = BadValue, "optional field {field} must be an object";
    no_query() = BadValue, "sort, projection, or collation provided without query";
    query_missing() = BadValue, "required field query missing";
    indexes_missing() = BadValue, "required field indexes missing";
    indexes_type() = BadValue, "required field indexes must be an array";
    indexes_empty() = BadValue, "required field indexes must contain at least one index";
    index_type() = BadValue, "each item in indexes must be an object or string";
    index_empty() = BadValue, "index specification cannot be empty";
    no_collection() = BadValue, "no such collection";
    no_filters() = CommandNotSupported, "index filters are not available on this server; give the query a hint";
}

const WRITE: Auth = Auth::Collection(&["planCacheIndexFilter"]);

pub(super) static CLEAR: Command = Command {
    name: "planCacheClear",
    help: "Forgets which plans have been chosen for a collection.",
    auth: Auth::Collection(&["planCacheWrite"]),
    run: clear_plans,
    ..Command::DEFAULT
};

pub(super) static LIST_FILTERS: Command = Command {
    name: "planCacheListFilters",
    help: "Lists the index filters of a collection; there are none.",
    auth: WRITE,
    run: list_filters,
    ..Command::DEFAULT
};

pub(super) static SET_FILTER: Command = Command {
    name: "planCacheSetFilter",
    help: "Would choose the indexes for a kind of query; this server takes a hint instead.",
    auth: WRITE,
    run: set_filter,
    ..Command::DEFAULT
};

pub(super) static CLEAR_FILTERS: Command = Command {
    name: "planCacheClearFilters",
    help: "Removes the index filters of a collection; there are none.",
    auth: WRITE,
    run: clear,
    ..Command::DEFAULT
};

fn clear_plans(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    check_not_view(ctx, request)?;
    check_shape(request)?;
    if let Some(collection) = ctx.server.db.collection(&request.namespace()?) {
        PlanCache::of(&collection).clear();
    }
    Ok(Outcome::Done)
}

fn clear(ctx: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    check_not_view(ctx, request)?;
    check_shape(request)?;
    Ok(Outcome::Done)
}

fn list_filters(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    check_not_view(ctx, request)?;
    reply.begin_array("filters").finish();
    Ok(Outcome::Done)
}

fn set_filter(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let is_there = check_not_view(ctx, request)?;
    if !is_there {
        return Err(no_collection());
    }
    let indexes = match request.arg("indexes") {
        None => return Err(indexes_missing()),
        Some(Value::Array(indexes)) => indexes,
        Some(_) => return Err(indexes_type()),
    };
    if indexes.is_empty() {
        return Err(indexes_empty());
    }
    for index in indexes.values() {
        match index {
            Value::String(_) => {}
            Value::Document(key) if key.is_empty() => return Err(index_empty()),
            Value::Document(_) => {}
            _ => return Err(index_type()),
        }
    }
    if request.arg("query").is_none() {
        return Err(query_missing());
    }
    check_shape(request)?;
    Err(no_filters())
}

/// Answers whether the collection is there.
fn check_not_view(ctx: &Context<'_>, request: &Request<'_>) -> Result<bool> {
    let collection = ctx.server.db.collection(&request.namespace()?);
    collection.as_deref().map_or(Ok(()), writes::check_not_view)?;
    Ok(collection.is_some())
}

/// Checks what names a kind of query: `query`, `sort`, `projection` and `collation`.
fn check_shape(request: &Request<'_>) -> Result<()> {
    const OPTIONAL: [&str; 3] = ["sort", "projection", "collation"];
    let Some(query) = request.arg("query") else {
        return match OPTIONAL.iter().any(|field| request.arg(field).is_some()) {
            true => Err(no_query()),
            false => Ok(()),
        };
    };
    let Value::Document(query) = query else { return Err(query_type()) };
    for field in OPTIONAL {
        if request.arg(field).is_some_and(|value| value.kind() != Type::Document) {
            return Err(optional_type(field));
        }
    }
    Filter::parse(query, &QueryContext::default()).map(|_| ())
}
