//! `_mergeAuthzCollections`: takes over users and roles that a restore has put into temporary
//! collections. `mongorestore` ends with it.
//!
//! Recorded from mongod 6.0: existing users and roles stay as they are; with `drop` they are
//! replaced, and those that are not in the temporary collection are removed.

use std::collections::BTreeSet;

use marula_bson::{Doc, DocBuf, DocWriter, Type, Value};
use marula_db::Namespace;
use marula_error::{Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::auth::check::{Check, Target};
use crate::auth::documents::Documents;
use crate::auth::name::{Name, Of};
use crate::auth::privilege::Privilege;
use crate::context::Context;
use crate::request::Request;

errors! {
    no_collection() = BadValue, "Must provide at least one of \"tempUsersCollection\" and \"tempRolescollection\"";
    no_namespace(name: &str) = InvalidNamespace, "Invalid namespace specified '{name}'";
    no_name(field: &str) = NoSuchKey, "Missing expected field \"{field}\"";
    wrong_name(field: &str, kind: &str) = TypeMismatch, "\"{field}\" had the wrong type. Expected string, found {kind}";
    not_complete() = 10_065, "invalid parameter: expected an object ()";
}

pub(super) static COMMAND: Command = Command {
    name: "_mergeAuthzCollections",
    help: "Takes over users and roles that a restore has put into temporary collections.",
    admin_only: true,
    writes: true,
    takes_write_concern: true,
    fields: Fields::Strict {
        place: "_mergeAuthzCollections",
        fields: &[
            Field::optional("tempUsersCollection", Types::STRING),
            Field::optional("tempRolesCollection", Types::STRING),
            Field::required("db", Types::STRING),
            Field::optional("drop", Types::One(Type::Boolean)),
        ],
    },
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

/// Requires the privileges to create users and roles in every database, and to read the temporary
/// collections.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let actions = ["createUser", "createRole", "grantRole", "revokeRole"];
    check.needs(Target::EveryDatabase, &actions);
    if request.flag("drop") {
        check.needs(Target::EveryDatabase, &["dropUser", "dropRole"]);
    }
    for of in [Of::User, Of::Role] {
        if let Some(ns) = source(of, request)? {
            check.needs_on(ns.db(), ns.collection(), &["find"]);
        }
    }
    Ok(())
}

fn run(ctx: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let sources = [Of::User, Of::Role].map(|of| Ok((of, source(of, request)?)));
    let sources: Vec<(Of, Option<Namespace>)> = sources.into_iter().collect::<Result<_>>()?;
    if sources.iter().all(|(_, ns)| ns.is_none()) {
        return Err(no_collection());
    }
    let db = request.text("db").unwrap_or_default().to_string();
    let merge = Merge {
        documents: Documents::new(&ctx.server.db, ctx.now_ms),
        db,
        drops: request.flag("drop"),
    };
    let _lock = ctx.server.users.lock();
    for (of, ns) in sources {
        if let Some(ns) = ns {
            merge.take_over(of, &ns)?;
        }
    }
    Ok(Outcome::Done)
}

/// Returns the temporary collection of users or of roles, if one is named.
fn source(of: Of, request: &Request<'_>) -> Result<Option<Namespace>> {
    let field = match of {
        Of::User => "tempUsersCollection",
        Of::Role => "tempRolesCollection",
    };
    let name = request.text(field).unwrap_or_default().to_string();
    match name.split_once('.') {
        _ if name.is_empty() => Ok(None),
        Some((db, collection)) if !collection.is_empty() => {
            Namespace::new(db, collection).map(Some)
        }
        Some(_) => Err(no_namespace(&name)),
        None => Err(no_namespace(&format!("{name}."))),
    }
}

struct Merge<'s> {
    documents: Documents<'s>,
    /// The only database whose users and roles are concerned; if it is empty, all are.
    db: String,
    drops: bool,
}

impl Merge<'_> {
    fn take_over(&self, of: Of, from: &Namespace) -> Result<()> {
        let mut left = BTreeSet::new();
        if self.drops {
            let own = self.documents.list(of, &|name| self.concerns(name))?;
            for doc in own {
                left.insert(name_of(of, doc.as_doc())?);
            }
        }
        for doc in self.documents.all(from)? {
            let doc = doc.as_doc();
            let name = name_of(of, doc)?;
            if !self.concerns(&name) {
                continue;
            }
            check(of, doc, &name)?;
            left.remove(&name);
            // Users and roles are found by this `_id`.
            let stored = DocBuf::build(|out| {
                out.append("_id", name.id().as_str());
                doc.iter().filter(|field| field.name != "_id").for_each(|field| {
                    out.append_raw(field.name, field.value);
                });
            });
            if !self.documents.insert(of, stored.as_doc())? && self.drops {
                self.documents.replace(of, &name, stored.as_doc())?;
            }
        }
        for name in left {
            self.documents.remove(of, &name)?;
        }
        Ok(())
    }

    fn concerns(&self, name: &Name) -> bool {
        self.db.is_empty() || self.db == name.db
    }
}

/// Returns the user or role of a document.
fn name_of(of: Of, doc: Doc<'_>) -> Result<Name> {
    let text = |field: &str| match doc.get(field) {
        Some(Value::String(text)) => Ok(text.to_string()),
        Some(other) => Err(wrong_name(field, other.kind().alias())),
        None => Err(no_name(field)),
    };
    Ok(Name { name: text(of.field())?, db: text("db")? })
}

/// Checks the parts that decide what a user may do.
fn check(of: Of, doc: Doc<'_>, name: &Name) -> Result<()> {
    let array =
        |field: &str| doc.get(field).and_then(|list| list.as_array()).ok_or_else(not_complete);
    match of {
        Of::User => {
            doc.get("credentials").and_then(|all| all.as_doc()).ok_or_else(not_complete)?;
        }
        Of::Role => drop(Privilege::parse_list(array("privileges")?)?),
    }
    Name::parse_roles(array("roles")?, &name.db).map(drop)
}
