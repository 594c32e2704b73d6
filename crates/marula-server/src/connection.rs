//! The state of one connection in the server.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, uuid};
use marula_error::{Error, Result};
use marula_wire::Compressor;

use crate::audit::actor::Actor;
use crate::auth::access::Access;
use crate::auth::scram::Conversation;
use crate::fail_point::Failure;
use crate::net::service::{Peer, Reason};
use crate::operation::Operation;
use crate::session::{Lsid, Session, Sessions};

/// The state of one connection in the server.
pub struct Connection {
    /// Its number in the log and in `hello`.
    pub id: u64,
    /// Its identity in the log.
    pub uuid: [u8; 16],
    /// The client.
    pub peer: Peer,
    /// Its current command, for `currentOp` and `killOp`.
    pub operation: Arc<Operation>,
    /// The client's metadata from its first `hello`.
    pub metadata: Option<DocBuf>,
    /// Whether there has been a `hello`: only the first may have metadata.
    pub has_said_hello: bool,
    /// Whether the client understands the words of `hello`, by `helloOk` in any of them.
    pub knows_hello: bool,
    /// The counter of the topology's version in the last reply to a `hello`.
    pub told_topology: i64,
    /// The compressors that both ends support, in the client's order.
    pub compressors: Vec<Compressor>,
    /// The authentication that is in progress.
    pub(crate) conversation: Option<Box<Conversation>>,
    /// The error of a failed login, while its reply is delayed.
    pub(crate) refused: Option<Error>,
    /// The authenticated user.
    pub(crate) access: Option<Box<Access>>,
    /// The failure that a fail point has set for the current command.
    pub(crate) failure: Option<Box<Failure>>,
    /// The reason with which the current command goes on after the delay of a fail point.
    pub(crate) held_up: Option<Reason>,
    /// The client as the audit log identifies it, if there is an audit log.
    pub(crate) actor: Option<Arc<Actor>>,
    /// The session of the last command: drivers use few at a time, so that the next command mostly
    /// has the same one.
    session: Option<Arc<Session>>,
}

impl Connection {
    /// Returns a new connection.
    pub fn new(id: u64, peer: Peer, operation: Arc<Operation>) -> Self {
        Connection {
            id,
            uuid: uuid::generate(),
            peer,
            operation,
            metadata: None,
            has_said_hello: false,
            knows_hello: false,
            told_topology: 0,
            compressors: Vec::new(),
            conversation: None,
            refused: None,
            access: None,
            failure: None,
            held_up: None,
            actor: None,
            session: None,
        }
    }

    /// Sets the client's metadata.
    pub(crate) fn set_metadata(&mut self, metadata: Doc<'_>) {
        self.operation.set_metadata(metadata.to_buf());
        self.metadata = Some(metadata.to_buf());
    }

    /// Sets the user of the connection, or none.
    pub(crate) fn set_access(&mut self, access: Option<Access>) {
        self.operation.set_user(access.as_ref().map(|access| access.user.clone()));
        if let Some(actor) = &mut self.actor {
            let user = access.as_ref().map(|access| (&access.user, access.roles.as_slice()));
            *actor = Arc::new(actor.as_user(user));
        }
        self.access = access.map(Box::new);
    }

    /// Records the use of a session.
    ///
    /// Errors: those of [`Sessions::touch`].
    pub fn use_session(&mut self, lsid: &Lsid, sessions: &Sessions, now_ms: i64) -> Result<()> {
        match &self.session {
            Some(session) if session.lsid == *lsid && !session.has_ended() => {
                session.touch(now_ms);
            }
            _ => self.session = Some(sessions.touch(lsid, now_ms)?),
        }
        Ok(())
    }
}
