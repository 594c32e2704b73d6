//! The tally of an operation: the data it has examined and written, and a report of its plan.
//!
//! The slow-operation log, the profiler and `currentOp` read it. An operation runs on one thread
//! from its call to its reply, so the counts are plain loads and stores; other threads may read
//! them in the meantime.

use std::ops::{AddAssign, Sub};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use marula_bson::{Doc, DocBuf, Value};
use parking_lot::Mutex;

/// The data that executions have examined.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Examined {
    /// Index entries.
    pub keys: u64,
    /// Documents.
    pub docs: u64,
    /// Collection scans.
    pub scans: u64,
    /// Blocking sorts.
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

/// Index keys written. `None` if no write was of a kind that adds or removes keys; an update of
/// indexed fields may do either.
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

/// The part of its plan that an operation reports.
pub enum Detail {
    /// Nothing.
    Nothing,
    /// A one-line summary of the plan.
    Summary,
    /// Also the statistics of each stage.
    Stages {
        /// The sort as given.
        sort: DocBuf,
        /// The projection as given.
        projection: DocBuf,
    },
}

impl Detail {
    /// Includes the statistics of each stage, for a command with these fields.
    pub fn stages<'d>(field: impl Fn(&str) -> Option<Value<'d>>) -> Detail {
        let document = |name: &str| {
            let document = field(name).and_then(|value| value.as_doc());
            document.map_or_else(DocBuf::new, Doc::to_buf)
        };
        Detail::Stages { sort: document("sort"), projection: document("projection") }
    }
}

/// The hashes that identify a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hashes {
    /// Shared by all queries of its shape: `queryHash`.
    pub query: u64,
    /// Shared by queries of its shape that the same indexes can serve: `planCacheKey`.
    pub plan: u64,
}

/// The report of the first plan that an operation ran.
pub struct PlanReport {
    /// A one-line summary: `IXSCAN { a: 1 }`.
    pub summary: String,
    /// Whether the plan sorts.
    pub has_sort: bool,
    /// Whether the plan looks up a document by its `_id`.
    pub is_by_id: bool,
    /// Whether the plan has won a trial against others.
    pub has_won: bool,
    /// The hashes of the query, if it was planned.
    pub hashes: Option<Hashes>,
    /// Whether the plan may be cached for that shape.
    pub may_be_cached: bool,
    /// The stages and their statistics so far.
    pub stages: Option<DocBuf>,
}

/// The tally of an operation, or of one of its statements.
#[derive(Default)]
pub struct Tally {
    keys: AtomicU64,
    docs: AtomicU64,
    scans: AtomicU64,
    sorts: AtomicU64,
    inserted: Count,
    deleted: Count,
    /// Whether the plan is reported.
    reports_plan: AtomicBool,
    plan: Mutex<Watched>,
}

/// An optional count, stored as one more than its value; zero means `None`.
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

/// The requested detail and the state of the report on the first plan.
#[derive(Default)]
struct Watched {
    detail: Option<Detail>,
    /// The one-line summary, available once the plan starts.
    summary: Option<String>,
    report: Option<PlanReport>,
}

impl Tally {
    /// Resets the tally.
    #[inline]
    pub fn start(&self, detail: Detail) {
        self.keys.store(0, Ordering::Relaxed);
        self.docs.store(0, Ordering::Relaxed);
        self.scans.store(0, Ordering::Relaxed);
        self.sorts.store(0, Ordering::Relaxed);
        self.inserted.clear();
        self.deleted.clear();
        let reports_plan = !matches!(detail, Detail::Nothing);
        if reports_plan || self.reports_plan.load(Ordering::Relaxed) {
            self.reports_plan.store(reports_plan, Ordering::Relaxed);
            *self.plan.lock() = Watched { detail: Some(detail), ..Watched::default() };
        }
    }

    /// Changes the detail of the report on the first plan, which has not run yet.
    pub fn set_detail(&self, detail: Detail) {
        self.plan.lock().detail = Some(detail);
    }

    /// The data examined since the start.
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

    /// Takes the report of the plan.
    pub fn take_plan_report(&self) -> Option<PlanReport> {
        self.plan.lock().report.take()
    }

    /// The one-line summary of the first plan, if it has started and is reported.
    pub fn summary(&self) -> Option<String> {
        self.plan.lock().summary.clone()
    }

    /// Returns whether the plan is reported.
    #[inline]
    pub fn reports_plan(&self) -> bool {
        self.reports_plan.load(Ordering::Relaxed)
    }

    /// Called when a plan starts or resumes; `summarize` returns its one-line summary.
    #[cold]
    pub fn plan_begins(&self, summarize: impl FnOnce() -> String) {
        let mut plan = self.plan.lock();
        if plan.summary.is_none() {
            plan.summary = Some(summarize());
        }
    }

    /// Stores the report that `make` makes of a plan that has run, unless an earlier plan was
    /// reported.
    #[cold]
    pub fn plan_ran(&self, make: impl FnOnce(&Detail) -> PlanReport) {
        let mut plan = self.plan.lock();
        if plan.report.is_none()
            && let Some(detail) = &plan.detail
        {
            plan.report = Some(make(detail));
        }
    }

    /// Adds the data that a run has examined.
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
    fn the_first_plan_is_reported_once() {
        let report = |summary: &str| PlanReport {
            summary: summary.to_owned(),
            has_sort: false,
            is_by_id: false,
            has_won: false,
            hashes: None,
            may_be_cached: false,
            stages: None,
        };
        let tally = Tally::default();
        tally.start(Detail::Summary);
        for summary in ["COLLSCAN", "IDHACK"] {
            tally.plan_begins(|| summary.to_owned());
            tally.plan_ran(|_| report(summary));
        }
        assert_eq!(tally.summary().as_deref(), Some("COLLSCAN"));
        assert_eq!(
            tally.take_plan_report().map(|report| report.summary).as_deref(),
            Some("COLLSCAN")
        );
        tally.start(Detail::Nothing);
        assert!(!tally.reports_plan() && tally.summary().is_none());
    }
}
