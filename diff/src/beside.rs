//! A client that writes next to the cases, in a database of its own.
//!
//! In use a server is never alone: scans are overtaken by writes, and short requests take long.
//! Both change how a request is executed, and must not change its result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use marula_bson::DocBuf;
use marula_wire::client::Client;
use marula_wire::message::Flags;

use crate::tree::{Tree, tree};

/// The time between two writes.
const PAUSE: Duration = Duration::from_millis(1);

/// The time before the next attempt, while the server starts again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The time after which a silent server is left.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The client; it ends when this is dropped.
pub(crate) struct Beside {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Beside {
    /// Starts to write to the server at `address`.
    pub(crate) fn start(address: String) -> Beside {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                write(&address, &ends);
                thread::sleep(RETRY_PAUSE);
            }
        });
        Beside { is_over, thread: Some(thread) }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is joined once");
        // One that has panicked has reported that.
        let _ = thread.join();
    }
}

/// Writes until the end, or until the connection fails.
fn write(address: &str, ends: &AtomicBool) {
    let Ok(mut client) = Client::connect(address, TIMEOUT) else { return };
    for number in (0..50).cycle() {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        let sent = client.send("beside", update(number).as_doc(), &[], Flags::default());
        if sent.is_err() || client.receive().is_err() {
            return;
        }
        thread::sleep(PAUSE);
    }
}

fn update(number: i32) -> DocBuf {
    let statement = tree! {
        "q" => tree! { "_id" => number },
        "u" => tree! { "$inc" => tree! { "n" => 1 } },
        "upsert" => Tree::of(true),
    };
    tree! { "update" => "c", "updates" => Tree::Array(vec![statement]) }.to_doc()
}
