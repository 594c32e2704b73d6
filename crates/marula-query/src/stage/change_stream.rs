//! `$changeStream`: its arguments are read and checked; there is no log of changes that it could
//! follow.

use bstr::ByteSlice;
use marula_bson::{Doc, Type, Value};
use marula_error::{Result, errors};

use super::{Parser, Place, Row};
use crate::expression::print;
use crate::feature_version::FeatureVersion;

pub(super) const ROW: Row =
    Row { name: "$changeStream", since: FeatureVersion::V6_0, place: Place::First, parse };

errors! {
    not_object(text: &str) = 6188500, "$changeStream must take a nested object but found: {text}";
    unknown_field(name: &str) = IDLUnknownField, "BSON field '$changeStream.{name}' is an unknown field.";
    wrong_type(name: &str, kind: &str, expected: &str) = TypeMismatch, "BSON field '$changeStream.{name}' is the wrong type '{kind}', expected type '{expected}'";
    not_boolean(name: &str, kind: &str) = TypeMismatch, "Field '{name}' should be a boolean value, but found: {kind}";
    unknown_value(value: &str, name: &str) = BadValue, "Enumeration value '{value}' for field '$changeStream.{name}' is not a valid value.";
    bad_token(text: &str) = 40647, "Bad resume token: _data of missing or of wrong type. Expected string, got {text}";
    no_replica_set() = 40573, "The $changeStream stage is only supported on replica sets";
}

/// What `fullDocument` may say.
const FULL_DOCUMENT: &[&str] = &["default", "updateLookup", "whenAvailable", "required"];
/// What `fullDocumentBeforeChange` may say.
const BEFORE_CHANGE: &[&str] = &["off", "whenAvailable", "required"];
/// The fields that are true or false.
const FLAGS: &[&str] = &[
    "allChangesForCluster",
    "showExpandedEvents",
    "allowToRunOnConfigDB",
    "showMigrationEvents",
    "showSystemEvents",
    "showRawUpdateDescription",
];

/// The argument, which is a document.
pub(super) fn read(value: Value<'_>) -> Result<Doc<'_>> {
    value.as_doc().ok_or_else(|| not_object(&format!("$changeStream: {}", print::element(value))))
}

fn parse(value: Value<'_>, _: &mut Parser<'_>) -> Result<()> {
    let spec = read(value)?;
    for element in spec {
        let (name, value) = (element.name.to_str_lossy(), element.value.get());
        match &*name {
            "fullDocument" => check_word(&name, value, FULL_DOCUMENT)?,
            "fullDocumentBeforeChange" => check_word(&name, value, BEFORE_CHANGE)?,
            "resumeAfter" | "startAfter" => check_token(&name, value)?,
            "startAtOperationTime" if value.kind() == Type::Timestamp => {}
            "startAtOperationTime" => {
                return Err(wrong_type(&name, value.kind().alias(), "timestamp"));
            }
            flag if FLAGS.contains(&flag) => {
                if value.kind() != Type::Boolean {
                    return Err(not_boolean(&name, value.kind().alias()));
                }
            }
            _ => return Err(unknown_field(&name)),
        }
    }
    Err(no_replica_set())
}

fn check_word(name: &str, value: Value<'_>, known: &[&str]) -> Result<()> {
    let Value::String(word) = value else {
        return Err(wrong_type(name, value.kind().alias(), "string"));
    };
    match known.iter().any(|known| *word == *known) {
        true => Ok(()),
        false => Err(unknown_value(&word.to_str_lossy(), name)),
    }
}

/// A resume token is a document with its content as a string.
fn check_token(name: &str, value: Value<'_>) -> Result<()> {
    let Value::Document(token) = value else {
        return Err(wrong_type(name, value.kind().alias(), "object"));
    };
    match token.get("_data") {
        Some(Value::String(_)) => Ok(()),
        other => Err(bad_token(&print::value(other.unwrap_or(Value::Document(Doc::EMPTY))))),
    }
}
