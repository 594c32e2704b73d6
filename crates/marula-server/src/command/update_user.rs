//! `updateUser`: changes a user's password, roles, custom data, mechanisms or restrictions.

use marula_bson::{Doc, DocBuf, DocWriter, ValueBuf};
use marula_error::{Result, errors};

use super::create_user;
use super::{Auth, Command, Fields, Outcome};
use crate::auth::administration;
use crate::auth::documents::{Documents, Edit};
use crate::auth::name::{Name, Of};
use crate::auth::{EXTERNAL, args, restriction, roles};
use crate::context::Context;
use crate::request::Request;

errors! {
    nothing_to_update() = BadValue, "Must specify at least one field to update in updateUser";
    external_password() = BadValue, "Cannot set the password for users defined on the '$external' database";
    not_a_subset() = BadValue, "mechanisms field must be a subset of previously set mechanisms";
    not_found(user: &Name) = UserNotFound, "User {user} not found";
    /// The user does not exist, but its stored credentials are needed.
    pub(super) no_such_user(user: &str, db: &str) = UserNotFound, "Could not find user \"{user}\" for db \"{db}\"";
}

pub(super) static COMMAND: Command = Command {
    name: "updateUser",
    help: "Changes a user's password, roles, custom data, mechanisms or restrictions.",
    writes: true,
    takes_write_concern: true,
    fields: Fields::Strict { place: "updateUser", fields: create_user::USER_FIELDS },
    secrets: &["pwd"],
    auth: Auth::Content(administration::update_user),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let user = args::target(request)?;
    let granted = match args::array(request, "roles")? {
        Some(_) => Some(args::roles(request)?),
        None => None,
    };
    let mechanisms = args::mechanisms(request)?;
    let restrictions = args::restrictions(request)?;
    let (password, data) = (request.text("pwd"), request.arg("customData"));
    let gives = [password.is_some(), data.is_some(), granted.is_some(), mechanisms.is_some()];
    if restrictions.is_none() && !gives.contains(&true) {
        return Err(nothing_to_update());
    }
    args::check_mechanisms_named(mechanisms)?;
    let new_credentials = match password {
        None => None,
        Some(_) if user.db == EXTERNAL => return Err(external_password()),
        Some(password) => {
            let text = password.to_string();
            Some(create_user::make_credentials(ctx, request, &user, &text, mechanisms)?)
        }
    };
    let _lock = ctx.server.users.lock();
    let documents = Documents::new(&ctx.server.db, ctx.now_ms);
    // New fields are added after the existing ones, in the order of their names.
    let mut edits: Vec<Edit> = Vec::new();
    if let Some(restrictions) = &restrictions {
        edits.push(restriction::edit(restrictions));
    }
    match (new_credentials, mechanisms) {
        (Some(credentials), _) => edits.push(("credentials", Some(ValueBuf::from(&credentials)))),
        (None, Some(kept)) => {
            let doc = documents.find(Of::User, &user)?;
            let doc = doc.ok_or_else(|| no_such_user(&user.name, &user.db))?;
            edits.push(("credentials", Some(ValueBuf::from(&keep(doc.as_doc(), kept)?))));
        }
        (None, None) => {}
    }
    if let Some(data) = data {
        edits.push(("customData", Some(data.to_buf())));
    }
    if let Some(granted) = &granted {
        roles::check_exist(&documents, granted)?;
        edits.push(("roles", Some(Name::array_of_roles(granted))));
    }
    match documents.edit(Of::User, &user, &edits)? {
        true => Ok(Outcome::Done),
        false => Err(not_found(&user)),
    }
}

/// Returns the user's credentials for these mechanisms only.
///
/// Errors: `not_a_subset` if the user has no credentials for one of them.
fn keep(user: Doc<'_>, kept: Doc<'_>) -> Result<DocBuf> {
    let credentials = user.get("credentials").and_then(|credentials| credentials.as_doc());
    let credentials = credentials.unwrap_or(Doc::EMPTY);
    let kept = || kept.values().filter_map(|name| name.as_str());
    if kept().any(|name| credentials.get(name).is_none()) {
        return Err(not_a_subset());
    }
    Ok(DocBuf::build(|out| {
        for field in credentials.iter().filter(|field| kept().any(|name| name == field.name)) {
            out.append_raw(field.name, field.value);
        }
    }))
}
