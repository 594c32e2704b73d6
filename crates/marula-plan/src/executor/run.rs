//! The state of a running plan.
//!
//! A plan does not change while it runs. Positions of scans, documents returned so far, sorted rows
//! and counts are in a tree of [`StageRun`]s with the structure of the plan. Each unit of work
//! receives a stage and its state:
//!
//! ```text
//!   Plan (shared, printed, cached)        StageRun (one for each run)
//!   Fetch { filter }            ◄──────►  stats, is_unread
//!     └─ Ixscan { bounds }      ◄──────►    └─ stats, position, documents given
//! ```

use std::collections::HashSet;

use marula_db::RecordKey;
use marula_db::unit::Examined;

use super::intersect::Intersection;
use super::merge::Merging;
use super::near::Searching;
use super::scan::{LookupState, ScanState};
use super::text::Scoring;
use super::work::{Env, FetchState, Sorting};
use crate::plan::{Plan, Stage};

/// The state of a stage while its plan runs, and its statistics.
pub struct StageRun {
    /// The statistics.
    pub stats: Stats,
    pub(super) state: StageState,
    /// The states of the inputs, in the plan's order.
    pub(super) inputs: Vec<StageRun>,
}

/// The statistics of a stage.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    /// Units of work: each returns a document, needs more time, or finds the end.
    pub works: u64,
    /// Documents returned.
    pub advanced: u64,
    /// Units of work without a result.
    pub need_time: u64,
    /// Whether it has reached the end.
    pub is_eof: bool,
    /// Index entries examined.
    pub keys: u64,
    /// Documents examined.
    pub docs: u64,
    /// Number of seeks in an index.
    pub seeks: u64,
    /// Documents checked for having been returned before.
    pub dups_tested: u64,
    /// Documents dropped because they had been returned before.
    pub dups_dropped: u64,
}

/// The state of a stage, by its kind.
pub(super) enum StageState {
    Eof,
    IdHack(LookupState),
    Collscan(ScanState),
    Ixscan(ScanState),
    Fetch(FetchState),
    GeoNear(Box<Searching>),
    AndSorted(Intersection),
    Or(OrState),
    SortMerge(Merging),
    TextOr(Box<Scoring>),
    TextMatch {
        /// Documents that did not match the text search.
        rejected: u64,
    },
    Sort(Sorting),
    Skip {
        /// The number of documents that are still to be skipped.
        left: u64,
    },
    Limit {
        /// The number of documents that may still pass.
        left: u64,
    },
    Projection,
}

/// The state of an `$or` of stages.
#[derive(Default)]
pub(super) struct OrState {
    /// The number of the current input.
    pub(super) current: usize,
    /// The documents returned so far.
    pub(super) given: HashSet<RecordKey>,
}

impl StageRun {
    /// Returns the initial state of a stage, and of those below it.
    pub(crate) fn new(stage: &Stage) -> Self {
        let mut inputs: Vec<StageRun> = stage.inputs().iter().map(StageRun::new).collect();
        let mut stats = Stats::default();
        let state = match stage {
            Stage::Eof => StageState::Eof,
            Stage::IdHack(_) => StageState::IdHack(LookupState::default()),
            Stage::Collscan(_) => StageState::Collscan(ScanState::default()),
            Stage::Ixscan(scan) => StageState::Ixscan(ScanState::of_index(scan.gives_once)),
            Stage::Fetch(_) => StageState::Fetch(FetchState::default()),
            Stage::GeoNear(search) => StageState::GeoNear(Box::new(Searching::new(search))),
            Stage::AndSorted(_) => StageState::AndSorted(Intersection::default()),
            Stage::Or(_) => StageState::Or(OrState::default()),
            Stage::SortMerge(_) => StageState::SortMerge(Merging::default()),
            Stage::TextOr(_) => StageState::TextOr(Box::default()),
            Stage::TextMatch(_) => StageState::TextMatch { rejected: 0 },
            Stage::Sort(_) => StageState::Sort(Sorting::default()),
            Stage::Skip(stage) => StageState::Skip { left: stage.amount },
            Stage::Limit(stage) => StageState::Limit { left: stage.amount },
            Stage::Projection(_) => StageState::Projection,
        };
        // A search without terms has an input that is at its end from the start.
        for (input, run) in stage.inputs().iter().zip(&mut inputs) {
            run.stats.is_eof |= matches!(input, Stage::Eof);
        }
        if matches!(stage, Stage::Fetch(_) | Stage::TextMatch(_)) {
            stats.is_eof = inputs[0].stats.is_eof;
        }
        StageRun { stats, state, inputs }
    }

    /// Returns the state of a plan that returned nothing.
    pub fn of_nothing(plan: &Plan) -> Self {
        let mut run = StageRun::new(&plan.root);
        (run.stats.works, run.stats.is_eof) = (1, true);
        run
    }

    /// Returns whether it is known to have no more documents, without another unit of work.
    pub(crate) fn is_spent(&self) -> bool {
        match &self.state {
            StageState::Limit { left: 0 } => true,
            StageState::Limit { .. }
            | StageState::Skip { .. }
            | StageState::Fetch(_)
            | StageState::Projection => self.inputs[0].is_spent(),
            StageState::IdHack(lookup) => lookup.is_done,
            StageState::SortMerge(merging) => merging.is_spent(),
            _ => false,
        }
    }

    /// Returns the number of keys and documents that `stage` and those below have examined.
    pub fn examined(&self, stage: &Stage) -> Examined {
        fn add(stage: &Stage, run: &StageRun, examined: &mut Examined) {
            examined.keys += run.stats.keys;
            examined.docs += run.stats.docs;
            match stage {
                Stage::Collscan(scan) if scan.records.is_none() => examined.scans += 1,
                Stage::Sort(_) => examined.sorts += 1,
                _ => {}
            }
            run.each_input(stage, &mut |stage, run| add(stage, run, examined));
        }
        let mut examined = Examined::default();
        add(stage, self, &mut examined);
        examined
    }

    /// Calls `visit` with each input of `stage` and its state. For a search by distance these are
    /// the inputs created so far.
    pub(crate) fn each_input<'r>(
        &'r self,
        stage: &'r Stage,
        visit: &mut dyn FnMut(&'r Stage, &'r StageRun),
    ) {
        match &self.state {
            StageState::GeoNear(search) => {
                search.inputs.iter().for_each(|(stage, run)| visit(stage, run));
            }
            _ => stage.inputs().iter().zip(&self.inputs).for_each(|(stage, run)| visit(stage, run)),
        }
    }

    /// Returns the rings of a search by distance so far.
    pub(crate) fn rounds(&self) -> &[super::near::Round] {
        match &self.state {
            StageState::GeoNear(search) => &search.rounds,
            _ => &[],
        }
    }

    /// Returns the number of records of this input that another input did not have.
    pub(crate) fn failed_intersections(&self, input: usize) -> u64 {
        match &self.state {
            StageState::AndSorted(meeting) => meeting.failed(input),
            _ => 0,
        }
    }

    /// Returns the number of documents that did not match a text search.
    pub(crate) fn rejected(&self) -> u64 {
        match &self.state {
            StageState::TextMatch { rejected } => *rejected,
            _ => 0,
        }
    }

    /// Returns the bytes that were sorted, and the number of spills to disk.
    pub(crate) fn sorted(&self) -> (u64, u64) {
        match &self.state {
            StageState::Sort(sorting) => sorting.sorted(),
            _ => (0, 0),
        }
    }
}

impl StageRun {
    /// Numbers the stages with a position in the store; returns the number of these stages.
    pub(crate) fn number_places(&mut self) -> usize {
        self.number_places_from(0)
    }

    /// Like [`number_places`](StageRun::number_places), starting at `first`.
    pub(super) fn number_places_from(&mut self, first: usize) -> usize {
        fn number(run: &mut StageRun, next: &mut usize) {
            match &mut run.state {
                StageState::Collscan(scan) | StageState::Ixscan(scan) => {
                    scan.number = *next;
                    *next += 1;
                }
                StageState::GeoNear(search) => {
                    search.take_number(*next);
                    *next += 1;
                }
                _ => run.inputs.iter_mut().for_each(|input| number(input, next)),
            }
        }
        let mut next = first;
        number(self, &mut next);
        next - first
    }

    /// Makes scans process documents and entries one by one, and all that mongod would, so that
    /// their work can be compared.
    pub(crate) fn take_one_by_one(&mut self) {
        match &mut self.state {
            StageState::Collscan(scan) => {
                scan.is_tried = true;
                scan.examines_all = true;
            }
            StageState::Ixscan(scan) => scan.is_tried = true,
            StageState::Sort(sorting) => sorting.is_tried = true,
            _ => {}
        }
        self.inputs.iter_mut().for_each(StageRun::take_one_by_one);
    }

    /// Ends a trial: work is no longer compared.
    pub(super) fn take_many(&mut self) {
        match &mut self.state {
            StageState::Collscan(scan) | StageState::Ixscan(scan) => scan.is_tried = false,
            StageState::Sort(sorting) => sorting.is_tried = false,
            _ => {}
        }
        self.inputs.iter_mut().for_each(StageRun::take_many);
    }

    /// Makes scans of documents and searches read everything that mongod would read.
    pub(super) fn examine_all(&mut self) {
        match &mut self.state {
            StageState::Collscan(scan) => scan.examines_all = true,
            StageState::GeoNear(search) => search.examine_all(),
            _ => {}
        }
        self.inputs.iter_mut().for_each(StageRun::examine_all);
    }

    /// Permits a scan to return several documents within one unit of work, if the stages above do
    /// not count by units. A sort returns them one by one in any case.
    pub(super) fn give_many(&mut self) {
        self.give_many_unless(false);
    }

    /// Like [`give_many`](StageRun::give_many), unless a stage above counts units.
    fn give_many_unless(&mut self, is_counted: bool) {
        match &mut self.state {
            StageState::Skip { .. } | StageState::Limit { .. } => {
                self.inputs[0].give_many_unless(true);
            }
            StageState::Sort(_) => self.inputs[0].give_many_unless(false),
            StageState::Projection => self.inputs[0].give_many_unless(is_counted),
            StageState::Collscan(scan) if !is_counted => scan.gives_many = true,
            StageState::Fetch(fetch) if !is_counted && !fetch.is_unread => {
                if let StageState::Ixscan(scan) = &mut self.inputs[0].state {
                    scan.gives_many = true;
                }
            }
            _ => {}
        }
    }

    /// Sets the maximum number of wanted documents of scans whose documents the next stage fetches.
    pub(super) fn expect(&mut self, stage: &Stage, wanted: u64) {
        let StageRun { state, inputs, .. } = self;
        match (stage, state) {
            (Stage::Projection(stage), _) => inputs[0].expect(&stage.input, wanted),
            (Stage::Limit(stage), StageState::Limit { left }) => {
                inputs[0].expect(&stage.input, wanted.min(*left));
            }
            (Stage::Skip(stage), StageState::Skip { left }) => {
                inputs[0].expect(&stage.input, wanted.saturating_add(*left));
            }
            (Stage::Fetch(stage), StageState::Fetch(fetch)) if !fetch.is_unread => {
                // With a filter, the number of necessary documents is not known.
                let wanted = if stage.filter.is_some() { u64::MAX } else { wanted };
                match (&*stage.input, &mut inputs[0].state) {
                    (Stage::Ixscan(scan), StageState::Ixscan(state))
                        if !scan.covers && scan.filter.is_none() =>
                    {
                        state.wanted = wanted;
                    }
                    _ => inputs[0].expect(&stage.input, u64::MAX),
                }
            }
            (stage, StageState::GeoNear(search)) => {
                debug_assert!(matches!(stage, Stage::GeoNear(_)));
                search.inputs.iter_mut().for_each(|(stage, run)| run.expect(stage, u64::MAX));
            }
            (stage, _) => {
                let each = stage.inputs().iter().zip(inputs);
                each.for_each(|(stage, run)| run.expect(stage, u64::MAX));
            }
        }
    }

    /// Up to `count` of the stage's next documents are only counted.
    pub(super) fn count_only(&mut self, count: u64) {
        match &mut self.state {
            StageState::Ixscan(scan) => scan.count_only(count),
            StageState::Sort(sorting) => sorting.unseen = count,
            _ => {}
        }
    }

    /// Ends a run: records the position of each stage, and closes the cursors.
    pub(crate) fn rest(&mut self, env: &mut Env<'_>) {
        match &mut self.state {
            StageState::Collscan(scan) | StageState::Ixscan(scan) => scan.rest(env),
            // Its inputs share one cursor, which the last one uses.
            StageState::GeoNear(search) => {
                search.inputs.last_mut().into_iter().for_each(|(_, run)| run.rest(env));
            }
            _ => self.inputs.iter_mut().for_each(|input| input.rest(env)),
        }
    }

    /// Makes sure that no document is returned twice from here on, nor any of `given`.
    pub(super) fn give_once(&mut self, given: &[RecordKey]) {
        match &mut self.state {
            StageState::Ixscan(scan) => scan.give_once(given),
            _ => self.inputs.iter_mut().for_each(|input| input.give_once(given)),
        }
    }

    /// Returns whether a collection scan is at its end.
    pub(super) fn has_scanned_all(&self) -> bool {
        match &self.state {
            StageState::Collscan(scan) => scan.is_at_end(),
            _ => self.inputs.iter().any(StageRun::has_scanned_all),
        }
    }

    /// Checks that the documents at the positions of collection scans are still there.
    ///
    /// Errors: those of [`ScanState::check_place`].
    pub(super) fn check_places(&mut self, env: &Env<'_>) -> marula_error::Result<()> {
        if let StageState::Collscan(scan) = &mut self.state {
            scan.check_place(env)?;
        }
        self.inputs.iter_mut().try_for_each(|input| input.check_places(env))
    }

    /// Lets a stage at its end look for more.
    pub(super) fn reopen(&mut self) {
        self.stats.is_eof = false;
        if let StageState::Collscan(scan) = &mut self.state {
            scan.reopen();
        }
        self.inputs.iter_mut().for_each(StageRun::reopen);
    }

    /// Returns whether a stage can return all its documents a second time: a scan of an index whose
    /// documents are fetched.
    pub(super) fn may_begin_again(&self) -> bool {
        let StageState::Fetch(fetch) = &self.state else { return false };
        matches!(self.inputs[0].state, StageState::Ixscan(_)) && !fetch.is_unread
    }

    /// Restarts the stage. Its statistics are kept.
    pub(super) fn begin_again(&mut self) {
        self.stats.is_eof = false;
        if let StageState::Ixscan(scan) = &mut self.state {
            scan.begin_again();
        }
        self.inputs.iter_mut().for_each(StageRun::begin_again);
    }

    /// Makes the top stage leave its documents unread, if it is one that reads them.
    pub(super) fn leave_unread(&mut self) {
        match &mut self.state {
            StageState::IdHack(lookup) => lookup.is_unread = true,
            StageState::Fetch(fetch) => fetch.is_unread = true,
            _ => {}
        }
    }
}
