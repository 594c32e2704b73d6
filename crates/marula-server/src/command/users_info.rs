//! `usersInfo`: who may do what; `invalidateUserCache`.

use marula_bson::{ByteSlice, Doc, DocBuf, DocWriter, Value};
use marula_error::{Result, errors};
use marula_query::filter::Filter;

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome, Place};
use crate::auth::administration;
use crate::auth::documents::Documents;
use crate::auth::name::{Name, Of};
use crate::auth::roles;
use crate::context::Context;
use crate::request::Request;

errors! {
    no_names() = BadValue, "$and/$or/$nor must be a nonempty array";
    details() = IllegalOperation, "Privilege or restriction details require exact-match usersInfo queries";
}

pub(super) static USERS: Command = Command {
    name: "usersInfo",
    help: "Lists users with their roles and, if asked, their credentials, privileges and restrictions.",
    place: Place::Reserved,
    fields: Fields::Strict {
        place: "usersInfo",
        fields: &[
            Field::optional("showCredentials", Types::FLAG),
            Field::optional("showPrivileges", Types::FLAG),
            Field::optional("showAuthenticationRestrictions", Types::FLAG),
            Field::optional("showCustomData", Types::FLAG),
            Field::optional("filter", Types::DOCUMENT),
        ],
    },
    auth: Auth::Content(administration::users_info),
    run: users,
    ..Command::DEFAULT
};

pub(super) static INVALIDATE: Command = Command {
    name: "invalidateUserCache",
    help: "Forgets what is remembered of users; what is remembered here is never out of date.",
    place: Place::Inline,
    fields: Fields::Strict { place: "invalidateUserCache", fields: &[] },
    auth: Auth::Cluster(&["invalidateUserCache"]),
    run: |_, _, _| Ok(Outcome::Done),
    ..Command::DEFAULT
};

/// Which users a command asks for.
enum Asked {
    /// Those of the database that it is sent to.
    Database,
    /// All.
    Everyone,
    /// These.
    Named(Vec<Name>),
}

impl Asked {
    fn parse(value: Value<'_>, db: &str) -> Result<Self> {
        match value {
            Value::Document(doc) if doc.get("forAllDBs").is_some_and(|all| all.is_truthy()) => {
                Ok(Asked::Everyone)
            }
            Value::Array(users) => {
                let names: Result<_> =
                    users.values().map(|user| Name::parse(Of::User, user, db)).collect();
                Ok(Asked::Named(names?))
            }
            value if is_one(value) => Ok(Asked::Database),
            value => Ok(Asked::Named(vec![Name::parse(Of::User, value, db)?])),
        }
    }

    fn has(&self, name: &Name, db: &str) -> bool {
        match self {
            Asked::Database => name.db == db,
            Asked::Everyone => true,
            Asked::Named(names) => names.contains(name),
        }
    }
}

/// Whether a value is the number that asks for all of a database: one, and what is behind its point
/// does not count.
pub(super) fn is_one(value: Value<'_>) -> bool {
    let number = match value {
        Value::Decimal128(_) => value.as_f64().map(f64::round_ties_even),
        _ => value.as_f64().filter(|_| value.kind().is_number()).map(f64::trunc),
    };
    number == Some(1.0)
}

/// What is shown of a user.
#[derive(Clone, Copy)]
struct Shown {
    credentials: bool,
    restrictions: bool,
    custom_data: bool,
}

fn users(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let asked = Asked::parse(request.first.value.get(), request.db)?;
    let shown = Shown {
        credentials: request.flag("showCredentials"),
        restrictions: request.flag("showAuthenticationRestrictions"),
        custom_data: request.arg("showCustomData").is_none_or(|flag| flag.is_truthy()),
    };
    let filter = request.arg("filter").and_then(|filter| filter.as_doc());
    let documents = Documents::new(&ctx.server.db, ctx.now_ms);
    if request.flag("showPrivileges") || shown.restrictions {
        let (Asked::Named(names), None) = (&asked, filter) else { return Err(details()) };
        let mut out = reply.begin_array("users");
        for name in names {
            if let Some(user) = documents.find(Of::User, name)? {
                write_details(&documents, user.as_doc(), shown, &mut out.begin_doc())?;
            }
        }
        out.finish();
        return Ok(Outcome::Done);
    }
    if matches!(&asked, Asked::Named(names) if names.is_empty()) {
        return Err(no_names());
    }
    let context = ctx.env().context(None, None, None)?;
    let filter = filter.map(|filter| Filter::parse(filter, &context)).transpose()?;
    let mut out = reply.begin_array("users");
    for user in documents.list(Of::User, &|name| asked.has(name, request.db))? {
        let line = DocBuf::build(|out| write_line(user.as_doc(), shown, out));
        if filter.as_ref().map_or(Ok(true), |filter| filter.matches(line.as_doc()))? {
            out.push(&line);
        }
    }
    out.finish();
    Ok(Outcome::Done)
}

/// A user as lists of many show it.
fn write_line(user: Doc<'_>, shown: Shown, out: &mut DocWriter<'_>) {
    for field in user {
        let is_shown = match field.name.as_bytes() {
            b"credentials" => shown.credentials,
            b"authenticationRestrictions" => false,
            b"customData" => shown.custom_data,
            _ => true,
        };
        if is_shown {
            out.append_raw(field.name, field.value);
        }
    }
    write_mechanisms(user, out);
}

/// A user with what its roles come to.
fn write_details(
    documents: &Documents<'_>,
    user: Doc<'_>,
    shown: Shown,
    out: &mut DocWriter<'_>,
) -> Result<()> {
    for field in user {
        let is_shown = match field.name.as_bytes() {
            b"credentials" => {
                write_mechanisms(user, out);
                shown.credentials
            }
            b"authenticationRestrictions" => shown.restrictions,
            b"customData" => shown.custom_data,
            _ => true,
        };
        if is_shown {
            out.append_raw(field.name, field.value);
        }
    }
    if shown.restrictions && user.get("authenticationRestrictions").is_none() {
        out.begin_array("authenticationRestrictions").finish();
    }
    let resolved = roles::resolve(documents, &Name::stored_roles(user))?;
    resolved.write_roles(out);
    resolved.write_privileges(out);
    resolved.write_restrictions(out);
    Ok(())
}

fn write_mechanisms(user: Doc<'_>, out: &mut DocWriter<'_>) {
    let mut mechanisms = out.begin_array("mechanisms");
    let credentials = user.get("credentials").and_then(|credentials| credentials.as_doc());
    for field in credentials.unwrap_or(Doc::EMPTY) {
        mechanisms.push(field.name);
    }
}
