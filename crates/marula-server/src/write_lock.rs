//! The lock of `fsync`: writes wait while a backup copies the files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use marula_error::{Result, errors};
use parking_lot::Mutex;

use crate::dispatch;
use crate::net::service::Wake;
use crate::operation::Operation;
use crate::row::Outcome;
use crate::server::Server;

errors! {
    no_primary() = PrimarySteppedDown, "No primary exists currently";
}

/// The interval after which a waiting write checks again, in case its wake was for another.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The number of locks, and the waiting writes.
#[derive(Default)]
pub struct WriteLock {
    /// Whether the count is above zero: every write checks this.
    is_locked: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    count: i64,
    waiters: Vec<Wake>,
}

impl WriteLock {
    /// Adds a lock; returns the number of locks.
    pub fn lock(&self) -> i64 {
        let mut state = self.state.lock();
        state.count += 1;
        self.is_locked.store(true, Ordering::Release);
        state.count
    }

    /// Removes a lock; returns the number that is left, or `None` if there was none.
    pub fn unlock(&self) -> Option<i64> {
        let mut state = self.state.lock();
        state.count = state.count.checked_sub(1).filter(|&left| left >= 0)?;
        if state.count == 0 {
            self.is_locked.store(false, Ordering::Release);
            state.waiters.clear();
        }
        Some(state.count)
    }

    /// Returns whether writes are locked.
    pub fn is_locked(&self) -> bool {
        self.is_locked.load(Ordering::Acquire)
    }

    /// Begins the writes of a command whose row does not say that it writes, because only some of
    /// its forms do. Returns the outcome with which it waits while writes are locked.
    ///
    /// Errors: `no_primary` on a secondary.
    pub fn enter(
        server: &Arc<Server>,
        operation: &Operation,
        deadline: Option<Instant>,
    ) -> Result<Option<Outcome>> {
        operation.note_write();
        if !server.primacy.is_primary() {
            return Err(no_primary());
        }
        let is_locked = server.write_lock.is_locked();
        Ok(is_locked.then(|| WriteLock::wait(server, operation, deadline)))
    }

    /// Parks a write until writes are unlocked.
    pub fn wait(server: &Arc<Server>, operation: &Operation, deadline: Option<Instant>) -> Outcome {
        operation.wait_for_lock();
        let server = server.clone();
        let arm = move |wake: Wake| {
            let mut state = server.write_lock.state.lock();
            if state.count > 0 {
                state.waiters.push(wake);
            }
        };
        let look_again = dispatch::after(LOOK_AGAIN);
        Outcome::Retry(
            Box::new(arm),
            deadline.map_or(look_again, |deadline| deadline.min(look_again)),
        )
    }
}
