//! Authentication, as a server answers it that has no users: `saslStart`, `saslContinue`, `authenticate`.
//!
//! There is nobody to be, so nobody can prove it; a driver with credentials is told so as mongod would.

use marula_bson::{DocWriter, Value};
use marula_error::{Result, errors};

use super::fields::{Field, Types};
use super::{Command, Fields, Outcome, Place};
use crate::context::Context;
use crate::request::Request;

errors! {
    failed() = AuthenticationFailed, "Authentication failed.";
    not_enabled(mechanism: &str) = MechanismUnavailable, "Received authentication for mechanism {mechanism} which is not enabled";
    no_conversation() = ProtocolError, "No SASL session state found";
    no_certificate() = AuthenticationFailed, "No verified subject name available from client";
}

/// The mechanisms that mongod takes unless it is told otherwise.
pub(crate) const MECHANISMS: &[&str] = &["MONGODB-X509", "SCRAM-SHA-1", "SCRAM-SHA-256"];

pub(super) static START: Command = Command {
    name: "saslStart",
    help: "Begins to authenticate; there are no users, so it fails.",
    place: Place::Inline,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "saslStart",
        fields: &[
            Field::required("mechanism", Types::STRING),
            Field::required("payload", Types::Any),
            Field::optional("autoAuthorize", Types::Any),
            Field::optional("options", Types::DOCUMENT),
        ],
    },
    run: start,
    ..Command::DEFAULT
};

pub(super) static CONTINUE: Command = Command {
    name: "saslContinue",
    help: "Goes on with what saslStart began; nothing can have been begun.",
    place: Place::Inline,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "saslContinue",
        fields: &[
            Field::required("conversationId", Types::NUMBER),
            Field::required("payload", Types::Any),
        ],
    },
    run: |_, _, _| Err(no_conversation()),
    ..Command::DEFAULT
};

pub(super) static AUTHENTICATE: Command = Command {
    name: "authenticate",
    help: "Authenticates by the certificate of the connection, which has none.",
    place: Place::Inline,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "authenticate",
        fields: &[
            Field::required("mechanism", Types::STRING),
            Field::optional("user", Types::STRING),
            Field::optional("db", Types::STRING),
        ],
    },
    run: |_, _, _| Err(no_certificate()),
    ..Command::DEFAULT
};

fn start(_: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let mechanism = match request.arg("mechanism") {
        Some(Value::String(mechanism)) => mechanism.to_string(),
        _ => String::new(),
    };
    match MECHANISMS.contains(&mechanism.as_str()) {
        true => Err(failed()),
        false => Err(not_enabled(&mechanism)),
    }
}
