//! Inserts documents, many per transaction, each with its own success or error.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use marula_bson::Doc;
use marula_bson::directory::write_record;
use marula_error::{Error, Result, codes};
use marula_storage::Space;
use parking_lot::Mutex;

use super::document::Origin;
use super::unique_keys::{ChunkDocument, UniqueKeys, When};
use super::{WriteOp, capped, document, duplicate, find_taken};
use crate::collection::{Collection, Shape, State};
use crate::current;
use crate::index::KeySet;
use crate::keys::{self, RecordKey};
use crate::nodes::Share;
use crate::session::{Done, StatementIds};
use crate::storage_error::client_error;
use crate::validator::check_validator;

/// The maximum number of documents in one transaction.
const CHUNK_DOCUMENTS_MAX: usize = 1_000;
/// The maximum total size of documents in one transaction, unless a single document is larger.
const CHUNK_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The maximum number of chunk buffers kept for later inserts.
const SPARE_MAX: usize = 4;
/// Smaller buffers are cheaper to allocate, larger ones are not kept.
const SPARE_BYTES: RangeInclusive<usize> = 64 << 10..=2 * CHUNK_BYTES_MAX;

/// Spare chunk buffers. They are so large that the allocator would return them to the operating
/// system, which clears them for the next use.
static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// The result of an insert of several documents.
#[derive(Default, Debug)]
pub struct InsertReport {
    /// The position of the first document that it is not about, if the insert was interrupted.
    pub attempted: usize,
    /// The number of inserted documents, by this attempt or an earlier one.
    pub inserted: usize,
    /// The errors of failed documents, with their positions.
    pub errors: Vec<(usize, Error)>,
    /// The statement ids that an earlier attempt had done.
    pub retried: Vec<i32>,
}

/// The lengths of an [`InsertReport`].
#[derive(Clone, Copy)]
struct Counts {
    inserted: usize,
    errors: usize,
    retried: usize,
}

impl InsertReport {
    fn counts(&self) -> Counts {
        let (errors, retried) = (self.errors.len(), self.retried.len());
        Counts { inserted: self.inserted, errors, retried }
    }

    /// Adds the report of the documents that follow.
    pub fn append(&mut self, rest: InsertReport) {
        self.inserted += rest.inserted;
        self.errors.extend(rest.errors);
        self.retried.extend(rest.retried);
    }

    /// Takes back all that was added since it had these lengths.
    fn cut(&mut self, counts: Counts) {
        self.inserted = counts.inserted;
        self.errors.truncate(counts.errors);
        self.retried.truncate(counts.retried);
    }
}

/// The statements recorded in the session for the documents of a chunk.
#[derive(Clone, Copy)]
pub(super) enum Statements<'a> {
    /// Each document is a statement of its own.
    Each,
    /// The single document is this statement, or these statements.
    Of(&'a [(i32, Done)]),
}

impl Statements<'_> {
    fn put(self, position: usize, ids: &StatementIds, out: &mut Vec<(i32, Done)>) {
        match self {
            Statements::Each => out.push((ids.at(position), Done::Inserted)),
            Statements::Of(statements) => out.extend_from_slice(statements),
        }
    }
}

/// The documents of one transaction.
#[derive(Default)]
pub(super) struct Chunk {
    bytes: Vec<u8>,
    pub(super) documents: Vec<Pending>,
    /// The keys of each document for each index, in that order.
    keys: Vec<KeySet>,
    /// The index that has refused the document that could not be added to the chunk.
    refused_by: Option<usize>,
}

pub(super) struct Pending {
    /// The position among the caller's documents.
    position: usize,
    start: usize,
    end: usize,
    pub(super) record: RecordKey,
}

impl Chunk {
    /// A chunk for several documents, in a spare buffer.
    fn of_many() -> Chunk {
        Chunk { bytes: SPARE.lock().pop().unwrap_or_default(), ..Chunk::default() }
    }

    /// Keeps the buffer for the next chunk.
    fn spare(mut self) {
        if SPARE_BYTES.contains(&self.bytes.capacity()) {
            self.bytes.clear();
            let mut spare = SPARE.lock();
            if spare.len() < SPARE_MAX {
                spare.push(self.bytes);
            }
        }
    }

    /// The document in its stored form.
    fn stored(&self, pending: &Pending) -> &[u8] {
        &self.bytes[pending.start..pending.end]
    }

    pub(super) fn doc(&self, pending: &Pending) -> Doc<'_> {
        Doc::trusted(self.stored(pending))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.documents.clear();
        self.refused_by = None;
    }

    /// Reserves the key sets of one more document; returns their range.
    fn next_keys(&mut self, indexes: usize) -> std::ops::Range<usize> {
        let first = self.documents.len() * indexes;
        if self.keys.len() < first + indexes {
            self.keys.resize_with(first + indexes, KeySet::default);
        }
        first..first + indexes
    }
}

impl WriteOp<'_> {
    /// Inserts `docs`, the first of which is the next that `report` has not, into `collection`. An
    /// ordered insert stops at the first error.
    ///
    /// Each document is a statement of the session; a statement that an earlier attempt has done
    /// counts as inserted. The outer error does not belong to a document: then the report is of the
    /// documents before `attempted`, and none after them was inserted.
    pub fn insert<'d>(
        &mut self,
        collection: &Collection,
        docs: &mut dyn Iterator<Item = Doc<'d>>,
        ordered: bool,
        report: &mut InsertReport,
    ) -> Result<()> {
        let is_alone = docs.size_hint().1 == Some(1);
        let mut chunk = if is_alone { Chunk::default() } else { Chunk::of_many() };
        let mut docs = (report.attempted..).zip(docs).peekable();
        while let Some((next, _)) = docs.peek() {
            report.attempted = *next;
            let before = report.counts();
            let inserted = self.insert_some(collection, &mut docs, ordered, &mut chunk, report);
            if let Err(error) = inserted {
                report.cut(before);
                return Err(error);
            }
            if ordered && report.errors.len() > before.errors {
                // An error within the chunk precedes the one that ended it.
                report.errors.truncate(before.errors + 1);
                break;
            }
        }
        chunk.spare();
        report.errors.sort_by_key(|(position, _)| *position);
        Ok(())
    }

    /// Inserts as many documents as belong into one transaction.
    fn insert_some<'d>(
        &mut self,
        collection: &Collection,
        docs: &mut dyn Iterator<Item = (usize, Doc<'d>)>,
        ordered: bool,
        chunk: &mut Chunk,
        report: &mut InsertReport,
    ) -> Result<()> {
        let shared = self.share(collection)?;
        let state = collection.state();
        chunk.clear();
        let mut failed = None;
        // A capped collection may remove documents of the same insert, so they are inserted one
        // by one.
        let documents_max = if state.options.capped.is_some() { 1 } else { CHUNK_DOCUMENTS_MAX };
        while chunk.documents.len() < documents_max
            && chunk.bytes.len() < CHUNK_BYTES_MAX
            && let Some((position, doc)) = docs.next()
        {
            // A record of another kind of write counts, too: an insert needs nothing of it.
            if let Some(numbered) = &self.numbered
                && numbered.done(self.ids.at(position)).is_some()
            {
                report.inserted += 1;
                report.retried.push(self.ids.at(position));
                continue;
            }
            let origin = match self.is_of_catalogue {
                true => Origin::Catalogue,
                false => Origin::Insert(self.empty_timestamps),
            };
            let prepared = self.prepare(collection, &state, doc, origin, position, chunk);
            if let Err(error) = prepared {
                let is_conflict = error.code() == codes::WriteConflict;
                let ends_transaction = is_conflict && self.unit.transaction().is_some();
                if error.is_postponed() || ends_transaction {
                    return Err(error);
                }
                failed = Some((position, error));
                break;
            }
        }
        let mut held = (shared, state);
        while let Err(error) = self.insert_chunk(collection, &held.1, chunk, ordered, report) {
            self.check_renewable(error)?;
            drop(held);
            let (again, refused) = self.share_again(collection, chunk, ordered)?;
            held = again;
            match ordered {
                true => failed = refused.into_iter().next().or(failed),
                false => report.errors.extend(refused),
            }
        }
        let (shared, state) = held;
        drop(shared);
        if let Some((position, error)) = failed {
            let error = self.first_refusal(collection, &state, chunk, error)?;
            report.errors.push((position, error));
        }
        Ok(())
    }

    /// Inserts the document of an upsert. `statement` is the record of the session's statement.
    pub fn upsert(
        &mut self,
        collection: &Collection,
        doc: Doc<'_>,
        statement: Option<(i32, Done)>,
    ) -> Result<()> {
        self.insert_one(collection, doc, statement.as_slice())
    }

    /// Inserts one document for these statements of the session.
    pub(super) fn insert_one(
        &mut self,
        collection: &Collection,
        doc: Doc<'_>,
        statements: &[(i32, Done)],
    ) -> Result<()> {
        let shared = self.share(collection)?;
        let state = collection.state();
        let mut chunk = Chunk::default();
        if let Err(error) = self.prepare(collection, &state, doc, Origin::Update, 0, &mut chunk) {
            return Err(self.first_refusal(collection, &state, &mut chunk, error)?);
        }
        let statements = Statements::Of(statements);
        let mut held = (shared, state);
        loop {
            let outcome = self
                .retrying(|op| op.try_insert_chunk(collection, &held.1, &chunk, true, statements));
            match outcome {
                Ok((_, errors)) => {
                    return errors.into_iter().next().map_or(Ok(()), |(_, error)| Err(error));
                }
                Err(error) => self.check_renewable(error)?,
            }
            drop(held);
            let (again, refused) = self.share_again(collection, &mut chunk, true)?;
            if let Some((_, error)) = refused.into_iter().next() {
                return Err(self.first_refusal(collection, &again.1, &mut chunk, error)?);
            }
            held = again;
        }
    }

    /// Checks that a chunk can be inserted after the catalogue has been read again, which another
    /// node has changed.
    ///
    /// Errors: `error`, where it has another reason.
    fn check_renewable(&self, error: Error) -> Result<()> {
        let is_renewable = error.code() == codes::WriteConflict
            && self.unit.transaction().is_none()
            && self.unit.db().is_stale();
        if is_renewable { Ok(()) } else { Err(error) }
    }

    /// Shares a collection again, with the indexes that it has now, and makes the keys of a chunk's
    /// documents for them; returns those that are refused, if they are in order the first one,
    /// which then ends the chunk.
    ///
    /// Errors: those of [`share`](WriteOp::share).
    fn share_again<'c>(
        &mut self,
        collection: &'c Collection,
        chunk: &mut Chunk,
        ordered: bool,
    ) -> Result<((Share<'c>, Arc<State>), Vec<(usize, Error)>)> {
        current::check()?;
        self.unit.db().renew_catalog()?;
        let shared = self.share(collection)?;
        let state = collection.state();
        let old = std::mem::take(chunk);
        let mut refused = Vec::new();
        for pending in &old.documents {
            let (doc, position) = (old.doc(pending), pending.position);
            // Its timestamps have been filled, and its `_id` checked.
            let origin = Origin::Update;
            if let Err(error) = self.prepare(collection, &state, doc, origin, position, chunk) {
                refused.push((position, error));
                if ordered {
                    break;
                }
            }
        }
        Ok(((shared, state), refused))
    }

    /// Adds a document to the chunk, with its record key and its keys in every index.
    fn prepare(
        &mut self,
        collection: &Collection,
        state: &State,
        doc: Doc<'_>,
        origin: Origin,
        position: usize,
        chunk: &mut Chunk,
    ) -> Result<()> {
        self.user_writes.check_collection(self.unit.db(), collection)?;
        let (db, limits) = (self.unit.db(), self.limits());
        let buffers = &mut self.buffers;
        let mut next_timestamp = || db.next_timestamp(self.now_ms);
        let (fill, out) = (&mut next_timestamp, &mut buffers.document);
        document::prepare_insert(doc, self.now_ms, origin, fill, out)?;
        let prepared = Doc::trusted(&buffers.document);
        limits.check_document(state, prepared)?;
        if !self.bypass_validation {
            check_validator(state, collection, prepared, None)?;
        }
        if !state.building.is_empty() {
            // Refuses a document that cannot be indexed; its notes are added when it is written.
            buffers.notes.add(state, &[], None, Some(prepared))?;
            buffers.notes.clear();
        }
        let lacking = self.unit.lacks_indexes(collection).then(|| self.unit.moment());
        let places = chunk.next_keys(state.indexes.len());
        let mut key_count = 0;
        for (number, (index, keys)) in state.indexes.iter().zip(&mut chunk.keys[places]).enumerate()
        {
            if let Err(error) = buffers.key_maker.make(index, prepared, keys) {
                chunk.refused_by = Some(number);
                return Err(error);
            }
            limits.check_keys(&mut key_count, keys)?;
            let has_entry = index.spec.partial.is_none() || !keys.is_empty();
            if has_entry && lacking.is_some_and(|moment| !index.serves(moment)) {
                return Err(client_error(marula_storage::Error::Conflict));
            }
        }
        let record = match collection.shape() {
            // Assigned once the collection is locked; see `try_insert_chunk`.
            Shape::RecordId if state.options.capped.is_some() => RecordKey::new(&[]),
            Shape::RecordId => RecordKey::of_record_id(collection.next_record_id()),
            Shape::Clustered => {
                buffers.key.clear();
                let id = prepared.get("_id").expect("a prepared document has an _id");
                let collator =
                    state.options.collation.as_ref().map(|collation| collation.collator());
                marula_bson::key_string::encode_part(id, false, collator, &mut buffers.key);
                RecordKey::new(&buffers.key)
            }
        };
        let start = chunk.bytes.len();
        write_record(prepared, &mut chunk.bytes);
        chunk.documents.push(Pending { position, start, end: chunk.bytes.len(), record });
        Ok(())
    }

    /// The error to report for a document that `error` refused: a duplicate key of an index before
    /// the refusing one takes precedence.
    fn first_refusal(
        &self,
        collection: &Collection,
        state: &State,
        chunk: &mut Chunk,
        error: Error,
    ) -> Result<Error> {
        let Some(number) = chunk.refused_by else { return Ok(error) };
        if collection.shape() == Shape::Clustered {
            let doc = Doc::trusted(&self.buffers.document);
            let id = doc.get("_id").expect("a prepared document has an _id");
            let record = collection.find_id(self.unit.view(), id, &mut Vec::new())?;
            let record = record.as_ref().map_or(&[][..], RecordKey::as_bytes);
            if collection.get(self.unit.view(), record, &mut Vec::new(), &mut |_| ())? {
                return Ok(duplicate::clustered_error(&collection.namespace(), doc));
            }
        }
        let places = chunk.next_keys(state.indexes.len());
        let keys = &chunk.keys[places];
        let indexes = &state.indexes[..number];
        let taken = find_taken(self.unit.view(), collection, indexes, keys, &[])?;
        Ok(taken.unwrap_or(error))
    }

    fn insert_chunk(
        &mut self,
        collection: &Collection,
        state: &State,
        chunk: &Chunk,
        ordered: bool,
        report: &mut InsertReport,
    ) -> Result<()> {
        if chunk.documents.is_empty() {
            return Ok(());
        }
        let (inserted, errors) = self.retrying(|op| {
            op.try_insert_chunk(collection, state, chunk, ordered, Statements::Each)
        })?;
        report.inserted += inserted;
        report.errors.extend(errors);
        Ok(())
    }

    fn try_insert_chunk(
        &mut self,
        collection: &Collection,
        state: &State,
        chunk: &Chunk,
        ordered: bool,
        statement: Statements<'_>,
    ) -> Result<(usize, Vec<(usize, Error)>)> {
        let capped = state.options.capped.map(|_| current::lock(&collection.capped));
        let mut capped = capped.transpose()?;
        let unique_keys = UniqueKeys::of(collection, state, chunk);
        let mut write = self.unit.begin();
        let (guards, timeout) = (unique_keys.guards(), self.guard_timeout());
        if capped.is_some() && self.unit.db().is_shared() {
            capped::claim(&mut write, collection, timeout)?;
        }
        let is_free = match self.unit.transaction() {
            Some(_) => write.guard(&guards, timeout).is_ok(),
            None => {
                write.latch(&guards, timeout)?;
                write.are_unlocked()
            }
        };
        let is_logged = write.is_logged(collection);
        let are_new = is_free && unique_keys.are_new(write.view())?;
        let mut errors = Vec::new();
        let mut taken: HashSet<&[u8]> = HashSet::new();
        let mut statements = Vec::new();
        let (mut documents, mut bytes) = (0i64, 0i64);
        for (number, pending) in chunk.documents.iter().enumerate() {
            let own = ChunkDocument { collection, state, chunk, number };
            let (view, taken) = (write.view(), &mut taken);
            let refused = match self.unit.transaction() {
                _ if are_new => None,
                _ if is_free => unique_keys.find_taken(view, own, taken, &mut |_, _| Ok(()))?,
                None => {
                    let mut claim = |_, key: (Space, &[u8])| write.check_unlocked(key);
                    unique_keys.find_taken(view, own, taken, &mut claim)?
                }
                Some(transaction) => {
                    let mut claim = |when, key: (Space, &[u8])| match when {
                        When::Before => transaction.check_not_anothers(key),
                        When::After => write.guard(&[key], timeout),
                    };
                    unique_keys.find_taken(self.unit.view(), own, taken, &mut claim)?
                }
            };
            if let Some(error) = refused {
                errors.push((pending.position, error));
                if ordered {
                    break;
                }
                continue;
            }
            let doc = chunk.doc(pending);
            // Tailable cursors wait at the end of a capped collection, so a record becomes visible
            // before the next one gets its id: no cursor can pass a record that appears later.
            let given = match &capped {
                Some(_) => &RecordKey::of_record_id(collection.next_record_id()),
                None => &pending.record,
            };
            let record = given.as_bytes();
            keys::record_key(collection.ident(), record, &mut self.buffers.key);
            write.txn().put(Space::Records, &self.buffers.key, chunk.stored(pending));
            for (index, keys) in state.indexes.iter().zip(keys_of(state, chunk, number)) {
                write.mark(index, &keys.multikey);
                for key in keys.iter() {
                    self.buffers.entries.put(&mut write, index, collection.shape(), key, record);
                }
            }
            if !state.building.is_empty() {
                let notes = &mut self.buffers.notes;
                notes.clear();
                notes.add(state, record, None, Some(doc))?;
                notes.put(&mut write);
            }
            if is_logged {
                write.entries().insert(collection, doc, self.is_copy);
            }
            documents += 1;
            bytes += i64::try_from(doc.as_bytes().len()).expect("a document is at most 16 MB");
            if self.numbered.is_some() {
                statement.put(pending.position, &self.ids, &mut statements);
            }
        }
        let inserted = usize::try_from(documents).expect("documents are counted up from zero");
        if documents == 0 {
            return Ok((0, errors));
        }
        if let (Some(bounds), Some(oldest)) = (state.options.capped, capped.as_deref_mut()) {
            let added = capped::Added { documents, bytes };
            let removed = capped::trim(self, &mut write, collection, state, bounds, added, oldest)?;
            documents -= removed.documents;
            bytes -= removed.bytes;
        }
        write.count(collection, documents, bytes);
        write.notify_inserts();
        match &mut self.numbered {
            Some(numbered) if !statements.is_empty() => {
                write.commit_recorded(numbered, &statements)?;
            }
            _ => write.commit()?,
        }
        self.commits += 1;
        Ok((inserted, errors))
    }
}

pub(super) fn keys_of<'c>(state: &State, chunk: &'c Chunk, number: usize) -> &'c [KeySet] {
    let first = number * state.indexes.len();
    &chunk.keys[first..first + state.indexes.len()]
}
