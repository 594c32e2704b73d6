//! `grantRolesToUser` and `revokeRolesFromUser`: change a user's roles.

use marula_bson::Doc;
use marula_error::Result;

use super::fields::{Field, Types};
use super::update_user::no_such_user;
use super::{Auth, Command, Fields, Outcome};
use crate::auth::administration;
use crate::auth::documents::Documents;
use crate::auth::name::{Name, Of};
use crate::auth::{args, roles};
use crate::context::Context;
use crate::request::Request;

pub(super) static GRANT: Command = Command {
    name: "grantRolesToUser",
    help: "Grants further roles to a user.",
    writes: true,
    takes_write_concern: true,
    fields: Fields::Strict {
        place: "grantRolesToUser",
        fields: &[Field::optional("roles", Types::ARRAY)],
    },
    auth: Auth::Content(administration::grant_roles),
    run: |ctx, request, _| {
        change(ctx, request, |roles, granted| {
            roles.extend(
                granted.iter().filter(|role| !roles.contains(role)).cloned().collect::<Vec<_>>(),
            );
        })
    },
    ..Command::DEFAULT
};

pub(super) static REVOKE: Command = Command {
    name: "revokeRolesFromUser",
    help: "Revokes roles from a user.",
    writes: true,
    takes_write_concern: true,
    fields: Fields::Strict {
        place: "revokeRolesFromUser",
        fields: &[Field::optional("roles", Types::ARRAY)],
    },
    auth: Auth::Content(administration::revoke_roles),
    run: |ctx, request, _| {
        change(ctx, request, |roles, revoked| roles.retain(|role| !revoked.contains(role)))
    },
    ..Command::DEFAULT
};

fn change(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    change: fn(&mut Vec<Name>, &[Name]),
) -> Result<Outcome> {
    let user = args::target(request)?;
    let named = args::roles(request)?;
    args::check_given(request, "roles", &named)?;
    let _lock = ctx.server.users.lock();
    let documents = Documents::new(&ctx.server.db, ctx.now_ms);
    let missing = || no_such_user(&user.name, &user.db);
    documents.find(Of::User, &user)?.ok_or_else(missing)?;
    roles::check_exist(&documents, &named)?;
    let edits = |doc: Doc<'_>| {
        let mut its_roles = Name::stored_roles(doc);
        change(&mut its_roles, &named);
        vec![("roles", Some(Name::array_of_roles(&its_roles)))]
    };
    match documents.edit_by(Of::User, &user, &edits)? {
        true => Ok(Outcome::Done),
        false => Err(missing()),
    }
}
