//! Returns the records that all inputs have in common; each input is in record order.
//!
//! ```text
//!   input 1   3   7   9   ──► 7 is the target: the others advance to 7 or past it
//!   input 2   5   7       ──► reached
//!   input 3   4   8       ──► past it: 8 is the next target
//! ```
//!
//! Only the target is stored, however many records there are.

use std::collections::VecDeque;

use marula_db::RecordKey;
use marula_error::Result;

use super::run::StageRun;
use super::work::{Env, Step};
use super::{Emit, Found};
use crate::plan::AndSorted;

/// The state of an intersection during a run.
#[derive(Default)]
pub(crate) struct Intersection {
    target: Option<Target>,
    /// The number of records of each input that another input did not have.
    failed: Vec<u64>,
}

/// The record that is searched for in all inputs.
struct Target {
    record: RecordKey,
    /// The number of the input that returned it.
    named_by: usize,
    /// The inputs that have not reached it yet, in the order in which they continue.
    behind: VecDeque<usize>,
}

impl Target {
    fn new(record: RecordKey, named_by: usize, input_count: usize) -> Self {
        let behind = (0..input_count).filter(|&input| input != named_by).collect();
        Target { record, named_by, behind }
    }
}

impl Intersection {
    /// Returns the number of records of this input that another input did not have.
    pub(crate) fn failed(&self, input: usize) -> u64 {
        self.failed.get(input).copied().unwrap_or(0)
    }
}

impl AndSorted {
    pub(super) fn work(
        &self,
        (meeting, runs): (&mut Intersection, &mut [StageRun]),
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let Intersection { target, failed } = meeting;
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
                    // A record that was not taken is returned again, from the input that reached it
                    // last.
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
