//! The identity of a connection: its authenticated user, and that user's privileges.

use marula_bson::ValueBuf;
use marula_error::{Result, errors};
use sha2::{Digest, Sha256};

use super::check::{Target, may};
use super::documents::Documents;
use super::name::{Name, Of};
use super::privilege::Privilege;
use super::restriction::{Addresses, Restriction};
use super::roles;
use crate::net::service::Peer;

errors! {
    other_user(user: &Name) = 5_626_702, "Client has attempted to authenticate on multiple databases.Already authenticated as: {user}";
    other_database(user: &Name) = 5_626_701, "Each client connection may only be authenticated once. Previously authenticated as: {user}";
}

/// A user, with the privileges of all its roles.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// The user.
    pub(crate) user: Name,
    /// Distinguishes the user from an earlier one with this name.
    id: Option<ValueBuf>,
    /// Its roles and those that they inherit from.
    pub(crate) roles: Vec<Name>,
    /// Its privileges.
    pub(crate) privileges: Vec<Privilege>,
    /// Whether it may write while the writes of users are blocked: each write looks.
    pub(crate) bypasses_write_block: bool,
    /// The revision of users and roles that this was read from.
    pub(crate) revision: u64,
}

/// Returns whether one of the privileges is to write while the writes of users are blocked.
fn bypasses_write_block(privileges: &[Privilege]) -> bool {
    may(privileges, &Target::Cluster, "bypassWriteBlockingMode")
}

impl Access {
    /// Returns the access of a client that is not authenticated, with these privileges.
    pub(crate) fn stand_in(privileges: Vec<Privilege>) -> Self {
        let user = Name::new("", "");
        let roles = Vec::new();
        let bypasses_write_block = bypasses_write_block(&privileges);
        Access { user, id: None, roles, privileges, bypasses_write_block, revision: 0 }
    }

    /// Returns whether this is the access of a client that is not authenticated.
    pub(crate) fn is_nobody(&self) -> bool {
        self.user.name.is_empty() && self.id.is_none()
    }

    /// Returns the access of a user that connects from this peer. `None` if there is no such user,
    /// or its restrictions exclude the peer.
    ///
    /// Errors: an invalid stored restriction.
    pub(crate) fn load(
        documents: &Documents<'_>,
        user: &Name,
        peer: &Peer,
    ) -> Result<Option<Access>> {
        let Some(doc) = documents.find(Of::User, user)? else { return Ok(None) };
        let doc = doc.as_doc();
        let mut resolved = roles::resolve(documents, &Name::stored_roles(doc))?;
        if let Some(own) = roles::stored_restrictions(doc) {
            let ranges: Result<_> = own.iter().map(Restriction::check).collect();
            resolved.restrictions.push(ranges?);
        }
        let addresses = Addresses::of(peer);
        let is_allowed = |list: &Vec<_>| list.iter().any(|ranges| addresses.meets(ranges));
        if !resolved.restrictions.iter().all(is_allowed) {
            return Ok(None);
        }
        resolved.roles.sort();
        Ok(Some(Access {
            user: user.clone(),
            id: doc.get("userId").map(|id| id.to_buf()),
            roles: resolved.roles,
            bypasses_write_block: bypasses_write_block(&resolved.privileges),
            privileges: resolved.privileges,
            revision: 0,
        }))
    }

    /// Returns the same access, read from this revision.
    pub(crate) fn of_revision(self, revision: u64) -> Self {
        Access { revision, ..self }
    }

    /// Returns the digest that identifies this user's sessions.
    pub(crate) fn digest(&self) -> [u8; 32] {
        digest(&self.user)
    }

    /// Returns the user's current access; `None` if the user was removed, or is now excluded by a
    /// restriction.
    pub(crate) fn renewed(&self, documents: &Documents<'_>, peer: &Peer) -> Option<Access> {
        let now = Access::load(documents, &self.user, peer);
        now.ok().flatten().filter(|now| now.id == self.id)
    }

    /// Checks that a connection of this user may authenticate as `user`: only if it is the same
    /// one.
    pub(crate) fn check_same(&self, user: &Name) -> Result<()> {
        match &self.user {
            own if own == user => Ok(()),
            own if own.db == user.db => Err(other_user(own)),
            own => Err(other_database(own)),
        }
    }
}

/// Returns the digest that identifies a user's sessions. Source: driver specification "Sessions",
/// "uid".
pub(crate) fn digest(user: &Name) -> [u8; 32] {
    Sha256::digest(user.to_string()).into()
}
