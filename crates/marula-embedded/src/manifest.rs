//! Checks RocksDB's list of tables, its manifest, before RocksDB reads it.
//!
//! RocksDB treats an unreadable entry as the end of a list that a crash cut short, continues with
//! fewer tables and removes the others; some damage makes its open loop forever. Each entry has a
//! checksum, in the format of the log ([`log_scan`](crate::log_scan)): only the last one may be cut
//! short, and the list may not be shorter than it has been ([`Listed`]).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use marula_storage::{Error, Result};
use parking_lot::Mutex;

use crate::checked_line::CheckedLine;
use crate::folder::Folder;
use crate::log_scan::{BLOCK_BYTES, HEADER_BYTES, LAST, WHOLE, record};

/// Checks the list of tables that a store uses, if there is one. Returns the fault of a record that
/// cannot be read, so that it is not known how long the list was.
///
/// Errors: `Corrupt` when an entry is damaged, or entries are missing; `Io`.
pub(crate) fn check(folder: &Folder) -> Result<Option<String>> {
    let store = folder.store();
    let Ok(current) = fs::read(store.join(CURRENT)) else { return Ok(None) };
    let Some(name) = list_named_by(&current) else { return Err(names_none(&store)) };
    let path = store.join(&name);
    if !path.is_file() {
        return Err(names_none(&store));
    }
    let list = fs::read(&path)?;
    if let Some(at) = damage(&list) {
        return Err(Error::Corrupt(format!(
            "the list of tables '{}' is damaged at byte {at}. Restore a backup",
            path.display()
        )));
    }
    let listed = match LISTED.read(folder.path(), Listed::parse) {
        Ok(Some(listed)) => listed,
        Ok(None) => return Ok(None),
        Err(fault) => return Ok(Some(fault)),
    };
    if number(&name) < number(&listed.name) {
        return Err(Error::Corrupt(format!(
            "'{}' names an earlier list of tables than '{}', which was in use. Restore a backup",
            store.join(CURRENT).display(),
            listed.name
        )));
    }
    if name == listed.name && (list.len() as u64) < listed.bytes {
        return Err(Error::Corrupt(format!(
            "the list of tables '{}' was cut off: it has {} bytes and had {}. Restore a backup",
            path.display(),
            list.len(),
            listed.bytes
        )));
    }
    Ok(None)
}

/// The file that names the list.
const CURRENT: &str = "CURRENT";

/// Returns the name of the list in the content of `CURRENT`; `None` if it is damaged.
fn list_named_by(current: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(current).ok()?.strip_suffix('\n')?;
    number(name).map(|_| name.to_owned())
}

fn names_none(store: &Path) -> Error {
    let path = store.join(CURRENT);
    Error::Corrupt(format!("'{}' names no list of tables: it is damaged", path.display()))
}

/// The number of a list; a newer one has a greater one.
fn number(name: &str) -> Option<u64> {
    name.strip_prefix("MANIFEST-")?.parse().ok()
}

/// The list of tables and its size, which only grows.
///
/// ```text
/// <folder>/LISTED   "listed MANIFEST-000005 00000000000000001234 7f3a9c01\n": name, bytes, their CRC-32C
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
struct Listed {
    name: String,
    bytes: u64,
}

impl Listed {
    /// The list that is in use.
    fn now(store: &Path) -> io::Result<Listed> {
        let name = list_named_by(&fs::read(store.join(CURRENT))?);
        let name = name.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let bytes = fs::metadata(store.join(&name))?.len();
        Ok(Listed { name, bytes })
    }

    fn parse(text: &str) -> Option<Listed> {
        let (name, bytes) = text.split_once(' ')?;
        Some(Listed { name: name.to_owned(), bytes: bytes.parse().ok()? })
    }
}

const LISTED: CheckedLine =
    CheckedLine { name: "LISTED", word: "listed", tells: "how long the list of tables was" };

/// Keeps the record of the list of tables of an open store. The list is synced before its size is
/// noted, so that it is never shorter.
#[derive(Debug)]
pub(crate) struct ListKeeper {
    store: PathBuf,
    file: File,
    noted: Mutex<Option<Listed>>,
}

impl ListKeeper {
    /// Opens or creates the record.
    pub(crate) fn open(folder: &Folder) -> io::Result<ListKeeper> {
        let file = LISTED.open(folder.path())?;
        Ok(ListKeeper { store: folder.store(), file, noted: Mutex::default() })
    }

    /// Records how long the list is now.
    pub(crate) fn note(&self) -> io::Result<()> {
        let listed = Listed::now(&self.store)?;
        let mut noted = self.noted.lock();
        if noted.as_ref() == Some(&listed) {
            return Ok(());
        }
        // RocksDB may have written its last entry and not synced it yet.
        File::open(self.store.join(&listed.name))?.sync_data()?;
        let text = format!("{} {:020}", listed.name, listed.bytes);
        self.file.set_len(LISTED.write(&self.file, &text)?)?;
        *noted = Some(listed);
        Ok(())
    }
}

/// The offset of the first damaged byte. A list that ends inside an entry, as a crash leaves it, is
/// not damaged.
fn damage(list: &[u8]) -> Option<usize> {
    let mut start = 0;
    for block in list.chunks(BLOCK_BYTES) {
        let mut at = 0;
        while block.len() - at >= HEADER_BYTES {
            let Some(length) = entry(&block[at..]) else {
                let is_cut_short = start + block.len() == list.len() && is_cut_short(&block[at..]);
                return (!is_cut_short).then_some(start + at);
            };
            at += HEADER_BYTES + length;
        }
        start += block.len();
    }
    None
}

/// The payload size of the entry, or part of an entry, at the start of `bytes`; `None` if it is not
/// whole.
fn entry(bytes: &[u8]) -> Option<usize> {
    let (kind, payload) = record(bytes)?;
    (WHOLE..=LAST).contains(&kind).then_some(payload.len())
}

/// Returns whether the end of a list is what a crash leaves: the beginning of an entry, followed by
/// zeros only.
fn is_cut_short(rest: &[u8]) -> bool {
    if rest.iter().all(|&byte| byte == 0) {
        return true;
    }
    let length = usize::from(u16::from_le_bytes([rest[4], rest[5]]));
    let kind = rest[6];
    if !(WHOLE..=LAST).contains(&kind) || HEADER_BYTES + length <= rest.len() {
        return false;
    }
    // An entry that is whole except for its length, or that other entries follow, was written to
    // its end.
    let mut mended = rest.to_vec();
    let ends = HEADER_BYTES..=rest.len();
    let is_whole = ends.into_iter().any(|end| {
        let Ok(length) = u16::try_from(end - HEADER_BYTES) else { return false };
        mended[4..6].copy_from_slice(&length.to_le_bytes());
        entry(&mended).is_some()
    });
    !is_whole && (1..rest.len()).all(|at| entry(&rest[at..]).is_none())
}

#[cfg(test)]
mod tests {
    use marula_storage::contract::Folder as TestFolder;

    use super::*;

    const FIRST: &str = "MANIFEST-000004";
    const SECOND: &str = "MANIFEST-000009";

    fn use_list(folder: &Folder, name: &str, list: &[u8]) {
        fs::create_dir_all(folder.store()).expect("a folder");
        fs::write(folder.store().join(name), list).expect("a list");
        fs::write(folder.store().join(CURRENT), format!("{name}\n")).expect("its name");
    }

    fn told(folder: &Folder) -> String {
        let error = check(folder).expect_err("it is refused").to_string();
        assert!(error.contains(folder.path().to_str().expect("a path")), "{error}");
        error
    }

    #[test]
    fn a_list_that_was_longer_is_cut_off() {
        let test_folder = TestFolder::new();
        let folder = Folder::open(test_folder.path()).expect("a folder");
        let (one, two) = (entry_of(b"one"), [entry_of(b"one"), entry_of(b"two")].concat());
        use_list(&folder, FIRST, &one);
        assert_eq!(check(&folder).expect("no record"), None);
        let keeper = ListKeeper::open(&folder).expect("a record");
        keeper.note().expect("it is noted");
        assert_eq!(check(&folder).expect("as noted"), None);
        use_list(&folder, FIRST, &two);
        assert_eq!(check(&folder).expect("it has grown"), None);
        keeper.note().expect("it is noted");
        use_list(&folder, FIRST, &one);
        assert!(
            told(&folder).contains("was cut off: it has 10 bytes and had 20"),
            "{}",
            told(&folder)
        );
        // A newer list may be of any length, and afterwards the earlier one is not used again.
        use_list(&folder, SECOND, &one);
        assert_eq!(check(&folder).expect("a newer one"), None);
        keeper.note().expect("it is noted");
        use_list(&folder, FIRST, &two);
        assert!(told(&folder).contains("names an earlier list"), "{}", told(&folder));
    }

    #[test]
    fn a_record_that_cannot_be_read_is_a_fault() {
        let test_folder = TestFolder::new();
        let folder = Folder::open(test_folder.path()).expect("a folder");
        use_list(&folder, FIRST, &entry_of(b"one"));
        ListKeeper::open(&folder).expect("a record").note().expect("it is noted");
        let path = folder.path().join(LISTED.name);
        let record = fs::read(&path).expect("the record");
        for at in 0..record.len() {
            let mut damaged = record.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).expect("a record");
            assert!(check(&folder).expect("it opens").is_some(), "byte {at}");
        }
        fs::write(&path, b"").expect("a record");
        assert_eq!(check(&folder).expect("it opens"), None);
    }

    fn entry_of(payload: &[u8]) -> Vec<u8> {
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&[WHOLE]), payload);
        let checksum = checksum.rotate_right(15).wrapping_add(0xA282_EAD8);
        let length = u16::try_from(payload.len()).expect("a short one");
        [&checksum.to_le_bytes()[..], &length.to_le_bytes(), &[WHOLE], payload].concat()
    }

    #[test]
    fn a_list_may_end_in_an_entry_and_is_whole_otherwise() {
        let list = [entry_of(b"one"), entry_of(b"another"), entry_of(b"the last")].concat();
        assert_eq!(damage(&list), None);
        assert_eq!(damage(&[&list[..], &[0; 100]].concat()), None);
        let last = list.len() - entry_of(b"the last").len();
        for end in last..list.len() {
            assert_eq!(damage(&list[..end]), None, "cut at {end}");
        }
        for at in 0..list.len() {
            for bit in 0..8 {
                let mut damaged = list.clone();
                damaged[at] ^= 1 << bit;
                assert!(damage(&damaged).is_some(), "bit {bit} of byte {at}");
            }
        }
    }
}
