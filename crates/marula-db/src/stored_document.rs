//! Documents with the server's own settings, stored by `_id` in collections that clients can read.

use marula_bson::{Doc, DocBuf, Value};
use marula_error::Result;
use marula_query::update::Touched;

use crate::collection::Collection;
use crate::db::Db;
use crate::namespace::Namespace;
use crate::unit::Unit;
use crate::write::{Change, InsertReport, WriteOp, Written};

impl Db {
    /// The document with this `_id`, if it exists.
    pub fn stored_document(&self, ns: &Namespace, id: &str) -> Result<Option<DocBuf>> {
        let Some(collection) = self.collection(ns) else { return Ok(None) };
        let mut scratch = Vec::new();
        let found = collection.find_id(self.store(), Value::from(id), &mut scratch)?;
        let Some(record) = found else { return Ok(None) };
        let mut stored = None;
        collection.get(self.store(), record.as_bytes(), &mut scratch, &mut |doc| {
            stored = Some(doc.to_buf());
        })?;
        Ok(stored)
    }

    /// Stores a document; replaces the one with the same `_id`, a string, if it exists.
    pub fn store_document(&self, ns: &Namespace, document: Doc<'_>, now_ms: i64) -> Result<()> {
        let collection = self.collection_or_create(ns)?;
        let mut op = WriteOp::new(Unit::new(self), now_ms);
        op.bypass_validation = true;
        self.store_in(&mut op, &collection, document)
    }

    /// Does the same in a collection that the caller has, as part of a write. Writes nothing if the
    /// stored document is equal.
    pub(crate) fn store_in(
        &self,
        op: &mut WriteOp<'_>,
        collection: &Collection,
        document: Doc<'_>,
    ) -> Result<()> {
        let id = document.get("_id").unwrap_or(Value::Null);
        if let Some(record) = collection.find_id(self.store(), id, &mut Vec::new())? {
            let mut replace = |old: Doc<'_>, out: &mut Vec<u8>| {
                if old == document {
                    return Ok(Change::Same);
                }
                out.extend_from_slice(document.as_bytes());
                Ok(Change::Replace(Touched::All))
            };
            if op.update(collection, &record, &mut replace, None)? != Written::Skipped {
                return Ok(());
            }
        }
        let mut report = InsertReport::default();
        op.insert(collection, &mut std::iter::once(document), true, &mut report)?;
        report.errors.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Removes the document with this `_id`, if it exists.
    pub fn remove_document(&self, ns: &Namespace, id: &str, now_ms: i64) -> Result<()> {
        let Some(collection) = self.collection(ns) else { return Ok(()) };
        let mut scratch = Vec::new();
        let found = collection.find_id(self.store(), Value::from(id), &mut scratch)?;
        if let Some(record) = found {
            WriteOp::new(Unit::new(self), now_ms).delete(
                &collection,
                &record,
                &mut |_| Ok(true),
                None,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use marula_bson::doc;
    use marula_storage::memory::Memory;

    use super::*;

    #[test]
    fn a_document_is_stored_replaced_and_removed() {
        let db = Db::open(Arc::new(Memory::new())).unwrap();
        let ns = Namespace::new("config", "settings").unwrap();
        assert_eq!(db.stored_document(&ns, "a").unwrap(), None);
        db.remove_document(&ns, "a", 0).unwrap();
        for value in [1, 2] {
            let document = doc! { "_id": "a", "value": value };
            db.store_document(&ns, document.as_doc(), 0).unwrap();
            assert_eq!(db.stored_document(&ns, "a").unwrap(), Some(document));
        }
        assert_eq!(db.stored_document(&ns, "b").unwrap(), None);
        db.remove_document(&ns, "a", 0).unwrap();
        assert_eq!(db.stored_document(&ns, "a").unwrap(), None);
    }
}
