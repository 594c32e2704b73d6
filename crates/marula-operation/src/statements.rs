//! The statements of one write, one after the other.
//!
//! A statement that an earlier attempt did is not done again: its recorded result is returned. An
//! error belongs to its statement, and ends the list if the list is ordered.

use marula_db::WriteOp;
use marula_db::session::Done;
use marula_db::unit::Tally;
use marula_error::{Error, Result, codes};

use crate::env::Env;
use crate::targets::{ends_command, is_transient};

/// The number of index entries and documents that a plan of mongod examines before it lets others
/// drop or rename its collection.
///
/// Source: the default of `internalQueryExecYieldIterations`.
pub const FIRST_READS: u64 = 1_000;

/// The number of times that an upsert starts again after it lost a race to another insert.
const UPSERT_ATTEMPTS_MAX: usize = 100;

/// The result of a list of statements.
#[derive(Default)]
pub struct Report {
    /// The statements that failed, by their position, and their errors.
    pub errors: Vec<(usize, Error)>,
    /// The numbers of the statements that an earlier attempt had done.
    pub retried: Vec<i32>,
    /// The number of statements that this attempt has executed.
    pub executed: u64,
}

/// Executes `count` statements with `run` and passes the result of each to `take`, with whether
/// this attempt has executed it.
///
/// `earlier` reads a statement's result from the session's record; its error, if the record is of
/// another kind of write, ends the command. If a statement is postponed, so is the list.
pub fn run_all<T>(
    count: usize,
    is_ordered: bool,
    op: &mut WriteOp<'_>,
    earlier: impl Fn(&Done) -> Result<T>,
    mut run: impl FnMut(usize, &mut WriteOp<'_>) -> Result<T>,
    mut take: impl FnMut(usize, T, bool),
) -> Result<Report> {
    let mut report = Report::default();
    for index in 0..count {
        let mut run = |op: &mut WriteOp<'_>| run(index, op);
        let retried = report.retried.len();
        let outcome = run_one(op.ids.at(index), op, &mut report.retried, &earlier, &mut run)?;
        let is_executed = report.retried.len() == retried;
        report.executed += u64::from(is_executed);
        match outcome {
            Ok(done) => take(index, done, is_executed),
            Err(error) => {
                report.errors.push((index, error));
                if is_ordered {
                    break;
                }
            }
        }
    }
    Ok(report)
}

/// Executes the statement `number`, as [`run_all`] does each. The inner error is the statement's
/// own.
pub fn run_one<T>(
    number: i32,
    op: &mut WriteOp<'_>,
    retried: &mut Vec<i32>,
    earlier: impl Fn(&Done) -> Result<T>,
    run: impl FnOnce(&mut WriteOp<'_>) -> Result<T>,
) -> Result<Result<T>> {
    let recorded = op.numbered.as_ref().and_then(|numbered| numbered.done(number));
    if let Some(done) = recorded {
        let done = earlier(done)?;
        retried.push(number);
        return Ok(Ok(done));
    }
    match run(op) {
        Ok(done) => Ok(Ok(done)),
        Err(error) if ends_command(&error) => Err(error),
        Err(error) if op.unit.transaction().is_some() && is_transient(error.code()) => Err(error),
        Err(error) => Ok(Err(error)),
    }
}

/// Runs `run`, which looks up its collection and writes one statement. It begins again if the
/// collection or an index is dropped or renamed before it has read much or written anything: in
/// mongod the look-up, the first reads and their write exclude that.
///
/// Errors: those of `run`, and the interrupt.
pub fn from_look_up<T>(
    env: &Env<'_>,
    op: &mut WriteOp<'_>,
    mut run: impl FnMut(&mut WriteOp<'_>) -> Result<T>,
) -> Result<T> {
    let (commits, before) = (op.commits(), examined(env));
    loop {
        let outcome = run(op);
        let is_begun = || op.commits() > commits || examined(env) - before > FIRST_READS;
        match outcome {
            Err(error) if error.code() == codes::QueryPlanKilled && !is_begun() => {
                begin_again(env, op)?;
            }
            outcome => return outcome,
        }
    }
}

/// Checks that a statement whose collection was dropped or renamed may begin again.
///
/// Errors: the interrupt. The operation is postponed if this thread must not wait.
pub(crate) fn begin_again(env: &Env<'_>, op: &WriteOp<'_>) -> Result<()> {
    if op.may_wait { env.check_interrupt() } else { Err(Error::postponed()) }
}

/// The number of index entries and documents that the operation has examined.
fn examined(env: &Env<'_>) -> u64 {
    let examined = env.unit.tally().map(Tally::examined).unwrap_or_default();
    examined.keys + examined.docs
}

/// Changes the documents that match or, if there are none, inserts one. `modify` returns `None` if
/// nothing matches. Starts again if another client has inserted meanwhile what this insert would
/// have.
///
/// `is_in_the_way` returns whether the document that made an insert fail may match now.
pub fn modify_or_insert<T>(
    op: &mut WriteOp<'_>,
    mut modify: impl FnMut(&mut WriteOp<'_>) -> Result<Option<T>>,
    mut insert: impl FnMut(&mut WriteOp<'_>) -> Result<T>,
    is_in_the_way: impl Fn(&Error) -> bool,
) -> Result<Option<T>> {
    for _ in 0..UPSERT_ATTEMPTS_MAX {
        match modify(op)? {
            None if !op.may_wait => return Err(Error::postponed()),
            None => {}
            found => return Ok(found),
        }
        match insert(op) {
            Ok(done) => return Ok(Some(done)),
            Err(error) if is_in_the_way(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
