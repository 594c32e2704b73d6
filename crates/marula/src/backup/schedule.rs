//! The settings of the backups that a server makes on its own.

use std::path::PathBuf;
use std::time::Duration;

use super::times;
use crate::Failure;

/// Backups are made this often unless said.
const EVERY: Duration = Duration::from_secs(6 * 3600);
/// How far back every moment can be restored, unless said.
const KEEP: Duration = Duration::from_secs(7 * 24 * 3600);
/// The default time between two pieces of log.
const LOG_EVERY: Duration = Duration::from_secs(5);
/// The least of these times.
const EVERY_MIN: Duration = Duration::from_secs(1);

/// The settings below `backup` in a configuration file.
#[derive(Clone, Debug)]
pub(crate) struct ScheduleSettings {
    /// Where backups and the log go; nothing is made without it.
    pub(crate) to: Option<String>,
    /// The time between two backups.
    pub(crate) every: Duration,
    /// How far back every moment can be restored.
    pub(crate) keep: Duration,
    /// The time between two pieces of log.
    pub(crate) log_every: Duration,
    /// The file of the key.
    pub(crate) key_file: Option<PathBuf>,
    /// Whether anything but `to` was said.
    is_said: bool,
}

impl Default for ScheduleSettings {
    fn default() -> Self {
        ScheduleSettings {
            to: None,
            every: EVERY,
            keep: KEEP,
            log_every: LOG_EVERY,
            key_file: None,
            is_said: false,
        }
    }
}

impl ScheduleSettings {
    /// Sets one by its name below `backup`; answers whether there is one of that name.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool, Failure> {
        let duration = || -> Result<Duration, Failure> {
            let us = times::duration_us(&format!("backup.{name}"), value)?;
            let duration = Duration::from_micros(us.unsigned_abs());
            match duration >= EVERY_MIN {
                true => Ok(duration),
                false => Err(format!("backup.{name} '{value}' is less than a second")),
            }
        };
        match name {
            "to" if value.is_empty() => return Err("backup.to must not be empty".to_owned()),
            "to" => self.to = Some(value.to_owned()),
            "every" => self.every = duration()?,
            "keep" => self.keep = duration()?,
            "logEvery" => self.log_every = duration()?,
            "keyFile" => self.key_file = Some(PathBuf::from(value)),
            _ => return Ok(false),
        }
        self.is_said |= name != "to";
        Ok(true)
    }

    /// Checks that what was said goes together.
    pub(crate) fn check(&self, has_folder: bool) -> Result<(), Failure> {
        if self.to.is_none() && self.is_said {
            return Err("options of backups need a target: --backup-to FOLDER".to_owned());
        }
        if self.to.is_some() && !has_folder {
            return Err("backups are made of data in a folder: --storage-engine rocksdb".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_go_together_is_refused() {
        let mut settings = ScheduleSettings::default();
        settings.check(false).expect("nothing was said");
        assert_eq!(settings.set("every", "90m"), Ok(true));
        assert_eq!(settings.every, Duration::from_secs(5400));
        assert!(settings.check(true).is_err(), "where to?");
        assert_eq!(settings.set("to", "/x"), Ok(true));
        settings.check(true).expect("it goes together");
        assert!(settings.check(false).is_err(), "of what?");
        assert_eq!(settings.set("nope", "1"), Ok(false));
        for (name, value) in [("every", "0s"), ("keep", "x"), ("to", "")] {
            assert!(settings.set(name, value).is_err(), "{name}");
        }
    }
}
