//! The side table: what writers change in indexes that are being built.
//!
//! One key for each entry that was touched, under the build's scratch ident; the last write of an
//! entry is what stands there. A document's entries are written under its latch, so the last one is
//! right.
//!
//! ```text
//! key    ident(4) 0x01 index(1) generation(4) key-string record-key
//! value  0x01 record-key length(4) type bits     the entry is there
//!        0x00 record-key length(4)               it is not
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use marula_bson::Doc;
use marula_error::Result;
use marula_storage::{KeyRange, Space};

use super::Build;
use super::run::{ABSENT, PREFIX_BYTES, PRESENT, byte, encode_value};
use crate::collection::State;
use crate::index::{Index, KeyMaker, KeySet, Multikey};
use crate::keys::Ident;
use crate::unit::Write;

/// Before the side table of a build, under its scratch ident.
const SIDE: u8 = 0x01;

/// What one write changes in indexes that are being built. Empty, and never looked at, while none
/// is.
#[derive(Default)]
pub(crate) struct Notes {
    key_maker: KeyMaker,
    before: KeySet,
    after: KeySet,
    puts: Vec<(Vec<u8>, Vec<u8>)>,
    marks: Vec<(Arc<Index>, Multikey)>,
}

impl Notes {
    /// Forgets what a write that was given up has noted.
    pub(crate) fn clear(&mut self) {
        self.puts.clear();
        self.marks.clear();
    }

    /// Notes what becomes of the entries of `record`, whose document was `before` and will be
    /// `after`.
    ///
    /// Errors: those of [`KeyMaker::make`] for `after`: a write that would make a document that
    /// cannot be indexed is refused.
    pub(crate) fn add(
        &mut self,
        state: &State,
        record: &[u8],
        before: Option<Doc<'_>>,
        after: Option<Doc<'_>>,
    ) -> Result<()> {
        for build in &state.building {
            for (position, index) in build.indexes.iter().enumerate() {
                self.add_one(build, position, index, record, before, after)?;
            }
        }
        Ok(())
    }

    fn add_one(
        &mut self,
        build: &Build,
        position: usize,
        index: &Arc<Index>,
        record: &[u8],
        before: Option<Doc<'_>>,
        after: Option<Doc<'_>>,
    ) -> Result<()> {
        self.before.forget();
        self.after.forget();
        if let Some(doc) = after {
            self.key_maker.make(index, doc, &mut self.after)?;
        }
        // What cannot be indexed has no entries.
        if let Some(doc) = before
            && self.key_maker.make(index, doc, &mut self.before).is_err()
        {
            self.before.forget();
        }
        if index.needs_mark(&self.after.multikey) {
            self.marks.push((index.clone(), self.after.multikey.clone()));
        }
        let generation = build.generation.load(Ordering::Acquire);
        let prefix = key_prefix(build.scratch(), generation, position);
        let mut put = |key: &[u8], flag: u8, type_bits: &[u8]| {
            let mut value = Vec::new();
            encode_value(flag, record.len(), type_bits, &mut value);
            self.puts.push(([&prefix[..], key, record].concat(), value));
        };
        for (key, _) in self.before.iter().filter(|(key, _)| !self.after.contains(key)) {
            put(key, ABSENT, &[]);
        }
        for (key, type_bits) in self.after.iter() {
            if !self.before.contains_entry((key, type_bits)) {
                put(key, PRESENT, type_bits);
            }
        }
        Ok(())
    }

    /// Puts the notes into the write that they are of.
    pub(crate) fn put(&mut self, write: &mut Write<'_>) {
        for (key, value) in self.puts.drain(..) {
            write.txn().put(Space::Indexes, &key, &value);
        }
        for (index, multikey) in self.marks.drain(..) {
            write.mark(&index, &multikey);
        }
    }
}

fn key_prefix(scratch: Ident, generation: u32, position: usize) -> [u8; PREFIX_BYTES] {
    let [a, b, c, d] = scratch.bytes();
    let [e, f, g, h] = generation.to_be_bytes();
    [a, b, c, d, SIDE, byte(position), e, f, g, h]
}

/// The keys of one generation of one index.
pub(super) fn range(scratch: Ident, generation: u32, position: usize) -> KeyRange {
    KeyRange::prefix(&key_prefix(scratch, generation, position))
}
