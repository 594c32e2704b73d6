//! What an index is: its key pattern and its options, parsed once from the document that
//! `createIndexes` takes and `listIndexes` shows.
//!
//! `form` reads the options, `partial` the filter of a partial index, `asked` is what a client
//! gives for new indexes and the order in which its mistakes are told, `kept` the document as it is
//! kept and shown.

mod asked;
mod form;
mod kept;
mod partial;

use marula_bson::{Doc, DocBuf, FieldPath, Type, Value, ValueBuf};
use marula_error::Result;
use marula_query::collation::Collation;
use marula_query::context::Context;
use marula_query::feature_version::FeatureVersion;
use marula_query::filter::Filter;

use super::kind::IndexKind;
pub use asked::Asked;
pub(super) use form::Draft;

/// One field of an index's key pattern.
#[derive(Clone, Debug)]
pub struct KeyPart {
    /// The field.
    pub path: FieldPath,
    /// Whether greater values come first.
    pub descending: bool,
}

/// What an index is.
#[derive(Clone)]
pub struct IndexSpec {
    /// Its name, unique within its collection.
    pub name: String,
    /// How keys are made of a document.
    pub kind: IndexKind,
    /// The key pattern as it is shown, such as `{ a: 1, b: -1 }`.
    pub key: DocBuf,
    /// The key pattern, parsed.
    pub parts: Vec<KeyPart>,
    /// No two documents may share a key.
    pub unique: bool,
    /// No write may add a key that another document has, though documents may share keys from
    /// before: what comes ahead of making the index unique.
    pub prepare_unique: bool,
    /// Documents without any of the fields have no entry.
    pub sparse: bool,
    /// Its fields may hold arrays side by side, each of which multiplies a document's keys. An
    /// option of Marula's own.
    pub parallel_arrays: bool,
    /// The planner does not see it.
    pub hidden: bool,
    /// Only documents that match have entries.
    pub partial: Option<Filter>,
    /// The order of its strings; `None` is the binary order.
    pub collation: Option<Collation>,
    /// Seconds after the field's date at which documents are removed.
    pub expire_after_seconds: Option<i64>,
    /// The whole specification as `listIndexes` shows it.
    pub document: DocBuf,
}

/// The option by which an index takes arrays side by side.
pub(super) const PARALLEL_ARRAYS: &str = "parallelArrays";

/// The options that stand in front where an error quotes an index.
const QUOTED_FIRST: &[&str] = &["v", "unique", "hidden", "prepareUnique", "key", "name"];

/// The options in the order in which `listIndexes` shows them; what is not here comes behind.
const LISTED: &[&str] = &[
    "v",
    "key",
    "name",
    "background",
    "unique",
    "hidden",
    "partialFilterExpression",
    "sparse",
    "expireAfterSeconds",
    "storageEngine",
    "weights",
    "default_language",
    "language_override",
    "textIndexVersion",
    "2dsphereIndexVersion",
    "bits",
    "min",
    "max",
    "bucketSize",
    "collation",
    "wildcardProjection",
    PARALLEL_ARRAYS,
];

/// The options that are compared as they are kept, whether they mean something for the index or
/// not.
const OPTIONS_COMPARED: &[&str] =
    &["storageEngine", "default_language", "language_override", "bucketSize"];

impl IndexSpec {
    /// The `_id` index of a collection with this default collation.
    pub fn id_index(collation: Option<&Collation>) -> Result<Self> {
        let mut document = DocBuf::build(|spec| {
            spec.append("v", 2);
            spec.append("key", &marula_bson::doc! { "_id": 1 });
            spec.append("name", "_id_");
        });
        if let Some(collation) = collation {
            document.push("collation", collation.to_doc());
        }
        Self::parse(document.as_doc(), None)
    }

    /// Parses a specification; `default_collation` is the collection's, which an index inherits.
    ///
    /// Shape: `{ key: { <field>: 1 | -1 | <kind>, … }, name: <string>, …options }`.
    /// Errors: those of `form`, of `pattern` and of the kind.
    pub fn parse(spec: Doc<'_>, default_collation: Option<&Collation>) -> Result<Self> {
        let version = FeatureVersion::NEWEST;
        let context = Context { version, is_stored: true, ..Context::default() };
        let mut draft = Draft::read(spec, &context)?;
        draft.check_id()?;
        draft.collate(default_collation)?;
        let index = draft.resolve()?;
        index.kind.check_build(&index)?;
        Ok(index)
    }

    /// Checks what comes up only when the index is built. [`IndexSpec::parse`] has done so.
    pub fn check_build(&self) -> Result<()> {
        self.kind.check_build(self)
    }

    /// The specification in the order in which `listIndexes` shows it.
    pub fn listed(&self) -> DocBuf {
        let spec = self.document.as_doc();
        DocBuf::build(|out| {
            for name in LISTED {
                if let Some(value) = spec.get_raw(name.as_bytes()) {
                    out.append_raw(*name, value);
                }
            }
            for option in spec.iter() {
                if !LISTED.iter().any(|name| option.name == *name) {
                    out.append_raw(option.name, option.value);
                }
            }
        })
    }

    /// The specification as errors quote it.
    pub fn quoted(&self) -> DocBuf {
        let spec = self.document.as_doc();
        let is_first = |name: &[u8]| QUOTED_FIRST.iter().any(|first| name == first.as_bytes());
        DocBuf::build(|out| {
            for name in QUOTED_FIRST {
                if let Some(value) = spec.get_raw(name.as_bytes()) {
                    out.append_raw(*name, value);
                }
            }
            for option in spec.iter().filter(|option| !is_first(option.name)) {
                out.append_raw(option.name, option.value);
            }
        })
    }

    /// Whether a write must look whether the keys that it adds are taken.
    pub fn guards_keys(&self) -> bool {
        self.unique || self.prepare_unique
    }

    /// Whether the keys of a document may take much longer to make than the document is long.
    pub fn is_costly(&self) -> bool {
        matches!(self.kind, IndexKind::Places(_) | IndexKind::Text(_)) || self.parallel_arrays
    }

    /// Of each value that an entry holds, whether greater ones come first: those of the fields, and
    /// in front of a wildcard's value its path.
    pub fn entry_directions(&self) -> impl Iterator<Item = bool> {
        let wildcard = match &self.kind {
            IndexKind::Wildcard(wildcard) => Some(wildcard.part()),
            _ => None,
        };
        self.parts.iter().enumerate().flat_map(move |(number, part)| {
            let path = (wildcard == Some(number)).then_some(false);
            path.into_iter().chain([part.descending])
        })
    }

    /// Whether the key pattern is that of the `_id` index.
    pub fn is_id(&self) -> bool {
        is_id_pattern(self.key.as_doc())
    }

    /// The name that drivers and `createIndexes` give a key pattern: `a_1_b_-1`.
    pub fn default_name(key: Doc<'_>) -> String {
        let parts: Vec<String> = key
            .iter()
            .map(|element| match element.value.get() {
                Value::String(kind) => format!("{}_{kind}", element.name),
                #[allow(clippy::cast_possible_truncation)]
                other => format!("{}_{}", element.name, other.as_f64().unwrap_or(0.0) as i64),
            })
            .collect();
        parts.join("_")
    }

    /// Whether two specifications of one signature build the same index: what they are called
    /// aside.
    pub fn same_options(&self, other: &IndexSpec) -> bool {
        self.expire_after_seconds == other.expire_after_seconds
            && self.prepare_unique == other.prepare_unique
            && self.parallel_arrays == other.parallel_arrays
            && OPTIONS_COMPARED.iter().all(|option| self.field(option) == other.field(option))
            && self.kind.same_options(&other.kind)
    }

    /// Whether two specifications have the same key pattern, collation, partial filter, and are
    /// unique and sparse alike: those together may exist once in a collection.
    pub fn same_signature(&self, other: &IndexSpec) -> bool {
        same_pattern(self.key.as_doc(), other.key.as_doc())
            && self.kind.same_signature(&other.kind)
            && self.unique == other.unique
            && self.sparse == other.sparse
            && self.field("collation") == other.field("collation")
            && self.field("partialFilterExpression") == other.field("partialFilterExpression")
    }

    fn field(&self, name: &str) -> Option<ValueBuf> {
        self.document.as_doc().get_raw(name.as_bytes()).map(|raw| raw.to_buf())
    }
}

/// Whether two key patterns are the same: fields, directions and kinds; 1 and 1.0 do not differ.
pub fn same_pattern(a: Doc<'_>, b: Doc<'_>) -> bool {
    marula_bson::order::compare_docs(a, b, None).is_eq()
}

/// Whether a key pattern is that of the `_id` index.
fn is_id_pattern(key: Doc<'_>) -> bool {
    let mut fields = key.iter();
    match (fields.next(), fields.next()) {
        (Some(only), None) => only.name == "_id" && only.value.get().as_f64() == Some(1.0),
        _ => false,
    }
}

/// The seconds of `expireAfterSeconds`: what is no number is the most. A decimal is rounded, others
/// are cut.
pub fn expire_seconds(value: Value<'_>) -> i64 {
    match value.as_f64() {
        Some(seconds) if !seconds.is_nan() => {
            let is_decimal = value.kind() == Type::Decimal128;
            let seconds = if is_decimal { seconds.round_ties_even() } else { seconds };
            #[allow(clippy::cast_possible_truncation)]
            let seconds = seconds as i64;
            seconds
        }
        _ => i64::from(i32::MAX),
    }
}

#[cfg(test)]
mod tests;
