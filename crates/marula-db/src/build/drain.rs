//! Applies a generation of the side table to indexes that are already loaded.

use marula_error::Result;
use marula_storage::{Space, Txn};

use super::merge::EntrySource;
use super::run::Item;
use super::{Builder, TXN_BYTES_MAX, side};
use crate::index::{Index, entry as index_entry};
use crate::keys::RecordKey;
use crate::storage_error::ForClient;

/// The documents that the notes of one key of a unique index refer to.
#[derive(Default)]
struct Holders {
    key_string: Vec<u8>,
    gone: Vec<RecordKey>,
    /// The documents that have the key now, with their type bits.
    here: Vec<(RecordKey, Vec<u8>)>,
}

impl Builder<'_, '_> {
    /// Applies a generation that is no longer written to; returns the number of its notes.
    pub(super) fn drain(&mut self, generation: u32) -> Result<u64> {
        let mut notes = 0;
        for (position, index) in self.build.indexes.iter().enumerate() {
            let range = side::range(self.build.scratch(), generation, position);
            let mut source = EntrySource::stored(self.db.store(), &range)?;
            notes += match index.spec.unique {
                true => self.drain_unique(index, &mut source)?,
                false => self.drain_ordinary(index, &mut source)?,
            };
        }
        Ok(notes)
    }

    fn drain_ordinary(&mut self, index: &Index, source: &mut EntrySource<'_>) -> Result<u64> {
        let db = self.db;
        let shape = self.collection.shape();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut notes = 0;
        let mut txn = db.store().begin();
        while source.advance()? {
            notes += 1;
            let (item, is_present) = source.item()?;
            index_entry::encode_key(index, item.key_string(), item.record(), &mut key);
            if is_present {
                index_entry::encode_value(index, shape, item.record(), item.type_bits, &mut value);
                txn.put(Space::Indexes, &key, &value);
            } else {
                txn.delete(Space::Indexes, &key);
            }
            if txn.size() > TXN_BYTES_MAX {
                txn.commit().for_client()?;
                txn = db.store().begin();
            }
            self.step()?;
        }
        if txn.size() > 0 {
            txn.commit().for_client()?;
        }
        Ok(notes)
    }

    /// The entry of a unique index has one document, so all notes of a key are processed together.
    fn drain_unique(&mut self, index: &Index, source: &mut EntrySource<'_>) -> Result<u64> {
        let db = self.db;
        let mut notes = 0;
        let mut holders = Holders::default();
        let mut txn = db.store().begin();
        while source.advance()? {
            let (item, is_present) = source.item()?;
            if notes > 0 && holders.key_string != item.key_string() {
                self.write_unique_entry(index, &holders, &mut *txn)?;
                holders.gone.clear();
                holders.here.clear();
                if txn.size() > TXN_BYTES_MAX {
                    txn.commit().for_client()?;
                    txn = db.store().begin();
                }
            }
            notes += 1;
            holders.key_string.clear();
            holders.key_string.extend_from_slice(item.key_string());
            let record = RecordKey::new(item.record());
            match is_present {
                true => holders.here.push((record, item.type_bits.to_vec())),
                false => holders.gone.push(record),
            }
            self.step()?;
        }
        if notes > 0 {
            self.write_unique_entry(index, &holders, &mut *txn)?;
            txn.commit().for_client()?;
        }
        Ok(notes)
    }

    /// Writes the entry of one key of a unique index.
    fn write_unique_entry(
        &self,
        index: &Index,
        holders: &Holders,
        txn: &mut dyn Txn,
    ) -> Result<()> {
        let shape = self.collection.shape();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        index_entry::encode_key(index, &holders.key_string, &[], &mut key);
        let known = self.collection.find_unique(self.db.store(), &key)?;
        let stays = known.as_ref().is_some_and(|known| {
            !holders.gone.contains(known) && !holders.here.iter().any(|(here, _)| here == known)
        });
        match &holders.here[..] {
            [] if stays => {}
            [] => txn.delete(Space::Indexes, &key),
            [(record, type_bits)] if !stays => {
                index_entry::encode_value(index, shape, record.as_bytes(), type_bits, &mut value);
                txn.put(Space::Indexes, &key, &value);
            }
            [(_, type_bits), ..] => {
                let item = Item { key: &holders.key_string, record_bytes: 0, type_bits };
                return Err(self.duplicate(index, item));
            }
        }
        Ok(())
    }
}
