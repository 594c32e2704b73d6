//! Writes a data folder that holds one moment of a store in use.
//!
//! Table files never change after they are written, so they are hard-linked where the file system
//! supports it and copied otherwise. Memtables are flushed first, so that a later checkpoint shares
//! the tables of this one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use marula_storage::{Error, Result};
use rust_rocksdb::checkpoint::Checkpoint as Maker;

use crate::Embedded;
use crate::error::from_rocksdb;
use crate::folder::{Folder, MARKER};

/// A checkpoint within the data folder of its store, removed when it is dropped.
pub struct Checkpoint {
    path: PathBuf,
}

/// A data folder that no process has open, held so that none opens it.
pub struct ClosedFolder(Folder);

impl Embedded {
    /// Creates the data folder `to` with everything committed when this is called. It may include
    /// later commits, each whole and with all commits before it. Reads and writes continue.
    ///
    /// The marker is written last: an incomplete folder is not a valid data folder.
    ///
    /// Errors: `Io` when `to` exists or cannot be written; `Full`; `Unavailable` when the store is
    /// closed, or files are held.
    pub fn checkpoint(&self, to: &Path) -> Result<()> {
        self.check_open()?;
        let Some(_files) = self.engine.files.try_change() else {
            return Err(Error::Unavailable("its files are held by a lock of writes".to_owned()));
        };
        fs::create_dir(to)?;
        let engine = &self.engine;
        let maker = Maker::new(&engine.db).map_err(from_rocksdb)?;
        maker.create_checkpoint(to.join("store")).map_err(from_rocksdb)?;
        fs::copy(engine.folder.path().join(MARKER), to.join(MARKER))?;
        File::open(to.join(MARKER))?.sync_all()?;
        File::open(to)?.sync_all()?;
        Ok(())
    }

    /// Makes a checkpoint within the data folder, where hard links can be made.
    ///
    /// Errors: as [`Embedded::checkpoint`].
    pub fn own_checkpoint(&self) -> Result<Checkpoint> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let folder = self.engine.folder.backup();
        fs::create_dir_all(&folder)?;
        let path = folder.join(COUNT.fetch_add(1, Ordering::Relaxed).to_string());
        // Made first: what a failure leaves is removed, too.
        let checkpoint = Checkpoint { path };
        self.checkpoint(&checkpoint.path)?;
        Ok(checkpoint)
    }
}

impl Checkpoint {
    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        // A folder that stays is removed at the next open.
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl ClosedFolder {
    /// Holds the data folder at `path`; nothing in it is changed.
    ///
    /// Errors: `Unavailable` when a process has it open, or it is no data folder; `Corrupt` when
    /// parts are missing; `Io`.
    pub fn hold(path: &Path) -> Result<ClosedFolder> {
        Folder::open_to_read(path).map(ClosedFolder)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use marula_storage::contract::Folder;
    use marula_storage::{Space, Store, View};

    use super::ClosedFolder;
    use crate::{Embedded, EmbeddedOptions};

    fn value(store: &Embedded, space: Space, key: &[u8]) -> Option<Vec<u8>> {
        let mut found = None;
        store.get(space, key, &mut |bytes| found = Some(bytes.to_vec())).expect("it is read");
        found
    }

    #[test]
    fn holds_one_moment_while_writes_go_on() {
        let (folder, copies) = (Folder::new(), Folder::new());
        std::fs::create_dir_all(copies.path()).expect("a folder is made");
        let store = Embedded::open(EmbeddedOptions::new(folder.path())).expect("the store opens");
        let write = |number: u64| {
            let mut txn = store.begin();
            txn.put(Space::Records, b"twin", &number.to_be_bytes());
            txn.put(Space::Indexes, b"twin", &number.to_be_bytes());
            txn.commit().expect("it is written");
        };
        write(7);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 8;
                while !is_over.load(Ordering::Relaxed) {
                    write(number);
                    number += 1;
                }
            });
            for round in 0..5 {
                let to = copies.path().join(round.to_string());
                let made = store.checkpoint(&to);
                if made.is_err() || round == 4 {
                    is_over.store(true, Ordering::Relaxed);
                }
                made.expect("a checkpoint is made");
            }
        });
        assert!(store.checkpoint(&copies.path().join("0")).is_err(), "it is there already");
        let own = store.own_checkpoint().expect("a checkpoint is made");
        assert!(ClosedFolder::hold(folder.path()).is_err(), "it is open");
        drop(ClosedFolder::hold(own.path()).expect("it is a data folder"));
        let path = own.path().to_path_buf();
        drop(own);
        assert!(!path.exists());
        for round in 0..5 {
            let options = EmbeddedOptions::new(copies.path().join(round.to_string()));
            let copy = Embedded::open(options).expect("the checkpoint opens");
            let twin = value(&copy, Space::Records, b"twin").expect("what was there is there");
            assert_eq!(Some(&twin), value(&copy, Space::Indexes, b"twin").as_ref());
            assert!(twin >= 7_u64.to_be_bytes().to_vec());
        }
    }
}
