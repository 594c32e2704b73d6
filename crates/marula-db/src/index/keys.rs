//! Makes the keys of a document in an index.
//!
//! A document without arrays on the indexed paths has one key: find each field, encode it. An array
//! multiplies: each element gives a key. All arrays on the paths of one index must be the same
//! array, or the document cannot be indexed ("parallel arrays"). An index with the option
//! `parallelArrays` accepts several: it combines each element of one with each element of the
//! other. A hashed index refuses arrays; `wildcard` makes the keys of wildcard indexes.

use std::ops::Range;

use marula_bson::key_string::KeyStringWriter;
use marula_bson::path::AmbiguousField;
use marula_bson::{BStr, Collator, Doc, Value};
use marula_error::{Error, Result, errors};
use marula_query::hashed_key::hashed_key;

use super::kind::IndexKind;
use super::spec::{IndexSpec, KeyPart};
use super::{Index, Multikey, component_bit};

/// The maximum number of keys of one document in one index.
const KEYS_PER_DOCUMENT_MAX: usize = 1_000_000;

/// No key is added once the keys have more bytes than this. One key is at most 32 times a document,
/// 512 MB, so four bytes suffice for offsets.
const KEYS_BYTES_MAX: usize = 1 << 28;

errors! {
    parallel_arrays(a: &BStr, b: &BStr) = CannotIndexParallelArrays, "cannot index parallel arrays [{a}] [{b}]";
    /// A measurement has an array in a field with an index.
    pub(super) measurement_array() = 5_930_501, "Indexed measurement field contains an array value";
    hashed_array(path: &str) = 16_766, "Error: hashed indexes do not currently support array values. Found array at path: {path}";
    ambiguous_field(field: &AmbiguousField<'_>) = 16_746, "{field}";
    too_many_keys(count: usize) = 12_582, "the document has more than {count} keys in one index";
    keys_too_large(bytes: usize) = 12_583, "the document has more than {bytes} bytes of keys in one index";
}

/// The codes of the errors about a document's keys, of all kinds of indexes that buckets can have.
const ABOUT_KEYS: &[i32] = &[
    171, 12_582, 12_583, 13_026, 13_027, 13_068, 16_746, 16_755, 16_766, 16_804, 183_493, 183_934,
    5_930_501,
];

/// Returns whether an index does not take a document, for the reason that the error is about.
pub fn is_about_keys(error: &Error) -> bool {
    ABOUT_KEYS.contains(&error.code().number())
}

/// The keys of one document in one index: key strings, each followed by its type bits, in one
/// buffer.
#[derive(Default)]
pub struct KeySet {
    bytes: Vec<u8>,
    keys: Vec<Key>,
    /// The path components with arrays in the document.
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
    /// The number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether the document has no key: a sparse or partial index omits it.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys in ascending order, without duplicates: key string and type bits.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.keys.iter().map(|key| (&self.bytes[key.string()], &self.bytes[key.type_bits()]))
    }

    /// Returns whether the set has the key string.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.find(key).is_some()
    }

    /// Returns whether the set has the key string with these type bits.
    pub fn contains_entry(&self, (key, type_bits): (&[u8], &[u8])) -> bool {
        self.find(key).is_some_and(|found| self.bytes[found.type_bits()] == *type_bits)
    }

    /// Empties the set.
    pub fn forget(&mut self) {
        self.clear(0);
    }

    /// Returns an error if another key would exceed a limit.
    pub(super) fn check_room(&self) -> Result<()> {
        if self.keys.len() >= KEYS_PER_DOCUMENT_MAX {
            return Err(too_many_keys(KEYS_PER_DOCUMENT_MAX));
        }
        if self.bytes.len() > KEYS_BYTES_MAX {
            return Err(keys_too_large(KEYS_BYTES_MAX));
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

/// Makes the keys of documents; owns the buffers for that.
#[derive(Default)]
pub struct KeyMaker {
    pub(super) writer: KeyStringWriter,
    /// The document as projected by a wildcard index.
    pub(super) projected: Vec<u8>,
    /// Whether the document is in the collection already.
    pub(super) is_stored: bool,
}

/// The position of one path of the index in the document.
#[derive(Clone, Copy)]
enum PathPosition<'a> {
    /// At the end of the path, or at a scalar before it; `None` means missing.
    Found(Option<Value<'a>>),
    /// At `value`; the path's components from `next` on remain.
    Pending { value: Value<'a>, next: usize },
    /// At an array that the component before `next` selected by its index and that gives one value,
    /// because the path ends there or the array is empty. It may not be parallel to another array.
    Selected { array: Doc<'a>, next: usize, value: Option<Value<'a>> },
}

impl<'a> PathPosition<'a> {
    /// The array at this position, and the number of the path's components before it.
    fn array(self) -> Option<(Doc<'a>, usize)> {
        match self {
            Self::Pending { value: Value::Array(array), next } => Some((array, next)),
            Self::Selected { array, next, .. } => Some((array, next)),
            Self::Pending { .. } | Self::Found(_) => None,
        }
    }
}

impl KeyMaker {
    /// Writes the keys of `doc` in `index` into `keys`.
    ///
    /// Errors: `parallel_arrays`, `ambiguous_field`, `too_many_keys`, and those of a partial
    /// filter.
    pub fn make(&mut self, index: &Index, doc: Doc<'_>, keys: &mut KeySet) -> Result<()> {
        self.is_stored = false;
        self.make_any(index, doc, keys)
    }

    /// Writes the keys of a document that is in the collection already. It may be older than a rule
    /// about what an index accepts, and must be removable all the same.
    ///
    /// Errors: those of [`KeyMaker::make`].
    pub fn make_stored(&mut self, index: &Index, doc: Doc<'_>, keys: &mut KeySet) -> Result<()> {
        self.is_stored = true;
        self.make_any(index, doc, keys)
    }

    fn make_any(&mut self, index: &Index, doc: Doc<'_>, keys: &mut KeySet) -> Result<()> {
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
                self.make_wildcard(spec, wildcard, doc, keys)?;
                keys.sort();
            }
        }
        Ok(())
    }

    /// The fast path for documents without arrays. Returns `None` and leaves `keys` unchanged if
    /// there is one.
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

    /// Makes the key of a hashed index, which refuses arrays.
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
        let offset = |at: usize| u32::try_from(at).expect("the bytes of keys are bounded");
        keys.keys.push(Key {
            start: offset(start),
            split: offset(split),
            end: offset(keys.bytes.len()),
        });
    }

    fn make_multi(&mut self, spec: &IndexSpec, doc: Doc<'_>, keys: &mut KeySet) -> Result<()> {
        let positions: Vec<PathPosition<'_>> = spec
            .parts
            .iter()
            .map(|_| PathPosition::Pending { value: Value::Document(doc), next: 0 })
            .collect();
        if spec.parallel_arrays {
            let numbered: Vec<_> = positions.iter().copied().enumerate().collect();
            // A few short arrays can multiply to more keys than memory holds.
            if count_keys(spec, &numbered)? > KEYS_PER_DOCUMENT_MAX {
                return Err(too_many_keys(KEYS_PER_DOCUMENT_MAX));
            }
        }
        self.expand(spec, &positions, keys)
    }

    /// Advances every path until it ends or meets an array; then multiplies by the elements of the
    /// first array.
    ///
    /// The depth of recursion is bounded by the nesting of the document and the number of paths:
    /// each level enters one array.
    fn expand<'a>(
        &mut self,
        spec: &IndexSpec,
        positions: &[PathPosition<'a>],
        keys: &mut KeySet,
    ) -> Result<()> {
        let mut moved = Vec::with_capacity(positions.len());
        // The array, and the name of its path component.
        let mut array: Option<(&[u8], Doc<'a>)> = None;
        // The paths that enter this array, one bit each.
        let mut entering = 0_u32;
        let mut goes_on = false;
        for (part_index, at) in positions.iter().enumerate() {
            let part = &spec.parts[part_index];
            let at = walk(part, *at);
            let Some((found, next)) = at.array() else {
                moved.push(at);
                continue;
            };
            // The meta value may be an array, or have some.
            if spec.is_on_measurements() && *part.path.first() != *b"meta" {
                return Err(measurement_array());
            }
            // The preceding component is the one that names the array.
            let name = &*part.path.parts()[next - 1];
            let (first, known) = *array.get_or_insert((name, found));
            let is_same = is_same_array(known, found);
            if !is_same && !spec.parallel_arrays {
                return Err(parallel_arrays(BStr::new(name), BStr::new(first)));
            }
            if let PathPosition::Selected { value, .. } = at {
                moved.push(PathPosition::Found(value));
            } else if let Some(selected) = select(part, found, next)? {
                // A component that is an index of the array does not multiply.
                moved.push(selected);
                goes_on = true;
            } else {
                keys.multikey.parts[part_index] |= component_bit(next - 1);
                entering |= u32::from(is_same) << part_index;
                moved.push(at);
            }
        }
        let Some((_, array)) = array.filter(|_| entering != 0) else {
            return match goes_on {
                true => self.expand(spec, &moved, keys),
                false => self.emit(spec, &moved, keys),
            };
        };
        let within = |element: Option<Value<'a>>| -> Vec<PathPosition<'a>> {
            let entered = |(part, at): (usize, &PathPosition<'a>)| match *at {
                PathPosition::Pending { next, .. } if entering & (1 << part) != 0 => {
                    enter(element, next, component_count(spec, part))
                }
                other => other,
            };
            moved.iter().enumerate().map(entered).collect()
        };
        if array.is_empty() {
            return self.expand(spec, &within(None), keys);
        }
        array.values().try_for_each(|element| self.expand(spec, &within(Some(element)), keys))
    }

    fn emit(
        &mut self,
        spec: &IndexSpec,
        positions: &[PathPosition<'_>],
        keys: &mut KeySet,
    ) -> Result<()> {
        let values = || {
            positions.iter().map(|at| match *at {
                PathPosition::Found(value) | PathPosition::Selected { value, .. } => value,
                PathPosition::Pending { .. } => None,
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

pub(super) fn collator(spec: &IndexSpec) -> Option<&dyn Collator> {
    spec.collation.as_ref().map(|collation| collation.collator())
}

fn component_count(spec: &IndexSpec, part: usize) -> usize {
    spec.parts[part].path.parts().len()
}

/// The result of following one path through documents only.
pub(super) enum Straight<'a> {
    Value(Option<Value<'a>>),
    /// There is an array at the component with this index.
    Array {
        depth: usize,
    },
}

#[inline]
pub(super) fn straight<'a>(doc: Doc<'a>, part: &KeyPart) -> Straight<'a> {
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

/// Advances one path through documents, to its end or to an array, possibly at the very end.
fn walk<'a>(part: &KeyPart, at: PathPosition<'a>) -> PathPosition<'a> {
    let PathPosition::Pending { mut value, mut next } = at else { return at };
    let components = part.path.parts();
    loop {
        match value {
            Value::Document(doc) => {
                let Some(component) = components.get(next) else {
                    return PathPosition::Found(Some(value));
                };
                match doc.get(component) {
                    Some(found) => value = found,
                    None => return PathPosition::Found(None),
                }
                next += 1;
            }
            Value::Array(_) => return PathPosition::Pending { value, next },
            other if next == components.len() => return PathPosition::Found(Some(other)),
            _ => return PathPosition::Found(None),
        }
    }
}

/// The position of a path whose next component is an index of the array; `None` if it is not, or
/// there is no such element.
fn select<'a>(part: &KeyPart, array: Doc<'a>, next: usize) -> Result<Option<PathPosition<'a>>> {
    let index = part.path.indexes().get(next).copied().flatten();
    let Some(selected) = index.and_then(|index| array.values().nth(index as usize)) else {
        return Ok(None);
    };
    let name: &[u8] = &part.path.parts()[next];
    let is_ambiguous =
        array.values().any(|element| element.as_doc().is_some_and(|doc| doc.get(name).is_some()));
    if is_ambiguous {
        return Err(ambiguous_field(&AmbiguousField { field: BStr::new(name), array }));
    }
    let next = next + 1;
    let is_end = next == part.path.parts().len();
    Ok(Some(match selected {
        Value::Array(array) if array.is_empty() => {
            let value = is_end.then_some(Value::Undefined);
            PathPosition::Selected { array, next, value }
        }
        // An array that the last component selects is one value.
        Value::Array(array) if is_end => {
            PathPosition::Selected { array, next, value: Some(selected) }
        }
        value if is_end => PathPosition::Found(Some(value)),
        value => PathPosition::Pending { value, next },
    }))
}

/// The position of a path in one element of an array, or in none if the array is empty. An array
/// within an array is a value and is entered only by a numeric component.
fn enter(element: Option<Value<'_>>, next: usize, component_count: usize) -> PathPosition<'_> {
    if next == component_count {
        return PathPosition::Found(Some(element.unwrap_or(Value::Undefined)));
    }
    match element {
        Some(value @ Value::Document(_)) => PathPosition::Pending { value, next },
        _ => PathPosition::Found(None),
    }
}

/// Returns whether two paths have met the same array.
fn is_same_array(a: Doc<'_>, b: Doc<'_>) -> bool {
    std::ptr::eq(a.as_bytes(), b.as_bytes())
}

/// The number of keys that [`KeyMaker::expand`] makes for these positions, each with the number of
/// its part: parallel arrays multiply, the elements of one array add up.
fn count_keys<'a>(spec: &IndexSpec, positions: &[(usize, PathPosition<'a>)]) -> Result<usize> {
    let mut arrays: Vec<(Doc<'a>, Vec<(usize, usize)>)> = Vec::new();
    for &(part, mut at) in positions {
        loop {
            at = walk(&spec.parts[part], at);
            let PathPosition::Pending { value: Value::Array(found), next } = at else { break };
            if let Some(selected) = select(&spec.parts[part], found, next)? {
                at = selected;
                continue;
            }
            match arrays.iter_mut().find(|(known, _)| is_same_array(*known, found)) {
                Some((_, parts)) => parts.push((part, next)),
                None => arrays.push((found, vec![(part, next)])),
            }
            break;
        }
    }
    let mut product = 1_usize;
    for (array, parts) in arrays {
        let mut sum = usize::from(array.is_empty());
        for element in array.values() {
            let entered: Vec<_> = (parts.iter())
                .map(|&(part, next)| {
                    (part, enter(Some(element), next, component_count(spec, part)))
                })
                .collect();
            sum = sum.saturating_add(count_keys(spec, &entered)?);
        }
        product = product.saturating_mul(sum);
    }
    Ok(product)
}

#[cfg(test)]
mod tests {
    use marula_bson::{DocBuf, doc};

    use super::*;
    use crate::keys::Ident;

    fn index(spec: &DocBuf) -> Index {
        let mut spec = spec.clone();
        spec.push("name", "n");
        Index::new(Ident(1), IndexSpec::parse(spec.as_doc(), None).unwrap())
    }

    /// Checks that `doc` has the keys of these values, that is, of one document per key, and arrays
    /// at these path components.
    #[track_caller]
    fn check(spec: &DocBuf, doc: &DocBuf, expected: &[DocBuf], arrays: &[u64]) {
        let index = index(spec);
        let mut maker = KeyMaker::default();
        let mut keys = KeySet::default();
        maker.make(&index, doc.as_doc(), &mut keys).unwrap();
        let mut wanted = Vec::new();
        for doc in expected {
            let mut one = KeySet::default();
            maker.make(&index, doc.as_doc(), &mut one).unwrap();
            wanted.extend(one.iter().map(|(key, _)| key.to_vec()));
        }
        wanted.sort();
        let found: Vec<_> = keys.iter().map(|(key, _)| key.to_vec()).collect();
        assert_eq!(found, wanted, "{}", doc.as_doc());
        assert_eq!(keys.multikey.parts, arrays, "{}", doc.as_doc());
    }

    #[test]
    fn arrays_side_by_side_multiply_where_the_index_takes_them() {
        let spec = doc! { "key": { "a": 1, "b": (-1) }, "parallelArrays": true };
        let (a, b) = (&["x", "y"], &[1, 2]);
        let pairs: Vec<DocBuf> =
            a.iter().flat_map(|a| b.iter().map(move |b| doc! { "a": *a, "b": *b })).collect();
        check(&spec, &doc! { "a": ["x", "y", "x"], "b": [1, 2] }, &pairs, &[1, 1]);
        check(&spec, &doc! { "a": "x", "b": [1, 2] }, &pairs[..2], &[0, 1]);
        let nothing = Value::Undefined;
        let with_none = [doc! { "a": nothing, "b": 1 }, doc! { "a": nothing, "b": 2 }];
        check(&spec, &doc! { "a": [], "b": [1, 2] }, &with_none, &[1, 1]);
        check(&spec, &doc! { "a": [], "b": [] }, &[doc! { "a": nothing, "b": nothing }], &[1, 1]);
    }

    #[test]
    fn fields_of_one_array_stay_together_beside_another() {
        let spec = doc! { "key": { "o.x": 1, "t": 1, "o.y": 1 }, "parallelArrays": true };
        let docs = doc! { "o": [{ "x": 1, "y": 2 }, { "x": 3 }], "t": [5, 6] };
        let mut wanted = Vec::new();
        for t in [5, 6] {
            wanted.push(doc! { "o": { "x": 1, "y": 2 }, "t": t });
            wanted.push(doc! { "o": { "x": 3 }, "t": t });
        }
        check(&spec, &docs, &wanted, &[1, 1, 1]);
        // Arrays within the elements of an array.
        let nested = doc! { "o": [{ "x": [1, 2], "y": [3, 4] }], "t": 5 };
        let mut wanted = Vec::new();
        for x in [1, 2] {
            for y in [3, 4] {
                wanted.push(doc! { "o": { "x": x, "y": y }, "t": 5 });
            }
        }
        check(&spec, &nested, &wanted, &[0b11, 0, 0b11]);
        // A number in a path selects an element, parallel to another array.
        let spec = doc! { "key": { "a.1": 1, "b": 1 }, "parallelArrays": true };
        let mut found = KeySet::default();
        let chosen = doc! { "a": [7, 8], "b": [1, 2, 3] };
        KeyMaker::default().make(&index(&spec), chosen.as_doc(), &mut found).unwrap();
        assert_eq!((found.len(), &*found.multikey.parts), (3, &[0, 1][..]));
    }

    #[track_caller]
    fn check_refused(spec: &DocBuf, doc: &DocBuf, code: i32, made: usize) {
        let mut keys = KeySet::default();
        let error = KeyMaker::default().make(&index(spec), doc.as_doc(), &mut keys).unwrap_err();
        assert_eq!((error.code().number(), keys.len()), (code, made));
    }

    #[test]
    fn too_many_are_refused_before_they_are_made() {
        let numbers = |count: i32| {
            DocBuf::build(|out| {
                for name in ["a", "b"] {
                    let mut array = out.begin_array(name);
                    (0..count).for_each(|number| {
                        array.push(number);
                    });
                }
            })
        };
        let key = doc! { "a": 1, "b": 1 };
        let parallel = doc! { "key": (&key), "parallelArrays": true };
        check_refused(&parallel, &numbers(1001), 12_582, 0);
        check_refused(&doc! { "key": (&key) }, &numbers(2), 171, 0);
        check_refused(&doc! { "key": (&key), "parallelArrays": false }, &numbers(2), 171, 0);
        let mut keys = KeySet::default();
        KeyMaker::default().make(&index(&parallel), numbers(100).as_doc(), &mut keys).unwrap();
        assert_eq!(keys.len(), 10_000);
    }

    #[test]
    fn their_bytes_are_bounded() {
        let text = "x".repeat(1 << 20);
        let doc = DocBuf::build(|out| {
            let mut array = out.begin_array("a");
            (0..300).for_each(|number| {
                array.push(number);
            });
            drop(array);
            out.append("b", text.as_str());
        });
        check_refused(&doc! { "key": { "a": 1, "b": 1 } }, &doc, 12_583, 256);
    }
}
