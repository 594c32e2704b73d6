//! `distinct`: the distinct values of a field in the matching documents.

use marula_bson::{ArrayWriter, Doc, DocBuf, DocWriter, doc};
use marula_error::Result;
use marula_operation::Progress;
use marula_operation::distinct::{ACTIONS, DistinctOp, Values};
use marula_query::feature_version::FeatureVersion;

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Named, Outcome, ReadConcernLevels};
use crate::context::Context;
use crate::environment;
use crate::pipeline_source::PipelineOptions;
use crate::request::Request;
use crate::view;

pub(super) static COMMAND: Command = Command {
    name: "distinct",
    help: "Returns the distinct values of a field in the documents that match a query.",
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
    view::check_collation(collection.as_deref(), request.arg("collation"))?;
    let context = query.context.clone();
    let mut values = Values::new(context.collator());
    match collection {
        None => {}
        Some(_) if is_view => {
            let mut stages = Vec::new();
            ArrayWriter::new(&mut stages).begin_doc().append("$match", op.filter);
            let stages = DocBuf::trusted(stages);
            let mut add = |doc: Doc<'_>| values.add(&op.path, doc);
            let options = PipelineOptions { hint: query.hint, ..PipelineOptions::default() };
            super::aggregate::scan(ctx, &ns, &stages, context.clone(), options, &mut add)?;
        }
        Some(collection) => match op.run(&ctx.env(), collection, query, &mut values)? {
            Progress::Done(()) => {}
            Progress::NeedsPool => return Ok(Outcome::ToPool),
        },
    }
    values.write(&mut reply.begin_array("values"));
    ctx.append_snapshot_time(reply);
    Ok(if is_view { Outcome::DoneOnView } else { Outcome::Done })
}

/// The field that contains the values of a document of a view: first as an array, then unwound.
const UNWOUND: &str = "_internalUnwoundArray";

/// Returns the pipeline, an array of stages, that is equivalent to a `distinct`; like mongod, this
/// server runs it on a view.
pub(super) fn stages_of_distinct(op: &DistinctOp<'_>) -> DocBuf {
    let (filter, key) = (op.filter, op.key());
    let unwound = format!("${UNWOUND}");
    let mut bytes = Vec::new();
    let mut stages = ArrayWriter::new(&mut bytes);
    if !filter.is_empty() {
        stages.begin_doc().append("$match", filter);
    }
    let values = doc! { "$_internalFindAllValuesAtPath": key };
    let root = DocBuf::build(|root| {
        root.append(UNWOUND, &values);
    });
    stages.push(&doc! { "$replaceRoot": { "newRoot": &root } });
    let unwind = doc! { "path": unwound.as_str(), "preserveNullAndEmptyArrays": true };
    stages.push(&doc! { "$unwind": &unwind });
    let group = doc! { "_id": null, "distinct": { "$addToSet": unwound.as_str() } };
    stages.push(&doc! { "$group": &group });
    stages.finish();
    DocBuf::trusted(bytes)
}
