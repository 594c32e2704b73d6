//! Estimates the size of a range and its split points.
//!
//! RocksDB estimates the bytes of a range from the tables' indexes. The number of keys follows from
//! the density of the files that overlap the range; the list of files is cached until a flush,
//! compaction or ingestion changes it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use marula_storage::{Direction, KeyRange, RangeStats, Result, Space};
use parking_lot::Mutex;
use rust_rocksdb::{Range, SizeApproximationOptions};

use crate::engine::Engine;
use crate::error::from_rocksdb;
use crate::options::name_of;
use crate::scan::open_newest;

/// The maximum number of bisection steps for a split point; each halves the interval of keys.
const BISECTIONS: usize = 40;

/// The cached list of the store's files, with its version.
#[derive(Default)]
pub(crate) struct Estimates {
    files: Mutex<Option<(u64, Arc<Vec<File>>)>>,
}

/// One file of a space.
struct File {
    space: Space,
    first: Vec<u8>,
    last: Vec<u8>,
    bytes: u64,
    keys: u64,
}

impl Estimates {
    /// Approximate keys and bytes of a range.
    pub(crate) fn range_stats(
        &self,
        engine: &Engine,
        space: Space,
        range: &KeyRange,
    ) -> Result<RangeStats> {
        if range.start >= range.end {
            return Ok(RangeStats::default());
        }
        let files = self.files(engine)?;
        let (mut file_keys, mut file_bytes) = (0, 0);
        for file in files.iter().filter(|file| file.overlaps(space, range)) {
            file_keys += file.keys;
            file_bytes += file.bytes;
        }
        let table_bytes = size(engine, space, range, SizeScope::Files)?;
        // The size of a table includes its indexes and filters, the size of a range does not.
        let keys = scale(file_keys, table_bytes, file_bytes).min(file_keys);
        let keys = if table_bytes * 10 >= file_bytes * 8 { file_keys } else { keys };
        let memory_bytes = size(engine, space, range, SizeScope::Memory)?;
        // Data that is not in a table yet is on disk in the log.
        Ok(RangeStats {
            keys: keys + memory_keys(engine, space, memory_bytes)?,
            disk_bytes: table_bytes + memory_bytes,
        })
    }

    /// Keys that split a range into parts of similar size.
    pub(crate) fn split_points(
        &self,
        engine: &Engine,
        space: Space,
        range: &KeyRange,
        parts: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let Some((first, last)) = ends(engine, space, range)? else { return Ok(Vec::new()) };
        let total = size(engine, space, range, SizeScope::Both)?;
        let mut points: Vec<Vec<u8>> = Vec::new();
        for scope in 1..parts as u64 {
            let wanted = total / parts as u64 * scope;
            let Some(point) = bisect(engine, space, &range.start, &first, &last, wanted)? else {
                continue;
            };
            if point > *points.last().unwrap_or(&first) && point < range.end {
                points.push(point);
            }
        }
        Ok(points)
    }

    fn files(&self, engine: &Engine) -> Result<Arc<Vec<File>>> {
        let version = engine.health.files_version.load(Ordering::Relaxed);
        let mut kept = self.files.lock();
        if let Some((kept_version, files)) = &*kept
            && *kept_version == version
        {
            return Ok(files.clone());
        }
        let files = engine.db.live_files().map_err(from_rocksdb)?;
        let files: Arc<Vec<File>> = Arc::new(files.into_iter().filter_map(File::new).collect());
        *kept = Some((version, files.clone()));
        Ok(files)
    }
}

impl File {
    fn new(file: rust_rocksdb::LiveFile) -> Option<File> {
        let space =
            Space::ALL.into_iter().find(|&space| name_of(space) == file.column_family_name)?;
        Some(File {
            space,
            first: file.start_key?,
            last: file.end_key?,
            bytes: file.size as u64,
            keys: file.num_entries.saturating_sub(2 * file.num_deletions),
        })
    }

    fn overlaps(&self, space: Space, range: &KeyRange) -> bool {
        self.space == space && self.first < range.end && self.last >= range.start
    }
}

/// The storage that a size estimate covers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SizeScope {
    Files,
    Memory,
    Both,
}

fn size(engine: &Engine, space: Space, range: &KeyRange, scope: SizeScope) -> Result<u64> {
    let mut options = SizeApproximationOptions::new();
    options.set_include_files(scope != SizeScope::Memory);
    options.set_include_memtables(scope != SizeScope::Files);
    let ranges = [Range::new(&range.start, &range.end)];
    let column = engine.column(space);
    let sizes = engine.db.get_approximate_sizes_cf_with_options(column, &options, &ranges);
    Ok(sizes.map_err(from_rocksdb)?.first().copied().unwrap_or(0))
}

/// The estimated number of memtable keys in `bytes` bytes.
fn memory_keys(engine: &Engine, space: Space, bytes: u64) -> Result<u64> {
    if bytes == 0 {
        return Ok(0);
    }
    let sum = |names: [&std::ffi::CStr; 2]| -> Result<u64> {
        names.iter().try_fold(0, |sum, name| {
            let value = engine.db.property_int_value_cf(engine.column(space), *name);
            Ok(sum + value.map_err(from_rocksdb)?.unwrap_or(0))
        })
    };
    let entries =
        sum([c"rocksdb.num-entries-active-mem-table", c"rocksdb.num-entries-imm-mem-tables"])?;
    let deletes =
        sum([c"rocksdb.num-deletes-active-mem-table", c"rocksdb.num-deletes-imm-mem-tables"])?;
    let all = KeyRange { start: Vec::new(), end: vec![0xFF; 64] };
    let all_bytes = size(engine, space, &all, SizeScope::Memory)?;
    Ok(scale(entries.saturating_sub(2 * deletes), bytes, all_bytes).min(entries))
}

/// `count × scope ÷ whole`.
fn scale(count: u64, scope: u64, whole: u64) -> u64 {
    (u128::from(count) * u128::from(scope) / u128::from(whole.max(1))) as u64
}

/// The first and last key of a range; `None` if it has fewer than two.
fn ends(engine: &Engine, space: Space, range: &KeyRange) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let end = |direction| -> Result<Option<Vec<u8>>> {
        let mut cursor = open_newest(engine, space, range, direction);
        Ok(if cursor.advance()? { Some(cursor.key().to_vec()) } else { None })
    };
    let (Some(first), Some(last)) = (end(Direction::Forward)?, end(Direction::Backward)?) else {
        return Ok(None);
    };
    Ok((first < last).then_some((first, last)))
}

/// The key before which `wanted` bytes of the range lie, found by bisecting the eight bytes after
/// the common prefix of `first` and `last`. `None` when all keys agree in them.
fn bisect(
    engine: &Engine,
    space: Space,
    start: &[u8],
    first: &[u8],
    last: &[u8],
    wanted: u64,
) -> Result<Option<Vec<u8>>> {
    let common = first.iter().zip(last).take_while(|(one, other)| one == other).count();
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        for (byte, from) in bytes.iter_mut().zip(&key[common..]) {
            *byte = *from;
        }
        u64::from_be_bytes(bytes)
    };
    let key = |number: u64| [&first[..common], &number.to_be_bytes()].concat();
    let (mut low, mut high) = (number(first), number(last));
    for _ in 0..BISECTIONS {
        let middle = low + (high - low) / 2;
        if middle == low {
            break;
        }
        let range = KeyRange { start: start.to_vec(), end: key(middle) };
        if size(engine, space, &range, SizeScope::Both)? < wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    let point = key(high);
    Ok((*point > *first && *point <= *last).then_some(point))
}
