//! Writing documents: each with its index entries, counters and session record in one transaction.
//!
//! A write holds its collection shared, guards what it decides by (the document's key, its unique
//! keys), reads, computes, and commits one batch: the document, the index entries that change, one
//! merge of the counters. A conflict starts it again; nothing is visible before the commit.

mod capped;
mod delete;
mod document;
mod duplicate;
mod insert;
mod measurements;
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
use crate::index::entry::{self, EntryWriter};
use crate::index::{Index, KeyMaker, KeySet};
use crate::keys::{IDENT_BYTES, RecordKey};
use crate::namespace::Namespace;
use crate::session::{Done, NumberedWrite, StatementIds};
use crate::storage_error::{ForClient, client_error};
use crate::unit::{Unit, Write};

pub use document::{DOCUMENT_BYTES_MAX, check_id, inserts_with_dollars, new_id};
pub(crate) use duplicate::error as duplicate_key;
pub use insert::InsertReport;

errors! {
    capped_in_transaction(ns: &Namespace) = OperationNotSupportedInTransaction, "Collection '{ns}' is a capped collection. Writes in transactions are not allowed on capped collections.";
    capped_delete_in_transaction(ns: &Namespace) = IllegalOperation, "Cannot remove from a capped collection in a multi-document transaction: {ns}";
    user_writes_blocked() = UserWritesBlocked, "User writes blocked";
}

/// How long a write waits for a latch on a thread that serves other connections too: about as long
/// as another write of one document holds it. Past that it goes where it may wait.
const INLINE_PATIENCE: Duration = Duration::from_micros(200);

/// The largest document that is written on such a thread.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// The most index entries of a document that are written on such a thread.
const INLINE_KEYS_MAX: usize = 1_000;

/// The largest document whose texts or places are indexed on such a thread.
const COSTLY_BYTES_MAX: usize = 2 * 1024;

/// How long a write waits for a latch before it looks whether it must end; it then waits again.
const WAIT_STEP: Duration = Duration::from_millis(50);

/// How long a write that meets conflicts is started again before the client hears of it.
const CONFLICT_PATIENCE: Duration = Duration::from_secs(30);

/// What the caller makes of a document that a write is about to change.
pub enum Change {
    /// The document is not wanted after all: it no longer matches.
    Skip,
    /// It stays as it is, byte for byte.
    Same,
    /// The new document is in the buffer.
    Replace(Touched),
    /// The new document is in the buffer, and here is how it differs, as the oplog tells it.
    Delta(Touched, DocBuf),
}

/// Whether writes to databases of users are refused, as an operator has asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub enum UserWrites {
    #[default]
    Allowed,
    Blocked,
}

/// Checks that documents of a collection may be inserted or changed, where the operation belongs to
/// a client's transaction: of a capped one they may not.
///
/// Errors: `capped_in_transaction`.
pub fn check_in_transaction(unit: Unit<'_>, collection: &Collection) -> Result<()> {
    if unit.transaction().is_some() && collection.state().options.capped.is_some() {
        return Err(capped_in_transaction(&collection.namespace()));
    }
    Ok(())
}

impl UserWrites {
    /// Checks that something in `db` may be written. The server's own databases always may.
    ///
    /// Errors: `user_writes_blocked`.
    pub fn check(self, db: &str) -> Result<()> {
        match self {
            UserWrites::Blocked if !matches!(db, "admin" | "config" | "local") => {
                Err(user_writes_blocked())
            }
            _ => Ok(()),
        }
    }

    /// As [`check`](UserWrites::check), for documents of a collection.
    fn check_collection(self, collection: &Collection) -> Result<()> {
        match self {
            UserWrites::Allowed => Ok(()),
            UserWrites::Blocked => self.check(collection.namespace().db()),
        }
    }
}

/// How a write of one document ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// There was none, or it no longer matched.
    Skipped,
    /// It matched and stayed as it was.
    Same,
    /// It was changed.
    Changed,
}

/// What one client write brings along, and the buffers it uses from document to document.
pub struct WriteOp<'a> {
    /// Where to write.
    pub unit: Unit<'a>,
    /// The session's numbered write, when the client may retry.
    pub numbered: Option<NumberedWrite>,
    /// The numbers of its statements in the session.
    pub ids: StatementIds,
    /// Skips the collection's validator.
    pub bypass_validation: bool,
    /// What an insert does with timestamps that are zero.
    pub empty_timestamps: EmptyTimestamps,
    /// Whether writes to databases of users are refused.
    pub user_writes: UserWrites,
    /// Whether the thread may wait for others. Where it may not, a write that would wait fails with
    /// `WriteConflict` and has done nothing.
    pub may_wait: bool,
    /// The moment of the operation.
    pub now_ms: i64,
    buffers: Buffers,
}

/// Buffers that keep their room from one document to the next.
#[derive(Default)]
pub(crate) struct Buffers {
    key_maker: KeyMaker,
    old_keys: Vec<KeySet>,
    new_keys: Vec<KeySet>,
    key: Vec<u8>,
    document: Vec<u8>,
    /// What is stored in front of `document`.
    directory: Vec<u8>,
    entries: EntryWriter,
    /// For indexes that are being built.
    notes: Notes,
}

/// What a write may take on where others wait for its thread: what is more fails with
/// `WriteConflict`, so that it is begun anew elsewhere.
#[derive(Clone, Copy)]
struct ThreadLimits {
    may_wait: bool,
    bypass_validation: bool,
}

impl ThreadLimits {
    /// Fails where a document is too large for the thread, or it takes long to check or to index.
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
        if is_too_much { Err(client_error(marula_storage::Error::Conflict)) } else { Ok(()) }
    }

    /// Adds the keys of one index to the `count` of a document's. Fails where that is more than the
    /// thread should write.
    #[inline]
    fn check_keys(self, count: &mut usize, keys: &KeySet) -> Result<()> {
        *count += keys.len();
        if self.may_wait || *count <= INLINE_KEYS_MAX {
            return Ok(());
        }
        Err(client_error(marula_storage::Error::Conflict))
    }
}

impl<'a> WriteOp<'a> {
    /// A write at the moment `now_ms`.
    pub fn new(unit: Unit<'a>, now_ms: i64) -> Self {
        WriteOp {
            unit,
            numbered: None,
            ids: StatementIds::From(0),
            bypass_validation: false,
            empty_timestamps: EmptyTimestamps::Filled,
            user_writes: UserWrites::Allowed,
            may_wait: true,
            now_ms,
            buffers: Buffers::default(),
        }
    }

    /// What this thread may take on.
    fn limits(&self) -> ThreadLimits {
        ThreadLimits { may_wait: self.may_wait, bypass_validation: self.bypass_validation }
    }

    /// How long this thread may wait for a latch.
    fn guard_patience(&self) -> Duration {
        if self.may_wait { WAIT_STEP } else { INLINE_PATIENCE }
    }

    /// Begins a change that claims these keys, waiting as long as this thread may.
    fn begin_guarding(&self, keys: &[(Space, &[u8])]) -> Result<Write<'a>> {
        let mut write = self.unit.begin();
        write.guard(keys, self.guard_patience())?;
        Ok(write)
    }

    /// Begins a change of the document with this key, which may come to nothing: what changes
    /// nothing of it neither waits for a client's transaction nor holds up anybody. That it
    /// changes, [`claim_changed`](WriteOp::claim_changed) says. The document stays as it is seen
    /// until then: it is latched, or seen at a moment.
    fn begin_changing(&self, key: &[u8]) -> Result<Write<'a>> {
        let mut write = self.unit.begin();
        if self.unit.transaction().is_none() {
            write.latch(&[(Space::Records, key)], self.guard_patience())?;
        }
        Ok(write)
    }

    /// Claims the document with this key, which changes.
    fn claim_changed(&self, write: &mut Write<'a>, key: &[u8]) -> Result<()> {
        let keys = [(Space::Records, key)];
        match self.unit.transaction() {
            None => write.check_unlocked(&keys),
            Some(_) => write.guard(&keys, self.guard_patience()),
        }
    }

    /// Runs `attempt` until it meets no conflict.
    fn retrying<T>(&mut self, mut attempt: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        let mut started = None;
        let mut pause = Duration::from_micros(50);
        loop {
            match attempt(self) {
                // A client's transaction is told at once, and begins anew as a whole.
                Err(error)
                    if error.code() == codes::WriteConflict
                        && self.may_wait
                        && self.unit.transaction().is_none() =>
                {
                    if current::is_blocked() {
                        return Err(error);
                    }
                    let started = *started.get_or_insert_with(Instant::now);
                    current::check()?;
                    // A transaction ends by itself in the end: it is waited for as long as the
                    // operation may take.
                    if started.elapsed() > CONFLICT_PATIENCE && !self.unit.db().locks.any() {
                        return Err(error);
                    }
                    match current::take_locked() {
                        Some(key) => self.unit.db().locks.wait(key, WAIT_STEP),
                        None => std::thread::sleep(pause),
                    }
                    pause = (pause * 2).min(Duration::from_millis(10));
                }
                other => return other,
            }
        }
    }

    /// Records statements that changed nothing, so that a retry is answered alike.
    pub fn record_only(&mut self, statements: &[(i32, Done)]) -> Result<()> {
        let Some(numbered) = &mut self.numbered else { return Ok(()) };
        self.unit.begin().commit_recorded(numbered, statements)
    }
}

/// The error of the first of these indexes that has a key of a document already, where it is
/// unique.
///
/// Indexes are written one after the other: where a later one refuses a document, an earlier one
/// may have found its key taken, and that is what is told. `before` are the keys of the document
/// that it replaces.
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

/// Whether another document than `own` has the key in `index` that `store_key` is: the index's
/// ident and the key string.
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
    // Of an index that is to become unique, a key's entries lie side by side, one for each
    // document.
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
