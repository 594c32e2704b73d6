//! Streams of records in a temporary file. Several streams share one file: each is a list of
//! blocks, whose positions and checksums stay in memory, so that damaged data is noticed.
//!
//! ```text
//! block   records, one after another; about 64 KB, more if one record is larger
//! record  length (4 bytes, little-endian), bytes
//! ```

use std::sync::Arc;

use marula_error::{Result, errors};

use super::{Disk, TempFile};

/// The size at which a block is written.
const BLOCK_BYTES: usize = 64 * 1024;

errors! {
    /// A temporary file does not return the data that was written.
    pub damaged() = 8_000_010, "a temporary file is damaged";
}

/// A temporary file of streams.
pub(crate) struct SpillFile {
    file: Box<dyn TempFile>,
    end: u64,
}

impl SpillFile {
    pub(crate) fn create(disk: &Arc<dyn Disk>) -> Result<Self> {
        Ok(SpillFile { file: disk.create()?, end: 0 })
    }
}

/// The position of a block of a stream.
#[derive(Clone, Copy)]
struct Block {
    offset: u64,
    len: u32,
    checksum: u32,
}

/// A stream that has been written.
#[derive(Default)]
pub(crate) struct Stream(Vec<Block>);

/// A stream that is being written.
#[derive(Default)]
pub(crate) struct Writer {
    buffer: Vec<u8>,
    blocks: Vec<Block>,
}

impl Writer {
    /// Adds a record, in parts.
    pub(crate) fn push(&mut self, file: &mut SpillFile, parts: &[&[u8]]) -> Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let len = u32::try_from(len).expect("a record is a document or two and their keys");
        self.buffer.extend_from_slice(&len.to_le_bytes());
        parts.iter().for_each(|part| self.buffer.extend_from_slice(part));
        if self.buffer.len() >= BLOCK_BYTES { self.flush(file) } else { Ok(()) }
    }

    fn flush(&mut self, file: &mut SpillFile) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        file.file.append(&self.buffer)?;
        self.blocks.push(Block {
            offset: file.end,
            len: u32::try_from(self.buffer.len()).expect("a block is about as large as a record"),
            checksum: crc32c::crc32c(&self.buffer),
        });
        file.end += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the stream.
    pub(crate) fn finish(mut self, file: &mut SpillFile) -> Result<Stream> {
        self.flush(file)?;
        Ok(Stream(self.blocks))
    }
}

/// A stream that is being read.
pub(crate) struct Reader {
    blocks: std::vec::IntoIter<Block>,
    buffer: Vec<u8>,
    /// The start and end of the record that was read last.
    start: usize,
    end: usize,
}

impl Reader {
    pub(crate) fn new(stream: Stream) -> Self {
        Reader { blocks: stream.0.into_iter(), buffer: Vec::new(), start: 0, end: 0 }
    }

    /// Moves to the next record; returns `false` if there is none.
    pub(crate) fn advance(&mut self, file: &SpillFile) -> Result<bool> {
        if self.end == self.buffer.len() {
            let Some(block) = self.blocks.next() else { return Ok(false) };
            self.buffer.resize(block.len as usize, 0);
            file.file.read_at(block.offset, &mut self.buffer)?;
            if crc32c::crc32c(&self.buffer) != block.checksum {
                return Err(damaged());
            }
            self.end = 0;
        }
        let rest = &self.buffer[self.end..];
        let (len, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        let len = u32::from_le_bytes(*len) as usize;
        if len > rest.len() {
            return Err(damaged());
        }
        self.start = self.end + size_of::<u32>();
        self.end = self.start + len;
        Ok(true)
    }

    /// Returns the current record.
    pub(crate) fn record(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }
}
