//! Sorts and groups that outgrow memory: what does not fit goes to a temporary file and comes back
//! in order.
//!
//! The files are the caller's: a [`Disk`] makes them, so that this crate knows no folders. Nothing
//! in them outlives its operation. `stream` writes records in checked blocks, `sort` merges sorted
//! runs of them, `rows` is a sort under way or done; `$group` parts its
//! input by hash (see `stage/group`).

pub mod memory;
mod rows;
pub mod sort;
pub(crate) mod stream;

use std::fmt;
use std::sync::Arc;

use marula_error::Result;

pub use rows::{Front, Rows};
pub use sort::{ExternalSort, Sorted};

/// How much memory a sort, a `$group` and the like may use unless a server parameter says
/// otherwise.
pub const BYTES_MAX: usize = 100 * 1024 * 1024;

/// How many documents one `$densify` may make, unless a parameter says otherwise.
const DENSIFY_DOCUMENTS_MAX: u64 = 500_000;

/// Where temporary files come from.
pub trait Disk: Send + Sync {
    /// A new, empty file. It is gone when it is dropped.
    fn create(&self) -> Result<Box<dyn TempFile>>;
}

/// A file that is written once from its start and read anywhere.
pub trait TempFile: Send + Sync {
    /// Writes behind what has been written.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Fills `bytes` with what was written at `offset`.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;
}

/// How much memory the blocking parts of an operation may use, and where they go on beyond.
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
    /// How many documents one `$densify` may make.
    pub densify_documents_max: u64,
    /// Bytes of the documents that one `$lookup` joins to one document.
    pub lookup_bytes_max: usize,
    /// Where more goes; `None` where the operation must not use the disk.
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
