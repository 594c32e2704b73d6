//! One request: called here, in the pool, or parked until it is woken.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use marula_wire::Message;

use super::Worker;
use crate::net::connection::{Connection, Parked};
use crate::net::guard::{self, Verdict};
use crate::net::pool::{Job, Outcome, Refused, Work};
use crate::net::service::{Arm, Call, CallThread, Lane, Order, Reason, Service};
use crate::net::wake::{Bidding, Ring, Ticket, Wake};

/// The time budget of a call on a worker, in which a handful of others wait. One that has started
/// may take up to the [hard limit](marula_plan::TimeBudget::longest).
const TIME_BUDGET: Duration = Duration::from_micros(100);
/// The budget if no other connection of the worker was active recently. Handing a call to the pool
/// wakes two threads, which costs more than a few documents.
const TIME_BUDGET_ALONE: Duration = Duration::from_millis(1);
/// The time after which other connections count as idle.
const ALONE_AFTER: Duration = Duration::from_millis(10);

impl<S: Service> Worker<S> {
    /// Calls the service on this thread.
    pub(super) fn call(
        &mut self,
        slot: usize,
        connection: &mut Connection<S>,
        message: &Message<'_>,
        arrived: Instant,
    ) {
        let Some(state) = connection.state.as_mut() else {
            unreachable!("a connection that is not parked has its state")
        };
        let time_budget = self.time_budget(slot, arrived);
        let call =
            Call { thread: CallThread::Inline, reason: Reason::Arrived, arrived, time_budget };
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
            Verdict::ToPool(order) if !self.shared.pool.has_room(order.lane) => {
                let Some(state) = connection.state.as_mut() else {
                    unreachable!("a connection that is not in the pool has its state")
                };
                let service = &*self.shared.service;
                let logical = guard::refuse_overload(service, state, message, &mut self.reply);
                let physical = self.reply.as_bytes().len() - start;
                let compressor = message.reply_to().compressor;
                self.counters().replied(physical, logical, compressor);
            }
            Verdict::ToPool(order) => {
                let work = Work::Message(message.to_owned());
                let call = pool_call(Reason::OnPool, arrived);
                self.submit(slot, connection, work, call, order);
            }
            Verdict::Hold(arm) => {
                let reply = self.reply.split_off(start);
                self.park(slot, connection, Parked::Held { reply }, Some(arm));
            }
            Verdict::Retry(arm, deadline, lane) => {
                let message = message.to_owned();
                let parked = Parked::Retry { message, arrived, deadline, lane };
                self.park(slot, connection, parked, Some(arm));
            }
            Verdict::Stream(lane) => {
                let mut message = message.to_owned();
                message.set_request_id(self.reply.last_id());
                self.park(slot, connection, Parked::Stream { message, arrived, lane }, None);
            }
        }
    }

    /// Returns the time budget of a call.
    fn time_budget(&mut self, slot: usize, arrived: Instant) -> Duration {
        if self.last_slot != slot {
            self.last_slot = slot;
            self.others_called = Some(arrived);
        }
        let is_alone =
            self.others_called.is_none_or(|others| arrived.duration_since(others) >= ALONE_AFTER);
        if is_alone { TIME_BUDGET_ALONE } else { TIME_BUDGET }
    }

    /// Passes a call to the pool.
    pub(super) fn submit(
        &mut self,
        slot: usize,
        connection: &mut Connection<S>,
        work: Work,
        call: Call,
        order: Order,
    ) {
        let Some(state) = connection.state.take() else {
            unreachable!("a connection that is not in the pool has its state")
        };
        self.park(slot, connection, Parked::Pool, None);
        let home = Arc::clone(&self.mailbox);
        self.shared.pool.submit(Job { slot, state, work, call, order, home });
    }

    /// Passes a frame that takes long to parse to the pool.
    pub(super) fn submit_frame(
        &mut self,
        slot: usize,
        connection: &mut Connection<S>,
        frame: Vec<u8>,
        arrived: Instant,
    ) {
        let reason = Reason::Arrived;
        let call =
            Call { thread: CallThread::Inline, reason, arrived, time_budget: Duration::ZERO };
        let order = Order { lane: Lane::Reserved, deadline: None };
        self.submit(slot, connection, Work::Frame(frame), call, order);
    }

    /// Receives a frame from the pool that is not a valid message.
    pub(super) fn take_refused(&mut self, refused: Refused<S>) {
        let Refused { slot, state, physical, refusal } = refused;
        let Some(mut connection) = self.slots.get_mut(slot).and_then(Option::take) else {
            unreachable!("a connection whose frame is out keeps its slot")
        };
        self.unpark(slot, &mut connection);
        connection.state = Some(state);
        self.counters().received(physical, physical, None);
        self.refuse(&mut connection, &refusal);
        let reply = self.reply.take();
        self.send_from_pool(&mut connection, reply);
        self.slots[slot] = Some(connection);
        self.turn(slot, |_| {});
    }

    /// Receives the outcome of a call from the pool.
    pub(super) fn take_back(&mut self, outcome: Outcome<S>) {
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
            Verdict::ToPool(_) => {
                tracing::error!("an operation asked for the pool on the pool");
                connection.closing = true;
            }
            Verdict::Hold(arm) => {
                self.park(slot, &mut connection, Parked::Held { reply }, Some(arm));
            }
            Verdict::Retry(arm, deadline, lane) => {
                let parked = Parked::Retry { message, arrived, deadline, lane };
                self.park(slot, &mut connection, parked, Some(arm));
            }
            Verdict::Stream(lane) => {
                let mut message = message;
                message.set_request_id(reply_id);
                self.send_from_pool(&mut connection, reply);
                self.park(slot, &mut connection, Parked::Stream { message, arrived, lane }, None);
            }
        }
        self.slots[slot] = Some(connection);
        self.turn(slot, |_| {});
    }

    fn send_from_pool(&self, connection: &mut Connection<S>, reply: Vec<u8>) {
        if !reply.is_empty() && connection.send_owned(reply).is_err() {
            connection.give_up();
        }
    }

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

    pub(super) fn unpark(&mut self, slot: usize, connection: &mut Connection<S>) -> Parked {
        if let Parked::Retry { deadline, .. } = connection.parked {
            self.deadlines.remove(&(deadline, slot));
        }
        self.counters().active.sub(1);
        mem::replace(&mut connection.parked, Parked::No)
    }

    pub(super) fn wake(&mut self, ticket: Ticket, bidding: Bidding) {
        let slot = ticket.slot;
        let Some(connection) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        if connection.ticket != ticket.number {
            return;
        }
        match connection.parked {
            Parked::Retry { .. } => self.retry(slot, Reason::Woken),
            Parked::Held { .. } => self.release(slot, bidding),
            Parked::No | Parked::Pool | Parked::Stream { .. } => {}
        }
    }

    /// Sends a held reply, or drops it and closes the connection.
    fn release(&mut self, slot: usize, bidding: Bidding) {
        let Some(mut connection) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        match (self.unpark(slot, &mut connection), bidding) {
            (Parked::Held { reply }, Bidding::Continue) => {
                self.send_from_pool(&mut connection, reply);
            }
            _ => connection.closing = true,
        }
        self.slots[slot] = Some(connection);
        self.turn(slot, |_| {});
    }

    /// Calls again, in the pool, for a parked request.
    pub(super) fn retry(&mut self, slot: usize, reason: Reason) {
        let Some(mut connection) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        if let Parked::Retry { message, arrived, lane, .. } = self.unpark(slot, &mut connection) {
            let order = Order { lane, deadline: None };
            let work = Work::Message(message);
            self.submit(slot, &mut connection, work, pool_call(reason, arrived), order);
        }
        self.slots[slot] = Some(connection);
    }
}

/// A call on a pool thread.
pub(super) fn pool_call(reason: Reason, arrived: Instant) -> Call {
    Call { thread: CallThread::Pool, reason, arrived, time_budget: Duration::MAX }
}
