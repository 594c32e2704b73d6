//! Who makes a backup, and who prunes, at this time.
//!
//! A backup relies upon objects that are there already, and a pruning removes objects that nobody
//! names yet. Each first announces itself under a name of its own, and then looks for the other: of
//! two that begin at once, one at least sees the other. A backup waits for prunings; a pruning that
//! meets a backup leaves objects alone. An announcement is renewed while the work goes on, so one
//! that is old is of a process that has ended. The name of an announcement ends with its process,
//! so that on the machine where that ran its end is seen at once.

use std::fs;
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
        let mut name = format!("{}{id}", work.prefix());
        if let Some(process) = Process::own() {
            name = format!("{name}@{}", process.0);
        }
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
            is_other && !is_left_behind(&stored.name, now_ms - stored.put_ms)
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
        for stored in all.iter().filter(|it| is_left_behind(&it.name, now_ms - it.put_ms)) {
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

/// Whether the process of an announcement has ended: nobody has renewed it for long, or it was a
/// process of this machine that is gone.
fn is_left_behind(name: &str, age_ms: i64) -> bool {
    age_ms >= OLD_MS || name.split_once('@').is_some_and(|(_, process)| Process::has_ended(process))
}

/// A process, told apart from every other one that has been or will be: the boot of the machine,
/// the namespace that its number belongs to, its number, and the moment of its start.
struct Process(String);

impl Process {
    /// This one. None where the system does not say all of it.
    fn own() -> Option<Process> {
        let (place, pid) = (Process::place()?, std::process::id());
        let started = Process::started(pid)?;
        Some(Process(format!("{place}.{pid}.{started}")))
    }

    /// Whether a process, as an announcement names it, ran where this one runs, and has ended.
    /// Numbers of another machine or container say nothing here.
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

    /// The moment of its start in ticks since the boot: the 22nd field of `stat`. The second one is
    /// a name that may hold anything, in parentheses.
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
