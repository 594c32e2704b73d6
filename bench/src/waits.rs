//! The durations of operations, for each class of them.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::record::Latency;

/// The longest wait that is distinguished from longer ones.
const WAIT_NS_MAX: u64 = 3_600_000_000_000;

/// The waits of each class of operations, in nanoseconds.
#[derive(Default)]
pub(crate) struct Waits(Vec<Histogram<u64>>);

impl Waits {
    /// Records one wait.
    pub(crate) fn record(&mut self, class: usize, wait_ns: u64) {
        let empty =
            || Histogram::new_with_bounds(1, WAIT_NS_MAX, 3).expect("the bounds are fixed and fit");
        if self.0.len() <= class {
            self.0.resize_with(class + 1, empty);
        }
        self.0[class].saturating_record(wait_ns.max(1));
    }

    /// Returns the wait that this share of a class does not exceed; 0 if there was none.
    pub(crate) fn quantile(&self, class: usize, share: f64) -> u64 {
        self.0.get(class).map_or(0, |waits| waits.value_at_quantile(share))
    }

    /// The latencies under the names of their classes; a class without operations has none.
    pub(crate) fn by_name(&self, classes: &[&str]) -> BTreeMap<String, Latency> {
        let named = classes.iter().zip(&self.0).filter(|(_, waits)| !waits.is_empty());
        named.map(|(class, waits)| ((*class).to_owned(), Latency::of(waits))).collect()
    }
}
