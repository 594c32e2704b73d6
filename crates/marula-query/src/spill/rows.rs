//! The two phases of an operation that sorts: rows are added, then read in order.

use std::mem;

use marula_error::Result;

use super::{ExternalSort, Sorted};

/// Rows that are added, then read in order from an `S`.
pub enum Rows<S = Sorted> {
    /// Rows are being added.
    Coming(ExternalSort),
    /// All rows are in order.
    Sorted(S),
    /// The sort failed.
    Failed,
}

impl<S> Rows<S> {
    /// Sorts the rows, unless that was done before; `open` turns the result into a reader.
    pub fn settle(&mut self, open: impl FnOnce(Sorted) -> Result<S>) -> Result<()> {
        if matches!(self, Rows::Coming(_))
            && let Rows::Coming(sort) = mem::replace(self, Rows::Failed)
        {
            *self = Rows::Sorted(open(sort.finish()?)?);
        }
        Ok(())
    }
}

impl Rows {
    /// Moves to the next row in order; returns whether there is one.
    pub fn advance(&mut self) -> Result<bool> {
        match self {
            Rows::Sorted(sorted) => sorted.advance(),
            Rows::Coming(_) | Rows::Failed => Ok(false),
        }
    }
}

/// A reader of sorted rows that holds the first row not taken yet.
pub struct Front {
    sorted: Sorted,
    is_there: bool,
}

impl Front {
    /// Moves to the first row.
    pub fn new(sorted: Sorted) -> Result<Self> {
        let mut front = Front { sorted, is_there: false };
        front.advance()?;
        Ok(front)
    }

    /// Moves to the next row.
    pub fn advance(&mut self) -> Result<()> {
        self.is_there = self.sorted.advance()?;
        Ok(())
    }

    /// Returns the current row's key and value, if one is left.
    pub fn row(&self) -> Option<(&[u8], &[u8])> {
        self.is_there.then(|| (self.sorted.key(), self.sorted.value()))
    }
}
