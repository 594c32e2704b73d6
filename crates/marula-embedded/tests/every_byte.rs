//! Damages every byte of a small store in turn: each read returns an error or exactly the data
//! written.

use std::fs;
use std::path::{Path, PathBuf};

use marula_embedded::{Embedded, EmbeddedOptions};
use marula_storage::contract::Folder;
use marula_storage::{Direction, KeyRange, Looked, Result, Space, Store, View};

/// The numbers of all keys written; some are removed again.
const NUMBERS: std::ops::Range<u8> = 0..24;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn key(number: u8) -> Vec<u8> {
    vec![1, number]
}

fn options(path: &Path, is_read_only: bool) -> EmbeddedOptions {
    let mut options = EmbeddedOptions::new(path);
    options.cache_bytes = 1 << 20;
    options.memtable_bytes = 1 << 20;
    options.background_jobs = 2;
    options.is_read_only = is_read_only;
    options
}

fn write(path: &Path, work: impl FnOnce(&mut dyn marula_storage::Txn)) {
    let store = Embedded::open(options(path, false)).expect("the store opens");
    let mut txn = store.begin();
    work(&mut *txn);
    store.sync(txn.commit().expect("it is written")).expect("it is synced");
    store.close().expect("it closes");
}

/// A store of two tables, the second with a range that is removed from the first.
fn written(folder: &Folder) -> Entries {
    write(folder.path(), |txn| {
        NUMBERS.for_each(|number| txn.put(Space::Records, &key(number), &[number; 40]));
    });
    // Opening the store again writes its log into a table.
    write(folder.path(), |txn| {
        txn.clear_range(Space::Records, &KeyRange { start: key(8), end: key(12) });
        txn.delete(Space::Records, &key(20));
        txn.put(Space::Records, &key(3), b"anew");
        // One splice: of 40 bytes, from the first one on, one is replaced by one.
        let head = [40_u32, 0, 1, 1].map(u32::to_le_bytes).concat();
        let changed = [&[9], &[4; 39][..]].concat();
        txn.change(Space::Records, &key(4), &changed, &[&head[..], &[9]].concat());
    });
    write(folder.path(), |txn| txn.put(Space::Catalog, b"last", b"in the log"));
    read(folder.path()).expect("an undamaged store is read")
}

/// All data of a store, read through every interface.
fn read(path: &Path) -> Result<Entries> {
    let store = Embedded::open(options(path, true))?;
    let range = KeyRange { start: Vec::new(), end: vec![0xFF; 64] };
    let entries = scanned(&store, &range, Direction::Forward)?;
    let mut backwards = scanned(&store, &range, Direction::Backward)?;
    backwards.reverse();
    assert_eq!(entries, backwards, "one direction has other entries than the other");
    let found = |number: u8| {
        let key = key(number);
        entries.iter().find(|(stored, _)| *stored == key).map(|(_, value)| value.as_slice())
    };
    let keys: Vec<_> = NUMBERS.map(key).collect();
    let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    let many = store.get_many(Space::Records, &keys)?;
    for number in NUMBERS {
        let mut value = None;
        store.get(Space::Records, &key(number), &mut |bytes| value = Some(bytes.to_vec()))?;
        assert_eq!(value.as_deref(), found(number), "get finds other than a cursor");
        match many.get(usize::from(number)) {
            Looked::Unread => {}
            Looked::Absent => assert_eq!(found(number), None),
            Looked::Found(bytes) => assert_eq!(found(number), Some(bytes)),
        }
    }
    let mut all = entries;
    store
        .get(Space::Catalog, b"last", &mut |bytes| all.push((b"last".to_vec(), bytes.to_vec())))?;
    Ok(all)
}

fn scanned(store: &Embedded, range: &KeyRange, direction: Direction) -> Result<Entries> {
    let mut cursor = store.cursor(Space::Records, range, direction)?;
    let mut entries = Entries::new();
    loop {
        match cursor.advance() {
            Ok(true) => entries.push((cursor.key().to_vec(), cursor.value().to_vec())),
            Ok(false) => return Ok(entries),
            Err(error) => {
                assert!(!cursor.is_on());
                cursor.advance().expect_err("what could not be read is not the end");
                cursor.pass(1).expect_err("what could not be read is not the end");
                return Err(error);
            }
        }
    }
}

/// The store's files whose names have one of these prefixes or suffixes.
fn files(folder: &Folder, parts: &[&str]) -> Vec<PathBuf> {
    let all = fs::read_dir(folder.path().join("store")).expect("it is there");
    let mut paths: Vec<_> = all.map(|file| file.expect("a file").path()).collect();
    paths.retain(|path| {
        let name = path.file_name().expect("a name").to_string_lossy();
        parts.iter().any(|part| name.starts_with(part) || name.ends_with(part))
    });
    paths.sort();
    paths
}

/// Damages bytes of a file in turn, `step` apart; returns how often the damage was reported.
fn damage_each(folder: &Folder, path: &Path, step: usize, entries: &Entries) -> usize {
    let mut told = 0;
    let bytes = fs::read(path).expect("it reads");
    for at in (0..bytes.len()).step_by(step) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(path, &damaged).expect("it is damaged");
        match read(folder.path()) {
            Err(_) => told += 1,
            Ok(found) => assert!(
                found == *entries,
                "byte {at} of '{}': {} entries in place of {}",
                path.display(),
                found.len(),
                entries.len()
            ),
        }
    }
    fs::write(path, bytes).expect("it is mended");
    told
}

#[test]
fn each_damaged_byte_of_a_table_is_told_or_harms_nothing() {
    let folder = Folder::new();
    let entries = written(&folder);
    let tables = files(&folder, &[".sst"]);
    let (newest, older) = tables.split_last().expect("there are tables");
    assert!(!older.is_empty());
    assert!(damage_each(&folder, newest, 1, &entries) > 0);
    for table in older {
        assert!(damage_each(&folder, table, 11, &entries) > 0);
    }
}

#[test]
fn each_damaged_byte_of_the_list_of_tables_is_told_or_harms_nothing() {
    let folder = Folder::new();
    let entries = written(&folder);
    for path in files(&folder, &["MANIFEST", "CURRENT"]) {
        assert!(damage_each(&folder, &path, 1, &entries) > 0);
    }
    for path in files(&folder, &["OPTIONS", "IDENTITY"]) {
        damage_each(&folder, &path, 997, &entries);
    }
}

#[test]
fn each_damaged_byte_of_the_log_is_told_or_ends_it() {
    let folder = Folder::new();
    let store = Embedded::open(options(folder.path(), false)).expect("the store opens");
    for number in NUMBERS {
        let mut txn = store.begin();
        txn.put(Space::Records, &key(number), b"in the log");
        store.sync(txn.commit().expect("it is written")).expect("it is synced");
    }
    store.close().expect("it closes");
    drop(store);
    let entries = read(folder.path()).expect("an undamaged store is read");
    let log = files(&folder, &[".log"]).pop().expect("there is a log");
    let bytes = fs::read(&log).expect("it reads");
    let mut told = 0;
    // The first three writes. A bit of a kind makes it that of a log file that is used again.
    for at in 0..bytes.len() / NUMBERS.len() * 3 {
        for bit in [2, at % 8] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            fs::write(&log, &damaged).expect("it is damaged");
            let store = Embedded::open(options(folder.path(), true)).expect("reading is allowed");
            told += usize::from(!store.check().expect("it is checked").is_empty());
            drop(store);
            let found = read(folder.path()).expect("what comes before is read");
            assert!(entries.starts_with(&found), "byte {at}: other than the first writes");
        }
        let error = Embedded::open(options(folder.path(), false)).err();
        assert!(error.is_some_and(|error| error.to_string().contains("are lost")), "byte {at}");
    }
    assert!(told > 0);
}
