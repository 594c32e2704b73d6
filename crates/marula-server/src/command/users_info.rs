//! `usersInfo`: who may do what. This server has no users.

use marula_bson::{DocWriter, Value};
use marula_error::{Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome, Place};
use crate::context::Context;
use crate::request::Request;

errors! {
    user_name_type() = BadValue, "UserName must be either a string or an object";
    no_names() = BadValue, "$and/$or/$nor must be a nonempty array";
    details() = IllegalOperation, "Privilege or restriction details require exact-match usersInfo queries";
}

pub(super) static USERS: Command = Command {
    name: "usersInfo",
    help: "Lists users with their roles; there are none.",
    place: Place::Inline,
    fields: Fields::Strict {
        place: "usersInfo",
        fields: &[
            Field::optional("showCredentials", Types::FLAG),
            Field::optional("showPrivileges", Types::FLAG),
            Field::optional("showAuthenticationRestrictions", Types::FLAG),
            Field::optional("showCustomData", Types::FLAG),
            Field::optional("filter", Types::DOCUMENT),
        ],
    },
    auth: Auth::Database(&["viewUser"]),
    run: users,
    ..Command::DEFAULT
};

fn users(_: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let mut is_exact = true;
    match request.first.value.get() {
        Value::String(_) => {}
        Value::Document(user) => is_exact = user.get("forAllDBs").is_none(),
        Value::Array(users) if users.is_empty() => return Err(no_names()),
        Value::Array(users) => {
            let is_name = |user: Value<'_>| matches!(user, Value::String(_) | Value::Document(_));
            if !users.values().all(is_name) {
                return Err(user_name_type());
            }
        }
        // Any way of saying one means all users of the database.
        value if value.as_f64() == Some(1.0) => is_exact = false,
        _ => return Err(user_name_type()),
    }
    let wants_details =
        request.flag("showPrivileges") || request.flag("showAuthenticationRestrictions");
    if wants_details && !is_exact {
        return Err(details());
    }
    reply.begin_array("users").finish();
    Ok(Outcome::Done)
}
