//! The oplog entries of one commit, gathered while the change is made.
//!
//! ```text
//! { op: "i" | "u" | "d" | "c" | "n", ns, ui, o, o2,          gathered
//!   ts, t, v, wall }                                          added when the commit gets its times
//! ```
//! A client's transaction is one entry of kind `c`, `{ applyOps: [ … ] }`, or several linked
//! entries where one would be too large.

use marula_bson::{ArrayWriter, Binary, Doc, DocBuf, DocWriter, RawValue, Value};

use super::{ENTRY_VERSION, TERM};
use crate::catalog::entry::Uuid;
use crate::collection::Collection;
use crate::namespace::Namespace;
use crate::session;
use crate::transaction::Numbered;

/// The maximum size of the operations in one entry of a transaction. Source: mongod's entries stay
/// below the maximum document size.
const APPLY_OPS_BYTES_MAX: usize = 16 * 1024 * 1024 - 64 * 1024;

/// The operations of one commit, and the pre-images of their documents.
#[derive(Default)]
pub(crate) struct Entries {
    /// The operations, as consecutive documents.
    operations: Vec<u8>,
    ends: Vec<usize>,
    /// The namespaces of the operations; consecutive duplicates are omitted.
    namespaces: Vec<String>,
    /// Pre-images of documents, by the number of their operation.
    images: Vec<Image>,
    /// For a transaction: its session and number in the form of an entry.
    transaction: Option<DocBuf>,
    /// For a retryable write: the same, and the statement ids of the first operations.
    numbered: Option<(DocBuf, Vec<i32>)>,
}

/// A document before an operation.
pub(super) struct Image {
    /// The number of the operation within the commit.
    pub(super) operation: usize,
    pub(super) uuid: Uuid,
    pub(super) document: DocBuf,
}

impl Entries {
    /// Returns whether there are no operations.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let images: usize = self.images.iter().map(|image| image.document.len()).sum();
        self.operations.len() + images
    }

    /// The namespaces of the operations.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.namespaces.iter().map(String::as_str)
    }

    pub(super) fn images(&self) -> &[Image] {
        &self.images
    }

    /// Returns whether all operations belong to one transaction.
    pub(super) fn is_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Adds the insert of a document; `is_copy` if it comes from another collection.
    pub(crate) fn insert(&mut self, collection: &Collection, document: Doc<'_>, is_copy: bool) {
        let id = document.get_raw(b"_id");
        self.add("i", collection, |out| {
            out.append("o", Value::Document(document));
            append_id("o2", id, out);
            if is_copy {
                out.append("fromMigrate", true);
            }
        });
    }

    /// Adds an update, with `delta` or with the whole document.
    pub(crate) fn update(
        &mut self,
        collection: &Collection,
        old: Doc<'_>,
        new: Doc<'_>,
        delta: Option<&DocBuf>,
    ) {
        self.keep_image(collection, old);
        self.add("u", collection, |out| {
            out.append("o", Value::Document(delta.map_or(new, DocBuf::as_doc)));
            append_id("o2", new.get_raw(b"_id"), out);
        });
    }

    /// Adds the delete of a document.
    pub(crate) fn delete(&mut self, collection: &Collection, document: Doc<'_>) {
        self.keep_image(collection, document);
        let id = document.get_raw(b"_id");
        self.add("d", collection, |out| append_id("o", id, out));
    }

    /// Adds a catalogue change in the database of `ns`, of the collection with this UUID.
    pub(crate) fn command(
        &mut self,
        ns: &Namespace,
        uuid: Option<&Uuid>,
        command: &DocBuf,
        before: Option<&DocBuf>,
    ) {
        let target = format!("{}.$cmd", ns.db());
        self.operation("c", &target, uuid, |out| {
            out.append("o", Value::Document(command.as_doc()));
            if let Some(before) = before {
                out.append("o2", Value::Document(before.as_doc()));
            }
        });
    }

    /// Adds a note that changes nothing.
    pub(crate) fn note(&mut self, what: Doc<'_>) {
        self.operation("n", "", None, |out| {
            out.append("o", Value::Document(what));
        });
    }

    /// Appends the operations of another change, which has become part of this one.
    pub(crate) fn append(&mut self, mut other: Entries) {
        if self.is_empty() {
            *self = other;
            return;
        }
        let (before, base) = (self.ends.len(), self.operations.len());
        self.operations.append(&mut other.operations);
        self.ends.extend(other.ends.iter().map(|end| base + end));
        other.namespaces.into_iter().for_each(|ns| self.note_namespace(&ns));
        self.images.extend(
            other
                .images
                .into_iter()
                .map(|image| Image { operation: before + image.operation, ..image }),
        );
    }

    /// Marks the operations as one client transaction.
    pub(crate) fn belong_to(&mut self, transaction: Numbered<'_>) {
        self.transaction = Some(numbered(transaction.lsid, transaction.number));
    }

    /// Marks the operations as these statements of a retryable write in the session `lsid`.
    pub(crate) fn are_statements(
        &mut self,
        lsid: &[u8],
        number: i64,
        statements: impl Iterator<Item = i32>,
    ) {
        self.numbered = Some((numbered(lsid, number), statements.collect()));
    }

    fn keep_image(&mut self, collection: &Collection, document: Doc<'_>) {
        if collection.state().options.has_images {
            let (operation, uuid) = (self.ends.len(), *collection.uuid());
            self.images.push(Image { operation, uuid, document: document.to_buf() });
        }
    }

    fn add(&mut self, op: &str, collection: &Collection, what: impl FnOnce(&mut DocWriter<'_>)) {
        let ns = collection.namespace();
        self.operation(op, ns.as_str(), Some(collection.uuid()), what);
    }

    fn operation(
        &mut self,
        op: &str,
        ns: &str,
        uuid: Option<&Uuid>,
        what: impl FnOnce(&mut DocWriter<'_>),
    ) {
        let mut out = DocWriter::new(&mut self.operations);
        out.append("op", op).append("ns", ns);
        if let Some(uuid) = uuid {
            out.append("ui", Binary { subtype: 4, bytes: uuid });
        }
        what(&mut out);
        out.finish();
        self.ends.push(self.operations.len());
        self.note_namespace(ns);
    }

    fn note_namespace(&mut self, ns: &str) {
        if self.namespaces.last().is_none_or(|last| last != ns) {
            self.namespaces.push(ns.to_owned());
        }
    }

    fn each(&self) -> impl Iterator<Item = Doc<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| Doc::trusted(&self.operations[start..end]))
    }

    /// Calls `put` with every entry and its time; `entry` is a reusable buffer.
    pub(super) fn write(
        &self,
        next_time: &mut dyn FnMut() -> u64,
        now_ms: i64,
        entry: &mut Vec<u8>,
        put: &mut dyn FnMut(u64, Doc<'_>),
    ) {
        if let Some(transaction) = &self.transaction {
            return self.write_transaction(transaction, next_time, now_ms, entry, put);
        }
        let mut previous = None;
        for (place, operation) in self.each().enumerate() {
            let time = next_time();
            entry.clear();
            let mut out = DocWriter::new(entry);
            let statement = self
                .numbered
                .as_ref()
                .and_then(|(numbered, statements)| Some((numbered, *statements.get(place)?)));
            if let Some((numbered, _)) = statement {
                out.append_elements(numbered.as_doc().elements_bytes());
            }
            out.append_elements(operation.elements_bytes());
            if let Some((_, number)) = statement {
                out.append("stmtId", number);
            }
            match operation.get("op") {
                // A note has no term.
                Some(Value::String(op)) if op == "n" => {
                    out.append("ts", Value::Timestamp(time));
                    append_version(now_ms, &mut out);
                }
                _ => append_time(time, now_ms, &mut out),
            }
            if statement.is_some() {
                append_previous(previous.replace(time), &mut out);
            }
            out.finish();
            put(time, Doc::trusted(entry));
        }
    }

    fn write_transaction(
        &self,
        transaction: &DocBuf,
        next_time: &mut dyn FnMut() -> u64,
        now_ms: i64,
        entry: &mut Vec<u8>,
        put: &mut dyn FnMut(u64, Doc<'_>),
    ) {
        let mut operations = self.each().peekable();
        let mut written: Option<u64> = None;
        while operations.peek().is_some() {
            let time = next_time();
            entry.clear();
            let mut out = DocWriter::new(entry);
            out.append_elements(transaction.as_doc().elements_bytes());
            out.append("op", "c").append("ns", "admin.$cmd");
            let mut command = out.begin_doc("o");
            let mut list: ArrayWriter<'_> = command.begin_array("applyOps");
            while let Some(next) = operations.next_if(|next| {
                list.count() == 0 || list.size() + next.as_bytes().len() < APPLY_OPS_BYTES_MAX
            }) {
                list.push(Value::Document(next));
            }
            drop(list);
            let is_last = operations.peek().is_none();
            if !is_last {
                command.append("partialTxn", true);
            } else if written.is_some() {
                command.append("count", Value::whole(self.ends.len() as i64));
            }
            drop(command);
            append_time(time, now_ms, &mut out);
            append_previous(written, &mut out);
            out.finish();
            put(time, Doc::trusted(entry));
            written = Some(time);
        }
    }
}

/// A session and a number in the form of an entry.
fn numbered(lsid: &[u8], number: i64) -> DocBuf {
    DocBuf::build(|out| {
        session::write_lsid(lsid, &mut out.begin_doc("lsid"));
        out.append("txnNumber", number);
    })
}

/// The time of the previous entry of the same transaction or the same write.
fn append_previous(time: Option<u64>, out: &mut DocWriter<'_>) {
    let mut previous = out.begin_doc("prevOpTime");
    previous.append("ts", Value::Timestamp(time.unwrap_or(0)));
    previous.append("t", if time.is_some() { TERM } else { -1 });
}

fn append_id(name: &str, id: Option<RawValue<'_>>, out: &mut DocWriter<'_>) {
    let mut key = out.begin_doc(name);
    if let Some(id) = id {
        key.append_raw("_id", id);
    }
}

fn append_time(time: u64, now_ms: i64, out: &mut DocWriter<'_>) {
    out.append("ts", Value::Timestamp(time)).append("t", TERM);
    append_version(now_ms, out);
}

fn append_version(now_ms: i64, out: &mut DocWriter<'_>) {
    out.append("v", ENTRY_VERSION);
    out.append("wall", Value::DateTime(now_ms));
}
