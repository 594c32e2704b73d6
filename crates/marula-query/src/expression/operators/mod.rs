//! The operators, one file per family of the manual.

mod accumulate;
pub(crate) mod arithmetic;
mod array;
mod binary;
mod bitwise;
mod boolean;
mod comparison;
mod conditional;
mod convert;
mod date;
mod date_arithmetic;
mod date_format;
mod date_patterns;
mod date_plain;
mod date_scan;
mod date_text;
mod date_token;
mod date_words;
mod function;
mod growing;
mod hashed_key;
mod iterate;
mod literal;
mod math;
pub(crate) mod meta;
mod named;
mod object;
mod percentile;
mod random;
mod reduce;
mod regex;
mod set;
mod size;
mod string;
mod text;
mod timestamp;
mod trigonometry;
mod values_at_path;
mod variable;

use std::collections::HashMap;
use std::sync::LazyLock;

use marula_bson::Value;
use marula_error::Result;

use super::{Expression, Frame, Operator};

pub(super) use array::{Part, index_of};
pub(super) use comparison::compare_optional;
pub(super) use conditional::{optimize_switch, switch_no_match};
pub(super) use date::iso_text;

/// The tables of all families.
pub(super) static FAMILIES: &[&[Operator]] = &[
    accumulate::OPERATORS,
    arithmetic::OPERATORS,
    array::OPERATORS,
    bitwise::OPERATORS,
    boolean::OPERATORS,
    comparison::OPERATORS,
    conditional::OPERATORS,
    convert::OPERATORS,
    date::OPERATORS,
    date_arithmetic::OPERATORS,
    date_text::OPERATORS,
    function::OPERATORS,
    hashed_key::OPERATORS,
    iterate::OPERATORS,
    literal::OPERATORS,
    math::OPERATORS,
    meta::OPERATORS,
    object::OPERATORS,
    percentile::OPERATORS,
    random::OPERATORS,
    reduce::OPERATORS,
    regex::OPERATORS,
    set::OPERATORS,
    size::OPERATORS,
    string::OPERATORS,
    text::OPERATORS,
    timestamp::OPERATORS,
    trigonometry::OPERATORS,
    values_at_path::OPERATORS,
    variable::OPERATORS,
];

/// The operator with this name.
pub(super) fn find(name: &[u8]) -> Option<&'static Operator> {
    static BY_NAME: LazyLock<HashMap<&'static [u8], &'static Operator>> = LazyLock::new(|| {
        FAMILIES.iter().flat_map(|rows| rows.iter()).map(|row| (row.name.as_bytes(), row)).collect()
    });
    BY_NAME.get(name).copied()
}

/// The names of all operators.
pub(super) fn names() -> Vec<&'static str> {
    FAMILIES.iter().flat_map(|rows| rows.iter()).map(|row| row.name).collect()
}

/// A value that is neither missing nor null nor undefined.
fn known<'a>(arg: &'a Expression, frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    Ok(arg.eval(frame)?.filter(|value| !value.is_nullish()))
}

/// The type of a value in messages.
fn kind(value: Option<Value<'_>>) -> &'static str {
    value.map_or("missing", |value| value.kind().alias())
}
