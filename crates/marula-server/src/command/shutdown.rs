//! `shutdown`: stops the server.

use marula_bson::{DocWriter, Type};
use marula_error::Result;

use super::fields::{Field, Types};
use super::{Auth, Command, CommandPlace, Fields, Outcome};
use crate::context::Context;
use crate::request::Request;

pub(super) static COMMAND: Command = Command {
    name: "shutdown",
    help: "Stops the server. Running operations may finish first, unless force is true.",
    place: CommandPlace::Reserved,
    admin_only: true,
    fields: Fields::Strict {
        place: "shutdown",
        fields: &[
            Field::optional("force", Types::One(Type::Boolean)),
            Field::optional("timeoutSecs", Types::NUMBER),
        ],
    },
    auth: Auth::Cluster(&["shutdown"]),
    run,
    ..Command::DEFAULT
};

fn run(context: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let force = request.flag("force");
    tracing::info!(target: "COMMAND", id = 4_695_400, force, "Terminating via shutdown command");
    match force {
        true => context.server.shutdown.force(),
        false => context.server.shutdown.request(),
    }
    // mongod, too, sends no reply to this command; drivers treat the closed connection as success.
    Ok(Outcome::HangUp)
}
