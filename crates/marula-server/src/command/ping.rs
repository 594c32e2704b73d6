//! `ping`: returns immediately.

use marula_bson::DocWriter;
use marula_error::Result;

use super::{Auth, Command, CommandPlace, Fields, Outcome};
use crate::context::Context;
use crate::request::Request;

pub(super) static COMMAND: Command = Command {
    name: "ping",
    takes_after_cluster_time: false,
    help: "Returns immediately; drivers use it to check that the server is reachable.",
    place: CommandPlace::Inline,
    in_api_v1: true,
    fields: Fields::Strict { place: "ping", fields: &[] },
    run,
    auth: Auth::Anyone,
    ..Command::DEFAULT
};

fn run(_: &mut Context<'_>, _: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    Ok(Outcome::Done)
}
