//! Aggregation pipelines: parsed stages, and their execution document by document.
//!
//! A [`Pipeline`] is a list of [`Stage`]s, each parsed once by its row in [`STAGES`]. Running it
//! stacks one [`Source`] per stage upon the source of the input: the last one is pulled, one
//! document at a time, and pulls the one below. What is computed is written into one buffer per
//! stage that is used again for the next document. A pipeline can stop after any document, so a
//! cursor just keeps its sources.
//!
//! What touches storage ($lookup, $merge, …) asks the [`World`]. Start with [`source`], then
//! [`pipeline`].

pub mod pipeline;
pub mod source;
pub mod world;

mod add_fields;
mod bucket;
mod bucket_auto;
mod change_stream;
mod coll_stats;
mod count;
mod densify;
mod documents;
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
mod union_with;
mod unpack_bucket;
mod unset;
mod unwind;

use std::fmt::Debug;
use std::sync::Arc;

use marula_bson::{Value, ValueBuf};
use marula_error::Result;

pub use change_stream::{ChangeStream, Shows, Start};
pub use coll_stats::{CollectionStats, Histograms};
pub use geo_near::GeoNear;
pub use group::FirstOfEach;
pub use needs::Needed;
use needs::{Gives, Needs};
use passage::Passage;
pub use pipeline::{Parser, Pipeline};
pub use project::Project;
pub use report::Report;
pub use sort::Sort;
pub use source::{Source, Step};
pub use split_event::split_events;
pub use unpack_bucket::UnpackBucket;
pub use unwind::Unwind;
pub use world::{Env, JoinSide, Replacement, World};

use crate::context::Context;
use crate::feature_version::FeatureVersion;
use crate::filter::{Filter, Node};
use crate::sort::SortPattern;

/// A stage that a user can name: its row.
pub struct Row {
    /// The name with its dollar sign.
    pub name: &'static str,
    /// The release that has it first.
    pub since: FeatureVersion,
    /// Where in a pipeline the stage may stand.
    pub place: Place,
    /// Parses the argument and hands one stage or several to the parser.
    pub parse: fn(Value<'_>, &mut Parser<'_>) -> Result<()>,
}

/// Where in a pipeline a stage may stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Anywhere.
    Anywhere,
    /// At the front; the stage makes its own documents.
    First,
    /// At the end, and not inside `$facet` or `$lookup`; the stage writes.
    Last,
    /// Anywhere, but not inside `$facet`.
    OutsideFacet,
}

/// Every stage.
pub static STAGES: &[&[Row]] = &[SINGLE, report::ROWS];

/// The stages that have a file of their own.
static SINGLE: &[Row] = &[
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
    /// The name that `explain` shows.
    fn name(&self) -> &'static str;

    /// The argument that `explain` shows.
    fn print(&self) -> ValueBuf;

    /// Computes what needs no document.
    fn optimize(&mut self, _context: &Context) -> Result<()> {
        Ok(())
    }

    /// What the planner may take over.
    fn kind(&self) -> Kind<'_> {
        Kind::Other
    }

    /// Whether its documents come in the order of `pattern`.
    fn gives_order(&self, _pattern: &SortPattern) -> bool {
        false
    }

    /// Whether it keeps the order of `pattern` where its input has it, and does as well with that
    /// as without.
    fn takes_order(&self, _pattern: &SortPattern) -> bool {
        false
    }

    /// The stage that gives no more than the first `limit` of its documents; `None` where it gives
    /// no more anyway, or no less than all.
    fn limited(&self, _limit: u64) -> Option<Arc<dyn Stage>> {
        None
    }

    /// How conditions on the stage's documents read on its input.
    fn passage(&self) -> Passage {
        Passage::closed()
    }

    /// Whether it makes one document of each, so that it does not matter whether some are left out
    /// before it or behind it.
    fn is_one_to_one(&self) -> bool {
        false
    }

    /// Notes which fields of its input the stage looks at, and says what its documents are made of.
    fn reads(&self, _needs: &mut Needs) -> Gives {
        Gives::Unknown
    }

    /// The stage together with an `$unwind` behind it, if that is of the array that the stage
    /// makes.
    fn unwound(self: Arc<Self>, _unwind: &Unwind) -> Option<Arc<dyn Stage>> {
        None
    }

    /// The stage with such of the conditions behind it as it can ask itself, and a `$match` of
    /// those that are left; `None` where it can ask none.
    fn taking_in(
        self: Arc<Self>,
        _conditions: &[Node],
        _context: &Context,
    ) -> Option<Vec<Arc<dyn Stage>>> {
        None
    }

    /// What takes the stage's place where its input gives only the first document of each value of
    /// a field; `None` where it looks at more.
    fn first_of_each(self: Arc<Self>) -> Option<FirstOfEach> {
        None
    }

    /// Stacks the stage upon its input.
    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>>;
}

/// A stage as the planner sees it.
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
    Sample,
    /// `$project` or `$unset`.
    Project(&'s Project),
    /// `$unwind`.
    Unwind(&'s Unwind),
    /// The measurements of time-series buckets.
    Unpack(&'s UnpackBucket),
    /// A search by distance.
    GeoNear(&'s GeoNear),
    /// A stage that makes its own documents and reads no input.
    Origin,
    /// A stage whose input are the documents that the server writes for it.
    Report(&'s Report),
    /// A stage that writes.
    Writer,
    /// Any other.
    Other,
}

#[cfg(test)]
mod tests;
