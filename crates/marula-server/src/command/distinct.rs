//! `distinct`: the different values that a field has in the documents that match.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use marula_bson::key_string::{self, KeyStringReader};
use marula_bson::{
    ArrayWriter, ByteSlice, Collator, Doc, DocBuf, DocWriter, FieldPath, Value, ValueBuf, order,
};
use marula_db::index::IndexKind;
use marula_db::{Collection, Index};
use marula_error::{Result, errors};
use marula_plan::{Emit, Execution, bounds, planner};
use marula_query::expression::path::Path;
use marula_storage::Direction;

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome, ReadConcernLevels};
use crate::context::Context;
use crate::query_args;
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
            Field::optional("hint", Types::Any),
            Field::optional("queryOptions", Types::DOCUMENT),
            Field::optional("collectionUUID", Types::Any),
            Field::optional("maxTimeMS", Types::NUMBER),
        ],
    },
    auth: Auth::Collection(&["find"]),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = request.namespace()?;
    let key = request.text("key").unwrap_or_default();
    if key.contains(&0) {
        return Err(key_with_nul());
    }
    Path::parse(key.as_bytes())?;
    let path = FieldPath::new(key.as_bytes());
    let collection = ctx.server.db.collection(&ns);
    let context =
        query_args::query_context(ctx, collection.as_deref(), request.arg("collation"), None)?;
    let filter = query_args::doc_or_empty("query", request.arg("query"))?;
    let mut query = query_args::parse_query(filter, context.clone())?;
    query.hint = query_args::parse_hint(request.arg("hint"))?;
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
            super::aggregate::scan(ctx, &ns, &stages, context.clone(), &mut add)?;
        } else if filter.is_empty()
            && query.hint.is_none()
            && let Some(index) = index_for(&collection, &path, &context)
        {
            values.add_keys(ctx, &collection, index)?;
        } else {
            let (plan, query) = planner::plan(&collection.state(), query)?;
            let mut execution = Execution::new(collection, plan, query);
            let outcome =
                execution.run(&ctx.server.db, &mut || ctx.check_interrupt(), &mut |found| {
                    values.add(&path, found.doc)?;
                    Ok(Emit::Taken)
                });
            outcome.map_err(|error| error.caused_by(EXECUTING))?;
        }
    }
    values.write(&mut reply.begin_array("values"));
    ctx.append_snapshot_time(request, reply);
    Ok(if is_view { Outcome::DoneOnView } else { Outcome::Done })
}

/// An index whose entries tell every value of the path: its first field, in no array but the last component's.
pub(super) fn index_for(
    collection: &Collection,
    path: &FieldPath,
    context: &marula_query::context::Context,
) -> Option<Arc<Index>> {
    let state = collection.state();
    let is_suitable = |index: &&Arc<Index>| {
        let spec = &index.spec;
        let last = 1u64 << (path.parts().len() - 1).min(63);
        matches!(spec.kind, IndexKind::Ordinary)
            && spec.parts[0].path == *path
            && !spec.sparse
            && !spec.hidden
            && spec.partial.is_none()
            && spec.collation.is_none()
            && index.multikey_paths()[0] & !last == 0
    };
    let has_number = path.indexes().iter().any(Option::is_some);
    let mut candidates = state.indexes.iter().filter(is_suitable);
    if context.collation.is_some() || has_number { None } else { candidates.next().cloned() }
}

/// How many keys [`Values::add_keys`] looks at.
pub(super) fn count_keys(
    ctx: &Context<'_>,
    collection: &Collection,
    index: Arc<Index>,
) -> Result<u64> {
    let mut values = Values::new(None);
    values.add_keys(ctx, collection, index)
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

    /// Adds the values of a path in a document: those of an array one by one.
    fn add(&mut self, path: &FieldPath, doc: Doc<'_>) -> Result<()> {
        let mut outcome = Ok(());
        let _ = path.walk(doc, |leaf| {
            match (leaf.expanding_array(), leaf.value) {
                (Some(array), _) => array.values().for_each(|value| self.push(value)),
                (None, Some(value)) => self.push(value.get()),
                (None, None) => {}
            }
            if self.bytes > VALUES_BYTES_MAX {
                outcome = Err(too_big());
                return std::ops::ControlFlow::Break(());
            }
            std::ops::ControlFlow::Continue(())
        });
        outcome
    }

    /// Adds the values that an index's entries start with, jumping from one value to the next. What documents
    /// without the field have there is null, which is among the values then. Answers how many keys were looked at.
    fn add_keys(
        &mut self,
        ctx: &Context<'_>,
        collection: &Collection,
        index: Arc<Index>,
    ) -> Result<u64> {
        let mut keys = 0;
        let descending = index.spec.parts[0].descending;
        let store = ctx.server.db.store();
        let mut cursor = collection.scan_index(store, index, &bounds::all(), Direction::Forward)?;
        let mut there_is_one = cursor.advance()?;
        while there_is_one {
            ctx.check_interrupt()?;
            keys += 1;
            let entry = cursor.entry()?;
            let reader = KeyStringReader::new(entry.key_string, entry.type_bits);
            let Some(mut reader) = reader else { return Err(damaged_entry()) };
            let value = reader.read(descending).ok_or_else(damaged_entry)?;
            let first_field = &entry.key_string[..entry.key_string.len() - reader.rest().len()];
            let behind = key_string::successor(first_field).ok_or_else(damaged_entry)?;
            match value.get() {
                Value::Array(array) => array.values().for_each(|value| self.push(value)),
                value => self.push(value),
            }
            if self.bytes > VALUES_BYTES_MAX {
                return Err(too_big());
            }
            there_is_one = cursor.seek(&behind)?;
        }
        Ok(keys)
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
