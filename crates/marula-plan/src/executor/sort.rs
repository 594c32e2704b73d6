//! Sorting what no index gives in order: all of it, or only the first so many.

use marula_bson::{Doc, FieldSet};
use marula_db::index::entry;
use marula_error::Result;
use marula_query::context::Context;
use marula_query::sort::{DocMeta, SortPattern};
use marula_query::spill::{ExternalSort, Rows};

use super::{Emit, End, Found};

/// Documents on their way into order. Equal keys keep the order in which they came.
pub(super) struct Sorter {
    pattern: SortPattern,
    /// Whether a row holds the values of the index entry in place of the document: nothing where no index led to it.
    gives_keys: bool,
    /// The score of a text search (8 bytes, not a number where there is none), the length of the record key (4 bytes), the
    /// record key, the document.
    rows: Rows,
    /// The row moved to last did not fit the last batch.
    is_held: bool,
    key: Vec<u8>,
    /// What is kept of the document at hand.
    kept: Vec<u8>,
    bytes: u64,
    spills: u64,
}

impl Sorter {
    pub(super) fn new(
        pattern: SortPattern,
        wanted: Option<u64>,
        gives_keys: bool,
        context: &Context,
    ) -> Self {
        let sort = ExternalSort::new(context, context.limits.sort_bytes_max, wanted);
        Sorter {
            pattern,
            gives_keys,
            rows: Rows::Coming(sort),
            is_held: false,
            key: Vec::new(),
            kept: Vec::new(),
            bytes: 0,
            spills: 0,
        }
    }

    pub(super) fn is_filled(&self) -> bool {
        !matches!(self.rows, Rows::Coming(_))
    }

    /// Whether a document cannot be among those that are wanted, as the beginning of its key tells.
    #[inline]
    pub(super) fn refuses(&self, doc: Doc<'_>) -> bool {
        let Rows::Coming(sort) = &self.rows else { return false };
        sort.is_selective() && self.pattern.key_head(doc).is_some_and(|head| sort.refuses(head))
    }

    /// Adds a document; of its fields `fields` are kept, where they are known.
    pub(super) fn push(&mut self, found: Found<'_>, fields: Option<&FieldSet>) -> Result<()> {
        let Rows::Coming(sort) = &mut self.rows else { return Ok(()) };
        let meta = DocMeta { text_score: found.score, ..DocMeta::default() };
        self.pattern.write_key_with_meta(found.doc, &meta, &mut self.key)?;
        let score = found.score.unwrap_or(f64::NAN).to_le_bytes();
        let len =
            u32::try_from(found.record.len()).expect("a record key is of its document's size");
        if !sort.wants(&self.key) {
            return Ok(());
        }
        self.bytes += (found.doc.as_bytes().len() + self.key.len()) as u64;
        self.kept.clear();
        let doc = match (fields, found.entry) {
            (_, Some((index, entry))) if self.gives_keys => {
                // An entry that is damaged shows as no fields; `validate` says what is wrong.
                match entry::decode_values(index, &entry, &mut self.kept) {
                    Some(()) => &self.kept,
                    None => Doc::EMPTY.as_bytes(),
                }
            }
            (_, None) if self.gives_keys => Doc::EMPTY.as_bytes(),
            (Some(fields), _) => {
                fields.copy(found.doc, &mut self.kept);
                &self.kept
            }
            (None, _) => found.doc.as_bytes(),
        };
        sort.push(&self.key, &[&score, &len.to_le_bytes(), found.record, doc])
    }

    /// The bytes of documents and keys that were taken in, and how often some of them went to the disk.
    pub(super) fn sorted(&self) -> (u64, u64) {
        (self.bytes, self.spills)
    }

    /// All documents are in: put them in order.
    pub(super) fn finish(&mut self) -> Result<()> {
        if let Rows::Coming(sort) = &self.rows {
            self.spills = sort.spills() as u64;
        }
        self.rows.settle(Ok)
    }

    /// Gives documents in order.
    pub(super) fn drain(&mut self, take: &mut dyn FnMut(Found<'_>) -> Result<Emit>) -> Result<End> {
        let Rows::Sorted(sorted) = &mut self.rows else { return Ok(End::Exhausted) };
        while std::mem::take(&mut self.is_held) || sorted.advance()? {
            let (score, rest) = sorted.value().split_at(size_of::<f64>());
            let score = f64::from_le_bytes(score.try_into().expect("split at eight bytes"));
            let score = Some(score).filter(|score| !score.is_nan());
            let (len, rest) = rest.split_at(size_of::<u32>());
            let len = u32::from_le_bytes(len.try_into().expect("split at four bytes"));
            let (record, doc) = rest.split_at(len as usize);
            let doc = Doc::trusted(doc);
            match take(Found { score, ..Found::fetched(doc, record) })? {
                Emit::Taken => {}
                Emit::Enough => return Ok(End::Paused),
                Emit::Full => {
                    self.is_held = true;
                    return Ok(End::Paused);
                }
            }
        }
        Ok(End::Exhausted)
    }
}
