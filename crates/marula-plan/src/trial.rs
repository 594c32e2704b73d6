//! Trying plans: all of them run side by side for a while, and the one that gets most for its work
//! wins.
//!
//! Each plan does one unit of work in turn, until one has come to its end or given a first batch,
//! or the work reaches a limit. What a trial costs is so many times the cheapest plan's first batch
//! as there are plans.
//! Source: manual "Query Plans", and the scores that mongod 6.0 shows for all plans in `explain`.

use std::cmp::Ordering;
use std::sync::Arc;

use marula_bson::Doc;
use marula_db::{Collection, Unit};
use marula_error::{Error, Result, codes};
use marula_query::projection::Metadata;

use crate::executor::{Emit, Env, Found, Kept, Room, SizeLimit, StageRun, Step};
use crate::plan::{Plan, Stage};
use crate::query::Query;
use crate::tie_break::Fit;

/// Documents after which a plan has shown enough.
const RESULTS_MAX: u64 = 101;
/// Units of work of one plan, in a small collection.
const WORKS_MIN: u64 = 10_000;
/// Of a large collection so many tenths of the documents.
const WORKS_TENTHS: u64 = 3;
/// What stands before the error of a plan that is tried.
const SELECTING: &str = "error while multiplanner was selecting best plan";
/// Units of work between two looks at whether to go on.
const INTERRUPT_INTERVAL: u64 = 128;

/// What a trial has found out.
pub struct Trial {
    /// Which plan wins.
    pub winner: usize,
    /// The plans with what they have done, in the order given.
    pub tried: Vec<Tried>,
}

impl Trial {
    /// Whether the winner has given something, and no other plan did as well.
    pub(crate) fn is_clear(&self) -> bool {
        let winner = &self.tried[self.winner];
        let as_well = self.tried.iter().filter(|tried| tried.score >= winner.score).count();
        winner.run.stats.advanced > 0 && as_well == 1
    }
}

/// A plan that was tried.
pub struct Tried {
    /// The plan.
    pub plan: Arc<Plan>,
    /// What its stages have done. The winner's can go on from there.
    pub run: StageRun,
    /// How well it has done.
    pub score: f64,
    /// What it has found; `None` where that was too much to keep.
    pub(crate) kept: Option<Kept>,
    /// Why it cannot be carried out.
    failure: Option<marula_error::Error>,
}

impl Tried {
    fn new(plan: Plan) -> Self {
        let mut run = StageRun::new(&plan.root);
        run.take_one_by_one();
        let kept = Some(Kept::default());
        Tried { plan: Arc::new(plan), run, score: 0.0, kept, failure: None }
    }
}

/// Keeps a document that a plan has found for its query, as long as there is room.
fn keep(
    kept: &mut Option<Kept>,
    found: &Found<'_>,
    (plan, query): (&Plan, &Query),
    room: &mut Room,
) {
    if let Some(documents) = kept
        && !documents.add(found, plan, query, room)
    {
        *kept = None;
    }
}

/// What becomes of the documents that plans find while they are tried.
pub(crate) enum Findings<'f> {
    /// They are kept, for the winner goes on from where it stands.
    Kept,
    /// They are shown, with the number of the plan; what goes on does not give them again.
    Shown(&'f mut dyn FnMut(usize, Doc<'_>)),
    /// Nobody wants them: the winner does not go on.
    Dropped,
}

/// Tries `plans` for `query`.
///
/// Errors: what a plan runs into, with mongod's prefix, and that of `interrupt`. A plan that only
/// takes more memory than it may is out of the race, as long as another is in it.
pub(crate) fn run(
    unit: Unit<'_>,
    collection: &Collection,
    query: &Query,
    plans: Vec<Plan>,
    mut findings: Findings<'_>,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<Trial> {
    let count = u64::try_from(collection.count()).unwrap_or(0);
    let works_max = WORKS_MIN.max(count / 10 * WORKS_TENTHS);
    let results_max = query.limit.unwrap_or(u64::MAX).min(RESULTS_MAX);
    let size = SizeLimit::default();
    let mut tried: Vec<Tried> = plans.into_iter().map(Tried::new).collect();
    let mut envs: Vec<Env<'_>> = tried
        .iter_mut()
        .map(|tried| Env::new(unit, collection, query, &size, tried.run.number_places()))
        .collect();
    let mut room = Room::default();
    let mut shown = Vec::new();
    let mut works = 0;
    let mut is_over = false;
    while !is_over && works < works_max && tried.iter().any(|tried| tried.failure.is_none()) {
        works += 1;
        if works.is_multiple_of(INTERRUPT_INTERVAL) {
            interrupt()?;
        }
        for (number, (tried, env)) in tried.iter_mut().zip(&mut envs).enumerate() {
            if tried.failure.is_some() {
                continue;
            }
            let (plan, kept) = (Arc::clone(&tried.plan), &mut tried.kept);
            match tried.run.work(&plan.root, env, &mut |found| {
                show(query, found.doc, &mut shown)?;
                match &mut findings {
                    Findings::Kept => keep(kept, &found, (&plan, query), &mut room),
                    Findings::Shown(see) => see(number, found.doc),
                    Findings::Dropped => {}
                }
                Ok(Emit::Taken)
            }) {
                Ok(Step::Eof) => is_over = true,
                Ok(_) => {
                    let stats = &tried.run.stats;
                    is_over |= stats.is_eof || stats.advanced >= results_max;
                }
                Err(error) if error.code() == codes::QueryExceededMemoryLimitNoDiskUseAllowed => {
                    tried.failure = Some(error);
                }
                Err(error) if is_interruption(&error) => return Err(error),
                Err(error) => return Err(error.caused_by(SELECTING)),
            }
        }
    }
    for tried in &mut tried {
        tried.score = score(tried);
    }
    let winner = best(&tried);
    if let (Some(tried), Some(env)) = (tried.get_mut(winner), envs.get_mut(winner)) {
        tried.run.rest(env);
    }
    drop(envs);
    match tried.get_mut(winner).and_then(|tried| tried.failure.take()) {
        Some(failure) => Err(failure.caused_by(SELECTING)),
        None => Ok(Trial { winner, tried }),
    }
}

/// The plan that did best; of several the one whose index fits best, and the first of those.
fn best(tried: &[Tried]) -> usize {
    let mut best = 0;
    for (number, next) in tried.iter().enumerate().skip(1) {
        let known = &tried[best];
        let is_better = match next.score.total_cmp(&known.score) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal => match (Fit::of(next), Fit::of(known)) {
                (Some(next), Some(known)) => next > known,
                _ => false,
            },
        };
        if is_better {
            best = number;
        }
    }
    best
}

/// Computes what is shown of a document, which may fail; `out` is for that.
fn show(query: &Query, doc: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
    let Some(projection) = query.shown.as_ref().and_then(|shown| shown.computed.as_ref()) else {
        return Ok(());
    };
    let mut position = None;
    if projection.needs_position() {
        query.filter.matches_noting_as_written(doc, &mut position)?;
    }
    out.clear();
    projection.apply(doc, position, &Metadata::default(), &query.context, out)
}

/// Whether an error ends the operation from outside; it is told as it is.
fn is_interruption(error: &Error) -> bool {
    [
        codes::Interrupted,
        codes::InterruptedAtShutdown,
        codes::MaxTimeMSExpired,
        codes::CursorKilled,
        codes::ShutdownInProgress,
    ]
    .contains(&error.code())
}

/// How well a plan has done: what it has given for its work, a little for what it spares, and much
/// for being done.
fn score(tried: &Tried) -> f64 {
    if tried.failure.is_some() {
        return 0.0;
    }
    let (root, stats) = (&tried.plan.root, &tried.run.stats);
    // Counts of a trial are far below where a double is inexact.
    #[allow(clippy::cast_precision_loss)]
    let (works, given) = (stats.works.max(1) as f64, stats.advanced as f64);
    let little = (1.0 / (10.0 * works)).min(1e-4);
    let lacks = |is_such: &dyn Fn(&Stage) -> bool| if root.any(is_such) { 0.0 } else { little };
    let spares_documents = lacks(&|stage| matches!(stage, Stage::Fetch(_)));
    let spares_sort = lacks(&|stage| matches!(stage, Stage::Sort(_)));
    let is_done = if stats.is_eof { 1.0 } else { 0.0 };
    let spares_meeting = lacks(&|stage| matches!(stage, Stage::AndSorted(_)));
    // In this order, which the last bits depend on.
    1.0 + given / works + (spares_documents + spares_sort + spares_meeting) + is_done
}
