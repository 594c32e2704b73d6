//! What the server keeps of one connection.

use std::sync::Arc;

use marula_bson::{DocBuf, uuid};
use marula_error::{Error, Result};
use marula_wire::Compressor;

use crate::audit::actor::Actor;
use crate::auth::access::Access;
use crate::auth::scram::Conversation;
use crate::fail_point::Failure;
use crate::net::service::Peer;
use crate::operation::Operation;
use crate::session::{Lsid, Session, Sessions};

/// What the server keeps of one connection.
pub struct Connection {
    /// Its number in the log and in `hello`.
    pub id: u64,
    /// Its identity in the log.
    pub uuid: [u8; 16],
    /// The client.
    pub peer: Peer,
    /// Its current command, for others to see and to end.
    pub operation: Arc<Operation>,
    /// What the client has said of itself in its first `hello`.
    pub metadata: Option<DocBuf>,
    /// Whether a `hello` has come: only the first may carry metadata.
    pub has_said_hello: bool,
    /// The compressors that both ends know, in the client's order.
    pub compressors: Vec<Compressor>,
    /// The conversation by which the client is about to prove who it is.
    pub(crate) conversation: Option<Box<Conversation>>,
    /// The error of a login that has failed, while its answer is held back.
    pub(crate) refused: Option<Error>,
    /// The user that the client has proven to be.
    pub(crate) access: Option<Box<Access>>,
    /// How the command that runs is made to fail, on a server for tests.
    pub(crate) failure: Option<Box<Failure>>,
    /// Who the client is to the audit log, where there is one.
    pub(crate) actor: Option<Arc<Actor>>,
    /// The session of the last command: drivers use few at a time, so that it is mostly the same
    /// again.
    session: Option<Arc<Session>>,
}

impl Connection {
    /// A connection that has just been opened.
    pub fn new(id: u64, peer: Peer, operation: Arc<Operation>) -> Self {
        Connection {
            id,
            uuid: uuid::generate(),
            peer,
            operation,
            metadata: None,
            has_said_hello: false,
            compressors: Vec::new(),
            conversation: None,
            refused: None,
            access: None,
            failure: None,
            actor: None,
            session: None,
        }
    }

    /// Makes the connection a user's, or nobody's.
    pub(crate) fn set_access(&mut self, access: Option<Access>) {
        self.operation.set_user(access.as_ref().map(|access| access.user.clone()));
        if let Some(actor) = &mut self.actor {
            let user = access.as_ref().map(|access| (&access.user, access.roles.as_slice()));
            *actor = Arc::new(actor.as_user(user));
        }
        self.access = access.map(Box::new);
    }

    /// Notes that a session is used.
    ///
    /// Errors: those of [`Sessions::touch`].
    pub fn use_session(&mut self, lsid: &Lsid, sessions: &Sessions, now_ms: i64) -> Result<()> {
        match &self.session {
            // A session that was ended meanwhile is in nobody's hands but this one's.
            Some(session) if session.lsid == *lsid && Arc::strong_count(session) > 1 => {
                session.touch(now_ms);
            }
            _ => self.session = Some(sessions.touch(lsid, now_ms)?),
        }
        Ok(())
    }
}
