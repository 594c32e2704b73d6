//! The bytes of documents that went into JavaScript and would lose types in it.
//!
//! mongod returns a document that was not changed as it was. Numbers in arrays, which JavaScript
//! has of one type only, and symbols, which become strings, are therefore taken from here if the
//! document that comes back equals the one that went in.

use std::ops::Range;

use marula_bson::{Doc, Type, Value};

/// The documents of a call, by numbers that their objects carry.
#[derive(Default)]
pub(super) struct Originals {
    /// Copies of the values that were converted.
    roots: Vec<Box<[u8]>>,
    /// The documents: a root, and the bytes in it.
    documents: Vec<(usize, Range<usize>)>,
    /// Whether the last root is the value that is being converted.
    is_begun: bool,
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

    /// Forgets all documents.
    pub(super) fn clear(&mut self) {
        *self = Originals::default();
    }
}

/// Returns whether a field's value has another type when it comes back. Documents in it have
/// originals of their own.
pub(super) fn loses_type(value: Value<'_>) -> bool {
    match value {
        Value::Symbol(_) => true,
        Value::Array(items) => items
            .iter()
            .any(|item| item.value.kind() == Type::Int32 || loses_type(item.value.get())),
        _ => false,
    }
}
