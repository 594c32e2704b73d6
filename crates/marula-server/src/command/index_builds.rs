//! `reIndex` and `setIndexCommitQuorum`: commands about the builds of indexes.

use marula_bson::{Doc, DocWriter, Type, Value};
use marula_db::Namespace;
use marula_error::{Result, errors};

use super::create_indexes;
use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, Named, OnSecondary, Outcome};
use crate::context::Context;
use crate::request::Request;

errors! {
    not_standalone(ns: &Namespace) = IllegalOperation, "reIndex is only allowed on a standalone mongod instance. Cannot reIndex '{ns}' while replication is active";
    views_are_locked() = 51_070, "Modifications to system.views must take an exclusive lock";
    no_collection(ns: &Namespace) = NamespaceNotFound, "Collection '{ns}' was not found.";
    no_names(ns: &Namespace) = IndexNotFound, "Cannot set a new commit quorum on an index build in collection '{ns}' without providing any indexes.";
    no_build(ns: &Namespace) = IndexNotFound, "Cannot find an index build on collection '{ns}' with the provided index names";
}

pub(super) static REINDEX: Command = Command {
    name: "reIndex",
    help: "Builds the indexes of a collection again. It always fails, because it is only for standalone servers, which this is not.",
    named: Named::OLD_BY_NAME,
    auth: Auth::Collection(&["reIndex"]),
    run: |_, request, _| Err(not_standalone(&request.namespace()?)),
    ..Command::DEFAULT
};

pub(super) static SET_COMMIT_QUORUM: Command = Command {
    name: "setIndexCommitQuorum",
    help: "Changes the number of members that must have built an index before it is committed. It finds no build, because a build ends with its command here.",
    takes_write_concern: true,
    secondary: Some(OnSecondary::Never),
    fields: Fields::Known {
        place: "setIndexCommitQuorum",
        fields: &[
            Field::required("indexNames", Types::ARRAY),
            Field::required(
                "commitQuorum",
                Types::Of(&[
                    Type::Int32,
                    Type::Int64,
                    Type::Double,
                    Type::Decimal128,
                    Type::String,
                ]),
            ),
        ],
    },
    auth: Auth::Collection(&["createIndex"]),
    run: set_commit_quorum,
    ..Command::DEFAULT
};

fn set_commit_quorum(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let ns = request.namespace()?;
    let names = request.arg("indexNames").and_then(|names| names.as_array()).unwrap_or(Doc::EMPTY);
    for (at, name) in names.values().enumerate() {
        if !matches!(name, Value::String(_) | Value::Null | Value::Undefined) {
            let (place, kind) = (request.command.name, name.kind().alias());
            return Err(fields::element_type(place, "indexNames", at, kind, "string"));
        }
    }
    create_indexes::check_quorum_form(request.arg("commitQuorum").unwrap_or(Value::Null))?;
    if ns.collection() == "system.views" {
        return Err(views_are_locked());
    }
    if ctx.server.db.collection(&ns).is_none() {
        return Err(no_collection(&ns));
    }
    match names.values().all(|name| name.is_nullish()) {
        true => Err(no_names(&ns)),
        false => Err(no_build(&ns)),
    }
}
