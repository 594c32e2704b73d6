//! The audit log: logins, rejected requests, and changes of users, roles and the catalogue.
//!
//! An event is a document with the layout of MongoDB's own schema:
//!
//! ```text
//! { atype, ts, uuid, local: { ip, port } | { unix } | { isSystemUser }, remote: …,
//!   users: [{ user, db }], roles: [{ role, db }], param: { … }, result: <code> }
//! ```
//!
//! It is written before the client gets its reply, as one line of JSON or as BSON, one document
//! after another. `filter`, in the query language, selects the events that are written. Without an
//! audit log each place that could raise an event costs one load.
//!
//! Source: manual "System Event Audit Messages".

pub(crate) mod actor;
pub(crate) mod administration;
pub(crate) mod catalog;

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use marula_bson::ext_json::{self, Mode};
use marula_bson::{Binary, ByteSlice, DocBuf, DocWriter, Value};
use marula_error::Result;
use marula_query::context::Context;
use marula_query::filter::Filter;
use parking_lot::Mutex;

use crate::log_file::{Earlier, LogFile};
use actor::Actor;

/// The format of the events in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A line for each event.
    Json,
    /// One document after another, as `bsondump` reads them.
    Bson,
}

/// The destination of events.
#[derive(Clone, Debug)]
pub enum Destination {
    /// Stdout, as JSON.
    Console,
    /// A file.
    File(LogFile, Format),
}

/// The options of an audit log.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// The destination.
    pub destination: Destination,
    /// Selects the events that are written; all without it.
    pub filter: Option<DocBuf>,
}

/// An audit log.
pub struct Audit {
    out: Mutex<Box<dyn Write + Send>>,
    file: Option<LogFile>,
    format: Format,
    filter: Option<Filter>,
    /// Whether permitted requests are written too.
    records_successes: AtomicBool,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Audit {
    /// Opens the log; events are appended to an existing file.
    ///
    /// Errors: one line with the cause.
    pub fn open(options: &AuditOptions) -> Result<Audit, String> {
        let parse = |filter: &DocBuf| {
            Filter::parse(filter.as_doc(), &Context::default())
                .map_err(|error| format!("auditLog.filter: {}", error.message()))
        };
        let filter = options.filter.as_ref().map(parse).transpose()?;
        let (out, file, format): (Box<dyn Write + Send>, _, _) = match &options.destination {
            Destination::Console => (Box::new(io::stdout()), None, Format::Json),
            Destination::File(file, format) => {
                let out: File = file.start(Earlier::Extended).map_err(|error| {
                    format!("cannot write audit log '{}': {error}", file.path.display())
                })?;
                (Box::new(out), Some(file.clone()), *format)
            }
        };
        let records_successes = AtomicBool::new(false);
        Ok(Audit { out: Mutex::new(out), file, format, filter, records_successes })
    }

    /// Sets whether permitted requests are written too: `auditAuthorizationSuccess`.
    pub(crate) fn set_records_successes(&self, records: bool) {
        self.records_successes.store(records, Ordering::Relaxed);
    }

    /// Returns whether permitted requests are written too.
    pub(crate) fn records_successes(&self) -> bool {
        self.records_successes.load(Ordering::Relaxed)
    }

    /// Rotates the file, if there is one, and writes the rotation as an event into the new one.
    ///
    /// Errors: those of [`LogFile::rotate`].
    pub(crate) fn rotate(&self, actor: &Actor) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let new = file.rotate()?;
        *self.out.lock() = Box::new(new);
        let path = file.path.display().to_string();
        self.write(actor, "rotateLog", 0, |param| {
            param.append("pid", i64::from(std::process::id()));
            let mut status = param.begin_doc("logRotationStatus");
            status.append("status", "OK").append("rotatedLogPath", path.as_str());
            status.begin_array("errors").finish();
        });
        Ok(())
    }

    /// Writes an event, if the filter matches it. `result` is an error's number, or 0.
    pub(crate) fn write(
        &self,
        actor: &Actor,
        kind: &str,
        result: i32,
        param: impl FnOnce(&mut DocWriter<'_>),
    ) {
        let now_ms = Timestamp::now().as_millisecond();
        let event = DocBuf::build(|out| {
            out.append("atype", kind).append("ts", Value::DateTime(now_ms));
            out.append("uuid", Binary { subtype: 4, bytes: &actor.uuid });
            actor.write(out);
            param(&mut out.begin_doc("param"));
            out.append("result", result);
        });
        // An event for which the filter fails is written: better one too many.
        let is_wanted = self
            .filter
            .as_ref()
            .is_none_or(|filter| filter.matches(event.as_doc()).unwrap_or(true));
        if !is_wanted {
            return;
        }
        let bytes = match self.format {
            Format::Bson => event.as_doc().as_bytes().to_vec(),
            Format::Json => json_line(&event, actor, now_ms).into_bytes(),
        };
        let mut out = self.out.lock();
        if let Err(error) = out.write_all(&bytes).and_then(|()| out.flush()) {
            tracing::error!(target: "ACCESS", %error, atype = kind, "an event could not be written to the audit log");
        }
    }
}

/// Returns the event as a line: relaxed extended JSON, except for the time and identity, which have
/// formats of their own here.
fn json_line(event: &DocBuf, actor: &Actor, now_ms: i64) -> String {
    let time = Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::UNIX_EPOCH);
    let zoned = time.to_zoned(jiff::tz::TimeZone::system());
    let mut line = String::from("{ ");
    for (at, field) in event.as_doc().iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let value = match field.name.as_bytes() {
            b"ts" => {
                format!("{{ \"$date\": \"{}\" }}", zoned.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z"))
            }
            b"uuid" => {
                let mut bytes = String::new();
                ext_json::base64::encode(&actor.uuid, &mut bytes);
                format!("{{ \"$binary\": \"{bytes}\", \"$type\": \"04\" }}")
            }
            _ => ext_json::value_to_string(field.value.get(), Mode::Relaxed),
        };
        line.push_str(&format!("{comma}\"{}\": {value}", field.name));
    }
    line.push_str(" }\n");
    line
}
