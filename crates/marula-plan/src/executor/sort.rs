//! The sort of documents that no index returns in order, with or without a limit.

use marula_bson::{Doc, FieldPath, FieldSet};
use marula_db::index::entry;
use marula_error::Result;
use marula_query::context::Context;
use marula_query::filter::NearTest;
use marula_query::sort::{DocMeta, SortPart, SortPattern};
use marula_query::spill::{ExternalSort, Rows};

use super::late::{self, Fetched, Source};
use super::short::ShortRows;
use super::{Emit, End, Found};
use crate::plan::SortedKeys;

/// A sort. Equal keys keep the order in which they arrived.
pub(super) struct Sorter {
    pattern: SortPattern,
    /// Computes a document's distance, if the order is by distance.
    near: Option<(FieldPath, NearTest)>,
    wanted: Option<u64>,
    /// Whether a row contains the values of the index entry; there are none if no index led to the
    /// document.
    keys: SortedKeys,
    /// A row: the score of a text search (8 bytes, NaN if there is none), the length of the record
    /// key (4 bytes), the record key, the document, and the values of the index entry if they are
    /// returned in addition.
    rows: Rows,
    /// With a late fetch: the sorted rows, once their documents are fetched.
    late: Option<Fetched>,
    /// With a late fetch, as long as all rows are short: the rows.
    short: Option<ShortRows>,
    /// The size of large documents that rows contain in spite of a late fetch.
    large_bytes: usize,
    /// Whether the current row did not fit the last batch.
    is_held: bool,
    key: Vec<u8>,
    /// The part of the current document that is stored.
    kept: Vec<u8>,
    /// The values of the current index entry.
    entry: Vec<u8>,
    bytes: u64,
    spills: u64,
}

/// The size of the start of a row: the score and the length of the record key.
const ROW_HEAD_BYTES: usize = size_of::<f64>() + size_of::<u32>();

/// Returns the start of a row.
fn row_head(score: Option<f64>, record: &[u8]) -> [u8; ROW_HEAD_BYTES] {
    let length = u32::try_from(record.len()).expect("a record key is of its document's size");
    let mut head = [0; ROW_HEAD_BYTES];
    let (score_bytes, length_bytes) = head.split_at_mut(size_of::<f64>());
    score_bytes.copy_from_slice(&score.unwrap_or(f64::NAN).to_le_bytes());
    length_bytes.copy_from_slice(&length.to_le_bytes());
    head
}

/// The content of a row.
#[derive(Clone, Copy)]
pub(super) struct SortedRow<'a> {
    /// The score of a text search.
    score: Option<f64>,
    pub(super) record: &'a [u8],
    /// `None` if it is fetched after the sort.
    pub(super) doc: Option<Doc<'a>>,
    /// The values of the index entry.
    key: Option<Doc<'a>>,
}

impl<'a> SortedRow<'a> {
    fn read(bytes: &'a [u8]) -> Self {
        let (score, rest) = bytes.split_at(size_of::<f64>());
        let score = f64::from_le_bytes(score.try_into().expect("split at eight bytes"));
        let score = Some(score).filter(|score| !score.is_nan());
        let (len, rest) = rest.split_at(size_of::<u32>());
        let len = u32::from_le_bytes(len.try_into().expect("split at four bytes"));
        let (record, rest) = rest.split_at(len as usize);
        // A document starts with its own length.
        let length = rest.first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
        let (doc, key) = rest.split_at(rest.len().min(length as usize));
        let doc_of = |bytes: &'a [u8]| (!bytes.is_empty()).then(|| Doc::trusted(bytes));
        SortedRow { score, record, doc: doc_of(doc), key: doc_of(key) }
    }
}

impl Sorter {
    pub(super) fn new(
        pattern: SortPattern,
        wanted: Option<u64>,
        keys: SortedKeys,
        near: Option<(&FieldPath, &NearTest)>,
        context: &Context,
    ) -> Self {
        let sort = ExternalSort::new(context, context.limits.sort_bytes_max, wanted);
        let is_by_distance = pattern.is_by_distance();
        let near = near.filter(|_| is_by_distance);
        Sorter {
            near: near.map(|(path, test)| (path.clone(), test.clone())),
            pattern,
            wanted,
            keys,
            rows: Rows::Coming(sort),
            late: None,
            short: None,
            large_bytes: 0,
            is_held: false,
            key: Vec::new(),
            kept: Vec::new(),
            entry: Vec::new(),
            bytes: 0,
            spills: 0,
        }
    }

    /// Leaves out the documents until the sort is finished, if that pays off. The caller skips the
    /// first `unseen` rows.
    pub(super) fn fetch_late(&mut self, limit: Option<u64>, unseen: u64, bytes_max: usize) {
        let is_of_fields =
            self.pattern.parts().iter().all(|part| matches!(part, SortPart::Path { .. }));
        if self.keys == SortedKeys::Gone && is_of_fields && late::pays(limit, unseen, bytes_max) {
            self.late = Some(Fetched::default());
            self.short = limit.and_then(|limit| Some(ShortRows::new(usize::try_from(limit).ok()?)));
        }
    }

    pub(super) fn is_filled(&self) -> bool {
        !matches!(self.rows, Rows::Coming(_))
    }

    /// Adds a document, if it may be among the wanted ones; only `fields` are stored, if they are
    /// known.
    pub(super) fn push(&mut self, found: Found<'_>, fields: Option<&FieldSet>) -> Result<()> {
        if self.short.is_some() {
            if self.push_short(&found) {
                return Ok(());
            }
            self.lengthen()?;
        }
        let Rows::Coming(sort) = &mut self.rows else { return Ok(()) };
        let geo_near_distance = self
            .near
            .as_ref()
            .and_then(|(path, test)| test.measure(path, found.doc).map(|(distance, _)| distance));
        let meta = DocMeta { text_score: found.score, geo_near_distance, ..DocMeta::default() };
        let greatest = sort.greatest_head();
        if !self.pattern.write_key_up_to(greatest, found.doc, &meta, &mut self.key)?
            || !sort.wants(&self.key)
        {
            return Ok(());
        }
        let size = found.doc.as_bytes().len();
        self.bytes += (size + self.key.len()) as u64;
        let is_late = self.late.is_some() && size <= late::DOCUMENT_BYTES_MAX;
        if self.late.is_some() && !is_late {
            self.large_bytes += size;
        }
        self.kept.clear();
        self.entry.clear();
        if let (Some((index, entry)), true) = (found.entry, self.keys != SortedKeys::Gone)
            && entry::shown_key(index, &entry, &mut self.entry).is_none()
        {
            // A damaged entry has no fields here; `validate` reports the damage.
            self.entry.clear();
        }
        let doc = match fields {
            _ if self.keys == SortedKeys::Instead => match self.entry.is_empty() {
                true => Doc::EMPTY.as_bytes(),
                false => &self.entry,
            },
            _ if is_late => &[],
            Some(fields) => {
                fields.copy(found.doc, &mut self.kept);
                &self.kept
            }
            None => found.doc.as_bytes(),
        };
        let (head, record) = (&row_head(found.score, found.record), found.record);
        match self.keys {
            SortedKeys::Beside => sort.push(&self.key, &[head, record, doc, &self.entry]),
            _ => sort.push(&self.key, &[head, record, doc]),
        }
    }

    /// Adds a document to the short rows; returns false if it is too long for them.
    #[inline]
    fn push_short(&mut self, found: &Found<'_>) -> bool {
        let Some(short) = &mut self.short else { return false };
        let size = found.doc.as_bytes().len();
        if size > late::DOCUMENT_BYTES_MAX {
            return false;
        }
        let Some(value) = self.pattern.value_and_head(found.doc) else { return false };
        let is_short = short.push(value, found.record, &self.pattern).is_some();
        if is_short {
            self.bytes += (size + value.0.bytes().len()) as u64;
        }
        is_short
    }

    /// Converts the short rows to rows of any length.
    fn lengthen(&mut self) -> Result<()> {
        let (Some(mut short), Rows::Coming(sort)) = (self.short.take(), &mut self.rows) else {
            return Ok(());
        };
        short.as_they_came();
        short.show(0, &self.pattern, &mut |key, record| {
            sort.push(key, &[&row_head(None, record), record])
        })
    }

    /// Returns the bytes of documents and keys that were sorted, and the number of spills to disk.
    /// With a limit of one, nothing is sorted.
    pub(super) fn sorted(&self) -> (u64, u64) {
        if self.is_filled() && self.wanted != Some(1) { (self.bytes, self.spills) } else { (0, 0) }
    }

    /// Sorts, after all documents have been added.
    pub(super) fn finish(&mut self) -> Result<()> {
        if let Rows::Coming(sort) = &self.rows {
            self.spills = sort.spills() as u64;
        }
        if let Some(short) = &mut self.short {
            short.sort(&self.pattern);
        }
        self.rows.settle(Ok)
    }

    /// Fetches the documents that were left out; returns whether none has changed and few are
    /// large.
    pub(super) fn fetch(&mut self, unseen: u64, source: &Source<'_>) -> Result<bool> {
        let (Some(late), Rows::Sorted(sorted)) = (&mut self.late, &mut self.rows) else {
            return Ok(true);
        };
        if self.large_bytes > late::LARGE_BYTES_MAX {
            return Ok(false);
        }
        let mut rows = |show: &mut dyn FnMut(&[u8], SortedRow<'_>)| {
            if let Some(short) = &self.short {
                return short.show(unseen, &self.pattern, &mut |key, record| {
                    show(key, SortedRow { score: None, record, doc: None, key: None });
                    Ok(())
                });
            }
            while sorted.advance()? {
                show(sorted.key(), SortedRow::read(sorted.value()));
            }
            Ok(())
        };
        let fetched = Fetched::fetch(&mut rows, unseen, &self.pattern, source)?;
        let is_same = fetched.is_some();
        *late = fetched.unwrap_or_default();
        Ok(is_same)
    }

    /// Skips up to `count` rows; returns their number.
    pub(super) fn pass(&mut self, count: u64) -> Result<u64> {
        if let Some(late) = &mut self.late {
            return Ok(late.pass(count));
        }
        let mut passed = 0;
        while passed < count && (std::mem::take(&mut self.is_held) || self.rows.advance()?) {
            passed += 1;
        }
        Ok(passed)
    }

    /// Returns documents in order.
    pub(super) fn drain(&mut self, take: &mut dyn FnMut(Found<'_>) -> Result<Emit>) -> Result<End> {
        if let Some(late) = &mut self.late {
            while let Some((doc, record)) = late.front() {
                let answer = take(Found::fetched(doc, record))?;
                if answer == Emit::Full {
                    return Ok(End::Paused);
                }
                late.advance();
                if answer == Emit::Enough {
                    return Ok(End::Paused);
                }
            }
            return Ok(End::Exhausted);
        }
        let Rows::Sorted(sorted) = &mut self.rows else { return Ok(End::Exhausted) };
        while std::mem::take(&mut self.is_held) || sorted.advance()? {
            let SortedRow { score, record, doc, key } = SortedRow::read(sorted.value());
            // The document is missing if the stored data is damaged.
            let doc = doc.unwrap_or(Doc::EMPTY);
            match take(Found { score, key, ..Found::fetched(doc, record) })? {
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
