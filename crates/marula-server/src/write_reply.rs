//! The errors of a batch of writes, in the replies of `insert`, `update` and `delete`:
//! `writeErrors`.

use marula_bson::{ArrayWriter, DocWriter};
use marula_error::{Error, Result, errors};

/// The maximum number of statements of one command. Source: `hello.maxWriteBatchSize`.
pub(crate) const STATEMENTS_MAX: usize = 100_000;

errors! {
    batch_size(count: usize) = InvalidLength, "Write batch sizes must be between 1 and {STATEMENTS_MAX}. Got {count} operations.";
}

/// Checks the number of statements of a write command.
pub(crate) fn check_batch_size(count: usize) -> Result<()> {
    if (1..=STATEMENTS_MAX).contains(&count) { Ok(()) } else { Err(batch_size(count)) }
}

/// Appends `writeErrors`, if there are any. An entry has the additional fields of its error
/// (`keyPattern`, `errInfo`, …).
pub(crate) fn write_errors(errors: &[(usize, Error)], reply: &mut DocWriter<'_>) {
    if errors.is_empty() {
        return;
    }
    let mut out = reply.begin_array("writeErrors");
    for (index, error) in errors {
        write_error(*index, error, &mut out);
    }
}

fn write_error(index: usize, error: &Error, out: &mut ArrayWriter<'_>) {
    let mut entry = out.begin_doc();
    entry.append("index", i32::try_from(index).expect("a batch has at most 100,000 statements"));
    entry.append("code", error.code().number());
    entry.append("errmsg", error.message());
    entry.append_elements(error.fields());
}

/// Appends `retriedStmtIds`: the statements that an earlier attempt had executed, if there are any.
pub(crate) fn retried(ids: &[i32], reply: &mut DocWriter<'_>) {
    if !ids.is_empty() {
        let mut out = reply.begin_array("retriedStmtIds");
        ids.iter().for_each(|&id| {
            out.push(id);
        });
    }
}

/// Returns a count as an int, the type in replies.
pub(crate) fn clamp(count: i64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
