//! The unit of work: the reads and writes of one operation, in one value.
//!
//! ```text
//!                        Unit
//!            ┌────────────┼──────────────┐
//!          view         begin()        tally
//!    the view of reads    │        counts of examined
//!                       Write      and written data
//!                 ┌───────┴───────┐
//!         store transaction    effects
//!           entries, keys,     applied after the commit,
//!           counters, notes    and only then
//! ```
//!
//! A unit is passed down from the command to the last read and write, so that one place determines
//! what an operation sees: the newest state, one moment, or one moment with the writes of a
//! client's transaction on top. It consists of a few references and is created on the stack.

mod effects;
mod parking;
mod tally;

use std::sync::Arc;

use marula_error::Result;
use marula_storage::{Stamp, View};

pub(crate) use effects::{Growth, Write};
pub use parking::Parking;
pub use tally::{Detail, Examined, Hashes, KeyChanges, PlanReport, Tally};

use crate::catalog::options::CollectionOptions;
use crate::catalog::shown;
use crate::collection::{Collection, State};
use crate::db::Db;
use crate::keys;
use crate::namespace::Namespace;
use crate::transaction::Transaction;
use crate::validate::counter;

/// The reads and writes of one operation.
#[derive(Clone, Copy)]
pub struct Unit<'u> {
    db: &'u Db,
    view: &'u dyn View,
    tally: Option<&'u Tally>,
    parking: Option<&'u Parking>,
    transaction: Option<&'u Transaction>,
    is_explained: bool,
}

impl<'u> Unit<'u> {
    /// A unit that reads the newest state.
    #[inline]
    pub fn new(db: &'u Db) -> Self {
        Unit {
            db,
            view: db.store(),
            tally: None,
            parking: None,
            transaction: None,
            is_explained: false,
        }
    }

    /// The same unit, counted in `tally`.
    #[inline]
    #[must_use]
    pub fn tallied(self, tally: &'u Tally) -> Self {
        Unit { tally: Some(tally), ..self }
    }

    /// The same unit; its writes may be abandoned as `parking` permits.
    #[inline]
    #[must_use]
    pub fn parked(self, parking: &'u Parking) -> Self {
        Unit { parking: Some(parking), ..self }
    }

    /// The same unit of a plan that is explained: its reads do not count as uses of indexes.
    #[must_use]
    pub fn explained(self) -> Self {
        Unit { is_explained: true, ..self }
    }

    /// Returns whether the unit is of a plan that is explained.
    #[inline]
    pub fn is_explained(self) -> bool {
        self.is_explained
    }

    /// The same unit, reading `view`.
    #[must_use]
    pub fn seeing(self, view: &'u dyn View) -> Self {
        Unit { view, ..self }
    }

    /// The same unit, reading the newest state: for the writes of an operation that reads a moment.
    #[must_use]
    pub fn at_newest(self) -> Self {
        Unit { view: self.db.store(), ..self }
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

    /// The collection with this name, including those created by the client's transaction.
    #[inline]
    pub fn collection(self, ns: &Namespace) -> Option<Arc<Collection>> {
        match self.transaction {
            None => self.db.collection(ns),
            Some(transaction) => transaction.collection(ns),
        }
    }

    /// The collection with this name, [touched](Unit::touch) for a read.
    ///
    /// Errors: as [`Unit::touch`].
    #[inline]
    pub fn touched(self, ns: &Namespace) -> Result<Option<Arc<Collection>>> {
        let has_cluster = || self.db.engine().is_remote;
        let collection = self.collection(ns).or_else(|| shown::collection(ns, has_cluster()));
        if let Some(collection) = &collection {
            self.touch(collection)?;
        }
        Ok(collection)
    }

    /// The collection with this name; creates it without options if it does not exist.
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
    /// Errors: as [`Db::create_collection`].
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

    /// Prevents changes of a collection's state until the end of the client's transaction, if there
    /// is one, and checks that the collection existed under this name at the moment of the view.
    ///
    /// Errors: as [`Transaction`]'s own.
    #[inline]
    pub fn touch(self, collection: &Collection) -> Result<()> {
        match self.transaction {
            Some(transaction) => transaction.touch(collection),
            None if self.view.is_fixed() => collection.check_seen(self.moment()),
            None => Ok(()),
        }
    }

    /// The options and indexes of a collection, without indexes that are younger than the view.
    #[inline]
    pub fn state(self, collection: &Collection) -> Arc<State> {
        let state = collection.state();
        if self.lacks_indexes(collection) { self.older_state(&state) } else { state }
    }

    fn older_state(self, state: &State) -> Arc<State> {
        let moment = self.moment();
        let mut older = State::clone(state);
        older.indexes.retain(|index| index.serves(moment));
        Arc::new(older)
    }

    /// Returns whether some indexes of a collection are younger than the view.
    #[inline]
    pub(crate) fn lacks_indexes(self, collection: &Collection) -> bool {
        self.view.is_fixed() && collection.indexed_at() > self.moment()
    }

    /// The moment that its reads show, apart from changes of its own: what is compared with the
    /// commits of catalogue changes.
    #[inline]
    pub(crate) fn moment(self) -> Stamp {
        self.transaction.map_or_else(|| self.view.moment(), Transaction::moment)
    }

    /// The databases.
    #[inline]
    pub fn db(self) -> &'u Db {
        self.db
    }

    /// The view of its reads.
    #[inline]
    pub fn view(self) -> &'u dyn View {
        self.view
    }

    /// The tally, if the operation is counted.
    #[inline]
    pub fn tally(self) -> Option<&'u Tally> {
        self.tally
    }

    /// Whether its writes may be abandoned, if it belongs to a request.
    #[inline]
    pub fn parking(self) -> Option<&'u Parking> {
        self.parking
    }

    /// A fixed view for several reads that must agree. `None` if the unit's own view is fixed.
    pub fn still(self) -> Result<Option<Arc<dyn View>>> {
        if self.view.is_fixed() { Ok(None) } else { self.db.view_now().map(Some) }
    }

    /// Returns whether changes by the operation are logged in the oplog.
    #[inline]
    pub fn logs_changes(self) -> bool {
        match self.transaction {
            None => self.db.oplog.is_on(),
            Some(transaction) => transaction.logs_changes(),
        }
    }

    /// The number of documents of a collection. Where other nodes write to it, it is read from the
    /// store.
    ///
    /// Errors: those of the store.
    #[inline]
    pub fn count(self, collection: &Collection) -> Result<i64> {
        match self.db.is_shared() {
            false => Ok(collection.count()),
            true => counter(self.view, &keys::count(collection.ident())),
        }
    }

    /// Begins an atomic change.
    #[inline]
    pub(crate) fn begin(self) -> Write<'u> {
        Write::new(self)
    }
}
