//! The error type that a client sees.

use std::fmt;

use crate::Code;

/// A result whose error is the client's.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error reply of a command: code, message, labels and extra fields.
///
/// It is one word wide, so that a `Result` on the hot path stays small.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

/// The code of [`Error::postponed`], which no client sees.
const POSTPONED: Code = Code::from_number(-1);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    code: Code,
    message: String,
    labels: Vec<&'static str>,
    /// BSON elements (no length, no terminator) that the reply carries in addition to `code`, such
    /// as `keyPattern` and `keyValue`. Bytes, because this crate does not know BSON.
    fields: Vec<u8>,
}

impl Error {
    /// Makes an error; modules use rows of [`errors!`](crate::errors) instead of calling this.
    #[cold]
    pub fn new(code: impl Into<Code>, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            code: code.into(),
            message: message.into(),
            labels: Vec::new(),
            fields: Vec::new(),
        }))
    }

    /// The operation takes more time than its thread has, or must wait, which its thread may not.
    /// It has done nothing, and runs again: on a thread of the pool, or when what it waits for is
    /// free. Every layer passes this error up unchanged, and the server never replies with it.
    #[cold]
    pub fn postponed() -> Self {
        Error::new(POSTPONED, "the operation was postponed")
    }

    /// Returns whether it is [`Error::postponed`].
    pub fn is_postponed(&self) -> bool {
        self.0.code == POSTPONED
    }

    /// The number and name, shown as `code` and `codeName`.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The message, shown as `errmsg`.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The reply's `errorLabels`, such as `TransientTransactionError`.
    pub fn labels(&self) -> &[&'static str] {
        &self.0.labels
    }

    /// BSON elements that the reply carries in addition to `code`; empty for most errors.
    pub fn fields(&self) -> &[u8] {
        &self.0.fields
    }

    /// Adds an error label.
    #[must_use]
    pub fn with_label(mut self, label: &'static str) -> Self {
        self.0.labels.push(label);
        self
    }

    /// Sets the BSON elements (no length prefix, no terminator) that the reply carries in addition
    /// to `code`.
    #[must_use]
    pub fn with_fields(mut self, elements: Vec<u8>) -> Self {
        self.0.fields = elements;
        self
    }

    /// Prefixes the message with `context`: `<context> :: caused by :: <message>`.
    #[must_use]
    pub fn caused_by(mut self, context: &str) -> Self {
        self.0.message = format!("{context} :: caused by :: {}", self.0.message);
        self
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.0.code.name(), self.0.code.number(), self.0.message)
    }
}

impl std::error::Error for Error {}
