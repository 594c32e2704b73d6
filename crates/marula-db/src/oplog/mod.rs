//! The oplog: what has changed, entry by entry, in the order of the commits.
//!
//! ```text
//!   Write, Transaction,            ┌── order ──┐
//!   changes of the catalogue ───▶  │ time      │
//!   with their Entries             │ entries   │──▶ store ──▶ those who wait
//!                                  │ commit    │
//!                                  └───────────┘
//! ```
//!
//! It is a collection, `local.oplog.rs`, whose record ids are the times of its entries: who reads
//! it by time reads a range of it. Each commit gets its times, is made and becomes visible before
//! the next gets its own; so entries are in the order in which their changes can be seen, and no
//! reader ever passes one that is still to come.
//!
//! It is written while somebody needs it ([`Db::start_oplog`]), and then tells of every change;
//! else it costs a write the look at one flag.
//! Source of the entries' form: what mongod 6.0 writes.

mod entry;
mod images;
mod listeners;
mod trim;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use marula_bson::directory::write_record;
use marula_bson::{Doc, doc};
use marula_error::{Result, errors};
use marula_storage::{KeyRange, Space, Stamp, Txn};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};

pub(crate) use entry::Entries;
pub use images::{IMAGES, PreImage};
pub use listeners::Scope;
pub use trim::Retention;

use crate::catalog::options::CollectionOptions;
use crate::collection::{Collection, Listener};
use crate::db::Db;
use crate::keys;
use crate::namespace::Namespace;
use crate::storage_error::{ForClient, client_error};
use listeners::Listeners;

errors! {
    /// A client would write what only commits may.
    no_writes(ns: &Namespace) = InvalidNamespace, "cannot write to {ns}";
    no_drop() = 5_255_000, "can't drop live oplog while replicating";
    no_rename() = IllegalOperation, "can't rename live oplog while replicating";
}

/// The bound of an oplog that nobody has given one. Source: manual "Replica Set Oplog": what mongod
/// takes at least.
const BYTES_DEFAULT: i64 = 990 << 20;

/// Its name.
pub const OPLOG: &str = "oplog.rs";
/// Its database, in which nothing is told of.
pub const LOCAL: &str = "local";

/// The term of all entries: there was one election.
const TERM: i64 = 1;
/// The version of the entries' form.
const ENTRY_VERSION: i64 = 2;

/// The oplog of a [`Db`].
#[derive(Default)]
pub struct Oplog {
    /// Whether it is written. Those who saw that it was not are waited for when it begins.
    is_on: AtomicBool,
    /// The collection of its entries, while it is written.
    collection: RwLock<Option<Arc<Collection>>>,
    /// Held while a commit gets its times and until it can be seen.
    order: Mutex<Order>,
    /// Held by commits of transactions, from their look at `is_on` on.
    transactions: RwLock<()>,
    /// The time of the newest entry.
    newest: AtomicU64,
    /// All entries from this time on are there.
    since: AtomicU64,
    /// About how many bytes it may have; zero where nobody has said.
    bytes_max: AtomicI64,
    listeners: Listeners,
}

/// Where commits are put in order.
#[derive(Default)]
struct Order {
    /// Room for an entry, and for how it is stored.
    entry: Vec<u8>,
    record: Vec<u8>,
}

impl Oplog {
    /// Whether it is written.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Whether it is written, and complete from its first entry on.
    fn has_begun(&self) -> bool {
        self.is_on() && self.since() != 0
    }

    /// The time of the newest entry; zero where there was none.
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::SeqCst)
    }

    /// The time from which on every change is told of.
    pub fn since(&self) -> u64 {
        self.since.load(Ordering::SeqCst)
    }

    /// The collection of its entries, while it is written.
    pub fn collection(&self) -> Option<Arc<Collection>> {
        self.collection.read().clone()
    }

    /// Calls `listener` once, when a change within `scope` is told of after `seen` was the newest:
    /// at once where that was before. After `until` it may be forgotten.
    pub fn on_change(&self, scope: Scope, seen: u64, until: Instant, listener: Listener) {
        self.listeners.add(scope, until, listener, || self.newest() != seen);
    }

    /// Holds off the beginning of the oplog while a transaction decides by whether it is written.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.transactions.read()
    }

    /// Makes a commit with its entries, each at a time of its own.
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
        let now_ms = now_ms();
        let (mut count, mut bytes, mut newest) = (0, 0, 0);
        let mut images = images::Batch::of(db, entries);
        let mut times = Vec::new();
        let Order { entry, record, .. } = &mut *order;
        entries.write(&mut || db.next_timestamp(now_ms), now_ms, entry, &mut |time, entry| {
            record.clear();
            write_record(entry, record);
            txn.put(Space::Records, &record_key(&collection, time), record);
            (count, bytes, newest) = (count + 1, bytes + entry.as_bytes().len(), time);
            if !images.is_empty() {
                times.push(time);
            }
        });
        images.put(entries, &times, now_ms, &mut *txn);
        let bytes = i64::try_from(bytes).expect("a commit is far below that");
        txn.add(&keys::count(collection.ident()), count);
        txn.add(&keys::size(collection.ident()), bytes);
        let stamp = txn.commit().map_err(client_error)?;
        self.newest.store(newest, Ordering::SeqCst);
        collection.counted(count, bytes);
        images.follow();
        drop(order);
        collection.tell_listeners();
        self.listeners.tell(entries);
        Ok(stamp)
    }

    /// Goes on with the oplog that was found in the store.
    pub(crate) fn load(&self, collection: Arc<Collection>, first: u64, last: u64) {
        *self.collection.write() = Some(collection);
        self.newest.store(last, Ordering::SeqCst);
        self.since.store(first, Ordering::SeqCst);
        self.is_on.store(true, Ordering::SeqCst);
    }
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
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The options of its collection.
fn options(bytes_max: i64) -> Result<CollectionOptions> {
    let options = doc! { "capped": true, "size": bytes_max, "autoIndexId": false };
    CollectionOptions::parse(options.as_doc())
}

/// The name of the oplog.
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

    /// Checks that a collection may be given another name.
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

    /// Has the oplog written from now on; where it is already, nothing happens. Every change that
    /// can be seen only after this call is told of.
    ///
    /// Errors: the operation must end first; those of the store.
    pub fn start_oplog(&self) -> Result<()> {
        if self.oplog.has_begun() {
            return Ok(());
        }
        let mut next_ident = self.lock_catalog()?;
        if self.oplog.has_begun() {
            return Ok(());
        }
        // One that was told to end while it waited has left the collection.
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
        // Who has seen that it was off is through with its commit behind these.
        for database in self.catalog().databases() {
            for collection in self.catalog().collections(&database) {
                drop(collection.hold_off()?);
            }
        }
        drop(self.oplog.transactions.write());
        self.begin_entries(&collection)
    }

    /// Writes the first entry, before which nothing is told of.
    fn begin_entries(&self, collection: &Collection) -> Result<()> {
        let order = self.oplog.order.lock();
        let mut txn = self.store().begin();
        // What came while it began is incomplete.
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

    /// Bounds the oplog to about so many bytes: the one that is written, or the next.
    ///
    /// Errors: those of the store.
    pub fn resize_oplog(&self, bytes_max: i64) -> Result<()> {
        self.oplog.bytes_max.store(bytes_max, Ordering::Relaxed);
        let Some(collection) = self.oplog.collection() else { return Ok(()) };
        self.change_collection(&collection, options(bytes_max)?, &|_| None)
    }

    /// Whether a collection keeps images of its documents.
    pub fn has_images(&self) -> bool {
        let databases = self.catalog().databases();
        databases.iter().any(|database| {
            let all = self.catalog().collections(database);
            all.iter().any(|collection| collection.state().options.has_images)
        })
    }

    /// Has images kept from now on.
    pub(crate) fn start_images(&self) -> Result<()> {
        self.start_oplog()?;
        self.keep_images()
    }

    /// Ends the oplog, and drops it: nobody needs it any more.
    ///
    /// Errors: those of the store.
    pub fn stop_oplog(&self) -> Result<()> {
        if !self.oplog.is_on() {
            return Ok(());
        }
        {
            let _order = self.oplog.order.lock();
            self.oplog.is_on.store(false, Ordering::SeqCst);
            self.oplog.since.store(0, Ordering::SeqCst);
            *self.oplog.collection.write() = None;
        }
        let mut txn = self.store().begin();
        txn.delete(Space::Catalog, &keys::OPLOG_BEGUN);
        txn.commit().for_client()?;
        for ns in [namespace()?, images::namespace()?] {
            if self.collection(&ns).is_some() {
                self.drop_collection(&ns)?;
            }
        }
        self.oplog.listeners.tell_all();
        Ok(())
    }

    /// Notes something in the oplog that changes nothing, where it is written; answers whether it
    /// is.
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

    /// Commits a change of the catalogue, with what the oplog tells of it.
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

    /// Finds the oplog that the store has.
    pub(crate) fn load_oplog(&self) -> Result<()> {
        let Some(collection) = self.collection(&namespace()?) else { return Ok(()) };
        let time = |doc: Doc<'_>| match doc.get("ts") {
            Some(marula_bson::Value::Timestamp(time)) => time,
            _ => 0,
        };
        let mut ends = [0, 0];
        for (end, direction) in ends
            .iter_mut()
            .zip([marula_storage::Direction::Forward, marula_storage::Direction::Backward])
        {
            let mut cursor = collection.scan(self.store(), direction)?;
            if cursor.advance()? {
                *end = time(cursor.doc());
            }
        }
        let [first, last] = ends;
        self.note_timestamp(last);
        self.oplog.load(collection.clone(), first, last);
        let has_begun = self.store().get(Space::Catalog, &keys::OPLOG_BEGUN, &mut |_| ());
        // A crash while it began may have left it incomplete.
        if has_begun.for_client()? { Ok(()) } else { self.begin_entries(&collection) }
    }
}

impl Collection {
    /// Checks that clients may write to it.
    ///
    /// Errors: `no_writes`.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_oplog() { Err(no_writes(&self.namespace())) } else { Ok(()) }
    }

    /// Whether its changes are told of in the oplog.
    pub(crate) fn is_told_of(&self) -> bool {
        let ns = self.namespace();
        ns.db() != LOCAL && ns.collection() != "system.profile"
    }
}

#[cfg(test)]
mod tests;
