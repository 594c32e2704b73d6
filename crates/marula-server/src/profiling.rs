//! What the database profiler is set to.

use std::collections::BTreeMap;

/// What the database profiler is set to: a level by database, and what counts as slow.
pub struct Profiling {
    levels: BTreeMap<String, i32>,
    /// Milliseconds from which an operation counts as slow.
    pub slow_ms: i32,
    /// The part of the slow operations that is recorded.
    pub sample_rate: f64,
}

impl Default for Profiling {
    fn default() -> Self {
        Profiling { levels: BTreeMap::new(), slow_ms: 100, sample_rate: 1.0 }
    }
}

impl Profiling {
    /// The level of a database: 0 is off.
    pub fn level(&self, db: &str) -> i32 {
        self.levels.get(db).copied().unwrap_or(0)
    }

    /// Sets the level of a database.
    pub fn set_level(&mut self, db: &str, level: i32) {
        match level {
            0 => self.levels.remove(db),
            _ => self.levels.insert(db.to_owned(), level),
        };
    }
}
