//! Regular expressions, by PCRE2.
//!
//! A [`Regex`] keeps its source, finds out at parse time whether a plain search of bytes gives the
//! same result (`^abc`, `abc`), and otherwise compiles the pattern. A pattern that is matched with
//! many strings is compiled again to machine code. Options are those of MongoDB: `i`, `m`, `s`,
//! `x`, and `u`, which changes nothing because text is always UTF-8.
//!
//! The work on one string is bounded. A string that needs more does not match, as in mongod 6.0.

mod literal;
mod message;

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use bstr::{BStr, ByteSlice};
use marula_bson::{RawValue, Type, Value};
use marula_error::{Result, errors};
use memchr::memmem;

use crate::meter;
use literal::PlainText;

/// The limit on the backtracking of one match, in PCRE2's own unit: some milliseconds.
const MATCH_LIMIT: u32 = 1_000_000;

/// The number of strings after which a pattern is compiled to machine code.
const USES_BEFORE_JIT: u32 = 128;

/// The maximum stack of machine code.
const JIT_STACK_BYTES_MAX: usize = 1024 * 1024;

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

struct Pcre {
    interpreted: pcre2::bytes::Regex,
    builder: pcre2::bytes::RegexBuilder,
    source: String,
    uses: AtomicU32,
    /// The machine code, if it was compiled; `None` inside if the platform does not support it.
    machine_code: OnceLock<Option<pcre2::bytes::Regex>>,
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
            _ => Program::Pcre(Box::new(Pcre::new(pattern, options)?)),
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
    pub(crate) fn try_match(&self, text: &[u8]) -> Result<bool, pcre2::Error> {
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
            Program::Pcre(pcre) => pcre.try_match(text),
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

impl Pcre {
    fn new(pattern: &BStr, options: &BStr) -> Result<Pcre> {
        let pattern = pattern.to_str().map_err(|_| regex_invalid("invalid UTF-8 string"))?;
        // PCRE1, which mongod 6.0 uses, accepted the item under both names.
        let pattern = match pattern.strip_prefix("(*UTF8)") {
            Some(rest) => rest,
            None => pattern,
        };
        let source = format!("(*LIMIT_MATCH={MATCH_LIMIT}){pattern}");
        let mut builder = pcre2::bytes::RegexBuilder::new();
        builder
            .utf(true)
            .caseless(options.contains(&b'i'))
            .multi_line(options.contains(&b'm'))
            .dotall(options.contains(&b's'))
            .extended(options.contains(&b'x'));
        let compiled = builder.build(&source);
        let interpreted = compiled
            .map_err(|error| regex_invalid(&message::of(error.code(), &error.to_string())))?;
        builder.jit_if_available(true).max_jit_stack_size(Some(JIT_STACK_BYTES_MAX));
        Ok(Pcre {
            interpreted,
            builder,
            source,
            uses: AtomicU32::new(0),
            machine_code: OnceLock::new(),
        })
    }

    fn try_match(&self, text: &[u8]) -> Result<bool, pcre2::Error> {
        if let Some(Some(machine_code)) = self.machine_code.get() {
            // Machine code has a stack of its own that can overflow; the interpreter's does not.
            return machine_code.is_match(text).or_else(|_| self.interpreted.is_match(text));
        }
        if self.uses.fetch_add(1, Ordering::Relaxed) == USES_BEFORE_JIT {
            self.machine_code.get_or_init(|| self.builder.build(&self.source).ok());
        }
        self.interpreted.is_match(text)
    }
}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/{}", self.pattern().as_bstr(), self.options().as_bstr())
    }
}

#[cfg(test)]
mod tests;
