//! Tests of failures around a store: its process is killed, its disk is full, its files are damaged
//! or lost.
//!
//! A test runs this binary again with the name of its child's part in [`CHILD`].

mod crash;
mod damage;
mod faults;
mod full;

use std::path::Path;
use std::process::Command;

use marula_embedded::{Embedded, EmbeddedOptions};
use marula_storage::{Direction, KeyRange, Space, View};

/// The environment variable that names the part of a child process; [`FOLDER`] names its data
/// folder.
const CHILD: &str = "MARULA_TEST_CHILD";

/// The environment variable with the data folder of a child process.
const FOLDER: &str = "MARULA_TEST_FOLDER";

/// The entry point of a child process; does nothing in an ordinary test run.
#[test]
fn child() {
    let Ok(part) = std::env::var(CHILD) else { return };
    let folder = std::env::var(FOLDER).expect("a child has a folder");
    match part.as_str() {
        "crash" => crash::child(Path::new(&folder)),
        "full" => full::child(Path::new(&folder)),
        "full, held back" => full::child_of_many(Path::new(&folder)),
        _ => panic!("no such part: {part}"),
    }
}

/// Makes `command` run a child's part.
fn as_child<'c>(command: &'c mut Command, part: &str, folder: &Path) -> &'c mut Command {
    command.env(CHILD, part).env(FOLDER, folder)
}

/// The arguments with which this binary runs the child's part.
const CHILD_ARGUMENTS: [&str; 4] = ["child", "--exact", "--nocapture", "--quiet"];

/// A store with small memtables, so that files are written continuously.
fn open(folder: &Path) -> Embedded {
    let mut options = EmbeddedOptions::new(folder);
    options.cache_bytes = 16 << 20;
    options.memtable_bytes = 1 << 20;
    Embedded::open(options).expect("the store opens")
}

fn entries(read: &dyn View, space: Space, prefix: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let range = KeyRange::prefix(prefix);
    let mut cursor = read.cursor(space, &range, Direction::Forward).expect("it opens");
    let mut entries = Vec::new();
    while cursor.advance().expect("it advances") {
        entries.push((cursor.key().to_vec(), cursor.value().to_vec()));
    }
    entries
}

fn number(read: &dyn View, space: Space, key: &[u8]) -> Option<i64> {
    let mut number = None;
    read.get(space, key, &mut |value| {
        number = Some(i64::from_le_bytes(value.try_into().expect("8 bytes")));
    })
    .expect("it reads");
    number
}
