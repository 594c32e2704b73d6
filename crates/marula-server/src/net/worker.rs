//! A network worker: one thread, one poll, its connections.
//!
//! ```text
//!     ┌──────────────────────────────────────────────────────────────────────────────┐
//!     ▼                                                                              │
//!   poll ─► ready connections ─► end of round ─► mail ─► queued turns ─► end of round ┘
//!           read, call, reply    send replies    wakes, outcomes of the pool
//! ```
//!
//! A connection's request is in one of the states of `Parked` (`connection.rs`).

mod arrival;
mod request;
mod round;
mod turn;

use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use marula_wire::ReplyBuffer;
use mio::{Events, Poll, Token};

use arrival::Refusals;

use super::connection::Connection;
use super::counters::WorkerCounters;
use super::listen::{Listener, Stream};
use super::per_address::AddressPlace;
use super::pool::{Outcome, Read, Refused};
use super::service::{Reason, Service};
use super::wake::{Bidding, Mailbox, Ring, Ticket};
use super::{Shared, Stop};
use round::Round;

/// The token of the mailbox's bell; the tokens of listeners are below it, those of connections
/// start at zero.
pub(super) const BELL: Token = Token(usize::MAX);
const LISTENERS: usize = 1 << 32;

/// The maximum size of one read; a longer message continues in the connection's own buffer.
const READ_BYTES: usize = 64 * 1024;
const EVENTS_PER_POLL: usize = 256;

/// A message to a worker.
pub(super) enum Mail<S: Service> {
    /// A connection that was accepted for it.
    Adopt(Stream, Option<SocketAddr>, Option<AddressPlace>),
    /// A pool thread is done with a call.
    Outcome(Box<Outcome<S>>),
    /// A pool thread has read a frame, whose call follows.
    Read(Read),
    /// A pool thread has read a frame that holds no message.
    Refused(Box<Refused<S>>),
    /// A parked request goes on.
    Wake(Ticket, Bidding),
    Stop(Stop),
}

impl<S: Service> Ring for Mailbox<Mail<S>> {
    fn ring(&self, ticket: Ticket, bidding: Bidding) {
        self.send(Mail::Wake(ticket, bidding));
    }
}

pub(super) struct Worker<S: Service> {
    shared: Arc<Shared<S>>,
    index: usize,
    poll: Poll,
    mailbox: Arc<Mailbox<Mail<S>>>,
    listeners: Vec<Listener>,
    /// When accepting goes on after the system had no file left.
    accept_at: Option<Instant>,
    /// The time of the last log line about rejected connections, and their number since.
    refusals: Refusals,
    slots: Vec<Option<Box<Connection<S>>>>,
    free: Vec<usize>,
    /// Connections with more work than one turn permits.
    queued: Vec<usize>,
    /// Deadlines of parked requests, with their slots.
    deadlines: BTreeSet<(Instant, usize)>,
    last_ticket: u64,
    /// The connection that was called last, and the time of the last call for another one.
    last_slot: usize,
    others_called: Option<Instant>,
    stop: Option<Stop>,
    interrupted: bool,
    fresh: Box<[u8]>,
    reply: ReplyBuffer,
    round: Round,
    inflated: Vec<u8>,
    spare: Vec<u8>,
}

impl<S: Service> Worker<S> {
    pub(super) fn new(
        shared: Arc<Shared<S>>,
        index: usize,
        poll: Poll,
        mut listeners: Vec<Listener>,
    ) -> io::Result<Self> {
        for (index, listener) in listeners.iter_mut().enumerate() {
            listener.register(poll.registry(), Token(LISTENERS + index))?;
        }
        let mailbox = Arc::clone(&shared.mailboxes[index]);
        Ok(Worker {
            shared,
            index,
            poll,
            mailbox,
            listeners,
            accept_at: None,
            refusals: Refusals::default(),
            slots: Vec::new(),
            free: Vec::new(),
            queued: Vec::new(),
            deadlines: BTreeSet::new(),
            last_ticket: 0,
            last_slot: usize::MAX,
            others_called: None,
            stop: None,
            interrupted: false,
            fresh: vec![0; READ_BYTES].into_boxed_slice(),
            reply: ReplyBuffer::new(),
            round: Round::default(),
            inflated: Vec::new(),
            spare: Vec::new(),
        })
    }

    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_PER_POLL);
        let mut mails = Vec::new();
        while !self.is_done() {
            let timeout = self.timeout();
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "polling failed");
                break;
            }
            let mut rung = false;
            for event in &events {
                match event.token() {
                    BELL => rung = true,
                    Token(token) if token >= LISTENERS => self.accept(token - LISTENERS),
                    Token(slot) => self.ready(slot, event),
                }
                if self.round.is_full() {
                    self.end_round();
                }
            }
            // Before the mail, which may have a later reply of a connection in the round.
            self.end_round();
            // After the events: a mail may put a new connection into the slot of an event for an
            // old one.
            if rung {
                self.read_mail(&mut mails);
            }
            for slot in mem::take(&mut self.queued) {
                self.turn(slot, |connection| connection.queued = false);
            }
            self.end_round();
            self.pass_deadlines();
        }
        for slot in 0..self.slots.len() {
            self.close(slot);
        }
    }

    /// Returns whether the worker has stopped: nothing is in progress, or the time is over.
    fn is_done(&self) -> bool {
        self.stop.is_some_and(|stop| {
            self.slots.iter().flatten().next().is_none() || Instant::now() >= stop.leave_at
        })
    }

    /// Returns the maximum sleep of the poll: unlimited, unless there is a deadline.
    fn timeout(&self) -> Option<Duration> {
        if !self.queued.is_empty() {
            return Some(Duration::ZERO);
        }
        let deadline = self.deadlines.first().map(|&(deadline, _)| deadline);
        let stop =
            self.stop.map(|stop| if self.interrupted { stop.leave_at } else { stop.interrupt_at });
        let next = [deadline, self.accept_at, stop].into_iter().flatten().min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn pass_deadlines(&mut self) {
        if self.deadlines.is_empty() && self.accept_at.is_none() && self.stop.is_none() {
            return;
        }
        let now = Instant::now();
        while let Some(&(deadline, slot)) = self.deadlines.first()
            && deadline <= now
        {
            self.deadlines.pop_first();
            self.retry(slot, Reason::Deadline);
        }
        if self.accept_at.is_some_and(|at| at <= now) {
            self.accept_at = None;
            for index in 0..self.listeners.len() {
                self.accept(index);
            }
        }
        if self.stop.is_some_and(|stop| stop.interrupt_at <= now) && !self.interrupted {
            self.interrupt();
        }
    }

    fn read_mail(&mut self, mails: &mut Vec<Mail<S>>) {
        self.mailbox.take(mails);
        for mail in mails.drain(..) {
            match mail {
                Mail::Adopt(stream, remote, place) => self.adopt(stream, remote, place),
                Mail::Outcome(outcome) => self.take_back(*outcome),
                Mail::Read(read) => {
                    self.counters().received(read.physical, read.logical, read.compressor);
                }
                Mail::Refused(refused) => self.take_refused(*refused),
                Mail::Wake(ticket, bidding) => self.wake(ticket, bidding),
                Mail::Stop(stop) => self.begin_stop(stop),
            }
        }
    }

    fn counters(&self) -> &WorkerCounters {
        &self.shared.counters.workers[self.index]
    }
}
