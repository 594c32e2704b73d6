//! `find`, `count` and `distinct` on a view: the pipelines that they are.

use marula_bson::{ArrayWriter, Doc, DocBuf, Value, doc};
use marula_db::Namespace;
use marula_error::{Error, Result, codes, errors};

use crate::aggregate::{AggregateOp, Prepared};
use crate::args::Arguments;
use crate::count::CountOp;
use crate::distinct::DistinctOp;
use crate::env::Env;

errors! {
    no_option(name: &str) = InvalidPipelineOperator, "Option {name} not supported in aggregation.";
    no_tailable() = InvalidPipelineOperator, "Tailable cursors are not supported in aggregation.";
}

/// The field of the result of [`stages_of_count`] that contains the number.
pub const COUNTED: &str = "count";

/// The field that contains the values of a document of a view: first as an array, then unwound.
const UNWOUND: &str = "_internalUnwoundArray";

/// Prepares a `find`, which was checked as a `find`, on the view `ns`.
///
/// Errors: those of its options and of its stages, see [`unsupported`].
pub fn prepare_find<'a>(
    request: &impl Arguments<'a>,
    env: &Env<'_>,
    ns: &Namespace,
) -> Result<Prepared<'static>> {
    let stages = stages_of_find(request)?;
    let op = AggregateOp::of_stages(request, stages.as_doc(), hint(request), false);
    op.prepare(env, ns).and_then(Prepared::with_hint).map_err(unsupported)
}

/// Adds mongod's prefix to an error about what a `find` has and a pipeline does not.
pub fn unsupported(error: Error) -> Error {
    if error.code() != codes::InvalidPipelineOperator {
        return error;
    }
    Error::new(error.code(), format!("Unsupported in view pipeline: {}", error.message()))
}

/// Rejects a `find` on a view with options that a pipeline does not have.
///
/// Errors: `no_tailable`, `no_option`.
pub fn check_find_options<'a>(request: &impl Arguments<'a>) -> Result<()> {
    let bounds = |name: &str| {
        request.arg(name).and_then(|bound| bound.as_doc()).is_some_and(|bound| !bound.is_empty())
    };
    if let Some(name) = ["min", "max"].into_iter().find(|name| bounds(name)) {
        return Err(no_option(name));
    }
    let asked = |names: &[&'static str]| match names.iter().find(|name| request.flag(name)) {
        Some(name) => Err(no_option(name)),
        None => Ok(()),
    };
    asked(&["returnKey", "showRecordId"])?;
    if request.flag("tailable") {
        return Err(no_tailable());
    }
    asked(&["noCursorTimeout", "allowPartialResults"])?;
    // A driver sends `singleBatch` with a limit of 1, where it makes no difference.
    if request.count("limit")? != 1 {
        asked(&["singleBatch"])?;
    }
    asked(&["readOnce", "allowSpeculativeMajorityRead"])
}

/// Returns the hint of the pipeline that a command on a view is: a sort by `$natural` is one, since
/// the stage `$sort` has no such order.
pub fn hint<'a>(request: &impl Arguments<'a>) -> Option<Value<'a>> {
    request.arg("hint").or_else(|| natural_sort(request))
}

/// Returns the sort of a `find`, if it is by `$natural`.
fn natural_sort<'a>(request: &impl Arguments<'a>) -> Option<Value<'a>> {
    request.arg("sort").filter(|it| it.as_doc().is_some_and(|it| it.get("$natural").is_some()))
}

/// Returns the pipeline, an array of stages, that is equivalent to a `find`.
///
/// Errors: those of the fields of a `find`.
pub fn stages_of_find<'a>(request: &impl Arguments<'a>) -> Result<DocBuf> {
    let (filter, sort) = (request.doc("filter")?, request.doc("sort")?);
    let projection = request.doc("projection")?;
    let sort = if natural_sort(request).is_some() { Doc::EMPTY } else { sort };
    let (skip, limit) = (request.count("skip")?, request.count("limit")?);
    let mut bytes = Vec::new();
    let mut stages = ArrayWriter::new(&mut bytes);
    let mut stage = |name: &str, argument: Option<Value<'_>>| {
        if let Some(argument) = argument {
            stages.begin_doc().append(name, argument);
        }
    };
    stage("$match", Some(Value::Document(filter)).filter(|_| !filter.is_empty()));
    stage("$sort", Some(Value::Document(sort)).filter(|_| !sort.is_empty()));
    stage("$skip", Some(Value::whole(skip)).filter(|_| skip > 0));
    stage("$limit", Some(Value::whole(limit)).filter(|_| limit > 0));
    stage("$project", Some(Value::Document(projection)).filter(|_| !projection.is_empty()));
    stages.finish();
    Ok(DocBuf::trusted(bytes))
}

/// Returns the pipeline, an array of stages, that is equivalent to a `count`.
pub fn stages_of_count(op: &CountOp<'_>) -> DocBuf {
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

/// Returns the pipeline, an array of stages, that `explain` shows for a `distinct`.
pub fn stages_of_distinct(op: &DistinctOp<'_>) -> DocBuf {
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
