//! Trials: the candidate plans run in turns for a limited amount of work, and the most productive
//! one wins.
//!
//! ```text
//!   plan 1   ·  ·  d  ·  d  ·          a column: one unit of work of each plan
//!   plan 2   d  d  d  d  d  d ◄─ wins  d: a document
//!   plan 3   ·  ·  ·  ·  ·  ·
//! ```
//!
//! A trial ends once a plan has ended or returned a first batch, or at a limit of work. It costs
//! the number of plans times the cheapest plan's first batch.
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

/// The number of documents after which a plan has shown enough.
const RESULTS_MAX: u64 = 101;
/// The units of work of one plan, in a small collection.
const WORKS_MIN: u64 = 10_000;
/// The tenths of a large collection's documents that are its units of work.
const WORKS_TENTHS: u64 = 3;
/// The prefix of the error of a plan in a trial.
const SELECTING: &str = "error while multiplanner was selecting best plan";
/// The number of units of work between two checks for an interruption.
const INTERRUPT_INTERVAL: u64 = 128;

/// The result of a trial.
pub struct Trial {
    /// The number of the winning plan.
    pub winner: usize,
    /// The plans with their results, in the given order.
    pub tried: Vec<Tried>,
}

impl Trial {
    /// Returns whether the winner returned something, and no other plan did equally well.
    pub(crate) fn is_clear(&self) -> bool {
        let winner = &self.tried[self.winner];
        let as_well = self.tried.iter().filter(|tried| tried.score >= winner.score).count();
        winner.run.stats.advanced > 0 && as_well == 1
    }
}

/// A plan after a trial.
pub struct Tried {
    /// The plan.
    pub plan: Arc<Plan>,
    /// The state and statistics of its stages. The winner continues from there.
    pub run: StageRun,
    /// Its score.
    pub score: f64,
    /// The documents that it found; `None` if they were too large to store.
    pub(crate) kept: Option<Kept>,
    /// The error that it failed with.
    failure: Option<Error>,
}

impl Tried {
    fn new(plan: Plan) -> Self {
        let mut run = StageRun::new(&plan.root);
        run.take_one_by_one();
        let kept = Some(Kept::default());
        Tried { plan: Arc::new(plan), run, score: 0.0, kept, failure: None }
    }
}

/// Stores a document that a plan found for its query, as long as there is room.
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

/// The use of the documents that plans find in a trial.
pub(crate) enum Findings<'f> {
    /// They are stored, and the winner continues where it stopped.
    Kept,
    /// They are shown, with the number of the plan; the winner does not return them again.
    Shown(&'f mut dyn FnMut(usize, Doc<'_>)),
    /// They are dropped: the winner does not continue.
    Dropped,
}

/// Runs `plans` for `query` in a trial.
///
/// Errors: those of a plan, with mongod's prefix, and that of `interrupt`. A plan that only exceeds
/// its memory limit loses, as long as another plan has not failed.
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
    let mut tried: Vec<Tried> = plans.into_iter().map(Tried::new).collect();
    let mut envs: Vec<Env<'_>> = tried
        .iter_mut()
        .map(|tried| Env::new(unit, collection, query, SizeLimit::NONE, tried.run.number_places()))
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
                Err(error) if error.code().is_interruption() => return Err(error),
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

/// Returns the best plan; of several, the one whose index fits best, and the first of those.
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

/// Computes the projection of a document, which may fail; `out` is a buffer.
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

/// Returns the score of a plan: its documents per unit of work, a small bonus for saved work, and a
/// large one for having ended.
fn score(tried: &Tried) -> f64 {
    if tried.failure.is_some() {
        return 0.0;
    }
    let (root, stats) = (&tried.plan.root, &tried.run.stats);
    // The counts of a trial are far below the numbers that a double cannot represent.
    #[allow(clippy::cast_precision_loss)]
    let (works, given) = (stats.works.max(1) as f64, stats.advanced as f64);
    let little = (1.0 / (10.0 * works)).min(1e-4);
    let lacks = |is_such: &dyn Fn(&Stage) -> bool| if root.any(is_such) { 0.0 } else { little };
    let spares_documents = lacks(&|stage| matches!(stage, Stage::Fetch(_)));
    let spares_sort = lacks(&|stage| matches!(stage, Stage::Sort(_)));
    let is_done = if stats.is_eof { 1.0 } else { 0.0 };
    let spares_intersection = lacks(&|stage| matches!(stage, Stage::AndSorted(_)));
    // The order of the additions determines the last bits.
    1.0 + given / works + (spares_documents + spares_sort + spares_intersection) + is_done
}
