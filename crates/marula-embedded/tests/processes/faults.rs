//! Failures of the environment other than a full disk: files that cannot be created, damaged and
//! lost tables.
//!
//! Each is caused under an open store, or between two openings, by operations on the file system:
//! the folder of files is moved away, another file takes its place, a table is cut short. While the
//! failure lasts, affected operations return an error; afterwards all acknowledged writes are
//! present.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use marula_embedded::{Embedded, EmbeddedOptions};
use marula_storage::contract::Folder;
use marula_storage::{Error, Space, Stamp, Store, View as _};

use crate::{entries, number, open};

#[test]
fn files_that_cannot_be_made_stop_writes_until_a_restart() {
    for fault in [move_away, replace_by_a_file] {
        let folder = Folder::new();
        let store = open(folder.path());
        let mut count = fill(&store, 0, 300).expect("nothing is wrong yet");
        let files = folder.path().join("store");
        let aside = folder.path().join("aside");
        fault(&files, &aside);
        let refused = loop {
            match fill(&store, count, count + 1) {
                Ok(next) => count = next,
                Err(error) => break error,
            }
            assert!(count < 100_000, "the failure is never met");
        };
        assert!(matches!(refused, Error::Io(_)), "{refused:?}");
        for _ in 0..10 {
            let refused = write(&store, count).expect_err("it lasts");
            assert!(matches!(refused, Error::Io(_)), "{refused:?}");
            thread::sleep(Duration::from_millis(100));
        }
        check(&store, count);
        // Bulk work needs its own files, so it may or may not meet the failure; it adds all or
        // nothing.
        let is_ingested = ingest(&store).is_ok();
        put_back(&files, &aside);
        check(&store, count);
        drop(store);
        let store = open(folder.path());
        check(&store, count);
        count = fill(&store, count, count + 500).expect("the cause is gone");
        check(&store, count);
        let ingested = entries(&store, Space::Records, &[9]).len();
        assert_eq!(ingested, if is_ingested { 1000 } else { 0 });
        assert_eq!(store.check().expect("it checks"), Vec::<String>::new());
    }
}

#[test]
fn a_bulk_load_that_cannot_write_its_files_adds_nothing() {
    let folder = Folder::new();
    let store = open(folder.path());
    let count = fill(&store, 0, 50).expect("nothing is wrong");
    fs::write(folder.path().join("ingest"), b"in the way").expect("a file is written");
    let refused = ingest(&store).expect_err("there is no folder");
    assert!(matches!(refused, Error::Io(_)), "{refused:?}");
    assert_eq!(entries(&store, Space::Records, &[9]).len(), 0);
    fs::remove_file(folder.path().join("ingest")).expect("it is removed");
    ingest(&store).expect("nothing is in the way");
    assert_eq!(entries(&store, Space::Records, &[9]).len(), 1000);
    check(&store, count);
}

#[test]
fn damaged_and_lost_tables_are_told_and_lose_nothing_else() {
    for damage in [cut_short, remove, overwrite_the_middle] {
        let folder = Folder::new();
        let store = open(folder.path());
        let count = fill(&store, 0, 600).expect("nothing is wrong yet");
        drop(store);
        let table = largest_table(folder.path());
        let bytes = fs::read(&table).expect("it reads");
        damage(&table, &bytes);
        // Either the store is not opened, or reads of the damaged part return an error.
        match Embedded::open(EmbeddedOptions::new(folder.path())) {
            Err(error) => assert!(matches!(error, Error::Corrupt(_) | Error::Io(_)), "{error:?}"),
            Ok(store) => {
                assert_ne!(store.check().expect("it checks"), Vec::<String>::new());
                let read = (0..count).map(|id| store.get(Space::Records, &key_of(id), &mut |_| ()));
                let failures = read.filter(|found| !matches!(found, Ok(true)));
                let failures: Vec<_> = failures.collect();
                assert!(!failures.is_empty(), "the damage is not met");
                let is_told = |found: &Result<bool, Error>| matches!(found, Err(Error::Corrupt(_)));
                assert!(failures.iter().all(is_told), "{:?}", failures.first());
            }
        }
        fs::write(&table, &bytes).expect("it is written");
        let store = open(folder.path());
        check(&store, count);
        assert_eq!(store.check().expect("it checks"), Vec::<String>::new());
    }
}

#[test]
fn a_table_cut_short_under_an_open_store_is_told() {
    let folder = Folder::new();
    let store = open(folder.path());
    let count = fill(&store, 0, 600).expect("nothing is wrong yet");
    drop(store);
    let table = largest_table(folder.path());
    // Opened with a tiny cache, so that reads reach the file.
    let mut options = EmbeddedOptions::new(folder.path());
    options.cache_bytes = 1 << 20;
    let store = Embedded::open(options).expect("the store opens");
    let bytes = fs::read(&table).expect("it reads");
    fs::write(&table, &bytes[..4096]).expect("it is cut short");
    let read: Vec<_> =
        (0..count).map(|id| store.get(Space::Records, &key_of(id), &mut |_| ())).collect();
    assert!(read.iter().any(|found| found.is_err()), "the damage is not met");
    assert!(!read.iter().any(|found| matches!(found, Ok(false))), "a document is taken for absent");
    fs::write(&table, &bytes).expect("it is written");
    drop(store);
    let store = open(folder.path());
    check(&store, count);
    assert_eq!(store.check().expect("it checks"), Vec::<String>::new());
}

fn move_away(files: &Path, aside: &Path) {
    fs::rename(files, aside).expect("it is moved");
}

fn replace_by_a_file(files: &Path, aside: &Path) {
    move_away(files, aside);
    fs::write(files, b"not a folder").expect("a file is written");
}

fn put_back(files: &Path, aside: &Path) {
    if files.is_file() {
        fs::remove_file(files).expect("it is removed");
    }
    fs::rename(aside, files).expect("it is moved back");
}

fn cut_short(table: &Path, bytes: &[u8]) {
    fs::write(table, &bytes[..bytes.len() / 2]).expect("it is cut short");
}

fn remove(table: &Path, _: &[u8]) {
    fs::remove_file(table).expect("it is removed");
}

fn overwrite_the_middle(table: &Path, bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0xA5);
    fs::write(table, bytes).expect("it is written");
}

/// The largest file of records. Opening the store first writes the log's records into files.
fn largest_table(folder: &Path) -> PathBuf {
    drop(open(folder));
    let files = fs::read_dir(folder.join("store")).expect("it is there");
    let tables = files.map(|file| file.expect("a file").path());
    let tables = tables.filter(|path| path.extension().is_some_and(|end| end == "sst"));
    tables.max_by_key(|path| fs::metadata(path).expect("it is there").len()).expect("a table")
}

/// Writes the records from `first` to `end`, exclusive; returns `end`.
fn fill(store: &dyn Store, first: u64, end: u64) -> Result<u64, Error> {
    for id in first..end {
        write(store, id)?;
    }
    Ok(end)
}

fn write(store: &dyn Store, id: u64) -> Result<Stamp, Error> {
    let mut txn = store.begin();
    txn.put(Space::Records, &key_of(id), &value_of(id));
    txn.add(b"\x01count", 1);
    txn.commit()
}

fn ingest(store: &dyn Store) -> Result<(), Error> {
    let mut next = 0_u64;
    store.ingest(Space::Records, &mut |key, value| {
        key.clear();
        key.push(9);
        key.extend_from_slice(&next.to_be_bytes());
        value.clear();
        next += 1;
        Ok(next <= 1000)
    })
}

fn key_of(id: u64) -> Vec<u8> {
    [&[1], &id.to_be_bytes()[..]].concat()
}

/// A value that does not compress, so that files fill soon.
fn value_of(id: u64) -> Vec<u8> {
    let mut number = id | 1;
    let mut value = Vec::new();
    for _ in 0..600 {
        number = number.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        value.extend_from_slice(&number.to_be_bytes());
    }
    value
}

fn check(store: &dyn Store, count: u64) {
    let records = entries(store, Space::Records, &[1]);
    let ids = records.iter().map(|(key, _)| u64::from_be_bytes(key[1..].try_into().expect("8")));
    assert!(ids.eq(0..count), "{} records of {count}", records.len());
    for (id, (_, value)) in (0..).zip(&records) {
        assert!(*value == value_of(id), "the value of {id}");
    }
    assert_eq!(number(store, Space::Catalog, b"\x01count"), Some(count as i64));
}
