//! `appendOplogNote`: writes an entry of kind `n` into the oplog, which changes no data.

use marula_bson::{DocWriter, Value};
use marula_error::{Result, errors};

use super::{Auth, Command, Outcome};
use crate::context::Context;
use crate::request::Request;

errors! {
    no_oplog() = NoReplicationEnabled, "Must have replication set up to run \"appendOplogNote\"";
    no_data() = NoSuchKey, "Missing expected field \"data\"";
    data_type(kind: &str) = TypeMismatch, "\"data\" had the wrong type. Expected object, found {kind}";
}

pub(super) static COMMAND: Command = Command {
    name: "appendOplogNote",
    help: "Writes a document into the oplog, without a change of data; readers of the oplog see it.",
    admin_only: true,
    writes: true,
    takes_write_concern: true,
    auth: Auth::Cluster(&["appendOplogNote"]),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    if ctx.server.options.repl_set.is_none() {
        return Err(no_oplog());
    }
    let data = match request.given("data") {
        Some(Value::Document(data)) => data,
        Some(other) => return Err(data_type(other.kind().alias())),
        None => return Err(no_data()),
    };
    match ctx.server.db.note_in_oplog(data)? {
        true => Ok(Outcome::Done),
        false => Err(no_oplog()),
    }
}
