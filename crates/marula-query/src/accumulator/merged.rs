//! Documents merged into one: the last value of each name, where the name came first.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use marula_bson::{BStr, Doc, DocBuf, DocWriter, RawValue, Value};
use marula_error::Result;

use crate::expression::Arena;
use crate::expression::frame::{ARENA_BYTES_MAX, value_too_large};
use crate::meter;

/// The size of a document up to which its fields are searched for by their names.
const SEARCHED_BYTES_MAX: usize = 512;

/// The number of names up to which they are searched for in a document of any size.
const SEARCHED_FIELDS_MAX: usize = 4;

/// The number of bytes of replaced fields from which on they are removed.
const REPLACED_BYTES_MIN: usize = 1024;

/// Any number of documents that are merged one after the other. None is read again.
#[derive(Default)]
pub(crate) struct MergedFields {
    /// The fields as in a document, in the order in which they came; those that others have
    /// replaced are among them.
    elements: Vec<u8>,
    fields: Vec<MergedField>,
    /// The places of the fields by their names.
    table: HashTable<usize>,
    hashing: DefaultHashBuilder,
    /// The size of the fields that were not replaced.
    size: usize,
    /// The number of documents.
    documents: usize,
}

struct MergedField {
    /// The hash of its name.
    hash: u64,
    start: usize,
    end: usize,
    /// The number of the document that it came from last.
    document: usize,
}

impl MergedFields {
    /// Merges a document. Of several fields of it with the same name the first counts.
    ///
    /// Errors: the operation was interrupted; the document would be too large.
    pub(crate) fn merge(&mut self, doc: Doc<'_>) -> Result<()> {
        check_merged(self.size + doc.as_bytes().len())?;
        self.documents += 1;
        for field in doc {
            meter::spend(meter::ELEMENT)?;
            let hash = self.hashing.hash_one(&**field.name);
            let has_name = |&at: &usize| {
                let front = self.elements.get(self.fields[at].start + 1..).unwrap_or_default();
                front.starts_with(field.name) && front.get(field.name.len()) == Some(&0)
            };
            let known = self.table.find(hash, has_name).copied();
            if known.is_some_and(|at| self.fields[at].document == self.documents) {
                continue;
            }
            let start = self.elements.len();
            self.elements.push(field.value.kind().tag());
            self.elements.extend_from_slice(field.name);
            self.elements.push(0);
            self.elements.extend_from_slice(field.value.bytes());
            let end = self.elements.len();
            self.size += end - start;
            let new = MergedField { hash, start, end, document: self.documents };
            match known {
                Some(at) => {
                    let old = std::mem::replace(&mut self.fields[at], new);
                    self.size -= old.end - old.start;
                }
                None => {
                    let fields = &self.fields;
                    self.table.insert_unique(hash, fields.len(), |&at| fields[at].hash);
                    self.fields.push(new);
                }
            }
        }
        if self.elements.len() > 2 * self.size + REPLACED_BYTES_MIN {
            self.remove_replaced();
        }
        Ok(())
    }

    fn remove_replaced(&mut self) {
        let mut kept = Vec::with_capacity(self.size);
        for field in &mut self.fields {
            let start = kept.len();
            kept.extend_from_slice(&self.elements[field.start..field.end]);
            (field.start, field.end) = (start, kept.len());
        }
        self.elements = kept;
    }

    /// The memory that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.elements.len()
            + self.fields.len() * (size_of::<MergedField>() + 2 * size_of::<usize>())
    }

    /// The merged document.
    pub(crate) fn value<'a>(&self, arena: &'a Arena) -> Result<Value<'a>> {
        arena.check(self.size)?;
        let doc = arena.build(|out| {
            for field in &self.fields {
                out.append_elements(&self.elements[field.start..field.end]);
            }
        })?;
        Ok(Value::Document(doc))
    }
}

/// The fields of `base`, replaced by those of `over` with the same name; new fields come at the
/// end. Of several fields of `over` with the same name the first counts.
///
/// Errors: the operation was interrupted; the document would be too large.
pub(crate) fn merged(base: Doc<'_>, over: Doc<'_>) -> Result<DocBuf> {
    let size = base.as_bytes().len() + over.as_bytes().len();
    check_merged(size)?;
    let mut bytes = Vec::with_capacity(size);
    let mut out = DocWriter::new(&mut bytes);
    let newer = FirstFields::of(over);
    out.append_changed(
        base,
        |field| {
            meter::spend(meter::ELEMENT)?;
            Ok(newer.get(field.name))
        },
        |newer, field, out| {
            out.append_raw(field.name, newer);
            Ok(())
        },
    )?;
    // A few names are searched for in `base`, however long it is.
    let is_few = over.iter().nth(SEARCHED_FIELDS_MAX).is_none();
    let old = if is_few { FirstFields::Few(base) } else { FirstFields::of(base) };
    for field in over {
        meter::spend(meter::ELEMENT)?;
        let is_first = newer.get(field.name).is_some_and(|first| {
            std::ptr::eq(first.bytes().as_ptr(), field.value.bytes().as_ptr())
        });
        if is_first && old.get(field.name).is_none() {
            out.append_raw(field.name, field.value);
        }
    }
    out.finish();
    Ok(DocBuf::trusted(bytes))
}

fn check_merged(size: usize) -> Result<()> {
    match size > ARENA_BYTES_MAX {
        true => Err(value_too_large(size)),
        false => meter::check_room(size),
    }
}

/// The first field of each name of a document.
enum FirstFields<'d> {
    /// They are searched for.
    Few(Doc<'d>),
    /// They are looked up.
    Many(HashMap<&'d BStr, RawValue<'d>>),
}

impl<'d> FirstFields<'d> {
    fn of(doc: Doc<'d>) -> Self {
        if doc.as_bytes().len() <= SEARCHED_BYTES_MAX {
            return FirstFields::Few(doc);
        }
        let mut fields = HashMap::new();
        for field in doc {
            fields.entry(field.name).or_insert(field.value);
        }
        FirstFields::Many(fields)
    }

    fn get(&self, name: &BStr) -> Option<RawValue<'d>> {
        match self {
            FirstFields::Few(doc) => doc.get_raw(name),
            FirstFields::Many(fields) => fields.get(name).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Documents whose names repeat in themselves and in each other.
    #[test]
    fn many_documents_merge_as_one_after_the_other() {
        let (mut all, mut pairwise) = (MergedFields::default(), DocBuf::new());
        for n in 0..300_i32 {
            let doc = DocBuf::build(|out| {
                for field in 0..n % 7 {
                    out.append(format!("{}", (n * 31 + field * field) % 40), n + field);
                }
                out.append("text", "x".repeat(usize::try_from(n % 90).unwrap()).as_str());
                out.append("new", n).append("new", -n);
            });
            all.merge(doc.as_doc()).unwrap();
            pairwise = merged(pairwise.as_doc(), doc.as_doc()).unwrap();
            let arena = Arena::new();
            assert_eq!(all.value(&arena).unwrap(), Value::Document(pairwise.as_doc()), "{n}");
            assert!(all.elements.len() <= 2 * all.size + REPLACED_BYTES_MIN);
        }
    }
}
