//! `setUserWriteBlockMode`: rejects the writes of users, or permits them again.
//!
//! Source: manual "setUserWriteBlockMode"; errors recorded from mongod 6.0.

use marula_bson::DocWriter;
use marula_db::write::UserWrites;
use marula_error::{Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, OnSecondary, Outcome};
use crate::context::Context;
use crate::request::Request;

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
    let writes = match request.flag("global") {
        true => UserWrites::Blocked,
        false => UserWrites::Allowed,
    };
    server.user_write_block.set(&server.db, writes, ctx.now_ms)?;
    let blocked = writes == UserWrites::Blocked;
    tracing::info!(blocked, "the mode of users' writes was set");
    Ok(Outcome::Done)
}
