//! Blocks users' writes, as `setUserWriteBlockMode` requests.
//!
//! The mode is a document of `config.user_writes_critical_sections`, as in mongod, so that it
//! survives a restart. The server's own databases stay writable, and users with the privilege
//! `bypassWriteBlockingMode` may still write.

use std::sync::atomic::{AtomicBool, Ordering};

use marula_bson::doc;
use marula_db::write::UserWrites;
use marula_db::{Db, Namespace};
use marula_error::Result;

use crate::auth::check::Target;
use crate::context::Context;

const COLLECTION: &str = "user_writes_critical_sections";
/// Blocks every namespace: the empty name is the parent of all.
const ID: &str = "";

/// Whether users' writes are blocked.
#[derive(Default)]
pub struct UserWriteBlock(AtomicBool);

impl UserWriteBlock {
    /// Reads the stored mode.
    pub fn load(db: &Db) -> Result<Self> {
        Ok(UserWriteBlock(AtomicBool::new(stored(db)?)))
    }

    /// Reads the stored mode again, which another node may have set.
    pub(crate) fn renew(&self, db: &Db) -> Result<()> {
        self.0.store(stored(db)?, Ordering::Release);
        Ok(())
    }

    /// Stores the mode and applies it from now on.
    pub fn set(&self, db: &Db, blocks: UserWrites, now_ms: i64) -> Result<()> {
        let ns = Namespace::new("config", COLLECTION)?;
        let blocks = blocks == UserWrites::Blocked;
        if blocks {
            let stored =
                doc! { "_id": ID, "blockNewUserShardedDDL": false, "blockUserWrites": true };
            db.store_document(&ns, stored.as_doc(), now_ms)?;
        } else {
            db.remove_document(&ns, ID, now_ms)?;
        }
        self.0.store(blocks, Ordering::Release);
        Ok(())
    }

    /// Returns whether they are blocked.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

fn stored(db: &Db) -> Result<bool> {
    let stored = db.stored_document(&Namespace::new("config", COLLECTION)?, ID)?;
    let blocks = stored.as_ref().and_then(|stored| stored.as_doc().get("blockUserWrites"));
    Ok(blocks.is_some_and(|blocks| blocks.is_truthy()))
}

impl Context<'_> {
    /// Returns whether this client's writes are blocked.
    pub fn user_writes(&self) -> UserWrites {
        if !self.server.user_write_block.is_on() {
            return UserWrites::Allowed;
        }
        let access = self.connection.access.as_deref();
        match access.is_some_and(|access| access.may(&Target::Cluster, "bypassWriteBlockingMode")) {
            true => UserWrites::Allowed,
            false => UserWrites::Blocked,
        }
    }
}
