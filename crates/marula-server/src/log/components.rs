//! The components of the log, and their verbosity: `logComponentVerbosity`.
//!
//! The components are mongod's, including those of parts that this server does not have: their
//! levels are stored and shown. A component without its own level has that of its parent.
//!
//! Source: manual "Log Messages"; components and errors recorded from mongod 6.0.

use marula_bson::{ByteSlice, Doc, DocBuf, DocWriter, Value};
use marula_error::{Result, errors};
use tracing::Level;
use tracing::level_filters::LevelFilter;

use super::STARTUP_WARNING;

errors! {
    /// The value is not a document.
    pub not_a_document(value: &Value<'_>) = TypeMismatch, "log component verbosity is not a BSON object: logComponentVerbosity: {value}";
    level_type(place: &str, kind: &str) = BadValue, "Expected {place}.verbosity to be a number, but found {kind}";
    part_type(kind: &str, place: &str, name: &str) = BadValue, "Invalid type {kind}for component {place}.{name}";
    unknown_part(place: &str, name: &str) = BadValue, "Invalid component name {place}.{name}";
}

/// The maximum level.
pub(crate) const LEVEL_MAX: i32 = 5;

/// A component and its children.
struct Part {
    name: &'static str,
    parts: &'static [Part],
}

const fn one(name: &'static str) -> Part {
    of(name, &[])
}

const fn of(name: &'static str, parts: &'static [Part]) -> Part {
    Part { name, parts }
}

/// A component that this server uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Component(usize);

/// The tags in lines, the names of the components, and the modules that belong to them by default.
/// If two modules fit, the first row counts.
const LOGGED: &[(&str, &str, &[&str])] = &[
    ("ACCESS", "accessControl", &["marula_server::auth"]),
    ("NETWORK", "network", &["marula_server::net"]),
    ("COMMAND", "command", &["marula_server::command"]),
    ("TXN", "transaction", &["marula_server::transactions"]),
    ("REPL", "replication", &["marula_server::replica_set", "marula_server::oplog_keeper"]),
    ("INDEX", "index", &["marula_server::ttl", "marula_db::catalog::indexes"]),
    ("RECOVERY", "storage.recovery", &["marula_embedded::loss"]),
    ("JOURNAL", "storage.journal", &["marula_embedded::sync"]),
    ("STORAGE", "storage", &["marula_embedded", "marula_storage", "marula_db"]),
    ("QUERY", "query", &["marula_plan", "marula_query"]),
    ("WRITE", "write", &[]),
    ("CONTROL", "control", &[""]),
];

impl Component {
    /// Returns the component of an event: its target is a tag, or the module that raised it.
    pub(super) fn of_target(target: &str) -> Self {
        let target = if target == STARTUP_WARNING { "CONTROL" } else { target };
        let by_tag = LOGGED.iter().position(|(tag, ..)| *tag == target);
        let by_module = || {
            let fits = |modules: &[&str]| modules.iter().any(|module| target.starts_with(module));
            LOGGED.iter().position(|(.., modules)| fits(modules))
        };
        Component(by_tag.or_else(by_module).unwrap_or(LOGGED.len() - 1))
    }

    /// Returns its name in lines.
    pub(super) fn tag(self) -> &'static str {
        LOGGED[self.0].0
    }
}

/// The levels of the components.
#[derive(Default)]
pub(super) struct Levels([i32; LOGGED.len()]);

impl Levels {
    /// Returns the levels of a value of `logComponentVerbosity`.
    pub(super) fn of(verbosity: Doc<'_>) -> Self {
        let mut levels = Levels::default();
        for (found, (_, path, _)) in levels.0.iter_mut().zip(LOGGED) {
            let own = |doc: Doc<'_>| doc.get("verbosity").and_then(level).filter(|own| *own >= 0);
            *found = own(verbosity).unwrap_or(0);
            let mut place = Some(verbosity);
            for name in path.split('.') {
                place = place.and_then(|place| place.get(name)?.as_doc());
                *found = place.and_then(own).unwrap_or(*found);
            }
        }
        levels
    }

    /// Returns whether a component logs events of this level.
    pub(super) fn allow(&self, Component(at): Component, level: Level) -> bool {
        level <= filter(self.0[at])
    }

    /// Returns the maximum level of any component.
    pub(super) fn most(&self) -> LevelFilter {
        filter(self.0.iter().copied().max().unwrap_or(0))
    }
}

fn filter(level: i32) -> LevelFilter {
    match level {
        ..=0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// The whole log, with its name in messages.
const ROOT: Part = of(
    "default",
    &[
        one("accessControl"),
        one("assert"),
        one("command"),
        one("control"),
        one("executor"),
        one("geo"),
        one("index"),
        of("network", &[one("asio"), one("bridge"), one("connectionPool")]),
        one("processHealth"),
        one("query"),
        one("queryStats"),
        of(
            "replication",
            &[one("election"), one("heartbeats"), one("initialSync"), one("rollback")],
        ),
        of(
            "sharding",
            &[
                one("rangeDeleter"),
                one("shardingCatalogRefresh"),
                one("migration"),
                one("reshard"),
                one("migrationPerf"),
            ],
        ),
        of(
            "storage",
            &[
                one("recovery"),
                one("journal"),
                of(
                    "wt",
                    &[
                        one("wtBackup"),
                        one("wtCheckpoint"),
                        one("wtCompact"),
                        one("wtEviction"),
                        one("wtHS"),
                        one("wtRecovery"),
                        one("wtRTS"),
                        one("wtSalvage"),
                        one("wtTiered"),
                        one("wtTimestamp"),
                        one("wtTransaction"),
                        one("wtVerify"),
                        one("wtWriteLog"),
                    ],
                ),
            ],
        ),
        one("write"),
        one("ftdc"),
        one("tracking"),
        one("transaction"),
        one("tenantMigration"),
        one("test"),
    ],
);

/// Returns the initial levels.
pub(crate) fn initial() -> DocBuf {
    DocBuf::build(|out| ROOT.write(Doc::EMPTY, Doc::EMPTY, "", out))
}

/// Returns the levels after `change`.
///
/// Errors: this module's rows.
pub(crate) fn changed(current: Doc<'_>, change: Value<'_>) -> Result<DocBuf> {
    let (Value::Document(change) | Value::Array(change)) = change else {
        return Err(not_a_document(&change));
    };
    ROOT.check(change, ROOT.name)?;
    Ok(DocBuf::build(|out| ROOT.write(current, change, "", out)))
}

/// Returns a level as an int, converted as in mongod: the lower half of a long, the minimum for
/// values that do not fit.
pub(crate) fn level(number: Value<'_>) -> Option<i32> {
    #[allow(clippy::cast_possible_truncation)]
    match number {
        Value::Int32(number) => Some(number),
        Value::Int64(number) => Some(number as i32),
        _ if !number.kind().is_number() => None,
        _ => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            let is_int = number.abs() < f64::from(i32::MAX);
            Some(if is_int { number as i32 } else { i32::MIN })
        }
    }
}

impl Part {
    fn check(&self, change: Doc<'_>, place: &str) -> Result<()> {
        for element in change {
            let value = element.value.get();
            if element.name == "verbosity" {
                if !value.kind().is_number() {
                    return Err(level_type(place, value.kind().alias()));
                }
                continue;
            }
            let name = element.name.to_str_lossy();
            let part = self.parts.iter().find(|part| part.name == name);
            let part = part.ok_or_else(|| unknown_part(place, &name))?;
            match value {
                Value::Document(inner) if place == ROOT.name => part.check(inner, part.name)?,
                Value::Document(inner) => part.check(inner, &format!("{place}.{name}"))?,
                number if number.kind().is_number() => {}
                other => return Err(part_type(other.kind().alias(), place, &name)),
            }
        }
        Ok(())
    }

    fn write(&self, current: Doc<'_>, change: Doc<'_>, name: &str, out: &mut DocWriter<'_>) {
        // The whole log has a level; its components may inherit theirs.
        let least = if name.is_empty() { 0 } else { -1 };
        let new = change.get("verbosity").and_then(level);
        let level = match new {
            Some(level) => level.clamp(least, LEVEL_MAX),
            None => current.get("verbosity").and_then(level).unwrap_or(least),
        };
        out.append("verbosity", level);
        for part in self.parts {
            let inner = |of: Doc<'_>| of.get(part.name).map(|value| value.to_buf());
            let current = inner(current);
            let current = current.as_ref().and_then(|it| it.get().as_doc()).unwrap_or(Doc::EMPTY);
            let change = match inner(change).as_ref().map(|value| value.get()) {
                Some(Value::Document(change)) => change.to_buf(),
                Some(number) => marula_bson::doc! { "verbosity": number },
                None => DocBuf::new(),
            };
            part.write(current, change.as_doc(), part.name, &mut out.begin_doc(part.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;

    use super::*;

    #[test]
    fn events_belong_to_the_component_of_their_tag_or_module() {
        for (target, tag) in [
            ("STORAGE", "STORAGE"),
            (STARTUP_WARNING, "CONTROL"),
            ("marula_server::net::worker::turn", "NETWORK"),
            ("marula_server::command::sasl", "COMMAND"),
            ("marula_embedded::sync", "JOURNAL"),
            ("marula_embedded::engine", "STORAGE"),
            ("marula", "CONTROL"),
            ("elsewhere", "CONTROL"),
        ] {
            assert_eq!(Component::of_target(target).tag(), tag, "{target}");
        }
    }

    #[test]
    fn a_component_without_a_level_goes_with_what_it_is_part_of() {
        let change = doc! { "verbosity": 1, "storage": { "verbosity": 2, "journal": 0 } };
        let whole = changed(initial().as_doc(), Value::Document(change.as_doc())).unwrap();
        let levels = Levels::of(whole.as_doc());
        let of = |tag: &str| levels.0[Component::of_target(tag).0];
        assert_eq!(["NETWORK", "STORAGE", "RECOVERY", "JOURNAL"].map(of), [1, 2, 2, 0]);
        assert_eq!(levels.most(), LevelFilter::TRACE);
    }

    #[test]
    fn levels_are_changed_where_they_are_named() {
        let whole = changed(initial().as_doc(), Value::Document(
            doc! { "verbosity": 9, "query": { "verbosity": -7 }, "storage": { "journal": 2.9 } }.as_doc(),
        ));
        let whole = whole.unwrap();
        let whole = whole.as_doc();
        let of = |name: &str| whole.get(name).unwrap().as_doc().unwrap();
        assert_eq!(whole.get("verbosity"), Some(Value::Int32(5)));
        assert_eq!(of("query").get("verbosity"), Some(Value::Int32(-1)));
        let journal = of("storage").get("journal").unwrap().as_doc().unwrap();
        assert_eq!(journal.get("verbosity"), Some(Value::Int32(2)));
        let wrong = doc! { "storage": { "x": 1 } };
        let error = changed(whole, Value::Document(wrong.as_doc())).unwrap_err();
        assert_eq!(error.message(), "Invalid component name storage.x");
    }
}
