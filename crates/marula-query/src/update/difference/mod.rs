//! What an update did to a document, as an oplog tells it: `{ $v: 2, diff: <difference> }`, whose
//! shape is in [`delta`](super::delta), which applies it again.
//!
//! ```text
//!                  old document, new document
//!           operators │                  │ anything else
//!                  of_tree          of_documents
//!      what stands at the paths     where the two part,
//!      that operators name          if that is short
//!                     └───── Sections ───┘
//! ```
//!
//! Nothing is computed while documents are updated: what an operator did is read off the two
//! documents afterwards, where somebody asks.
//! Source: entries that mongod 6.0 writes.

mod of_documents;
mod of_tree;

use marula_bson::{Doc, DocBuf, DocWriter, RawValue};
use marula_error::Result;

use super::{Kind, Matched, Update};

impl Update {
    /// The update of `old` that has made `new`, as an oplog has it; `None` where that has the whole
    /// new document.
    pub fn difference(
        &self,
        old: Doc<'_>,
        new: Doc<'_>,
        matched: &Matched,
    ) -> Result<Option<DocBuf>> {
        let sections = match &self.kind {
            Kind::Replacement(_) => return Ok(None),
            Kind::Operators(operators) => operators.sections(old, new, matched)?,
            Kind::Pipeline(_) | Kind::Delta(_) => {
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

/// How two documents differ.
#[derive(Default)]
pub(super) struct Sections<'d> {
    /// Fields that are gone.
    gone: Vec<&'d [u8]>,
    /// Fields that have another value.
    set: Vec<(&'d [u8], RawValue<'d>)>,
    /// Fields that have come at the end.
    added: Vec<(&'d [u8], RawValue<'d>)>,
    /// Fields whose values differ inside.
    inside: Vec<(&'d [u8], Inside<'d>)>,
}

/// How two values differ inside.
pub(super) enum Inside<'d> {
    Document(Sections<'d>),
    Array(Elements<'d>),
}

/// How two arrays differ.
#[derive(Default)]
pub(super) struct Elements<'d> {
    /// The new length, where it is shorter.
    length: Option<usize>,
    /// By place, ascending.
    changes: Vec<(usize, Change<'d>)>,
}

/// How an element of an array differs.
pub(super) enum Change<'d> {
    Set(RawValue<'d>),
    Inside(Inside<'d>),
}

impl Sections<'_> {
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

impl Inside<'_> {
    fn write(&self, out: &mut DocWriter<'_>) {
        match self {
            Inside::Document(sections) => sections.write(out),
            Inside::Array(elements) => elements.write(out),
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
                Change::Inside(inside) => inside.write(&mut out.begin_doc(format!("s{place}"))),
            }
        }
    }
}

#[cfg(test)]
mod tests;
