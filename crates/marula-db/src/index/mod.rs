//! Indexes: their specifications (`spec`, `pattern`, `kind`), the keys of a document (`keys`,
//! `wildcard`), their entries (`entry`), and the paths with arrays (`multikey`).
//!
//! An index is an ordered set of entries, each from a key string to a record key. The collection's
//! catalogue entry stores everything else about an index, except the *multikey* marks, which have
//! one key each (see [`Index::mark_multikey`]), so that writers never rewrite a catalogue entry.

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
pub use keys::{KeyMaker, KeySet, is_about_keys};
pub use kind::IndexKind;
use multikey::Marks;
pub use multikey::{Multikey, PathArrays, component_bit};
pub use place::Geography;
pub use spec::{IndexSpec, KeyPart};

/// The maximum number of indexes of a collection, `_id` included. Source: manual "MongoDB Limits
/// and Thresholds".
pub const INDEXES_MAX: usize = 64;

/// An index of a collection.
pub struct Index {
    /// The ident of its entries.
    pub ident: Ident,
    /// Its specification.
    pub spec: IndexSpec,
    marks: Marks,
    /// The number of uses by queries, and the start of that count.
    uses: AtomicU64,
    since: SystemTime,
    is_dropped: AtomicBool,
    /// The commit since which it has the entries of all documents.
    whole_since: OnceLock<Stamp>,
}

impl Index {
    /// Creates an index without entries.
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

    /// Returns whether a view of `moment` may use the index: a younger index lacks entries of that
    /// moment.
    pub(crate) fn serves(&self, moment: Stamp) -> bool {
        self.whole_since.get().is_none_or(|&since| since <= moment)
    }

    /// Records the commit that completed it.
    pub(crate) fn note_whole(&self, since: Stamp) {
        self.whole_since.get_or_init(|| since);
    }

    /// Returns whether it has been dropped: its entries are being cleared, and scans must stop.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// Marks it as dropped; called before its entries are cleared.
    pub(crate) fn mark_dropped(&self) {
        self.is_dropped.store(true, Ordering::Release);
    }

    /// Counts a use by a query.
    pub fn note_use(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of uses by queries, and the start of that count.
    pub fn usage(&self) -> (u64, SystemTime) {
        (self.uses.load(Ordering::Relaxed), self.since)
    }

    /// Loads an index from the store, with its multikey marks.
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

    /// Returns whether any document has more than one key, or an array on a path.
    pub fn is_multikey(&self) -> bool {
        self.marks.is_any()
    }

    /// For each part of the key, one bit per path component at which some document has an array.
    pub fn multikey_paths(&self) -> Vec<u64> {
        self.marks.parts()
    }

    /// For a wildcard index: the components of `path` at which documents have arrays.
    pub fn path_arrays(&self, path: &FieldPath) -> PathArrays {
        self.marks.path(path)
    }

    /// For a wildcard index: the number of paths on which documents have, or had, arrays.
    pub(crate) fn array_path_count(&self) -> usize {
        self.marks.path_count()
    }

    /// Marks the arrays in `found`: at once for readers, and in the store through `txn`.
    /// [`Index::note_marks_stored`] follows after the commit. If the transaction fails, readers
    /// keep a mark that is only less precise, and the next write stores it. Marks are blind writes
    /// with keys of their own, so writers never conflict over them.
    pub fn mark_multikey(&self, found: &Multikey, txn: &mut dyn Txn) {
        let prefix = multikey_prefix(self.ident);
        self.marks.add(found, &mut |mark| {
            txn.put(Space::Catalog, &[&prefix, mark].concat(), &[]);
            txn.change_epoch();
        });
    }

    /// Adds a mark that the store has; `mark` is its key after the index's ident.
    pub(crate) fn load_mark(&self, mark: &[u8]) {
        self.marks.load(mark);
    }

    /// Records that the transaction in which [`Index::mark_multikey`] wrote these marks was
    /// committed.
    pub fn note_marks_stored(&self, found: &Multikey) {
        self.marks.note_stored(found);
    }

    /// Returns whether [`Index::mark_multikey`] would write anything for these.
    pub fn needs_mark(&self, found: &Multikey) -> bool {
        self.marks.lacks(found)
    }

    /// Returns whether this is the `_id` index, which every unclustered collection has.
    pub fn is_id(&self) -> bool {
        self.spec.is_id()
    }
}

/// The prefix of an index's multikey marks in [`Space::Catalog`].
pub(crate) fn multikey_prefix(ident: Ident) -> [u8; 5] {
    let [a, b, c, d] = ident.bytes();
    [crate::keys::MULTIKEY_PREFIX[0], a, b, c, d]
}
