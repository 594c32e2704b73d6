//! Latencies of the operations on a collection: count, total and histogram.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The class of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// It reads documents.
    Reads,
    /// It writes documents.
    Writes,
    /// It does anything else.
    Commands,
}

/// Ranges up to 2,048 µs and from one second on double; ranges in between grow by half a power of
/// two.
const RANGES: usize = 51;
const HALVES_FROM: u64 = 2_048;
const HALVES_TO: u64 = 1 << 20;

/// The start of each range in microseconds.
///
/// Source: manual "$collStats", `latencyStats` with `histograms`; ranges as in mongod 6.0.
static BEGINS: [u64; RANGES] = begins();

const fn begins() -> [u64; RANGES] {
    let mut begins = [0_u64; RANGES];
    begins[1] = 2;
    let mut at = 2;
    while at < RANGES {
        let before = begins[at - 1];
        // After a power of two comes its one and a half, then the next power.
        let power = 1_u64 << before.ilog2();
        let is_half = power < HALVES_TO && before >= HALVES_FROM;
        begins[at] = match (is_half, before == power) {
            (true, true) => power + power / 2,
            _ => power * 2,
        };
        at += 1;
    }
    begins
}

/// The time of one operation and its range, which is found once for all histograms.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    us: u64,
    range: usize,
}

impl Took {
    /// Finds the range of a time.
    pub fn new(took: Duration) -> Self {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        Took { us, range: BEGINS.partition_point(|&begin| begin <= us) - 1 }
    }

    /// The time, in microseconds.
    pub fn us(self) -> u64 {
        self.us
    }
}

/// The latencies of one class of operations.
#[derive(Debug)]
pub struct Latency {
    us: AtomicU64,
    ranges: [AtomicU64; RANGES],
}

impl Default for Latency {
    fn default() -> Self {
        Latency { us: AtomicU64::default(), ranges: [const { AtomicU64::new(0) }; RANGES] }
    }
}

impl Latency {
    /// Counts an operation.
    pub fn add(&self, took: Took) {
        self.us.fetch_add(took.us, Ordering::Relaxed);
        self.ranges[took.range].fetch_add(1, Ordering::Relaxed);
    }

    /// The number of operations.
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(|range| range.load(Ordering::Relaxed)).sum()
    }

    /// Their total time in microseconds.
    pub fn us(&self) -> u64 {
        self.us.load(Ordering::Relaxed)
    }

    /// The start, in microseconds, and the count of each non-empty range.
    pub fn histogram(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.ranges.iter().map(|range| range.load(Ordering::Relaxed));
        BEGINS.iter().copied().zip(counts).filter(|&(_, count)| count > 0)
    }
}

/// The latencies of all classes.
#[derive(Default, Debug)]
pub struct Latencies {
    /// Reads of documents.
    pub reads: Latency,
    /// Writes of documents.
    pub writes: Latency,
    /// Everything else.
    pub commands: Latency,
}

impl Latencies {
    /// Counts an operation.
    #[inline]
    pub fn add(&self, class: Class, took: Took) {
        match class {
            Class::Reads => self.reads.add(took),
            Class::Writes => self.writes.add(took),
            Class::Commands => self.commands.add(took),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_mongod() {
        assert_eq!(BEGINS[..4], [0, 2, 4, 8]);
        let from =
            |us: u64| BEGINS.iter().position(|&begin| begin == us).expect("a range begins there");
        let at = from(1_024);
        assert_eq!(BEGINS[at..at + 6], [1_024, 2_048, 3_072, 4_096, 6_144, 8_192]);
        let at = from(786_432);
        assert_eq!(BEGINS[at..at + 3], [786_432, 1 << 20, 1 << 21]);
        assert!(BEGINS.is_sorted());
    }

    #[test]
    fn each_operation_is_in_one_range() {
        let latency = Latency::default();
        for us in [0, 1, 2, 3, 100, 49_152, 60_000, u64::MAX / 2_000] {
            latency.add(Took::new(Duration::from_micros(us)));
        }
        let found: Vec<_> = latency.histogram().take(4).collect();
        assert_eq!(found, [(0, 2), (2, 2), (64, 1), (49_152, 2)]);
        assert_eq!(latency.count(), 8);
    }
}
