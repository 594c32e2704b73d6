//! Other nodes on a shared store: the thread that follows their changes, and requests among nodes.

pub(crate) mod requests;

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::server::Server;
use crate::user_writes;

/// The interval. The counters of collections may be that old, and tailable cursors do not see newer
/// inserts of other nodes.
const INTERVAL: Duration = Duration::from_secs(1);

impl Server {
    /// Starts the thread; it ends with the server. There is none if the server is alone.
    pub fn start_node_thread(self: &Arc<Self>) -> std::io::Result<Option<JoinHandle<()>>> {
        if !self.db.is_shared() {
            return Ok(None);
        }
        self.db.follow_store();
        let server = Arc::downgrade(self);
        self.db.execute_requests(Box::new(move |request| {
            server.upgrade().map_or_else(Vec::new, |server| requests::execute(&server, request))
        }));
        let server = self.clone();
        Builder::new().name("nodes".into()).spawn(move || run(&server)).map(Some)
    }
}

fn run(server: &Server) {
    let mut seen = server.db.renewals();
    while !server.shutdown.wait_until(Instant::now() + INTERVAL) {
        let mut tend = || {
            server.db.tend_nodes()?;
            let renewals = server.db.renewals();
            if seen != renewals {
                user_writes::load(&server.db)?;
                seen = renewals;
            }
            Ok::<_, marula_error::Error>(())
        };
        if let Err(error) = tend() {
            tracing::debug!(%error, "the state of the nodes could not be read; tried again soon");
        }
    }
}
