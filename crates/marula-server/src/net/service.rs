//! The interface between sockets and commands.
//!
//! The network calls a [`Service`] with one message at a time per connection; the returned [`Step`]
//! determines what happens next. A call on a network worker ([`CallThread::Inline`]) must be short
//! and must not wait. A call that may be long returns [`Step::ToPool`] and is called again on a
//! pool thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use marula_wire::{Message, ReplyBuffer};

pub(crate) use super::wake::Wake;

use super::CounterReader;
use super::tls::Seen;

/// Executes messages.
pub trait Service: Send + Sync + 'static {
    /// The service's state of one connection: sessions, metadata, the authenticated user.
    ///
    /// Only one thread has it at a time: the one that calls.
    type Connection: Send + 'static;

    /// The network is about to start, and `counters` reads its counters from now on.
    fn starting(&self, counters: CounterReader);

    /// A client has connected. `id` is the connection's number in the log and in `hello`, starting
    /// at 1.
    fn open(&self, peer: Peer, id: u64) -> Self::Connection;

    /// Executes one message and writes the reply into `reply`, which the network has started.
    ///
    /// If the message wants no reply ([`Message::more_to_come`]), the reply is not sent, whatever
    /// the step. A panic is logged and replaced by the reply `InternalError`; the connection stays
    /// open.
    fn call(
        &self,
        connection: &mut Self::Connection,
        message: &Message<'_>,
        call: &Call,
        reply: &mut ReplyBuffer,
    ) -> Step;

    /// The connection is closed, and no call for it is in progress.
    fn close(&self, connection: Self::Connection);

    /// Returns the maximum size of a message from the connection now, uncompressed. A larger one
    /// closes it before it is read.
    fn message_bytes_max(&self, connection: &Self::Connection) -> usize;

    /// Returns whether a call that waits must end: it was killed, or its client has disconnected
    /// and it is not completed without one. It then does not wait longer for a pool thread, but is
    /// called at once to end; a parked one is dropped with its connection.
    fn is_ended(&self, connection: &Self::Connection) -> bool;

    /// A network worker has been busy with this connection for this time, and others wait for it.
    fn note_late(&self, connection: u64, late: Duration);

    /// A call that returned [`Step::ToPool`] is not made again: its request is rejected.
    fn give_up(&self, connection: &mut Self::Connection);
}

/// The conditions of waiting for a pool thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// The threads that it waits for.
    pub lane: Lane,
    /// The time at which it is called at the latest, to report that its time is over.
    pub deadline: Option<Instant>,
}

/// The threads of the pool that a call waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lane {
    /// The threads for all calls.
    #[default]
    Ordinary,
    /// Also the threads that are reserved for commands that operators need when everything else is
    /// busy.
    Reserved,
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The client's address; `None` on a Unix socket.
    pub remote: Option<SocketAddr>,
    /// The address it connected to; `None` on a Unix socket.
    pub local: Option<SocketAddr>,
    /// Set once the client has disconnected; work that only it wants should end.
    pub disconnected: Disconnected,
    /// The client's identity in TLS; `None` if the server has no TLS.
    pub tls: Option<Seen>,
}

/// Whether the client of a connection has disconnected.
#[derive(Clone, Debug, Default)]
pub struct Disconnected(Arc<AtomicBool>);

impl Disconnected {
    /// Returns whether it has.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The thread of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallThread {
    /// A thread that others wait for: a network worker, or a pool thread that does not know yet
    /// what a large message is.
    Inline,
    /// A pool thread, which may wait.
    Pool,
}

/// The reason of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The message has just arrived.
    Arrived,
    /// After [`Step::ToPool`].
    OnPool,
    /// After [`Step::Retry`]: it was woken.
    Woken,
    /// After [`Step::Retry`]: the deadline has passed.
    Deadline,
    /// After [`Step::Stream`]: the next reply to the same message.
    Streaming,
}

/// The circumstances of one call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The thread that it runs on.
    pub thread: CallThread,
    /// The reason.
    pub reason: Reason,
    /// The time at which the message was read from the socket.
    pub arrived: Instant,
    /// The maximum duration of the call if other connections wait for the thread.
    pub time_budget: Duration,
}

/// The network's next step after a call.
#[must_use]
pub enum Step {
    /// The reply is complete: send it.
    Reply,
    /// There is no reply.
    NoReply,
    /// The call had no effect: repeat it on a pool thread. On a pool thread this step is a bug and
    /// closes the connection.
    ToPool(Order),
    /// The reply is complete: send it after a wake, for example after a sync that several replies
    /// share.
    Hold(Arm),
    /// There is no reply yet: call again in the pool after a wake, or at the deadline. Written
    /// bytes are discarded.
    Retry(Arm, Instant, Lane),
    /// The reply is complete: send it with `moreToCome`, then call again with the same message.
    /// Only for a message with [`Message::exhaust_allowed`]; for others it is [`Step::Reply`].
    Stream(Lane),
    /// The reply, if one was written, is complete: send it and close the connection.
    Close,
}

/// Receives the [`Wake`] of a request once the request is parked. It must not block.
pub(crate) type Arm = Box<dyn FnOnce(Wake) + Send>;
