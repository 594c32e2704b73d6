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
//! an operation sees: the newest state, or one moment. It is a few references, made on the stack.

mod effects;
mod tally;

use std::sync::Arc;

use marula_error::Result;
use marula_storage::View;

pub(crate) use effects::Write;
pub use tally::{Detail, Examined, Hashes, KeyChanges, Tally, Told};

use crate::db::Db;
use crate::storage_error::ForClient;

/// What one operation reads and writes.
#[derive(Clone, Copy)]
pub struct Unit<'u> {
    db: &'u Db,
    view: &'u dyn View,
    tally: Option<&'u Tally>,
}

impl<'u> Unit<'u> {
    /// A unit that sees the newest state.
    #[inline]
    pub fn new(db: &'u Db) -> Self {
        Unit { db, view: db.store(), tally: None }
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
        if self.view.is_fixed() { Ok(None) } else { self.db.view().for_client().map(Some) }
    }

    /// Begins a change that is made whole or not at all.
    #[inline]
    pub(crate) fn begin(self) -> Write<'u> {
        Write::new(self.db.store().begin(), self.tally)
    }
}
