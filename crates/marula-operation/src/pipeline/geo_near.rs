//! `$geoNear` at the front of a pipeline: the index that it searches, and the documents that it
//! returns.

use std::sync::Arc;

use marula_bson::{Doc, FieldPath, Value, ValueBuf};
use marula_db::Namespace;
use marula_db::collection::State;
use marula_error::{Result, errors};
use marula_plan::Query;
use marula_query::context::Context;
use marula_query::filter::NearTest;
use marula_query::stage::{GeoNear, Kind, Pipeline, Stage};

errors! {
    no_collection(ns: &Namespace) = NamespaceNotFound, "$geoNear requires a geo index to run, but {ns} does not exist";
    no_index() = IndexNotFound, "$geoNear requires a 2d or 2dsphere index, but none were found";
    many_indexes(kind: &str, ns: &Namespace) = IndexNotFound, "There is more than one {kind} index on {ns}; unsure which to use for $geoNear";
}

/// A `$geoNear` that the planner executes.
pub struct Search {
    stage: Arc<dyn Stage>,
    path: FieldPath,
    /// The search; none if no document can match.
    test: Option<NearTest>,
}

impl Search {
    /// Writes a found document with the fields that the stage adds. Returns its distance, without
    /// the multiplier, and its location.
    pub(super) fn write(&self, doc: Doc<'_>, out: &mut Vec<u8>) -> Result<Option<(f64, ValueBuf)>> {
        let found = self.test.as_ref().and_then(|test| test.measure(&self.path, doc));
        match (found, self.stage.kind()) {
            (Some((distance, place)), Kind::GeoNear(stage)) => {
                stage.write(doc, distance, place, out)?;
                Ok(Some((distance, place.get().to_buf())))
            }
            // A found document has a location; one that a write has removed since is returned
            // unchanged.
            _ => {
                out.extend_from_slice(doc.as_bytes());
                Ok(None)
            }
        }
    }
}

/// Returns the query of a pipeline that starts with `$geoNear`, and the rest of the pipeline;
/// `None` for other pipelines.
///
/// Errors: `no_collection`, `no_index`, `many_indexes`, and those of the stage's filter.
pub(crate) fn take(
    state: Option<&State>,
    ns: &Namespace,
    pipeline: &Pipeline,
    context: &Context,
) -> Result<Option<(Query, Search, Pipeline)>> {
    let Some((stage, rest)) = pipeline.stages().split_first() else { return Ok(None) };
    let Kind::GeoNear(search) = stage.kind() else { return Ok(None) };
    let state = state.ok_or_else(|| no_collection(ns))?;
    if state.options.view.is_some() {
        // The collection under the view is searched.
        return Ok(None);
    }
    let path = searched(search, state, ns)?;
    let filter = search.filter(&path, context)?;
    let test = filter.near().map(|(_, test)| test.clone());
    let query = Query::new(filter, context.clone());
    let rest = Pipeline::from_stages(rest.to_vec()).asking(pipeline.asked());
    Ok(Some((query, Search { stage: stage.clone(), path, test }, rest)))
}

/// Moves `$skip` and `$limit` at the front of the rest of the pipeline into the query.
pub(super) fn push_down(query: &mut Query, rest: Pipeline) -> Pipeline {
    let mut taken = 0;
    for stage in rest.stages() {
        match stage.kind() {
            Kind::Skip(count) if query.limit.is_none() => {
                query.skip = query.skip.saturating_add(count);
            }
            Kind::Limit(count) => {
                query.limit = Some(query.limit.unwrap_or(u64::MAX).min(count));
            }
            _ => break,
        }
        taken += 1;
    }
    rest.split_at(taken).1
}

/// Returns the field to search: the one that the stage names, or that of the only index on
/// locations.
fn searched(search: &GeoNear, state: &State, ns: &Namespace) -> Result<FieldPath> {
    if let Some(key) = search.key() {
        return Ok(key.clone());
    }
    for kind in ["2d", "2dsphere"] {
        let mut paths = state.indexes.iter().filter_map(|index| {
            let mut parts = index.spec.parts.iter().zip(index.spec.key.as_doc().values());
            parts
                .find(|(_, named)| *named == Value::String(kind.into()))
                .map(|(part, _)| part.path.clone())
        });
        let Some(path) = paths.next() else { continue };
        if paths.next().is_some() {
            return Err(many_indexes(kind, ns));
        }
        return Ok(path);
    }
    Err(no_index())
}
