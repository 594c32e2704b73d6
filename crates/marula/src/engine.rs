//! Opening a store: the only place that knows the engines by name.

use std::path::Path;
use std::sync::Arc;

use marula_storage::Store;
use marula_storage::memory::Memory;

use crate::Failure;
use crate::settings::EngineKind;

/// Opens the store in the folder `dbpath`, which is made if it is not there.
pub(crate) fn open(
    kind: EngineKind,
    dbpath: &Path,
    cache_bytes: Option<usize>,
) -> Result<Arc<dyn Store>, Failure> {
    match kind {
        EngineKind::Memory => Ok(Arc::new(Memory::new())),
        EngineKind::RocksDb => open_folder(dbpath, cache_bytes),
    }
}

/// How much memory operations may take together: three quarters of what the cache leaves.
#[cfg(feature = "rocksdb")]
pub(crate) fn operation_bytes_max(cache_bytes: Option<usize>) -> usize {
    let memory = usize::try_from(marula_embedded::memory_bytes()).unwrap_or(usize::MAX);
    let cache =
        cache_bytes.unwrap_or_else(|| marula_embedded::EmbeddedOptions::new("").cache_bytes);
    (memory.saturating_sub(cache) / 4 * 3).max(OPERATION_BYTES_LEAST)
}

/// As much as there is.
#[cfg(not(feature = "rocksdb"))]
pub(crate) fn operation_bytes_max(_: Option<usize>) -> usize {
    usize::MAX
}

/// Operations may take so much together, however little memory there is: a reply and its request, some times over.
#[cfg(feature = "rocksdb")]
const OPERATION_BYTES_LEAST: usize = 256 * 1024 * 1024;

/// Opens the store in the folder `dbpath` to be read: nothing in it changes.
#[cfg(feature = "rocksdb")]
pub(crate) fn open_to_read(dbpath: &Path) -> Result<Arc<dyn Store>, Failure> {
    let mut options = marula_embedded::EmbeddedOptions::new(dbpath);
    options.is_read_only = true;
    let store = marula_embedded::Embedded::open(options)
        .map_err(|error| format!("cannot open data folder '{}': {error}", dbpath.display()))?;
    Ok(Arc::new(store))
}

/// Says that there is no engine for data on disk.
#[cfg(not(feature = "rocksdb"))]
pub(crate) fn open_to_read(_: &Path) -> Result<Arc<dyn Store>, Failure> {
    Err("this build has no engine for data on disk".to_owned())
}

#[cfg(feature = "rocksdb")]
fn open_folder(dbpath: &Path, cache_bytes: Option<usize>) -> Result<Arc<dyn Store>, Failure> {
    let mut options = marula_embedded::EmbeddedOptions::new(dbpath);
    if let Some(cache_bytes) = cache_bytes {
        options.cache_bytes = cache_bytes;
    }
    let store = marula_embedded::Embedded::open(options)
        .map_err(|error| format!("cannot open data folder '{}': {error}", dbpath.display()))?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "rocksdb"))]
fn open_folder(_: &Path, _: Option<usize>) -> Result<Arc<dyn Store>, Failure> {
    Err("this build has no engine for data on disk; say --storage-engine memory".to_owned())
}
