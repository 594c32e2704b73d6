//! The commands with which drivers test the Stable API: each belongs to other versions of it. They
//! reply with the parameters of the API that they received. Only a test server has them.
//!
//! Source: driver specification "Versioned API", tests; replies recorded from mongod 6.0.

use marula_bson::{ByteSlice, DocWriter};
use marula_error::{Result, errors};

use super::{Auth, Command, CommandPlace, Outcome};
use crate::context::Context;
use crate::request::Request;

errors! {
    deprecated(name: &str) = APIDeprecationError, "Provided apiDeprecationErrors:true, but the command {name} is deprecated in API Version 1";
}

const BASE: Command = Command {
    is_for_tests: true,
    help: "Replies with the parameters of the Stable API of this request. For tests of drivers.",
    place: CommandPlace::Inline,
    in_api_v1: true,
    auth: Auth::User,
    run: reply_parameters,
    ..Command::DEFAULT
};

pub(super) static VERSION_2: Command = Command { name: "testVersion2", in_api_v1: false, ..BASE };
pub(super) static VERSIONS_1_AND_2: Command = Command { name: "testVersions1And2", ..BASE };
pub(super) static DEPRECATION_IN_VERSION_2: Command =
    Command { name: "testDeprecationInVersion2", ..BASE };
pub(super) static REMOVAL: Command = Command { name: "testRemoval", ..BASE };
pub(super) static DEPRECATION: Command = Command {
    name: "testDeprecation",
    run: |context, request, reply| match request.api.deprecation_errors {
        true => Err(deprecated(request.command.name)),
        false => reply_parameters(context, request, reply),
    },
    ..BASE
};

fn reply_parameters(
    _: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    for field in request.body {
        if matches!(field.name.as_bytes(), b"apiVersion" | b"apiStrict" | b"apiDeprecationErrors") {
            reply.append_raw(field.name, field.value);
        }
    }
    Ok(Outcome::Done)
}
