//! A full disk: writes are refused, reads continue, and writes resume once there is room again.
//!
//! The disk is a small in-memory file system, mounted in a namespace of the child process, which
//! needs no privileges where the kernel allows such namespaces. Where it does not, the test says so
//! and passes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use marula_storage::contract::Folder;
use marula_storage::{Error, Space, Stamp, Store};

use crate::{CHILD_ARGUMENTS, as_child, entries, number, open};

/// The file whose removal makes room.
const BALLAST: &str = "ballast";

#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    on_a_small_disk("full");
}

#[test]
fn a_full_disk_refuses_writers_that_were_held_back() {
    on_a_small_disk("full, held back");
}

/// Runs a child's part on its own small disk.
fn on_a_small_disk(part: &str) {
    let folder = Folder::new();
    let mount = "mount -t tmpfs -o size=48m none \"$0\" || exit 77; exec \"$@\"";
    let binary = std::env::current_exe().expect("this test is a file");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", mount]);
    command.arg(folder.path()).arg(binary).args(CHILD_ARGUMENTS);
    let output = as_child(&mut command, part, folder.path()).output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("went through a full disk"), "the child did nothing: {text}");
        }
        Ok(output)
            if output.status.code() == Some(77)
                || !output.stderr.is_empty() && is_denied(&output.stderr) =>
        {
            println!("skipped: no file system can be mounted here");
        }
        Ok(output) => panic!(
            "{}\n{}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => println!("skipped: no 'unshare' here: {error}"),
    }
}

/// Returns whether `unshare` itself was refused.
fn is_denied(text: &[u8]) -> bool {
    String::from_utf8_lossy(text).starts_with("unshare:")
}

/// Fills the disk, checks that writes are refused and reads served, frees space, and continues.
pub(crate) fn child(folder: &Path) {
    let data = folder.join("data");
    fs::write(folder.join(BALLAST), vec![1; 16 << 20]).expect("there is room yet");
    let store = open(&data);
    let mut count = 0;
    let refused = loop {
        match write(&store, count) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 100_000, "the disk is never full");
    };
    assert!(matches!(refused, Error::Full(_)), "{refused:?}");
    assert!(count > 100, "only {count} writes fit");
    check(&store, count);
    for _ in 0..20 {
        let refused = write(&store, count).expect_err("the disk is full");
        assert!(matches!(refused, Error::Full(_)), "{refused:?}");
        thread::sleep(Duration::from_millis(20));
    }
    check(&store, count);
    fs::remove_file(folder.join(BALLAST)).expect("it is removed");
    let started = Instant::now();
    loop {
        match write(&store, count) {
            Ok(stamp) => break store.sync(stamp).expect("it syncs"),
            Err(Error::Full(_)) => thread::sleep(Duration::from_millis(20)),
            Err(error) => panic!("{error}"),
        }
        assert!(started.elapsed() < Duration::from_secs(30), "writing does not go on");
    }
    count += 1;
    for _ in 0..50 {
        write(&store, count).expect("there is room");
        count += 1;
    }
    check(&store, count);
    drop(store);
    let store = open(&data);
    check(&store, count);
    assert_eq!(store.check().expect("it checks"), Vec::<String>::new());
    println!("went through a full disk");
}

/// Fills the disk with more concurrent writers than memory has room for, so that some wait for a
/// flush, and checks that all are refused once a flush is impossible.
pub(crate) fn child_of_many(folder: &Path) {
    fs::write(folder.join(BALLAST), vec![1; 16 << 20]).expect("there is room yet");
    let store = open(&folder.join("data"));
    let until_refused = |writer: u64| {
        for id in 0.. {
            let mut txn = store.begin();
            let key = [&[1], &(writer << 32 | id).to_be_bytes()[..]].concat();
            txn.put(Space::Records, &key, &value_of(id));
            if let Err(refused) = txn.commit() {
                assert!(matches!(refused, Error::Full(_)), "{refused:?}");
                return;
            }
        }
    };
    thread::scope(|scope| {
        (0..8).for_each(|writer| drop(scope.spawn(move || until_refused(writer))))
    });
    println!("went through a full disk");
}

/// A value that does not compress, so that the disk fills soon.
fn value_of(id: u64) -> Vec<u8> {
    let mut number = id | 1;
    let mut value = Vec::new();
    for _ in 0..1250 {
        number = number.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        value.extend_from_slice(&number.to_be_bytes());
    }
    value
}

fn write(store: &dyn Store, id: u64) -> Result<Stamp, Error> {
    let mut txn = store.begin();
    txn.put(Space::Records, &[&[1], &id.to_be_bytes()[..]].concat(), &value_of(id));
    txn.add(b"\x01count", 1);
    txn.commit()
}

fn check(store: &dyn Store, count: u64) {
    let records = entries(store, Space::Records, &[1]);
    assert_eq!(records.len() as u64, count);
    for (id, (key, value)) in records.into_iter().enumerate() {
        assert_eq!(key[1..], (id as u64).to_be_bytes());
        assert!(value == value_of(id as u64), "the value of {id}");
    }
    assert_eq!(number(store, Space::Catalog, b"\x01count"), Some(count as i64));
}
