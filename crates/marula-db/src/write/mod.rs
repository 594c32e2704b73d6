//! Writes documents: each with its index entries, counters and session record in one transaction.
//!
//! ```text
//!   share(collection) ─► guard keys ─► read ─► compute ─► put document and entries ─► commit
//!         ▲                  │                                                           │
//!         └── retrying ◄─────┴───────── WriteConflict ◄──────────────────────────────────┘
//! ```
//!
//! A write locks its collection in shared mode, guards the keys that it decides by (the document's
//! key, its unique keys), reads, computes, and commits one batch: the document, the changed index
//! entries, one addition to the counters. A conflict restarts it; nothing is visible before the
//! commit.

mod capped;
mod delete;
mod document;
mod duplicate;
mod insert;
mod measurements;
mod target;
mod unique_keys;
mod update;

use std::sync::Arc;
use std::time::{Duration, Instant};

use marula_bson::{Doc, DocBuf};
use marula_error::{Error, Result, codes, errors};
use marula_query::update::{EmptyTimestamps, Touched};
use marula_storage::{Direction, KeyRange, Space, View};

use crate::build::side::Notes;
use crate::collection::{Collection, State};
use crate::current;
use crate::db::Db;
use crate::index::entry::{self, EntryWriter};
use crate::index::{Index, KeyMaker, KeySet};
use crate::keys::{IDENT_BYTES, RecordKey};
use crate::namespace::Namespace;
use crate::nodes::holds_share;
use crate::session::{NumberedWrite, StatementIds};
use crate::storage_error::ForClient;
use crate::unit::{Parking, Unit, Write};

pub use document::{DOCUMENT_BYTES_MAX, check_id, check_id_type, inserts_with_dollars, new_id};
pub(crate) use duplicate::error as duplicate_key;
pub use insert::InsertReport;
use target::Target;

errors! {
    capped_in_transaction(ns: &Namespace) = OperationNotSupportedInTransaction, "Collection '{ns}' is a capped collection. Writes in transactions are not allowed on capped collections.";
    capped_delete_in_transaction(ns: &Namespace) = IllegalOperation, "Cannot remove from a capped collection in a multi-document transaction: {ns}";
    user_writes_blocked() = UserWritesBlocked, "User writes blocked";
}

/// The time that a write on a network worker waits for a latch: about as long as another write of
/// one document holds it. After that it is moved to a pool thread, which may wait.
const INLINE_TIMEOUT: Duration = Duration::from_micros(200);

/// The maximum size of a document that is written on a network worker.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// The maximum number of index entries of a document that is written on a network worker.
const INLINE_KEYS_MAX: usize = 1_000;

/// The maximum size of a document whose texts or places are indexed on a network worker.
const COSTLY_BYTES_MAX: usize = 2 * 1024;

/// The time that a write waits for a latch before it checks whether it must end; then it waits
/// again.
const WAIT_STEP: Duration = Duration::from_millis(50);

/// The time that a write is retried after conflicts before the client gets the error.
const CONFLICT_TIMEOUT: Duration = Duration::from_secs(30);

/// The caller's change of a document.
pub enum Change {
    /// The document no longer matches.
    Skip,
    /// The document stays the same, byte for byte.
    Same,
    /// The new document is in the buffer.
    Replace(Touched),
    /// The new document is in the buffer, with the delta for the oplog.
    Delta(Touched, DocBuf),
}

/// Whether an operation may write to user databases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UserWrites {
    /// At any time.
    #[default]
    Allowed,
    /// Unless the writes of users are [blocked](Db::set_user_writes_blocked).
    Blockable,
}

/// Checks that documents of a collection may be inserted or changed within the client's
/// transaction, if there is one: those of a capped collection may not.
///
/// Errors: `capped_in_transaction`.
pub fn check_in_transaction(unit: Unit<'_>, collection: &Collection) -> Result<()> {
    if unit.transaction().is_some() && collection.state().options.capped.is_some() {
        return Err(capped_in_transaction(&collection.namespace()));
    }
    Ok(())
}

/// Checks that documents of a collection may be deleted in the client's transaction, if there is
/// one.
///
/// Errors: `capped_delete_in_transaction`.
pub fn check_delete_in_transaction(unit: Unit<'_>, collection: &Collection) -> Result<()> {
    if unit.transaction().is_some() && collection.state().options.capped.is_some() {
        return Err(capped_delete_in_transaction(&collection.namespace()));
    }
    Ok(())
}

impl UserWrites {
    /// Checks that the database of this name may be written to. The server's own databases always
    /// may.
    ///
    /// Errors: `user_writes_blocked`.
    pub fn check(self, db: &Db, name: &str) -> Result<()> {
        match self.is_blocked(db) && !matches!(name, "admin" | "config" | "local") {
            true => Err(user_writes_blocked()),
            false => Ok(()),
        }
    }

    /// Same as [`check`](UserWrites::check), for documents of a collection, which the caller shares
    /// with other writers.
    fn check_collection(self, db: &Db, collection: &Collection) -> Result<()> {
        if self.is_blocked(db) { self.check(db, collection.namespace().db()) } else { Ok(()) }
    }

    fn is_blocked(self, db: &Db) -> bool {
        self == UserWrites::Blockable && db.blocks_user_writes()
    }
}

/// The result of a write of one document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// The document did not exist, or no longer matched.
    Skipped,
    /// It matched and was left unchanged.
    Same,
    /// It was changed.
    Changed,
}

/// The context of one client write, and buffers that are reused from document to document.
pub struct WriteOp<'a> {
    /// The unit of work of the operation.
    pub unit: Unit<'a>,
    target: Option<Target>,
    commits: u64,
    /// The numbered write of the session, if the client may retry.
    pub numbered: Option<NumberedWrite>,
    /// The ids of its statements in the session.
    pub ids: StatementIds,
    /// Skips the collection's validator.
    pub bypass_validation: bool,
    /// Whether inserted documents are copied from another collection: change streams do not show
    /// them.
    pub is_copy: bool,
    /// Whether inserted documents belong to the catalogue, which has checked their parts.
    pub(crate) is_of_catalogue: bool,
    /// The treatment of empty timestamps by an insert.
    pub empty_timestamps: EmptyTimestamps,
    /// Whether writes to user databases are refused.
    pub user_writes: UserWrites,
    /// Whether the thread may wait for others. If not, a write that would wait is
    /// [postponed](Error::postponed).
    pub may_wait: bool,
    /// The time of the operation.
    pub now_ms: i64,
    buffers: Buffers,
}

/// Buffers that are reused from document to document.
#[derive(Default)]
pub(crate) struct Buffers {
    key_maker: KeyMaker,
    old_keys: Vec<KeySet>,
    new_keys: Vec<KeySet>,
    key: Vec<u8>,
    document: Vec<u8>,
    /// The directory of `document`.
    directory: Vec<u8>,
    /// The difference of `document` from the record before.
    delta: Vec<u8>,
    entries: EntryWriter,
    /// For indexes that are being built.
    notes: Notes,
}

/// The limits of a write on a network worker: a larger one is [postponed](Error::postponed).
#[derive(Clone, Copy)]
struct ThreadLimits {
    may_wait: bool,
    bypass_validation: bool,
}

impl ThreadLimits {
    /// Postpones the write if a document is too large for the thread, or takes long to check or to
    /// index.
    #[inline]
    fn check_document(self, state: &State, doc: Doc<'_>) -> Result<()> {
        if self.may_wait {
            return Ok(());
        }
        let bytes = doc.as_bytes().len();
        let validator = state.options.validator.as_ref().filter(|_| !self.bypass_validation);
        let is_too_much = bytes > current::document_bytes_max().min(INLINE_BYTES_MAX)
            || validator.is_some_and(|validator| !validator.is_quick)
            || bytes > COSTLY_BYTES_MAX && state.indexes.iter().any(|index| index.spec.is_costly());
        if is_too_much { Err(Error::postponed()) } else { Ok(()) }
    }

    /// Adds the keys of one index to the `count` of a document. Postpones the write if the sum is
    /// too large for the thread.
    #[inline]
    fn check_keys(self, count: &mut usize, keys: &KeySet) -> Result<()> {
        *count += keys.len();
        if self.may_wait || *count <= INLINE_KEYS_MAX {
            return Ok(());
        }
        Err(Error::postponed())
    }
}

impl<'a> WriteOp<'a> {
    /// Creates a write at the time `now_ms`.
    pub fn new(unit: Unit<'a>, now_ms: i64) -> Self {
        WriteOp {
            unit,
            target: None,
            commits: 0,
            numbered: None,
            ids: StatementIds::From(0),
            bypass_validation: false,
            is_copy: false,
            is_of_catalogue: false,
            empty_timestamps: EmptyTimestamps::Filled,
            user_writes: UserWrites::Allowed,
            may_wait: true,
            now_ms,
            buffers: Buffers::default(),
        }
    }

    /// The number of commits so far.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// The limits of this thread.
    fn limits(&self) -> ThreadLimits {
        ThreadLimits { may_wait: self.may_wait, bypass_validation: self.bypass_validation }
    }

    /// The time that this thread may wait for a latch.
    fn guard_timeout(&self) -> Duration {
        if self.may_wait { WAIT_STEP } else { INLINE_TIMEOUT }
    }

    /// Begins a change that claims these keys; waits as long as this thread may.
    fn begin_guarding(&self, keys: &[(Space, &[u8])]) -> Result<Write<'a>> {
        let mut write = self.unit.begin();
        write.guard(keys, self.guard_timeout())?;
        Ok(write)
    }

    /// Begins a change of the document with this key that may turn out to change nothing: in that
    /// case it neither waits for a client's transaction nor blocks others.
    /// [`claim_changed`](WriteOp::claim_changed) claims the document once it changes. Until then
    /// the document as read stays valid: it is latched, or read from a fixed view.
    fn begin_changing(&self, key: &[u8]) -> Result<Write<'a>> {
        let mut write = self.unit.begin();
        if self.unit.transaction().is_none() {
            write.latch(&[(Space::Records, key)], self.guard_timeout())?;
        }
        Ok(write)
    }

    /// Claims the document with this key, which changes.
    fn claim_changed(&self, write: &mut Write<'a>, key: &[u8]) -> Result<()> {
        let key = (Space::Records, key);
        match self.unit.transaction() {
            None => write.check_unlocked(key),
            Some(_) => write.guard(&[key], self.guard_timeout()),
        }
    }

    /// Runs `attempt` until there is no conflict. If the thread may not wait for that, the write is
    /// [postponed](Error::postponed).
    fn retrying<T>(&mut self, mut attempt: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        let mut started = None;
        let mut pause = Duration::from_micros(50);
        loop {
            match attempt(self) {
                Err(error) if error.code() == codes::WriteConflict => {
                    if !self.may_wait || self.unit.parking().is_some_and(Parking::is_blocked) {
                        return Err(Error::postponed());
                    }
                    // A client's transaction gets the conflict at once and is restarted as a whole.
                    if self.unit.transaction().is_some() {
                        return Err(error);
                    }
                    let started = *started.get_or_insert_with(Instant::now);
                    current::check()?;
                    if self.unit.db().is_stale() {
                        // A writer that holds off changes of the collection lets go of it first.
                        if holds_share() {
                            return Err(error);
                        }
                        self.unit.db().renew_catalog()?;
                    }
                    // Every transaction ends eventually, so the write waits for it as long as the
                    // operation may take.
                    if started.elapsed() > CONFLICT_TIMEOUT && !self.unit.db().locks.any() {
                        return Err(error);
                    }
                    match self.unit.parking().and_then(Parking::take_locked) {
                        Some(key) => self.unit.db().locks.wait(key, WAIT_STEP),
                        None => std::thread::sleep(pause),
                    }
                    pause = (pause * 2).min(Duration::from_millis(10));
                }
                other => return other,
            }
        }
    }
}

/// The error of the first of these unique indexes that already has a key of a document.
///
/// Indexes are written one after another: when a later one refuses a document, a duplicate key in
/// an earlier one takes precedence. `before` has the keys of the document that is replaced.
fn find_taken(
    view: &dyn View,
    collection: &Collection,
    indexes: &[Arc<Index>],
    keys: &[KeySet],
    before: &[KeySet],
) -> Result<Option<Error>> {
    for (number, (index, keys)) in indexes.iter().zip(keys).enumerate() {
        let had = |key: &[u8]| before.get(number).is_some_and(|before| before.contains(key));
        for (key_string, type_bits) in keys.iter().filter(|(key, _)| !had(key)) {
            let store_key = [&index.ident.bytes()[..], key_string].concat();
            if index.spec.unique && is_key_taken(view, collection, index, &store_key, None)? {
                let entry = entry::Entry { key_string, record: &[], type_bits };
                return Ok(Some(duplicate::error(&collection.namespace(), index, &entry)));
            }
        }
    }
    Ok(None)
}

/// Returns whether a document other than `own` has the key `store_key` (ident and key string) in
/// `index`.
fn is_key_taken(
    view: &dyn View,
    collection: &Collection,
    index: &Index,
    store_key: &[u8],
    own: Option<&RecordKey>,
) -> Result<bool> {
    if index.spec.unique {
        return view.get(Space::Indexes, store_key, &mut |_| ()).for_client();
    }
    // In an index that is to become unique, the entries of a key are adjacent, one per document.
    let range = KeyRange::prefix(store_key);
    let mut cursor = view.cursor(Space::Indexes, &range, Direction::Forward).for_client()?;
    while cursor.advance().for_client()? {
        let found = entry::decode(index, collection.shape(), cursor.key(), cursor.value());
        let found = found.filter(|found| found.key_string == &store_key[IDENT_BYTES..]);
        if found.is_some_and(|found| own.is_none_or(|own| found.record != own.as_bytes())) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
