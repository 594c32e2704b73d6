//! `shutdown`: stops the server.

use marula_bson::DocWriter;
use marula_error::Result;

use super::{Auth, Command, CommandPlace, Outcome};
use crate::context::Context;
use crate::request::Request;

pub(super) static COMMAND: Command = Command {
    name: "shutdown",
    help: "Stops the server. Running operations may finish first, unless force is true.",
    place: CommandPlace::Reserved,
    admin_only: true,
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
