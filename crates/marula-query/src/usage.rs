//! Counts how often each stage and operator was parsed, for `serverStatus`.
//!
//! A command may be parsed on a network worker and again on the pool, so its uses are collected on
//! the thread, and count when it has run.

use std::cell::RefCell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::context::Context;
use crate::{accumulator, expression, filter, stage, window};

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

/// The operators of filters; a comparison with a value counts as `$eq`.
pub static MATCHES: Usage = Usage {
    names: LazyLock::new(|| sorted(filter::counted_names())),
    counts: LazyLock::new(|| zeros(&MATCHES)),
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

thread_local! {
    /// The uses by the command that this thread runs.
    static PENDING: RefCell<Vec<Pending>> = const { RefCell::new(Vec::new()) };
}

/// Uses of one name. There is at most one for each name of all tables.
struct Pending {
    count: &'static AtomicU64,
    uses: u64,
}

impl Usage {
    /// Notes one use, if those of the context count.
    pub(crate) fn note(&'static self, name: &str, context: &Context) {
        if context.counts_uses {
            self.note_always(name);
        }
    }

    /// Notes one use.
    pub fn note_always(&'static self, name: &str) {
        let Ok(at) = self.names.binary_search(&name) else { return };
        let count = &self.counts[at];
        PENDING.with_borrow_mut(|pending| {
            match pending.iter_mut().find(|known| std::ptr::eq(known.count, count)) {
                Some(known) => known.uses += 1,
                None => pending.push(Pending { count, uses: 1 }),
            }
        });
    }

    /// The uses so far, by name.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        self.names.iter().copied().zip(counts)
    }
}

/// Ends a command on this thread: its uses count, unless it has failed or will run again.
pub fn settle(counts: bool) {
    PENDING.with_borrow_mut(|pending| {
        for Pending { count, uses } in pending.drain(..).filter(|_| counts) {
            count.fetch_add(uses, Ordering::Relaxed);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_counted_by_name() {
        let count =
            || STAGES.counts().find(|(name, _)| *name == "$redact").map_or(0, |found| found.1);
        let before = count();
        STAGES.note("$redact", &Context::default());
        assert_eq!(count(), before);
        let counting = Context { counts_uses: true, ..Context::default() };
        STAGES.note("$redact", &counting);
        STAGES.note("$noSuchStage", &counting);
        settle(false);
        assert_eq!(count(), before);
        STAGES.note("$redact", &counting);
        STAGES.note("$redact", &counting);
        settle(true);
        settle(true);
        assert_eq!(count(), before + 2);
        assert!(EXPRESSIONS.counts().any(|(name, _)| name == "$add"));
        assert!(ACCUMULATORS.counts().any(|(name, _)| name == "$push"));
        let of_windows: Vec<&str> = WINDOW_FUNCTIONS.counts().map(|(name, _)| name).collect();
        assert!(of_windows.contains(&"$rank") && of_windows.contains(&"$push"));
        assert!(!of_windows.contains(&"$mergeObjects"));
    }
}
