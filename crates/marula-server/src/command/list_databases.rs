//! `listDatabases`: the databases and their sizes.

use marula_bson::{DocBuf, DocWriter, Value, doc};
use marula_error::{Result, errors};
use marula_query::filter::Filter;
use marula_query::validation::allowed;

use super::fields::{Field, Types};
use super::{Auth, Command, CommandPlace, Fields, OnSecondary, Outcome};
use crate::auth::check::Target;
use crate::context::Context;
use crate::request::Request;
use crate::storage_size;

errors! {
    not_all() = Unauthorized, "Insufficient permissions to list all databases";
}

pub(super) static COMMAND: Command = Command {
    name: "listDatabases",
    help: "Lists the databases with their sizes, or only their names.",
    place: CommandPlace::Reserved,
    admin_only: true,
    in_api_v1: true,
    secondary: Some(OnSecondary::IfPreferred),
    fields: Fields::Strict {
        place: "listDatabases",
        fields: &[
            Field::optional("nameOnly", Types::FLAG),
            Field::optional("filter", Types::DOCUMENT),
            Field::optional("authorizedDatabases", Types::BOOLEAN),
        ],
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
    let name_only = request.flag("nameOnly");
    let filter = match request.arg("filter") {
        Some(Value::Document(filter)) => {
            allowed::check_on_list(filter)?;
            Some(Filter::parse(filter, &context.env().context(None, None, None)?)?)
        }
        _ => None,
    };
    let db = &context.server.db;
    // Users without the privilege to list all databases see those in which they have any privilege.
    let own = match (context.restrained(), request.arg("authorizedDatabases")) {
        (Some(access), asked) => {
            let sees_all = access.may(&Target::Cluster, "listDatabases");
            match asked.map(|asked| asked.is_truthy()) {
                Some(false) if !sees_all => return Err(not_all()),
                None | Some(false) if sees_all => None,
                _ => Some(access),
            }
        }
        (None, _) => None,
    };
    let mut total = 0;
    let mut databases = reply.begin_array("databases");
    for name in db.catalog().databases() {
        if own.is_some_and(|access| !access.may_enter(&name)) {
            continue;
        }
        let mut entry: DocBuf = doc! { "name": name.as_str() };
        let mut size = 0;
        if !name_only {
            size = storage_size::of_database(db, &name)?;
            entry.push("sizeOnDisk", Value::Int64(size));
            entry.push("empty", Value::Boolean(false));
        }
        // The filter is applied to the shown fields.
        if let Some(filter) = &filter
            && !filter.matches(entry.as_doc())?
        {
            continue;
        }
        total += size;
        databases.push(&entry);
    }
    drop(databases);
    if !name_only {
        reply.append("totalSize", total);
        reply.append("totalSizeMb", total / (1024 * 1024));
    }
    Ok(Outcome::Done)
}
