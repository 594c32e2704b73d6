//! `listCommands`: every command with its help text.

use marula_bson::DocWriter;
use marula_error::Result;

use super::{Auth, COMMANDS, Command, CommandPlace, OnSecondary, Outcome};
use crate::context::Context;
use crate::request::Request;

pub(super) static COMMAND: Command = Command {
    name: "listCommands",
    help: "Lists the commands of this server with their help texts.",
    place: CommandPlace::Reserved,
    run,
    auth: Auth::Anyone,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let has_tests = ctx.server.fail_points.are_enabled();
    let has_cluster = ctx.server.db.engine().is_remote;
    let is_there = |command: &&&Command| {
        command.since <= request.version
            && (has_tests || !command.is_for_tests)
            && (has_cluster || !command.needs_cluster)
    };
    let mut commands = reply.begin_doc("commands");
    for command in COMMANDS.iter().filter(is_there) {
        let mut entry = commands.begin_doc(command.name);
        if !command.aliases.is_empty() {
            let mut aliases = entry.begin_array("aliases");
            for alias in command.aliases {
                aliases.push(*alias);
            }
        }
        let on_secondary = command.on_secondary();
        entry.append("help", command.help);
        entry.append("requiresAuth", !matches!(command.auth, Auth::Anyone));
        entry.append("secondaryOk", on_secondary == OnSecondary::Always);
        entry.append("adminOnly", command.admin_only);
        if on_secondary == OnSecondary::IfPreferred {
            entry.append("secondaryOverrideOk", true);
        }
        let mut versions = entry.begin_array("apiVersions");
        if command.in_api_v1 {
            versions.push("1");
        }
        drop(versions);
        entry.begin_array("deprecatedApiVersions").finish();
    }
    Ok(Outcome::Done)
}
