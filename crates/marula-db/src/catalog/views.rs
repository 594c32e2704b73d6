//! `system.views`: the collection with the views of a database as documents.
//!
//! A view is an entry of the catalogue. Its document `{ _id: "db.view", viewOn, pipeline, collation
//! }` is written after the entry; opening the store repairs the result of a crash in between.

use marula_bson::{DocBuf, Value};
use marula_error::Result;
use marula_storage::Direction;

use crate::collection::Collection;
use crate::db::Db;
use crate::keys::RecordKey;
use crate::namespace::Namespace;
use crate::unit::Unit;
use crate::write::WriteOp;

/// The name of the collection in every database.
pub const SYSTEM_VIEWS: &str = "system.views";

impl Db {
    /// Writes or removes the document of `ns` in `system.views` according to the catalogue: only a
    /// view has one.
    ///
    /// The caller holds the catalogue's lock.
    pub(super) fn show_view(&self, next_ident: &mut u32, ns: &Namespace) -> Result<()> {
        let views = Namespace::new(ns.db(), SYSTEM_VIEWS)?;
        let wanted = self.collection(ns).and_then(|collection| document(&collection));
        let shown = match (self.collection(&views), &wanted) {
            (Some(shown), _) => shown,
            (None, Some(_)) => self.create_locked(next_ident, &views, Default::default())?,
            (None, None) => return Ok(()),
        };
        let mut op = WriteOp::new(Unit::new(self), 0);
        op.is_of_catalogue = true;
        if let Some(wanted) = &wanted {
            return self.store_in(&mut op, &shown, wanted.as_doc());
        }
        let id = Value::String(ns.as_str().into());
        match shown.find_id(self.store(), id, &mut Vec::new())? {
            Some(record) => op.delete(&shown, &record, &mut |_| Ok(true), None).map(drop),
            None => Ok(()),
        }
    }

    /// Repairs differences between views in the catalogue and their documents that a crash has
    /// left.
    pub(crate) fn reconcile_views(&self) -> Result<()> {
        let mut next_ident = self.lock_catalog()?;
        for database in self.catalog().databases() {
            for collection in self.catalog().collections(&database) {
                if collection.state().options.view.is_some() && !self.is_shown(&collection)? {
                    self.show_view(&mut next_ident, &collection.namespace())?;
                }
            }
            let Some(shown) = self.collection(&Namespace::new(&database, SYSTEM_VIEWS)?) else {
                continue;
            };
            let mut op = WriteOp::new(Unit::new(self), 0);
            for record in self.stale_views(&shown)? {
                op.delete(&shown, &record, &mut |_| Ok(true), None)?;
            }
        }
        Ok(())
    }

    /// Returns whether the view's document is correct.
    fn is_shown(&self, view: &Collection) -> Result<bool> {
        let ns = view.namespace();
        let Some(shown) = self.collection(&Namespace::new(ns.db(), SYSTEM_VIEWS)?) else {
            return Ok(false);
        };
        let mut scratch = Vec::new();
        let id = Value::String(ns.as_str().into());
        let Some(record) = shown.find_id(self.store(), id, &mut scratch)? else { return Ok(false) };
        let wanted = document(view);
        let mut is_same = false;
        shown.get(self.store(), record.as_bytes(), &mut scratch, &mut |doc| {
            is_same = wanted.as_ref().is_some_and(|wanted| wanted.as_doc() == doc);
        })?;
        Ok(is_same)
    }

    /// The records of documents without a view.
    fn stale_views(&self, shown: &Collection) -> Result<Vec<RecordKey>> {
        let mut stale = Vec::new();
        let mut cursor = shown.scan(self.store(), Direction::Forward)?;
        while cursor.advance()? {
            let id = cursor.doc().get("_id").and_then(|id| id.as_str()).map(|id| id.to_string());
            let view =
                id.and_then(|id| Namespace::parse(&id).ok()).and_then(|ns| self.collection(&ns));
            if view.is_none_or(|view| view.state().options.view.is_none()) {
                stale.push(RecordKey::new(cursor.record()));
            }
        }
        Ok(stale)
    }
}

/// A view's document; `None` if the collection is not a view.
fn document(collection: &Collection) -> Option<DocBuf> {
    let state = collection.state();
    let view = state.options.view.as_ref()?;
    Some(DocBuf::build(|out| {
        out.append("_id", collection.namespace().as_str());
        out.append("viewOn", view.on.as_str());
        out.append("pipeline", Value::Array(view.pipeline.as_doc()));
        if let Some(collation) = &state.options.collation {
            out.append("collation", collation.to_doc());
        }
    }))
}
