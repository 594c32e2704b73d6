//! The statements of one write command, one after the other.
//!
//! What an earlier attempt has done is answered, not done again; an error is the statement's own,
//! and ends the list where it is ordered.

use marula_bson::Value;
use marula_db::WriteOp;
use marula_db::session::{Done, StatementIds};
use marula_error::{Error, Result, errors};

use crate::fields;
use crate::request::Request;
use crate::transactions::is_transient;
use crate::write_reply;
use crate::writes;

errors! {
    statement_ids(ids: usize, statements: usize) = InvalidLength, "Number of statement ids must match the number of batch entries. Got {ids} statement ids but {statements} operations.";
}

/// How often an upsert starts again that lost a race to another insert.
const UPSERT_ATTEMPTS_MAX: usize = 100;

/// How a list of statements ended.
#[derive(Default)]
pub struct Report {
    /// Which statements failed and why.
    pub errors: Vec<(usize, Error)>,
    /// The numbers of those that an earlier attempt had done.
    pub retried: Vec<i32>,
}

/// Whether an error ends the statements of a command: `ordered`.
/// In a transaction each error ends it, and the list with it.
pub fn is_ordered(request: &Request<'_>) -> bool {
    request.transaction.is_some()
        || request.arg("ordered").is_none_or(|ordered| ordered.is_truthy())
}

fn number(id: Value<'_>) -> i32 {
    id.as_exact_i64().and_then(|id| i32::try_from(id).ok()).unwrap_or(0)
}

/// The number of a command's first statement, or of its only one: `stmtId`.
pub fn read_id(request: &Request<'_>) -> i32 {
    request.arg("stmtId").map_or(0, number)
}

/// The numbers of a command's `count` statements: `stmtIds`, or counted up from `stmtId`.
pub fn read_ids(request: &Request<'_>, count: usize) -> Result<StatementIds> {
    let Some(listed) = request.arg("stmtIds").and_then(|ids| ids.as_array()) else {
        return Ok(StatementIds::From(read_id(request)));
    };
    let mut ids = Vec::new();
    for (at, id) in listed.values().enumerate() {
        match id {
            Value::Int32(id) => ids.push(id),
            Value::Null | Value::Undefined => {}
            other => {
                let (place, kind) = (request.command.name, other.kind().alias());
                return Err(fields::element_type(place, "stmtIds", at, kind, "int"));
            }
        }
    }
    if ids.len() != count {
        return Err(statement_ids(ids.len(), count));
    }
    Ok(StatementIds::Listed(ids))
}

/// Carries out `count` statements with `run`, and hands what each did to `take`.
///
/// `earlier` reads what the session's record says that a statement did; `None` where the record is
/// of another kind of write. `run` answers `None` where a statement is not for a network worker;
/// then so does this, and nothing was done. The outer error is one that ends the command.
pub fn run_all<T>(
    count: usize,
    is_ordered: bool,
    op: &mut WriteOp<'_>,
    earlier: impl Fn(&Done) -> Option<T>,
    mut run: impl FnMut(usize, &mut WriteOp<'_>) -> Result<Option<T>>,
    mut take: impl FnMut(usize, T),
) -> Result<Option<Report>> {
    let mut report = Report::default();
    for index in 0..count {
        let mut run = |op: &mut WriteOp<'_>| run(index, op);
        match run_one(op.ids.at(index), op, &mut report.retried, &earlier, &mut run)? {
            None => return Ok(None),
            Some(Ok(done)) => take(index, done),
            Some(Err(error)) => {
                report.errors.push((index, error));
                if is_ordered {
                    break;
                }
            }
        }
    }
    Ok(Some(report))
}

/// Carries out the statement `number`, as [`run_all`] does each; the inner error is the statement's
/// own.
pub fn run_one<T>(
    number: i32,
    op: &mut WriteOp<'_>,
    retried: &mut Vec<i32>,
    earlier: impl Fn(&Done) -> Option<T>,
    run: impl FnOnce(&mut WriteOp<'_>) -> Result<Option<T>>,
) -> Result<Option<Result<T>>> {
    let recorded = op.numbered.as_ref().and_then(|numbered| numbered.done(number));
    let outcome = match recorded.map(earlier) {
        Some(Some(done)) => {
            retried.push(number);
            Ok(Some(done))
        }
        Some(None) => Err(writes::mismatch(op, number)),
        None => run(op),
    };
    match outcome {
        Ok(done) => Ok(done.map(Ok)),
        Err(error) if writes::comes_again(op, &error) => Ok(None),
        Err(error) if write_reply::ends_command(&error) => Err(error),
        Err(error) if op.unit.transaction().is_some() && is_transient(error.code()) => Err(error),
        Err(error) => Ok(Some(Err(error))),
    }
}

/// What one look for a document to change has come to.
pub enum Attempt<T> {
    /// It is not for a network worker, and nothing was done.
    ToPool,
    /// Nothing matched.
    Nothing,
    /// A document was changed, removed or inserted.
    Done(T),
}

/// Changes what matches or, where nothing does, inserts; starts again when somebody else has
/// inserted meanwhile what this insert would have.
///
/// `is_in_the_way` says of a failed insert whether the document that is there now may match.
pub fn modify_or_insert<T>(
    op: &mut WriteOp<'_>,
    mut modify: impl FnMut(&mut WriteOp<'_>) -> Result<Attempt<T>>,
    mut insert: impl FnMut(&mut WriteOp<'_>) -> Result<T>,
    is_in_the_way: impl Fn(&Error) -> bool,
) -> Result<Attempt<T>> {
    for _ in 0..UPSERT_ATTEMPTS_MAX {
        match modify(op)? {
            Attempt::Nothing if !op.may_wait => return Ok(Attempt::ToPool),
            Attempt::Nothing => {}
            found => return Ok(found),
        }
        match insert(op) {
            Ok(done) => return Ok(Attempt::Done(done)),
            Err(error) if is_in_the_way(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Attempt::Nothing)
}
