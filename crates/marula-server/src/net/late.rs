//! A watch over the workers: a worker that is busy with one connection for too long delays all its
//! others, and is logged.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::counters::Counters;
use super::service::Service;

/// The interval of the checks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The time with one connection after which a worker is late.
const LATE: Duration = Duration::from_secs(1);

/// The thread.
pub(super) struct Watch {
    thread: JoinHandle<()>,
    /// Dropped to end it.
    end: Sender<()>,
}

impl Watch {
    /// Starts the watch.
    ///
    /// Errors: the operating system cannot create a thread.
    pub(super) fn start<S: Service>(service: Arc<S>, counters: Arc<Counters>) -> io::Result<Watch> {
        let (end, ended) = mpsc::channel();
        let thread = thread::Builder::new().name("net-watch".to_owned()).spawn(move || {
            // The last reported work of each worker.
            let mut reported = vec![0; counters.workers.len()];
            while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                look(&*service, &counters, &mut reported);
            }
        })?;
        Ok(Watch { thread, end })
    }

    /// Ends the watch.
    pub(super) fn stop(self) {
        drop(self.end);
        if self.thread.join().is_err() {
            tracing::error!("the watch over the network workers had panicked");
        }
    }
}

fn look<S: Service>(service: &S, counters: &Counters, reported: &mut [u64]) {
    for (worker, reported) in counters.workers.iter().zip(reported) {
        if let Some((began, connection, late)) = worker.busy.look()
            && late >= LATE
            && *reported != began
        {
            *reported = began;
            counters.late.add(1);
            service.note_late(connection, late);
        }
    }
}
