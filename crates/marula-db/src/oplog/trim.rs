//! Trims the oplog.

use std::time::Instant;

use marula_bson::Value;
use marula_error::Result;
use marula_storage::{Direction, KeyRange, Space};

use super::{now_ms, record_key};
use crate::db::Db;
use crate::keys;
use crate::storage_error::ForClient;

/// The maximum number of entries removed in one transaction.
pub(super) const CHUNK: usize = 10_000;

/// The minimum retention of the oplog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Younger entries are kept, however many there are.
    pub at_least_ms: i64,
    /// The time that pre-images are kept; `None` means as long as the entries.
    pub images_ms: Option<i64>,
}

impl Db {
    /// Removes the oldest entries of an oplog that exceeds its size, and pre-images that are too
    /// old.
    ///
    /// Errors: those of the store.
    pub fn trim_oplog(&self, retention: Retention) -> Result<()> {
        let began = Instant::now();
        while self.trim_some(retention)? {}
        self.activity
            .oplog_trim_us
            .add(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
        self.forget_images(retention.images_ms)
    }

    /// Removes some entries; returns whether there may be more to remove.
    fn trim_some(&self, retention: Retention) -> Result<bool> {
        let Some(collection) = self.oplog.collection() else { return Ok(false) };
        let bound =
            collection.state().options.capped.map_or(i64::MAX, |capped| capped.size_bytes_max);
        let surplus = collection.size_bytes() - bound;
        if surplus <= 0 {
            return Ok(false);
        }
        let keep_from_ms = now_ms() - retention.at_least_ms;
        let (mut count, mut bytes, mut kept) = (0, 0, None);
        let mut cursor = collection.scan(self.store(), Direction::Forward)?;
        while cursor.advance()? {
            let doc = cursor.doc();
            let time = match doc.get("ts") {
                Some(Value::Timestamp(time)) => time,
                _ => 0,
            };
            let is_young = matches!(doc.get("wall"), Some(Value::DateTime(at)) if at >= keep_from_ms)
                && retention.at_least_ms > 0;
            if is_young || bytes >= surplus || count as usize >= CHUNK {
                kept = Some(time);
                break;
            }
            count += 1;
            bytes += i64::try_from(doc.as_bytes().len()).unwrap_or(0);
        }
        drop(cursor);
        // The newest entry always stays.
        let Some(kept) = kept.filter(|_| count > 0) else { return Ok(false) };
        self.activity.oplog_trims.add(1);
        self.oplog.since.fetch_max(kept, std::sync::atomic::Ordering::SeqCst);
        let mut txn = self.store().begin();
        let range = KeyRange {
            start: record_key(&collection, 0).to_vec(),
            end: record_key(&collection, kept).to_vec(),
        };
        txn.clear_range(Space::Records, &range);
        if self.is_shared() {
            txn.put(Space::Catalog, &keys::OPLOG_SINCE, &kept.to_be_bytes());
        }
        txn.add(&keys::count(collection.ident()), -count);
        txn.add(&keys::size(collection.ident()), -bytes);
        txn.commit().for_client()?;
        collection.counted(-count, -bytes);
        Ok(count as usize >= CHUNK)
    }
}
