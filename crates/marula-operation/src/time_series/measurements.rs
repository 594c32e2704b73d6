//! Deletes of single measurements, by any of their fields: their bucket is written without them.
//!
//! MongoDB has them since 7.0.
//! Source: manual "Time Series Collection Limitations", of 7.0.

use std::ops::ControlFlow;
use std::sync::Arc;

use marula_bson::{Doc, long};
use marula_db::session::Done;
use marula_db::time_series::bucket::Bucket;
use marula_db::{Change, Collection, RecordKey, WriteOp};
use marula_error::{Result, errors};
use marula_query::filter::Filter;
use marula_query::update::Touched;

use super::index::filter_of_buckets;
use super::write::execution_of;
use crate::candidates::for_each_record;
use crate::delete::DeleteOp;
use crate::env::Env;

errors! {
    not_readable() = CommandNotSupported, "a bucket of another layout than this server's cannot be written anew";
}

/// Executes a delete statement; returns the number of removed measurements.
pub(super) fn delete(
    env: &Env<'_>,
    buckets: &Arc<Collection>,
    statement: &DeleteOp<'_>,
    op: &mut WriteOp<'_>,
) -> Result<i64> {
    let state = buckets.state();
    let options = state.options.time_series.as_ref().expect("the collection is one of buckets");
    let context = env.context(Some(buckets), statement.collation, statement.let_variables)?;
    let filter = Filter::parse(statement.query, &context)?;
    let of_buckets =
        filter_of_buckets(options, &filter, state.options.collation.as_ref(), &context)?;
    let mut execution = execution_of(env, buckets, &of_buckets, statement.hint, &context)?;
    execution.give_once();
    let number = (!statement.multi).then_some(statement.number);
    let removal = Removal { buckets, filter: &filter, number };
    // The form of buckets is guaranteed by this module.
    op.bypass_validation = true;
    let mut deleted = 0;
    for_each_record(env, &mut execution, |record| {
        let removed = removal.remove_from(record, op)?;
        deleted += long(removed);
        let is_enough = deleted > 0 && !statement.multi;
        Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(deleted)
}

/// A parsed delete statement.
struct Removal<'r> {
    buckets: &'r Collection,
    filter: &'r Filter,
    /// The statement's number, if it removes only one measurement.
    number: Option<i32>,
}

impl Removal<'_> {
    /// Removes the measurements that match from a bucket; returns their number.
    fn remove_from(&self, record: &RecordKey, op: &mut WriteOp<'_>) -> Result<usize> {
        loop {
            let (mut removed, mut is_emptied) = (0, false);
            let mut change = |document: Doc<'_>, out: &mut Vec<u8>| {
                let (kept, count) = self.split(document)?;
                removed = count;
                is_emptied = kept.is_none();
                match kept {
                    Some(kept) if count > 0 => {
                        kept.write(out);
                        Ok(Change::Replace(Touched::All))
                    }
                    _ => Ok(Change::Skip),
                }
            };
            let done = || Done::Deleted(1);
            let statement = self.number.map(|number| (number, &done as &dyn Fn() -> Done));
            op.update(self.buckets, record, &mut change, statement)?;
            if !is_emptied {
                return Ok(removed);
            }
            // The bucket would be empty, unless another client adds to it at this moment: then it
            // is read again.
            let mut is_gone = true;
            let mut is_wanted = |document: Doc<'_>| {
                is_gone = false;
                let (kept, count) = self.split(document)?;
                removed = count;
                Ok(kept.is_none())
            };
            let done = || Done::Deleted(1);
            let statement = self.number.map(|number| (number, &done as &dyn Fn() -> Done));
            if op.delete(self.buckets, record, &mut is_wanted, statement)? {
                return Ok(removed);
            }
            if is_gone {
                return Ok(0);
            }
        }
    }

    /// Returns the rest of a bucket, and the number of measurements that are removed.
    fn split(&self, document: Doc<'_>) -> Result<(Option<Bucket>, usize)> {
        let state = self.buckets.state();
        let options = state.options.time_series.as_ref().expect("the collection is one of buckets");
        let mut is_done = false;
        let mut keep = |measurement: Doc<'_>| {
            let goes = !is_done && self.filter.matches(measurement)?;
            is_done |= goes && self.number.is_some();
            Ok(!goes)
        };
        let collator = state.options.collation.as_ref().map(|collation| collation.collator());
        Bucket::keeping(options, document, collator, &mut keep)?.ok_or_else(not_readable)
    }
}
