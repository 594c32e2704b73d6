//! Who a connection is: the user that it has proven to be, and what that user may do.

use marula_bson::ValueBuf;
use marula_error::{Result, errors};
use sha2::{Digest, Sha256};

use super::documents::Documents;
use super::name::{Name, Of};
use super::privilege::Privilege;
use super::restriction::{Place, Restriction};
use super::roles;
use crate::net::service::Peer;

errors! {
    other_user(user: &Name) = 5_626_702, "Client has attempted to authenticate on multiple databases.Already authenticated as: {user}";
    other_database(user: &Name) = 5_626_701, "Each client connection may only be authenticated once. Previously authenticated as: {user}";
}

/// A user, with all that its roles come to.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// The user.
    pub(crate) user: Name,
    /// Tells the user from another of this name that was there before.
    id: Option<ValueBuf>,
    /// Its roles and those that they inherit from.
    pub(crate) roles: Vec<Name>,
    /// What it may do.
    pub(crate) privileges: Vec<Privilege>,
    /// The number of the state of users and roles that this was read from.
    pub(crate) revision: u64,
}

impl Access {
    /// Who is no user and may do this.
    pub(crate) fn stand_in(privileges: Vec<Privilege>) -> Self {
        let user = Name::new("", "");
        Access { user, id: None, roles: Vec::new(), privileges, revision: 0 }
    }

    /// Whether this stands for a client that is no user.
    pub(crate) fn is_nobody(&self) -> bool {
        self.user.name.is_empty() && self.id.is_none()
    }

    /// What a user may do who connects like this. `None` where there is no such user, or not from
    /// there.
    ///
    /// Errors: a stored restriction that is none.
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
        let place = Place::of(peer);
        let is_allowed = |list: &Vec<_>| list.iter().any(|ranges| place.meets(ranges));
        if !resolved.restrictions.iter().all(is_allowed) {
            return Ok(None);
        }
        resolved.roles.sort();
        Ok(Some(Access {
            user: user.clone(),
            id: doc.get("userId").map(|id| id.to_buf()),
            roles: resolved.roles,
            privileges: resolved.privileges,
            revision: 0,
        }))
    }

    /// The same, read from this state of users and roles.
    pub(crate) fn of_revision(self, revision: u64) -> Self {
        Access { revision, ..self }
    }

    /// What sessions of this user are told by.
    pub(crate) fn digest(&self) -> [u8; 32] {
        digest(&self.user)
    }

    /// What the user may do now; `None` where it is gone, or may no longer come from there.
    pub(crate) fn renewed(&self, documents: &Documents<'_>, peer: &Peer) -> Option<Access> {
        let now = Access::load(documents, &self.user, peer);
        now.ok().flatten().filter(|now| now.id == self.id)
    }

    /// Checks that a connection of this user may become `user`: it is that already.
    pub(crate) fn check_same(&self, user: &Name) -> Result<()> {
        match &self.user {
            own if own == user => Ok(()),
            own if own.db == user.db => Err(other_user(own)),
            own => Err(other_database(own)),
        }
    }
}

/// What sessions of a user are told by. Source: driver specification "Sessions", "uid".
pub(crate) fn digest(user: &Name) -> [u8; 32] {
    Sha256::digest(user.to_string()).into()
}
