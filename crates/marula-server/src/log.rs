//! The log: its output, and its last lines for `getLog`.
//!
//! A [`Log`] is a layer of `tracing`. It writes each event as one line, as JSON in the shape of
//! MongoDB's structured log or readable, and keeps the last lines in memory. Any crate logs with
//! the macros of `tracing`; this is what the layer reads off an event:
//!
//! | of the event | in the line |
//! | --- | --- |
//! | its level | `s`; DEBUG is verbosity 1, TRACE verbosity 2 |
//! | its target: a component's tag, such as `"STORAGE"`, or the module that raised it | `c` |
//! | its field `id`: MongoDB's number for the message, by which programs find it | `id` |
//! | its message | `msg` |
//! | its other fields | `attr` |
//! | its field `attr`: all attributes at once, as the JSON of [`attributes`] | `attr` |
//!
//! The context (`ctx`) is the connection whose request runs on the thread, see [`worker`].
//! Source of the shape, ids and attribute names: manual "Log Messages"; lines of mongod 6.0.

pub(crate) mod components;
mod event;
pub(crate) mod unblocked;
pub mod worker;

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use jiff::{Timestamp, tz::TimeZone};
use marula_bson::ext_json::{self, Mode};
use marula_bson::{Doc, DocBuf, DocWriter};
use parking_lot::{Mutex, RwLock};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use components::{Component, Levels};
use event::Fields;

/// The number of lines that `getLog` returns.
const LINES_MAX: usize = 1024;

/// The target of events that `getLog: "startupWarnings"` shows.
pub const STARTUP_WARNING: &str = "startup_warning";

/// The format of lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// For people.
    Readable,
    /// For programs: one JSON document per line, with the layout of MongoDB's log.
    Json,
}

/// The time zone of lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Zone {
    /// The machine's.
    #[default]
    Local,
    /// UTC.
    Utc,
}

/// The log: its format, its output, its last lines.
pub struct Log {
    format: Format,
    zone: TimeZone,
    out: Mutex<Box<dyn Write + Send>>,
    levels: RwLock<Levels>,
    is_quiet: AtomicBool,
    ring: Mutex<VecDeque<String>>,
    total: AtomicU64,
    warnings: Mutex<Vec<String>>,
}

impl Log {
    /// Returns a log that writes to `out`.
    pub fn new(format: Format, zone: Zone, out: Box<dyn Write + Send>) -> Arc<Self> {
        let zone = match zone {
            Zone::Local => TimeZone::system(),
            Zone::Utc => TimeZone::UTC,
        };
        Arc::new(Log {
            format,
            zone,
            out: Mutex::new(out),
            levels: RwLock::new(Levels::default()),
            is_quiet: AtomicBool::new(false),
            ring: Mutex::new(VecDeque::new()),
            total: AtomicU64::new(0),
            warnings: Mutex::new(Vec::new()),
        })
    }

    /// Continues in `out`, for example after the file was moved.
    pub fn reopen(&self, out: Box<dyn Write + Send>) {
        *self.out.lock() = out;
    }

    /// Returns the last lines, as JSON, and the number of lines since the start.
    pub fn lines(&self) -> (Vec<String>, u64) {
        (self.ring.lock().iter().cloned().collect(), self.total.load(Ordering::Relaxed))
    }

    /// Returns the warnings about the server's configuration, as JSON lines.
    pub fn startup_warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }

    /// Removes the stored lines.
    pub fn clear(&self) {
        self.ring.lock().clear();
    }

    /// Sets the verbosity of each component, from the value of `logComponentVerbosity`.
    pub fn set_levels(&self, verbosity: Doc<'_>) {
        *self.levels.write() = Levels::of(verbosity);
        // Each call site caches whether its level is enabled.
        tracing::callsite::rebuild_interest_cache();
    }

    /// Sets whether lines about single connections are left out.
    pub fn set_quiet(&self, is_quiet: bool) {
        self.is_quiet.store(is_quiet, Ordering::Relaxed);
    }

    /// Returns whether lines about single connections are left out.
    pub fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Relaxed)
    }
}

/// The layer, which shares the [`Log`] with the server. It is the only one: events that it rejects
/// are not created.
pub struct LogLayer(pub Arc<Log>);

impl LogLayer {
    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        let component = Component::of_target(metadata.target());
        self.0.levels.read().allow(component, *metadata.level())
    }
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0.levels.read().most())
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let log = &*self.0;
        let now = Timestamp::now().to_zoned(log.zone.clone());
        let json = fields.json_line(&now, metadata);
        let mut line = match log.format {
            Format::Json => json.clone(),
            Format::Readable => fields.readable_line(&now, metadata),
        };
        line.push('\n');
        log.total.fetch_add(1, Ordering::Relaxed);
        if metadata.target() == STARTUP_WARNING {
            log.warnings.lock().push(json.clone());
        }
        {
            let mut ring = log.ring.lock();
            if ring.len() == LINES_MAX {
                ring.pop_front();
            }
            ring.push_back(json);
        }
        let mut out = log.out.lock();
        // A log that cannot be written has no other place to report it.
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

/// Returns the attributes of an event as one document, for its field `attr`.
pub fn attributes(write: impl FnOnce(&mut DocWriter<'_>)) -> String {
    ext_json::to_string(DocBuf::build(write).as_doc(), Mode::Relaxed)
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn logging(log: &Arc<Log>, act: impl FnOnce()) {
        let subscriber = tracing_subscriber::registry().with(LogLayer(log.clone()));
        tracing::subscriber::with_default(subscriber, act);
    }

    #[test]
    fn events_are_kept_as_json_lines() {
        let log = Log::new(Format::Readable, Zone::Local, Box::new(std::io::sink()));
        logging(&log, || {
            tracing::info!(port = 27_017, name = "a\"b", "ready");
            tracing::warn!(target: STARTUP_WARNING, id = 22_120, "access control is off");
            let attr = attributes(|out| {
                out.append("namespace", "a.b").begin_doc("options").finish();
            });
            tracing::info!(target: "STORAGE", id = 20_320, attr, "createCollection");
        });
        let (lines, total) = log.lines();
        assert_eq!(total, 3);
        assert!(lines[0].starts_with("{\"t\":{\"$date\":\""));
        assert!(
            lines[0].ends_with("\"msg\":\"ready\",\"attr\":{\"port\":27017,\"name\":\"a\\\"b\"}}")
        );
        assert!(lines[1].contains("\"s\":\"W\",  \"c\":\"CONTROL\",  \"id\":22120,   \"ctx\":"));
        assert!(lines[1].ends_with("\"tags\":[\"startupWarnings\"]}"));
        assert!(lines[2].contains("\"c\":\"STORAGE\",  \"id\":20320,   "), "{}", lines[2]);
        assert!(lines[2].ends_with(",\"attr\":{\"namespace\":\"a.b\",\"options\":{}}}"));
        assert_eq!(log.startup_warnings().len(), 1);
        log.clear();
        assert_eq!(log.lines().0.len(), 0);
    }

    #[test]
    fn the_last_lines_are_kept() {
        let log = Log::new(Format::Json, Zone::Utc, Box::new(std::io::sink()));
        logging(&log, || {
            for number in 0..LINES_MAX + 5 {
                tracing::info!(number, "event");
            }
        });
        let (lines, total) = log.lines();
        assert_eq!((lines.len(), total), (LINES_MAX, (LINES_MAX + 5) as u64));
        assert!(lines[0].contains("\"number\":5"));
    }

    #[test]
    fn a_component_says_as_much_as_its_level_allows() {
        let log = Log::new(Format::Json, Zone::Utc, Box::new(std::io::sink()));
        logging(&log, || {
            let speak = || {
                tracing::debug!(target: "STORAGE", "one");
                tracing::trace!(target: "STORAGE", "two");
                tracing::debug!(target: "NETWORK", "other");
            };
            let said = || {
                log.clear();
                speak();
                log.lines().0.len()
            };
            assert_eq!(said(), 0);
            log.set_levels(doc! { "verbosity": 0, "storage": { "verbosity": 1 } }.as_doc());
            assert_eq!(said(), 1);
            log.set_levels(doc! { "verbosity": 2, "network": { "verbosity": 0 } }.as_doc());
            assert_eq!(said(), 2);
            log.set_levels(doc! { "verbosity": 0 }.as_doc());
            assert_eq!(said(), 0);
        });
    }
}
