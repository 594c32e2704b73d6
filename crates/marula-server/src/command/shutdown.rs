//! `shutdown`: ends the server.

use marula_bson::DocWriter;
use marula_error::Result;

use super::{Auth, Command, Outcome, Place};
use crate::context::Context;
use crate::request::Request;

pub(super) static COMMAND: Command = Command {
    name: "shutdown",
    help: "Ends the server; what runs may finish first unless force is said.",
    place: Place::Reserved,
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
    // As mongod, which is gone before it could answer; drivers take the closed connection for
    // success.
    Ok(Outcome::HangUp)
}
