//! The oplog of a store that several processes serve.
//!
//! ```text
//!   node A   entries ─┐            ┌─ clock ─┐
//!                     ├─► in turn: │ time    │──► store ──► readers of any node
//!   node B   entries ─┘            │ entries │              up to the clock
//!                                  │ commit  │
//!                                  └─────────┘
//! ```
//!
//! The *clock* is a key with the time of the newest entry. A commit with entries reads it, takes
//! later times, and changes it: such commits are made [in turn](Txn::commit_in_turn) by all nodes.
//! So entries are in the order of their commits here too, and a view that shows a time of the clock
//! shows every entry up to it.
//!
//! Whether the oplog is written is part of the catalogue, because its collection is. A node that
//! has not noticed the start cannot commit a change, since the start has changed the epoch.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use marula_bson::doc;
use marula_error::Result;
use marula_storage::{Looked, Space, Stamp, Txn, View};
use parking_lot::MutexGuard;

use super::{Added, Entries, Order, ends, namespace, put_entries};
use crate::collection::Collection;
use crate::db::Db;
use crate::keys;
use crate::storage_error::{ForClient, client_error};

/// The interval at which a node with waiting change streams looks for entries of others.
const WATCH_STEP: Duration = Duration::from_millis(50);

/// The number of times that the clock is set to the last entry where others change it.
const SETTLE_TRIES: usize = 20;

/// Makes a commit with its entries, whose times are later than those of all nodes.
pub(super) fn commit(
    db: &Db,
    collection: &Collection,
    order: &mut Order,
    entries: &Entries,
    txn: Box<dyn Txn + '_>,
) -> Result<(Stamp, Added)> {
    let mut added = None;
    let stamp = txn.commit_in_turn(&keys::OPLOG_CLOCK, &mut |clock, txn| {
        db.note_timestamp(time_of(clock));
        let now = put_entries(db, collection, order, entries, txn);
        txn.put(Space::Catalog, &keys::OPLOG_CLOCK, &now.newest.to_be_bytes());
        added = Some(now);
    });
    let stamp = stamp.map_err(client_error)?;
    Ok((stamp, added.expect("the entries are put before the commit")))
}

fn time_of(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_be_bytes)
}

/// The stored times of the newest entry, and from which on all are there.
fn times(view: &dyn View) -> Result<[u64; 2]> {
    let found =
        view.get_many(Space::Catalog, &[&keys::OPLOG_CLOCK, &keys::OPLOG_SINCE]).for_client()?;
    Ok([0, 1].map(|place| match found.get(place) {
        Looked::Found(value) => time_of(Some(value)),
        Looked::Absent | Looked::Unread => 0,
    }))
}

impl Db {
    /// Has the positions of the oplog in memory include what other nodes have written. Does nothing
    /// in a process that has the store for itself.
    ///
    /// Errors: those of the store.
    pub fn renew_oplog(&self) -> Result<()> {
        if !self.is_shared() || !self.oplog.is_on() {
            return Ok(());
        }
        self.renew_oplog_at(self.store())
    }

    /// The same, as of a view. Its reader sees every entry between the two positions.
    ///
    /// Errors: those of the store.
    pub fn renew_oplog_at(&self, view: &dyn View) -> Result<()> {
        if !self.is_shared() {
            return Ok(());
        }
        let [newest, since] = times(view)?;
        self.oplog.newest.fetch_max(newest, Ordering::SeqCst);
        self.oplog.since.fetch_max(since, Ordering::SeqCst);
        Ok(())
    }

    /// Starts or ends the writing of entries if another node has. The catalogue has been read.
    pub(crate) fn follow_oplog(&self, view: &dyn View) -> Result<()> {
        match (self.collection(&namespace()?), self.oplog.collection()) {
            (Some(stored), Some(own)) if Arc::ptr_eq(&own, &stored) => {}
            (Some(stored), _) => {
                self.oplog.is_on.store(true, Ordering::SeqCst);
                self.wait_for_unlogged()?;
                self.renew_oplog_at(view)?;
                *self.oplog.collection.write() = Some(stored);
            }
            (None, Some(_)) => {
                self.oplog.end();
                self.oplog.listeners.notify_all();
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// Has the stored times be those of the entries: a process that has the store for itself does
    /// not keep them. The catalogue is locked.
    pub(crate) fn settle_oplog(&self) -> Result<()> {
        let Some(collection) = self.oplog.collection() else { return Ok(()) };
        for _ in 0..SETTLE_TRIES {
            let mut txn = self.store().begin();
            txn.guard(&[(Space::Catalog, &keys::OPLOG_CLOCK)]).for_client()?;
            let [first, last] = ends(&collection, txn.view())?;
            let [newest, since] = times(txn.view())?;
            let has_begun = txn.view().get(Space::Catalog, &keys::OPLOG_BEGUN, &mut |_| ());
            let is_moved = has_begun.for_client()? && since < first;
            if newest >= last && !is_moved {
                break;
            }
            txn.put(Space::Catalog, &keys::OPLOG_CLOCK, &newest.max(last).to_be_bytes());
            if is_moved {
                txn.put(Space::Catalog, &keys::OPLOG_SINCE, &first.to_be_bytes());
            }
            match txn.commit() {
                Err(marula_storage::Error::Conflict) => {}
                outcome => {
                    outcome.for_client()?;
                    break;
                }
            }
        }
        self.renew_oplog()
    }

    /// Writes the first entry, from which on the oplog is complete. Other nodes have written
    /// entries before, since the collection is there.
    pub(super) fn begin_shared_entries(&self, order: MutexGuard<'_, Order>) -> Result<()> {
        let mut entries = Entries::default();
        entries.note(doc! { "msg": "initiating set" }.as_doc());
        self.oplog.commit_ordered(self, order, self.store().begin(), &entries)?;
        let since = self.oplog.newest();
        let mut txn = self.store().begin();
        txn.put(Space::Catalog, &keys::OPLOG_BEGUN, &[]);
        txn.put(Space::Catalog, &keys::OPLOG_SINCE, &since.to_be_bytes());
        txn.commit().for_client()?;
        self.oplog.since.fetch_max(since, Ordering::SeqCst);
        Ok(())
    }

    /// Records for all nodes that the oplog was used at this time.
    ///
    /// Errors: those of the store.
    pub fn note_oplog_use(&self, used_ms: i64) -> Result<()> {
        let mut txn = self.store().begin();
        txn.put(Space::Catalog, &keys::OPLOG_USED, &used_ms.to_be_bytes());
        txn.commit().for_client().map(drop)
    }

    /// The time when a node last used the oplog, as far as that was recorded.
    ///
    /// Errors: those of the store.
    pub fn oplog_used_ms(&self) -> Result<i64> {
        let mut used_ms = 0;
        let visit = &mut |value: &[u8]| used_ms = value.try_into().map_or(0, i64::from_be_bytes);
        self.store().get(Space::Catalog, &keys::OPLOG_USED, visit).for_client()?;
        Ok(used_ms)
    }

    /// Wakes the change streams that wait when another node has written entries, until this is
    /// dropped.
    pub(crate) fn watch_oplog(self: &Arc<Self>) {
        let db = Arc::downgrade(self);
        let mut seen = 0;
        let watch = move || {
            while let Some(db) = db.upgrade() {
                if db.oplog.is_on() && db.oplog.listeners.any() {
                    // A store that is not reached is looked at again.
                    if let Ok([newest, _]) = times(db.store())
                        && std::mem::replace(&mut seen, newest) != newest
                    {
                        db.oplog.newest.fetch_max(newest, Ordering::SeqCst);
                        db.oplog.listeners.notify_all();
                    }
                }
                drop(db);
                std::thread::sleep(WATCH_STEP);
            }
        };
        let thread = std::thread::Builder::new().name("oplog".to_owned()).spawn(watch);
        if let Err(error) = thread {
            tracing::error!(%error, "waiting change streams do not notice the changes of other nodes");
        }
    }
}
