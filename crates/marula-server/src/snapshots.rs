//! Moments at which clients read: read concern `snapshot` outside transactions.
//!
//! A read without a time gets a view of the current moment, and its cluster time, by which it may
//! be requested again. A moment is kept for a while (`minSnapshotHistoryWindowInSeconds`), and
//! shared by reads as long as there is no write. Other times of the past are not available.
//!
//! Source: manual "Read Concern snapshot"; driver specification "Snapshot Reads"; errors recorded
//! from mongod 6.0.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use marula_bson::Value;
use marula_db::Db;
use marula_error::{Result, errors};
use marula_storage::View;
use parking_lot::Mutex;

use crate::concern::ReadLevel;
use crate::request::Request;
use crate::row::ReadConcernLevels;

errors! {
    in_the_future(field: &str, wanted: Value<'_>, now: Value<'_>) = InvalidOptions, "readConcern {field} value must not be greater than the current clusterTime. Requested clusterTime: {{ ts: {wanted} }}; current clusterTime: {{ ts: {now} }}";
    too_old(time: Value<'_>) = SnapshotTooOld, "Read timestamp {time} is older than the oldest available timestamp.";
}

/// The time in seconds for which a moment is kept: the default of
/// `minSnapshotHistoryWindowInSeconds`.
pub(crate) const WINDOW_SECONDS: i32 = 300;

/// The maximum number of moments; the oldest are removed.
const KEPT_MAX: usize = 1_000;

/// A moment at which clients read.
#[derive(Clone)]
pub struct Snapshot {
    /// Its cluster time.
    pub time: u64,
    /// The state of the store.
    pub view: Arc<dyn View>,
}

/// The moments that are kept.
pub struct Snapshots {
    kept: Mutex<VecDeque<(Instant, Snapshot)>>,
    window_seconds: AtomicI64,
}

impl Default for Snapshots {
    fn default() -> Self {
        Snapshots { kept: Mutex::default(), window_seconds: AtomicI64::new(WINDOW_SECONDS.into()) }
    }
}

impl Snapshots {
    /// Returns the current moment.
    fn now(&self, db: &Db, now_ms: i64) -> Result<Snapshot> {
        let mut kept = self.kept.lock();
        if let Some((since, last)) = kept.back_mut()
            && !db.has_moved(last.view.moment())
        {
            *since = Instant::now();
            return Ok(last.clone());
        }
        let view = db.view_now()?;
        let snapshot = Snapshot { time: db.next_timestamp(now_ms), view };
        kept.push_back((Instant::now(), snapshot.clone()));
        if kept.len() > KEPT_MAX {
            kept.pop_front();
        }
        Ok(snapshot)
    }

    /// Returns the moment of this cluster time, if it is kept.
    fn at(&self, time: u64) -> Option<Snapshot> {
        let kept = self.kept.lock();
        kept.iter().map(|(_, snapshot)| snapshot).find(|snapshot| snapshot.time == time).cloned()
    }

    /// Returns the moment that a request outside transactions reads at, if it asks for one.
    ///
    /// Errors: `in_the_future`, `too_old`.
    pub(crate) fn of(
        &self,
        db: &Db,
        request: &Request<'_>,
        now_ms: i64,
    ) -> Result<Option<Snapshot>> {
        let concern = request.read_concern;
        if let Some(time) = concern.after_cluster_time {
            check_reached(db, time, now_ms)?;
        }
        let reads_so = matches!(request.command.read_concern, ReadConcernLevels::Snapshot)
            && concern.level == Some(ReadLevel::Snapshot);
        if !reads_so || request.transaction.is_some() {
            return Ok(None);
        }
        let Some(time) = concern.at_cluster_time else { return self.now(db, now_ms).map(Some) };
        // The time of a snapshot may be newer than that of any other reply.
        if let Some(snapshot) = self.at(time) {
            return Ok(Some(snapshot));
        }
        let newest = db.newest_timestamp(now_ms);
        if time > newest {
            return Err(in_the_future(
                "atClusterTime",
                Value::Timestamp(time),
                Value::Timestamp(newest),
            ));
        }
        Err(too_old(Value::Timestamp(time)))
    }

    /// Removes the moments whose time is over.
    pub fn expire(&self) {
        let seconds = self.window_seconds.load(Ordering::Relaxed);
        let window = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        self.kept.lock().retain(|(since, _)| since.elapsed() < window);
    }

    /// Sets the time for which a moment is kept.
    pub fn set_window_seconds(&self, seconds: i64) {
        self.window_seconds.store(seconds, Ordering::Relaxed);
    }
}

/// Checks that the cluster may have reached a time. Another node may be ahead of this one, whose
/// clock shows about the same second.
///
/// Errors: `in_the_future`.
fn check_reached(db: &Db, time: u64, now_ms: i64) -> Result<()> {
    const CLOCKS_APART_SECONDS: i64 = 10;
    let is_near =
        i64::try_from(time >> 32).is_ok_and(|at| at <= now_ms / 1_000 + CLOCKS_APART_SECONDS);
    if is_near {
        return Ok(());
    }
    let newest = db.newest_timestamp(now_ms);
    match time > newest {
        true => {
            Err(in_the_future("afterClusterTime", Value::Timestamp(time), Value::Timestamp(newest)))
        }
        false => Ok(()),
    }
}
