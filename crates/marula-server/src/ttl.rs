//! The TTL monitor: a thread that removes expired documents, every `ttlMonitorSleepSecs` seconds.
//!
//! One *pass* covers every collection of every database; [`ExpireOp`] finds the expired
//! documents. A pass stops between two batches when the server ends, when `ttlMonitorEnabled` is
//! set to false, or when `fsync` locks writes. An error in a collection is logged, and the next
//! pass tries it again.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use marula_db::Unit;
use marula_error::Result;
use marula_operation::expire::ExpireOp;

use crate::server::Server;

/// The interval at which the monitor's parameters are checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Server {
    /// Starts the TTL monitor; it ends with the server.
    pub fn start_ttl_monitor(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let server = self.clone();
        Builder::new().name("ttl".into()).spawn(move || run(&server))
    }
}

fn run(server: &Server) {
    let mut last = Instant::now();
    while !server.shutdown.wait_until(Instant::now() + LOOK_EVERY) {
        let seconds = server.parameters.number("ttlMonitorSleepSecs");
        let pause = Duration::from_secs(seconds.unsigned_abs());
        if last.elapsed() >= pause && may_delete(server) {
            pass(server);
            last = Instant::now();
        }
    }
}

fn may_delete(server: &Server) -> bool {
    server.parameters.flag("ttlMonitorEnabled")
        && server.primacy.is_primary()
        && !server.write_lock.is_locked()
        && !server.db.blocks_user_writes()
        && !server.shutdown.is_requested()
}

/// Removes the expired documents of every collection once.
fn pass(server: &Server) {
    match server.db.leads() {
        Ok(true) => {}
        Ok(false) => return,
        Err(error) => {
            tracing::warn!(%error, "the nodes of the store could not be listed; no documents expire until the next pass");
            return;
        }
    }
    let catalog = server.db.catalog();
    for database in catalog.databases() {
        for collection in catalog.collections(&database) {
            let (unit, op) = (Unit::new(&server.db), ExpireOp { now_ms: server.now_ms() });
            let deleted: Result<u64> = op.run(unit, &collection, &mut || may_delete(server));
            let ns = collection.namespace();
            match deleted {
                Ok(0) => {}
                Ok(count) => {
                    server.counters.ttl_deleted.add(count);
                    tracing::debug!(%ns, count, "removed expired documents");
                }
                // Dropped in the meantime: there is nothing to remove.
                Err(_) if collection.is_dropped() => {}
                Err(error) => {
                    tracing::warn!(%ns, %error, "expired documents could not be removed; tried again later");
                }
            }
        }
    }
    server.counters.ttl_passes.add(1);
}
