//! Indexes: what they are (`spec`), the keys a document has in them (`keys`), their entries (`entry`).
//!
//! An index is an ordered set of entries; each leads from a key string to a record key. Everything that
//! is stored about it beside its entries is in the catalogue entry of its collection, but for the
//! *multikey* marks, one key each (see [`Index::mark_multikey`]), so that writers never rewrite an entry.

pub mod entry;
pub mod keys;
pub mod spec;

use std::sync::atomic::{AtomicU64, Ordering};

use marula_storage::{Read, Space, Txn};

use crate::keys::Ident;
use crate::storage_error::ForClient;
pub use keys::{KeyMaker, KeySet};
pub use spec::{IndexSpec, KeyPart};

/// The most indexes of a collection, `_id` included. Source: manual "MongoDB Limits and Thresholds".
pub const INDEXES_MAX: usize = 64;

/// Path components beyond this one share its multikey mark.
const COMPONENT_LAST: usize = 63;

/// An index of a collection.
pub struct Index {
    /// Where its entries are.
    pub ident: Ident,
    /// What it is.
    pub spec: IndexSpec,
    /// For each part of the key, a bit for each component of its path at which some document has an array.
    multikey: Vec<AtomicU64>,
}

impl Index {
    /// An index without entries.
    pub fn new(ident: Ident, spec: IndexSpec) -> Self {
        let multikey = spec.parts.iter().map(|_| AtomicU64::new(0)).collect();
        Index { ident, spec, multikey }
    }

    /// An index as the store has it: reads its multikey marks.
    pub fn load(ident: Ident, spec: IndexSpec, store: &dyn Read) -> marula_error::Result<Self> {
        let index = Index::new(ident, spec);
        let range = marula_storage::KeyRange::prefix(&multikey_prefix(ident));
        let mut cursor = store
            .cursor(Space::Catalog, &range, marula_storage::Direction::Forward)
            .for_client()?;
        while cursor.advance().for_client()? {
            if let [.., part, component] = *cursor.key()
                && let Some(bits) = index.multikey.get(usize::from(part))
            {
                bits.fetch_or(1 << component.min(63), Ordering::Relaxed);
            }
        }
        drop(cursor);
        Ok(index)
    }

    /// Whether some document has more than one key here, or an array anywhere on a path.
    pub fn is_multikey(&self) -> bool {
        self.multikey.iter().any(|bits| bits.load(Ordering::Acquire) != 0)
    }

    /// For each part of the key, a bit for each path component at which some document has an array.
    pub fn multikey_paths(&self) -> Vec<u64> {
        self.multikey.iter().map(|bits| bits.load(Ordering::Acquire)).collect()
    }

    /// Notes that a document has arrays at `paths` (bits as [`Index::multikey_paths`]): in memory at once,
    /// in the store with `txn`. A transaction that fails after this leaves the mark in memory, which is
    /// only less precise. Marks are blind writes of keys of their own, so writers never conflict over them.
    pub fn mark_multikey(&self, paths: &[u64], txn: &mut dyn Txn) {
        for (part, (known, &found)) in self.multikey.iter().zip(paths).enumerate() {
            let new = found & !known.load(Ordering::Acquire);
            for component in (0..64u8).filter(|component| new & (1 << component) != 0) {
                let part = u8::try_from(part).expect("an index has at most 32 parts");
                let mut key = multikey_prefix(self.ident).to_vec();
                key.extend([part, component]);
                txn.put(Space::Catalog, &key, &[]);
            }
            if new != 0 {
                known.fetch_or(new, Ordering::AcqRel);
            }
        }
    }

    /// Whether [`Index::mark_multikey`] with these paths would write anything.
    pub fn needs_mark(&self, paths: &[u64]) -> bool {
        self.multikey
            .iter()
            .zip(paths)
            .any(|(known, found)| found & !known.load(Ordering::Acquire) != 0)
    }

    /// Whether this is the index on `_id` that every unclustered collection has.
    pub fn is_id(&self) -> bool {
        self.spec.is_id()
    }
}

/// The prefix of an index's multikey marks in [`Space::Catalog`].
pub(crate) fn multikey_prefix(ident: Ident) -> [u8; 5] {
    let [a, b, c, d] = ident.bytes();
    [crate::keys::MULTIKEY_PREFIX[0], a, b, c, d]
}

/// The bit of the path component with this index.
pub(crate) fn component_bit(component: usize) -> u64 {
    1 << component.min(COMPONENT_LAST)
}
