//! Looks up several keys at once.
//!
//! RocksDB's multi-get visits each memtable and file once for all keys of a batch and shares the
//! work among neighbouring keys. The values stay in their pinned blocks, far apart in memory, so
//! the next value is prefetched while one is read.

use std::sync::Arc;

use marula_storage::{Looked, Result, Space, Values};
use rust_rocksdb::{DBPinnableBatch, ReadOptions};

use crate::deltas;
use crate::engine::Engine;
use crate::error::from_rocksdb;
use crate::prefetch;
use crate::record_cache::{CacheLookup, Ticket};

/// The maximum total size of values in one lookup of several keys; values beyond it are left
/// unread.
const VALUES_BYTES_MAX: usize = 1 << 20;

/// The options of reads that use the newest data.
pub(crate) fn read_options() -> ReadOptions {
    let mut options = ReadOptions::default();
    // The limit applies to multi-gets only.
    options.set_value_size_soft_limit(VALUES_BYTES_MAX as u64);
    options
}

/// Values in pinned blocks, and cached records.
struct EmbeddedValues<'r> {
    /// The result of the RocksDB lookup, if one was needed.
    batch: Option<DBPinnableBatch<'r>>,
    /// The location of the value of each key.
    places: Vec<ValueLocation>,
}

/// The location of a value.
enum ValueLocation {
    /// The key has not been looked up.
    Unknown,
    /// The position in the batch.
    Batch(usize),
    /// The record cache.
    Cache(Arc<[u8]>),
}

/// A key to look up in RocksDB, its index among the requested keys, and a ticket if its value
/// should be cached.
type Missing<'k> = (&'k [u8], usize, Option<Ticket>);

/// Looks up several keys at `moment`, the moment of `options`. Records come from the record cache
/// where possible.
pub(crate) fn get_many_at<'r>(
    engine: &'r Engine,
    (moment, options): (u64, &ReadOptions),
    space: Space,
    keys: &[&[u8]],
) -> Result<Box<dyn Values + 'r>> {
    let lookup = |key: &[u8]| {
        engine.records.lookup_at(key, moment).map_or(CacheLookup::Miss(None), CacheLookup::Hit)
    };
    get_many(engine, options, space, keys, &lookup)
}

/// Looks up the newest values of several keys. Records come from the record cache where possible.
pub(crate) fn get_many_newest<'r>(
    engine: &'r Engine,
    space: Space,
    keys: &[&[u8]],
) -> Result<Box<dyn Values + 'r>> {
    let lookup = |key: &[u8]| engine.records.lookup(key, || engine.db.latest_sequence_number());
    get_many(engine, &engine.read_options, space, keys, &lookup)
}

/// Looks up several keys; for records, `lookup` queries the record cache first.
fn get_many<'r>(
    engine: &'r Engine,
    options: &ReadOptions,
    space: Space,
    keys: &[&[u8]],
    lookup: &dyn Fn(&[u8]) -> CacheLookup,
) -> Result<Box<dyn Values + 'r>> {
    let (mut missing, mut places) = (Vec::new(), Vec::with_capacity(keys.len()));
    for (place, &key) in keys.iter().enumerate() {
        let asked = match space {
            Space::Records => lookup(key),
            Space::Catalog | Space::Indexes => CacheLookup::Miss(None),
        };
        places.push(match asked {
            CacheLookup::Hit(bytes) => ValueLocation::Cache(bytes),
            CacheLookup::Miss(ticket) => {
                missing.push((key, place, ticket));
                ValueLocation::Unknown
            }
        });
    }
    look_up(engine, options, space, missing, places)
}

/// Looks up the missing keys in RocksDB, all at once and in key order, and stores their locations
/// in `places`.
fn look_up<'r>(
    engine: &'r Engine,
    options: &ReadOptions,
    space: Space,
    mut missing: Vec<Missing<'_>>,
    mut places: Vec<ValueLocation>,
) -> Result<Box<dyn Values + 'r>> {
    if missing.is_empty() {
        return Ok(Box::new(EmbeddedValues { batch: None, places }));
    }
    missing.sort_unstable_by_key(|&(key, ..)| key);
    let sorted = missing.iter().map(|&(key, ..)| key);
    let column = engine.column(space);
    let batch = engine.db.batched_multi_get_pinned_batch_cf_opt(column, sorted, true, options);
    let batch = batch.map_err(from_rocksdb)?;
    for (number, (_, place, ticket)) in missing.into_iter().enumerate() {
        places[place] = ValueLocation::Batch(number);
        if let (Some(ticket), Some(Ok(Some(value)))) = (ticket, batch.get(number)) {
            engine.records.keep(ticket, value);
        }
    }
    Ok(Box::new(EmbeddedValues { batch: Some(batch), places }))
}

impl EmbeddedValues<'_> {
    fn look(&self, place: usize) -> Option<Looked<'_>> {
        let place = match self.places.get(place)? {
            ValueLocation::Unknown => return None,
            ValueLocation::Batch(place) => *place,
            ValueLocation::Cache(bytes) => return Some(Looked::Found(bytes)),
        };
        Some(match self.batch.as_ref()?.get(place)? {
            // Another read of it fails.
            Ok(Some(value)) if deltas::has_no_base(value) => Looked::Unread,
            Ok(Some(value)) => Looked::Found(value),
            Ok(None) => Looked::Absent,
            Err(_) => Looked::Unread,
        })
    }
}

impl Values for EmbeddedValues<'_> {
    fn get(&self, place: usize) -> Looked<'_> {
        if let Some(Looked::Found(next)) = self.look(place + 1) {
            prefetch::whole(next);
        }
        self.look(place).expect("the caller asks for a key that it has given")
    }
}
