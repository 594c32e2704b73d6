//! `checkShardingIndex`: reports whether an index could support a shard key.
//!
//! Source: recorded from mongod 6.0.

use marula_bson::{Doc, DocWriter, Value};
use marula_db::index::spec::is_id_pattern;
use marula_db::{Index, Namespace};
use marula_error::{Result, errors};
use marula_operation::targets;

use super::{Auth, Command, OnSecondary, Outcome};
use crate::auth::check::Check;
use crate::context::Context;
use crate::request::Request;

errors! {
    /// The first field of the command is not a string.
    pub(super) name_type(kind: &str) = BadValue, "collection name has invalid type {kind}";
    /// The first field of the command is a collection's name without its database.
    pub(super) invalid_name(name: &str) = InvalidNamespace, "Invalid namespace specified '{name}'";
    no_index(reasons: &str) = InvalidOptions, "couldn't find valid index for shard key{reasons}";
}

pub(super) static COMMAND: Command = Command {
    name: "checkShardingIndex",
    help: "Checks whether an index of a collection can serve a shard key.",
    secondary: Some(OnSecondary::Never),
    auth: Auth::Content(|request, check| needs_on_named(request, check, "find")),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = namespace(request)?;
    let Some(key) = key_pattern(request) else {
        return Ok(Outcome::Failed("no key pattern found in checkShardingindex".to_owned()));
    };
    if is_id_pattern(key) {
        reply.append("idskip", true);
        return Ok(Outcome::Done);
    }
    let Some(collection) = ctx.server.db.collection(&ns) else {
        return Ok(Outcome::Failed("ns not found".to_owned()));
    };
    targets::check_not_view(&collection)?;
    let state = collection.state();
    let mut reasons = String::new();
    for index in state.indexes.iter().filter(|index| !index.spec.hidden) {
        let why = unsuited(index, key, MultikeyIndexes::Rejected);
        if why.is_empty() {
            return Ok(Outcome::Done);
        }
        let name = &index.spec.name;
        reasons +=
            &format!("\nIndex {name} cannot be used for sharding because: {}", why.join(" "));
    }
    Err(no_index(&reasons))
}

/// Determines whether multikey indexes may support a shard key.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub(super) enum MultikeyIndexes {
    Accepted,
    Rejected,
}

/// Returns the reasons why an index cannot support a shard key; empty if it can.
pub(super) fn unsuited(
    index: &Index,
    key: Doc<'_>,
    multikey: MultikeyIndexes,
) -> Vec<&'static str> {
    let spec = &index.spec;
    let conditions = [
        (spec.partial.is_some(), "Index key is partial."),
        (spec.sparse, "Index key is sparse."),
        (multikey == MultikeyIndexes::Rejected && index.is_multikey(), "Index key is multikey."),
        (spec.collation.is_some(), "Index has a non-simple collation."),
        (!is_prefix(key, spec.key.as_doc()), "Shard key is not a prefix of index key."),
    ];
    conditions.into_iter().filter(|(applies, _)| *applies).map(|(_, why)| why).collect()
}

/// Returns whether the key pattern `of` begins with the fields of `key`, with equal values: 1
/// equals 1.0.
fn is_prefix(key: Doc<'_>, of: Doc<'_>) -> bool {
    let mut of = of.iter();
    key.iter().all(|field| {
        let same = |other: Value<'_>| {
            let numbers = field.value.get().as_f64().zip(other.as_f64());
            numbers.map_or(field.value.get() == other, |(one, other)| one == other)
        };
        of.next().is_some_and(|other| other.name == field.name && same(other.value.get()))
    })
}

/// Returns the namespace in the first field of the command.
///
/// Errors: `name_type`, `invalid_name`.
pub(super) fn namespace(request: &Request<'_>) -> Result<Namespace> {
    let name = match request.first.value.get() {
        Value::String(name) => name.to_string(),
        other => return Err(name_type(other.kind().alias())),
    };
    Namespace::parse(&name).map_err(|_| invalid_name(&name))
}

/// Returns the shard key of the request, if it has fields.
pub(super) fn key_pattern<'a>(request: &Request<'a>) -> Option<Doc<'a>> {
    request.arg("keyPattern").and_then(|key| key.as_doc()).filter(|key| !key.is_empty())
}

/// Requires a privilege on the collection in the first field of the command.
pub(super) fn needs_on_named(
    request: &Request<'_>,
    check: &mut Check<'_>,
    action: &'static str,
) -> Result<()> {
    let ns = namespace(request)?;
    check.needs_on(ns.db(), ns.collection(), &[action]);
    Ok(())
}
