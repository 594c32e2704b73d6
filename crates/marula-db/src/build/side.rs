//! The side table: the changes by writers to indexes that are being built.
//!
//! It has one key per changed entry, under the build's scratch ident, with the last change of the
//! entry. A document's entries are written under its latch, so the last change is the correct one.
//!
//! ```text
//! key    ident(4) 0x01 index(1) generation(4) key-string record-key
//! value  0x01 record-key length(4) type bits     the entry is present
//!        0x00 record-key length(4)               the entry is removed
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

/// The prefix of a build's side table, after its scratch ident.
const SIDE: u8 = 0x01;

/// The changes by one write to indexes that are being built. Empty and unused while there is no
/// build.
#[derive(Default)]
pub(crate) struct Notes {
    key_maker: KeyMaker,
    before: KeySet,
    after: KeySet,
    puts: Vec<(Vec<u8>, Vec<u8>)>,
    marks: Vec<(Arc<Index>, Multikey)>,
}

impl Notes {
    /// Discards the notes of a write that was abandoned.
    pub(crate) fn clear(&mut self) {
        self.puts.clear();
        self.marks.clear();
    }

    /// Notes the changed entries of `record`, whose document was `before` and will be `after`.
    ///
    /// Errors: those of [`KeyMaker::make`] for `after`: a write whose document cannot be indexed is
    /// refused.
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
        // A document that cannot be indexed has no entries.
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

    /// Adds the notes to their write.
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

/// The range of keys of one generation of one index.
pub(super) fn range(scratch: Ident, generation: u32, position: usize) -> KeyRange {
    KeyRange::prefix(&key_prefix(scratch, generation, position))
}
