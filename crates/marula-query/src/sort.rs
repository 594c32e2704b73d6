//! Sort patterns, and the sort keys of documents.
//!
//! A document sorts by one key with a value per part of the pattern. If arrays give it several
//! keys, the least one by the pattern counts. Keys are key strings, which compare by their bytes;
//! [`SortPattern::compare`] needs none if there is not an array.

mod array;
pub(crate) mod by_value;

use std::cmp::Ordering;

use bstr::{BStr, ByteSlice};
use marula_bson::key_string::{encode_part, part_head};
use marula_bson::order::compare;
use marula_bson::value::exact_i64_of_double;
use marula_bson::{
    ArrayWriter, Collator, Doc, DocBuf, DocWriter, FieldPath, RawValue, Type, Value,
};
use marula_error::{Result, errors};

use crate::collation::Collation;
use crate::context::Context;
use crate::expression::Path;
use crate::expression::number::whole_number;
use crate::expression::operators::meta::no_near_distance;

/// The maximum number of parts of a pattern, the same as for an index.
const PARTS_MAX: usize = 32;

errors! {
    no_text_score() = 40_218, "query requires text score metadata, but it is not available";
    /// A part is neither a direction nor a `$meta` expression.
    illegal_key(shown: &str) = 15974, "Illegal key in $sort specification: {shown}";
    /// A direction is a number other than 1 and −1.
    illegal_direction() = 15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)";
    /// A part is an object, but not a `$meta` expression.
    not_meta() = 17312, "$meta is the only expression supported by $sort right now";
    /// `$meta` names metadata that cannot be sorted by.
    illegal_meta(shown: &str) = 31138, "Illegal $meta sort: {shown}";
    /// The `$meta` expression has other fields.
    meta_not_alone() = FailedToParse, "Cannot have additional keys in a $meta sort specification";
    /// Metadata of a search engine that Marula does not have.
    search_score() = 31218, "$meta sort by 'searchScore' metadata is not supported";
    /// Metadata of a search engine that Marula does not have.
    search_highlights() = 31219, "$meta sort by 'searchHighlights' metadata is not supported";
    /// Too many parts.
    too_many_parts() = 13103, "too many compound keys";
}

/// One part of a sort pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SortPart {
    /// By the values at a path.
    Path {
        /// The path of the values.
        path: FieldPath,
        /// Whether greater values come first.
        descending: bool,
    },
    /// By metadata of the document, such as `{ $meta: "textScore" }`.
    Meta(SortMeta),
}

/// Metadata to sort by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SortMeta {
    /// The score of a `$text` condition, best first.
    TextScore,
    /// A random number.
    RandVal,
    /// The distance that a geo search measured, farthest first.
    GeoNearDistance,
}

/// The metadata of a document, for [`SortPart::Meta`].
#[derive(Clone, Copy, PartialEq, Default, Debug)]
#[allow(missing_docs)]
pub struct DocMeta {
    pub text_score: Option<f64>,
    pub rand_val: Option<f64>,
    pub geo_near_distance: Option<f64>,
}

impl DocMeta {
    fn get(&self, meta: SortMeta) -> Value<'static> {
        let number = match meta {
            SortMeta::TextScore => self.text_score,
            SortMeta::RandVal => self.rand_val,
            SortMeta::GeoNearDistance => self.geo_near_distance,
        };
        number.map_or(Value::Null, Value::Double)
    }
}

/// A parsed sort pattern.
#[derive(Clone, Debug)]
pub struct SortPattern {
    parts: Vec<SortPart>,
    collation: Option<Collation>,
}

impl SortPattern {
    /// Parses a sort document; an empty one gives a pattern without parts.
    ///
    /// Form: `{ <path>: 1 | -1 | { $meta: <name> }, … }`. `$natural` is not a path: a caller that
    /// accepts it checks for it first.
    pub fn parse(doc: Doc<'_>, context: &Context) -> Result<SortPattern> {
        let pattern = SortPattern::read(doc, context)?;
        pattern.check_score(context)?;
        Ok(pattern)
    }

    /// Parses like [`parse`](SortPattern::parse), but does not check for a score to sort by.
    pub(crate) fn read(doc: Doc<'_>, context: &Context) -> Result<SortPattern> {
        let parts = doc
            .iter()
            .map(|element| parse_part(element.name, element.value.get()))
            .collect::<Result<Vec<_>>>()?;
        if parts.len() > PARTS_MAX {
            return Err(too_many_parts());
        }
        Ok(SortPattern { parts, collation: context.collation.clone() })
    }

    /// Checks that there is a score or a distance if the pattern sorts by one.
    pub(crate) fn check_score(&self, context: &Context) -> Result<()> {
        if self.is_by_score() && !context.has_text_score {
            return Err(no_text_score());
        }
        if self.is_by_distance() && !context.has_distance {
            return Err(no_near_distance());
        }
        Ok(())
    }

    /// Returns whether a part sorts by the distance of a geo search.
    #[must_use]
    pub fn is_by_distance(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, SortPart::Meta(SortMeta::GeoNearDistance)))
    }

    /// Returns whether a part sorts by the score of a text search.
    #[must_use]
    pub fn is_by_score(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, SortPart::Meta(SortMeta::TextScore)))
    }

    /// Returns the parts, the most significant first; none if the sort document is empty.
    pub fn parts(&self) -> &[SortPart] {
        &self.parts
    }

    /// Returns whether documents sorted by `whole` are sorted by this pattern too.
    pub(crate) fn is_front_of(&self, whole: &SortPattern) -> bool {
        whole.parts.starts_with(&self.parts)
    }

    /// Writes the document's sort key into `key` (cleared first): keys compare by their bytes in
    /// the order of the documents. Parts by metadata find none; see
    /// [`SortPattern::write_key_with_meta`].
    ///
    /// Errors: `parallel_arrays`, `ambiguous_field`.
    pub fn write_key(&self, doc: Doc<'_>, key: &mut Vec<u8>) -> Result<()> {
        self.write_key_with_meta(doc, &DocMeta::default(), key)
    }

    /// Writes like [`write_key`](SortPattern::write_key), with the document's metadata.
    pub fn write_key_with_meta(
        &self,
        doc: Doc<'_>,
        meta: &DocMeta,
        key: &mut Vec<u8>,
    ) -> Result<()> {
        key.clear();
        for part in &self.parts {
            match self.simple_value(part, doc, meta) {
                Some((value, descending)) => encode_part(value, descending, self.collator(), key),
                None => return array::write_least_key(self, doc, meta, key).map(|_| ()),
            }
        }
        Ok(())
    }

    /// Writes like [`write_key_with_meta`](SortPattern::write_key_with_meta), for a caller that
    /// rejects the document if its key's [head](part_head) is greater than `greatest_head`: returns
    /// `false` if that is clear before the key is written. Only keys of one part are rejected
    /// early, because other parts may fail.
    #[inline]
    pub fn write_key_up_to(
        &self,
        greatest_head: u64,
        doc: Doc<'_>,
        meta: &DocMeta,
        key: &mut Vec<u8>,
    ) -> Result<bool> {
        if let Some((value, descending)) = self.only_value(doc) {
            // The value is not decoded: most documents are rejected here.
            if greatest_head != u64::MAX
                && let Some(head) = part_head(value, descending, self.collation.is_some())
                && head > greatest_head
            {
                return Ok(false);
            }
            key.clear();
            self.write_value_key(value, key);
            return Ok(true);
        }
        self.write_key_with_meta(doc, meta, key).map(|()| true)
    }

    /// Returns the value that a document is sorted by and the [head](part_head) of its key, if the
    /// pattern is one path, there is not an array, and the head is known without writing the key.
    #[inline]
    pub fn value_and_head<'d>(&self, doc: Doc<'d>) -> Option<(RawValue<'d>, u64)> {
        let (value, descending) = self.only_value(doc)?;
        Some((value, part_head(value, descending, self.collation.is_some())?))
    }

    /// Appends the key of a document to `key`, from the value that
    /// [`value_and_head`](SortPattern::value_and_head) found.
    pub fn write_value_key(&self, value: RawValue<'_>, key: &mut Vec<u8>) {
        let descending = matches!(&self.parts[..], [SortPart::Path { descending: true, .. }]);
        encode_part(value.get(), descending, self.collator(), key);
    }

    /// Returns the value of a pattern of one path, and whether greater values come first; `None` if
    /// there is an array.
    #[inline]
    fn only_value<'d>(&self, doc: Doc<'d>) -> Option<(RawValue<'d>, bool)> {
        match &self.parts[..] {
            [SortPart::Path { path, descending }] => {
                Some((without_arrays(path, doc)?, *descending))
            }
            _ => None,
        }
    }

    /// Returns the values that the document is sorted by, part by part, as `{ $meta: "sortKey" }`
    /// shows them.
    ///
    /// Errors: those of [`write_key`](SortPattern::write_key).
    pub fn values<'d>(&self, doc: Doc<'d>, meta: &DocMeta) -> Result<Vec<Value<'d>>> {
        let simple = self.parts.iter().map(|part| self.simple_value(part, doc, meta));
        match simple.map(|found| found.map(|(value, _)| value)).collect() {
            Some(values) => Ok(values),
            None => array::write_least_key(self, doc, meta, &mut Vec::new()),
        }
    }

    /// Returns the same values as an array.
    ///
    /// Errors: those of [`write_key`](SortPattern::write_key).
    pub fn key_array(&self, doc: Doc<'_>, meta: &DocMeta) -> Result<DocBuf> {
        let values = self.values(doc, meta)?;
        let mut bytes = Vec::new();
        let mut list = ArrayWriter::new(&mut bytes);
        for value in values {
            list.push(value);
        }
        list.finish();
        Ok(DocBuf::trusted(bytes))
    }

    /// Compares two documents in sort order; it builds keys only if there are arrays.
    ///
    /// Errors: those of [`write_key`](SortPattern::write_key).
    pub fn compare(&self, a: Doc<'_>, b: Doc<'_>) -> Result<Ordering> {
        let meta = DocMeta::default();
        for part in &self.parts {
            let values = (self.simple_value(part, a, &meta), self.simple_value(part, b, &meta));
            let (Some((a_value, descending)), Some((b_value, _))) = values else {
                return self.compare_keys(a, b);
            };
            let order = compare(a_value, b_value, self.collator());
            // A later part may have arrays that are an error. The error is found when one of these
            // documents is compared with an equal one, or when a key is built.
            if order.is_ne() {
                return Ok(if descending { order.reverse() } else { order });
            }
        }
        Ok(Ordering::Equal)
    }

    fn compare_keys(&self, a: Doc<'_>, b: Doc<'_>) -> Result<Ordering> {
        let (mut a_key, mut b_key) = (Vec::new(), Vec::new());
        self.write_key(a, &mut a_key)?;
        self.write_key(b, &mut b_key)?;
        Ok(a_key.cmp(&b_key))
    }

    fn collator(&self) -> Option<&dyn Collator> {
        self.collation.as_ref().map(Collation::collator)
    }

    /// Returns the value of a part and whether greater values come first; `None` if there is an
    /// array.
    fn simple_value<'a>(
        &self,
        part: &SortPart,
        doc: Doc<'a>,
        meta: &DocMeta,
    ) -> Option<(Value<'a>, bool)> {
        match part {
            SortPart::Meta(name) => Some((meta.get(*name), true)),
            // In a pattern of `_id` alone an array is one value, as in the index on `_id`.
            SortPart::Path { path, descending }
                if self.parts.len() == 1 && path.is_single() && path.first() == b"_id" =>
            {
                Some((doc.get("_id").unwrap_or(Value::Null), *descending))
            }
            SortPart::Path { path, descending } => {
                without_arrays(path, doc).map(|value| (value.get(), *descending))
            }
        }
    }
}

/// Returns the value at a path through documents; a missing one is null, and `None` means that
/// there is an array.
fn without_arrays<'a>(path: &FieldPath, mut doc: Doc<'a>) -> Option<RawValue<'a>> {
    const MISSING: RawValue<'_> = RawValue::new(Type::Null, &[]);
    let mut parts = path.parts().iter();
    loop {
        let Some(value) = parts.next().and_then(|part| doc.get_raw(part)) else {
            return Some(MISSING);
        };
        match value.kind() {
            Type::Array => return None,
            _ if parts.len() == 0 => return Some(value),
            Type::Document => doc = Doc::trusted(value.bytes()),
            _ => return Some(MISSING),
        }
    }
}

/// Writes a valid sort as `explain` shows it: each direction as an int, metadata as a computed
/// value.
pub fn write_shown(sort: Doc<'_>, out: &mut DocWriter<'_>) {
    for (number, element) in sort.iter().enumerate() {
        match element.value.get() {
            Value::Document(_) => out.append_raw(format!("$computed{number}"), element.value),
            direction => {
                let descending = parse_direction(direction).unwrap_or_default();
                out.append(element.name, if descending { -1 } else { 1 })
            }
        };
    }
}

fn parse_part(name: &BStr, value: Value<'_>) -> Result<SortPart> {
    match value {
        // Metadata has no path: the name is not checked.
        Value::Document(doc) => Ok(SortPart::Meta(parse_meta(doc)?)),
        value if value.kind().is_number() => {
            let descending = parse_direction(value)?;
            // Paths follow the rules of aggregations, with their errors.
            Path::parse(name)?;
            Ok(SortPart::Path { path: FieldPath::new(name), descending })
        }
        _ => Err(illegal_key(&format!("{name}: {value}"))),
    }
}

fn parse_direction(value: Value<'_>) -> Result<bool> {
    let direction = match value {
        // A fraction of a double is cut off. A decimal is converted to the nearest double, whose
        // fraction is not cut off.
        Value::Double(number) => exact_i64_of_double(number.trunc()),
        other => whole_number(other),
    };
    match direction {
        Some(1) => Ok(false),
        Some(-1) => Ok(true),
        _ => Err(illegal_direction()),
    }
}

fn parse_meta(doc: Doc<'_>) -> Result<SortMeta> {
    let mut fields = doc.iter();
    let first = fields.next().filter(|first| first.name == "$meta").ok_or_else(not_meta)?;
    if fields.next().is_some() {
        return Err(meta_not_alone());
    }
    let name = first.value.get().as_str();
    match name.map(|name| name.as_bytes()) {
        Some(b"textScore") => Ok(SortMeta::TextScore),
        Some(b"randVal") => Ok(SortMeta::RandVal),
        Some(b"geoNearDistance") => Ok(SortMeta::GeoNearDistance),
        Some(b"searchScore") => Err(search_score()),
        Some(b"searchHighlights") => Err(search_highlights()),
        _ => Err(illegal_meta(&first.to_string())),
    }
}

#[cfg(test)]
mod tests;
