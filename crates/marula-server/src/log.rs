//! The log: where events go, and the last of them for `getLog`.
//!
//! A [`Log`] is a layer of `tracing`. It writes each event as one line, readable or as JSON in the
//! shape of MongoDB's structured log, and keeps the last lines in memory.
//! Source of the shape: manual "Log Messages".

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::{Timestamp, Zoned, tz::TimeZone};
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The lines that `getLog` has.
const LINES_MAX: usize = 1024;

/// How lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// For eyes.
    Readable,
    /// For programs: a JSON document each, in the shape of MongoDB's log.
    Json,
}

/// Where events go.
pub struct Log {
    format: Format,
    out: Mutex<Box<dyn Write + Send>>,
    ring: Mutex<VecDeque<String>>,
    total: AtomicU64,
    warnings: Mutex<Vec<String>>,
}

impl Log {
    /// A log that writes to `out`.
    pub fn new(format: Format, out: Box<dyn Write + Send>) -> Arc<Self> {
        Arc::new(Log {
            format,
            out: Mutex::new(out),
            ring: Mutex::new(VecDeque::new()),
            total: AtomicU64::new(0),
            warnings: Mutex::new(Vec::new()),
        })
    }

    /// Goes on writing to `out`, such as after the file was moved away.
    pub fn reopen(&self, out: Box<dyn Write + Send>) {
        *self.out.lock() = out;
    }

    /// The last lines, as JSON, and how many there were since the start.
    pub fn lines(&self) -> (Vec<String>, u64) {
        (self.ring.lock().iter().cloned().collect(), self.total.load(Ordering::Relaxed))
    }

    /// The warnings about how the server was started, as JSON lines.
    pub fn startup_warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }

    /// Forgets the lines that are kept.
    pub fn clear(&self) {
        self.ring.lock().clear();
    }
}

/// The layer itself, which shares the [`Log`] with the server.
pub struct LogLayer(pub Arc<Log>);

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let now = Timestamp::now().to_zoned(TimeZone::system());
        let json = json_line(&now, *metadata.level(), metadata.target(), &fields);
        let log = &*self.0;
        let line = match log.format {
            Format::Json => json.clone(),
            Format::Readable => readable_line(&now, *metadata.level(), &fields),
        };
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
        // There is nobody to tell that the log cannot be written.
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n"));
        let _ = out.flush();
    }
}

/// The target of events that `getLog: "startupWarnings"` shows.
pub const STARTUP_WARNING: &str = "startup_warning";

/// The target of events that tell of a slow operation.
pub const SLOW_QUERY: &str = "slow_query";

/// The target of events that tell of a slow transaction.
pub const SLOW_TRANSACTION: &str = "slow_transaction";

/// MongoDB's numbers of these messages, by which programs find them.
const SLOW_QUERY_ID: u32 = 51_803;
const SLOW_TRANSACTION_ID: u32 = 51_802;

#[derive(Default)]
struct Fields {
    message: String,
    /// Names and JSON values.
    others: Vec<(&'static str, String)>,
    /// All attributes at once, as JSON: of [`SLOW_QUERY`].
    json: Option<String>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            name => self.others.push((name, json_string(&text))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            "json" => self.json = Some(value.to_owned()),
            name => self.others.push((name, json_string(value))),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.others.push((field.name(), value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.others.push((field.name(), value.to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.others.push((field.name(), value.to_string()));
    }
}

fn json_line(now: &Zoned, level: Level, target: &str, fields: &Fields) -> String {
    let severity = match level {
        Level::ERROR => "E",
        Level::WARN => "W",
        Level::INFO => "I",
        Level::DEBUG => "D1",
        Level::TRACE => "D2",
    };
    let thread = std::thread::current();
    let mut line = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        line,
        "{{\"t\":{{\"$date\":\"{}\"}},\"s\":\"{severity}\",\"c\":\"{}\",\"id\":{},\"ctx\":{},\"msg\":{}",
        now.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z"),
        component(target),
        message_id(target, &fields.message),
        json_string(thread.name().unwrap_or("main")),
        json_string(&fields.message),
    );
    if !fields.others.is_empty() {
        line.push_str(",\"attr\":{");
        for (at, (name, value)) in fields.others.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(line, "{comma}{}:{value}", json_string(name));
        }
        line.push('}');
    }
    if let Some(json) = &fields.json {
        line.push_str(",\"attr\":");
        line.push_str(json);
    }
    line.push('}');
    line
}

fn readable_line(now: &Zoned, level: Level, fields: &Fields) -> String {
    let mut line =
        format!("{} {level:>5} {}", now.strftime("%Y-%m-%d %H:%M:%S%.3f"), fields.message);
    for (name, value) in &fields.others {
        let _ = write!(line, " {name}={value}");
    }
    if let Some(json) = &fields.json {
        line.push(' ');
        line.push_str(json);
    }
    line
}

/// The component of MongoDB's log that an event belongs to, by the module that raised it.
fn component(target: &str) -> &'static str {
    match target {
        STARTUP_WARNING => "CONTROL",
        SLOW_QUERY => "COMMAND",
        SLOW_TRANSACTION => "TXN",
        _ if target.contains("::net") || target.contains("hello") => "NETWORK",
        _ if target.contains("::command") => "COMMAND",
        _ if target.starts_with("marula_embedded") || target.starts_with("marula_storage") => {
            "STORAGE"
        }
        _ if target.starts_with("marula_db") => "STORAGE",
        _ if target.starts_with("marula_plan") => "QUERY",
        _ => "CONTROL",
    }
}

/// A number that stays the same for the same message, as programs that read MongoDB's log expect.
fn message_id(target: &str, message: &str) -> u32 {
    if target == SLOW_QUERY {
        return SLOW_QUERY_ID;
    }
    if target == SLOW_TRANSACTION {
        return SLOW_TRANSACTION_ID;
    }
    let bytes = target.bytes().chain(message.bytes());
    let hash = bytes
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    // MongoDB's own ids have up to seven digits; these have eight.
    80_000_000 + hash % 10_000_000
}

fn json_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn events_are_kept_as_json_lines() {
        let log = Log::new(Format::Readable, Box::new(std::io::sink()));
        let subscriber = tracing_subscriber::registry().with(LogLayer(log.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(port = 27_017, name = "a\"b", "ready");
            tracing::warn!(target: STARTUP_WARNING, "access control is off");
        });
        let (lines, total) = log.lines();
        assert_eq!(total, 2);
        assert!(lines[0].starts_with("{\"t\":{\"$date\":\""));
        assert!(
            lines[0].ends_with("\"msg\":\"ready\",\"attr\":{\"port\":27017,\"name\":\"a\\\"b\"}}")
        );
        assert_eq!(log.startup_warnings().len(), 1);
        log.clear();
        assert_eq!(log.lines().0.len(), 0);
    }

    #[test]
    fn the_last_lines_are_kept() {
        let log = Log::new(Format::Json, Box::new(std::io::sink()));
        let subscriber = tracing_subscriber::registry().with(LogLayer(log.clone()));
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..LINES_MAX + 5 {
                tracing::info!(number, "event");
            }
        });
        let (lines, total) = log.lines();
        assert_eq!((lines.len(), total), (LINES_MAX, (LINES_MAX + 5) as u64));
        assert!(lines[0].contains("\"number\":5"));
    }
}
