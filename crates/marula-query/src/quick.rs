//! Estimates from a statement's text, before parsing, whether it takes little time with each
//! document.
//!
//! A thread that others wait for takes only quick statements. These use the operators listed here,
//! whose time with a document grows with the document's size alone, and a bounded number of them.
//! An operator that is not listed is not quick: a new operator has to be added here, if it runs no
//! code of the client's, searches no text by an expression, and makes no value larger than its
//! inputs.

use marula_bson::{ByteSlice, Doc, Type, Value};

/// The maximum number of names, values and branches in a statement. Each costs parsing, and
/// planning if it is a condition.
const NODES_MAX: usize = 512;
/// The cost of a branch of an `$or`, in nodes: it is planned on its own.
const NODES_PER_BRANCH: usize = 16;
/// The number of values looked up in order, as those of `$in`, that cost as much as one condition.
const VALUES_PER_CONDITION: usize = 16;
/// The number of fields set by an update that cost as much as one condition.
const FIELDS_PER_CONDITION: usize = 16;
/// The maximum nesting depth of a statement.
const DEPTH_MAX: usize = 32;
/// The maximum length of a path: numbers in it may name an element or a field, which multiplies the
/// ways.
const PATH_PARTS_MAX: usize = 16;

/// Operators of filters and of the updates that take conditions.
const QUICK: &[&str] = &[
    "$all",
    "$and",
    "$bitsAllClear",
    "$bitsAllSet",
    "$bitsAnyClear",
    "$bitsAnySet",
    "$comment",
    "$db",
    "$each",
    "$elemMatch",
    "$eq",
    "$exists",
    "$gt",
    "$gte",
    "$id",
    "$in",
    "$lt",
    "$lte",
    "$mod",
    "$natural",
    "$ne",
    "$nin",
    "$nor",
    "$not",
    "$or",
    "$position",
    "$ref",
    "$size",
    "$slice",
    "$sort",
    "$type",
];

/// Operators of updates whose values are written unchanged.
const WRITTEN: &[&str] = &[
    "$bit",
    "$currentDate",
    "$inc",
    "$max",
    "$min",
    "$mul",
    "$pop",
    "$rename",
    "$set",
    "$setOnInsert",
    "$unset",
];

/// Operators of updates whose values are compared with elements.
const COMPARED: &[&str] = &["$addToSet", "$pull", "$pullAll", "$push"];

/// The cost of statements together: it only grows.
#[derive(Clone, Copy, Default, Debug)]
pub struct Cost {
    nodes: usize,
    /// In sixteenths.
    conditions: usize,
}

impl Cost {
    /// Returns about how many times a document is read; at least once.
    pub fn conditions(self) -> usize {
        1 + self.conditions / 16
    }

    /// Adds a filter, or a document of similar form: a sort, a hint. Returns whether the total is
    /// still quick.
    #[must_use]
    pub fn add_filter(&mut self, filter: Value<'_>) -> bool {
        match filter {
            Value::Document(doc) => self.add_doc(doc, 0, 16),
            Value::Array(items) => self.add_items(items, 0, 16),
            _ => true,
        }
    }

    /// Adds a projection; only one that shows fields and parts of arrays is quick.
    #[must_use]
    pub fn add_projection(&mut self, projection: Value<'_>) -> bool {
        let Value::Document(doc) = projection else { return true };
        self.add_doc(doc, 0, 16) && reads_no_fields(doc)
    }

    /// Adds an update.
    #[must_use]
    pub fn add_update(&mut self, update: Value<'_>) -> bool {
        // A pipeline computes values.
        let Value::Document(doc) = update else { return false };
        let Some(first) = doc.iter().next() else { return true };
        if first.name.first() != Some(&b'$') {
            // A replacement document.
            return true;
        }
        doc.iter().all(|element| {
            let name = element.name.as_bytes();
            let is_one_of = |list: &[&str]| list.iter().any(|known| known.as_bytes() == name);
            let Value::Document(fields) = element.value.get() else { return true };
            if is_one_of(WRITTEN) {
                return fields
                    .iter()
                    .all(|field| is_short_path(field.name) && self.add(16 / FIELDS_PER_CONDITION));
            }
            is_one_of(COMPARED) && self.add_doc(fields, 0, 16)
        })
    }

    fn add(&mut self, conditions: usize) -> bool {
        self.nodes += 1;
        self.conditions += conditions;
        self.nodes <= NODES_MAX
    }

    fn add_doc(&mut self, doc: Doc<'_>, depth: usize, each: usize) -> bool {
        if depth > DEPTH_MAX {
            return false;
        }
        doc.iter().all(|element| {
            let name = element.name.as_bytes();
            if !self.add(each) {
                return false;
            }
            let value = element.value;
            if name.first() != Some(&b'$') {
                return is_short_path(element.name) && self.add_value(value.get(), depth, each);
            }
            match (name, value.get()) {
                (b"$comment", _) => true,
                (b"$in" | b"$nin", Value::Array(items)) => {
                    self.add_items(items, depth + 1, 16 / VALUES_PER_CONDITION)
                }
                (b"$or" | b"$nor" | b"$and", Value::Array(items)) => {
                    self.nodes += items.iter().count().saturating_mul(NODES_PER_BRANCH);
                    self.nodes <= NODES_MAX && self.add_items(items, depth + 1, each)
                }
                (_, value) => {
                    QUICK.iter().any(|known| known.as_bytes() == name)
                        && self.add_value(value, depth, each)
                }
            }
        })
    }

    fn add_items(&mut self, items: Doc<'_>, depth: usize, each: usize) -> bool {
        items.iter().all(|item| self.add(each) && self.add_value(item.value.get(), depth, each))
    }

    fn add_value(&mut self, value: Value<'_>, depth: usize, each: usize) -> bool {
        match value {
            Value::Document(doc) => self.add_doc(doc, depth + 1, each),
            Value::Array(items) => depth < DEPTH_MAX && self.add_items(items, depth + 1, each),
            other => !matches!(other.kind(), Type::Regex | Type::Code | Type::CodeWithScope),
        }
    }
}

/// Returns whether a projection computes no value from fields.
fn reads_no_fields(doc: Doc<'_>) -> bool {
    doc.iter().all(|element| match element.value.get() {
        Value::String(text) => text.first() != Some(&b'$'),
        // An array is computed from its elements.
        Value::Array(_) => element.name == "$slice" || element.name == "$in",
        Value::Document(inner) => element.name == "$elemMatch" || reads_no_fields(inner),
        _ => true,
    })
}

fn is_short_path(path: &marula_bson::BStr) -> bool {
    path.len() < PATH_PARTS_MAX || memchr::memchr_iter(b'.', path).count() < PATH_PARTS_MAX
}

#[cfg(test)]
mod tests {
    use marula_bson::{DocBuf, ValueBuf, doc};

    use super::*;

    fn filter(doc: DocBuf) -> bool {
        Cost::default().add_filter(Value::Document(doc.as_doc()))
    }

    fn projection(doc: DocBuf) -> bool {
        Cost::default().add_projection(Value::Document(doc.as_doc()))
    }

    fn update(doc: DocBuf) -> bool {
        Cost::default().add_update(Value::Document(doc.as_doc()))
    }

    #[test]
    fn usual_statements_are_quick() {
        assert!(filter(doc! { "_id": 7 }));
        assert!(filter(doc! { "a": { "$gt": 7, "$lt": 9 }, "b": { "$in": [1, 2, 3] } }));
        assert!(filter(doc! { "$or": [{ "a": 1 }, { "b": { "$elemMatch": { "c": 1 } } }] }));
        assert!(projection(doc! { "a": 1, "b.c": 1, "d": { "$slice": 3 }, "_id": 0 }));
        assert!(update(doc! { "$set": { "a": { "$x": 1 } }, "$inc": { "b": 1 } }));
        assert!(update(doc! { "$push": { "a": { "$each": [1, 2], "$sort": 1, "$slice": 5 } } }));
        assert!(update(doc! { "a": 1, "b": "$c" }));
    }

    #[test]
    fn statements_that_compute_or_search_are_not_quick() {
        assert!(!filter(doc! { "_id": 7, "$where": "sleep(1)" }));
        assert!(!filter(doc! { "_id": 7, "$expr": { "$eq": [1, 1] } }));
        assert!(!filter(doc! { "_id": 7, "$jsonSchema": {} }));
        assert!(!filter(doc! { "$and": [{ "a": { "$regex": "a" } }] }));
        assert!(!filter(doc! { "a": { "$not": { "$geoWithin": {} } } }));
        assert!(!filter(doc! { "a": { "$notYetKnown": 1 } }));
        let regex = Value::Regex { pattern: "a".into(), options: "".into() };
        assert!(!filter(doc! { "a": { "$in": [(regex)] } }));
        assert!(!projection(doc! { "a": "$b" }));
        assert!(!projection(doc! { "a": { "b": ["$c"] } }));
        assert!(!projection(doc! { "a": { "$add": [1, 2] } }));
        assert!(!update(doc! { "$pull": { "a": { "$where": "1" } } }));
        let pipeline: ValueBuf =
            doc! { "p": [{ "$set": { "a": 1 } }] }.as_doc().get("p").unwrap().to_buf();
        assert!(!Cost::default().add_update(pipeline.get()));
    }

    #[test]
    fn the_size_of_a_quick_statement_is_bounded() {
        let list = |count: i32| {
            DocBuf::build(|out| {
                let mut list = out.begin_array("$in");
                (0..count).for_each(|number| {
                    list.push(number);
                });
            })
        };
        assert!(filter(doc! { "a": (&list(400)) }));
        assert!(!filter(doc! { "a": (&list(600)) }));
        let branches = |count: i32| {
            DocBuf::build(|out| {
                let mut list = out.begin_array("$or");
                (0..count).for_each(|number| {
                    list.begin_doc().append("a", number);
                });
            })
        };
        assert!(filter(branches(16)));
        assert!(!filter(branches(64)));
        let deep = (0..DEPTH_MAX + 2).fold(doc! { "a": 1 }, |inner, _| doc! { "a": (&inner) });
        assert!(!filter(deep));
        let path = "a.".repeat(PATH_PARTS_MAX);
        assert!(!filter(DocBuf::build(|out| {
            out.append(path.as_str(), 1);
        })));
    }

    #[test]
    fn conditions_are_counted() {
        let mut cost = Cost::default();
        assert!(cost.add_filter(Value::Document(doc! { "a": 1, "b": { "$gt": 1 } }.as_doc())));
        assert_eq!(cost.conditions(), 4);
    }
}
