//! What an index is: its key pattern and its options, parsed once from the document that `createIndexes`
//! takes and `listIndexes` shows.

use marula_bson::{ByteSlice, Doc, DocBuf, FieldPath, Type, Value, ValueBuf};
use marula_error::{Error, Result, errors};
use marula_query::collation::Collation;
use marula_query::context::Context;
use marula_query::feature_version::FeatureVersion;
use marula_query::filter::{Filter, Node, Predicate};
use marula_query::validation::allowed::near_not_allowed;

use super::kind::{IndexKind, write_place_options};
use super::pattern::{Pattern, Plugin};
use super::text::TextIndex;
use super::wildcard::{Wildcard, is_every_path};

errors! {
    projection_without_wildcard() = BadValue, "The field 'wildcardProjection' is only allowed in an 'wildcard' index";
    projection_on_path() = FailedToParse, "The field 'wildcardProjection' is only allowed when 'key' is {{\"$**\": ±1}}";
    projection_empty() = FailedToParse, "The 'wildcardProjection' field can't be an empty object";
    weights_without_text(spec: &Doc<'_>) = CannotCreateIndex, "Invalid index specification {spec}; the field 'weights' can only be specified with text indexes";
    wildcard_version(key: &Doc<'_>) = CannotCreateIndex, "bad index key pattern {key}: 'wildcard' index plugin is not allowed with index version v:1";
    ttl_negative(spec: &Doc<'_>) = CannotCreateIndex, "TTL index 'expireAfterSeconds' option cannot be less than 0. Index spec: {spec}";
    ttl_too_large(spec: &Doc<'_>) = CannotCreateIndex, "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a lower number. Index spec: {spec}";
    ttl_type(kind: &str, spec: &Doc<'_>) = CannotCreateIndex, "TTL index 'expireAfterSeconds' option must be numeric, but received a type of '{kind}'. Index spec: {spec}";
    ttl_compound(spec: &Doc<'_>) = CannotCreateIndex, "TTL indexes are single-field indexes, compound indexes do not support TTL. Index spec: {spec}";
    clustered_needs_unique() = CannotCreateIndex, "The 'unique' field is required when 'clustered' is specified";
    clustered_false() = 6_492_800, "Value 'false' for field 'clustered' is invalid";
    clustered_later() = 6_243_700, "Cannot create index with option 'clustered' that does not match an existing clustered index";
    not_boolean(field: &str, value: &Value<'_>) = TypeMismatch, "The field '{field} has value {field}: {value}, which is not convertible to bool";
    engine_empty() = CannotCreateIndex, "Empty \"storageEngine\" options are invalid. Please remove the field or include valid options.";
    engine_type() = CannotCreateIndex, "\"storageEngine\" options must be a document if present";
    engine_unknown(name: &str) = InvalidOptions, "{name} is not a registered storage engine for this server";
    original_empty() = BadValue, "The field 'originalSpec' cannot be an empty object.";
    collation_empty() = BadValue, "The field 'collation' cannot be an empty object.";
    version_fraction(version: &Value<'_>) = BadValue, "Index version must be representable as a 32-bit integer, but got {version}";
    id_key(key: &Doc<'_>) = BadValue, "The field 'key' for an _id index must be {{_id: 1}}, but got {key}";
    not_in_partial(expression: &Doc<'_>) = CannotCreateIndex, "Expression not supported in partial index: {expression}";
    not_allowed_here(what: &str) = QueryFeatureNotAllowed, "{what} is not allowed in this context";
    special_not_allowed(what: &str) = BadValue, "{what} is not allowed in this context";
    unknown_option(field: &str, spec: &str) = InvalidIndexSpecificationOption, "The field '{field}' is not valid for an index specification. Specification: {spec}";
    wrong_type(field: &str, kind: &str, wanted: &str) = TypeMismatch, "The field '{field}' must be {wanted}, but got {kind}";
    sparse_and_partial() = CannotCreateIndex, "cannot mix \"partialFilterExpression\" and \"sparse\" options";
    id_option(field: &str, spec: &str) = InvalidIndexSpecificationOption, "The field '{field}' is not valid for an _id index specification. Specification: {spec}";
    missing_key() = FailedToParse, "The 'key' field is a required property of an index specification";
    missing_name() = FailedToParse, "The 'name' field is a required property of an index specification";
    bad_version(spec: &Doc<'_>, version: i64) = CannotCreateIndex, "Invalid index specification {spec}; cannot create an index with v={version}";
    name_empty() = CannotCreateIndex, "index name cannot be empty";
    unique_and_prepared(spec: &Doc<'_>) = CannotCreateIndex, "Invalid index specification {spec}; cannot create an index with the 'unique' option and the 'prepareUnique' option";
    name_nul() = CannotCreateIndex, "index name cannot contain NUL bytes";
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
    /// How keys are made of a document.
    pub kind: IndexKind,
    /// The key pattern as it is shown, such as `{ a: 1, b: -1 }`.
    pub key: DocBuf,
    /// The key pattern, parsed.
    pub parts: Vec<KeyPart>,
    /// No two documents may share a key.
    pub unique: bool,
    /// No write may add a key that another document has, though documents may share keys from before: what comes
    /// ahead of making the index unique.
    pub prepare_unique: bool,
    /// Documents without any of the fields have no entry.
    pub sparse: bool,
    /// Its fields may hold arrays side by side, each of which multiplies a document's keys. An option of Marula's own.
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

/// The options an index specification may hold.
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
    "finestIndexedLevel",
    "coarsestIndexedLevel",
    "prepareUnique",
    "dropDups",
    "originalSpec",
    PARALLEL_ARRAYS,
];

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
    /// Errors: this module's rows, and those of `pattern` and of the kind.
    pub fn parse(spec: Doc<'_>, default_collation: Option<&Collation>) -> Result<Self> {
        let mut draft = Draft::read(spec, default_collation, FeatureVersion::NEWEST)?;
        if let Some(failure) = draft.collation_failure.take() {
            return Err(failure);
        }
        check_id(draft.key, spec)?;
        let index = draft.resolve(spec)?;
        index.kind.check_build(&index)?;
        Ok(index)
    }

    /// Parses a specification that a client gives for a new index: complaints are those of `createIndexes`, which
    /// say at which stage they came up, and seconds that no TTL index may have are refused, as is what came after
    /// `version`.
    ///
    /// Errors: as [`IndexSpec::parse`], but for those of [`IndexSpec::check_build`].
    pub fn parse_new(
        spec: Doc<'_>,
        default_collation: Option<&Collation>,
        version: FeatureVersion,
    ) -> Result<Self> {
        let within = |error: Error, spec: Doc<'_>| {
            error.caused_by(&format!("Error in specification {spec}"))
        };
        if spec.get("expireAfterSeconds").is_some_and(|value| !value.kind().is_number()) {
            check_ttl(spec)?;
        }
        let mut draft =
            Draft::read(spec, default_collation, version).map_err(|error| within(error, spec))?;
        check_ttl(spec)?;
        if let Some(failure) = draft.collation_failure.take() {
            let mut versioned = spec.to_buf();
            if spec.get("v").is_none() {
                versioned.push("v", 2);
            }
            return Err(failure.caused_by(&format!(
                "failed to add collation information to index spec for index creation: {}",
                versioned.as_doc()
            )));
        }
        let completed = draft.completed(spec);
        check_id(draft.key, completed.as_doc())?;
        draft.resolve(spec).map_err(|error| within(error, completed.as_doc()))
    }

    /// Checks what comes up only when the index is built. [`IndexSpec::parse`] has done so.
    pub fn check_build(&self) -> Result<()> {
        self.kind.check_build(self)
    }

    /// Whether a specification may hold this field.
    pub fn is_option(name: &[u8]) -> bool {
        OPTIONS.iter().any(|option| option.as_bytes() == name)
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

    /// Of each value that an entry holds, whether greater ones come first: those of the fields, and in front of a
    /// wildcard's value its path.
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

    /// Whether two specifications of one signature build the same index: what they are called aside.
    pub fn same_options(&self, other: &IndexSpec) -> bool {
        self.expire_after_seconds == other.expire_after_seconds
            && self.prepare_unique == other.prepare_unique
            && self.parallel_arrays == other.parallel_arrays
            && self.field("storageEngine") == other.field("storageEngine")
            && self.kind.same_options(&other.kind)
    }

    /// Whether two specifications have the same key pattern, collation, partial filter, and are unique and sparse
    /// alike: those together may exist once in a collection.
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

/// A specification whose options are each well-formed; whether they go together is still to be seen.
pub(super) struct Draft<'s> {
    /// Its name.
    pub name: String,
    /// The key pattern, parsed.
    pub pattern: Pattern,
    /// What a wildcard index sees.
    pub wildcard: Option<Wildcard>,
    /// The key pattern as given.
    pub key: Doc<'s>,
    /// As in [`IndexSpec`].
    pub unique: bool,
    /// As in [`IndexSpec`].
    pub prepare_unique: bool,
    /// As in [`IndexSpec`].
    pub sparse: bool,
    /// As in [`IndexSpec`].
    pub parallel_arrays: bool,
    /// As in [`IndexSpec`].
    pub hidden: bool,
    /// As in [`IndexSpec`].
    pub partial: Option<Filter>,
    /// As in [`IndexSpec`].
    pub collation: Option<Collation>,
    /// Why the collation is none. It comes up behind what is wrong with other options.
    pub collation_failure: Option<Error>,
    /// As in [`IndexSpec`].
    pub expire_after_seconds: Option<i64>,
}

impl<'s> Draft<'s> {
    fn read(
        spec: Doc<'s>,
        default_collation: Option<&Collation>,
        version: FeatureVersion,
    ) -> Result<Self> {
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
        let pattern = Pattern::parse(key, version)?;
        let name = match spec.get("name") {
            Some(Value::String(name)) => name.to_string(),
            Some(other) => return Err(wrong_type("name", other.kind().alias(), "a string")),
            None => return Err(missing_name()),
        };
        check_version(spec)?;
        let is_v1 = spec.get("v").and_then(|v| v.as_exact_i64()) == Some(1);
        if pattern.plugin == Plugin::Wildcard && is_v1 {
            return Err(wildcard_version(&key));
        }
        check_other_options(spec, &pattern)?;
        let wildcard = match pattern.wildcard {
            Some(part) => {
                let projection = spec.get("wildcardProjection").and_then(|value| value.as_doc());
                Some(Wildcard::among(&pattern.parts, part, projection)?)
            }
            None => None,
        };
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
        for field in FLAGS {
            flag(field)?;
        }
        check_original(spec, version)?;
        let hidden = match spec.get("hidden") {
            None => false,
            Some(Value::Boolean(hidden)) => hidden,
            // mongod names the wrong field here.
            Some(other) => return Err(wrong_type("name", other.kind().alias(), "a bool")),
        };
        let mut collation_failure = None;
        let collation = match spec.get("collation") {
            Some(Value::Document(collation)) if collation.is_empty() => {
                return Err(collation_empty());
            }
            Some(Value::Document(collation)) => Collation::parse(collation, "collation")
                .unwrap_or_else(|failure| {
                    collation_failure = Some(failure);
                    None
                }),
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
        let (prepare_unique, parallel_arrays) = (flag("prepareUnique")?, flag(PARALLEL_ARRAYS)?);
        if unique && prepare_unique {
            return Err(unique_and_prepared(&spec));
        }
        let expire_after_seconds = match spec.get("expireAfterSeconds") {
            None => None,
            Some(value) if value.kind().is_number() => Some(expire_seconds(value)),
            Some(other) => {
                return Err(wrong_type("expireAfterSeconds", other.kind().alias(), "a number"));
            }
        };
        Ok(Draft {
            name,
            pattern,
            wildcard,
            key,
            unique: unique || is_id,
            prepare_unique,
            sparse,
            parallel_arrays,
            hidden,
            partial,
            collation,
            collation_failure,
            expire_after_seconds,
        })
    }

    /// The specification with what was not said filled in: in front of what its kind checks.
    fn completed(&self, spec: Doc<'_>) -> DocBuf {
        DocBuf::build(|out| {
            for element in spec.iter().filter(|element| element.name != "collation") {
                out.append_raw(element.name, element.value);
            }
            if spec.get("v").is_none() {
                out.append("v", 2);
            }
            if let Some(collation) = &self.collation {
                out.append("collation", collation.to_doc());
            }
        })
    }

    /// The index, once its kind agrees with its options.
    fn resolve(self, spec: Doc<'_>) -> Result<IndexSpec> {
        if self.name.is_empty() {
            return Err(name_empty());
        }
        if self.name.contains('\0') {
            return Err(name_nul());
        }
        check_engine(spec)?;
        let is_id = is_id_pattern(self.key);
        let (kind, key, parts) = IndexKind::resolve(&self, spec)?;
        if self.sparse && self.partial.is_some() {
            return Err(sparse_and_partial());
        }
        let name = if is_id { "_id_".to_owned() } else { self.name };
        let document = canonical_document(
            spec,
            &name,
            (&kind, key.as_doc()),
            is_id,
            self.unique,
            self.collation.as_ref(),
            self.pattern.plugin,
        );
        Ok(IndexSpec {
            name,
            kind,
            key,
            parts,
            unique: self.unique,
            prepare_unique: self.prepare_unique,
            sparse: self.sparse,
            parallel_arrays: self.parallel_arrays,
            hidden: self.hidden,
            partial: self.partial,
            collation: self.collation,
            expire_after_seconds: self.expire_after_seconds,
            document,
        })
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

fn check_ttl(spec: Doc<'_>) -> Result<()> {
    let Some(value) = spec.get("expireAfterSeconds") else { return Ok(()) };
    let Some(seconds) = value.as_f64() else { return Err(ttl_type(value.kind().alias(), &spec)) };
    if seconds < 0.0 {
        return Err(ttl_negative(&spec));
    }
    if seconds > f64::from(i32::MAX) {
        return Err(ttl_too_large(&spec));
    }
    match spec.get("key").and_then(|key| key.as_doc()) {
        Some(key) if key.iter().count() > 1 => Err(ttl_compound(&spec)),
        _ => Ok(()),
    }
}

/// Options without further meaning that must be flags.
const FLAGS: &[&str] = &["background", "finestIndexedLevel", "coarsestIndexedLevel", "dropDups"];

/// Options of some kinds of indexes: checked as numbers, and not kept by others.
const NUMBERS_NOT_KEPT: &[&str] =
    &["min", "max", "bits", "2dsphereIndexVersion", "textIndexVersion"];

/// Checks the options that only some kinds of indexes have.
fn check_other_options(spec: Doc<'_>, pattern: &Pattern) -> Result<()> {
    for field in NUMBERS_NOT_KEPT.iter().chain(&["bucketSize"]) {
        if let Some(value) = spec.get(field)
            && !value.kind().is_number()
        {
            return Err(wrong_type(field, value.kind().alias(), "a number"));
        }
    }
    for field in ["default_language", "language_override"] {
        if let Some(value) = spec.get(field)
            && value.kind() != Type::String
        {
            return Err(wrong_type(field, value.kind().alias(), "a string"));
        }
    }
    let is_wildcard = pattern.plugin == Plugin::Wildcard;
    let is_whole = pattern.wildcard.is_some_and(|part| is_every_path(&pattern.parts[part].path));
    match spec.get("wildcardProjection") {
        None => {}
        Some(_) if !is_wildcard => return Err(projection_without_wildcard()),
        Some(_) if !is_whole => return Err(projection_on_path()),
        Some(Value::Document(projection)) if projection.is_empty() => {
            return Err(projection_empty());
        }
        Some(Value::Document(_)) => {}
        Some(other) => {
            return Err(wrong_type(
                "wildcardProjection",
                other.kind().alias(),
                "a non-empty object",
            ));
        }
    }
    match spec.get("weights") {
        None => {}
        Some(Value::Document(_) | Value::Array(_) | Value::String(_))
            if pattern.plugin == Plugin::Text => {}
        Some(Value::Document(_) | Value::Array(_) | Value::String(_)) => {
            return Err(weights_without_text(&spec));
        }
        Some(other) => return Err(wrong_type("weights", other.kind().alias(), "an object")),
    }
    match spec.get("clustered") {
        None => {}
        Some(value) if !(value.kind().is_number() || value.kind() == Type::Boolean) => {
            return Err(not_boolean("clustered", &value));
        }
        Some(value) if !value.is_truthy() => return Err(clustered_false()),
        Some(_) if spec.get("unique").is_none() => return Err(clustered_needs_unique()),
        Some(_) => return Err(clustered_later()),
    }
    Ok(())
}

fn check_engine(spec: Doc<'_>) -> Result<()> {
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

/// Checks the specification that an index is said to have had once.
///
/// Validated BSON bounds how deep one lies within another.
fn check_original(spec: Doc<'_>, version: FeatureVersion) -> Result<()> {
    match spec.get("originalSpec") {
        None => Ok(()),
        Some(Value::Document(original)) if original.is_empty() => Err(original_empty()),
        Some(Value::Document(original)) => Draft::read(original, None, version).map(|_| ()),
        Some(other) => Err(wrong_type("originalSpec", other.kind().alias(), "an object")),
    }
}

/// The seconds of `expireAfterSeconds`: what is no number is the most. A decimal is rounded, others are cut.
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
            Some(version) if i32::try_from(version).is_err() => Err(version_fraction(&value)),
            Some(version) => Err(bad_version(&spec, version)),
            None if value.kind().is_number() => Err(version_fraction(&value)),
            None => Err(wrong_type("v", value.kind().alias(), "a number")),
        },
    }
}

/// Checks an index on `_id` alone: it is the one that every collection has, or it is refused.
fn check_id(key: Doc<'_>, spec: Doc<'_>) -> Result<()> {
    let is_on_id = key.iter().count() == 1
        && key.iter().all(|part| part.name == "_id" && part.value.kind().is_number());
    if is_id_pattern(key) {
        check_id_options(spec)
    } else if is_on_id {
        check_id_options(spec)?;
        Err(id_key(&key))
    } else {
        Ok(())
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
    (kind, key): (&IndexKind, Doc<'_>),
    is_id: bool,
    unique: bool,
    collation: Option<&Collation>,
    plugin: Plugin,
) -> DocBuf {
    DocBuf::build(|out| {
        match spec.get("v").and_then(|v| v.as_exact_i64()) {
            Some(1) => out.append("v", 1),
            _ => out.append("v", 2),
        };
        for element in spec {
            match element.name.as_bytes() {
                b"v" | b"ns" | b"collation" | b"dropDups" | b"prepareUnique" => {}
                b"key" => {
                    out.append("key", key);
                }
                name if matches!(kind, IndexKind::Text(_)) && TextIndex::is_option(name) => {}
                b"finestIndexedLevel" | b"coarsestIndexedLevel" => {}
                name if NUMBERS_NOT_KEPT.iter().any(|option| name == option.as_bytes()) => {}
                b"expireAfterSeconds" => {
                    let seconds = expire_seconds(element.value.get());
                    match i32::try_from(seconds) {
                        Ok(small) => out.append("expireAfterSeconds", small),
                        Err(_) => out.append("expireAfterSeconds", seconds),
                    };
                }
                b"bucketSize" => {
                    let size = element.value.get().as_f64().filter(|size| !size.is_nan());
                    out.append("bucketSize", size.unwrap_or(0.0));
                }
                b"sparse" | b"background" if element.value.get().is_truthy() => {
                    out.append(element.name, true);
                }
                b"unique" if is_id || !unique => {}
                b"unique" => {
                    out.append("unique", true);
                }
                b"sparse" | b"hidden" | b"background" if !element.value.get().is_truthy() => {
                    // listIndexes shows `sparse: false` and `background: false`, hidden never.
                    if element.name != "hidden" {
                        out.append(element.name, false);
                    }
                }
                b"name" => {
                    out.append("name", name);
                }
                name if name == PARALLEL_ARRAYS.as_bytes() => {
                    if element.value.get().is_truthy() {
                        out.append(PARALLEL_ARRAYS, true);
                    }
                }
                _ => {
                    out.append_raw(element.name, element.value);
                }
            }
        }
        write_place_options(plugin, spec, out);
        if let IndexKind::Text(text) = kind {
            text.write_options(out);
        }
        if let Some(collation) = collation {
            out.append("collation", collation.to_doc());
        }
        if spec.get("prepareUnique").is_some_and(|flag| flag.is_truthy()) {
            out.append("prepareUnique", true);
        }
    })
}

#[cfg(test)]
mod tests;
