//! `count`: the number of documents that match.

use marula_bson::{ArrayWriter, DocBuf, DocWriter, Value};
use marula_error::Result;
use marula_operation::Progress;
use marula_operation::count::{ACTIONS, CountOp};

use super::fields::{self, Field, Types};
use super::{Auth, Command, CommandPlace, Fields, Named, Outcome};
use crate::context::Context;
use crate::environment;
use crate::request::Request;

pub(super) static COMMAND: Command = Command {
    name: "count",
    help: "Counts the documents that match a query.",
    place: CommandPlace::Decides,
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
        reply.append("n", 0);
        return Ok(Outcome::Done);
    };
    if collection.state().options.view.is_some() {
        return super::aggregate::count_on_view(ctx, request, &ns, &stages_of_count(&op), reply);
    }
    match op.run(&ctx.env(), &collection, query)? {
        Progress::Done(counted) => append_count(counted, reply),
        Progress::NeedsPool => return Ok(Outcome::ToPool),
    }
    Ok(Outcome::Done)
}

/// Appends `n`: an int, or a long if it does not fit.
pub(super) fn append_count(counted: u64, reply: &mut DocWriter<'_>) {
    reply.append("n", Value::whole(counted));
}

/// The field of the result of [`stages_of_count`] that contains the number.
pub(super) const COUNTED: &str = "count";

/// Returns the pipeline, an array of stages, that is equivalent to a `count`; it runs on a view.
pub(super) fn stages_of_count(op: &CountOp<'_>) -> DocBuf {
    let mut bytes = Vec::new();
    let mut stages = ArrayWriter::new(&mut bytes);
    if !op.filter.is_empty() {
        stages.begin_doc().append("$match", op.filter);
    }
    if op.skip > 0 {
        stages.begin_doc().append("$skip", Value::whole(op.skip));
    }
    if let Some(limit) = op.limit {
        stages.begin_doc().append("$limit", Value::whole(limit));
    }
    stages.begin_doc().append("$count", COUNTED);
    stages.finish();
    DocBuf::trusted(bytes)
}
