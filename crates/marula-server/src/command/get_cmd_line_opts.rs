//! `getCmdLineOpts`: the command line and the options that the server was started with.

use marula_bson::DocWriter;
use marula_error::Result;

use super::{Auth, Command, CommandPlace, Fields, Outcome};
use crate::context::Context;
use crate::request::Request;

pub(super) static COMMAND: Command = Command {
    name: "getCmdLineOpts",
    help: "Returns the command line and the effective options, in the form of a configuration file.",
    place: CommandPlace::Reserved,
    admin_only: true,
    fields: Fields::Strict { place: "getCmdLineOpts", fields: &[] },
    auth: Auth::Cluster(&["getCmdLineOpts"]),
    run,
    ..Command::DEFAULT
};

fn run(context: &mut Context<'_>, _: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let options = &context.server.options;
    let mut argv = reply.begin_array("argv");
    for argument in &options.argv {
        argv.push(argument);
    }
    drop(argv);
    reply.append("parsed", &options.parsed);
    Ok(Outcome::Done)
}
