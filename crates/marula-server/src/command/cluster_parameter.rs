//! `getClusterParameter` and `setClusterParameter`: parameters that all members of a cluster share.
//!
//! mongod 6.0 has one, `changeStreamOptions`: how long images of documents before and after a
//! change are kept.
//! Source: manual "getClusterParameter", "setClusterParameter"; errors recorded from mongod 6.0.

use marula_bson::{DocWriter, Type, Value, doc};
use marula_error::{Result, errors};

use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::context::Context;
use crate::request::Request;

errors! {
    unknown(name: &str) = NoSuchKey, "Unknown server parameter: {name}";
    unknown_to_set(name: &str) = IllegalOperation, "Unknown Cluster Parameter {name}";
    none_named() = BadValue, "Must supply at least one cluster server parameter name to getClusterParameter";
    not_an_object() = IllegalOperation, "Cluster parameter value must be an object";
    not_settable(name: &str) = CommandNotSupported, "the cluster parameter {name} cannot be changed on this server";
}

const NAME: &str = "changeStreamOptions";

pub(super) static GET: Command = Command {
    name: "getClusterParameter",
    help: "Returns parameters that all members of a cluster share.",
    admin_only: true,
    auth: Auth::Cluster(&["getClusterParameter"]),
    run: get,
    ..Command::DEFAULT
};

pub(super) static SET: Command = Command {
    name: "setClusterParameter",
    help: "Would change a parameter that all members of a cluster share; none can be changed here.",
    admin_only: true,
    fields: Fields::Strict { place: "setClusterParameter", fields: &[] },
    takes_write_concern: true,
    auth: Auth::Cluster(&["setClusterParameter"]),
    run: set,
    ..Command::DEFAULT
};

fn get(_: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let value = request.first.value.get();
    let wrong_type = || {
        let name = request.command.name;
        fields::wrong_type(name, name.into(), value.kind().alias(), "types '[string']")
    };
    let mut names = Vec::new();
    match value {
        Value::String(name) => names.push(name.to_string()),
        Value::Array(list) => {
            for name in list.values() {
                names.push(name.as_str().ok_or_else(wrong_type)?.to_string());
            }
            if names.is_empty() {
                return Err(none_named());
            }
        }
        _ => return Err(wrong_type()),
    }
    let is_all = |name: &String| name == "*" && value.kind() == Type::String;
    if let Some(name) = names.iter().find(|name| *name != NAME && !is_all(name)) {
        return Err(unknown(name));
    }
    let mut out = reply.begin_array("clusterParameters");
    for _ in &names {
        out.push(&doc! {
            "_id": NAME,
            "clusterParameterTime": Value::Timestamp(0),
            "preAndPostImages": { "expireAfterSeconds": "off" },
        });
    }
    out.finish();
    Ok(Outcome::Done)
}

fn set(_: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let name = request.command.name;
    let Value::Document(parameter) = request.first.value.get() else {
        let kind = request.first.value.kind().alias();
        return Err(fields::wrong_type(name, name.into(), kind, "type 'object'"));
    };
    let Some(first) = parameter.iter().next() else { return Err(unknown_to_set("")) };
    if first.name != NAME {
        return Err(unknown_to_set(&first.name.to_string()));
    }
    const VALUE: &[Field] = &[Field::optional("preAndPostImages", Types::DOCUMENT)];
    let Value::Document(value) = first.value.get() else { return Err(not_an_object()) };
    fields::check_doc("ChangeStreamOptionsClusterParam", VALUE, value)?;
    Err(not_settable(NAME))
}
