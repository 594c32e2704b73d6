//! Store functions other than reads and writes: properties of the engine, syncs, sizes, compaction.

use marula_error::Result;
use marula_storage::cluster::Connections;
use marula_storage::times::Times;
use marula_storage::{Caps, ClusterStatus, RangeStats, Space, Stamp};

use crate::activity::Activity;
use crate::db::Db;
use crate::keys::Ident;
use crate::storage_error::ForClient;

impl Db {
    /// The properties and limits of the engine.
    pub fn engine(&self) -> &Caps {
        self.store().caps()
    }

    /// The servers of a distributed store, as they report themselves now; none in a store that is
    /// in this process.
    ///
    /// Errors: those of the store.
    pub fn cluster_status(&self) -> Result<ClusterStatus> {
        self.store().cluster_status().for_client()
    }

    /// The connections of this process to the servers of a distributed store.
    pub fn store_connections(&self) -> Vec<Connections> {
        self.store().connections()
    }

    /// The engine's counters for diagnostics: dotted names and values.
    pub fn engine_statistics(&self) -> Vec<(String, i64)> {
        self.store().statistics()
    }

    /// The durations of the engine's syncs; `None` if it has none.
    pub fn sync_times(&self) -> Option<&Times> {
        self.store().sync_times()
    }

    /// The reason for which the engine refuses writes; `None` if it accepts them.
    pub fn engine_fault(&self) -> Option<String> {
        self.store().fault()
    }

    /// The number of times that an operation has waited for a key locked by a transaction.
    pub fn lock_waits(&self) -> u64 {
        self.locks.waits()
    }

    /// Counters of background work.
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

    /// Has files stay as they are until [`Db::release_files`], so that they can be copied one by
    /// one.
    pub fn hold_files(&self) -> Result<()> {
        self.store().hold_files().for_client()
    }

    /// Lets go of held files.
    pub fn release_files(&self) -> Result<()> {
        self.store().release_files().for_client()
    }

    /// Calls `done` once [`Db::sync`] of `stamp` would return; for callers that must not block
    /// their thread.
    pub fn on_sync(&self, stamp: Stamp, done: Box<dyn FnOnce(marula_storage::Result<()>) + Send>) {
        self.store().on_sync(stamp, done);
    }

    /// The approximate size of a collection's documents or an index's entries.
    pub fn range_stats(&self, space: Space, ident: Ident) -> Result<RangeStats> {
        self.store().range_stats(space, &ident.range()).for_client()
    }

    /// Rewrites a collection's documents or an index's entries in their most compact form. `go_on`
    /// is called periodically.
    pub fn compact(
        &self,
        space: Space,
        ident: Ident,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        self.store().compact(space, &ident.range(), go_on).for_client()
    }

    /// Removes the records of sessions whose last write was before `before_ms`; returns their
    /// number.
    pub fn expire_sessions(&self, before_ms: i64) -> Result<usize> {
        self.sessions().expire(self.store(), before_ms)
    }
}
