//! The lifetimes of cursors and the number of their batches, for `serverStatus.metrics.cursor`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::counters::Counter;

/// The lifetimes in `serverStatus`: each name with its upper limit.
pub(crate) const LIFESPANS: [(&str, Duration); 7] = [
    ("greaterThanOrEqual10Minutes", Duration::MAX),
    ("lessThan10Minutes", Duration::from_secs(600)),
    ("lessThan15Seconds", Duration::from_secs(15)),
    ("lessThan1Minute", Duration::from_secs(60)),
    ("lessThan1Second", Duration::from_secs(1)),
    ("lessThan30Seconds", Duration::from_secs(30)),
    ("lessThan5Seconds", Duration::from_secs(5)),
];

/// The cursors that have ended.
#[derive(Default)]
pub struct Lives {
    /// In the order of [`LIFESPANS`].
    pub by_lifespan: [Counter; LIFESPANS.len()],
    /// Those that returned more than their first batch.
    pub more_than_one_batch: Counter,
}

impl Lives {
    fn end(&self, lived: Duration, has_gone_on: bool) {
        let fitting = LIFESPANS.iter().zip(&self.by_lifespan).filter(|(row, _)| lived < row.1);
        if let Some((_, count)) = fitting.min_by_key(|(row, _)| row.1) {
            count.add(1);
        }
        if has_gone_on {
            self.more_than_one_batch.add(1);
        }
    }
}

/// The lifetime of one cursor, counted when it is dropped. A cursor that was never opened has none.
#[derive(Default)]
pub struct Life(Option<Begun>);

struct Begun {
    at: Instant,
    has_gone_on: bool,
    lives: Arc<Lives>,
}

impl Life {
    /// Returns whether it has started.
    pub fn has_begun(&self) -> bool {
        self.0.is_some()
    }

    /// Starts it.
    pub fn begin(lives: &Arc<Lives>) -> Self {
        Life(Some(Begun { at: Instant::now(), has_gone_on: false, lives: lives.clone() }))
    }

    /// Records that the cursor is read again.
    pub fn go_on(&mut self) {
        if let Some(begun) = &mut self.0 {
            begun.has_gone_on = true;
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some(begun) = &self.0 {
            begun.lives.end(begun.at.elapsed(), begun.has_gone_on);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_counts_in_the_shortest_span_that_holds_it() {
        let lives = Lives::default();
        for seconds in [0, 3, 3, 10, 20, 40, 300, 600, 9000] {
            lives.end(Duration::from_secs(seconds), seconds == 20);
        }
        let counts = lives.by_lifespan.each_ref().map(Counter::get);
        assert_eq!(counts, [2, 1, 1, 1, 1, 1, 2]);
        assert_eq!(lives.more_than_one_batch.get(), 1);
    }
}
