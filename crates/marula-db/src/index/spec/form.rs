//! Parses the options of an index one by one and checks their combination.
//!
//! Of several mistakes mongod reports the first in document order, and mistakes of the whole after
//! those; [`Draft::read`] follows that order. Mistakes in options of the index's kind are reported
//! last, by [`Draft::resolve`]. Source: mongod 6.0's replies to all pairs of mistakes.

use marula_bson::{ByteSlice, Doc, DocBuf, Element, Type, Value};
use marula_error::{Result, errors};
use marula_query::collation::Collation;
use marula_query::context::Context;
use marula_query::feature_version::FeatureVersion;
use marula_query::filter;

use super::kept::{canonical_document, original};
use super::{IndexSpec, PARALLEL_ARRAYS, expire_seconds, is_id_pattern, partial};
use crate::index::kind::IndexKind;
use crate::index::pattern::{Pattern, Plugin};
use crate::index::wildcard::{Wildcard, is_every_path};

errors! {
    projection_without_wildcard() = BadValue, "The field 'wildcardProjection' is only allowed in an 'wildcard' index";
    projection_on_path() = FailedToParse, "The field 'wildcardProjection' is only allowed when 'key' is {{\"$**\": ±1}}";
    projection_empty() = FailedToParse, "The 'wildcardProjection' field can't be an empty object";
    weights_without_text(spec: &Doc<'_>) = CannotCreateIndex, "Invalid index specification {spec}; the field 'weights' can only be specified with text indexes";
    wildcard_version(key: &Doc<'_>) = CannotCreateIndex, "bad index key pattern {key}: 'wildcard' index plugin is not allowed with index version v:1";
    clustered_needs_unique() = CannotCreateIndex, "The 'unique' field is required when 'clustered' is specified";
    clustered_false() = 6_492_800, "Value 'false' for field 'clustered' is invalid";
    clustered_later() = 6_243_700, "Cannot create index with option 'clustered' that does not match an existing clustered index";
    clustered_option(field: &str, spec: &Doc<'_>) = InvalidIndexSpecificationOption, "The field '{field}' is not valid for a clustered index specification. Specification: {spec}";
    not_boolean(field: &str, value: &Value<'_>) = TypeMismatch, "The field '{field} has value {field}: {value}, which is not convertible to bool";
    engine_empty() = CannotCreateIndex, "Empty \"storageEngine\" options are invalid. Please remove the field or include valid options.";
    engine_type() = CannotCreateIndex, "\"storageEngine\" options must be a document if present";
    engine_unknown(name: &str) = InvalidOptions, "{name} is not a registered storage engine for this server";
    engine_options_type(name: &str) = BadValue, "'storageEngine.{name}' has to be an embedded document.";
    engine_option_unknown(name: &str) = InvalidOptions, "'{name}' is not a supported option.";
    engine_config_type() = TypeMismatch, "'configString' must be a string.";
    original_empty() = BadValue, "The field 'originalSpec' cannot be an empty object.";
    collation_empty() = BadValue, "The field 'collation' cannot be an empty object.";
    version_fraction(version: &Value<'_>) = BadValue, "Index version must be representable as a 32-bit integer, but got {version}";
    id_key(key: &Doc<'_>) = BadValue, "The field 'key' for an _id index must be {{_id: 1}}, but got {key}";
    unknown_option(field: &str, spec: &str) = InvalidIndexSpecificationOption, "The field '{field}' is not valid for an index specification. Specification: {spec}";
    wrong_type(field: &str, kind: &str, wanted: &str) = TypeMismatch, "The field '{field}' must be {wanted}, but got {kind}";
    sparse_and_partial() = CannotCreateIndex, "cannot mix \"partialFilterExpression\" and \"sparse\" options";
    id_option(field: &str, spec: &str) = InvalidIndexSpecificationOption, "The field '{field}' is not valid for an _id index specification. Specification: {spec}";
    missing_key() = FailedToParse, "The 'key' field is a required property of an index specification";
    missing_name() = FailedToParse, "The 'name' field is a required property of an index specification";
    bad_version(spec: &Doc<'_>, version: i64) = CannotCreateIndex, "Invalid index specification {spec}; cannot create an index with v={version}";
    old_version_collation(spec: &Doc<'_>) = CannotCreateIndex, "Invalid index specification {spec}; cannot create an index with the 'collation' option and v=1";
    name_empty() = CannotCreateIndex, "index name cannot be empty";
    unique_and_prepared(spec: &Doc<'_>) = CannotCreateIndex, "Invalid index specification {spec}; cannot create an index with the 'unique' option and the 'prepareUnique' option";
    name_nul() = CannotCreateIndex, "index name cannot contain NUL bytes";
}

/// All options of an index specification.
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

/// The options allowed together with `clustered`.
const OPTIONS_OF_CLUSTERED: &[&str] =
    &["v", "unique", "key", "name", "clustered", "expireAfterSeconds"];

/// The options of an index on `_id`.
const OPTIONS_OF_ID: &[&str] = &["v", "key", "name", "ns", "collation"];

const OPTIONS_OF_SPHERE: &[&str] =
    &["2dsphereIndexVersion", "finestIndexedLevel", "coarsestIndexedLevel"];

/// The options of single kinds of indexes; where unknown options are ignored, so are those of other
/// kinds.
const OPTIONS_OF_KINDS: &[(Plugin, &[&str])] = &[
    (Plugin::Text, &["weights", "textIndexVersion"]),
    (Plugin::Flat, &["bits", "min", "max"]),
    (Plugin::Sphere, OPTIONS_OF_SPHERE),
    (Plugin::SphereOfBuckets, OPTIONS_OF_SPHERE),
    (Plugin::Wildcard, &["wildcardProjection"]),
];

/// A specification whose options are individually well-formed; their agreement with its kind is
/// still unchecked.
pub(crate) struct Draft<'s> {
    /// The specification.
    spec: Doc<'s>,
    /// The name.
    name: String,
    /// The parsed key pattern.
    pub(in crate::index) pattern: Pattern,
    /// The paths of a wildcard index.
    pub(in crate::index) wildcard: Option<Wildcard>,
    /// The key pattern as given.
    pub(in crate::index) key: Doc<'s>,
    /// As in [`IndexSpec`].
    pub(in crate::index) unique: bool,
    /// As in [`IndexSpec`].
    prepare_unique: bool,
    /// As in [`IndexSpec`].
    pub(in crate::index) sparse: bool,
    /// As in [`IndexSpec`].
    pub(in crate::index) parallel_arrays: bool,
    /// As in [`IndexSpec`].
    hidden: bool,
    /// The filter of a partial index, and its parsed draft.
    partial: Option<(Doc<'s>, filter::Draft)>,
    /// As in [`IndexSpec`].
    pub(in crate::index) collation: Option<Collation>,
    /// As in [`IndexSpec`].
    pub(in crate::index) expire_after_seconds: Option<i64>,
}

/// The options during parsing.
#[derive(Default)]
struct Options<'s> {
    key: Option<(Doc<'s>, Pattern)>,
    name: Option<String>,
    version: Option<i64>,
    wildcard: Option<Wildcard>,
    unique: bool,
    prepare_unique: bool,
    sparse: bool,
    parallel_arrays: bool,
    hidden: bool,
    is_clustered: Option<bool>,
    partial: Option<(Doc<'s>, filter::Draft)>,
    original: Option<Doc<'s>>,
}

impl<'s> Draft<'s> {
    /// Parses the options in document order. Options that were introduced after `version` are
    /// refused.
    ///
    /// Errors: this module's rows, and those of `pattern` and `wildcard`.
    pub(super) fn read(spec: Doc<'s>, context: &Context) -> Result<Self> {
        let is_clustered = spec.get("clustered").is_some();
        let known = if is_clustered { OPTIONS_OF_CLUSTERED } else { OPTIONS };
        for element in spec {
            if !known.iter().any(|option| element.name == *option) {
                let name = element.name.to_string();
                return Err(match is_clustered {
                    true => clustered_option(&name, &spec),
                    false => unknown_option(&name, &spec.to_string()),
                });
            }
        }
        let mut options = Options::default();
        spec.iter().try_for_each(|element| options.read(element, spec, context))?;
        options.finish(spec, context)
    }

    /// The specification without unknown options and without options of other kinds.
    pub(super) fn without_unknown(spec: Doc<'_>) -> DocBuf {
        let key = spec.get("key").and_then(|key| key.as_doc());
        let plugin = key.and_then(Plugin::find).unwrap_or(Plugin::Ordinary);
        let is_kept = |name: &[u8]| {
            let is = |option: &str| name == option.as_bytes();
            let mut kinds = OPTIONS_OF_KINDS.iter();
            OPTIONS.iter().any(|option| is(option))
                && name != b"clustered"
                && !kinds.any(|(kind, options)| *kind != plugin && options.iter().any(|it| is(it)))
        };
        DocBuf::build(|out| {
            for Element { name, value } in spec.iter().filter(|element| is_kept(element.name)) {
                out.append_raw(name, value);
            }
        })
    }

    /// Checks that an index on `_id` alone is the standard one.
    ///
    /// Errors: `id_option`, `id_key`.
    pub(super) fn check_id(&self) -> Result<()> {
        if !self.is_on_id() {
            return Ok(());
        }
        for element in self.spec.iter().filter(|_| !self.is_clustered()) {
            if !OPTIONS_OF_ID.iter().any(|option| element.name == *option) {
                let shown = with_version(self.spec);
                return Err(id_option(&element.name.to_string(), &shown.as_doc().to_string()));
            }
        }
        if is_id_pattern(self.key) { Ok(()) } else { Err(id_key(&self.key)) }
    }

    /// Returns whether the index is on `_id` alone, ascending or descending.
    pub(super) fn is_on_id(&self) -> bool {
        let mut fields = self.key.iter();
        let (Some(only), None) = (fields.next(), fields.next()) else { return false };
        let number = only.value.get().as_f64().filter(|_| only.value.kind().is_number());
        only.name == "_id" && number.is_some_and(|number| number.trunc().abs() == 1.0)
    }

    /// Returns whether it is a clustered index.
    pub(super) fn is_clustered(&self) -> bool {
        self.spec.get("clustered").is_some()
    }

    /// Returns whether it has version 1.
    fn is_old(&self) -> bool {
        self.spec.get("v").and_then(|v| v.as_exact_i64()) == Some(1)
    }

    /// The name as given.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Sets the collation: its own, or its collection's.
    ///
    /// Errors: those of the collation.
    pub(super) fn collate(&mut self, default: Option<&Collation>) -> Result<()> {
        self.collation = match self.spec.get("collation") {
            Some(Value::Document(collation)) => Collation::parse(collation, "collation")?,
            // Indexes of version 1 have no collation.
            _ if self.is_old() => None,
            _ => default.cloned(),
        };
        Ok(())
    }

    /// The specification with defaults filled in.
    pub(super) fn completed(&self) -> DocBuf {
        let mut completed = DocBuf::build(|out| {
            for element in self.spec.iter().filter(|element| element.name != "collation") {
                out.append_raw(element.name, element.value);
            }
        });
        completed = with_version(completed.as_doc());
        if let Some(collation) = &self.collation {
            completed.push("collation", collation.to_doc());
        }
        completed
    }

    /// Checks that the options agree with the kind and returns the index.
    ///
    /// Errors: this module's rows, and those of the kind.
    pub(super) fn resolve(self) -> Result<IndexSpec> {
        let spec = self.spec;
        if self.name.is_empty() {
            return Err(name_empty());
        }
        if self.name.contains('\0') {
            return Err(name_nul());
        }
        if self.pattern.plugin == Plugin::Wildcard && self.is_old() {
            return Err(wildcard_version(&self.key));
        }
        IndexKind::check_options(&self)?;
        if self.is_clustered() {
            return Err(clustered_later());
        }
        if self.sparse && self.partial.is_some() {
            return Err(sparse_and_partial());
        }
        let partial = match &self.partial {
            Some((filter, draft)) => {
                Some(partial::finish(*filter, draft, self.collation.as_ref())?)
            }
            None => None,
        };
        check_engine(spec)?;
        let is_id = is_id_pattern(self.key);
        let (kind, key, parts) = IndexKind::resolve(&self, spec)?;
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
            unique: self.unique || is_id,
            prepare_unique: self.prepare_unique,
            sparse: self.sparse,
            parallel_arrays: self.parallel_arrays,
            hidden: self.hidden,
            partial,
            collation: self.collation,
            expire_after_seconds: self.expire_after_seconds,
            document,
        })
    }
}

/// The specification with a version; adds the default if there is none.
pub(super) fn with_version(spec: Doc<'_>) -> DocBuf {
    let mut versioned = DocBuf::build(|out| {
        for element in spec.iter().filter(|element| element.name != "ns") {
            match element.value.get() {
                value @ Value::Document(_) if element.name == "originalSpec" => {
                    out.append(element.name, &original(value))
                }
                _ => out.append_raw(element.name, element.value),
            };
        }
    });
    if spec.get("v").is_none() {
        versioned.push("v", 2);
    }
    versioned
}

impl<'s> Options<'s> {
    fn read(&mut self, option: Element<'s>, spec: Doc<'s>, context: &Context) -> Result<()> {
        let since = context.version;
        let Element { name, value } = option;
        let value = value.get();
        let name_text = name.to_str().unwrap_or_default();
        let wrong = |wanted: &str| Err(wrong_type(name_text, value.kind().alias(), wanted));
        let flag = || {
            let is_flag = value.kind().is_number() || value.kind() == Type::Boolean;
            if is_flag { Ok(value.is_truthy()) } else { Err(not_boolean(name_text, &value)) }
        };
        match (name.as_bytes(), value) {
            (b"key", Value::Document(key)) => self.key = Some((key, Pattern::parse(key, since)?)),
            (b"name", Value::String(name)) => self.name = Some(name.to_string()),
            (b"name", _) => return wrong("a string"),
            (b"v", _) => self.version = Some(version(spec, value)?),
            (b"unique", _) => self.unique = flag()?,
            (b"sparse", _) => self.sparse = flag()?,
            (b"prepareUnique", _) => self.prepare_unique = flag()?,
            (b"parallelArrays", _) => self.parallel_arrays = flag()?,
            (b"clustered", _) => self.is_clustered = Some(flag()?),
            (b"background" | b"dropDups" | b"finestIndexedLevel" | b"coarsestIndexedLevel", _) => {
                flag()?;
            }
            (b"hidden", Value::Boolean(hidden)) => self.hidden = hidden,
            // mongod reports the wrong field name here.
            (b"hidden", other) => {
                return Err(wrong_type("name", other.kind().alias(), "a bool"));
            }
            (b"collation", Value::Document(collation)) if collation.is_empty() => {
                return Err(collation_empty());
            }
            (b"collation", Value::Document(_)) => {}
            (b"partialFilterExpression", Value::Document(filter)) => {
                self.partial = Some((filter, partial::read(filter, context)?));
            }
            (b"originalSpec", Value::Document(original)) if original.is_empty() => {
                return Err(original_empty());
            }
            (b"originalSpec", Value::Document(original)) => self.original = Some(original),
            (b"key" | b"collation" | b"partialFilterExpression" | b"originalSpec", _) => {
                return wrong("an object");
            }
            (b"weights", Value::Document(_) | Value::Array(_) | Value::String(_)) => {}
            (b"weights", _) => return wrong("an object"),
            (b"default_language" | b"language_override", Value::String(_)) => {}
            (b"default_language" | b"language_override", _) => return wrong("a string"),
            (
                b"textIndexVersion"
                | b"2dsphereIndexVersion"
                | b"bits"
                | b"min"
                | b"max"
                | b"bucketSize",
                _,
            ) if !value.kind().is_number() => return wrong("a number"),
            (b"wildcardProjection", _) => self.wildcard = Some(projection(value, spec, since)?),
            _ => {}
        }
        Ok(())
    }

    /// Checks the combination of the options.
    fn finish(self, spec: Doc<'s>, context: &Context) -> Result<Draft<'s>> {
        let (key, pattern) = self.key.ok_or_else(missing_key)?;
        let name = self.name.ok_or_else(missing_name)?;
        if self.version == Some(1) && spec.get("collation").is_some() {
            return Err(old_version_collation(&spec));
        }
        if pattern.plugin != Plugin::Text && spec.get("weights").is_some() {
            return Err(weights_without_text(&spec));
        }
        if self.unique && self.prepare_unique {
            return Err(unique_and_prepared(&spec));
        }
        if let Some(original) = self.original {
            Draft::read(original, context)?;
        }
        match self.is_clustered {
            Some(false) => return Err(clustered_false()),
            Some(true) if !self.unique => return Err(clustered_needs_unique()),
            _ => {}
        }
        let wildcard = match (pattern.wildcard, self.wildcard) {
            (Some(part), None) => Some(Wildcard::among(&pattern.parts, part, None)?),
            (_, wildcard) => wildcard,
        };
        let seconds = spec.get("expireAfterSeconds").filter(|value| value.kind().is_number());
        Ok(Draft {
            spec,
            name,
            pattern,
            wildcard,
            key,
            unique: self.unique,
            prepare_unique: self.prepare_unique,
            sparse: self.sparse,
            parallel_arrays: self.parallel_arrays,
            hidden: self.hidden,
            partial: self.partial,
            collation: None,
            expire_after_seconds: seconds.map(expire_seconds),
        })
    }
}

fn version(spec: Doc<'_>, value: Value<'_>) -> Result<i64> {
    match value.as_exact_i64() {
        Some(version @ (1 | 2)) => Ok(version),
        Some(version) if i32::try_from(version).is_err() => Err(version_fraction(&value)),
        Some(version) => Err(bad_version(&spec, version)),
        None if value.kind().is_number() => Err(version_fraction(&value)),
        None => Err(wrong_type("v", value.kind().alias(), "a number")),
    }
}

/// Parses `wildcardProjection`; the key pattern, which may come later in the document, must be a
/// wildcard's.
fn projection(value: Value<'_>, spec: Doc<'_>, version: FeatureVersion) -> Result<Wildcard> {
    let key = spec.get("key").and_then(|key| key.as_doc()).unwrap_or(Doc::EMPTY);
    if Plugin::find(key) != Some(Plugin::Wildcard) {
        return Err(projection_without_wildcard());
    }
    let Value::Document(projection) = value else {
        let kind = value.kind().alias();
        return Err(wrong_type("wildcardProjection", kind, "a non-empty object"));
    };
    let Pattern { parts, wildcard, .. } = Pattern::parse(key, version)?;
    match wildcard.filter(|&part| is_every_path(&parts[part].path)) {
        None => Err(projection_on_path()),
        Some(_) if projection.is_empty() => Err(projection_empty()),
        Some(part) => Wildcard::among(&parts, part, Some(projection)),
    }
}

fn check_engine(spec: Doc<'_>) -> Result<()> {
    let engines = match spec.get("storageEngine") {
        None => return Ok(()),
        Some(Value::Document(engines)) if engines.is_empty() => return Err(engine_empty()),
        Some(Value::Document(engines)) => engines,
        Some(_) => return Err(engine_type()),
    };
    for Element { name, value } in engines {
        let Value::Document(options) = value.get() else {
            return Err(engine_options_type(&name.to_string()));
        };
        // Options for mongod's engine are accepted and stored, since dumps of its collections
        // contain them.
        if name != "wiredTiger" {
            return Err(engine_unknown(&name.to_string()));
        }
        for Element { name, value } in options {
            match name.as_bytes() {
                b"configString" if value.kind() == Type::String => {}
                b"configString" => return Err(engine_config_type()),
                _ => return Err(engine_option_unknown(&name.to_string())),
            }
        }
    }
    Ok(())
}
