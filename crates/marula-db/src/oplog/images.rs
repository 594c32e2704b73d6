//! Pre-images, the documents before a change: `config.system.preimages`.
//!
//! Pre-images of collections with `changeStreamPreAndPostImages` are stored in the commit of the
//! change, under the collection's UUID, the time and the number of the operation. Source: the
//! documents of mongod 6.0 in that collection.

use std::sync::Arc;

use marula_bson::directory::write_record;
use marula_bson::{Binary, Doc, DocBuf, DocWriter, Value, doc};
use marula_error::Result;
use marula_storage::{Space, Txn, View};

use super::{Entries, now_ms};
use crate::catalog::entry::Uuid;
use crate::catalog::options::CollectionOptions;
use crate::collection::Collection;
use crate::db::Db;
use crate::keys;
use crate::namespace::Namespace;

/// The name of the collection, in the database `config`.
pub const IMAGES: &str = "system.preimages";

/// Identifies the change that a pre-image precedes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PreImage {
    /// The collection.
    pub uuid: Uuid,
    /// The time of the change.
    pub time: u64,
    /// The number of the operation within a transaction; zero for other changes.
    pub operation: usize,
}

impl PreImage {
    fn write_id(&self, out: &mut DocWriter<'_>) {
        out.append("nsUUID", Binary { subtype: 4, bytes: &self.uuid });
        out.append("ts", Value::Timestamp(self.time));
        out.append("applyOpsIndex", self.operation as i64);
    }

    /// The document before the change, if its pre-image exists.
    pub fn find(&self, db: &Db, view: &dyn View) -> Result<Option<DocBuf>> {
        let Some(collection) = db.collection(&namespace()?) else { return Ok(None) };
        let id = DocBuf::build(|out| self.write_id(out));
        let mut scratch = Vec::new();
        let record = collection.find_id(view, Value::Document(id.as_doc()), &mut scratch)?;
        let Some(record) = record else { return Ok(None) };
        let mut found = None;
        collection.get(view, record.as_bytes(), &mut scratch, &mut |doc| {
            found = doc.get("preImage").and_then(|image| image.as_doc()).map(Doc::to_buf);
        })?;
        Ok(found)
    }
}

pub(super) fn namespace() -> Result<Namespace> {
    Namespace::new("config", IMAGES)
}

/// The pre-images of one commit.
pub(super) struct Batch {
    collection: Option<Arc<Collection>>,
    count: i64,
    bytes: i64,
}

impl Batch {
    /// Prepares the pre-images of `entries`.
    pub(super) fn of(db: &Db, entries: &Entries) -> Self {
        let has_some = !entries.images().is_empty();
        let ns = has_some.then(|| namespace().ok()).flatten();
        Batch { collection: ns.and_then(|ns| db.collection(&ns)), count: 0, bytes: 0 }
    }

    /// Returns whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.collection.is_none()
    }

    /// Adds the pre-images of `entries`, which have these times, to their commit.
    pub(super) fn put(&mut self, entries: &Entries, times: &[u64], now_ms: i64, txn: &mut dyn Txn) {
        let (Some(collection), Some(&newest)) = (&self.collection, times.last()) else { return };
        let mut key = Vec::new();
        let mut record = Vec::new();
        for image in entries.images() {
            let of = match entries.is_transaction() {
                true => PreImage { uuid: image.uuid, time: newest, operation: image.operation },
                false => PreImage { uuid: image.uuid, time: times[image.operation], operation: 0 },
            };
            let document = DocBuf::build(|out| {
                of.write_id(&mut out.begin_doc("_id"));
                out.append("operationTime", Value::DateTime(now_ms));
                out.append("preImage", Value::Document(image.document.as_doc()));
            });
            let id = document.as_doc().get("_id").expect("it was just written");
            key.clear();
            key.extend_from_slice(&collection.ident().bytes());
            marula_bson::key_string::encode_part(id, false, None, &mut key);
            record.clear();
            write_record(document.as_doc(), &mut record);
            txn.put(Space::Records, &key, &record);
            self.count += 1;
            self.bytes += i64::try_from(document.len()).expect("a document is at most 16 MB");
        }
        txn.add(&keys::count(collection.ident()), self.count);
        txn.add(&keys::size(collection.ident()), self.bytes);
    }

    /// Updates the counters in memory after the commit.
    pub(super) fn update_counters(self) {
        if let Some(collection) = self.collection {
            collection.counted(self.count, self.bytes);
        }
    }
}

impl Db {
    /// Creates the collection for pre-images if it does not exist.
    pub(super) fn keep_images(&self) -> Result<()> {
        let ns = namespace()?;
        if self.collection(&ns).is_some() {
            return Ok(());
        }
        let mut next_ident = self.lock_catalog()?;
        if self.collection(&ns).is_some() {
            return Ok(());
        }
        let index = doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_", "unique": true };
        let options = doc! { "clusteredIndex": index.as_doc() };
        self.create_locked(&mut next_ident, &ns, CollectionOptions::parse(options.as_doc())?)?;
        Ok(())
    }

    /// Removes pre-images older than this number of milliseconds, and those whose change is no
    /// longer in the oplog.
    pub(super) fn forget_images(&self, older_than_ms: Option<i64>) -> Result<()> {
        let Some(collection) = self.collection(&namespace()?) else { return Ok(()) };
        let before_ms = older_than_ms.map(|age| now_ms().saturating_sub(age));
        let since = self.oplog.since();
        let mut records = Vec::new();
        let mut cursor = collection.scan(self.store(), marula_storage::Direction::Forward)?;
        while cursor.advance()? {
            let doc = cursor.doc();
            let id = doc.get("_id").and_then(|id| id.as_doc()).unwrap_or(Doc::EMPTY);
            let is_gone = matches!(id.get("ts"), Some(Value::Timestamp(time)) if time < since);
            let is_old = matches!((doc.get("operationTime"), before_ms),
                (Some(Value::DateTime(at)), Some(before)) if at < before);
            if is_gone || is_old {
                records.push((cursor.record().to_vec(), doc.as_bytes().len() as i64));
            }
        }
        for chunk in records.chunks(super::trim::CHUNK) {
            let mut txn = self.store().begin();
            let mut key = Vec::new();
            for (record, _) in chunk {
                keys::record_key(collection.ident(), record, &mut key);
                txn.delete(Space::Records, &key);
            }
            let (count, bytes) =
                (chunk.len() as i64, chunk.iter().map(|(_, bytes)| bytes).sum::<i64>());
            txn.add(&keys::count(collection.ident()), -count);
            txn.add(&keys::size(collection.ident()), -bytes);
            txn.commit().map_err(crate::storage_error::client_error)?;
            collection.counted(-count, -bytes);
        }
        Ok(())
    }
}
