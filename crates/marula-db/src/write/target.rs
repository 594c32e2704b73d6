//! The collection that a write is for: looked up by its name, and held under that name while
//! documents are written.
//!
//! A drop or a rename may come between the look-up and the write. A write that went on would be
//! acknowledged for a collection that is gone, or for a name that the client has not given, so it
//! checks under the collection's gate that neither has happened; the operation then begins again
//! with a look-up.

use std::sync::Arc;
use std::time::Duration;

use marula_error::{Error, Result};
use parking_lot::RwLockReadGuard;

use super::{WriteOp, check_in_transaction};
use crate::collection::{Collection, Renames};
use crate::current;
use crate::keys::Ident;
use crate::namespace::Namespace;
use crate::nodes::Share;
use crate::storage_error::client_error;

/// The interval at which a writer looks whether an index build of another node has ended.
const CLOSED_STEP: Duration = Duration::from_millis(5);

/// The collection that was looked up by its name.
#[derive(Clone, Copy)]
pub(super) struct Target {
    ident: Ident,
    /// The number of its renames while it had the name.
    renames: Renames,
}

impl WriteOp<'_> {
    /// Looks up the collection of this name. From then on, writes to it fail once it has been
    /// renamed.
    pub fn look_up(&mut self, ns: &Namespace) -> Option<Arc<Collection>> {
        loop {
            let collection = self.unit.collection(ns)?;
            if self.holds_to(&collection, ns) {
                return Some(collection);
            }
        }
    }

    /// Same as [`look_up`](WriteOp::look_up), but creates a collection that does not exist.
    ///
    /// Errors: those of a creation.
    pub fn look_up_or_create(&mut self, ns: &Namespace) -> Result<Arc<Collection>> {
        loop {
            let collection = self.unit.collection_or_create(ns)?;
            if self.holds_to(&collection, ns) {
                return Ok(collection);
            }
        }
    }

    /// Notes a collection as the target; returns whether it has the name still. A transaction sees
    /// the names of its moment, and touches its collections.
    fn holds_to(&mut self, collection: &Collection, ns: &Namespace) -> bool {
        if self.unit.transaction().is_some() {
            return true;
        }
        let renames = collection.renames();
        self.target = Some(Target { ident: collection.ident(), renames });
        collection.is_named(ns)
    }

    /// Locks the collection in shared mode; waits only if this operation may.
    ///
    /// Errors: those of [`Collection::check_there`]; a conflict instead in a transaction.
    pub(super) fn share<'c>(&self, collection: &'c Collection) -> Result<Share<'c>> {
        collection.check_writable()?;
        if self.unit.transaction().is_some() {
            self.unit.touch(collection)?;
            check_in_transaction(self.unit, collection)?;
        }
        let is_shared = self.unit.db().is_shared();
        loop {
            let share = Share::new(self.lock_shared(collection)?, is_shared);
            self.check_there(collection)?;
            if !is_shared || !collection.state().building.iter().any(|build| build.is_closed()) {
                return Ok(share);
            }
            // Another node holds writers off while it ends an index build.
            drop(share);
            if !self.may_wait {
                return Err(Error::postponed());
            }
            if self.unit.transaction().is_some() {
                return Err(client_error(marula_storage::Error::Conflict));
            }
            current::check()?;
            std::thread::sleep(CLOSED_STEP);
            self.unit.db().renew_catalog()?;
        }
    }

    fn lock_shared<'c>(&self, collection: &'c Collection) -> Result<RwLockReadGuard<'c, ()>> {
        if self.may_wait {
            return collection.write_shared();
        }
        collection.try_write_shared().ok_or_else(Error::postponed)
    }

    /// Checks that a collection has been neither dropped nor, if it is the target, renamed.
    fn check_there(&self, collection: &Collection) -> Result<()> {
        let target = self.target.filter(|target| target.ident == collection.ident());
        let renames = target.map_or_else(|| collection.renames(), |target| target.renames);
        match collection.check_there(renames) {
            Err(_) if self.unit.transaction().is_some() => {
                Err(client_error(marula_storage::Error::Conflict))
            }
            outcome => outcome,
        }
    }
}
