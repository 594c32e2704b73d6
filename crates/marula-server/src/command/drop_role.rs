//! `dropRole` and `dropAllRolesFromDatabase`: remove roles, and revoke them from users and roles.

use marula_bson::DocWriter;
use marula_error::{Result, errors};

use super::{Auth, Command, Fields, Outcome};
use crate::auth::documents::{Documents, name_of};
use crate::auth::name::{Name, Of};
use crate::auth::{args, builtin};
use crate::context::Context;
use crate::request::Request;

errors! {
    not_found(role: &Name) = RoleNotFound, "Could not find role: {role}";
}

pub(super) static ONE: Command = Command {
    name: "dropRole",
    help: "Removes a role, and revokes it from all users and roles that have it.",
    writes: true,
    takes_write_concern: true,
    fields: Fields::Strict { place: "dropRole", fields: &[] },
    auth: Auth::Database(&["dropRole"]),
    run: drop_one,
    ..Command::DEFAULT
};

pub(super) static ALL: Command = Command {
    name: "dropAllRolesFromDatabase",
    help: "Removes every user-defined role of the database, and revokes them from other roles.",
    writes: true,
    takes_write_concern: true,
    fields: Fields::Strict { place: "dropAllRolesFromDatabase", fields: &[] },
    auth: Auth::Database(&["dropRole"]),
    run: drop_all,
    ..Command::DEFAULT
};

fn drop_one(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let role = args::target(request)?;
    if builtin::is_builtin(&role) {
        return Err(super::update_role::is_builtin(&role));
    }
    let _lock = ctx.server.users.lock();
    let documents = Documents::new(&ctx.server.db, ctx.now_ms);
    if documents.find(Of::Role, &role)?.is_none() {
        return Err(not_found(&role));
    }
    // The role is revoked before it is removed. Otherwise a crash in between would leave users with
    // the name of a role that somebody could create again with other privileges.
    take_away(&documents, Of::User, &|granted| *granted == role)?;
    take_away(&documents, Of::Role, &|granted| *granted == role)?;
    documents.remove(Of::Role, &role)?;
    Ok(Outcome::Done)
}

fn drop_all(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let _lock = ctx.server.users.lock();
    let documents = Documents::new(&ctx.server.db, ctx.now_ms);
    // As in mongod 6.0, the roles are revoked from other roles, but not from users.
    take_away(&documents, Of::Role, &|granted| granted.db == request.db)?;
    reply.append("n", documents.remove_all(Of::Role, request.db)?);
    Ok(Outcome::Done)
}

/// Revokes roles from all users, or from all roles, that have them.
fn take_away(documents: &Documents<'_>, of: Of, is_taken: &dyn Fn(&Name) -> bool) -> Result<()> {
    for doc in documents.list(of, &|_| true)? {
        let mut roles = Name::stored_roles(doc.as_doc());
        let Some(name) = name_of(of, doc.as_doc()).filter(|_| roles.iter().any(is_taken)) else {
            continue;
        };
        roles.retain(|role| !is_taken(role));
        documents.edit(of, &name, &[("roles", Some(Name::array_of_roles(&roles)))])?;
    }
    Ok(())
}
