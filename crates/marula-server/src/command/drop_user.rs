//! `dropUser` and `dropAllUsersFromDatabase`: remove users.

use marula_bson::DocWriter;
use marula_error::{Result, errors};

use super::{Auth, Command, Fields, Outcome};
use crate::auth::args;
use crate::auth::documents::Documents;
use crate::auth::name::{Name, Of};
use crate::context::Context;
use crate::request::Request;

errors! {
    not_found(user: &Name) = UserNotFound, "User '{user}' not found";
}

pub(super) static ONE: Command = Command {
    name: "dropUser",
    help: "Removes a user of the database that the command is sent to.",
    writes: true,
    takes_write_concern: true,
    fields: Fields::Strict { place: "dropUser", fields: &[] },
    auth: Auth::Database(&["dropUser"]),
    run: drop_one,
    ..Command::DEFAULT
};

pub(super) static ALL: Command = Command {
    name: "dropAllUsersFromDatabase",
    help: "Removes all users of the database that the command is sent to.",
    writes: true,
    takes_write_concern: true,
    fields: Fields::Strict { place: "dropAllUsersFromDatabase", fields: &[] },
    auth: Auth::Database(&["dropUser"]),
    run: drop_all,
    ..Command::DEFAULT
};

fn drop_one(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let user = args::target(request)?;
    let _lock = ctx.server.users.lock();
    match Documents::new(&ctx.server.db, ctx.now_ms).remove(Of::User, &user)? {
        true => Ok(Outcome::Done),
        false => Err(not_found(&user)),
    }
}

fn drop_all(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let _lock = ctx.server.users.lock();
    let documents = Documents::new(&ctx.server.db, ctx.now_ms);
    reply.append("n", documents.remove_all(Of::User, request.db)?);
    Ok(Outcome::Done)
}
