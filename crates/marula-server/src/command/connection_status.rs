//! Commands about the connection itself: `connectionStatus`, `whatsmyuri`, `logout`, `getnonce`.

use marula_bson::{DocWriter, doc_fields};
use marula_error::Result;

use super::fields::{Field, Types};
use super::{Command, Fields, Outcome, Place};
use crate::context::Context;
use crate::dispatch;
use crate::request::Request;

pub(super) static STATUS: Command = Command {
    name: "connectionStatus",
    help: "Returns who is authenticated on this connection.",
    place: Place::Inline,
    fields: Fields::Strict {
        place: "connectionStatus",
        fields: &[Field::optional("showPrivileges", Types::BOOLEAN)],
    },
    run: status,
    ..Command::DEFAULT
};

pub(super) static WHATS_MY_URI: Command = Command {
    name: "whatsmyuri",
    help: "Returns the address that this connection comes from.",
    place: Place::Inline,
    run: |context, _, reply| {
        reply.append("you", dispatch::address_text(context.connection.peer.remote).as_str());
        Ok(Outcome::Done)
    },
    ..Command::DEFAULT
};

pub(super) static LOGOUT: Command = Command {
    name: "logout",
    help: "Forgets who is authenticated on this connection.",
    place: Place::Inline,
    run: |_, _, _| Ok(Outcome::Done),
    ..Command::DEFAULT
};

pub(super) static GET_NONCE: Command = Command {
    name: "getnonce",
    help: "Returns a random number, which old ways to authenticate began with.",
    place: Place::Inline,
    run: |_, _, reply| {
        reply.append("nonce", format!("{:016x}", rand::random::<u64>()).as_str());
        Ok(Outcome::Done)
    },
    ..Command::DEFAULT
};

fn status(
    _: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let mut info = reply.begin_doc("authInfo");
    doc_fields!(info; "authenticatedUsers": [], "authenticatedUserRoles": []);
    if request.flag("showPrivileges") {
        info.begin_array("authenticatedUserPrivileges").finish();
    }
    Ok(Outcome::Done)
}
