//! Scans RocksDB's log before RocksDB replays it, since RocksDB would cut it off at damage and
//! continue.
//!
//! After a crash of the process the log ends inside the last write; after a power failure the part
//! that was not synced may be damaged too. Damage before the last sync loses acknowledged writes
//! and is reported. [`Synced`] is the sequence number of the last sync, in a file of its own.
//!
//! ```text
//! log file   blocks of 32,768 bytes; no record crosses the end of a block;
//!            fewer than 7 bytes at its end are unused
//! record     checksum u32 (masked CRC-32C of kind and payload), length u16, kind u8, payload;
//!            little-endian
//! kind       1 whole; 2, 3, 4 first, middle and last part of a batch; others are RocksDB's
//! batch      sequence number of its first entry u64, number of entries u32, entries
//! ```

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::checked_line::CheckedLine;

pub(crate) const BLOCK_BYTES: usize = 32 << 10;
pub(crate) const HEADER_BYTES: usize = 7;

pub(crate) const WHOLE: u8 = 1;
pub(crate) const FIRST: u8 = 2;
pub(crate) const MIDDLE: u8 = 3;
pub(crate) const LAST: u8 = 4;

/// The unreadable end of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Damage {
    /// The damaged file.
    pub(crate) path: PathBuf,
    /// The first byte that is not replayed.
    pub(crate) at: u64,
    /// The number of bytes from there to the end of the log, including later files.
    pub(crate) bytes: u64,
    /// Readable writes after the damage, which are not replayed either.
    pub(crate) later_writes: u64,
    /// Whether a process that ended while writing explains the damage: the last file ends inside a
    /// write.
    pub(crate) is_cut_short: bool,
}

/// The result of a scan.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct LogScan {
    /// The last sequence number that is replayed; 0 when the log is empty.
    pub(crate) last_sequence: u64,
    /// The damage, if any.
    pub(crate) damage: Option<Damage>,
}

/// Scans the log files of a store, oldest first.
pub(crate) fn scan(store: &Path) -> io::Result<LogScan> {
    let mut scan = LogScan::default();
    for path in log_files(store)? {
        let mut file = File::open(&path)?;
        let length = file.metadata()?.len();
        let mut reader = Reader::new(&mut scan, &path, length);
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        loop {
            block.clear();
            (&mut file).take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
            if block.is_empty() {
                break;
            }
            reader.block(&block);
        }
        reader.end();
    }
    Ok(scan)
}

/// Bytes of the log that an open replays.
pub(crate) fn log_bytes(store: &Path) -> u64 {
    let files = log_files(store).unwrap_or_default();
    files.iter().filter_map(|path| fs::metadata(path).ok()).map(|file| file.len()).sum()
}

/// The log files, ordered by number.
pub(crate) fn log_files(store: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(numbered_log_files(store)?.into_iter().map(|(_, path)| path).collect())
}

/// The log files of a folder with their numbers, in their order; none where there is no folder.
pub(crate) fn numbered_log_files(store: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(store) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".log"));
        if let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) {
            files.push((number, path));
        }
    }
    files.sort();
    Ok(files)
}

/// Reads the blocks of one file.
struct Reader<'s> {
    scan: &'s mut LogScan,
    path: &'s Path,
    length: u64,
    /// The offset of the next block.
    offset: u64,
    /// The offset of a batch that has been read in part, and its last sequence number.
    part: Option<(u64, u64)>,
}

impl<'s> Reader<'s> {
    fn new(scan: &'s mut LogScan, path: &'s Path, length: u64) -> Self {
        if let Some(damage) = &mut scan.damage {
            damage.bytes += length;
        }
        Reader { scan, path, length, offset: 0, part: None }
    }

    fn block(&mut self, block: &[u8]) {
        let mut at = 0;
        while block.len() - at >= HEADER_BYTES {
            match record(&block[at..]) {
                Some((kind, payload)) => {
                    self.record(self.offset + at as u64, kind, payload);
                    at += HEADER_BYTES + payload.len();
                }
                None => {
                    let is_zero = block[at..].iter().all(|&byte| byte == 0);
                    let is_cut_short = is_zero || is_longer(&block[at..], block.len());
                    self.damaged(self.offset + at as u64, is_cut_short);
                    // The next record boundary is unknown until the next block, so each offset is
                    // tried.
                    at += 1;
                }
            }
        }
        let rest = &block[at..];
        if block.len() < BLOCK_BYTES && rest.iter().any(|&byte| byte != 0) {
            self.damaged(self.offset + at as u64, true);
        }
        self.offset += block.len() as u64;
    }

    fn record(&mut self, at: u64, kind: u8, payload: &[u8]) {
        match (kind, self.part.take()) {
            (WHOLE, None) => self.batch(last_sequence(payload)),
            (FIRST, None) => match last_sequence(payload) {
                // Sequence number and count fit into any first part, except at the very end of a
                // block.
                None => self.part = Some((at, 0)),
                Some(last) => self.part = Some((at, last)),
            },
            (MIDDLE, Some(part)) => self.part = Some(part),
            (LAST, Some((_, last))) => self.batch(Some(last)),
            // After damage, parts of a batch without its beginning are ignored.
            (MIDDLE | LAST, None) if self.scan.damage.is_some() => {}
            (WHOLE | FIRST, Some((begin, _))) => {
                self.damaged(begin, false);
                self.record(at, kind, payload);
            }
            (MIDDLE | LAST, None) => self.damaged(at, false),
            // RocksDB's own notes are placed between batches.
            (_, part) => self.part = part,
        }
    }

    fn batch(&mut self, last: Option<u64>) {
        let scan = &mut *self.scan;
        match (&mut scan.damage, last) {
            (Some(damage), _) => {
                damage.later_writes += 1;
                damage.is_cut_short = false;
            }
            (None, Some(last)) => scan.last_sequence = scan.last_sequence.max(last),
            (None, None) => {}
        }
    }

    /// Records the first damage; `at` is the offset of its record.
    fn damaged(&mut self, at: u64, is_cut_short: bool) {
        let at = self.part.take().map_or(at, |(begin, _)| begin);
        if self.scan.damage.is_none() {
            self.scan.damage = Some(Damage {
                path: self.path.to_path_buf(),
                at,
                bytes: self.length - at,
                later_writes: 0,
                is_cut_short,
            });
        }
    }

    fn end(&mut self) {
        if let Some((begin, _)) = self.part {
            self.damaged(begin, true);
        }
    }
}

/// The kind and payload of the record at the start of `bytes`, if it is whole.
pub(crate) fn record(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    let stored = u32::from_le_bytes(header[..4].try_into().ok()?);
    let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
    let kind = header[6];
    let payload = rest.get(..length)?;
    if kind == 0 {
        return None;
    }
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&[kind]), payload);
    (checksum.rotate_right(15).wrapping_add(0xA282_EAD8) == stored).then_some((kind, payload))
}

/// Returns whether a record at the start of `bytes`, which end a block of `block_bytes`, would
/// exceed the end of the file.
fn is_longer(bytes: &[u8], block_bytes: usize) -> bool {
    let length = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
    block_bytes < BLOCK_BYTES && HEADER_BYTES + length > bytes.len()
}

/// The sequence number of a batch's last entry.
fn last_sequence(payload: &[u8]) -> Option<u64> {
    let first = u64::from_le_bytes(payload.get(..8)?.try_into().ok()?);
    let count = u32::from_le_bytes(payload.get(8..12)?.try_into().ok()?);
    Some(first.saturating_add(u64::from(count)).saturating_sub(1))
}

/// The sequence number of the last sync, in a file of its own.
///
/// ```text
/// <folder>/SYNCED   "synced 00000000000000000042 7f3a9c01\n": the number, its CRC-32C
/// ```
///
/// The file is written after each sync. A loss in the seconds before a power failure is not
/// detected.
#[derive(Debug)]
pub(crate) struct Synced {
    file: File,
}

const SYNCED: CheckedLine =
    CheckedLine { name: "SYNCED", word: "synced", tells: "how far the log was synced" };

impl Synced {
    /// Opens or creates the file.
    pub(crate) fn open(folder: &Path) -> io::Result<Synced> {
        Ok(Synced { file: SYNCED.open(folder)? })
    }

    /// Records that all writes up to `sequence` are synced.
    pub(crate) fn note(&self, sequence: u64) -> io::Result<()> {
        SYNCED.write(&self.file, &format!("{sequence:020}")).map(drop)
    }

    /// The number in the file of a folder; `None` when there is no file.
    ///
    /// Errors: as of [`CheckedLine::read`].
    pub(crate) fn read(folder: &Path) -> Result<Option<u64>, String> {
        SYNCED.read(folder, |text| text.parse().ok())
    }
}
