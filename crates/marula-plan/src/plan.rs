//! A plan: the way to execute a query, as a tree of stages with the names of MongoDB's classic
//! engine.
//!
//! ```text
//!   Projection ─► Limit ─► Skip ─► Sort ─► Fetch { residual filter } ─► Ixscan { bounds }
//!   root                                   reads the documents          reads index entries
//!
//!   sources of documents or records:  IdHack, Collscan, Ixscan, GeoNear
//!   combinations of several inputs:   AndSorted, Or, SortMerge, TextOr
//! ```
//!
//! A plan does not change once it is made: `explain` prints it, the planner compares it, and any
//! number of runs may share it. The state of a run (positions, counts, sorted rows) is a separate
//! tree of the same structure: [`StageRun`](crate::executor::StageRun).

use std::hash::{DefaultHasher, Hash, Hasher};
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

/// The way to execute a query.
#[derive(Clone)]
pub struct Plan {
    /// The top stage, which returns the result.
    pub root: Stage,
    /// Whether each branch of an `$or` was planned on its own.
    pub is_subplan: bool,
    /// Its rank among the candidate plans.
    pub(crate) rank: Rank,
    /// Whether there are more pairs of indexes for the query than were considered.
    pub has_more_intersections: bool,
    /// Whether a merge that provides the sort order would take more scans than the maximum.
    pub has_more_walks: bool,
    /// The number of the first of the query's free orders that the result is in.
    pub free_order: Option<usize>,
}

/// The properties of a plan's result that the stages over it use.
#[derive(Clone, Copy, Default, Debug)]
pub struct Given {
    /// Whether there is only the first document for each value of the query's `first_of_each`.
    pub first_of_each: bool,
    /// The number of the first of the query's free orders that the result is in.
    pub order: Option<usize>,
}

/// One step from the store to the result.
#[derive(Clone)]
pub enum Stage {
    /// Returns nothing.
    Eof,
    /// Returns the document with one `_id`.
    IdHack(IdHack),
    /// Returns every document, in record order or in reverse.
    Collscan(Collscan),
    /// Returns the records of an index's entries.
    Ixscan(Ixscan),
    /// Fetches the documents of its input.
    Fetch(Fetch),
    /// Returns the documents of an index on locations, the nearest first.
    GeoNear(GeoNear),
    /// Returns the records that all inputs have in common; the inputs are in record order.
    AndSorted(AndSorted),
    /// Returns the records of any input, each once.
    Or(Or),
    /// Returns the records of any input, each once, in the order that all inputs share.
    SortMerge(SortMerge),
    /// Returns the documents with terms of a text index, and their scores.
    TextOr(TextOr),
    /// Returns the documents of its input that match a text search.
    TextMatch(TextMatch),
    /// Sorts its input.
    Sort(Sort),
    /// Skips the first documents of its input.
    Skip(Counted),
    /// Returns the first documents of its input.
    Limit(Counted),
    /// Marks the point at which the caller applies the projection.
    Projection(Projecting),
}

/// The stage for one `_id`.
#[derive(Clone)]
pub struct IdHack {
    /// The `_id`.
    pub id: ValueBuf,
}

/// A scan of every document.
#[derive(Clone)]
pub struct Collscan {
    /// The direction.
    pub direction: Direction,
    /// The filter on documents.
    pub filter: Option<Filter>,
    /// The part of a clustered collection that is scanned; `None` is all of any collection.
    pub records: Option<ClusteredScan>,
}

/// A scan of an index.
#[derive(Clone)]
pub struct Ixscan {
    /// The index.
    pub index: Arc<Index>,
    /// For a wildcard index, the expansion that is scanned.
    pub wildcard: Option<Expansion>,
    /// The part of the index that is scanned.
    pub bounds: ScanBounds,
    /// The direction.
    pub direction: Direction,
    /// The filter on the values of an entry.
    pub filter: Option<Filter>,
    /// Whether the entries' values suffice, so that documents are made of them.
    pub covers: bool,
    /// The use of the entries.
    pub used_for: ScanUse,
    /// Whether several entries may lead to one document, which is returned only once.
    pub(crate) gives_once: bool,
}

/// The ordinary index as which a query sees a wildcard index.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expansion {
    /// An index on one path below the wildcard, with the fields before and after it.
    Path(FieldPath),
    /// An index on the fields before the wildcard, with an entry for each path of a document.
    Front,
}

/// The use of a scan's entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanUse {
    /// Each leads to a document.
    Documents,
    /// They are counted: `COUNT_SCAN`.
    Count,
    /// DISTINCT on this field of the index: one entry per value suffices, `DISTINCT_SCAN`.
    Distinct(usize),
}

/// The part of an index that is scanned.
#[derive(Clone)]
pub struct ScanBounds {
    /// The values of each field; `None` between `min` and `max`, which are whole keys.
    pub fields: Option<IndexBounds>,
    /// The same as bytes.
    pub(crate) keys: KeyBounds,
}

/// Fetches documents.
#[derive(Clone)]
pub struct Fetch {
    /// The residual filter on documents.
    pub filter: Option<Filter>,
    /// The input, which returns records.
    pub input: Box<Stage>,
}

/// Searches an index on locations by distance.
#[derive(Clone)]
pub struct GeoNear {
    /// The index.
    pub index: Arc<Index>,
    /// The point and the distances.
    pub test: NearTest,
    /// The path of the locations in documents.
    pub path: FieldPath,
    /// The number of the index's part with the locations.
    pub(crate) place: usize,
    /// The bounds of the other parts.
    pub(crate) others: Vec<Vec<Interval>>,
}

/// An intersection of inputs in record order.
#[derive(Clone)]
pub struct AndSorted {
    /// The inputs.
    pub inputs: Vec<Stage>,
}

/// A union of inputs, one after the other.
#[derive(Clone)]
pub struct Or {
    /// The inputs.
    pub inputs: Vec<Stage>,
}

/// A merge of inputs with the same order.
#[derive(Clone)]
pub struct SortMerge {
    /// The order of the inputs.
    pub pattern: SortPattern,
    /// The inputs.
    pub inputs: Vec<Stage>,
}

/// Adds up the scores of documents, and fetches them.
#[derive(Clone)]
pub struct TextOr {
    /// A scan for each term.
    pub inputs: Vec<Stage>,
}

/// Checks the conditions of a text search that the index entries do not decide.
#[derive(Clone)]
pub struct TextMatch {
    /// The search.
    pub matcher: Arc<TextMatcher>,
    /// The text index.
    pub index: Arc<Index>,
    /// The values of the index's fields before the terms.
    pub prefix: DocBuf,
    /// The input.
    pub input: Box<Stage>,
}

/// The part of an index entry that a sort keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SortedKeys {
    /// None.
    Gone,
    /// The key, in addition to the document.
    Beside,
    /// The key, instead of the document.
    Instead,
}

/// Sorts its input.
#[derive(Clone)]
pub struct Sort {
    /// The order.
    pub pattern: SortPattern,
    /// The number of wanted documents.
    pub limit: Option<u64>,
    /// Whether the input's documents have been fetched, so that a sorted row is a document.
    pub is_simple: bool,
    /// The part of the index entry that is kept.
    pub keys: SortedKeys,
    /// The memory limit in bytes.
    pub bytes_max: usize,
    /// The input.
    pub input: Box<Stage>,
}

/// A stage with a number of documents: skip or limit.
#[derive(Clone)]
pub struct Counted {
    /// The number of documents.
    pub amount: u64,
    /// The input.
    pub input: Box<Stage>,
}

/// The position of a projection in the tree.
#[derive(Clone)]
pub struct Projecting {
    /// The part of the document that it needs.
    pub kind: ProjectionKind,
    /// The input.
    pub input: Box<Stage>,
}

/// The kinds of stages that project.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProjectionKind {
    /// Inclusion of fields of one index.
    Covered,
    /// Inclusion of top-level fields of the document.
    Simple,
    /// Any other projection.
    Default,
    /// Not a projection, but the index key instead of the document.
    ReturnKey,
}

impl Stage {
    /// Returns the inputs. Those of a search by distance are created while it runs.
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

    /// Returns the inputs, to be changed while the plan is made.
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

    /// Calls `visit` with this stage and all below it, each before its inputs.
    pub fn walk<'n>(&'n self, visit: &mut dyn FnMut(&'n Stage)) {
        visit(self);
        self.inputs().iter().for_each(|input| input.walk(visit));
    }

    /// Returns whether `is_such` is true of this or a lower stage.
    pub fn any(&self, is_such: &dyn Fn(&Stage) -> bool) -> bool {
        is_such(self) || self.inputs().iter().any(|input| input.any(is_such))
    }

    /// Returns a stage that fetches the documents of `input`.
    pub fn fetch(input: Stage, filter: Option<Filter>) -> Stage {
        Stage::Fetch(Fetch { filter, input: Box::new(input) })
    }

    /// Returns a stage that skips the first `amount` documents.
    pub fn skip(input: Stage, amount: u64) -> Stage {
        Stage::Skip(Counted { amount, input: Box::new(input) })
    }

    /// Returns a stage that returns only the first `amount` documents.
    pub fn limit(input: Stage, amount: u64) -> Stage {
        Stage::Limit(Counted { amount, input: Box::new(input) })
    }

    /// Returns a stage that scans every document.
    pub fn collscan(direction: Direction, filter: Option<Filter>) -> Stage {
        Stage::Collscan(Collscan { direction, filter, records: None })
    }

    /// Returns the intersection of `inputs`; each of them is in record order.
    pub fn and_sorted(inputs: Vec<Stage>) -> Stage {
        Stage::AndSorted(AndSorted { inputs })
    }

    /// Returns the union of `inputs`, each record once.
    pub fn or(inputs: Vec<Stage>) -> Stage {
        Stage::Or(Or { inputs })
    }

    /// Returns a stage with a projection.
    pub fn project(input: Stage, kind: ProjectionKind) -> Stage {
        Stage::Projection(Projecting { kind, input: Box::new(input) })
    }
}

impl Ixscan {
    /// Returns whether another scan reads the same entries and returns the same of them.
    pub(crate) fn walks_as(&self, other: &Ixscan) -> bool {
        let is_plain = self.filter.is_none() && other.filter.is_none();
        let fields = self.bounds.fields.as_ref().zip(other.bounds.fields.as_ref());
        is_plain
            && Arc::ptr_eq(&self.index, &other.index)
            && self.wildcard == other.wildcard
            && self.direction == other.direction
            && fields.is_some_and(|(ours, theirs)| ours == theirs)
    }

    /// Returns a scan of the part of an index within `bounds`.
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
    /// Returns a plan with this tree.
    pub fn new(root: Stage) -> Self {
        let rank = Rank::default();
        Plan {
            root,
            is_subplan: false,
            rank,
            has_more_intersections: false,
            has_more_walks: false,
            free_order: None,
        }
    }

    /// Returns a hash that plans of the same stages over the same indexes share.
    pub(crate) fn signature(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.root.walk(&mut |stage| {
            // The numbers of skip and limit are not part of the shape.
            if !matches!(stage, Stage::Skip(_) | Stage::Limit(_)) {
                std::mem::discriminant(stage).hash(&mut hasher);
            }
            if let Stage::Ixscan(scan) = stage {
                scan.index.ident.hash(&mut hasher);
                scan.wildcard.hash(&mut hasher);
            }
        });
        hasher.finish()
    }

    /// Returns the plan in a line, as in the log and the profiler: `IXSCAN { a: 1 }`.
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

    /// Returns the properties of its result that the stages over it use.
    pub fn given(&self) -> Given {
        Given { first_of_each: self.gives_first_of_each(), order: self.free_order }
    }

    /// Returns whether it returns only the first document for each value of a field.
    pub(crate) fn gives_first_of_each(&self) -> bool {
        let jumps = |stage: &Stage| matches!(stage, Stage::Ixscan(scan) if matches!(scan.used_for, ScanUse::Distinct(_)));
        self.root.any(&jumps)
    }

    /// Returns whether the plan examines a bounded, small number of documents: one by `_id`, or a
    /// few by points of a unique index. A short plan may run on a network worker.
    pub fn is_short(&self) -> bool {
        /// The time for this number of points is about that of sending a reply.
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
                // The first round may be small, but the number of documents in it is not bounded.
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
    /// Returns the name of the stage in `explain`.
    pub fn stage_name(&self) -> &'static str {
        match self.records.as_ref().is_some_and(ClusteredScan::is_bounded) {
            true => "CLUSTERED_IXSCAN",
            false => "COLLSCAN",
        }
    }
}

impl Ixscan {
    /// Returns the name of the stage in `explain`.
    pub fn stage_name(&self) -> &'static str {
        match self.used_for {
            ScanUse::Documents => "IXSCAN",
            ScanUse::Count => "COUNT_SCAN",
            ScanUse::Distinct(_) => "DISTINCT_SCAN",
        }
    }
}
