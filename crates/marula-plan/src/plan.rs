//! How a query is answered: a tree of stages, in the words of MongoDB's classic engine.
//!
//! A plan does not change once it is made: `explain` prints it, the planner compares it, and any
//! number of runs may share it. The state of a run (positions, counts, sorted rows) is kept apart
//! from it, in a tree of the same shape: [`StageRun`](crate::executor::StageRun).

use std::sync::Arc;

use marula_bson::{DocBuf, FieldPath, ValueBuf};
use marula_db::Index;
use marula_query::filter::{Filter, NearTest};
use marula_query::sort::SortPattern;
use marula_query::text::TextMatcher;
use marula_storage::Direction;

use crate::bounds::{IndexBounds, Interval, KeyBounds};
use crate::clustered::ClusteredScan;
use crate::planner::Rank;

/// How a query is answered.
#[derive(Clone)]
pub struct Plan {
    /// The stage that gives the answer.
    pub root: Stage,
    /// Whether each branch of an `$or` was planned on its own.
    pub is_subplan: bool,
    /// How promising it looks.
    pub(crate) rank: Rank,
    /// Whether there are more pairs of indexes for the query than were looked at.
    pub has_more_meetings: bool,
    /// Whether the order of a sort would take more walks that are merged than are looked at.
    pub has_more_walks: bool,
}

/// One step on the way from the store to the answer.
#[derive(Clone)]
pub enum Stage {
    /// Gives nothing.
    Eof,
    /// The document of one `_id`.
    IdHack(IdHack),
    /// Every document, in record order or against it.
    Collscan(Collscan),
    /// What the entries of an index lead to.
    Ixscan(Ixscan),
    /// Reads the documents that its input leads to.
    Fetch(Fetch),
    /// What an index on places leads to, the nearest first.
    GeoNear(GeoNear),
    /// What all inputs give, which are in record order.
    AndSorted(AndSorted),
    /// What any input gives, once.
    Or(Or),
    /// What any input gives, once, in the order that all inputs have.
    SortMerge(SortMerge),
    /// The documents that terms of a text index lead to, with their scores.
    TextOr(TextOr),
    /// What of its input meets a text search.
    TextMatch(TextMatch),
    /// Its input in order.
    Sort(Sort),
    /// Its input without the first so many.
    Skip(Counted),
    /// The first so many of its input.
    Limit(Counted),
    /// Its input, to be shown through a projection by whoever takes it.
    Projection(Projecting),
}

/// The stage of one `_id`.
#[derive(Clone)]
pub struct IdHack {
    /// The `_id`.
    pub id: ValueBuf,
}

/// A walk over every document.
#[derive(Clone)]
pub struct Collscan {
    /// Which way.
    pub direction: Direction,
    /// What documents must match.
    pub filter: Option<Filter>,
    /// Which part of a clustered collection is walked; `None` is all of any.
    pub records: Option<ClusteredScan>,
}

/// A walk over an index.
#[derive(Clone)]
pub struct Ixscan {
    /// The index.
    pub index: Arc<Index>,
    /// Of a wildcard index, what is seen of it.
    pub wildcard: Option<Expansion>,
    /// What of it is walked.
    pub bounds: ScanBounds,
    /// Which way.
    pub direction: Direction,
    /// What the values of an entry must match.
    pub filter: Option<Filter>,
    /// Whether the documents are made of the entries' values, being all that is asked for.
    pub covers: bool,
    /// How the entries are used.
    pub used_for: ScanUse,
    /// Whether several entries may lead to one document, which is given once all the same.
    pub(crate) gives_once: bool,
}

/// As what a query sees a wildcard index.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expansion {
    /// As an index on one path below the wildcard, between the fields beside it.
    Path(FieldPath),
    /// As one on the fields in front of the wildcard, which holds a document once for each path.
    Front,
}

/// How the entries of a walk are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanUse {
    /// Each leads to a document.
    Documents,
    /// They are counted: `COUNT_SCAN`.
    Count,
    /// One for each value of this field of the index is enough: `DISTINCT_SCAN`.
    Distinct(usize),
}

/// What of an index is walked.
#[derive(Clone)]
pub struct ScanBounds {
    /// The values of each field; `None` between `min` and `max`, which are keys as wholes.
    pub fields: Option<IndexBounds>,
    /// The same as bytes.
    pub(crate) keys: KeyBounds,
}

/// Reads documents.
#[derive(Clone)]
pub struct Fetch {
    /// What documents must match.
    pub filter: Option<Filter>,
    /// Where they come from.
    pub input: Box<Stage>,
}

/// Searches an index on places by distance.
#[derive(Clone)]
pub struct GeoNear {
    /// The index.
    pub index: Arc<Index>,
    /// What is searched for.
    pub test: NearTest,
    /// Where documents have the places.
    pub path: FieldPath,
    /// Which part of the index holds the places.
    pub(crate) place: usize,
    /// What of the other parts is walked.
    pub(crate) others: Vec<Vec<Interval>>,
}

/// Inputs that are in record order, side by side.
#[derive(Clone)]
pub struct AndSorted {
    /// The inputs.
    pub inputs: Vec<Stage>,
}

/// One input after the other.
#[derive(Clone)]
pub struct Or {
    /// The inputs.
    pub inputs: Vec<Stage>,
}

/// Inputs side by side.
#[derive(Clone)]
pub struct SortMerge {
    /// The order that the inputs have.
    pub pattern: SortPattern,
    /// The inputs.
    pub inputs: Vec<Stage>,
}

/// Adds up the scores of documents, and reads them.
#[derive(Clone)]
pub struct TextOr {
    /// A walk for each term.
    pub inputs: Vec<Stage>,
}

/// Tries documents on what the entries of a text index do not tell.
#[derive(Clone)]
pub struct TextMatch {
    /// The search.
    pub matcher: Arc<TextMatcher>,
    /// The text index.
    pub index: Arc<Index>,
    /// The values of the index's fields in front of the terms.
    pub prefix: DocBuf,
    /// Where the documents come from.
    pub input: Box<Stage>,
}

/// What of an index entry goes through a sort.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SortedKeys {
    /// Nothing.
    Gone,
    /// Its key, beside the document.
    Beside,
    /// Its key, in place of the document.
    Instead,
}

/// Puts its input in order.
#[derive(Clone)]
pub struct Sort {
    /// The order.
    pub pattern: SortPattern,
    /// How many are wanted.
    pub limit: Option<u64>,
    /// Whether the input's documents have been read, so that a sorted row is one.
    pub is_simple: bool,
    /// Whether the keys of the index that led to the documents are wanted, and where.
    pub keys: SortedKeys,
    /// How many bytes it may hold in memory.
    pub bytes_max: usize,
    /// What is sorted.
    pub input: Box<Stage>,
}

/// Leaves out or lets through a number of documents.
#[derive(Clone)]
pub struct Counted {
    /// How many.
    pub amount: u64,
    /// Where they come from.
    pub input: Box<Stage>,
}

/// Where a projection stands in the tree.
#[derive(Clone)]
pub struct Projecting {
    /// How much of the document it needs.
    pub kind: ProjectionKind,
    /// What is shown.
    pub input: Box<Stage>,
}

/// The three stages that project.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProjectionKind {
    /// Fields of one index, chosen by inclusion.
    Covered,
    /// Fields of the document, chosen by inclusion.
    Simple,
    /// Anything else.
    Default,
    /// Not a projection, but the index key in the document's place.
    ReturnKey,
}

impl Stage {
    /// The inputs. Those of a search by distance are made while it runs.
    pub fn inputs(&self) -> &[Stage] {
        match self {
            Stage::Eof
            | Stage::IdHack(_)
            | Stage::Collscan(_)
            | Stage::Ixscan(_)
            | Stage::GeoNear(_) => &[],
            Stage::AndSorted(AndSorted { inputs, .. })
            | Stage::Or(Or { inputs, .. })
            | Stage::SortMerge(SortMerge { inputs, .. })
            | Stage::TextOr(TextOr { inputs, .. }) => inputs,
            Stage::Fetch(Fetch { input, .. })
            | Stage::TextMatch(TextMatch { input, .. })
            | Stage::Sort(Sort { input, .. })
            | Stage::Skip(Counted { input, .. })
            | Stage::Limit(Counted { input, .. })
            | Stage::Projection(Projecting { input, .. }) => std::slice::from_ref(input),
        }
    }

    /// The inputs, to be changed while the plan is made.
    pub(crate) fn inputs_mut(&mut self) -> &mut [Stage] {
        match self {
            Stage::Eof
            | Stage::IdHack(_)
            | Stage::Collscan(_)
            | Stage::Ixscan(_)
            | Stage::GeoNear(_) => &mut [],
            Stage::AndSorted(AndSorted { inputs, .. })
            | Stage::Or(Or { inputs, .. })
            | Stage::SortMerge(SortMerge { inputs, .. })
            | Stage::TextOr(TextOr { inputs, .. }) => inputs,
            Stage::Fetch(Fetch { input, .. })
            | Stage::TextMatch(TextMatch { input, .. })
            | Stage::Sort(Sort { input, .. })
            | Stage::Skip(Counted { input, .. })
            | Stage::Limit(Counted { input, .. })
            | Stage::Projection(Projecting { input, .. }) => std::slice::from_mut(input),
        }
    }

    /// Shows `visit` this stage and all below it, inputs after what they feed.
    pub fn walk<'n>(&'n self, visit: &mut dyn FnMut(&'n Stage)) {
        visit(self);
        self.inputs().iter().for_each(|input| input.walk(visit));
    }

    /// Whether this or a lower stage is such.
    pub fn any(&self, is_such: &dyn Fn(&Stage) -> bool) -> bool {
        is_such(self) || self.inputs().iter().any(|input| input.any(is_such))
    }

    /// A stage that reads the documents that `input` leads to.
    pub fn fetch(input: Stage, filter: Option<Filter>) -> Stage {
        Stage::Fetch(Fetch { filter, input: Box::new(input) })
    }

    /// A stage that leaves out the first `amount`.
    pub fn skip(input: Stage, amount: u64) -> Stage {
        Stage::Skip(Counted { amount, input: Box::new(input) })
    }

    /// A stage that lets the first `amount` through.
    pub fn limit(input: Stage, amount: u64) -> Stage {
        Stage::Limit(Counted { amount, input: Box::new(input) })
    }

    /// A stage that walks every document.
    pub fn collscan(direction: Direction, filter: Option<Filter>) -> Stage {
        Stage::Collscan(Collscan { direction, filter, records: None })
    }

    /// A stage that gives what all of `inputs` give; each of them is in record order.
    pub fn and_sorted(inputs: Vec<Stage>) -> Stage {
        Stage::AndSorted(AndSorted { inputs })
    }

    /// A stage that gives what any of `inputs` gives, once.
    pub fn or(inputs: Vec<Stage>) -> Stage {
        Stage::Or(Or { inputs })
    }

    /// A stage that shows documents through a projection.
    pub fn project(input: Stage, kind: ProjectionKind) -> Stage {
        Stage::Projection(Projecting { kind, input: Box::new(input) })
    }
}

impl Ixscan {
    /// Whether another walk comes to the same entries and shows as much of them.
    pub(crate) fn walks_as(&self, other: &Ixscan) -> bool {
        let is_plain = self.filter.is_none() && other.filter.is_none();
        let fields = self.bounds.fields.as_ref().zip(other.bounds.fields.as_ref());
        is_plain
            && Arc::ptr_eq(&self.index, &other.index)
            && self.wildcard == other.wildcard
            && self.direction == other.direction
            && fields.is_some_and(|(ours, theirs)| ours == theirs)
    }

    /// A walk over the part of an index that `keys` tells.
    pub fn new(index: Arc<Index>, bounds: ScanBounds, direction: Direction) -> Self {
        Ixscan {
            index,
            wildcard: None,
            bounds,
            direction,
            filter: None,
            covers: false,
            used_for: ScanUse::Documents,
            gives_once: false,
        }
    }
}

impl Plan {
    /// A plan of this tree.
    pub fn new(root: Stage) -> Self {
        let rank = Rank::default();
        Plan { root, is_subplan: false, rank, has_more_meetings: false, has_more_walks: false }
    }

    /// The plan in a line, as the log and the profiler show it: `IXSCAN { a: 1 }`.
    pub fn summary(&self) -> String {
        let mut leaves: Vec<String> = Vec::new();
        let is_search = self.root.any(&|stage| matches!(stage, Stage::GeoNear(_)));
        self.root.walk(&mut |node| {
            let leaf = match node {
                Stage::Eof => "EOF".to_owned(),
                Stage::IdHack(_) => "IDHACK".to_owned(),
                Stage::Collscan(scan) => scan.stage_name().to_owned(),
                Stage::Ixscan(scan) if !is_search => {
                    format!("{} {}", scan.stage_name(), scan.index.spec.key.as_doc())
                }
                Stage::GeoNear(search) => {
                    format!("{} {}", search.stage_name(), search.index.spec.key.as_doc())
                }
                _ => return,
            };
            if !leaves.contains(&leaf) {
                leaves.push(leaf);
            }
        });
        leaves.join(", ")
    }

    /// Whether it gives, of the documents with one value of a field, only the first.
    pub fn gives_first_of_each(&self) -> bool {
        let jumps = |stage: &Stage| matches!(stage, Stage::Ixscan(scan) if matches!(scan.used_for, ScanUse::Distinct(_)));
        self.root.any(&jumps)
    }

    /// Whether the plan looks at a bounded, small number of documents: one by `_id`, or the few
    /// that points of a unique index lead to. Such a plan may run where others wait for it.
    pub fn is_short(&self) -> bool {
        /// So many points take about as long as a reply to send.
        const POINTS_MAX: usize = 16;
        fn is_short(node: &Stage) -> bool {
            match node {
                Stage::Eof | Stage::IdHack(_) => true,
                Stage::Collscan(scan) => scan.records.as_ref().is_some_and(ClusteredScan::is_point),
                Stage::Ixscan(scan) => {
                    scan.index.spec.unique
                        && scan
                            .bounds
                            .fields
                            .as_ref()
                            .is_some_and(|fields| fields.points().is_some_and(|n| n <= POINTS_MAX))
                }
                // The first round may be small; what it leads to is not.
                Stage::GeoNear(_) => false,
                Stage::Or(or) => or.inputs.len() <= POINTS_MAX && or.inputs.iter().all(is_short),
                Stage::SortMerge(merge) => {
                    merge.inputs.len() <= POINTS_MAX && merge.inputs.iter().all(is_short)
                }
                _ => node.inputs().iter().all(is_short),
            }
        }
        is_short(&self.root)
    }
}

impl Collscan {
    /// The stage as `explain` names it.
    pub fn stage_name(&self) -> &'static str {
        match self.records.as_ref().is_some_and(ClusteredScan::is_bounded) {
            true => "CLUSTERED_IXSCAN",
            false => "COLLSCAN",
        }
    }
}

impl Ixscan {
    /// The stage as `explain` names it.
    pub fn stage_name(&self) -> &'static str {
        match self.used_for {
            ScanUse::Documents => "IXSCAN",
            ScanUse::Count => "COUNT_SCAN",
            ScanUse::Distinct(_) => "DISTINCT_SCAN",
        }
    }
}
