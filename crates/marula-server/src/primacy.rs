//! Whether this server is the primary of its replica set. It is, except while it has stepped down
//! by `replSetStepDown` with `force`: then it is a secondary, which takes no writes, and becomes
//! the primary again when the time is over.
//!
//! Nothing happens at that moment: the next reader of the state sees that the time is over.
//! Source: manual "replSetStepDown", "replSetFreeze".

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use marula_db::sweep;
use parking_lot::{Mutex, MutexGuard};

use crate::net::service::{Disconnected, Wake};

/// The state, and the clients that wait for a change of it.
#[derive(Default)]
pub struct Primacy {
    /// Whether it has stepped down and may be a secondary: every command checks this.
    has_stepped_down: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The end of its time as a secondary.
    until: Option<Instant>,
    /// The number of changes since the start of the server.
    changes: i64,
    /// `hello` requests that wait for the next change.
    waiters: Vec<Waiter>,
}

/// A request that waits for the next change, or until its deadline.
struct Waiter {
    until: Instant,
    disconnected: Disconnected,
    _wake: Wake,
}

impl Waiter {
    /// Returns whether it still waits at this time.
    fn waits(&self, now: Instant) -> bool {
        self.until > now && !self.disconnected.get()
    }
}

impl State {
    fn change(&mut self, until: Option<Instant>) {
        let (old, new) = match until {
            Some(_) => ("PRIMARY", "SECONDARY"),
            None => ("SECONDARY", "PRIMARY"),
        };
        tracing::info!(target: "REPL", id = 21_358, newState = new, oldState = old, "Replica set state transition");
        self.until = until;
        self.changes += 1;
        self.waiters.clear();
    }
}

impl Primacy {
    /// Returns whether the server is the primary.
    pub fn is_primary(&self) -> bool {
        !self.has_stepped_down.load(Ordering::SeqCst) || self.secondary_until().is_none()
    }

    /// Returns the end of its time as a secondary; `None` if it is the primary.
    pub fn secondary_until(&self) -> Option<Instant> {
        self.now().until
    }

    /// Returns the number of changes since the start of the server: the counter of its
    /// `topologyVersion`.
    pub fn changes(&self) -> i64 {
        self.now().changes
    }

    /// Makes a primary a secondary for this time; returns whether it was the primary.
    pub fn step_down(&self, time: Duration) -> bool {
        let mut state = self.now();
        let is_primary = state.until.is_none();
        if is_primary {
            state.change(Some(Instant::now() + time));
            self.has_stepped_down.store(true, Ordering::SeqCst);
        }
        is_primary
    }

    /// Keeps a secondary from becoming the primary for this time at least; without a time it
    /// becomes the primary. Returns whether it was a secondary.
    pub fn freeze(&self, time: Option<Duration>) -> bool {
        let mut state = self.now();
        let Some(until) = state.until else { return false };
        match time {
            None => self.step_up(&mut state),
            Some(time) => state.until = Some(until.max(Instant::now() + time)),
        }
        true
    }

    /// Calls `wake` at the next change, or at once if there were others than `seen` before. It may
    /// be discarded after `until`, or once the client has disconnected.
    pub fn on_change(&self, seen: i64, until: Instant, disconnected: Disconnected, wake: Wake) {
        let mut state = self.now();
        // A wake that is dropped rings.
        if state.changes == seen {
            let waiters = &mut state.waiters;
            if sweep::is_due(waiters.len()) {
                let now = Instant::now();
                waiters.retain(|waiter| waiter.waits(now));
            }
            waiters.push(Waiter { until, disconnected, _wake: wake });
        }
    }

    /// Returns the number of clients that wait for a change.
    pub fn waiting(&self) -> usize {
        let now = Instant::now();
        self.state.lock().waiters.iter().filter(|waiter| waiter.waits(now)).count()
    }

    /// Wakes the clients that wait for a change, because the server ends.
    pub fn wake_waiting(&self) {
        self.state.lock().waiters.clear();
    }

    /// Locks the state as of now.
    fn now(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if state.until.is_some_and(|until| until <= Instant::now()) {
            self.step_up(&mut state);
        }
        state
    }

    fn step_up(&self, state: &mut State) {
        state.change(None);
        self.has_stepped_down.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secondary_becomes_the_primary_when_its_time_is_over() {
        let primacy = Primacy::default();
        assert!(primacy.is_primary() && primacy.changes() == 0);
        assert!(primacy.step_down(Duration::from_secs(3600)));
        assert!(!primacy.is_primary() && primacy.changes() == 1);
        assert!(!primacy.step_down(Duration::ZERO), "it is a secondary");
        assert!(primacy.freeze(Some(Duration::from_secs(7200))));
        let until = primacy.secondary_until().expect("it is a secondary");
        assert!(until > Instant::now() + Duration::from_secs(3600), "the longer time holds");
        assert!(primacy.freeze(None));
        assert!(primacy.is_primary() && primacy.changes() == 2);
        assert!(!primacy.freeze(None), "it is the primary");
        assert!(primacy.step_down(Duration::ZERO));
        assert!(primacy.is_primary() && primacy.changes() == 4);
    }
}
