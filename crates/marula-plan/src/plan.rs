//! How a query is answered.

use std::sync::Arc;

use marula_bson::ValueBuf;
use marula_db::Index;
use marula_query::filter::Filter;
use marula_storage::{Direction, KeyRange};

use crate::clustered::ClusteredScan;

/// How a query is answered: an access path, what is still to check, and what happens to what matches.
pub struct Plan {
    /// Where candidates come from.
    pub access: Access,
    /// What candidates must match; `None` when the access path gives exactly what matches.
    pub filter: Option<Filter>,
    /// Whether what matches must be sorted; `false` when the access path gives it in order.
    pub needs_sort: bool,
}

/// Where candidates come from.
pub enum Access {
    /// Nowhere: nothing can match.
    Nothing,
    /// The document of one `_id`.
    IdHack(ValueBuf),
    /// Every document, in record order or against it.
    Collscan(Direction),
    /// The documents of a clustered collection between two values of `_id`.
    Clustered(ClusteredScan),
    /// The documents that entries of an index lead to.
    Ixscan(Ixscan),
}

/// A walk over ranges of an index.
pub struct Ixscan {
    /// The index.
    pub index: Arc<Index>,
    /// The key-string ranges, disjoint and ascending.
    pub ranges: Vec<KeyRange>,
    /// Which way; backward walks the ranges from the last to the first too.
    pub direction: Direction,
    /// Whether two entries may lead to one document, which is then given once.
    pub may_repeat: bool,
}

impl Plan {
    /// The plan in a line, as the log and the profiler show it: `IXSCAN { a: 1 }`.
    pub fn summary(&self) -> String {
        match &self.access {
            Access::Nothing => "EOF".to_owned(),
            Access::IdHack(_) => "IDHACK".to_owned(),
            Access::Collscan(_) => "COLLSCAN".to_owned(),
            Access::Clustered(_) => "CLUSTERED_IXSCAN".to_owned(),
            Access::Ixscan(scan) => format!("IXSCAN {}", scan.index.spec.key.as_doc()),
        }
    }

    /// Whether the plan looks at a bounded, small number of documents: one by `_id`, or the few that points of a
    /// unique index lead to. Such a plan may run where others wait for it.
    pub fn is_short(&self) -> bool {
        /// So many points take about as long as a reply to send.
        const POINTS_MAX: usize = 16;
        match &self.access {
            Access::Nothing | Access::IdHack(_) => true,
            Access::Collscan(_) => false,
            Access::Clustered(scan) => scan.is_point(),
            Access::Ixscan(scan) => {
                scan.index.spec.unique
                    && scan.ranges.len() <= POINTS_MAX
                    && scan.ranges.iter().all(is_point)
            }
        }
    }
}

/// Whether a range holds the keys of one key string alone: everything that starts with `start`.
fn is_point(range: &KeyRange) -> bool {
    marula_storage::store::prefix_end(&range.start).is_some_and(|end| end == range.end)
}
