//! What is asked of the store beside reads and writes: what it can, whether data are on the disk,
//! how much room they take.

use marula_error::Result;
use marula_storage::{Caps, RangeStats, Space, Stamp};

use crate::activity::Activity;
use crate::db::Db;
use crate::keys::Ident;
use crate::storage_error::ForClient;

impl Db {
    /// What the engine is and can take.
    pub fn engine(&self) -> &Caps {
        self.store().caps()
    }

    /// The engine's counters for diagnostics: dotted names and values.
    pub fn engine_statistics(&self) -> Vec<(String, i64)> {
        self.store().statistics()
    }

    /// What it does beside its clients.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// The stamp of the newest commit.
    pub fn moment(&self) -> Stamp {
        self.store().moment()
    }

    /// Waits until every commit up to `stamp` survives a power failure.
    pub fn sync(&self, stamp: Stamp) -> Result<()> {
        self.store().sync(stamp).for_client()
    }

    /// Calls `done` once [`Db::sync`] of `stamp` would return; for those who must not hold their
    /// thread.
    pub fn on_sync(&self, stamp: Stamp, done: Box<dyn FnOnce(marula_storage::Result<()>) + Send>) {
        self.store().on_sync(stamp, done);
    }

    /// About how much a collection's documents or an index's entries take.
    pub fn range_stats(&self, space: Space, ident: Ident) -> Result<RangeStats> {
        self.store().range_stats(space, &ident.range()).for_client()
    }

    /// Rewrites a collection's documents or an index's entries in their most compact form. `go_on`
    /// is asked now and then.
    pub fn compact(
        &self,
        space: Space,
        ident: Ident,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        self.store().compact(space, &ident.range(), go_on).for_client()
    }

    /// Forgets the records of sessions whose last write was before `before_ms`; answers how many.
    pub fn expire_sessions(&self, before_ms: i64) -> Result<usize> {
        self.sessions().expire(self.store(), before_ms)
    }
}
