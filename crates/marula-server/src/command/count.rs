//! `count`: how many documents match.

use marula_bson::{ArrayWriter, DocBuf, DocWriter, Value};
use marula_error::{Result, errors};
use marula_operation::{Host, args};
use marula_plan::{Wanted, Wording, choice};

use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, Named, Outcome, Place};
use crate::context::Context;
use crate::environment;
use crate::request::Request;

errors! {
    limit_not_a_number() = BadValue, "limit value is not a valid number";
    limit_least() = BadValue, "limit value for count cannot be min long";
    limit_not_whole(limit: &Value<'_>) = FailedToParse, "Expected an integer: limit: {limit}";
    limit_too_large(limit: &Value<'_>) = FailedToParse, "Cannot represent as a 64-bit integer: limit: {limit}";
}

pub(super) static COMMAND: Command = Command {
    name: "count",
    help: "Counts the documents that match a query.",
    place: Place::Decides,
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
    auth: Auth::Collection(&["find"]),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = environment::readable_namespace(request)?;
    let filter = args::doc_or_empty("query", request.arg("query"))?;
    let skip = args::count_or_zero("skip", request.arg("skip"))?;
    let limit = limit_of(request)?;
    let collection = ctx.unit.touched(&ns)?;
    let context = ctx.env().context(collection.as_deref(), request.arg("collation"), None)?;
    let mut query = args::parse_query(filter, context)?;
    query.hint = args::parse_hint(request.arg("hint"))?;
    let Some(collection) = collection else {
        reply.append("n", 0);
        return Ok(Outcome::Done);
    };
    if collection.state().options.view.is_some() {
        let stages = stages_of_count(request)?;
        return super::aggregate::count_on_view(ctx, request, &ns, &stages, reply);
    }
    let counted = if filter.is_empty() && query.hint.is_none() {
        let all = u64::try_from(collection.count()).unwrap_or(0);
        all.saturating_sub(skip).min(limit.unwrap_or(u64::MAX))
    } else {
        query.wanted = Wanted::Count;
        let mut interrupt = || ctx.check_interrupt();
        let wording = Wording::of(filter, request.arg("collation"));
        let chosen = choice::choose(
            ctx.unit,
            &collection,
            query,
            &wording,
            ctx.time_budget(),
            &mut interrupt,
        )?;
        let Some(mut execution) = chosen else { return Ok(Outcome::ToPool) };
        let enough = limit.map_or(u64::MAX, |limit| limit.saturating_add(skip));
        match execution.count(ctx.unit, enough, &mut || ctx.check_interrupt())? {
            Some(found) => found.saturating_sub(skip),
            None => return Ok(Outcome::ToPool),
        }
    };
    append_count(counted, reply);
    Ok(Outcome::Done)
}

/// Appends `n`: an int, or a long where an int is too small.
pub(super) fn append_count(counted: u64, reply: &mut DocWriter<'_>) {
    reply.append("n", Value::whole(i64::try_from(counted).unwrap_or(i64::MAX)));
}

/// How many documents are counted at most. A negative limit is the same limit; zero is none.
pub(super) fn limit_of(request: &Request<'_>) -> Result<Option<u64>> {
    // Null is no number here.
    let given = request.args.iter().find(|element| element.name == "limit");
    let Some(limit) = given.map(|element| element.value.get()) else { return Ok(None) };
    let number = limit.as_f64().ok_or_else(limit_not_a_number)?;
    let whole = limit.as_exact_i64().ok_or_else(|| match number.abs() < 2_f64.powi(63) {
        true => limit_not_whole(&limit),
        false => limit_too_large(&limit),
    })?;
    match whole {
        i64::MIN => Err(limit_least()),
        0 => Ok(None),
        whole => Ok(Some(whole.unsigned_abs())),
    }
}

/// What the stages that count call the number.
pub(super) const COUNTED: &str = "count";

/// The stages, as an array, that say what a `count` says: those that count on a view.
pub(super) fn stages_of_count(request: &Request<'_>) -> Result<DocBuf> {
    let filter = args::doc_or_empty("query", request.arg("query"))?;
    let skip = args::count_or_zero("skip", request.arg("skip"))?;
    let number = |number: u64| Value::whole(i64::try_from(number).unwrap_or(i64::MAX));
    let mut bytes = Vec::new();
    let mut stages = ArrayWriter::new(&mut bytes);
    if !filter.is_empty() {
        stages.begin_doc().append("$match", filter);
    }
    if skip > 0 {
        stages.begin_doc().append("$skip", number(skip));
    }
    if let Some(limit) = limit_of(request)? {
        stages.begin_doc().append("$limit", number(limit));
    }
    stages.begin_doc().append("$count", COUNTED);
    stages.finish();
    Ok(DocBuf::trusted(bytes))
}
