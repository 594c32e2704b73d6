//! The unit of work: what one operation reads and writes, in one value.
//!
//! ```text
//!                        Unit
//!            ┌────────────┼──────────────┐
//!          view         begin()        tally
//!    what reads see       │        what the operation has
//!                       Write      looked at and written
//!                 ┌───────┴───────┐
//!         store transaction    effects
//!           entries, keys,     what follows from the commit,
//!           counters, notes    and from nothing else
//! ```
//!
//! A unit is handed down from the command to the last read and write, so that one place says what
//! an operation sees: the newest state, one moment, or one moment with a client's transaction on
//! top, which it then belongs to. It is a few references, made on the stack.

mod effects;
mod tally;

use std::sync::Arc;

use marula_error::Result;
use marula_storage::View;

pub(crate) use effects::{Growth, Write};
pub use tally::{Detail, Examined, Hashes, KeyChanges, Tally, Told};

use crate::catalog::options::CollectionOptions;
use crate::catalog::shown;
use crate::collection::{Collection, State};
use crate::db::Db;
use crate::namespace::Namespace;
use crate::transaction::Transaction;

/// What one operation reads and writes.
#[derive(Clone, Copy)]
pub struct Unit<'u> {
    db: &'u Db,
    view: &'u dyn View,
    tally: Option<&'u Tally>,
    transaction: Option<&'u Transaction>,
}

impl<'u> Unit<'u> {
    /// A unit that sees the newest state.
    #[inline]
    pub fn new(db: &'u Db) -> Self {
        Unit { db, view: db.store(), tally: None, transaction: None }
    }

    /// The same unit, counted in `tally`.
    #[inline]
    #[must_use]
    pub fn tallied(self, tally: &'u Tally) -> Self {
        Unit { tally: Some(tally), ..self }
    }

    /// The same unit, which sees what `view` shows.
    #[must_use]
    pub fn seeing(self, view: &'u dyn View) -> Self {
        Unit { view, ..self }
    }

    /// The same unit as a statement of a client's transaction.
    #[must_use]
    pub fn within(self, transaction: &'u Transaction) -> Self {
        Unit { view: transaction.view(), transaction: Some(transaction), ..self }
    }

    /// The client's transaction that it belongs to.
    #[inline]
    pub fn transaction(self) -> Option<&'u Transaction> {
        self.transaction
    }

    /// The collection of this name, as the operation sees it.
    #[inline]
    pub fn collection(self, ns: &Namespace) -> Option<Arc<Collection>> {
        match self.transaction {
            None => self.db.collection(ns),
            Some(transaction) => transaction.collection(ns),
        }
    }

    /// The collection of this name, [touched](Unit::touch), for a read.
    ///
    /// Errors: as of [`Unit::touch`].
    #[inline]
    pub fn touched(self, ns: &Namespace) -> Result<Option<Arc<Collection>>> {
        let collection = self.collection(ns).or_else(|| shown::collection(ns));
        if let Some(collection) = &collection {
            self.touch(collection)?;
        }
        Ok(collection)
    }

    /// The collection of this name, created with no options where there is none.
    pub fn collection_or_create(self, ns: &Namespace) -> Result<Arc<Collection>> {
        match self.transaction {
            None => self.db.collection_or_create(ns),
            Some(transaction) => match transaction.collection(ns) {
                Some(collection) => Ok(collection),
                None => transaction.create_collection(ns, CollectionOptions::default()),
            },
        }
    }

    /// Creates a collection.
    ///
    /// Errors: as of [`Db::create_collection`].
    pub fn create_collection(
        self,
        ns: &Namespace,
        options: CollectionOptions,
    ) -> Result<Arc<Collection>> {
        match self.transaction {
            None => self.db.create_collection(ns, options),
            Some(transaction) => transaction.create_collection(ns, options),
        }
    }

    /// Has a collection keep its shape until the client's transaction ends, where the operation
    /// belongs to one; checks that it was there, of this name, at the moment which the operation
    /// sees.
    ///
    /// Errors: as of [`Transaction`]'s own.
    #[inline]
    pub fn touch(self, collection: &Collection) -> Result<()> {
        match self.transaction {
            Some(transaction) => transaction.touch(collection),
            None if self.view.is_fixed() => collection.check_seen(self.view.moment()),
            None => Ok(()),
        }
    }

    /// The options and indexes of a collection, without the indexes that are younger than the
    /// moment which the operation sees.
    #[inline]
    pub fn state(self, collection: &Collection) -> Arc<State> {
        let state = collection.state();
        if self.lacks_indexes(collection) { self.older_state(&state) } else { state }
    }

    fn older_state(self, state: &State) -> Arc<State> {
        let moment = self.view.moment();
        let mut older = State::clone(state);
        older.indexes.retain(|index| index.serves(moment));
        Arc::new(older)
    }

    /// Whether some indexes of a collection are younger than the moment which the operation sees.
    #[inline]
    pub(crate) fn lacks_indexes(self, collection: &Collection) -> bool {
        self.view.is_fixed() && collection.indexed_at() > self.view.moment()
    }

    /// The databases.
    #[inline]
    pub fn db(self) -> &'u Db {
        self.db
    }

    /// What its reads see.
    #[inline]
    pub fn view(self) -> &'u dyn View {
        self.view
    }

    /// What counts it, where anything does.
    #[inline]
    pub fn tally(self) -> Option<&'u Tally> {
        self.tally
    }

    /// A view of the moment that it sees, for several reads that must agree. `None` where its own
    /// view is such a one.
    pub fn still(self) -> Result<Option<Arc<dyn View>>> {
        if self.view.is_fixed() { Ok(None) } else { self.db.view_now().map(Some) }
    }

    /// Whether the oplog tells of what the operation changes.
    #[inline]
    pub fn tells_of_changes(self) -> bool {
        match self.transaction {
            None => self.db.oplog.is_on(),
            Some(transaction) => transaction.tells_of_changes(),
        }
    }

    /// Begins a change that is made whole or not at all.
    #[inline]
    pub(crate) fn begin(self) -> Write<'u> {
        Write::new(self)
    }
}
