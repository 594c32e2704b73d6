//! `$push`, `$addToSet`, `$mergeObjects`: accumulators that keep values.

use marula_bson::{Value, ValueBuf};
use marula_error::{Result, errors};

use super::merged::MergedFields;
use super::{AccumulatorRow, State, parse_unary};
use crate::expression::set::ValueSet;
use crate::expression::{Arena, Frame};
use crate::feature_version::FeatureVersion;
use crate::spill::Limits;

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
        start: || Box::<MergeObjects>::default(),
    },
    AccumulatorRow {
        name: "$push",
        since: FeatureVersion::V6_0,
        parse: parse_unary,
        start: || Box::new(Push::default()),
    },
];

errors! {
    push_too_large(limit: usize) = ExceededMemoryLimit, "$push used too much memory and cannot spill to disk. Memory limit: {limit} bytes";
    add_to_set_too_large(limit: usize) = ExceededMemoryLimit, "$addToSet used too much memory and cannot spill to disk. Memory limit: {limit} bytes";
    merge_not_object(text: &str, kind: &str) = 40400, "$mergeObjects requires object inputs, but input {text} is of type {kind}";
}

/// The memory of a value in a list, besides its bytes.
pub(super) const PUSHED_BYTES: usize = size_of::<ValueBuf>();

/// Checks the size of a `$push`.
pub(super) fn check_push(size: usize, limits: &Limits) -> Result<()> {
    let limit = limits.push_bytes_max;
    if size > limit { Err(push_too_large(limit)) } else { Ok(()) }
}

/// Checks the size of an `$addToSet`.
pub(super) fn check_set(size: usize, limits: &Limits) -> Result<()> {
    let limit = limits.add_to_set_bytes_max;
    if size > limit { Err(add_to_set_too_large(limit)) } else { Ok(()) }
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
        let size = value.as_raw().bytes().len() + PUSHED_BYTES;
        self.size += size;
        check_push(self.size, &frame.context.limits)?;
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
        check_set(self.size, &frame.context.limits)?;
        Ok(size)
    }

    fn result<'a>(&self, arena: &'a Arena) -> Result<Value<'a>> {
        arena.array(self.set.values())
    }
}

/// The merged document.
#[derive(Default)]
struct MergeObjects(MergedFields);

impl State for MergeObjects {
    fn add<'a>(&mut self, value: Option<Value<'a>>, _: &Frame<'a>) -> Result<usize> {
        let Some(value) = value.filter(|value| !value.is_nullish()) else {
            return Ok(0);
        };
        let Value::Document(doc) = value else {
            let text = crate::expression::print::value(value);
            return Err(merge_not_object(&text, value.kind().alias()));
        };
        let before = self.0.bytes();
        self.0.merge(doc)?;
        Ok(self.0.bytes().saturating_sub(before))
    }

    fn result<'a>(&self, arena: &'a Arena) -> Result<Value<'a>> {
        self.0.value(arena)
    }
}
