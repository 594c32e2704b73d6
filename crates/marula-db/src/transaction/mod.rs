//! A client's transaction: a unit of work that is parked between its statements.
//!
//! It reads one moment, with its own writes on top ([`Overlay`]). Each statement writes into a
//! change of its own, which joins the transaction when the statement succeeds. The keys that the
//! transaction writes or guards are locked ([`locks`]) and must be unchanged since its moment: the
//! first transaction to change a document wins, and the other gets a conflict at once. At the end
//! everything goes into the store in one batch, with the counters and the session's record, and the
//! effects follow.
//!
//! A collection that the transaction has touched cannot change its state until the transaction
//! ends: catalogue changes wait ([`Collection::quiesce`]).

pub mod locks;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use marula_bson::{Doc, DocBuf};
use marula_error::{Error, Result, codes, errors};
use marula_storage::overlay::{Claims, Overlay};
use marula_storage::{Error as StorageError, Space, Stamp, Txn, View};
use parking_lot::Mutex;

use self::locks::{Claim, Lock};
use crate::catalog::ddl_log;
use crate::catalog::options::CollectionOptions;
use crate::collection::Collection;
use crate::current;
use crate::db::Db;
use crate::index::{Index, IndexSpec, Multikey};
use crate::keys::{self, Ident};
use crate::namespace::Namespace;
use crate::oplog::Entries;
use crate::session::Sessions;
use crate::storage_error::{ForClient, client_error};
use crate::unit::Growth;

errors! {
    /// At the moment of the view the collection did not exist, or had another name, or lacked an
    /// index that would have to be changed.
    pub(crate) snapshot_unavailable() = SnapshotUnavailable, "Unable to read from a snapshot due to pending collection catalog changes; please retry the operation.";
    lock_timeout(ns: &Namespace, ms: u128) = LockTimeout, "Unable to acquire IX lock on '{{{ns}}}' within {ms}ms.";
    too_large(bytes: u64) = TransactionTooLarge, "Transaction's writes take more than {bytes} bytes of memory";
    too_many(bytes: u64) = TransactionTooLarge, "The writes of all open transactions take more than {bytes} bytes of memory";
    is_over() = NoSuchTransaction, "the transaction has ended";
}

/// The time that a lock waits for a running write of one moment.
const LATCH_WAIT: Duration = Duration::from_millis(5);

/// The time that a commit waits for running writes of one moment, where other nodes may write too.
const COMMIT_WAIT: Duration = Duration::from_secs(1);

/// The number of times that a commit is tried that another node's change of the catalogue prevents.
const STALE_TRIES_MAX: usize = 10;

/// The end of a transaction that has written or locked more runs on a pool thread.
const QUICK_BYTES_MAX: usize = 64 << 10;
const QUICK_LOCKS_MAX: usize = 1_000;

/// The limits of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The time that it waits for a catalogue change.
    pub lock_timeout: Duration,
    /// The maximum number of bytes that it may write.
    pub bytes_max: u64,
    /// The maximum number of bytes that all open transactions may write together.
    pub total_bytes_max: u64,
}

/// The number of bytes that open transactions have written.
static TOTAL_BYTES: AtomicU64 = AtomicU64::new(0);

/// A client's transaction. Dropping it without a commit undoes it.
pub struct Transaction {
    db: Arc<Db>,
    id: u64,
    overlay: Overlay,
    limits: Limits,
    /// Whether its oplog entries are gathered.
    is_logged: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_over: bool,
    touched: HashMap<Ident, TouchedCollection>,
    locks: Vec<Lock>,
    marks: Vec<(Arc<Index>, Multikey)>,
    /// The collections that the commit creates.
    created: Vec<Arc<Collection>>,
    /// The number of document changes by its statements.
    changes: u64,
    /// Its oplog entries.
    entries: Entries,
    /// Its share of [`TOTAL_BYTES`].
    counted_bytes: u64,
}

/// Identifies a transaction of a session.
#[derive(Clone, Copy, Debug)]
pub struct Numbered<'n> {
    /// The session's id.
    pub lsid: &'n [u8],
    /// Its `txnNumber`.
    pub number: i64,
    /// The time of the commit in milliseconds since 1970.
    pub now_ms: i64,
}

/// A collection that the transaction has read or written.
struct TouchedCollection {
    collection: Arc<Collection>,
    growth: Growth,
}

impl Transaction {
    /// Begins a transaction that reads this moment.
    pub fn begin(db: &Arc<Db>, limits: Limits) -> Result<Self> {
        static LAST_ID: AtomicU64 = AtomicU64::new(0);
        Ok(Transaction {
            id: LAST_ID.fetch_add(1, Ordering::Relaxed) + 1,
            overlay: Overlay::new(db.view_now()?),
            db: db.clone(),
            limits,
            is_logged: db.oplog().is_on(),
            state: Mutex::default(),
        })
    }

    /// The view of its statements.
    pub(crate) fn view(&self) -> &dyn View {
        &self.overlay
    }

    /// The moment of the commits that it shows.
    pub(crate) fn moment(&self) -> Stamp {
        self.overlay.base().moment()
    }

    /// Returns whether its oplog entries are gathered.
    pub(crate) fn logs_changes(&self) -> bool {
        self.is_logged
    }

    /// The collection with this name, including those that the transaction has created.
    pub fn collection(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        let state = self.state.lock();
        let own = state.created.iter().find(|collection| collection.namespace() == *ns).cloned();
        drop(state);
        own.or_else(|| self.db.collection(ns))
    }

    /// Begins the change of one statement, or of a part of it.
    pub(crate) fn begin_statement(&self) -> Box<dyn Txn + '_> {
        self.overlay.begin(self)
    }

    /// Prevents changes of a collection's state until the transaction ends.
    ///
    /// Errors: `lock_timeout` if such a change is running or waiting, `snapshot_unavailable` if the
    /// collection did not exist at the transaction's moment.
    pub(crate) fn touch(&self, collection: &Collection) -> Result<()> {
        if self.state.lock().touched.contains_key(&collection.ident()) {
            return Ok(());
        }
        let collection = self.collection(&collection.namespace());
        let collection = collection.ok_or_else(|| client_error(StorageError::Conflict))?;
        let until = Instant::now() + self.limits.lock_timeout;
        while !collection.enter_transaction() {
            if !current::may_wait() {
                return Err(Error::postponed());
            }
            if Instant::now() >= until {
                let ms = self.limits.lock_timeout.as_millis();
                return Err(lock_timeout(&collection.namespace(), ms));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut state = self.state.lock();
        let is_own = state.created.iter().any(|own| Arc::ptr_eq(own, &collection));
        let outcome = match () {
            () if state.is_over => Err(ended()),
            () if is_own => Ok(()),
            () if collection.is_dropped() => Err(snapshot_unavailable()),
            () => collection.check_seen(self.moment()),
        };
        if outcome.is_err() {
            collection.leave_transaction();
            return outcome;
        }
        let growth = Growth::default();
        state.touched.insert(collection.ident(), TouchedCollection { collection, growth });
        Ok(())
    }

    /// Checks that no other open transaction has locked a key.
    ///
    /// Errors: a conflict.
    pub(crate) fn check_not_anothers(&self, key: (Space, &[u8])) -> Result<()> {
        match self.db.locks.is_anothers(self.id, key) {
            true => Err(client_error(StorageError::Conflict)),
            false => Ok(()),
        }
    }

    /// Checks that the transaction has not ended: a session may be killed while its statement runs.
    ///
    /// Errors: those of [`ended`].
    #[cold]
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.state.lock().is_over {
            true => Err(ended()),
            false => Ok(()),
        }
    }

    /// Takes over the effects of a statement's change.
    ///
    /// Errors: `too_large`, `too_many`, and those of [`ended`].
    pub(crate) fn absorb(
        &self,
        grown: Option<(Ident, Growth)>,
        marks: &mut Vec<(Arc<Index>, Multikey)>,
        entries: Option<Box<Entries>>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        if state.is_over {
            return Err(ended());
        }
        if let Some(entries) = entries {
            state.entries.append(*entries);
        }
        state.marks.append(marks);
        if let Some((ident, more)) = grown {
            // A change may modify a document without changing their number.
            state.changes += more.documents.unsigned_abs().max(1);
            let touched = state.touched.get_mut(&ident);
            touched.expect("a collection is touched before it is written").growth += more;
        }
        let bytes = (self.overlay.bytes() + state.entries.bytes()) as u64;
        let more = bytes - state.counted_bytes;
        state.counted_bytes += more;
        let total = TOTAL_BYTES.fetch_add(more, Ordering::Relaxed) + more;
        let Limits { bytes_max, total_bytes_max, .. } = self.limits;
        match () {
            () if bytes > bytes_max => Err(too_large(bytes_max)),
            () if total > total_bytes_max => Err(too_many(total_bytes_max)),
            () => Ok(()),
        }
    }

    /// Creates a collection, which becomes visible to others with the commit.
    ///
    /// Errors: as [`Db::create_collection`].
    pub(crate) fn create_collection(
        &self,
        ns: &Namespace,
        options: CollectionOptions,
    ) -> Result<Arc<Collection>> {
        if let Some(known) = self.collection(ns) {
            return Err(crate::catalog::exists(&known));
        }
        let collection = Arc::new(self.db.prepare_collection(ns, options)?);
        let mut state = self.state.lock();
        if self.is_logged {
            ddl_log::created(&collection, &mut state.entries);
        }
        state.created.push(collection.clone());
        drop(state);
        Ok(collection)
    }

    /// Adds indexes to an empty collection that this transaction has created.
    ///
    /// Errors: as [`Db::prepare_indexes`].
    pub fn create_indexes(
        &self,
        collection: &Arc<Collection>,
        specs: &[IndexSpec],
    ) -> Result<(usize, usize)> {
        let before = collection.state().indexes.len();
        let counts = self.db.prepare_indexes(collection, specs)?;
        if self.is_logged {
            let entries = &mut self.state.lock().entries;
            for index in &collection.state().indexes[before..] {
                ddl_log::index_made(collection, index, entries);
            }
        }
        Ok(counts)
    }

    /// Returns whether this transaction has created the collection.
    pub fn has_created(&self, collection: &Collection) -> bool {
        self.state.lock().created.iter().any(|own| own.ident() == collection.ident())
    }

    /// Returns whether it has changed the number of documents of the collection.
    pub fn has_documents_in(&self, collection: &Collection) -> bool {
        let state = self.state.lock();
        state.touched.get(&collection.ident()).is_some_and(|touched| touched.growth.documents != 0)
    }

    /// The number of document changes by its statements, and the bytes that it has written.
    pub fn written(&self) -> (u64, u64) {
        (self.state.lock().changes, self.overlay.bytes() as u64)
    }

    /// Returns whether its end may take so long that it should not run on a network worker.
    pub fn is_large(&self) -> bool {
        let state = self.state.lock();
        self.overlay.bytes() > QUICK_BYTES_MAX
            || state.locks.len() > QUICK_LOCKS_MAX
            || !state.created.is_empty()
    }

    /// Commits the transaction atomically. In a session, the session's record marks it as
    /// committed.
    ///
    /// Errors: those of the store; a conflict if another operation has created one of its
    /// collections in the meantime. On error nothing is committed.
    pub fn commit(&self, of: Option<Numbered<'_>>) -> Result<()> {
        let created = self.state.lock().created.clone();
        let ddl = if created.is_empty() { None } else { Some(self.db.lock_catalog()?) };
        if created.iter().any(|collection| self.db.collection(&collection.namespace()).is_some()) {
            return Err(client_error(StorageError::Conflict));
        }
        let mut state = self.state.lock();
        if state.is_over {
            return Err(ended());
        }
        if !self.overlay.is_empty() || !created.is_empty() {
            let mut tries = 1;
            while let Err(error) = self.try_commit(&mut state, &created, of) {
                // Another node may have changed the catalogue: whether that concerns this
                // transaction is looked at again.
                let may_try = self.db.is_stale() && tries < STALE_TRIES_MAX;
                if error.code() != codes::WriteConflict || !may_try {
                    return Err(error);
                }
                tries += 1;
                self.db.renew_catalog()?;
            }
        }
        for collection in created {
            collection.set_shaped_at(self.db.moment());
            self.db.catalog().insert(collection.clone());
            self.db.report_created(&collection);
        }
        drop(ddl);
        for (index, multikey) in state.marks.drain(..) {
            index.note_marks_stored(&multikey);
        }
        for touched in state.touched.values() {
            touched.growth.apply(&touched.collection);
        }
        self.end(&mut state);
        Ok(())
    }

    fn try_commit(
        &self,
        state: &mut State,
        created: &[Arc<Collection>],
        of: Option<Numbered<'_>>,
    ) -> Result<()> {
        let store = self.db.store();
        let mut txn = match self.db.is_shared() {
            false => store.begin(),
            true => store.begin_since(self.overlay.base()),
        };
        if self.db.is_shared() {
            self.guard_all(&mut *txn, state, created, of)?;
            if !state.marks.is_empty() {
                txn.change_epoch();
            }
        }
        for collection in created {
            self.db.put_created(&mut *txn, collection)?;
        }
        self.overlay.write_into(&mut *txn, self.db.engine().keeps_deltas);
        if let Some(Numbered { lsid, number, now_ms }) = of {
            Sessions::stage_commit(lsid, number, now_ms, &mut *txn);
        }
        // From here to the commit the oplog cannot be started.
        let _hold = self.db.oplog().hold();
        let mut entries = match self.is_logged {
            true => std::mem::take(&mut state.entries),
            false if self.db.oplog().is_on() => self.net_effect(state)?,
            false => Entries::default(),
        };
        of.into_iter().for_each(|numbered| entries.belong_to(numbered));
        let committed = match entries.is_empty() {
            true => txn.commit().for_client(),
            false => self.db.oplog().commit(&self.db, txn, &entries),
        };
        // The next try logs them.
        if committed.is_err() && self.is_logged {
            state.entries = entries;
        }
        committed.map(drop)
    }

    /// Has the commit fail if another node has, since the transaction's moment, changed a key that
    /// this one has locked, a collection that it has touched, or the session's record.
    fn guard_all(
        &self,
        txn: &mut dyn Txn,
        state: &State,
        created: &[Arc<Collection>],
        of: Option<Numbered<'_>>,
    ) -> Result<()> {
        let is_created = |ident: &Ident| created.iter().any(|own| own.ident() == *ident);
        let entries: Vec<[u8; 5]> = state
            .touched
            .keys()
            .filter(|ident| !is_created(ident))
            .map(|ident| keys::entry(*ident))
            .collect();
        let session = of.map(|numbered| keys::session(numbered.lsid));
        let mut guarded: Vec<(Space, &[u8])> =
            state.locks.iter().map(|Lock { key: (space, key), .. }| (*space, &**key)).collect();
        guarded.extend(entries.iter().map(|entry| (Space::Catalog, &entry[..])));
        guarded.extend(session.iter().map(|session| (Space::Catalog, session.as_slice())));
        txn.guard_within(&guarded, COMMIT_WAIT).for_client()
    }

    /// The oplog entries of the transaction's net effect per document, used when the oplog was
    /// started after the transaction began.
    fn net_effect(&self, state: &State) -> Result<Entries> {
        let mut entries = Entries::default();
        for collection in &state.created {
            ddl_log::created(collection, &mut entries);
        }
        self.overlay
            .for_each(Space::Records, &mut |key, new| {
                let touched = key.first_chunk().map(|ident| Ident(u32::from_be_bytes(*ident)));
                let touched = touched.and_then(|ident| state.touched.get(&ident));
                let Some(TouchedCollection { collection, .. }) = touched else { return Ok(()) };
                let mut old = None;
                let base = self.overlay.base();
                base.get(Space::Records, key, &mut |bytes| {
                    old = Some(Doc::trusted(bytes).to_buf())
                })?;
                let old = old.as_ref().map(DocBuf::as_doc);
                match (old, new.map(Doc::trusted)) {
                    (None, Some(new)) => entries.insert(collection, new, false),
                    (Some(old), None) => entries.delete(collection, old),
                    (Some(old), Some(new)) if old != new => {
                        entries.update(collection, old, new, None)
                    }
                    _ => {}
                }
                Ok(())
            })
            .map_err(client_error)?;
        Ok(entries)
    }

    /// Discards all writes and releases all locks. Idempotent.
    pub fn abort(&self) {
        self.end(&mut self.state.lock());
    }

    fn end(&self, state: &mut State) {
        if std::mem::replace(&mut state.is_over, true) {
            return;
        }
        self.db.locks.release(&std::mem::take(&mut state.locks));
        for (_, touched) in state.touched.drain() {
            touched.collection.leave_transaction();
        }
        TOTAL_BYTES.fetch_sub(state.counted_bytes, Ordering::Relaxed);
        state.counted_bytes = 0;
    }
}

/// The error of an operation whose transaction has ended: that of its own interruption, if it was
/// killed together with the transaction.
#[cold]
fn ended() -> Error {
    current::check().err().unwrap_or_else(is_over)
}

impl Claims for Transaction {
    fn claim(&self, keys: &[(Space, &[u8])], timeout: Duration) -> marula_storage::Result<()> {
        // Held while the keys are locked, so that no write of one moment is between its guard and
        // its commit.
        let mut latches = self.db.store().begin();
        let timeout = if current::may_wait() { LATCH_WAIT } else { timeout };
        latches.guard_within(keys, timeout)?;
        {
            let mut state = self.state.lock();
            if state.is_over {
                return Err(StorageError::Conflict);
            }
            for &(space, key) in keys {
                match self.db.locks.claim(self.id, (space, key)) {
                    Claim::New(lock) => state.locks.push(lock),
                    Claim::Own => {}
                    Claim::Anothers => return Err(StorageError::Conflict),
                }
            }
        }
        self.db.store().check_unchanged(keys, self.overlay.base())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.abort();
    }
}
