//! Wildcard indexes: a key for each path of a document, made of the path and the value there.
//!
//! A document is seen through a projection: `{ "a.$**": 1 }` is all below `a`. What is left is walked field by field;
//! an array counts by its elements, which have the array's path. Empty documents, empty arrays (as undefined) and
//! arrays within arrays are values.

use std::sync::Arc;

use marula_bson::{Collator, Doc, DocBuf, Element, FieldPath, Value};
use marula_error::{Result, errors};
use marula_query::context::Context;
use marula_query::projection::{Metadata, Policy, Projection};

use super::keys::{KeyMaker, KeySet};

errors! {
    projection_computes() = 51_271, "Bad projection specification, cannot use computed fields when parsing a spec in kBanComputedFields mode";
}

/// Which paths of a document a wildcard index holds.
#[derive(Clone)]
pub struct Wildcard {
    /// What is seen of a document; `None` is all but `_id`.
    projection: Option<Arc<Projection>>,
    /// Whether the named paths are those that are seen.
    is_inclusion: bool,
    /// The named paths, sorted.
    paths: Vec<FieldPath>,
}

impl Wildcard {
    /// The paths of an index whose only field is `field` (`$**`, `a.$**`), with a `wildcardProjection` or none.
    ///
    /// Errors: `projection_computes`, and those of a projection.
    pub(super) fn new(field: &FieldPath, projection: Option<Doc<'_>>) -> Result<Self> {
        let parts = field.parts();
        let prefix = parts[..parts.len() - 1].join(&b'.');
        let document = match projection {
            None if prefix.is_empty() => {
                let paths = vec![FieldPath::new("_id")];
                return Ok(Wildcard { projection: None, is_inclusion: false, paths });
            }
            None => DocBuf::build(|out| {
                out.append(prefix.as_slice(), 1);
            }),
            Some(projection) => projection.to_buf(),
        };
        let parse = |document: &DocBuf| {
            Projection::parse(document.as_doc(), Policy::Aggregate, &Context::default())
        };
        let mut projection = parse(&document).map_err(within)?;
        // Where nothing is said of `_id`, it is not seen.
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
        Ok(Wildcard { projection, is_inclusion, paths })
    }

    /// Whether both see the same of every document.
    pub(super) fn same_paths(&self, other: &Wildcard) -> bool {
        self.projection.is_some() == other.projection.is_some()
            && self.is_inclusion == other.is_inclusion
            && self.paths == other.paths
    }

    /// Whether the index holds what documents have at `path`, so that a query on it can be answered from there.
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

impl KeyMaker {
    /// Writes the keys of `doc`, unsorted.
    pub(super) fn make_wildcard(
        &mut self,
        wildcard: &Wildcard,
        collator: Option<&dyn Collator>,
        doc: Doc<'_>,
        keys: &mut KeySet,
    ) -> Result<()> {
        let mut path = Vec::new();
        let Some(projection) = &wildcard.projection else {
            for element in doc.iter().filter(|element| element.name != "_id") {
                self.push_field(element, false, collator, &mut path, keys)?;
            }
            return Ok(());
        };
        let mut projected = std::mem::take(&mut self.projected);
        projected.clear();
        let metadata = Metadata::default();
        projection.apply(doc, None, &metadata, &Context::default(), &mut projected)?;
        let made = self.push_fields(Doc::trusted(&projected), false, collator, &mut path, keys);
        self.projected = projected;
        made
    }

    fn push_fields(
        &mut self,
        doc: Doc<'_>,
        is_nested: bool,
        collator: Option<&dyn Collator>,
        path: &mut Vec<u8>,
        keys: &mut KeySet,
    ) -> Result<()> {
        doc.iter().try_for_each(|element| self.push_field(element, is_nested, collator, path, keys))
    }

    /// The keys of one field. Validated BSON bounds the depth.
    fn push_field(
        &mut self,
        element: Element<'_>,
        is_nested: bool,
        collator: Option<&dyn Collator>,
        path: &mut Vec<u8>,
        keys: &mut KeySet,
    ) -> Result<()> {
        // A name with a dot could not be told from a path.
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
                if !keys.multikey.paths.contains(path) {
                    keys.multikey.paths.insert(path.clone());
                }
                if array.is_empty() {
                    self.push_value(Value::Undefined, collator, path, keys)?;
                }
                for value in array.values() {
                    self.push_inner(value, collator, path, keys)?;
                }
            }
            value => self.push_inner(value, collator, path, keys)?,
        }
        path.truncate(length);
        Ok(())
    }

    fn push_inner(
        &mut self,
        value: Value<'_>,
        collator: Option<&dyn Collator>,
        path: &mut Vec<u8>,
        keys: &mut KeySet,
    ) -> Result<()> {
        match value {
            Value::Document(doc) if !doc.is_empty() => {
                self.push_fields(doc, true, collator, path, keys)
            }
            value => self.push_value(value, collator, path, keys),
        }
    }

    fn push_value(
        &mut self,
        value: Value<'_>,
        collator: Option<&dyn Collator>,
        path: &[u8],
        keys: &mut KeySet,
    ) -> Result<()> {
        keys.check_room()?;
        self.writer.reset(&[]);
        self.writer.push(Value::String(path.into()), false, None);
        self.writer.push(value, false, collator);
        self.finish_key(keys);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;

    use super::*;
    use crate::collection::Shape;
    use crate::index::{Index, IndexSpec, entry};
    use crate::keys::Ident;

    /// Checks the keys of `doc` in the index of this specification, as `{ $_path: "a", a: 1 }`.
    #[track_caller]
    fn check(spec: &DocBuf, doc: &DocBuf, expected: &[&str]) {
        let mut spec = spec.clone();
        spec.push("name", "w");
        let spec = IndexSpec::parse(spec.as_doc(), None).unwrap();
        let index = Index::new(Ident(1), spec);
        let mut keys = KeySet::default();
        KeyMaker::default().make(&index, doc.as_doc(), &mut keys).unwrap();
        let mut found = Vec::new();
        for (key, type_bits) in keys.iter() {
            let (mut store_key, mut value) = (Vec::new(), Vec::new());
            entry::encode_key(&index, key, &[0; 8], &mut store_key);
            entry::encode_value(&index, Shape::RecordId, &[0; 8], type_bits, &mut value);
            let entry = entry::decode(&index, Shape::RecordId, &store_key, &value).unwrap();
            let mut values = Vec::new();
            entry::decode_values(&index, &entry, &mut values).unwrap();
            let values = Doc::trusted(&values);
            assert_eq!(
                values.get("$_path").unwrap().as_str().unwrap(),
                values.iter().last().unwrap().name
            );
            let last = values.iter().last().unwrap();
            found.push(format!("{}: {}", last.name, last.value.get()));
        }
        assert_eq!(found, expected);
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
    }

    #[test]
    fn alike_are_those_that_see_the_same() {
        let wildcard = |projection: Option<DocBuf>| {
            let projection = projection.as_ref().map(DocBuf::as_doc);
            Wildcard::new(&FieldPath::new("$**"), projection).unwrap()
        };
        let same = |a, b| wildcard(a).same_paths(&wildcard(b));
        assert!(same(Some(doc! { "a": 1, "b": 1 }), Some(doc! { "b": true, "a": 2, "_id": 0 })));
        assert!(same(Some(doc! { "b.c": 1 }), Some(doc! { "b": { "c": 1 } })));
        assert!(!same(None, Some(doc! { "_id": 0 })));
        assert!(!same(Some(doc! { "a": 1 }), Some(doc! { "a": 0 })));
    }
}
