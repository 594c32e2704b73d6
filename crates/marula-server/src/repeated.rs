//! Fields of a command that come twice.
//!
//! mongod reads the fields of the Stable API before all others, and finds on the way that a name
//! comes twice. Here that is done only for a request with names that may be equal, or one that
//! fails: others cost one bit per name.
//!
//! Source: mongod 6.0, recorded errors 40413.

use std::collections::HashSet;

use marula_bson::{BStr, Doc, Element};
use marula_error::{Result, errors};
use marula_query::once::duplicate_field;

use crate::fields::{self, Field, Types};

errors! {
    unnamed_twice() = IDLDuplicateField, "BSON field 'APIParametersFromClient' is a duplicate field";
}

/// The name in messages for the fields of the Stable API.
pub(crate) const API_PLACE: &str = "APIParametersFromClient";

pub(crate) const API_FIELDS: &[Field] = &[
    Field::optional("apiVersion", Types::STRING),
    Field::optional("apiStrict", Types::BOOLEAN),
    Field::optional("apiDeprecationErrors", Types::BOOLEAN),
];

/// The names of a request's fields.
pub(crate) enum Names {
    /// They differ.
    Unlike,
    /// Some may be equal.
    Alike,
}

/// One of 64 bits: names with different bits differ.
pub(crate) fn mark(name: &BStr) -> u64 {
    let first = name.first().map_or(0, |&byte| u32::from(byte));
    1 << ((first * 5 + name.len() as u32) % 64)
}

/// Checks what mongod checks of the names first: that none comes twice, up to a field of the Stable
/// API of a wrong type.
///
/// Errors: `duplicate_field`, `wrong_type`.
pub(crate) fn check(body: Doc<'_>) -> Result<()> {
    let mut names = HashSet::new();
    for Element { name, value } in body {
        if API_FIELDS.iter().any(|field| name == field.name) {
            fields::check(API_PLACE, API_FIELDS, name, value.kind())?;
        }
        if !names.insert(name) {
            return Err(match name.is_empty() {
                true => unnamed_twice(),
                false => duplicate_field(API_PLACE, name),
            });
        }
    }
    Ok(())
}
