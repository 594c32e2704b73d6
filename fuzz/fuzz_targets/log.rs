//! Any damage to the log of a store: opening it gives all that was synced, or says what is lost.
//!
//! The input is a list of changes to the log's bytes: at which place, and to what. With
//! [`OnDamage::CutOff`] the store opens with a part of the commits, the first ones.
#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use marula_embedded::{Embedded, EmbeddedOptions, OnDamage};
use marula_storage::contract::Folder;
use marula_storage::{Direction, KeyRange, Space, Store, View};

const COMMITS: u32 = 60;

/// The folder of a store that was killed: its files but for the log, and the log.
struct Killed {
    files: Vec<(PathBuf, Vec<u8>)>,
    log: (PathBuf, Vec<u8>),
}

static KILLED: LazyLock<Killed> = LazyLock::new(|| {
    let folder = Folder::new();
    let store = Embedded::open(options(folder.path())).expect("the store opens");
    for number in 0..COMMITS {
        let mut txn = store.begin();
        txn.put(Space::Records, &number.to_be_bytes(), &[number as u8; 30]);
        // A record of a log spans blocks of 32 KB.
        if number % 20 == 7 {
            txn.put(Space::Indexes, &number.to_be_bytes(), &vec![number as u8; 40_000]);
        }
        store.sync(txn.commit().expect("it is written")).expect("it is synced");
    }
    let mut files = Vec::new();
    gather(folder.path(), Path::new(""), &mut files);
    drop(store);
    let is_log = |path: &Path| path.extension().is_some_and(|extension| extension == "log");
    let (mut logs, files): (Vec<_>, Vec<_>) = files.into_iter().partition(|it| is_log(&it.0));
    logs.retain(|(_, bytes)| !bytes.is_empty());
    assert_eq!(logs.len(), 1);
    Killed { files, log: logs.remove(0) }
});

fuzz_target!(|bytes: &[u8]| {
    let (path, log) = &KILLED.log;
    let mut log = log.clone();
    for change in bytes.chunks_exact(5) {
        let &[place_low, place, place_high, kind, value] = change else { continue };
        let place = u32::from_le_bytes([place_low, place, place_high, 0]) as usize;
        let place = place % log.len().max(1);
        match kind % 4 {
            0 | 1 if !log.is_empty() => log[place] ^= value,
            2 => log.truncate(place),
            _ => {
                log.splice(place..place, (0..value).map(|byte| byte ^ kind));
            }
        }
    }
    let is_whole = log == KILLED.log.1;
    let folder = Folder::new();
    for (path, bytes) in
        KILLED.files.iter().map(|(path, bytes)| (path, bytes)).chain([(path, &log)])
    {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
        fs::write(path, bytes).expect("it is written");
    }
    match Embedded::open(options(folder.path())) {
        Ok(store) => assert_eq!(commits(&store), COMMITS, "acknowledged commits are lost silently"),
        Err(_) => {
            assert!(!is_whole, "an undamaged store does not open");
            let options = EmbeddedOptions { on_damage: OnDamage::CutOff, ..options(folder.path()) };
            if let Ok(store) = Embedded::open(options) {
                commits(&store);
            }
        }
    }
});

/// Returns the number of commits in the store, which must be the first ones, each whole.
fn commits(store: &Embedded) -> u32 {
    let range = KeyRange { start: Vec::new(), end: vec![0xFF; 8] };
    let mut cursor = store.cursor(Space::Records, &range, Direction::Forward).expect("a cursor");
    let mut count: u32 = 0;
    while cursor.advance().expect("what was replayed is read") {
        assert_eq!(cursor.key(), count.to_be_bytes(), "a commit is missing before this one");
        assert_eq!(cursor.value(), [count as u8; 30]);
        if count % 20 == 7 {
            let mut length = 0;
            store
                .get(Space::Indexes, &count.to_be_bytes(), &mut |bytes| length = bytes.len())
                .expect("it is read");
            assert_eq!(length, 40_000, "half of a commit");
        }
        count += 1;
    }
    count
}

fn options(path: &Path) -> EmbeddedOptions {
    let mut options = EmbeddedOptions::new(path);
    options.cache_bytes = 1 << 20;
    options.memtable_bytes = 1 << 20;
    options.background_jobs = 2;
    options
}

/// Reads all files of a folder, with their paths in it.
fn gather(folder: &Path, inner: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder.join(inner)).expect("it is there") {
        let entry = entry.expect("a file");
        let path = inner.join(entry.file_name());
        match entry.file_type().expect("its kind").is_dir() {
            true => gather(folder, &path, files),
            false => files.push((path, fs::read(entry.path()).expect("it reads"))),
        }
    }
}
