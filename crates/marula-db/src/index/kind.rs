//! The kinds of indexes: their checks of options, and the options they add to a specification.
//!
//! Each kind makes its keys in a module of its own: `keys` for ordinary and hashed indexes,
//! `place`, `text` and `wildcard`.

use marula_bson::{Doc, DocBuf, DocWriter, Type, Value};
use marula_error::{Result, errors};
use marula_query::expression::short_double_text;
use marula_query::geo::hash::Grid;
use marula_query::update::Touched;

use super::pattern::{PARTS_MAX, Plugin};
use super::place::Geography;
use super::spec::{Draft, IndexSpec, KeyPart, PARALLEL_ARRAYS};
use super::text::TextIndex;
use super::wildcard::Wildcard;

errors! {
    too_many_parts() = 13_103, "too many compound keys";
    two_hashed(count: usize, key: &Doc<'_>) = 31_303, "A maximum of one index field is allowed to be hashed but found {count} for 'key' {key}";
    hashed_unique() = 16_764, "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.";
    unsupported_option(kind: &str, option: &str) = CannotCreateIndex, "Index type '{kind}' does not support the {option} option";
    unsupported_ttl(kind: &str) = CannotCreateIndex, "Index type '{kind}' cannot be a TTL index";
    text_collation(collation: &Doc<'_>) = CannotCreateIndex, "Index type 'text' does not support collation: {collation}";
    sphere_version(version: &Value<'_>) = CannotCreateIndex, "unsupported geo index version {{ 2dsphereIndexVersion : 2dsphereIndexVersion: {version} }}, only versions: [1,2,3] are supported";
    bucket_version(version: &Value<'_>) = CannotCreateIndex, "unsupported geo index version {{ 2dsphereIndexVersion : 2dsphereIndexVersion: {version} }}, only versions: [3] are supported";
    sphere_version_invalid(version: &Value<'_>) = CannotCreateIndex, "Invalid value for geo index version {{ 2dsphereIndexVersion : 2dsphereIndexVersion: {version} }}, only versions: [1,2,3] are supported";
    sphere_version_fraction(version: &Value<'_>) = BadValue, "Expected field \"2dsphereIndexVersion\" to have a value exactly representable as a 64-bit integer, but found 2dsphereIndexVersion: {version}";
    flat_collation(collation: &Doc<'_>) = CannotCreateIndex, "Index type '2d' does not support collation: {collation}";
    flat_not_first() = 16_801, "2d has to be first in index";
    flat_twice() = 16_800, "can't have 2 geo fields";
    flat_bits(bits: i64) = InvalidOptions, "bits for hash must be > 0 and <= 32, but {bits} bits were specified";
    flat_region(min: &str, max: &str) = InvalidOptions, "region for hash must be valid and have positive area, but [{min}, {max}] was specified";
    level_type(level: &str, kind: &str) = TypeMismatch, "Expected field \"{level}\" to have numeric type, but found {kind}";
    level_fraction(level: &str, value: &Value<'_>) = BadValue, "Expected field \"{level}\" to have a value exactly representable as a 64-bit integer, but found {level}: {value}";
    coarsest_negative() = 16_747, "coarsestIndexedLevel must be >= 0";
    finest_too_fine() = 16_748, "finestIndexedLevel must be <= 30";
    finest_too_coarse() = 16_749, "finestIndexedLevel must be >= coarsestIndexedLevel";
    flat_too_wide() = 4_799_400, "Invalid GeoHashConverter parameters";
}

/// The default version of a `2dsphere` index.
const SPHERE_VERSION: i32 = 3;

/// mongod's default levels of cells of a `2dsphere` index, and the finest level.
const COARSEST_LEVEL: i32 = 2;
const FINEST_LEVEL: i32 = 16;
const LEVEL_MAX: i32 = 30;

/// Represents a version that is not a whole number; such an index is not built.
const SPHERE_VERSION_FRACTION: i32 = 0;

/// How an index makes the keys of a document, with the options that this needs in addition to its
/// fields.
#[derive(Clone)]
pub enum IndexKind {
    /// The values of its fields.
    Ordinary,
    /// The values of its fields, with a hash in place of one of them.
    Hashed {
        /// The number of the hashed field.
        part: usize,
    },
    /// Keys of the places in some of its fields, with the values of the others.
    Places(Geography),
    /// A key for each term of its texts, with the term's score and the values of the other fields.
    Text(TextIndex),
    /// A key for each path below a prefix, with the path and its value.
    Wildcard(Wildcard),
}

impl IndexKind {
    /// The kind of an index that was built when places were covered with cells of any size.
    pub(crate) fn with_all_cells(self) -> IndexKind {
        match self {
            IndexKind::Places(Geography::Sphere { version, .. }) => {
                IndexKind::Places(Geography::Sphere { version, coarsest: 0 })
            }
            other => other,
        }
    }

    /// Checks the options that all index kinds share but some do not support.
    ///
    /// Errors: `unsupported_option`, `unsupported_ttl`, `text_collation`, `flat_collation`.
    pub(super) fn check_options(draft: &Draft<'_>) -> Result<()> {
        if draft.parallel_arrays
            && let Some(name) = draft.pattern.plugin.name()
        {
            return Err(unsupported_option(name, PARALLEL_ARRAYS));
        }
        match (draft.pattern.plugin, &draft.collation) {
            (Plugin::Wildcard, _) => {
                const NAME: &str = "wildcard";
                if draft.sparse {
                    return Err(unsupported_option(NAME, "sparse"));
                }
                if draft.unique {
                    return Err(unsupported_option(NAME, "unique"));
                }
                if draft.expire_after_seconds.is_some() {
                    return Err(unsupported_ttl(NAME));
                }
                Ok(())
            }
            (Plugin::Text, Some(collation)) => Err(text_collation(&collation.to_doc())),
            (Plugin::Flat, Some(collation)) => Err(flat_collation(&collation.to_doc())),
            _ => Ok(()),
        }
    }

    /// The kind that a specification requests, with the key pattern as shown and the fields.
    ///
    /// Errors: options that the kind does not support.
    pub(super) fn resolve(
        draft: &Draft<'_>,
        spec: Doc<'_>,
    ) -> Result<(IndexKind, DocBuf, Vec<KeyPart>)> {
        let kind = match draft.pattern.plugin {
            Plugin::Ordinary => IndexKind::Ordinary,
            Plugin::Hashed => {
                let is_hashed = |value: Value<'_>| value == Value::String("hashed".into());
                let part = draft.key.values().position(is_hashed);
                IndexKind::Hashed { part: part.expect("the pattern names its kind") }
            }
            Plugin::Wildcard => {
                let wildcard = draft.wildcard.clone();
                IndexKind::Wildcard(wildcard.expect("a wildcard pattern was read as one"))
            }
            Plugin::Text => {
                let (text, key, parts) = TextIndex::resolve(draft.key, spec)?;
                return Ok((IndexKind::Text(text), key, parts));
            }
            Plugin::Flat => IndexKind::Places(Geography::Flat(grid(spec))),
            Plugin::Sphere => {
                let version = version_of_sphere(spec)?;
                IndexKind::Places(Geography::Sphere { version, coarsest: coarsest(spec) })
            }
            Plugin::SphereOfBuckets => match version_of_sphere(spec)? {
                1..=2 => {
                    let given = spec.get("2dsphereIndexVersion").unwrap_or(Value::Null);
                    return Err(bucket_version(&given));
                }
                _ => IndexKind::Places(Geography::SphereOfBuckets),
            },
        };
        Ok((kind, draft.key.to_buf(), draft.pattern.parts.clone()))
    }

    /// Checks that mongod makes only when the index is built, after its specification was accepted.
    pub(super) fn check_build(&self, spec: &IndexSpec) -> Result<()> {
        if spec.parts.len() > PARTS_MAX {
            return Err(too_many_parts());
        }
        match self {
            IndexKind::Hashed { .. } => {}
            IndexKind::Places(geography) => return check_places(*geography, spec),
            IndexKind::Ordinary | IndexKind::Text(_) | IndexKind::Wildcard(_) => return Ok(()),
        }
        if spec.unique {
            return Err(hashed_unique());
        }
        let key = spec.key.as_doc();
        let hashed = key.values().filter(|value| matches!(value, Value::String(_))).count();
        if hashed > 1 { Err(two_hashed(hashed, &key)) } else { Ok(()) }
    }

    /// Returns whether two indexes with the same signature make the same keys. As in mongod,
    /// different versions of a `2dsphere` or text index count as the same.
    pub(super) fn same_options(&self, other: &IndexKind) -> bool {
        match (self, other) {
            (IndexKind::Text(ours), IndexKind::Text(theirs)) => ours.same_options(theirs),
            _ => true,
        }
    }

    /// Returns whether an update of these paths may change the keys in ways that the index fields
    /// alone do not show.
    pub fn is_touched(&self, touched: &Touched) -> bool {
        matches!(self, IndexKind::Text(text) if text.is_touched(touched))
    }

    /// Returns whether the kinds of two otherwise equal indexes count as the same.
    pub(super) fn same_signature(&self, other: &IndexKind) -> bool {
        match (self, other) {
            (IndexKind::Wildcard(ours), IndexKind::Wildcard(theirs)) => ours.same_paths(theirs),
            _ => true,
        }
    }
}

/// The grid of a `2d` index by its options; a fraction of `bits` is ignored.
fn grid(spec: Doc<'_>) -> Grid {
    let number = |name: &str, default: f64| {
        spec.get(name).and_then(|value| value.as_f64()).unwrap_or(default)
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let bits = number("bits", 26.0).clamp(0.0, 33.0) as u32;
    Grid { min: number("min", -180.0), max: number("max", 180.0), bits }
}

fn check_places(geography: Geography, index: &IndexSpec) -> Result<()> {
    let Geography::Flat(grid) = geography else {
        let version = index.document.as_doc().get("2dsphereIndexVersion");
        return match version {
            Some(version) if version.as_exact_i64().is_none() => {
                Err(sphere_version_fraction(&version))
            }
            _ => check_levels(index.document.as_doc()),
        };
    };
    let mut named = index.key.as_doc().values().map(|value| value.kind() == Type::String);
    if !named.next().unwrap_or(false) {
        return Err(flat_not_first());
    }
    if named.any(|is_named| is_named) {
        return Err(flat_twice());
    }
    if !(1..=32).contains(&grid.bits) {
        #[allow(clippy::cast_possible_truncation)]
        let bits = index.document.as_doc().get("bits").and_then(|bits| bits.as_f64());
        #[allow(clippy::cast_possible_truncation)]
        return Err(flat_bits(bits.unwrap_or_default() as i64));
    }
    let (min, max) = (grid.min, grid.max);
    if !(min.is_finite() && max.is_finite() && min < max) {
        return Err(flat_region(&short_double_text(min), &short_double_text(max)));
    }
    let width = max - min;
    if !(width * width).is_finite() {
        return Err(flat_too_wide());
    }
    Ok(())
}

/// The level of the largest cells that an index holds. A greater value of the option is ignored: a
/// large place would otherwise need very many cells.
fn coarsest(spec: Doc<'_>) -> u8 {
    let asked = spec.get("coarsestIndexedLevel").and_then(|level| level.as_exact_i64());
    u8::try_from(asked.unwrap_or(COARSEST_LEVEL.into()).clamp(0, COARSEST_LEVEL.into()))
        .unwrap_or(0)
}

/// Checks the levels between which places are indexed. The levels are stored, but cells of any
/// level lead to the same documents.
fn check_levels(spec: Doc<'_>) -> Result<()> {
    // As in mongod, a value outside the range of int wraps around.
    #[allow(clippy::cast_possible_truncation)]
    let level = |name: &str, default: i32| match spec.get(name) {
        None => Ok(default),
        Some(value) if !value.kind().is_number() => Err(level_type(name, value.kind().alias())),
        Some(value) => match value.as_exact_i64() {
            Some(level) => Ok(level as i32),
            None => Err(level_fraction(name, &value)),
        },
    };
    let finest = level("finestIndexedLevel", FINEST_LEVEL)?;
    let coarsest = level("coarsestIndexedLevel", COARSEST_LEVEL)?;
    if coarsest < 0 {
        return Err(coarsest_negative());
    }
    if finest > LEVEL_MAX {
        return Err(finest_too_fine());
    }
    if finest < coarsest { Err(finest_too_coarse()) } else { Ok(()) }
}

/// The version of a `2dsphere` index.
///
/// Errors: `sphere_version`, `sphere_version_invalid`.
fn version_of_sphere(spec: Doc<'_>) -> Result<i32> {
    let Some(given) = spec.get("2dsphereIndexVersion") else { return Ok(SPHERE_VERSION) };
    match given.as_exact_i64() {
        Some(version @ 1..=3) => Ok(i32::try_from(version).unwrap_or(SPHERE_VERSION)),
        None if given.as_f64().is_some_and(|number| !number.is_finite()) => {
            Err(sphere_version_invalid(&given))
        }
        None if given.kind().is_number() => Ok(SPHERE_VERSION_FRACTION),
        _ => Err(sphere_version(&given)),
    }
}

/// Adds the options of a kind on places to the stored specification.
pub(super) fn write_place_options(plugin: Plugin, spec: Doc<'_>, out: &mut DocWriter<'_>) {
    match plugin {
        Plugin::Sphere | Plugin::SphereOfBuckets => {
            match spec.get("2dsphereIndexVersion") {
                None => out.append("2dsphereIndexVersion", SPHERE_VERSION),
                Some(version) => match version.as_exact_i64().map(i32::try_from) {
                    Some(Ok(version)) => out.append("2dsphereIndexVersion", version),
                    _ => out.append("2dsphereIndexVersion", version),
                },
            };
            for level in ["coarsestIndexedLevel", "finestIndexedLevel"] {
                match spec.get(level).map(|value| (value, value.as_exact_i64())) {
                    None => {}
                    Some((_, Some(number))) => {
                        let nearest = number.clamp(i32::MIN.into(), i32::MAX.into());
                        #[allow(clippy::cast_possible_truncation)]
                        out.append(level, nearest as i32);
                    }
                    Some((value, None)) => {
                        out.append(level, value);
                    }
                }
            }
        }
        Plugin::Flat => {
            if let Some(bits) = spec.get("bits").and_then(|bits| bits.as_f64()) {
                #[allow(clippy::cast_possible_truncation)]
                let bits = bits as i32;
                out.append("bits", bits);
            }
            for end in ["min", "max"] {
                if let Some(end_at) = spec.get(end).and_then(|value| value.as_f64()) {
                    out.append(end, end_at);
                }
            }
        }
        _ => {}
    }
}
