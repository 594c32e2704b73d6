//! The share of the server's memory that one blocking stage holds.
//!
//! A stage that collects data has a limit of its own, but many stages within their limits exceed
//! the server's memory together. So a stage also asks for its share as it grows, a step at a time.
//! When the server is short of memory, a stage that can use the disk does so, and one that cannot
//! fails. Each stage gets a first step in any case, so that small operations go on.
//!
//! ```text
//!  bytes collected  ├────────────────────────────┤
//!  share            ├─ first step ─┼─ asked for ─┼─ … ─┤
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};

use marula_error::Result;

use crate::meter;

/// The bytes of one request to the server, and what each stage gets without a question.
const STEP_BYTES: usize = 1024 * 1024;

/// The bytes of all shares in small pieces.
static SMALL_PIECES: AtomicUsize = AtomicUsize::new(0);

/// Returns the bytes that stages hold in small pieces, which the allocator does not count.
pub fn small_pieces_bytes() -> usize {
    SMALL_PIECES.load(Ordering::Relaxed)
}

/// The size of the allocations that hold a stage's data.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Pieces {
    /// One for each document or value: counted here.
    #[default]
    Small,
    /// Of many kilobytes each: counted by the allocator.
    Large,
}

/// The memory that a stage may hold. It is returned when the share is dropped.
#[derive(Default, Debug)]
pub struct Share {
    pieces: Pieces,
    granted: usize,
}

impl Share {
    /// Creates an empty share of a stage with such pieces.
    pub const fn new(pieces: Pieces) -> Self {
        Share { pieces, granted: 0 }
    }

    /// Creates a share for `bytes` that are in memory already, in small pieces.
    pub fn of_small_pieces(bytes: usize) -> Self {
        let mut share = Share::default();
        share.set(bytes);
        share
    }

    /// Returns whether the stage may hold `bytes` in all, where it could use the disk.
    #[inline]
    pub fn has_room(&mut self, bytes: usize) -> bool {
        bytes <= self.granted || self.extend(bytes, meter::is_short_of)
    }

    /// Fails if the server does not have the memory for the stage to hold `bytes` in all.
    #[inline]
    pub fn require(&mut self, bytes: usize) -> Result<()> {
        let mut outcome = Ok(());
        let asked = |more| {
            outcome = meter::check_room_always(more);
            outcome.is_err()
        };
        if bytes > self.granted {
            self.extend(bytes, asked);
        }
        outcome
    }

    /// Returns the memory: the stage holds none now.
    pub fn clear(&mut self) {
        self.set(0);
    }

    /// Extends the share to `bytes`, unless the server `is_short` of the difference. Returns
    /// whether it did.
    #[cold]
    fn extend(&mut self, bytes: usize, is_short: impl FnOnce(usize) -> bool) -> bool {
        let wanted = bytes.saturating_add(STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
        if wanted > STEP_BYTES && is_short(wanted - self.granted) {
            return false;
        }
        self.set(wanted);
        true
    }

    fn set(&mut self, bytes: usize) {
        if self.pieces == Pieces::Small {
            SMALL_PIECES.fetch_add(bytes, Ordering::Relaxed);
            SMALL_PIECES.fetch_sub(self.granted, Ordering::Relaxed);
        }
        self.granted = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use marula_error::{Error, codes};

    use super::*;
    use crate::context::{Check, Interrupt};

    /// An operation of a server with this much memory left.
    pub(crate) struct Left(pub(crate) Arc<AtomicUsize>);

    impl Check for Left {
        fn check(&self) -> Result<()> {
            Ok(())
        }

        fn check_room(&self, bytes: usize) -> Result<()> {
            match bytes > self.0.load(Ordering::Relaxed) {
                true => Err(Error::new(codes::ExceededMemoryLimit, "no memory")),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn a_share_grows_while_the_server_has_memory() {
        let left = Arc::new(AtomicUsize::new(10 * STEP_BYTES));
        let _metered = meter::begin(Interrupt::new(Left(Arc::clone(&left))));
        let mut share = Share::new(Pieces::Large);
        assert!(share.has_room(9 * STEP_BYTES));
        left.store(0, Ordering::Relaxed);
        assert!(share.has_room(9 * STEP_BYTES));
        assert!(!share.has_room(9 * STEP_BYTES + 1));
        assert!(share.require(9 * STEP_BYTES + 1).is_err());
        share.clear();
        assert!(share.has_room(STEP_BYTES), "the first step is always there");
        assert!(!share.has_room(STEP_BYTES + 1));
    }

    #[test]
    fn small_pieces_are_counted_until_they_are_returned() {
        const BYTES: usize = 1 << 40;
        let share = Share::of_small_pieces(BYTES);
        assert!(small_pieces_bytes() >= BYTES);
        drop(share);
        assert!(small_pieces_bytes() < BYTES);
    }
}
