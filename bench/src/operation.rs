//! The operations of a comparison, in a form for every kind of server.
//!
//! A [`Shape`] is the common part of many requests; a wire compiles it once. An [`Operation`] is
//! one request of a shape: its parameters, its documents, and the expected result.

use std::fmt;

/// A collection, or the table that represents it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collection {
    pub(crate) name: &'static str,
    /// The type of its `_id` values.
    pub(crate) key: KeyKind,
}

/// The type of the values of `_id`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum KeyKind {
    Number,
    Text,
}

/// One ascending index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [Field],
    pub(crate) unique: bool,
}

/// A field and the type of its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: FieldKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FieldKind {
    Text,
    Number,
    /// An array of strings.
    Tags,
}

/// A field of strings.
pub(crate) const fn text(name: &'static str) -> Field {
    Field { name, kind: FieldKind::Text }
}

/// A field of whole numbers.
pub(crate) const fn number(name: &'static str) -> Field {
    Field { name, kind: FieldKind::Number }
}

/// A field of arrays of strings.
pub(crate) const fn tags(name: &'static str) -> Field {
    Field { name, kind: FieldKind::Tags }
}

/// One condition of a filter; each takes one parameter of the operation, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Condition {
    /// The `_id` is the parameter.
    Key,
    /// The field is the parameter; an array holds it.
    Equal(Field),
    /// The field is at least the parameter.
    AtLeast(Field),
}

/// The common part of many requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// Inserts the operation's documents.
    Insert,
    /// Sets `set` of the one document that the first parameter finds; the further parameters are
    /// the new strings.
    Update { by: Condition, set: &'static [&'static str] },
    /// Finds documents.
    Find {
        conditions: &'static [Condition],
        sort: Option<Field>,
        skip: u32,
        /// 0: all.
        limit: u32,
    },
}

/// A parameter of an operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Number(number) => number.fmt(f),
        }
    }
}

/// One request.
#[derive(Default)]
pub(crate) struct Operation {
    /// The index of its shape in the exercise.
    pub(crate) shape: usize,
    /// The class of its latencies.
    pub(crate) class: usize,
    pub(crate) values: Vec<Value>,
    /// For an insert: the BSON documents.
    pub(crate) documents: Vec<Vec<u8>>,
    /// For a find: the expected number of documents.
    pub(crate) expected: u64,
    /// For a find of one document: its exact content, if the result is to be compared with it.
    pub(crate) content: Option<Vec<u8>>,
    /// Documents received so far.
    pub(crate) found: u64,
}

impl Operation {
    /// Makes the operation ready for its next use.
    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.documents.clear();
        self.content = None;
        self.found = 0;
    }

    /// Returns its weight: for an insert the number of its documents.
    pub(crate) fn weight(&self) -> u64 {
        self.documents.len().max(1) as u64
    }

    /// Rejects a find with an unexpected number of documents.
    pub(crate) fn check_found(&self) -> Result<(), String> {
        if self.found == self.expected {
            return Ok(());
        }
        Err(format!(
            "find with {:?} returned {} documents, not {}",
            self.values, self.found, self.expected
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_find_with_too_few_or_too_many_documents_is_refused() {
        let check = |found, expected, wanted: bool| {
            let operation = Operation { found, expected, ..Operation::default() };
            assert_eq!(operation.check_found().is_ok(), wanted, "{found} of {expected}");
        };
        check(3, 3, true);
        check(0, 0, true);
        check(2, 3, false);
        check(1, 0, false);
    }
}
