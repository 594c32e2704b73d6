//! `listCollections`: the collections and views of a database.

use std::sync::Arc;

use marula_bson::{Binary, DocBuf, DocWriter, Value, doc};
use marula_db::{Collection, Db, Namespace};
use marula_error::Result;
use marula_query::filter::Filter;
use marula_query::validation::allowed;

use super::fields::{Field, Types};
use super::{Auth, Command, CommandPlace, Fields, OnSecondary, Outcome};
use crate::auth::check::{Check, Target};
use crate::context::Context;
use crate::listing;
use crate::request::Request;
use crate::time_series;

pub(super) static COMMAND: Command = Command {
    name: "listCollections",
    help: "Lists the collections and views of a database with their options; a filter may select some.",
    place: CommandPlace::Reserved,
    in_api_v1: true,
    secondary: Some(OnSecondary::IfPreferred),
    fields: Fields::Strict {
        place: "listCollections",
        fields: &[
            Field::optional("cursor", Types::DOCUMENT),
            Field::optional("filter", Types::DOCUMENT),
            Field::optional("nameOnly", Types::BOOLEAN),
            Field::optional("authorizedCollections", Types::BOOLEAN),
        ],
    },
    auth: Auth::Content(demands),
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
        Some(Value::Document(filter)) if !filter.is_empty() => {
            allowed::check_on_list(filter)?;
            Some(Filter::parse(filter, &context.env().context(None, None, None)?)?)
        }
        _ => None,
    };
    let own = context.restrained().filter(|_| request.flag("authorizedCollections"));
    let mut documents = Vec::new();
    for collection in context.server.db.catalog().collections(request.db) {
        let name = collection.namespace();
        if let Some(access) = own
            && !access.may_touch(name.db(), name.collection())
        {
            continue;
        }
        let document = match name_only {
            true => name_of(&collection),
            false => describe(&context.server.db, &collection)?,
        };
        if let Some(filter) = &filter
            && !filter.matches(document.as_doc())?
        {
            continue;
        }
        documents.push(document);
    }
    let ns = Namespace::new(request.db, "$cmd.listCollections")?;
    listing::reply(context, request, ns, documents, reply)?;
    Ok(Outcome::Done)
}

fn kind(collection: &Collection) -> &'static str {
    match collection.state().options.view {
        Some(_) if time_series::is_shown(collection) => "timeseries",
        Some(_) => "view",
        None => "collection",
    }
}

fn name_of(collection: &Collection) -> DocBuf {
    doc! { "name": collection.namespace().collection(), "type": kind(collection) }
}

/// Returns the description of a collection.
///
/// Shape: `{ name, type, options, info, idIndex }`.
fn describe(db: &Db, collection: &Arc<Collection>) -> Result<DocBuf> {
    let state = collection.state();
    let options = match db.buckets_of(collection) {
        Ok(Some(buckets)) => time_series::shown_options(&buckets),
        // The options are empty if the collection of the buckets was dropped.
        Err(_) => DocBuf::new(),
        Ok(None) => time_series::shown_bucket_options(collection),
    };
    Ok(DocBuf::build(|out| {
        out.append("name", collection.namespace().collection());
        out.append("type", kind(collection));
        out.append("options", &options);
        let mut info = out.begin_doc("info");
        if state.options.view.is_some() {
            // Clients can write to a time-series collection, but not to a view.
            info.append("readOnly", state.options.time_series.is_none());
            return;
        }
        info.append("readOnly", false);
        info.append("uuid", Binary { subtype: 4, bytes: collection.uuid() });
        drop(info);
        if let Some(id_index) = state.indexes.iter().find(|index| index.is_id()) {
            out.append("idIndex", &id_index.spec.document);
        }
    }))
}

/// Requires the privilege to list all collections; if the request is only for the names of
/// accessible collections, any privilege in the database.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let asks_for_own = request.flag("nameOnly") && request.flag("authorizedCollections");
    if !(asks_for_own && check.may_enter(request.db)) {
        check.needs(Target::Database(request.db.to_owned()), &["listCollections"]);
    }
    Ok(())
}
