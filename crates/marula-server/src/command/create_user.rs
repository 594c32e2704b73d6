//! `createUser`: creates a user in a database.

use marula_bson::{Binary, Doc, DocBuf, DocWriter, uuid};
use marula_error::{Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::auth::administration;
use crate::auth::args;
use crate::auth::credentials::{Credentials, Password};
use crate::auth::documents::Documents;
use crate::auth::name::{Name, Of};
use crate::auth::{EXTERNAL, restriction, roles};
use crate::context::Context;
use crate::request::Request;

errors! {
    in_local() = BadValue, "Cannot create users in the local database";
    no_password() = BadValue, "Must provide a 'pwd' field for all user documents, except those with '$external' as the user's source db";
    external_password() = BadValue, "Cannot set the password for users defined on the '$external' database";
    empty_name() = BadValue, "User document needs 'user' field to be non-empty";
    exists(user: &Name) = 51_003, "User \"{user}\" already exists";
}

/// The fields of a user in the commands that create and change one.
pub(super) const USER_FIELDS: &[Field] = &[
    Field::optional("pwd", Types::STRING),
    Field::optional("customData", Types::DOCUMENT),
    Field::optional("roles", Types::ARRAY),
    Field::optional("digestPassword", Types::FLAG),
    Field::optional("authenticationRestrictions", Types::ARRAY),
    Field::optional("mechanisms", Types::ARRAY),
];

pub(super) static COMMAND: Command = Command {
    name: "createUser",
    help: "Creates a user, with a password and roles, in the database that the command is sent to.",
    writes: true,
    takes_write_concern: true,
    write_concern_is_field: true,
    fields: Fields::Strict { place: "createUser", fields: USER_FIELDS },
    secrets: &["pwd"],
    auth: Auth::Content(administration::create_user),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let user = args::target(request)?;
    let granted = args::roles(request)?;
    let mechanisms = args::mechanisms(request)?;
    let restrictions = args::restrictions(request)?.unwrap_or_default();
    if user.db == "local" {
        return Err(in_local());
    }
    let credentials = match request.text("pwd") {
        Some(_) if user.db == EXTERNAL => return Err(external_password()),
        None if user.db != EXTERNAL => return Err(no_password()),
        _ if user.name.is_empty() => return Err(empty_name()),
        Some(password) => make_credentials(ctx, request, &user, &password.to_string(), mechanisms)?,
        None => {
            args::check_mechanisms_named(mechanisms)?;
            DocBuf::build(|out| {
                out.append("external", true);
            })
        }
    };
    restrictions.iter().try_for_each(|restriction| restriction.check().map(|_| ()))?;
    let _lock = ctx.server.users.lock();
    let documents = Documents::new(&ctx.server.db, ctx.now_ms);
    roles::check_exist(&documents, &granted)?;
    let id = uuid::generate();
    let doc = DocBuf::build(|out| {
        out.append("_id", user.id().as_str());
        out.append("userId", Binary { subtype: 4, bytes: &id });
        out.append("user", user.name.as_str()).append("db", user.db.as_str());
        out.append("credentials", &credentials);
        if !restrictions.is_empty() {
            let list = restriction::array_of(&restrictions);
            out.append_raw("authenticationRestrictions", list.as_raw());
        }
        if let Some(data) = request.arg("customData") {
            out.append("customData", data);
        }
        out.append_raw("roles", Name::array_of_roles(&granted).as_raw());
    });
    match documents.insert(Of::User, doc.as_doc())? {
        true => Ok(Outcome::Done),
        false => Err(exists(&user)),
    }
}

/// Returns the field `credentials` of a user with this password, for the mechanisms that the
/// request names or else for all that the server takes.
pub(super) fn make_credentials(
    ctx: &Context<'_>,
    request: &Request<'_>,
    user: &Name,
    text: &str,
    mechanisms: Option<Doc<'_>>,
) -> Result<DocBuf> {
    let mechanisms = args::wanted_mechanisms(mechanisms, |mechanism| {
        ctx.server.parameters.takes_mechanism(mechanism.name())
    })?;
    let is_digested = request.arg("digestPassword").is_some_and(|flag| !flag.is_truthy());
    let password = Password { user: &user.name, text, is_digested };
    let mut made = Vec::new();
    for mechanism in mechanisms {
        let iterations = ctx.server.parameters.number(mechanism.iterations_parameter());
        let iterations = u32::try_from(iterations).unwrap_or(u32::MAX);
        made.push((mechanism, Credentials::make(mechanism, password, iterations)?));
    }
    Ok(DocBuf::build(|out| {
        made.iter().for_each(|(mechanism, credentials)| credentials.write(*mechanism, out));
    }))
}
