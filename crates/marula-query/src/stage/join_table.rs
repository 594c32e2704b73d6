//! The documents of a `$lookup`'s other collection in memory, by the values of the field that it
//! joins on.
//!
//! For many documents it costs less to read the other collection once than to query it for each
//! document. The table returns candidates: a document is found under every value that a comparison
//! at the path may match. If the path or the value is ambiguous, the filter of the equivalent query
//! decides.

use hashbrown::{DefaultHashBuilder, HashTable};
use marula_bson::{Collator, Doc, Value, ValueBuf, order};
use marula_error::Result;

use super::source::{Batch, Source, Step};
use super::world::JoinSide;
use crate::expression::set::hash;
use crate::filter::{Filter, is_operators};

/// The memory limit of a table.
const TABLE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The minimum number of index lookups before the collection is read as a whole.
const LOOKUPS_MIN: u64 = 32;
/// The number of documents read in the time of one index lookup.
const DOCUMENTS_PER_LOOKUP: u64 = 8;

/// Returns whether to read the other collection as a whole, after this number of lookups in it.
pub(super) fn is_worth_it(side: &JoinSide, lookups: u64) -> bool {
    if side.bytes > TABLE_BYTES_MAX as u64 / 2 {
        return false;
    }
    let enough =
        if side.is_indexed { (side.documents / DOCUMENTS_PER_LOOKUP).max(LOOKUPS_MIN) } else { 1 };
    lookups >= enough
}

/// Documents by the values at a path.
pub(super) struct JoinTable {
    documents: Batch,
    /// Values, with the index of a document that has each.
    entries: Vec<(ValueBuf, usize)>,
    table: HashTable<usize>,
    hashing: DefaultHashBuilder,
    /// The documents whose path may lead to null or to no value.
    nullish: Vec<usize>,
    /// Whether every document found under a value certainly has it at the path.
    is_exact: bool,
}

impl JoinTable {
    /// Reads `source`; returns `None` if that would take too much memory.
    pub(super) fn read(
        source: &mut dyn Source,
        path: &[&[u8]],
        collator: Option<&dyn Collator>,
    ) -> Result<Option<JoinTable>> {
        let mut table = JoinTable {
            documents: Batch::default(),
            entries: Vec::new(),
            table: HashTable::new(),
            hashing: DefaultHashBuilder::default(),
            nullish: Vec::new(),
            is_exact: path.len() == 1,
        };
        let mut size = 0;
        while source.advance()? != Step::End {
            let document = source.doc();
            let mut found = Vec::new();
            let may_be_null = values_at(Value::Document(document), path, &mut found);
            let at = table.documents.ends.len();
            for value in &found {
                let kept = value.to_buf();
                size += kept.as_raw().bytes().len() + 4 * size_of::<usize>();
                table.insert(kept, at, collator);
            }
            if may_be_null || found.iter().any(Value::is_nullish) {
                table.nullish.push(at);
            }
            size += document.as_bytes().len();
            if size > TABLE_BYTES_MAX {
                return Ok(None);
            }
            table.documents.push(document);
        }
        Ok(Some(table))
    }

    fn insert(&mut self, key: ValueBuf, document: usize, collator: Option<&dyn Collator>) {
        let (hashing, entries) = (&self.hashing, &self.entries);
        let hashed = hash(hashing, key.get(), collator);
        let rehash = |&at: &usize| hash(hashing, entries[at].0.get(), collator);
        self.table.insert_unique(hashed, entries.len(), rehash);
        self.entries.push((key, document));
    }

    /// Returns the document with this index.
    pub(super) fn doc(&self, at: usize) -> Doc<'_> {
        self.documents.doc(at)
    }

    /// Returns the documents that equal one of the values, by index, in the order in which they
    /// were read; `filter` builds the exact filter for them.
    pub(super) fn matching(
        &self,
        values: &[Value<'_>],
        collator: Option<&dyn Collator>,
        filter: &dyn Fn() -> Result<Filter>,
    ) -> Result<Vec<usize>> {
        let is_refused = |value: &Value<'_>| match value {
            Value::Undefined => true,
            Value::Document(doc) => is_operators(*doc),
            _ => false,
        };
        if values.iter().any(is_refused) {
            // The filter may be invalid, which is an error whatever was found.
            filter()?;
        }
        let mut found: Vec<usize> = Vec::new();
        for value in values {
            if value.is_nullish() {
                found.extend_from_slice(&self.nullish);
                continue;
            }
            let hashed = hash(&self.hashing, *value, collator);
            let same = |&&at: &&usize| order::equal(self.entries[at].0.get(), *value, collator);
            found.extend(self.table.iter_hash(hashed).filter(same).map(|&at| self.entries[at].1));
        }
        found.sort_unstable();
        found.dedup();
        let is_sure = self.is_exact && !values.iter().any(Value::is_nullish);
        if is_sure || found.is_empty() {
            return Ok(found);
        }
        let filter = filter()?;
        let mut exact = Vec::with_capacity(found.len());
        for at in found {
            if filter.matches(self.doc(at))? {
                exact.push(at);
            }
        }
        Ok(exact)
    }
}

/// Collects every value that a comparison at the path may match; returns whether it may also match
/// a missing value.
fn values_at<'d>(value: Value<'d>, path: &[&[u8]], out: &mut Vec<Value<'d>>) -> bool {
    let Some((first, rest)) = path.split_first() else {
        out.push(value);
        if let Value::Array(items) = value {
            out.extend(items.values());
        }
        return false;
    };
    match value {
        Value::Document(doc) => doc.get(*first).is_none_or(|inner| values_at(inner, rest, out)),
        Value::Array(items) => {
            for element in items {
                // A number in the path means an element by its index.
                if **element.name == **first {
                    values_at(element.value.get(), rest, out);
                }
                if element.value.get().as_doc().is_some() {
                    values_at(element.value.get(), path, out);
                }
            }
            true
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::{DocBuf, doc};

    use super::super::source::Documents;
    use super::*;
    use crate::context::Context;

    /// Checks that the table finds what the filter finds, for every value and path.
    fn check(path: &str, documents: &[DocBuf], values: &[Value<'_>]) {
        let context = Context::default();
        let parts: Vec<&[u8]> = path.split('.').map(str::as_bytes).collect();
        let mut source = Documents::new(documents.to_vec());
        let table = JoinTable::read(&mut source, &parts, None).unwrap().expect("it is small");
        for value in values {
            let spec = DocBuf::build(|out| {
                out.begin_doc(path).append("$eq", *value);
            });
            let filter = || Filter::parse(spec.as_doc(), &context);
            let exact = filter().unwrap();
            let expected: Vec<DocBuf> = documents
                .iter()
                .filter(|document| exact.matches(document.as_doc()).unwrap())
                .cloned()
                .collect();
            let found = table.matching(&[*value], None, &filter).unwrap();
            let found: Vec<DocBuf> = found.iter().map(|&at| table.doc(at).to_buf()).collect();
            assert_eq!(found, expected, "{path} {value:?}");
        }
    }

    #[test]
    fn a_table_finds_what_a_query_finds() {
        let documents = [
            doc! { "_id": 1, "a": 1 },
            doc! { "_id": 2, "a": [1, 2.0, []] },
            doc! { "_id": 3, "a": null },
            doc! { "_id": 4 },
            doc! { "_id": 5, "a": [] },
            doc! { "_id": 6, "a": { "b": 1 } },
            doc! { "_id": 7, "a": [{ "b": 1 }, { "c": 1 }, 3] },
            doc! { "_id": 8, "a": [[1], { "b": [1, null] }] },
            doc! { "_id": 9, "a": { "0": 1 } },
            doc! { "_id": 10, "a": "x" },
        ];
        let empty = doc! { "v": [[], [1], { "b": 1 }] };
        let mut values = vec![
            Value::Int32(1),
            Value::Double(1.0),
            Value::Int64(2),
            Value::Null,
            Value::from("x"),
            Value::Int32(77),
        ];
        let array = empty.as_doc().get("v").and_then(|array| array.as_array()).expect("it is one");
        values.extend(array.values());
        for path in ["a", "a.b", "a.0", "a.0.b", "nope"] {
            check(path, &documents, &values);
        }
    }

    #[test]
    fn an_index_is_used_until_reading_all_costs_less() {
        let side = JoinSide { documents: 8_000, bytes: 1 << 20, is_indexed: true };
        assert!(!is_worth_it(&side, 999) && is_worth_it(&side, 1_000));
        assert!(is_worth_it(&JoinSide { is_indexed: false, ..side }, 1));
        assert!(!is_worth_it(&JoinSide { bytes: 1 << 40, ..side }, 1 << 40));
    }
}
