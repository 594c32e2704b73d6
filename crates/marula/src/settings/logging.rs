//! The options of the log: `systemLog` in mongod.conf.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use marula_bson::{DocBuf, ValueBuf};
use marula_server::logging::{Format, Unblocked, Zone};
use marula_server::options::{Earlier, LogFile, Rotation};

use super::{parse, parse_flag};
use crate::Failure;

/// The most that a component can say.
const VERBOSITY_MAX: i32 = 5;

/// The settings of the log.
#[derive(Debug, Default)]
pub(crate) struct LogSettings {
    format: Option<Format>,
    pub(crate) zone: Zone,
    path: Option<PathBuf>,
    earlier: Earlier,
    rotation: Rotation,
    is_to_file: bool,
    pub(crate) is_quiet: bool,
    verbosity: i32,
    /// Components by their path, and how much each says.
    components: Vec<(String, i32)>,
}

impl LogSettings {
    /// Sets one by its name in mongod.conf; returns the value as it is shown.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<ValueBuf, Failure> {
        let mut shown = ValueBuf::from(value);
        match name.strip_prefix("systemLog.").unwrap_or_default() {
            "destination" => match value {
                "file" => self.is_to_file = true,
                "stdout" => self.is_to_file = false,
                "syslog" => {
                    return Err(format!(
                        "{name} 'syslog' is refused: the log goes to a file or to stdout; a service manager takes stdout to its journal"
                    ));
                }
                other => return Err(format!("{name} '{other}' is not one of file, stdout")),
            },
            "path" => self.path = Some(PathBuf::from(value)),
            "logAppend" => {
                let appends = parse_flag(name, value)?;
                self.earlier = if appends { Earlier::Extended } else { Earlier::Renamed };
                shown = ValueBuf::from(appends);
            }
            "logRotate" => {
                self.rotation = match value {
                    "rename" => Rotation::Rename,
                    "reopen" => Rotation::Reopen,
                    other => return Err(format!("{name} '{other}' is not one of rename, reopen")),
                };
            }
            "format" => {
                self.format = Some(match value {
                    "readable" => Format::Readable,
                    "json" => Format::Json,
                    other => {
                        return Err(format!("log format '{other}' is not one of readable, json"));
                    }
                });
            }
            "timeStampFormat" => {
                self.zone = match value {
                    "iso8601-local" => Zone::Local,
                    "iso8601-utc" => Zone::Utc,
                    other => {
                        return Err(format!(
                            "{name} '{other}' is not one of iso8601-local, iso8601-utc"
                        ));
                    }
                };
            }
            "quiet" => {
                self.is_quiet = parse_flag(name, value)?;
                shown = ValueBuf::from(self.is_quiet);
            }
            "verbosity" => {
                self.verbosity = verbosity(name, value, 0)?;
                shown = ValueBuf::from(self.verbosity);
            }
            other => {
                let path = other.strip_prefix("component.").ok_or_else(|| super::unknown(name))?;
                let path = path.strip_suffix(".verbosity").ok_or_else(|| super::unknown(name))?;
                let level = verbosity(name, value, -1)?;
                self.components.push((path.to_owned(), level));
                shown = ValueBuf::from(level);
            }
        }
        Ok(shown)
    }

    /// Checks that what is set goes together.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.rotation == Rotation::Reopen && self.earlier != Earlier::Extended {
            return Err("systemLog.logRotate 'reopen' needs systemLog.logAppend to be true".into());
        }
        if self.is_to_file && self.path.is_none() {
            return Err("systemLog.destination 'file' needs systemLog.path".to_owned());
        }
        Ok(())
    }

    /// The effect of a rotation on the files of the logs.
    pub(crate) fn rotation(&self) -> Rotation {
        self.rotation
    }

    /// The value of `logComponentVerbosity` that was asked for; nothing where all is as usual.
    pub(crate) fn levels(&self) -> Option<DocBuf> {
        if self.verbosity == 0 && self.components.is_empty() {
            return None;
        }
        let mut levels = DocBuf::build(|out| {
            out.append("verbosity", self.verbosity);
        });
        for (path, level) in &self.components {
            levels = with_level(&levels, path, *level);
        }
        Some(levels)
    }

    /// The log's file, where there is one.
    pub(crate) fn file(&self) -> Option<LogFile> {
        let path = self.path.clone()?;
        Some(LogFile { path, rotation: self.rotation })
    }

    /// How lines look: a file or a pipe is read by programs, a terminal by eyes.
    pub(crate) fn format(&self) -> Format {
        let is_for_eyes = self.path.is_none() && io::stdout().is_terminal();
        let usual = if is_for_eyes { Format::Readable } else { Format::Json };
        self.format.unwrap_or(usual)
    }

    /// Opens what the log is written to.
    pub(crate) fn open(&self) -> Result<Box<dyn Write + Send>, Failure> {
        Ok(match self.file() {
            None => Box::new(Unblocked::stdout()),
            Some(file) => Box::new(file.start(self.earlier).map_err(|error| {
                format!("cannot write log file '{}': {error}", file.path.display())
            })?),
        })
    }
}

fn verbosity(name: &str, value: &str, least: i32) -> Result<i32, Failure> {
    let level: i32 = parse(name, value, "a verbosity: a number from 0 to 5")?;
    match (least..=VERBOSITY_MAX).contains(&level) {
        true => Ok(level),
        false => Err(format!("{name} '{value}' is not a verbosity: a number from 0 to 5")),
    }
}

/// The levels with that of one component changed.
fn with_level(levels: &DocBuf, path: &str, level: i32) -> DocBuf {
    let (first, rest) = match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    DocBuf::build(|out| {
        let mut inner = DocBuf::new();
        for field in levels.as_doc() {
            match field.value.get().as_doc() {
                Some(doc) if field.name == first => inner = doc.to_buf(),
                _ => {
                    out.append_raw(field.name, field.value);
                }
            }
        }
        let inner = match rest {
            Some(rest) => with_level(&inner, rest, level),
            None => DocBuf::build(|out| {
                out.append("verbosity", level);
                for field in inner.as_doc().iter().filter(|field| field.name != "verbosity") {
                    out.append_raw(field.name, field.value);
                }
            }),
        };
        out.append(first, &inner);
    })
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;

    use super::*;

    #[test]
    fn levels_are_gathered() {
        let mut settings = LogSettings::default();
        assert_eq!(settings.levels(), None);
        settings.set("systemLog.component.storage.journal.verbosity", "2").unwrap();
        settings.set("systemLog.component.storage.verbosity", "1").unwrap();
        settings.set("systemLog.verbosity", "1").unwrap();
        let expected = doc! {
            "verbosity": 1,
            "storage": { "verbosity": 1, "journal": { "verbosity": 2 } },
        };
        assert_eq!(settings.levels(), Some(expected));
        assert!(settings.set("systemLog.component.storage.verbosity", "6").is_err());
        assert!(settings.set("systemLog.component.storage", "1").is_err());
        assert!(settings.set("systemLog.nope", "1").is_err());
    }

    #[test]
    fn syslog_stops_the_start() {
        let mut settings = LogSettings::default();
        assert!(settings.set("systemLog.destination", "syslog").unwrap_err().contains("stdout"));
        settings.set("systemLog.destination", "file").unwrap();
        assert!(settings.check().is_err());
    }
}
