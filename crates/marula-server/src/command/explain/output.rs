//! The result of `explain` for a plan: the plan, the rejected plans, and the statistics of their
//! execution.
//!
//! As in mongod, a plan that ran in a trial continues after the trial: the documents that it
//! returned there are used first, and the stage above counts one unit of work for each.

use std::time::Instant;

use marula_bson::{Doc, DocBuf, DocWriter};
use marula_db::plan_cache::{QueryShape, hash_text};
use marula_db::{Collection, Namespace, Unit};
use marula_error::{Error, Result};
use marula_operation::update::change_if_matching;
use marula_operation::upsert::upserted_document;
use marula_plan::explain::{self, FAST_COUNT, Printed, above, append_count, only_stage};
use marula_plan::trial::Tried;
use marula_plan::{Emit, Execution, Plan, Stage, StageRun, Stats};
use marula_query::collation::Collation;
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;
use marula_query::update::Update;

use super::Verbosity;
use super::query::{Returned, Verb};
use crate::context::Context;

/// The number of documents that were found and would be changed.
#[derive(Default)]
pub(super) struct Found {
    count: u64,
    /// The error of the next document, to which the update could not be applied.
    failure: Option<Error>,
}

impl Found {
    /// Counts a document if the update can be applied to it; otherwise records the error.
    pub(super) fn add(
        &mut self,
        unit: Unit<'_>,
        update: Option<&Update>,
        filter: &Filter,
        context: &QueryContext,
        doc: Doc<'_>,
    ) {
        if self.failure.is_some() {
            return;
        }
        let mut out = Vec::new();
        let change = |update| change_if_matching(unit, filter, update, context, doc, &mut out);
        match update.map(change).transpose() {
            Ok(_) => self.count += 1,
            Err(error) => self.failure = Some(error),
        }
    }

    fn is_enough(&self, wanted: u64) -> bool {
        self.failure.is_some() || self.count >= wanted
    }
}

/// The result of a trial of several plans.
#[derive(Default)]
pub(super) struct Trials {
    /// The winner's score; `None` if it was the only plan.
    pub score: Option<f64>,
    /// The rejected plans.
    pub rejected: Vec<Tried>,
    /// The documents that the winner found in the trial.
    pub found: Found,
}

/// The result of an execution.
struct Done {
    found: u64,
    /// The statistics of the stage above the plan, which consumes the documents.
    stats: Stats,
    failure: Option<Error>,
    /// Whether that stage failed, not the plan.
    fails_above: bool,
}

/// The data of a reply, except the plan.
pub(super) struct Output<'a> {
    pub verb: Verb,
    started: Instant,
    verbosity: Verbosity,
    pub printed: Printed<'a>,
    namespace: &'a Namespace,
    /// The parsed filter; `None` if the command does not parse it.
    pub parsed: Option<DocBuf>,
    /// The collation of the query.
    pub collation: Option<Collation>,
    /// Whether the command is a pipeline that was pushed down completely.
    pub is_whole_pipeline: bool,
    /// The shape of the query, if plans for it are chosen by shape.
    pub shape: Option<QueryShape>,
    /// Whether an index filter restricts the indexes.
    pub is_filtered: bool,
    /// Whether there are more pairs of indexes to intersect than the planner considers.
    pub has_more_intersections: bool,
    /// Whether the order of a sort would need more merged index scans than the planner considers.
    pub has_more_walks: bool,
}

impl<'a> Output<'a> {
    pub(super) fn new(
        verb: Verb,
        verbosity: Verbosity,
        sort: Doc<'a>,
        projection: Doc<'a>,
        namespace: &'a Namespace,
    ) -> Self {
        Output {
            verb,
            started: Instant::now(),
            verbosity,
            printed: Printed { sort, projection, has_run: false, sorts_records: verb.writes() },
            namespace,
            parsed: None,
            collation: None,
            is_whole_pipeline: false,
            shape: None,
            is_filtered: false,
            has_more_intersections: false,
            has_more_walks: false,
        }
    }

    /// Returns the result if the collection does not exist.
    pub(super) fn of_nothing(&self, plan: &Plan) -> Result<DocBuf> {
        let output = self.planned(&self.tree(plan, None, None, 0), &[]);
        let run = StageRun::of_nothing(plan);
        let stats = Stats { works: 1, is_eof: true, ..Stats::default() };
        let done = Done { found: 0, stats, failure: None, fails_above: false };
        Ok(self.with_stats(output, (plan, &run), &done, &[]))
    }

    /// Returns the result for a plan and the plans that were rejected in its trial; `update` is the
    /// update of the command.
    pub(super) fn of_plan(
        &self,
        ctx: &Context<'_>,
        mut execution: Execution,
        trials: Trials,
        update: Option<Update>,
    ) -> Result<DocBuf> {
        let Trials { score, rejected, found } = trials;
        let plan = execution.plan().clone();
        let others: Vec<DocBuf> =
            rejected.iter().map(|tried| self.tree(&tried.plan, None, None, 0)).collect();
        if self.verbosity == Verbosity::QueryPlanner {
            return Ok(self.planned(&self.tree(&plan, None, None, 0), &others));
        }
        let winner = score.map(|score| {
            // The stage above did not run in the trial.
            let run = execution.stages();
            let is_eof = run.stats.is_eof && run.stats.advanced == 0;
            self.tried((&plan, run), score, Stats { is_eof, ..Stats::default() }, 0)
        });
        let done = self.run(ctx, &mut execution, found, update)?;
        let run = execution.stages();
        // A search by distance creates its input stages during the execution.
        let output = self.planned(&self.tree(&plan, Some(run), None, 0), &others);
        let others = rejected.iter().map(|tried| {
            self.tried((&tried.plan, &tried.run), tried.score, done.stats, done.found)
        });
        let all: Vec<DocBuf> = winner.into_iter().chain(others).collect();
        Ok(self.with_stats(output, (&plan, run), &done, &all))
    }

    /// Executes a plan as far as the command would; `found` is the result of its trial.
    fn run(
        &self,
        ctx: &Context<'_>,
        execution: &mut Execution,
        mut found: Found,
        update: Option<Update>,
    ) -> Result<Done> {
        let is_by_id = matches!(execution.plan().root, Stage::IdHack(_));
        let enough = match self.verb {
            Verb::Find => u64::MAX,
            // `_id` is unique, so that the plan ends after one document.
            _ if is_by_id => 1,
            Verb::Count { skip, limit, .. } => {
                limit.map_or(u64::MAX, |limit| limit.saturating_add(skip))
            }
            Verb::Update { multi: true, .. } | Verb::Delete { multi: true, .. } => u64::MAX,
            Verb::Update { .. } | Verb::Delete { .. } => 1,
        };
        execution.examine_all();
        let (filter, context) = {
            let query = execution.query();
            (query.filter.clone(), query.context.clone())
        };
        if found.count > enough {
            found = Found { count: enough, failure: None };
        }
        // Each document of the trial is one unit of work, and so is one that cannot be changed.
        let before = execution.stages().stats;
        let mut works = found.count + u64::from(found.failure.is_some());
        let is_at_end = before.is_eof && self.verb != Verb::Find;
        let mut failure = None;
        if !found.is_enough(enough) && !is_at_end {
            let mut interrupt = || ctx.check_interrupt();
            let outcome = execution.run(ctx.unit, &mut interrupt, &mut |next| {
                found.add(ctx.unit, update.as_ref(), &filter, &context, next.doc);
                Ok(if found.is_enough(enough) { Emit::Enough } else { Emit::Taken })
            });
            // An interruption fails the explain; other errors of the query are part of the result.
            ctx.check_interrupt()?;
            failure = outcome.err();
        }
        let after = execution.stages().stats;
        works += after.works - before.works;
        let ends = |stats: &Stats| stats.works - stats.advanced - stats.need_time;
        let mut fails_above = false;
        if let Verb::Update { upsert: true, .. } = self.verb
            && let Some(update) = &update
            && found.count == 0
            && found.failure.is_none()
            && failure.is_none()
        {
            found.failure = upserted_document(update, &filter, &context, ctx.now_ms).err();
        }
        if let Some(error) = found.failure.take() {
            (failure, fails_above) = (Some(error), true);
        } else if failure.is_none() && ends(&after) == ends(&before) {
            // One more unit of work reaches the end of the plan, or finds that there are enough
            // documents.
            works += 1;
        }
        let mut advanced = if self.verb.returns() { found.count } else { 0 };
        if let Verb::Update { upsert: true, returns: Some(Returned::New), .. } = self.verb
            && found.count == 0
            && failure.is_none()
        {
            // The inserted document is returned by a unit of work of its own.
            (works, advanced) = (works + 1, 1);
        }
        let stats = Stats {
            works,
            advanced,
            need_time: works.saturating_sub(1).saturating_sub(advanced),
            is_eof: failure.is_none() || after.is_eof,
            ..Stats::default()
        };
        Ok(Done { found: found.count, stats, failure, fails_above })
    }

    /// Returns the statistics of a plan in its trial; `stats` are those of the stage above.
    fn tried(
        &self,
        (plan, run): (&Plan, &StageRun),
        score: f64,
        stats: Stats,
        found: u64,
    ) -> DocBuf {
        let examined = run.examined(&plan.root);
        let returned = match self.verb {
            Verb::Find => run.stats.advanced,
            _ => stats.advanced,
        };
        DocBuf::build(|one| {
            append_count(one, "nReturned", returned);
            one.append("executionTimeMillisEstimate", 0);
            append_count(one, "totalKeysExamined", examined.keys);
            append_count(one, "totalDocsExamined", examined.docs);
            one.append("score", score);
            one.append("executionStages", &self.tree(plan, Some(run), Some((stats, false)), found));
        })
    }

    /// Returns the stages of a plan, with the state of its run, below the stage of the command.
    /// `ran` is the statistics of that stage and whether it failed, if it ran.
    fn tree(
        &self,
        plan: &Plan,
        run: Option<&StageRun>,
        ran: Option<(Stats, bool)>,
        found: u64,
    ) -> DocBuf {
        let printed = Printed { has_run: ran.is_some(), ..self.printed };
        let input = explain::tree(plan, run, &printed);
        let did = |out: &mut DocWriter<'_>, counts: &[(&str, u64)]| {
            if ran.is_some() {
                counts.iter().for_each(|(name, count)| append_count(out, name, *count));
            }
        };
        let tree = match self.verb {
            Verb::Find => return input,
            Verb::Count { skip, .. } => above("COUNT", ran, input, |out| {
                let skipped = found.min(skip);
                did(out, &[("nCounted", found - skipped), ("nSkipped", skipped)]);
            }),
            Verb::Update { upsert, .. } => above("UPDATE", ran, input, |out| {
                let has_begun = ran.is_some_and(|(stats, _)| stats.works > 0);
                let is_eof = ran.is_some_and(|(stats, _)| stats.is_eof);
                let upserts = u64::from(upsert && found == 0 && has_begun && is_eof);
                let counts =
                    [("nMatched", found), ("nWouldModify", found), ("nWouldUpsert", upserts)];
                did(out, &counts);
            }),
            Verb::Delete { .. } => {
                above("DELETE", ran, input, |out| did(out, &[("nWouldDelete", found)]))
            }
        };
        match self.printed.projection.is_empty() {
            true => tree,
            false => above("PROJECTION_DEFAULT", ran, tree, |out| {
                out.append("transformBy", self.printed.projection);
            }),
        }
    }

    fn with_stats(
        &self,
        mut output: DocBuf,
        (plan, run): (&Plan, &StageRun),
        done: &Done,
        all: &[DocBuf],
    ) -> DocBuf {
        if self.verbosity == Verbosity::QueryPlanner {
            return output;
        }
        let returned = match self.verb {
            Verb::Find => done.found,
            _ => done.stats.advanced,
        };
        let examined = run.examined(&plan.root);
        let tree = self.tree(plan, Some(run), Some((done.stats, done.fails_above)), done.found);
        let stats = DocBuf::build(|out| {
            let totals = (examined.keys, examined.docs);
            self.append_totals(done.failure.as_ref(), returned, totals, out);
            out.append("executionStages", &tree);
            self.append_all(all, out);
        });
        output.push("executionStats", &stats);
        output
    }

    fn append_all(&self, all: &[DocBuf], out: &mut DocWriter<'_>) {
        if self.verbosity == Verbosity::AllPlansExecution {
            let mut plans = out.begin_array("allPlansExecution");
            all.iter().for_each(|plan| {
                plans.push(plan);
            });
        }
    }

    /// Returns the result for a `count` of all documents, which the collection's counter returns.
    pub(super) fn of_fast_count(
        &self,
        collection: &Collection,
        skip: u64,
        limit: Option<u64>,
    ) -> DocBuf {
        let all = u64::try_from(collection.count()).unwrap_or(0);
        let counted = all.saturating_sub(skip).min(limit.unwrap_or(u64::MAX));
        let counts: &[(&str, u64)] = &[("nCounted", counted), ("nSkipped", skip)];
        let mut output = self.planned(&only_stage(FAST_COUNT, None), &[]);
        if self.verbosity > Verbosity::QueryPlanner {
            let stats = Stats { works: 1, is_eof: true, ..Stats::default() };
            let stage = only_stage(FAST_COUNT, Some((stats, counts)));
            let stats = DocBuf::build(|out| {
                self.append_totals(None, 0, (0, 0), out);
                out.append("executionStages", &stage);
                self.append_all(&[], out);
            });
            output.push("executionStats", &stats);
        }
        output
    }

    fn append_totals(
        &self,
        failure: Option<&Error>,
        returned: u64,
        (keys, docs): (u64, u64),
        out: &mut DocWriter<'_>,
    ) {
        out.append("executionSuccess", failure.is_none());
        if let Some(failure) = failure {
            out.append("errorMessage", failure.message());
            out.append("errorCode", failure.code().number());
        }
        append_count(out, "nReturned", returned);
        let took = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        append_count(out, "executionTimeMillis", took);
        append_count(out, "totalKeysExamined", keys);
        append_count(out, "totalDocsExamined", docs);
        if failure.is_some() {
            out.append("failed", true);
        }
    }

    fn planned(&self, winning: &DocBuf, rejected: &[DocBuf]) -> DocBuf {
        DocBuf::build(|out| {
            let mut planner = out.begin_doc("queryPlanner");
            planner.append("namespace", self.namespace.as_str());
            planner.append("indexFilterSet", self.is_filtered);
            if let Some(parsed) = &self.parsed {
                planner.append("parsedQuery", parsed);
                if let Some(collation) = &self.collation {
                    planner.append("collation", collation.to_doc());
                }
            }
            if let Some(shape) = self.shape {
                planner.append("queryHash", hash_text(shape.query).as_str());
                planner.append("planCacheKey", hash_text(shape.plan).as_str());
            }
            if self.is_whole_pipeline {
                planner.append("optimizedPipeline", true);
            }
            planner.append("maxIndexedOrSolutionsReached", false);
            planner.append("maxIndexedAndSolutionsReached", self.has_more_intersections);
            planner.append("maxScansToExplodeReached", self.has_more_walks);
            planner.append("winningPlan", winning);
            let mut array = planner.begin_array("rejectedPlans");
            rejected.iter().for_each(|plan| {
                array.push(plan);
            });
        })
    }
}
