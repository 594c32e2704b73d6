//! Bulk work on ranges: ingesting, dropping, compacting.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use marula_storage::{Direction, Error, KeyRange, Result, Space};
use rust_rocksdb::{
    BottommostLevelCompaction, CompactOptions, IngestExternalFileOptions, SstFileWriter, WriteBatch,
};

use crate::clock::Clock;
use crate::engine::{Embedded, Engine};
use crate::error::from_rocksdb;
use crate::scan::open_newest;

/// The maximum size of an ingested file, so that later compactions need not rewrite all of it.
const INGEST_FILE_BYTES: u64 = 128 << 20;

/// About the size of a commit of keys that are ingested through the log.
const LOGGED_BATCH_BYTES: usize = 1 << 20;

/// The approximate size of one step of a compaction; between steps it can be stopped.
const COMPACT_STEP_BYTES: u64 = 256 << 20;

/// The time that a compaction waits for another one before it checks whether it is still wanted.
const TURN_WAIT: Duration = Duration::from_millis(20);

/// Writes the next key and value into the buffers; returns `false` at the end.
type Next<'n> = &'n mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> Result<bool>;

/// Writes sorted files and ingests them into the store, all or none. If the log is followed, the
/// keys are written through the log instead, which costs more.
pub(crate) fn ingest(engine: &Engine, space: Space, next: Next) -> Result<()> {
    let _files = engine.files.change();
    let _writing = engine.gaps.fill_all(space);
    if let Some(clock) = &engine.clock {
        return write_logged(engine, clock, space, next);
    }
    let files = SortedFiles::new(engine)?;
    let paths = files.write(engine, space, next)?;
    if paths.is_empty() {
        return Ok(());
    }
    let mut options = IngestExternalFileOptions::default();
    options.set_move_files(true);
    let column = engine.column(space);
    engine.db.ingest_external_file_cf_opts(column, &options, paths).map_err(from_rocksdb)
}

/// Writes keys in commits of a bounded size. The caller drops the range when it fails: a part
/// of it may be there.
fn write_logged(engine: &Engine, clock: &Clock, space: Space, next: Next) -> Result<()> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut batch = WriteBatch::default();
    let mut is_more = true;
    while is_more {
        is_more = next(&mut key, &mut value)?;
        if is_more {
            batch.put_cf(engine.column(space), &key, &value);
        }
        if batch.size_in_bytes() >= LOGGED_BATCH_BYTES || (!is_more && !batch.is_empty()) {
            clock.mark(&mut batch);
            engine.db.write_opt(&batch, &engine.write_options).map_err(from_rocksdb)?;
            batch.clear();
        }
    }
    Ok(())
}

/// The folder of one ingestion's files; dropping it removes the folder with the files left in it.
struct SortedFiles {
    path: PathBuf,
}

impl SortedFiles {
    fn new(engine: &Engine) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = COUNT.fetch_add(1, Ordering::Relaxed).to_string();
        let path = engine.folder.ingest().join(name);
        fs::create_dir_all(&path)?;
        Ok(SortedFiles { path })
    }

    /// Writes all files and returns their paths.
    fn write(&self, engine: &Engine, space: Space, next: Next) -> Result<Vec<PathBuf>> {
        let options = &engine.spaces[space as usize];
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut paths = Vec::new();
        let mut is_more = next(&mut key, &mut value)?;
        while is_more {
            let path = self.path.join(format!("{}.sst", paths.len()));
            let mut writer = SstFileWriter::create(options);
            writer.open(&path).map_err(from_rocksdb)?;
            while is_more && writer.file_size() < INGEST_FILE_BYTES {
                writer.put(&key, &value).map_err(from_rocksdb)?;
                is_more = next(&mut key, &mut value)?;
            }
            writer.finish().map_err(from_rocksdb)?;
            paths.push(path);
        }
        Ok(paths)
    }
}

impl Drop for SortedFiles {
    fn drop(&mut self) {
        // If this fails, the next open removes the folder.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes a range: whole files at once unless open views need them, the rest by a range tombstone
/// that compactions apply.
pub(crate) fn drop_range(engine: &Engine, space: Space, range: &KeyRange) -> Result<()> {
    if range.start >= range.end {
        return Ok(());
    }
    if space == Space::Records {
        engine.records.remove_ranges(std::slice::from_ref(range));
    }
    let _files = engine.files.change();
    let column = engine.column(space);
    let last = below(&range.end);
    let is_viewed = {
        let mut views = engine.views.lock();
        if views.count > 0 {
            views.dropped.push((space, range.clone()));
        }
        views.count > 0
    };
    if !is_viewed && range.start < last {
        engine.db.delete_file_in_range_cf(column, &range.start, &last).map_err(from_rocksdb)?;
        engine.health.files_version.fetch_add(1, Ordering::Relaxed);
    }
    let mut cursor = open_newest(engine, space, range, Direction::Forward);
    // An unreadable range can still be dropped.
    if matches!(cursor.advance(), Ok(false)) {
        return Ok(());
    }
    drop(cursor);
    let (start, end) = (&range.start, &range.end);
    let mut batch = WriteBatch::default();
    batch.delete_range_cf(column, start, end);
    if let Some(clock) = &engine.clock {
        clock.mark(&mut batch);
    }
    engine.db.write_opt(&batch, &engine.write_options).map_err(from_rocksdb)?;
    // Only a hint: ranges that are not marked are compacted later.
    let _ = engine.db.suggest_compact_range_cf(column, Some(start), Some(end));
    Ok(())
}

/// A key less than `end` and greater than any key that is likely stored below it. RocksDB deletes
/// files up to and including a key, and `end` belongs to another range.
fn below(end: &[u8]) -> Vec<u8> {
    let mut key = end.to_vec();
    match key.pop() {
        Some(0) | None => {}
        Some(last) => {
            key.push(last - 1);
            key.extend_from_slice(&[0xFF; 64]);
        }
    }
    key
}

/// Rewrites a range down to the last level, with the compression for data at rest.
pub(crate) fn compact(
    store: &Embedded,
    space: Space,
    range: &KeyRange,
    progress: &mut dyn FnMut() -> bool,
) -> Result<()> {
    if range.start >= range.end || !progress() {
        return Ok(());
    }
    let engine = &*store.engine;
    let stats = store.estimates.range_stats(engine, space, range)?;
    let steps = usize::try_from(stats.disk_bytes / COMPACT_STEP_BYTES).unwrap_or(1) + 1;
    let mut edges = vec![range.start.clone()];
    edges.extend(store.estimates.split_points(engine, space, range, steps)?);
    edges.push(range.end.clone());
    // One compaction at a time: they share the option for dense compression.
    let _turn = loop {
        if let Some(turn) = engine.compaction.try_lock_for(TURN_WAIT) {
            break turn;
        }
        if !progress() {
            return Ok(());
        }
    };
    let _dense = Dense::start(engine, space)?;
    let mut options = CompactOptions::default();
    options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
    options.set_exclusive_manual_compaction(false);
    for edge in edges.windows(2) {
        let _files = engine.files.change();
        // The end belongs to the next step; compacting it twice is harmless.
        let column = engine.column(space);
        engine.db.compact_range_cf_opt(column, Some(&edge[0]), Some(&edge[1]), &options);
        // RocksDB's C interface does not return the result; a background failure is recorded.
        if let Some(text) = engine.health.error() {
            return Err(from_background(text));
        }
        if !progress() {
            return Ok(());
        }
    }
    Ok(())
}

fn from_background(text: String) -> Error {
    if text.starts_with("Corruption") {
        Error::Corrupt(text)
    } else if crate::error::is_full(&text) {
        Error::Full(text)
    } else {
        Error::Io(std::io::Error::other(text))
    }
}

/// While it exists, compactions of a space write their last level with dense compression.
struct Dense<'e> {
    engine: &'e Engine,
    space: Space,
}

impl<'e> Dense<'e> {
    fn start(engine: &'e Engine, space: Space) -> Result<Self> {
        set_bottommost(engine, space, "kZSTD")?;
        Ok(Dense { engine, space })
    }
}

impl Drop for Dense<'_> {
    fn drop(&mut self) {
        // If this fails, later compactions are denser and slower than intended until the next open.
        let _ = set_bottommost(self.engine, self.space, "kDisableCompressionOption");
    }
}

fn set_bottommost(engine: &Engine, space: Space, compression: &str) -> Result<()> {
    let options = [("bottommost_compression", compression)];
    engine.db.set_options_cf(engine.column(space), &options).map_err(from_rocksdb)
}
