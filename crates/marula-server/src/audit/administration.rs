//! Events of commands that change users, roles and the replica set.

use marula_bson::{DocWriter, Value};

use super::{Audit, actor};
use crate::request::Request;

/// The event of a command.
struct EventRow {
    command: &'static str,
    /// The kind of name in the command's first field: a user, a role, or none.
    first: Option<&'static str>,
    fields: &'static [&'static str],
}

const fn row(
    command: &'static str,
    first: Option<&'static str>,
    fields: &'static [&'static str],
) -> EventRow {
    EventRow { command, first, fields }
}

const USER: Option<&str> = Some("user");
const ROLE: Option<&str> = Some("role");
const OF_USER: &[&str] = &["customData", "roles", "authenticationRestrictions"];
const OF_ROLE: &[&str] = &["roles", "privileges", "authenticationRestrictions"];

/// The commands; each is an event with its own name.
const ROWS: &[EventRow] = &[
    row("createUser", USER, OF_USER),
    row("updateUser", USER, OF_USER),
    row("dropUser", USER, &[]),
    row("dropAllUsersFromDatabase", None, &[]),
    row("grantRolesToUser", USER, &["roles"]),
    row("revokeRolesFromUser", USER, &["roles"]),
    row("createRole", ROLE, OF_ROLE),
    row("updateRole", ROLE, OF_ROLE),
    row("dropRole", ROLE, &[]),
    row("dropAllRolesFromDatabase", None, &[]),
    row("grantRolesToRole", ROLE, &["roles"]),
    row("revokeRolesFromRole", ROLE, &["roles"]),
    row("grantPrivilegesToRole", ROLE, &["privileges"]),
    row("revokePrivilegesFromRole", ROLE, &["privileges"]),
    row("_mergeAuthzCollections", None, &["tempUsersCollection", "tempRolesCollection", "drop"]),
];

/// Writes the event of a request; `result` is the number of its error, or zero.
pub(crate) fn record(audit: &Audit, request: &Request<'_>, result: i32) {
    let Some(row) = ROWS.iter().find(|row| row.command == request.command.name) else { return };
    audit.write(&actor::current(), row.command, result, |out| {
        if let Some(first) = row.first {
            out.append(first, request.first.value.get());
        }
        out.append("db", request.db);
        if row.command == "updateUser" {
            out.append("passwordChanged", request.arg("pwd").is_some());
        }
        for name in row.fields {
            match (*name, request.arg(name)) {
                (_, None) => {}
                ("roles", Some(roles)) => write_roles(roles, request.db, out),
                (_, Some(value)) => {
                    out.append(name, value);
                }
            }
        }
    });
}

/// Appends roles, each with its database: a string is a role of the request's database.
fn write_roles(roles: Value<'_>, db: &str, out: &mut DocWriter<'_>) {
    let Some(roles) = roles.as_array() else { return };
    let mut array = out.begin_array("roles");
    for role in roles.values() {
        match role {
            Value::String(name) => {
                let mut one = array.begin_doc();
                one.append("role", Value::String(name)).append("db", db);
            }
            other => {
                array.push(other);
            }
        }
    }
}
