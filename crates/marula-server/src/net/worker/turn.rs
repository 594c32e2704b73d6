//! A connection's turn: send output, process input, read more.
//!
//! ```text
//!   ┌─► send buffered bytes ─► run buffered messages ─► read from the socket ─┐
//!   └─────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The turn ends until the next event if the socket is full, if a request is parked, or if there is
//! nothing to read; until the end of the round if its replies are in the round; and is queued again
//! if its budget of messages is used up.

use std::mem;
use std::time::{Duration, Instant};

use marula_wire::{Message, Refusal, frame_length, logical_length};
use mio::event::Event;

use super::request::pool_call;
use super::{READ_BYTES, Worker};
use crate::net::connection::{Connection, Parked, Received};
use crate::net::foreign;
use crate::net::pool::Work;
use crate::net::service::{Order, Reason, Service};

/// The size to which the buffer for replies is reduced between turns.
const REPLY_BYTES_KEPT: usize = 1024 * 1024;
/// The size to which the buffer for decompressed messages is reduced.
const INFLATED_BYTES_KEPT: usize = 1024 * 1024;
/// The maximum size of the spare input buffer that is kept for the next long message.
const SPARE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The maximum number of pipelined messages of one connection in one turn.
const MESSAGES_PER_TURN: usize = 64;
/// The number of messages as which a part of a long message counts.
const MESSAGES_PER_READ: usize = 32;
/// The uncompressed size that counts as one more message.
const BYTES_PER_MESSAGE: usize = 4 * 1024;
/// The maximum time of the messages in one turn.
const TURN_MAX: Duration = Duration::from_millis(1);
/// The size up to which any client may send a message.
const SMALL_BYTES: usize = 1024;
/// The maximum uncompressed size of a message that is parsed here: checking and decompressing a
/// longer one would delay others.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// The size at which the replies of one turn are sent.
const REPLY_BYTES_PER_TURN: usize = 256 * 1024;

/// Why a connection is closed that begins with a TLS handshake.
const TLS_NOT_OFFERED: &str = "SSL handshake received but server is started without SSL support";

/// Whether a connection stays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Ends,
}

impl<S: Service> Worker<S> {
    /// Handles an event of the poll for the connection in `slot`.
    pub(super) fn ready(&mut self, slot: usize, event: &Event) {
        let readable = event.is_readable();
        let gone = event.is_read_closed() || event.is_error();
        self.turn(slot, |connection| {
            connection.readable |= readable || gone;
            connection.peer_closed |= gone;
        });
    }

    /// Runs the turn of the connection in `slot`.
    pub(super) fn turn(&mut self, slot: usize, before: impl FnOnce(&mut Connection<S>)) {
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
            if connection.in_round {
                return Fate::Stays;
            }
            if !connection.is_drained() && connection.flush().is_err() {
                connection.give_up();
            }
            if connection.can_send() {
                self.queue(slot, connection);
            }
            if connection.is_parked() {
                return self.watch_parked(slot, connection);
            }
            if connection.peer_closed && connection.closing {
                return Fate::Ends;
            }
            if !connection.is_drained() {
                // A client that does not read replies gets no further requests served.
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

    /// Watches a parked request's connection for a disconnection.
    fn watch_parked(&mut self, slot: usize, connection: &mut Connection<S>) -> Fate {
        match &connection.parked {
            Parked::Stream { .. } if connection.peer_closed => Fate::Ends,
            Parked::Stream { .. } if connection.is_drained() => {
                if let Parked::Stream { message, arrived, lane } = self.unpark(slot, connection) {
                    let order = Order { lane, deadline: None };
                    let call = pool_call(Reason::Streaming, arrived);
                    self.submit(slot, connection, Work::Message(message), call, order);
                }
                Fate::Stays
            }
            Parked::Retry { .. } if connection.peer_closed => {
                connection.disconnected.set();
                // A write waits on without its client, and is followed by the requests that the
                // client sent after it.
                let is_ended = |state| self.shared.service.is_ended(state);
                match connection.state.as_ref().is_none_or(is_ended) {
                    true => Fate::Ends,
                    false => Fate::Stays,
                }
            }
            Parked::Pool if connection.peer_closed => {
                connection.disconnected.set();
                Fate::Stays
            }
            _ => Fate::Stays,
        }
    }

    pub(super) fn queue(&mut self, slot: usize, connection: &mut Connection<S>) {
        if !connection.queued {
            connection.queued = true;
            self.queued.push(slot);
        }
    }

    /// Takes the next step: processes buffered input, or reads. `None` if there may be more to do.
    fn progress(
        &mut self,
        slot: usize,
        connection: &mut Connection<S>,
        budget: &mut usize,
    ) -> Option<Fate> {
        if !connection.input.is_empty() {
            let bytes = mem::take(&mut connection.input);
            if bytes.len() > MESSAGE_BYTES_MAX
                && self
                    .lengths(connection, &bytes)
                    .is_ok_and(|lengths| lengths.is_some_and(|(length, _)| length == bytes.len()))
            {
                // The whole buffer is one long message, which is passed on without a copy.
                self.submit_frame(slot, connection, bytes, Instant::now());
                return None;
            }
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
                // The large spare buffer is for clients that have sent much.
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

    /// Stores the rest of a connection's input, of which the first `used` bytes are processed.
    fn keep_input(&mut self, connection: &mut Connection<S>, mut bytes: Vec<u8>, used: usize) {
        if used < bytes.len() {
            bytes.drain(..used);
            connection.input = bytes;
        } else if bytes.capacity() > self.spare.capacity() && bytes.capacity() <= SPARE_BYTES_MAX {
            bytes.clear();
            self.spare = bytes;
        }
    }

    /// Runs the complete messages at the front of `bytes` and sends their replies; returns the
    /// number of processed bytes.
    fn run_messages(
        &mut self,
        slot: usize,
        connection: &mut Connection<S>,
        bytes: &[u8],
        budget: &mut usize,
    ) -> usize {
        let arrived = Instant::now();
        self.counters().busy.begin(connection.id, arrived);
        let mut used = 0;
        while *budget > 0
            && !connection.is_parked()
            && !connection.closing
            && self.reply.as_bytes().len() < REPLY_BYTES_PER_TURN
        {
            let rest = bytes.get(used..).unwrap_or_default();
            match self.lengths(connection, rest) {
                Ok(Some((length, logical))) if length <= rest.len() => {
                    let frame = rest.get(..length).unwrap_or_default();
                    if logical > MESSAGE_BYTES_MAX {
                        self.submit_frame(slot, connection, frame.to_vec(), arrived);
                    } else {
                        self.run_message(slot, connection, frame, arrived);
                    }
                    used += length;
                    *budget = budget.saturating_sub(1 + logical / BYTES_PER_MESSAGE);
                }
                Ok(_) => break,
                Err(refusal) => {
                    log_refusal(connection, &refusal);
                    if foreign::is_http(rest) && connection.send(foreign::HTTP_ANSWER).is_err() {
                        connection.give_up();
                    }
                    connection.closing = true;
                }
            }
            if used < bytes.len() && arrived.elapsed() > TURN_MAX {
                *budget = 0;
            }
        }
        self.send_replies(slot, connection);
        self.counters().busy.end();
        used
    }

    /// Returns the length of the message at the front of `bytes`, and its uncompressed length;
    /// `None` while it is not known.
    ///
    /// Errors: a length that no message, or none of this connection, may have.
    fn lengths(
        &self,
        connection: &Connection<S>,
        bytes: &[u8],
    ) -> Result<Option<(usize, usize)>, Refusal> {
        if foreign::is_client_hello(bytes) {
            return Err(Refusal::Close(TLS_NOT_OFFERED));
        }
        let (Some(length), Some(logical)) = (frame_length(bytes)?, logical_length(bytes)?) else {
            return Ok(None);
        };
        let service = &self.shared.service;
        let is_allowed = |state| logical <= service.message_bytes_max(state);
        if logical > SMALL_BYTES && !connection.state.as_ref().is_none_or(is_allowed) {
            return Err(Refusal::Close("the message is longer than its sender may send"));
        }
        Ok(Some((length, logical)))
    }

    fn send_replies(&mut self, slot: usize, connection: &mut Connection<S>) {
        if self.reply.as_bytes().is_empty() {
            return;
        }
        let sent = if self.join_round(slot, connection) {
            Ok(())
        } else if self.reply.as_bytes().len() > REPLY_BYTES_PER_TURN {
            connection.send_owned(self.reply.take())
        } else {
            connection.send(self.reply.as_bytes())
        };
        if sent.is_err() {
            connection.give_up();
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

    pub(super) fn refuse(&mut self, connection: &mut Connection<S>, refusal: &Refusal) {
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
}

fn log_refusal<S: Service>(connection: &Connection<S>, refusal: &Refusal) {
    if let Refusal::Close(why) = refusal {
        // MongoDB's id for an invalid request.
        tracing::info!(target: "NETWORK", id = 22_988, error = why, connectionId = connection.id, "Error receiving request from client. Ending connection from remote");
    }
}
