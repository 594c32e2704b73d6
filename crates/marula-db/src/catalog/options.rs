//! What a collection was created with, parsed once from the fields of `create`.

use std::time::{SystemTime, UNIX_EPOCH};

use marula_bson::{ByteSlice, Doc, DocBuf, Value};
use marula_error::{Result, errors};
use marula_query::collation::Collation;
use marula_query::context::Context;
use marula_query::feature_version::FeatureVersion;
use marula_query::filter::{Filter, Node};
use marula_query::quick::Cost;
use marula_query::validation;

use crate::time_series::TimeSeries;

/// A capped collection's greatest size. Source: manual "create": `size` up to 2^50 bytes.
const CAPPED_BYTES_MAX: i64 = 1 << 50;
/// Sizes of capped collections are multiples of this.
const CAPPED_BYTES_STEP: i64 = 256;

errors! {
    capped_without_size() = InvalidOptions, "the 'size' field is required when 'capped' is true";
    /// Encrypted fields, where a document may break its validator.
    encryption_not_allowed() = QueryFeatureNotAllowed, "Encryption-related validator keywords are not allowed in this context";
    capped_size_range(field: &str) = BadValue, "BSON field 'create.{field}' value must be within the range of a capped collection";
}

/// How strictly a validator is applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ValidationLevel {
    /// Not at all.
    Off,
    /// To inserts, and to updates of documents that were valid.
    Moderate,
    /// To every insert and update.
    #[default]
    Strict,
}

/// What happens to a document that fails its validator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ValidationAction {
    /// It is stored, and the log says so.
    Warn,
    /// The write fails.
    #[default]
    Error,
}

/// A validator and how it is applied.
#[derive(Clone)]
pub struct Validator {
    /// What a document must match.
    pub filter: Filter,
    /// The filter as it was given.
    pub document: DocBuf,
    /// What it was parsed with.
    pub context: Context,
    /// Whether it takes little time with a document.
    pub is_quick: bool,
    /// How strictly.
    pub level: ValidationLevel,
    /// With what consequence.
    pub action: ValidationAction,
}

/// The bounds of a capped collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capped {
    /// The most bytes of documents.
    pub size_bytes_max: i64,
    /// The most documents; `None` is no bound.
    pub documents_max: Option<i64>,
}

/// What a collection was created with, and what `collMod` changed since.
#[derive(Clone, Default)]
pub struct CollectionOptions {
    /// The options as `listCollections` shows them.
    pub document: DocBuf,
    /// The bounds, where it is capped.
    pub capped: Option<Capped>,
    /// The order of strings, unless an operation names another.
    pub collation: Option<Collation>,
    /// What documents must match.
    pub validator: Option<Validator>,
    /// Documents are stored in `_id` order, with no `_id` index: the `clusteredIndex` option.
    pub clustered: Option<DocBuf>,
    /// The source of a view; a view holds no documents.
    pub view: Option<View>,
    /// What makes it a time-series collection, of which it is the view or the buckets.
    pub time_series: Option<TimeSeries>,
    /// Whether it is the oplog, whose records have their times as keys.
    pub is_oplog: bool,
    /// Whether documents are kept as they were before they were changed.
    pub has_images: bool,
}

/// What a view shows.
#[derive(Clone)]
pub struct View {
    /// The collection or view it reads, in the same database.
    pub on: String,
    /// The pipeline it runs, an array.
    pub pipeline: DocBuf,
}

impl CollectionOptions {
    /// Parses options that are stored, or that this server makes itself: a validator may have been
    /// given under any feature compatibility version, or to a Marula that took longer paths.
    ///
    /// Errors: as [`CollectionOptions::parse_new`].
    pub fn parse(options: Doc<'_>) -> Result<Self> {
        let version = FeatureVersion::NEWEST;
        Self::parse_with(options, Context { version, is_stored: true, ..Context::default() })
    }

    /// Parses the option fields of `create`, already checked for type and name by the command.
    ///
    /// Errors: what the collation and the validator raise; `capped_without_size`.
    pub fn parse_new(options: Doc<'_>, version: FeatureVersion) -> Result<Self> {
        Self::parse_with(options, Context { version, ..Context::default() })
    }

    /// Parses options, a validator in that context.
    fn parse_with(options: Doc<'_>, context: Context) -> Result<Self> {
        let collation = match options.get("collation") {
            Some(Value::Document(collation)) => Collation::parse_completed(collation, "collation")?,
            _ => None,
        };
        let capped = parse_capped(options)?;
        let clustered = match options.get("clusteredIndex") {
            Some(Value::Document(spec)) => Some(spec.to_buf()),
            // As collections of buckets say it.
            Some(Value::Boolean(true)) => Some(marula_bson::doc! {
                "v": 2, "key": { "_id": 1 }, "name": "_id_", "unique": true
            }),
            _ => None,
        };
        let time_series = match options.get("timeseries") {
            Some(Value::Document(options)) => TimeSeries::parse(options),
            _ => None,
        };
        let view = options.get("viewOn").and_then(|on| on.as_str()).map(|on| View {
            on: on.to_string(),
            pipeline: match options.get("pipeline") {
                Some(Value::Array(stages)) => stages.to_buf(),
                _ => DocBuf::new(),
            },
        });
        let validator = parse_validator(options, collation.as_ref(), context)?;
        let images = options.get("changeStreamPreAndPostImages").and_then(|images| images.as_doc());
        let has_images =
            images.and_then(|images| images.get("enabled")).is_some_and(|on| on.is_truthy());
        let document = canonical_document(options, collation.as_ref(), capped);
        Ok(CollectionOptions {
            document,
            capped,
            collation,
            validator,
            clustered,
            view,
            time_series,
            is_oplog: options.get("autoIndexId") == Some(Value::Boolean(false)),
            has_images,
        })
    }
}

fn parse_capped(options: Doc<'_>) -> Result<Option<Capped>> {
    if !options.get("capped").is_some_and(|capped| capped.is_truthy()) {
        return Ok(None);
    }
    let number = |name: &str| options.get(name).and_then(|value| value.as_f64());
    let Some(size) = number("size") else { return Err(capped_without_size()) };
    #[allow(clippy::cast_possible_truncation)]
    let (size, max) = (size as i64, number("max").map(|max| max as i64));
    if !(1..=CAPPED_BYTES_MAX).contains(&size) {
        return Err(capped_size_range("size"));
    }
    let rounded = (size + CAPPED_BYTES_STEP - 1) / CAPPED_BYTES_STEP * CAPPED_BYTES_STEP;
    Ok(Some(Capped { size_bytes_max: rounded, documents_max: max.filter(|&max| max > 0) }))
}

fn parse_validator(
    options: Doc<'_>,
    collation: Option<&Collation>,
    context: Context,
) -> Result<Option<Validator>> {
    let Some(Value::Document(filter)) = options.get("validator") else { return Ok(None) };
    if filter.is_empty() {
        return Ok(None);
    }
    let word = |name: &str| {
        options.get(name).and_then(|value| value.as_str()).map(|text| text.to_string())
    };
    let level = match word("validationLevel").as_deref() {
        Some("off") => ValidationLevel::Off,
        Some("moderate") => ValidationLevel::Moderate,
        _ => ValidationLevel::Strict,
    };
    let action = match word("validationAction").as_deref() {
        Some("warn") => ValidationAction::Warn,
        _ => ValidationAction::Error,
    };
    // `$$NOW` is when the validator was read, as in mongod.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
    let context = Context { collation: collation.cloned(), now_ms, ..context };
    validation::allowed::check(filter)?;
    let parsed = Filter::parse_validator(filter, &context)?;
    if (level == ValidationLevel::Moderate || action == ValidationAction::Warn)
        && mentions_encryption(parsed.root())
    {
        return Err(encryption_not_allowed());
    }
    let is_quick = Cost::default().add_filter(Value::Document(filter));
    let document = filter.to_buf();
    Ok(Some(Validator { filter: parsed, document, context, is_quick, level, action }))
}

/// Whether a schema in the filter has the keyword `encrypt`.
fn mentions_encryption(node: &Node) -> bool {
    match node {
        Node::Schema(schema) => schema.mentions_encryption(),
        Node::And(children) | Node::Or(children) | Node::Nor(children) => {
            children.iter().any(mentions_encryption)
        }
        Node::Not(child) => mentions_encryption(child),
        _ => false,
    }
}

/// The options as they are kept and shown: the collation whole, the capped size rounded.
fn canonical_document(
    options: Doc<'_>,
    collation: Option<&Collation>,
    capped: Option<Capped>,
) -> DocBuf {
    DocBuf::build(|out| {
        for element in options {
            match element.name.as_bytes() {
                b"collation" => {
                    if let Some(collation) = collation {
                        out.append("collation", collation.to_doc());
                    }
                }
                b"size" => {
                    if let Some(capped) = capped {
                        out.append("size", Value::whole(capped.size_bytes_max));
                    } else {
                        out.append_raw(element.name, element.value);
                    }
                }
                _ => {
                    out.append_raw(element.name, element.value);
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_path_than_filters_have_is_read_where_it_is_stored() {
        let path = ["a"; 181].join(".");
        let validator = DocBuf::build(|out| {
            out.append(path.as_str(), 1);
        });
        let options = marula_bson::doc! { "validator": validator.as_doc() };
        let asked = CollectionOptions::parse_new(options.as_doc(), FeatureVersion::NEWEST);
        assert_eq!(asked.err().map(|error| error.code().number()), Some(5_729_100));
        assert!(CollectionOptions::parse(options.as_doc()).is_ok_and(|it| it.validator.is_some()));
    }
}
