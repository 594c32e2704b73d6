//! `usersInfo`: users with their roles and privileges; `invalidateUserCache`.

use marula_bson::{ByteSlice, Doc, DocBuf, DocWriter, Value};
use marula_error::{Result, errors};
use marula_query::filter::Filter;
use marula_query::validation::allowed;

use super::fields::{Field, Types};
use super::{Auth, Command, CommandPlace, Fields, OnSecondary, Outcome};
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
    help: "Lists users with their roles and, if requested, their credentials, privileges and restrictions.",
    place: CommandPlace::Reserved,
    secondary: Some(OnSecondary::IfPreferred),
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
    help: "Clears the cache of users. It does nothing here, because cached users are never out of date.",
    place: CommandPlace::Inline,
    fields: Fields::Strict { place: "invalidateUserCache", fields: &[] },
    auth: Auth::Cluster(&["invalidateUserCache"]),
    run: |_, _, _| Ok(Outcome::Done),
    ..Command::DEFAULT
};

/// The users that a command selects.
enum UserSelector {
    /// The users of the database that the command is sent to.
    Database,
    /// The users of all databases.
    Everyone,
    /// The users with these names.
    Named(Vec<Name>),
}

impl UserSelector {
    fn parse(value: Value<'_>, db: &str) -> Result<Self> {
        match value {
            Value::Document(doc) if doc.get("forAllDBs").is_some_and(|all| all.is_truthy()) => {
                Ok(UserSelector::Everyone)
            }
            Value::Array(users) => {
                let names: Result<_> =
                    users.values().map(|user| Name::parse(Of::User, user, db)).collect();
                Ok(UserSelector::Named(names?))
            }
            value if is_one(value) => Ok(UserSelector::Database),
            value => Ok(UserSelector::Named(vec![Name::parse(Of::User, value, db)?])),
        }
    }

    fn has(&self, name: &Name, db: &str) -> bool {
        match self {
            UserSelector::Database => name.db == db,
            UserSelector::Everyone => true,
            UserSelector::Named(names) => names.contains(name),
        }
    }
}

/// Returns whether a value is 1, which selects all users of a database. The fraction of a number is
/// ignored.
pub(super) fn is_one(value: Value<'_>) -> bool {
    let number = match value {
        Value::Decimal128(_) => value.as_f64().map(f64::round_ties_even),
        _ => value.as_f64().filter(|_| value.kind().is_number()).map(f64::trunc),
    };
    number == Some(1.0)
}

/// The optional fields of a user that are shown.
#[derive(Clone, Copy)]
struct ShownFields {
    credentials: bool,
    restrictions: bool,
    custom_data: bool,
}

fn users(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let selector = UserSelector::parse(request.first.value.get(), request.db)?;
    let shown = ShownFields {
        credentials: request.flag("showCredentials"),
        restrictions: request.flag("showAuthenticationRestrictions"),
        custom_data: request.arg("showCustomData").is_none_or(|flag| flag.is_truthy()),
    };
    let filter = request.arg("filter").and_then(|filter| filter.as_doc());
    let documents = Documents::new(&ctx.server.db, ctx.now_ms);
    if request.flag("showPrivileges") || shown.restrictions {
        let (UserSelector::Named(names), None) = (&selector, filter) else { return Err(details()) };
        let mut out = reply.begin_array("users");
        for name in names {
            if let Some(user) = documents.find(Of::User, name)? {
                write_details(&documents, user.as_doc(), shown, &mut out.begin_doc())?;
            }
        }
        out.finish();
        return Ok(Outcome::Done);
    }
    if matches!(&selector, UserSelector::Named(names) if names.is_empty()) {
        return Err(no_names());
    }
    let context = ctx.env().context(None, None, None)?;
    filter.map_or(Ok(()), allowed::check_on_list)?;
    let filter = filter.map(|filter| Filter::parse(filter, &context)).transpose()?;
    let mut out = reply.begin_array("users");
    for user in documents.list(Of::User, &|name| selector.has(name, request.db))? {
        let line = DocBuf::build(|out| write_line(user.as_doc(), shown, out));
        if filter.as_ref().map_or(Ok(true), |filter| filter.matches(line.as_doc()))? {
            out.push(&line);
        }
    }
    out.finish();
    Ok(Outcome::Done)
}

/// Writes a user in the short form, for lists of several users.
fn write_line(user: Doc<'_>, shown: ShownFields, out: &mut DocWriter<'_>) {
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

/// Writes a user with all roles, privileges and restrictions that its roles result in.
fn write_details(
    documents: &Documents<'_>,
    user: Doc<'_>,
    shown: ShownFields,
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
