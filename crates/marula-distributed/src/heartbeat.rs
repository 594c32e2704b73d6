//! The heartbeat by which a process shows others that it lives: a number in the store that a thread
//! counts up.
//!
//! ```text
//! count(8) ping(8)      ping: the time by the clock of its process, in milliseconds since 1970
//! ```
//!
//! The time is for people to read; nothing is decided by it.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::kv::{Commit, Conflict, KvError, Mutation, Result, Version};
use crate::shared::Shared;

/// The thread of a heartbeat.
pub(crate) struct Heartbeat {
    beating: Mutex<Option<(mpsc::Sender<()>, JoinHandle<()>)>>,
}

impl Heartbeat {
    /// Starts a thread with this name that calls `beat` at every interval. `beat` returns whether
    /// this process still has its place in the store; the first time that it has not is the last.
    pub(crate) fn start(
        name: &str,
        interval: Duration,
        shared: &Arc<Shared>,
        mut beat: impl FnMut(&Shared) -> Result<bool> + Send + 'static,
    ) -> Self {
        let (stop, stopped) = mpsc::channel();
        let shared = shared.clone();
        let run = move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                if !goes_on(&shared, beat(&shared)) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
        let thread = thread.expect("a thread can be started at start-up");
        Heartbeat { beating: Mutex::new(Some((stop, thread))) }
    }

    /// Ends the thread; returns whether it had not been ended before.
    pub(crate) fn stop(&self) -> bool {
        let Some((stop, thread)) = self.beating.lock().take() else { return false };
        drop(stop);
        if thread.join().is_err() {
            tracing::error!("the thread of the heartbeat has panicked");
        }
        true
    }
}

/// Returns whether there is to be another beat after one with this outcome.
fn goes_on(shared: &Shared, outcome: Result<bool>) -> bool {
    match outcome {
        Ok(true) => true,
        Ok(false) => {
            shared.lose();
            false
        }
        Err(KvError::Unavailable(_)) if shared.check_open().is_err() => false,
        Err(error) => {
            // The next beat tries again, and finds out whether the place is another's.
            tracing::debug!(%error, "a heartbeat has failed");
            true
        }
    }
}

/// Counts the heartbeat at `key` up, which was `beat` at this version, if the key of the place has
/// not changed since.
pub(crate) fn count_up(
    shared: &Shared,
    at: Version,
    place: Vec<u8>,
    key: Vec<u8>,
    beat: Option<Vec<u8>>,
) -> Result<()> {
    let count = beat.and_then(|beat| beat.first_chunk().copied()).map_or(0, u64::from_be_bytes);
    shared.kv_commit(&Commit {
        read_version: Some(at),
        reads: vec![Conflict::Key(place)],
        writes: Vec::new(),
        mutations: vec![Mutation::Set(key, value(count.wrapping_add(1)))],
    })?;
    Ok(())
}

/// The value of a heartbeat that has this number now.
pub(crate) fn value(count: u64) -> Vec<u8> {
    [count.to_be_bytes(), now_ms().to_be_bytes()].concat()
}

/// The time of a heartbeat; zero where it has none.
pub(crate) fn ping_ms(beat: &[u8]) -> i64 {
    beat.get(8..16).and_then(|ping| ping.try_into().ok()).map_or(0, i64::from_be_bytes)
}

/// The time by the clock of this process, in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
