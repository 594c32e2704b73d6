//! `distinct`: the different values that a field has in the documents that match.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use marula_bson::key_string::KeyStringReader;
use marula_bson::{
    ArrayWriter, ByteSlice, Collator, Doc, DocBuf, DocWriter, FieldPath, Value, ValueBuf, doc,
    order,
};
use marula_db::Index;
use marula_db::collection::State;
use marula_db::index::IndexKind;
use marula_error::{Result, errors};
use marula_operation::args;
use marula_plan::planner::Told;
use marula_plan::{Emit, Execution, Found, Patience, Query, Shown, Wording, choice, planner};
use marula_query::expression::path::Path;
use marula_query::feature_version::FeatureVersion;
use marula_query::projection::positional_in_the_middle;
use marula_query::values_at_path;

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Named, Outcome, ReadConcernLevels};
use crate::context::Context;
use crate::environment;
use crate::pipeline_source::PipelineOptions;
use crate::request::Request;
use crate::view;

/// The most bytes of values in one reply. Source: manual "distinct": the result fits a document.
const VALUES_BYTES_MAX: usize = 16 * 1024 * 1024;

errors! {
    too_big() = 17_217, "distinct too big, 16mb cap";
    damaged_entry() = 8_000_005, "an entry of the index is not a key string";
    key_with_nul() = 31_032, "Key field cannot contain an embedded null byte";
}

/// What stands before an error of the query that runs.
const EXECUTING: &str = "Executor error during distinct command";

pub(super) static COMMAND: Command = Command {
    name: "distinct",
    help: "Gives the different values of a field in the documents that match a query.",
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
    auth: Auth::Collection(&["find"]),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = environment::readable_namespace(request)?;
    let key = request.text("key").unwrap_or_default();
    if key.contains(&0) {
        return Err(key_with_nul());
    }
    let collection = ctx.unit.touched(&ns)?;
    let has_view = collection.as_ref().is_some_and(|found| found.state().options.view.is_some());
    check_key(key.as_bytes(), has_view)?;
    let path = FieldPath::new(key.as_bytes());
    let context = ctx.env().context(collection.as_deref(), request.arg("collation"), None)?;
    let filter = args::doc_or_empty("query", request.arg("query"))?;
    let mut query = args::parse_query(filter, context.clone())?;
    query.hint = args::parse_hint(request.arg("hint"))?;
    view::check_collation(collection.as_deref(), request.arg("collation"))?;
    let mut values = Values::new(context.collator());
    let mut is_view = false;
    if let Some(collection) = collection {
        is_view = collection.state().options.view.is_some();
        if is_view {
            let mut stages = Vec::new();
            ArrayWriter::new(&mut stages).begin_doc().append("$match", filter);
            let stages = DocBuf::trusted(stages);
            let mut add = |doc: Doc<'_>| values.add(&path, doc);
            let options = PipelineOptions { hint: query.hint, ..PipelineOptions::default() };
            super::aggregate::scan(ctx, &ns, &stages, context.clone(), options, &mut add)?;
        } else if let Some((plan, told)) =
            planner::plan_distinct(&ctx.unit.state(&collection), &query, &path)
        {
            let mut execution = Execution::new(collection, plan, query);
            let outcome = execution.run(ctx.unit, &mut || ctx.check_interrupt(), &mut |found| {
                match told {
                    Some(told) => values.add_key(&path, &found, told)?,
                    None => values.add(&path, found.doc)?,
                }
                Ok(Emit::Taken)
            });
            outcome.map_err(|error| error.caused_by(EXECUTING))?;
        } else {
            query.shown = shown(&ctx.unit.state(&collection), &query, &path);
            let mut interrupt = || ctx.check_interrupt();
            let projection = query.shown.as_ref().map(|_| projection(&path));
            let wording = Wording {
                projection: projection.as_ref().map(|projection| projection.as_doc()),
                ..Wording::of(filter, request.arg("collation"))
            };
            let patience = Patience::all_or_none(ctx.may_wait());
            let chosen =
                choice::choose(ctx.unit, &collection, query, &wording, patience, &mut interrupt)?;
            let Some(mut execution) = chosen else { return Ok(Outcome::ToPool) };
            let outcome = execution.run(ctx.unit, &mut || ctx.check_interrupt(), &mut |found| {
                values.add(&path, found.doc)?;
                Ok(Emit::Taken)
            });
            outcome.map_err(|error| error.caused_by(EXECUTING))?;
        }
    }
    values.write(&mut reply.begin_array("values"));
    ctx.append_snapshot_time(reply);
    Ok(if is_view { Outcome::DoneOnView } else { Outcome::Done })
}

/// The path up to a place in an array: that is all that a projection is made of.
fn up_to_place(key: &[u8]) -> &[u8] {
    let is_place = |part: &[u8]| {
        let digits = part.iter().all(u8::is_ascii_digit);
        digits && part.to_str().is_ok_and(|part| part.parse::<u32>().is_ok())
    };
    let mut end = 0;
    for (number, part) in key.split(|&byte| byte == b'.').enumerate() {
        if number > 0 && is_place(part) {
            return &key[..end - 1];
        }
        end += part.len() + 1;
    }
    key
}

/// Checks the path whose values are wanted. It is a projection's, which may end in `$`: here that
/// is a field's name. Of a view it is an expression's too, which may not.
pub(super) fn check_key(key: &[u8], is_of_view: bool) -> Result<()> {
    let key = if is_of_view { key } else { up_to_place(key) };
    let (front, is_positional) = match key.strip_suffix(b".$") {
        Some(front) => (front, true),
        None => (key, false),
    };
    let mut middle = front.split(|&byte| byte == b'.').skip(1);
    if middle.any(|part| part == b"$") {
        return Err(positional_in_the_middle());
    }
    Path::parse(if is_positional && !is_of_view { front } else { key }).map(drop)
}

/// The projection that shows a field alone.
pub(super) fn projection(path: &FieldPath) -> DocBuf {
    DocBuf::build(|out| {
        if path.parts().len() != 1 || path.first() != b"_id" {
            out.append("_id", 0);
        }
        out.append(path.to_string(), 1);
    })
}

/// What of documents is needed, where an index may hold it: the field itself. As in mongod, all of
/// the document is where such an index leads to it, and does not answer alone.
pub(super) fn shown(state: &State, query: &Query, path: &FieldPath) -> Option<Shown> {
    let is_indexed = |index: &Arc<Index>| match &index.spec.kind {
        IndexKind::Wildcard(wildcard) if wildcard.covers(path) => {
            !query.filter.to_doc().as_doc().is_empty()
        }
        _ => index.spec.parts.iter().any(|part| part.path == *path),
    };
    let mut visible = state.indexes.iter().filter(|index| !index.spec.hidden);
    (visible.any(is_indexed) && !planner::is_led_to(state, query, path))
        .then(|| Shown::field(&planner::up_to_number(path)))
}

/// What each document of a view is made into: an array of the values, then a document for each of
/// them.
const UNWOUND: &str = "_internalUnwoundArray";

/// The stages, as an array, that say what a `distinct` says: those that mongod makes of one on a
/// view.
pub(super) fn stages_of_distinct(request: &Request<'_>) -> Result<DocBuf> {
    let filter = args::doc_or_empty("query", request.arg("query"))?;
    let key = request.text("key").unwrap_or_default();
    check_key(key.as_bytes(), true)?;
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
    Ok(DocBuf::trusted(bytes))
}

/// Values, each once.
struct Values<'c> {
    collator: Option<&'c dyn Collator>,
    values: Vec<ValueBuf>,
    /// Which values have the same hash.
    by_hash: HashMap<u64, Vec<usize>>,
    hashing: RandomState,
    bytes: usize,
}

impl<'c> Values<'c> {
    fn new(collator: Option<&'c dyn Collator>) -> Self {
        Values {
            collator,
            values: Vec::new(),
            by_hash: HashMap::new(),
            hashing: RandomState::new(),
            bytes: 0,
        }
    }

    /// Adds the values of a path in a document: those of an array one by one. As in mongod those of
    /// one document that a collation takes to be the same are told by the least of them.
    fn add(&mut self, path: &FieldPath, doc: Doc<'_>) -> Result<()> {
        let mut found = Vec::new();
        values_at_path::find(path, 0, Value::Document(doc), &mut found);
        if self.collator.is_some() {
            found.sort_by(|a, b| order::compare(*a, *b, None));
        }
        found.into_iter().for_each(|value| self.push(value));
        if self.bytes > VALUES_BYTES_MAX { Err(too_big()) } else { Ok(()) }
    }

    /// Adds the values that the entry of an index tells. What documents without the field have
    /// there is null, which is among the values then.
    fn add_key(&mut self, path: &FieldPath, found: &Found<'_>, told: Told) -> Result<()> {
        let Some((index, entry)) = found.entry else { return Ok(()) };
        let mut reader =
            KeyStringReader::new(entry.key_string, entry.type_bits).ok_or_else(damaged_entry)?;
        let mut directions = index.spec.entry_directions();
        for descending in directions.by_ref().take(told.field) {
            reader.skip(descending).ok_or_else(damaged_entry)?;
        }
        let descending = directions.next().ok_or_else(damaged_entry)?;
        let value = reader.read(descending).ok_or_else(damaged_entry)?;
        let mut held = Vec::new();
        values_at_path::find(path, told.depth, value.get(), &mut held);
        held.into_iter().for_each(|value| self.push(value));
        if self.bytes > VALUES_BYTES_MAX { Err(too_big()) } else { Ok(()) }
    }

    fn push(&mut self, value: Value<'_>) {
        let mut hasher = self.hashing.build_hasher();
        order::hash(value, self.collator, &mut hasher);
        let same_hash = self.by_hash.entry(hasher.finish()).or_default();
        let is_known = same_hash
            .iter()
            .any(|&known| order::equal(self.values[known].get(), value, self.collator));
        if !is_known {
            same_hash.push(self.values.len());
            let value = value.to_buf();
            self.bytes += value.as_raw().bytes().len() + 8;
            self.values.push(value);
        }
    }

    /// Appends the values in ascending order.
    fn write(&mut self, out: &mut ArrayWriter<'_>) {
        self.values.sort_by(|a, b| order::compare(a.get(), b.get(), self.collator));
        self.values.iter().for_each(|value| {
            out.push(value);
        });
    }
}
