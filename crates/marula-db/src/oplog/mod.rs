//! The oplog: all changes, entry by entry, in commit order.
//!
//! ```text
//!   Write, Transaction,            ┌── order ──┐
//!   changes of the catalogue ───▶  │ time      │
//!   with their Entries             │ entries   │──▶ store ──▶ listeners
//!                                  │ commit    │
//!                                  └───────────┘
//! ```
//!
//! It is a collection, `local.oplog.rs`, whose record ids are the times of its entries, so reading
//! by time is reading a range. Each commit gets its times, is made and becomes visible before the
//! next one gets its times. So entries are in the order in which their changes become visible, and
//! no reader ever passes a position where an entry is still to appear. Several processes over one
//! store commit in that order too: see [`shared`].
//!
//! The oplog is written while it is needed ([`Db::start_oplog`]) and then contains every change;
//! otherwise it costs a write the check of one flag.
//! Source of the entries' form: entries written by mongod 6.0.

mod entry;
mod images;
mod listeners;
mod shared;
mod trim;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use marula_bson::directory::write_record;
use marula_bson::{Doc, Value, doc, long};
use marula_error::{Result, errors};
use marula_storage::{Direction, KeyRange, Space, Stamp, Txn, View};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};

pub(crate) use entry::Entries;
pub use images::{IMAGES, PreImage};
pub use listeners::Scope;
pub use trim::Retention;

use crate::catalog::ddl::until_unchanged;
use crate::catalog::options::CollectionOptions;
use crate::collection::{Collection, Listener};
use crate::db::Db;
use crate::keys;
use crate::namespace::Namespace;
use crate::storage_error::{ForClient, client_error};
use listeners::Listeners;

errors! {
    /// A client tried to write to the oplog.
    no_writes(ns: &Namespace) = InvalidNamespace, "cannot write to {ns}";
    no_drop() = 5_255_000, "can't drop live oplog while replicating";
    no_rename() = IllegalOperation, "can't rename live oplog while replicating";
}

/// The default maximum size. Source: manual "Replica Set Oplog": mongod's minimum default.
const BYTES_DEFAULT: i64 = 990 << 20;

/// The name of the collection.
pub const OPLOG: &str = "oplog.rs";
/// Its database, whose changes are not logged.
pub const LOCAL: &str = "local";

/// The term of all entries: there has been one election.
const TERM: i64 = 1;
/// The version of the format of entries.
const ENTRY_VERSION: i64 = 2;

/// The oplog of a [`Db`].
#[derive(Default)]
pub struct Oplog {
    /// Whether the oplog is written. When it is started, operations that saw `false` are waited
    /// for.
    is_on: AtomicBool,
    /// The collection of the entries, while the oplog is written.
    collection: RwLock<Option<Arc<Collection>>>,
    /// Held while a commit gets its times and until it is visible.
    order: Mutex<Order>,
    /// Held by commits of transactions from their check of `is_on` on.
    transactions: RwLock<()>,
    /// The time of the newest entry.
    newest: AtomicU64,
    /// The newest time that a reply had without an entry: later entries have greater times.
    reported: AtomicU64,
    /// All entries from this time on exist.
    since: AtomicU64,
    /// The approximate maximum size; zero for the default.
    bytes_max: AtomicI64,
    listeners: Listeners,
}

/// The entries and pre-images that a commit adds, in numbers.
struct Added {
    count: i64,
    bytes: i64,
    /// The time of its last entry.
    newest: u64,
    images: images::Batch,
}

/// Serializes commits.
#[derive(Default)]
struct Order {
    /// Reusable buffers for an entry and its stored form.
    entry: Vec<u8>,
    record: Vec<u8>,
}

impl Oplog {
    /// Returns whether the oplog is written.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Returns whether it is written and complete from its first entry on.
    fn has_begun(&self) -> bool {
        self.is_on() && self.since() != 0
    }

    /// The time of the newest entry; zero if there is none.
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::SeqCst)
    }

    /// Returns a time that is at least that of every visible entry and less than that of every
    /// later one: `clock`, if no time of its second was assigned and no commit is in progress.
    /// `assigned` is the newest time that was assigned.
    pub(crate) fn report_time(&self, clock: u64, assigned: &AtomicU64) -> u64 {
        if clock > assigned.load(Ordering::Relaxed)
            && let Some(_order) = self.order.try_lock()
        {
            assigned.fetch_max(clock, Ordering::Relaxed);
            self.reported.fetch_max(clock, Ordering::SeqCst);
        }
        self.newest().max(self.reported.load(Ordering::SeqCst))
    }

    /// The time from which on every change is logged.
    pub fn since(&self) -> u64 {
        self.since.load(Ordering::SeqCst)
    }

    /// The collection of its entries, while it is written.
    pub fn collection(&self) -> Option<Arc<Collection>> {
        self.collection.read().clone()
    }

    /// Calls `listener` once, when a change in `scope` is logged after `seen` was the newest entry;
    /// at once if that has happened already. It may be discarded after `until`.
    pub fn on_change(&self, scope: Scope, seen: u64, until: Instant, listener: Listener) {
        self.listeners.add(scope, until, listener, || self.newest() != seen);
    }

    /// Prevents the start of the oplog while a transaction relies on its check of whether it is
    /// written.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.transactions.read()
    }

    /// Makes a commit with its entries, each with its own time.
    ///
    /// Errors: those of the store.
    pub(crate) fn commit(
        &self,
        db: &Db,
        txn: Box<dyn Txn + '_>,
        entries: &Entries,
    ) -> Result<Stamp> {
        let order = self.order.lock();
        self.commit_ordered(db, order, txn, entries)
    }

    fn commit_ordered(
        &self,
        db: &Db,
        mut order: MutexGuard<'_, Order>,
        mut txn: Box<dyn Txn + '_>,
        entries: &Entries,
    ) -> Result<Stamp> {
        let Some(collection) = self.collection() else {
            return txn.commit().map_err(client_error);
        };
        let (stamp, added) = match db.is_shared() {
            false => {
                let added = put_entries(db, &collection, &mut order, entries, &mut *txn);
                (txn.commit().map_err(client_error)?, added)
            }
            true => shared::commit(db, &collection, &mut order, entries, txn)?,
        };
        self.newest.fetch_max(added.newest, Ordering::SeqCst);
        collection.counted(added.count, added.bytes);
        added.images.update_counters();
        drop(order);
        collection.notify_listeners();
        self.listeners.notify(entries);
        Ok(stamp)
    }

    /// Ends the writing of entries.
    fn end(&self) {
        let _order = self.order.lock();
        self.is_on.store(false, Ordering::SeqCst);
        self.since.store(0, Ordering::SeqCst);
        *self.collection.write() = None;
    }

    /// Continues the oplog that was found in the store.
    pub(crate) fn load(&self, collection: Arc<Collection>, first: u64, last: u64) {
        *self.collection.write() = Some(collection);
        self.newest.store(last, Ordering::SeqCst);
        self.since.store(first, Ordering::SeqCst);
        self.is_on.store(true, Ordering::SeqCst);
    }
}

/// Adds the entries, each with its own time, to their commit.
fn put_entries(
    db: &Db,
    collection: &Collection,
    order: &mut Order,
    entries: &Entries,
    txn: &mut dyn Txn,
) -> Added {
    let now_ms = now_ms();
    let (mut count, mut bytes, mut newest) = (0, 0, 0);
    let mut images = images::Batch::of(db, entries);
    let mut times = Vec::new();
    let Order { entry, record } = order;
    entries.write(&mut || db.next_timestamp(now_ms), now_ms, entry, &mut |time, entry| {
        record.clear();
        write_record(entry, record);
        txn.put(Space::Records, &record_key(collection, time), record);
        (count, bytes, newest) = (count + 1, bytes + entry.as_bytes().len(), time);
        if !images.is_empty() {
            times.push(time);
        }
    });
    images.put(entries, &times, now_ms, txn);
    let bytes = i64::try_from(bytes).expect("a commit is far below that");
    txn.add(&keys::count(collection.ident()), count);
    txn.add(&keys::size(collection.ident()), bytes);
    Added { count, bytes, newest, images }
}

/// The store key of the entry of this time.
pub(crate) fn record_key(collection: &Collection, time: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&collection.ident().bytes());
    key[4..].copy_from_slice(&time.to_be_bytes());
    key
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    long(since.as_millis())
}

/// The options of the collection.
fn options(bytes_max: i64) -> Result<CollectionOptions> {
    let options = doc! { "capped": true, "size": bytes_max, "autoIndexId": false };
    CollectionOptions::parse(options.as_doc())
}

/// The namespace of the oplog.
pub(crate) fn namespace() -> Result<Namespace> {
    Namespace::new(LOCAL, OPLOG)
}

impl Db {
    /// Checks that a collection may be dropped.
    ///
    /// Errors: `no_drop`.
    pub(crate) fn check_droppable(&self, collection: &Collection) -> Result<()> {
        if collection.is_oplog() && self.oplog.is_on() { Err(no_drop()) } else { Ok(()) }
    }

    /// Checks that a collection may be renamed.
    ///
    /// Errors: `no_rename`.
    pub(crate) fn check_renamable(&self, collection: &Collection) -> Result<()> {
        if collection.is_oplog() { Err(no_rename()) } else { Ok(()) }
    }

    /// The oplog.
    #[inline]
    pub fn oplog(&self) -> &Oplog {
        &self.oplog
    }

    /// Starts the oplog, or does nothing if it is running. Every change that becomes visible after
    /// this call is logged.
    ///
    /// Errors: the operation was interrupted; those of the store.
    pub fn start_oplog(&self) -> Result<()> {
        if self.oplog.has_begun() {
            return Ok(());
        }
        let mut next_ident = self.lock_catalog()?;
        self.renew_oplog()?;
        if self.oplog.has_begun() {
            return Ok(());
        }
        // A start that was interrupted while it waited has left the collection.
        let collection = match self.oplog.collection() {
            Some(collection) => collection,
            None => {
                let bytes_max = match self.oplog.bytes_max.load(Ordering::Relaxed) {
                    0 => BYTES_DEFAULT,
                    bytes_max => bytes_max,
                };
                self.create_locked(&mut next_ident, &namespace()?, options(bytes_max)?)?
            }
        };
        *self.oplog.collection.write() = Some(collection.clone());
        self.oplog.is_on.store(true, Ordering::SeqCst);
        self.wait_for_unlogged()?;
        self.begin_entries(&collection)
    }

    /// Waits until the operations that saw the oplog off have committed.
    ///
    /// Errors: the operation was interrupted.
    fn wait_for_unlogged(&self) -> Result<()> {
        self.drain_writers()?;
        drop(self.oplog.transactions.write());
        Ok(())
    }

    /// Writes the first entry; earlier changes are not logged.
    fn begin_entries(&self, collection: &Collection) -> Result<()> {
        let order = self.oplog.order.lock();
        if self.is_shared() {
            return self.begin_shared_entries(order);
        }
        let mut txn = self.store().begin();
        // Entries written during the start are incomplete.
        let range = KeyRange {
            start: record_key(collection, 0).to_vec(),
            end: record_key(collection, u64::MAX).to_vec(),
        };
        txn.clear_range(Space::Records, &range);
        let (count, bytes) = (collection.count(), collection.size_bytes());
        txn.add(&keys::count(collection.ident()), -count);
        txn.add(&keys::size(collection.ident()), -bytes);
        let mut entries = Entries::default();
        entries.note(doc! { "msg": "initiating set" }.as_doc());
        txn.put(Space::Catalog, &keys::OPLOG_BEGUN, &[]);
        self.oplog.commit_ordered(self, order, txn, &entries)?;
        collection.counted(-count, -bytes);
        self.oplog.since.store(self.oplog.newest(), Ordering::SeqCst);
        Ok(())
    }

    /// Limits the oplog, or the next one, to about this size.
    ///
    /// Errors: those of the store.
    pub fn resize_oplog(&self, bytes_max: i64) -> Result<()> {
        self.oplog.bytes_max.store(bytes_max, Ordering::Relaxed);
        let Some(collection) = self.oplog.collection() else { return Ok(()) };
        until_unchanged(|| {
            self.change_collection(&collection, &collection.state(), options(bytes_max)?, &|_| None)
        })
    }

    /// Returns whether any collection keeps pre-images.
    pub fn has_images(&self) -> bool {
        let databases = self.catalog().databases();
        databases.iter().any(|database| {
            let all = self.catalog().collections(database);
            all.iter().any(|collection| collection.state().options.has_images)
        })
    }

    /// Starts keeping pre-images.
    pub(crate) fn start_images(&self) -> Result<()> {
        self.start_oplog()?;
        self.keep_images()
    }

    /// Stops and drops the oplog, which is no longer needed.
    ///
    /// Errors: those of the store.
    pub fn stop_oplog(&self) -> Result<()> {
        if !self.oplog.is_on() {
            return Ok(());
        }
        self.oplog.end();
        let mut txn = self.store().begin();
        txn.delete(Space::Catalog, &keys::OPLOG_BEGUN);
        txn.delete(Space::Catalog, &keys::OPLOG_SINCE);
        txn.commit().for_client()?;
        for ns in [namespace()?, images::namespace()?] {
            if self.collection(&ns).is_some() {
                self.drop_collection(&ns)?;
            }
        }
        self.oplog.listeners.notify_all();
        Ok(())
    }

    /// Adds a note to the oplog if it is written; returns whether it is.
    ///
    /// Errors: those of the store.
    pub fn note_in_oplog(&self, what: Doc<'_>) -> Result<bool> {
        if !self.oplog.has_begun() {
            return Ok(false);
        }
        let mut entries = Entries::default();
        entries.note(what);
        self.oplog.commit(self, self.store().begin(), &entries)?;
        Ok(true)
    }

    /// Commits a catalogue change with its oplog entries.
    ///
    /// Errors: those of the store.
    pub(crate) fn commit_change(
        &self,
        txn: Box<dyn Txn + '_>,
        tell: impl FnOnce(&mut Entries),
    ) -> Result<Stamp> {
        if !self.oplog.is_on() {
            return txn.commit().for_client();
        }
        let mut entries = Entries::default();
        tell(&mut entries);
        match entries.is_empty() {
            true => txn.commit().for_client(),
            false => self.oplog.commit(self, txn, &entries),
        }
    }

    /// Loads the oplog that the store contains.
    pub(crate) fn load_oplog(&self) -> Result<()> {
        let Some(collection) = self.collection(&namespace()?) else { return Ok(()) };
        let [first, last] = ends(&collection, self.store())?;
        self.note_timestamp(last);
        self.oplog.load(collection.clone(), first, last);
        let has_begun = self.store().get(Space::Catalog, &keys::OPLOG_BEGUN, &mut |_| ());
        // A crash during the start may have left it incomplete.
        if has_begun.for_client()? { Ok(()) } else { self.begin_entries(&collection) }
    }
}

/// The times of the first and the last entry; zero if there is none.
fn ends(collection: &Collection, view: &dyn View) -> Result<[u64; 2]> {
    let mut ends = [0, 0];
    for (end, direction) in ends.iter_mut().zip([Direction::Forward, Direction::Backward]) {
        let mut cursor = collection.scan(view, direction)?;
        if cursor.advance()?
            && let Some(Value::Timestamp(time)) = cursor.doc().get("ts")
        {
            *end = time;
        }
    }
    Ok(ends)
}

impl Collection {
    /// Checks that clients may write to the collection.
    ///
    /// Errors: `no_writes`.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_oplog() { Err(no_writes(&self.namespace())) } else { Ok(()) }
    }

    /// Returns whether changes of the collection are logged in the oplog.
    pub(crate) fn is_logged(&self) -> bool {
        let ns = self.namespace();
        ns.db() != LOCAL && ns.collection() != "system.profile"
    }
}

#[cfg(test)]
mod tests;
