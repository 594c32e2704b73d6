//! The actor of audited events: the client of the connection whose request runs on this thread, or
//! the server itself.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;

use marula_bson::{DocWriter, uuid};

use crate::auth::name::{Name, Of};

thread_local! {
    static ACTOR: RefCell<Option<Arc<Actor>>> = const { RefCell::new(None) };
}

/// The actor of an event.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    /// The identity of its connection.
    pub(crate) uuid: [u8; 16],
    from: Origin,
    users: Vec<Name>,
    roles: Vec<Name>,
}

#[derive(Clone, Debug)]
enum Origin {
    /// The server itself.
    System,
    /// A connection, by its two ends.
    Tcp { local: Option<SocketAddr>, remote: SocketAddr },
    /// A connection by the Unix socket.
    Unix,
}

impl Actor {
    /// The server itself.
    pub(crate) fn system() -> Self {
        let (users, roles) = (Vec::new(), Vec::new());
        Actor { uuid: uuid::generate(), from: Origin::System, users, roles }
    }

    /// Returns the client of a connection, not authenticated yet.
    pub(crate) fn client(
        uuid: [u8; 16],
        local: Option<SocketAddr>,
        remote: Option<SocketAddr>,
    ) -> Self {
        let from = remote.map_or(Origin::Unix, |remote| Origin::Tcp { local, remote });
        Actor { uuid, from, users: Vec::new(), roles: Vec::new() }
    }

    /// Returns the same client as this user, with these roles.
    pub(crate) fn as_user(&self, user: Option<(&Name, &[Name])>) -> Self {
        let (users, roles) = match user {
            Some((user, roles)) => (vec![user.clone()], roles.to_vec()),
            None => (Vec::new(), Vec::new()),
        };
        Actor { users, roles, ..self.clone() }
    }

    /// Its users.
    pub(crate) fn users(&self) -> &[Name] {
        &self.users
    }

    /// Appends its part of an event.
    pub(super) fn write(&self, out: &mut DocWriter<'_>) {
        self.write_end("local", out);
        self.write_end("remote", out);
        write_names("users", Of::User, &self.users, out);
        write_names("roles", Of::Role, &self.roles, out);
    }

    /// Appends one end of its connection.
    pub(crate) fn write_end(&self, name: &str, out: &mut DocWriter<'_>) {
        let mut end = out.begin_doc(name);
        match &self.from {
            Origin::System => {
                end.append("isSystemUser", true);
            }
            Origin::Unix => {
                end.append("unix", "anonymous");
            }
            Origin::Tcp { local, remote } => {
                let address = if name == "remote" { Some(*remote) } else { *local };
                if let Some(address) = address {
                    end.append("ip", address.ip().to_canonical().to_string().as_str());
                    end.append("port", i32::from(address.port()));
                }
            }
        }
    }
}

/// Appends names of users or roles.
pub(crate) fn write_names(field: &str, of: Of, names: &[Name], out: &mut DocWriter<'_>) {
    let mut array = out.begin_array(field);
    for name in names {
        let mut one = array.begin_doc();
        one.append(of.field(), name.name.as_str()).append("db", name.db.as_str());
    }
}

/// Sets the actor of this thread until this is dropped.
pub(crate) struct Acting(Option<Arc<Actor>>);

/// Sets the actor of this thread.
pub(crate) fn begin(actor: Arc<Actor>) -> Acting {
    Acting(ACTOR.replace(Some(actor)))
}

impl Drop for Acting {
    fn drop(&mut self) {
        ACTOR.set(self.0.take());
    }
}

/// Returns the actor of this thread.
pub(crate) fn current() -> Arc<Actor> {
    ACTOR.with_borrow(|actor| actor.clone().unwrap_or_else(|| Arc::new(Actor::system())))
}
