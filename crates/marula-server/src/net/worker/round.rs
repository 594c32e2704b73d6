//! A round: the replies to writes that wait for one shared handover of the log.
//!
//! A write is visible at once, and told of only when its log is with the operating system. Instead of handing the log
//! over for each write, a worker keeps the replies of the connections it has just served, hands over once, and sends
//! them one after the other: with many connections a handover serves dozens of writes, and their clients' wake-ups come
//! together. A connection with a reply in the round does nothing else until the round ends.

use std::mem;
use std::ops::Range;

use marula_error::Error;
use marula_wire::{ReplyBuffer, ReplyTo};

use super::Worker;
use crate::net::connection::Connection;
use crate::net::guard;
use crate::net::service::Service;

/// A round ends with so many connections in it: the first of them has waited for half a millisecond then.
const CONNECTIONS_MAX: usize = 32;
/// A round ends when its replies are so long.
const BYTES_MAX: usize = 256 * 1024;

/// The replies that wait.
#[derive(Default)]
pub(super) struct Round {
    /// One connection's replies after another's.
    bytes: Vec<u8>,
    /// The connections, in the order of their replies, and where each one's end.
    turns: Vec<(usize, usize)>,
    /// The replies that tell of writes, which become errors when the handover fails.
    writes: Vec<(Range<usize>, ReplyTo)>,
}

impl Round {
    pub(super) fn is_full(&self) -> bool {
        self.turns.len() >= CONNECTIONS_MAX || self.bytes.len() >= BYTES_MAX
    }

    /// Notes a reply that tells of a write; `place` is where it stands among the turn's replies.
    pub(super) fn note(&mut self, place: Range<usize>, reply_to: ReplyTo) {
        let base = self.bytes.len();
        self.writes.push((base + place.start..base + place.end, reply_to));
    }

    /// Whether the turn that is under way has told of a write.
    fn waits(&self) -> bool {
        self.writes.last().is_some_and(|(place, _)| place.end > self.bytes.len())
    }

    /// Puts `error` in the place of every reply that tells of a write.
    fn refuse(&mut self, error: &Error) {
        let mut out = ReplyBuffer::new();
        let mut bytes = Vec::with_capacity(self.bytes.len());
        let mut writes = self.writes.drain(..).peekable();
        let mut start = 0;
        for (_, end) in &mut self.turns {
            while let Some((place, reply_to)) = writes.next_if(|(place, _)| place.end <= *end) {
                bytes.extend_from_slice(&self.bytes[start..place.start]);
                out.begin(reply_to);
                out.error(error);
                out.finish(false);
                bytes.append(&mut out.take());
                start = place.end;
            }
            bytes.extend_from_slice(&self.bytes[start..*end]);
            start = *end;
            *end = bytes.len();
        }
        drop(writes);
        self.bytes = bytes;
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(BYTES_MAX);
        self.turns.clear();
        self.writes.clear();
    }
}

impl<S: Service> Worker<S> {
    /// Keeps a turn's replies for the end of the round, where one of them tells of a write; answers whether it does.
    pub(super) fn join_round(&mut self, slot: usize, connection: &mut Connection<S>) -> bool {
        if !self.round.waits() {
            return false;
        }
        self.round.bytes.extend_from_slice(self.reply.as_bytes());
        self.round.turns.push((slot, self.round.bytes.len()));
        connection.in_round = true;
        true
    }

    /// Hands the log over and sends the replies that waited for it.
    pub(super) fn end_round(&mut self) {
        if self.round.turns.is_empty() {
            return;
        }
        let mut round = mem::take(&mut self.round);
        if let Err(error) = guard::hand_over(&*self.shared.service) {
            round.refuse(&error);
        }
        let mut start = 0;
        for &(slot, end) in &round.turns {
            let Some(mut connection) = self.slots.get_mut(slot).and_then(Option::take) else {
                unreachable!("a connection stays as long as it is in a round")
            };
            connection.in_round = false;
            self.send(&mut connection, &round.bytes[start..end]);
            start = end;
            if connection.has_more() {
                self.queue(slot, &mut connection);
            }
            self.slots[slot] = Some(connection);
        }
        round.clear();
        self.round = round;
    }

    fn send(&mut self, connection: &mut Connection<S>, bytes: &[u8]) {
        if connection.send(bytes).is_err() {
            connection.closing = true;
            connection.peer_closed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use marula_error::errors;
    use marula_wire::Form;

    use super::*;

    errors! {
        failed() = OutOfDiskSpace, "the disk is full";
    }

    fn reply_to(request_id: i32) -> ReplyTo {
        ReplyTo {
            request_id,
            form: Form::Msg,
            checksum: false,
            more_to_come: false,
            compressor: None,
        }
    }

    /// The replies in `bytes`: which request each answers, and its document.
    fn replies(mut bytes: &[u8]) -> Vec<(i32, String)> {
        let mut found = Vec::new();
        while let Some(length) = bytes.first_chunk::<4>() {
            let (reply, rest) = bytes.split_at(i32::from_le_bytes(*length) as usize);
            let answers = i32::from_le_bytes(reply[8..12].try_into().expect("four bytes"));
            let body = marula_bson::Doc::trusted(&reply[21..]);
            found.push((answers, format!("{body:?}")));
            bytes = rest;
        }
        found
    }

    #[test]
    fn a_failed_handover_turns_writes_into_errors_and_leaves_reads() {
        let mut round = Round::default();
        let mut turn = |slot: usize, requests: &[(i32, bool)]| {
            let mut out = ReplyBuffer::new();
            for &(id, is_write) in requests {
                let start = out.as_bytes().len();
                out.begin(reply_to(id));
                out.body().append("n", id);
                out.finish(false);
                if is_write {
                    round.note(start..out.as_bytes().len(), reply_to(id));
                }
            }
            assert!(round.waits());
            round.bytes.extend_from_slice(out.as_bytes());
            round.turns.push((slot, round.bytes.len()));
            assert!(!round.waits());
        };
        turn(7, &[(1, true)]);
        turn(9, &[(2, false), (3, true), (4, false), (5, true)]);
        turn(8, &[(6, false), (7, true)]);
        round.refuse(&failed());
        let mut start = 0;
        let mut seen = Vec::new();
        for &(slot, end) in &round.turns {
            for (answers, body) in replies(&round.bytes[start..end]) {
                seen.push((slot, answers, body.contains("the disk is full")));
            }
            start = end;
        }
        let wanted = [
            (7, 1, true),
            (9, 2, false),
            (9, 3, true),
            (9, 4, false),
            (9, 5, true),
            (8, 6, false),
            (8, 7, true),
        ];
        assert_eq!(seen, wanted);
    }
}
