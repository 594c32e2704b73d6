//! The positions of stages once views are resolved: a pipeline on a view follows the view's stages,
//! so that a stage that must be the first is misplaced at its front.
//!
//! Source: compared with mongod 6.0.

use std::collections::HashSet;

use marula_bson::{ByteSlice, Doc, DocBuf};
use marula_db::{Db, Namespace};
use marula_error::Result;
use marula_query::feature_version::FeatureVersion;
use marula_query::stage::pipeline::Pipeline;

use super::{Resolved, joined, resolve};
use crate::aggregate::first_name;

/// Checks an operation's pipeline, which is valid by itself, on a namespace.
///
/// Errors: those of [`Pipeline::check_following`].
pub(super) fn check(
    db: &Db,
    on: &Resolved,
    pipeline: Doc<'_>,
    version: FeatureVersion,
) -> Result<()> {
    let mut positions = Positions { db, version, known: HashSet::new() };
    positions.check_views(on)?;
    positions.check_after(on.ns.db(), before(on, on.pipelines.len(), pipeline), pipeline)
}

/// Returns the pipelines of the first `count` views that come before a pipeline on the last of
/// them, unless it is inside a stage.
fn before<'v>(on: &'v Resolved, count: usize, pipeline: Doc<'_>) -> &'v [DocBuf] {
    match first_name(pipeline).as_bytes() {
        // They are about the view itself.
        b"$collStats" | b"$changeStream" => &[],
        // The indexes of buckets are shown as those of the measurements.
        b"$indexStats" if count > 0 => &on.pipelines[usize::from(on.unpacks)..count],
        _ => &on.pipelines[..count],
    }
}

struct Positions<'d> {
    db: &'d Db,
    version: FeatureVersion,
    /// The joined views that have been checked. Views that join others twice, and these yet
    /// others, would take long otherwise.
    known: HashSet<String>,
}

impl Positions<'_> {
    /// Checks the pipelines of views.
    fn check_views(&mut self, on: &Resolved) -> Result<()> {
        on.pipelines.iter().map(DocBuf::as_doc).enumerate().try_for_each(|(at, stages)| {
            self.check_after(on.ns.db(), before(on, at, stages), stages)
        })
    }

    /// Checks a pipeline that follows those of some views.
    fn check_after(&mut self, database: &str, views: &[DocBuf], pipeline: Doc<'_>) -> Result<()> {
        if views.iter().any(|stages| !stages.as_doc().is_empty()) {
            Pipeline::check_following(pipeline, self.version)?;
        }
        for (name, stages) in joined(pipeline) {
            let Ok(ns) = Namespace::new(database, &name) else { continue };
            let on = resolve(self.db, ns)?;
            if !on.pipelines.is_empty() && self.known.insert(name) {
                self.check_views(&on)?;
            }
            self.check_after(database, &on.pipelines, stages)?;
        }
        Ok(())
    }
}
