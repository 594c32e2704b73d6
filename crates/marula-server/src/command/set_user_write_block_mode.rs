//! `setUserWriteBlockMode`: rejects the writes of users, or permits them again.
//!
//! Source: manual "setUserWriteBlockMode"; errors recorded from mongod 6.0.

use marula_bson::DocWriter;
use marula_error::{Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, OnSecondary, Outcome};
use crate::context::Context;
use crate::request::Request;
use crate::user_writes;

errors! {
    standalone() = IllegalOperation, "setUserWriteBlockMode cannot be run on standalones";
}

pub(super) static COMMAND: Command = Command {
    name: "setUserWriteBlockMode",
    help: "Rejects the writes of users, or permits them again.",
    admin_only: true,
    takes_write_concern: true,
    secondary: Some(OnSecondary::Never),
    fields: Fields::Strict {
        place: "setUserWriteBlockMode",
        fields: &[Field::required("global", Types::BOOLEAN)],
    },
    auth: Auth::Cluster(&["setUserWriteBlockMode"]),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let server = ctx.server;
    if server.options.repl_set.is_none() {
        return Err(standalone());
    }
    let blocked = request.flag("global");
    user_writes::set(&server.db, blocked, ctx.now_ms)?;
    tracing::info!(blocked, "the mode of users' writes was set");
    Ok(Outcome::Done)
}
