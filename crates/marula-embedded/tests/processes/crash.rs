//! A writing process is killed; all acknowledged writes are present, and of each writer exactly a
//! prefix.
//!
//! Each *writer* commits batches 0, 1, 2, …: a record, an index entry, two counters, now and then a
//! cleared range and a large value. It prints the number of each batch after its commit. At most
//! one batch of a writer is unacknowledged, so after the kill its newest batch is the last printed
//! one or the next.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use marula_storage::contract::Folder;
use marula_storage::{KeyRange, Space, Store};
use parking_lot::Mutex;

use crate::{CHILD_ARGUMENTS, as_child, entries, number, open};

const WRITERS: usize = 3;

/// A writer clears its old records once per this number of batches.
const CLEAR_EVERY: u64 = 50;

/// Kills and reopens; `MARULA_CRASH_ROUNDS` sets the number of rounds.
#[test]
fn a_killed_process_leaves_a_prefix() {
    let rounds = std::env::var("MARULA_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok());
    let folder = Folder::new();
    let mut acknowledged = [None; WRITERS];
    // The numbers of lines after which rounds kill: spread, and the same each time.
    for round in 0..rounds.unwrap_or(5u64) {
        let lines = 20 + (round * 7919) % 3000;
        println!("round {round}: kill after {lines} commits");
        kill_after(lines, folder.path(), &mut acknowledged);
        check(folder.path(), &mut acknowledged);
    }
}

/// Runs a child until it has printed `lines`, kills it, and records the acknowledged batches.
fn kill_after(lines: u64, folder: &Path, acknowledged: &mut [Option<u64>; WRITERS]) {
    let binary = std::env::current_exe().expect("this test is a file");
    let mut command = Command::new(binary);
    command.args(CHILD_ARGUMENTS).stdout(Stdio::piped());
    let mut child: Child = as_child(&mut command, "crash", folder).spawn().expect("a child runs");
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut count = 0;
    for line in output.lines() {
        let line = line.expect("it is text");
        let Some(line) = line.strip_prefix("committed ") else { continue };
        // The kill may cut the last line short; then its final dot is missing.
        let Some((writer, batch)) = line.strip_suffix('.').and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        let writer: usize = writer.parse().expect("a writer");
        acknowledged[writer] = Some(batch.parse().expect("a batch"));
        count += 1;
        if count == lines {
            child.kill().expect("it is killed");
        }
    }
    let status = child.wait().expect("it ends");
    assert!(count >= lines, "the child ended by itself: {status}");
}

/// Compares the store with the acknowledged batches.
fn check(folder: &Path, acknowledged: &mut [Option<u64>; WRITERS]) {
    let store = open(folder);
    let mut batches = 0;
    let mut sum = 0;
    for (writer, acknowledged) in acknowledged.iter_mut().enumerate() {
        let newest = newest(&store, writer);
        let is_prefix =
            newest == *acknowledged || newest == Some(acknowledged.map_or(0, |n| n + 1));
        assert!(is_prefix, "writer {writer}: {newest:?} after {acknowledged:?} was acknowledged");
        *acknowledged = newest;
        let end = newest.map_or(0, |newest| newest + 1);
        let floor = (end / CLEAR_EVERY * CLEAR_EVERY).saturating_sub(1);
        let records = entries(&store, Space::Records, &[writer as u8]);
        let numbers = records.iter().map(|(key, _)| batch_of(key));
        assert!(numbers.eq(floor..end), "writer {writer}: records from {floor} to {end}");
        for (key, value) in records {
            assert!(value == value_of(batch_of(&key)), "writer {writer}: the value of {key:?}");
        }
        let index = entries(&store, Space::Indexes, &[writer as u8]);
        assert!(index.iter().map(|(key, _)| batch_of(key)).eq(0..end), "writer {writer}: entries");
        batches += end as i64;
        sum += (0..end as i64).sum::<i64>();
    }
    assert_eq!(number(&store, Space::Catalog, b"\x01batches").unwrap_or(0), batches);
    assert_eq!(number(&store, Space::Catalog, b"\x01sum").unwrap_or(0), sum);
    assert_eq!(store.check().expect("it checks"), Vec::<String>::new());
}

fn key_of(writer: usize, batch: u64) -> Vec<u8> {
    [&[writer as u8][..], &batch.to_be_bytes()].concat()
}

fn batch_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(key[1..].try_into().expect("8 bytes"))
}

fn value_of(batch: u64) -> Vec<u8> {
    let size = if batch.is_multiple_of(97) { 100_000 } else { 500 };
    batch.to_be_bytes().repeat(size / 8)
}

fn newest(store: &dyn Store, writer: usize) -> Option<u64> {
    entries(store, Space::Indexes, &[writer as u8]).last().map(|(key, _)| batch_of(key))
}

/// Continues where the last child was killed, until it is killed itself.
pub(crate) fn child(folder: &Path) {
    let store = open(folder);
    let store: &dyn Store = &store;
    // One write call per line: a line that arrives was written after its commit.
    let output = Mutex::new(std::io::stdout());
    let output = &output;
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for batch in newest(store, writer).map_or(0, |newest| newest + 1).. {
                    write_batch(store, writer, batch);
                    let line = format!("committed {writer} {batch}.\n");
                    let mut output = output.lock();
                    output.write_all(line.as_bytes()).expect("the parent listens");
                    output.flush().expect("the parent listens");
                }
            });
        }
    });
}

fn write_batch(store: &dyn Store, writer: usize, batch: u64) {
    let mut txn = store.begin();
    if batch % CLEAR_EVERY == CLEAR_EVERY - 1 {
        let range = KeyRange { start: key_of(writer, 0), end: key_of(writer, batch) };
        txn.clear_range(Space::Records, &range);
    }
    txn.put(Space::Records, &key_of(writer, batch), &value_of(batch));
    txn.put(Space::Indexes, &key_of(writer, batch), &[]);
    txn.add(b"\x01batches", 1);
    txn.add(b"\x01sum", batch as i64);
    txn.commit().expect("it commits");
}
