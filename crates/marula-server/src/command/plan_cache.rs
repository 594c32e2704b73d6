//! `planCacheClear`, `planCacheListFilters`, `planCacheSetFilter`, `planCacheClearFilters`.
//!
//! They identify queries by their shape: a `query` with the `sort`, `projection` and `collation` of
//! one such query.
//! Source: manual "Query Plan Cache Commands"; errors recorded from mongod 6.0.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, DocWriter, Value};
use marula_db::Collection;
use marula_db::index_filter::AllowedIndexes;
use marula_error::{Result, errors};
use marula_operation::targets;
use marula_operation::{args, find};
use marula_plan::cache;
use marula_plan::shape::query_shape;
use marula_plan::{Shown, Wording, planner};

use super::{Auth, Command, Named, OnSecondary, Outcome};
use crate::context::Context;
use crate::request::Request;

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
    collation_empty() = BadValue, "optional field collation cannot be an empty object";
}

const WRITE: Auth = Auth::Collection(&["planCacheIndexFilter"]);

pub(super) static CLEAR: Command = Command {
    name: "planCacheClear",
    help: "Removes the plan cache entries of a collection, or of one query shape.",
    named: Named::OLD_BY_NAME,
    secondary: Some(OnSecondary::IfPreferred),
    auth: Auth::Collection(&["planCacheWrite"]),
    run: clear_plans,
    ..Command::DEFAULT
};

pub(super) static LIST_FILTERS: Command = Command {
    name: "planCacheListFilters",
    help: "Lists the index filters of a collection.",
    named: Named::OLD_BY_NAME,
    secondary: Some(OnSecondary::IfPreferred),
    auth: WRITE,
    run: list_filters,
    ..Command::DEFAULT
};

pub(super) static SET_FILTER: Command = Command {
    name: "planCacheSetFilter",
    help: "Sets the indexes that queries of one shape may use.",
    named: Named::OLD_BY_NAME,
    secondary: Some(OnSecondary::IfPreferred),
    auth: WRITE,
    run: set_filter,
    ..Command::DEFAULT
};

pub(super) static CLEAR_FILTERS: Command = Command {
    name: "planCacheClearFilters",
    help: "Removes the index filters of a collection, or of one query shape.",
    named: Named::OLD_BY_NAME,
    secondary: Some(OnSecondary::IfPreferred),
    auth: WRITE,
    run: clear_filters,
    ..Command::DEFAULT
};

fn clear_plans(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    if let Some(collection) = collection(ctx, request)? {
        let shape = named_shape(ctx, request, &collection)?;
        collection.plans().clear(shape.map(|(shape, _)| shape));
    }
    Ok(Outcome::Done)
}

fn clear_filters(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    if let Some(collection) = collection(ctx, request)? {
        let shape = named_shape(ctx, request, &collection)?.map(|(shape, _)| shape);
        let cache = collection.plans();
        cache.filters.clear(shape);
        // Plans that were chosen with the filter are chosen again.
        cache.clear(shape);
    }
    Ok(Outcome::Done)
}

fn list_filters(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let collection = collection(ctx, request)?;
    let mut filters = reply.begin_array("filters");
    if let Some(collection) = collection {
        for filter in collection.plans().filters.list() {
            filters.push(&filter);
        }
    }
    filters.finish();
    Ok(Outcome::Done)
}

fn set_filter(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let collection = collection(ctx, request)?.ok_or_else(no_collection)?;
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
    if request.given("query").is_none() {
        return Err(query_missing());
    }
    if let Some((shape, asked)) = named_shape(ctx, request, &collection)? {
        let cache = collection.plans();
        cache.filters.set(shape, asked, AllowedIndexes::new(indexes));
        cache.clear(Some(shape));
    }
    Ok(Outcome::Done)
}

/// Returns the collection if it exists.
///
/// Errors: the collection is a view.
fn collection(ctx: &Context<'_>, request: &Request<'_>) -> Result<Option<Arc<Collection>>> {
    let collection = ctx.server.db.collection(&request.namespace()?);
    collection.as_deref().map_or(Ok(()), targets::check_not_view)?;
    Ok(collection)
}

/// Returns the shape that `query`, `sort`, `projection` and `collation` identify, and the
/// description of the query; `None` if there is no `query`.
fn named_shape(
    ctx: &Context<'_>,
    request: &Request<'_>,
    collection: &Collection,
) -> Result<Option<(u64, DocBuf)>> {
    const OPTIONAL: [&str; 3] = ["sort", "projection", "collation"];
    // As in mongod, an array is accepted as a document, and null means absent.
    let doc = |name: &str| match request.given(name) {
        None => Ok(None),
        Some(Value::Document(doc) | Value::Array(doc)) => Ok(Some(doc)),
        Some(_) => Err(optional_type(name)),
    };
    let filter = match request.given("query") {
        Some(Value::Document(filter) | Value::Array(filter)) => filter,
        Some(_) => return Err(query_type()),
        None if OPTIONAL.iter().any(|field| request.given(field).is_some()) => {
            return Err(no_query());
        }
        None => return Ok(None),
    };
    let sort = doc("sort")?.unwrap_or(Doc::EMPTY);
    let projection = doc("projection")?.unwrap_or(Doc::EMPTY);
    let collation = doc("collation")?;
    if collation.is_some_and(Doc::is_empty) {
        return Err(collation_empty());
    }
    let collation = collation.map(Value::Document);
    let context = ctx
        .env()
        .context(Some(collection), collation, None)
        .map_err(|error| error.caused_by("unable to parse collation"))?;
    let mut query = args::parse_query(filter, context)?;
    query.filter.add_index_conditions(&query.context);
    planner::prepare_search(&collection.state(), &query)?;
    if let Some(parsed) = find::parse_projection(projection, filter, &query.context)? {
        query.shown = Some(Shown::of(&parsed, projection));
    }
    args::apply_sort(&mut query, sort)?;
    let wording = Wording {
        filter: Some(filter),
        sort: Some(sort),
        projection: Some(projection),
        ..Wording::default()
    };
    Ok(Some((query_shape(&query), cache::query_document(&query, &wording))))
}
