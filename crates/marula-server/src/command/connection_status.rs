//! Commands about the connection: `connectionStatus`, `whatsmyuri`, `logout`, `getnonce`.

use marula_bson::{DocWriter, doc_fields};
use marula_error::Result;

use super::fields::{Field, Types};
use super::{Auth, Command, CommandPlace, Fields, Outcome};
use crate::auth::documents::Documents;
use crate::auth::name::Name;
use crate::context::Context;
use crate::dispatch;
use crate::request::Request;

pub(super) static STATUS: Command = Command {
    name: "connectionStatus",
    help: "Returns the authenticated user of this connection.",
    place: CommandPlace::Inline,
    fields: Fields::Strict {
        place: "connectionStatus",
        fields: &[Field::optional("showPrivileges", Types::FLAG)],
    },
    run: status,
    auth: Auth::Anyone,
    ..Command::DEFAULT
};

pub(super) static WHATS_MY_URI: Command = Command {
    name: "whatsmyuri",
    help: "Returns the client's address of this connection.",
    place: CommandPlace::Inline,
    run: |context, _, reply| {
        reply.append("you", dispatch::address_text(context.connection.peer.remote).as_str());
        Ok(Outcome::Done)
    },
    auth: Auth::Anyone,
    ..Command::DEFAULT
};

pub(super) static LOGOUT: Command = Command {
    name: "logout",
    help: "Logs out the user of this connection.",
    place: CommandPlace::Inline,
    fields: Fields::Strict { place: "logout", fields: &[] },
    run: |ctx, request, _| {
        // Only a user of the command's database is logged out.
        if ctx.connection.access.as_ref().is_some_and(|access| access.user.db == request.db) {
            dispatch::audit_logout(ctx.server, ctx.connection, "Logging out on user request");
            ctx.connection.set_access(None);
        }
        Ok(Outcome::Done)
    },
    auth: Auth::User,
    ..Command::DEFAULT
};

pub(super) static GET_NONCE: Command = Command {
    name: "getnonce",
    help: "Returns a random number, which old authentication mechanisms began with.",
    place: CommandPlace::Inline,
    run: |_, _, reply| {
        reply.append("nonce", format!("{:016x}", rand::random::<u64>()).as_str());
        Ok(Outcome::Done)
    },
    auth: Auth::Anyone,
    ..Command::DEFAULT
};

fn status(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let connection = &mut *ctx.connection;
    if let Some(access) = &connection.access {
        let documents = Documents::new(&ctx.server.db, ctx.now_ms);
        let renewed = access.renewed(&documents, &connection.peer);
        connection.set_access(renewed);
    }
    let access = connection.access.as_deref();
    let mut info = reply.begin_doc("authInfo");
    let mut users = info.begin_array("authenticatedUsers");
    if let Some(access) = access {
        let Name { name, db } = &access.user;
        let mut user = users.begin_doc();
        doc_fields!(user; "user": name.as_str(), "db": db.as_str());
    }
    users.finish();
    let mut roles = info.begin_array("authenticatedUserRoles");
    access.iter().flat_map(|access| &access.roles).for_each(|role| role.write_role(&mut roles));
    roles.finish();
    if request.flag("showPrivileges") {
        let mut out = info.begin_array("authenticatedUserPrivileges");
        access
            .iter()
            .flat_map(|access| &access.privileges)
            .for_each(|privilege| privilege.write(&mut out));
    }
    Ok(Outcome::Done)
}
