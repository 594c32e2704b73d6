//! Read concern and write concern: parsed and checked as mongod does.
//!
//! Source: manual "Read Concern", "Write Concern"; errors recorded from mongod 6.0.

use marula_bson::{BStr, ByteSlice, Doc, DocBuf, DocWriter, Element, Type, Value, ValueBuf};
use marula_error::{Error, Result, errors};
use marula_query::expression::saturated_long;
use marula_query::feature_version::FeatureVersion;
use marula_query::once::Once;

use crate::fields::{self, Field, Types};
use crate::row::{Command, ReadConcernLevels};

errors! {
    read_concern_type() = FailedToParse, "readConcern field should be an object";
    read_concern_level() = FailedToParse, "readConcern.level must be either 'local', 'majority', 'linearizable', 'available', or 'snapshot'";
    read_concern_option(name: &BStr) = InvalidOptions, "Unrecognized option in readConcern: {name}";
    wrong_type(field: &str, expected: &str, kind: &str) = TypeMismatch, "\"{field}\" had the wrong type. Expected {expected}, found {kind}";
    at_without_snapshot() = InvalidOptions, "atClusterTime field can be set only if level is equal to snapshot";
    after_not_allowed() = InvalidOptions, "afterClusterTime is not allowed for this command";
    after_and_at() = InvalidOptions, "afterClusterTime and atClusterTime cannot be specified together";
    after_level() = InvalidOptions, "afterClusterTime field can be set only if level is equal to majority, local, or snapshot";
    null_time(field: &str) = InvalidOptions, "{field} cannot be a null timestamp";
    level_not_supported(name: &str, concern: &str) = InvalidOptions, "Command {name} does not support {{ readConcern: {{ {concern}, provenance: \"clientSupplied\" }} }} :: caused by :: read concern not supported";
    snapshot_not_supported(name: &str, concern: &str) = InvalidOptions, "Command {name} does not support {{ readConcern: {{ {concern}, provenance: \"clientSupplied\" }} }} :: caused by :: read concern snapshot not supported";
    w_range(w: i64) = FailedToParse, "w has to be a non-negative number and not greater than 50; found: {w}";
    w_type(kind: &str) = FailedToParse, "w has to be a number, string, or object; found: {kind}";
    bad_provenance(value: &BStr, place: &str) = BadValue, "Enumeration value '{value}' for field '{place}.provenance' is not a valid value.";
    missing_expected(field: &str) = NoSuchKey, "Missing expected field \"{field}\"";
    w_tags_form(name: &BStr, value: &Value<'_>) = FailedToParse, "tags must be a single level document with only number values; found: {name}: {value}";
    w_no_tags() = FailedToParse, "tagged write concern requires tags";
    fsync_and_j() = FailedToParse, "fsync and j options cannot be used together";
    wtimeout_range() = FailedToParse, "wtimeout must be a 32-bit integer";
    not_enough_nodes() = UnsatisfiableWriteConcern, "Not enough data-bearing nodes";
    no_such_mode(mode: &BStr) = UnknownReplWriteConcern, "No write concern mode named '{mode}' found in replica set configuration";
    no_such_tag(tag: &BStr) = NoSuchKey, "No replica set tag key {tag} in config";
}

/// The maximum number of nodes in a write concern: that of members of a replica set.
const NODES_MAX: i64 = 50;

/// A read concern. One node reads its own newest committed data, which satisfies every level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadConcern {
    /// The level, if one is given.
    pub level: Option<ReadLevel>,
    /// Reads must include all writes up to this time.
    pub after_cluster_time: Option<u64>,
    /// Reads see exactly this time.
    pub at_cluster_time: Option<u64>,
}

/// A level of read concern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum ReadLevel {
    Local,
    Majority,
    Linearizable,
    Available,
    Snapshot,
}

impl ReadLevel {
    const NAMES: [(&'static str, ReadLevel); 5] = [
        ("local", ReadLevel::Local),
        ("majority", ReadLevel::Majority),
        ("linearizable", ReadLevel::Linearizable),
        ("available", ReadLevel::Available),
        ("snapshot", ReadLevel::Snapshot),
    ];

    /// Returns the level as it is written.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|row| row.1 == self).map_or("", |row| row.0)
    }
}

impl ReadConcern {
    /// Returns whether only the primary can satisfy it.
    pub fn is_linearizable(self) -> bool {
        self.level == Some(ReadLevel::Linearizable)
    }

    /// Reads the field `readConcern`.
    pub fn parse(value: Value<'_>) -> Result<Self> {
        let Value::Document(doc) = value else { return Err(read_concern_type()) };
        let mut concern = ReadConcern::default();
        let mut once = Once::of("ReadConcernArgs::parse");
        for Element { name, value } in doc {
            match (name.as_bytes(), value.get()) {
                // Of several levels the first counts.
                (b"level", _) if concern.level.is_some() => {}
                (b"level", Value::String(level)) => {
                    let row = ReadLevel::NAMES.iter().find(|row| level == row.0);
                    concern.level = Some(row.ok_or_else(read_concern_level)?.1);
                }
                (b"level", other) => {
                    return Err(wrong_type("level", "string", other.kind().alias()));
                }
                (b"afterClusterTime", Value::Timestamp(at)) => {
                    concern.after_cluster_time = Some(at)
                }
                (b"atClusterTime", Value::Timestamp(at)) => concern.at_cluster_time = Some(at),
                (b"afterClusterTime" | b"atClusterTime", other) => {
                    return Err(wrong_type(&name.to_string(), "timestamp", other.kind().alias()));
                }
                (b"provenance", value) => {
                    check_provenance("ReadConcernArgs::parse", value)?;
                    once.note(name)?;
                }
                (b"afterOpTime", value) => check_op_time(value)?,
                (b"$waitLastStableRecoveryTimestamp", _) => {}
                _ => return Err(read_concern_option(name)),
            }
        }
        let has_level = |levels: &[ReadLevel]| concern.level.is_some_and(|it| levels.contains(&it));
        if concern.after_cluster_time.is_some()
            && has_level(&[ReadLevel::Available, ReadLevel::Linearizable])
        {
            return Err(after_level());
        }
        if concern.after_cluster_time == Some(0) {
            return Err(null_time("afterClusterTime"));
        }
        if concern.at_cluster_time == Some(0) {
            return Err(null_time("atClusterTime"));
        }
        if concern.at_cluster_time.is_some() {
            if concern.after_cluster_time.is_some() {
                return Err(after_and_at());
            }
            if concern.level != Some(ReadLevel::Snapshot) {
                return Err(at_without_snapshot());
            }
        }
        Ok(concern)
    }

    /// Returns its fields as mongod's messages show them.
    pub fn shown(&self) -> String {
        let level = self.level.map(|level| format!("level: \"{}\"", level.name()));
        let time = |name: &str, time: Option<u64>| {
            time.map(|at| format!("{name}: {}", Value::Timestamp(at)))
        };
        let after = time("afterClusterTime", self.after_cluster_time);
        let at = time("atClusterTime", self.at_cluster_time);
        level.into_iter().chain(after).chain(at).collect::<Vec<_>>().join(", ")
    }

    /// Writes it as mongod shows a client's read concern, or the default.
    pub fn write(&self, out: &mut DocWriter<'_>) {
        if *self == ReadConcern::default() {
            out.append("level", "local").append("provenance", "implicitDefault");
            return;
        }
        if let Some(level) = self.level {
            out.append("level", level.name());
        }
        let times = [
            ("afterClusterTime", self.after_cluster_time),
            ("atClusterTime", self.at_cluster_time),
        ];
        for (name, time) in times {
            if let Some(time) = time {
                out.append(name, Value::Timestamp(time));
            }
        }
        out.append("provenance", "clientSupplied");
    }

    /// Checks that `command` permits this level.
    pub fn check(&self, command: &Command) -> Result<()> {
        self.check_level(command)?;
        match self.after_cluster_time {
            Some(_) if !command.takes_after_cluster_time => Err(after_not_allowed()),
            _ => Ok(()),
        }
    }

    fn check_level(&self, command: &Command) -> Result<()> {
        let level = match self.level {
            None | Some(ReadLevel::Local) => return Ok(()),
            Some(level) => level,
        };
        match (command.read_concern, level) {
            (ReadConcernLevels::Majority, ReadLevel::Snapshot) => {
                Err(snapshot_not_supported(command.name, &self.shown()))
            }
            (ReadConcernLevels::Local, _) => Err(level_not_supported(command.name, &self.shown())),
            _ => Ok(()),
        }
    }
}

/// The durability that a write must have before its reply is sent.
#[derive(Clone, Debug)]
pub struct WriteConcern {
    /// The number of nodes, or another condition on them.
    pub w: W,
    /// Whether the write must be on disk.
    pub j: bool,
    /// The timeout for other nodes, in milliseconds; there are none.
    pub wtimeout_ms: i32,
}

/// The `w` of a write concern.
#[derive(Clone, Debug)]
pub enum W {
    /// A number of nodes.
    Nodes(i64),
    /// A majority: the write is on disk.
    Majority,
    /// A mode of the replica set's configuration.
    Mode(ValueBuf),
    /// Numbers of nodes by tag.
    Tags(DocBuf),
}

const PLACE: &str = "WriteConcernOptions";
const FIELDS: &[Field] = &[
    Field::optional("w", Types::Any),
    Field::optional("j", Types::FLAG),
    Field::optional("fsync", Types::FLAG),
    Field::optional("wtimeout", Types::Any),
    Field::optional("wElectionId", Types::Any),
    Field::optional("wOpTime", Types::Any),
    Field::optional("getLastError", Types::Any),
    Field::optional("provenance", Types::STRING),
];

impl WriteConcern {
    /// Reads the field `writeConcern`.
    pub fn parse(value: Value<'_>) -> Result<Self> {
        let Value::Document(doc) = value else {
            return Err(wrong_type("writeConcern", "object", value.kind().alias()));
        };
        let mut concern = WriteConcern { w: W::Nodes(1), j: false, wtimeout_ms: 0 };
        let mut fsync = false;
        for (at, Element { name, value }) in doc.iter().enumerate() {
            let field = fields::check_read(FeatureVersion::V6_0, PLACE, FIELDS, name, value.get())?;
            fields::check_once(PLACE, field, Element { name, value }, doc.iter().take(at))?;
            match name.as_bytes() {
                b"w" => concern.w = W::parse(value.get())?,
                b"j" => concern.j = value.get().is_truthy(),
                b"fsync" => fsync = value.get().is_truthy(),
                b"provenance" => check_provenance(PLACE, value.get())?,
                b"wtimeout" => concern.wtimeout_ms = parse_wtimeout(value.get())?,
                _ => {}
            }
        }
        if fsync && concern.j {
            return Err(fsync_and_j());
        }
        concern.j |= fsync;
        Ok(concern)
    }

    /// Returns the client's write concern, or the default, as mongod's messages show it.
    pub fn shown(given: Option<Value<'_>>) -> DocBuf {
        DocBuf::build(|out| {
            let given = given.and_then(|given| given.as_doc());
            let (default, provenance) = match given {
                Some(_) => (Value::Int32(1), "clientSupplied"),
                None => (Value::String("majority".into()), "implicitDefault"),
            };
            let field = |name: &str| given.and_then(|given| given.get(name));
            out.append("w", field("w").unwrap_or(default));
            if let Some(j) = field("j") {
                out.append("j", j);
            }
            out.append("wtimeout", field("wtimeout").unwrap_or(Value::Int32(0)));
            out.append("provenance", provenance);
        })
    }

    /// Returns whether the reply waits until the write is on disk.
    pub fn wants_sync(&self) -> bool {
        self.j || matches!(self.w, W::Majority)
    }

    /// Returns whether the client does not want to know the result: `{ w: 0 }` without `j`.
    pub fn is_unacknowledged(&self) -> bool {
        !self.j && matches!(self.w, W::Nodes(0))
    }

    /// Returns the error for conditions that one node cannot satisfy.
    pub fn unsatisfied(&self) -> Option<Error> {
        match &self.w {
            W::Nodes(..=1) | W::Majority => None,
            W::Nodes(_) => Some(not_enough_nodes()),
            W::Mode(mode) => Some(no_such_mode(mode.get().as_str().unwrap_or_default())),
            W::Tags(tags) => {
                let first = tags.as_doc().iter().next();
                Some(no_such_tag(first.map_or("".into(), |tag| tag.name)))
            }
        }
    }

    /// Appends `writeConcernError` for `error`.
    pub fn write_error(&self, error: &Error, reply: &mut DocWriter<'_>) {
        let mut out = reply.begin_doc("writeConcernError");
        out.append("code", error.code().number());
        out.append("codeName", &*error.code().name());
        out.append("errmsg", error.message());
        let mut info = out.begin_doc("errInfo");
        let mut concern = info.begin_doc("writeConcern");
        match &self.w {
            #[allow(clippy::cast_possible_truncation)]
            W::Nodes(nodes) => concern.append("w", *nodes as i32),
            W::Majority => concern.append("w", "majority"),
            W::Mode(mode) => concern.append("w", mode),
            W::Tags(tags) => concern.append("w", tags),
        };
        if self.j {
            concern.append("j", true);
        }
        concern.append("wtimeout", self.wtimeout_ms);
        concern.append("provenance", "clientSupplied");
    }
}

/// Checks the origin of a concern, which servers add and a client may repeat.
fn check_provenance(place: &str, value: Value<'_>) -> Result<()> {
    const PROVENANCES: [&str; 4] =
        ["clientSupplied", "implicitDefault", "customDefault", "getLastErrorDefaults"];
    match value {
        Value::String(given) if PROVENANCES.iter().any(|known| given == *known) => Ok(()),
        Value::String(given) => Err(bad_provenance(given, place)),
        Value::Null | Value::Undefined => Ok(()),
        other => {
            let kind = other.kind().alias();
            Err(fields::wrong_type(place, "provenance".into(), kind, "type 'string'"))
        }
    }
}

/// Checks a time that reads wait for, as members of a set send it.
fn check_op_time(value: Value<'_>) -> Result<()> {
    match value {
        Value::Document(time) => match time.get_raw(b"ts") {
            Some(_) => Ok(()),
            None => Err(missing_expected("ts")),
        },
        other => Err(wrong_type("afterOpTime", "object", other.kind().alias())),
    }
}

impl W {
    fn parse(value: Value<'_>) -> Result<W> {
        match value {
            Value::String(mode) if mode == "majority" => Ok(W::Majority),
            Value::String(_) => Ok(W::Mode(value.to_buf())),
            Value::Null | Value::Undefined => Ok(W::Mode(ValueBuf::from(""))),
            Value::Document(tags) if tags == Doc::EMPTY => Err(w_no_tags()),
            Value::Document(tags) => {
                if let Some(tag) = tags.iter().find(|tag| !tag.value.kind().is_number()) {
                    return Err(w_tags_form(tag.name, &tag.value.get()));
                }
                Ok(W::Tags(tags.to_buf()))
            }
            number => {
                let w = saturated_long(number).ok_or_else(|| w_type(number.kind().alias()))?;
                match w {
                    0..=NODES_MAX => Ok(W::Nodes(w)),
                    _ => Err(w_range(w)),
                }
            }
        }
    }
}

/// A `wtimeout` that is not a number is ignored, as in mongod.
fn parse_wtimeout(value: Value<'_>) -> Result<i32> {
    debug_assert_eq!(Type::Int32.alias(), "int");
    let Some(ms) = value.as_f64() else { return Ok(0) };
    // Negative values mean no timeout.
    #[allow(clippy::cast_possible_truncation)]
    i32::try_from((ms as i64).max(i64::from(i32::MIN))).map_err(|_| wtimeout_range())
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;

    use super::*;

    fn check_write(concern: DocBuf, expected: Result<bool, &str>) {
        let outcome = WriteConcern::parse(Value::Document(concern.as_doc()));
        let outcome = outcome.map(|concern| concern.wants_sync());
        assert_eq!(
            outcome.as_ref().map_err(|error| error.message()),
            expected.as_ref().map_err(|text| *text)
        );
    }

    #[test]
    fn write_concerns_are_checked() {
        check_write(doc! {}, Ok(false));
        check_write(doc! { "w": "majority" }, Ok(true));
        check_write(doc! { "w": 1, "j": true }, Ok(true));
        check_write(doc! { "fsync": true }, Ok(true));
        check_write(doc! { "w": 1.5 }, Ok(false));
        check_write(
            doc! { "w": -1 },
            Err("w has to be a non-negative number and not greater than 50; found: -1"),
        );
        check_write(
            doc! { "w": 51 },
            Err("w has to be a non-negative number and not greater than 50; found: 51"),
        );
        check_write(doc! { "w": {} }, Err("tagged write concern requires tags"));
        check_write(doc! { "w": [] }, Err("w has to be a number, string, or object; found: array"));
        check_write(
            doc! { "j": true, "fsync": true },
            Err("fsync and j options cannot be used together"),
        );
        check_write(
            doc! { "x": 1 },
            Err("BSON field 'WriteConcernOptions.x' is an unknown field."),
        );
        check_write(doc! { "wtimeout": 1_i64 << 40 }, Err("wtimeout must be a 32-bit integer"));
    }

    fn check_read(concern: DocBuf, expected: Result<(), &str>) {
        let outcome = ReadConcern::parse(Value::Document(concern.as_doc())).map(|_| ());
        assert_eq!(
            outcome.as_ref().map_err(|error| error.message()),
            expected.as_ref().map_err(|text| *text)
        );
    }

    #[test]
    fn read_concerns_are_checked() {
        check_read(doc! {}, Ok(()));
        check_read(doc! { "level": "majority", "afterClusterTime": Value::Timestamp(1) }, Ok(()));
        check_read(
            doc! { "level": 5 },
            Err("\"level\" had the wrong type. Expected string, found int"),
        );
        check_read(doc! { "x": 5 }, Err("Unrecognized option in readConcern: x"));
        check_read(
            doc! { "atClusterTime": Value::Timestamp(1) },
            Err("atClusterTime field can be set only if level is equal to snapshot"),
        );
        let bad_level = "readConcern.level must be either 'local', 'majority', 'linearizable', 'available', or 'snapshot'";
        check_read(doc! { "level": "x" }, Err(bad_level));
    }
}
