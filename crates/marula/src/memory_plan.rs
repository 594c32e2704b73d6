//! How the memory of a server is divided: by its options, and by defaults for the rest.
//!
//! ```text
//!  --memory-limit  ├── caches 2/5 ──┤├ memtables 1/9 ┤├ program ┤├── operations, with slack ──┤
//! ```
//!
//! Without a limit the cache is half of the machine's memory beyond the first gigabyte, and
//! operations have three quarters of what it leaves. With one, its parts are sized by it, at some
//! cost: indexes and filters of table files lie in the cache, where blocks compete with them, and
//! freed memory goes back to the system soon.

use marula_server::options::{BYTES_PARAMETER, TOTAL_BYTES_MAX, TOTAL_BYTES_PARAMETER};

use crate::Failure;
use crate::engine;

const MB: usize = 1 << 20;

/// The least limit: with less the largest message, of 48 MB, has no room.
const LIMIT_MIN: usize = 320 * MB;
/// The program itself: code, stacks, tables of latches and connections.
const PROGRAM_BYTES: usize = 64 * MB;
/// The largest number of full memtables that the engine holds: three of each of the two large
/// spaces, and a smaller space's.
const MEMTABLES: usize = 7;
/// The largest memtable: what a server without a limit has.
const MEMTABLE_BYTES_MAX: usize = 64 * MB;

/// The parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryPlan {
    /// Bytes of the caches; `None` is the engine's default.
    pub(crate) cache_bytes: Option<usize>,
    /// Bytes of one memtable; `None` is the engine's default.
    pub(crate) memtable_bytes: Option<usize>,
    /// The amount of memory that all operations may use together.
    pub(crate) operation_bytes_max: usize,
    /// The size of the whole process from which stages go to the disk; `None` is no bound.
    pub(crate) process_bytes_max: Option<usize>,
    /// The amount of memory that open transactions may hold; `None` is the parameter's default.
    pub(crate) transactions_bytes_max: Option<usize>,
}

impl MemoryPlan {
    /// Divides `limit`, if there is one; `cache` is what was asked for the caches.
    ///
    /// Errors: a limit that is too low, or too low for the cache.
    pub(crate) fn new(limit: Option<usize>, cache: Option<usize>) -> Result<Self, Failure> {
        let Some(limit) = limit else {
            return Ok(MemoryPlan {
                cache_bytes: cache,
                memtable_bytes: None,
                operation_bytes_max: engine::operation_bytes_max(cache),
                process_bytes_max: None,
                transactions_bytes_max: None,
            });
        };
        if limit < LIMIT_MIN {
            return Err(format!("the memory limit of {limit} bytes is less than 320MB"));
        }
        let cache_bytes = cache.unwrap_or(limit / 5 * 2);
        let memtable_bytes = (limit / 64).min(MEMTABLE_BYTES_MAX);
        let taken = PROGRAM_BYTES + MEMTABLES * memtable_bytes;
        if cache_bytes > limit / 4 * 3 || cache_bytes + taken >= limit {
            return Err(format!(
                "a cache of {cache_bytes} bytes leaves too little of the memory limit of {limit} bytes"
            ));
        }
        // An allocator holds more than was asked of it.
        let operation_bytes_max = (limit - taken - cache_bytes) / 4 * 3;
        let default = usize::try_from(TOTAL_BYTES_MAX).unwrap_or(usize::MAX);
        let transactions_bytes_max = Some((operation_bytes_max / 2).min(default));
        Ok(MemoryPlan {
            cache_bytes: Some(cache_bytes),
            memtable_bytes: Some(memtable_bytes),
            operation_bytes_max,
            process_bytes_max: Some(limit / 4 * 3),
            transactions_bytes_max,
        })
    }

    /// The server parameters that bound what operations hold.
    pub(crate) fn parameters(&self) -> Vec<(String, String)> {
        let Some(all) = self.transactions_bytes_max else { return Vec::new() };
        let bounds = [(TOTAL_BYTES_PARAMETER, all), (BYTES_PARAMETER, all / 2)];
        bounds.map(|(name, bytes)| (name.to_owned(), bytes.to_string())).into()
    }

    /// Whether the whole is bounded.
    pub(crate) fn has_limit(&self) -> bool {
        self.memtable_bytes.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_stay_below_the_limit() {
        for limit in [LIMIT_MIN, 512 * MB, 1024 * MB, 64 * 1024 * MB] {
            let plan = MemoryPlan::new(Some(limit), None).expect("the limit is enough");
            let cache = plan.cache_bytes.expect("a limit bounds the cache");
            let memtables = MEMTABLES * plan.memtable_bytes.expect("and the memtables");
            let sum = cache + memtables + PROGRAM_BYTES + plan.operation_bytes_max;
            assert!(sum <= limit, "{limit}: {plan:?}");
            assert!(plan.operation_bytes_max >= 48 * MB, "{limit}: {plan:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(MemoryPlan::new(Some(100 * MB), None).is_err());
        assert!(MemoryPlan::new(Some(512 * MB), Some(500 * MB)).is_err());
        assert!(MemoryPlan::new(Some(512 * MB), Some(100 * MB)).is_ok());
        assert_eq!(MemoryPlan::new(None, Some(5)).map(|plan| plan.cache_bytes), Ok(Some(5)));
    }
}
