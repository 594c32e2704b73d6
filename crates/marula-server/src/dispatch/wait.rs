//! Waits without a thread: until a moment, or until a locked key is released.

use std::sync::Arc;
use std::time::{Duration, Instant};

use marula_db::transaction::locks::LockedKey;

use crate::net::service::Wake;
use crate::row::Outcome;
use crate::server::Server;

/// The interval at which a request checks again whether another one of its transaction has ended.
pub(super) const BUSY_STEP: Duration = Duration::from_millis(2);

/// The interval at which a write that waits for a locked key checks again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The maximum wait for a client without a limit of its own.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Calls the command again after `wait`, without a thread meanwhile.
pub(crate) fn pause(wait: Duration) -> Outcome {
    // A wake that is dropped would ring at once.
    Outcome::Retry(Box::new(Wake::forget), after(wait))
}

/// Returns the time after `wait`, or after the maximum wait.
pub(crate) fn after(wait: Duration) -> Instant {
    Instant::now() + wait.min(WAIT_MAX)
}

/// Parks a write until no transaction has locked a key that it needs.
pub(super) fn until_released(
    server: &Arc<Server>,
    key: LockedKey,
    deadline: Option<Instant>,
) -> Outcome {
    let server = server.clone();
    let arm = move |wake: Wake| server.db.when_released(key, Box::new(move || wake.wake()));
    let look_again = after(LOOK_AGAIN);
    Outcome::Retry(Box::new(arm), deadline.map_or(look_again, |deadline| deadline.min(look_again)))
}
