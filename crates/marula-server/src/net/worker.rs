//! A network worker: one thread, one poll, its connections.

use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use marula_wire::{Message, OwnedMessage, Refusal, ReplyBuffer, frame_length};
use mio::event::Event;
use mio::{Events, Poll, Token};

use super::connection::{Connection, Parked, Received};
use super::counters::WorkerCounters;
use super::guard::{self, Verdict};
use super::listen::{Listener, Stream};
use super::pool::{Job, Outcome};
use super::service::{Arm, Call, Disconnected, Peer, Place, Reason, Service};
use super::wake::{Mailbox, Ring, Ticket, Wake};
use super::{Shared, Stop};

/// The token of the mailbox's bell; the tokens of listeners stand below it, those of connections count from zero.
pub(super) const BELL: Token = Token(usize::MAX);
const LISTENERS: usize = 1 << 32;

/// One read takes so much at most; a longer message continues in the connection's own buffer.
const READ_BYTES: usize = 64 * 1024;
/// What is kept of the buffer for replies between turns.
const REPLY_BYTES_KEPT: usize = 1024 * 1024;
/// What is kept of the buffer for decompressed messages.
const INFLATED_BYTES_KEPT: usize = 1024 * 1024;
/// The largest spare input buffer that is kept for the next long message.
const SPARE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Pipelined messages of one connection in one turn; then others have theirs.
const MESSAGES_PER_TURN: usize = 64;
/// A part of a long message counts as so many.
const MESSAGES_PER_READ: usize = 16;
/// Replies of one turn are sent when they are so long.
const REPLY_BYTES_PER_TURN: usize = 256 * 1024;
/// How long accepting rests when the system has no file left for a connection.
const ACCEPT_REST: Duration = Duration::from_millis(100);
const EVENTS_PER_POLL: usize = 256;

/// What others tell a worker.
pub(super) enum Mail<S: Service> {
    /// A connection that was accepted for it.
    Adopt(Stream, Option<SocketAddr>),
    /// A pool thread is done with a call.
    Outcome(Box<Outcome<S>>),
    /// A parked request goes on.
    Wake(Ticket),
    Stop(Stop),
}

impl<S: Service> Ring for Mailbox<Mail<S>> {
    fn ring(&self, ticket: Ticket) {
        self.send(Mail::Wake(ticket));
    }
}

/// Whether a connection stays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Ends,
}

pub(super) struct Worker<S: Service> {
    shared: Arc<Shared<S>>,
    index: usize,
    poll: Poll,
    mailbox: Arc<Mailbox<Mail<S>>>,
    listeners: Vec<Listener>,
    /// When accepting goes on after the system had no file left.
    accept_at: Option<Instant>,
    slots: Vec<Option<Box<Connection<S>>>>,
    free: Vec<usize>,
    /// Connections that have more to do than one turn allows.
    queued: Vec<usize>,
    /// Deadlines of parked requests, with their slots.
    deadlines: BTreeSet<(Instant, usize)>,
    last_ticket: u64,
    stop: Option<Stop>,
    interrupted: bool,
    fresh: Box<[u8]>,
    reply: ReplyBuffer,
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
            slots: Vec::new(),
            free: Vec::new(),
            queued: Vec::new(),
            deadlines: BTreeSet::new(),
            last_ticket: 0,
            stop: None,
            interrupted: false,
            fresh: vec![0; READ_BYTES].into_boxed_slice(),
            reply: ReplyBuffer::new(),
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
            }
            // After the events: a mail may put a new connection where one of them speaks of an old one.
            if rung {
                self.read_mail(&mut mails);
            }
            for slot in mem::take(&mut self.queued) {
                self.turn(slot, |connection| connection.queued = false);
            }
            self.pass_deadlines();
        }
        for slot in 0..self.slots.len() {
            self.close(slot);
        }
    }

    /// Whether the worker has stopped: nothing is out any more, or it took too long.
    fn is_done(&self) -> bool {
        self.stop.is_some_and(|stop| {
            self.slots.iter().flatten().next().is_none() || Instant::now() >= stop.leave_at
        })
    }

    /// How long the poll may sleep: for ever, unless something has a deadline.
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
                Mail::Adopt(stream, remote) => self.adopt(stream, remote),
                Mail::Outcome(outcome) => self.take_back(*outcome),
                Mail::Wake(ticket) => self.wake(ticket),
                Mail::Stop(stop) => self.begin_stop(stop),
            }
        }
    }

    // ---- connections come and go

    fn accept(&mut self, index: usize) {
        while let Some(listener) = self.listeners.get(index) {
            match listener.accept() {
                Ok((stream, remote)) => self.place(stream, remote),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    // The client had gone before it was accepted.
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        tracing::warn!(%error, "could not accept a connection");
                        self.accept_at = Some(Instant::now() + ACCEPT_REST);
                        return;
                    }
                },
            }
        }
    }

    /// Gives a new connection to the worker that has the fewest.
    fn place(&mut self, stream: Stream, remote: Option<SocketAddr>) {
        let counters = &self.shared.counters;
        let current = counters.current.load(Ordering::Relaxed);
        if current >= self.shared.options.connections_max as u64 {
            counters.rejected.add(1);
            tracing::warn!(current, "connection refused: too many are open");
            return;
        }
        counters.current.fetch_add(1, Ordering::Relaxed);
        counters.total_created.add(1);
        let fewest = |&index: &usize| counters.workers[index].placed.load(Ordering::Relaxed);
        let index = (0..counters.workers.len()).min_by_key(fewest).unwrap_or(self.index);
        counters.workers[index].placed.fetch_add(1, Ordering::Relaxed);
        if index == self.index {
            self.adopt(stream, remote);
        } else {
            self.shared.mailboxes[index].send(Mail::Adopt(stream, remote));
        }
    }

    fn adopt(&mut self, mut stream: Stream, remote: Option<SocketAddr>) {
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
        let peer = Peer { remote, local, disconnected: disconnected.clone() };
        let service = &self.shared.service;
        let Some(state) = guard::protect("open", || service.open(peer, id)) else {
            self.free.push(slot);
            self.forget_one();
            return;
        };
        tracing::debug!(connection = id, ?remote, "connection accepted");
        // What came before the registration makes an event too.
        self.slots[slot] = Some(Box::new(Connection::new(id, stream, state, disconnected)));
    }

    fn forget_one(&self) {
        self.shared.counters.current.fetch_sub(1, Ordering::Relaxed);
        self.counters().placed.fetch_sub(1, Ordering::Relaxed);
    }

    /// Closes the connection in `slot`, if there is one.
    fn close(&mut self, slot: usize) {
        if let Some(connection) = self.slots[slot].take() {
            self.end(slot, *connection);
        }
    }

    fn end(&mut self, slot: usize, mut connection: Connection<S>) {
        connection.disconnected.set();
        if connection.is_parked() {
            self.unpark(slot, &mut connection);
        }
        if let Err(error) = connection.stream.deregister(self.poll.registry()) {
            tracing::debug!(connection = connection.id, %error, "could not deregister");
        }
        tracing::debug!(connection = connection.id, "connection ended");
        self.free.push(slot);
        self.forget_one();
        if let Some(state) = connection.state {
            let service = &self.shared.service;
            guard::protect("close", || service.close(state));
        }
    }

    fn begin_stop(&mut self, stop: Stop) {
        self.stop = Some(stop);
        self.listeners.clear();
        self.accept_at = None;
        for slot in 0..self.slots.len() {
            // Who waits for news learns from the service that there will be none.
            match self.slots[slot].as_ref().map(|connection| &connection.parked) {
                Some(Parked::Retry { .. }) => self.retry(slot, Reason::Woken),
                _ => self.turn(slot, |_| {}),
            }
        }
    }

    /// Tells what runs in the pool to end, and ends everything else.
    fn interrupt(&mut self) {
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

    // ---- turns

    /// An event of the poll for the connection in `slot`.
    fn ready(&mut self, slot: usize, event: &Event) {
        let readable = event.is_readable();
        let gone = event.is_read_closed() || event.is_error();
        self.turn(slot, |connection| {
            connection.readable |= readable || gone;
            connection.peer_closed |= gone;
        });
    }

    /// Lets the connection in `slot` do what it can.
    fn turn(&mut self, slot: usize, before: impl FnOnce(&mut Connection<S>)) {
        let Some(mut connection) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        before(&mut connection);
        match self.serve(slot, &mut connection) {
            Fate::Stays => self.slots[slot] = Some(connection),
            Fate::Ends => self.end(slot, *connection),
        }
    }

    fn serve(&mut self, slot: usize, connection: &mut Connection<S>) -> Fate {
        let mut budget = MESSAGES_PER_TURN;
        loop {
            if !connection.is_drained() && connection.flush().is_err() {
                connection.closing = true;
                connection.peer_closed = true;
            }
            if connection.is_parked() {
                return self.watch_parked(slot, connection);
            }
            if connection.peer_closed && connection.closing {
                return Fate::Ends;
            }
            if !connection.is_drained() {
                // Who does not take replies sends no requests.
                return Fate::Stays;
            }
            if connection.closing || self.stop.is_some() {
                return Fate::Ends;
            }
            if budget == 0 {
                self.queue(slot, connection);
                return Fate::Stays;
            }
            let fate = self.progress(slot, connection, &mut budget);
            if let Some(fate) = fate {
                return fate;
            }
        }
    }

    /// What a parked request's connection can do: notice that the client has gone.
    fn watch_parked(&mut self, slot: usize, connection: &mut Connection<S>) -> Fate {
        match &connection.parked {
            Parked::Stream { .. } if connection.peer_closed => Fate::Ends,
            Parked::Stream { .. } if connection.is_drained() => {
                if let Parked::Stream { message, arrived } = self.unpark(slot, connection) {
                    self.submit(slot, connection, message, arrived, Reason::Streaming);
                }
                Fate::Stays
            }
            Parked::Retry { .. } if connection.peer_closed => Fate::Ends,
            Parked::Pool if connection.peer_closed => {
                connection.disconnected.set();
                Fate::Stays
            }
            _ => Fate::Stays,
        }
    }

    fn queue(&mut self, slot: usize, connection: &mut Connection<S>) {
        if !connection.queued {
            connection.queued = true;
            self.queued.push(slot);
        }
    }

    /// Takes the next step: uses what is buffered, or reads. `None` when there may be more to do.
    fn progress(
        &mut self,
        slot: usize,
        connection: &mut Connection<S>,
        budget: &mut usize,
    ) -> Option<Fate> {
        if !connection.input.is_empty() {
            let bytes = mem::take(&mut connection.input);
            let used = self.run_messages(slot, connection, &bytes, budget);
            self.keep_input(connection, bytes, used);
            if used > 0 || connection.closing {
                return None;
            }
        }
        if !connection.readable {
            return Some(Fate::Stays);
        }
        let mut fresh = mem::take(&mut self.fresh);
        let received = connection.receive(&mut fresh);
        let next = match received {
            Received::End => Some(Fate::Ends),
            Received::Nothing => Some(Fate::Stays),
            Received::Buffered => {
                *budget = budget.saturating_sub(MESSAGES_PER_READ);
                None
            }
            Received::Fresh(count) => {
                let bytes = fresh.get(..count).unwrap_or_default();
                let used = self.run_messages(slot, connection, bytes, budget);
                let rest = bytes.get(used..).unwrap_or_default();
                // The large spare buffer is for who has really sent much.
                if rest.len() > READ_BYTES / 2 {
                    connection.input = mem::take(&mut self.spare);
                }
                connection.input.extend_from_slice(rest);
                None
            }
        };
        self.fresh = fresh;
        next
    }

    /// Puts back what is left of a connection's input, whose first `used` bytes are done.
    fn keep_input(&mut self, connection: &mut Connection<S>, mut bytes: Vec<u8>, used: usize) {
        if used < bytes.len() {
            bytes.drain(..used);
            connection.input = bytes;
        } else if bytes.capacity() > self.spare.capacity() && bytes.capacity() <= SPARE_BYTES_MAX {
            bytes.clear();
            self.spare = bytes;
        }
    }

    /// Runs the whole messages at the front of `bytes` and sends their replies; returns how many bytes are done.
    fn run_messages(
        &mut self,
        slot: usize,
        connection: &mut Connection<S>,
        bytes: &[u8],
        budget: &mut usize,
    ) -> usize {
        let arrived = Instant::now();
        let mut used = 0;
        while *budget > 0
            && !connection.is_parked()
            && !connection.closing
            && self.reply.as_bytes().len() < REPLY_BYTES_PER_TURN
        {
            let rest = bytes.get(used..).unwrap_or_default();
            match frame_length(rest) {
                Ok(Some(length)) if length <= rest.len() => {
                    let frame = rest.get(..length).unwrap_or_default();
                    self.run_message(slot, connection, frame, arrived);
                    used += length;
                    *budget -= 1;
                }
                Ok(_) => break,
                Err(refusal) => {
                    log_refusal(connection, &refusal);
                    connection.closing = true;
                }
            }
        }
        self.send_replies(connection);
        used
    }

    fn send_replies(&mut self, connection: &mut Connection<S>) {
        if self.reply.as_bytes().is_empty() {
            return;
        }
        let sent = if self.reply.as_bytes().len() > REPLY_BYTES_PER_TURN {
            connection.send_owned(self.reply.take())
        } else {
            connection.send(self.reply.as_bytes())
        };
        if sent.is_err() {
            connection.closing = true;
            connection.peer_closed = true;
        }
        self.reply.clear(REPLY_BYTES_KEPT);
    }

    fn run_message(
        &mut self,
        slot: usize,
        connection: &mut Connection<S>,
        frame: &[u8],
        arrived: Instant,
    ) {
        let mut inflated = mem::take(&mut self.inflated);
        match Message::parse(frame, &mut inflated, self.shared.options.compressors) {
            Ok(message) => {
                let (length, logical) = (frame.len(), message.bytes().len());
                self.counters().received(length, logical, message.reply_to().compressor);
                self.call(slot, connection, &message, arrived);
            }
            Err(refusal) => {
                self.counters().received(frame.len(), frame.len(), None);
                log_refusal(connection, &refusal);
                self.refuse(connection, &refusal);
            }
        }
        inflated.clear();
        inflated.shrink_to(INFLATED_BYTES_KEPT);
        self.inflated = inflated;
    }

    fn refuse(&mut self, connection: &mut Connection<S>, refusal: &Refusal) {
        match refusal {
            Refusal::Close(_) => connection.closing = true,
            Refusal::Ignore => {}
            Refusal::Answer { reply_to, .. } if reply_to.more_to_come => {}
            Refusal::Answer { error, reply_to } => {
                let start = self.reply.as_bytes().len();
                self.reply.begin(*reply_to);
                self.reply.error(error);
                let logical = self.reply.finish(false);
                let physical = self.reply.as_bytes().len() - start;
                self.counters().replied(physical, logical, reply_to.compressor);
            }
        }
    }

    // ---- calls

    /// Calls the service on this thread.
    fn call(
        &mut self,
        slot: usize,
        connection: &mut Connection<S>,
        message: &Message<'_>,
        arrived: Instant,
    ) {
        let Some(state) = connection.state.as_mut() else {
            unreachable!("a connection that is not parked has its state")
        };
        let call = Call { place: Place::Inline, reason: Reason::Arrived, arrived };
        let start = self.reply.as_bytes().len();
        self.counters().active.add(1);
        let (verdict, logical) =
            guard::call(&*self.shared.service, state, message, &call, &mut self.reply);
        self.counters().active.sub(1);
        let physical = self.reply.as_bytes().len() - start;
        if physical > 0 {
            self.counters().replied(physical, logical, message.reply_to().compressor);
        }
        match verdict {
            Verdict::Done => {}
            Verdict::Close => connection.closing = true,
            Verdict::ToPool => {
                self.submit(slot, connection, message.to_owned(), arrived, Reason::OnPool);
            }
            Verdict::Hold(arm) => {
                let reply = self.reply.split_off(start);
                self.park(slot, connection, Parked::Held { reply }, Some(arm));
            }
            Verdict::Retry(arm, deadline) => {
                let parked = Parked::Retry { message: message.to_owned(), arrived, deadline };
                self.park(slot, connection, parked, Some(arm));
            }
            Verdict::Stream => {
                let mut message = message.to_owned();
                message.set_request_id(self.reply.last_id());
                self.park(slot, connection, Parked::Stream { message, arrived }, None);
            }
        }
    }

    /// Hands a call to the pool.
    fn submit(
        &mut self,
        slot: usize,
        connection: &mut Connection<S>,
        message: OwnedMessage,
        arrived: Instant,
        reason: Reason,
    ) {
        let Some(state) = connection.state.take() else {
            unreachable!("a connection that is not in the pool has its state")
        };
        let call = Call { place: Place::Pool, reason, arrived };
        self.park(slot, connection, Parked::Pool, None);
        let home = Arc::clone(&self.mailbox);
        self.shared.pool.submit(Job { slot, state, message, call, home });
    }

    /// A call comes back from the pool.
    fn take_back(&mut self, outcome: Outcome<S>) {
        let Outcome {
            slot,
            state,
            message,
            arrived,
            reply,
            reply_logical_bytes,
            reply_id,
            verdict,
        } = outcome;
        let Some(mut connection) = self.slots.get_mut(slot).and_then(Option::take) else {
            unreachable!("a connection whose call is out keeps its slot")
        };
        self.unpark(slot, &mut connection);
        connection.state = Some(state);
        if !reply.is_empty() {
            let compressor = message.as_message().reply_to().compressor;
            self.counters().replied(reply.len(), reply_logical_bytes, compressor);
        }
        match verdict {
            Verdict::Done => self.send_from_pool(&mut connection, reply),
            Verdict::Close => {
                self.send_from_pool(&mut connection, reply);
                connection.closing = true;
            }
            Verdict::ToPool => {
                tracing::error!("an operation asked for the pool on the pool");
                connection.closing = true;
            }
            Verdict::Hold(arm) => {
                self.park(slot, &mut connection, Parked::Held { reply }, Some(arm));
            }
            Verdict::Retry(arm, deadline) => {
                let parked = Parked::Retry { message, arrived, deadline };
                self.park(slot, &mut connection, parked, Some(arm));
            }
            Verdict::Stream => {
                let mut message = message;
                message.set_request_id(reply_id);
                self.send_from_pool(&mut connection, reply);
                self.park(slot, &mut connection, Parked::Stream { message, arrived }, None);
            }
        }
        self.slots[slot] = Some(connection);
        self.turn(slot, |_| {});
    }

    fn send_from_pool(&self, connection: &mut Connection<S>, reply: Vec<u8>) {
        if !reply.is_empty() && connection.send_owned(reply).is_err() {
            connection.closing = true;
            connection.peer_closed = true;
        }
    }

    // ---- parked requests

    fn park(
        &mut self,
        slot: usize,
        connection: &mut Connection<S>,
        parked: Parked,
        arm: Option<Arm>,
    ) {
        self.last_ticket += 1;
        connection.ticket = self.last_ticket;
        if let Parked::Retry { deadline, .. } = parked {
            self.deadlines.insert((deadline, slot));
        }
        connection.parked = parked;
        self.counters().active.add(1);
        if let Some(arm) = arm {
            let ring: Arc<dyn Ring> = Arc::clone(&self.mailbox) as _;
            let wake = Wake::new(ring, Ticket { slot, number: connection.ticket });
            guard::protect("arm", || arm(wake));
        }
    }

    fn unpark(&mut self, slot: usize, connection: &mut Connection<S>) -> Parked {
        if let Parked::Retry { deadline, .. } = connection.parked {
            self.deadlines.remove(&(deadline, slot));
        }
        self.counters().active.sub(1);
        mem::replace(&mut connection.parked, Parked::No)
    }

    fn wake(&mut self, ticket: Ticket) {
        let slot = ticket.slot;
        let Some(connection) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        if connection.ticket != ticket.number {
            return;
        }
        match connection.parked {
            Parked::Retry { .. } => self.retry(slot, Reason::Woken),
            Parked::Held { .. } => self.release(slot),
            Parked::No | Parked::Pool | Parked::Stream { .. } => {}
        }
    }

    /// Sends the reply that was held back.
    fn release(&mut self, slot: usize) {
        let Some(mut connection) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        if let Parked::Held { reply } = self.unpark(slot, &mut connection) {
            self.send_from_pool(&mut connection, reply);
        }
        self.slots[slot] = Some(connection);
        self.turn(slot, |_| {});
    }

    /// Calls again, on the pool, for a request that had nothing to say.
    fn retry(&mut self, slot: usize, reason: Reason) {
        let Some(mut connection) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        if let Parked::Retry { message, arrived, .. } = self.unpark(slot, &mut connection) {
            self.submit(slot, &mut connection, message, arrived, reason);
        }
        self.slots[slot] = Some(connection);
    }

    fn counters(&self) -> &WorkerCounters {
        &self.shared.counters.workers[self.index]
    }
}

fn log_refusal<S: Service>(connection: &Connection<S>, refusal: &Refusal) {
    if let Refusal::Close(why) = refusal {
        tracing::info!(connection = connection.id, why, "closing the connection: broken message");
    }
}
