//! `count`: the number of documents that match.

use marula_bson::{DocWriter, Value};
use marula_db::Namespace;
use marula_error::{Error, Result};
use marula_operation::aggregate::Prepared;
use marula_operation::count::{ACTIONS, CountOp};
use marula_operation::{args, on_views, views};
use marula_plan::without_collection;

use super::fields::{self, Field, Types};
use super::{Auth, Command, CommandPlace, Fields, Named, Outcome};
use crate::context::Context;
use crate::environment;
use crate::request::Request;

pub(super) static COMMAND: Command = Command {
    name: "count",
    help: "Counts the documents that match a query.",
    place: CommandPlace::Decides,
    ends_with_client: true,
    fields: Fields::Strict {
        place: "count",
        fields: &[
            Field::optional("query", Types::DOCUMENT),
            Field::optional("limit", Types::Any),
            Field::optional("skip", Types::NUMBER),
            Field::optional("hint", Types::Hint),
            Field::optional("collation", Types::DOCUMENT),
            Field::optional("fields", Types::Any),
            Field::optional("maxTimeMS", Types::NUMBER),
            fields::ENCRYPTION_INFORMATION,
        ],
    },
    read_concern: super::ReadConcernLevels::Majority,
    in_api_v1: true,
    named: Named::OLD_BY_UUID,
    auth: Auth::Collection(ACTIONS),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = environment::readable_namespace(request)?;
    let op = CountOp::parse(request)?;
    let collection = ctx.unit.touched(&ns)?;
    let query = op.query(&ctx.env(), collection.as_deref())?;
    let Some(collection) = collection else {
        without_collection(ctx.unit);
        reply.append("n", 0);
        return Ok(Outcome::Done);
    };
    if collection.state().options.view.is_some() {
        return on_view(ctx, request, &ns, &op, reply);
    }
    append_count(op.run(&ctx.env(), &collection, query)?, reply);
    Ok(Outcome::Done)
}

/// Executes a `count` on a view, as the equivalent pipeline.
fn on_view(
    ctx: &Context<'_>,
    request: &Request<'_>,
    ns: &Namespace,
    op: &CountOp<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    if !ctx.may_wait() {
        return Err(Error::postponed());
    }
    let collection = ctx.unit.collection(ns);
    views::check_collation(collection.as_deref(), request.arg("collation"))?;
    let mut context = ctx.env().context(collection.as_deref(), request.arg("collation"), None)?;
    context.limits = environment::limits(ctx, request);
    let hint = args::parse_hint(request.arg("hint"))?;
    let stages = on_views::stages_of_count(op);
    let pipeline = Prepared::of_stages(&ctx.server.db, ns, stages.as_doc(), context, hint)?;
    let mut counted = 0;
    super::aggregate::scan(ctx, pipeline, &mut |doc| {
        counted = doc.get(on_views::COUNTED).and_then(|n| n.as_exact_i64()).unwrap_or(0);
        Ok(())
    })?;
    append_count(u64::try_from(counted).unwrap_or(0), reply);
    Ok(Outcome::DoneOnView)
}

/// Appends `n`: an int, or a long if it does not fit.
fn append_count(counted: u64, reply: &mut DocWriter<'_>) {
    reply.append("n", Value::whole(counted));
}
