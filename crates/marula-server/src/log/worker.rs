//! Who is at work on this thread, as lines name it (`ctx`).
//!
//! A network worker or pool thread runs requests of many connections; while it does, its lines are
//! that connection's. All others are named by their thread.

use std::cell::Cell;

thread_local! {
    static WORKER: Cell<Worker> = const { Cell::new(Worker::Thread) };
}

/// Who is at work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worker {
    /// The thread, by its name.
    Thread,
    /// The connection of this number.
    Connection(u64),
    /// A part of the server that has no thread of its own.
    Part(&'static str),
}

/// Lines name a worker until this is dropped.
pub struct AtWork(Worker);

/// Has lines of this thread name `worker`.
#[inline]
pub fn begin(worker: Worker) -> AtWork {
    AtWork(WORKER.replace(worker))
}

impl Drop for AtWork {
    fn drop(&mut self) {
        WORKER.set(self.0);
    }
}

/// The worker's name.
pub(super) fn name() -> String {
    match WORKER.get() {
        Worker::Connection(id) => format!("conn{id}"),
        Worker::Part(name) => name.to_owned(),
        Worker::Thread => std::thread::current().name().unwrap_or("thread").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_worker_is_named() {
        let outer = begin(Worker::Connection(7));
        assert_eq!(name(), "conn7");
        {
            let _inner = begin(Worker::Part("listener"));
            assert_eq!(name(), "listener");
        }
        assert_eq!(name(), "conn7");
        drop(outer);
        assert_ne!(name(), "conn7");
    }
}
