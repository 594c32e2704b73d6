//! `rolesInfo`: roles with their privileges and inherited roles.

use marula_bson::{ByteSlice, Doc, DocWriter, Value};
use marula_error::{Result, errors};

use super::fields::{Field, Types};
use super::users_info::is_one;
use super::{Auth, Command, CommandPlace, Fields, OnSecondary, Outcome};
use crate::auth::administration;
use crate::auth::builtin;
use crate::auth::documents::Documents;
use crate::auth::name::{Name, Of};
use crate::auth::roles::{self, Resolved, Role};
use crate::context::Context;
use crate::request::Request;

errors! {
    bad_show(value: Value<'_>) = BadValue, "Failed to parse 'showPrivileges'. 'showPrivileges' should either be a boolean or the string 'asUserFragment', given: showPrivileges: {value}";
    fragment_of_all() = IllegalOperation, "Cannot get user fragment for all roles in a database";
}

pub(super) static COMMAND: Command = Command {
    name: "rolesInfo",
    help: "Lists roles with the roles they inherit from and, if requested, their privileges and restrictions.",
    place: CommandPlace::Reserved,
    secondary: Some(OnSecondary::IfPreferred),
    fields: Fields::Strict {
        place: "rolesInfo",
        fields: &[
            Field::optional("showPrivileges", Types::Any),
            Field::optional("showBuiltinRoles", Types::FLAG),
            Field::optional("showAuthenticationRestrictions", Types::FLAG),
        ],
    },
    auth: Auth::Content(administration::roles_info),
    run,
    ..Command::DEFAULT
};

/// The optional fields of a role that are shown.
#[derive(Clone, Copy)]
struct ShownFields {
    privileges: bool,
    restrictions: bool,
}

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let shown_privileges = request.args.iter().find(|field| field.name == "showPrivileges");
    let (privileges, is_fragment) = match shown_privileges.map(|field| field.value.get()) {
        None => (false, false),
        Some(Value::String(text)) if text == "asUserFragment" => (true, true),
        Some(value @ Value::Boolean(_)) => (value.is_truthy(), false),
        Some(value) if value.kind().is_number() => (value.is_truthy(), false),
        Some(value) => return Err(bad_show(value)),
    };
    let shown =
        ShownFields { privileges, restrictions: request.flag("showAuthenticationRestrictions") };
    let documents = Documents::new(&ctx.server.db, ctx.now_ms);
    let parse = |role| Name::parse(Of::Role, role, request.db);
    let names = match request.first.value.get() {
        value if is_one(value) && is_fragment => return Err(fragment_of_all()),
        value if is_one(value) => {
            write_database(&documents, request, shown, reply)?;
            return Ok(Outcome::Done);
        }
        Value::Array(roles) => roles.values().map(parse).collect::<Result<_>>()?,
        role => vec![parse(role)?],
    };
    match is_fragment {
        true => write_fragment(&documents, &names, shown, reply)?,
        false => write_named(&documents, &names, shown, reply)?,
    }
    Ok(Outcome::Done)
}

/// Writes all roles of a database.
fn write_database(
    documents: &Documents<'_>,
    request: &Request<'_>,
    shown: ShownFields,
    reply: &mut DocWriter<'_>,
) -> Result<()> {
    let mut out = reply.begin_array("roles");
    if request.flag("showBuiltinRoles") {
        for name in builtin::of_database(request.db) {
            let mut out = out.begin_doc();
            out.append("role", name.name.as_str()).append("db", name.db.as_str());
            out.append("isBuiltin", true);
            out.begin_array("roles").finish();
            out.begin_array("inheritedRoles").finish();
            if shown.privileges {
                let resolved = roles::resolve(documents, std::slice::from_ref(&name))?;
                resolved.write_privileges_as("privileges", &mut out);
                resolved.write_privileges(&mut out);
            }
            if shown.restrictions {
                out.begin_array("authenticationRestrictions").finish();
                out.begin_array("inheritedAuthenticationRestrictions").finish();
            }
        }
    }
    for doc in documents.list(Of::Role, &|role| role.db == request.db)? {
        let mut out = out.begin_doc();
        write_own(doc.as_doc(), shown, &mut out);
        out.append("isBuiltin", false);
        write_inherited(documents, doc.as_doc(), shown, &mut out)?;
    }
    Ok(())
}

/// Writes the roles of these names.
fn write_named(
    documents: &Documents<'_>,
    names: &[Name],
    shown: ShownFields,
    reply: &mut DocWriter<'_>,
) -> Result<()> {
    let mut out = reply.begin_array("roles");
    for name in names {
        if builtin::is_builtin(name) {
            let resolved = roles::resolve(documents, std::slice::from_ref(name))?;
            let mut out = out.begin_doc();
            out.append("db", name.db.as_str()).append("role", name.name.as_str());
            out.begin_array("roles").finish();
            if shown.privileges {
                resolved.write_privileges_as("privileges", &mut out);
            }
            if shown.restrictions {
                out.begin_array("authenticationRestrictions").finish();
            }
            out.begin_array("inheritedRoles").finish();
            if shown.privileges {
                resolved.write_privileges(&mut out);
            }
            if shown.restrictions {
                out.begin_array("inheritedAuthenticationRestrictions").finish();
            }
            out.append("isBuiltin", true);
        } else if let Some(doc) = documents.find(Of::Role, name)? {
            let mut out = out.begin_doc();
            write_own(doc.as_doc(), shown, &mut out);
            write_inherited(documents, doc.as_doc(), shown, &mut out)?;
            out.append("isBuiltin", false);
        }
    }
    Ok(())
}

/// Writes the roles and privileges that a user with these roles would have.
fn write_fragment(
    documents: &Documents<'_>,
    names: &[Name],
    shown: ShownFields,
    reply: &mut DocWriter<'_>,
) -> Result<()> {
    let resolved = roles::resolve(documents, names)?;
    let mut out = reply.begin_doc("userFragment");
    let mut roles = out.begin_array("roles");
    names.iter().for_each(|name| name.write_role(&mut roles));
    roles.finish();
    resolved.write_roles(&mut out);
    resolved.write_privileges(&mut out);
    if shown.restrictions {
        resolved.write_restrictions(&mut out);
    }
    Ok(())
}

/// Writes the fields of a role's document.
fn write_own(role: Doc<'_>, shown: ShownFields, out: &mut DocWriter<'_>) {
    for field in role {
        match field.name.as_bytes() {
            b"privileges" if !shown.privileges => {}
            b"authenticationRestrictions" => {}
            _ => {
                out.append_raw(field.name, field.value);
            }
        }
    }
    if shown.restrictions {
        let mut lists = out.begin_array("authenticationRestrictions");
        if let Some(own) = role.get("authenticationRestrictions") {
            lists.push(own);
        }
    }
}

/// Writes the roles, privileges and restrictions of a role and of the roles that it inherits from.
fn write_inherited(
    documents: &Documents<'_>,
    role: Doc<'_>,
    shown: ShownFields,
    out: &mut DocWriter<'_>,
) -> Result<()> {
    let own = Role::stored(role);
    let mut resolved = roles::resolve(documents, &own.roles)?;
    resolved.write_roles(out);
    if shown.privileges {
        let inherited = std::mem::replace(&mut resolved.privileges, own.privileges);
        resolved.add_privileges(inherited);
        resolved.write_privileges(out);
    }
    if shown.restrictions {
        let mut lists = out.begin_array("inheritedAuthenticationRestrictions");
        if let Some(own) = role.get("authenticationRestrictions") {
            lists.push(own);
        }
        Resolved::write_restriction_lists(&resolved.restrictions, &mut lists);
    }
    Ok(())
}
