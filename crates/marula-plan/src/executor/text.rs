//! The stages of a text search: the addition of scores, and the check of conditions that the index
//! entries do not decide.

use std::collections::HashMap;

use marula_bson::{Doc, Value};
use marula_db::RecordKey;
use marula_db::index::entry;
use marula_error::{Result, errors};
use marula_query::spill::Share;

use super::run::{StageRun, Stats};
use super::work::{Env, Step};
use super::{Emit, Found};
use crate::plan::{TextMatch, TextOr};

/// The maximum size of records and scores in one search.
const SCORES_BYTES_MAX: usize = 100 * 1024 * 1024;

errors! {
    too_many_scores() = ExceededMemoryLimit, "The scores of a text search exceed the memory limit of {SCORES_BYTES_MAX} bytes";
}

/// The field of a text index's entry with a term's score.
const SCORE_FIELD: &str = "_ftsx";

/// The state of the addition of scores.
#[derive(Default)]
pub(crate) struct Scoring {
    /// Whether the first unit of work, which does nothing, is done.
    has_begun: bool,
    /// The number of the current scan.
    current: usize,
    /// The index of each record among the scores.
    places: HashMap<RecordKey, usize>,
    /// The records in the order in which they were found.
    scores: Vec<(RecordKey, f64)>,
    bytes: usize,
    share: Share,
    next: usize,
    key: Vec<u8>,
    values: Vec<u8>,
}

impl Scoring {
    fn add(&mut self, found: Found<'_>) -> Result<()> {
        let Some((index, entry)) = found.entry else { return Ok(()) };
        self.values.clear();
        // A damaged entry counts zero; `validate` reports the damage.
        let score = entry::decode_values(index, &entry, &mut self.values)
            .and_then(|()| Doc::trusted(&self.values).get(SCORE_FIELD))
            .and_then(|score: Value<'_>| score.as_f64())
            .unwrap_or(0.0);
        let record = RecordKey::new(found.record);
        match self.places.get(&record) {
            Some(&place) => self.scores[place].1 += score,
            None => {
                self.bytes += 2 * (size_of::<(RecordKey, f64)>() + found.record.len());
                if self.bytes > SCORES_BYTES_MAX {
                    return Err(too_many_scores());
                }
                self.share.require(self.bytes)?;
                self.places.insert(record.clone(), self.scores.len());
                self.scores.push((record, score));
            }
        }
        Ok(())
    }
}

impl TextOr {
    pub(super) fn work(
        &self,
        (stats, scoring, runs): (&mut Stats, &mut Scoring, &mut [StageRun]),
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        if !std::mem::replace(&mut scoring.has_begun, true) {
            return Ok(Step::NeedTime);
        }
        if let Some(run) = runs.get_mut(scoring.current) {
            let input = &self.inputs[scoring.current];
            let step =
                run.work(input, env, &mut |found| scoring.add(found).map(|()| Emit::Taken))?;
            if step == Step::Eof {
                scoring.current += 1;
            }
            return Ok(Step::NeedTime);
        }
        let Some((record, score)) = scoring.scores.get(scoring.next) else { return Ok(Step::Eof) };
        let mut answer = None;
        let (record, score) = (record.as_bytes(), Some(*score));
        let mut result = Ok(());
        let whole = env.whole_filter_if_overtaken();
        env.collection.get(env.view, record, &mut scoring.key, &mut |doc| {
            let matches = whole.map_or(Ok(true), |filter| filter.matches(doc));
            let shown = matches.and_then(|matches| match matches {
                true => out(Found { score, ..Found::fetched(doc, record) }).map(Some),
                false => Ok(None),
            });
            match shown {
                Ok(shown) => answer = shown,
                Err(error) => result = Err(error),
            }
        })?;
        result?;
        if answer == Some(Emit::Full) {
            return Ok(Step::Advanced(Emit::Full));
        }
        stats.docs += 1;
        scoring.next += 1;
        Ok(answer.map_or(Step::NeedTime, Step::Advanced))
    }
}

impl TextMatch {
    pub(super) fn work(
        &self,
        (rejected, run): (&mut u64, &mut StageRun),
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let TextMatch { matcher, input, .. } = self;
        // A search without terms is at its end from the start.
        if run.stats.is_eof && run.stats.works == 0 {
            return Ok(Step::Eof);
        }
        let mut has_passed = false;
        let step = run.work(input, env, &mut |found| {
            // If documents are left unread, the stage that reads them checks the whole filter.
            if found.is_fetched && !matcher.admits(found.doc)? {
                *rejected += 1;
                return Ok(Emit::Taken);
            }
            has_passed = true;
            // As in mongod, the entries of a search are not shown.
            out(Found { entry: None, ..found })
        })?;
        Ok(match step {
            Step::Advanced(_) if !has_passed => Step::NeedTime,
            other => other,
        })
    }
}
