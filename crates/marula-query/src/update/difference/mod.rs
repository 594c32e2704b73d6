//! The effect of an update on a document in the form of an oplog: `{ $v: 2, diff: <difference> }`.
//! The form is documented in [`delta`](super::delta), which applies it.
//!
//! ```text
//!                 old document, new document
//!          operators │                  │ pipeline or replacement
//!                 of_tree          of_documents
//!     the values at the paths      the first difference,
//!     that operators name          if that is short
//!                    └───── Sections ───┘
//! ```
//!
//! Updates themselves compute no difference: the effect of an operator is derived from the two
//! documents afterwards, if it is needed.
//! Source: entries that mongod 6.0 writes.

mod of_documents;
mod of_tree;

use marula_bson::{Doc, DocBuf, DocWriter, RawValue};
use marula_error::Result;

use super::{Matched, Update, UpdateKind};

impl Update {
    /// Returns the oplog's form of the update from `old` to `new`; `None` if the oplog has the
    /// whole new document.
    pub fn difference(
        &self,
        old: Doc<'_>,
        new: Doc<'_>,
        matched: &Matched,
    ) -> Result<Option<DocBuf>> {
        let sections = match &self.kind {
            UpdateKind::Replacement(_) => return Ok(None),
            UpdateKind::Operators(operators) => operators.sections(old, new, matched)?,
            UpdateKind::Pipeline(_) | UpdateKind::Delta(_) => {
                let sections = of_documents::sections(old, new);
                if of_documents::is_worth_it(&sections, new) {
                    sections
                } else {
                    return Ok(None);
                }
            }
        };
        Ok(Some(DocBuf::build(|out| {
            out.append("$v", 2);
            sections.write(&mut out.begin_doc("diff"));
        })))
    }
}

/// The difference of two documents.
#[derive(Default)]
pub(super) struct Sections<'d> {
    /// Removed fields.
    gone: Vec<&'d [u8]>,
    /// Fields with another value.
    set: Vec<(&'d [u8], RawValue<'d>)>,
    /// Fields added at the end.
    added: Vec<(&'d [u8], RawValue<'d>)>,
    /// Fields whose values differ inside.
    inside: Vec<(&'d [u8], InnerChange<'d>)>,
}

/// The difference inside two values.
pub(super) enum InnerChange<'d> {
    Document(Sections<'d>),
    Array(Elements<'d>),
}

/// The difference of two arrays.
#[derive(Default)]
pub(super) struct Elements<'d> {
    /// The new length, if it is shorter.
    length: Option<usize>,
    /// By index, ascending.
    changes: Vec<(usize, Change<'d>)>,
}

/// The change of an element of an array.
pub(super) enum Change<'d> {
    Set(RawValue<'d>),
    InnerChange(InnerChange<'d>),
}

impl Change<'_> {
    /// Whether nothing differs.
    fn is_empty(&self) -> bool {
        match self {
            Change::Set(_) => false,
            Change::InnerChange(InnerChange::Document(sections)) => sections.is_empty(),
            Change::InnerChange(InnerChange::Array(elements)) => {
                elements.length.is_none() && elements.changes.is_empty()
            }
        }
    }
}

impl Sections<'_> {
    fn is_empty(&self) -> bool {
        self.gone.is_empty()
            && self.set.is_empty()
            && self.added.is_empty()
            && self.inside.is_empty()
    }

    fn write(&self, out: &mut DocWriter<'_>) {
        if !self.gone.is_empty() {
            let mut gone = out.begin_doc("d");
            for name in &self.gone {
                gone.append(*name, false);
            }
        }
        for (section, fields) in [("u", &self.set), ("i", &self.added)] {
            if !fields.is_empty() {
                let mut section = out.begin_doc(section);
                for (name, value) in fields {
                    section.append_raw(*name, *value);
                }
            }
        }
        for (name, inside) in &self.inside {
            inside.write(&mut out.begin_doc([b"s", *name].concat()));
        }
    }
}

impl InnerChange<'_> {
    fn write(&self, out: &mut DocWriter<'_>) {
        match self {
            InnerChange::Document(sections) => sections.write(out),
            InnerChange::Array(elements) => elements.write(out),
        }
    }
}

impl Elements<'_> {
    fn write(&self, out: &mut DocWriter<'_>) {
        out.append("a", true);
        if let Some(length) = self.length {
            out.append("l", i32::try_from(length).unwrap_or(i32::MAX));
        }
        for (place, change) in &self.changes {
            match change {
                Change::Set(value) => {
                    out.append_raw(format!("u{place}"), *value);
                }
                Change::InnerChange(inside) => {
                    inside.write(&mut out.begin_doc(format!("s{place}")))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
