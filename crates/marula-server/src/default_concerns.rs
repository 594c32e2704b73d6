//! The default read and write concern, as `setDefaultRWConcern` sets them.
//!
//! They are a document of `config.settings`, as in mongod. On one node every level of read concern
//! reads the same, so that only the write concern has an effect: whether writes wait for the disk.

use std::sync::atomic::{AtomicBool, Ordering};

use marula_bson::{Doc, DocBuf, DocWriter, Value, doc, doc_fields};
use marula_db::{Db, Namespace};
use marula_error::Result;
use parking_lot::RwLock;

use crate::concern::WriteConcern;

const COLLECTION: &str = "settings";
const ID: &str = "ReadWriteConcernDefaults";

/// The defaults.
#[derive(Default)]
pub struct DefaultConcerns {
    /// Whether there is a write concern: every write without its own checks this.
    has_write: AtomicBool,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    stored: Option<DocBuf>,
    write: Option<WriteConcern>,
    /// The time when this process last read or changed them.
    looked_ms: i64,
}

impl DefaultConcerns {
    /// Reads the stored defaults.
    pub fn load(db: &Db, now_ms: i64) -> Result<Self> {
        let defaults = DefaultConcerns::default();
        let stored = db.stored_document(&Namespace::new("config", COLLECTION)?, ID)?;
        defaults.take(stored, now_ms);
        Ok(defaults)
    }

    fn take(&self, stored: Option<DocBuf>, now_ms: i64) {
        let field = |name: &str| stored.as_ref().and_then(|stored| stored.as_doc().get(name));
        let write = field("defaultWriteConcern");
        let write = write.and_then(|write| WriteConcern::parse(write).ok());
        self.has_write.store(write.is_some(), Ordering::Release);
        *self.state.write() = State { stored, write, looked_ms: now_ms };
    }

    /// Returns the default write concern, if one was set.
    pub fn write(&self) -> Option<WriteConcern> {
        match self.has_write.load(Ordering::Acquire) {
            true => self.state.read().write.clone(),
            false => None,
        }
    }

    /// Stores the given concerns in place of the old ones; an empty read concern removes the
    /// default.
    pub fn set(
        &self,
        db: &Db,
        read: Option<Doc<'_>>,
        write: Option<Doc<'_>>,
        now_ms: i64,
    ) -> Result<()> {
        let before = self.state.read().stored.clone();
        let kept = |name: &str, given: Option<Doc<'_>>| match given {
            Some(given) => Some(given.to_buf()),
            None => before.as_ref()?.as_doc().get(name)?.as_doc().map(|kept| kept.to_buf()),
        };
        let document = DocBuf::build(|out| {
            out.append("_id", ID);
            for (name, given) in [("defaultReadConcern", read), ("defaultWriteConcern", write)] {
                if let Some(concern) =
                    kept(name, given).filter(|concern| !concern.as_doc().is_empty())
                {
                    out.append(name, &concern);
                }
            }
            out.append("updateOpTime", Value::Timestamp(db.newest_timestamp(now_ms)));
            out.append("updateWallClockTime", Value::DateTime(now_ms));
        });
        db.store_document(&Namespace::new("config", COLLECTION)?, document.as_doc(), now_ms)?;
        self.take(Some(document), now_ms);
        Ok(())
    }

    /// Appends the defaults as `getDefaultRWConcern` and `serverStatus` show them.
    pub fn append(&self, is_in_memory: bool, out: &mut DocWriter<'_>) {
        let state = self.state.read();
        let stored = state.stored.as_ref().map(|stored| stored.as_doc());
        let field = |name: &str| stored.and_then(|stored| stored.get(name));
        let (read, write) = (field("defaultReadConcern"), field("defaultWriteConcern"));
        let local = doc! { "level": "local" };
        let majority = doc! { "w": "majority", "wtimeout": 0 };
        out.append("defaultReadConcern", read.unwrap_or(Value::Document(local.as_doc())));
        out.append("defaultWriteConcern", write.unwrap_or(Value::Document(majority.as_doc())));
        for name in ["updateOpTime", "updateWallClockTime"] {
            if let Some(value) = field(name) {
                out.append(name, value);
            }
        }
        let source = |set: Option<Value<'_>>| if set.is_some() { "global" } else { "implicit" };
        doc_fields!(out;
            "defaultWriteConcernSource": source(write),
            "defaultReadConcernSource": source(read),
        );
        if is_in_memory {
            out.append("inMemory", true);
        }
        out.append("localUpdateWallClockTime", Value::DateTime(state.looked_ms));
    }
}
