//! Time to live: removing the documents whose date has passed.
//!
//! What expires is found through the key strings of dates: in an index with `expireAfterSeconds`,
//! or in the collection itself where it is clustered. Only dates lie in that range, and an array's
//! earliest date brings its document into it, so values of other types never expire. Documents go
//! in batches, each a transaction of its own that looks at every document again; between two
//! batches nothing is held.
//! Source: manual "TTL Indexes", "Clustered Collections"; edge cases asked of mongod 6.0.

use std::collections::HashSet;
use std::sync::Arc;

use marula_bson::{Doc, ObjectId, Value, key_string};
use marula_error::Result;
use marula_storage::{Direction, KeyRange};

use crate::collection::{Collection, Shape, State};
use crate::db::Db;
use crate::index::{Index, KeyMaker, KeySet};
use crate::keys::RecordKey;
use crate::time_series::TimeSeries;
use crate::unit::Unit;
use crate::write::WriteOp;

/// Documents that one transaction removes: few enough that who waits for one of them does not wait
/// long.
const BATCH_DOCUMENTS_MAX: usize = 64;

/// By what documents of a collection expire.
enum Clock {
    /// The date in the field of an index.
    Index(Arc<Index>),
    /// The date that is their `_id`, by which the collection is clustered.
    Id,
    /// The latest moment of a bucket; its `_id` says when it began.
    Bucket(TimeSeries),
}

/// Removes the documents of `collection` that have expired at `now_ms`; answers how many. Before
/// each batch `go_on` is asked.
pub fn expire(
    db: &Db,
    collection: &Collection,
    now_ms: i64,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<u64> {
    let mut deleted = 0;
    for (clock, seconds) in clocks(&collection.state()) {
        let expired_ms = now_ms.saturating_sub(seconds.saturating_mul(1000));
        let range = range(&clock, expired_ms);
        let rest = range.clone();
        let walk = Walk { db, collection, now_ms, expired_ms, rest, range, clock };
        deleted += walk.run(go_on)?;
    }
    Ok(deleted)
}

/// What expires in a collection, and how many seconds after its date.
fn clocks(state: &State) -> Vec<(Clock, i64)> {
    let mut clocks = Vec::new();
    if state.options.capped.is_some() {
        return clocks;
    }
    for index in &state.indexes {
        // Only the entries of an ordered index are dates.
        let is_ordered =
            index.spec.key.as_doc().values().all(|direction| direction.kind().is_number());
        if let Some(seconds) = index.spec.expire_after_seconds
            && index.spec.parts.len() == 1
            && is_ordered
        {
            clocks.push((Clock::Index(index.clone()), seconds));
        }
    }
    let of_collection = state.options.document.as_doc().get("expireAfterSeconds");
    if state.shape() == Shape::Clustered
        && let Some(seconds) = of_collection.and_then(|seconds| seconds.as_f64())
    {
        // What is no number of seconds is the most that there can be.
        #[allow(clippy::cast_possible_truncation)]
        let seconds = if seconds.is_nan() { i64::from(i32::MAX) } else { seconds as i64 };
        let clock = state.options.time_series.clone().map_or(Clock::Id, Clock::Bucket);
        clocks.push((clock, seconds));
    }
    clocks
}

/// The key strings of the dates up to `expired_ms`.
fn range(clock: &Clock, expired_ms: i64) -> KeyRange {
    let descending = match clock {
        Clock::Index(index) => index.spec.parts[0].descending,
        Clock::Id => false,
        Clock::Bucket(time_series) => return bucket_range(time_series, expired_ms),
    };
    let key = |ms: i64| {
        let mut key = Vec::new();
        key_string::encode_part(Value::DateTime(ms), descending, None, &mut key);
        key
    };
    let behind = |key: &[u8]| key_string::successor(key).expect("a key string has a successor");
    let (earliest, latest) = (key(i64::MIN), key(expired_ms));
    if descending {
        KeyRange { start: latest, end: behind(&earliest) }
    } else {
        KeyRange { start: earliest, end: behind(&latest) }
    }
}

/// The `_id`s of the buckets that began so early that all of them has expired.
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

/// Whether the latest moment of a bucket has expired.
fn bucket_has_expired(time_series: &TimeSeries, bucket: Doc<'_>, expired_ms: i64) -> bool {
    let control = bucket.get("control").and_then(|control| control.as_doc());
    let max = control.and_then(|control| control.get("max")?.as_doc());
    let latest = max.and_then(|max| max.get(&time_series.time_field));
    matches!(latest, Some(Value::DateTime(latest)) if latest <= expired_ms)
}

/// One walk over the range of what has expired.
struct Walk<'a> {
    db: &'a Db,
    collection: &'a Collection,
    now_ms: i64,
    expired_ms: i64,
    range: KeyRange,
    /// What of the range is still to be looked at.
    rest: KeyRange,
    clock: Clock,
}

impl Walk<'_> {
    fn run(mut self, go_on: &mut dyn FnMut() -> bool) -> Result<u64> {
        let mut op = WriteOp::new(Unit::new(self.db), self.now_ms);
        let mut key_maker = KeyMaker::default();
        let mut keys = KeySet::default();
        let mut deleted = 0;
        while go_on() && !self.collection.is_dropped() {
            let batch = self.next_batch()?;
            if batch.is_empty() {
                break;
            }
            let (clock, range, expired_ms) = (&self.clock, &self.range, self.expired_ms);
            // Where the collection is clustered, what is found there has that `_id`.
            let mut has_expired = |doc: Doc<'_>| match clock {
                Clock::Id => Ok(true),
                Clock::Bucket(time_series) => Ok(bucket_has_expired(time_series, doc, expired_ms)),
                Clock::Index(index) => {
                    key_maker.make(index, doc, &mut keys)?;
                    Ok(keys.iter().any(|(key, _)| key >= &range.start[..] && key < &range.end[..]))
                }
            };
            deleted += op.delete_batch(self.collection, &batch, &mut has_expired)?;
        }
        Ok(deleted)
    }

    /// The records of the next entries; a second entry of a document that is still there is found
    /// again and does no harm.
    fn next_batch(&mut self) -> Result<Vec<RecordKey>> {
        let store = self.db.store();
        let mut seen = HashSet::new();
        let mut batch = Vec::new();
        let mut position = None;
        match &self.clock {
            Clock::Index(index) => {
                let mut cursor = self.collection.scan_index(
                    store,
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
            Clock::Id | Clock::Bucket(_) => {
                let mut cursor = self.collection.scan(store, Direction::Forward)?;
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
        if let Some(mut behind) = position {
            behind.push(0);
            self.rest.start = behind;
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests;
