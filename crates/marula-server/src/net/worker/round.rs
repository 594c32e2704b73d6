//! A round: the replies to the requests of one poll, which are sent together.
//!
//! ```text
//!   poll ─► request 1 ─► request 2 ─► … ─► request n ─► send 1, 2, … n ─► poll
//!           call         call              call         (at most 32 connections)
//! ```
//!
//! A reply wakes its client. If it is sent at once, the client competes for the processor with the
//! worker, which serves the next connection; and the kernel's part of sending alternates with the
//! worker's own work, each evicting the other's data from the caches. So a worker serves a few
//! dozen connections first and then sends their replies one after the other. A connection with a
//! reply in the round does nothing else until the round ends.

use std::mem;

use super::Worker;
use crate::net::connection::Connection;
use crate::net::service::Service;

/// The maximum number of connections in a round: the first of them has then waited for at most half
/// a millisecond.
const CONNECTIONS_MAX: usize = 32;
/// Longer replies are sent at once: copying them costs more than the round saves.
const REPLY_BYTES_MAX: usize = 16 * 1024;

/// The replies that wait.
#[derive(Default)]
pub(super) struct Round {
    /// The connections' replies, one after the other.
    bytes: Vec<u8>,
    /// The slots of the connections, in the order of their replies, and the ends of these.
    turns: Vec<(usize, usize)>,
}

impl Round {
    pub(super) fn is_full(&self) -> bool {
        self.turns.len() >= CONNECTIONS_MAX
    }
}

impl<S: Service> Worker<S> {
    /// Stores a turn's replies for the end of the round; returns false for long ones, which do not
    /// wait.
    pub(super) fn join_round(&mut self, slot: usize, connection: &mut Connection<S>) -> bool {
        let replies = self.reply.as_bytes();
        if replies.len() > REPLY_BYTES_MAX {
            return false;
        }
        self.round.bytes.extend_from_slice(replies);
        self.round.turns.push((slot, self.round.bytes.len()));
        connection.in_round = true;
        true
    }

    /// Sends the waiting replies.
    pub(super) fn end_round(&mut self) {
        let mut round = mem::take(&mut self.round);
        let mut start = 0;
        for &(slot, end) in &round.turns {
            let Some(mut connection) = self.slots.get_mut(slot).and_then(Option::take) else {
                unreachable!("a connection stays as long as it is in a round")
            };
            connection.in_round = false;
            let replies = round.bytes.get(start..end).unwrap_or_default();
            if connection.send(replies).is_err() {
                connection.give_up();
            }
            start = end;
            if connection.has_more() {
                self.queue(slot, &mut connection);
            }
            self.slots[slot] = Some(connection);
        }
        round.bytes.clear();
        round.turns.clear();
        self.round = round;
    }
}
