//! `listIndexes`: the indexes of a collection.

use marula_bson::{DocBuf, DocWriter, Value};
use marula_db::Namespace;
use marula_error::{Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::context::Context;
use crate::listing;
use crate::request::Request;
use crate::writes;

errors! {
    no_collection(ns: &Namespace) = NamespaceNotFound, "ns does not exist: {ns}";
}

pub(super) static COMMAND: Command = Command {
    name: "listIndexes",
    help: "Lists the indexes of a collection.",
    in_api_v1: true,
    fields: Fields::Strict {
        place: "listIndexes",
        fields: &[
            Field::optional("cursor", Types::DOCUMENT),
            Field::optional("includeBuildUUIDs", Types::BOOLEAN),
            Field::optional("includeIndexBuildInfo", Types::BOOLEAN),
        ],
    },
    auth: Auth::Collection(&["listIndexes"]),
    run,
    ..Command::DEFAULT
};

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let ns = request.namespace()?;
    let collection = context.server.db.collection(&ns).ok_or_else(|| no_collection(&ns))?;
    writes::check_not_view(&collection)?;
    let state = collection.state();
    let mut documents: Vec<DocBuf> = Vec::new();
    if let Some(clustered) = &state.options.clustered {
        // A clustered collection is its own index on _id.
        let mut document = clustered.clone();
        document.push("clustered", Value::Boolean(true));
        documents.push(document);
    }
    documents.extend(state.indexes.iter().map(|index| index.spec.document.clone()));
    if request.flag("includeIndexBuildInfo") {
        documents = documents.iter().map(|spec| marula_bson::doc! { "spec": spec }).collect();
    }
    listing::reply(context, request, ns, documents, reply)?;
    Ok(Outcome::Done)
}
