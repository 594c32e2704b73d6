//! An event as a line of the log.

use std::fmt::Write as _;

use jiff::Zoned;
use tracing::field::{Field, Visit};
use tracing::{Level, Metadata};

use super::components::Component;
use super::{STARTUP_WARNING, worker};

/// The ids of messages that MongoDB does not have start here; its own have up to seven digits.
const OWN_IDS: u32 = 80_000_000;

/// The fields of an event.
#[derive(Default)]
pub(super) struct Fields {
    message: String,
    id: Option<u64>,
    /// Names and JSON values.
    others: Vec<(&'static str, String)>,
    /// All attributes together, as JSON.
    attr: Option<String>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: String) {
        self.others.push((field.name(), value));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            _ => self.add(field, json_string(&text)),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            "attr" => self.attr = Some(value.to_owned()),
            _ => self.add(field, json_string(value)),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        match (field.name(), u64::try_from(value)) {
            ("id", Ok(id)) => self.id = Some(id),
            _ => self.add(field, value.to_string()),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "id" => self.id = Some(value),
            _ => self.add(field, value.to_string()),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.to_string());
    }
}

impl Fields {
    /// Returns the event as JSON, in columns as mongod writes them.
    pub(super) fn json_line(&self, now: &Zoned, metadata: &Metadata<'_>) -> String {
        let severity = match *metadata.level() {
            Level::ERROR => "E",
            Level::WARN => "W",
            Level::INFO => "I",
            Level::DEBUG => "D1",
            Level::TRACE => "D2",
        };
        let severity = format!("\"{severity}\",");
        let component = format!("\"{}\",", Component::of_target(metadata.target()).tag());
        let id = format!("{},", self.id(metadata.target()));
        let mut line = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            line,
            "{{\"t\":{{\"$date\":\"{}\"}},\"s\":{severity:<6}\"c\":{component:<12}\"id\":{id:<9}\"ctx\":{},\"msg\":{}",
            now.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z"),
            json_string(&worker::name()),
            json_string(&self.message),
        );
        match &self.attr {
            Some(attributes) => {
                line.push_str(",\"attr\":");
                line.push_str(attributes);
            }
            None if self.others.is_empty() => {}
            None => {
                line.push_str(",\"attr\":{");
                for (at, (name, value)) in self.others.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    let _ = write!(line, "{comma}{}:{value}", json_string(name));
                }
                line.push('}');
            }
        }
        if metadata.target() == STARTUP_WARNING {
            line.push_str(",\"tags\":[\"startupWarnings\"]");
        }
        line.push('}');
        line
    }

    /// Returns the event as a line for people.
    pub(super) fn readable_line(&self, now: &Zoned, metadata: &Metadata<'_>) -> String {
        let mut line = format!(
            "{} {:>5} {:<8} [{}] {}",
            now.strftime("%Y-%m-%d %H:%M:%S%.3f%:z"),
            metadata.level(),
            Component::of_target(metadata.target()).tag(),
            worker::name(),
            self.message
        );
        for (name, value) in &self.others {
            let _ = write!(line, " {name}={value}");
        }
        if let Some(attributes) = &self.attr {
            line.push(' ');
            line.push_str(attributes);
        }
        line
    }

    /// Returns MongoDB's id of the message, or one that is always the same for the same message.
    fn id(&self, target: &str) -> u64 {
        self.id.unwrap_or_else(|| {
            let bytes = target.bytes().chain(self.message.bytes());
            let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| {
                (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
            });
            u64::from(OWN_IDS + hash % 10_000_000)
        })
    }
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
