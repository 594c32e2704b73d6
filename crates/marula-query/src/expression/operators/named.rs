//! Arguments that an operator takes by name: `{ $dateTrunc: { date: …, unit: … } }`.
//!
//! Most operators parse each argument when they come to it. Some first read all of them, and so
//! report a missing argument before an invalid one.

use marula_bson::{Doc, Value};
use marula_error::{Error, Result};

use crate::expression::{Expression, Scope};

/// Returns the arguments in the order of `names`, not parsed. The last of several with one name
/// counts.
pub(super) fn unparsed<'v, const N: usize>(
    arguments: Doc<'v>,
    names: [&str; N],
    unknown: impl FnOnce(&str) -> Error,
) -> Result<[Option<Value<'v>>; N]> {
    read(arguments, names, unknown, Ok)
}

/// Returns the arguments in the order of `names`, parsed in the order in which they are written.
pub(super) fn parsed<const N: usize>(
    arguments: Doc<'_>,
    names: [&str; N],
    scope: &mut Scope<'_>,
    unknown: impl FnOnce(&str) -> Error,
) -> Result<[Option<Expression>; N]> {
    read(arguments, names, unknown, |value| Expression::parse(value, scope))
}

fn read<'v, T, const N: usize>(
    arguments: Doc<'v>,
    names: [&str; N],
    unknown: impl FnOnce(&str) -> Error,
    mut take: impl FnMut(Value<'v>) -> Result<T>,
) -> Result<[Option<T>; N]> {
    let mut taken = [const { None }; N];
    for element in arguments {
        let Some(place) = names.iter().position(|name| **element.name == *name.as_bytes()) else {
            return Err(unknown(&element.name.to_string()));
        };
        taken[place] = Some(take(element.value.get())?);
    }
    Ok(taken)
}
