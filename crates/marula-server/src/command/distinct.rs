//! `distinct`: the distinct values of a field in the matching documents.

use marula_bson::{ArrayWriter, Doc, DocBuf, DocWriter};
use marula_error::Result;
use marula_operation::aggregate::Prepared;
use marula_operation::distinct::{ACTIONS, DistinctOp, Values};
use marula_operation::views;
use marula_plan::without_collection;
use marula_query::feature_version::FeatureVersion;

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Named, Outcome, ReadConcernLevels};
use crate::context::Context;
use crate::environment;
use crate::request::Request;

pub(super) static COMMAND: Command = Command {
    name: "distinct",
    help: "Returns the distinct values of a field in the documents that match a query.",
    ends_with_client: true,
    read_concern: ReadConcernLevels::Snapshot,
    in_transaction: true,
    fields: Fields::Strict {
        place: "distinct",
        fields: &[
            Field::required("key", Types::STRING),
            Field::optional("query", Types::DOCUMENT),
            Field::optional("collation", Types::DOCUMENT),
            Field::optional("hint", Types::Any).since(FeatureVersion::V8_0),
            Field::optional("maxTimeMS", Types::NUMBER),
        ],
    },
    named: Named::OLD_BY_UUID,
    auth: Auth::Collection(ACTIONS),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = environment::readable_namespace(request)?;
    let collection = ctx.unit.touched(&ns)?;
    let is_view = collection.as_ref().is_some_and(|found| found.state().options.view.is_some());
    let op = DistinctOp::parse(request, is_view)?;
    let query = op.query(&ctx.env(), &ns, collection.as_deref())?;
    views::check_collation(collection.as_deref(), request.arg("collation"))?;
    let context = query.context.clone();
    let mut values = Values::new(context.collator());
    match collection {
        None => without_collection(ctx.unit),
        Some(_) if is_view => {
            let mut stages = Vec::new();
            ArrayWriter::new(&mut stages).begin_doc().append("$match", op.filter);
            let stages = DocBuf::trusted(stages);
            let mut add = |doc: Doc<'_>| values.add(&op.path, doc);
            let pipeline = Prepared::of_stages(
                &ctx.server.db,
                &ns,
                stages.as_doc(),
                context.clone(),
                query.hint,
            )?;
            super::aggregate::scan(ctx, pipeline, &mut add)?;
        }
        Some(collection) => op.run(&ctx.env(), collection, query, &mut values)?,
    }
    values.write(&mut reply.begin_array("values"));
    ctx.append_snapshot_time(reply);
    Ok(if is_view { Outcome::DoneOnView } else { Outcome::Done })
}
