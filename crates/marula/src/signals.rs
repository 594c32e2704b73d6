//! Signals: those that end the server, those that rotate the log, and those without an effect.
//!
//! | signal | effect |
//! | --- | --- |
//! | SIGTERM, SIGINT, SIGHUP, SIGXCPU | the first ends the server cleanly, a second at once |
//! | SIGUSR1 | rotates the log |
//! | SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO | none; they are logged |
//! | SIGXFSZ | none: a file that may not grow is an error of its write |

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::{fs, io};

use marula_server::Server;
use marula_storage::Store;
use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::{self, Handle};

use crate::Failure;

/// The signals that are blocked from the beginning: they do not end a server that is still opening
/// its data.
const FROM_THE_BEGINNING: [i32; 7] =
    [SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGXFSZ];

/// The signals that end a server. Before it has opened its data they kill it: it has nothing to
/// finish.
const ENDING: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGXCPU];

/// The exit status after a second signal: the data is intact, running requests were not waited for.
const EXIT_AT_ONCE: i32 = 0;

/// The thread that handles signals, until [`Signals::stop`].
pub(crate) struct Signals {
    handle: Handle,
    thread: JoinHandle<()>,
}

/// The objects that signals act on. The thread holds neither server nor store: they are dropped
/// before it ends.
struct Target {
    server: Weak<Server>,
    store: Weak<dyn Store>,
    pid_file: Option<PathBuf>,
}

/// Signals that are held back until [`Signals::start`].
pub(crate) struct Kept(iterator::Signals);

/// Holds back the signals that do not end the server.
pub(crate) fn keep() -> Result<Kept, Failure> {
    iterator::Signals::new(FROM_THE_BEGINNING).map(Kept).map_err(cannot_wait)
}

fn cannot_wait(error: io::Error) -> Failure {
    format!("cannot wait for signals: {error}")
}

impl Signals {
    /// Handles signals from now on, first those that were held back.
    pub(crate) fn start(
        Kept(mut signals): Kept,
        server: &Arc<Server>,
        store: &Arc<dyn Store>,
        pid_file: Option<PathBuf>,
    ) -> Result<Signals, Failure> {
        let handle = signals.handle();
        for signal in ENDING {
            handle.add_signal(signal).map_err(cannot_wait)?;
        }
        let target =
            Target { server: Arc::downgrade(server), store: Arc::downgrade(store), pid_file };
        let thread = std::thread::Builder::new().name("SignalHandler".into());
        let thread = thread
            .spawn(move || signals.forever().for_each(|signal| target.receive(signal)))
            .map_err(cannot_wait)?;
        Ok(Signals { handle, thread })
    }

    /// Ends the thread; signals that come later do nothing.
    pub(crate) fn stop(self) {
        self.handle.close();
        if self.thread.join().is_err() {
            tracing::error!("the thread that waits for signals has panicked");
        }
    }
}

impl Target {
    fn receive(&self, signal: i32) {
        match signal {
            SIGTERM | SIGINT | SIGHUP | SIGXCPU => self.end(signal),
            SIGUSR1 => {
                // A failure is logged already.
                if let Some(server) = self.server.upgrade() {
                    let _ = server.rotate_logs();
                }
            }
            SIGXFSZ => {}
            other => {
                tracing::info!(target: "CONTROL", id = 23_377, signal = other, "Received signal")
            }
        }
    }

    fn end(&self, signal: i32) {
        let Some(server) = self.server.upgrade() else { return };
        if !server.shutdown.is_requested() {
            tracing::info!(target: "CONTROL", id = 23_377, signal, "Received signal");
            tracing::info!(target: "CONTROL", id = 23_381, "will terminate after current cmd ends");
            server.shutdown.request();
            return;
        }
        tracing::warn!(signal, "ending at once: a second signal has come");
        // Acknowledged writes are in the log; others may be too.
        if let Some(store) = self.store.upgrade()
            && let Err(error) = store.sync(store.moment())
        {
            tracing::error!(%error, "the last sync failed");
        }
        if let Some(path) = &self.pid_file {
            // A remaining file does no harm.
            let _ = fs::remove_file(path);
        }
        signal_hook::low_level::exit(EXIT_AT_ONCE);
    }
}
