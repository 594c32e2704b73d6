//! Announcements of backups and prunings in progress.
//!
//! A backup relies on objects that already exist, and a pruning removes objects without a manifest.
//! So each first stores an announcement, and then looks for the other's:
//!
//! ```text
//!   backup    announce ─► wait until no pruning is announced ─► list objects ─► send ─► manifest
//!   pruning   announce ─► a backup is announced? leave objects alone : remove
//! ```
//!
//! If both start at once, at least one of them sees the other. An announcement is renewed while the
//! work continues, so an old one belongs to a process that has ended. Its name ends with the
//! identity of the process, so that on the same machine the end of the process is noticed
//! immediately.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::repository::Repository;
use crate::{Error, Progress, Result};

const RENEW_EVERY: Duration = Duration::from_secs(60);
/// The age of an abandoned announcement, by the target's clock. Far more than [`RENEW_EVERY`] and
/// the time of a request.
const OLD_MS: i64 = 60 * 60 * 1000;
/// The maximum time that a backup waits for prunings.
const WAIT_MAX: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The kind of work in progress.
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

/// An announcement of work in progress, which is removed on drop.
pub(crate) struct Announcement<'r> {
    repository: &'r Repository,
    name: String,
    renewed: Mutex<Instant>,
}

impl<'r> Announcement<'r> {
    pub(crate) fn make(repository: &'r Repository, work: Work, id: &str) -> Result<Self> {
        let mut name = format!("{}{id}", work.prefix());
        if let Some(process) = Process::own() {
            name = format!("{name}@{}", process.0);
        }
        repository.target().put(&name, Vec::new())?;
        Ok(Announcement { repository, name, renewed: Mutex::new(Instant::now()) })
    }

    /// Renews the announcement if it is due. Called between the parts of the work.
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

    /// Returns whether other work of this kind is in progress.
    pub(crate) fn meets(&self, work: Work) -> Result<bool> {
        let all = self.repository.target().list("underway/")?;
        // The time of the newest announcement is the target's current time, because this one was
        // just stored.
        let now_ms = all.iter().map(|stored| stored.put_ms).max().unwrap_or(0);
        Ok(all.iter().any(|stored| {
            let is_other = stored.name.starts_with(work.prefix()) && stored.name != self.name;
            is_other && !is_left_behind(&stored.name, now_ms - stored.put_ms)
        }))
    }

    /// Waits until no pruning is in progress.
    ///
    /// Errors: `Refused` if one takes too long; `Ended`.
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
        for stored in all.iter().filter(|it| is_left_behind(&it.name, now_ms - it.put_ms)) {
            self.repository.target().delete(&stored.name)?;
        }
        Ok(())
    }
}

impl Drop for Announcement<'_> {
    fn drop(&mut self) {
        // If the removal fails, the announcement becomes old soon.
        let _ = self.repository.target().delete(&self.name);
    }
}

/// Returns whether the process of an announcement has ended: the announcement is old, or it is of a
/// process of this machine that no longer exists.
fn is_left_behind(name: &str, age_ms: i64) -> bool {
    age_ms >= OLD_MS || name.split_once('@').is_some_and(|(_, process)| Process::has_ended(process))
}

/// An identity of a process that is never reused: the boot id of the machine, the PID namespace,
/// the PID, and the start time.
struct Process(String);

impl Process {
    /// Returns the identity of this process; `None` if the operating system does not provide all
    /// parts.
    fn own() -> Option<Process> {
        let (place, pid) = (Process::place()?, std::process::id());
        let started = Process::started(pid)?;
        Some(Process(format!("{place}.{pid}.{started}")))
    }

    /// Returns whether the process in an announcement ran on this machine in this PID namespace and
    /// has ended. PIDs of other machines or containers are not comparable.
    fn has_ended(named: &str) -> bool {
        let mut parts = named.rsplitn(3, '.');
        let (Some(started), Some(pid), Some(place)) = (parts.next(), parts.next(), parts.next())
        else {
            return false;
        };
        let Ok(pid) = pid.parse() else { return false };
        Process::place().is_some_and(|here| here == place)
            && Process::started(pid).is_none_or(|other| other != started)
    }

    fn place() -> Option<String> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
        let namespace: String = namespace.to_str()?.chars().filter(char::is_ascii_digit).collect();
        Some(format!("{}.{namespace}", boot.trim()))
    }

    /// Returns the start time of a process in ticks since the boot: the 22nd field of `stat`. The
    /// second field is a name in parentheses, which may contain anything.
    fn started(pid: u32) -> Option<String> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        fields.split_whitespace().nth(19).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_has_not_ended() {
        let own = Process::own().expect("Linux says all of it");
        assert!(!Process::has_ended(&own.0));
        assert!(!is_left_behind(&format!("underway/pruning/x@{}", own.0), 0));
        assert!(is_left_behind("underway/pruning/x", OLD_MS));
        assert!(!is_left_behind("underway/pruning/x", OLD_MS - 1));
    }

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_number() {
        let own = Process::own().expect("Linux says all of it").0;
        let (rest, started) = own.rsplit_once('.').expect("its start comes last");
        let before = started.parse::<u64>().expect("ticks") - 1;
        assert!(Process::has_ended(&format!("{rest}.{before}")));
    }

    #[test]
    fn numbers_of_other_machines_say_nothing() {
        let own = Process::own().expect("Linux says all of it").0;
        assert!(!Process::has_ended(&format!("x{own}9")));
        assert!(!Process::has_ended("1.2"));
        assert!(!Process::has_ended(""));
    }
}
