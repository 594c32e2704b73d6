//! Users and roles: who they are, what they may do, and how they prove who they are.
//!
//! They are documents in `admin.system.users` and `admin.system.roles` ([`documents`]). A role allows actions on
//! resources ([`privilege`]) and inherits from others ([`roles`]); some roles are built in ([`builtin`]). A user has
//! credentials instead of a password ([`credentials`]), by which
//! a client proves who it is ([`scram`]); from then on its connection has that user's [`access`].

pub(crate) mod access;
pub(crate) mod action;
pub(crate) mod args;
pub(crate) mod builtin;
pub(crate) mod credentials;
pub(crate) mod documents;
pub(crate) mod name;
pub(crate) mod privilege;
pub(crate) mod resource;
pub(crate) mod restriction;
pub(crate) mod roles;
pub(crate) mod scram;

use parking_lot::{Mutex, MutexGuard};

/// The database of users who prove themselves elsewhere.
pub(crate) const EXTERNAL: &str = "$external";

/// What the server keeps of its users beside their documents.
#[derive(Default)]
pub struct Users {
    changes: Mutex<()>,
}

impl Users {
    /// Keeps others from changing users and roles meanwhile: what a change decides by must still hold when it is
    /// written.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.changes.lock()
    }
}
