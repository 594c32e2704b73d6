//! The specification of an index: its key pattern and options, parsed once from the document that
//! `createIndexes` receives and `listIndexes` returns.
//!
//! `form` parses the options, `partial` the filter of a partial index, `requested` a client's
//! specifications of new indexes with mongod's order of checks; `kept` builds the stored document.

mod form;
mod kept;
mod partial;
mod requested;

use marula_bson::order::compare_docs;
use marula_bson::{Doc, DocBuf, FieldPath, Type, Value, ValueBuf};
use marula_error::{Result, errors};
use marula_query::collation::Collation;
use marula_query::context::Context;
use marula_query::feature_version::FeatureVersion;
use marula_query::filter::Filter;

use super::kind::IndexKind;
use super::place::Geography;
pub(super) use form::Draft;
pub use requested::IndexRequest;

errors! {
    places_collation(collation: &Doc<'_>) = CannotCreateIndex, "Index type '2dsphere_bucket' does not support collation: {collation}";
}

/// One field of an index's key pattern.
#[derive(Clone, Debug)]
pub struct KeyPart {
    /// The field.
    pub path: FieldPath,
    /// Whether the order is descending.
    pub descending: bool,
}

/// A parsed index specification.
#[derive(Clone)]
pub struct IndexSpec {
    /// The name, unique within the collection.
    pub name: String,
    /// How keys are made from a document.
    pub kind: IndexKind,
    /// The key pattern as shown, such as `{ a: 1, b: -1 }`.
    pub key: DocBuf,
    /// The parsed key pattern.
    pub parts: Vec<KeyPart>,
    /// No two documents may share a key.
    pub unique: bool,
    /// No write may add a key that another document has, but existing documents may share keys: the
    /// step before an index is converted to a unique one.
    pub prepare_unique: bool,
    /// Documents that have none of the fields have no entry.
    pub sparse: bool,
    /// The fields may hold parallel arrays, which multiply a document's keys. An option of Marula's
    /// own.
    pub parallel_arrays: bool,
    /// The planner ignores the index.
    pub hidden: bool,
    /// Only documents that match have entries.
    pub partial: Option<Filter>,
    /// The collation; `None` is binary order.
    pub collation: Option<Collation>,
    /// Documents expire this number of seconds after the date in the field.
    pub expire_after_seconds: Option<i64>,
    /// The whole specification as `listIndexes` returns it.
    pub document: DocBuf,
}

/// The option that allows parallel arrays.
pub(super) const PARALLEL_ARRAYS: &str = "parallelArrays";

/// The options that come first where an error quotes an index.
const QUOTED_FIRST: &[&str] = &["v", "unique", "hidden", "prepareUnique", "key", "name"];

/// The order of options in `listIndexes`; other options follow.
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

/// The options that are compared as stored, whether or not they mean something for the index.
const OPTIONS_COMPARED: &[&str] =
    &["storageEngine", "default_language", "language_override", "bucketSize"];

/// The numbers of a `2d` index. As in mongod, one that is left out is not equal to the default.
const NUMBERS_COMPARED: &[&str] = &["bits", "min", "max"];

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

    /// Returns whether the index of a time-series collection is on fields of measurements, whose
    /// bounds in each bucket it has.
    pub fn is_on_measurements(&self) -> bool {
        let fields = self.key.as_doc();
        fields.iter().any(|field| field.name.starts_with(b"control."))
            && self.document.as_doc().get("originalSpec").is_some()
    }

    /// Parses a specification; the index inherits `default_collation`, the collection's.
    ///
    /// Shape: `{ key: { <field>: 1 | -1 | <kind>, … }, name: <string>, …options }`. Errors: those
    /// of `form`, of `pattern` and of the kind.
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

    /// Rejects a new index of places in buckets that has a collation.
    fn without_collated_places(self) -> Result<Self> {
        match (&self.kind, &self.collation) {
            (IndexKind::Places(Geography::SphereOfBuckets), Some(collation)) => {
                Err(places_collation(&collation.to_doc()))
            }
            _ => Ok(self),
        }
    }

    /// Checks that mongod makes only when the index is built. [`IndexSpec::parse`] includes them.
    pub fn check_build(&self) -> Result<()> {
        self.kind.check_build(self)
    }

    /// The specification in the order of `listIndexes`.
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

    /// The specification in the order of errors and of the oplog.
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

    /// Returns whether a write must check that the keys that it adds are free.
    pub fn guards_keys(&self) -> bool {
        self.unique || self.prepare_unique
    }

    /// Returns whether making the keys of a document may take far longer than its size suggests.
    pub fn is_costly(&self) -> bool {
        matches!(self.kind, IndexKind::Places(_) | IndexKind::Text(_)) || self.parallel_arrays
    }

    /// For each value of an entry, whether it is descending: one per field, and one for the path
    /// that precedes a wildcard's value.
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

    /// Returns whether the key pattern is that of the `_id` index.
    pub fn is_id(&self) -> bool {
        is_id_pattern(self.key.as_doc())
    }

    /// The default name of a key pattern, as drivers and `createIndexes` build it: `a_1_b_-1`.
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

    /// Returns whether two specifications with the same signature build the same index, apart from
    /// their names.
    pub fn same_options(&self, other: &IndexSpec) -> bool {
        self.expire_after_seconds == other.expire_after_seconds
            && self.prepare_unique == other.prepare_unique
            && self.parallel_arrays == other.parallel_arrays
            && OPTIONS_COMPARED.iter().all(|option| self.field(option) == other.field(option))
            && NUMBERS_COMPARED.iter().all(|option| self.number(option) == other.number(option))
            && self.kind.same_options(&other.kind)
    }

    /// Returns whether two specifications have the same key pattern, collation, partial filter,
    /// `unique` and `sparse`: a collection may have only one index with a given combination.
    pub fn same_signature(&self, other: &IndexSpec) -> bool {
        same_pattern(self.key.as_doc(), other.key.as_doc())
            && self.kind.same_signature(&other.kind)
            && self.unique == other.unique
            && self.sparse == other.sparse
            && self.field("collation") == other.field("collation")
            && self.same_partial(other)
    }

    /// Returns whether two partial filters are the same once they are simplified, however they are
    /// written.
    fn same_partial(&self, other: &IndexSpec) -> bool {
        match (&self.partial, &other.partial) {
            (Some(ours), Some(theirs)) => {
                compare_docs(ours.to_doc().as_doc(), theirs.to_doc().as_doc(), None).is_eq()
            }
            (ours, theirs) => ours.is_none() == theirs.is_none(),
        }
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.document.as_doc().get(name).and_then(|value| value.as_f64())
    }

    fn field(&self, name: &str) -> Option<ValueBuf> {
        self.document.as_doc().get_raw(name.as_bytes()).map(|raw| raw.to_buf())
    }
}

/// Returns whether two key patterns have the same fields, directions and kinds; 1 equals 1.0.
pub fn same_pattern(a: Doc<'_>, b: Doc<'_>) -> bool {
    compare_docs(a, b, None).is_eq()
}

/// Returns whether a key pattern is that of the `_id` index.
pub fn is_id_pattern(key: Doc<'_>) -> bool {
    let mut fields = key.iter();
    match (fields.next(), fields.next()) {
        (Some(only), None) => only.name == "_id" && only.value.get().as_f64() == Some(1.0),
        _ => false,
    }
}

/// The seconds of `expireAfterSeconds`; a value that is not a number becomes the maximum. A decimal
/// is rounded, other numbers are truncated.
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
