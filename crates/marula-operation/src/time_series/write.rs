//! Updates and deletes of measurements: whole buckets, by their meta value. Since 7.0 a delete may
//! name any field.
//!
//! A statement is checked as mongod checks it, rewritten to one on the buckets, and executed there;
//! the measurements of the buckets are counted.
//!
//! Source: manual "Time Series Collection Limitations"; errors recorded from mongod 6.0.

use std::ops::ControlFlow;
use std::sync::Arc;

use marula_bson::{ByteSlice, Doc, DocBuf, Element, Value, long};
use marula_db::time_series::{TimeSeries, bucket};
use marula_db::write::Written;
use marula_db::{Collection, WriteOp};
use marula_error::{Result, errors};
use marula_plan::{Execution, Query, Wording};
use marula_query::context::Context as QueryContext;
use marula_query::feature_version::FeatureVersion;
use marula_query::filter::Filter;
use marula_query::update::{Update, UpdateOptions};

use super::index::{key_of_buckets, meta_path};
use super::measurements;
use crate::args;
use crate::candidates::{self, for_each_record};
use crate::delete::DeleteOp;
use crate::env::Env;
use crate::update::{UpdateOp, Updated, change_if_matching};

errors! {
    not_multi() = InvalidOptions, "Cannot perform a non-multi update on a time-series collection";
    upsert() = InvalidOptions, "Cannot perform an upsert on a time-series collection";
    update_without_meta() = InvalidOptions, "Cannot perform an update on a time-series collection that does not have a metaField";
    pipeline() = InvalidOptions, "Cannot perform an update on a time-series collection using a pipeline update";
    replacement() = InvalidOptions, "Cannot perform an update on a time-series collection using a replacement document";
    not_meta_updated(meta: &str) = InvalidOptions, "Cannot perform an update on a time-series collection which updates a field that is not the metaField '{meta}'";
    not_meta_queried(meta: &str) = InvalidOptions, "Cannot perform an update or delete on a time-series collection when querying on a field that is not the metaField '{meta}'";
    not_usable(operator: &str) = InvalidOptions, "Cannot use {operator} when performing an update or delete on a time-series collection";
    delete_one() = IllegalOperation, "Cannot perform a non-multi delete on a time-series collection";
    delete_without_meta() = InvalidOptions, "Cannot perform a delete with a non-empty query on a time-series collection that does not have a metaField";
}

/// Executes an update statement; returns the number of measurements that it matched and changed.
pub(crate) fn update(
    env: &Env<'_>,
    buckets: &Arc<Collection>,
    statement: &UpdateOp<'_>,
    op: &mut WriteOp<'_>,
) -> Result<Updated> {
    let state = buckets.state();
    let options = state.options.time_series.as_ref().expect("the collection is one of buckets");
    let meta = options.meta_field.as_deref().ok_or_else(update_without_meta)?;
    if !statement.multi {
        return Err(not_multi());
    }
    if statement.upsert {
        return Err(upsert());
    }
    let query = query_of_buckets(options, statement.query)?;
    let modifiers = match statement.update {
        Value::Array(_) => return Err(pipeline()),
        Value::Document(doc)
            if doc.iter().next().is_some_and(|first| first.name.starts_with(b"$")) =>
        {
            doc
        }
        _ => return Err(replacement()),
    };
    let modifiers = modifiers_of_buckets(options, meta, modifiers)?;
    let context = env.context(Some(buckets), statement.collation, statement.let_variables)?;
    let update_options = UpdateOptions {
        array_filters: statement.array_filters,
        constants: statement.constants,
        multi: true,
        ..UpdateOptions::default()
    };
    let update = Update::parse(Value::Document(modifiers.as_doc()), &update_options, &context)?;
    let filter = Filter::parse(query.as_doc(), &context)?;
    let mut execution = execution_of(env, buckets, &filter, statement.hint, &context)?;
    execution.give_once();
    let mut updated = Updated::default();
    for_each_record(env, &mut execution, |record| {
        let mut measurements = 0;
        let unit = op.unit;
        let mut change = |doc: Doc<'_>, out: &mut Vec<u8>| {
            measurements = long(bucket::count(options, doc));
            change_if_matching(unit, &filter, &update, &context, doc, out)
        };
        match op.update(buckets, record, &mut change, None)? {
            Written::Skipped => {}
            written => {
                updated.matched += measurements;
                if written == Written::Changed {
                    updated.modified += measurements;
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(updated)
}

/// Executes a delete statement; returns the number of removed measurements.
pub(crate) fn delete(
    env: &Env<'_>,
    buckets: &Arc<Collection>,
    statement: &DeleteOp<'_>,
    op: &mut WriteOp<'_>,
) -> Result<i64> {
    let state = buckets.state();
    let options = state.options.time_series.as_ref().expect("the collection is one of buckets");
    let query = match of_whole_buckets(options, statement) {
        Err(_) if env.unit.db().feature_version() >= FeatureVersion::V7_0 => {
            return measurements::delete(env, buckets, statement, op);
        }
        query => query?,
    };
    let context = env.context(Some(buckets), statement.collation, statement.let_variables)?;
    let filter = Filter::parse(query.as_doc(), &context)?;
    let mut execution = execution_of(env, buckets, &filter, statement.hint, &context)?;
    let mut deleted = 0;
    for_each_record(env, &mut execution, |record| {
        let mut measurements = 0;
        let mut is_wanted = |doc: Doc<'_>| {
            measurements = long(bucket::count(options, doc));
            filter.matches(doc)
        };
        if op.delete(buckets, record, &mut is_wanted, None)? {
            deleted += measurements;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(deleted)
}

/// Returns the condition on buckets of a delete of whole buckets.
///
/// Errors: those of a statement that is not on whole buckets.
fn of_whole_buckets(options: &TimeSeries, statement: &DeleteOp<'_>) -> Result<DocBuf> {
    if options.meta_field.is_none() && !statement.query.is_empty() {
        return Err(delete_without_meta());
    }
    if !statement.multi {
        return Err(delete_one());
    }
    query_of_buckets(options, statement.query)
}

/// Returns the execution that finds the buckets of a statement.
pub(super) fn execution_of(
    env: &Env<'_>,
    buckets: &Arc<Collection>,
    filter: &Filter,
    hint: Option<Value<'_>>,
    context: &QueryContext,
) -> Result<Execution> {
    let state = buckets.state();
    let options = state.options.time_series.as_ref().expect("the collection is one of buckets");
    let mut query = Query::new(filter.clone(), context.clone());
    query.hint = hint_of_buckets(options, hint)?;
    candidates::choose(env, buckets, query, &Wording::default(), true)
}

/// Reads a hint; a key pattern becomes that of the buckets' index.
pub fn hint_of_buckets(
    options: &TimeSeries,
    hint: Option<Value<'_>>,
) -> Result<Option<marula_plan::Hint>> {
    match args::parse_hint(hint)? {
        Some(marula_plan::Hint::Key(key)) => {
            Ok(Some(marula_plan::Hint::Key(key_of_buckets(options, key.as_doc()).unwrap_or(key))))
        }
        other => Ok(other),
    }
}

/// Rewrites a filter on the meta field to one on buckets.
fn query_of_buckets(options: &TimeSeries, query: Doc<'_>) -> Result<DocBuf> {
    let refused = || not_meta_queried(options.meta_field.as_deref().unwrap_or_default());
    let mut out = DocBuf::new();
    for Element { name, value } in query {
        match (&**name, value.get()) {
            (b"$expr" | b"$where", _) => return Err(not_usable(&name.to_string())),
            (b"$and" | b"$or" | b"$nor", Value::Array(branches)) => {
                let mut array = DocBuf::new();
                for branch in branches {
                    match branch.value.get() {
                        Value::Document(inner) => {
                            array.push(branch.name, query_of_buckets(options, inner)?.as_doc());
                        }
                        other => array.push(branch.name, other),
                    }
                }
                out.push(name, Value::Array(array.as_doc()));
            }
            (b"$jsonSchema", Value::Document(schema)) => {
                out.push(name, schema_of_buckets(options, schema, &refused)?.as_doc());
            }
            // Other operators have no fields, or are refused when the filter is parsed.
            (operator, value) if operator.starts_with(b"$") => {
                check_usable(value)?;
                out.push(name, value);
            }
            (_, value) => {
                let path = meta_path(options, &name.to_str_lossy()).ok_or_else(refused)?;
                check_usable(value)?;
                if !names_only_meta(options, value) {
                    return Err(refused());
                }
                out.push(path, value);
            }
        }
    }
    Ok(out)
}

/// Checks that no field within a value has the name of an operator that computes, whatever it is
/// there.
///
/// Errors: `not_usable`.
fn check_usable(value: Value<'_>) -> Result<()> {
    let (Value::Document(inner) | Value::Array(inner)) = value else { return Ok(()) };
    inner.iter().try_for_each(|field| match &**field.name {
        b"$expr" | b"$where" => Err(not_usable(&field.name.to_string())),
        _ => check_usable(field.value.get()),
    })
}

/// Returns whether documents in arrays of a value have no field but the meta field: mongod treats
/// them as queries and refuses others.
fn names_only_meta(options: &TimeSeries, value: Value<'_>) -> bool {
    match value {
        Value::Document(fields) => fields.values().all(|value| names_only_meta(options, value)),
        Value::Array(items) => items.values().all(|item| {
            let is_named = |field: Element<'_>| {
                field.name.starts_with(b"$")
                    || meta_path(options, &field.name.to_str_lossy()).is_some()
            };
            item.as_doc().is_none_or(|doc| doc.iter().all(is_named))
                && names_only_meta(options, item)
        }),
        _ => true,
    }
}

fn schema_of_buckets(
    options: &TimeSeries,
    schema: Doc<'_>,
    refused: &dyn Fn() -> marula_error::Error,
) -> Result<DocBuf> {
    let path = |name: &[u8]| meta_path(options, &name.to_str_lossy()).ok_or_else(refused);
    let mut out = DocBuf::new();
    for Element { name, value } in schema {
        match (&**name, value.get()) {
            (b"properties", Value::Document(properties)) => {
                let mut renamed = DocBuf::new();
                for property in properties {
                    renamed.push(path(property.name)?, property.value.get());
                }
                out.push(name, renamed.as_doc());
            }
            (b"required", Value::Array(fields)) => {
                let mut renamed = DocBuf::new();
                for field in fields {
                    match field.value.get() {
                        Value::String(text) => renamed.push(field.name, path(text)?.as_str()),
                        other => renamed.push(field.name, other),
                    }
                }
                out.push(name, Value::Array(renamed.as_doc()));
            }
            (_, value) => out.push(name, value),
        }
    }
    Ok(out)
}

/// Rewrites update operators on the meta field to operators on buckets.
fn modifiers_of_buckets(options: &TimeSeries, meta: &str, modifiers: Doc<'_>) -> Result<DocBuf> {
    let path = |name: &[u8]| {
        meta_path(options, &name.to_str_lossy()).ok_or_else(|| not_meta_updated(meta))
    };
    let mut out = DocBuf::new();
    for Element { name, value } in modifiers {
        let Value::Document(fields) = value.get() else {
            out.push(name, value.get());
            continue;
        };
        let mut renamed = DocBuf::new();
        for field in fields {
            match field.value.get() {
                Value::String(to) if name == "$rename" => {
                    renamed.push(path(field.name)?, path(to)?.as_str());
                }
                value => renamed.push(path(field.name)?, value),
            }
        }
        out.push(name, renamed.as_doc());
    }
    Ok(out)
}
