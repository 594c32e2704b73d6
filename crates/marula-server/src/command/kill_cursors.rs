//! `killCursors`: closes cursors.

use marula_bson::{BStr, DocWriter, Value};
use marula_error::{Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, CommandPlace, Fields, Outcome};
use crate::auth::check::{self, Target};
use crate::context::Context;
use crate::request::Request;

errors! {
    not_an_id(at: &BStr, kind: &str) = TypeMismatch, "BSON field 'killCursors.cursors.{at}' is the wrong type '{kind}', expected type 'long'";
}

pub(super) static COMMAND: Command = Command {
    name: "killCursors",
    help: "Closes cursors by their ids.",
    place: CommandPlace::Inline,
    in_transaction: true,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "killCursors",
        fields: &[Field::required("cursors", Types::ARRAY)],
    },
    auth: Auth::User,
    run,
    ..Command::DEFAULT
};

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    request.namespace()?;
    let mut ids = Vec::new();
    for element in request.arg("cursors").and_then(|ids| ids.as_array()).into_iter().flatten() {
        match element.value.get() {
            Value::Int64(id) => ids.push(id),
            Value::Null | Value::Undefined => {}
            other => return Err(not_an_id(element.name, other.kind().alias())),
        }
    }
    // Users may always close their own cursors.
    if let Some(access) = context.restrained()
        && !access.may(&Target::Cluster, "killAnyCursor")
        && ids.iter().any(|&id| !context.server.cursors.is_of(id, &access.user))
    {
        return Err(check::refusal(request));
    }
    let (killed, not_found): (Vec<i64>, Vec<i64>) =
        ids.into_iter().partition(|&id| context.server.cursors.kill(id));
    for (name, ids) in [
        ("cursorsKilled", killed),
        ("cursorsNotFound", not_found),
        ("cursorsAlive", Vec::new()),
        ("cursorsUnknown", Vec::new()),
    ] {
        let mut array = reply.begin_array(name);
        ids.iter().for_each(|&id| {
            array.push(id);
        });
    }
    Ok(Outcome::Done)
}
