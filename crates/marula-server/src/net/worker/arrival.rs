//! The start and the end of connections: accepting, placing, closing, shutdown.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::Token;

use super::{Mail, Worker};
use crate::net::Stop;
use crate::net::connection::{Connection, Parked};
use crate::net::guard;
use crate::net::listen::Stream;
use crate::net::per_address::AddressPlace;
use crate::net::service::{Disconnected, Peer, Reason, Service};

/// The pause of accepting when the system has no file left for a connection.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// The interval of log lines about rejected connections.
const REFUSALS_REPORTED_EVERY: Duration = Duration::from_secs(60);

/// Rejected connections, with which a client in a loop could fill the log.
#[derive(Default)]
pub(super) struct Refusals {
    reported_at: Option<Instant>,
    unreported: u64,
}

impl Refusals {
    /// Counts one; returns their number since the last line, if it is time for another one.
    fn count(&mut self) -> Option<u64> {
        if self.reported_at.is_some_and(|at| at.elapsed() < REFUSALS_REPORTED_EVERY) {
            self.unreported += 1;
            return None;
        }
        self.reported_at = Some(Instant::now());
        Some(std::mem::take(&mut self.unreported))
    }
}

impl<S: Service> Worker<S> {
    pub(super) fn accept(&mut self, index: usize) {
        while let Some(listener) = self.listeners.get(index) {
            match listener.accept() {
                Ok((stream, remote)) => self.place(stream, remote),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    // The client disconnected before it was accepted.
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        if let Some(before) = self.refusals.count() {
                            tracing::warn!(%error, before, "could not accept a connection; those that wait are tried again");
                        }
                        self.accept_at = Some(Instant::now() + ACCEPT_REST);
                        return;
                    }
                },
            }
        }
    }

    /// Passes a new connection to the worker with the fewest.
    fn place(&mut self, stream: Stream, remote: Option<SocketAddr>) {
        let counters = &self.shared.counters;
        let current = counters.current.load(Ordering::Relaxed);
        if current >= self.shared.options.connections_max as u64 {
            counters.rejected.add(1);
            if let Some(before) = self.refusals.count() {
                tracing::warn!(current, before, "connection refused: too many are open");
            }
            return;
        }
        let place = match (&self.shared.per_address, remote) {
            (Some(all), Some(remote)) => match all.take(remote) {
                None => {
                    counters.rejected.add(1);
                    if let Some(before) = self.refusals.count() {
                        let address = remote.ip();
                        tracing::warn!(%address, before, "connection refused: its address has too many");
                    }
                    return;
                }
                place => place,
            },
            _ => None,
        };
        counters.current.fetch_add(1, Ordering::Relaxed);
        counters.total_created.add(1);
        let fewest = |&index: &usize| counters.workers[index].placed.load(Ordering::Relaxed);
        let index = (0..counters.workers.len()).min_by_key(fewest).unwrap_or(self.index);
        counters.workers[index].placed.fetch_add(1, Ordering::Relaxed);
        if index == self.index {
            self.adopt(stream, remote, place);
        } else {
            self.shared.mailboxes[index].send(Mail::Adopt(stream, remote, place));
        }
    }

    pub(super) fn adopt(
        &mut self,
        stream: Stream,
        remote: Option<SocketAddr>,
        place: Option<AddressPlace>,
    ) {
        let mut stream = stream.with_tls(self.shared.options.tls.as_ref());
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let registered = stream.register(self.poll.registry(), Token(slot));
        if self.stop.is_some() || registered.is_err() {
            self.free.push(slot);
            self.forget_one();
            return;
        }
        let id = self.shared.last_connection_id.fetch_add(1, Ordering::Relaxed) + 1;
        let disconnected = Disconnected::default();
        let local = stream.local_addr();
        let tls = stream.seen();
        let peer = Peer { remote, local, disconnected: disconnected.clone(), tls };
        let service = &self.shared.service;
        let Some(state) = guard::protect("open", || service.open(peer, id)) else {
            self.free.push(slot);
            self.forget_one();
            return;
        };
        // Input before the registration causes an event too.
        let connection = Connection::new(id, stream, state, disconnected, place);
        self.slots[slot] = Some(Box::new(connection));
    }

    fn forget_one(&self) {
        self.shared.counters.current.fetch_sub(1, Ordering::Relaxed);
        self.counters().placed.fetch_sub(1, Ordering::Relaxed);
    }

    /// Closes the connection in `slot`, if there is one.
    pub(super) fn close(&mut self, slot: usize) {
        if let Some(connection) = self.slots[slot].take() {
            self.end(slot, *connection);
        }
    }

    pub(super) fn end(&mut self, slot: usize, mut connection: Connection<S>) {
        connection.disconnected.set();
        if connection.is_parked() {
            self.unpark(slot, &mut connection);
        }
        if let Err(error) = connection.stream.deregister(self.poll.registry()) {
            tracing::debug!(connection = connection.id, %error, "could not deregister");
        }
        self.free.push(slot);
        self.forget_one();
        if let Some(state) = connection.state {
            let service = &self.shared.service;
            guard::protect("close", || service.close(state));
        }
    }

    pub(super) fn begin_stop(&mut self, stop: Stop) {
        self.stop = Some(stop);
        self.listeners.clear();
        self.accept_at = None;
        for slot in 0..self.slots.len() {
            // The service completes requests that wait for an event.
            match self.slots[slot].as_ref().map(|connection| &connection.parked) {
                Some(Parked::Retry { .. }) => self.retry(slot, Reason::Woken),
                _ => self.turn(slot, |_| {}),
            }
        }
    }

    /// Interrupts calls in the pool, and ends everything else.
    pub(super) fn interrupt(&mut self) {
        self.interrupted = true;
        for slot in 0..self.slots.len() {
            match self.slots[slot].as_ref() {
                Some(connection) if matches!(connection.parked, Parked::Pool) => {
                    connection.disconnected.set();
                }
                _ => self.close(slot),
            }
        }
    }
}
