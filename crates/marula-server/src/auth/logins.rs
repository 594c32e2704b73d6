//! How often clients tried to log in, and managed to, for `serverStatus.security`.

use crate::counters::Counter;

/// The attempts of one way to log in.
#[derive(Default)]
pub(crate) struct Attempts {
    /// Those that began.
    pub(crate) received: Counter,
    /// Those that ended well.
    pub(crate) successful: Counter,
}

/// The attempts by one mechanism.
#[derive(Default)]
pub(crate) struct Logins {
    /// All of them.
    pub(crate) all: Attempts,
    /// Of these, those that came with a client's first `hello`.
    pub(crate) speculative: Attempts,
}

/// The attempts by each mechanism, in the order of `MECHANISMS`.
#[derive(Default)]
pub(crate) struct LoginCounters {
    pub(crate) by_mechanism: [Logins; 3],
    /// How often a `hello` asked for a user's mechanisms.
    pub(crate) mechanisms_asked: Counter,
}

impl LoginCounters {
    /// The counters of a mechanism.
    pub(crate) fn of(&self, name: &str) -> Option<&Logins> {
        let at = crate::command::MECHANISMS.iter().position(|known| *known == name)?;
        self.by_mechanism.get(at)
    }
}
