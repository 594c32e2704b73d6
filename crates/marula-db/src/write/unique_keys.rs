//! The unique keys of the documents that are inserted together, and whether they are free.

use std::collections::HashSet;
use std::sync::Arc;

use marula_error::{Error, Result};
use marula_storage::{Direction, KeyRange, Space, View};

use super::insert::{Chunk, keys_of};
use super::{duplicate, is_key_taken};
use crate::collection::{Collection, Shape, State};
use crate::index::{Index, entry};
use crate::keys;
use crate::storage_error::ForClient;

/// Fewer keys are looked up one by one.
const LOOKED_UP_TOGETHER_MIN: usize = 16;

/// The store keys that a chunk claims in unique indexes (and, in a clustered collection, among the
/// records), document by document.
pub(super) struct UniqueKeys {
    bytes: Vec<u8>,
    keys: Vec<UniqueKey>,
    /// The position of each document's first key in `keys`.
    first: Vec<usize>,
}

/// Whether a key is claimed before or after the check that it is free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Before,
    After,
}

/// A document of a chunk.
#[derive(Clone, Copy)]
pub(super) struct ChunkDocument<'c> {
    pub(super) collection: &'c Collection,
    pub(super) state: &'c State,
    pub(super) chunk: &'c Chunk,
    pub(super) number: usize,
}

struct UniqueKey {
    space: Space,
    start: usize,
    end: usize,
    /// The index; `None` is the clustered collection itself.
    index: Option<usize>,
}

impl UniqueKeys {
    pub(super) fn of(collection: &Collection, state: &State, chunk: &Chunk) -> Self {
        let mut found = UniqueKeys { bytes: Vec::new(), keys: Vec::new(), first: Vec::new() };
        for (number, pending) in chunk.documents.iter().enumerate() {
            found.first.push(found.keys.len());
            if collection.shape() == Shape::Clustered {
                found.push(Space::Records, collection.ident(), pending.record.as_bytes(), None);
            }
            for (position, index) in state.indexes.iter().enumerate() {
                if !index.spec.guards_keys() {
                    continue;
                }
                for (key, _) in keys_of(state, chunk, number)[position].iter() {
                    found.push(Space::Indexes, index.ident, key, Some(position));
                }
            }
        }
        found.first.push(found.keys.len());
        found
    }

    fn push(&mut self, space: Space, ident: keys::Ident, key: &[u8], index: Option<usize>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&ident.bytes());
        self.bytes.extend_from_slice(key);
        self.keys.push(UniqueKey { space, start, end: self.bytes.len(), index });
    }

    pub(super) fn guards(&self) -> Vec<(Space, &[u8])> {
        self.keys.iter().map(|key| (key.space, &self.bytes[key.start..key.end])).collect()
    }

    /// Returns whether the keys of each index ascend, and the store has nothing from the first to
    /// the last: one look in place of one per key, for ids that ascend as object ids do. Where this
    /// is `false`, keys may still be free.
    pub(super) fn are_new(&self, view: &dyn View) -> Result<bool> {
        if self.keys.len() < LOOKED_UP_TOGETHER_MIN || view.is_far() {
            return Ok(false);
        }
        let mut indexes: Vec<(&UniqueKey, &[u8], &[u8])> = Vec::new();
        for key in &self.keys {
            let bytes = &self.bytes[key.start..key.end];
            match indexes.iter_mut().find(|(first, ..)| first.index == key.index) {
                Some((_, _, last)) if *last < bytes => *last = bytes,
                Some(_) => return Ok(false),
                None => indexes.push((key, bytes, bytes)),
            }
        }
        for (key, first, last) in indexes {
            let range = KeyRange { start: first.to_vec(), end: KeyRange::prefix(last).end };
            let mut cursor = view.cursor(key.space, &range, Direction::Forward).for_client()?;
            if cursor.advance().for_client()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The error of the document's first key that is taken, in the store or by an earlier document
    /// of the chunk. If there is none, its keys count as taken from now on. `claim` checks whether
    /// other transactions hold a key: before the check that it is free, as in mongod, but after it
    /// for `_id`.
    pub(super) fn find_taken<'k>(
        &'k self,
        view: &dyn View,
        ChunkDocument { collection, state, chunk, number }: ChunkDocument<'_>,
        taken: &mut HashSet<&'k [u8]>,
        claim: &mut dyn FnMut(When, (Space, &[u8])) -> Result<()>,
    ) -> Result<Option<Error>> {
        let own = &self.keys[self.first[number]..self.first[number + 1]];
        for key in own {
            let bytes = &self.bytes[key.start..key.end];
            let index: Option<&Arc<Index>> = key.index.map(|position| &state.indexes[position]);
            if index.is_some_and(|index| !index.is_id()) {
                claim(When::Before, (key.space, bytes))?;
            }
            let is_taken = taken.contains(bytes)
                || match index {
                    Some(index) => is_key_taken(view, collection, index, bytes, None)?,
                    None => view.get(key.space, bytes, &mut |_| ()).for_client()?,
                };
            if is_taken {
                let doc = chunk.doc(&chunk.documents[number]);
                let key_string = &bytes[keys::IDENT_BYTES..];
                let type_bits = key.index.and_then(|position| {
                    let keys = &keys_of(state, chunk, number)[position];
                    keys.iter().find(|(key, _)| *key == key_string).map(|(_, type_bits)| type_bits)
                });
                return Ok(Some(match (index, type_bits) {
                    (Some(index), Some(type_bits)) => {
                        let entry = entry::Entry { key_string, record: &[], type_bits };
                        duplicate::error(&collection.namespace(), index, &entry)
                    }
                    _ => duplicate::clustered_error(&collection.namespace(), doc),
                }));
            }
            claim(When::After, (key.space, bytes))?;
        }
        if chunk.documents.len() > 1 {
            taken.extend(own.iter().map(|key| &self.bytes[key.start..key.end]));
        }
        Ok(None)
    }
}
