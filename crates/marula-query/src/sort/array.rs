//! The sort key of a document whose arrays give it several: the least of them.
//!
//! All parts whose paths reach an array must reach the same one. An element of it gives each of
//! these parts its value, so the values of one key belong together.

use bstr::{BStr, ByteSlice};
use marula_bson::key_string::encode_part;
use marula_bson::path::AmbiguousField;
use marula_bson::{Doc, FieldPath, Type, Value};
use marula_error::{Result, errors};

use super::{DocMeta, SortPart, SortPattern};

/// The maximum nesting of arrays; validation rejects deeper documents.
const DEPTH_MAX: u32 = 256;

errors! {
    /// Two parts reach different arrays.
    pub(super) parallel_arrays() = BadValue, "cannot sort with keys that are parallel arrays";
    /// A number is an index and a field name at once.
    ambiguous_field(text: &AmbiguousField<'_>) = 16746, "{text}";
}

/// How far the value of one part is resolved.
#[derive(Clone, Copy)]
enum Slot<'a> {
    /// The value.
    Found(Value<'a>),
    /// The value is in this document, from this part of the path on.
    InDoc(Doc<'a>, usize),
    /// The value is in this array; from this part of the path on, or its elements if there is no
    /// such part.
    InArray(Doc<'a>, usize),
}

/// Writes the least key into `key`; returns its values.
pub(super) fn write_least_key<'d>(
    pattern: &SortPattern,
    doc: Doc<'d>,
    meta: &DocMeta,
    key: &mut Vec<u8>,
) -> Result<Vec<Value<'d>>> {
    let slots = pattern.parts.iter().map(|part| match part {
        SortPart::Path { .. } => Slot::InDoc(doc, 0),
        SortPart::Meta(name) => Slot::Found(meta.get(*name)),
    });
    let (least, next) = (key, Vec::new());
    let mut least = Least { pattern, found: false, least, next, values: Vec::new() };
    least.least.clear();
    least.collect(slots.collect(), 0)?;
    Ok(least.values)
}

/// The least key so far.
struct Least<'p, 'd> {
    pattern: &'p SortPattern,
    found: bool,
    least: &'p mut Vec<u8>,
    next: Vec<u8>,
    values: Vec<Value<'d>>,
}

impl<'d> Least<'_, 'd> {
    fn collect(&mut self, mut slots: Vec<Slot<'d>>, depth: u32) -> Result<()> {
        for (slot, part) in slots.iter_mut().zip(&self.pattern.parts) {
            if let SortPart::Path { path, .. } = part {
                *slot = advance(*slot, path);
            }
        }
        let mut arrays = slots.iter().filter_map(|slot| match slot {
            Slot::InArray(array, _) => Some(*array),
            _ => None,
        });
        let Some(array) = arrays.next() else {
            self.offer(&slots);
            return Ok(());
        };
        if arrays.any(|other| !std::ptr::eq(array.as_bytes(), other.as_bytes())) {
            return Err(parallel_arrays());
        }
        if array.is_empty() || depth > DEPTH_MAX {
            let ends = self.pattern.parts.iter().map(parts_count);
            let empty = slots.iter().zip(ends).map(|(slot, end)| match slot {
                Slot::InArray(_, at) if *at == end => Slot::Found(Value::Undefined),
                Slot::InArray(..) => Slot::Found(Value::Null),
                other => *other,
            });
            let empty: Vec<_> = empty.collect();
            self.offer(&empty);
            return Ok(());
        }
        let mut spreads = false;
        let mut inner: Option<Doc<'d>> = None;
        for (slot, part) in slots.iter_mut().zip(&self.pattern.parts) {
            if let (Slot::InArray(_, at), SortPart::Path { path, .. }) = (&*slot, part) {
                let Some((chosen, met)) = chosen_by(array, path, *at)? else {
                    spreads = true;
                    continue;
                };
                *slot = chosen;
                // An array that an index in the path chooses counts as reached, also if the path
                // ends there.
                let Some(met) = met else { continue };
                if inner.is_some_and(|inner| !std::ptr::eq(inner.as_bytes(), met.as_bytes())) {
                    return Err(parallel_arrays());
                }
                inner = Some(met);
            }
        }
        if !spreads {
            return self.collect(slots, depth + 1);
        }
        for value in array.values() {
            let ends = self.pattern.parts.iter().map(parts_count);
            let inside = slots.iter().zip(ends).map(|(slot, end)| match (slot, value) {
                (Slot::InArray(this, _), _) if !std::ptr::eq(this.as_bytes(), array.as_bytes()) => {
                    *slot
                }
                (Slot::InArray(_, at), value) if *at == end => Slot::Found(value),
                (Slot::InArray(_, at), Value::Document(inner)) => Slot::InDoc(inner, *at),
                (Slot::InArray(..), _) => Slot::Found(Value::Null),
                (other, _) => *other,
            });
            self.collect(inside.collect(), depth + 1)?;
        }
        Ok(())
    }

    /// Takes a key with all values resolved, if it is less than the least so far.
    fn offer(&mut self, slots: &[Slot<'d>]) {
        self.next.clear();
        for (slot, part) in slots.iter().zip(&self.pattern.parts) {
            let descending = match part {
                SortPart::Path { descending, .. } => *descending,
                SortPart::Meta(_) => true,
            };
            if let Slot::Found(value) = slot {
                encode_part(*value, descending, self.pattern.collator(), &mut self.next);
            }
        }
        if !self.found || self.next < *self.least {
            std::mem::swap(&mut self.next, self.least);
            self.values.clear();
            self.values.extend(slots.iter().filter_map(|slot| match slot {
                Slot::Found(value) => Some(*value),
                Slot::InDoc(..) | Slot::InArray(..) => None,
            }));
            self.found = true;
        }
    }
}

fn parts_count(part: &SortPart) -> usize {
    match part {
        SortPart::Path { path, .. } => path.parts().len(),
        SortPart::Meta(_) => 0,
    }
}

/// Returns the slot after a part that is an index of the array, and the array that it chooses, if
/// it is one; `None` if the part is no index, or there is no such element.
fn chosen_by<'a>(
    array: Doc<'a>,
    path: &FieldPath,
    at: usize,
) -> Result<Option<(Slot<'a>, Option<Doc<'a>>)>> {
    let Some(part) = path.parts().get(at) else { return Ok(None) };
    let Some(chosen) = chosen(array, part.as_bstr(), path.indexes()[at])? else { return Ok(None) };
    let next = at + 1;
    let slot = match chosen {
        // An array that the last part chose is one value; only an empty one is undefined.
        Value::Array(inner) if next == path.parts().len() && inner.is_empty() => {
            Slot::Found(Value::Undefined)
        }
        value if next == path.parts().len() => Slot::Found(value),
        Value::Document(inner) => Slot::InDoc(inner, next),
        Value::Array(inner) => Slot::InArray(inner, next),
        _ => Slot::Found(Value::Null),
    };
    Ok(Some((slot, chosen.as_array())))
}

/// Follows the path through documents to the value or an array.
fn advance<'a>(slot: Slot<'a>, path: &FieldPath) -> Slot<'a> {
    let (mut value, mut at) = match slot {
        Slot::InDoc(doc, at) => (Value::Document(doc), at),
        found => return found,
    };
    loop {
        let part = path.parts().get(at);
        value = match (value, part) {
            (Value::Array(array), None) => return Slot::InArray(array, at),
            (value, None) => return Slot::Found(value),
            (Value::Document(doc), Some(part)) => match doc.get(part) {
                Some(value) => value,
                None => return Slot::Found(Value::Null),
            },
            (Value::Array(array), Some(_)) => return Slot::InArray(array, at),
            _ => return Slot::Found(Value::Null),
        };
        at += 1;
    }
}

/// Returns the element whose index the part of the path is.
fn chosen<'a>(array: Doc<'a>, part: &BStr, index: Option<u32>) -> Result<Option<Value<'a>>> {
    let Some(chosen) = index.and_then(|index| array.values().nth(index as usize)) else {
        return Ok(None);
    };
    let has_field = |value: Value<'_>| {
        value.kind() == Type::Document && value.as_doc().is_some_and(|doc| doc.get(part).is_some())
    };
    if array.values().any(has_field) {
        return Err(ambiguous_field(&AmbiguousField { field: part, array }));
    }
    Ok(Some(chosen))
}
