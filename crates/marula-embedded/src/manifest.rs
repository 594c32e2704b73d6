//! Checks RocksDB's list of tables, its manifest, before RocksDB reads it.
//!
//! RocksDB treats an unreadable entry as the end of a list that a crash cut short, continues with
//! fewer tables and removes the others; some damage makes its open loop forever. Each entry has a
//! checksum, in the format of the log ([`log_scan`](crate::log_scan)): only the last one may be cut
//! short.

use std::fs;
use std::path::Path;

use marula_storage::{Error, Result};

use crate::log_scan::{BLOCK_BYTES, HEADER_BYTES, LAST, WHOLE, record};

/// Checks the list of tables that a store uses, if there is one.
///
/// Errors: `Corrupt` when an entry is damaged; `Io`.
pub(crate) fn check(store: &Path) -> Result<()> {
    let Ok(current) = fs::read(store.join("CURRENT")) else { return Ok(()) };
    let name = String::from_utf8_lossy(&current);
    let path = store.join(name.trim_end());
    let is_named = name.starts_with("MANIFEST-") && name.ends_with('\n');
    if !is_named || !path.is_file() {
        let path = store.join("CURRENT");
        let text = format!("'{}' names no list of tables: it is damaged", path.display());
        return Err(Error::Corrupt(text));
    }
    match damage(&fs::read(&path)?) {
        None => Ok(()),
        Some(at) => Err(Error::Corrupt(format!(
            "the list of tables '{}' is damaged at byte {at}. Restore a backup",
            path.display()
        ))),
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
    use super::*;

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
