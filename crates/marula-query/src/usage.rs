//! Counts how often each stage and operator was parsed, for `serverStatus`.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{accumulator, expression, stage, window};

/// The uses of each of a table's names.
pub struct Usage {
    names: LazyLock<Vec<&'static str>>,
    counts: LazyLock<Vec<AtomicU64>>,
}

/// The stages of pipelines.
pub static STAGES: Usage = Usage {
    names: LazyLock::new(|| {
        sorted(stage::STAGES.iter().copied().flatten().map(|row| row.name).collect())
    }),
    counts: LazyLock::new(|| zeros(&STAGES)),
};

/// The operators of expressions.
pub static EXPRESSIONS: Usage = Usage {
    names: LazyLock::new(|| sorted(expression::operator_names())),
    counts: LazyLock::new(|| zeros(&EXPRESSIONS)),
};

/// The accumulators of `$group` and similar stages.
pub static ACCUMULATORS: Usage = Usage {
    names: LazyLock::new(|| sorted(accumulator::names())),
    counts: LazyLock::new(|| zeros(&ACCUMULATORS)),
};

/// The functions of windows.
pub static WINDOW_FUNCTIONS: Usage = Usage {
    names: LazyLock::new(|| sorted(window::function::names())),
    counts: LazyLock::new(|| zeros(&WINDOW_FUNCTIONS)),
};

fn sorted(mut names: Vec<&'static str>) -> Vec<&'static str> {
    names.sort_unstable();
    names.dedup();
    names
}

fn zeros(usage: &Usage) -> Vec<AtomicU64> {
    usage.names.iter().map(|_| AtomicU64::new(0)).collect()
}

impl Usage {
    /// Counts one use.
    pub(crate) fn note(&self, name: &str) {
        if let Ok(at) = self.names.binary_search(&name) {
            self.counts[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The uses so far, by name.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        self.names.iter().copied().zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_counted_by_name() {
        let count =
            || STAGES.counts().find(|(name, _)| *name == "$redact").map_or(0, |found| found.1);
        let before = count();
        STAGES.note("$redact");
        STAGES.note("$noSuchStage");
        assert!(count() > before);
        assert!(EXPRESSIONS.counts().any(|(name, _)| name == "$add"));
        assert!(ACCUMULATORS.counts().any(|(name, _)| name == "$push"));
        let of_windows: Vec<&str> = WINDOW_FUNCTIONS.counts().map(|(name, _)| name).collect();
        assert!(of_windows.contains(&"$rank") && of_windows.contains(&"$push"));
        assert!(!of_windows.contains(&"$mergeObjects"));
    }
}
