//! The options of a store, and the tuning of RocksDB.
//!
//! Measured with `cargo bench -p marula-embedded` on two busy cores of a virtual machine (RocksDB
//! 11.12; CPU µs of the whole process with background work; differences under a quarter are noise):
//!
//! | | µs |
//! | --- | --- |
//! | load of 2.6 KB documents by 1,000, an index entry each | 7.0 |
//! | scan of 2.6 KB documents, warm cache, per document | 0.35-0.4 (up), 0.4-0.5 (down) |
//! | two gets, index entry and 300-byte record, warm | 3.7-4.4 |
//! | a get of an absent key | 0.27 |
//! | opening a cursor and one step | 3.8 |
//! | commit of one key of 600 bytes | 2.3 |
//! | insert: guard, look, two keys, two counters | 8.6-9.6 |
//! | update of a 300-byte record: guard, get, put | 8.3-9.4 |
//! | snapshot | 0.07 |
//!
//! Experiments:
//! - LZ4 takes its default level. A level set for ZSTD applies to LZ4 too and makes it LZ4HC: the
//!   load took 18 µs. Loads in key order are moved down the levels without a rewrite, because the
//!   levels' compression is the same until there are gigabytes.
//! - Batches of a bulk load are reused by their thread: 1.2 µs per document less.
//! - A bloom filter over the memtable: updates and gets unchanged, inserts 10% slower. Off.
//! - Blocks of 4 or 8 KB, restart interval 16, a hash index in blocks, LRU in place of the clock
//!   cache, pipelined writes, no concurrent memtable writes: no difference beyond noise.
//! - Blocks of records of 16, 32 and 64 KB, 100,000 documents of 2.6 KB, the least of 14 turns in
//!   turn: a scan 98, 81 and 67 ms; 9,091 scattered documents 51, 50 and 44; 500 neighbours 1.04,
//!   0.95 and 1.07. Each block that is opened waits for memory half a dozen times. 32: a look-up
//!   of one small document that is not in the cache reads all of its block.
//! - A hash index in blocks of records, restart intervals of 1 and 4: the same.
//! - Memtables that have stopped growing are flushed (`settle.rs`): a count of 9,091 index entries
//!   went from 2.1 to 1.2 ms.
//! - Keys apart from values in the blocks of records, whose documents a key search would step
//!   across: look-ups 5 to 12% cheaper, scans the same. On. For index entries, small themselves,
//!   RocksDB advises against it.
//! - Multi-get of 32 records in key order: a fifth to a third less than single gets where records
//!   lie near each other, 5% for random ones. On top of it, search paths of the memtable kept from
//!   key to key (`memtable_batch_lookup_optimization`) and interpolation search in the tables'
//!   indexes: no difference beyond noise.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use marula_storage::Space;
use rust_rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode, Options,
};

use crate::deltas;
use crate::health::{self, Health, Listener};
use crate::record_cache::RecordCache;

/// The treatment of a log that has lost acknowledged writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnDamage {
    /// The store is not opened.
    Refuse,
    /// The log is replayed up to the damage and truncated there.
    CutOff,
}

/// The options of a store. [`EmbeddedOptions::new`] returns the defaults.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// The data folder.
    pub path: PathBuf,
    /// Opens the folder read-only: nothing in it changes, and every write is refused.
    pub is_read_only: bool,
    /// The treatment of a log that has lost acknowledged writes.
    pub on_damage: OnDamage,
    /// Total bytes of the block cache and the record cache.
    pub cache_bytes: usize,
    /// The maximum time from a commit to its sync when no caller waits for the sync.
    pub sync_interval: Duration,
    /// The number of threads for flushes and compactions.
    pub background_jobs: usize,
    /// Bytes written to one space before its memtable is flushed to a file.
    pub memtable_bytes: usize,
    /// Whether the log is kept for a while to be followed, with the time of each commit
    /// ([`Embedded::follow_log`](crate::Embedded::follow_log)).
    pub keeps_log: bool,
    /// Whether indexes and filters of files count towards the cache, so that memory is bounded
    /// however much data there is. So they do in a cache that is tiny.
    pub is_bounded: bool,
}

const MB: usize = 1 << 20;

/// The divisor of the cache share for single records: one fourth.
const RECORDS_SHARE: usize = 4;

/// Below this cache size the tables' indexes and filters count towards the cache, so that memory
/// stays bounded.
const CACHE_BYTES_TINY: usize = 64 * MB;

/// The maximum log size; beyond it, memtables of rarely written spaces are flushed to free the log.
/// It bounds recovery, which reads about 200 MB per second.
const WAL_BYTES_MAX: u64 = 512 << 20;

/// How long, and how much of, a log that is followed is kept once the store does not need it: as
/// long as a follower may be unable to pass it on.
const LOG_KEPT_SECONDS: u64 = 3600;
const LOG_KEPT_MB: u64 = 2048;

/// The maximum number of unmerged additions to one counter and of deltas of one record in memory:
/// more make reads slow, fewer make writes slow.
const MERGES_MAX: usize = 16;

/// The extent to which RocksDB searches the cache for blocks of a deleted file: until fewer than
/// one in twenty is found.
const UNCACHE_AGGRESSIVENESS: u32 = 300;

/// A file is compacted soon if among a number of consecutive entries at least this number are
/// tombstones, over which every scan walks. An update of an indexed field writes one tombstone and
/// one entry, fewer than that.
const TOMBSTONES_MANY: usize = 3072;
const TOMBSTONES_AMONG: usize = 4096;

impl EmbeddedOptions {
    /// The default options for a store at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let cache_bytes = default_cache_bytes(memory_bytes());
        EmbeddedOptions {
            path: path.into(),
            is_read_only: false,
            on_damage: OnDamage::Refuse,
            cache_bytes,
            sync_interval: Duration::from_millis(100),
            background_jobs: thread::available_parallelism().map_or(2, usize::from).clamp(2, 8),
            memtable_bytes: (cache_bytes / 8).clamp(8 * MB, 64 * MB),
            keeps_log: false,
            is_bounded: false,
        }
    }

    /// Creates the block cache that all spaces share.
    pub(crate) fn cache(&self) -> Cache {
        let blocks = self.cache_bytes - self.cache_bytes / RECORDS_SHARE;
        Cache::new_hyper_clock_cache(blocks.max(MB), 0)
    }

    /// Creates the record cache.
    pub(crate) fn record_cache(&self) -> RecordCache {
        RecordCache::new(self.cache_bytes / RECORDS_SHARE)
    }

    /// The options of the database.
    pub(crate) fn database(&self, health: Arc<Health>) -> Options {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_max_background_jobs(self.background_jobs as i32);
        options.set_max_subcompactions(1);
        options.set_max_open_files(open_files_max());
        // After damage at the end of the log, a prefix of the acknowledged writes survives; the
        // logger reports it.
        options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
        options.set_recycle_log_file_num(0);
        if self.keeps_log {
            options.set_wal_ttl_seconds(LOG_KEPT_SECONDS);
            options.set_wal_size_limit_mb(LOG_KEPT_MB);
        }
        options.set_max_total_wal_size(WAL_BYTES_MAX);
        options.set_enable_pipelined_write(false);
        options.set_avoid_unnecessary_blocking_io(true);
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options.set_bytes_per_sync(MB as u64);
        options.set_compaction_readahead_size(2 * MB);
        options.set_advise_random_on_open(false);
        options.set_info_logger(health::logger());
        options.add_event_listener(Listener(health));
        options
    }

    /// The options of each space.
    pub(crate) fn spaces(&self, cache: &Cache) -> Vec<ColumnFamilyDescriptor> {
        Space::ALL
            .iter()
            .map(|&space| ColumnFamilyDescriptor::new(name_of(space), self.space(space, cache)))
            .collect()
    }

    /// The options of one space.
    pub(crate) fn space(&self, space: Space, cache: &Cache) -> Options {
        let mut options = Options::default();
        options.set_write_buffer_size(match space {
            Space::Catalog => (self.memtable_bytes / 4).max(MB),
            Space::Records | Space::Indexes => self.memtable_bytes,
        });
        options.set_max_write_buffer_number(3);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_level_zero_file_num_compaction_trigger(4);
        options.set_max_bytes_for_level_base(4 * self.memtable_bytes as u64);
        options.set_target_file_size_base(self.memtable_bytes.max(16 * MB) as u64);
        // The first level, and the levels that data reaches below some gigabytes, are cheap to
        // write.
        options.set_compression_per_level(&[
            DBCompressionType::Lz4,
            DBCompressionType::Lz4,
            DBCompressionType::Lz4,
            DBCompressionType::Zstd,
        ]);
        match space {
            // The built-in operator adds 8 little-endian bytes, wrapping; this is the same for i64.
            Space::Catalog | Space::Indexes => options.set_uint64add_merge_operator(),
            Space::Records => deltas::set_operator(&mut options),
        }
        options.set_max_successive_merges(MERGES_MAX);
        // Without this the limit applies only while the last whole value is in memory or cache.
        // Once the data outgrows the cache, it is not: every write would then walk all merges since
        // the last flush without effect.
        options.set_strict_max_successive_merges(true);
        // A record is looked up after an index returned its key, so a filter on the last level
        // never excludes anything.
        options.set_optimize_filters_for_hits(space == Space::Records);
        // Blocks of a file that a compaction has replaced are evicted with it: they are not read
        // again, and the blocks of the new file reuse their memory, which the kernel then need not
        // clear.
        options.set_uncache_aggressiveness(UNCACHE_AGGRESSIVENESS);
        // After many documents were deleted, scans would cost as much as before until four such
        // files have come together.
        options.add_compact_on_deletion_collector_factory_count_only(
            TOMBSTONES_AMONG,
            TOMBSTONES_MANY,
        );
        options.set_block_based_table_factory(&self.table(space, cache));
        options
    }

    /// The options of files that are ingested into a space: cheap to write, like flushed files.
    /// Later compactions compress them as their level requires.
    pub(crate) fn ingested(&self, space: Space, cache: &Cache) -> Options {
        let mut options = self.space(space, cache);
        options.set_compression_per_level(&[DBCompressionType::Lz4]);
        options
    }

    fn table(&self, space: Space, cache: &Cache) -> BlockBasedOptions {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(cache);
        table.set_block_size(match space {
            Space::Records => 32 << 10,
            Space::Catalog | Space::Indexes => 16 << 10,
        });
        table.set_block_restart_interval(8);
        // The keys of a block are adjacent instead of a document apart: a search touches one or two
        // cache lines.
        table.set_separate_key_value_in_data_block(space == Space::Records);
        table.set_bloom_filter(10.0, false);
        // RocksDB would read ahead whether or not the cache has the block, which costs 4% of a scan
        // of cached blocks. The operating system detects sequential reads itself.
        table.set_max_auto_readahead_size(0);
        let is_bounded = self.is_bounded || self.cache_bytes < CACHE_BYTES_TINY;
        table.set_cache_index_and_filter_blocks(is_bounded);
        table.set_pin_l0_filter_and_index_blocks_in_cache(is_bounded);
        table
    }
}

/// The name of a space's column family.
pub(crate) fn name_of(space: Space) -> &'static str {
    match space {
        Space::Catalog => "default",
        Space::Records => "records",
        Space::Indexes => "indexes",
    }
}

/// Half of the memory beyond the first gigabyte, at least 256 MB: mongod's default.
fn default_cache_bytes(memory_bytes: u64) -> usize {
    let half = memory_bytes.saturating_sub(1 << 30) / 2;
    usize::try_from(half).unwrap_or(usize::MAX).max(256 * MB)
}

/// The memory of the machine, or the limit of the container or the process if that is less; 1 GB
/// when it cannot be determined.
pub fn memory_bytes() -> u64 {
    let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let limit = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    let own = fs::read_to_string("/proc/self/limits").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Max address space"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    });
    let least = limit.unwrap_or(u64::MAX).min(own.unwrap_or(u64::MAX));
    total.unwrap_or(1 << 30).min(least)
}

/// The maximum number of open files: no limit, unless the process has a low one.
fn open_files_max() -> i32 {
    let soft = fs::read_to_string("/proc/self/limits").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        line.split_whitespace().next()?.parse::<i32>().ok()
    });
    match soft {
        Some(limit) if limit < 65_536 => (limit / 2).max(64),
        _ => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_as_large_as_that_of_mongod() {
        for (memory_gb, cache_mb) in [(0, 256), (1, 256), (2, 512), (4, 1536), (16, 7680)] {
            assert_eq!(default_cache_bytes(memory_gb << 30), cache_mb * MB, "{memory_gb} GB");
        }
        assert!(memory_bytes() >= 64 << 20);
        assert!(open_files_max() == -1 || open_files_max() >= 64);
    }
}
