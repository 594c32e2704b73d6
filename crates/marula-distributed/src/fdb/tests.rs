//! The backend keeps the promises of a backend and of an engine, over a stand-in for FoundationDB's
//! client library (`examples/fdb_c.rs`), which cargo builds with the tests.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use marula_storage::Store;
use marula_storage::contract::{self, Folder};

use super::*;
use crate::kv_contract::{self, Scope};
use crate::{Distributed, Options};

/// Where cargo has put the stand-in: next to the folder of the test's own program.
fn stand_in() -> PathBuf {
    let own = std::env::current_exe().expect("it has a path");
    let target = own.parent().and_then(Path::parent).expect("it lies in target/debug/deps");
    let library = target.join("examples/libfdb_c.so");
    assert!(library.is_file(), "'{}' is built with the tests of this crate", library.display());
    library
}

/// A cluster of its own, in a folder, with these faults.
fn open(folder: &Path, faults: &str) -> Fdb {
    let file = folder.join("fdb.cluster");
    if !file.exists() {
        fs::write(&file, faults).expect("the folder can be written");
    }
    Fdb::open(Some(&file), Some(&stand_in())).expect("the cluster opens")
}

fn store(folder: &Path, faults: &str) -> Arc<dyn Store> {
    let kv = Arc::new(open(folder, faults));
    Arc::new(Distributed::open(kv, Options::default()).expect("the store opens"))
}

mod backend {
    use super::*;

    macro_rules! promises {
        ($($promise:ident)*) => {
            $(#[test] fn $promise() {
                let folder = Folder::new();
                let kv = open(folder.path(), "");
                kv_contract::$promise(&Scope { kv: &kv, root: b"r/".to_vec() });
            })*
        };
    }

    crate::for_each_kv_promise!(promises);
}

mod engine {
    use super::*;

    fn open(folder: &Path) -> Arc<dyn Store> {
        store(folder, "")
    }

    macro_rules! promises {
        ($($promise:ident)*) => { $(#[test] fn $promise() { contract::$promise(&open); })* };
    }

    marula_storage::for_each_promise!(promises);
}

mod engine_with_faults {
    use super::*;

    fn open(folder: &Path) -> Arc<dyn Store> {
        store(
            folder,
            "seed = 5\nunknown_done = 30\nunknown_not_done = 30\nunknown_late = 30\nunavailable = 5",
        )
    }

    macro_rules! promises {
        ($($promise:ident)*) => { $(#[test] fn $promise() { contract::$promise(&open); })* };
    }

    marula_storage::for_each_promise!(promises);
}

#[test]
fn stamped_keys_have_the_stamp_of_their_commit() {
    let folder = Folder::new();
    let kv = open(folder.path(), "");
    let stamped =
        Mutation::SetStamped { prefix: b"p".to_vec(), suffix: b"s".to_vec(), value: b"v".to_vec() };
    let stamp = kv.commit(&Commit { mutations: vec![stamped], ..Commit::default() });
    let stamp = stamp.expect("it commits");
    let at = kv.read_version().expect("a version");
    let key = [b"p", &stamp.to_bytes()[..], b"s"].concat();
    assert_eq!(kv.get(at, &key).expect("it reads").as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_cluster_file_that_is_not_there_is_told() {
    let folder = Folder::new();
    let missing = folder.path().join("none");
    let error = Fdb::open(Some(&missing), None).err().expect("there is none");
    assert!(error.contains("there is no cluster file"), "{error}");
}
