//! What the database profiler is set to, and what it and the log of slow operations make of an
//! operation.
//!
//! An operation is *slow* from `slowms` milliseconds on; `sampleRate` says which part of the slow
//! ones counts. A `filter` takes the place of both. What counts is a line of the log. A database's
//! *level* says what is recorded in its `system.profile`: at 1 what counts, at 2 everything. While
//! its component COMMAND is at level 1, the log has a line for every operation, as mongod's does.
//! While every level is 0 and there is no filter, an operation that is not slow costs three loads.
//! Source: manual "Database Profiler", "profile".

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use marula_bson::{DocBuf, doc};
use marula_db::catalog::options::CollectionOptions;
use marula_db::write::InsertReport;
use marula_db::{Namespace, Unit, WriteOp};
use marula_error::Result;
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;
use parking_lot::{Mutex, MutexGuard};

use crate::server::Server;

/// The collection that holds the records of a database.
pub(crate) const COLLECTION: &str = "system.profile";

/// The bound of a collection of records. Source: manual "Database Profiler": 1 megabyte.
const COLLECTION_BYTES_MAX: i32 = 1024 * 1024;

/// What the profiler is set to.
pub struct Profiling {
    settings: Mutex<Settings>,
    /// Whether any database has a level or a filter.
    is_on: AtomicBool,
    /// From here on an operation is looked at as slow; microseconds.
    slow_us: AtomicI64,
}

/// The settings, of the server and of each database.
pub struct Settings {
    databases: BTreeMap<String, Database>,
    /// Those of a database that none were set for.
    usual: Database,
    /// Milliseconds from which an operation counts as slow.
    pub slow_ms: i32,
    /// The part of the slow operations that counts.
    pub sample_rate: f64,
}

/// The settings of one database.
#[derive(Clone, Default)]
pub struct Database {
    /// 0 records nothing, 1 what counts, 2 everything.
    pub level: i32,
    /// What counts, in place of being slow.
    pub filter: Option<Filter>,
}

/// What becomes of an operation that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// It is a line of the log.
    pub is_logged: bool,
    /// It is a record in its database.
    pub is_recorded: bool,
}

/// Whether the log is to tell of every operation: its component COMMAND is at level 1.
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
    /// The settings, to be read.
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

    /// Whether operations in `db` are to tell all about their plans: they will be recorded, or may
    /// be.
    #[inline]
    pub fn wants_stages(&self, db: &str) -> bool {
        self.is_on.load(Ordering::Relaxed) && self.settings().database(db).level > 0
    }

    /// Whether an operation that took so long needs to be judged at all.
    #[inline]
    pub fn concerns(&self, took: Duration) -> bool {
        let took_us = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
        self.is_on.load(Ordering::Relaxed)
            || took_us >= self.slow_us.load(Ordering::Relaxed)
            || logs_all()
    }

    /// Whether the log tells of a transaction that was open so long.
    pub fn is_slow(&self, took: Duration) -> bool {
        let took_us = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
        let is_sampled = || {
            let rate = self.settings().sample_rate;
            rate >= 1.0 || rand::random::<f64>() < rate
        };
        took_us >= self.slow_us.load(Ordering::Relaxed) && is_sampled()
    }

    /// What becomes of an operation in `db`, whose record would be `entry`.
    pub fn judge(&self, db: &str, took: Duration, entry: &dyn Fn() -> DocBuf) -> Verdict {
        let (database, slow_ms, sample_rate) = {
            let settings = self.settings();
            (settings.database(db), settings.slow_ms, settings.sample_rate)
        };
        let counts = match &database.filter {
            // A filter that fails on an entry leaves it out.
            Some(filter) => filter.matches(entry().as_doc()).unwrap_or(false),
            None => {
                let took_ms = i64::try_from(took.as_millis()).unwrap_or(i64::MAX);
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
    /// Settings of this level, and what counts in place of being slow.
    ///
    /// Errors: a filter that is none.
    pub fn parse(level: i32, filter: Option<&DocBuf>) -> Result<Self> {
        let parse = |filter: &DocBuf| Filter::parse(filter.as_doc(), &QueryContext::default());
        Ok(Database { level, filter: filter.map(parse).transpose()? })
    }

    fn is_off(&self) -> bool {
        self.level == 0 && self.filter.is_none()
    }
}

impl Settings {
    /// Changes the settings of every database that none were set for.
    pub fn set_usual(&mut self, usual: Database) {
        self.usual = usual;
    }

    /// The settings of a database.
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

/// Makes the collection of a database's records, where there is none.
pub(crate) fn create_collection(server: &Server, db: &str) -> Result<()> {
    let ns = Namespace::new(db, COLLECTION)?;
    if server.db.collection(&ns).is_some() {
        return Ok(());
    }
    let options = doc! { "capped": true, "size": COLLECTION_BYTES_MAX };
    let created = server.db.create_collection(&ns, CollectionOptions::parse(options.as_doc())?);
    match created {
        // Another operation was first.
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
