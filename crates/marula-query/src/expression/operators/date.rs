//! Date operators that read a date: its parts and its text.

use std::fmt::Write;

use marula_bson::calendar::{Civil, MINUTE_MS, MONTH_NAMES};
use marula_bson::{Doc, Value};
use marula_error::{Result, errors};

use super::named;
use crate::expression::calendar::Zone;
use crate::expression::{Expression, Frame, Operator, Scope, print};
use crate::feature_version::FeatureVersion;

pub(super) static OPERATORS: &[Operator] = &[
    part("$dayOfMonth", |args, frame| int_part("$dayOfMonth", args, frame, |civil| civil.day)),
    part("$dayOfWeek", |args, frame| int_part("$dayOfWeek", args, frame, Civil::day_of_week)),
    part("$dayOfYear", |args, frame| int_part("$dayOfYear", args, frame, Civil::day_of_year)),
    part("$hour", |args, frame| int_part("$hour", args, frame, |civil| civil.hour)),
    part("$isoDayOfWeek", |args, frame| {
        int_part("$isoDayOfWeek", args, frame, Civil::iso_day_of_week)
    }),
    part("$isoWeek", |args, frame| int_part("$isoWeek", args, frame, |civil| civil.iso_week().0)),
    part("$isoWeekYear", |args, frame| {
        let civil = civil("$isoWeekYear", args, frame)?;
        Ok(Some(civil.map_or(Value::Null, |civil| Value::Int64(civil.iso_week().1))))
    }),
    part("$millisecond", |args, frame| {
        int_part("$millisecond", args, frame, |civil| civil.millisecond)
    }),
    part("$minute", |args, frame| int_part("$minute", args, frame, |civil| civil.minute)),
    part("$month", |args, frame| int_part("$month", args, frame, |civil| civil.month)),
    part("$second", |args, frame| int_part("$second", args, frame, |civil| civil.second)),
    part("$week", |args, frame| int_part("$week", args, frame, Civil::week)),
    part("$year", |args, frame| int_part("$year", args, frame, |civil| civil.year)),
    Operator::named("$dateToParts", &["date", "timezone", "iso8601"], parse_to_parts, to_parts),
    Operator::named("$dateToString", TO_STRING_ARGUMENTS, parse_to_string, to_string),
];

const TO_STRING_ARGUMENTS: &[&str] = &["date", "format", "timezone", "onNull"];

/// `$dateToString` without `onNull`: it is null, and not shown by `explain`.
static TO_STRING_WITHOUT_ON_NULL: Operator =
    Operator::named("$dateToString", TO_STRING_ARGUMENTS, parse_to_string, |args, frame| {
        string_or(args, frame, || Ok(Some(Value::Null)))
    });

errors! {
    pub(super) not_a_date(kind: &str) = 16006, "can't convert from BSON type {kind} to Date";
    option_unknown(name: &str, option: &str) = 40535, "unrecognized option to {name}: \"{option}\"";
    one_argument(name: &str, count: usize) = 40536, "{name} accepts exactly one argument if given an array, but was given {count}";
    option_no_date(name: &str, spec: &str) = 40539, "missing 'date' argument to {name}, provided: {name}: {spec}";
    zone_not_string(name: &str, kind: &str, text: &str) = 40533, "{name} requires a string for the timezone argument, but was given a {kind} ({text})";
    pub(super) time_zone_not_string(kind: &str) = 40517, "timezone must evaluate to a string, found {kind}";
    to_string_format_not_string(kind: &str, text: &str) = 18533, "$dateToString requires that 'format' be a string, found: {kind} with value {text}";
    to_string_unknown(name: &str) = 18534, "Unrecognized argument to $dateToString: {name}";
    to_string_not_object() = 18629, "$dateToString only supports an object as its argument";
    to_string_no_date() = 18628, "Missing 'date' parameter to $dateToString";
    pub(super) unmatched_percent() = 18535, "Unmatched '%' at end of format string";
    pub(super) bad_format_character(shown: char) = 18536, "Invalid format character '%{shown}' in format string";
    year_out_of_range(year: i64) = 18537, "Could not convert date to string: date component was outside the supported range of 0-9999: {year}";
    to_parts_unknown(name: &str) = 40520, "Unrecognized argument to $dateToParts: {name}";
    to_parts_iso_not_bool(kind: &str) = 40521, "iso8601 must evaluate to a bool, found {kind}";
    to_parts_no_date() = 40522, "Missing 'date' parameter to $dateToParts";
    to_parts_not_object() = 40524, "$dateToParts only supports an object as its argument";
}

/// The default format; it ends with Z in every zone.
const ISO_FORMAT: &[u8] = b"%Y-%m-%dT%H:%M:%S.%LZ";

const fn part(name: &'static str, eval: crate::expression::operator::Eval) -> Operator {
    Operator::named(name, &["date", "timezone"], parse_part, eval)
}

/// The milliseconds of a date, a timestamp or an ObjectId.
pub(super) fn as_date(value: Value<'_>) -> Option<i64> {
    match value {
        Value::DateTime(ms) => Some(ms),
        Value::Timestamp(bits) => Some(i64::try_from(bits >> 32).unwrap_or(0) * 1000),
        // As in mongod, the seconds are signed.
        Value::ObjectId(id) => Some(i64::from(id.unix_seconds().cast_signed()) * 1000),
        _ => None,
    }
}

fn parse_part(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let is_operator = |doc: Doc<'_>| doc.iter().next().is_some_and(|f| f.name.starts_with(b"$"));
    match value {
        Value::Document(doc) if !is_operator(doc) => {
            let mut date = None;
            let mut zone = Expression::Missing;
            for element in doc {
                match &**element.name {
                    b"date" => date = Some(Expression::parse(element.value.get(), scope)?),
                    b"timezone" => zone = given(element.value.get(), scope)?,
                    _ => return Err(option_unknown(operator.name, &element.name.to_string())),
                }
            }
            let date = date.ok_or_else(|| option_no_date(operator.name, &print::document(doc)))?;
            Ok(operator.call([date, zone]))
        }
        Value::Array(items) => {
            let mut values = items.values();
            match (values.next(), values.next()) {
                (Some(only), None) => {
                    Ok(operator.call([Expression::parse(only, scope)?, Expression::Missing]))
                }
                _ => Err(one_argument(operator.name, items.iter().count())),
            }
        }
        value => Ok(operator.call([Expression::parse(value, scope)?, Expression::Missing])),
    }
}

/// Same as [`given`], for an optional argument.
pub(super) fn given_or_missing(
    value: Option<Value<'_>>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    value.map_or(Ok(Expression::Missing), |value| given(value, scope))
}

/// Parses an optional argument such that a missing value is null, which distinguishes it from an
/// omitted argument.
pub(super) fn given(value: Value<'_>, scope: &mut Scope<'_>) -> Result<Expression> {
    let parsed = Expression::parse(value, scope)?;
    Ok(match parsed {
        Expression::Constant(_) => parsed,
        parsed => {
            Operator::find(b"$ifNull", scope.context.version)?.call([parsed, Value::Null.into()])
        }
    })
}

/// The local time; `None` if date or zone is null.
fn civil<'a>(name: &str, args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Civil>> {
    let Some(date) = super::known(&args[0], frame)? else {
        return Ok(None);
    };
    let ms = as_date(date).ok_or_else(|| not_a_date(date.kind().alias()))?;
    let zone = match args[1].eval(frame)? {
        None => Zone::Utc,
        Some(value) if value.is_nullish() => return Ok(None),
        Some(Value::String(zone)) => Zone::parse(&zone.to_string())?,
        Some(value) => {
            return Err(zone_not_string(name, value.kind().alias(), &print::value(value)));
        }
    };
    Ok(Some(zone.civil(ms)))
}

fn int_part<'a>(
    name: &str,
    args: &'a [Expression],
    frame: &Frame<'a>,
    part: fn(Civil) -> i64,
) -> Result<Option<Value<'a>>> {
    let civil = civil(name, args, frame)?;
    Ok(Some(civil.map_or(Value::Null, |civil| {
        // A year out of the range of int is out of the range of dates too.
        Value::Int32(i32::try_from(part(civil)).unwrap_or(i32::MAX))
    })))
}

/// A byte of a text in a message, which is UTF-8.
pub(super) fn shown(byte: u8) -> char {
    if byte.is_ascii() { char::from(byte) } else { char::REPLACEMENT_CHARACTER }
}

/// The zone in an argument; `Ok(None)` if it is null.
pub(super) fn zone<'a>(arg: &'a Expression, frame: &Frame<'a>) -> Result<Option<Zone>> {
    match arg.eval(frame)? {
        None => Ok(Some(Zone::Utc)),
        Some(value) if value.is_nullish() => Ok(None),
        Some(Value::String(name)) => Zone::parse(&name.to_string()).map(Some),
        Some(value) => Err(time_zone_not_string(value.kind().alias())),
    }
}

fn parse_to_parts(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::Document(doc) = value else {
        return Err(to_parts_not_object());
    };
    let names = ["date", "timezone", "iso8601"];
    let [date, zone, iso] = named::unparsed(doc, names, to_parts_unknown)?;
    let date = date.ok_or_else(to_parts_no_date)?;
    // Missing arguments are reported before invalid ones.
    Ok(operator.call([
        Expression::parse(date, scope)?,
        given_or_missing(zone, scope)?,
        given_or_missing(iso, scope)?,
    ]))
}

fn to_parts<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let date = args[0].eval(frame)?;
    let Some(zone) = zone(&args[1], frame)? else {
        return Ok(Some(Value::Null));
    };
    let iso = match args[2].eval(frame)? {
        None => false,
        Some(Value::Boolean(flag)) => flag,
        Some(value) if value.is_nullish() => return Ok(Some(Value::Null)),
        Some(value) => return Err(to_parts_iso_not_bool(value.kind().alias())),
    };
    let Some(date) = date.filter(|date| !date.is_nullish()) else {
        return Ok(Some(Value::Null));
    };
    let ms = as_date(date).ok_or_else(|| not_a_date(date.kind().alias()))?;
    let civil = zone.civil(ms);
    let int = |part: i64| Value::Int32(i32::try_from(part).unwrap_or(i32::MAX));
    let doc = frame.arena.build(|out| {
        if iso {
            let (week, year) = civil.iso_week();
            out.append("isoWeekYear", int(year));
            out.append("isoWeek", int(week));
            out.append("isoDayOfWeek", int(civil.iso_day_of_week()));
        } else {
            out.append("year", int(civil.year));
            out.append("month", int(civil.month));
            out.append("day", int(civil.day));
        }
        out.append("hour", int(civil.hour));
        out.append("minute", int(civil.minute));
        out.append("second", int(civil.second));
        out.append("millisecond", int(civil.millisecond));
    })?;
    Ok(Some(Value::Document(doc)))
}

fn parse_to_string(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::Document(doc) = value else {
        return Err(to_string_not_object());
    };
    let names = ["date", "format", "timezone", "onNull"];
    let [date, format, zone, on_null] = named::unparsed(doc, names, to_string_unknown)?;
    let date = date.ok_or_else(to_string_no_date)?;
    let operator = if on_null.is_some() { operator } else { &TO_STRING_WITHOUT_ON_NULL };
    // Missing arguments are reported before invalid ones.
    Ok(operator.call([
        Expression::parse(date, scope)?,
        given_or_missing(format, scope)?,
        given_or_missing(zone, scope)?,
        on_null.map_or(Ok(Expression::Missing), |value| Expression::parse(value, scope))?,
    ]))
}

fn to_string<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    string_or(args, frame, || args[3].eval(frame))
}

/// The text of a date, or the result of `on_null` if the date is null.
fn string_or<'a>(
    args: &'a [Expression],
    frame: &Frame<'a>,
    on_null: impl FnOnce() -> Result<Option<Value<'a>>>,
) -> Result<Option<Value<'a>>> {
    let date = args[0].eval(frame)?;
    let mut has_format = true;
    let format = match args[1].eval(frame)? {
        None => None,
        Some(Value::String(text)) => {
            check_format(text, frame.context.version)?;
            Some(text)
        }
        Some(value) if value.is_nullish() => {
            has_format = false;
            None
        }
        Some(value) => {
            return Err(to_string_format_not_string(value.kind().alias(), &print::value(value)));
        }
    };
    let zone = zone(&args[2], frame)?;
    let Some(date) = date.filter(|date| !date.is_nullish()) else {
        return on_null();
    };
    let Some(zone) = zone.filter(|_| has_format) else {
        return Ok(Some(Value::Null));
    };
    let ms = as_date(date).ok_or_else(|| not_a_date(date.kind().alias()))?;
    let text = format_date(ms, &zone, format.map_or(ISO_FORMAT, |text| text))?;
    frame.arena.string(|out| out.extend_from_slice(text.as_bytes())).map(Some)
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
            Some(b'd' | b'G' | b'H' | b'j' | b'L' | b'm' | b'M' | b'S' | b'w' | b'u' | b'U')
            | Some(b'V' | b'Y' | b'z' | b'Z' | b'%') => {}
            Some(b'b' | b'B') if version >= FeatureVersion::V7_0 => {}
            Some(&other) => return Err(bad_format_character(shown(other))),
        }
    }
    Ok(())
}

/// Formats a date with a checked format.
fn format_date(ms: i64, zone: &Zone, format: &[u8]) -> Result<String> {
    let civil = zone.civil(ms);
    let offset = zone.offset_ms(ms) / MINUTE_MS;
    let mut out = Vec::new();
    let mut rest = format.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut text = String::new();
        let _ = match rest.next() {
            Some(b'b') => write!(text, "{}", &month_name(civil.month)[..3]),
            Some(b'B') => write!(text, "{}", month_name(civil.month)),
            Some(b'd') => write!(text, "{:02}", civil.day),
            Some(b'G') => write!(text, "{:04}", check_year(civil.iso_week().1)?),
            Some(b'H') => write!(text, "{:02}", civil.hour),
            Some(b'j') => write!(text, "{:03}", civil.day_of_year()),
            Some(b'L') => write!(text, "{:03}", civil.millisecond),
            Some(b'm') => write!(text, "{:02}", civil.month),
            Some(b'M') => write!(text, "{:02}", civil.minute),
            Some(b'S') => write!(text, "{:02}", civil.second),
            Some(b'w') => write!(text, "{}", civil.day_of_week()),
            Some(b'u') => write!(text, "{}", civil.iso_day_of_week()),
            Some(b'U') => write!(text, "{:02}", civil.week()),
            Some(b'V') => write!(text, "{:02}", civil.iso_week().0),
            Some(b'Y') => write!(text, "{:04}", check_year(civil.year)?),
            Some(b'z') => {
                let sign = if offset < 0 { '-' } else { '+' };
                write!(text, "{sign}{:02}{:02}", offset.abs() / 60, offset.abs() % 60)
            }
            Some(b'Z') => write!(text, "{offset}"),
            _ => write!(text, "%"),
        };
        out.extend_from_slice(text.as_bytes());
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// The English name of a month, counted from 1; its first three letters are the short name.
fn month_name(month: i64) -> &'static str {
    let at = usize::try_from(month - 1).expect("months are counted from 1");
    MONTH_NAMES[at]
}

fn check_year(year: i64) -> Result<i64> {
    if (0..=9999).contains(&year) { Ok(year) } else { Err(year_out_of_range(year)) }
}

/// A date as converted to a string.
pub(crate) fn iso_text(ms: i64) -> Result<String> {
    format_date(ms, &Zone::Utc, ISO_FORMAT)
}

/// A timestamp in string operators: `Jan  1 00:00:05:1`.
pub(super) fn timestamp_text(bits: u64) -> String {
    let civil = Civil::of_ms(i64::try_from(bits >> 32).unwrap_or(0) * 1000);
    let month = &month_name(civil.month)[..3];
    format!(
        "{month} {:2} {:02}:{:02}:{:02}:{}",
        civil.day,
        civil.hour,
        civil.minute,
        civil.second,
        bits & 0xFFFF_FFFF
    )
}
