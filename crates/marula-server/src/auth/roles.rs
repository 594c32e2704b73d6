//! Roles and their inheritance.

use marula_bson::{ArrayWriter, Doc, DocWriter};
use marula_error::{Result, errors};

use super::builtin;
use super::documents::Documents;
use super::name::{Name, Of, list};
use super::privilege::{self, Privilege};
use super::restriction::{Ranges, Restriction};

errors! {
    roles_not_found(which: &str) = RoleNotFound, "Could not find {which}";
    not_granted(role: &Name, which: &str) = RoleNotFound, "Cannot grant roles to '{role}': Could not find {which}";
    to_itself(role: &Name) = InvalidRoleModification, "Cannot grant role {role} to itself.";
    other_database(db: &str) = InvalidRoleModification, "Roles on the '{db}' database cannot be granted roles from other databases";
    other_target(db: &str) = InvalidRoleModification, "Roles on the '{db}' database cannot be granted privileges that target other databases or the cluster";
    cycle(role: &Name) = InvalidRoleModification, "Granting roles to {role} would introduce a cycle in the role graph";
}

/// A role, stored or built in.
#[derive(Default)]
pub(crate) struct Role {
    /// Its own privileges.
    pub(crate) privileges: Vec<Privilege>,
    /// The roles that it inherits from.
    pub(crate) roles: Vec<Name>,
    /// The restrictions on its users, if there are any.
    pub(crate) restrictions: Option<Vec<Restriction>>,
}

impl Role {
    /// Reads a stored role.
    pub(crate) fn stored(doc: Doc<'_>) -> Self {
        Role {
            privileges: Privilege::stored_list(doc),
            roles: Name::stored_roles(doc),
            restrictions: stored_restrictions(doc),
        }
    }
}

/// Returns the restrictions of a stored user or role; `None` if there are none. Malformed ones
/// permit nothing: an empty list has no restriction that could be fulfilled.
pub(crate) fn stored_restrictions(doc: Doc<'_>) -> Option<Vec<Restriction>> {
    let stored = doc.get("authenticationRestrictions")?;
    let list = stored.as_array().and_then(Restriction::stored_list);
    let is_empty = stored.as_array().is_some_and(Doc::is_empty);
    (!is_empty).then(|| list.unwrap_or_default())
}

/// Returns a role; `None` if there is none of this name.
pub(crate) fn find(documents: &Documents<'_>, name: &Name) -> Result<Option<Role>> {
    if let Some(privileges) = builtin::privileges(name) {
        return Ok(Some(Role { privileges, ..Role::default() }));
    }
    Ok(documents.find(Of::Role, name)?.map(|doc| Role::stored(doc.as_doc())))
}

/// The result of resolving roles, with everything that they inherit.
#[derive(Default)]
pub(crate) struct Resolved {
    /// The roles, the given ones first; includes those that do not exist.
    pub(crate) roles: Vec<Name>,
    /// Their privileges.
    pub(crate) privileges: Vec<Privilege>,
    /// Their restrictions: one of each list must be fulfilled.
    pub(crate) restrictions: Vec<Vec<Ranges>>,
}

impl Resolved {
    /// Adds privileges.
    pub(crate) fn add_privileges(&mut self, privileges: Vec<Privilege>) {
        privileges.into_iter().for_each(|one| privilege::add(&mut self.privileges, one));
    }

    /// Appends `inheritedRoles`.
    pub(crate) fn write_roles(&self, out: &mut DocWriter<'_>) {
        let mut out = out.begin_array("inheritedRoles");
        self.roles.iter().for_each(|role| role.write_role(&mut out));
    }

    /// Appends `inheritedPrivileges`.
    pub(crate) fn write_privileges(&self, out: &mut DocWriter<'_>) {
        self.write_privileges_as("inheritedPrivileges", out);
    }

    /// Appends the privileges as the field of this name.
    pub(crate) fn write_privileges_as(&self, name: &str, out: &mut DocWriter<'_>) {
        let mut out = out.begin_array(name);
        self.privileges.iter().for_each(|privilege| privilege.write(&mut out));
    }

    /// Appends `inheritedAuthenticationRestrictions`.
    pub(crate) fn write_restrictions(&self, out: &mut DocWriter<'_>) {
        let mut out = out.begin_array("inheritedAuthenticationRestrictions");
        Resolved::write_restriction_lists(&self.restrictions, &mut out);
    }

    /// Appends lists of restrictions as elements.
    pub(crate) fn write_restriction_lists(lists: &[Vec<Ranges>], out: &mut ArrayWriter<'_>) {
        for list in lists {
            let mut out = out.begin_array();
            list.iter().for_each(|ranges| ranges.write(&mut out));
        }
    }
}

/// Resolves `names` and all roles that they inherit from.
///
/// Errors: an invalid stored restriction.
pub(crate) fn resolve(documents: &Documents<'_>, names: &[Name]) -> Result<Resolved> {
    let mut resolved = Resolved { roles: names.to_vec(), ..Resolved::default() };
    let mut at = 0;
    while let Some(name) = resolved.roles.get(at) {
        at += 1;
        let Some(role) = find(documents, name)? else { continue };
        for inherited in role.roles {
            if !resolved.roles.contains(&inherited) {
                resolved.roles.push(inherited);
            }
        }
        for own in role.privileges {
            privilege::add(&mut resolved.privileges, own);
        }
        if let Some(restrictions) = role.restrictions {
            let ranges: Result<_> = restrictions.iter().map(Restriction::check).collect();
            resolved.restrictions.push(ranges?);
        }
    }
    Ok(resolved)
}

/// Checks that roles exist.
pub(crate) fn check_exist(documents: &Documents<'_>, names: &[Name]) -> Result<()> {
    missing(documents, names)?.map_or(Ok(()), |which| Err(roles_not_found(&which)))
}

/// Returns those of some roles that do not exist, as messages list them.
fn missing(documents: &Documents<'_>, names: &[Name]) -> Result<Option<String>> {
    let mut missing = Vec::new();
    for name in names {
        if find(documents, name)?.is_none() {
            missing.push(name);
        }
    }
    Ok(match missing.as_slice() {
        [] => None,
        [one] => Some(format!("role: {one}")),
        several => Some(format!("roles: {}", list(several.iter().copied()))),
    })
}

/// Checks that `role` may inherit from `roles`.
pub(crate) fn check_may_inherit(
    documents: &Documents<'_>,
    role: &Name,
    roles: &[Name],
) -> Result<()> {
    for inherited in roles {
        if inherited == role {
            return Err(to_itself(role));
        }
        if role.db != "admin" && inherited.db != role.db {
            return Err(other_database(&role.db));
        }
    }
    if let Some(which) = missing(documents, roles)? {
        return Err(not_granted(role, &which));
    }
    match resolve(documents, roles)?.roles.contains(role) {
        true => Err(cycle(role)),
        false => Ok(()),
    }
}

/// Checks that a role of the database `db` may have `privileges`.
pub(crate) fn check_may_have(db: &str, privileges: &[Privilege]) -> Result<()> {
    let is_own = |privilege: &Privilege| db == "admin" || privilege.resource.is_of_database(db);
    if privileges.iter().all(is_own) { Ok(()) } else { Err(other_target(db)) }
}
