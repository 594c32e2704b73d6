//! Reports why a document failed its collection's validator: the `errInfo` of error 121.
//!
//! A validator is parsed again as a tree of [`clause::Clause`]s in the order of its text, since the
//! report shows operators as the client wrote them, not in a filter's canonical form. This costs
//! time only if a write fails. [`allowed`] checks which operators are permitted in a validator at
//! all.
//!
//! `clause` parses and reports operators of queries, `considered` finds the values that an operator
//! tested, `schema` reports rules of `$jsonSchema`.

pub mod allowed;
mod clause;
mod considered;
mod schema;
#[cfg(test)]
mod tests;

use marula_bson::{Doc, DocBuf, DocWriter, RawValue, Value};
use marula_error::Result;

use crate::context::Context;
use clause::{Clause, write_error};

/// The maximum size of `errInfo`. A larger one is written again without the values; if that is too
/// large as well, a note replaces the details. Source: mongod 6.0, tried with growing documents.
const BYTES_MAX: usize = 12 * 1024 * 1024;

/// Describes why `doc` does not match `validator`.
///
/// Form: `{ failingDocumentId: …, details: { operatorName: …, … } }`, or with a `note` and an error
/// as the details.
pub fn failure(validator: Doc<'_>, context: &Context, doc: Doc<'_>) -> Result<DocBuf> {
    let clause = Clause::parse(validator, context)?;
    let id = doc.get("_id").unwrap_or(Value::Null);
    if let Some(error) = clause.silence() {
        return Ok(DocBuf::build(|info| {
            info.append("failingDocumentId", id);
            info.append("note", "failed to generate document validation error");
            write_error(&error, &mut info.begin_doc("details"));
        }));
    }
    for is_truncated in [false, true] {
        let mut report = Report { doc, is_truncated, spent: 0 };
        let info = DocBuf::build(|info| {
            info.append("failingDocumentId", id);
            if is_truncated {
                info.append("truncated", true);
            }
            report.clause(&clause, false, &mut info.begin_doc("details"));
        });
        if !report.is_full() && info.len() <= BYTES_MAX {
            return Ok(info);
        }
    }
    Ok(DocBuf::build(|info| {
        info.append("failingDocumentId", id);
        info.append("note", "detailed error was too large");
    }))
}

/// A report that is being written.
struct Report<'r> {
    doc: Doc<'r>,
    /// Whether values and operands are omitted.
    is_truncated: bool,
    /// The number of bytes written from the document. Each clause may show the document, so writing
    /// stops at the limit, not after it.
    spent: usize,
}

impl Report<'_> {
    /// Counts bytes from the document; returns whether there is room for them.
    fn spend(&mut self, bytes: usize) -> bool {
        self.spent += bytes;
        !self.is_full()
    }

    fn is_full(&self) -> bool {
        self.spent > BYTES_MAX
    }

    /// Writes the operand, as the client wrote it.
    fn specified(&mut self, out: &mut DocWriter<'_>, write: impl FnOnce(&mut DocWriter<'_>)) {
        if !self.is_truncated {
            let before = out.size();
            write(&mut out.begin_doc("specifiedAs"));
            self.spent += out.size() - before;
        }
    }

    /// Writes a value, unless the report is too large already.
    fn value(&mut self, name: &str, value: RawValue<'_>, out: &mut DocWriter<'_>) {
        if self.spend(value.bytes().len()) {
            out.append_raw(name, value);
        }
    }

    /// Writes a value that a truncated report omits.
    fn considered_value(&mut self, value: RawValue<'_>, out: &mut DocWriter<'_>) {
        if !self.is_truncated {
            self.value("consideredValue", value, out);
        }
    }
}
