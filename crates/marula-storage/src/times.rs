//! A histogram of durations that any thread adds to.
//!
//! The ranges double, so that finding one is a count of leading zeros. Adding costs two relaxed
//! additions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of ranges; the last one has no upper bound.
pub const RANGES: usize = 22;

/// The upper limit of the first range in microseconds, a power of two.
const FIRST_US: u64 = 32;

/// The longest time of each range but the last, in microseconds, inclusive.
pub const LIMITS_US: [u64; RANGES - 1] = limits();

const fn limits() -> [u64; RANGES - 1] {
    let mut limits = [FIRST_US; RANGES - 1];
    let mut at = 1;
    while at < limits.len() {
        limits[at] = limits[at - 1] * 2;
        at += 1;
    }
    limits
}

/// The histogram. Times are in whole microseconds, cut off.
#[derive(Debug)]
pub struct Times {
    us: AtomicU64,
    ranges: [AtomicU64; RANGES],
}

impl Default for Times {
    fn default() -> Self {
        Times { us: AtomicU64::new(0), ranges: [const { AtomicU64::new(0) }; RANGES] }
    }
}

/// A histogram at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TimesReading {
    /// The sum of all times, in microseconds.
    pub us: u64,
    /// The number of times in each range.
    pub ranges: [u64; RANGES],
}

impl Times {
    /// Adds one time, in microseconds.
    #[inline]
    pub fn add_us(&self, us: u64) {
        // 1 to 32 are in the first range, 33 to 64 in the second.
        let doublings = (us.saturating_sub(1) / FIRST_US).checked_ilog2().map_or(0, |log| log + 1);
        let range = (doublings as usize).min(RANGES - 1);
        self.us.fetch_add(us, Ordering::Relaxed);
        self.ranges[range].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds one time.
    pub fn add(&self, took: Duration) {
        self.add_us(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// The number of times that were added.
    pub fn count(&self) -> u64 {
        self.read().count()
    }

    /// The histogram now.
    pub fn read(&self) -> TimesReading {
        let of = |at: usize| self.ranges[at].load(Ordering::Relaxed);
        TimesReading { us: self.us.load(Ordering::Relaxed), ranges: std::array::from_fn(of) }
    }
}

impl TimesReading {
    /// The number of times that were added.
    pub fn count(&self) -> u64 {
        self.ranges.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_range_with_the_least_limit_that_is_not_less() {
        for us in [0, 1, 31, 32, 33, 64, 65, 1_024, 1_025, 32 << 20, (32 << 20) + 1, u64::MAX] {
            let times = Times::default();
            times.add_us(us);
            let expected = LIMITS_US.partition_point(|&limit| limit < us);
            let found = times.read().ranges.iter().position(|&count| count == 1);
            assert_eq!(found, Some(expected), "{us} µs");
        }
    }

    #[test]
    fn sums_and_counts_are_of_all_times() {
        let times = Times::default();
        for ms in [1, 2, 3] {
            times.add(Duration::from_millis(ms));
        }
        assert_eq!((times.count(), times.read().us), (3, 6_000));
    }
}
