//! `collectionUUID`: the UUID that a client expects of the collection that it names. If it differs,
//! the command is rejected.
//!
//! Source: manual, "collectionUUID" of the commands; errors recorded from mongod 6.0.

use marula_bson::{Binary, DocBuf, Value};
use marula_db::Namespace;
use marula_error::{Result, errors};

use crate::context::Context;
use crate::request::Request;

errors! {
    mismatch() = CollectionUUIDMismatch, "Collection UUID does not match that specified";
}

/// Checks that the collection `ns` has the UUID in the request, if there is one.
pub(crate) fn check(ctx: &Context<'_>, request: &Request<'_>, ns: &Namespace) -> Result<()> {
    match request.arg("collectionUUID") {
        Some(Value::Binary(meant)) => check_is(ctx, ns, meant.bytes),
        _ => Ok(()),
    }
}

/// The same, of a command that does not look at the UUID of a time series.
pub(crate) fn check_ordinary(
    ctx: &Context<'_>,
    request: &Request<'_>,
    ns: &Namespace,
) -> Result<()> {
    if is_time_series(ctx, ns) { Ok(()) } else { check(ctx, request, ns) }
}

/// The same, of a command that names the buckets of a time series in its error.
pub(crate) fn check_buckets(
    ctx: &Context<'_>,
    request: &Request<'_>,
    ns: &Namespace,
) -> Result<()> {
    match request.arg("collectionUUID") {
        Some(Value::Binary(meant)) if is_time_series(ctx, ns) => {
            check_shown(ctx, ns, meant.bytes, &format!("system.buckets.{}", ns.collection()))
        }
        _ => check(ctx, request, ns),
    }
}

fn is_time_series(ctx: &Context<'_>, ns: &Namespace) -> bool {
    let found = ctx.server.db.catalog().get(ns.db(), ns.collection());
    found.is_some_and(|collection| collection.state().options.time_series.is_some())
}

/// Checks that the collection `ns` has this UUID.
pub(crate) fn check_is(ctx: &Context<'_>, ns: &Namespace, meant: &[u8]) -> Result<()> {
    check_shown(ctx, ns, meant, ns.collection())
}

/// The same, with the name that the error shows.
fn check_shown(ctx: &Context<'_>, ns: &Namespace, meant: &[u8], shown: &str) -> Result<()> {
    let catalog = ctx.server.db.catalog();
    let found = catalog.get(ns.db(), ns.collection());
    if found.is_some_and(|collection| collection.uuid()[..] == *meant) {
        return Ok(());
    }
    let of_meant = catalog.collections(ns.db()).into_iter().find(|collection| {
        collection.uuid()[..] == *meant && collection.state().options.view.is_none()
    });
    let actual = of_meant.map(|collection| collection.namespace().collection().to_owned());
    let fields = DocBuf::build(|out| {
        out.append("db", ns.db());
        out.append("collectionUUID", Binary { subtype: 4, bytes: meant });
        out.append("expectedCollection", shown);
        match &actual {
            Some(name) => out.append("actualCollection", name.as_str()),
            None => out.append("actualCollection", Value::Null),
        };
    });
    Err(mismatch().with_fields(fields.as_doc().elements_bytes().to_vec()))
}
