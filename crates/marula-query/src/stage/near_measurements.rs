//! `$geoNear` on a time-series collection: on its buckets, or on the measurements themselves.
//!
//! A search by the meta value is one of the buckets, which have an index for it: measurements come
//! in the order of their buckets, and the stage adds its fields to the buckets. For any other field
//! the distance of each measurement is computed, and then they are sorted.
//!
//! Source: manual "`$geoNear` (aggregation)"; compared with mongod 6.0.

use std::f64::consts::PI;
use std::sync::Arc;

use marula_bson::{ByteSlice, Doc, DocBuf, FieldPath, ValueBuf};
use marula_error::{Result, errors};

use super::r#match::Match;
use super::{Env, GeoNear, Kind, Pipeline, Sort, Source, Stage, Step, UnpackBucket};
use crate::context::Context;
use crate::filter::{Filter, NearTest};
use crate::geo::{EARTH_RADIUS_METERS, Near};
use crate::sort::SortPattern;

errors! {
    no_key() = 5_892_921, "Must specify 'key' option for $geoNear on a time-series collection";
    has_query() = 1_938_439, "Must not specify 'query' for $geoNear on a time-series collection; use $match instead";
    not_parsed(reason: &str) = 6_330_900, "Unable to parse geoNear query: {reason}";
    no_locations() = 5_860_208, "$geoNear 'includeLocs' is not supported on time-series metrics";
}

/// Returns a pipeline on buckets with a `$geoNear` on their measurements as one that can be
/// executed; the same pipeline if there is none. Before the `$geoNear` there may be conditions on
/// the meta value, for mongod moves them to the buckets.
///
/// Errors: this module's rows; those of the point and the distances.
pub(super) fn near_measurements(pipeline: Pipeline, context: &Context) -> Result<Pipeline> {
    let stages = pipeline.stages();
    let Some(found) = Found::of(stages) else { return Ok(pipeline) };
    let whole = found
        .rewritten(stages, context)
        .map_err(|error| error.caused_by("Failed to optimize pipeline"))?;
    Ok(Pipeline::from_stages(whole).asking(pipeline.asked()).rearranged(context))
}

/// A `$geoNear` on measurements, and the stage that makes them of buckets, with their places.
struct Found<'p> {
    unpack: &'p UnpackBucket,
    unpacked: usize,
    search: &'p GeoNear,
    at: usize,
}

impl<'p> Found<'p> {
    fn of(stages: &'p [Arc<dyn Stage>]) -> Option<Self> {
        let (at, search) = stages.iter().enumerate().find_map(|(at, it)| match it.kind() {
            Kind::GeoNear(search) if search.is_constant() => Some((at, search)),
            _ => None,
        })?;
        let is_match = |stage: &Arc<dyn Stage>| matches!(stage.kind(), Kind::Match(_));
        let unpacked = stages[..at].iter().rposition(|stage| !is_match(stage))?;
        let Kind::Unpack(unpack) = stages[unpacked].kind() else { return None };
        let is_on_meta = |stage: &Arc<dyn Stage>| match stage.kind() {
            Kind::Match(filter) => unpack.tests_meta_only(filter),
            _ => false,
        };
        let is_found = stages[unpacked + 1..at].iter().all(is_on_meta);
        is_found.then_some(Found { unpack, unpacked, search, at })
    }

    /// Returns the stages with what can be executed in the place of the search.
    fn rewritten(
        &self,
        stages: &[Arc<dyn Stage>],
        context: &Context,
    ) -> Result<Vec<Arc<dyn Stage>>> {
        let Found { unpack, unpacked, search, at } = *self;
        let path = search.key().ok_or_else(no_key)?;
        if search.has_query() {
            return Err(has_query());
        }
        let mut whole = stages.to_vec();
        if let Some(key) = unpack.meta_path(path) {
            // After conditions it stays where it is, and fails as one that is not the first stage.
            if at == unpacked + 1 {
                whole[at] = stages[unpacked].clone();
                whole[unpacked] = Arc::new(search.with_key(key));
            }
            return Ok(whole);
        }
        if search.has_locations() {
            return Err(no_locations());
        }
        let filter = search.filter(path, context).map_err(|error| not_parsed(error.message()))?;
        let test = filter.near().map(|(_, test)| test.clone());
        let around = test.as_ref().and_then(|test| around(path, &test.near));
        let distances = Distances { path: path.clone(), test, search: search.clone() };
        let by_distance = DocBuf::build(|out| {
            out.append(search.distance_field().text().as_bstr(), 1);
        });
        let pattern = SortPattern::parse(by_distance.as_doc(), context)?;
        whole[at] = Arc::new(distances);
        whole.insert(at + 1, Arc::new(Sort::new(pattern, by_distance)));
        if let Some(around) = around {
            let filter = Filter::parse(around.as_doc(), context)?;
            whole.insert(at, Arc::new(Match::new(filter)));
        }
        Ok(whole)
    }
}

/// Returns a condition that the places within the maximum distance meet, for an index of the places
/// in buckets; `None` if there is no maximum on the globe.
fn around(path: &FieldPath, near: &Near) -> Option<DocBuf> {
    // The distance is computed in another way than the condition.
    const MARGIN_RADIANS: f64 = 1e-9;
    let radius = near.in_metres(near.max) / EARTH_RADIUS_METERS + MARGIN_RADIANS;
    if near.is_planar() || radius.is_nan() || radius >= PI {
        return None;
    }
    Some(DocBuf::build(|out| {
        let mut operators = out.begin_doc(path.to_string());
        let mut within = operators.begin_doc("$geoWithin");
        let mut circle = within.begin_array("$centerSphere");
        circle.begin_array().push(near.point.x).push(near.point.y);
        circle.push(radius);
    }))
}

/// Adds its distance to each document that has one within the limits, and drops the others.
#[derive(Debug)]
struct Distances {
    path: FieldPath,
    /// The search; none if no document can match.
    test: Option<NearTest>,
    /// The `$geoNear` that it belongs to.
    search: GeoNear,
}

impl Stage for Distances {
    fn name(&self) -> &'static str {
        "$_internalComputeGeoNearDistance"
    }

    fn print(&self) -> ValueBuf {
        self.search.print()
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, _: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Measuring { input, stage: self, out: Vec::new() }))
    }
}

struct Measuring {
    input: Box<dyn Source>,
    stage: Arc<Distances>,
    out: Vec<u8>,
}

impl Source for Measuring {
    fn pull(&mut self) -> Result<Step> {
        loop {
            match self.input.advance()? {
                Step::Document => {}
                step => return Ok(step),
            }
            let (doc, Distances { path, test, search }) = (self.input.doc(), &*self.stage);
            let Some(test) = test else { continue };
            let found = test.measure(path, doc).filter(|(distance, _)| test.near.admits(*distance));
            if let Some((distance, place)) = found {
                self.out.clear();
                search.write(doc, distance, place, &mut self.out)?;
                return Ok(Step::Document);
            }
        }
    }

    fn doc(&self) -> Doc<'_> {
        Doc::trusted(&self.out)
    }
}
