//! `collMod`: changes a collection's validator and limits, an index's options, or a view's
//! definition.

mod index_change;

use std::sync::Arc;

use marula_bson::{BStr, Doc, DocBuf, DocWriter, Element, Type, Value, ValueBuf};
use marula_db::catalog::ddl::{state_changed, until_unchanged};
use marula_db::catalog::options::View;
use marula_db::collection::State;
use marula_db::time_series::{Bucketing, Granularity, SPAN_SECONDS_MAX, TimeSeries};
use marula_db::{Collection, CollectionOptions, IndexSpec, Namespace};
use marula_error::{Result, errors};
use marula_operation::targets;
use marula_operation::time_series::index;
use marula_operation::views::{self, Definition};
use marula_query::expression::saturated_long;
use marula_query::feature_version::FeatureVersion;

use super::create::{
    self, OPTIONS_ORDER, VALIDATION_ACTIONS, VALIDATION_LEVELS, bad_enumeration, check_one_of,
    check_view_on,
};
use super::create_indexes::with_progress;
use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::auth::check::Check;
use crate::auth::pipeline;
use crate::collection_uuid;
use crate::context::Context;
use crate::log::attributes;
use crate::request::Request;
use crate::time_series;
use index_change::IndexChange;

errors! {
    no_collection() = NamespaceNotFound, "ns does not exist";
    nothing_to_make_unique(ns: &Namespace) = NamespaceNotFound, "ns does not exist for unique index conversion: {ns}";
    only_on_view(field: &str) = InvalidOptions, "option only supported on a view: {field}";
    not_on_view(field: &str) = InvalidOptions, "option not supported on a view: {field}";
    half_a_view() = InvalidOptions, "Must specify both 'viewOn' and 'pipeline' when modifying a view and auth is enabled";
    not_capped() = InvalidOptions, "Collection must be capped.";
    not_clustered() = InvalidOptions, "'expireAfterSeconds' option is only supported on collections clustered by _id";
    not_time_series() = InvalidOptions, "option only supported on a time-series collection: isTimeseriesNamespace";
    not_on_time_series(field: &str) = InvalidOptions, "option not supported on a time-series collection: {field}";
    dry_run_without_index() = InvalidOptions, "dry run mode requires an valid index modification.";
    dry_run_of_another() = InvalidOptions, "dry run mode requires an index modification with unique: true.";
    dry_run_of_more() = InvalidOptions, "unique: true cannot be combined with any other modification in dry run mode.";
    ttl_negative() = InvalidOptions, "TTL index 'expireAfterSeconds' option cannot be less than 0";
    expire_text(text: &str) = InvalidOptions, "Invalid string value for the 'clusteredIndex::expireAfterSeconds' option. Got: '{text}'. Accepted value is 'off'";
    both_images() = InvalidOptions, "'recordPreImages' and 'changeStreamPreAndPostImages.enabled' can not be set to true simultaneously";
    wrong_seconds(kind: &str) = TypeMismatch, "BSON field 'collMod.expireAfterSeconds' is the wrong type '{kind}', expected types '[string, long']";
    number_too_small(field: &str, least: i64, value: i64) = 51_024, "BSON field '{field}' value must be >= {least}, actual value '{value}'";
    number_too_large(field: &str, most: &str, value: i64) = 51_024, "BSON field '{field}' value must be {most}, actual value '{value}'";
}

const FIELDS: &[Field] = &[
    Field::optional("index", Types::DOCUMENT).checked(check_index),
    Field::optional("validator", Types::DOCUMENT),
    Field::optional("validationLevel", Types::STRING)
        .checked(|_, level| check_one_of("collMod.validationLevel", level, VALIDATION_LEVELS)),
    Field::optional("validationAction", Types::STRING)
        .checked(|_, action| check_one_of("collMod.validationAction", action, VALIDATION_ACTIONS)),
    Field::optional("viewOn", Types::STRING).checked(check_view_on),
    Field::optional("pipeline", Types::ARRAY).checked(check_pipeline),
    Field::optional("changeStreamPreAndPostImages", Types::DOCUMENT).checked(check_images),
    Field::optional("expireAfterSeconds", SECONDS).or(wrong_seconds),
    Field::optional("cappedSize", Types::NUMBER).checked(check_capped_size),
    Field::optional("cappedMax", Types::NUMBER).checked(check_capped_max),
    Field::optional("timeseries", Types::DOCUMENT).checked(check_time_series),
    Field::optional("collectionUUID", Types::Uuid),
    Field::optional("dryRun", Types::FLAG),
    // mongos sends this field; it has no effect here.
    Field::optional("isTimeseriesNamespace", Types::BOOLEAN),
    Field::optional("recordPreImages", Types::FLAG),
];

/// A number, or the text "off".
const SECONDS: Types =
    Types::Of(&[Type::String, Type::Int64, Type::Int32, Type::Decimal128, Type::Double]);

const IMAGES_FIELDS: &[Field] = &[Field::required("enabled", Types::BOOLEAN)];

const TIME_SERIES_FIELDS: &[Field] = &[
    Field::optional("granularity", Types::STRING),
    Field::optional("bucketMaxSpanSeconds", Types::NUMBER).since(FeatureVersion::V7_0),
    Field::optional("bucketRoundingSeconds", Types::NUMBER).since(FeatureVersion::V7_0),
];

pub(super) static COMMAND: Command = Command {
    name: "collMod",
    help: "Changes a collection's validator or limits, an index's options, or a view's definition.",
    writes: true,
    takes_write_concern: true,
    in_api_v1: true,
    fields: Fields::Strict { place: "collMod", fields: FIELDS },
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    if enables_images(request) == Some(true) && request.flag("recordPreImages") {
        return Err(both_images());
    }
    let ns = request.namespace()?;
    collection_uuid::check_ordinary(context, request, &ns)?;
    if request.flag("dryRun") {
        check_dry_run(request)?;
    }
    let mut collection = find(context, request, &ns)?;
    let attr = attributes(|out| {
        let mut out = out.begin_doc("cmdObj");
        out.append("collMod", ns.collection());
        for field in &request.args {
            out.append_raw(field.name, field.value);
        }
    });
    tracing::info!(target: "COMMAND", id = 5_324_200, attr, "CMD: collMod");
    until_unchanged(|| {
        if collection.is_dropped() {
            collection = find(context, request, &ns)?;
        }
        match change(context, request, &ns, &collection, reply) {
            Err(_) if collection.is_dropped() => Err(state_changed()),
            outcome => outcome,
        }
    })
}

/// Looks up the collection that is changed: for a time series its buckets.
fn find(context: &Context<'_>, request: &Request<'_>, ns: &Namespace) -> Result<Arc<Collection>> {
    let db = &context.server.db;
    let is_to_be_unique = makes_unique(request);
    let collection = db.collection(ns).ok_or_else(|| match is_to_be_unique {
        true if request.flag("dryRun") => not_on_view("index"),
        true => nothing_to_make_unique(ns),
        false => no_collection(),
    })?;
    context.check_user_writes(ns.db())?;
    let collection = db.buckets_of(&collection)?.unwrap_or(collection);
    if is_to_be_unique {
        targets::check_not_view(&collection)?;
    }
    Ok(collection)
}

/// Changes a collection as it is now.
///
/// Errors: a conflict if somebody else changes it at the same time.
fn change(
    context: &Context<'_>,
    request: &Request<'_>,
    ns: &Namespace,
    collection: &Collection,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let (db, is_dry_run) = (&context.server.db, request.flag("dryRun"));
    let state = collection.state();
    if state.options.time_series.is_some() {
        return change_time_series(context, request, collection, &state, reply);
    }
    check(context, request, ns, collection)?;
    let index = match request.arg("index") {
        Some(Value::Document(change)) => {
            Some(IndexChange::parse(change, collection, ns, changes_one_thing(request))?)
        }
        _ => None,
    };
    let changed = changed_options(context, request, state.options.document.as_doc())?;
    // Stored options are parsed with the newest language; only a new validator is limited to the
    // feature version.
    let is_validator = request.arg("validator").is_some();
    let version = if is_validator { db.feature_version() } else { FeatureVersion::NEWEST };
    let options = CollectionOptions::parse_new(changed.as_doc(), version);
    let counters = &context.server.counters.coll_mod_validators;
    counters.note(request.arg("validator"), options.is_err());
    let options = options.map_err(|error| {
        if is_validator { error.caused_by("Parsing of collection validator failed") } else { error }
    })?;
    check_rest(request, &state)?;
    if let Some(index) = index.as_ref().filter(|index| index.makes_unique()) {
        make_unique(context, ns, collection, index.name(), is_dry_run)?;
    }
    if is_dry_run {
        return Ok(Outcome::Done);
    }
    // An index that became unique is a change of the state, too.
    let now = collection.state();
    let before = if now.options.document == state.options.document { &now } else { &state };
    let change = changed_specs(before, index.as_ref())?;
    match &state.options.view {
        // Another view may have changed since this one was checked.
        Some(existing) => {
            let definition = changed_view(request, ns, &state.options, existing);
            db.change_view(collection, &state, options, &|| views::check_graph(db, &definition))?;
        }
        None => db.change_collection(collection, before, options, &change)?,
    }
    if let Some(index) = &index {
        index.report(reply);
    }
    Ok(Outcome::Done)
}

fn check_index(_: FeatureVersion, change: Value<'_>) -> Result<()> {
    index_change::check_form(change.as_doc().unwrap_or(Doc::EMPTY))
}

fn check_time_series(version: FeatureVersion, asked: Value<'_>) -> Result<()> {
    let asked = asked.as_doc().unwrap_or(Doc::EMPTY);
    fields::check_doc_in(version, "collMod.timeseries", TIME_SERIES_FIELDS, asked)?;
    new_granularity(asked).map(|_| ())
}

fn check_images(_: FeatureVersion, images: Value<'_>) -> Result<()> {
    let images = images.as_doc().unwrap_or(Doc::EMPTY);
    fields::check_doc("collMod.changeStreamPreAndPostImages", IMAGES_FIELDS, images)
}

fn check_pipeline(_: FeatureVersion, pipeline: Value<'_>) -> Result<()> {
    views::check_stages_are_documents("collMod", pipeline.as_array().unwrap_or(Doc::EMPTY))
}

/// The maximum size of a capped collection: a pebibyte.
const CAPPED_BYTES_MAX: i64 = 1 << 50;

fn check_capped_size(_: FeatureVersion, size: Value<'_>) -> Result<()> {
    const NAME: &str = "cappedSize";
    match whole(size) {
        size if size < 1 => Err(number_too_small(NAME, 1, size)),
        size if size > CAPPED_BYTES_MAX => {
            Err(number_too_large(NAME, &format!("<= {CAPPED_BYTES_MAX}"), size))
        }
        _ => Ok(()),
    }
}

/// The maximum number of documents of a capped collection; it is also stored if there is no limit.
const CAPPED_DOCUMENTS_MAX: i64 = i32::MAX as i64;

fn check_capped_max(_: FeatureVersion, max: Value<'_>) -> Result<()> {
    match whole(max) {
        max if max > CAPPED_DOCUMENTS_MAX => {
            Err(number_too_large("cappedMax", &format!("< {}", CAPPED_DOCUMENTS_MAX + 1), max))
        }
        _ => Ok(()),
    }
}

/// Returns a number without its fraction, a decimal rounded.
fn whole(number: Value<'_>) -> i64 {
    saturated_long(number).unwrap_or_default()
}

/// Returns the new granularity, if the request contains one.
fn new_granularity(asked: Doc<'_>) -> Result<Option<Granularity>> {
    let Some(name) = asked.get("granularity").and_then(|name| name.as_str()) else {
        return Ok(None);
    };
    let name = name.to_string();
    let granularity = Granularity::from_name(&name);
    granularity.map(Some).ok_or_else(|| bad_enumeration(&name, "collMod.timeseries.granularity"))
}

/// Returns whether the request enables or disables pre- and post-images; `None` if it does neither.
fn enables_images(request: &Request<'_>) -> Option<bool> {
    let images = request.arg("changeStreamPreAndPostImages")?.as_doc()?;
    Some(images.get("enabled")?.is_truthy())
}

/// Returns whether the request makes an index unique.
fn makes_unique(request: &Request<'_>) -> bool {
    let change = request.arg("index").and_then(|change| change.as_doc());
    change.and_then(|change| change.get("unique")).is_some_and(|unique| unique.is_truthy())
}

/// The fields that are no change of their own, or in mongod are not counted as one.
const NOT_COUNTED: &[&str] =
    &["dryRun", "collectionUUID", "isTimeseriesNamespace", "cappedSize", "cappedMax"];

/// Returns whether the request has only one field with a change.
fn changes_one_thing(request: &Request<'_>) -> bool {
    let changes = FIELDS.iter().filter(|field| !NOT_COUNTED.contains(&field.name));
    changes.filter(|field| request.arg(field.name).is_some()).count() == 1
}

/// Checks that a dry run only makes an index unique: other changes have none.
fn check_dry_run(request: &Request<'_>) -> Result<()> {
    let Some(Value::Document(change)) = request.arg("index") else {
        return Err(dry_run_without_index());
    };
    if !makes_unique(request) {
        return Err(dry_run_of_another());
    }
    let is_other = |name: &str| change.get(name).is_some_and(|value| !value.is_nullish());
    let has_others = ["expireAfterSeconds", "hidden"].into_iter().any(is_other);
    match !has_others && changes_one_thing(request) {
        true => Ok(()),
        false => Err(dry_run_of_more()),
    }
}

/// Makes the prepared index `name` unique; a dry run only checks whether that is possible.
fn make_unique(
    context: &Context<'_>,
    ns: &Namespace,
    collection: &Collection,
    name: &str,
    is_dry_run: bool,
) -> Result<()> {
    let db = &context.server.db;
    let state = collection.state();
    let index = state.index(name).ok_or_else(|| index_change::no_index(name, ns))?;
    let spec = IndexChange::unique_spec(&index.spec);
    db.check_unique(collection, index, &mut || context.check_interrupt())?;
    if is_dry_run {
        return Ok(());
    }
    let spec = spec?;
    with_progress(context, ns, |options| db.make_unique(collection, index, spec, options))
}

/// Returns a function that returns the new specification of a changed index. A specification that
/// does not parse fails before anything is changed.
fn changed_specs(
    state: &State,
    index: Option<&IndexChange>,
) -> Result<impl Fn(&IndexSpec) -> Option<IndexSpec>> {
    let concerned = state.indexes.iter().map(|existing| &existing.spec);
    let concerned = concerned.filter(|spec| index.is_some_and(|index| index.name() == spec.name));
    let changed = concerned
        .map(|spec| index.map_or_else(|| Ok(spec.clone()), |index| index.apply(spec)))
        .collect::<Result<Vec<_>>>()?;
    Ok(move |spec: &IndexSpec| changed.iter().find(|changed| changed.name == spec.name).cloned())
}

/// Returns the options of a time-series collection's buckets with the request's changes.
fn changed_time_series(
    context: &Context<'_>,
    request: &Request<'_>,
    options: &CollectionOptions,
    time_series: &TimeSeries,
) -> Result<DocBuf> {
    let said =
        |names: &[&'static str]| names.iter().copied().find(|name| request.arg(name).is_some());
    if let Some(name) = said(&["validator", "validationLevel", "validationAction"]) {
        return Err(not_on_time_series(name));
    }
    if let Some(name) = said(&["pipeline", "viewOn"]) {
        return Err(only_on_view(name));
    }
    if let Some(name) = said(&["changeStreamPreAndPostImages", "recordPreImages"]) {
        return Err(not_on_time_series(name));
    }
    let mut changed = time_series.clone();
    if let Some(Value::Document(asked)) = request.arg("timeseries") {
        if let Some(wanted) = new_granularity(asked)? {
            changed.bucketing = match time_series.bucketing {
                Bucketing::Granularity(before) if wanted >= before => {
                    Bucketing::Granularity(wanted)
                }
                _ => return Err(time_series::bad_transition()),
            };
        }
        match time_series::seconds_of(asked)? {
            (None, None) => {}
            (span, rounding) => {
                let before = time_series.bucketing.span_seconds();
                let seconds = span
                    .filter(|_| span == rounding && asked.get("granularity").is_none())
                    .and_then(|seconds| i32::try_from(seconds).ok())
                    .filter(|seconds| (before..=SPAN_SECONDS_MAX).contains(seconds));
                let seconds = seconds.ok_or_else(time_series::bad_span_transition)?;
                changed.bucketing = Bucketing::Seconds(seconds);
            }
        }
    }
    let expire_after = match request.arg("expireAfterSeconds") {
        Some(seconds) => expire_after(seconds, context.now_ms)?,
        None => options.document.as_doc().get("expireAfterSeconds").map(|value| value.to_buf()),
    };
    Ok(DocBuf::build(|out| {
        for Element { name, value } in options.document.as_doc() {
            if name != "expireAfterSeconds" && name != "timeseries" {
                out.append_raw(name, value);
            }
        }
        if let Some(seconds) = &expire_after {
            out.append("expireAfterSeconds", seconds);
        }
        out.append("timeseries", &changed.to_stored_doc());
    }))
}

/// Changes a time-series collection: its buckets, and the view of them.
fn change_time_series(
    context: &Context<'_>,
    request: &Request<'_>,
    buckets: &Collection,
    state: &Arc<State>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let Some(time_series) = &state.options.time_series else { return Ok(Outcome::Done) };
    let index = match request.arg("index") {
        Some(Value::Document(change)) => {
            let change = with_key_of_buckets(change, time_series)
                .map_err(|error| time_series::not_found(error, request))?;
            Some(IndexChange::parse(
                change.as_doc(),
                buckets,
                &buckets.namespace(),
                changes_one_thing(request),
            )?)
        }
        _ => None,
    };
    let changed = changed_time_series(context, request, &state.options, time_series)?;
    let options = CollectionOptions::parse(changed.as_doc())?;
    let change = changed_specs(state, index.as_ref())?;
    context.server.db.change_time_series(buckets, state, options, &change)?;
    if let Some(index) = &index {
        index.report(reply);
    }
    Ok(Outcome::Done)
}

fn with_key_of_buckets(change: Doc<'_>, options: &TimeSeries) -> Result<DocBuf> {
    let key = change.get("keyPattern").and_then(|key| key.as_doc());
    let key = key.map(|key| index::key_of_buckets(options, key)).transpose()?;
    Ok(DocBuf::build(|out| {
        for Element { name, value } in change {
            match &key {
                Some(key) if name == "keyPattern" => out.append(name, key),
                _ => out.append_raw(name, value),
            };
        }
    }))
}

/// Returns the definition of a view with the request's changes.
fn changed_view<'a>(
    request: &'a Request<'_>,
    ns: &'a Namespace,
    options: &'a CollectionOptions,
    existing: &'a View,
) -> Definition<'a> {
    let on = request.text("viewOn").map_or_else(|| existing.on.clone(), |on| on.to_string());
    let pipeline = request.arg("pipeline").and_then(|value| value.as_array());
    let pipeline = pipeline.unwrap_or(existing.pipeline.as_doc());
    Definition { view: ns, on, pipeline, collation: options.collation.clone() }
}

fn check(
    context: &Context<'_>,
    request: &Request<'_>,
    ns: &Namespace,
    collection: &Collection,
) -> Result<()> {
    let state = collection.state();
    let has = |name: &str| request.arg(name).is_some();
    if let Some(existing) = &state.options.view {
        for name in [
            "index",
            "validator",
            "validationLevel",
            "validationAction",
            "changeStreamPreAndPostImages",
            "recordPreImages",
            "expireAfterSeconds",
            "cappedSize",
            "cappedMax",
        ] {
            if has(name) {
                return Err(not_on_view(name));
            }
        }
        if has("timeseries") {
            return Err(not_time_series());
        }
        let definition = changed_view(request, ns, &state.options, existing);
        return views::check(&context.server.db, "collMod", &definition);
    }
    match (has("cappedSize") || has("cappedMax")) && state.options.capped.is_none() {
        true => Err(not_capped()),
        false => Ok(()),
    }
}

/// Checks the fields of a collection that is not a view whose errors mongod reports after those of
/// the index and the validator.
fn check_rest(request: &Request<'_>, state: &State) -> Result<()> {
    if state.options.view.is_some() {
        return Ok(());
    }
    let has = |name: &str| request.arg(name).is_some();
    if let Some(name) = ["pipeline", "viewOn"].into_iter().find(|name| has(name)) {
        return Err(only_on_view(name));
    }
    if has("timeseries") {
        return Err(not_time_series());
    }
    match has("expireAfterSeconds") && state.options.clustered.is_none() {
        true => Err(not_clustered()),
        false => Ok(()),
    }
}

/// Returns the options with the request's changes.
fn changed_options(
    context: &Context<'_>,
    request: &Request<'_>,
    options: Doc<'_>,
) -> Result<DocBuf> {
    let mut changes: Vec<(&str, Option<ValueBuf>)> = Vec::new();
    for name in ["viewOn", "pipeline"] {
        if let Some(value) = request.arg(name) {
            changes.push((name, Some(value.to_buf())));
        }
    }
    if let Some(Value::Document(validator)) = request.arg("validator") {
        changes.push(("validator", (!validator.is_empty()).then(|| ValueBuf::from(validator))));
    }
    // A change of the validator, its level or its action stores the defaults of the other two as
    // well.
    let validation = [("validationLevel", "strict"), ("validationAction", "error")];
    if request.arg("validator").is_some()
        || validation.iter().any(|(name, _)| request.arg(name).is_some())
    {
        for (name, usual) in validation {
            let value = request.arg(name).or_else(|| options.get(name));
            changes.push((name, Some(value.unwrap_or(usual.into()).to_buf())));
        }
    }
    changes.extend(changed_images(request));
    // For a collection that is not clustered, `expireAfterSeconds` is rejected later.
    let is_clustered = options.get("clusteredIndex").is_some();
    if let Some(seconds) = request.arg("expireAfterSeconds").filter(|_| is_clustered) {
        changes.push(("expireAfterSeconds", expire_after(seconds, context.now_ms)?));
    }
    if let Some(size) = request.arg("cappedSize") {
        changes.push(("size", Some(Value::whole(whole(size)).to_buf())));
    }
    if let Some(max) = request.arg("cappedMax") {
        let max = Some(whole(max)).filter(|&max| max > 0).unwrap_or(CAPPED_DOCUMENTS_MAX);
        changes.push(("max", Some(Value::whole(max).to_buf())));
    }
    let changed = |name: &BStr| changes.iter().find(|(changed, _)| name == *changed);
    let mut all: Vec<(&BStr, ValueBuf)> = Vec::new();
    for Element { name, value } in options.iter().filter(|option| changed(option.name).is_none()) {
        all.push((name, value.get().to_buf()));
    }
    for (name, value) in &changes {
        all.extend(value.clone().map(|value| ((*name).into(), value)));
    }
    let rank = |name: &BStr| OPTIONS_ORDER.iter().position(|known| name == *known);
    all.sort_by_key(|(name, _)| rank(name).unwrap_or(OPTIONS_ORDER.len()));
    Ok(DocBuf::build(|out| {
        for (name, value) in &all {
            out.append(name, value);
        }
    }))
}

/// Returns the changes of the options for pre- and post-images: `changeStreamPreAndPostImages` and
/// its predecessor `recordPreImages`. Enabling one removes the other; a disabled option is not
/// stored.
fn changed_images(request: &Request<'_>) -> Vec<(&'static str, Option<ValueBuf>)> {
    let mut changes = Vec::new();
    if let Some(images) = request.arg("changeStreamPreAndPostImages") {
        let is_enabled = enables_images(request) == Some(true);
        changes.push(("changeStreamPreAndPostImages", is_enabled.then(|| images.to_buf())));
        if is_enabled {
            changes.push(("recordPreImages", None));
        }
    }
    if request.arg("recordPreImages").is_some() {
        let is_on = request.flag("recordPreImages");
        changes.push(("recordPreImages", is_on.then(|| ValueBuf::from(true))));
        if is_on {
            changes.push(("changeStreamPreAndPostImages", None));
        }
    }
    changes
}

/// Returns the expiry of a clustered collection in its stored form; `None` for "off".
fn expire_after(seconds: Value<'_>, now_ms: i64) -> Result<Option<ValueBuf>> {
    if let Value::String(text) = seconds {
        return if text == "off" { Ok(None) } else { Err(expire_text(&text.to_string())) };
    }
    let seconds = create::expiry(seconds, now_ms)?;
    Ok(Some(ValueBuf::from(seconds)))
}

/// Requires the privileges to change a collection; for a view that the user may read, also to read
/// the documents that it will show.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let ns = request.namespace()?;
    check.needs_on(ns.db(), ns.collection(), &["collMod"]);
    // A part alone cannot be checked: which documents the view would show depends on the other.
    if !check.is_refused() && request.arg("viewOn").is_some() != request.arg("pipeline").is_some() {
        return Err(half_a_view());
    }
    pipeline::view(request, &ns, check);
    Ok(())
}
