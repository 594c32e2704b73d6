//! A connection's state in its worker: the stream, unprocessed input, unsent output.
//!
//! An idle connection has no buffers: requests are read into a buffer of the worker, and replies
//! are written from one. Only incomplete input, and output that the client does not accept yet, is
//! stored here.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

use marula_wire::{OwnedMessage, frame_length};

use super::listen::Stream;
use super::per_address::AddressPlace;
use super::service::{Disconnected, Lane, Service};

/// The minimum space for the rest of a message; it grows with the received size.
const GROWTH_BYTES_MIN: usize = 64 * 1024;
/// The maximum number of bytes of one message that are read in one turn.
const GROWTH_BYTES_MAX: usize = 1024 * 1024;
/// The maximum number of bytes that are sent to one client in one turn.
const SEND_BYTES_MAX: usize = 1024 * 1024;

pub(super) struct Connection<S: Service> {
    pub(super) id: u64,
    pub(super) stream: Stream,
    /// The service's state; `None` while a pool thread has it.
    pub(super) state: Option<S::Connection>,
    pub(super) disconnected: Disconnected,
    /// Its entry among the connections of its address, if those are limited.
    _place: Option<AddressPlace>,
    pub(super) parked: Parked,
    /// The number of the parked request, which a wake must name.
    pub(super) ticket: u64,
    /// Unprocessed input: an incomplete message, or messages after a parked one.
    pub(super) input: Vec<u8>,
    /// Unsent output, from `sent` on.
    output: Vec<u8>,
    sent: usize,
    /// Whether the socket may accept more output. A full one causes an event once it does.
    pub(super) writable: bool,
    /// Whether the socket may have input. Edge-triggered polls report it once.
    pub(super) readable: bool,
    /// Whether the client has closed its side: reading continues up to the end of the stream.
    pub(super) peer_closed: bool,
    /// Whether the connection closes once all output is sent.
    pub(super) closing: bool,
    /// Whether one of its replies waits for the end of the worker's round.
    pub(super) in_round: bool,
    /// Whether it has a further turn without an event.
    pub(super) queued: bool,
}

/// The state of a connection's request: what it waits for.
///
/// ```text
///        call             wait                        then
///   No ──┬── done ──────────────────────────────────► reply, No
///        ├── to pool ───► Pool    the pool's outcome ► done, Held, Retry or Stream
///        ├── hold ──────► Held    wake (log synced) ─► reply, No
///        ├── retry ─────► Retry   wake or deadline ──► called again in the pool
///        └── stream ────► Stream  replies are sent ──► called again in the pool
/// ```
pub(super) enum Parked {
    /// There is none.
    No,
    /// A pool thread.
    Pool,
    /// A wake; the reply is ready.
    Held { reply: Vec<u8> },
    /// A wake or the deadline; then the pool.
    Retry { message: OwnedMessage, arrived: Instant, deadline: Instant, lane: Lane },
    /// The client to take what was sent; then the pool, for the next reply of the stream.
    Stream { message: OwnedMessage, arrived: Instant, lane: Lane },
}

/// The result of a read.
pub(super) enum Received {
    /// Nothing, for now.
    Nothing,
    /// This number of bytes in the worker's buffer.
    Fresh(usize),
    /// More bytes in the connection's own buffer.
    Buffered,
    /// The end of the stream, or an error, which is treated in the same way.
    End,
}

impl<S: Service> Connection<S> {
    pub(super) fn new(
        id: u64,
        stream: Stream,
        state: S::Connection,
        disconnected: Disconnected,
        place: Option<AddressPlace>,
    ) -> Self {
        Connection {
            id,
            stream,
            state: Some(state),
            disconnected,
            _place: place,
            parked: Parked::No,
            ticket: 0,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            writable: false,
            readable: false,
            peer_closed: false,
            closing: false,
            in_round: false,
            queued: false,
        }
    }

    pub(super) fn is_parked(&self) -> bool {
        !matches!(self.parked, Parked::No)
    }

    /// Returns whether there may be work for it without another event.
    pub(super) fn has_more(&self) -> bool {
        self.readable
            || !self.input.is_empty()
            || self.is_parked()
            || self.closing
            || self.peer_closed
            || self.can_send()
    }

    /// Returns whether there is output that the socket may accept.
    pub(super) fn can_send(&self) -> bool {
        self.writable && !self.is_drained()
    }

    /// Returns whether all output is sent.
    pub(super) fn is_drained(&self) -> bool {
        self.output.is_empty()
    }

    /// Reads once: into `fresh` if nothing is buffered, else the rest of the buffered message.
    pub(super) fn receive(&mut self, fresh: &mut [u8]) -> Received {
        if !self.input.is_empty() {
            return self.receive_rest();
        }
        loop {
            return match self.stream.read(fresh) {
                Ok(0) => Received::End,
                Ok(count) => {
                    // A short read has emptied the socket: further input causes a new event.
                    if count < fresh.len() && !self.peer_closed {
                        self.readable = false;
                    }
                    Received::Fresh(count)
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    Received::Nothing
                }
                Err(_) => Received::End,
            };
        }
    }

    /// Reads the rest of a message. The buffer grows with the received size, not with the claimed
    /// size.
    fn receive_rest(&mut self) -> Received {
        let missing = match frame_length(&self.input) {
            Ok(Some(length)) => length.saturating_sub(self.input.len()),
            Ok(None) => marula_wire::Header::SIZE.saturating_sub(self.input.len()),
            // The caller finds the same error and closes.
            Err(_) => 0,
        };
        let room = missing.min(self.input.len().clamp(GROWTH_BYTES_MIN, GROWTH_BYTES_MAX));
        if room == 0 {
            return Received::Buffered;
        }
        self.input.reserve(room);
        match (&mut self.stream).take(room as u64).read_to_end(&mut self.input) {
            Ok(count) if count < room => Received::End,
            Ok(_) => Received::Buffered,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Received::Buffered
            }
            Err(_) => Received::End,
        }
    }

    /// Sends `bytes` after the unsent output; the rest that the client does not accept is stored.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.output.is_empty() {
            self.output.extend_from_slice(bytes);
            return self.flush();
        }
        let taken = self.write_now(bytes)?;
        self.output.extend_from_slice(bytes.get(taken..).unwrap_or_default());
        Ok(())
    }

    /// Like [`Connection::send`], but takes over the buffer if much of it is left.
    pub(super) fn send_owned(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        if !self.output.is_empty() {
            return self.send(&bytes);
        }
        self.output = bytes;
        self.flush()
    }

    /// Ends the connection without waiting for unsent output.
    pub(super) fn give_up(&mut self) {
        self.closing = true;
        self.peer_closed = true;
    }

    /// Sends unsent output as far as the client accepts it.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let output = std::mem::take(&mut self.output);
        let taken = self.write_now(output.get(self.sent..).unwrap_or_default());
        self.output = output;
        self.sent += taken?;
        if self.sent == self.output.len() {
            // The buffer is freed: the client may never be slow again.
            self.output = Vec::new();
            self.sent = 0;
        }
        Ok(())
    }

    /// Writes until everything is written, the socket is full, or the turn is over; returns the
    /// number of bytes.
    ///
    /// A partial write is followed by another: only a write that would block causes an event.
    fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        self.writable = true;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            if written >= SEND_BYTES_MAX {
                break;
            }
            match self.stream.write(rest.get(..SEND_BYTES_MAX).unwrap_or(rest)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.writable = false;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }
}
