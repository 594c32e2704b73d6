//! The entries that trials make in a collection's [plan cache](marula_db::plan_cache).

use std::sync::Arc;

use marula_bson::{Doc, DocBuf};
use marula_db::Collection;
use marula_db::collection::State;
use marula_db::keys::Ident;
use marula_db::plan_cache::{Learned, QueryShape};

use crate::explain::{self, Printed, append_count};
use crate::plan::{Plan, Stage};
use crate::query::{Query, Wording};
use crate::trial::{Trial, Tried};

/// The number of documents after which a plan has proven good. Source: as in a trial.
pub(crate) const PROVEN_BY: u64 = 101;

/// Records the result of a trial in the plan cache of `collection`. Without a `wording` the query
/// is one that the cache has.
pub(crate) fn note_trial(
    collection: &Collection,
    shape: QueryShape,
    state: &Arc<State>,
    query: &Query,
    wording: Option<&Wording<'_>>,
    trial: &Trial,
) {
    let works = trial.tried[trial.winner].run.stats.works;
    collection.plans().note_trial(shape, state, works, |known| {
        let asked = match (wording, known) {
            (None, Some(known)) => known.clone(),
            (wording, _) => query_document(query, wording.unwrap_or(&Wording::default())),
        };
        learned(asked, query, trial)
    });
}

fn learned(asked: DocBuf, query: &Query, trial: &Trial) -> Learned {
    let mut order: Vec<usize> = (0..trial.tried.len()).collect();
    order.sort_by(|&a, &b| {
        let is_winner = |number| number == trial.winner;
        let score = |number: usize| trial.tried[number].score;
        is_winner(b).cmp(&is_winner(a)).then(score(b).total_cmp(&score(a)))
    });
    let sort = asked.as_doc().get("sort").and_then(|sort| sort.as_doc());
    let printed = Printed {
        sort: sort.unwrap_or(Doc::EMPTY),
        projection: Doc::EMPTY,
        has_run: true,
        sorts_records: false,
    };
    let tried = order.iter().map(|&number| {
        let Tried { plan, run, .. } = &trial.tried[number];
        let examined = run.examined(&plan.root);
        DocBuf::build(|out| {
            append_count(out, "nReturned", run.stats.advanced);
            out.append("executionTimeMillisEstimate", 0);
            append_count(out, "totalKeysExamined", examined.keys);
            append_count(out, "totalDocsExamined", examined.docs);
            out.append("executionStages", &explain::tree(plan, Some(run), &printed));
        })
    });
    let tried: Vec<DocBuf> = tried.collect();
    let winner = &trial.tried[trial.winner].plan;
    let plan = explain::tree(winner, None, &Printed { has_run: false, ..printed });
    Learned {
        signature: winner.signature(),
        indexes: indexes_of(winner),
        plan,
        tried,
        scores: order.iter().map(|&number| trial.tried[number].score).collect(),
        is_filtered: query.allowed.is_some(),
        asked,
    }
}

/// Returns the indexes that a plan scans, each once.
fn indexes_of(plan: &Plan) -> Arc<[Ident]> {
    let mut idents = Vec::new();
    plan.root.walk(&mut |stage| {
        if let Stage::Ixscan(scan) = stage
            && !idents.contains(&scan.index.ident)
        {
            idents.push(scan.index.ident);
        }
    });
    idents.into()
}

/// Returns a query as the client wrote it.
///
/// Shape: `{ query, sort, projection, [collation] }`.
pub fn query_document(query: &Query, wording: &Wording<'_>) -> DocBuf {
    DocBuf::build(|out| {
        match wording.filter {
            Some(filter) => out.append("query", filter),
            None => out.append("query", &query.filter.to_doc()),
        };
        out.append("sort", wording.sort.unwrap_or(Doc::EMPTY));
        out.append("projection", wording.projection.unwrap_or(Doc::EMPTY));
        if let Some(collation) = &query.context.collation {
            out.append("collation", collation.to_doc());
        }
    })
}
