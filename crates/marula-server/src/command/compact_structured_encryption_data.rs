//! `compactStructuredEncryptionData`: compacts the metadata collections of an encrypted collection.
//! This server has no encrypted collections, so that it always fails.

use marula_bson::DocWriter;
use marula_error::{Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, OnSecondary, Outcome};
use crate::context::Context;
use crate::request::Request;

errors! {
    no_collection(ns: &str) = NamespaceNotFound, "Collection '{ns}' does not exist";
    is_view() = CommandNotSupportedOnView, "Cannot compact structured encryption data on a view";
    not_encrypted() = 6_346_807, "Target namespace is not an encrypted collection";
}

pub(super) static COMMAND: Command = Command {
    name: "compactStructuredEncryptionData",
    help: "Compacts the metadata of an encrypted collection. It always fails, because there are no encrypted collections.",
    secondary: Some(OnSecondary::Never),
    fields: Fields::Strict {
        place: "compactStructuredEncryptionData",
        fields: &[Field::required("compactionTokens", Types::DOCUMENT)],
    },
    auth: Auth::Collection(&["compactStructuredEncryptionData"]),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = request.namespace()?;
    let Some(collection) = ctx.server.db.collection(&ns) else {
        return Err(no_collection(ns.as_str()));
    };
    Err(match collection.state().options.view {
        Some(_) => is_view(),
        None => not_encrypted(),
    })
}
