//! Sorts and groups that outgrow memory: data that does not fit goes to a temporary file and is
//! read back in order.
//!
//! The caller provides the files: a [`Disk`] creates them, so that this crate knows no folders. No
//! file outlives its operation. `stream` writes records in checksummed blocks, `sort` merges sorted
//! runs of them, `rows` is a running or finished sort; `$group` partitions its input by hash (see
//! `stage/group`). `share` is the part of the server's memory that a stage holds.

pub mod memory;
mod rows;
pub mod share;
pub mod sort;
pub(crate) mod stream;

use std::fmt;
use std::sync::Arc;

use marula_error::Result;

pub use rows::{Front, Rows};
pub use share::{Pieces, Share};
pub use sort::{ExternalSort, Sorted};

/// The memory limit of a sort, a `$group` and similar stages unless a server parameter sets
/// another.
pub const BYTES_MAX: usize = 100 * 1024 * 1024;

/// The maximum number of documents that one `$densify` may create, unless a parameter sets another.
const DENSIFY_DOCUMENTS_MAX: u64 = 500_000;

/// Creates temporary files.
pub trait Disk: Send + Sync {
    /// Creates a new, empty file. It is deleted when it is dropped.
    fn create(&self) -> Result<Box<dyn TempFile>>;
}

/// A file that is written once from its start and read at any offset.
pub trait TempFile: Send + Sync {
    /// Appends bytes to the file.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Fills `bytes` with the file's bytes at `offset`.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;
}

/// The memory limits of an operation's blocking parts, and the disk for what exceeds them.
#[derive(Clone)]
pub struct Limits {
    /// Bytes of a sort: of `find`, `$sort`, and before windows.
    pub sort_bytes_max: usize,
    /// Bytes of a `$group`.
    pub group_bytes_max: usize,
    /// Bytes of one partition of `$setWindowFields`.
    pub window_bytes_max: usize,
    /// Bytes of one list of `$push`.
    pub push_bytes_max: usize,
    /// Bytes of one set of `$addToSet`.
    pub add_to_set_bytes_max: usize,
    /// Bytes of one list of an accumulator that keeps a number of values, such as `$topN`.
    pub list_bytes_max: usize,
    /// Bytes of the document that `$facet` makes.
    pub facet_bytes_max: usize,
    /// Bytes of the partitions that `$densify` keeps.
    pub densify_bytes_max: usize,
    /// The maximum number of documents that one `$densify` creates.
    pub densify_documents_max: u64,
    /// Bytes of the documents that one `$lookup` joins to one document.
    pub lookup_bytes_max: usize,
    /// The disk for data beyond the limits; `None` if the operation must not use the disk.
    pub disk: Option<Arc<dyn Disk>>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            sort_bytes_max: BYTES_MAX,
            group_bytes_max: BYTES_MAX,
            window_bytes_max: BYTES_MAX,
            push_bytes_max: BYTES_MAX,
            add_to_set_bytes_max: BYTES_MAX,
            list_bytes_max: BYTES_MAX,
            facet_bytes_max: BYTES_MAX,
            densify_bytes_max: BYTES_MAX,
            densify_documents_max: DENSIFY_DOCUMENTS_MAX,
            lookup_bytes_max: BYTES_MAX,
            disk: None,
        }
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits")
            .field("sort_bytes_max", &self.sort_bytes_max)
            .field("group_bytes_max", &self.group_bytes_max)
            .field("window_bytes_max", &self.window_bytes_max)
            .field("push_bytes_max", &self.push_bytes_max)
            .field("add_to_set_bytes_max", &self.add_to_set_bytes_max)
            .field("list_bytes_max", &self.list_bytes_max)
            .field("facet_bytes_max", &self.facet_bytes_max)
            .field("densify_bytes_max", &self.densify_bytes_max)
            .field("densify_documents_max", &self.densify_documents_max)
            .field("lookup_bytes_max", &self.lookup_bytes_max)
            .field("disk", &self.disk.is_some())
            .finish()
    }
}
