//! Fields that members and routers of a cluster add to commands for each other.
//!
//! This server is in no sharded cluster: these fields are checked, and rejected if they have no
//! meaning here. Source: errors recorded from mongod 6.0.

use marula_bson::{Doc, Type, Value};
use marula_error::{Result, errors};

use crate::fields::{self, Field, Types};

errors! {
    /// A version of a shard's data is sent to a server that is not a shard.
    pub no_shard() = NoShardingEnabled, "Cannot accept sharding commands if not started with --shardsvr";
    version_empty() = BadValue, "Unexpected empty version array";
    version_part(kind: &str, part: &str) = TypeMismatch, "Invalid type {kind} for version {part} part.";
}

const OP_TIME_FIELDS: &[Field] = &[
    Field::required("ts", Types::One(Type::Timestamp)),
    Field::optional("t", Types::One(Type::Int64)),
];

const AUDIT_FIELDS: &[Field] = &[
    Field::required("$impersonatedUsers", Types::ARRAY),
    Field::required("$impersonatedRoles", Types::ARRAY),
];

const DATABASE_VERSION_FIELDS: &[Field] = &[
    Field::optional("uuid", Types::One(Type::Binary)),
    Field::required("timestamp", Types::One(Type::Timestamp)),
    Field::required("lastMod", Types::INT),
];

const SHARD_VERSION_FIELDS: &[Field] = &[
    Field::required("e", Types::One(Type::ObjectId)),
    Field::required("t", Types::One(Type::Timestamp)),
    Field::required("v", Types::One(Type::Timestamp)),
];

/// Checks `$audit`: the user for whom a router sends a command. Values other than documents are
/// ignored.
pub(crate) fn check_audit(value: Value<'_>) -> Result<()> {
    match value {
        Value::Document(audit) => fields::check_doc("$audit", AUDIT_FIELDS, audit),
        _ => Ok(()),
    }
}

/// Checks the time of an entry of the oplog.
pub(crate) fn check_op_time(value: Value<'_>) -> Result<()> {
    value.as_doc().map_or(Ok(()), |time| check_known("OpTimeBase", OP_TIME_FIELDS, time))
}

/// Checks `databaseVersion`: the router's knowledge of a database's owner.
pub(crate) fn check_database_version(value: Value<'_>) -> Result<()> {
    match value {
        Value::Document(version) | Value::Array(version) => {
            check_known("DatabaseVersion", DATABASE_VERSION_FIELDS, version)
        }
        _ => Err(fields::expected_object("databaseVersion".into())),
    }
}

/// Checks `shardVersion`: the router's knowledge of a collection's chunks. An array is its older
/// form.
pub(crate) fn check_shard_version(value: Value<'_>) -> Result<()> {
    match value {
        Value::Document(version) | Value::Array(version) if version.is_empty() => {
            Err(version_empty())
        }
        Value::Document(version) => check_known("_parse60Format", SHARD_VERSION_FIELDS, version),
        Value::Array(parts) => check_parts(parts),
        _ => Err(fields::expected_object("shardVersion".into())),
    }
}

fn check_parts(parts: Doc<'_>) -> Result<()> {
    const PARTS: [(&str, Type); 3] = [
        ("major and minor", Type::Timestamp),
        ("epoch", Type::ObjectId),
        ("timestamp", Type::Timestamp),
    ];
    let mut given = parts.values();
    for (part, expected) in PARTS {
        match given.next().map(|part| part.kind()) {
            Some(kind) if kind == expected => {}
            Some(kind) => return Err(version_part(kind.alias(), part)),
            None => return Err(version_part("missing", part)),
        }
    }
    Ok(())
}

/// Checks the known fields; others are ignored.
fn check_known(place: &str, known: &'static [Field], doc: Doc<'_>) -> Result<()> {
    let is_known = |name: &[u8]| known.iter().any(|field| field.name.as_bytes() == name);
    for element in doc.iter().filter(|element| is_known(element.name)) {
        fields::check(place, known, element.name, element.value.kind())?;
    }
    fields::check_required(place, known, doc)
}
