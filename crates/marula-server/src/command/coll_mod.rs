//! `collMod`: changes a collection's validator and bounds, an index's options, or a view's definition.

use marula_bson::{Doc, DocBuf, DocWriter, Element, Type, Value, ValueBuf};
use marula_db::collection::State;
use marula_db::index::spec::same_pattern;
use marula_db::time_series::{Granularity, TimeSeries};
use marula_db::{Collection, CollectionOptions, IndexSpec, Namespace};
use marula_error::{Result, errors};

use super::create::bad_enumeration;
use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::context::Context;
use crate::request::Request;
use crate::time_series;
use crate::view::{self, Definition};

errors! {
    no_collection() = NamespaceNotFound, "ns does not exist";
    only_on_view(field: &str) = InvalidOptions, "option only supported on a view: {field}";
    not_on_view(field: &str) = InvalidOptions, "option not supported on a view: {field}";
    not_capped() = InvalidOptions, "Collection must be capped.";
    not_clustered() = InvalidOptions, "'expireAfterSeconds' option is only supported on collections clustered by _id";
    not_time_series() = InvalidOptions, "option only supported on a time-series collection: isTimeseriesNamespace";
    not_on_time_series(field: &str) = InvalidOptions, "option not supported on a time-series collection: {field}";
    no_ttl_index() = InvalidOptions, "TTL indexes are not supported for time-series collections. Please refer to the documentation and use the top-level 'expireAfterSeconds' option instead";
    name_or_key() = InvalidOptions, "Must specify either index name or key pattern.";
    name_and_key() = InvalidOptions, "Cannot specify both key pattern and name.";
    no_index_change() = InvalidOptions, "no expireAfterSeconds, hidden, unique, or prepareUnique field";
    no_index(index: &str, ns: &Namespace) = IndexNotFound, "cannot find index {index} for ns {ns}";
    clustered_hidden() = 6_011_800, "The 'hidden' option is not supported for a clusteredIndex";
    id_hidden() = BadValue, "can't hide _id index";
    ttl_negative() = InvalidOptions, "TTL index 'expireAfterSeconds' option cannot be less than 0";
    ttl_too_large() = InvalidOptions, "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a lower number";
    expire_text(text: &str) = InvalidOptions, "Invalid string value for the 'clusteredIndex::expireAfterSeconds' option. Got: '{text}'. Accepted value is 'off'";
    unprepared() = InvalidOptions, "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it first.";
    unique_not_offered() = CommandNotSupported, "an index that exists cannot be made unique on this server; build another";
    number_too_small(field: &str, least: i64, value: i64) = 51_024, "BSON field '{field}' value must be >= {least}, actual value '{value}'";
}

const FIELDS: &[Field] = &[
    Field::optional("index", Types::DOCUMENT),
    Field::optional("validator", Types::DOCUMENT),
    Field::optional("validationLevel", Types::STRING),
    Field::optional("validationAction", Types::STRING),
    Field::optional("viewOn", Types::STRING),
    Field::optional("pipeline", Types::ARRAY),
    Field::optional("changeStreamPreAndPostImages", Types::DOCUMENT),
    Field::optional(
        "expireAfterSeconds",
        Types::Of(&[Type::String, Type::Int64, Type::Int32, Type::Decimal128, Type::Double]),
    ),
    Field::optional("cappedSize", Types::NUMBER),
    Field::optional("cappedMax", Types::NUMBER),
    Field::optional("timeseries", Types::DOCUMENT),
    Field::optional("dryRun", Types::FLAG),
];

const TIME_SERIES_FIELDS: &[Field] = &[Field::optional("granularity", Types::STRING)];

const INDEX_FIELDS: &[Field] = &[
    Field::optional("name", Types::STRING),
    Field::optional("keyPattern", Types::DOCUMENT),
    Field::optional("expireAfterSeconds", Types::NUMBER),
    Field::optional("hidden", Types::FLAG),
    Field::optional("unique", Types::FLAG),
    Field::optional("prepareUnique", Types::FLAG),
];

pub(super) static COMMAND: Command = Command {
    name: "collMod",
    help: "Changes a collection's validator or bounds, an index's options, or what a view shows.",
    writes: true,
    takes_write_concern: true,
    in_api_v1: true,
    fields: Fields::Strict { place: "collMod", fields: FIELDS },
    auth: Auth::Collection(&["collMod"]),
    run,
    ..Command::DEFAULT
};

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let ns = request.namespace()?;
    let db = &context.server.db;
    let collection = db.collection(&ns).ok_or_else(no_collection)?;
    let collection = db.buckets_of(&collection)?.unwrap_or(collection);
    let state = collection.state();
    if let Some(options) = &state.options.time_series {
        let changed = changed_time_series(request, &state.options, options)?;
        return change_time_series(context, request, &collection, changed, reply);
    }
    check(context, request, &ns, &collection)?;
    let changed = changed_options(request, state.options.document.as_doc())?;
    // Nothing else that a request changes is parsed here.
    let options = CollectionOptions::parse(changed.as_doc()).map_err(|error| {
        let is_validator = request.arg("validator").is_some();
        if is_validator { error.caused_by("Parsing of collection validator failed") } else { error }
    })?;
    let index = match request.arg("index") {
        Some(Value::Document(change)) => Some(IndexChange::parse(change, &collection, &ns)?),
        _ => None,
    };
    if request.flag("dryRun") {
        return Ok(Outcome::Done);
    }
    let change = changed_specs(&state, index.as_ref())?;
    db.change_collection(&collection, options, &change)?;
    if let Some(index) = &index {
        index.report(reply);
    }
    Ok(Outcome::Done)
}

/// What becomes of each index. A specification that does not parse fails before anything is changed.
fn changed_specs(
    state: &State,
    index: Option<&IndexChange>,
) -> Result<impl Fn(&IndexSpec) -> Option<IndexSpec>> {
    let concerned = state.indexes.iter().map(|existing| &existing.spec);
    let concerned = concerned.filter(|spec| index.is_some_and(|index| index.name == spec.name));
    let changed = concerned
        .map(|spec| index.map_or_else(|| Ok(spec.clone()), |index| index.apply(spec)))
        .collect::<Result<Vec<_>>>()?;
    Ok(move |spec: &IndexSpec| changed.iter().find(|changed| changed.name == spec.name).cloned())
}

/// The options of a time-series collection's buckets with the request's changes.
fn changed_time_series(
    request: &Request<'_>,
    options: &CollectionOptions,
    time_series: &TimeSeries,
) -> Result<DocBuf> {
    let not_supported =
        ["validator", "validationLevel", "validationAction", "changeStreamPreAndPostImages"];
    if let Some(name) = not_supported.iter().find(|name| request.arg(name).is_some()) {
        return Err(not_on_time_series(name));
    }
    if let Some(name) = ["pipeline", "viewOn"].iter().find(|name| request.arg(name).is_some()) {
        return Err(only_on_view(name));
    }
    let mut changed = time_series.clone();
    if let Some(Value::Document(asked)) = request.arg("timeseries") {
        fields::check_doc("collMod.timeseries", TIME_SERIES_FIELDS, asked)?;
        if let Some(name) = asked.get("granularity").and_then(|name| name.as_str()) {
            let name = name.to_string();
            let wanted = Granularity::from_name(&name)
                .ok_or_else(|| bad_enumeration(&name, "collMod.timeseries.granularity"))?;
            if wanted < time_series.granularity {
                return Err(time_series::bad_transition());
            }
            changed.granularity = wanted;
        }
    }
    let expire_after = match request.arg("expireAfterSeconds") {
        Some(seconds) => expire_after(seconds)?,
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

/// Changes a time-series collection: its buckets, and what shows them.
fn change_time_series(
    context: &Context<'_>,
    request: &Request<'_>,
    buckets: &Collection,
    changed: DocBuf,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let state = buckets.state();
    let options = CollectionOptions::parse(changed.as_doc())?;
    let index = match (request.arg("index"), &state.options.time_series) {
        (Some(Value::Document(change)), Some(options)) => {
            if change.get("expireAfterSeconds").is_some() {
                return Err(no_ttl_index());
            }
            let change = with_key_of_buckets(change, options)?;
            Some(IndexChange::parse(change.as_doc(), buckets, &buckets.namespace())?)
        }
        _ => None,
    };
    if request.flag("dryRun") {
        return Ok(Outcome::Done);
    }
    let change = changed_specs(&state, index.as_ref())?;
    context.server.db.change_time_series(buckets, options, &change)?;
    if let Some(index) = &index {
        index.report(reply);
    }
    Ok(Outcome::Done)
}

fn with_key_of_buckets(change: Doc<'_>, options: &TimeSeries) -> Result<DocBuf> {
    let key = change.get("keyPattern").and_then(|key| key.as_doc());
    let key = key.map(|key| time_series::index::key_of_buckets(options, key)).transpose()?;
    Ok(DocBuf::build(|out| {
        for Element { name, value } in change {
            match &key {
                Some(key) if name == "keyPattern" => out.append(name, key),
                _ => out.append_raw(name, value),
            };
        }
    }))
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
        for name in
            ["index", "validator", "validationLevel", "validationAction", "cappedSize", "cappedMax"]
        {
            if has(name) {
                return Err(not_on_view(name));
            }
        }
        let on = request.text("viewOn").map_or_else(|| existing.on.clone(), |on| on.to_string());
        let pipeline = request.arg("pipeline").and_then(|value| value.as_array());
        let pipeline = pipeline.unwrap_or(existing.pipeline.as_doc());
        let collation = state.options.collation.clone();
        let definition = Definition { view: ns, on: &on, pipeline, collation };
        return view::check(context.server, "collMod", &definition);
    }
    for name in ["pipeline", "viewOn"] {
        if has(name) {
            return Err(only_on_view(name));
        }
    }
    if has("timeseries") {
        return Err(not_time_series());
    }
    if (has("cappedSize") || has("cappedMax")) && state.options.capped.is_none() {
        return Err(not_capped());
    }
    if has("expireAfterSeconds") && state.options.clustered.is_none() {
        return Err(not_clustered());
    }
    for (name, values) in [
        ("validationLevel", &["off", "strict", "moderate"][..]),
        ("validationAction", &["error", "warn"]),
    ] {
        if let Some(text) = request.text(name)
            && !values.iter().any(|value| text == *value)
        {
            return Err(bad_enumeration(&text.to_string(), &format!("collMod.{name}")));
        }
    }
    Ok(())
}

/// The options with the request's changes.
fn changed_options(request: &Request<'_>, options: Doc<'_>) -> Result<DocBuf> {
    let mut changes: Vec<(&str, Option<ValueBuf>)> = Vec::new();
    for name in [
        "viewOn",
        "pipeline",
        "validationLevel",
        "validationAction",
        "changeStreamPreAndPostImages",
    ] {
        if let Some(value) = request.arg(name) {
            changes.push((name, Some(value.to_buf())));
        }
    }
    if let Some(seconds) = request.arg("expireAfterSeconds") {
        changes.push(("expireAfterSeconds", expire_after(seconds)?));
    }
    if let Some(Value::Document(validator)) = request.arg("validator") {
        changes.push(("validator", (!validator.is_empty()).then(|| ValueBuf::from(validator))));
    }
    for (name, option, least) in [("cappedSize", "size", 1), ("cappedMax", "max", i64::MIN)] {
        if let Some(number) = request.arg(name).and_then(|value| value.as_f64()) {
            #[allow(clippy::cast_possible_truncation)]
            let number = number as i64;
            if number < least {
                return Err(number_too_small(name, least, number));
            }
            let value =
                i32::try_from(number).map_or_else(|_| ValueBuf::from(number), ValueBuf::from);
            changes.push((option, Some(value)));
        }
    }
    Ok(DocBuf::build(|out| {
        for Element { name, value } in options {
            match changes.iter().find(|(changed, _)| name == *changed) {
                Some((_, Some(value))) => out.append(name, value),
                Some((_, None)) => out,
                None => out.append_raw(name, value),
            };
        }
        for (name, value) in &changes {
            if let Some(value) = value
                && options.get_raw(name.as_bytes()).is_none()
            {
                out.append(name, value);
            }
        }
    }))
}

/// When documents of a clustered collection expire, as its options hold it; `"off"` is never.
fn expire_after(seconds: Value<'_>) -> Result<Option<ValueBuf>> {
    if let Value::String(text) = seconds {
        return if text == "off" { Ok(None) } else { Err(expire_text(&text.to_string())) };
    }
    // What is no number is zero, and fractions are cut off.
    #[allow(clippy::cast_possible_truncation)]
    let whole = seconds.as_f64().unwrap_or_default() as i64;
    match i32::try_from(whole) {
        _ if whole < 0 => Err(ttl_negative()),
        Ok(whole) => Ok(Some(ValueBuf::from(i64::from(whole)))),
        Err(_) => Err(ttl_too_large()),
    }
}

/// What changes in an index.
struct IndexChange {
    name: String,
    /// The old value, and the new.
    expire_after: Option<(Option<ValueBuf>, ValueBuf)>,
    hidden: Option<(bool, bool)>,
    prepare_unique: Option<(bool, bool)>,
}

impl IndexChange {
    fn parse(change: Doc<'_>, collection: &Collection, ns: &Namespace) -> Result<Self> {
        fields::check_doc("collMod.index", INDEX_FIELDS, change)?;
        let state = collection.state();
        let name = change.get("name").and_then(|name| name.as_str());
        let key = change.get("keyPattern").and_then(|key| key.as_doc());
        let found = match (name, key) {
            (None, None) => return Err(name_or_key()),
            (Some(_), Some(_)) => return Err(name_and_key()),
            (Some(name), None) => state.index(&name.to_string()),
            (None, Some(key)) => {
                state.indexes.iter().find(|index| same_pattern(index.spec.key.as_doc(), key))
            }
        };
        let flag = |field: &str| change.get(field).map(|value| value.is_truthy());
        let expire_after = change.get("expireAfterSeconds");
        if expire_after.is_none()
            && ["hidden", "unique", "prepareUnique"].iter().all(|field| flag(field).is_none())
        {
            return Err(no_index_change());
        }
        let described = name.map(|name| name.to_string()).or(key.map(|key| key.to_string()));
        if flag("hidden").is_some()
            && name.is_some_and(|name| state.is_clustered_as(&name.to_string()))
        {
            return Err(clustered_hidden());
        }
        let index = found.ok_or_else(|| no_index(&described.unwrap_or_default(), ns))?;
        let spec = index.spec.document.as_doc();
        if flag("hidden") == Some(true) && index.spec.is_id() {
            return Err(id_hidden());
        }
        if expire_after.and_then(|seconds| seconds.as_f64()).is_some_and(|seconds| seconds < 0.0) {
            return Err(ttl_negative());
        }
        let is = |field: &str| spec.get(field).is_some_and(|value| value.is_truthy());
        if flag("unique") == Some(true) && !index.spec.unique {
            return Err(if is("prepareUnique") { unique_not_offered() } else { unprepared() });
        }
        let changes = |field: &str| {
            let (old, new) = (is(field), flag(field)?);
            (old != new).then_some((old, new))
        };
        Ok(IndexChange {
            name: index.spec.name.clone(),
            expire_after: expire_after
                .map(|new| (spec.get("expireAfterSeconds").map(|old| old.to_buf()), new.to_buf())),
            hidden: changes("hidden"),
            prepare_unique: changes("prepareUnique"),
        })
    }

    fn apply(&self, spec: &IndexSpec) -> Result<IndexSpec> {
        let mut changes: Vec<(&str, Option<ValueBuf>)> = Vec::new();
        if let Some((_, new)) = &self.expire_after {
            changes.push(("expireAfterSeconds", Some(new.clone())));
        }
        for (name, change) in [("hidden", self.hidden), ("prepareUnique", self.prepare_unique)] {
            if let Some((_, new)) = change {
                changes.push((name, new.then(|| ValueBuf::from(true))));
            }
        }
        let document = DocBuf::build(|out| {
            for Element { name, value } in spec.document.as_doc() {
                match changes.iter().find(|(changed, _)| name == *changed) {
                    Some((_, Some(value))) => out.append(name, value),
                    Some((_, None)) => out,
                    None => out.append_raw(name, value),
                };
            }
            for (name, value) in &changes {
                if let Some(value) = value
                    && spec.document.as_doc().get_raw(name.as_bytes()).is_none()
                {
                    out.append(name, value);
                }
            }
        });
        // The document has its own collation already.
        IndexSpec::parse(document.as_doc(), None)
    }

    fn report(&self, reply: &mut DocWriter<'_>) {
        if let Some((old, new)) = &self.expire_after {
            if let Some(old) = old {
                append_seconds(reply, "expireAfterSeconds_old", old);
            }
            append_seconds(reply, "expireAfterSeconds_new", new);
        }
        if let Some((old, new)) = self.hidden {
            reply.append("hidden_old", old).append("hidden_new", new);
        }
        if let Some((old, new)) = self.prepare_unique {
            reply.append("prepareUnique_old", old).append("prepareUnique_new", new);
        }
    }
}

fn append_seconds(reply: &mut DocWriter<'_>, name: &str, seconds: &ValueBuf) {
    #[allow(clippy::cast_possible_truncation)]
    let seconds = seconds.get().as_f64().unwrap_or(0.0) as i64;
    reply.append(name, seconds);
}
