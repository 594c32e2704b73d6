//! `compact`: rewrites a collection and its indexes in their most compact form.

use marula_bson::{DocWriter, Value};
use marula_error::{Result, errors};
use marula_storage::Space;

use super::{Auth, Command, Named, Outcome};
use crate::context::Context;
use crate::request::Request;
use crate::{storage_size, time_series};

errors! {
    no_collection() = NamespaceNotFound, "collection does not exist";
    view() = CommandNotSupportedOnView, "can't compact a view";
}

pub(super) static COMMAND: Command = Command {
    name: "compact",
    help: "Rewrites a collection and its indexes in their most compact form, and returns when that is done.",
    named: Named::OLD_BY_NAME,
    auth: Auth::Collection(&["compact"]),
    run,
    ..Command::DEFAULT
};

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let ns = request.namespace()?;
    let ns = time_series::data_namespace(&context.server.db, &ns)?;
    let db = &context.server.db;
    let collection = db.collection(&ns).ok_or_else(no_collection)?;
    let state = collection.state();
    if state.options.view.is_some() {
        return Err(view());
    }
    let size = || -> Result<i64> {
        Ok(storage_size::of_documents(db, &collection)?
            + storage_size::of_indexes(db, &collection)?)
    };
    let before = size()?;
    tracing::info!(target: "STORAGE", id = 20_284, namespace = %ns, "Compact begin");
    let ranges = std::iter::once((Space::Records, collection.ident()))
        .chain(state.indexes.iter().map(|index| (Space::Indexes, index.ident)));
    for (space, ident) in ranges {
        let mut go_on = || context.check_interrupt().is_ok();
        db.compact(space, ident, &mut go_on)?;
        context.check_interrupt()?;
    }
    let freed = (before - size()?).max(0);
    tracing::info!(target: "STORAGE", id = 20_286, namespace = %ns, freedBytes = freed, "Compact end");
    reply.append("bytesFreed", Value::whole(freed));
    Ok(Outcome::Done)
}
