//! The settings of the database profiler, and the decision whether an operation is recorded or
//! logged.
//!
//! An operation is *slow* from `slowms` milliseconds on; `sampleRate` is the part of the slow
//! operations that is selected. A `filter` replaces both. Selected operations are logged. A
//! database's *level* controls its `system.profile`: 1 records the selected operations, 2 all.
//! While its component COMMAND is at level 1, the log has a line for every operation, as mongod's
//! does. While every level is 0 and there is no filter, an operation that is not slow costs three
//! loads.
//!
//! Source: manual "Database Profiler", "profile".

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use marula_bson::{DocBuf, doc, long};
use marula_db::catalog::options::CollectionOptions;
use marula_db::write::InsertReport;
use marula_db::{Namespace, Unit, WriteOp};
use marula_error::Result;
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;
use parking_lot::{Mutex, MutexGuard};

use crate::server::Server;

/// The collection with the records of a database.
pub(crate) const COLLECTION: &str = "system.profile";

/// The size limit of a collection of records. Source: manual "Database Profiler": 1 megabyte.
const COLLECTION_BYTES_MAX: i32 = 1024 * 1024;

/// The settings of the profiler.
pub struct Profiling {
    settings: Mutex<Settings>,
    /// Whether any database has a level or a filter.
    is_on: AtomicBool,
    /// The time in microseconds from which an operation may be slow.
    slow_us: AtomicI64,
}

/// The settings, of the server and of each database.
pub struct Settings {
    databases: BTreeMap<String, Database>,
    /// The settings of databases without their own.
    usual: Database,
    /// The time in milliseconds from which an operation is slow.
    pub slow_ms: i32,
    /// The part of the slow operations that is selected.
    pub sample_rate: f64,
}

/// The settings of one database.
#[derive(Clone, Default)]
pub struct Database {
    /// 0 records nothing, 1 the selected operations, 2 all.
    pub level: i32,
    /// Selects operations, instead of slowness.
    pub filter: Option<Filter>,
}

/// The treatment of a completed operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Whether it is logged.
    pub is_logged: bool,
    /// Whether it is recorded in its database.
    pub is_recorded: bool,
}

/// Returns whether the log has a line for every operation: its component COMMAND is at level 1.
#[inline]
fn logs_all() -> bool {
    tracing::enabled!(target: "COMMAND", tracing::Level::DEBUG)
}

impl Default for Profiling {
    fn default() -> Self {
        let settings = Settings {
            databases: BTreeMap::new(),
            usual: Database::default(),
            slow_ms: 100,
            sample_rate: 1.0,
        };
        let slow_us = AtomicI64::new(i64::from(settings.slow_ms) * 1000);
        Profiling { settings: Mutex::new(settings), is_on: AtomicBool::new(false), slow_us }
    }
}

impl Profiling {
    /// Returns the settings, for reading.
    pub fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock()
    }

    /// Changes the settings.
    pub fn change(&self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.settings.lock();
        change(&mut settings);
        let is_on = !settings.databases.is_empty() || !settings.usual.is_off();
        self.is_on.store(is_on, Ordering::Relaxed);
        self.slow_us.store(i64::from(settings.slow_ms) * 1000, Ordering::Relaxed);
    }

    /// Returns whether operations in `db` collect the full statistics of their plans, because they
    /// are or may be recorded.
    #[inline]
    pub fn wants_stages(&self, db: &str) -> bool {
        self.is_on.load(Ordering::Relaxed) && self.settings().database(db).level > 0
    }

    /// Returns whether an operation of this duration needs to be judged at all.
    #[inline]
    pub fn concerns(&self, took: Duration) -> bool {
        let took_us = long(took.as_micros());
        self.is_on.load(Ordering::Relaxed)
            || took_us >= self.slow_us.load(Ordering::Relaxed)
            || logs_all()
    }

    /// Returns whether a transaction that was open for this time is logged.
    pub fn is_slow(&self, took: Duration) -> bool {
        let took_us = long(took.as_micros());
        let is_sampled = || {
            let rate = self.settings().sample_rate;
            rate >= 1.0 || rand::random::<f64>() < rate
        };
        took_us >= self.slow_us.load(Ordering::Relaxed) && is_sampled()
    }

    /// Decides the treatment of an operation in `db`, whose record would be `entry`.
    pub fn judge(&self, db: &str, took: Duration, entry: &dyn Fn() -> DocBuf) -> Verdict {
        let (database, slow_ms, sample_rate) = {
            let settings = self.settings();
            (settings.database(db), settings.slow_ms, settings.sample_rate)
        };
        let counts = match &database.filter {
            // A filter that fails on a record rejects it.
            Some(filter) => filter.matches(entry().as_doc()).unwrap_or(false),
            None => {
                let took_ms = long(took.as_millis());
                took_ms >= i64::from(slow_ms)
                    && (sample_rate >= 1.0 || rand::random::<f64>() < sample_rate)
            }
        };
        Verdict {
            is_logged: counts || logs_all(),
            is_recorded: database.level == 2 || database.level == 1 && counts,
        }
    }
}

impl Database {
    /// Returns the settings with this level and filter.
    ///
    /// Errors: an invalid filter.
    pub fn parse(level: i32, filter: Option<&DocBuf>) -> Result<Self> {
        let parse = |filter: &DocBuf| Filter::parse(filter.as_doc(), &QueryContext::default());
        Ok(Database { level, filter: filter.map(parse).transpose()? })
    }

    fn is_off(&self) -> bool {
        self.level == 0 && self.filter.is_none()
    }
}

impl Settings {
    /// Changes the settings of all databases without their own.
    pub fn set_usual(&mut self, usual: Database) {
        self.usual = usual;
    }

    /// Returns the settings of a database.
    pub fn database(&self, db: &str) -> Database {
        self.databases.get(db).unwrap_or(&self.usual).clone()
    }

    /// Changes the settings of a database.
    pub fn set_database(&mut self, db: &str, database: Database) {
        match database.is_off() && self.usual.is_off() {
            true => self.databases.remove(db),
            false => self.databases.insert(db.to_owned(), database),
        };
    }
}

/// Creates the collection of a database's records, if it does not exist.
pub(crate) fn create_collection(server: &Server, db: &str) -> Result<()> {
    let ns = Namespace::new(db, COLLECTION)?;
    if server.db.collection(&ns).is_some() {
        return Ok(());
    }
    let options = doc! { "capped": true, "size": COLLECTION_BYTES_MAX };
    let created = server.db.create_collection(&ns, CollectionOptions::parse(options.as_doc())?);
    match created {
        // Another operation created it first.
        Err(_) if server.db.collection(&ns).is_some() => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Adds a record to its database.
pub(crate) fn record(server: &Server, db: &str, entry: &DocBuf) -> Result<()> {
    create_collection(server, db)?;
    let Some(collection) = server.db.collection(&Namespace::new(db, COLLECTION)?) else {
        return Ok(());
    };
    let mut report = InsertReport::default();
    WriteOp::new(Unit::new(&server.db), server.now_ms()).insert(
        &collection,
        &mut std::iter::once(entry.as_doc()),
        true,
        &mut report,
    )?;
    report.errors.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use marula_query::context::Context;

    fn check(profiling: &Profiling, took_ms: u64, is_logged: bool, is_recorded: bool) {
        let took = Duration::from_millis(took_ms);
        let entry = || doc! { "op": "query", "millis": took_ms as i64 };
        let verdict = match profiling.concerns(took) {
            true => profiling.judge("db", took, &entry),
            false => Verdict { is_logged: false, is_recorded: false },
        };
        assert_eq!(verdict, Verdict { is_logged, is_recorded }, "{took_ms} ms");
    }

    #[test]
    fn levels_slowness_and_filters_decide() {
        let profiling = Profiling::default();
        check(&profiling, 99, false, false);
        check(&profiling, 100, true, false);
        let set = |level: i32, filter: Option<&DocBuf>| {
            let filter = filter.map(|filter| {
                Filter::parse(filter.as_doc(), &Context::default()).expect("it parses")
            });
            profiling.change(|settings| settings.set_database("db", Database { level, filter }));
        };
        set(1, None);
        check(&profiling, 99, false, false);
        check(&profiling, 100, true, true);
        set(2, None);
        check(&profiling, 0, false, true);
        check(&profiling, 100, true, true);
        set(1, Some(&doc! { "millis": { "$lt": 5 } }));
        check(&profiling, 4, true, true);
        check(&profiling, 500, false, false);
        set(0, Some(&doc! { "millis": { "$lt": 5 } }));
        check(&profiling, 4, true, false);
        set(0, None);
        check(&profiling, 4, false, false);
        profiling.change(|settings| settings.sample_rate = 0.0);
        check(&profiling, 500, false, false);
    }
}
