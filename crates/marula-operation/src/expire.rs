//! The removal of expired documents, which no client asks for: the server's monitor does.
//!
//! Expired documents are found through the key strings of dates: in an index with
//! `expireAfterSeconds`, or in a clustered collection itself. Only dates are in the scanned range,
//! and an array counts with its earliest date, so values of other types never expire. Documents are
//! removed in batches. Each batch is a transaction that checks every document again; nothing is
//! held between batches. There is no plan: a filter on a date could be served by another index.
//! Source: manual "TTL Indexes", "Clustered Collections"; edge cases tested against mongod 6.0.

use std::collections::HashSet;
use std::sync::Arc;

use marula_bson::{Doc, ObjectId, Value, key_string};
use marula_db::collection::State;
use marula_db::index::{KeyMaker, KeySet};
use marula_db::time_series::TimeSeries;
use marula_db::{Collection, Index, RecordKey, Shape, Unit, WriteOp};
use marula_error::Result;
use marula_storage::{Direction, KeyRange};

/// The number of documents that one transaction removes: few enough that a writer of one of them
/// waits only briefly.
const BATCH_DOCUMENTS_MAX: usize = 64;

/// The date by which documents of a collection expire.
enum ExpiryDate {
    /// The date in the field of an index.
    Index(Arc<Index>),
    /// The date in `_id`, by which the collection is clustered.
    Id,
    /// The latest time of a bucket; its `_id` holds its start.
    Bucket(TimeSeries),
}

/// The removal of the documents that have expired at a time.
pub struct ExpireOp {
    /// The time.
    pub now_ms: i64,
}

impl ExpireOp {
    /// Removes the expired documents of `collection`; returns their number. Calls `go_on` before
    /// each batch, which ends the operation if it returns false.
    ///
    /// Errors: those of the store.
    pub fn run(
        &self,
        unit: Unit<'_>,
        collection: &Collection,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<u64> {
        let mut deleted = 0;
        for (date, seconds) in expiry_rules(&collection.state()) {
            let expired_ms = self.now_ms.saturating_sub(seconds.saturating_mul(1000));
            let range = range(&date, expired_ms);
            let (now_ms, rest) = (self.now_ms, range.clone());
            let scan = ExpiryScan { unit, collection, now_ms, expired_ms, rest, range, date };
            deleted += scan.run(go_on)?;
        }
        Ok(deleted)
    }
}

/// The expiry rules of a collection: the date, and the seconds after it.
fn expiry_rules(state: &State) -> Vec<(ExpiryDate, i64)> {
    let mut expiry_rules = Vec::new();
    if state.options.capped.is_some() {
        return expiry_rules;
    }
    for index in &state.indexes {
        // Only the entries of an ordinary index are dates.
        let is_ordered =
            index.spec.key.as_doc().values().all(|direction| direction.kind().is_number());
        if let Some(seconds) = index.spec.expire_after_seconds
            && index.spec.parts.len() == 1
            && is_ordered
        {
            expiry_rules.push((ExpiryDate::Index(index.clone()), seconds));
        }
    }
    let of_collection = state.options.document.as_doc().get("expireAfterSeconds");
    if state.shape() == Shape::Clustered
        && let Some(seconds) = of_collection.and_then(|seconds| seconds.as_f64())
    {
        // A value that is not a number becomes the maximum.
        #[allow(clippy::cast_possible_truncation)]
        let seconds = if seconds.is_nan() { i64::from(i32::MAX) } else { seconds as i64 };
        let date = state.options.time_series.clone().map_or(ExpiryDate::Id, ExpiryDate::Bucket);
        expiry_rules.push((date, seconds));
    }
    expiry_rules
}

/// The range of key strings of dates up to `expired_ms`.
fn range(date: &ExpiryDate, expired_ms: i64) -> KeyRange {
    let descending = match date {
        ExpiryDate::Index(index) => index.spec.parts[0].descending,
        ExpiryDate::Id => false,
        ExpiryDate::Bucket(time_series) => return bucket_range(time_series, expired_ms),
    };
    let key = |ms: i64| {
        let mut key = Vec::new();
        key_string::encode_part(Value::DateTime(ms), descending, None, &mut key);
        key
    };
    let after = |key: &[u8]| key_string::successor(key).expect("a key string has a successor");
    let (earliest, latest) = (key(i64::MIN), key(expired_ms));
    if descending {
        KeyRange { start: latest, end: after(&earliest) }
    } else {
        KeyRange { start: earliest, end: after(&latest) }
    }
}

/// The range of `_id`s of buckets that began early enough for all their measurements to have
/// expired.
fn bucket_range(time_series: &TimeSeries, expired_ms: i64) -> KeyRange {
    let begun_ms = expired_ms.saturating_sub(time_series.span_ms());
    let seconds = u32::try_from(begun_ms.div_euclid(1_000).clamp(0, i64::from(u32::MAX)));
    let mut last = [0xFF; 12];
    last[..4].copy_from_slice(&seconds.unwrap_or_default().to_be_bytes());
    let key = |id: [u8; 12]| {
        let mut key = Vec::new();
        let id = Value::ObjectId(ObjectId::from_bytes(id));
        key_string::encode_part(id, false, None, &mut key);
        key
    };
    let end = key_string::successor(&key(last)).expect("a key string has a successor");
    KeyRange { start: key([0; 12]), end }
}

/// Returns whether the latest time of a bucket has expired.
fn bucket_has_expired(time_series: &TimeSeries, bucket: Doc<'_>, expired_ms: i64) -> bool {
    let control = bucket.get("control").and_then(|control| control.as_doc());
    let max = control.and_then(|control| control.get("max")?.as_doc());
    let latest = max.and_then(|max| max.get(&time_series.time_field));
    matches!(latest, Some(Value::DateTime(latest)) if latest <= expired_ms)
}

/// A scan over the range of expired dates.
struct ExpiryScan<'a> {
    unit: Unit<'a>,
    collection: &'a Collection,
    now_ms: i64,
    expired_ms: i64,
    range: KeyRange,
    /// The part of the range that has not been scanned yet.
    rest: KeyRange,
    date: ExpiryDate,
}

impl ExpiryScan<'_> {
    fn run(mut self, go_on: &mut dyn FnMut() -> bool) -> Result<u64> {
        let mut op = WriteOp::new(self.unit, self.now_ms);
        let mut key_maker = KeyMaker::default();
        let mut keys = KeySet::default();
        let mut deleted = 0;
        while go_on() && !self.collection.is_dropped() {
            let batch = self.next_batch()?;
            if batch.is_empty() {
                break;
            }
            let (date, range, expired_ms) = (&self.date, &self.range, self.expired_ms);
            // In a clustered collection, a document in the range has that `_id`.
            let mut has_expired = |doc: Doc<'_>| match date {
                ExpiryDate::Id => Ok(true),
                ExpiryDate::Bucket(time_series) => {
                    Ok(bucket_has_expired(time_series, doc, expired_ms))
                }
                ExpiryDate::Index(index) => {
                    key_maker.make(index, doc, &mut keys)?;
                    Ok(keys.iter().any(|(key, _)| key >= &range.start[..] && key < &range.end[..]))
                }
            };
            deleted += op.delete_batch(self.collection, &batch, &mut has_expired)?;
        }
        Ok(deleted)
    }

    /// The records of the next entries. A document with several entries may be returned again in a
    /// later batch, which is harmless.
    fn next_batch(&mut self) -> Result<Vec<RecordKey>> {
        let view = self.unit.view();
        let mut seen = HashSet::new();
        let mut batch = Vec::new();
        let mut position = None;
        match &self.date {
            ExpiryDate::Index(index) => {
                let mut cursor = self.collection.scan_index(
                    view,
                    index.clone(),
                    &self.rest,
                    Direction::Forward,
                )?;
                while batch.len() < BATCH_DOCUMENTS_MAX && cursor.advance()? {
                    let record = RecordKey::new(cursor.entry()?.record);
                    if seen.insert(record.clone()) {
                        batch.push(record);
                    }
                    position = Some(cursor.position().to_vec());
                }
            }
            ExpiryDate::Id | ExpiryDate::Bucket(_) => {
                let mut cursor = self.collection.scan(view, Direction::Forward)?;
                let mut is_there = cursor.seek(&self.rest.start)?;
                while batch.len() < BATCH_DOCUMENTS_MAX
                    && is_there
                    && cursor.record() < &self.rest.end[..]
                {
                    batch.push(RecordKey::new(cursor.record()));
                    position = Some(cursor.record().to_vec());
                    is_there = cursor.advance()?;
                }
            }
        }
        if let Some(mut next) = position {
            next.push(0);
            self.rest.start = next;
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests;
