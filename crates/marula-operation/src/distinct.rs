//! `distinct`: the distinct values of a field in the documents that match.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use marula_bson::key_string::KeyStringReader;
use marula_bson::{
    ArrayWriter, BStr, ByteSlice, Collator, Doc, DocBuf, FieldPath, Value, ValueBuf, order,
};
use marula_db::collection::State;
use marula_db::index::IndexKind;
use marula_db::{Collection, Index, Namespace};
use marula_error::{Result, errors};
use marula_plan::planner::ValueLocation;
use marula_plan::{Emit, Execution, Found, Query, Shown, TimeBudget, Wording, choice, planner};
use marula_query::context::Context as QueryContext;
use marula_query::expression::path::Path;
use marula_query::filter::{Filter, Purpose};
use marula_query::projection::Projection;
use marula_query::values_at_path;

use crate::args::{self, Arguments};
use crate::env::Env;

/// The maximum size of the values in one reply. Source: manual "distinct": the result fits a
/// document.
const VALUES_BYTES_MAX: usize = 16 * 1024 * 1024;

errors! {
    too_big() = 17_217, "distinct too big, 16mb cap";
    damaged_entry() = 8_000_005, "an entry of the index is not a key string";
    key_with_nul() = 31_032, "Key field cannot contain an embedded null byte";
}

/// The prefix of an error of the execution.
const EXECUTING: &str = "Executor error during distinct command";

/// The actions on the collection that the user must be allowed.
pub const ACTIONS: &[&str] = &["find"];

/// A `distinct` whose form is checked.
pub struct DistinctOp<'a> {
    /// The filter.
    pub filter: Doc<'a>,
    /// The path of the values.
    pub path: FieldPath,
    key: &'a BStr,
    is_of_view: bool,
    hint: Option<Value<'a>>,
    collation: Option<Value<'a>>,
}

impl<'a> DistinctOp<'a> {
    /// Reads the fields of a `distinct`, on a view or on a collection.
    ///
    /// Errors: this module's rows, and those of [`args`].
    pub fn parse(request: &impl Arguments<'a>, is_of_view: bool) -> Result<Self> {
        let key = request.arg("key").and_then(|key| key.as_str()).unwrap_or_default();
        if key.contains(&0) {
            return Err(key_with_nul());
        }
        Ok(DistinctOp {
            filter: request.doc("query")?,
            path: FieldPath::new(key.as_bytes()),
            key,
            is_of_view,
            hint: request.arg("hint"),
            collation: request.arg("collation"),
        })
    }

    /// The path of the values, as it was sent.
    pub fn key(&self) -> &'a BStr {
        self.key
    }

    /// Makes the query; `None` is a collection that does not exist.
    ///
    /// Errors: those of the collation, the filter, the hint, the key, the filter's constants, and
    /// the key on a view, in this order.
    pub fn query(
        &self,
        env: &Env<'_>,
        ns: &Namespace,
        collection: Option<&Collection>,
    ) -> Result<Query> {
        let mut context = env
            .context(collection, self.collation, None)
            .map_err(|error| error.caused_by("unable to parse collation"))?;
        context.text_search_error = match collection.filter(|_| !self.is_of_view) {
            None => Some(Arc::new(args::no_text_index(ns))),
            Some(collection) => args::missing_text_index(self.filter, collection),
        };
        let draft = Filter::draft(self.filter, Purpose::Any, &context)?;
        let hint = args::parse_hint(self.hint)?;
        self.check_key(&context)?;
        let filter = draft.finish(&context)?;
        if self.is_of_view {
            Path::parse(self.key.as_bytes())?;
        }
        Ok(Query { hint, ..Query::new(filter, context) })
    }

    /// Checks that the path of the values is one of a projection, which may end in `$`: here that
    /// is the name of a field.
    fn check_key(&self, context: &QueryContext) -> Result<()> {
        let shown = DocBuf::build(|out| {
            out.append(up_to_place(self.key.as_bytes()), 1);
        });
        Projection::draft_for(shown.as_doc(), self.filter, context).map(drop)
    }

    /// The query as the client wrote it.
    pub fn wording(&self) -> Wording<'a> {
        Wording::of(self.filter, self.collation)
    }

    /// Prepares a query whose values are read from documents, because no index has them all.
    /// Returns the projection that messages name, if there is one.
    pub fn show(&self, state: &State, query: &mut Query) -> Option<DocBuf> {
        query.shown = shown(state, query, &self.path);
        query.shown.as_ref().map(|_| projection(&self.path))
    }

    /// Adds the values of the documents that `query` finds in a collection.
    ///
    /// Errors: those of [`choice::choose`] and of the execution; `too_big`.
    pub fn run(
        &self,
        env: &Env<'_>,
        collection: Arc<Collection>,
        mut query: Query,
        values: &mut Values<'_>,
    ) -> Result<()> {
        let state = env.unit.state(&collection);
        if let Some((plan, location)) = planner::plan_distinct(&state, &query, &self.path) {
            let execution = Execution::new(collection, plan, query);
            return self.gather(env, execution, location, values);
        }
        let projection = self.show(&state, &mut query);
        let projection = projection.as_ref().map(|projection| projection.as_doc());
        let wording = Wording { projection, ..self.wording() };
        // Values cannot be taken back, so the execution is not attempted within a time budget.
        let time_budget = TimeBudget::all_or_none(env.host.time_budget().is_long());
        let mut interrupt = || env.check_interrupt();
        let execution =
            choice::choose(env.unit, &collection, query, &wording, time_budget, &mut interrupt)?;
        self.gather(env, execution, None, values)
    }

    fn gather(
        &self,
        env: &Env<'_>,
        mut execution: Execution,
        location: Option<ValueLocation>,
        values: &mut Values<'_>,
    ) -> Result<()> {
        let outcome = execution.run(env.unit, &mut || env.check_interrupt(), &mut |found| {
            match location {
                Some(location) => values.add_key(&self.path, &found, location)?,
                None => values.add(&self.path, found.doc)?,
            }
            Ok(Emit::Taken)
        });
        outcome.map(drop).map_err(|error| error.caused_by(EXECUTING))
    }
}

/// Returns the path up to an array index: the part that a projection can have.
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

/// Returns the projection that includes only this field.
fn projection(path: &FieldPath) -> DocBuf {
    DocBuf::build(|out| {
        if path.parts().len() != 1 || path.first() != b"_id" {
            out.append("_id", 0);
        }
        out.append(path.to_string(), 1);
    })
}

/// Returns the part of documents that is needed, if an index may have it: the field itself. As in
/// mongod, the whole document is needed if such an index finds it but does not cover the query.
fn shown(state: &State, query: &Query, path: &FieldPath) -> Option<Shown> {
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

/// A set of values.
pub struct Values<'c> {
    collator: Option<&'c dyn Collator>,
    values: Vec<ValueBuf>,
    /// The positions of the values with the same hash.
    by_hash: HashMap<u64, Vec<usize>>,
    hashing: RandomState,
    bytes: usize,
}

impl<'c> Values<'c> {
    /// Creates an empty set. `collator` compares strings.
    pub fn new(collator: Option<&'c dyn Collator>) -> Self {
        Values {
            collator,
            values: Vec::new(),
            by_hash: HashMap::new(),
            hashing: RandomState::new(),
            bytes: 0,
        }
    }

    /// Adds the values of a path in a document, the elements of an array one by one. As in mongod,
    /// of values of one document that are equal under the collation, the least in binary order
    /// counts.
    ///
    /// Errors: `too_big`.
    pub fn add(&mut self, path: &FieldPath, doc: Doc<'_>) -> Result<()> {
        let mut found = Vec::new();
        values_at_path::find(path, 0, Value::Document(doc), &mut found);
        if self.collator.is_some() {
            found.sort_by(|a, b| order::compare(*a, *b, None));
        }
        found.into_iter().for_each(|value| self.push(value));
        if self.bytes > VALUES_BYTES_MAX { Err(too_big()) } else { Ok(()) }
    }

    /// Adds the values in an entry of an index. Documents without the field have null there, which
    /// is then a value.
    fn add_key(
        &mut self,
        path: &FieldPath,
        found: &Found<'_>,
        location: ValueLocation,
    ) -> Result<()> {
        let Some((index, entry)) = found.entry else { return Ok(()) };
        let mut reader =
            KeyStringReader::new(entry.key_string, entry.type_bits).ok_or_else(damaged_entry)?;
        let mut directions = index.spec.entry_directions();
        for descending in directions.by_ref().take(location.field) {
            reader.skip(descending).ok_or_else(damaged_entry)?;
        }
        let descending = directions.next().ok_or_else(damaged_entry)?;
        let value = reader.read(descending).ok_or_else(damaged_entry)?;
        let mut held = Vec::new();
        values_at_path::find(path, location.depth, value.get(), &mut held);
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
    pub fn write(&mut self, out: &mut ArrayWriter<'_>) {
        self.values.sort_by(|a, b| order::compare(a.get(), b.get(), self.collator));
        self.values.iter().for_each(|value| {
            out.push(value);
        });
    }
}
