//! The options of a collection, parsed once from the fields of `create`.

use std::time::{SystemTime, UNIX_EPOCH};

use marula_bson::{ByteSlice, Doc, DocBuf, Value, long};
use marula_error::{Result, errors};
use marula_query::collation::Collation;
use marula_query::context::Context;
use marula_query::feature_version::FeatureVersion;
use marula_query::filter::{Filter, Node};
use marula_query::quick::Cost;
use marula_query::validation;

use crate::time_series::TimeSeries;

/// The maximum size of a capped collection. Source: manual "create": `size` up to 2^50 bytes.
const CAPPED_BYTES_MAX: i64 = 1 << 50;
/// Sizes of capped collections are rounded up to a multiple of this.
const CAPPED_BYTES_STEP: i64 = 256;

errors! {
    /// A capped collection has no size.
    pub capped_without_size() = InvalidOptions, "the 'size' field is required when 'capped' is true";
    /// Encryption keywords in a validator whose level or action lets invalid documents pass.
    encryption_not_allowed() = QueryFeatureNotAllowed, "Encryption-related validator keywords are not allowed in this context";
    capped_size_too_large() = BadValue, "size cannot exceed 1 PB";
    capped_size_range(field: &str) = BadValue, "BSON field 'create.{field}' value must be within the range of a capped collection";
}

/// The documents that a validator is applied to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ValidationLevel {
    /// No documents.
    Off,
    /// Inserts, and updates of documents that were valid.
    Moderate,
    /// All inserts and updates.
    #[default]
    Strict,
}

/// The consequence for a document that fails its validator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ValidationAction {
    /// It is stored, and a warning is logged.
    Warn,
    /// The write fails.
    #[default]
    Error,
}

/// A validator and its options.
#[derive(Clone)]
pub struct Validator {
    /// The filter that documents must match.
    pub filter: Filter,
    /// The filter as given.
    pub document: DocBuf,
    /// The context in which the filter was parsed.
    pub context: Context,
    /// Whether evaluating the filter is cheap.
    pub is_quick: bool,
    /// The documents that it is applied to.
    pub level: ValidationLevel,
    /// The consequence of a failure.
    pub action: ValidationAction,
}

/// The limits of a capped collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capped {
    /// The maximum total size of documents.
    pub size_bytes_max: i64,
    /// The maximum number of documents; `None` means no limit.
    pub documents_max: Option<i64>,
}

/// The options of a collection, including changes by `collMod`.
#[derive(Clone, Default)]
pub struct CollectionOptions {
    /// The options as shown by `listCollections`.
    pub document: DocBuf,
    /// The limits of a capped collection.
    pub capped: Option<Capped>,
    /// The default collation.
    pub collation: Option<Collation>,
    /// The validator.
    pub validator: Option<Validator>,
    /// The `clusteredIndex` option: documents are stored in `_id` order, without an `_id` index.
    pub clustered: Option<DocBuf>,
    /// The definition of a view; a view has no documents.
    pub view: Option<View>,
    /// The time-series options; the collection is either the view or the buckets.
    pub time_series: Option<TimeSeries>,
    /// Whether the collection is the oplog, whose record keys are times.
    pub is_oplog: bool,
    /// Whether pre-images of changed documents are kept.
    pub has_images: bool,
}

/// The definition of a view.
#[derive(Clone)]
pub struct View {
    /// The collection or view that the view reads, in the same database.
    pub on: String,
    /// The pipeline, an array.
    pub pipeline: DocBuf,
}

impl CollectionOptions {
    /// Parses options that are stored or made by the server: a validator may have been accepted
    /// under any feature compatibility version, or by a Marula with a higher limit on path length.
    ///
    /// Errors: as [`CollectionOptions::parse_new`].
    pub fn parse(options: Doc<'_>) -> Result<Self> {
        let version = FeatureVersion::NEWEST;
        Self::parse_with(options, Context { version, is_stored: true, ..Context::default() })
    }

    /// Parses the option fields of `create`, whose types and names the command has checked.
    ///
    /// Errors: those of the collation and the validator; `capped_without_size`.
    pub fn parse_new(options: Doc<'_>, version: FeatureVersion) -> Result<Self> {
        Self::parse_with(options, Context { version, ..Context::default() })
    }

    /// Parses options; `context` applies to the validator.
    fn parse_with(options: Doc<'_>, context: Context) -> Result<Self> {
        let collation = match options.get("collation") {
            Some(Value::Document(collation)) => {
                Collation::parse_completed(collation, "create.collation")?
            }
            _ => None,
        };
        let capped = parse_capped(options)?;
        let clustered = match options.get("clusteredIndex") {
            Some(Value::Document(spec)) => Some(spec.to_buf()),
            // The form in the options of bucket collections.
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
    match size {
        ..1 => return Err(capped_size_range("size")),
        1..=CAPPED_BYTES_MAX => {}
        _ => return Err(capped_size_too_large()),
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
    // As in mongod, `$$NOW` is the time when the validator was parsed.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = long(now.as_millis());
    let context = Context { collation: collation.cloned(), now_ms, ..context };
    validation::allowed::check(filter)?;
    let parsed = Filter::parse_as_written(filter, &context)?;
    if (level == ValidationLevel::Moderate || action == ValidationAction::Warn)
        && mentions_encryption(parsed.root())
    {
        return Err(encryption_not_allowed());
    }
    let is_quick = Cost::default().add_filter(Value::Document(filter));
    let document = filter.to_buf();
    Ok(Some(Validator { filter: parsed, document, context, is_quick, level, action }))
}

/// Returns whether a schema in the filter has the keyword `encrypt`.
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

/// The options as stored and shown: the collation completed, the capped size rounded.
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
