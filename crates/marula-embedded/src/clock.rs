//! The time of each commit, as the log has it.
//!
//! Before a commit is written, the time is put at its end, as a note that RocksDB keeps in its log
//! and nowhere else. The times of one process never go back, whatever the system's clock does. So,
//! for any time T, let the log be cut before the first commit whose time is later than T:
//!
//! - Every commit that was acknowledged before T is there. If it were after the cut, it would have
//!   been written after the commit at the cut, whose time was taken after T and before it was
//!   written; so it would have been acknowledged after T.
//! - No commit that began after T is there: its time would be later than T.
//!
//! ```text
//! note   "t", microseconds since 1970 as i64, little-endian
//! ```

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rust_rocksdb::WriteBatch;

const KIND: u8 = b't';
const NOTE_BYTES: usize = 1 + size_of::<i64>();

/// A clock that never goes back.
#[derive(Default)]
pub(crate) struct Clock(AtomicI64);

impl Clock {
    /// The time now, in microseconds since 1970; no earlier than any that was returned before.
    pub(crate) fn now_us(&self) -> i64 {
        let now = system_us();
        self.0.fetch_max(now, Ordering::SeqCst).max(now)
    }

    /// Returns no time before `us` from now on.
    pub(crate) fn not_before(&self, us: i64) {
        self.0.fetch_max(us, Ordering::SeqCst);
    }

    /// Notes the time at the end of a commit.
    pub(crate) fn mark(&self, batch: &mut WriteBatch) {
        let mut note = [KIND; NOTE_BYTES];
        note[1..].copy_from_slice(&self.now_us().to_le_bytes());
        batch.put_log_data(note);
    }
}

/// The time of the system, in microseconds since 1970.
pub(crate) fn system_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// The time in a note of the log, if it is one of these.
pub(crate) fn time_of(note: &[u8]) -> Option<i64> {
    let (&KIND, time) = note.split_first()? else { return None };
    Some(i64::from_le_bytes(time.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back() {
        let clock = Clock::default();
        let now = clock.now_us();
        assert!(now > 1_600_000_000_000_000);
        clock.not_before(now + 1_000_000_000);
        assert_eq!(clock.now_us(), now + 1_000_000_000);
        clock.not_before(now);
        assert_eq!(clock.now_us(), now + 1_000_000_000);
        assert_eq!(time_of(b"t\x05\0\0\0\0\0\0\0"), Some(5));
        for note in [&b""[..], b"t", b"x\x05\0\0\0\0\0\0\0", b"t\x05\0\0\0\0\0\0\0\0"] {
            assert_eq!(time_of(note), None);
        }
    }
}
