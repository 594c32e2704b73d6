//! Entries of an index in the store: encoding, lookup and decoding.
//!
//! [`keys`](crate::keys) has the layouts. A record id has a fixed size, so it needs no length; in a
//! clustered collection the value starts with the record key's length, four bytes, big-endian.

use marula_bson::key_string::KeyStringReader;
use marula_bson::{Binary, Doc, DocWriter, Value};

use super::{Index, IndexKind};
use crate::collection::Shape;
use crate::index::place::Geography;
use crate::keys::{IDENT_BYTES, RecordKey};
use crate::unit::Write;

/// The size of a record id in bytes.
const RECORD_ID_BYTES: usize = 8;

/// A stored entry, split into its parts.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The key string of the values.
    pub key_string: &'a [u8],
    /// The record key of the document.
    pub record: &'a [u8],
    /// The type information that the key string loses.
    pub type_bits: &'a [u8],
}

/// Writes the store key of an entry into `out`, which is cleared first.
pub fn encode_key(index: &Index, key: &[u8], record: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&index.ident.bytes());
    out.extend_from_slice(key);
    if !index.spec.unique {
        out.extend_from_slice(record);
    }
}

/// Writes the store value of an entry into `out`, which is cleared first.
pub fn encode_value(
    index: &Index,
    shape: Shape,
    record: &[u8],
    type_bits: &[u8],
    out: &mut Vec<u8>,
) {
    out.clear();
    if shape == Shape::Clustered {
        let length =
            u32::try_from(record.len()).expect("a key of a 16 MB document is shorter than 4 GiB");
        out.extend_from_slice(&length.to_be_bytes());
    }
    if index.spec.unique {
        out.extend_from_slice(record);
    }
    out.extend_from_slice(type_bits);
}

/// Splits an entry of `index`; `None` if its bytes are malformed.
pub fn decode<'a>(
    index: &Index,
    shape: Shape,
    key: &'a [u8],
    value: &'a [u8],
) -> Option<Entry<'a>> {
    let key = key.get(IDENT_BYTES..)?;
    let (length, value) = match shape {
        Shape::RecordId => (RECORD_ID_BYTES, value),
        Shape::Clustered => {
            let (length, rest) = value.split_first_chunk::<4>()?;
            (u32::from_be_bytes(*length) as usize, rest)
        }
    };
    if index.spec.unique {
        let (record, type_bits) = value.split_at_checked(length)?;
        Some(Entry { key_string: key, record, type_bits })
    } else {
        let (key_string, record) = key.split_at_checked(key.len().checked_sub(length)?)?;
        Some(Entry { key_string, record, type_bits: value })
    }
}

/// The record key in the value of a unique index's entry.
pub fn record_of_unique(shape: Shape, value: &[u8]) -> Option<RecordKey> {
    match shape {
        Shape::RecordId => value.get(..RECORD_ID_BYTES).map(RecordKey::new),
        Shape::Clustered => {
            let (length, rest) = value.split_first_chunk::<4>()?;
            rest.get(..u32::from_be_bytes(*length) as usize).map(RecordKey::new)
        }
    }
}

/// Reusable buffers for encoding entries.
#[derive(Default)]
pub struct EntryWriter {
    key: Vec<u8>,
    value: Vec<u8>,
}

impl EntryWriter {
    /// Adds the entry to `write`.
    pub(crate) fn put(
        &mut self,
        write: &mut Write<'_>,
        index: &Index,
        shape: Shape,
        (key, type_bits): (&[u8], &[u8]),
        record: &[u8],
    ) {
        encode_key(index, key, record, &mut self.key);
        encode_value(index, shape, record, type_bits, &mut self.value);
        write.put_entry(&self.key, &self.value);
    }

    /// Removes the entry in `write`.
    pub(crate) fn delete(
        &mut self,
        write: &mut Write<'_>,
        index: &Index,
        key: &[u8],
        record: &[u8],
    ) {
        encode_key(index, key, record, &mut self.key);
        write.delete_entry(&self.key);
    }
}

/// The subtype of a place's hash: the first of those that users define.
const HASH_SUBTYPE: u8 = 0x80;

/// The field that shows the path of a wildcard index's entry.
const PATH_FIELD: &str = "$_path";

/// Decodes an entry's key string as clients see it, in `returnKey` and `{ $meta: "indexKey" }`: a
/// place in the plane is its hash as bytes of a subtype of its own. `None` if the bytes are not a
/// key string.
pub fn shown_key(index: &Index, entry: &Entry<'_>, out: &mut Vec<u8>) -> Option<()> {
    match &index.spec.kind {
        IndexKind::Places(Geography::Flat(_)) => {
            let mut values = Vec::new();
            decode_values(index, entry, &mut values)?;
            let mut doc = DocWriter::new(out);
            for (element, part) in Doc::trusted(&values).iter().zip(index.spec.key.as_doc()) {
                match (part.value.get(), element.value.get()) {
                    (Value::String(_), Value::Int64(hash)) => {
                        // The sign makes hashes ascend as numbers.
                        let bytes = (hash ^ i64::MIN).to_be_bytes();
                        doc.append(element.name, Binary { subtype: HASH_SUBTYPE, bytes: &bytes });
                    }
                    _ => {
                        doc.append_raw(element.name, element.value);
                    }
                }
            }
            Some(())
        }
        _ => decode_values(index, entry, out),
    }
}

/// Decodes an entry's key string into a document with the key pattern's field names; `None` if the
/// bytes are not a key string. A wildcard is replaced by its path, and the value under that path's
/// name, which is omitted if the document has nothing below the wildcard.
pub fn decode_values(index: &Index, entry: &Entry<'_>, out: &mut Vec<u8>) -> Option<()> {
    let mut reader = KeyStringReader::new(entry.key_string, entry.type_bits)?;
    let wildcard = match &index.spec.kind {
        IndexKind::Wildcard(wildcard) => Some(wildcard.part()),
        _ => None,
    };
    let mut doc = DocWriter::new(out);
    for (number, (part, element)) in
        index.spec.parts.iter().zip(index.spec.key.as_doc()).enumerate()
    {
        if wildcard != Some(number) {
            reader.read_into(part.descending, element.name, &mut doc)?;
            continue;
        }
        let path = reader.read(false)?;
        doc.append_raw(PATH_FIELD, path.as_raw());
        match path.get().as_str() {
            Some(path) => reader.read_into(part.descending, path, &mut doc)?,
            None => reader.skip(part.descending)?,
        }
    }
    Some(())
}
