//! `$dateFromString`: parses dates by a format or in the usual spellings.
//!
//! Start reading in `date_format` and `date_scan`.

use bstr::BStr;
use marula_bson::Value;
use marula_error::codes::ConversionFailure;
use marula_error::{Error, Result, errors};

use super::date::{bad_format_character, given_or_missing, shown, unmatched_percent, zone};
use super::date_arithmetic::parts_too_long;
use super::date_scan::{Local, OwnZone};
use super::{date_format, date_scan, named};
use crate::expression::calendar::Zone;
use crate::expression::{Expression, Frame, Operator, Scope, print};
use crate::feature_version::FeatureVersion;

const ARGUMENTS: &[&str] = &["dateString", "timezone", "format", "onNull", "onError"];

pub(super) static OPERATORS: &[Operator] =
    &[Operator::named("$dateFromString", ARGUMENTS, parse_operator, date_from_string)];

/// `$dateFromString` without `onNull`: it is null, and not shown by `explain`.
static WITHOUT_ON_NULL: Operator =
    Operator::named("$dateFromString", ARGUMENTS, parse_operator, |args, frame| {
        date_or(args, frame, || Ok(Some(Value::Null)))
    });

errors! {
    not_object(kind: &str) = 40540, "$dateFromString only supports an object as an argument, found: {kind}";
    unknown_argument(name: &str) = 40541, "Unrecognized argument to $dateFromString: {name}";
    no_date_string() = 40542, "Missing 'dateString' parameter to $dateFromString";
    format_not_string(kind: &str, text: &str) = 40684, "$dateFromString requires that 'format' be a string, found: {kind} with value {text}";
    text_not_string(kind: &str, text: &str) = ConversionFailure, "$dateFromString requires that 'dateString' be a string, found: {kind} with value {text}";
    pub(super) unreadable(text: &BStr, why: &str) = ConversionFailure, "Error parsing date string '{text}'; {why}";
    pub(super) incomplete(text: &BStr) = ConversionFailure, "an incomplete date/time string has been found, with elements missing: \"{text}\"";
    zone_twice(zone: &str) = ConversionFailure, "you cannot pass in a date/time string with time zone information ('{zone}') together with a timezone argument";
    offset_twice() = ConversionFailure, "you cannot pass in a date/time string with GMT offset together with a timezone argument";
}

fn parse_operator(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::Document(doc) = value else {
        return Err(not_object(value.kind().alias()));
    };
    let names = ["dateString", "format", "timezone", "onNull", "onError"];
    let [text, format, zone, on_null, on_error] = named::unparsed(doc, names, unknown_argument)?;
    let text = text.ok_or_else(no_date_string)?;
    // Missing arguments are reported before invalid ones.
    let text = Expression::parse(text, scope)?;
    let zone = given_or_missing(zone, scope)?;
    let format = given_or_missing(format, scope)?;
    let operator = if on_null.is_some() { operator } else { &WITHOUT_ON_NULL };
    let on_null = on_null.map_or(Ok(Expression::Missing), |it| Expression::parse(it, scope))?;
    let on_error = on_error.map(|value| Expression::parse(value, scope)).transpose()?;
    let mut args = vec![text, zone, format, on_null];
    args.extend(on_error);
    Ok(operator.call(args))
}

fn date_from_string<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    date_or(args, frame, || args[3].eval(frame))
}

/// The date, or the result of `on_null` if the text is null.
fn date_or<'a>(
    args: &'a [Expression],
    frame: &Frame<'a>,
    on_null: impl FnOnce() -> Result<Option<Value<'a>>>,
) -> Result<Option<Value<'a>>> {
    let text = args[0].eval(frame)?;
    let mut has_format = true;
    let format = match args[2].eval(frame)? {
        None => None,
        Some(Value::String(format)) => {
            check_format(format, frame.context.version)?;
            Some(format)
        }
        Some(value) if value.is_nullish() => {
            has_format = false;
            None
        }
        Some(value) => return Err(format_not_string(value.kind().alias(), &print::value(value))),
    };
    let has_zone = !matches!(args[1], Expression::Missing);
    let zone = zone(&args[1], frame)?;
    let Some(value) = text.filter(|value| !value.is_nullish()) else {
        return on_null();
    };
    let failed = |error: Error| match args.get(4) {
        Some(on_error) => on_error.eval(frame),
        None => Err(error),
    };
    if value.as_str().is_none() {
        return failed(text_not_string(value.kind().alias(), &print::value(value)));
    }
    let Some(zone) = zone.filter(|_| has_format) else {
        return Ok(Some(Value::Null));
    };
    // As in mongod, an offset of zero counts as no zone, unlike a zone's name.
    let zone = Some(&zone).filter(|zone| has_zone && !matches!(zone, Zone::Fixed(0)));
    match read(value, format.map(|format| &**format), zone) {
        Err(error) if error.code() == ConversionFailure => failed(error),
        result => result.map(|ms| Some(Value::DateTime(ms))),
    }
}

fn read(value: Value<'_>, format: Option<&[u8]>, zone: Option<&Zone>) -> Result<i64> {
    let Value::String(text) = value else {
        return Err(text_not_string(value.kind().alias(), &print::value(value)));
    };
    let (local, own) = match format {
        Some(format) => date_format::read(text, format)?,
        None => date_scan::read(text)?,
    };
    in_zone(&local, own, zone)
}

/// Parses a date for a conversion to a date.
pub(super) fn parse(text: &BStr) -> Result<i64> {
    let (local, own) = date_scan::read(text)?;
    in_zone(&local, own, None)
}

/// The moment of a local time in the zone of its text, in another one, or in UTC.
fn in_zone(local: &Local, own: OwnZone, zone: Option<&Zone>) -> Result<i64> {
    let ms = match (own, zone) {
        (Some((_, Some(name))), Some(_)) => return Err(zone_twice(&name)),
        (Some((_, None)), Some(_)) => return Err(offset_twice()),
        (Some((offset, _)), None) => local.ms.checked_sub(offset),
        (None, Some(zone)) => Some(zone.moment(local.ms)),
        (None, None) => Some(local.ms),
    };
    // mongod counts microseconds: a date that they cannot hold is out of range.
    let micros = ms.and_then(|ms| ms.checked_mul(1000)?.checked_add(local.micros));
    Ok(micros.ok_or_else(parts_too_long)? / 1000)
}

/// Checks a format. `%b` and `%B`, the names of months, were introduced in 7.0.
fn check_format(format: &[u8], version: FeatureVersion) -> Result<()> {
    let mut rest = format.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            continue;
        }
        match rest.next() {
            None => return Err(unmatched_percent()),
            Some(b'd' | b'G' | b'H' | b'L' | b'm' | b'M' | b'S' | b'u' | b'V' | b'Y' | b'z')
            | Some(b'Z' | b'%') => {}
            Some(b'b' | b'B') if version >= FeatureVersion::V7_0 => {}
            Some(&other) => return Err(bad_format_character(shown(other))),
        }
    }
    Ok(())
}
