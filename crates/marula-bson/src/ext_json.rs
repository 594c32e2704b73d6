//! Extended JSON v2, canonical and relaxed: BSON as JSON and back.
//!
//! [`to_string`] prints a document, [`value_to_string`] a value; [`parse()`] and [`parse_value`]
//! read either form. Text that is not UTF-8 prints with replacement characters, since JSON cannot
//! represent it.
//!
//! Source: specification "MongoDB Extended JSON (v2)".

pub mod base64;
mod parse;
mod print;
mod wrapper;

pub use parse::{JsonError, parse, parse_value};
pub use print::{Mode, to_string, value_to_string};

pub(crate) use print::escape;

#[cfg(test)]
mod tests;
