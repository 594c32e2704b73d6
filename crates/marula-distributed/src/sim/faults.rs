//! The faults of a simulated store, by a seed.

use std::time::Duration;

/// The number of times each fault comes, in a thousand calls of its kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Repeats the run, where calls come in one order.
    pub seed: u64,
    /// A commit that was made ends as unknown.
    pub unknown_done: u32,
    /// A commit that was not made ends as unknown.
    pub unknown_not_done: u32,
    /// A commit ends as unknown and is made later, in front of another call.
    pub unknown_late: u32,
    /// A commit conflicts with nothing in particular: FoundationDB's resolvers forget after a
    /// recovery, and merge keys.
    pub false_conflict: u32,
    /// A read or a commit finds its version too old.
    pub too_old: u32,
    /// A read takes [`SLOW_READ`].
    pub slow_read: u32,
    /// A call is followed by a pause longer than a version lives.
    pub pause: u32,
    /// A read or a commit does not reach the store.
    pub unavailable: u32,
}

/// The duration of a slow read.
pub const SLOW_READ: Duration = Duration::from_millis(400);

/// The duration of a pause.
pub const PAUSE: Duration = Duration::from_secs(6);

/// How a commit goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Done,
    Unreached,
    TooOld,
    Conflicts,
    UnknownDone,
    UnknownNotDone,
    UnknownLate,
}

/// Draws faults.
pub(super) struct Dice {
    faults: Faults,
    state: u64,
}

impl Dice {
    pub(super) fn new(faults: Faults) -> Self {
        Dice { faults, state: faults.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    /// A random number (xorshift64*).
    pub(super) fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    fn comes(&mut self, per_thousand: u32) -> bool {
        per_thousand > 0 && self.next() % 1000 < u64::from(per_thousand)
    }

    pub(super) fn commit(&mut self) -> Fate {
        let faults = self.faults;
        for (per_thousand, fate) in [
            (faults.unavailable, Fate::Unreached),
            (faults.too_old, Fate::TooOld),
            (faults.false_conflict, Fate::Conflicts),
            (faults.unknown_done, Fate::UnknownDone),
            (faults.unknown_not_done, Fate::UnknownNotDone),
            (faults.unknown_late, Fate::UnknownLate),
        ] {
            if self.comes(per_thousand) {
                return fate;
            }
        }
        Fate::Done
    }

    pub(super) fn is_read_too_old(&mut self) -> bool {
        self.comes(self.faults.too_old)
    }

    pub(super) fn is_unreached(&mut self) -> bool {
        self.comes(self.faults.unavailable)
    }

    /// The delay of a read.
    pub(super) fn delay(&mut self) -> Duration {
        if self.comes(self.faults.slow_read) {
            return SLOW_READ;
        }
        if self.comes(self.faults.pause) { PAUSE } else { Duration::ZERO }
    }
}
