//! What an index is: its key pattern and its options, parsed once from the document that `createIndexes`
//! takes and `listIndexes` shows.

use marula_bson::{ByteSlice, Doc, DocBuf, FieldPath, Type, Value, ValueBuf};
use marula_error::{Result, errors};
use marula_query::collation::Collation;
use marula_query::context::Context;
use marula_query::filter::{Filter, Node, Predicate};
use marula_query::validation::allowed::near_not_allowed;

/// The most fields of a compound index. Source: manual "MongoDB Limits and Thresholds".
pub const PARTS_MAX: usize = 32;

errors! {
    key_empty() = CannotCreateIndex, "Index keys cannot be empty.";
    too_many_parts() = 13_103, "too many compound keys";
    key_value_type(kind: &str) = CannotCreateIndex, "Values in v:2 index key pattern cannot be of type {kind}. Only numbers > 0, numbers < 0, and strings are allowed.";
    key_value_zero() = CannotCreateIndex, "Values in the index key pattern cannot be 0.";
    unknown_kind(name: &str) = CannotCreateIndex, "Unknown index plugin '{name}'";
    key_value_nan() = CannotCreateIndex, "Values in the index key pattern cannot be NaN.";
    key_value_empty() = CannotCreateIndex, "Values in the index key pattern cannot be empty strings";
    haystack() = CannotCreateIndex, "GeoHaystack indexes cannot be created in version 5.0 and above";
    key_empty_field() = CannotCreateIndex, "Index keys cannot be an empty field.";
    key_empty_component() = CannotCreateIndex, "Index keys cannot contain an empty field.";
    two_hashed(count: usize, key: &Doc<'_>) = 31_303, "A maximum of one index field is allowed to be hashed but found {count} for 'key' {key}";
    hashed_unique() = 16_764, "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.";
    wildcard_negative() = CannotCreateIndex, "A numeric value in a $** index key pattern must be positive.";
    wildcard_compound() = CannotCreateIndex, "wildcard indexes do not allow compounding";
    wildcard_option(option: &str) = CannotCreateIndex, "Index type 'wildcard' does not support the {option} option";
    wildcard_ttl() = CannotCreateIndex, "Index type 'wildcard' cannot be a TTL index";
    projection_without_wildcard() = BadValue, "The field 'wildcardProjection' is only allowed in an 'wildcard' index";
    projection_on_path() = FailedToParse, "The field 'wildcardProjection' is only allowed when 'key' is {{\"$**\": ±1}}";
    projection_empty() = FailedToParse, "The 'wildcardProjection' field can't be an empty object";
    weights_without_text(spec: &Doc<'_>) = CannotCreateIndex, "Invalid index specification {spec}; the field 'weights' can only be specified with text indexes";
    clustered_needs_unique() = CannotCreateIndex, "The 'unique' field is required when 'clustered' is specified";
    clustered_false() = 6_492_800, "Value 'false' for field 'clustered' is invalid";
    clustered_later() = CannotCreateIndex, "a collection that exists cannot become clustered";
    not_boolean(field: &str, value: &Value<'_>) = TypeMismatch, "The field '{field} has value {field}: {value}, which is not convertible to bool";
    engine_empty() = CannotCreateIndex, "Empty \"storageEngine\" options are invalid. Please remove the field or include valid options.";
    engine_type() = CannotCreateIndex, "\"storageEngine\" options must be a document if present";
    engine_unknown(name: &str) = InvalidOptions, "{name} is not a registered storage engine for this server";
    collation_empty() = BadValue, "The field 'collation' cannot be an empty object.";
    version_fraction(version: &Value<'_>) = BadValue, "Index version must be representable as a 32-bit integer, but got {version}";
    id_key(key: &Doc<'_>) = BadValue, "The field 'key' for an _id index must be {{_id: 1}}, but got {key}";
    not_in_partial(expression: &Doc<'_>) = CannotCreateIndex, "Expression not supported in partial index: {expression}";
    not_allowed_here(what: &str) = QueryFeatureNotAllowed, "{what} is not allowed in this context";
    special_not_allowed(what: &str) = BadValue, "{what} is not allowed in this context";
    key_dollar_field() = CannotCreateIndex, "Index key contains an illegal field name: field name starts with '$'.";
    unsupported_kind(name: &str) = CannotCreateIndex, "Index kind '{name}' is not available on this server";
    unknown_option(field: &str, spec: &str) = InvalidIndexSpecificationOption, "The field '{field}' is not valid for an index specification. Specification: {spec}";
    wrong_type(field: &str, kind: &str, wanted: &str) = TypeMismatch, "The field '{field}' must be {wanted}, but got {kind}";
    sparse_and_partial() = CannotCreateIndex, "cannot mix \"partialFilterExpression\" and \"sparse\" options";
    id_option(field: &str, spec: &str) = InvalidIndexSpecificationOption, "The field '{field}' is not valid for an _id index specification. Specification: {spec}";
    missing_key() = FailedToParse, "The 'key' field is a required property of an index specification";
    missing_name() = FailedToParse, "The 'name' field is a required property of an index specification";
    bad_version(spec: &Doc<'_>, version: i64) = CannotCreateIndex, "Invalid index specification {spec}; cannot create an index with v={version}";
    name_empty() = CannotCreateIndex, "index name cannot be empty";
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
        let kind = parse_key_pattern(key)?;
        let name = match spec.get("name") {
            Some(Value::String(name)) if name.is_empty() => return Err(name_empty()),
            Some(Value::String(name)) => name.to_string(),
            Some(other) => return Err(wrong_type("name", other.kind().alias(), "a string")),
            None => return Err(missing_name()),
        };
        check_version(spec)?;
        check_other_options(spec, &kind)?;
        let is_id = is_id_pattern(key);
        let flag = |field: &str| -> Result<bool> {
            match spec.get(field) {
                None => Ok(false),
                Some(value) if value.kind().is_number() || value.kind() == Type::Boolean => {
                    Ok(value.is_truthy())
                }
                Some(other) => Err(not_boolean(field, &other)),
            }
        };
        flag("background")?;
        let hidden = match spec.get("hidden") {
            None => false,
            Some(Value::Boolean(hidden)) => hidden,
            // mongod names the wrong field here.
            Some(other) => return Err(wrong_type("name", other.kind().alias(), "a bool")),
        };
        let collation = match spec.get("collation") {
            Some(Value::Document(collation)) if collation.is_empty() => {
                return Err(collation_empty());
            }
            Some(Value::Document(collation)) => Collation::parse(collation, "collation")?,
            Some(other) => return Err(wrong_type("collation", other.kind().alias(), "an object")),
            None => default_collation.cloned(),
        };
        let partial = match spec.get("partialFilterExpression") {
            Some(Value::Document(filter)) => {
                let context = Context { collation: collation.clone(), ..Context::default() };
                check_partial_text(filter)?;
                let filter = Filter::parse(filter, &context)?;
                check_partial(filter.root())?;
                Some(filter)
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
        let (unique, sparse) = (flag("unique")?, flag("sparse")?);
        let expire_after_seconds = match spec.get("expireAfterSeconds") {
            None => None,
            Some(value) if value.kind().is_number() => Some(expire_seconds(value)),
            Some(other) => {
                return Err(wrong_type("expireAfterSeconds", other.kind().alias(), "a number"));
            }
        };
        if sparse && partial.is_some() {
            return Err(sparse_and_partial());
        }
        if is_id {
            check_id_options(spec)?;
        } else if key.iter().count() == 1
            && key.iter().all(|part| part.name == "_id" && part.value.kind().is_number())
        {
            return Err(id_key(&key));
        }
        let parts = kind.into_parts(unique, sparse, expire_after_seconds.is_some(), spec)?;
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

    /// Whether two specifications of one signature build the same index: what they are called aside.
    pub fn same_options(&self, other: &IndexSpec) -> bool {
        self.expire_after_seconds == other.expire_after_seconds
            && self.field("storageEngine") == other.field("storageEngine")
    }

    /// Whether two specifications have the same key pattern, collation, partial filter, and are unique and sparse
    /// alike: those together may exist once in a collection.
    pub fn same_signature(&self, other: &IndexSpec) -> bool {
        same_pattern(self.key.as_doc(), other.key.as_doc())
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

fn is_id_pattern(key: Doc<'_>) -> bool {
    let mut fields = key.iter();
    match (fields.next(), fields.next()) {
        (Some(only), None) => only.name == "_id" && only.value.get().as_f64() == Some(1.0),
        _ => false,
    }
}

/// What a key pattern asks for.
enum PatternKind {
    /// An ordinary index.
    Ordinary(Vec<KeyPart>),
    /// An index over every path under a prefix; whether the prefix is empty.
    Wildcard { whole: bool },
    /// A kind of index with a name of its own, and how many fields are hashed.
    Named { name: String, hashed: usize },
}

impl PatternKind {
    /// The parts of an ordinary index.
    ///
    /// Errors: what the kind does not go with; that the kind is not to be had.
    fn into_parts(
        self,
        unique: bool,
        sparse: bool,
        expires: bool,
        spec: Doc<'_>,
    ) -> Result<Vec<KeyPart>> {
        match self {
            PatternKind::Ordinary(parts) => Ok(parts),
            PatternKind::Wildcard { .. } if unique => Err(wildcard_option("unique")),
            PatternKind::Wildcard { .. } if sparse => Err(wildcard_option("sparse")),
            PatternKind::Wildcard { .. } if expires => Err(wildcard_ttl()),
            PatternKind::Wildcard { .. } => Err(unsupported_kind("wildcard")),
            PatternKind::Named { hashed: 2.., .. } => {
                let key = spec.get("key").and_then(|key| key.as_doc()).unwrap_or(Doc::EMPTY);
                let is_hashed = |value: &Value<'_>| *value == Value::String("hashed".into());
                Err(two_hashed(key.values().filter(is_hashed).count(), &key))
            }
            PatternKind::Named { hashed: 1, .. } if unique => Err(hashed_unique()),
            PatternKind::Named { name, .. } => Err(unsupported_kind(&name)),
        }
    }
}

fn parse_key_pattern(key: Doc<'_>) -> Result<PatternKind> {
    if key.is_empty() {
        return Err(key_empty());
    }
    let mut parts = Vec::new();
    let mut named: Option<(String, usize)> = None;
    let mut wildcard = None;
    for element in key {
        if parts.len() == PARTS_MAX {
            return Err(too_many_parts());
        }
        let value = element.value.get();
        let mut is_named = false;
        let descending = match value {
            Value::String(kind) => match kind.to_string().as_str() {
                known @ ("2d" | "2dsphere" | "text" | "hashed") => {
                    is_named = true;
                    let (_, hashed) = named.get_or_insert_with(|| (known.to_owned(), 0));
                    *hashed += usize::from(known == "hashed");
                    false
                }
                "" => return Err(key_value_empty()),
                "geoHaystack" => return Err(haystack()),
                unknown => return Err(unknown_kind(unknown)),
            },
            _ => match value.as_f64() {
                Some(0.0) => return Err(key_value_zero()),
                Some(number) if number.is_nan() => return Err(key_value_nan()),
                Some(number) => number < 0.0,
                None => return Err(key_value_type(value.kind().alias())),
            },
        };
        if element.name.is_empty() {
            return Err(key_empty_field());
        }
        if element.name.split(|&byte| byte == b'.').any(<[u8]>::is_empty) {
            return Err(key_empty_component());
        }
        let is_wildcard = element.name == "$**" || element.name.ends_with(b".$**");
        if is_wildcard && !is_named {
            if descending {
                return Err(wildcard_negative());
            }
            wildcard = Some(element.name == "$**");
        }
        let path = element.name.strip_suffix(b"$**").filter(|_| is_wildcard && !is_named);
        // DBRef's own fields are the names with a dollar that may be indexed.
        if path
            .unwrap_or(element.name)
            .split(|&byte| byte == b'.')
            .any(|part| part.starts_with(b"$") && !matches!(part, b"$id" | b"$ref" | b"$db"))
        {
            return Err(key_dollar_field());
        }
        parts.push(KeyPart { path: FieldPath::new(element.name), descending });
    }
    match (wildcard, named) {
        (Some(_), _) if parts.len() > 1 => Err(wildcard_compound()),
        (Some(whole), _) => Ok(PatternKind::Wildcard { whole }),
        (None, Some((name, hashed))) => Ok(PatternKind::Named { name, hashed }),
        (None, None) => Ok(PatternKind::Ordinary(parts)),
    }
}

/// Options of an ordinary index that say nothing of it: checked as numbers, and not kept.
const NUMBERS_NOT_KEPT: &[&str] =
    &["min", "max", "bits", "2dsphereIndexVersion", "textIndexVersion"];

/// Checks the options that only some kinds of indexes have.
fn check_other_options(spec: Doc<'_>, kind: &PatternKind) -> Result<()> {
    for field in NUMBERS_NOT_KEPT {
        if let Some(value) = spec.get(field)
            && !value.kind().is_number()
        {
            return Err(wrong_type(field, value.kind().alias(), "a number"));
        }
    }
    match (spec.get("wildcardProjection"), kind) {
        (None, _) => {}
        (Some(_), PatternKind::Wildcard { whole: false }) => return Err(projection_on_path()),
        (Some(Value::Document(projection)), PatternKind::Wildcard { .. })
            if projection.is_empty() =>
        {
            return Err(projection_empty());
        }
        (Some(Value::Document(_)), PatternKind::Wildcard { .. }) => {}
        (Some(other), PatternKind::Wildcard { .. }) => {
            return Err(wrong_type(
                "wildcardProjection",
                other.kind().alias(),
                "a non-empty object",
            ));
        }
        (Some(_), _) => return Err(projection_without_wildcard()),
    }
    let is_text = matches!(kind, PatternKind::Named { name, .. } if name == "text");
    if spec.get("weights").is_some() && !is_text {
        return Err(weights_without_text(&spec));
    }
    match spec.get("clustered") {
        None => {}
        Some(value) if !value.is_truthy() => return Err(clustered_false()),
        Some(_) if spec.get("unique").is_none() => return Err(clustered_needs_unique()),
        Some(_) => return Err(clustered_later()),
    }
    match spec.get("storageEngine") {
        None => Ok(()),
        Some(Value::Document(engines)) if engines.is_empty() => Err(engine_empty()),
        Some(Value::Document(engines)) => {
            // Options for mongod's engine are taken and kept, as a dump of its collections brings them along.
            let other = engines.iter().find(|engine| engine.name != "wiredTiger");
            other.map_or(Ok(()), |engine| Err(engine_unknown(&engine.name.to_string())))
        }
        Some(_) => Err(engine_type()),
    }
}

/// The seconds of `expireAfterSeconds`: what is no number is the most.
fn expire_seconds(value: Value<'_>) -> i64 {
    match value.as_f64() {
        Some(seconds) if !seconds.is_nan() => {
            #[allow(clippy::cast_possible_truncation)]
            let seconds = seconds as i64;
            seconds
        }
        _ => i64::from(i32::MAX),
    }
}

/// Checks the operators of a partial filter that are refused before it is parsed.
fn check_partial_text(filter: Doc<'_>) -> Result<()> {
    for element in filter {
        let value = element.value.get();
        match element.name.as_bytes() {
            b"$expr" => return Err(not_allowed_here("$expr")),
            b"$jsonSchema" => return Err(not_allowed_here("$jsonSchema")),
            b"$where" => return Err(special_not_allowed("$where")),
            b"$text" => return Err(special_not_allowed("$text")),
            b"$and" | b"$or" | b"$nor" => {
                let children = value.as_array().unwrap_or(Doc::EMPTY);
                children
                    .values()
                    .filter_map(|child| child.as_doc())
                    .try_for_each(check_partial_text)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that a partial filter is made of what an index can be chosen by: comparisons, `$in`, `$exists: true`,
/// `$type`, and `$and` and `$or` of these. Source: manual "Partial Indexes".
fn check_partial(node: &Node) -> Result<()> {
    match node {
        Node::And(children) | Node::Or(children) => children.iter().try_for_each(check_partial),
        Node::AlwaysTrue => Ok(()),
        Node::Path(path) => match &path.predicate {
            Predicate::Compare(_) | Predicate::Exists | Predicate::Type(_) | Predicate::Geo(_) => {
                Ok(())
            }
            Predicate::Near(_) => Err(near_not_allowed()),
            Predicate::In(list) if list.regexes().is_empty() => Ok(()),
            Predicate::All(all) if all.iter().all(|one| matches!(one, Predicate::Compare(_))) => {
                Ok(())
            }
            _ => Err(not_in_partial(&node.to_doc().as_doc())),
        },
        _ => Err(not_in_partial(&node.to_doc().as_doc())),
    }
}

fn check_version(spec: Doc<'_>) -> Result<()> {
    match spec.get("v") {
        None => Ok(()),
        Some(value) => match value.as_exact_i64() {
            Some(1) if spec.get("collation").is_some() => Err(bad_version(&spec, 1)),
            Some(1 | 2) => Ok(()),
            Some(version) => Err(bad_version(&spec, version)),
            None if value.kind().is_number() => Err(version_fraction(&value)),
            None => Err(wrong_type("v", value.kind().alias(), "a number")),
        },
    }
}

fn check_id_options(spec: Doc<'_>) -> Result<()> {
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
                name if NUMBERS_NOT_KEPT.iter().any(|option| name == option.as_bytes()) => {}
                b"expireAfterSeconds" => {
                    let seconds = expire_seconds(element.value.get());
                    match i32::try_from(seconds) {
                        Ok(small) => out.append("expireAfterSeconds", small),
                        Err(_) => out.append("expireAfterSeconds", seconds),
                    };
                }
                b"bucketSize" => {
                    out.append("bucketSize", element.value.get().as_f64().unwrap_or(0.0));
                }
                b"sparse" | b"background" | b"prepareUnique" if element.value.get().is_truthy() => {
                    out.append(element.name, true);
                }
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
