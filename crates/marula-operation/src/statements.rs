//! The statements of one write, one after the other.
//!
//! A statement that an earlier attempt did is not done again: its recorded result is returned. An
//! error belongs to its statement, and ends the list if the list is ordered.

use marula_db::WriteOp;
use marula_db::session::Done;
use marula_error::{Error, Result};

use crate::env::Progress;
use crate::targets::{comes_again, ends_command, is_transient, mismatch};

/// The number of times that an upsert starts again after it lost a race to another insert.
const UPSERT_ATTEMPTS_MAX: usize = 100;

/// The result of a list of statements.
#[derive(Default)]
pub struct Report {
    /// The statements that failed, by their position, and their errors.
    pub errors: Vec<(usize, Error)>,
    /// The numbers of the statements that an earlier attempt had done.
    pub retried: Vec<i32>,
}

/// Executes `count` statements with `run` and passes the result of each to `take`.
///
/// `earlier` reads a statement's result from the session's record; `None` if the record is of
/// another kind of write. If a statement needs the pool, so does the list, and nothing was done.
/// The outer error ends the command.
pub fn run_all<T>(
    count: usize,
    is_ordered: bool,
    op: &mut WriteOp<'_>,
    earlier: impl Fn(&Done) -> Option<T>,
    mut run: impl FnMut(usize, &mut WriteOp<'_>) -> Result<Progress<T>>,
    mut take: impl FnMut(usize, T),
) -> Result<Progress<Report>> {
    let mut report = Report::default();
    for index in 0..count {
        let mut run = |op: &mut WriteOp<'_>| run(index, op);
        match run_one(op.ids.at(index), op, &mut report.retried, &earlier, &mut run)? {
            Progress::NeedsPool => return Ok(Progress::NeedsPool),
            Progress::Done(Ok(done)) => take(index, done),
            Progress::Done(Err(error)) => {
                report.errors.push((index, error));
                if is_ordered {
                    break;
                }
            }
        }
    }
    Ok(Progress::Done(report))
}

/// Executes the statement `number`, as [`run_all`] does each. The inner error is the statement's
/// own.
pub fn run_one<T>(
    number: i32,
    op: &mut WriteOp<'_>,
    retried: &mut Vec<i32>,
    earlier: impl Fn(&Done) -> Option<T>,
    run: impl FnOnce(&mut WriteOp<'_>) -> Result<Progress<T>>,
) -> Result<Progress<Result<T>>> {
    let recorded = op.numbered.as_ref().and_then(|numbered| numbered.done(number));
    let outcome = match recorded.map(earlier) {
        Some(Some(done)) => {
            retried.push(number);
            Ok(Progress::Done(done))
        }
        Some(None) => Err(mismatch(op, number)),
        None => run(op),
    };
    match outcome {
        Ok(done) => Ok(done.map(Ok)),
        Err(error) if comes_again(op, &error) => Ok(Progress::NeedsPool),
        Err(error) if ends_command(&error) => Err(error),
        Err(error) if op.unit.transaction().is_some() && is_transient(error.code()) => Err(error),
        Err(error) => Ok(Progress::Done(Err(error))),
    }
}

/// Changes the documents that match or, if there are none, inserts one. `modify` returns `None` if
/// nothing matches. Starts again if another client has inserted meanwhile what this insert would
/// have.
///
/// `is_in_the_way` returns whether the document that made an insert fail may match now.
pub fn modify_or_insert<T>(
    op: &mut WriteOp<'_>,
    mut modify: impl FnMut(&mut WriteOp<'_>) -> Result<Progress<Option<T>>>,
    mut insert: impl FnMut(&mut WriteOp<'_>) -> Result<T>,
    is_in_the_way: impl Fn(&Error) -> bool,
) -> Result<Progress<Option<T>>> {
    for _ in 0..UPSERT_ATTEMPTS_MAX {
        match modify(op)? {
            Progress::Done(None) if !op.may_wait => return Ok(Progress::NeedsPool),
            Progress::Done(None) => {}
            found => return Ok(found),
        }
        match insert(op) {
            Ok(done) => return Ok(Progress::Done(Some(done))),
            Err(error) if is_in_the_way(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Progress::Done(None))
}
