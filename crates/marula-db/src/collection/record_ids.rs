//! Record ids: they ascend in the order in which documents are inserted.
//!
//! In a store that several processes share, the low bits of an id are the number of the node that
//! gave it, so that no two nodes give the same.

use std::sync::atomic::{AtomicI64, Ordering};

use marula_error::Result;
use marula_storage::nodes::NODE_BITS;
use marula_storage::{Direction, Space, View};

use super::Collection;
use crate::keys::{IDENT_BYTES, Ident, RecordKey};
use crate::storage_error::ForClient;

/// The ids that a collection has given.
pub(super) struct RecordIds {
    last: AtomicI64,
    /// The difference between two ids of this process.
    step: i64,
}

impl Default for RecordIds {
    fn default() -> Self {
        RecordIds { last: AtomicI64::new(0), step: 1 }
    }
}

impl RecordIds {
    /// Goes on from the last record in the store.
    pub(super) fn load(ident: Ident, store: &dyn View) -> Result<Self> {
        let mut ids = RecordIds::default();
        let mut cursor =
            store.cursor(Space::Records, &ident.range(), Direction::Backward).for_client()?;
        if cursor.advance().for_client()? {
            let last = RecordKey::new(&cursor.key()[IDENT_BYTES..]).record_id();
            *ids.last.get_mut() = last.unwrap_or(0);
        }
        Ok(ids)
    }

    /// The ids of a node.
    pub(super) fn of_node(mut self, node: u32) -> Self {
        let last = *self.last.get_mut();
        let last = last >> NODE_BITS << NODE_BITS | i64::from(node);
        RecordIds { last: AtomicI64::new(last), step: 1 << NODE_BITS }
    }
}

impl Collection {
    /// Returns the next record id.
    pub(crate) fn next_record_id(&self) -> i64 {
        let RecordIds { last, step } = &self.record_ids;
        last.fetch_add(*step, Ordering::Relaxed) + step
    }

    /// Makes later record ids greater than `id`, which another node has given.
    pub(crate) fn pass_record_id(&self, id: i64) {
        let RecordIds { last, step } = &self.record_ids;
        let own = last.load(Ordering::Relaxed) & (step - 1);
        last.fetch_max(id >> NODE_BITS << NODE_BITS | own, Ordering::Relaxed);
    }
}
