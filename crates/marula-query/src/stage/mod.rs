//! Aggregation pipelines: parsed stages, and their execution document by document.
//!
//! A [`Pipeline`] is a list of [`Stage`]s, each parsed once by its row in [`STAGES`]. To run it,
//! each stage wraps the [`Source`] of the stage before it, and the first one the source of the
//! input: the last one is pulled, one document at a time, and pulls its input. Each stage writes
//! its computed documents into one buffer, which is reused. A pipeline can stop after any document,
//! so a cursor just holds its sources.
//!
//! Stages that use storage ($lookup, $merge, …) do so through the [`World`]. Start with [`source`],
//! then [`pipeline`].

pub mod pipeline;
pub mod source;
pub mod world;

mod add_fields;
mod asked;
mod bounded_sort;
mod bucket;
mod bucket_auto;
mod change_stream;
mod coll_stats;
mod count;
mod deep_path;
mod densify;
mod documents;
mod event_conditions;
mod facet;
mod fields;
mod fill;
mod geo_near;
mod granularity;
mod graph_lookup;
mod group;
mod inhibit_optimization;
mod join_table;
mod limit;
mod lookup;
pub mod map_reduce;
mod r#match;
mod merge;
mod near_measurements;
pub mod needs;
mod optimize;
mod out;
mod outer;
mod outline;
pub mod passage;
mod project;
mod redact;
mod replace_root;
mod report;
mod sample;
mod set_window_fields;
mod skip;
mod sort;
mod sort_by_count;
mod split_event;
mod unavailable;
mod union_with;
mod unpack_bucket;
mod unset;
mod unwind;

use std::fmt::Debug;
use std::sync::Arc;

use marula_bson::{Value, ValueBuf};
use marula_error::Result;

pub use asked::Asked;
pub use change_stream::{ChangeStream, Shows, Start};
pub use coll_stats::{CollectionStats, Histograms};
pub use event_conditions::EventConditions;
pub use geo_near::GeoNear;
pub use group::{FirstOfEach, Group};
pub use needs::Needed;
use needs::{Gives, Needs};
use passage::Passage;
pub use pipeline::{Parser, Pipeline};
pub use project::Project;
pub use report::{Report, SessionUsers};
pub use sort::Sort;
pub use source::{Source, Step};
pub use split_event::split_events;
pub use unpack_bucket::{LatestOfEach, UnpackBucket, over_buckets};
pub use unwind::Unwind;
pub use world::{Env, InsertStatement, JoinSide, Replacement, World};

use crate::context::Context;
use crate::feature_version::FeatureVersion;
use crate::filter::{Filter, Node};
use crate::sort::SortPattern;

/// A row of the table of stages that a user can name.
pub struct StageRow {
    /// The name with its dollar sign.
    pub name: &'static str,
    /// The first release that has the stage.
    pub since: FeatureVersion,
    /// The positions in a pipeline where the stage is valid.
    pub place: StagePlace,
    /// Parses the argument and adds one or more stages to the parser.
    pub parse: fn(Value<'_>, &mut Parser<'_>) -> Result<()>,
}

/// The positions in a pipeline where a stage is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StagePlace {
    /// Anywhere.
    Anywhere,
    /// At the front; the stage produces its own documents.
    First,
    /// At the end, and not inside `$facet` or `$lookup`; the stage writes.
    Last,
    /// Anywhere, but not inside `$facet`.
    OutsideFacet,
}

/// All stages.
pub static STAGES: &[&[StageRow]] = &[SINGLE, report::ROWS];

/// The stages that have their own file.
static SINGLE: &[StageRow] = &[
    add_fields::ADD_FIELDS,
    bucket::ROW,
    bucket_auto::ROW,
    change_stream::ROW,
    coll_stats::ROW,
    count::ROW,
    densify::ROW,
    documents::ROW,
    facet::ROW,
    fill::ROW,
    geo_near::ROW,
    graph_lookup::ROW,
    group::ROW,
    inhibit_optimization::ROW,
    limit::ROW,
    lookup::ROW,
    r#match::ROW,
    merge::ROW,
    out::ROW,
    project::ROW,
    redact::ROW,
    replace_root::REPLACE_ROOT,
    replace_root::REPLACE_WITH,
    sample::ROW,
    add_fields::SET,
    set_window_fields::ROW,
    skip::ROW,
    sort::ROW,
    sort_by_count::ROW,
    split_event::ROW,
    union_with::ROW,
    unpack_bucket::ROW,
    unset::ROW,
    unwind::ROW,
];

/// A parsed stage.
pub trait Stage: Debug + Send + Sync {
    /// Returns the name that `explain` shows.
    fn name(&self) -> &'static str;

    /// Returns the argument that `explain` shows.
    fn print(&self) -> ValueBuf;

    /// Computes the parts that need no document.
    fn optimize(&mut self, _context: &Context) -> Result<()> {
        Ok(())
    }

    /// Returns the kind of stage, by which the planner runs some stages itself.
    fn kind(&self) -> Kind<'_> {
        Kind::Other
    }

    /// Returns whether its documents come in the order of `pattern`.
    fn gives_order(&self, _pattern: &SortPattern) -> bool {
        false
    }

    /// Returns whether it preserves the order of `pattern` if its input has it, and works as well
    /// on input in that order.
    fn takes_order(&self, _pattern: &SortPattern) -> bool {
        false
    }

    /// Returns the stage that outputs at most the first `limit` of its documents; `None` if it
    /// outputs no more anyway, or if it cannot be limited.
    fn limited(&self, _limit: u64) -> Option<Arc<dyn Stage>> {
        None
    }

    /// Returns how conditions on the stage's output translate to its input.
    fn passage(&self) -> Passage {
        Passage::closed()
    }

    /// Returns whether it outputs exactly one document for each input document, so that documents
    /// can be skipped before it or after it.
    fn is_one_to_one(&self) -> bool {
        false
    }

    /// Records the fields of its input that the stage reads, and returns what its output is made
    /// of.
    fn reads(&self, _needs: &mut Needs) -> Gives {
        Gives::Unknown
    }

    /// Returns the stage combined with an `$unwind` after it, if that unwinds the array that the
    /// stage adds.
    fn unwound(self: Arc<Self>, _unwind: &Unwind) -> Option<Arc<dyn Stage>> {
        None
    }

    /// Returns the stage with those of the conditions after it that it can evaluate itself, and a
    /// `$match` of the others; `None` if it can evaluate none.
    fn taking_in(
        self: Arc<Self>,
        _conditions: &[Node],
        _context: &Context,
    ) -> Option<Vec<Arc<dyn Stage>>> {
        None
    }

    /// Returns the replacement of the stage for an input of only the first document of each value
    /// of a field; `None` if the stage reads more.
    fn first_of_each(self: Arc<Self>) -> Option<FirstOfEach> {
        None
    }

    /// Starts the stage on its input.
    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>>;
}

/// The kind of a stage for the planner.
pub enum Kind<'s> {
    /// `$changeStream`: its input is the events.
    ChangeStream(&'s ChangeStream),
    /// `$match`.
    Match(&'s Filter),
    /// `$sort`.
    Sort(&'s Sort),
    /// `$limit`.
    Limit(u64),
    /// `$skip`.
    Skip(u64),
    /// `$sample`.
    Sample(u64),
    /// `$project` or `$unset`.
    Project(&'s Project),
    /// `$unwind`.
    Unwind(&'s Unwind),
    /// `$group`.
    Group(&'s Group),
    /// The measurements of time-series buckets.
    Unpack(&'s UnpackBucket),
    /// A search by distance.
    GeoNear(&'s GeoNear),
    /// A stage that produces its own documents and reads no input.
    Origin,
    /// A stage whose input is the documents that the server writes for it.
    Report(&'s Report),
    /// A stage that writes.
    Writer,
    /// Any other.
    Other,
}

#[cfg(test)]
mod tests;
