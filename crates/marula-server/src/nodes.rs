//! A thread that has a server follow the others with which it shares its store.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::server::Server;

/// The interval; for so long the counters of collections may be those of an earlier moment, and
/// tailable cursors do not see what other nodes have inserted.
const INTERVAL: Duration = Duration::from_secs(1);

/// Starts the thread; it ends with the server. There is none where the server is alone.
pub fn start(server: &Arc<Server>) -> std::io::Result<Option<JoinHandle<()>>> {
    if !server.db.is_shared() {
        return Ok(None);
    }
    server.db.follow_catalog();
    let server = server.clone();
    Builder::new().name("nodes".into()).spawn(move || run(&server)).map(Some)
}

fn run(server: &Server) {
    let mut seen = server.db.renewals();
    while !server.shutdown.wait_until(Instant::now() + INTERVAL) {
        let mut tend = || {
            server.db.tend_nodes()?;
            let renewals = server.db.renewals();
            if seen != renewals {
                server.user_write_block.renew(&server.db)?;
                seen = renewals;
            }
            Ok::<_, marula_error::Error>(())
        };
        if let Err(error) = tend() {
            tracing::debug!(%error, "the state of the nodes could not be read; tried again soon");
        }
    }
}
