//! What an index is: its key pattern and its options, parsed once from the document that `createIndexes`
//! takes and `listIndexes` shows.

use marula_bson::{ByteSlice, Doc, DocBuf, FieldPath, Type, Value};
use marula_error::{Result, errors};
use marula_query::collation::Collation;
use marula_query::context::Context;
use marula_query::filter::Filter;

use crate::namespace::Namespace;

/// The most fields of a compound index. Source: manual "MongoDB Limits and Thresholds".
pub const PARTS_MAX: usize = 32;

errors! {
    key_empty() = CannotCreateIndex, "Index keys cannot be an empty object";
    too_many_parts() = 13_103, "too many compound keys";
    key_value_type(value: &str, kind: &str) = CannotCreateIndex, "Values in v:2 index key pattern cannot be of type {kind}. Only numbers > 0, numbers < 0, and strings are allowed.";
    key_value_zero() = CannotCreateIndex, "Values in the index key pattern cannot be 0.";
    unknown_kind(name: &str) = CannotCreateIndex, "Unknown index plugin '{name}'";
    key_empty_field() = CannotCreateIndex, "Index keys cannot be an empty field.";
    key_dollar_field() = CannotCreateIndex, "Index key contains an illegal field name: field name starts with '$'.";
    unsupported_kind(name: &str) = CannotCreateIndex, "Index kind '{name}' is not available on this server";
    unknown_option(field: &str, spec: &str) = InvalidIndexSpecificationOption, "The field '{field}' is not valid for an index specification. Specification: {spec}";
    wrong_type(field: &str, kind: &str, wanted: &str) = TypeMismatch, "The field '{field}' must be {wanted}, but got {kind}";
    sparse_and_partial() = CannotCreateIndex, "cannot mix \"partialFilterExpression\" and \"sparse\" options";
    id_partial() = InvalidIndexSpecificationOption, "_id index cannot be a partial index";
    id_sparse() = InvalidIndexSpecificationOption, "_id index cannot be a sparse index";
    id_option(field: &str, spec: &str) = InvalidIndexSpecificationOption, "The field '{field}' is not valid for an _id index specification. Specification: {spec}";
    missing_key() = FailedToParse, "The 'key' field is a required property of an index specification";
    missing_name() = FailedToParse, "The 'name' field is a required property of an index specification";
    bad_version(version: i64) = CannotCreateIndex, "Invalid index specification: cannot create an index with version {version}; only versions 1 and 2 are supported";
    name_empty() = CannotCreateIndex, "The index name cannot be empty";
    id_hidden() = BadValue, "can't hide _id index";
}

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
    /// The key pattern as it was given, such as `{ a: 1, b: -1 }`.
    pub key: DocBuf,
    /// The key pattern, parsed.
    pub parts: Vec<KeyPart>,
    /// No two documents may share a key.
    pub unique: bool,
    /// Documents without any of the fields have no entry.
    pub sparse: bool,
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

/// The options an index specification may hold, in the order `listIndexes` shows them.
const OPTIONS: &[&str] = &[
    "v",
    "unique",
    "key",
    "name",
    "ns",
    "background",
    "sparse",
    "hidden",
    "expireAfterSeconds",
    "partialFilterExpression",
    "collation",
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
    "wildcardProjection",
    "clustered",
    "prepareUnique",
    "dropDups",
];

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
    /// Shape: `{ key: { <field>: 1 | -1, … }, name: <string>, …options }`.
    /// Errors: this module's rows.
    pub fn parse(spec: Doc<'_>, default_collation: Option<&Collation>) -> Result<Self> {
        for element in spec {
            if !OPTIONS.iter().any(|option| element.name == *option) {
                return Err(unknown_option(&element.name.to_string(), &spec.to_string()));
            }
        }
        let key = match spec.get("key") {
            Some(Value::Document(key)) => key,
            Some(other) => return Err(wrong_type("key", other.kind().alias(), "an object")),
            None => return Err(missing_key()),
        };
        let parts = parse_key_pattern(key)?;
        let name = match spec.get("name") {
            Some(Value::String(name)) if name.is_empty() => return Err(name_empty()),
            Some(Value::String(name)) => name.to_string(),
            Some(other) => return Err(wrong_type("name", other.kind().alias(), "a string")),
            None => return Err(missing_name()),
        };
        check_version(spec)?;
        let is_id = is_id_pattern(key);
        let flag = |field: &str| -> Result<bool> {
            match spec.get(field) {
                None => Ok(false),
                Some(value) if value.kind().is_number() || value.kind() == Type::Boolean => {
                    Ok(value.is_truthy())
                }
                Some(other) => Err(wrong_type(field, other.kind().alias(), "a boolean")),
            }
        };
        let collation = match spec.get("collation") {
            Some(Value::Document(collation)) => Collation::parse(collation, "collation")?,
            Some(other) => return Err(wrong_type("collation", other.kind().alias(), "an object")),
            None => default_collation.cloned(),
        };
        let partial = match spec.get("partialFilterExpression") {
            Some(Value::Document(filter)) => {
                let context = Context { collation: collation.clone(), ..Context::default() };
                Some(Filter::parse(filter, &context)?)
            }
            Some(other) => {
                return Err(wrong_type(
                    "partialFilterExpression",
                    other.kind().alias(),
                    "an object",
                ));
            }
            None => None,
        };
        let (unique, sparse, hidden) = (flag("unique")?, flag("sparse")?, flag("hidden")?);
        let expire_after_seconds = match spec.get("expireAfterSeconds") {
            None => None,
            Some(value) if value.kind().is_number() =>
            {
                #[allow(clippy::cast_possible_truncation)]
                Some(value.as_f64().unwrap_or(0.0) as i64)
            }
            Some(other) => {
                return Err(wrong_type("expireAfterSeconds", other.kind().alias(), "a number"));
            }
        };
        if sparse && partial.is_some() {
            return Err(sparse_and_partial());
        }
        if is_id {
            check_id_options(spec, partial.is_some(), sparse, hidden)?;
        }
        let name = if is_id { "_id_".to_owned() } else { name };
        let document = canonical_document(spec, &name, is_id, unique, collation.as_ref());
        Ok(IndexSpec {
            name,
            key: key.to_buf(),
            parts,
            unique: unique || is_id,
            sparse,
            hidden,
            partial,
            collation,
            expire_after_seconds,
            document,
        })
    }

    /// Whether a specification may hold this field.
    pub fn is_option(name: &[u8]) -> bool {
        OPTIONS.iter().any(|option| option.as_bytes() == name)
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

    /// Whether two specifications build the same index: what they are called aside.
    pub fn same_index(&self, other: &IndexSpec) -> bool {
        self.same_signature(other)
            && self.unique == other.unique
            && self.sparse == other.sparse
            && self.expire_after_seconds == other.expire_after_seconds
    }

    /// Whether two specifications have the same key pattern, collation and partial filter: those three
    /// together may exist once in a collection.
    pub fn same_signature(&self, other: &IndexSpec) -> bool {
        let field = |spec: &IndexSpec, name: &str| {
            spec.document.as_doc().get_raw(name.as_bytes()).map(|raw| raw.to_buf())
        };
        same_pattern(self.key.as_doc(), other.key.as_doc())
            && field(self, "collation") == field(other, "collation")
            && field(self, "partialFilterExpression") == field(other, "partialFilterExpression")
    }
}

/// Whether two key patterns are the same: fields, directions and kinds; 1 and 1.0 do not differ.
pub fn same_pattern(a: Doc<'_>, b: Doc<'_>) -> bool {
    marula_bson::order::compare_docs(a, b, None).is_eq()
}

fn is_id_pattern(key: Doc<'_>) -> bool {
    let mut fields = key.iter();
    match (fields.next(), fields.next()) {
        (Some(only), None) => {
            only.name == "_id" && only.value.get().as_f64().is_some_and(|direction| direction > 0.0)
        }
        _ => false,
    }
}

fn parse_key_pattern(key: Doc<'_>) -> Result<Vec<KeyPart>> {
    if key.is_empty() {
        return Err(key_empty());
    }
    let mut parts = Vec::new();
    for element in key {
        if parts.len() == PARTS_MAX {
            return Err(too_many_parts());
        }
        let value = element.value.get();
        let descending = match value {
            Value::String(kind) => match kind.to_string().as_str() {
                known @ ("2d" | "2dsphere" | "text" | "hashed") => {
                    return Err(unsupported_kind(known));
                }
                unknown => return Err(unknown_kind(unknown)),
            },
            _ => match value.as_f64() {
                Some(0.0) => return Err(key_value_zero()),
                Some(number) if !number.is_nan() => number < 0.0,
                _ => return Err(key_value_type(&value.to_string(), value.kind().alias())),
            },
        };
        if element.name.is_empty() || element.name.split(|&byte| byte == b'.').any(<[u8]>::is_empty)
        {
            return Err(key_empty_field());
        }
        // DBRef's own fields are the names with a dollar that may be indexed.
        if element.name.split(|&byte| byte == b'.').any(|part| {
            part.starts_with(b"$") && !matches!(part, b"$id" | b"$ref" | b"$db" | b"$**")
        }) {
            return Err(key_dollar_field());
        }
        if element.name.ends_with(b"$**") {
            return Err(unsupported_kind("wildcard"));
        }
        parts.push(KeyPart { path: FieldPath::new(element.name), descending });
    }
    Ok(parts)
}

fn check_version(spec: Doc<'_>) -> Result<()> {
    match spec.get("v") {
        None => Ok(()),
        Some(value) => match value.as_exact_i64() {
            Some(1 | 2) => Ok(()),
            Some(version) => Err(bad_version(version)),
            None => Err(wrong_type("v", value.kind().alias(), "a number")),
        },
    }
}

fn check_id_options(spec: Doc<'_>, partial: bool, sparse: bool, hidden: bool) -> Result<()> {
    if partial {
        return Err(id_partial());
    }
    if sparse {
        return Err(id_sparse());
    }
    if hidden {
        return Err(id_hidden());
    }
    let allowed = ["v", "key", "name", "ns", "collation", "background"];
    for element in spec {
        if !allowed.iter().any(|option| element.name == *option) {
            return Err(id_option(&element.name.to_string(), &spec.to_string()));
        }
    }
    Ok(())
}

/// The specification as it is kept and shown: version first, no deprecated fields, the collation whole.
fn canonical_document(
    spec: Doc<'_>,
    name: &str,
    is_id: bool,
    unique: bool,
    collation: Option<&Collation>,
) -> DocBuf {
    DocBuf::build(|out| {
        match spec.get("v").and_then(|v| v.as_exact_i64()) {
            Some(1) => out.append("v", 1),
            _ => out.append("v", 2),
        };
        for element in spec {
            match element.name.as_bytes() {
                b"v" | b"ns" | b"collation" | b"dropDups" => {}
                b"unique" if is_id || !unique => {}
                b"unique" => {
                    out.append("unique", true);
                }
                b"sparse" | b"hidden" | b"background" if !element.value.get().is_truthy() => {
                    // listIndexes shows `sparse: false` and `background: false` as given, hidden never.
                    if element.name != "hidden" {
                        out.append_raw(element.name, element.value);
                    }
                }
                b"name" => {
                    out.append("name", name);
                }
                _ => {
                    out.append_raw(element.name, element.value);
                }
            }
        }
        if let Some(collation) = collation {
            out.append("collation", collation.to_doc());
        }
    })
}

/// What `dropIndexes`, `hint` and `collMod` call an index.
pub fn describe(ns: &Namespace, spec: &IndexSpec) -> String {
    format!("{ns}.{}", spec.name)
}
