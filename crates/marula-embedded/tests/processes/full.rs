//! A disk that is full: writes are refused, reads go on, and writes go on once there is room again.
//!
//! The disk is a small file system in memory, mounted in a namespace of the child's own, which needs no
//! privileges where the kernel allows such namespaces. Where it does not, the test says so and passes.

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
    let folder = Folder::new();
    let mount = "mount -t tmpfs -o size=48m none \"$0\" || exit 77; exec \"$@\"";
    let binary = std::env::current_exe().expect("this test is a file");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", mount]);
    command.arg(folder.path()).arg(binary).args(CHILD_ARGUMENTS);
    let output = as_child(&mut command, "full", folder.path()).output();
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

/// Whether `unshare` itself was refused.
fn is_denied(text: &[u8]) -> bool {
    String::from_utf8_lossy(text).starts_with("unshare:")
}

/// Fills the disk, finds writes refused and reads served, makes room, and goes on.
pub(crate) fn child(folder: &Path) {
    let data = folder.join("data");
    fs::write(folder.join(BALLAST), vec![1; 16 << 20]).expect("there is room yet");
    let store = open(&data);
    let mut writes = Writes::default();
    while writes.one(&store).is_ok() {
        assert!(writes.next < 100_000, "the disk is never full");
    }
    assert!(writes.next > 100, "only {} writes fit", writes.next);
    writes.check(&store);
    for _ in 0..20 {
        writes.one(&store).expect_err("the disk is full");
        thread::sleep(Duration::from_millis(20));
    }
    writes.check(&store);
    fs::remove_file(folder.join(BALLAST)).expect("it is removed");
    let started = Instant::now();
    let stamp = loop {
        match writes.one(&store) {
            Ok(stamp) => break stamp,
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
        assert!(started.elapsed() < Duration::from_secs(30), "writing does not go on");
    };
    store.sync(stamp).expect("it syncs");
    for _ in 0..50 {
        writes.one(&store).expect("there is room");
    }
    writes.check(&store);
    drop(store);
    let store = open(&data);
    writes.check(&store);
    assert_eq!(store.check().expect("it checks"), Vec::<String>::new());
    println!("went through a full disk");
}

/// What was written, and which of it the store said was refused.
#[derive(Default)]
struct Writes {
    next: u64,
    refused: Vec<u64>,
}

impl Writes {
    fn one(&mut self, store: &dyn Store) -> Result<Stamp, Error> {
        let written = write(store, self.next);
        if let Err(error) = &written {
            assert!(matches!(error, Error::Full(_)), "{error:?}");
            self.refused.push(self.next);
        }
        self.next += 1;
        written
    }

    /// Everything that was acknowledged is there; of what was refused, what is there is whole.
    fn check(&self, store: &dyn Store) {
        let records = entries(store, Space::Records, &[1]);
        let mut found = Vec::new();
        for (key, value) in &records {
            let id = u64::from_be_bytes(key[1..].try_into().expect("a key ends with a number"));
            assert!(*value == value_of(id), "the value of {id}");
            found.push(id);
        }
        let missing: Vec<u64> = (0..self.next).filter(|id| !found.contains(id)).collect();
        assert!(missing.iter().all(|id| self.refused.contains(id)), "{missing:?} are lost");
        assert_eq!(number(store, Space::Catalog, b"\x01count"), Some(found.len() as i64));
    }
}

/// Values that do not compress, so that the disk fills soon.
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
