//! Key patterns: the fields of an index and the kind of each, parsed from `{ a: 1, b: "hashed" }`.

use std::collections::HashSet;

use marula_bson::{BStr, ByteSlice, Doc, FieldPath, Value};
use marula_error::{Result, errors};
use marula_query::feature_version::FeatureVersion;

use super::spec::KeyPart;

/// The maximum number of fields of a compound index. Source: manual "MongoDB Limits and
/// Thresholds".
pub(super) const PARTS_MAX: usize = 32;

errors! {
    key_empty() = CannotCreateIndex, "Index keys cannot be empty.";
    repeated_field(field: &BStr, key: &Doc<'_>) = BadValue, "The field '{field}' appears multiple times in the index key pattern {key}";
    key_value_type(kind: &str) = CannotCreateIndex, "Values in v:2 index key pattern cannot be of type {kind}. Only numbers > 0, numbers < 0, and strings are allowed.";
    key_value_zero() = CannotCreateIndex, "Values in the index key pattern cannot be 0.";
    unknown_kind(name: &str) = CannotCreateIndex, "Unknown index plugin '{name}'";
    key_value_nan() = CannotCreateIndex, "Values in the index key pattern cannot be NaN.";
    key_value_empty() = CannotCreateIndex, "Values in the index key pattern cannot be empty strings";
    haystack() = CannotCreateIndex, "GeoHaystack indexes cannot be created in version 5.0 and above";
    two_kinds() = CannotCreateIndex, "Can't use more than one index plugin for a single index.";
    key_empty_field() = CannotCreateIndex, "Index keys cannot be an empty field.";
    key_empty_component() = CannotCreateIndex, "Index keys cannot contain an empty field.";
    key_dollar_field() = CannotCreateIndex, "Index key contains an illegal field name: field name starts with '$'.";
    key_reserved_field() = CannotCreateIndex, "Index key contains an illegal field name: '_fts'";
    wildcard_negative() = CannotCreateIndex, "A numeric value in a $** index key pattern must be positive.";
    wildcard_compound() = CannotCreateIndex, "wildcard indexes do not allow compounding";
    two_wildcards() = CannotCreateIndex, "An index cannot have more than one wildcard field";
    wildcard_text() = CannotCreateIndex, "The key pattern value for an 'wildcard' index must be a non-zero number, not a string.";
}

/// The kinds of indexes that a key pattern can request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Plugin {
    /// Ascending or descending fields.
    Ordinary,
    /// Every path below a prefix.
    Wildcard,
    /// One hashed field.
    Hashed,
    /// Text search.
    Text,
    /// Points on a plane.
    Flat,
    /// Places on the globe.
    Sphere,
    /// Points on the globe of a bucket's measurements.
    SphereOfBuckets,
}

/// The kinds named by a string in the pattern.
const NAMED: &[(&str, Plugin)] = &[
    ("hashed", Plugin::Hashed),
    ("text", Plugin::Text),
    ("2d", Plugin::Flat),
    ("2dsphere", Plugin::Sphere),
    ("2dsphere_bucket", Plugin::SphereOfBuckets),
];

impl Plugin {
    /// The name of the kind in errors; an ordinary index has none.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Plugin::Ordinary => None,
            Plugin::Wildcard => Some("wildcard"),
            _ => NAMED.iter().find(|(_, plugin)| *plugin == self).map(|(name, _)| *name),
        }
    }

    /// The kind that a pattern requests, if it is valid.
    pub(super) fn find(key: Doc<'_>) -> Option<Plugin> {
        plugin(key).ok().map(|(plugin, _)| plugin)
    }
}

/// A parsed key pattern.
pub(super) struct Pattern {
    /// The kind of index.
    pub(super) plugin: Plugin,
    /// The position of the wildcard field.
    pub(super) wildcard: Option<usize>,
    /// The fields.
    pub(super) parts: Vec<KeyPart>,
}

impl Pattern {
    /// Parses a key pattern. Before 7.0 a wildcard must be ascending and the only field.
    ///
    /// Errors: this module's rows.
    pub(super) fn parse(key: Doc<'_>, version: FeatureVersion) -> Result<Self> {
        if key.is_empty() {
            return Err(key_empty());
        }
        check_repetition(key)?;
        let (plugin, named) = plugin(key)?;
        let field_count = key.iter().count();
        let mut parts = Vec::new();
        let mut wildcard = None;
        for element in key {
            let value = element.value.get();
            let descending = match value {
                Value::String(name) if named.is_some_and(|named| named != name) => {
                    return Err(two_kinds());
                }
                Value::String(name) if name == "wildcard" => return Err(wildcard_text()),
                Value::String(_) => false,
                _ => match value.as_f64() {
                    Some(0.0) => return Err(key_value_zero()),
                    Some(number) if number.is_nan() => return Err(key_value_nan()),
                    Some(number) => number < 0.0,
                    None => return Err(key_value_type(value.kind().alias())),
                },
            };
            if plugin == Plugin::Wildcard {
                if version < FeatureVersion::V7_0 {
                    if descending {
                        return Err(wildcard_negative());
                    }
                    if field_count > 1 {
                        return Err(wildcard_compound());
                    }
                }
                if matches!(value, Value::String(_)) {
                    return Err(two_kinds());
                }
                if is_wildcard(element.name) && wildcard.replace(parts.len()).is_some() {
                    return Err(two_wildcards());
                }
            }
            check_name(plugin, element.name, value)?;
            parts.push(KeyPart { path: FieldPath::new(element.name), descending });
        }
        if named.is_some_and(|named| named.is_empty()) {
            return Err(key_value_empty());
        }
        Ok(Pattern { plugin, wildcard, parts })
    }
}

/// Checks that no field occurs twice.
fn check_repetition(key: Doc<'_>) -> Result<()> {
    let mut seen = HashSet::new();
    match key.iter().find(|element| !seen.insert(element.name)) {
        Some(repeated) => Err(repeated_field(repeated.name, &key)),
        None => Ok(()),
    }
}

/// The kind that a pattern requests, and the first string value in it.
fn plugin<'k>(key: Doc<'k>) -> Result<(Plugin, Option<&'k BStr>)> {
    for element in key {
        if let Value::String(name) = element.value.get() {
            return match NAMED.iter().find(|(known, _)| name == *known) {
                Some((_, plugin)) => Ok((*plugin, Some(name))),
                None if name.is_empty() || name == "wildcard" => Ok((Plugin::Ordinary, Some(name))),
                None if name == "geoHaystack" => Err(haystack()),
                None => Err(unknown_kind(&name.to_string())),
            };
        }
        if is_wildcard(element.name) {
            return Ok((Plugin::Wildcard, None));
        }
    }
    Ok((Plugin::Ordinary, None))
}

/// Returns whether a field represents every path below it: `$**` or `a.$**`.
pub(super) fn is_wildcard(name: &[u8]) -> bool {
    name == b"$**" || name.ends_with(b".$**")
}

fn check_name(plugin: Plugin, name: &BStr, value: Value<'_>) -> Result<()> {
    let is_named = matches!(value, Value::String(_));
    if name.is_empty() {
        return Err(key_empty_field());
    }
    if name == "_fts" && !(plugin == Plugin::Text && is_named) {
        return Err(key_reserved_field());
    }
    let is_every_path = name == "$**" && (plugin == Plugin::Text || !is_named);
    if is_every_path {
        return Ok(());
    }
    let path = match name.strip_suffix(b".$**") {
        Some(prefix) if !is_named => prefix,
        _ => name.as_bytes(),
    };
    for (position, part) in path.split(|&byte| byte == b'.').enumerate() {
        if part.is_empty() {
            return Err(key_empty_component());
        }
        // Only DBRef's own fields may begin with a dollar sign.
        let is_reference = position > 0 && matches!(part, b"$id" | b"$ref" | b"$db");
        if part.starts_with(b"$") && !is_reference {
            return Err(key_dollar_field());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use marula_bson::{DocBuf, doc};

    use super::*;

    #[track_caller]
    fn check(key: &DocBuf, plugin: Plugin) {
        let pattern = Pattern::parse(key.as_doc(), FeatureVersion::V6_0).unwrap();
        assert_eq!(pattern.plugin, plugin, "{key:?}");
    }

    #[track_caller]
    fn check_error(key: &DocBuf, message: &str) {
        check_error_of(FeatureVersion::V6_0, key, message);
    }

    #[track_caller]
    fn check_error_of(version: FeatureVersion, key: &DocBuf, message: &str) {
        let error = Pattern::parse(key.as_doc(), version).err().expect("the pattern is refused");
        assert!(error.to_string().contains(message), "{key:?}: {error}");
    }

    #[test]
    fn a_pattern_names_one_kind() {
        check(&doc! { "a": 1, "b": -1.5 }, Plugin::Ordinary);
        check(&doc! { "a": "hashed", "$**": -1 }, Plugin::Hashed);
        check(&doc! { "$**": 1 }, Plugin::Wildcard);
        check(&doc! { "a.$id.$**": 1 }, Plugin::Wildcard);
        check(&doc! { "a$**": 1 }, Plugin::Ordinary);
        check(&doc! { "a": 1, "$**": "text" }, Plugin::Text);
        check(&doc! { "_fts": "text", "_ftsx": 1 }, Plugin::Text);
        check_error(&doc! { "a": "hashed", "b": "text" }, "more than one index plugin");
        check_error(&doc! { "a": "", "b": "text" }, "more than one index plugin");
        check_error(&doc! { "a": "" }, "cannot be empty strings");
        check_error(&doc! { "a": 0, "b": "foo" }, "Unknown index plugin 'foo'");
        check_error(&doc! { "a": "wildcard" }, "must be a non-zero number, not a string");
    }

    #[test]
    fn a_wildcard_stands_alone_and_goes_up() {
        check_error(&doc! { "$**": -1, "a": 1 }, "must be positive");
        check_error(&doc! { "a": 1, "$**": -1 }, "do not allow compounding");
        check_error(&doc! { "a.$**.b": 1 }, "starts with '$'");
        check_error(&doc! { "a..$**": 1 }, "cannot contain an empty field");
        check_error(&doc! { "$**": "hashed" }, "starts with '$'");
    }

    #[test]
    fn one_wildcard_stands_among_fields_since_7_0() {
        for (key, wildcard) in [
            (doc! { "a": 1, "$**": 1 }, 1),
            (doc! { "a": 1, "b.$**": (-1), "c": (-1) }, 1),
            (doc! { "$**": (-1) }, 0),
        ] {
            let pattern = Pattern::parse(key.as_doc(), FeatureVersion::V7_0).unwrap();
            assert_eq!((pattern.plugin, pattern.wildcard), (Plugin::Wildcard, Some(wildcard)));
        }
        let check_error = |key: &DocBuf, message: &str| {
            check_error_of(FeatureVersion::V8_0, key, message);
        };
        check_error(&doc! { "a.$**": 1, "b.$**": 1 }, "more than one wildcard field");
        check_error(&doc! { "$**": 1, "a": "hashed" }, "more than one index plugin");
        check_error(&doc! { "a": 1, "$**": "wildcard" }, "must be a non-zero number");
        check_error(&doc! { "$**": 1, "$a": 1 }, "starts with '$'");
    }

    #[test]
    fn names_are_checked() {
        check_error(&doc! {}, "cannot be empty");
        check_error(&doc! { "$id": 1 }, "starts with '$'");
        check(&doc! { "a.$id": 1 }, Plugin::Ordinary);
        check_error(&doc! { "_fts": 1 }, "illegal field name: '_fts'");
        check_error(&doc! { "": 1 }, "cannot be an empty field");
    }
}
