//! `rotateCertificates`: reads the TLS certificates and keys again.

use marula_bson::DocWriter;
use marula_error::{Result, errors};

use super::{Auth, Command, CommandPlace, Field, Fields, Outcome, Types};
use crate::context::Context;
use crate::request::Request;

errors! {
    not_read(reason: &str) = InvalidSSLConfiguration, "{reason}";
}

pub(super) static COMMAND: Command = Command {
    name: "rotateCertificates",
    help: "Reads the files of certificates and keys again; new connections use them.",
    place: CommandPlace::Pool,
    admin_only: true,
    fields: Fields::Strict {
        place: "rotateCertificates",
        fields: &[Field::optional("message", Types::STRING)],
    },
    auth: Auth::Cluster(&["rotateCertificates"]),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    if let Some(tls) = &ctx.server.options.tls {
        tls.rotate().map_err(|reason| not_read(&reason))?;
        let message = request.text("message").map(|text| text.to_string()).unwrap_or_default();
        tracing::info!(message, "the certificates are read again");
    }
    Ok(Outcome::Done)
}
