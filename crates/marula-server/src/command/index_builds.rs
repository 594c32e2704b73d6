//! `reIndex` and `setIndexCommitQuorum`: what concerns indexes as they are built.

use marula_bson::{DocWriter, Type, Value};
use marula_db::Namespace;
use marula_error::{Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Named, Outcome};
use crate::context::Context;
use crate::request::Request;

errors! {
    not_standalone(ns: &Namespace) = IllegalOperation, "reIndex is only allowed on a standalone mongod instance. Cannot reIndex '{ns}' while replication is active";
    no_collection(ns: &Namespace) = NamespaceNotFound, "Collection '{ns}' was not found.";
    no_names(ns: &Namespace) = IndexNotFound, "Cannot set a new commit quorum on an index build in collection '{ns}' without providing any indexes.";
    no_build(ns: &Namespace) = IndexNotFound, "Cannot find an index build on collection '{ns}' with the provided index names";
}

pub(super) static REINDEX: Command = Command {
    name: "reIndex",
    help: "Would build a collection's indexes anew on a standalone server, which this is not.",
    writes: true,
    takes_write_concern: true,
    named: Named::OLD_BY_NAME,
    auth: Auth::Collection(&["reIndex"]),
    run: |_, request, _| Err(not_standalone(&request.namespace()?)),
    ..Command::DEFAULT
};

pub(super) static SET_COMMIT_QUORUM: Command = Command {
    name: "setIndexCommitQuorum",
    help: "Changes how many members must have built an index; a build here ends within its command.",
    takes_write_concern: true,
    fields: Fields::Strict {
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
    if ctx.server.db.collection(&ns).is_none() {
        return Err(no_collection(&ns));
    }
    match request.arg("indexNames") {
        Some(Value::Array(names)) if names.is_empty() => Err(no_names(&ns)),
        _ => Err(no_build(&ns)),
    }
}
