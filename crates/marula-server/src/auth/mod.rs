//! Users and roles: their documents, privileges, and authentication.
//!
//! They are documents in `admin.system.users` and `admin.system.roles` ([`documents`]). A role
//! permits actions on resources ([`privilege`]) and inherits from others ([`roles`]); some roles
//! are built in ([`builtin`]). A user has credentials instead of a password ([`credentials`]), by
//! which a client authenticates ([`scram`]); from then on its connection has that user's
//! [`access`]. If access control is on, every request is checked against it before it runs
//! ([`check`]).

pub(crate) mod access;
pub(crate) mod action;
pub(crate) mod administration;
pub(crate) mod args;
pub(crate) mod attempt;
pub(crate) mod builtin;
pub(crate) mod check;
pub(crate) mod credentials;
pub(crate) mod documents;
pub(crate) mod logins;
pub(crate) mod name;
pub(crate) mod pipeline;
pub(crate) mod privilege;
pub(crate) mod resource;
pub(crate) mod restriction;
pub(crate) mod roles;
pub(crate) mod scram;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// The database of users that are authenticated externally.
pub(crate) const EXTERNAL: &str = "$external";

/// The server's state of users in addition to their documents.
#[derive(Default)]
pub struct Users {
    changes: Mutex<()>,
    /// Counts the revisions of users and roles: data read from another revision is out of date.
    revision: AtomicU64,
    /// Whether there has been a user since the start.
    had_one: AtomicBool,
}

/// Prevents other changes of users and roles.
pub(crate) struct ChangeGuard<'u> {
    users: &'u Users,
    _lock: MutexGuard<'u, ()>,
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        self.users.revision.fetch_add(1, Ordering::AcqRel);
    }
}

impl Users {
    /// Prevents other changes of users and roles: the documents that a change decides by must still
    /// be the same when it is written.
    pub(crate) fn lock(&self) -> ChangeGuard<'_> {
        ChangeGuard { users: self, _lock: self.changes.lock() }
    }
}
