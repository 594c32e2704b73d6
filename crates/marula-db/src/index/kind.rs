//! The kinds of indexes: what each asks of its options, and what it adds to a specification.
//!
//! How each kind makes keys is in a module of its own: `keys` for ordinary and hashed indexes, `wildcard`.

use marula_bson::{Doc, DocBuf, Value};
use marula_error::{Result, errors};

use super::pattern::Plugin;
use super::spec::{Draft, IndexSpec, KeyPart};
use super::wildcard::Wildcard;

errors! {
    two_hashed(count: usize, key: &Doc<'_>) = 31_303, "A maximum of one index field is allowed to be hashed but found {count} for 'key' {key}";
    hashed_unique() = 16_764, "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.";
    unsupported_option(kind: &str, option: &str) = CannotCreateIndex, "Index type '{kind}' does not support the {option} option";
    unsupported_ttl(kind: &str) = CannotCreateIndex, "Index type '{kind}' cannot be a TTL index";
    unsupported_kind(name: &str) = CannotCreateIndex, "Index kind '{name}' is not available on this server";
}

/// How an index makes its keys of a document, with what it needs for that beside its fields.
#[derive(Clone)]
pub enum IndexKind {
    /// The values of its fields.
    Ordinary,
    /// The values of its fields, but of one of them the hash.
    Hashed {
        /// Which of its fields that is.
        part: usize,
    },
    /// A key for each path below a prefix: the path and its value.
    Wildcard(Wildcard),
}

impl IndexKind {
    /// The kind that a specification asks for, with the key pattern as it is shown and its fields.
    ///
    /// Errors: the options that do not go with the kind.
    pub(super) fn resolve(draft: &Draft<'_>) -> Result<(IndexKind, DocBuf, Vec<KeyPart>)> {
        let kind = match draft.pattern.plugin {
            Plugin::Ordinary => IndexKind::Ordinary,
            Plugin::Hashed => {
                let is_hashed = |value: Value<'_>| value == Value::String("hashed".into());
                let part = draft.key.values().position(is_hashed);
                IndexKind::Hashed { part: part.expect("the pattern names its kind") }
            }
            Plugin::Wildcard => {
                const NAME: &str = "wildcard";
                if draft.unique {
                    return Err(unsupported_option(NAME, "unique"));
                }
                if draft.sparse {
                    return Err(unsupported_option(NAME, "sparse"));
                }
                if draft.expire_after_seconds.is_some() {
                    return Err(unsupported_ttl(NAME));
                }
                let wildcard = draft.wildcard.clone();
                IndexKind::Wildcard(wildcard.expect("a wildcard pattern was read as one"))
            }
            Plugin::Text => return Err(unsupported_kind("text")),
            Plugin::Flat => return Err(unsupported_kind("2d")),
            Plugin::Sphere => return Err(unsupported_kind("2dsphere")),
        };
        Ok((kind, draft.key.to_buf(), draft.pattern.parts.clone()))
    }

    /// Checks what comes up only when the index is built, once its specification is taken.
    pub(super) fn check_build(&self, spec: &IndexSpec) -> Result<()> {
        let IndexKind::Hashed { .. } = self else { return Ok(()) };
        if spec.unique {
            return Err(hashed_unique());
        }
        let key = spec.key.as_doc();
        let hashed = key.values().filter(|value| matches!(value, Value::String(_))).count();
        if hashed > 1 { Err(two_hashed(hashed, &key)) } else { Ok(()) }
    }

    /// Whether two indexes that are otherwise alike may both exist for what their kinds say.
    pub(super) fn same_signature(&self, other: &IndexKind) -> bool {
        match (self, other) {
            (IndexKind::Wildcard(ours), IndexKind::Wildcard(theirs)) => ours.same_paths(theirs),
            _ => true,
        }
    }
}
