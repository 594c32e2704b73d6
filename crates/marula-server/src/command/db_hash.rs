//! `dbHash`: a digest of each collection's documents, to compare two databases.
//!
//! A collection's digest is the MD5 of its documents' bytes in the order of `_id`, or in the order
//! of insertion if it is capped. The database's digest is the MD5 of its collections' digests as
//! text, in the order of names.
//! Source: manual "dbHash"; digests recorded from mongod 6.0.

use std::sync::Arc;
use std::time::Instant;

use marula_bson::{Binary, ByteSlice, DocWriter, Value, hex};
use marula_db::Collection;
use marula_error::{Result, errors};
use marula_plan::{Emit, Execution, Hint, Query, planner};
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;
use md5::{Digest, Md5};

use super::{Auth, Command, Outcome, db_stats};
use crate::context::Context;
use crate::request::Request;

errors! {
    no_test_commands() = InvalidOptions, "The '$_internalReadAtClusterTime' option is only supported when testing commands are enabled";
}

pub(super) static COMMAND: Command = Command {
    name: "dbHash",
    aliases: &["dbhash"],
    takes_after_cluster_time: false,
    help: "Returns a digest of each collection of a database, to compare two databases.",
    ends_with_client: true,
    auth: Auth::Database(&["dbHash"]),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let started = Instant::now();
    if let Value::String(name) = request.first.value.get() {
        return Err(db_stats::invalid_name(request.db, name));
    }
    if request.given("$_internalReadAtClusterTime").is_some() {
        return Err(no_test_commands());
    }
    let mut wanted = Vec::new();
    for name in request.arg("collections").and_then(|names| names.as_array()).into_iter().flatten()
    {
        match name.value.get() {
            Value::String(name) => wanted.push(name.to_str_lossy().into_owned()),
            _ => return Ok(Outcome::Failed("collections entries have to be strings".to_owned())),
        }
    }
    let mut collections = ctx.server.db.catalog().collections(request.db);
    collections.retain(|collection| {
        let ns = collection.namespace();
        let name = ns.collection();
        collection.state().options.view.is_none()
            && (wanted.is_empty() || wanted.iter().any(|wanted| wanted == name))
            && (!ns.is_system() || matches!(name, "system.views" | "system.js" | "system.users"))
    });
    let mut whole = Md5::new();
    let mut digests = Vec::with_capacity(collections.len());
    for collection in &collections {
        let digest = digest(ctx, collection)?;
        whole.update(&digest);
        digests.push(digest);
    }
    reply.append("host", crate::host::name_and_special_port(ctx.server).as_str());
    let mut out = reply.begin_doc("collections");
    for (collection, digest) in collections.iter().zip(&digests) {
        out.append(collection.namespace().collection(), digest.as_str());
    }
    drop(out);
    let mut out = reply.begin_array("capped");
    for collection in collections.iter().filter(|it| it.state().options.capped.is_some()) {
        out.push(collection.namespace().collection());
    }
    out.finish();
    let mut out = reply.begin_doc("uuids");
    for collection in &collections {
        let uuid = Binary { subtype: 4, bytes: collection.uuid() };
        out.append(collection.namespace().collection(), uuid);
    }
    drop(out);
    reply.append("md5", text(whole).as_str());
    reply.append("timeMillis", i32::try_from(started.elapsed().as_millis()).unwrap_or(i32::MAX));
    Ok(Outcome::Done)
}

fn digest(ctx: &Context<'_>, collection: &Arc<Collection>) -> Result<String> {
    let state = collection.state();
    let context = QueryContext { collation: state.options.collation.clone(), ..Default::default() };
    let mut query = Query::new(Filter::everything(&context), context);
    if state.options.capped.is_none() && state.index("_id_").is_some() {
        query.hint = Some(Hint::Name("_id_".to_owned()));
    }
    let plan = planner::plan(&state, &query)?;
    let mut execution = Execution::new(collection.clone(), plan, query);
    let mut md5 = Md5::new();
    execution.run(ctx.unit, &mut || ctx.check_interrupt(), &mut |found| {
        md5.update(found.doc.as_bytes());
        Ok(Emit::Taken)
    })?;
    Ok(text(md5))
}

fn text(md5: Md5) -> String {
    hex::text(&md5.finalize())
}
