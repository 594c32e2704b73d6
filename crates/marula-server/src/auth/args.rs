//! Shared arguments of the commands about users and roles: the user or role that they name, and
//! checked arrays.

use marula_bson::{ByteSlice, Doc, Type, Value};
use marula_db::namespace;
use marula_error::{Result, errors};

use super::credentials::{self, Mechanism};
use super::name::Name;
use super::privilege::Privilege;
use super::restriction::Restriction;
use crate::fields::{self, Field, Types};
use crate::request::Request;

errors! {
    /// A name contains the byte 0.
    pub(crate) embedded_nul() = InvalidNamespace, "namespaces cannot have embedded null characters";
    /// A mechanism is disabled on this server.
    not_taken(mechanism: &str) = BadValue, "{mechanism} not supported in authMechanisms";
    not_an_object(field: &str) = 10_065, "invalid parameter: expected an object ({field})";
    nothing_given(command: &str, field: &str) = BadValue, "{command} command requires a non-empty \"{field}\" array";
}

/// Returns the user or role that the first field names, in the database of the command.
pub(crate) fn target(request: &Request<'_>) -> Result<Name> {
    let (place, first) = (request.command.name, request.first);
    fields::check(
        place,
        &[Field::required(place, Types::STRING)],
        place.into(),
        first.value.kind(),
    )?;
    let Value::String(name) = first.value.get() else {
        return Err(fields::missing_field(place, place));
    };
    if name.contains(&0) {
        return Err(embedded_nul());
    }
    if name.starts_with(b".") {
        return Err(namespace::leading_dot(&name.to_str_lossy()));
    }
    Ok(Name::new(&name.to_str_lossy(), request.db))
}

/// Returns the array of this name; null is not an array.
pub(crate) fn array<'a>(request: &Request<'a>, name: &str) -> Result<Option<Doc<'a>>> {
    match request.args.iter().find(|field| field.name == name).map(|field| field.value.get()) {
        None => Ok(None),
        Some(Value::Array(array)) => Ok(Some(array)),
        Some(_) => Err(not_an_object(name)),
    }
}

/// Returns the array of this name, which is required.
fn required<'a>(request: &Request<'a>, name: &str) -> Result<Doc<'a>> {
    let missing = || fields::missing_field(request.command.name, name);
    array(request, name)?.ok_or_else(missing)
}

/// Returns the field `roles`, which is required.
pub(crate) fn roles(request: &Request<'_>) -> Result<Vec<Name>> {
    Name::parse_roles(required(request, "roles")?, request.db)
}

/// Returns the field `privileges`, which is required.
pub(crate) fn privileges(request: &Request<'_>) -> Result<Vec<Privilege>> {
    let list = required(request, "privileges")?;
    check_elements(request, "privileges", list, Type::Document)?;
    Privilege::parse_list(list)
}

/// Returns the fields `privileges` and `roles`, parsed in the order in which they occur; each only
/// if it is present.
pub(crate) fn role_parts(
    request: &Request<'_>,
) -> Result<(Option<Vec<Privilege>>, Option<Vec<Name>>)> {
    let (mut its_privileges, mut its_roles) = (None, None);
    for field in &request.args {
        match field.name.as_bytes() {
            b"privileges" => its_privileges = Some(privileges(request)?),
            b"roles" => its_roles = Some(roles(request)?),
            _ => {}
        }
    }
    Ok((its_privileges, its_roles))
}

/// Checks that the array of this name is not empty.
pub(crate) fn check_given<T>(request: &Request<'_>, name: &str, list: &[T]) -> Result<()> {
    match list.is_empty() {
        true => Err(nothing_given(request.command.name, name)),
        false => Ok(()),
    }
}

/// Returns the names in the field `mechanisms`, if it is present.
pub(crate) fn mechanisms<'a>(request: &Request<'a>) -> Result<Option<Doc<'a>>> {
    let Some(names) = array(request, "mechanisms")? else { return Ok(None) };
    check_elements(request, "mechanisms", names, Type::String)?;
    Ok(Some(names))
}

/// Checks that the field `mechanisms`, if it is present, is not empty.
pub(crate) fn check_mechanisms_named(names: Option<Doc<'_>>) -> Result<()> {
    if names.is_some_and(|names| names.values().all(|name| name.is_nullish())) {
        Err(credentials::no_mechanism())
    } else {
        Ok(())
    }
}

/// Returns the mechanisms for new credentials: those that are named, or all enabled ones.
pub(crate) fn wanted_mechanisms(
    names: Option<Doc<'_>>,
    is_taken: impl Fn(&Mechanism) -> bool,
) -> Result<Vec<Mechanism>> {
    let mut wanted = match names {
        None => Mechanism::ALL.to_vec(),
        Some(names) => credentials::parse_mechanisms(names)?,
    };
    if names.is_none() {
        wanted.retain(&is_taken);
    }
    match wanted.iter().find(|mechanism| !is_taken(mechanism)) {
        Some(mechanism) => Err(not_taken(mechanism.name())),
        None => Ok(wanted),
    }
}

/// Returns the field `authenticationRestrictions`, if it is present.
pub(crate) fn restrictions(request: &Request<'_>) -> Result<Option<Vec<Restriction>>> {
    let list = array(request, "authenticationRestrictions")?;
    list.map(|list| Restriction::parse_list(request.command.name, list)).transpose()
}

fn check_elements(request: &Request<'_>, name: &str, list: Doc<'_>, expected: Type) -> Result<()> {
    for (at, element) in list.values().enumerate() {
        // mongod ignores nulls in arrays.
        if element.kind() != expected && !element.is_nullish() {
            let (place, kind) = (request.command.name, element.kind().alias());
            return Err(fields::element_type(place, name, at, kind, expected.alias()));
        }
    }
    Ok(())
}
