//! `$push`, `$addToSet`, `$mergeObjects`: accumulators that keep values.

use hashbrown::{HashMap, HashSet};
use marula_bson::{BStr, Doc, DocBuf, DocWriter, RawValue, Value, ValueBuf};
use marula_error::{Result, errors};

use super::{AccumulatorRow, State, parse_unary};
use crate::expression::frame::{ARENA_BYTES_MAX, value_too_large};
use crate::expression::set::ValueSet;
use crate::expression::{Arena, Frame};
use crate::feature_version::FeatureVersion;
use crate::meter;
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

/// The size of a document up to which its fields are searched for by their names.
const SEARCHED_BYTES_MAX: usize = 512;

/// The number of names up to which they are searched for in a document of any size.
const SEARCHED_FIELDS_MAX: usize = 4;

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

/// The merged document, and the names of its fields: new ones are appended without reading it.
#[derive(Default)]
struct MergeObjects {
    merged: DocBuf,
    names: HashSet<Box<[u8]>>,
}

impl MergeObjects {
    /// The size, with the names twice.
    fn bytes(&self) -> usize {
        const NAME_BYTES: usize = 64;
        self.merged.len() + NAME_BYTES * self.names.len()
    }

    fn append(&mut self, over: Doc<'_>) -> Result<()> {
        check_merged(self.merged.len() + over.as_bytes().len())?;
        for field in over {
            meter::spend(meter::ELEMENT)?;
            // Of several fields with the same name the first counts.
            if self.names.insert(field.name.to_vec().into_boxed_slice()) {
                self.merged.push(field.name, field.value.get());
            }
        }
        Ok(())
    }
}

impl State for MergeObjects {
    fn add<'a>(&mut self, value: Option<Value<'a>>, _: &Frame<'a>) -> Result<usize> {
        let Some(value) = value.filter(|value| !value.is_nullish()) else {
            return Ok(0);
        };
        let Value::Document(doc) = value else {
            let text = crate::expression::print::value(value);
            return Err(merge_not_object(&text, value.kind().alias()));
        };
        let before = self.bytes();
        if doc.iter().any(|field| self.names.contains(&**field.name)) {
            self.merged = merged(self.merged.as_doc(), doc)?;
            self.names.extend(doc.iter().map(|field| field.name.to_vec().into_boxed_slice()));
        } else {
            self.append(doc)?;
        }
        Ok(self.bytes().saturating_sub(before))
    }

    fn result<'a>(&self, arena: &'a Arena) -> Result<Value<'a>> {
        arena.keep(Value::Document(self.merged.as_doc()))
    }
}

/// The fields of `base`, replaced by those of `over` with the same name; new fields come at the
/// end. Of several fields of `over` with the same name the first counts.
///
/// Errors: the operation was interrupted; the document would be too large.
pub(crate) fn merged(base: Doc<'_>, over: Doc<'_>) -> Result<DocBuf> {
    let size = base.as_bytes().len() + over.as_bytes().len();
    check_merged(size)?;
    let mut bytes = Vec::with_capacity(size);
    let mut out = DocWriter::new(&mut bytes);
    let newer = FirstFields::of(over);
    out.append_changed(
        base,
        |field| {
            meter::spend(meter::ELEMENT)?;
            Ok(newer.get(field.name))
        },
        |newer, field, out| {
            out.append_raw(field.name, newer);
            Ok(())
        },
    )?;
    // A few names are searched for in `base`, however long it is.
    let is_few = over.iter().nth(SEARCHED_FIELDS_MAX).is_none();
    let old = if is_few { FirstFields::Few(base) } else { FirstFields::of(base) };
    for field in over {
        meter::spend(meter::ELEMENT)?;
        let is_first = newer.get(field.name).is_some_and(|first| {
            std::ptr::eq(first.bytes().as_ptr(), field.value.bytes().as_ptr())
        });
        if is_first && old.get(field.name).is_none() {
            out.append_raw(field.name, field.value);
        }
    }
    out.finish();
    Ok(DocBuf::trusted(bytes))
}

fn check_merged(size: usize) -> Result<()> {
    match size > ARENA_BYTES_MAX {
        true => Err(value_too_large(size)),
        false => meter::check_room(size),
    }
}

/// The first field of each name of a document.
enum FirstFields<'d> {
    /// They are searched for.
    Few(Doc<'d>),
    /// They are looked up.
    Many(HashMap<&'d BStr, RawValue<'d>>),
}

impl<'d> FirstFields<'d> {
    fn of(doc: Doc<'d>) -> Self {
        if doc.as_bytes().len() <= SEARCHED_BYTES_MAX {
            return FirstFields::Few(doc);
        }
        let mut fields = HashMap::new();
        for field in doc {
            fields.entry(field.name).or_insert(field.value);
        }
        FirstFields::Many(fields)
    }

    fn get(&self, name: &BStr) -> Option<RawValue<'d>> {
        match self {
            FirstFields::Few(doc) => doc.get_raw(name),
            FirstFields::Many(fields) => fields.get(name).copied(),
        }
    }
}
