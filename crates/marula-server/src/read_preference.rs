//! `$readPreference`: the members of a set from which a client wants to read. A single server
//! accepts all, as a primary does, and counts them.

use marula_bson::{BStr, ByteSlice, Doc, Value};
use marula_error::{Result, errors};
use marula_query::once::unknown_field;

errors! {
    not_a_document(kind: &str) = TypeMismatch, "$readPreference has incorrect type: expected object but got {kind}";
    no_such_mode(mode: &BStr) = BadValue, "Could not parse $readPreference mode '{mode}'. Only the modes 'primary', 'primaryPreferred', 'secondary', 'secondaryPreferred', and 'nearest' are supported. :: caused by :: Enumeration value '{mode}' for field 'mode' is not a valid value.";
    no_mode() = NoSuchKey, "Missing expected field \"mode\"";
    tags_type(kind: &str) = TypeMismatch, "\"tags\" had the wrong type. Expected array, found {kind}";
    tags_of_primary() = BadValue, "Only empty tags are allowed with primary read preference";
    hedge_type(value: &Value<'_>) = TypeMismatch, "hedge field must be of type object if provided; found hedge: {value}";
    hedge_enabled_type(kind: &str) = TypeMismatch, "BSON field 'hedge.enabled' is the wrong type '{kind}', expected type 'bool'";
    hedged_primary() = InvalidOptions, "cannot enable hedging for $readPreference mode \"primaryOnly\"";
    staleness_type(kind: &str) = TypeMismatch, "Expected field \"maxStalenessSeconds\" to have numeric type, but found {kind}";
    staleness_fraction(value: &Value<'_>) = BadValue, "Expected field \"maxStalenessSeconds\" to have a value exactly representable as a 64-bit integer, but found maxStalenessSeconds: {value}";
    staleness_negative() = BadValue, "maxStalenessSeconds must be a non-negative integer";
    staleness_too_large() = BadValue, "maxStalenessSeconds value can not exceed 9223372036854775807";
    staleness_too_small() = MaxStalenessOutOfRange, "maxStalenessSeconds value can not be less than {STALENESS_MIN_SECONDS}";
    staleness_of_primary() = BadValue, "maxStalenessSeconds can not be set for the primary mode";
    mode_type(kind: &str) = TypeMismatch, "\"mode\" had the wrong type. Expected string, found {kind}";
}

/// The smallest lag that may be asked for. Source: manual "Read Preference `maxStalenessSeconds`".
const STALENESS_MIN_SECONDS: i64 = 90;

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
        let is_primary = mode == 0;
        check_hedge(preference, is_primary)?;
        let tags = match preference.get("tags") {
            None => Doc::EMPTY,
            Some(tags) => tags.as_array().ok_or_else(|| tags_type(tags.kind().alias()))?,
        };
        let is_any = |tag: Value<'_>| tag.as_doc().is_some_and(Doc::is_empty);
        if is_primary
            && !tags.is_empty()
            && !(tags.values().count() == 1 && tags.values().all(is_any))
        {
            return Err(tags_of_primary());
        }
        check_staleness(preference, is_primary)?;
        Ok(ReadPreference { mode, is_tagged: !tags.is_empty() })
    }
}

/// Checks whether a read may be sent to several members; only a router does that.
///
/// Errors: `hedge_type`, `hedged_primary`, those of the fields.
fn check_hedge(preference: Doc<'_>, is_primary: bool) -> Result<()> {
    let Some(hedge) = preference.get("hedge") else { return Ok(()) };
    let Value::Document(options) = hedge else { return Err(hedge_type(&hedge)) };
    for option in options {
        match option.value.get() {
            _ if option.name != "enabled" => return Err(unknown_field("hedge", option.name)),
            Value::Boolean(_) => {}
            other => return Err(hedge_enabled_type(other.kind().alias())),
        }
    }
    let is_enabled = options.get("enabled").is_none_or(|enabled| enabled.is_truthy());
    if is_primary && is_enabled { Err(hedged_primary()) } else { Ok(()) }
}

/// Checks the lag that a member may have.
///
/// Errors: this module's rows about it.
fn check_staleness(preference: Doc<'_>, is_primary: bool) -> Result<()> {
    let Some(value) = preference.get("maxStalenessSeconds") else { return Ok(()) };
    if !value.kind().is_number() {
        return Err(staleness_type(value.kind().alias()));
    }
    match value.as_exact_i64().ok_or_else(|| staleness_fraction(&value))? {
        0 => Ok(()),
        seconds if seconds < 0 => Err(staleness_negative()),
        i64::MAX => Err(staleness_too_large()),
        seconds if seconds < STALENESS_MIN_SECONDS => Err(staleness_too_small()),
        _ if is_primary => Err(staleness_of_primary()),
        _ => Ok(()),
    }
}
