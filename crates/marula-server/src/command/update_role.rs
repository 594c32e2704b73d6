//! `updateRole`, and the commands that change one part of a role: `grantPrivilegesToRole`,
//! `revokePrivilegesFromRole`, `grantRolesToRole`, `revokeRolesFromRole`.

use marula_bson::DocWriter;
use marula_error::{Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::auth::administration;
use crate::auth::documents::{Documents, Edit};
use crate::auth::name::{Name, Of};
use crate::auth::privilege::{self, Privilege};
use crate::auth::roles::{self, Role};
use crate::auth::{args, builtin, restriction};
use crate::context::Context;
use crate::request::Request;

errors! {
    nothing_to_update() = BadValue, "Must specify at least one field to update in updateRole";
    no_role(role: &Name) = RoleNotFound, "Could not find role: {role}";
    not_found(role: &Name) = RoleNotFound, "Role {role} not found";
    /// A built-in role cannot be changed or dropped.
    pub(super) is_builtin(role: &Name) = BadValue, "{role} is a built-in role and cannot be modified";
}

const PRIVILEGES: &[Field] = &[Field::optional("privileges", Types::ARRAY)];
const ROLES: &[Field] = &[Field::optional("roles", Types::ARRAY)];

const WRITE: Command = Command { writes: true, takes_write_concern: true, ..Command::DEFAULT };

pub(super) static UPDATE: Command = Command {
    name: "updateRole",
    help: "Replaces a role's privileges, the roles it inherits from, or its restrictions.",
    fields: Fields::Strict {
        place: "updateRole",
        fields: &[
            Field::optional("privileges", Types::ARRAY),
            Field::optional("roles", Types::ARRAY),
            Field::optional("authenticationRestrictions", Types::ARRAY),
        ],
    },
    auth: Auth::Content(administration::update_role),
    run: update,
    ..WRITE
};

pub(super) static GRANT_PRIVILEGES: Command = Command {
    name: "grantPrivilegesToRole",
    help: "Grants further privileges to a role.",
    fields: Fields::Strict { place: "grantPrivilegesToRole", fields: PRIVILEGES },
    auth: Auth::Content(administration::grant_privileges),
    run: |ctx, request, _| {
        change_privileges(ctx, request, roles::check_may_have, |list, granted| {
            granted.into_iter().for_each(|one| privilege::add(list, one));
        })
    },
    ..WRITE
};

pub(super) static REVOKE_PRIVILEGES: Command = Command {
    name: "revokePrivilegesFromRole",
    help: "Revokes privileges from a role.",
    fields: Fields::Strict { place: "revokePrivilegesFromRole", fields: PRIVILEGES },
    auth: Auth::Content(administration::revoke_privileges),
    run: |ctx, request, _| {
        change_privileges(
            ctx,
            request,
            |_, _| Ok(()),
            |list, revoked| {
                revoked.iter().for_each(|one| privilege::remove(list, one));
            },
        )
    },
    ..WRITE
};

pub(super) static GRANT_ROLES: Command = Command {
    name: "grantRolesToRole",
    help: "Makes a role inherit from further roles.",
    fields: Fields::Strict { place: "grantRolesToRole", fields: ROLES },
    auth: Auth::Content(administration::grant_roles),
    run: |ctx, request, _| {
        change_roles(ctx, request, roles::check_may_inherit, |list, granted| {
            let new = granted.into_iter().filter(|role| !list.contains(role)).collect::<Vec<_>>();
            list.extend(new);
        })
    },
    ..WRITE
};

pub(super) static REVOKE_ROLES: Command = Command {
    name: "revokeRolesFromRole",
    help: "Ends the inheritance of a role from other roles.",
    fields: Fields::Strict { place: "revokeRolesFromRole", fields: ROLES },
    auth: Auth::Content(administration::revoke_roles),
    run: |ctx, request, _| {
        change_roles(
            ctx,
            request,
            |_, _, _| Ok(()),
            |list, revoked| {
                list.retain(|role| !revoked.contains(role));
            },
        )
    },
    ..WRITE
};

fn update(ctx: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let role = args::target(request)?;
    let (privileges, inherited) = args::role_parts(request)?;
    let restrictions = args::restrictions(request)?;
    if privileges.is_none() && inherited.is_none() && restrictions.is_none() {
        return Err(nothing_to_update());
    }
    let _lock = ctx.server.users.lock();
    let documents = Documents::new(&ctx.server.db, ctx.now_ms);
    if roles::find(&documents, &role)?.is_none() {
        return Err(no_role(&role));
    }
    let mut edits: Vec<Edit> = Vec::new();
    if let Some(inherited) = &inherited {
        roles::check_may_inherit(&documents, &role, inherited)?;
        edits.push(("roles", Some(Name::array_of_roles(inherited))));
    }
    if let Some(privileges) = &privileges {
        roles::check_may_have(&role.db, privileges)?;
        edits.push(("privileges", Some(privilege::array_of(privileges))));
    }
    if let Some(restrictions) = &restrictions {
        edits.push(restriction::edit(restrictions));
    }
    match documents.edit(Of::Role, &role, &edits)? {
        true => Ok(Outcome::Done),
        false => Err(not_found(&role)),
    }
}

fn change_privileges(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    check: fn(&str, &[Privilege]) -> Result<()>,
    change: fn(&mut Vec<Privilege>, Vec<Privilege>),
) -> Result<Outcome> {
    let role = args::target(request)?;
    let named = args::privileges(request)?;
    args::check_given(request, "privileges", &named)?;
    if builtin::is_builtin(&role) {
        return Err(is_builtin(&role));
    }
    check(&role.db, &named)?;
    let _lock = ctx.server.users.lock();
    let documents = Documents::new(&ctx.server.db, ctx.now_ms);
    edit(&documents, &role, &|stored| {
        let mut list = stored.privileges;
        change(&mut list, named.clone());
        vec![("privileges", Some(privilege::array_of(&list)))]
    })
}

fn change_roles(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    check: fn(&Documents<'_>, &Name, &[Name]) -> Result<()>,
    change: fn(&mut Vec<Name>, Vec<Name>),
) -> Result<Outcome> {
    let role = args::target(request)?;
    let named = args::roles(request)?;
    args::check_given(request, "roles", &named)?;
    if builtin::is_builtin(&role) {
        return Err(is_builtin(&role));
    }
    let _lock = ctx.server.users.lock();
    let documents = Documents::new(&ctx.server.db, ctx.now_ms);
    check(&documents, &role, &named)?;
    edit(&documents, &role, &|stored| {
        let mut list = stored.roles;
        change(&mut list, named.clone());
        vec![("roles", Some(Name::array_of_roles(&list)))]
    })
}

/// Changes a role by what is stored of it.
fn edit(
    documents: &Documents<'_>,
    role: &Name,
    edits: &dyn Fn(Role) -> Vec<Edit>,
) -> Result<Outcome> {
    match documents.edit_by(Of::Role, role, &|doc| edits(Role::stored(doc)))? {
        true => Ok(Outcome::Done),
        false => Err(not_found(role)),
    }
}
