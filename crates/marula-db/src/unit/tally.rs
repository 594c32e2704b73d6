//! The tally of an operation: what it has looked at and written, and what is told of its plan.
//!
//! The log of slow operations, the profiler and `currentOp` read it. An operation runs on one
//! thread from its call to its answer, so the counts are plain loads and stores; others may look at
//! them meanwhile.

use std::ops::{AddAssign, Sub};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use marula_bson::{Doc, DocBuf, Value};
use parking_lot::Mutex;

/// What executions have looked at.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Examined {
    /// Index entries.
    pub keys: u64,
    /// Documents.
    pub docs: u64,
    /// Scans of whole collections.
    pub scans: u64,
    /// Sorts that no index did.
    pub sorts: u64,
}

impl Sub for Examined {
    type Output = Examined;

    fn sub(self, before: Examined) -> Examined {
        Examined {
            keys: self.keys - before.keys,
            docs: self.docs - before.docs,
            scans: self.scans - before.scans,
            sorts: self.sorts - before.sorts,
        }
    }
}

impl AddAssign for Examined {
    fn add_assign(&mut self, more: Examined) {
        self.keys += more.keys;
        self.docs += more.docs;
        self.scans += more.scans;
        self.sorts += more.sorts;
    }
}

/// Index keys that were written: added and removed. `None` where no write was of a kind that does
/// so; an update of indexed fields may do either.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct KeyChanges {
    /// Keys added.
    pub inserted: Option<u64>,
    /// Keys removed.
    pub deleted: Option<u64>,
}

impl AddAssign for KeyChanges {
    #[inline]
    fn add_assign(&mut self, more: KeyChanges) {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        self.inserted = sum(self.inserted, more.inserted);
        self.deleted = sum(self.deleted, more.deleted);
    }
}

/// How much of its plan an operation tells.
pub enum Detail {
    /// Nothing.
    Nothing,
    /// The plan in a line.
    Summary,
    /// What each stage has done, too.
    Stages {
        /// The sort, as it was given.
        sort: DocBuf,
        /// The projection, as it was given.
        projection: DocBuf,
    },
}

impl Detail {
    /// What each stage has done, for a command with these fields.
    pub fn stages<'d>(field: impl Fn(&str) -> Option<Value<'d>>) -> Detail {
        let document = |name: &str| {
            let document = field(name).and_then(|value| value.as_doc());
            document.map_or_else(DocBuf::new, Doc::to_buf)
        };
        Detail::Stages { sort: document("sort"), projection: document("projection") }
    }
}

/// What a query is known by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hashes {
    /// What all queries of its shape share: `queryHash`.
    pub query: u64,
    /// What those of them share for which the same indexes could do: `planCacheKey`.
    pub plan: u64,
}

/// What is told of the first plan that an operation ran.
pub struct Told {
    /// The plan in a line: `IXSCAN { a: 1 }`.
    pub summary: String,
    /// Whether it sorts.
    pub has_sort: bool,
    /// Whether it looks a document up by its `_id`.
    pub is_by_id: bool,
    /// Whether it has won against others that were tried.
    pub has_won: bool,
    /// What the query is known by, where it was planned.
    pub hashes: Option<Hashes>,
    /// Whether the plan may be remembered for that shape.
    pub may_be_remembered: bool,
    /// Its stages and what they have done so far.
    pub stages: Option<DocBuf>,
}

/// The tally of an operation, or of one statement of it.
#[derive(Default)]
pub struct Tally {
    keys: AtomicU64,
    docs: AtomicU64,
    scans: AtomicU64,
    sorts: AtomicU64,
    inserted: Count,
    deleted: Count,
    /// Whether anything is told of the plan.
    tells: AtomicBool,
    plan: Mutex<Watched>,
}

/// A count of something that may have no count: one more than there are.
#[derive(Default)]
struct Count(AtomicU64);

impl Count {
    #[inline]
    fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).max(1) + more, Ordering::Relaxed);
    }

    fn get(&self) -> Option<u64> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }

    fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// What is wanted and known of the first plan.
#[derive(Default)]
struct Watched {
    detail: Option<Detail>,
    /// The plan in a line, from its beginning on.
    summary: Option<String>,
    told: Option<Told>,
}

impl Tally {
    /// Starts the tally anew.
    #[inline]
    pub fn start(&self, detail: Detail) {
        self.keys.store(0, Ordering::Relaxed);
        self.docs.store(0, Ordering::Relaxed);
        self.scans.store(0, Ordering::Relaxed);
        self.sorts.store(0, Ordering::Relaxed);
        self.inserted.clear();
        self.deleted.clear();
        let tells = !matches!(detail, Detail::Nothing);
        if tells || self.tells.load(Ordering::Relaxed) {
            self.tells.store(tells, Ordering::Relaxed);
            *self.plan.lock() = Watched { detail: Some(detail), ..Watched::default() };
        }
    }

    /// Changes how much is told of the first plan, which has not run yet.
    pub fn set_detail(&self, detail: Detail) {
        self.plan.lock().detail = Some(detail);
    }

    /// What was looked at since the start.
    #[inline]
    pub fn examined(&self) -> Examined {
        Examined {
            keys: self.keys.load(Ordering::Relaxed),
            docs: self.docs.load(Ordering::Relaxed),
            scans: self.scans.load(Ordering::Relaxed),
            sorts: self.sorts.load(Ordering::Relaxed),
        }
    }

    /// The index keys written since the start.
    pub fn changed(&self) -> KeyChanges {
        KeyChanges { inserted: self.inserted.get(), deleted: self.deleted.get() }
    }

    /// What is told of the plan, once.
    pub fn take_told(&self) -> Option<Told> {
        self.plan.lock().told.take()
    }

    /// The first plan in a line, where it has begun and is told.
    pub fn summary(&self) -> Option<String> {
        self.plan.lock().summary.clone()
    }

    /// Whether anything is told of the plan.
    #[inline]
    pub fn tells(&self) -> bool {
        self.tells.load(Ordering::Relaxed)
    }

    /// Notes that a plan begins to run, or goes on; `summarize` says it in a line.
    #[cold]
    pub fn plan_begins(&self, summarize: impl FnOnce() -> String) {
        let mut plan = self.plan.lock();
        if plan.summary.is_none() {
            plan.summary = Some(summarize());
        }
    }

    /// Notes what is told of a plan that has run, by `tell`, unless an earlier one's is known.
    #[cold]
    pub fn plan_ran(&self, tell: impl FnOnce(&Detail) -> Told) {
        let mut plan = self.plan.lock();
        if plan.told.is_none()
            && let Some(detail) = &plan.detail
        {
            plan.told = Some(tell(detail));
        }
    }

    /// Adds what a run has looked at.
    #[inline]
    pub fn add_examined(&self, run: Examined) {
        let mut sum = self.examined();
        sum += run;
        self.keys.store(sum.keys, Ordering::Relaxed);
        self.docs.store(sum.docs, Ordering::Relaxed);
        self.scans.store(sum.scans, Ordering::Relaxed);
        self.sorts.store(sum.sorts, Ordering::Relaxed);
    }

    /// Adds the index keys of a change.
    #[inline]
    pub(crate) fn add_changed(&self, changed: KeyChanges) {
        if let Some(inserted) = changed.inserted {
            self.inserted.add(inserted);
        }
        if let Some(deleted) = changed.deleted {
            self.deleted.add(deleted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_changes_add_up_and_nothing_stays_nothing() {
        let tally = Tally::default();
        assert_eq!(tally.changed(), KeyChanges::default());
        tally.add_changed(KeyChanges { inserted: Some(0), deleted: None });
        assert_eq!(tally.changed(), KeyChanges { inserted: Some(0), deleted: None });
        tally.add_changed(KeyChanges { inserted: Some(2), deleted: Some(1) });
        assert_eq!(tally.changed(), KeyChanges { inserted: Some(2), deleted: Some(1) });
        tally.start(Detail::Nothing);
        assert_eq!(tally.changed(), KeyChanges::default());
    }

    #[test]
    fn the_first_plan_is_told_once() {
        let told = |summary: &str| Told {
            summary: summary.to_owned(),
            has_sort: false,
            is_by_id: false,
            has_won: false,
            hashes: None,
            may_be_remembered: false,
            stages: None,
        };
        let tally = Tally::default();
        tally.start(Detail::Summary);
        for summary in ["COLLSCAN", "IDHACK"] {
            tally.plan_begins(|| summary.to_owned());
            tally.plan_ran(|_| told(summary));
        }
        assert_eq!(tally.summary().as_deref(), Some("COLLSCAN"));
        assert_eq!(tally.take_told().map(|told| told.summary).as_deref(), Some("COLLSCAN"));
        tally.start(Detail::Nothing);
        assert!(!tally.tells() && tally.summary().is_none());
    }
}
