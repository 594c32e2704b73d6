//! `splitVector`: the keys of an index that split a collection into chunks of similar size.
//!
//! A chunk gets half the number of documents of average size that fit the maximum size, so that it
//! is split before it is full. Equal keys are never separated. Connectors use the command to read a
//! collection in parallel. Source: recorded from mongod 6.0.

use std::sync::Arc;

use marula_bson::key_string::KeyStringReader;
use marula_bson::{Doc, DocBuf, DocWriter, Value};
use marula_db::Collection;
use marula_error::{Result, errors};
use marula_operation::targets;
use marula_plan::{Emit, Execution, Hint, Query, Wanted, planner};
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;

use super::check_sharding_index::{self, MultikeyIndexes, unsuited};
use super::{Auth, Command, OnSecondary, Outcome};
use crate::context::Context;
use crate::request::Request;

errors! {
    no_size() = InvalidOptions, "need to specify the desired max chunk size";
    size_range() = InvalidOptions, "maxChunkSize must lie within the range [1MB, 1024MB]";
    bytes_range() = InvalidOptions, "The specified max chunk size must lie within the range [1MB, 1024MB]";
    objects_range() = InvalidOptions, "maxChunkObjects must be greater than 0";
    not_found() = NamespaceNotFound, "ns not found";
    no_index(key: Doc<'_>) = IndexNotFound, "couldn't find index over splitting key {key}";
    bound_fields(bound: Doc<'_>, key: Doc<'_>) = 16_634, "field names of bound {bound} do not match those of keyPattern {key}";
    empty_range() = OperationFailed, "can't open a cursor to scan the range (desired range is possibly empty)";
}

pub(super) static COMMAND: Command = Command {
    name: "splitVector",
    help: "Returns the keys of an index that split a collection into chunks of similar size.",
    secondary: Some(OnSecondary::Never),
    ends_with_client: true,
    auth: Auth::Content(|request, check| {
        check_sharding_index::needs_on_named(request, check, "splitVector")
    }),
    run,
    ..Command::DEFAULT
};

const MEGABYTE: i64 = 1 << 20;
/// The maximum size of a chunk that a client may ask for.
const SIZE_MAX: i64 = 1024 * MEGABYTE;
/// The maximum size of the keys of a reply; it leaves room for the other fields.
const REPLY_BYTES_MAX: usize = 16 * 1024 * 1024 - 64 * 1024;

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = check_sharding_index::namespace(request)?;
    let Some(key) = check_sharding_index::key_pattern(request) else {
        return Ok(Outcome::Failed("no key pattern found in splitVector".to_owned()));
    };
    let bound = |name: &str| {
        let bound = request.arg(name).and_then(|bound| bound.as_doc());
        bound.filter(|bound| !bound.is_empty())
    };
    let bounds = match (bound("min"), bound("max")) {
        (Some(min), Some(max)) => Some((min, max)),
        (None, None) => None,
        _ => {
            let message = "either provide both min and max or leave both empty";
            return Ok(Outcome::Failed(message.to_owned()));
        }
    };
    let options = SplitOptions::read(request)?;
    let collection = ctx.server.db.collection(&ns).ok_or_else(not_found)?;
    targets::check_not_view(&collection)?;
    let state = collection.state();
    let suits = |index: &&Arc<marula_db::Index>| {
        !index.spec.hidden && unsuited(index, key, MultikeyIndexes::Accepted).is_empty()
    };
    let index = state.indexes.iter().find(suits).ok_or_else(|| no_index(key))?;
    let (bytes, documents) = (collection.size_bytes(), collection.count());
    let size = options.size(bytes)?;
    let mut keys = reply.begin_array("splitKeys");
    if documents == 0 || bytes < size {
        return Ok(Outcome::Done);
    }
    let mut search = Search {
        ctx,
        collection: &collection,
        index: index.spec.name.clone(),
        key,
        bounds: match bounds {
            Some((min, max)) => Some((
                whole_bound(min, key, index.spec.key.as_doc())?,
                whole_bound(max, key, index.spec.key.as_doc())?,
            )),
            None => None,
        },
        points_max: options.points_max,
    };
    let mut per_piece = size / (2 * (bytes / documents).max(1));
    if let Some(objects) = options.objects_max {
        per_piece = per_piece.min(objects);
    }
    let (mut found, seen) = search.cut(per_piece)?;
    if seen == 0 {
        return Err(empty_range());
    }
    if options.force && found.is_empty() {
        // The range is smaller than a chunk: it is split in the middle.
        (found, _) = search.cut(seen / 2)?;
    }
    for key in &found {
        keys.push(key);
    }
    Ok(Outcome::Done)
}

/// The sizes of chunks and the number of split points that the request specifies.
struct SplitOptions {
    bytes: Option<i64>,
    points_max: Option<usize>,
    objects_max: Option<i64>,
    /// Split once, in the middle, regardless of the collection's size.
    force: bool,
}

impl SplitOptions {
    fn read(request: &Request<'_>) -> Result<Self> {
        #[allow(clippy::cast_possible_truncation)]
        let number = |name: &str| Some(request.arg(name)?.as_f64()? as i64);
        let bytes = match (number("maxChunkSize"), number("maxChunkSizeBytes")) {
            (Some(megabytes @ 1..=1024), _) => Some(megabytes * MEGABYTE),
            (Some(_), _) => return Err(size_range()),
            (None, Some(bytes @ MEGABYTE..=SIZE_MAX)) => Some(bytes),
            (None, Some(_)) => return Err(bytes_range()),
            (None, None) => None,
        };
        if number("maxChunkObjects").is_some_and(|objects| objects <= 0) {
            return Err(objects_range());
        }
        let force = request.flag("force");
        let points = number("maxSplitPoints").filter(|&points| points > 0);
        let points = points.and_then(|points| usize::try_from(points).ok());
        Ok(SplitOptions {
            bytes,
            points_max: if force { Some(1) } else { points },
            objects_max: number("maxChunkObjects"),
            force,
        })
    }

    /// Returns the size of a chunk for a collection of `collection_bytes`.
    ///
    /// Errors: `no_size`.
    fn size(&self, collection_bytes: i64) -> Result<i64> {
        match (self.force, self.bytes) {
            (true, _) if collection_bytes > 0 => Ok(collection_bytes),
            (false, Some(bytes)) => Ok(bytes),
            _ => Err(no_size()),
        }
    }
}

/// Returns a bound with a value for every field of the index; fields that it does not specify get
/// the value that sorts first.
fn whole_bound(bound: Doc<'_>, key: Doc<'_>, index: Doc<'_>) -> Result<DocBuf> {
    let mut names = key.iter().map(|field| field.name);
    if bound.iter().any(|field| names.next() != Some(field.name)) {
        return Err(bound_fields(bound, key));
    }
    Ok(DocBuf::build(|out| {
        let mut values = bound.iter();
        for field in index {
            let descends = field.value.get().as_f64().is_some_and(|order| order < 0.0);
            match values.next() {
                Some(value) => out.append_raw(field.name, value.value),
                None if descends => out.append(field.name, Value::MaxKey),
                None => out.append(field.name, Value::MinKey),
            };
        }
    }))
}

/// The search for the split points.
struct Search<'s, 'c> {
    ctx: &'s Context<'c>,
    collection: &'s Arc<Collection>,
    index: String,
    key: Doc<'s>,
    bounds: Option<(DocBuf, DocBuf)>,
    points_max: Option<usize>,
}

impl Search<'_, '_> {
    /// Scans the index. Returns each key that follows more than `per_piece` others and differs from
    /// the previous result, and the number of scanned keys.
    fn cut(&mut self, per_piece: i64) -> Result<(Vec<DocBuf>, i64)> {
        let context = QueryContext::default();
        let mut query = Query::new(Filter::everything(&context), context);
        query.hint = Some(Hint::Name(self.index.clone()));
        query.wanted = Wanted::Key;
        if let Some((min, max)) = &self.bounds {
            (query.min, query.max) = (Some(min.clone()), Some(max.clone()));
        }
        let state = self.collection.state();
        let plan = match planner::plan(&state, &query) {
            Err(error) if error.code().number() == 51_175 => return Err(empty_range()),
            plan => plan?,
        };
        let mut execution = Execution::new(self.collection.clone(), plan, query);
        let (mut seen, mut of_piece, mut bytes) = (0_i64, 0_i64, 0_usize);
        let mut last: Option<DocBuf> = None;
        let mut found = Vec::new();
        let ctx = self.ctx;
        execution.run(ctx.unit, &mut || ctx.check_interrupt(), &mut |entry| {
            seen += 1;
            of_piece += 1;
            if last.is_some() && of_piece <= per_piece {
                return Ok(Emit::Taken);
            }
            let Some((index, entry)) = entry.entry else { return Ok(Emit::Taken) };
            let reader = KeyStringReader::new(entry.key_string, entry.type_bits);
            let Some(here) = reader.and_then(|mut reader| {
                let mut out = Vec::new();
                let mut doc = DocWriter::new(&mut out);
                for (field, part) in self.key.iter().zip(&index.spec.parts) {
                    reader.read_into(part.descending, field.name, &mut doc)?;
                }
                doc.finish();
                Some(DocBuf::trusted(out))
            }) else {
                return Ok(Emit::Taken);
            };
            let is_first = last.is_none();
            if is_first || last.as_ref() != Some(&here) {
                last = Some(here.clone());
                if !is_first {
                    of_piece = 0;
                    bytes += here.as_doc().as_bytes().len() + 16;
                    if bytes > REPLY_BYTES_MAX {
                        return Ok(Emit::Enough);
                    }
                    found.push(here);
                }
            }
            let is_enough = self.points_max.is_some_and(|max| found.len() >= max);
            Ok(if is_enough { Emit::Enough } else { Emit::Taken })
        })?;
        Ok((found, seen))
    }
}
