//! The context of log lines on this thread (`ctx`).
//!
//! A network worker or pool thread runs requests of many connections; during a request its lines
//! have that connection's name. Other lines have the thread's name.

use std::cell::Cell;

thread_local! {
    static WORKER: Cell<Worker> = const { Cell::new(Worker::Thread) };
}

/// The context of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worker {
    /// The thread, by its name.
    Thread,
    /// The connection of this number.
    Connection(u64),
    /// A part of the server that has no thread of its own.
    Part(&'static str),
}

/// Sets the context until this is dropped.
pub struct AtWork(Worker);

/// Sets the context of this thread's lines.
#[inline]
pub fn begin(worker: Worker) -> AtWork {
    AtWork(WORKER.replace(worker))
}

impl Drop for AtWork {
    fn drop(&mut self) {
        WORKER.set(self.0);
    }
}

/// Returns the name of the context.
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
