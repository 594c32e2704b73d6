//! The keys that a document has in an index.
//!
//! A document without arrays on the indexed paths has one key, and that path is straight: find each
//! field, encode it. An array multiplies: each element gives a key. All arrays that the paths of one
//! index meet must be the same array, or the document cannot be indexed ("parallel arrays"). A hashed index refuses
//! arrays; the keys of a wildcard index are made in `wildcard`.

use std::ops::Range;

use marula_bson::key_string::KeyStringWriter;
use marula_bson::path::AmbiguousField;
use marula_bson::{BStr, Collator, Doc, Value};
use marula_error::{Result, errors};
use marula_query::hashed_key::hashed_key;

use super::kind::IndexKind;
use super::spec::{IndexSpec, KeyPart};
use super::{Index, Multikey, component_bit};

/// The most keys one document may have in one index.
const KEYS_PER_DOCUMENT_MAX: usize = 1_000_000;

errors! {
    parallel_arrays(a: &BStr, b: &BStr) = CannotIndexParallelArrays, "cannot index parallel arrays [{a}] [{b}]";
    hashed_array(path: &str) = 16_766, "Error: hashed indexes do not currently support array values. Found array at path: {path}";
    ambiguous_field(field: &AmbiguousField<'_>) = 16_746, "{field}";
    too_many_keys(count: usize) = 12_582, "the document has more than {count} keys in one index";
}

/// The keys of one document in one index: key strings, each followed by its type bits, in one buffer.
#[derive(Default)]
pub struct KeySet {
    bytes: Vec<u8>,
    keys: Vec<Key>,
    /// Where the document has arrays.
    pub multikey: Multikey,
}

#[derive(Clone, Copy)]
struct Key {
    start: u32,
    split: u32,
    end: u32,
}

impl Key {
    fn string(self) -> Range<usize> {
        self.start as usize..self.split as usize
    }

    fn type_bits(self) -> Range<usize> {
        self.split as usize..self.end as usize
    }
}

impl KeySet {
    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the document has no key: a sparse or partial index that leaves it out.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys in ascending order, none twice: key string and type bits.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.keys.iter().map(|key| (&self.bytes[key.string()], &self.bytes[key.type_bits()]))
    }

    /// Whether the key string is among the keys.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.find(key).is_some()
    }

    /// Whether the key string is among the keys, with these type bits.
    pub fn contains_entry(&self, (key, type_bits): (&[u8], &[u8])) -> bool {
        self.find(key).is_some_and(|found| self.bytes[found.type_bits()] == *type_bits)
    }

    /// Empties the set.
    pub fn forget(&mut self) {
        self.clear(0);
    }

    /// Fails when another key would be one too many.
    pub(super) fn check_room(&self) -> Result<()> {
        if self.keys.len() >= KEYS_PER_DOCUMENT_MAX {
            return Err(too_many_keys(KEYS_PER_DOCUMENT_MAX));
        }
        Ok(())
    }

    fn find(&self, key: &[u8]) -> Option<Key> {
        let position =
            self.keys.binary_search_by(|known| self.bytes[known.string()].cmp(key)).ok()?;
        Some(self.keys[position])
    }

    fn clear(&mut self, parts: usize) {
        self.bytes.clear();
        self.keys.clear();
        self.multikey.clear(parts);
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.keys.sort_unstable_by(|a, b| bytes[a.string()].cmp(&bytes[b.string()]));
        self.keys.dedup_by(|a, b| bytes[a.string()] == bytes[b.string()]);
    }
}

/// Makes the keys of documents; owns the buffers that this takes.
#[derive(Default)]
pub struct KeyMaker {
    pub(super) writer: KeyStringWriter,
    /// A document as a wildcard index sees it.
    pub(super) projected: Vec<u8>,
}

/// Where one path of the index stands in the document.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// At its end, or at a scalar before it; `None` is missing.
    Found(Option<Value<'a>>),
    /// At `value`, with the path's components from `next` still to go.
    Going { value: Value<'a>, next: usize },
}

/// Where a path stands after the documents up to the next array.
#[derive(Clone, Copy)]
enum Step<'a> {
    /// There, or in front of the array.
    At(Place<'a>),
    /// In the element of the array that the path names by its index.
    Chosen(Place<'a>),
}

impl<'a> Step<'a> {
    fn place(self) -> Place<'a> {
        match self {
            Step::At(place) | Step::Chosen(place) => place,
        }
    }
}

impl KeyMaker {
    /// Writes the keys of `doc` in `index` into `keys`.
    ///
    /// Errors: `parallel_arrays`, `ambiguous_field`, `too_many_keys`, and what a partial filter raises.
    pub fn make(&mut self, index: &Index, doc: Doc<'_>, keys: &mut KeySet) -> Result<()> {
        let spec = &index.spec;
        keys.clear(spec.parts.len());
        if let Some(partial) = &spec.partial
            && !partial.matches(doc)?
        {
            return Ok(());
        }
        match &spec.kind {
            IndexKind::Ordinary => {
                if self.make_single(spec, doc, keys).is_none() {
                    self.make_multi(spec, doc, keys)?;
                    keys.sort();
                }
            }
            IndexKind::Hashed { part } => self.make_hashed(spec, *part, doc, keys)?,
            IndexKind::Places(geography) => {
                self.make_places(spec, *geography, doc, keys)?;
                keys.sort();
            }
            IndexKind::Text(text) => {
                self.make_text(spec, text, doc, keys)?;
                keys.sort();
            }
            IndexKind::Wildcard(wildcard) => {
                self.make_wildcard(wildcard, collator(spec), doc, keys)?;
                keys.sort();
            }
        }
        Ok(())
    }

    /// The straight way: no arrays. Answers `None`, with `keys` as before, when there is one.
    fn make_single(&mut self, spec: &IndexSpec, doc: Doc<'_>, keys: &mut KeySet) -> Option<()> {
        let collator = collator(spec);
        self.writer.reset(&[]);
        let mut is_any_present = false;
        for part in &spec.parts {
            let Straight::Value(value) = straight(doc, part) else { return None };
            is_any_present |= value.is_some();
            self.writer.push(value.unwrap_or(Value::Null), part.descending, collator);
        }
        if !spec.sparse || is_any_present {
            self.finish_key(keys);
        }
        Some(())
    }

    /// The straight way of a hashed index, which knows no other.
    fn make_hashed(
        &mut self,
        spec: &IndexSpec,
        hashed: usize,
        doc: Doc<'_>,
        keys: &mut KeySet,
    ) -> Result<()> {
        let collator = collator(spec);
        self.writer.reset(&[]);
        let mut is_any_present = false;
        for (position, part) in spec.parts.iter().enumerate() {
            let value = match straight(doc, part) {
                Straight::Value(value) => value,
                Straight::Array { depth } => {
                    let path = &part.path.parts()[..=depth];
                    return Err(hashed_array(&BStr::new(&path.join(&b'.')).to_string()));
                }
            };
            is_any_present |= value.is_some();
            let value = value.unwrap_or(Value::Null);
            if position == hashed {
                let hash = Value::Int64(hashed_key(value, collator));
                self.writer.push(hash, part.descending, None);
            } else {
                self.writer.push(value, part.descending, collator);
            }
        }
        if !spec.sparse || is_any_present {
            self.finish_key(keys);
        }
        Ok(())
    }

    pub(super) fn finish_key(&mut self, keys: &mut KeySet) {
        let start = keys.bytes.len();
        keys.bytes.extend_from_slice(self.writer.key());
        let split = keys.bytes.len();
        keys.bytes.extend_from_slice(self.writer.type_bits());
        let offset = |at: usize| u32::try_from(at).expect("the keys of a 16 MB document fit 4 GiB");
        keys.keys.push(Key {
            start: offset(start),
            split: offset(split),
            end: offset(keys.bytes.len()),
        });
    }

    fn make_multi(&mut self, spec: &IndexSpec, doc: Doc<'_>, keys: &mut KeySet) -> Result<()> {
        let places: Vec<Place<'_>> = spec
            .parts
            .iter()
            .map(|_| Place::Going { value: Value::Document(doc), next: 0 })
            .collect();
        self.expand(spec, &places, keys)
    }

    /// Moves every path on until it ends or meets an array; then multiplies by that array's elements.
    ///
    /// Depth is bounded by the nesting of the document: each level of recursion enters one array.
    fn expand<'a>(
        &mut self,
        spec: &IndexSpec,
        places: &[Place<'a>],
        keys: &mut KeySet,
    ) -> Result<()> {
        let mut moved = Vec::with_capacity(places.len());
        let mut array: Option<(usize, Doc<'a>)> = None;
        for (part_index, place) in places.iter().enumerate() {
            let part = &spec.parts[part_index];
            let place = walk(part, *place);
            if let Place::Going { value: Value::Array(found), next } = place {
                match array {
                    Some((first, known)) if !std::ptr::eq(known.as_bytes(), found.as_bytes()) => {
                        return Err(parallel_arrays(
                            BStr::new(&part.path.to_string()),
                            BStr::new(&spec.parts[first].path.to_string()),
                        ));
                    }
                    Some(_) => {}
                    None => array = Some((part_index, found)),
                }
                // A component that is an index of the array does not multiply.
                if let Some(chosen) = chosen_by(part, found, next)? {
                    moved.push(Step::Chosen(chosen));
                    continue;
                }
                // The component that led here is the array's.
                keys.multikey.parts[part_index] |= component_bit(next - 1);
            }
            moved.push(Step::At(place));
        }
        let spreads =
            |step: &Step<'_>| matches!(step, Step::At(Place::Going { value: Value::Array(_), .. }));
        let spread = moved.iter().any(spreads);
        let Some((_, array)) = array.filter(|_| spread) else {
            let is_chosen = |step: &Step<'_>| matches!(step, Step::Chosen(_));
            let goes_on = moved.iter().any(is_chosen);
            let places: Vec<_> = moved.iter().map(|step| step.place()).collect();
            return if goes_on {
                self.expand(spec, &places, keys)
            } else {
                self.emit(spec, &places, keys)
            };
        };
        if array.is_empty() {
            let places: Vec<_> = (moved.iter().enumerate())
                .map(|(part, step)| match *step {
                    Step::Chosen(place) => place,
                    Step::At(Place::Going { value: Value::Array(_), next })
                        if next == component_count(spec, part) =>
                    {
                        Place::Found(Some(Value::Undefined))
                    }
                    Step::At(Place::Going { value: Value::Array(_), .. }) => Place::Found(None),
                    Step::At(other) => other,
                })
                .collect();
            return self.expand(spec, &places, keys);
        }
        for element in array.values() {
            let places: Vec<_> = (moved.iter().enumerate())
                .map(|(part, step)| match *step {
                    Step::Chosen(place) => place,
                    Step::At(Place::Going { value: Value::Array(_), next }) => {
                        enter(element, next, component_count(spec, part))
                    }
                    Step::At(other) => other,
                })
                .collect();
            self.expand(spec, &places, keys)?;
        }
        Ok(())
    }

    fn emit(&mut self, spec: &IndexSpec, places: &[Place<'_>], keys: &mut KeySet) -> Result<()> {
        let values = || {
            places.iter().map(|place| match *place {
                Place::Found(value) => value,
                Place::Going { .. } => None,
            })
        };
        if spec.sparse && values().all(|value| value.is_none()) {
            return Ok(());
        }
        keys.check_room()?;
        self.writer.reset(&[]);
        for (part, value) in spec.parts.iter().zip(values()) {
            self.writer.push(value.unwrap_or(Value::Null), part.descending, collator(spec));
        }
        self.finish_key(keys);
        Ok(())
    }
}

fn collator(spec: &IndexSpec) -> Option<&dyn Collator> {
    spec.collation.as_ref().map(|collation| collation.collator())
}

fn component_count(spec: &IndexSpec, part: usize) -> usize {
    spec.parts[part].path.parts().len()
}

/// The outcome of the straight way along one path.
enum Straight<'a> {
    Value(Option<Value<'a>>),
    /// There is an array at the component of this index.
    Array {
        depth: usize,
    },
}

#[inline]
fn straight<'a>(doc: Doc<'a>, part: &KeyPart) -> Straight<'a> {
    let components = part.path.parts();
    let mut at = doc;
    for (index, component) in components.iter().enumerate() {
        let is_last = index + 1 == components.len();
        match at.get(component) {
            Some(Value::Array(_)) => return Straight::Array { depth: index },
            Some(value) if is_last => return Straight::Value(Some(value)),
            Some(Value::Document(inner)) => at = inner,
            Some(_) | None => return Straight::Value(None),
        }
    }
    Straight::Value(None)
}

/// Moves one path through documents, up to its end or to an array, be it at the very end.
fn walk<'a>(part: &KeyPart, place: Place<'a>) -> Place<'a> {
    let Place::Going { mut value, mut next } = place else { return place };
    let components = part.path.parts();
    loop {
        match value {
            Value::Document(doc) => {
                let Some(component) = components.get(next) else {
                    return Place::Found(Some(value));
                };
                match doc.get(component) {
                    Some(found) => value = found,
                    None => return Place::Found(None),
                }
                next += 1;
            }
            Value::Array(_) => return Place::Going { value, next },
            other if next == components.len() => return Place::Found(Some(other)),
            _ => return Place::Found(None),
        }
    }
}

/// Where a path goes on that names an index of the array; `None` if it does not, or there is no such element.
fn chosen_by<'a>(part: &KeyPart, array: Doc<'a>, next: usize) -> Result<Option<Place<'a>>> {
    let index = part.path.indexes().get(next).copied().flatten();
    let Some(chosen) = index.and_then(|index| array.values().nth(index as usize)) else {
        return Ok(None);
    };
    let name: &[u8] = &part.path.parts()[next];
    let is_ambiguous =
        array.values().any(|element| element.as_doc().is_some_and(|doc| doc.get(name).is_some()));
    if is_ambiguous {
        return Err(ambiguous_field(&AmbiguousField { field: BStr::new(name), array }));
    }
    let next = next + 1;
    Ok(Some(if next < part.path.parts().len() {
        Place::Going { value: chosen, next }
    } else {
        // An array that the last component chose by its index is one value.
        let is_empty = chosen.as_array().is_some_and(Doc::is_empty);
        Place::Found(Some(if is_empty { Value::Undefined } else { chosen }))
    }))
}

/// Where a path stands that met an array, in one of its elements. An array within an array is a value, not
/// something to enter, unless a numeric component asks for it.
fn enter(element: Value<'_>, next: usize, component_count: usize) -> Place<'_> {
    if next == component_count {
        return Place::Found(Some(element));
    }
    match element {
        Value::Document(_) => Place::Going { value: element, next },
        _ => Place::Found(None),
    }
}
