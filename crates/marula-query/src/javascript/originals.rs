//! The bytes of documents that went into JavaScript and would lose types or values in it.
//!
//! mongod returns a document that was not changed as it was. Numbers in arrays, which JavaScript
//! has of one type only, symbols, which become strings, code, which becomes a function, and dates
//! beyond those of JavaScript are therefore taken from here if the document that comes back equals
//! the one that went in.

use std::ops::Range;

use marula_bson::{Doc, Element, Type, Value, order};

use super::source;

/// The documents of a realm's globals and of a call, by numbers that their objects carry.
#[derive(Default)]
pub(super) struct Originals {
    /// Copies of the values that were converted.
    roots: Vec<Box<[u8]>>,
    /// The documents: a root, and the bytes in it.
    documents: Vec<(usize, Range<usize>)>,
    /// Whether the last root is the value that is being converted.
    is_begun: bool,
    /// The numbers of roots and of documents that stay with the realm.
    kept: (usize, usize),
}

impl Originals {
    /// Begins with another value.
    pub(super) fn begin(&mut self) {
        self.is_begun = false;
    }

    /// Notes a document within the bytes of `root`, the value that is being converted; returns its
    /// number.
    pub(super) fn note(&mut self, root: &[u8], doc: Doc<'_>) -> usize {
        let from = doc.as_bytes().as_ptr().addr() - root.as_ptr().addr();
        if !std::mem::replace(&mut self.is_begun, true) {
            self.roots.push(root.into());
        }
        self.documents.push((self.roots.len() - 1, from..from + doc.as_bytes().len()));
        self.documents.len() - 1
    }

    /// Returns the document of a number, which may be one that code has made up.
    pub(super) fn get(&self, number: usize) -> Option<Doc<'_>> {
        let (root, range) = self.documents.get(number)?;
        Some(Doc::trusted(&self.roots[*root][range.clone()]))
    }

    /// Has the documents so far stay: they are in globals.
    pub(super) fn keep(&mut self) {
        self.kept = (self.roots.len(), self.documents.len());
    }

    /// Forgets all documents but those of globals.
    pub(super) fn clear(&mut self) {
        self.roots.truncate(self.kept.0);
        self.documents.truncate(self.kept.1);
        self.is_begun = false;
    }
}

/// Returns whether a field's value is another when it comes back. Documents in it have originals of
/// their own.
pub(super) fn is_lossy(value: Value<'_>) -> bool {
    match value {
        Value::Symbol(_) | Value::Code(_) | Value::CodeWithScope { .. } => true,
        Value::DateTime(ms) => !is_date(ms),
        Value::Array(items) => {
            items.iter().any(|item| item.value.kind() == Type::Int32 || is_lossy(item.value.get()))
        }
        _ => false,
    }
}

/// Returns whether `back` is what an unchanged `original` comes back as.
pub(super) fn is_unchanged(original: Value<'_>, back: Value<'_>) -> bool {
    match (original, back) {
        (Value::DateTime(ms), Value::DateTime(0)) if !is_date(ms) => true,
        (Value::Code(code) | Value::CodeWithScope { code, .. }, Value::Code(back)) => {
            source::may_become(code, back)
        }
        (Value::Document(original), Value::Document(back)) => {
            let is_same = |(one, other): (Element<'_>, Element<'_>)| {
                one.name == other.name && is_unchanged(one.value.get(), other.value.get())
            };
            original.iter().count() == back.iter().count() && original.iter().zip(back).all(is_same)
        }
        (Value::Array(original), Value::Array(back)) => {
            let mut items = original.values().zip(back.values());
            original.iter().count() == back.iter().count()
                && items.all(|(one, other)| is_unchanged(one, other))
        }
        _ => order::equal(original, back, None),
    }
}

/// Returns whether JavaScript has a date of these milliseconds; of others it makes an invalid one,
/// which comes back as 0.
fn is_date(ms: i64) -> bool {
    ms.unsigned_abs() <= 8_640_000_000_000_000
}
