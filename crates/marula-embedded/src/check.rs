//! The engine's part of `validate` and `marula check`.

use marula_storage::{Direction, Error, KeyRange, Result, Space};
use rust_rocksdb::ReadOptions;

use crate::engine::Engine;
use crate::scan::{BEFORE_ALL, open_cursor};

/// The maximum number of faults reported per space; the first ones show what is wrong.
const LINES_MAX: usize = 100;

/// Reads every block of every file and every key of every space; returns one line per fault.
pub(crate) fn check(engine: &Engine) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    wrong.extend(engine.loss.faults.iter().map(|fault| format!("log: {fault}")));
    if let Some(error) = engine.health.error() {
        wrong.push(format!("background error: {error}"));
    }
    if let Err(error) = engine.db.verify_checksum() {
        wrong.push(format!("checksum: {error}"));
    }
    for space in Space::ALL {
        match check_order(engine, space) {
            Ok(lines) => wrong.extend(lines),
            Err(Error::Corrupt(text)) => wrong.push(format!("{space:?}: {text}")),
            Err(error) => return Err(error),
        }
    }
    Ok(wrong)
}

/// Walks a space and reports keys that do not ascend.
fn check_order(engine: &Engine, space: Space) -> Result<Vec<String>> {
    let mut options = ReadOptions::default();
    // A walk over everything must not evict the blocks of other readers, and relies on no gaps.
    options.fill_cache(false);
    let range = KeyRange { start: Vec::new(), end: vec![0xFF; 64] };
    let mut cursor = open_cursor(engine, (BEFORE_ALL, options), space, &range, Direction::Forward);
    let mut last: Option<Vec<u8>> = None;
    let mut wrong = Vec::new();
    while cursor.advance()? && wrong.len() < LINES_MAX {
        let key = cursor.key();
        if last.as_deref().is_some_and(|last| last >= key) {
            wrong.push(format!("{space:?}: key {key:02x?} is not greater than the key before it"));
        }
        let last = last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }
    Ok(wrong)
}
