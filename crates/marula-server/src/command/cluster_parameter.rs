//! `getClusterParameter` and `setClusterParameter`: parameters that all members of a cluster share.
//!
//! mongod 6.0 has one, `changeStreamOptions`: the time for which pre-images and post-images of
//! documents are retained.
//! Source: manual "getClusterParameter", "setClusterParameter"; errors recorded from mongod 6.0.

use marula_bson::{DocBuf, DocWriter, Type, Value, doc};
use marula_error::{Result, errors};
use marula_query::expression::saturated_long;

use super::fields;
use super::{Auth, Command, Fields, OnSecondary, Outcome};
use crate::context::Context;
use crate::oplog_keeper::PARAMETER as NAME;
use crate::request::Request;

errors! {
    unknown(name: &str) = NoSuchKey, "Unknown server parameter: {name}";
    unknown_to_set(name: &str) = IllegalOperation, "Unknown Cluster Parameter {name}";
    none_named() = BadValue, "Must supply at least one cluster server parameter name to getClusterParameter";
    not_an_object() = IllegalOperation, "Cluster parameter value must be an object";
    missing(field: &str) = BadValue, "Failed parsing new changeStreamOptions valueBSON field 'changeStreamOptions.{field}' is missing but a required field";
    no_images() = BadValue, "Failed parsing new changeStreamOptions valueinvalid parameter: expected an object (preAndPostImages)";
    expiry_type(kind: &str) = BadValue, "Failed parsing new changeStreamOptions valueBSON field 'changeStreamOptions.preAndPostImages.expireAfterSeconds' is the wrong type '{kind}', expected types '[string, long']";
    expiry_word() = BadValue, "Non-numeric value of 'expireAfterSeconds' should be 'off'";
    expiry_sign() = BadValue, "Numeric value of 'expireAfterSeconds' should be positive";
}

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
    help: "Changes a parameter that all members of a cluster share.",
    admin_only: true,
    secondary: Some(OnSecondary::Never),
    fields: Fields::Strict { place: "setClusterParameter", fields: &[] },
    takes_write_concern: true,
    auth: Auth::Cluster(&["setClusterParameter"]),
    run: set,
    ..Command::DEFAULT
};

fn get(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
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
    let stored = ctx.server.oplog_keeper.parameter(&ctx.server.db)?;
    let default = doc! {
        "_id": NAME,
        "clusterParameterTime": Value::Timestamp(0),
        "preAndPostImages": { "expireAfterSeconds": "off" },
    };
    let mut out = reply.begin_array("clusterParameters");
    for _ in &names {
        out.push(stored.as_ref().unwrap_or(&default));
    }
    out.finish();
    Ok(Outcome::Done)
}

fn set(ctx: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let name = request.command.name;
    let Value::Document(parameter) = request.first.value.get() else {
        let kind = request.first.value.kind().alias();
        return Err(fields::wrong_type(name, name.into(), kind, "type 'object'"));
    };
    let Some(first) = parameter.iter().next() else { return Err(unknown_to_set("")) };
    if first.name != NAME {
        return Err(unknown_to_set(&first.name.to_string()));
    }
    let Value::Document(value) = first.value.get() else { return Err(not_an_object()) };
    let images = value.get("preAndPostImages").ok_or_else(|| missing("preAndPostImages"))?;
    let images = images.as_doc().ok_or_else(no_images)?;
    let expiry = images.get("expireAfterSeconds").ok_or_else(|| missing("expireAfterSeconds"))?;
    let expiry = match expiry {
        Value::String(word) if word == "off" => expiry,
        Value::String(_) => return Err(expiry_word()),
        number => {
            let seconds =
                saturated_long(number).ok_or_else(|| expiry_type(number.kind().alias()))?;
            if seconds <= 0 {
                return Err(expiry_sign());
            }
            Value::Int64(seconds)
        }
    };
    let db = &ctx.server.db;
    let document = DocBuf::build(|out| {
        out.append("_id", NAME);
        out.append("clusterParameterTime", Value::Timestamp(db.newest_timestamp(ctx.now_ms)));
        out.begin_doc("preAndPostImages").append("expireAfterSeconds", expiry);
    });
    ctx.server.oplog_keeper.set_parameter(db, document.as_doc(), ctx.now_ms)?;
    Ok(Outcome::Done)
}
