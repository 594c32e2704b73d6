//! `$readPreference`: the members of a set from which a client wants to read. A single server
//! accepts all, as a primary does, and counts them.

use marula_bson::{BStr, ByteSlice, Doc, Value};
use marula_error::{Result, errors};

errors! {
    not_a_document(kind: &str) = TypeMismatch, "$readPreference has incorrect type: expected object but got {kind}";
    no_such_mode(mode: &BStr) = BadValue, "Could not parse $readPreference mode '{mode}'. Only the modes 'primary', 'primaryPreferred', 'secondary', 'secondaryPreferred', and 'nearest' are supported. :: caused by :: Enumeration value '{mode}' for field 'mode' is not a valid value.";
    no_mode() = NoSuchKey, "Missing expected field \"mode\"";
    mode_type(kind: &str) = TypeMismatch, "\"mode\" had the wrong type. Expected string, found {kind}";
}

/// The modes, then the entry for those with tags, as `serverStatus` lists them.
pub(crate) const NAMES: [&str; 6] =
    ["primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest", "tagged"];

/// A read preference: an index in [`NAMES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadPreference {
    /// The mode.
    pub mode: usize,
    /// Whether it has tags of members.
    pub is_tagged: bool,
}

impl ReadPreference {
    /// Returns whether the client reads from secondaries too.
    pub fn permits_secondaries(self) -> bool {
        self.mode != 0
    }

    /// Parses a request's `$readPreference`.
    ///
    /// Errors: a value that is not a read preference.
    pub fn parse(value: Value<'_>) -> Result<Self> {
        let Value::Document(preference) = value else {
            return Err(not_a_document(value.kind().alias()));
        };
        let name = match preference.get("mode") {
            Some(Value::String(name)) => name,
            Some(other) => return Err(mode_type(other.kind().alias())),
            None => return Err(no_mode()),
        };
        let mode = NAMES[..5].iter().position(|known| known.as_bytes() == name.as_bytes());
        let mode = mode.ok_or_else(|| no_such_mode(name))?;
        let tags = preference.get("tags").and_then(|tags| tags.as_array()).unwrap_or(Doc::EMPTY);
        Ok(ReadPreference { mode, is_tagged: !tags.is_empty() })
    }
}
