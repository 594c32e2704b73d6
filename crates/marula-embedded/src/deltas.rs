//! Records that are kept by their changes.
//!
//! A change of a few bytes of a large record is written as a [`delta`], to the log as well as to
//! the memtable: as a merge. RocksDB applies merges to the record when it is read, and when its
//! tables are compacted. So the cost of writing a change hardly grows with the record. See
//! docs/decisions/2026-11-30-deltas.md.

use marula_storage::{Error, Result, Space, delta};
use rust_rocksdb::{MergeOperands, Options};

/// The value of a record of which only changes are there. While the tables of a dropped range are
/// deleted, compactions meet such changes, which nobody reads any more. No record is like this: the
/// length with which a document begins is not zero.
const NO_BASE: &[u8] = b"\0\0\0\0the record of these changes is missing";

/// Has the values of a space change by deltas.
pub(crate) fn set_operator(options: &mut Options) {
    options.set_merge_operator(c"marula.deltas", apply, join);
}

/// Returns whether only changes of a value are there.
#[inline]
pub(crate) fn has_no_base(value: &[u8]) -> bool {
    value.len() == NO_BASE.len() && value == NO_BASE
}

/// Fails for a record of which only changes are there.
///
/// Errors: `Corrupt`.
#[inline]
pub(crate) fn check_base(space: Space, value: &[u8]) -> Result<()> {
    match space == Space::Records && has_no_base(value) {
        true => Err(Error::Corrupt("a record is missing, and changes of it are there".to_owned())),
        false => Ok(()),
    }
}

/// A value after its changes; `None`, which RocksDB reports as damage, if they are of another one.
fn apply(_: &[u8], value: Option<&[u8]>, deltas: &MergeOperands) -> Option<Vec<u8>> {
    let Some(base) = value.filter(|value| !has_no_base(value)) else {
        return Some(NO_BASE.to_vec());
    };
    let mut value = Vec::with_capacity(base.len() + deltas.iter().map(<[u8]>::len).sum::<usize>());
    value.extend_from_slice(base);
    for delta in deltas {
        delta::apply(&mut value, delta)?;
    }
    Some(value)
}

/// Several changes as one.
fn join(_: &[u8], _: Option<&[u8]>, deltas: &MergeOperands) -> Option<Vec<u8>> {
    let mut joined = Vec::with_capacity(deltas.iter().map(<[u8]>::len).sum());
    deltas.iter().for_each(|delta| joined.extend_from_slice(delta));
    Some(joined)
}
