//! Files that stay as they are, so that other programs can copy them one by one.
//!
//! While files are held nothing is flushed, compacted, ingested or dropped, so every file that the
//! list of tables names is there and no list is changed. The log may grow: a copy of it holds what
//! it held when it was copied. The note of the last sync stays as it is, or a copy of it might
//! claim more than the copy of the log has.

use marula_storage::Result;
use parking_lot::{Condvar, Mutex};

use crate::engine::Engine;
use crate::error::from_rocksdb;

/// The number of threads that change files, and whether files are held.
#[derive(Default)]
pub(crate) struct Files {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    changers: usize,
    is_held: bool,
}

/// The right to make, change or remove files, until it is dropped.
pub(crate) struct Changing<'f>(&'f Files);

impl Files {
    /// Waits while files are held, and may change them then.
    pub(crate) fn change(&self) -> Changing<'_> {
        let mut state = self.state.lock();
        while state.is_held {
            self.changed.wait(&mut state);
        }
        state.changers += 1;
        Changing(self)
    }

    /// May change files, unless they are held.
    pub(crate) fn try_change(&self) -> Option<Changing<'_>> {
        let mut state = self.state.lock();
        if state.is_held {
            return None;
        }
        state.changers += 1;
        Some(Changing(self))
    }

    /// Holds files once nobody changes them; answers whether they were not held already.
    fn hold(&self) -> bool {
        let mut state = self.state.lock();
        if state.is_held {
            return false;
        }
        state.is_held = true;
        while state.changers > 0 {
            self.changed.wait(&mut state);
        }
        true
    }

    /// Lets go of them; answers whether they were held.
    fn release(&self) -> bool {
        let was_held = std::mem::take(&mut self.state.lock().is_held);
        self.changed.notify_all();
        was_held
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().changers -= 1;
        self.0.changed.notify_all();
    }
}

/// Waits for what changes files now, and holds them; where they are held already, nothing happens.
pub(crate) fn hold(engine: &Engine) -> Result<()> {
    if engine.files.hold()
        && let Err(error) = engine.db.pause_background_work()
    {
        engine.files.release();
        return Err(from_rocksdb(error));
    }
    Ok(())
}

/// Lets go of held files; where none are held, nothing happens.
pub(crate) fn release(engine: &Engine) -> Result<()> {
    match engine.files.release() {
        true => engine.db.continue_background_work().map_err(from_rocksdb),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::{fs, thread};

    use marula_storage::contract::Folder;
    use marula_storage::{KeyRange, Space, Store, View};

    use crate::{Embedded, EmbeddedOptions};

    #[test]
    fn held_files_can_be_copied_one_by_one() {
        let (folder, copy) = (Folder::new(), Folder::new());
        let mut options = EmbeddedOptions::new(folder.path());
        // Memtables fill and tables pile up all the time.
        options.memtable_bytes = 64 << 10;
        let store = Embedded::open(options).expect("the store opens");
        let write = |number: u64| {
            let mut txn = store.begin();
            txn.put(Space::Records, &number.to_be_bytes(), &[number as u8; 1000]);
            txn.commit().map(drop)
        };
        for number in 0..2000 {
            write(number).expect("it is written");
        }
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            store.hold_files().expect("they are held");
            store.hold_files().expect("they are held already");
            // The log goes on, and who would change files waits.
            scope.spawn(|| {
                for number in 2000..2050 {
                    write(number).expect("it is written");
                }
                store.drop_range(Space::Records, &KeyRange::prefix(&[9])).expect("it is dropped");
                assert!(is_over.load(Ordering::SeqCst), "files were changed while they were held");
            });
            for name in [".", "store"] {
                fs::create_dir_all(copy.path().join(name)).expect("it is made");
                for entry in fs::read_dir(folder.path().join(name)).expect("it is read") {
                    let entry = entry.expect("an entry");
                    if entry.file_type().expect("it has a kind").is_file() {
                        let to = copy.path().join(name).join(entry.file_name());
                        fs::copy(entry.path(), to).expect("every file stays");
                        thread::sleep(std::time::Duration::from_millis(5));
                    }
                }
            }
            is_over.store(true, Ordering::SeqCst);
            store.release_files().expect("they are let go");
            store.release_files().expect("they are let go already");
        });
        let copy = Embedded::open(EmbeddedOptions::new(copy.path())).expect("the copy opens");
        assert!(copy.check().expect("it is checked").is_empty());
        for number in 0..2000_u64 {
            let found = copy.get(Space::Records, &number.to_be_bytes(), &mut |_| {});
            assert!(found.expect("it is read"), "{number}");
        }
    }
}
