//! `dropDatabase`: removes all collections of a database.

use marula_bson::DocWriter;
use marula_error::{Result, errors};

use super::fields::{self, Types};
use super::users_info::is_one;
use super::{Auth, Command, Fields, Outcome};
use crate::context::Context;
use crate::request::Request;

errors! {
    not_one() = 5_255_100, "Have to pass 1 as 'drop' parameter";
    admin() = IllegalOperation, "Dropping the 'admin' database is prohibited.";
    local() = IllegalOperation, "Cannot drop 'local' database while replication is active";
}

pub(super) static COMMAND: Command = Command {
    name: "dropDatabase",
    help: "Removes a database: all its collections, documents, indexes and views.",
    writes: true,
    takes_write_concern: true,
    in_api_v1: true,
    fields: Fields::Strict { place: "dropDatabase", fields: &[] },
    auth: Auth::Database(&["dropDatabase"]),
    run,
    ..Command::DEFAULT
};

fn run(context: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let first = request.first;
    fields::check(
        "dropDatabase",
        &[fields::Field::required("dropDatabase", Types::NUMBER)],
        first.name,
        first.value.kind(),
    )?;
    if first.value.get().is_nullish() {
        return Err(fields::missing_field("dropDatabase", "dropDatabase"));
    }
    if !is_one(first.value.get()) {
        return Err(not_one());
    }
    match request.db {
        "admin" => return Err(admin()),
        "local" if context.server.options.repl_set.is_some() => return Err(local()),
        _ => {}
    }
    if !context.server.db.catalog().collections(request.db).is_empty() {
        context.check_user_writes(request.db)?;
    }
    tracing::info!(target: "COMMAND", id = 20_337, db = request.db, "dropDatabase - starting");
    context.server.db.drop_database(request.db)?;
    Ok(Outcome::Done)
}
