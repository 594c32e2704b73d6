//! Operators of no larger family: sizes, parts of timestamps, `$rand`, `$meta`.

use marula_bson::{Binary, Value};
use marula_error::{Result, errors};

use super::known;
use crate::expression::{Expression, Frame, Operator, Scope};

pub(super) static OPERATORS: &[Operator] = &[
    Operator::exactly("$binarySize", 1, binary_size),
    Operator::exactly("$bsonSize", 1, bson_size),
    Operator::special("$meta", parse_meta, meta).not_foldable(),
    Operator::special("$rand", parse_rand, rand).not_foldable(),
    Operator::exactly("$tsIncrement", 1, |args, frame| {
        timestamp_part(args, frame, |bits| bits & 0xFFFF_FFFF, increment_not_timestamp)
    }),
    Operator::exactly("$tsSecond", 1, |args, frame| {
        timestamp_part(args, frame, |bits| bits >> 32, second_not_timestamp)
    }),
];

errors! {
    binary_size_wrong_type(kind: &str) = 51276, "$binarySize requires a string or BinData argument, found: {kind}";
    bson_size_wrong_type(kind: &str) = 31393, "$bsonSize requires a document input, found: {kind}";
    meta_not_string() = 17307, "$meta only supports string arguments";
    meta_unknown(name: &str) = 17308, "Unsupported argument to $meta: {name}";
    no_text_score() = 40218, "query requires text score metadata, but it is not available";
    no_near_distance() = 40218, "query requires $geoNear distance metadata, but it is not available";
    no_near_point() = 40218, "query requires $geoNear point metadata, but it is not available";
    rand_not_object() = 10065, "invalid parameter: expected an object ($rand)";
    rand_takes_nothing() = 3040501, "$rand does not currently accept arguments";
    second_not_timestamp(kind: &str) = 5687301, " Argument to $tsSecond must be a timestamp, but is {kind}";
    increment_not_timestamp(kind: &str) = 5687302, " Argument to $tsIncrement must be a timestamp, but is {kind}";
}

fn binary_size<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let size = match known(&args[0], frame)? {
        None => return Ok(Some(Value::Null)),
        Some(Value::String(text)) => text.len(),
        Some(Value::Binary(Binary { bytes, .. })) => bytes.len(),
        Some(value) => return Err(binary_size_wrong_type(value.kind().alias())),
    };
    Ok(Some(i32::try_from(size).unwrap_or(i32::MAX).into()))
}

fn bson_size<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    match known(&args[0], frame)? {
        None => Ok(Some(Value::Null)),
        Some(Value::Document(doc)) => {
            Ok(Some(i32::try_from(doc.as_bytes().len()).unwrap_or(i32::MAX).into()))
        }
        Some(value) => Err(bson_size_wrong_type(value.kind().alias())),
    }
}

fn timestamp_part<'a>(
    args: &'a [Expression],
    frame: &Frame<'a>,
    part: fn(u64) -> u64,
    error: fn(&str) -> marula_error::Error,
) -> Result<Option<Value<'a>>> {
    match known(&args[0], frame)? {
        None => Ok(Some(Value::Null)),
        Some(Value::Timestamp(bits)) => {
            Ok(Some(i64::try_from(part(bits)).unwrap_or(i64::MAX).into()))
        }
        Some(value) => Err(error(value.kind().alias())),
    }
}

fn parse_rand(
    operator: &'static Operator,
    value: Value<'_>,
    _: &mut Scope<'_>,
) -> Result<Expression> {
    match value {
        Value::Document(doc) if doc.is_empty() => Ok(operator.call([])),
        Value::Array(items) if items.is_empty() => Ok(operator.call([])),
        Value::Document(_) | Value::Array(_) => Err(rand_takes_nothing()),
        _ => Err(rand_not_object()),
    }
}

fn rand<'a>(_: &'a [Expression], _: &Frame<'a>) -> Result<Option<Value<'a>>> {
    Ok(Some(rand::random::<f64>().into()))
}

/// Parses the name of some metadata. Documents carry none here: what needs it is refused, the rest is missing.
fn parse_meta(
    operator: &'static Operator,
    value: Value<'_>,
    _: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::String(name) = value else {
        return Err(meta_not_string());
    };
    match &**name {
        b"textScore" => Err(no_text_score()),
        b"geoNearDistance" => Err(no_near_distance()),
        b"geoNearPoint" => Err(no_near_point()),
        b"randVal"
        | b"searchScore"
        | b"searchHighlights"
        | b"indexKey"
        | b"recordId"
        | b"sortKey"
        | b"searchScoreDetails"
        | b"timeseriesBucketMinTime"
        | b"timeseriesBucketMaxTime" => Ok(operator.call([value.into()])),
        _ => Err(meta_unknown(&name.to_string())),
    }
}

fn meta<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let name = args[0].as_constant().and_then(|name| name.as_str());
    if name.is_some_and(|name| **name == *b"sortKey") {
        return frame.arena.array([]).map(Some);
    }
    Ok(None)
}
