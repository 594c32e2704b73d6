//! `configureFailPoint`: makes commands fail on purpose, for tests of drivers.

use marula_bson::DocWriter;
use marula_error::{Result, errors};

use super::{Auth, Command, CommandPlace, Outcome};
use crate::context::Context;
use crate::fail_point::{self, Mode};
use crate::request::Request;

errors! {
    no_such_fail_point(name: &str) = FailPointSetFailed, "{name} not found";
}

pub(super) static COMMAND: Command = Command {
    name: "configureFailPoint",
    help: "Configures when and how commands fail. Only on a server for tests, started with enableTestCommands.",
    place: CommandPlace::Inline,
    is_for_tests: true,
    admin_only: true,
    auth: Auth::Anyone,
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let name = request.first.value.get().as_str().map(|name| name.to_string()).unwrap_or_default();
    let points = &ctx.server.fail_points;
    let point = points.find(&name).ok_or_else(|| no_such_fail_point(&name))?;
    let mode = Mode::parse(request.arg("mode"))?;
    let data = fail_point::data_of(request.arg("data"))?;
    tracing::info!(fail_point = name, ?mode, data = %data.as_doc(), "fail point set");
    reply.append("count", point.set(mode, data));
    Ok(Outcome::Done)
}
