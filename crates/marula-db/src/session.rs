//! Records of numbered writes: for each session, the statements that its newest numbered write has
//! done, and whether its newest transaction was committed.
//!
//! A driver sends `lsid` and `txnNumber` with a write, and sends the same write again when it gets
//! no reply. The record is committed in the same batch as the data, so that a statement is either
//! done and recorded or neither, also after a crash. A recorded statement gets its recorded reply
//! and is not done again.
//!
//! ```text
//! key    0x05 lsid (id, and uid where there is one)
//! value  { txn: <long>, at: <date>, done: [ { lo: <int>, hi: <int>, op: <string>, …result }, … ] }
//!        { …, pages: <long> }            the first results are in this number of full pages
//!        { txn: <long>, at: <date>, done: [], committed: true }      a client's transaction
//! key    0x0b lsid page
//! value  { txn: <long>, done: [ … ] }
//! ```
//!
//! Statements with equal results share an element. A full page is not written again, so that the
//! record of a write of many statements is not as long as the write for each of them. Pages of an
//! earlier write are left until others replace them or the session expires.
//! Source: driver specification "Retryable Writes"; manual "Retryable Writes".

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use marula_bson::ext_json::base64;
use marula_bson::{Binary, ByteSlice, Doc, DocBuf, DocWriter, Value, ValueBuf, uuid};
use marula_error::{Error, Result, errors};
use marula_storage::{Direction, KeyRange, Space, Stamp, Store, Txn, View};
use parking_lot::{ArcMutexGuard, Mutex, RawMutex};

use crate::current;
use crate::keys;
use crate::storage_error::{ForClient, client_error};

errors! {
    txn_too_old(number: i64, session: &str, newest: i64) = TransactionTooOld, "Retryable write with txnNumber {number} is prohibited on session {session} because a newer retryable write with txnNumber {newest} has already started on this session.";
    older_than_transaction(number: i64, session: &str, newest: i64) = TransactionTooOld, "Retryable write with txnNumber {number} is prohibited on session {session} because a newer transaction with txnNumber {newest} has already started on this session.";
    became_transaction() = IncompleteTransactionHistory, "Cannot retry a retryable write that has been converted into a transaction";
    /// The request is executed again, and finds the other node's record.
    session_moved() = InterruptedDueToReplStateChange, "another server has written a record of this session";
    damaged_record(session: &str) = InternalError, "the record of session {session} is damaged: a page of it is missing";
}

/// The interval at which a retry that waits for its first attempt checks for the end of the
/// operation.
const WAIT_STEP: Duration = Duration::from_millis(10);

/// The recorded result of a statement, for the reply to a retry.
#[derive(Clone, PartialEq, Debug)]
pub enum Done {
    /// A document was inserted.
    Inserted,
    /// An update.
    Updated {
        /// The number of matched documents; 1 for an upsert.
        matched: i64,
        /// The number of changed documents.
        modified: i64,
        /// The `_id` of an upserted document.
        upserted: Option<ValueBuf>,
    },
    /// Documents deleted.
    Deleted(i64),
    /// A `findAndModify`, with the fields of its reply.
    FoundAndModified(DocBuf),
}

/// The statement ids of one write in its session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StatementIds {
    /// Consecutive ids from this one on.
    From(i32),
    /// Explicit ids given by the client.
    Listed(Vec<i32>),
}

impl StatementIds {
    /// The id of the statement at `position`.
    pub fn at(&self, position: usize) -> i32 {
        match self {
            StatementIds::From(first) => {
                first.saturating_add(i32::try_from(position).unwrap_or(i32::MAX))
            }
            StatementIds::Listed(ids) => ids[position],
        }
    }
}

/// Statements from `low` to `high` (inclusive) with the same result.
#[derive(Clone, Debug)]
struct Span {
    low: i32,
    high: i32,
    done: Done,
}

/// The number of results in a page.
const PAGE_SPANS: usize = 16;

/// The newest numbered write of one session.
#[derive(Default, Debug)]
pub struct SessionRecord {
    /// `None` until it was read from the store.
    txn_number: Option<i64>,
    at_ms: i64,
    spans: Vec<Span>,
    /// The number of full pages, which have the first of the spans.
    pages: u32,
    /// The greatest statement of the spans.
    greatest: Option<i32>,
    kind: Kind,
}

/// The kind of operation with a number in a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// A retryable write.
    #[default]
    Write,
    /// A client's transaction that has not been committed.
    Transaction,
    /// A client's committed transaction. Only committed transactions are stored.
    Committed,
}

/// The newest numbered write of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Newest {
    /// Its `txnNumber`.
    pub number: i64,
    /// Its kind.
    pub kind: Kind,
}

/// The state of a session's newest numbered write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// The newest numbered write; `None` if there has been none.
    Newest(Option<Newest>),
    /// A numbered write is running.
    Running,
}

/// A session's newest numbered write, as stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    /// The session.
    pub lsid: Vec<u8>,
    /// The number.
    pub number: i64,
    /// When it was written.
    pub at_ms: i64,
    /// Whether it is a client's transaction.
    pub is_committed: bool,
}

/// The session records in memory; the store has all of them. Where other nodes write records too,
/// each is read from the store when it is used.
#[derive(Default)]
pub struct Sessions {
    is_shared: bool,
    records: Mutex<HashMap<Vec<u8>, Arc<Mutex<SessionRecord>>>>,
}

/// A running numbered write. It locks its session's record, so that a retry that arrives during the
/// first attempt waits for it.
pub struct NumberedWrite {
    key: Vec<u8>,
    number: i64,
    now_ms: i64,
    record: ArcMutexGuard<RawMutex, SessionRecord>,
    encoded: Vec<u8>,
    /// The number of full pages before what was staged last.
    pages_before: u32,
    /// Where other nodes write records too: the stored record that it decides by.
    seen: Option<Seen>,
}

/// The stored record of a session.
struct Seen {
    /// Empty if there is none.
    record: Vec<u8>,
    /// The moment at which it was read, where the reads of the operation show one.
    at: Option<Stamp>,
    check: RecordCheck,
}

/// The record that an operation's numbered write decides by, in a store that other nodes write to:
/// a statement that has written nothing may have found what another node has just done for the same
/// number. Empty in a store of one process.
#[derive(Clone, Default)]
pub struct RecordCheck(Arc<Mutex<Option<Unchecked>>>);

struct Unchecked {
    key: Vec<u8>,
    seen: Vec<u8>,
    /// Whether a statement has begun since the record was last known to be `seen`.
    is_open: bool,
}

impl Sessions {
    /// No records in memory; `is_shared` says whether other nodes write records too.
    pub(crate) fn new(is_shared: bool) -> Self {
        Sessions { is_shared, records: Mutex::default() }
    }

    /// Starts the write with this number in the session `lsid`; waits for an earlier attempt that
    /// is still running, or postpones the operation if its thread may not wait. `check` is the
    /// operation's, for [`Db::must_repeat_numbered`](crate::Db::must_repeat_numbered).
    ///
    /// Errors: `txn_too_old`.
    pub fn begin(
        &self,
        store: &dyn View,
        lsid: &[u8],
        number: i64,
        now_ms: i64,
        may_wait: bool,
        check: &RecordCheck,
    ) -> Result<NumberedWrite> {
        let record = self.record(lsid);
        let mut record = match may_wait {
            true => current::wait(|| record.try_lock_arc_for(WAIT_STEP))?,
            false => record.try_lock_arc().ok_or_else(Error::postponed)?,
        };
        let key = keys::session(lsid);
        let mut seen = None;
        if record.txn_number.is_none() || self.is_shared {
            let mut bytes = Vec::new();
            store.get(Space::Catalog, &key, &mut |found| bytes = found.to_vec()).for_client()?;
            let mut stored = decode(&bytes);
            if let Some(stored) = &mut stored
                && stored.txn_number == Some(number)
            {
                stored.read_pages(store, lsid)?;
            }
            record.follow(stored);
            if self.is_shared {
                let unchecked = Unchecked { key: key.clone(), seen: bytes.clone(), is_open: true };
                *check.0.lock() = Some(unchecked);
                let check = check.clone();
                seen = Some(Seen { record: bytes, at: store.still_moment(), check });
            }
        }
        match record.txn_number {
            Some(newest) if number < newest => {
                let session = text(lsid);
                return Err(match record.kind {
                    Kind::Write => txn_too_old(number, &session, newest),
                    _ => older_than_transaction(number, &session, newest),
                });
            }
            Some(newest) if number == newest && record.kind != Kind::Write => {
                return Err(became_transaction());
            }
            Some(newest) if number == newest => {}
            _ => {
                *record = SessionRecord {
                    txn_number: Some(number),
                    at_ms: now_ms,
                    ..SessionRecord::default()
                }
            }
        }
        Ok(NumberedWrite {
            key,
            number,
            now_ms,
            record,
            encoded: Vec::new(),
            pages_before: 0,
            seen,
        })
    }

    /// The newest numbered write of the session `lsid`, if any; does not wait for a running one.
    pub fn newest(&self, view: &dyn View, lsid: &[u8]) -> Result<Known> {
        let record = self.records.lock().get(lsid).cloned();
        let held = match &record {
            None => None,
            Some(record) => match record.try_lock() {
                None => return Ok(Known::Running),
                held => held,
            },
        };
        let known = held.as_ref().and_then(|held| held.newest());
        if known.is_some() && !self.is_shared {
            return Ok(Known::Newest(known));
        }
        let mut stored = None;
        let key = keys::session(lsid);
        view.get(Space::Catalog, &key, &mut |bytes| stored = decode(bytes)).for_client()?;
        let stored = stored.and_then(|record| record.newest());
        let is_newer = |stored: &Newest| known.is_none_or(|known| known.number <= stored.number);
        Ok(Known::Newest(stored.filter(is_newer).or(known)))
    }

    /// Registers a client's transaction as the newest number of the session; it must be the
    /// greatest so far. Returns `false` while a numbered write of the session is running.
    pub fn begin_transaction(&self, lsid: &[u8], number: i64, now_ms: i64) -> bool {
        let record = self.record(lsid);
        let Some(mut held) = record.try_lock() else { return false };
        *held = SessionRecord {
            txn_number: Some(number),
            at_ms: now_ms,
            kind: Kind::Transaction,
            ..SessionRecord::default()
        };
        true
    }

    /// Records that a client's transaction has been committed.
    pub fn note_committed(&self, lsid: &[u8], number: i64) {
        let record = self.record(lsid);
        let mut held = record.lock();
        if held.txn_number == Some(number) {
            held.kind = Kind::Committed;
        }
    }

    /// Adds the record of a client's transaction to its commit.
    pub fn stage_commit(lsid: &[u8], number: i64, now_ms: i64, txn: &mut dyn Txn) {
        let record = SessionRecord {
            txn_number: Some(number),
            at_ms: now_ms,
            kind: Kind::Committed,
            ..SessionRecord::default()
        };
        let mut encoded = Vec::new();
        encode(&record, number, &mut encoded);
        txn.put(Space::Catalog, &keys::session(lsid), &encoded);
    }

    fn record(&self, lsid: &[u8]) -> Arc<Mutex<SessionRecord>> {
        self.records.lock().entry(lsid.to_vec()).or_default().clone()
    }

    /// Returns whether another node has written the record of an operation's numbered write, which
    /// has ended: then it must be executed again, and finds in the record what has been done.
    ///
    /// Errors: those of the store.
    pub(crate) fn has_moved(&self, store: &dyn Store, check: &RecordCheck) -> Result<bool> {
        if !self.is_shared {
            return Ok(false);
        }
        let unchecked = check.0.lock().take();
        let Some(Unchecked { key, seen, is_open }) = unchecked else { return Ok(false) };
        if !is_open {
            return Ok(false);
        }
        // The newest state, whatever the operation has read.
        store.end_operation();
        let mut now = Vec::new();
        store.get(Space::Catalog, &key, &mut |bytes| now = bytes.to_vec()).for_client()?;
        Ok(now != seen)
    }

    /// Ends a transaction that another node may have open: returns whether it has been committed.
    /// If not, it never will be.
    ///
    /// Errors: those of the store.
    pub fn settle(&self, store: &dyn Store, lsid: &[u8], number: i64, now_ms: i64) -> Result<bool> {
        let key = keys::session(lsid);
        loop {
            let mut txn = store.begin();
            txn.guard(&[(Space::Catalog, &key)]).for_client()?;
            let mut found = None;
            txn.view()
                .get(Space::Catalog, &key, &mut |bytes| found = decode(bytes))
                .for_client()?;
            if let Some(newest) = found.as_ref().and_then(SessionRecord::newest)
                && newest.number >= number
            {
                return Ok(newest.number == number && newest.kind == Kind::Committed);
            }
            // The commit of the transaction has read the record that this one replaces.
            let record =
                SessionRecord { txn_number: Some(number), at_ms: now_ms, ..Default::default() };
            let mut encoded = Vec::new();
            encode(&record, number, &mut encoded);
            txn.put(Space::Catalog, &key, &encoded);
            match txn.commit() {
                Ok(_) => return Ok(false),
                Err(marula_storage::Error::Conflict) => current::check()?,
                Err(error) => return Err(client_error(error)),
            }
        }
    }

    /// The stored records of all sessions.
    pub fn stored(&self, view: &dyn View) -> Result<Vec<Stored>> {
        let range = KeyRange::prefix(&keys::SESSION_PREFIX);
        let mut cursor = view.cursor(Space::Catalog, &range, Direction::Forward).for_client()?;
        let mut found = Vec::new();
        while cursor.advance().for_client()? {
            let Some(record) = decode(cursor.value()) else { continue };
            let Some(number) = record.txn_number else { continue };
            found.push(Stored {
                lsid: cursor.key()[keys::SESSION_PREFIX.len()..].to_vec(),
                number,
                at_ms: record.at_ms,
                is_committed: record.kind == Kind::Committed,
            });
        }
        Ok(found)
    }

    /// Removes the records of sessions whose last write was before `before_ms`; returns their
    /// number.
    pub fn expire(&self, store: &dyn Store, before_ms: i64) -> Result<usize> {
        let range = KeyRange::prefix(&keys::SESSION_PREFIX);
        let mut expired = Vec::new();
        {
            let mut cursor =
                store.cursor(Space::Catalog, &range, Direction::Forward).for_client()?;
            while cursor.advance().for_client()? {
                if decode(cursor.value()).is_none_or(|record| record.at_ms < before_ms) {
                    expired.push(cursor.key().to_vec());
                }
            }
        }
        for key in &expired {
            // The table stays locked, so that no write of this session starts between the check and
            // the removal.
            let mut records = self.records.lock();
            let lsid = &key[keys::SESSION_PREFIX.len()..];
            if let Some(record) = records.get(lsid) {
                let is_idle = record.try_lock().is_some_and(|record| record.at_ms < before_ms);
                if !is_idle || Arc::strong_count(record) > 1 {
                    continue;
                }
                records.remove(lsid);
            }
            let mut txn = store.begin();
            if self.is_shared {
                // Another node may have just written it.
                txn.guard(&[(Space::Catalog, key)]).for_client()?;
                let mut is_old = false;
                let mut see = |bytes: &[u8]| {
                    is_old = decode(bytes).is_none_or(|record| record.at_ms < before_ms);
                };
                txn.view().get(Space::Catalog, key, &mut see).for_client()?;
                if !is_old {
                    continue;
                }
            }
            txn.delete(Space::Catalog, key);
            for page in pages_of(store, lsid)? {
                txn.delete(Space::Catalog, &page);
            }
            match txn.commit() {
                Err(marula_storage::Error::Conflict) if self.is_shared => {}
                outcome => drop(outcome.for_client()?),
            }
        }
        Ok(expired.len())
    }
}

impl SessionRecord {
    /// Takes over the stored record, unless this one is newer: a transaction is stored when it is
    /// committed.
    fn follow(&mut self, stored: Option<SessionRecord>) {
        if let Some(stored) = stored
            && stored.txn_number >= self.txn_number
        {
            *self = stored;
        }
    }

    /// Reads the spans that are in pages.
    fn read_pages(&mut self, view: &dyn View, lsid: &[u8]) -> Result<()> {
        let mut spans = Vec::new();
        for page in 0..self.pages {
            let key = keys::session_page(lsid, page);
            let mut see = |bytes: &[u8]| {
                spans.extend(decode_spans(Doc::trusted(bytes)).into_iter().flatten())
            };
            view.get(Space::Catalog, &key, &mut see).for_client()?;
        }
        if spans.len() != self.paged() {
            return Err(damaged_record(&text(lsid)));
        }
        spans.append(&mut self.spans);
        self.greatest = spans.iter().map(|span| span.high).max();
        self.spans = spans;
        Ok(())
    }

    /// The number of spans in pages.
    fn paged(&self) -> usize {
        self.pages as usize * PAGE_SPANS
    }

    fn newest(&self) -> Option<Newest> {
        self.txn_number.map(|number| Newest { number, kind: self.kind })
    }
}

impl NumberedWrite {
    /// The recorded result of `statement`, if it has been done before.
    pub fn done(&self, statement: i32) -> Option<&Done> {
        if let Some(seen) = &self.seen {
            seen.check.0.lock().iter_mut().for_each(|unchecked| unchecked.is_open = true);
        }
        if self.record.greatest.is_none_or(|greatest| statement > greatest) {
            return None;
        }
        let spans = &self.record.spans;
        spans.iter().find(|span| (span.low..=span.high).contains(&statement)).map(|span| &span.done)
    }

    /// The session's id.
    pub(crate) fn lsid(&self) -> &[u8] {
        &self.key[keys::SESSION_PREFIX.len()..]
    }

    /// The `txnNumber` of the write.
    pub fn number(&self) -> i64 {
        self.number
    }

    /// Has `txn` fail where another node writes a record of this session; does nothing in a store
    /// of one process.
    ///
    /// Errors: a conflict; `session_moved` if another node has written one since this write began,
    /// which must then begin again.
    pub(crate) fn claim(&self, txn: &mut dyn Txn) -> Result<()> {
        let Some(seen) = &self.seen else { return Ok(()) };
        txn.guard(&[(Space::Catalog, &self.key)]).for_client()?;
        if seen.at.is_some() && txn.view().still_moment() == seen.at {
            return Ok(());
        }
        let mut now = Vec::new();
        txn.view()
            .get(Space::Catalog, &self.key, &mut |bytes| now = bytes.to_vec())
            .for_client()?;
        if now != seen.record { Err(session_moved()) } else { Ok(()) }
    }

    /// Notes that what was staged last has been committed.
    pub(crate) fn note_committed(&mut self) {
        if let Some(seen) = &mut self.seen {
            seen.record.clone_from(&self.encoded);
            seen.at = None;
            let now = self.encoded.clone();
            let checked = Unchecked { key: self.key.clone(), seen: now, is_open: false };
            *seen.check.0.lock() = Some(checked);
        }
    }

    /// Adds to `txn` the record that `statements` are done. They are final only once the
    /// transaction commits; if the commit fails, call [`NumberedWrite::undo`].
    pub fn stage(&mut self, txn: &mut dyn Txn, statements: &[(i32, Done)]) {
        let record = &mut *self.record;
        self.pages_before = record.pages;
        for (statement, done) in statements {
            let paged = record.paged();
            record.greatest = record.greatest.max(Some(*statement));
            match record.spans.get_mut(paged..).and_then(|open| open.last_mut()) {
                Some(last)
                    if last.done == *done && last.high.checked_add(1) == Some(*statement) =>
                {
                    last.high = *statement;
                }
                _ => record.spans.push(Span {
                    low: *statement,
                    high: *statement,
                    done: done.clone(),
                }),
            }
        }
        while let Some(page) = record.spans.get(record.paged()..record.paged() + PAGE_SPANS) {
            let lsid = &self.key[keys::SESSION_PREFIX.len()..];
            let bytes = DocBuf::build(|out| {
                out.append("txn", self.number);
                encode_spans(page, out);
            });
            txn.put(
                Space::Catalog,
                &keys::session_page(lsid, record.pages),
                bytes.as_doc().as_bytes(),
            );
            record.pages += 1;
        }
        record.at_ms = self.now_ms;
        encode(&self.record, self.number, &mut self.encoded);
        txn.put(Space::Catalog, &self.key, &self.encoded);
    }

    /// Removes `statements`, which [`NumberedWrite::stage`] added, since they were not committed.
    pub fn undo(&mut self, statements: &[(i32, Done)]) {
        self.record.pages = self.pages_before;
        for (statement, _) in statements.iter().rev() {
            let Some(last) = self.record.spans.last_mut() else { return };
            assert!(last.high == *statement, "statements are undone in reverse order");
            if last.low == last.high {
                self.record.spans.pop();
            } else {
                last.high -= 1;
            }
        }
    }
}

fn encode(record: &SessionRecord, number: i64, out: &mut Vec<u8>) {
    out.clear();
    let mut doc = DocWriter::new(out);
    doc.append("txn", number);
    doc.append("at", Value::DateTime(record.at_ms));
    encode_spans(record.spans.get(record.paged()..).unwrap_or_default(), &mut doc);
    if record.pages > 0 {
        doc.append("pages", i64::from(record.pages));
    }
    if record.kind == Kind::Committed {
        doc.append("committed", true);
    }
}

fn encode_spans(spans: &[Span], doc: &mut DocWriter<'_>) {
    let mut list = doc.begin_array("done");
    for span in spans {
        let mut item = list.begin_doc();
        item.append("lo", span.low);
        item.append("hi", span.high);
        match &span.done {
            Done::Inserted => item.append("op", "i"),
            Done::Updated { matched, modified, upserted } => {
                item.append("op", "u").append("n", *matched).append("m", *modified);
                if let Some(id) = upserted {
                    item.append("id", id);
                }
                &mut item
            }
            Done::Deleted(count) => item.append("op", "d").append("n", *count),
            Done::FoundAndModified(reply) => item.append("op", "f").append("reply", reply),
        };
    }
}

/// Returns the keys of the pages of a session.
fn pages_of(view: &dyn View, lsid: &[u8]) -> Result<Vec<Vec<u8>>> {
    let range = KeyRange::prefix(&keys::session_pages(lsid));
    let mut cursor = view.cursor(Space::Catalog, &range, Direction::Forward).for_client()?;
    let mut found = Vec::new();
    while cursor.advance().for_client()? {
        // The id of another session may begin with this one.
        if cursor.key().len() == keys::session_page(lsid, 0).len() {
            found.push(cursor.key().to_vec());
        }
    }
    Ok(found)
}

fn decode(bytes: &[u8]) -> Option<SessionRecord> {
    let doc = Doc::trusted(bytes);
    let Some(Value::DateTime(at_ms)) = doc.get("at") else { return None };
    let spans = decode_spans(doc)?;
    let pages = doc.get("pages").and_then(|pages| pages.as_exact_i64()).unwrap_or(0);
    Some(SessionRecord {
        txn_number: doc.get("txn")?.as_exact_i64(),
        at_ms,
        pages: u32::try_from(pages).ok()?,
        greatest: spans.iter().map(|span| span.high).max(),
        spans,
        kind: doc.get("committed").map_or(Kind::Write, |_| Kind::Committed),
    })
}

fn decode_spans(doc: Doc<'_>) -> Option<Vec<Span>> {
    let mut spans = Vec::new();
    for item in doc.get("done")?.as_array()?.values() {
        let item = item.as_doc()?;
        let number = |name: &str| item.get(name).and_then(|value| value.as_exact_i64());
        let done = match item.get("op")?.as_str()?.as_bytes() {
            b"i" => Done::Inserted,
            b"u" => Done::Updated {
                matched: number("n")?,
                modified: number("m")?,
                upserted: item.get("id").map(|id| id.to_buf()),
            },
            b"d" => Done::Deleted(number("n")?),
            b"f" => Done::FoundAndModified(item.get("reply")?.as_doc()?.to_buf()),
            _ => return None,
        };
        let bound = |name: &str| number(name).and_then(|bound| i32::try_from(bound).ok());
        spans.push(Span { low: bound("lo")?, high: bound("hi")?, done });
    }
    Some(spans)
}

/// The user digest when there is no user: SHA-256 of the empty string.
pub const NOBODY: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// Writes a session's id in its document form: `id`, and the digest of its user, `uid`.
pub(crate) fn write_lsid(lsid: &[u8], out: &mut DocWriter<'_>) {
    let (id, uid) = lsid.split_at_checked(16).unwrap_or((lsid, &[]));
    let uid = if uid.is_empty() { &NOBODY[..] } else { uid };
    out.append("id", Binary { subtype: 4, bytes: id });
    out.append("uid", Binary { subtype: 0, bytes: uid });
}

/// A session's id in the form of error messages: its UUID, and its user's digest. The empty parts
/// are for child sessions in mongod, which do not exist here.
pub fn text(lsid: &[u8]) -> String {
    match lsid.split_first_chunk::<16>() {
        Some((id, uid)) => {
            let uid = if uid.is_empty() { &NOBODY[..] } else { uid };
            let mut digest = String::new();
            base64::encode(uid, &mut digest);
            format!("{} - {digest} -  - ", uuid::text(id))
        }
        None => marula_bson::hex::text(lsid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marula_storage::memory::Memory;

    #[test]
    fn a_statement_is_answered_from_its_record_also_after_a_restart() {
        let store = Memory::new();
        let done = Done::Updated { matched: 1, modified: 1, upserted: Some(ValueBuf::from(7)) };
        {
            let sessions = Sessions::default();
            let mut write =
                sessions.begin(&store, b"lsid", 5, 1_000, true, &RecordCheck::default()).unwrap();
            let mut txn = store.begin();
            write.stage(&mut *txn, &[(0, Done::Inserted), (1, Done::Inserted)]);
            write.stage(&mut *txn, &[(2, done.clone())]);
            txn.commit().unwrap();
        }
        let sessions = Sessions::default();
        let write =
            sessions.begin(&store, b"lsid", 5, 2_000, true, &RecordCheck::default()).unwrap();
        assert_eq!(write.done(1), Some(&Done::Inserted));
        assert_eq!(write.done(2), Some(&done));
        assert_eq!(write.done(3), None);
        drop(write);
        assert!(sessions.begin(&store, b"lsid", 4, 2_000, true, &RecordCheck::default()).is_err());
        assert_eq!(
            sessions
                .begin(&store, b"lsid", 6, 2_000, true, &RecordCheck::default())
                .unwrap()
                .done(0),
            None
        );
    }

    #[test]
    fn what_was_not_committed_is_undone() {
        let store = Memory::new();
        let sessions = Sessions::default();
        let mut write =
            sessions.begin(&store, b"lsid", 1, 0, true, &RecordCheck::default()).unwrap();
        let statements = [(0, Done::Inserted), (1, Done::Inserted), (2, Done::Deleted(1))];
        write.stage(&mut *store.begin(), &statements[..1]);
        write.stage(&mut *store.begin(), &statements[1..]);
        write.undo(&statements[1..]);
        assert_eq!(write.done(0), Some(&Done::Inserted));
        assert_eq!(write.done(1), None);
        assert_eq!(write.done(2), None);
    }

    /// Writes of many statements are stored in pages, whether their results are equal or not, and
    /// what failed to commit is not in them.
    #[test]
    fn many_statements_fill_pages() {
        let store = Memory::new();
        let result = |statement: i32| Done::Updated {
            matched: 1,
            modified: 1,
            upserted: (statement % 3 > 0).then(|| ValueBuf::from(statement)),
        };
        let begin = |sessions: &Sessions, number| {
            sessions.begin(&store, b"lsid", number, 0, true, &RecordCheck::default()).unwrap()
        };
        for count in [1, 63, 64, 65, 200, 1_000] {
            let number = i64::from(count);
            let sessions = Sessions::default();
            let mut write = begin(&sessions, number);
            for statement in 0..count {
                let one = [(statement, result(statement))];
                // The first attempt fails.
                write.stage(&mut *store.begin(), &one);
                write.undo(&one);
                let mut txn = store.begin();
                write.stage(&mut *txn, &one);
                txn.commit().unwrap();
            }
            drop(write);
            for sessions in [sessions, Sessions::default()] {
                let write = begin(&sessions, number);
                for statement in 0..count {
                    assert_eq!(write.done(statement), Some(&result(statement)), "{count}");
                }
                assert_eq!(write.done(count), None);
            }
        }
        assert!(!pages_of(&store, b"lsid").unwrap().is_empty());
        assert_eq!(Sessions::default().expire(&store, 1).unwrap(), 1);
        assert!(pages_of(&store, b"lsid").unwrap().is_empty());
    }

    #[test]
    fn idle_sessions_expire() {
        let store = Memory::new();
        let sessions = Sessions::default();
        for (lsid, now_ms) in [(b"old", 1_000), (b"new", 9_000)] {
            let mut write =
                sessions.begin(&store, lsid, 1, now_ms, true, &RecordCheck::default()).unwrap();
            let mut txn = store.begin();
            write.stage(&mut *txn, &[(0, Done::Inserted)]);
            txn.commit().unwrap();
        }
        assert_eq!(sessions.expire(&store, 5_000).unwrap(), 1);
        assert_eq!(
            sessions
                .begin(&store, b"old", 1, 9_500, true, &RecordCheck::default())
                .unwrap()
                .done(0),
            None
        );
        assert_eq!(
            sessions
                .begin(&store, b"new", 1, 9_500, true, &RecordCheck::default())
                .unwrap()
                .done(0),
            Some(&Done::Inserted)
        );
    }
}
