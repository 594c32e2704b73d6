//! Wildcard indexes: a key for each path of a document, made of the path and its value.
//!
//! Since 7.0 other fields may come before and after the wildcard; the keys contain their values
//! too. These must not be arrays. A document that has some of them and nothing below the wildcard
//! has one key, with MinKey for path and value. Source: manual "Compound Wildcard Indexes".
//!
//! A document is projected first: `{ "a.$**": 1 }` selects everything below `a`. The result is
//! walked field by field; an array contributes its elements, which have the array's path. Empty
//! documents, empty arrays (as undefined) and arrays within arrays are values.

use std::sync::Arc;

use marula_bson::{BStr, Doc, DocBuf, Element, FieldPath, Type, Value, doc};
use marula_error::{Result, codes, errors};
use marula_query::context::Context;
use marula_query::projection::{Metadata, Policy, Projection};

use super::keys::{KeyMaker, KeySet, Straight, collator, straight};
use super::spec::{IndexSpec, KeyPart};

errors! {
    array_beside(path: &FieldPath) = CannotBuildIndexKeys, "A field beside the wildcard of an index cannot hold an array. Found array on path: {path}";
    projection_missing() = CannotCreateIndex, "A compound wildcard index on '$**' needs a 'wildcardProjection' that leaves its other fields out";
    beside_and_below(path: &FieldPath) = CannotCreateIndex, "The field '{path}' of a compound wildcard index must not be among those of its wildcard";
    projection_computes() = 51_271, "Bad projection specification, cannot use computed fields when parsing a spec in kBanComputedFields mode";
}

/// The paths of a document that a wildcard index holds.
#[derive(Clone)]
pub struct Wildcard {
    /// The position of the wildcard among the index fields.
    part: usize,
    /// The projection of documents; `None` selects everything except `_id`.
    projection: Option<Arc<Projection>>,
    /// Whether the listed paths are included, rather than excluded.
    is_inclusion: bool,
    /// The listed paths, sorted.
    paths: Vec<FieldPath>,
}

/// Returns whether a wildcard represents the whole document.
pub(super) fn is_every_path(field: &FieldPath) -> bool {
    *field.first() == *b"$**"
}

impl Wildcard {
    /// The wildcard at position `part`; it must not cover any other field of the index.
    ///
    /// Errors: `projection_missing`, `beside_and_below`, and those of [`Wildcard::new`].
    pub(super) fn among(
        parts: &[KeyPart],
        part: usize,
        projection: Option<Doc<'_>>,
    ) -> Result<Self> {
        let field = &parts[part].path;
        if parts.len() > 1 && projection.is_none() && is_every_path(field) {
            return Err(projection_missing());
        }
        let wildcard = Wildcard::new(field, part, projection)?;
        let mut others = parts.iter().enumerate().filter(|(number, _)| *number != part);
        match others.find(|(_, other)| wildcard.meets(&other.path)) {
            Some((_, other)) => Err(beside_and_below(&other.path)),
            None => Ok(wildcard),
        }
    }

    /// The paths of the wildcard field at position `part`, `$**` or `a.$**`, with an optional
    /// `wildcardProjection`.
    ///
    /// Errors: `projection_computes`, and those of a projection.
    fn new(field: &FieldPath, part: usize, projection: Option<Doc<'_>>) -> Result<Self> {
        let parts = field.parts();
        let prefix = parts[..parts.len() - 1].join(&b'.');
        let document = match projection {
            None if prefix.is_empty() => {
                let paths = vec![FieldPath::new("_id")];
                return Ok(Wildcard { part, projection: None, is_inclusion: false, paths });
            }
            None => DocBuf::build(|out| {
                out.append(prefix.as_slice(), 1);
            }),
            Some(projection) => projection.to_buf(),
        };
        let parse = |document: &DocBuf| {
            Projection::parse(document.as_doc(), Policy::Aggregate, &Context::default())
        };
        if let Some(before) = before_computed(document.as_doc()) {
            let before = (!before.as_doc().is_empty()).then(|| parse(&before).map_err(within));
            before.transpose()?;
            return Err(within(projection_computes()));
        }
        let mut projection = parse(&document).map_err(within)?;
        // By default `_id` is excluded.
        let says_id = |name: &[u8]| name == b"_id" || name.starts_with(b"_id.");
        if !document.as_doc().iter().any(|element| says_id(element.name)) {
            let mut without_id = document;
            without_id.push("_id", 0);
            projection = parse(&without_id).map_err(within)?;
        }
        let Some((is_inclusion, mut paths)) = projection.choice() else {
            return Err(within(projection_computes()));
        };
        paths.sort_by(|a, b| a.parts().cmp(b.parts()));
        let projection = Some(Arc::new(projection));
        Ok(Wildcard { part, projection, is_inclusion, paths })
    }

    /// The position of the wildcard among the index fields. Its entries hold the path at this
    /// position, followed by the value.
    pub fn part(&self) -> usize {
        self.part
    }

    /// Returns whether a covered path equals `path`, contains it, or is below it.
    fn meets(&self, path: &FieldPath) -> bool {
        let is_below = |known: &FieldPath| self.is_inclusion && known.starts_with(path);
        self.covers(path) || self.paths.iter().any(is_below)
    }

    /// Returns whether only paths below `path` are included. They do not lead through arrays in
    /// arrays.
    fn leads_through(&self, path: &[u8]) -> bool {
        self.is_inclusion && !self.covers(&FieldPath::new(path))
    }

    /// Returns whether both select the same paths of every document.
    pub(super) fn same_paths(&self, other: &Wildcard) -> bool {
        self.projection.is_some() == other.projection.is_some()
            && self.is_inclusion == other.is_inclusion
            && self.paths == other.paths
    }

    /// Returns whether the index holds the values at `path`, so that it can serve a query on it.
    pub fn covers(&self, path: &FieldPath) -> bool {
        let leads_there = |known: &FieldPath| path.starts_with(known);
        match self.is_inclusion {
            true => self.paths.iter().any(leads_there),
            false => !self.paths.iter().any(leads_there),
        }
    }
}

fn within(error: marula_error::Error) -> marula_error::Error {
    error.caused_by("Failed to parse: wildcardProjection")
}

/// The values that all keys of one document share.
struct OtherFields<'a> {
    index: &'a IndexSpec,
    wildcard: &'a Wildcard,
    /// The values of the index's fields, with a placeholder for the wildcard; empty if there are no
    /// others.
    values: Vec<Value<'a>>,
    is_any_present: bool,
}

impl<'a> OtherFields<'a> {
    /// Errors: `array_beside`.
    fn of(index: &'a IndexSpec, wildcard: &'a Wildcard, doc: Doc<'a>) -> Result<Self> {
        let mut others = OtherFields { index, wildcard, values: Vec::new(), is_any_present: false };
        if index.parts.len() == 1 {
            return Ok(others);
        }
        for (number, part) in index.parts.iter().enumerate() {
            let found = match straight(doc, part) {
                _ if number == wildcard.part => None,
                Straight::Array { .. } => return Err(array_beside(&part.path)),
                Straight::Value(value) => value,
            };
            others.is_any_present |= found.is_some();
            others.values.push(found.unwrap_or(Value::Null));
        }
        Ok(others)
    }
}

/// The part of a projection before the first computed field, whether or not the expression is
/// valid; `None` if no field is computed. Validated BSON bounds the depth.
fn before_computed(document: Doc<'_>) -> Option<DocBuf> {
    let mut before = DocBuf::new();
    for Element { name, value } in document {
        match value.get() {
            Value::Document(inner) if names_operator(inner) => {
                return is_of_expressions(name, inner).then_some(before);
            }
            Value::Document(inner) => {
                if let Some(inner) = before_computed(inner) {
                    if !inner.as_doc().is_empty() {
                        before.push(name, &inner);
                    }
                    return Some(before);
                }
            }
            Value::Boolean(_) => {}
            number if number.kind().is_number() => {}
            _ => return Some(before),
        }
        before.push(name, value.get());
    }
    None
}

/// Returns whether a document is an operator with its argument.
fn names_operator(document: Doc<'_>) -> bool {
    let mut fields = document.iter();
    matches!((fields.next(), fields.next()), (Some(only), None) if only.name.starts_with(b"$"))
}

/// Returns whether an operator for the field of this name is an expression operator, even if its
/// argument is invalid. An invalid field name takes precedence.
fn is_of_expressions(name: &BStr, operator: Doc<'_>) -> bool {
    let parse =
        |field: DocBuf| Projection::parse(field.as_doc(), Policy::Aggregate, &Context::default());
    let named = DocBuf::build(|out| {
        out.append(name, 1);
    });
    match parse(doc! { "a": operator }) {
        _ if parse(named).is_err() => false,
        Ok(_) => true,
        Err(error) => ![UNKNOWN_OPERATOR, codes::InvalidPipelineOperator.number()]
            .contains(&error.code().number()),
    }
}

/// The error code of an unknown operator; an operator that is not for expressions has another code.
const UNKNOWN_OPERATOR: i32 = 31_325;

impl KeyMaker {
    /// Writes the keys of `doc`, unsorted.
    pub(super) fn make_wildcard(
        &mut self,
        spec: &IndexSpec,
        wildcard: &Wildcard,
        doc: Doc<'_>,
        keys: &mut KeySet,
    ) -> Result<()> {
        let others = OtherFields::of(spec, wildcard, doc)?;
        let mut path = Vec::new();
        match &wildcard.projection {
            None => {
                let fields = doc.iter().filter(|element| element.name != "_id");
                for element in fields {
                    self.push_field(element, false, &others, &mut path, keys)?;
                }
            }
            Some(projection) => {
                let mut projected = std::mem::take(&mut self.projected);
                projected.clear();
                let metadata = Metadata::default();
                projection.apply(doc, None, &metadata, &Context::default(), &mut projected)?;
                let seen = Doc::trusted(&projected);
                let made = self.push_fields(seen, false, &others, &mut path, keys);
                self.projected = projected;
                made?;
            }
        }
        if keys.is_empty() && others.is_any_present {
            self.push_key(Value::MinKey, Value::MinKey, &others, keys)?;
        }
        Ok(())
    }

    fn push_fields(
        &mut self,
        doc: Doc<'_>,
        is_nested: bool,
        others: &OtherFields<'_>,
        path: &mut Vec<u8>,
        keys: &mut KeySet,
    ) -> Result<()> {
        doc.iter().try_for_each(|element| self.push_field(element, is_nested, others, path, keys))
    }

    /// The keys of one field. Validated BSON bounds the depth.
    fn push_field(
        &mut self,
        element: Element<'_>,
        is_nested: bool,
        others: &OtherFields<'_>,
        path: &mut Vec<u8>,
        keys: &mut KeySet,
    ) -> Result<()> {
        // A name with a dot would be indistinguishable from a path.
        if element.name.contains(&b'.') {
            return Ok(());
        }
        let length = path.len();
        if is_nested {
            path.push(b'.');
        }
        path.extend_from_slice(element.name);
        match element.value.get() {
            Value::Array(array) => {
                keys.multikey.add_path(path);
                let mut leaves_out_arrays = false;
                if array.values().any(|element| element.kind() == Type::Array) {
                    keys.multikey.add_nested(path);
                    leaves_out_arrays = others.wildcard.leads_through(path);
                }
                let is_seen = |value: &Value<'_>| !leaves_out_arrays || value.as_array().is_none();
                let mut seen = array.values().filter(is_seen).peekable();
                if seen.peek().is_none() {
                    self.push_value(Value::Undefined, others, path, keys)?;
                }
                for value in seen {
                    self.push_inner(value, others, path, keys)?;
                }
            }
            value => self.push_inner(value, others, path, keys)?,
        }
        path.truncate(length);
        Ok(())
    }

    fn push_inner(
        &mut self,
        value: Value<'_>,
        others: &OtherFields<'_>,
        path: &mut Vec<u8>,
        keys: &mut KeySet,
    ) -> Result<()> {
        match value {
            Value::Document(doc) if !doc.is_empty() => {
                self.push_fields(doc, true, others, path, keys)
            }
            value => self.push_value(value, others, path, keys),
        }
    }

    fn push_value(
        &mut self,
        value: Value<'_>,
        others: &OtherFields<'_>,
        path: &[u8],
        keys: &mut KeySet,
    ) -> Result<()> {
        self.push_key(Value::String(path.into()), value, others, keys)
    }

    fn push_key(
        &mut self,
        path: Value<'_>,
        value: Value<'_>,
        others: &OtherFields<'_>,
        keys: &mut KeySet,
    ) -> Result<()> {
        keys.check_room()?;
        self.writer.reset(&[]);
        let collator = collator(others.index);
        for (number, part) in others.index.parts.iter().enumerate() {
            if number == others.wildcard.part {
                self.writer.push(path, false, None);
                self.writer.push(value, part.descending, collator);
            } else {
                self.writer.push(others.values[number], part.descending, collator);
            }
        }
        self.finish_key(keys);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;

    use super::*;
    use crate::collection::Shape;
    use crate::index::{Index, entry};
    use crate::keys::Ident;

    fn index(spec: &DocBuf) -> Index {
        let mut spec = spec.clone();
        spec.push("name", "w");
        Index::new(Ident(1), IndexSpec::parse(spec.as_doc(), None).unwrap())
    }

    /// The keys of `doc` in an index with this specification, as documents: `{ $_path: "a", a: 1
    /// }`.
    fn values(spec: &DocBuf, doc: &DocBuf) -> Vec<String> {
        let index = index(spec);
        let mut keys = KeySet::default();
        KeyMaker::default().make(&index, doc.as_doc(), &mut keys).unwrap();
        let shown = keys.iter().map(|(key, type_bits)| {
            let (mut store_key, mut value) = (Vec::new(), Vec::new());
            entry::encode_key(&index, key, &[0; 8], &mut store_key);
            entry::encode_value(&index, Shape::RecordId, &[0; 8], type_bits, &mut value);
            let entry = entry::decode(&index, Shape::RecordId, &store_key, &value).unwrap();
            let mut values = Vec::new();
            entry::decode_values(&index, &entry, &mut values).unwrap();
            Doc::trusted(&values).to_string()
        });
        shown.collect()
    }

    /// Checks the keys of `doc`, each a path and its value.
    #[track_caller]
    fn check(spec: &DocBuf, doc: &DocBuf, expected: &[&str]) {
        let named = |pair: &&str| {
            let path = pair.split(": ").next().unwrap_or_default();
            format!("{{ $_path: \"{path}\", {pair} }}")
        };
        assert_eq!(values(spec, doc), expected.iter().map(named).collect::<Vec<_>>());
    }

    #[test]
    fn every_path_is_a_key() {
        let all = doc! { "key": { "$**": 1 } };
        check(
            &all,
            &doc! { "_id": 1, "a": 1, "b": { "c": "x", "d": {} } },
            &["a: 1", "b.c: \"x\"", "b.d: {}"],
        );
        check(&all, &doc! { "a": [] }, &["a: undefined"]);
        check(
            &all,
            &doc! { "a": [1, { "b": 2 }, [3]], "n": null },
            &["a: 1", "a: [ 3 ]", "a.b: 2", "n: null"],
        );
        check(&all, &doc! { "a.b": 1, "c": { "d.e": 1 } }, &[]);
        check(&all, &doc! { "": 2, "a": { "": 5 } }, &[": 2", "a.: 5"]);
        check(&all, &doc! {}, &[]);
    }

    /// Checks the keys of `doc` as documents.
    #[track_caller]
    fn check_values(spec: &DocBuf, doc: &DocBuf, expected: &[&str]) {
        assert_eq!(values(spec, doc), expected);
    }

    #[test]
    fn fields_stand_beside_the_wildcard() {
        let around = doc! { "key": { "a": (-1), "s.$**": 1, "b": 1 } };
        check_values(
            &around,
            &doc! { "a": 1, "b": 2, "s": { "x": [5, 6], "y": { "z": "t" } } },
            &[
                "{ a: 1, $_path: \"s.x\", s.x: 5, b: 2 }",
                "{ a: 1, $_path: \"s.x\", s.x: 6, b: 2 }",
                "{ a: 1, $_path: \"s.y.z\", s.y.z: \"t\", b: 2 }",
            ],
        );
        check_values(&around, &doc! { "s": 1 }, &["{ a: null, $_path: \"s\", s: 1, b: null }"]);
        check_values(&around, &doc! { "b": 1 }, &["{ a: null, $_path: MinKey, b: 1 }"]);
        check_values(&around, &doc! { "z": 1, "s.x": 1 }, &[]);
        let front = doc! { "key": { "$**": (-1), "b": 1 }, "wildcardProjection": { "b": 0 } };
        check_values(
            &front,
            &doc! { "_id": 1, "a": [1, 2], "b": { "x": 1 } },
            &["{ $_path: \"a\", a: 2, b: { x: 1 } }", "{ $_path: \"a\", a: 1, b: { x: 1 } }"],
        );
    }

    #[test]
    fn no_array_stands_beside_the_wildcard() {
        let index = index(&doc! { "key": { "a.b": 1, "s.$**": 1 } });
        let make =
            |doc: DocBuf| KeyMaker::default().make(&index, doc.as_doc(), &mut KeySet::default());
        for doc in
            [doc! { "a": { "b": [1] } }, doc! { "a": [] }, doc! { "a": [{ "b": 1 }], "s": 1 }]
        {
            let error = make(doc).unwrap_err();
            assert_eq!(error.code().number(), 201);
            assert!(error.message().ends_with("Found array on path: a.b"), "{error}");
        }
        assert!(make(doc! { "a": { "b": 1, "c": [1] }, "s": [1] }).is_ok());
    }

    #[test]
    fn a_projection_says_which() {
        let document = doc! { "_id": { "x": 1, "y": 2 }, "a": 1, "b": { "c": 3, "d": 4 } };
        let with = |projection: DocBuf| {
            doc! { "key": { "$**": 1 }, "wildcardProjection": &projection }
        };
        check(&with(doc! { "a": 0 }), &document, &["b.c: 3", "b.d: 4"]);
        check(&with(doc! { "_id": 1 }), &document, &["_id.x: 1", "_id.y: 2"]);
        check(&with(doc! { "_id": 1, "a": 0, "b": 0 }), &document, &["_id.x: 1", "_id.y: 2"]);
        check(&with(doc! { "_id.x": 0, "b": 0 }), &document, &["_id.y: 2", "a: 1"]);
        check(&with(doc! { "b.c": 1 }), &document, &["b.c: 3"]);
        check(&with(doc! { "b": { "c": 0 } }), &document, &["a: 1", "b.d: 4"]);
        check(&doc! { "key": { "b.$**": 1 } }, &document, &["b.c: 3", "b.d: 4"]);
        check(&doc! { "key": { "a.b.$**": 1 } }, &doc! { "a": 5 }, &[]);
        check(&doc! { "key": { "a.b.$**": 1 } }, &doc! { "a": [1] }, &["a: undefined"]);
        check(&doc! { "key": { "a.b.$**": 1 } }, &doc! { "a": [[5]] }, &["a: undefined"]);
        check(&doc! { "key": { "a.b.$**": 1 } }, &doc! { "a": [[], { "b": 1 }] }, &["a.b: 1"]);
        check(&with(doc! { "a.b": 1 }), &doc! { "a": [[{ "b": 1 }], { "c": 1 }] }, &["a: {}"]);
        check(&with(doc! { "a.b": 0 }), &doc! { "a": [[], { "c": 1 }] }, &["a: []", "a.c: 1"]);
    }

    #[test]
    fn alike_are_those_that_see_the_same() {
        let wildcard = |projection: Option<DocBuf>| {
            let projection = projection.as_ref().map(DocBuf::as_doc);
            Wildcard::new(&FieldPath::new("$**"), 0, projection).unwrap()
        };
        let same = |a, b| wildcard(a).same_paths(&wildcard(b));
        assert!(same(Some(doc! { "a": 1, "b": 1 }), Some(doc! { "b": true, "a": 2, "_id": 0 })));
        assert!(same(Some(doc! { "b.c": 1 }), Some(doc! { "b": { "c": 1 } })));
        assert!(!same(None, Some(doc! { "_id": 0 })));
        assert!(!same(Some(doc! { "a": 1 }), Some(doc! { "a": 0 })));
    }
}
