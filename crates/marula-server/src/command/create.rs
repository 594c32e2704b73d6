//! `create`: creates a collection or a view.

use marula_bson::{BStr, Doc, DocBuf, DocWriter, Type, Value, ValueBuf, doc};
use marula_db::catalog::ddl::exists;
use marula_db::catalog::options::capped_without_size;
use marula_db::time_series::BUCKETS_PREFIX;
use marula_db::{CollectionOptions, IndexSpec, Namespace};
use marula_error::{Error, Result, errors};
use marula_operation::views::{self, Definition};
use marula_query::collation::Collation;
use marula_query::expression::saturated_long;
use marula_query::feature_version::FeatureVersion;

use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::auth::check::{Check, Target};
use crate::auth::pipeline;
use crate::context::Context;
use crate::request::Request;
use crate::time_series;
use crate::writes::is_system;

errors! {
    not_created_in_transaction(what: &str) = OperationNotSupportedInTransaction, "Cannot create a {what} in a multi-document transaction.";
    system_in_transaction(ns: &Namespace) = OperationNotSupportedInTransaction, "Cannot create system collection {ns} within a transaction.";
    clustered_type(kind: &str) = TypeMismatch, "BSON field 'create.clusteredIndex' is the wrong type '{kind}', expected types '[bool']";
    size_without_capped() = InvalidOptions, "the 'capped' field needs to be true when either the 'size' or 'max' fields are present";
    number_too_small(field: &str, least: i64, value: i64) = 51_024, "BSON field '{field}' value must be >= {least}, actual value '{value}'";
    pipeline_without_view() = InvalidOptions, "'pipeline' requires 'viewOn' to also be specified";
    id_index_with_auto(id_index: &Doc<'_>) = InvalidOptions, "'idIndex' is not allowed with 'autoIndexId': {id_index}";
    id_index_on_view(id_index: &Doc<'_>) = InvalidOptions, "'idIndex' is not allowed with 'viewOn': {id_index}";
    time_series_on_view(ns: &Namespace) = InvalidOptions, "{ns}: 'timeseries' is not allowed with 'viewOn'";
    clustered_view() = 6_026_500, "The 'clusteredIndex' option is not supported with views";
    images_on_view() = InvalidOptions, "option not supported on a view: changeStreamPreAndPostImages";
    already_exists(ns: &Namespace) = NamespaceExists, "Cannot create collection {ns} - collection already exists.";
    pub bad_enumeration(value: &str, field: &str) = BadValue, "Enumeration value '{value}' for field '{field}' is not a valid value.";
    clustered_key() = InvalidIndexSpecificationOption, "The clusteredIndex option is only supported for key: {{_id: 1}}";
    clustered_legacy() = 5_979_703, "The 'clusteredIndex' legacy format {{clusteredIndex: <bool>}} is only supported for specific internal collections and vice versa";
    clustered_not_unique() = 5_979_700, "The clusteredIndex option requires unique: true to be specified";
    clustered_size() = 6_049_200, "'size' field for capped collections is not allowed on clustered collections. Did you mean 'capped: true' with 'expireAfterSeconds'?";
    clustered_max() = 6_049_204, "'max' field for capped collections is not allowed on clustered collections. Did you mean 'capped: true' with 'expireAfterSeconds'?";
    clustered_on_capped() = 6_127_800, "Clustered capped collection only available with 'enableTestCommands' server parameter";
    clustered_id_index() = InvalidOptions, "The 'clusteredIndex' option is not supported with the 'idIndex' option";
    clustered_auto_index() = 6_026_501, "The 'clusteredIndex' option does not support {{autoIndexId: false}}";
    clustered_version(spec: &Doc<'_>, version: &Value<'_>) = 5_979_704, "Invalid clusteredIndex specification {spec}; cannot create a clusteredIndex with v={version}";
    number_too_large(field: &str, sign: &str, bound: i64, value: i64) = 51_024, "BSON field '{field}' value must be {sign} {bound}, actual value '{value}'";
    expire_negative() = InvalidOptions, "TTL index 'expireAfterSeconds' option cannot be less than 0";
    expire_too_large() = InvalidOptions, "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a lower number";
    unknown_engine_option(name: &BStr) = InvalidOptions, "'{name}' is not a supported option.";
    default_engine_not_object(name: &BStr) = BadValue, "'storageEngine.{name}' must be an embedded document";
    unknown_engine(name: &BStr) = InvalidOptions, "{name} is not a registered storage engine for this server";
    engine_not_object(name: &BStr) = BadValue, "'storageEngine.{name}' has to be an embedded document.";
    id_index_collation() = BadValue, "'idIndex' must have the same collation as the collection.";
    id_index_key(key: &Doc<'_>) = BadValue, "The field 'key' for an _id index must be {{_id: 1}}, but got {key}";
    auto_index_id(ns: &Namespace) = 50_001, "autoIndexId:false is not allowed for collection {ns} because it can be replicated";
    temp() = InvalidOptions, "the 'temp' field is an invalid option";
    expire_of_flag() = InvalidOptions, "'expireAfterSeconds' requires clustering to be enabled";
    expire_unclustered() = InvalidOptions, "'expireAfterSeconds' is only supported on time-series collections or when the 'clusteredIndex' option is specified";
    encrypted() = CommandNotSupported, "encrypted collections are not available on this server";
}

/// The types of `clusteredIndex`: a document or a flag; numbers are accepted as flags.
const CLUSTERED_TYPES: Types = Types::Of(&[
    Type::Document,
    Type::Boolean,
    Type::Int32,
    Type::Int64,
    Type::Double,
    Type::Decimal128,
]);

/// The values of `validationLevel`.
pub(super) const VALIDATION_LEVELS: &[&str] = &["off", "strict", "moderate"];

/// The values of `validationAction`.
pub(super) const VALIDATION_ACTIONS: &[&str] = &["error", "warn"];

const FIELDS: &[Field] = &[
    Field::optional("capped", Types::FLAG),
    Field::optional("autoIndexId", Types::FLAG),
    Field::optional("idIndex", Types::DOCUMENT),
    Field::optional("size", Types::NUMBER).checked(check_size),
    Field::optional("max", Types::NUMBER).checked(check_max),
    Field::optional("storageEngine", Types::DOCUMENT).checked(check_engine),
    Field::optional("validator", Types::DOCUMENT),
    Field::optional("validationLevel", Types::STRING)
        .checked(|_, level| check_one_of("create.validationLevel", level, VALIDATION_LEVELS)),
    Field::optional("validationAction", Types::STRING)
        .checked(|_, action| check_one_of("create.validationAction", action, VALIDATION_ACTIONS)),
    Field::optional("indexOptionDefaults", Types::DOCUMENT).checked(check_index_defaults),
    Field::optional("viewOn", Types::STRING).checked(check_view_on),
    Field::optional("pipeline", Types::ARRAY).checked(check_pipeline),
    Field::optional("collation", Types::DOCUMENT).checked(check_collation),
    Field::optional("changeStreamPreAndPostImages", Types::DOCUMENT),
    Field::optional("timeseries", Types::DOCUMENT).checked(check_granularity),
    Field::optional("clusteredIndex", CLUSTERED_TYPES).or(clustered_type),
    Field::optional("expireAfterSeconds", Types::NUMBER),
    Field::optional("encryptedFields", Types::DOCUMENT).of(ENCRYPTED_FIELDS),
    Field::optional("temp", Types::FLAG),
    Field::optional("flags", Types::NUMBER),
    // The predecessor of `changeStreamPreAndPostImages`: accepted without effect.
    Field::optional("recordPreImages", Types::FLAG),
];

const ENCRYPTED_FIELDS: &[Field] = &[
    Field::optional("escCollection", Types::STRING),
    Field::optional("eccCollection", Types::STRING),
    Field::optional("ecocCollection", Types::STRING),
    Field::required("fields", Types::ARRAY),
];

const CLUSTERED_FIELDS: &[Field] = &[
    Field::optional("v", Types::NUMBER),
    Field::required("key", Types::DOCUMENT),
    Field::optional("name", Types::STRING),
    Field::required("unique", Types::FLAG),
];

pub(super) static COMMAND: Command = Command {
    name: "create",
    help: "Creates a collection, with options such as a size, a validator or a collation, or a view.",
    writes: true,
    takes_write_concern: true,
    in_transaction: true,
    in_api_v1: true,
    fields: Fields::Strict { place: "create", fields: FIELDS },
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    create(context, request, None, reply)
}

/// Creates the collection of the request, with this UUID if there is one.
pub(super) fn create(
    context: &Context<'_>,
    request: &Request<'_>,
    uuid: Option<[u8; 16]>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let ns = request.namespace()?;
    check_capped(request)?;
    if context.entered.is_some() {
        let asks = |name| request.arg(name).is_some_and(|asked| !asked.is_nullish());
        ns.check_creatable()?;
        if asks("viewOn") {
            return Err(not_created_in_transaction("view"));
        }
        if is_system(&ns) {
            return Err(system_in_transaction(&ns));
        }
        if asks("timeseries") {
            return Err(not_created_in_transaction("time-series collection"));
        }
    }
    if let Some(Value::Document(time_series)) = request.arg("timeseries")
        && !is_bucket_name(&ns)
    {
        check_nested(request)?;
        check_view(context, request, &ns)?;
        time_series::check(request, &ns, time_series)?;
        check_expiry(context, request)?;
        check_engines(request)?;
        if request.arg("temp").is_some() {
            return Err(temp());
        }
        let options = time_series::bucket_options(Some(request), time_series)?;
        check_user_writes(context, &ns)?;
        context.server.db.create_time_series(&ns, options)?;
        return Ok(Outcome::Done);
    }
    let options = options(context, request, &ns)?;
    let options =
        CollectionOptions::parse_new(options.as_doc(), context.server.db.feature_version());
    if context.unit.collection(&ns).is_none() {
        let validators = &context.server.counters.create_validators;
        validators.note(request.arg("validator"), options.is_err());
    }
    let options = options?;
    check_user_writes(context, &ns)?;
    let db = &context.server.db;
    match (definition(request, &ns)?, uuid) {
        // Another view may have been created since it was checked.
        (Some(definition), _) => {
            db.create_checked(&ns, options, uuid, &|| views::check_graph(db, &definition))?
        }
        (None, Some(uuid)) => db.create_collection_as(&ns, options, uuid)?,
        (None, None) => context.unit.create_collection(&ns, options)?,
    };
    if request.arg("autoIndexId").is_some() {
        reply.append(
            "note",
            "The autoIndexId option is deprecated and will be removed in a future release",
        );
    }
    Ok(Outcome::Done)
}

/// Checks those options of a view whose errors come before those of its definition. They are not
/// kept.
fn check_options_of_view(context: &Context<'_>, request: &Request<'_>) -> Result<()> {
    if request.arg("encryptedFields").is_some() {
        return Err(time_series::encrypted_not_allowed());
    }
    if request.arg("expireAfterSeconds").is_some() && request.arg("clusteredIndex").is_none() {
        return Err(expire_unclustered());
    }
    if let Some(validator) = request.arg("validator") {
        let version = context.server.db.feature_version();
        CollectionOptions::parse_new(doc! { "validator": validator }.as_doc(), version)?;
    }
    Ok(())
}

/// Checks that users may write, unless the collection exists, which is reported later.
fn check_user_writes(context: &Context<'_>, ns: &Namespace) -> Result<()> {
    match context.unit.collection(ns) {
        Some(_) => Ok(()),
        None => context.check_user_writes(ns.db()),
    }
}

/// The order in which `listCollections` shows the options of a collection.
pub(super) const OPTIONS_ORDER: &[&str] = &[
    "capped",
    "size",
    "max",
    "autoIndexId",
    "recordPreImages",
    "changeStreamPreAndPostImages",
    "storageEngine",
    "indexOptionDefaults",
    "validator",
    "validationLevel",
    "validationAction",
    "viewOn",
    "pipeline",
    "collation",
    "clusteredIndex",
    "expireAfterSeconds",
    "timeseries",
];

/// Returns the checked options of the new collection, in [`OPTIONS_ORDER`].
fn options(context: &Context<'_>, request: &Request<'_>, ns: &Namespace) -> Result<DocBuf> {
    if request.arg("viewOn").is_some() {
        check_options_of_view(context, request)?;
    }
    check_view(context, request, ns)?;
    if request.arg("temp").is_some() {
        return Err(temp());
    }
    let is_capped = request.flag("capped");
    let expires = request.arg("expireAfterSeconds").is_some();
    if expires && request.arg("clusteredIndex").is_none() {
        return Err(expire_unclustered());
    }
    if let Some(Value::Document(id_index)) = request.arg("idIndex") {
        if request.arg("autoIndexId").is_some() {
            return Err(id_index_with_auto(&id_index));
        }
        check_id_index(request, id_index)?;
    }
    check_nested(request)?;
    // An existing collection is reported before mistakes that only its creation notices.
    if request.arg("viewOn").is_none()
        && let Some(known) = context.unit.collection(ns)
    {
        return Err(exists(&known));
    }
    if request.arg("encryptedFields").is_some() {
        return Err(encrypted());
    }
    let clustered = clustered(request, ns)?;
    if clustered.is_none() && expires && request.arg("viewOn").is_none() {
        return Err(expire_of_flag());
    }
    check_expiry(context, request)?;
    check_engines(request)?;
    if request.arg("autoIndexId").is_some_and(|flag| !flag.is_truthy()) && ns.db() != "local" {
        return Err(auto_index_id(ns));
    }
    let [level, action] = ["validationLevel", "validationAction"].map(|name| request.text(name));
    let mut options = Vec::new();
    let mut out = DocWriter::new(&mut options);
    if let Some(on) = request.arg("viewOn") {
        // The options of a collection that stores documents are checked, and not kept.
        out.append("viewOn", on);
        out.append("pipeline", request.arg("pipeline").unwrap_or(Value::Array(Doc::EMPTY)));
        append_collation(request, &mut out);
        out.finish();
        return Ok(DocBuf::trusted(options));
    }
    if is_capped {
        out.append("capped", true);
        append_number(request, "size", &mut out);
        append_max(request, &mut out);
    }
    if request.arg("autoIndexId").is_some() {
        out.append("autoIndexId", true);
    }
    if let Some(Value::Document(images)) = request.arg("changeStreamPreAndPostImages")
        && images.get("enabled").is_some_and(|enabled| enabled.is_truthy())
    {
        out.append("changeStreamPreAndPostImages", images);
    }
    for name in ["storageEngine", "indexOptionDefaults", "validator"] {
        if let Some(Value::Document(value)) = request.arg(name)
            && !value.is_empty()
        {
            out.append(name, value);
        }
    }
    for (name, value) in [("validationLevel", level), ("validationAction", action)] {
        if let Some(value) = value {
            out.append(name, value);
        }
    }
    append_collation(request, &mut out);
    if let Some(clustered) = &clustered {
        out.append("clusteredIndex", clustered);
    }
    if let Some(seconds) = request.arg("expireAfterSeconds") {
        out.append("expireAfterSeconds", whole(seconds));
    }
    if let Some(time_series) = request.arg("timeseries") {
        out.append("timeseries", time_series);
    }
    out.finish();
    Ok(DocBuf::trusted(options))
}

fn append_collation(request: &Request<'_>, out: &mut DocWriter<'_>) {
    if let Some(collation) = request.arg("collation") {
        out.append("collation", collation);
    }
}

/// Checks the limits of a capped collection, which a clustered collection cannot have.
fn check_capped(request: &Request<'_>) -> Result<()> {
    let [has_size, has_max] = ["size", "max"].map(|name| request.arg(name).is_some());
    let is_capped = request.flag("capped");
    if let Some(clustered) = request.arg("clusteredIndex") {
        if let Value::Document(spec) = clustered {
            fields::check_doc("create", CLUSTERED_FIELDS, spec)?;
        }
        match (is_capped, has_size, has_max) {
            (true, _, _) => return Err(clustered_on_capped()),
            (_, true, _) => return Err(clustered_size()),
            (_, _, true) => return Err(clustered_max()),
            _ => {}
        }
    }
    match is_capped {
        false if has_size || has_max => Err(size_without_capped()),
        true if !has_size => Err(capped_without_size()),
        _ => Ok(()),
    }
}

fn check_view(context: &Context<'_>, request: &Request<'_>, ns: &Namespace) -> Result<()> {
    if request.text("viewOn").is_none() {
        let pipeline = request.arg("pipeline").and_then(|value| value.as_array());
        return if pipeline.is_some() { Err(pipeline_without_view()) } else { Ok(()) };
    }
    if let Some(Value::Document(id_index)) = request.arg("idIndex") {
        return Err(id_index_on_view(&id_index));
    }
    if request.arg("timeseries").is_some() {
        return Err(time_series_on_view(ns));
    }
    if request.arg("clusteredIndex").is_some_and(|clustered| clustered.is_truthy()) {
        return Err(clustered_view());
    }
    if request.arg("changeStreamPreAndPostImages").is_some() {
        return Err(images_on_view());
    }
    ns.check_creatable_view()?;
    // An existing collection is reported before errors in the view's definition.
    match context.unit.collection(ns) {
        Some(known) if known.state().options.view.is_none() => return Err(already_exists(ns)),
        Some(_) => return Ok(()),
        None => {}
    }
    match definition(request, ns)? {
        Some(definition) => views::check(&context.server.db, "create", &definition),
        None => Ok(()),
    }
}

/// Returns the definition of the new view, if the request creates one.
fn definition<'a>(request: &'a Request<'_>, ns: &'a Namespace) -> Result<Option<Definition<'a>>> {
    let Some(on) = request.text("viewOn") else { return Ok(None) };
    let collation = match request.arg("collation") {
        Some(Value::Document(collation)) => {
            Collation::parse_completed(collation, "create.collation")?
        }
        _ => None,
    };
    let pipeline = request.arg("pipeline").and_then(|value| value.as_array());
    let pipeline = pipeline.unwrap_or(Doc::EMPTY);
    Ok(Some(Definition { view: ns, on: on.to_string(), pipeline, collation }))
}

/// Returns whether a collection of this name holds the buckets of another: tools that restore a
/// dump create it explicitly.
fn is_bucket_name(ns: &Namespace) -> bool {
    ns.collection().starts_with(BUCKETS_PREFIX)
}

/// Returns the clustered index in the form of `listCollections`, with version and name.
fn clustered(request: &Request<'_>, ns: &Namespace) -> Result<Option<ValueBuf>> {
    let spec = match request.arg("clusteredIndex") {
        None => return Ok(None),
        Some(Value::Document(spec)) => spec,
        Some(flag) if !flag.is_truthy() => return Ok(None),
        Some(Value::Boolean(true)) if is_bucket_name(ns) => return Ok(Some(ValueBuf::from(true))),
        Some(_) => return Err(clustered_legacy()),
    };
    let key = spec.get("key").and_then(|key| key.as_doc()).unwrap_or(Doc::EMPTY);
    if request.arg("idIndex").is_some() {
        return Err(clustered_id_index());
    }
    if request.arg("autoIndexId").is_some_and(|flag| !flag.is_truthy()) {
        return Err(clustered_auto_index());
    }
    if !is_id_key(key) {
        return Err(clustered_key());
    }
    if !spec.get("unique").is_some_and(|unique| unique.is_truthy()) {
        return Err(clustered_not_unique());
    }
    let name = spec.get("name").unwrap_or("_id_".into());
    let version = spec.get("v").unwrap_or(Value::Int32(2));
    let whole = marula_bson::doc! { "v": version, "key": key, "name": name, "unique": true };
    if version.as_exact_i64() != Some(2) {
        return Err(clustered_version(&whole.as_doc(), &version));
    }
    let spec = marula_bson::doc! { "v": 2, "key": key, "name": name, "unique": true };
    Ok(Some(Value::Document(spec.as_doc()).to_buf()))
}

fn check_expiry(context: &Context<'_>, request: &Request<'_>) -> Result<()> {
    match request.arg("expireAfterSeconds") {
        Some(seconds) => expiry(seconds, context.now_ms).map(drop),
        None => Ok(()),
    }
}

/// Returns the time in seconds after which documents of a collection expire.
///
/// Errors: `expire_negative`; `expire_too_large` if only documents from before 1970 would have
/// expired.
pub(super) fn expiry(seconds: Value<'_>, now_ms: i64) -> Result<i64> {
    match whole(seconds) {
        seconds if seconds < 0 => Err(expire_negative()),
        seconds if seconds > i64::from(i32::MAX) || seconds * 1000 > now_ms => {
            Err(expire_too_large())
        }
        seconds => Ok(seconds),
    }
}

const IMAGES_FIELDS: &[Field] = &[Field::required("enabled", Types::BOOLEAN)];
const INDEX_DEFAULTS_FIELDS: &[Field] = &[Field::optional("storageEngine", Types::DOCUMENT)];

/// Checks the fields of those options that are documents.
fn check_nested(request: &Request<'_>) -> Result<()> {
    for (name, fields) in [
        ("changeStreamPreAndPostImages", IMAGES_FIELDS),
        ("indexOptionDefaults", INDEX_DEFAULTS_FIELDS),
    ] {
        if let Some(Value::Document(value)) = request.arg(name) {
            fields::check_doc(&format!("create.{name}"), fields, value)?;
        }
    }
    Ok(())
}

/// Checks the storage engines that the options name.
fn check_engines(request: &Request<'_>) -> Result<()> {
    let engines = |options: Option<Value<'_>>| match options.and_then(|options| options.as_doc()) {
        Some(engines) => check_known_engines(engines),
        None => Ok(()),
    };
    engines(request.arg("storageEngine"))?;
    let defaults = request.arg("indexOptionDefaults").and_then(|defaults| defaults.as_doc());
    engines(defaults.and_then(|defaults| defaults.get("storageEngine")))
}

/// Checks the names of the storage engines. Options of mongod's engine are stored without effect,
/// because dumps of its collections contain them.
fn check_known_engines(engines: Doc<'_>) -> Result<()> {
    for engine in engines {
        if engine.name != "wiredTiger" {
            return Err(unknown_engine(engine.name));
        }
        let options = engine.value.get().as_doc().unwrap_or(Doc::EMPTY);
        if let Some(option) = options.iter().find(|option| option.name != "configString") {
            return Err(unknown_engine_option(option.name));
        }
    }
    Ok(())
}

/// Checks that the options of each engine are a document.
fn check_engine(_: FeatureVersion, engines: Value<'_>) -> Result<()> {
    check_engine_options(engines, engine_not_object)
}

fn check_index_defaults(_: FeatureVersion, defaults: Value<'_>) -> Result<()> {
    let engines = defaults.as_doc().and_then(|defaults| defaults.get("storageEngine"));
    engines.map_or(Ok(()), |engines| check_engine_options(engines, default_engine_not_object))
}

fn check_engine_options(engines: Value<'_>, refusal: fn(&BStr) -> Error) -> Result<()> {
    let mut engines = engines.as_doc().unwrap_or(Doc::EMPTY).iter();
    match engines.find(|engine| engine.value.kind() != Type::Document) {
        Some(engine) => Err(refusal(engine.name)),
        None => Ok(()),
    }
}

/// Checks that a view is on something.
pub(super) fn check_view_on(_: FeatureVersion, on: Value<'_>) -> Result<()> {
    if on == Value::from("") { Err(views::on_empty()) } else { Ok(()) }
}

/// Checks that a text is one of `values`; `field` names it in the error.
pub(super) fn check_one_of(field: &str, text: Value<'_>, values: &[&str]) -> Result<()> {
    match text.as_str() {
        Some(text) if !values.iter().any(|value| text == *value) => {
            Err(bad_enumeration(&text.to_string(), field))
        }
        _ => Ok(()),
    }
}

fn check_collation(_: FeatureVersion, collation: Value<'_>) -> Result<()> {
    Collation::check_form(collation.as_doc().unwrap_or(Doc::EMPTY), "create.collation")
}

fn check_pipeline(_: FeatureVersion, pipeline: Value<'_>) -> Result<()> {
    views::check_stages_are_documents("create", pipeline.as_array().unwrap_or(Doc::EMPTY))
}

/// Checks `size`, which may be present without `capped`.
fn check_size(_: FeatureVersion, size: Value<'_>) -> Result<()> {
    match whole(size) {
        size @ ..1 => Err(number_too_small("size", 1, size)),
        size if size > CAPPED_BYTES_MAX => {
            Err(number_too_large("size", "<=", CAPPED_BYTES_MAX, size))
        }
        _ => Ok(()),
    }
}

/// Checks the granularity of a time series, before its other options.
fn check_granularity(_: FeatureVersion, time_series: Value<'_>) -> Result<()> {
    let name = time_series.as_doc().and_then(|options| options.get("granularity"));
    let known = &["seconds", "minutes", "hours"];
    name.map_or(Ok(()), |name| check_one_of("create.timeseries.granularity", name, known))
}

/// Checks `max`, which may be present without `capped`.
fn check_max(_: FeatureVersion, max: Value<'_>) -> Result<()> {
    match whole(max) {
        max if max >= DOCUMENTS_MAX => Err(number_too_large("max", "<", DOCUMENTS_MAX, max)),
        _ => Ok(()),
    }
}

/// Returns a number as a long; 0 for other types.
fn whole(number: Value<'_>) -> i64 {
    saturated_long(number).unwrap_or(0)
}

fn is_id_key(key: Doc<'_>) -> bool {
    let mut fields = key.iter();
    match (fields.next(), fields.next()) {
        (Some(only), None) => only.name == "_id" && only.value.get().as_f64() == Some(1.0),
        _ => false,
    }
}

fn check_id_index(request: &Request<'_>, id_index: Doc<'_>) -> Result<()> {
    let spec = IndexSpec::parse(id_index, None)?;
    if let Some(Value::Document(key)) = id_index.get("key")
        && !is_id_key(key)
    {
        return Err(id_index_key(&key));
    }
    // Without a collation of its own it has that of the collection, except in version 1, which has
    // none.
    let is_first = id_index.get("v").is_some_and(|version| version.as_exact_i64() == Some(1));
    if id_index.get("collation").is_none() && !is_first {
        return Ok(());
    }
    let collation = match request.arg("collation") {
        Some(Value::Document(collation)) => Collation::parse(collation, "collation")?,
        _ => None,
    };
    let doc = |collation: &Option<Collation>| collation.as_ref().map(|it| it.to_doc().to_buf());
    if doc(&spec.collation) != doc(&collation) {
        return Err(id_index_collation());
    }
    Ok(())
}

fn append_number(request: &Request<'_>, name: &str, out: &mut DocWriter<'_>) {
    if let Some(number) = request.arg(name) {
        out.append(name, Value::whole(whole(number)));
    }
}

/// The maximum size of a capped collection, in bytes. Source: manual "create".
const CAPPED_BYTES_MAX: i64 = 1 << 50;

/// The limit of `max`, exclusive.
const DOCUMENTS_MAX: i64 = 1 << 31;

/// Appends `max`. A value that is not positive means no limit, which mongod shows as the maximum.
fn append_max(request: &Request<'_>, out: &mut DocWriter<'_>) {
    if let Some(max) = request.arg("max").map(whole) {
        out.append("max", Value::whole(if max > 0 { max } else { i64::from(i32::MAX) }));
    }
}

/// Requires the privileges to create a collection: to create or to insert; for a view that the user
/// may read, also to read the documents that it shows.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let ns = request.namespace()?;
    let target = Target::collection(ns.db(), ns.collection());
    if request.flag("capped") {
        check.needs(target.clone(), &["convertToCapped"]);
    }
    // The privilege to insert includes the creation of collections, but not of views.
    let by_insert = request.arg("viewOn").is_none() && check.may(&target, "insert");
    let creates = if by_insert { "insert" } else { "createCollection" };
    check.needs(target, &[creates]);
    pipeline::view(request, &ns, check);
    Ok(())
}
