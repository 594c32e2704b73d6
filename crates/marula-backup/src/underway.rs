//! Who makes a backup, and who prunes, at this time.
//!
//! A backup relies upon objects that are there already, and a pruning removes objects that nobody
//! names yet. Each first announces itself under a name of its own, and then looks for the other: of
//! two that begin at once, one at least sees the other. A backup waits for prunings; a pruning that
//! meets a backup leaves objects alone. An announcement is renewed while the work goes on, so one
//! that is old is of a process that has ended.

use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::repository::Repository;
use crate::{Error, Progress, Result};

const RENEW_EVERY: Duration = Duration::from_secs(60);
/// By the target's clock. Far above [`RENEW_EVERY`] and what a request may take.
const OLD_MS: i64 = 60 * 60 * 1000;
/// How long a backup waits for prunings.
const WAIT_MAX: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What is under way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Backup,
    Pruning,
}

impl Work {
    fn prefix(self) -> &'static str {
        match self {
            Work::Backup => "underway/backup/",
            Work::Pruning => "underway/pruning/",
        }
    }
}

/// Says that work is under way, until it is dropped.
pub(crate) struct Announcement<'r> {
    repository: &'r Repository,
    name: String,
    renewed: Mutex<Instant>,
}

impl<'r> Announcement<'r> {
    pub(crate) fn make(repository: &'r Repository, work: Work, id: &str) -> Result<Self> {
        let name = format!("{}{id}", work.prefix());
        repository.target().put(&name, Vec::new())?;
        Ok(Announcement { repository, name, renewed: Mutex::new(Instant::now()) })
    }

    /// Renews it when it is time to. Called between the pieces of the work.
    pub(crate) fn renew(&self) -> Result<()> {
        let is_due = {
            let mut renewed = self.renewed.lock();
            let is_due = renewed.elapsed() >= RENEW_EVERY;
            if is_due {
                *renewed = Instant::now();
            }
            is_due
        };
        if is_due { self.repository.target().put(&self.name, Vec::new()) } else { Ok(()) }
    }

    /// Whether other work of this kind is under way.
    pub(crate) fn meets(&self, work: Work) -> Result<bool> {
        let all = self.repository.target().list("underway/")?;
        // The target's clock is read off what was just put.
        let now_ms = all.iter().map(|stored| stored.put_ms).max().unwrap_or(0);
        Ok(all.iter().any(|stored| {
            let is_other = stored.name.starts_with(work.prefix()) && stored.name != self.name;
            is_other && now_ms - stored.put_ms < OLD_MS
        }))
    }

    /// Waits until no pruning is under way.
    ///
    /// Errors: `Refused` when one takes too long; `Ended`.
    pub(crate) fn wait_for_prunings(&self, progress: &Progress) -> Result<()> {
        let began = Instant::now();
        while self.meets(Work::Pruning)? {
            if progress.is_ended() {
                return Err(Error::Ended);
            }
            if began.elapsed() > WAIT_MAX {
                let shown = self.repository.shown();
                return Err(Error::Refused(format!("'{shown}' is being pruned: try again later")));
            }
            self.renew()?;
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Removes announcements of processes that have ended.
    pub(crate) fn clear_old(&self) -> Result<()> {
        let all = self.repository.target().list("underway/")?;
        let now_ms = all.iter().map(|stored| stored.put_ms).max().unwrap_or(0);
        for stored in all.iter().filter(|stored| now_ms - stored.put_ms >= OLD_MS) {
            self.repository.target().delete(&stored.name)?;
        }
        Ok(())
    }
}

impl Drop for Announcement<'_> {
    fn drop(&mut self) {
        // One that stays is old before long.
        let _ = self.repository.target().delete(&self.name);
    }
}
