//! The border between sockets and commands.
//!
//! The network calls a [`Service`] with one message at a time per connection and is told by a
//! [`Step`] what to do next. A call on a network worker ([`Place::Inline`]) must be short and must
//! not wait; what may be long says [`Step::ToPool`] and is called again on a thread where it may
//! take its time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use marula_wire::{Message, ReplyBuffer};

pub use super::wake::Wake;

use super::tls::Seen;

/// What answers messages.
pub trait Service: Send + Sync + 'static {
    /// What the service keeps of one connection: sessions, metadata, who is authenticated.
    ///
    /// It is with one thread at a time, which is the one that calls.
    type Connection: Send + 'static;

    /// A client has connected. `id` is the connection's number in the log and in `hello`, from 1
    /// upwards.
    fn open(&self, peer: Peer, id: u64) -> Self::Connection;

    /// Answers one message into `reply`, which the network has begun.
    ///
    /// When the message wants no reply ([`Message::more_to_come`]) what is written is not sent,
    /// whatever the step. A panic is logged and answered by an `InternalError`; the connection is
    /// used further.
    fn call(
        &self,
        connection: &mut Self::Connection,
        message: &Message<'_>,
        call: &Call,
        reply: &mut ReplyBuffer,
    ) -> Step;

    /// The connection is gone, and no call for it is out.
    fn close(&self, connection: Self::Connection);

    /// The longest message that the connection may send now, uncompressed. A longer one closes it
    /// before it is read.
    fn message_bytes_max(&self, connection: &Self::Connection) -> usize;

    /// Whether a call that waits for a pool thread must end: its client has gone, or it was told
    /// to. Such a call does not wait any longer: it is made at once, to say so.
    fn is_ended(&self, connection: &Self::Connection) -> bool;

    /// A network worker has been busy with this connection for so long, and others wait for it.
    fn note_late(&self, connection: u64, late: Duration);

    /// A call that was answered [`Step::ToPool`] is not made: its request is refused.
    fn give_up(&self, connection: &mut Self::Connection);
}

/// How a call waits for a pool thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// Which threads it waits for.
    pub lane: Lane,
    /// When it is called at the latest, to say that its time is over.
    pub deadline: Option<Instant>,
}

/// Which threads of the pool a call waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lane {
    /// Those that are for everything.
    #[default]
    Ordinary,
    /// Also those that are kept free for what operators need when everything else is busy.
    Reserved,
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The client's address; `None` on a Unix socket.
    pub remote: Option<SocketAddr>,
    /// The address it connected to; `None` on a Unix socket.
    pub local: Option<SocketAddr>,
    /// Set once the client has gone away; what runs for it should end.
    pub disconnected: Disconnected,
    /// What TLS has shown of the client; `None` where the server does none.
    pub tls: Option<Seen>,
}

/// Whether the client of a connection has gone away.
#[derive(Clone, Debug, Default)]
pub struct Disconnected(Arc<AtomicBool>);

impl Disconnected {
    /// Whether it has.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Where a call runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Where others wait for the thread: on a network worker, or before it is known what a large
    /// message is.
    Inline,
    /// On a thread of the pool, which may wait.
    Pool,
}

/// Why a service is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The message has just come.
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
    /// Where it runs.
    pub place: Place,
    /// Why it is made.
    pub reason: Reason,
    /// When the message was read from the socket.
    pub arrived: Instant,
    /// How long it may take where others wait for the thread.
    pub patience: Duration,
}

/// What the network does after a call.
#[must_use]
pub enum Step {
    /// The reply is complete: send it.
    Reply,
    /// There is no reply.
    NoReply,
    /// Nothing was done: call again on a pool thread. On a pool thread it is a mistake, and closes
    /// the connection.
    ToPool(Order),
    /// The reply is complete: send it when woken. Such as when a shared disk sync has covered it.
    Hold(Arm),
    /// There is nothing to say yet: call again on the pool when woken, or at the deadline. What was
    /// written is forgotten.
    Retry(Arm, Instant, Lane),
    /// The reply is complete: send it with `moreToCome`, then call again with the same message.
    /// Only for a message with [`Message::exhaust_allowed`]; for others it is [`Step::Reply`].
    Stream(Lane),
    /// The reply, if one was written, is complete: send it and close the connection.
    Close,
}

/// Takes the [`Wake`] that continues a request, once the request is parked. It must not block.
pub type Arm = Box<dyn FnOnce(Wake) + Send>;
