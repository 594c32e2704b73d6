//! The numbers of login attempts, for `serverStatus.security`.

use crate::counters::Counter;

/// The attempts by one mechanism in one way.
#[derive(Default)]
pub(crate) struct Attempts {
    /// Attempts that started.
    pub(crate) received: Counter,
    /// Attempts that succeeded.
    pub(crate) successful: Counter,
}

/// The attempts by one mechanism.
#[derive(Default)]
pub(crate) struct Logins {
    /// All of them.
    pub(crate) all: Attempts,
    /// Of these, the speculative ones in a client's first `hello`.
    pub(crate) speculative: Attempts,
}

/// The attempts by each mechanism, in the order of `MECHANISMS`.
#[derive(Default)]
pub(crate) struct LoginCounters {
    pub(crate) by_mechanism: [Logins; 3],
    /// The number of `hello`s that asked for a user's mechanisms.
    pub(crate) mechanisms_asked: Counter,
}

impl LoginCounters {
    /// Returns the counters of a mechanism.
    pub(crate) fn of(&self, name: &str) -> Option<&Logins> {
        let at = crate::command::MECHANISMS.iter().position(|known| *known == name)?;
        self.by_mechanism.get(at)
    }
}
