//! The two phases of what sorts before it gives: rows come, then they are given in order.

use std::mem;

use marula_error::Result;

use super::{ExternalSort, Sorted};

/// Rows that come and are then in order, as `S` gives them.
pub enum Rows<S = Sorted> {
    /// They are coming.
    Coming(ExternalSort),
    /// All are there.
    Sorted(S),
    /// Putting them in order has failed.
    Failed,
}

impl<S> Rows<S> {
    /// Puts in order what has come, unless that was done before; `open` makes of it what gives the
    /// rows.
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
    /// Moves to the next row in order; answers whether there is one.
    pub fn advance(&mut self) -> Result<bool> {
        match self {
            Rows::Sorted(sorted) => sorted.advance(),
            Rows::Coming(_) | Rows::Failed => Ok(false),
        }
    }
}

/// Sorted rows, of which the first that has not been taken is at hand.
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

    /// The row at hand, if there is one left: its key and its value.
    pub fn row(&self) -> Option<(&[u8], &[u8])> {
        self.is_there.then(|| (self.sorted.key(), self.sorted.value()))
    }
}
