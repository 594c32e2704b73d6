//! Looking up several keys at once.
//!
//! RocksDB's multi-get looks at each memtable and file once for all keys of a batch, and shares
//! what it finds out of neighbours. The values stay in their pinned blocks. They lie far apart in
//! memory: while one is looked at, the next is fetched ahead.

use std::sync::Arc;

use marula_storage::{Looked, Result, Space, Values};
use rust_rocksdb::{DBPinnableBatch, ReadOptions};

use crate::engine::Engine;
use crate::error::from_rocksdb;
use crate::prefetch;
use crate::record_cache::{Asked, Ticket};

/// Bytes of values of one look-up of several keys, beyond which the rest are left unread.
const VALUES_BYTES_MAX: usize = 1 << 20;

/// The options of reads that see the newest data.
pub(crate) fn read_options() -> ReadOptions {
    let mut options = ReadOptions::default();
    // It counts for multi-gets only.
    options.set_value_size_soft_limit(VALUES_BYTES_MAX as u64);
    options
}

/// Values in pinned blocks, and records of the cache.
struct EmbeddedValues<'r> {
    /// What was looked up in RocksDB, if anything was.
    batch: Option<DBPinnableBatch<'r>>,
    /// Where the value of each key is.
    places: Vec<Place>,
}

/// Where a value is.
enum Place {
    /// It has not been looked up.
    Nowhere,
    /// At this place of the batch.
    Batch(usize),
    /// Here.
    Kept(Arc<[u8]>),
}

/// A key to look up in RocksDB, its place among all that were asked for, and whether its value is
/// worth keeping.
type Missing<'k> = (&'k [u8], usize, Option<Ticket>);

/// Looks up several keys as they were at `moment`, which `options` name: of records, those that the
/// cache of records does not have.
pub(crate) fn get_many_at<'r>(
    engine: &'r Engine,
    (moment, options): (u64, &ReadOptions),
    space: Space,
    keys: &[&[u8]],
) -> Result<Box<dyn Values + 'r>> {
    let ask = |key: &[u8]| engine.records.at(key, moment).map_or(Asked::Missing(None), Asked::Kept);
    get_many(engine, options, space, keys, &ask)
}

/// Looks up the newest values of several keys: of records, those that the cache of records does not
/// have.
pub(crate) fn get_many_newest<'r>(
    engine: &'r Engine,
    space: Space,
    keys: &[&[u8]],
) -> Result<Box<dyn Values + 'r>> {
    let ask = |key: &[u8]| engine.records.ask(key, || engine.db.latest_sequence_number());
    get_many(engine, &engine.read_options, space, keys, &ask)
}

/// Looks up several keys: of records, `ask` asks the cache of records first.
fn get_many<'r>(
    engine: &'r Engine,
    options: &ReadOptions,
    space: Space,
    keys: &[&[u8]],
    ask: &dyn Fn(&[u8]) -> Asked,
) -> Result<Box<dyn Values + 'r>> {
    let (mut missing, mut places) = (Vec::new(), Vec::with_capacity(keys.len()));
    for (place, &key) in keys.iter().enumerate() {
        let asked = match space {
            Space::Records => ask(key),
            Space::Catalog | Space::Indexes => Asked::Missing(None),
        };
        places.push(match asked {
            Asked::Kept(bytes) => Place::Kept(bytes),
            Asked::Missing(ticket) => {
                missing.push((key, place, ticket));
                Place::Nowhere
            }
        });
    }
    look_up(engine, options, space, missing, places)
}

/// Looks up what is missing, all at once and in the order of the keys, and notes in `places` where
/// it is.
fn look_up<'r>(
    engine: &'r Engine,
    options: &ReadOptions,
    space: Space,
    mut missing: Vec<Missing<'_>>,
    mut places: Vec<Place>,
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
        places[place] = Place::Batch(number);
        if let (Some(ticket), Some(Ok(Some(value)))) = (ticket, batch.get(number)) {
            engine.records.keep(ticket, value);
        }
    }
    Ok(Box::new(EmbeddedValues { batch: Some(batch), places }))
}

impl EmbeddedValues<'_> {
    fn look(&self, place: usize) -> Option<Looked<'_>> {
        let place = match self.places.get(place)? {
            Place::Nowhere => return None,
            Place::Batch(place) => *place,
            Place::Kept(bytes) => return Some(Looked::Found(bytes)),
        };
        Some(match self.batch.as_ref()?.get(place)? {
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
