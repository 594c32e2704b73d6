//! Temporary files in memory: for a server without a data folder, and for tests.

use marula_error::Result;

use super::stream::damaged;
use super::{Disk, TempFile};

/// Creates files in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryDisk;

impl Disk for MemoryDisk {
    fn create(&self) -> Result<Box<dyn TempFile>> {
        Ok(Box::new(MemoryFile(Vec::new())))
    }
}

struct MemoryFile(Vec<u8>);

impl TempFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).map_err(|_| damaged())?;
        let found = start.checked_add(bytes.len()).and_then(|end| self.0.get(start..end));
        bytes.copy_from_slice(found.ok_or_else(damaged)?);
        Ok(())
    }
}
