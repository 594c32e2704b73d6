//! `dropRole` and `dropAllRolesFromDatabase`: remove roles, and take them from whom they were
//! granted to.

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
    help: "Removes a role, and takes it from all users and roles that have it.",
    writes: true,
    takes_write_concern: true,
    fields: Fields::Strict { place: "dropRole", fields: &[] },
    auth: Auth::Database(&["dropRole"]),
    run: drop_one,
    ..Command::DEFAULT
};

pub(super) static ALL: Command = Command {
    name: "dropAllRolesFromDatabase",
    help: "Removes every role of the database that is not built in, and takes them from other roles.",
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
    // Whoever has it loses it first: nobody is ever left with a role that could come back as
    // another.
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
    // As mongod 6.0 does: other roles lose them, users keep their names.
    take_away(&documents, Of::Role, &|granted| granted.db == request.db)?;
    reply.append("n", documents.remove_all(Of::Role, request.db)?);
    Ok(Outcome::Done)
}

/// Takes roles from all users, or from all roles, that have them.
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
