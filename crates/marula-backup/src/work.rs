//! Runs items of work on a few threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use crate::pace::Pace;
use crate::{Error, Progress, Result};

/// Runs `work` for every item on at most `threads` threads; the first failure ends it.
pub(crate) fn each<T: Sync>(
    items: &[T],
    threads: usize,
    progress: &Progress,
    work: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let worker = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            let paced = progress.pace().map(|pace| (pace, Pace::begin()));
            let done = if progress.is_ended() { Err(Error::Ended) } else { work(item) };
            if let Err(error) = done {
                next.store(items.len(), Ordering::Relaxed);
                failure.lock().get_or_insert(error);
                return;
            }
            if let Some((pace, begun)) = paced {
                pace.rest(&begun, progress);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            scope.spawn(worker);
        }
        worker();
    });
    failure.into_inner().map_or(Ok(()), Err)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::repository::Repository;

    /// A temporary folder of a test, removed on drop.
    pub(crate) struct OwnFolder(PathBuf);

    pub(crate) fn folder() -> OwnFolder {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("marula-backup-test-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder is made");
        OwnFolder(path)
    }

    /// A new repository in the folder, without a key.
    pub(crate) fn repository_in(folder: &OwnFolder) -> Repository {
        let address = folder.path().join("t").display().to_string();
        Repository::open_or_make(&address, None).expect("it is made")
    }

    impl OwnFolder {
        pub(crate) fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for OwnFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn every_item_is_done_once_and_a_failure_ends_the_rest() {
        let items: Vec<usize> = (0..1000).collect();
        let sum = AtomicUsize::new(0);
        let add = |item: &usize| {
            sum.fetch_add(*item, Ordering::Relaxed);
            Ok(())
        };
        each(&items, 3, &Progress::default(), add).expect("all are done");
        assert_eq!(sum.load(Ordering::Relaxed), 499_500);
        let fail = |item: &usize| match item {
            500 => Err(Error::Refused("no".to_owned())),
            _ => Ok(()),
        };
        assert!(matches!(each(&items, 3, &Progress::default(), fail), Err(Error::Refused(_))));
        let progress = Progress::default();
        progress.end();
        assert!(matches!(each(&items, 3, &progress, add), Err(Error::Ended)));
    }
}
