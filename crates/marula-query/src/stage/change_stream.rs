//! `$changeStream`: which changes are followed, and how they are shown.
//!
//! The stage describes the stream in a [`ChangeStream`]; the caller that runs the pipeline reads
//! the oplog and gives its documents, the *events*, to the stage as its input. The stages permitted
//! after it change or drop single events. Source: manual "$changeStream (aggregation)"; errors
//! recorded from mongod 6.0.

use std::sync::Arc;

use bstr::ByteSlice;
use marula_bson::{Doc, DocBuf, Value, ValueBuf};
use marula_error::{Result, errors};

use super::{Env, Kind, Parser, Source, Stage, StagePlace, StageRow};
use crate::context::Subject;
use crate::expression::print;
use crate::feature_version::FeatureVersion;
use crate::once::unknown_field;

pub(super) const ROW: StageRow = StageRow {
    name: "$changeStream",
    since: FeatureVersion::V6_0,
    place: StagePlace::First,
    parse,
};

errors! {
    not_object(text: &str) = 6188500, "$changeStream must take a nested object but found: {text}";
    wrong_type(name: &str, kind: &str, expected: &str) = TypeMismatch, "BSON field '$changeStream.{name}' is the wrong type '{kind}', expected type '{expected}'";
    not_boolean(name: &str, kind: &str) = TypeMismatch, "Field '{name}' should be a boolean value, but found: {kind}";
    unknown_value(value: &str, name: &str) = BadValue, "Enumeration value '{value}' for field '$changeStream.{name}' is not a valid value.";
    bad_token(text: &str) = 40647, "Bad resume token: _data of missing or of wrong type. Expected string, got {text}";
    two_tokens() = 50865, "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream stage";
    several_starts() = 40674, "Only one type of resume option is allowed, but multiple were found";
    not_here(ns: &str) = InvalidOptions, "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' database, and with no collection name; found {ns}";
    internal_database(name: &str) = InvalidNamespace, "$changeStream may not be opened on the internal {name} database";
    internal_collection(ns: &str) = InvalidNamespace, "$changeStream may not be opened on the internal {ns} collection";
    /// A later stage reads more than one event at a time, or writes.
    pub(super) not_permitted(stage: &str) = IllegalOperation, "{stage} is not permitted in a $changeStream pipeline";
}

/// The stages permitted after a `$changeStream`.
const PERMITTED: &[&str] = &[
    "$addFields",
    "$changeStream",
    super::split_event::NAME,
    "$match",
    "$project",
    "$redact",
    "$replaceRoot",
    "$replaceWith",
    "$set",
    "$unset",
];

/// Returns whether a stage is permitted after a `$changeStream`.
pub(super) fn permits(stage: &str) -> bool {
    PERMITTED.contains(&stage)
}

/// The state of the document that an event shows in addition to the change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Shows {
    /// No state.
    #[default]
    Nothing,
    /// The current state.
    Present,
    /// The state at the change, if it was stored.
    WhenAvailable,
    /// The state at the change; an error if it was not stored.
    Required,
}

/// The position at which a stream begins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Start {
    /// The next change.
    #[default]
    Now,
    /// The changes of this time.
    At(u64),
    /// After the event with this token, which must not be the end of a stream.
    Resume(String),
    /// After the event with this token.
    After(String),
}

/// A parsed stage.
#[derive(Clone, Debug, Default)]
pub struct ChangeStream {
    /// The state of the document that an update event shows.
    pub full_document: Shows,
    /// The state before the change that an event shows.
    pub before_change: Shows,
    /// The position at which the stream begins.
    pub start: Start,
    /// Whether the stream follows all databases.
    pub is_of_cluster: bool,
    /// Whether changes of the catalogue are shown, and events have more fields.
    pub is_expanded: bool,
    /// Whether updates tell the names of fields from the numbers of elements.
    pub disambiguates_paths: bool,
    /// Whether changes of the server's own collections are shown.
    pub shows_system: bool,
    /// Whether an update is shown in the form of the oplog.
    pub is_raw: bool,
    argument: DocBuf,
}

/// Returns the argument, which is a document.
pub(super) fn read(value: Value<'_>) -> Result<Doc<'_>> {
    value.as_doc().ok_or_else(|| not_object(&format!("$changeStream: {}", print::element(value))))
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let spec = read(value)?;
    let mut stream = ChangeStream { argument: spec.to_buf(), ..ChangeStream::default() };
    let (mut resume, mut after, mut at) = (None, None, None);
    for element in spec {
        let (name, value) = (element.name.to_str_lossy(), element.value.get());
        match &*name {
            "fullDocument" => stream.full_document = word(&name, value, FULL_DOCUMENT)?,
            "fullDocumentBeforeChange" => {
                stream.before_change = word(&name, value, BEFORE_CHANGE)?;
            }
            "resumeAfter" => resume = Some(token(&name, value)?),
            "startAfter" => after = Some(token(&name, value)?),
            "startAtOperationTime" => match value {
                Value::Timestamp(time) => at = Some(time),
                _ => return Err(wrong_type(&name, value.kind().alias(), "timestamp")),
            },
            "allChangesForCluster" => stream.is_of_cluster = flag(&name, value)?,
            "showExpandedEvents" => stream.is_expanded = flag(&name, value)?,
            "showSystemEvents" => stream.shows_system = flag(&name, value)?,
            "showRawUpdateDescription" => stream.is_raw = flag(&name, value)?,
            "allowToRunOnConfigDB" | "showMigrationEvents" => drop(flag(&name, value)?),
            _ => return Err(unknown_field("$changeStream", element.name)),
        }
    }
    stream.start = match (resume, after, at) {
        (None, None, None) => Start::Now,
        (None, None, Some(time)) => Start::At(time),
        (Some(_), Some(_), _) => return Err(two_tokens()),
        (Some(_), _, Some(_)) | (_, Some(_), Some(_)) => return Err(several_starts()),
        (Some(token), ..) => Start::Resume(token),
        (_, Some(token), _) => Start::After(token),
    };
    stream.disambiguates_paths =
        stream.is_expanded && parser.context.version >= FeatureVersion::V7_0;
    if let Some(subject) = &parser.context.subject {
        stream.check_subject(subject)?;
    }
    parser.push(stream);
    Ok(())
}

/// The values of `fullDocument`.
const FULL_DOCUMENT: &[(&str, Shows)] = &[
    ("default", Shows::Nothing),
    ("updateLookup", Shows::Present),
    ("whenAvailable", Shows::WhenAvailable),
    ("required", Shows::Required),
];
/// The values of `fullDocumentBeforeChange`.
const BEFORE_CHANGE: &[(&str, Shows)] = &[
    ("off", Shows::Nothing),
    ("whenAvailable", Shows::WhenAvailable),
    ("required", Shows::Required),
];

fn word(name: &str, value: Value<'_>, known: &[(&str, Shows)]) -> Result<Shows> {
    let Value::String(word) = value else {
        return Err(wrong_type(name, value.kind().alias(), "string"));
    };
    let found = known.iter().find(|(known, _)| *word == *known);
    found.map(|(_, shows)| *shows).ok_or_else(|| unknown_value(&word.to_str_lossy(), name))
}

fn flag(name: &str, value: Value<'_>) -> Result<bool> {
    match value {
        Value::Boolean(flag) => Ok(flag),
        _ => Err(not_boolean(name, value.kind().alias())),
    }
}

/// Reads a resume token: a document with its content as a string.
fn token(name: &str, value: Value<'_>) -> Result<String> {
    let Value::Document(token) = value else {
        return Err(wrong_type(name, value.kind().alias(), "object"));
    };
    match token.get("_data") {
        Some(Value::String(data)) => Ok(data.to_string()),
        _ => Err(bad_token(&print::value(value))),
    }
}

impl ChangeStream {
    /// Returns the token after which the stream resumes.
    pub fn resumed(&self) -> Option<&str> {
        match &self.start {
            Start::Resume(token) | Start::After(token) => Some(token),
            Start::Now | Start::At(_) => None,
        }
    }

    fn check_subject(&self, subject: &Subject) -> Result<()> {
        let Subject { database, collection } = subject;
        if self.is_of_cluster {
            if database == "admin" && collection.is_none() {
                return Ok(());
            }
            let collection = collection.as_deref().unwrap_or("$cmd.aggregate");
            return Err(not_here(&format!("{database}.{collection}")));
        }
        if matches!(database.as_str(), "admin" | "config" | "local") {
            return Err(internal_database(database));
        }
        match collection {
            Some(name) if name.starts_with("system.") && !self.shows_system => {
                Err(internal_collection(&format!("{database}.{name}")))
            }
            _ => Ok(()),
        }
    }
}

impl Stage for ChangeStream {
    fn name(&self) -> &'static str {
        ROW.name
    }

    fn print(&self) -> ValueBuf {
        Value::Document(self.argument.as_doc()).to_buf()
    }

    fn kind(&self) -> Kind<'_> {
        Kind::ChangeStream(self)
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, _: &Env) -> Result<Box<dyn Source>> {
        Ok(input)
    }
}
