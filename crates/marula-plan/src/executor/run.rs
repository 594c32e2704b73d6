//! The state of a plan under way.
//!
//! A plan does not change while it runs. What changes (where walks stand, what has been given, rows
//! that are sorted, counts) lies in a tree of [`StageRun`]s of the plan's shape, and each unit of
//! work is handed the stage and its state side by side:
//!
//! ```text
//!   Plan (shared, printed, cached)        StageRun (one for each run)
//!   Fetch { filter }            ◄──────►  stats, is_unread
//!     └─ Ixscan { bounds }      ◄──────►    └─ stats, position, documents given
//! ```

use std::collections::HashSet;

use marula_db::RecordKey;
use marula_db::unit::Examined;

use super::intersect::Meeting;
use super::merge::Merging;
use super::near::Searching;
use super::scan::{LookupState, ScanState};
use super::text::Scoring;
use super::work::{Env, FetchState, Sorting};
use crate::plan::{Plan, Stage};

/// What a stage has done, and what it remembers while its plan runs.
pub struct StageRun {
    /// What it has done.
    pub stats: Stats,
    pub(super) state: StageState,
    /// The inputs, as the plan has them.
    pub(super) inputs: Vec<StageRun>,
}

/// What a stage has done so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    /// Units of work, each of which gives a document, or needs more time, or finds the end.
    pub works: u64,
    /// Documents given.
    pub advanced: u64,
    /// Units of work that gave nothing.
    pub need_time: u64,
    /// Whether it has come to the end.
    pub is_eof: bool,
    /// Index entries looked at.
    pub keys: u64,
    /// Documents looked at.
    pub docs: u64,
    /// How often an index was searched for a place to go on.
    pub seeks: u64,
    /// Documents that might have been given before.
    pub dups_tested: u64,
    /// Documents that had been given before.
    pub dups_dropped: u64,
}

/// What a stage remembers, by its kind.
pub(super) enum StageState {
    Eof,
    IdHack(LookupState),
    Collscan(ScanState),
    Ixscan(ScanState),
    Fetch(FetchState),
    GeoNear(Box<Searching>),
    AndSorted(Meeting),
    Or(OrState),
    SortMerge(Merging),
    TextOr(Box<Scoring>),
    TextMatch {
        /// Documents that did not meet the search.
        rejected: u64,
    },
    Sort(Sorting),
    Skip {
        /// How many are still to be left out.
        left: u64,
    },
    Limit {
        /// How many may still pass.
        left: u64,
    },
    Projection,
}

/// What an `$or` of stages remembers.
#[derive(Default)]
pub(super) struct OrState {
    /// The input that is read.
    pub(super) current: usize,
    /// The documents given so far.
    pub(super) given: HashSet<RecordKey>,
}

impl StageRun {
    /// The state of a stage, and of those below, that have done nothing yet.
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
            Stage::AndSorted(_) => StageState::AndSorted(Meeting::default()),
            Stage::Or(_) => StageState::Or(OrState::default()),
            Stage::SortMerge(_) => StageState::SortMerge(Merging::default()),
            Stage::TextOr(_) => StageState::TextOr(Box::default()),
            Stage::TextMatch(_) => StageState::TextMatch { rejected: 0 },
            Stage::Sort(_) => StageState::Sort(Sorting::default()),
            Stage::Skip(stage) => StageState::Skip { left: stage.amount },
            Stage::Limit(stage) => StageState::Limit { left: stage.amount },
            Stage::Projection(_) => StageState::Projection,
        };
        // A search for no term has an input that gives nothing, and knows it from the start.
        for (input, run) in stage.inputs().iter().zip(&mut inputs) {
            run.stats.is_eof |= matches!(input, Stage::Eof);
        }
        if matches!(stage, Stage::Fetch(_) | Stage::TextMatch(_)) {
            stats.is_eof = inputs[0].stats.is_eof;
        }
        StageRun { stats, state, inputs }
    }

    /// The state of a plan that gives nothing, once that is known.
    pub fn of_nothing(plan: &Plan) -> Self {
        let mut run = StageRun::new(&plan.root);
        (run.stats.works, run.stats.is_eof) = (1, true);
        run
    }

    /// Whether it has nothing more to give and knows it without another unit of work.
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

    /// What `stage` and those below have looked at so far; this is their state.
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

    /// Shows `visit` each input of `stage` with its state. A search by distance has those that it
    /// has made so far.
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

    /// The rings of a search by distance so far.
    pub(crate) fn rounds(&self) -> &[super::near::Round] {
        match &self.state {
            StageState::GeoNear(search) => &search.rounds,
            _ => &[],
        }
    }

    /// How often a record of the input with this number was not one of another's.
    pub(crate) fn failed_meetings(&self, input: usize) -> u64 {
        match &self.state {
            StageState::AndSorted(meeting) => meeting.failed(input),
            _ => 0,
        }
    }

    /// How many documents did not meet a text search.
    pub(crate) fn rejected(&self) -> u64 {
        match &self.state {
            StageState::TextMatch { rejected } => *rejected,
            _ => 0,
        }
    }

    /// The bytes that were sorted, and how often some of them went to the disk.
    pub(crate) fn sorted(&self) -> (u64, u64) {
        match &self.state {
            StageState::Sort(sorting) => sorting.sorted(),
            _ => (0, 0),
        }
    }
}

impl StageRun {
    /// Gives each stage that has a place in the store a number of its own; returns how many there
    /// are.
    pub(crate) fn number_places(&mut self) -> usize {
        self.number_places_from(0)
    }

    /// As [`number_places`](StageRun::number_places), from `first` on.
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

    /// Has walks take documents and entries one by one, and all that mongod would, so that their
    /// work can be compared.
    pub(crate) fn take_one_by_one(&mut self) {
        match &mut self.state {
            StageState::Collscan(scan) => {
                scan.is_tried = true;
                scan.is_told = true;
            }
            StageState::Ixscan(scan) => scan.is_tried = true,
            StageState::Sort(sorting) => sorting.is_tried = true,
            _ => {}
        }
        self.inputs.iter_mut().for_each(StageRun::take_one_by_one);
    }

    /// Ends a trial: what goes on is not compared any more.
    pub(super) fn take_many(&mut self) {
        match &mut self.state {
            StageState::Collscan(scan) | StageState::Ixscan(scan) => scan.is_tried = false,
            StageState::Sort(sorting) => sorting.is_tried = false,
            _ => {}
        }
        self.inputs.iter_mut().for_each(StageRun::take_many);
    }

    /// Has walks over documents and searches look at all that mongod would look at.
    pub(super) fn tell_all(&mut self) {
        match &mut self.state {
            StageState::Collscan(scan) => scan.is_told = true,
            StageState::GeoNear(search) => search.tell_all(),
            _ => {}
        }
        self.inputs.iter_mut().for_each(StageRun::tell_all);
    }

    /// Lets a walk give several documents within one unit of work, where whoever takes them does
    /// not count by units. A sort gives one by one, whatever it takes.
    pub(super) fn give_many(&mut self) {
        self.give_many_unless(false);
    }

    /// [`give_many`](StageRun::give_many), unless a stage above counts units.
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

    /// Tells walks whose documents the stage above reads how many are wanted of them, at most.
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
                // Of what does not match, nobody knows how much comes.
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

    /// Tells a stage that of what it gives next, up to `count` are only counted.
    pub(super) fn count_only(&mut self, count: u64) {
        match &mut self.state {
            StageState::Ixscan(scan) => scan.count_only(count),
            StageState::Sort(sorting) => sorting.unseen = count,
            _ => {}
        }
    }

    /// Ends a run: notes where each stage stands, and lets go of the store.
    pub(crate) fn rest(&mut self, env: &mut Env<'_>) {
        match &mut self.state {
            StageState::Collscan(scan) | StageState::Ixscan(scan) => scan.rest(env),
            // Its inputs have one cursor, the last of them.
            StageState::GeoNear(search) => {
                search.inputs.last_mut().into_iter().for_each(|(_, run)| run.rest(env));
            }
            _ => self.inputs.iter_mut().for_each(|input| input.rest(env)),
        }
    }

    /// Never gives a document twice from here on, nor any of `given`.
    pub(super) fn give_once(&mut self, given: &[RecordKey]) {
        match &mut self.state {
            StageState::Ixscan(scan) => scan.give_once(given),
            _ => self.inputs.iter_mut().for_each(|input| input.give_once(given)),
        }
    }

    /// Lets a stage that has come to the end look for more.
    pub(super) fn reopen(&mut self) {
        self.stats.is_eof = false;
        if let StageState::Collscan(scan) = &mut self.state {
            scan.reopen();
        }
        self.inputs.iter_mut().for_each(StageRun::reopen);
    }

    /// Whether a stage can give all that it has given once more: a walk over an index whose
    /// documents are fetched.
    pub(super) fn may_begin_again(&self) -> bool {
        let StageState::Fetch(fetch) = &self.state else { return false };
        matches!(self.inputs[0].state, StageState::Ixscan(_)) && !fetch.is_unread
    }

    /// Has such a stage begin again. What it has done stays counted.
    pub(super) fn begin_again(&mut self) {
        self.stats.is_eof = false;
        if let StageState::Ixscan(scan) = &mut self.state {
            scan.begin_again();
        }
        self.inputs.iter_mut().for_each(StageRun::begin_again);
    }

    /// Has the stage on top leave its documents unread, where it is one that reads them.
    pub(super) fn leave_unread(&mut self) {
        match &mut self.state {
            StageState::IdHack(lookup) => lookup.is_unread = true,
            StageState::Fetch(fetch) => fetch.is_unread = true,
            _ => {}
        }
    }
}
