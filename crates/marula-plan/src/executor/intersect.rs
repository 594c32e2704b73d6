//! Giving what all inputs lead to, where each is in record order.
//!
//! One input names a record, the target, and the others go on until each has come to it or one is
//! past it: then that record is the next target. Nothing is remembered but the target, however many
//! records there are.

use std::collections::VecDeque;

use marula_db::RecordKey;
use marula_error::Result;

use super::run::StageRun;
use super::work::{Env, Step};
use super::{Emit, Found};
use crate::plan::AndSorted;

/// What an intersection remembers while it runs.
#[derive(Default)]
pub(crate) struct Meeting {
    target: Option<Target>,
    /// How often a record of each input was not one of another's.
    failed: Vec<u64>,
}

/// The record that is looked for.
struct Target {
    record: RecordKey,
    /// Which input has named it.
    named_by: usize,
    /// The inputs that have not come to it yet, in the order in which they go on.
    behind: VecDeque<usize>,
}

impl Target {
    fn new(record: RecordKey, named_by: usize, input_count: usize) -> Self {
        let behind = (0..input_count).filter(|&input| input != named_by).collect();
        Target { record, named_by, behind }
    }
}

impl Meeting {
    /// How often a record of the input with this number was not one of another's.
    pub(crate) fn failed(&self, input: usize) -> u64 {
        self.failed.get(input).copied().unwrap_or(0)
    }
}

impl AndSorted {
    pub(super) fn work(
        &self,
        (meeting, runs): (&mut Meeting, &mut [StageRun]),
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let Meeting { target, failed } = meeting;
        let input_count = runs.len();
        failed.resize(input_count, 0);
        let next = target.as_ref().and_then(|target| target.behind.front().copied()).unwrap_or(0);
        let mut answer = None;
        let step = runs[next].work(&self.inputs[next], env, &mut |found| {
            let Some(known) = target else {
                *target = Some(Target::new(RecordKey::new(found.record), next, input_count));
                return Ok(Emit::Taken);
            };
            match found.record.cmp(known.record.as_bytes()) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Greater => {
                    failed[known.named_by] += 1;
                    *known = Target::new(RecordKey::new(found.record), next, input_count);
                }
                std::cmp::Ordering::Equal if known.behind.len() > 1 => {
                    known.behind.pop_front();
                }
                std::cmp::Ordering::Equal => {
                    let given = out(Found { entry: None, ahead: None, ..found })?;
                    answer = Some(given);
                    // What is not taken comes again, from the input that came last.
                    if given != Emit::Full {
                        *target = None;
                    }
                    return Ok(given);
                }
            }
            Ok(Emit::Taken)
        })?;
        Ok(match (step, answer) {
            (_, Some(answer)) => Step::Advanced(answer),
            (Step::Advanced(_), None) => Step::NeedTime,
            (other, None) => other,
        })
    }
}
