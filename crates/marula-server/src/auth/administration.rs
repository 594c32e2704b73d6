//! The privileges for the commands about users and roles.
//!
//! To grant a role takes `grantRole` on the role's database; to see or change one's own user takes
//! less than for others. A malformed request needs no privileges here: the command rejects it.

use marula_bson::Value;
use marula_error::Result;

use super::args;
use super::check::{Check, Target};
use super::name::{Name, Of};
use super::privilege::Privilege;
use super::resource::Resource;
use crate::request::Request;

const GRANT: &[&str] = &["grantRole"];
const REVOKE: &[&str] = &["revokeRole"];

fn on_database(check: &mut Check<'_>, db: &str, actions: &[&'static str]) {
    check.needs(Target::Database(db.to_owned()), actions);
}

fn on_roles(request: &Request<'_>, check: &mut Check<'_>, actions: &[&'static str]) -> Result<()> {
    if let Some(roles) = args::array(request, "roles")? {
        for role in Name::parse_roles(roles, request.db)? {
            on_database(check, &role.db, actions);
        }
    }
    Ok(())
}

fn on_privileges(
    request: &Request<'_>,
    check: &mut Check<'_>,
    actions: &[&'static str],
) -> Result<()> {
    let Some(privileges) = args::array(request, "privileges")? else { return Ok(()) };
    for Privilege { resource, .. } in Privilege::parse_list(privileges)? {
        // Privileges on more than one database are granted in `admin`.
        let db = match &resource {
            Resource::Collections { db, .. } | Resource::Buckets { db, .. } if !db.is_empty() => db,
            _ => "admin",
        };
        on_database(check, db, actions);
    }
    Ok(())
}

fn on_restrictions(request: &Request<'_>, check: &mut Check<'_>) {
    if request.args.iter().any(|field| field.name == "authenticationRestrictions") {
        on_database(check, request.db, &["setAuthenticationRestriction"]);
    }
}

/// `createUser`.
pub(crate) fn create_user(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    on_database(check, request.db, &["createUser"]);
    on_restrictions(request, check);
    on_roles(request, check, GRANT)
}

/// `updateUser`: users may be permitted to change their own password and custom data.
pub(crate) fn update_user(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let user = args::target(request)?;
    let db = Target::Database(user.db.clone());
    let is_own = |check: &Check<'_>, action: &str| check.is(&user) && check.may(&db, action);
    // The mechanisms belong to the password.
    let is_password = request.arg("pwd").is_some() || request.arg("mechanisms").is_some();
    if is_password && !is_own(check, "changeOwnPassword") {
        check.needs(db.clone(), &["changePassword"]);
    }
    if request.arg("customData").is_some() && !is_own(check, "changeOwnCustomData") {
        check.needs(db.clone(), &["changeCustomData"]);
    }
    on_restrictions(request, check);
    if request.arg("roles").is_some() {
        check.needs(Target::EveryDatabase, REVOKE);
    }
    on_roles(request, check, GRANT)
}

/// `grantRolesToUser` and `grantRolesToRole`.
pub(crate) fn grant_roles(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    on_roles(request, check, GRANT)
}

/// `revokeRolesFromUser` and `revokeRolesFromRole`.
pub(crate) fn revoke_roles(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    on_roles(request, check, REVOKE)
}

/// `createRole`.
pub(crate) fn create_role(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    on_database(check, request.db, &["createRole"]);
    on_restrictions(request, check);
    on_privileges(request, check, GRANT)?;
    on_roles(request, check, GRANT)
}

/// `updateRole`: the old privileges are revoked, the new ones granted.
pub(crate) fn update_role(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    check.needs(Target::EveryDatabase, REVOKE);
    on_restrictions(request, check);
    on_privileges(request, check, GRANT)?;
    on_roles(request, check, GRANT)
}

/// `grantPrivilegesToRole`.
pub(crate) fn grant_privileges(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    on_privileges(request, check, GRANT)
}

/// `revokePrivilegesFromRole`.
pub(crate) fn revoke_privileges(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    on_privileges(request, check, REVOKE)
}

/// `usersInfo`: users may see themselves.
pub(crate) fn users_info(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let view = &["viewUser"];
    match request.first.value.get() {
        Value::Document(all) if all.get("forAllDBs").is_some_and(|all| all.is_truthy()) => {
            check.needs(Target::Cluster, view);
        }
        value if value.kind().is_number() => on_database(check, request.db, view),
        value => {
            for user in names(Of::User, value, request.db)? {
                if !check.is(&user) {
                    on_database(check, &user.db, view);
                }
            }
        }
    }
    Ok(())
}

/// `rolesInfo`: users may see their own roles.
pub(crate) fn roles_info(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let view = &["viewRole"];
    match request.first.value.get() {
        value if value.kind().is_number() => on_database(check, request.db, view),
        value => {
            for role in names(Of::Role, value, request.db)? {
                if !check.has_role(&role) {
                    on_database(check, &role.db, view);
                }
            }
        }
    }
    Ok(())
}

fn names(of: Of, value: Value<'_>, db: &str) -> Result<Vec<Name>> {
    match value {
        Value::Array(names) => names.values().map(|name| Name::parse(of, name, db)).collect(),
        name => Ok(vec![Name::parse(of, name, db)?]),
    }
}
