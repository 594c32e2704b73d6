//! Looking up several keys at once.
//!
//! RocksDB's multi-get looks at each memtable and file once for all keys of a batch, and shares what it finds out of
//! neighbours. The values stay in their pinned blocks. They lie far apart in memory: while one is looked at, the next is
//! fetched ahead.

use marula_storage::{Looked, Result, Space, Values};
use rust_rocksdb::{DBPinnableBatch, ReadOptions};

use crate::engine::Engine;
use crate::error::from_rocksdb;
use crate::prefetch;

/// Bytes of values of one look-up of several keys, beyond which the rest are left unread.
const VALUES_BYTES_MAX: usize = 1 << 20;

/// The options of reads that see the newest data.
pub(crate) fn read_options() -> ReadOptions {
    let mut options = ReadOptions::default();
    // It counts for multi-gets only.
    options.set_value_size_soft_limit(VALUES_BYTES_MAX as u64);
    options
}

/// Values in pinned blocks.
struct EmbeddedValues<'r> {
    batch: DBPinnableBatch<'r>,
    /// Where each key went in the batch, when they had to be put in order.
    places: Option<Vec<usize>>,
}

/// Looks up several keys.
pub(crate) fn get_many_with<'r>(
    engine: &'r Engine,
    options: &ReadOptions,
    space: Space,
    keys: &[&[u8]],
) -> Result<Box<dyn Values + 'r>> {
    let column = engine.column(space);
    let (batch, places) = if keys.is_sorted() {
        (engine.db.batched_multi_get_pinned_batch_cf_opt(column, keys, true, options), None)
    } else {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by_key(|&place| keys[place]);
        let sorted = order.iter().map(|&place| keys[place]);
        let batch = engine.db.batched_multi_get_pinned_batch_cf_opt(column, sorted, true, options);
        let mut places = vec![0; keys.len()];
        order.iter().enumerate().for_each(|(number, &place)| places[place] = number);
        (batch, Some(places))
    };
    Ok(Box::new(EmbeddedValues { batch: batch.map_err(from_rocksdb)?, places }))
}

impl EmbeddedValues<'_> {
    fn look(&self, place: usize) -> Option<Looked<'_>> {
        let place = match &self.places {
            None => place,
            Some(places) => *places.get(place)?,
        };
        Some(match self.batch.get(place)? {
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
