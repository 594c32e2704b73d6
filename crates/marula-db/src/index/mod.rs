//! Indexes: what they are (`spec`, `pattern`, `kind`), the keys a document has in them (`keys`,
//! `wildcard`), their entries (`entry`), which of their paths meet arrays (`multikey`).
//!
//! An index is an ordered set of entries; each leads from a key string to a record key. Everything
//! that is stored about it beside its entries is in the catalogue entry of its collection, but for
//! the *multikey* marks, one key each (see [`Index::mark_multikey`]), so that writers never rewrite
//! an entry.

pub mod entry;
pub mod keys;
pub mod kind;
mod multikey;
mod pattern;
pub mod place;
pub mod spec;
pub mod text;
pub mod wildcard;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use marula_bson::FieldPath;
use marula_storage::{Space, Stamp, Txn, View};

use crate::keys::Ident;
use crate::storage_error::ForClient;
pub use keys::{KeyMaker, KeySet};
pub use kind::IndexKind;
use multikey::Marks;
pub use multikey::{Multikey, PathArrays, component_bit};
pub use place::Geography;
pub use spec::{IndexSpec, KeyPart};

/// The most indexes of a collection, `_id` included. Source: manual "MongoDB Limits and
/// Thresholds".
pub const INDEXES_MAX: usize = 64;

/// An index of a collection.
pub struct Index {
    /// Where its entries are.
    pub ident: Ident,
    /// What it is.
    pub spec: IndexSpec,
    marks: Marks,
    /// How often queries used it, and since when that is counted.
    uses: AtomicU64,
    since: SystemTime,
    is_dropped: AtomicBool,
    /// The commit from which it has the entries of all documents.
    whole_since: OnceLock<Stamp>,
}

impl Index {
    /// An index without entries.
    pub fn new(ident: Ident, spec: IndexSpec) -> Self {
        let marks = Marks::new(spec.parts.len());
        Index {
            ident,
            spec,
            marks,
            uses: AtomicU64::new(0),
            since: SystemTime::now(),
            is_dropped: AtomicBool::new(false),
            whole_since: OnceLock::new(),
        }
    }

    /// Whether it serves who sees the moment `moment`: one that is younger lacks entries of then.
    pub(crate) fn serves(&self, moment: Stamp) -> bool {
        self.whole_since.get().is_none_or(|&since| since <= moment)
    }

    /// Notes which commit has made it whole.
    pub(crate) fn note_whole(&self, since: Stamp) {
        self.whole_since.get_or_init(|| since);
    }

    /// Whether it has been dropped: its entries go, and what walks them must stop.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// Notes that it has been dropped. Comes before its entries are cleared.
    pub(crate) fn mark_dropped(&self) {
        self.is_dropped.store(true, Ordering::Release);
    }

    /// Notes that a query uses the index.
    pub fn note_use(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    /// How often queries used the index, and since when that is counted.
    pub fn usage(&self) -> (u64, SystemTime) {
        (self.uses.load(Ordering::Relaxed), self.since)
    }

    /// An index as the store has it: reads its multikey marks.
    pub fn load(ident: Ident, spec: IndexSpec, store: &dyn View) -> marula_error::Result<Self> {
        let index = Index::new(ident, spec);
        let prefix = multikey_prefix(ident);
        let range = marula_storage::KeyRange::prefix(&prefix);
        let mut cursor = store
            .cursor(Space::Catalog, &range, marula_storage::Direction::Forward)
            .for_client()?;
        while cursor.advance().for_client()? {
            index.marks.load(&cursor.key()[prefix.len()..]);
        }
        drop(cursor);
        Ok(index)
    }

    /// Whether some document has more than one key here, or an array anywhere on a path.
    pub fn is_multikey(&self) -> bool {
        self.marks.is_any()
    }

    /// For each part of the key, a bit for each path component at which some document has an array.
    pub fn multikey_paths(&self) -> Vec<u64> {
        self.marks.parts()
    }

    /// Of a wildcard index: where documents have arrays on `path`.
    pub fn path_arrays(&self, path: &FieldPath) -> PathArrays {
        self.marks.path(path)
    }

    /// Of a wildcard index: how many paths documents have, or had, arrays on.
    pub(crate) fn array_path_count(&self) -> usize {
        self.marks.path_count()
    }

    /// Notes that a document has arrays at `found`: for readers at once, in the store with `txn`.
    /// After the commit comes [`Index::note_marks_stored`]. A transaction that fails leaves readers
    /// with a mark that is only less precise, and the next write stores it. Marks are blind writes
    /// of keys of their own, so writers never conflict over them.
    pub fn mark_multikey(&self, found: &Multikey, txn: &mut dyn Txn) {
        let prefix = multikey_prefix(self.ident);
        self.marks.add(found, &mut |mark| {
            txn.put(Space::Catalog, &[&prefix, mark].concat(), &[]);
        });
    }

    /// Notes that the transaction in which [`Index::mark_multikey`] wrote these has been committed.
    pub fn note_marks_stored(&self, found: &Multikey) {
        self.marks.note_stored(found);
    }

    /// Whether [`Index::mark_multikey`] with these would write anything.
    pub fn needs_mark(&self, found: &Multikey) -> bool {
        self.marks.lacks(found)
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
