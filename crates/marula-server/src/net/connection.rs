//! One connection as its worker keeps it: the stream, what has come and is not yet read, what is
//! not yet sent.
//!
//! A connection at rest has no buffers: requests are read into a buffer of the worker and replies
//! written from one. Only what is incomplete, or what the client does not take, is kept here.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

use marula_wire::{OwnedMessage, frame_length};

use super::listen::Stream;
use super::per_address::AddressPlace;
use super::service::{Disconnected, Lane, Service};

/// The least room that is made for the rest of a message; more as more has come.
const GROWTH_BYTES_MIN: usize = 64 * 1024;
/// The most that is read of one message before others have their turn.
const GROWTH_BYTES_MAX: usize = 1024 * 1024;
/// The most that is sent to one client before others have their turn.
const SEND_BYTES_MAX: usize = 1024 * 1024;

pub(super) struct Connection<S: Service> {
    pub(super) id: u64,
    pub(super) stream: Stream,
    /// What the service keeps; `None` while a pool thread has it.
    pub(super) state: Option<S::Connection>,
    pub(super) disconnected: Disconnected,
    /// Its place among the connections of its address, where those are bounded.
    _place: Option<AddressPlace>,
    pub(super) parked: Parked,
    /// The number of the parked request, which a wake must name.
    pub(super) ticket: u64,
    /// Bytes that have come and are not yet used: an incomplete message, or whole ones behind a
    /// parked one.
    pub(super) input: Vec<u8>,
    /// Bytes that are not yet sent, from `sent` on.
    output: Vec<u8>,
    sent: usize,
    /// Whether the socket may take more of them. A full one makes an event once it does.
    pub(super) writable: bool,
    /// Whether the socket may have bytes to read. Edge-triggered polls say it once.
    pub(super) readable: bool,
    /// Whether the client has closed its side: reading goes on until it says so too.
    pub(super) peer_closed: bool,
    /// Whether the connection closes once all is sent.
    pub(super) closing: bool,
    /// Whether a reply of its waits for the end of the worker's round.
    pub(super) in_round: bool,
    /// Whether the worker will come back to it without an event.
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

/// What reading brought.
pub(super) enum Received {
    /// Nothing, for now.
    Nothing,
    /// So many bytes in the worker's buffer.
    Fresh(usize),
    /// More bytes in the connection's own buffer.
    Buffered,
    /// The end, or an error, which is the same.
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

    /// Whether there may be something to do for it without another event.
    pub(super) fn has_more(&self) -> bool {
        self.readable
            || !self.input.is_empty()
            || self.is_parked()
            || self.closing
            || self.peer_closed
            || self.can_send()
    }

    /// Whether there is something to send that the socket may take.
    pub(super) fn can_send(&self) -> bool {
        self.writable && !self.is_drained()
    }

    /// Whether the client has taken all that was sent.
    pub(super) fn is_drained(&self) -> bool {
        self.output.is_empty()
    }

    /// Reads once: into `fresh` while nothing is buffered, else what is missing of the buffered
    /// message.
    pub(super) fn receive(&mut self, fresh: &mut [u8]) -> Received {
        if !self.input.is_empty() {
            return self.receive_rest();
        }
        loop {
            return match self.stream.read(fresh) {
                Ok(0) => Received::End,
                Ok(count) => {
                    // A short read has emptied the socket: the next bytes make a new event.
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

    /// Room grows with what has come, not with what is claimed.
    fn receive_rest(&mut self) -> Received {
        let missing = match frame_length(&self.input) {
            Ok(Some(length)) => length.saturating_sub(self.input.len()),
            Ok(None) => marula_wire::Header::SIZE.saturating_sub(self.input.len()),
            // The caller finds the same and closes.
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

    /// Sends `bytes` behind what is not yet sent; what the client does not take is kept.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.output.is_empty() {
            self.output.extend_from_slice(bytes);
            return self.flush();
        }
        let taken = self.write_now(bytes)?;
        self.output.extend_from_slice(bytes.get(taken..).unwrap_or_default());
        Ok(())
    }

    /// As [`Connection::send`], and keeps the buffer itself where much of it is left.
    pub(super) fn send_owned(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        if !self.output.is_empty() {
            return self.send(&bytes);
        }
        self.output = bytes;
        self.flush()
    }

    /// Notes that nothing can be sent any more: the connection ends without waiting for what is
    /// unsent.
    pub(super) fn give_up(&mut self) {
        self.closing = true;
        self.peer_closed = true;
    }

    /// Sends what is not yet sent, as far as the client takes it.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let output = std::mem::take(&mut self.output);
        let taken = self.write_now(output.get(self.sent..).unwrap_or_default());
        self.output = output;
        self.sent += taken?;
        if self.sent == self.output.len() {
            // A slow client's buffer is not kept: it may never be slow again.
            self.output = Vec::new();
            self.sent = 0;
        }
        Ok(())
    }

    /// Writes until all is written, the socket is full, or others should have their turn; returns
    /// how much was.
    ///
    /// A partial write is followed by another: only a write that would block makes the poll tell of
    /// room.
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
