//! Blocks users' writes, as `setUserWriteBlockMode` requests.
//!
//! The mode is a document of `config.user_writes_critical_sections`, as in mongod, so that it
//! survives a restart. The server's own databases stay writable, and users with the privilege
//! `bypassWriteBlockingMode` may still write.

use marula_bson::doc;
use marula_db::write::UserWrites;
use marula_db::{Db, Namespace};
use marula_error::Result;

use crate::context::Context;

const COLLECTION: &str = "user_writes_critical_sections";
/// Blocks every namespace: the empty name is the parent of all.
const ID: &str = "";

/// Applies the stored mode, which another node may have set.
pub(crate) fn load(db: &Db) -> Result<()> {
    db.set_user_writes_blocked(stored(db)?);
    Ok(())
}

/// Stores the mode and applies it. Once writes are blocked, none that was not is committed.
pub(crate) fn set(db: &Db, blocks: bool, now_ms: i64) -> Result<()> {
    let ns = Namespace::new("config", COLLECTION)?;
    if !blocks {
        db.remove_document(&ns, ID, now_ms)?;
        db.set_user_writes_blocked(false);
        return Ok(());
    }
    let stored = doc! { "_id": ID, "blockNewUserShardedDDL": false, "blockUserWrites": true };
    db.store_document(&ns, stored.as_doc(), now_ms)?;
    let blocked = db.block_user_writes();
    blocked.or_else(|error| db.remove_document(&ns, ID, now_ms).and(Err(error)))
}

fn stored(db: &Db) -> Result<bool> {
    let stored = db.stored_document(&Namespace::new("config", COLLECTION)?, ID)?;
    let blocks = stored.as_ref().and_then(|stored| stored.as_doc().get("blockUserWrites"));
    Ok(blocks.is_some_and(|blocks| blocks.is_truthy()))
}

impl Context<'_> {
    /// Returns when this client may write.
    pub fn user_writes(&self) -> UserWrites {
        match self.connection.access.as_deref().is_some_and(|access| access.bypasses_write_block) {
            true => UserWrites::Allowed,
            false => UserWrites::Blockable,
        }
    }

    /// Checks that this client may write to the database of this name.
    ///
    /// Errors: `user_writes_blocked`.
    pub(crate) fn check_user_writes(&self, name: &str) -> Result<()> {
        self.user_writes().check(&self.server.db, name)
    }
}
