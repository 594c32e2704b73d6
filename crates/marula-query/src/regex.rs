//! Regular expressions, by PCRE2.
//!
//! A [`Regex`] keeps its source, finds out at parse time whether a plain search of bytes gives the
//! same result (`^abc`, `abc`), and otherwise compiles the pattern. A pattern that is matched with
//! many strings is compiled again to machine code. Options are those of MongoDB: `i`, `m`, `s`,
//! `x`, and `u`, which changes nothing because text is always UTF-8.
//!
//! The work at one position of a string is bounded, by mongod 6.0's limits. A string that needs
//! more does not match, as in mongod.

mod literal;
mod message;
mod pcre;

use std::fmt;
use std::sync::Arc;

use bstr::{BStr, ByteSlice};
use marula_bson::{RawValue, Type, Value};
use marula_error::{Result, errors};
use memchr::memmem;

use crate::meter;
use literal::PlainText;
pub(crate) use pcre::{Failure, Pcre, Places, Text};

/// The longest pattern, in bytes; PCRE's own limit is on the compiled form and is close to this.
const PATTERN_BYTES_MAX: usize = 32_761;

errors! {
    /// PCRE does not accept the pattern.
    regex_invalid(reason: &str) = 51091, "Regular expression is invalid: {reason}";
    /// An unknown option.
    regex_bad_option(option: char) = 51108, " invalid flag in regex options: {option}";
    /// A zero byte, which BSON cannot hold in a regular expression.
    regex_with_nul() = BadValue, "Regular expression cannot contain an embedded null byte";
}

/// A compiled regular expression with its source.
#[derive(Clone)]
pub struct Regex(Arc<Inner>);

struct Inner {
    pattern: Box<[u8]>,
    options: Box<[u8]>,
    program: Program,
    prefix: Option<(Box<[u8]>, bool)>,
}

/// The matcher.
enum Program {
    /// The string contains the text.
    Contains(Box<memmem::Finder<'static>>),
    /// The string starts with the text.
    StartsWith(Box<[u8]>),
    /// PCRE2.
    Pcre(Box<Pcre>),
}

/// The prefix of the strings that a pattern can match, as far as its first characters determine it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix<'a> {
    /// Every match begins with these bytes.
    pub text: &'a [u8],
    /// Whether every string that begins with `text` matches, so that a match needs no check.
    pub exact: bool,
}

impl Regex {
    /// Compiles a pattern.
    pub fn new(pattern: &BStr, options: &BStr) -> Result<Regex> {
        if pattern.contains(&0) {
            return Err(regex_with_nul());
        }
        if let Some(bad) = options.chars().find(|option| !"imsxu".contains(*option)) {
            return Err(regex_bad_option(bad));
        }
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(regex_invalid("regular expression is too large"));
        }
        let shape = literal::shape(pattern, options);
        let program = match &shape {
            PlainText::Contains(text) => {
                Program::Contains(Box::new(memmem::Finder::new(text).into_owned()))
            }
            PlainText::StartsWith { text, exact: true } => Program::StartsWith(text.clone()),
            _ => Program::Pcre(Box::new(compile(pattern, options)?)),
        };
        let prefix = match shape {
            PlainText::StartsWith { text, exact } => Some((text, exact)),
            _ => None,
        };
        let (pattern, options) = (pattern.as_bytes().into(), options.as_bytes().into());
        Ok(Regex(Arc::new(Inner { pattern, options, program, prefix })))
    }

    /// Returns the pattern as the client sent it.
    pub fn pattern(&self) -> &[u8] {
        &self.0.pattern
    }

    /// Returns the options as the client sent them.
    pub fn options(&self) -> &[u8] {
        &self.0.options
    }

    /// Returns the literal text that a match must begin with, if the pattern is anchored and
    /// case-sensitive.
    pub fn prefix(&self) -> Option<Prefix<'_>> {
        self.0.prefix.as_ref().map(|(text, exact)| Prefix { text, exact: *exact })
    }

    /// Returns whether the pattern matches somewhere in the text; a string that takes too much work
    /// does not match.
    pub fn is_match(&self, text: &[u8]) -> bool {
        self.try_match(text).unwrap_or(false)
    }

    /// Returns whether the pattern matches somewhere in the text.
    ///
    /// Errors: PCRE2's, if the match takes too much work or the text is not UTF-8.
    ///
    /// If the operation must end, nothing matches here and the [next](crate::meter::recall) check
    /// fails.
    pub(crate) fn try_match(&self, text: &[u8]) -> Result<bool, Failure> {
        let work = match &self.0.program {
            Program::Pcre(_) => meter::spend(meter::MATCH),
            _ => meter::spend_bytes(text.len()),
        };
        if work.is_err() {
            return Ok(false);
        }
        match &self.0.program {
            Program::Contains(finder) => Ok(finder.find(text).is_some()),
            Program::StartsWith(start) => Ok(text.starts_with(start)),
            Program::Pcre(pcre) => pcre.is_match(text),
        }
    }

    /// Returns whether a value matches: a string or symbol by its text, a regular expression if it
    /// is the same.
    pub(crate) fn matches_value(&self, value: RawValue<'_>) -> bool {
        if !matches!(value.kind(), Type::String | Type::Symbol | Type::Regex) {
            return false;
        }
        match value.get() {
            Value::String(text) | Value::Symbol(text) => self.is_match(text),
            Value::Regex { pattern, options } => {
                *self.0.pattern == **pattern && *self.0.options == **options
            }
            _ => false,
        }
    }
}

/// Compiles a pattern.
///
/// Errors: `regex_invalid`.
pub(crate) fn compile(pattern: &BStr, options: &[u8]) -> Result<Pcre> {
    let pattern = pattern.to_str().map_err(|_| regex_invalid("invalid UTF-8 string"))?;
    Pcre::new(pattern, options)
        .map_err(|failure| regex_invalid(&message::of(failure.0, &failure.text())))
}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/{}", self.pattern().as_bstr(), self.options().as_bstr())
    }
}

#[cfg(test)]
mod tests;
