//! `createRole`: creates a role in a database.

use marula_bson::{DocBuf, DocWriter};
use marula_error::{Result, errors};

use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::auth::administration;
use crate::auth::documents::Documents;
use crate::auth::name::{Name, Of};
use crate::auth::{EXTERNAL, args, builtin, privilege, restriction, roles};
use crate::context::Context;
use crate::request::Request;

errors! {
    empty_name() = BadValue, "Role name must be non-empty";
    no_place(db: &str) = BadValue, "Cannot create roles in the {db} database";
    builtin_name() = BadValue, "Cannot create roles with the same name as a built-in role";
    exists(role: &Name) = 51_002, "Role \"{role}\" already exists";
}

pub(super) static COMMAND: Command = Command {
    name: "createRole",
    help: "Creates a role in a database, with its own privileges and the roles that it inherits from.",
    writes: true,
    takes_write_concern: true,
    fields: Fields::Strict {
        place: "createRole",
        fields: &[
            Field::optional("privileges", Types::ARRAY),
            Field::optional("roles", Types::ARRAY),
            Field::optional("authenticationRestrictions", Types::ARRAY),
        ],
    },
    auth: Auth::Content(administration::create_role),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let role = args::target(request)?;
    let (privileges, inherited) = args::role_parts(request)?;
    let restrictions = args::restrictions(request)?.unwrap_or_default();
    let missing = |name| fields::missing_field("createRole", name);
    let privileges = privileges.ok_or_else(|| missing("privileges"))?;
    let inherited = inherited.ok_or_else(|| missing("roles"))?;
    if role.name.is_empty() {
        return Err(empty_name());
    }
    if role.db == "local" || role.db == EXTERNAL {
        return Err(no_place(&role.db));
    }
    if builtin::is_builtin(&role) {
        return Err(builtin_name());
    }
    let _lock = ctx.server.users.lock();
    let documents = Documents::new(&ctx.server.db, ctx.now_ms);
    roles::check_may_inherit(&documents, &role, &inherited)?;
    roles::check_may_have(&role.db, &privileges)?;
    restrictions.iter().try_for_each(|restriction| restriction.check().map(|_| ()))?;
    let doc = DocBuf::build(|out| {
        out.append("_id", role.id().as_str());
        out.append("role", role.name.as_str()).append("db", role.db.as_str());
        out.append_raw("privileges", privilege::array_of(&privileges).as_raw());
        out.append_raw("roles", Name::array_of_roles(&inherited).as_raw());
        if !restrictions.is_empty() {
            let list = restriction::array_of(&restrictions);
            out.append_raw("authenticationRestrictions", list.as_raw());
        }
    });
    match documents.insert(Of::Role, doc.as_doc())? {
        true => Ok(Outcome::Done),
        false => Err(exists(&role)),
    }
}
