//! Indexes of time-series collections: a client names fields of measurements, an index has fields
//! of their buckets.
//!
//! The meta field is `meta` in a bucket. The time, and any other field, is indexed by the least and
//! the greatest value of the bucket. A specification that cannot be derived from the key alone is
//! stored as `originalSpec`.

use marula_bson::{ByteSlice, Doc, DocBuf, DocWriter, Element, Value};
use marula_db::time_series::TimeSeries;
use marula_error::{Code, Error, Result, codes, errors};
use marula_query::collation::Collation;
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;
use marula_query::stage::{Kind, Pipeline, UnpackBucket};

errors! {
    no_unique() = InvalidOptions, "Unique indexes are not supported on time-series collections";
    no_ttl() = InvalidOptions, "TTL indexes are not supported on time-series collections";
    no_text() = InvalidOptions, "Text indexes are not supported on time-series collections";
    sparse_measurements() = InvalidOptions, "Sparse indexes are not supported on time-series measurements";
    partial_collation() = IndexOptionsConflict, "On a time-series collection, partialFilterExpression and collation arguments are incompatible";
    no_fields() = CannotCreateIndex, "BadValue: Empty object is not a valid index spec";
    not_an_object(field: &str) = 10_065, "invalid parameter: expected an object ({field})";
    time_kind(key: &Doc<'_>, field: &Element<'_>) = CannotCreateIndex, "BadValue: Invalid index spec for time-series collection: {key}. Indexes on the time field must be ascending or descending (numbers only): {field}";
    measurement_kind(key: &Doc<'_>, field: &Element<'_>) = CannotCreateIndex, "BadValue: Invalid index spec for time-series collection: {key}. Indexes on measurement fields must be ascending or descending (numbers only), or '2dsphere': {field}";
}

const SPHERE_VERSION: &[u8] = b"2dsphereIndexVersion";

/// The specification of the buckets' index that serves one on measurements. `collation` is that of
/// the collection, which applies if the specification has none.
///
/// Errors: kinds and options that time-series collections do not have.
pub fn of_buckets(
    options: &TimeSeries,
    spec: Doc<'_>,
    collation: Option<&Collation>,
) -> Result<DocBuf> {
    let key = match spec.get("key") {
        // A missing key is the same error as for any index.
        None => return Ok(spec.to_buf()),
        Some(key) => key.as_doc().ok_or_else(|| not_an_object("key"))?,
    };
    if key.is_empty() {
        return Err(no_fields());
    }
    if key.values().any(|kind| kind == Value::String("text".into())) {
        return Err(no_text());
    }
    let mut needs_original = false;
    let mut of_buckets = DocBuf::new();
    for field in key {
        needs_original |= push_field(options, key, field, &mut of_buckets)?;
    }
    if spec.get("unique").is_some_and(|unique| unique.is_truthy()) {
        return Err(no_unique());
    }
    if spec.get("expireAfterSeconds").is_some() {
        return Err(no_ttl());
    }
    if spec.get("partialFilterExpression").is_some() && spec.get("collation").is_some() {
        return Err(partial_collation());
    }
    if needs_original && spec.get("sparse").is_some() {
        return Err(sparse_measurements());
    }
    let partial = match spec.get("partialFilterExpression") {
        None => None,
        Some(Value::Document(partial)) => Some(bucket_filter(options, partial)?),
        Some(_) => return Err(not_an_object("partialFilterExpression")),
    };
    // The client's own collation, which may be the simple one, is stored with all its options.
    let given = match spec.get("collation") {
        Some(Value::Document(given)) => Collation::parse(given, "collation").ok(),
        _ => None,
    };
    let collation = match &given {
        Some(given) => given.as_ref(),
        None => collation.filter(|_| spec.get("collation").is_none()),
    };
    Ok(DocBuf::build(|out| {
        for Element { name, value } in spec {
            match (&**name, &partial) {
                (b"key", _) if value.get().as_doc().is_some() => out.append(name, &of_buckets),
                (b"partialFilterExpression", Some(partial)) => out.append(name, partial),
                _ => out.append_raw(name, value),
            };
        }
        if needs_original || partial.is_some() {
            let mut original = out.begin_doc("originalSpec");
            for Element { name, value } in spec {
                if name != "collation" || given.is_none() {
                    original.append_raw(name, value);
                }
            }
            if let Some(collation) = collation {
                if spec.get("v").is_none() {
                    original.append("v", 2);
                }
                original.append("collation", collation.to_doc());
            }
        }
    }))
}

/// Returns an error about an index's key with this code and with the request in its message.
pub fn about_key(error: Error, code: Code, request: Doc<'_>) -> Error {
    if error.code() != codes::CannotCreateIndex {
        return error;
    }
    Error::new(code, format!("{} Command request: {request}", error.message()))
}

/// Appends the fields of buckets for one field of measurements; returns whether the field cannot be
/// derived from them.
fn push_field(
    options: &TimeSeries,
    key: Doc<'_>,
    field: Element<'_>,
    out: &mut DocBuf,
) -> Result<bool> {
    let name = field.name.to_str_lossy();
    let kind = field.value.get();
    if let Some(path) = meta_path(options, &name) {
        out.push(path, kind);
        return Ok(false);
    }
    let is_time = name == options.time_field.as_str();
    if kind == Value::String("2dsphere".into()) && !is_time {
        out.push(format!("data.{name}"), "2dsphere_bucket");
        return Ok(true);
    }
    let Some(direction) = kind.as_f64().filter(|_| kind.kind().is_number()) else {
        return Err(match is_time {
            true => time_kind(&key, &field),
            false => measurement_kind(&key, &field),
        });
    };
    let (min, max) = (format!("control.min.{name}"), format!("control.max.{name}"));
    let (first, second) = if direction < 0.0 { (max, min) } else { (min, max) };
    out.push(first, kind);
    out.push(second, kind);
    Ok(!is_time)
}

/// The key pattern of the buckets' index for one of measurements.
///
/// Errors: `no_fields`, `time_kind`, `measurement_kind`.
pub fn key_of_buckets(options: &TimeSeries, key: Doc<'_>) -> Result<DocBuf> {
    if key.is_empty() {
        return Err(no_fields());
    }
    let mut of_buckets = DocBuf::new();
    for field in key {
        push_field(options, key, field, &mut of_buckets)?;
    }
    Ok(of_buckets)
}

/// The path in a bucket of a path of measurements that begins with the meta field.
pub(super) fn meta_path(options: &TimeSeries, path: &str) -> Option<String> {
    let rest = path.strip_prefix(options.meta_field.as_deref()?)?;
    (rest.is_empty() || rest.starts_with('.')).then(|| format!("meta{rest}"))
}

/// Returns the condition on buckets that follows from a condition on measurements.
fn bucket_filter(options: &TimeSeries, condition: Doc<'_>) -> Result<DocBuf> {
    let context = QueryContext::default();
    let filter = Filter::parse(condition, &context)?;
    let of = |unpack: &UnpackBucket| -> Result<Filter> {
        unpack.check_stored_filter(&filter, &context)?;
        Ok(unpack.stored_bucket_filter(&filter, &context))
    };
    Ok(of_unpacking(options, &context, of)?.to_doc())
}

/// Returns the condition that holds for the buckets of all measurements that match; `collation` is
/// that of their collection.
pub(super) fn filter_of_buckets(
    options: &TimeSeries,
    filter: &Filter,
    collation: Option<&Collation>,
    context: &QueryContext,
) -> Result<Filter> {
    let of = |unpack: &UnpackBucket| Ok(unpack.bucket_filter(filter, collation, context));
    of_unpacking(options, context, of)
}

/// Returns the filter that is made with the stage that unpacks the buckets.
fn of_unpacking(
    options: &TimeSeries,
    context: &QueryContext,
    filter: impl FnOnce(&UnpackBucket) -> Result<Filter>,
) -> Result<Filter> {
    let pipeline = Pipeline::parse(options.pipeline().as_doc(), context)?;
    match pipeline.stages().first().map(|stage| stage.kind()) {
        Some(Kind::Unpack(unpack)) => filter(unpack),
        _ => Ok(Filter::everything(context)),
    }
}

/// Returns the buckets' index as a client of the measurements sees it; `None` if it is on no field
/// of theirs.
pub fn shown(options: &TimeSeries, spec: Doc<'_>) -> Option<DocBuf> {
    let original = spec.get("originalSpec").and_then(|original| original.as_doc());
    let (key, partial) = match original {
        Some(original) => (
            original.get("key")?.as_doc()?.to_buf(),
            original.get("partialFilterExpression").and_then(|partial| partial.as_doc()),
        ),
        None => (shown_key(options, spec.get("key")?.as_doc()?)?, None),
    };
    Some(DocBuf::build(|out| {
        for Element { name, value } in spec {
            match &**name {
                b"key" => out.append(name, &key),
                b"originalSpec" => out,
                // A version that the client did not give is only in the buckets' specification.
                SPHERE_VERSION if original.is_some_and(|it| it.get_raw(name).is_none()) => out,
                b"partialFilterExpression" => append_partial(out, partial),
                _ => out.append_raw(name, value),
            };
        }
        // The client's own specification keeps options that have no effect.
        for name in ["unique", "hidden"] {
            let value = original.and_then(|original| original.get(name));
            if let Some(value) = value.filter(|_| spec.get(name).is_none()) {
                out.append(name, value);
            }
        }
    }))
}

/// Returns a document of `$indexStats` about the buckets' index as a client of the measurements
/// sees it; `None` if the index is on no field of theirs.
pub fn shown_stats(options: &TimeSeries, stats: Doc<'_>) -> Option<DocBuf> {
    let spec = shown(options, stats.get("spec")?.as_doc()?)?;
    let key = spec.as_doc().get_raw("key".as_bytes())?;
    Some(DocBuf::build(|out| {
        for Element { name, value } in stats {
            match &**name {
                b"key" => {}
                b"spec" => {
                    out.append(name, &spec);
                }
                _ => {
                    out.append_raw(name, value);
                }
            }
        }
        out.append_raw("key", key);
    }))
}

fn append_partial<'w, 'b>(
    out: &'w mut DocWriter<'b>,
    partial: Option<Doc<'_>>,
) -> &'w mut DocWriter<'b> {
    match partial {
        Some(partial) => out.append("partialFilterExpression", partial),
        None => out,
    }
}

fn shown_key(options: &TimeSeries, key: Doc<'_>) -> Option<DocBuf> {
    let mut shown = DocBuf::new();
    let mut last: Option<(String, bool)> = None;
    for Element { name, value } in key {
        let name = name.to_str_lossy();
        if let Some(rest) = name.strip_prefix("meta") {
            let meta = options.meta_field.as_deref()?;
            shown.push(format!("{meta}{rest}"), value.get());
            last = None;
            continue;
        }
        let (path, is_min) =
            match (name.strip_prefix("control.min."), name.strip_prefix("control.max.")) {
                (Some(path), _) => (path, true),
                (_, Some(path)) => (path, false),
                _ => return None,
            };
        // The second field of a pair is the same field of measurements.
        if last.take().is_some_and(|(other, was_min)| other == path && was_min != is_min) {
            continue;
        }
        shown.push(path, value.get());
        last = Some((path.to_owned(), is_min));
    }
    Some(shown)
}
