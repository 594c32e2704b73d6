//! A document with the values of an index entry, each at its path: `{ "a.b": 1 }` becomes `{ a: {
//! b: 1 } }`.
//!
//! Only entries of an index without arrays on its paths determine the document's values there. A
//! missing value is null in the index, and so it is here. An entry of a wildcard index has one path
//! below the wildcard, or none.

use marula_bson::key_string::KeyStringReader;
use marula_bson::{DocWriter, FieldPath, ValueBuf};
use marula_db::Index;
use marula_db::index::entry::Entry;
use marula_db::index::{IndexKind, KeyPart};

/// Writes the document into `out`, which is cleared first; `None` if the entry's bytes are not a
/// key string.
pub(super) fn write(index: &Index, entry: &Entry<'_>, out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    let parts = &index.spec.parts;
    let mut reader = KeyStringReader::new(entry.key_string, entry.type_bits)?;
    if let IndexKind::Wildcard(wildcard) = &index.spec.kind {
        return write_with_path(parts, wildcard.part(), &mut reader, out);
    }
    if parts.iter().all(|part| part.path.is_single()) {
        let mut doc = DocWriter::new(out);
        for part in parts {
            reader.read_into(part.descending, part.path.first(), &mut doc)?;
        }
        doc.finish();
        return Some(());
    }
    let mut fields: Vec<(&[Box<[u8]>], ValueBuf)> = Vec::with_capacity(parts.len());
    for part in parts {
        fields.push((part.path.parts(), reader.read(part.descending)?));
    }
    write_fields(&fields, &mut DocWriter::new(out));
    Some(())
}

/// Writes the fields of an entry of a wildcard index; `number` is the wildcard's part.
fn write_with_path(
    parts: &[KeyPart],
    wildcard: usize,
    reader: &mut KeyStringReader<'_>,
    out: &mut Vec<u8>,
) -> Option<()> {
    let (front, rest) = parts.split_at(wildcard);
    let (part, behind) = rest.split_first()?;
    let mut fields: Vec<(&[Box<[u8]>], ValueBuf)> = Vec::with_capacity(parts.len());
    for part in front {
        fields.push((part.path.parts(), reader.read(part.descending)?));
    }
    let path = reader.read(false)?;
    let path = path.get().as_str().map(FieldPath::new);
    let value = reader.read(part.descending)?;
    if let Some(path) = &path {
        fields.push((path.parts(), value));
    }
    for part in behind {
        fields.push((part.path.parts(), reader.read(part.descending)?));
    }
    write_fields(&fields, &mut DocWriter::new(out));
    Some(())
}

/// Writes fields with the rest of their paths; those that share a name are written into one
/// document. With an index on `a` and `a.b` the value of `a` is the whole document.
///
/// Depth is bounded by the length of an index's path.
fn write_fields(fields: &[(&[Box<[u8]>], ValueBuf)], out: &mut DocWriter<'_>) {
    for (number, (path, value)) in fields.iter().enumerate() {
        let Some((name, rest)) = path.split_first() else { continue };
        let is_same = |(other, _): &&(&[Box<[u8]>], ValueBuf)| other.first() == Some(name);
        if fields[..number].iter().any(|field| is_same(&field)) {
            continue;
        }
        let is_whole = |(path, _): &&(&[Box<[u8]>], ValueBuf)| path.len() == 1;
        let whole = match rest.is_empty() {
            true => Some(value),
            false => fields.iter().filter(is_same).find(is_whole).map(|(_, value)| value),
        };
        if let Some(whole) = whole {
            out.append_raw(name, whole.as_raw());
            continue;
        }
        let inner: Vec<_> = fields
            .iter()
            .filter(is_same)
            .map(|(path, value)| (&path[1..], value.clone()))
            .collect();
        write_fields(&inner, &mut out.begin_doc(name));
    }
}
