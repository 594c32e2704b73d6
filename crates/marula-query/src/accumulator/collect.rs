//! `$push`, `$addToSet`, `$mergeObjects`: accumulators that keep values.

use marula_bson::{Doc, DocBuf, DocWriter, Value, ValueBuf};
use marula_error::{Result, errors};

use super::{AccumulatorRow, State, parse_unary};
use crate::expression::frame::{ARENA_BYTES_MAX, value_too_large};
use crate::expression::set::ValueSet;
use crate::expression::{Arena, Frame};
use crate::feature_version::FeatureVersion;
use crate::meter;

pub(super) static ROWS: &[AccumulatorRow] = &[
    AccumulatorRow {
        name: "$addToSet",
        since: FeatureVersion::V6_0,
        parse: parse_unary,
        start: || Box::new(AddToSet::default()),
    },
    AccumulatorRow {
        name: "$mergeObjects",
        since: FeatureVersion::V6_0,
        parse: parse_unary,
        start: || Box::new(MergeObjects(DocBuf::new())),
    },
    AccumulatorRow {
        name: "$push",
        since: FeatureVersion::V6_0,
        parse: parse_unary,
        start: || Box::new(Push::default()),
    },
];

/// The number of bytes scanned for a name that costs as much as one element.
const LOOKED_AT: usize = 32;

errors! {
    push_too_large(limit: usize) = ExceededMemoryLimit, "$push used too much memory and cannot spill to disk. Memory limit: {limit} bytes";
    add_to_set_too_large(limit: usize) = ExceededMemoryLimit, "$addToSet used too much memory and cannot spill to disk. Memory limit: {limit} bytes";
    merge_not_object(text: &str, kind: &str) = 40400, "$mergeObjects requires object inputs, but input {text} is of type {kind}";
}

#[derive(Default)]
struct Push {
    values: Vec<ValueBuf>,
    size: usize,
}

impl State for Push {
    fn add<'a>(&mut self, value: Option<Value<'a>>, frame: &Frame<'a>) -> Result<usize> {
        let Some(value) = value else {
            return Ok(0);
        };
        let value = value.to_buf();
        let size = value.as_raw().bytes().len() + size_of::<ValueBuf>();
        self.size += size;
        let limit = frame.context.limits.push_bytes_max;
        if self.size > limit {
            return Err(push_too_large(limit));
        }
        self.values.push(value);
        Ok(size)
    }

    fn result<'a>(&self, arena: &'a Arena) -> Result<Value<'a>> {
        arena.array(self.values.iter().map(ValueBuf::get))
    }
}

#[derive(Default)]
struct AddToSet {
    set: ValueSet,
    size: usize,
}

impl State for AddToSet {
    fn add<'a>(&mut self, value: Option<Value<'a>>, frame: &Frame<'a>) -> Result<usize> {
        let Some(value) = value else {
            return Ok(0);
        };
        let size = self.set.insert(value, frame.context.collator());
        self.size += size;
        let limit = frame.context.limits.add_to_set_bytes_max;
        if self.size > limit {
            return Err(add_to_set_too_large(limit));
        }
        Ok(size)
    }

    fn result<'a>(&self, arena: &'a Arena) -> Result<Value<'a>> {
        arena.array(self.set.values())
    }
}

struct MergeObjects(DocBuf);

impl State for MergeObjects {
    fn add<'a>(&mut self, value: Option<Value<'a>>, _: &Frame<'a>) -> Result<usize> {
        let Some(value) = value.filter(|value| !value.is_nullish()) else {
            return Ok(0);
        };
        let Value::Document(doc) = value else {
            let text = crate::expression::print::value(value);
            return Err(merge_not_object(&text, value.kind().alias()));
        };
        let before = self.0.len();
        self.0 = merged(self.0.as_doc(), doc)?;
        Ok(self.0.len().saturating_sub(before))
    }

    fn result<'a>(&self, arena: &'a Arena) -> Result<Value<'a>> {
        arena.keep(Value::Document(self.0.as_doc()))
    }
}

/// The fields of `base`, replaced by those of `over` with the same name; new fields come at the
/// end.
///
/// Errors: the operation was interrupted; the document would be too large.
pub(crate) fn merged(base: Doc<'_>, over: Doc<'_>) -> Result<DocBuf> {
    let size = base.as_bytes().len() + over.as_bytes().len();
    if size > ARENA_BYTES_MAX {
        return Err(value_too_large(size));
    }
    meter::check_room(size)?;
    let mut bytes = Vec::with_capacity(size);
    let mut out = DocWriter::new(&mut bytes);
    for field in base {
        meter::spend(meter::ELEMENT + over.as_bytes().len() / LOOKED_AT)?;
        out.append_raw(field.name, over.get_raw(field.name).unwrap_or(field.value));
    }
    for field in over {
        meter::spend(meter::ELEMENT + size / LOOKED_AT)?;
        // Of several fields with the same name the first counts.
        let first = over.get_raw(field.name).map(|first| first.bytes().as_ptr());
        if base.get_raw(field.name).is_none() && first == Some(field.value.bytes().as_ptr()) {
            out.append_raw(field.name, field.value);
        }
    }
    out.finish();
    Ok(DocBuf::trusted(bytes))
}
