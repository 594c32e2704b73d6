//! `$dateFromString`: parses dates by a format or in the usual spellings.

use bstr::ByteSlice;
use marula_bson::Value;
use marula_bson::calendar::{
    Civil, DAY_MS, MINUTE_MS, MONTH_NAMES, days_of_iso_week, month_length,
};
use marula_error::codes::ConversionFailure;
use marula_error::{Error, Result, errors};

use super::date::{bad_format_character, given_or_missing, unmatched_percent, zone};
use super::date_arithmetic::parts_too_long;
use super::date_scan::{self, Local, OwnZone};
use super::named;
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
    pub(super) unreadable(text: &str, why: &str) = ConversionFailure, "Error parsing date string '{text}'; {why}";
    pub(super) incomplete(text: &str) = ConversionFailure, "an incomplete date/time string has been found, with elements missing: \"{text}\"";
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
    match read(value, format.map(|format| &**format), has_zone.then_some(&zone)) {
        Err(error) if error.code() == ConversionFailure => failed(error),
        result => result.map(|ms| Some(Value::DateTime(ms))),
    }
}

fn read(value: Value<'_>, format: Option<&[u8]>, zone: Option<&Zone>) -> Result<i64> {
    let Value::String(text) = value else {
        return Err(text_not_string(value.kind().alias(), &print::value(value)));
    };
    let text = text.to_string();
    let (local, own) = match format {
        Some(format) => Reader::new(&text).read_by(format)?.moment(&text)?,
        None => date_scan::read(&text)?,
    };
    in_zone(&local, own, zone)
}

/// Parses a date for a conversion to a date.
pub(super) fn parse(text: &str) -> Result<i64> {
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
            Some(&other) => return Err(bad_format_character(char::from(other))),
        }
    }
    Ok(())
}

/// The parsed parts of a date.
#[derive(Default)]
struct Parts {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    millisecond: i64,
    /// The end of the text in messages. With a format, mongod counts positions differently.
    end: usize,
    zone: OwnZone,
}

impl Parts {
    /// The local time, and the zone.
    fn moment(self, text: &str) -> Result<(Local, OwnZone)> {
        let at = self.end;
        let invalid = || unreadable(text, &format!("{at}: The parsed date was invalid '\0'"));
        let time = Civil {
            year: 1970,
            month: 1,
            day: 1,
            hour: self.hour,
            minute: self.minute,
            second: self.second,
            millisecond: self.millisecond,
        };
        let local = match (self.iso_year, self.year, self.month, self.day) {
            (Some(year), ..) => {
                let week = self.iso_week.unwrap_or(1);
                let days = days_of_iso_week(year, week, self.iso_day.unwrap_or(1));
                days * DAY_MS + time.of_day_ms()
            }
            (None, Some(year), Some(month), Some(day)) => {
                if !(1..=12).contains(&month) || day < 1 || day > month_length(year, month) {
                    return Err(invalid());
                }
                Civil { year, month, day, ..time }.to_ms().ok_or_else(invalid)?
            }
            _ => return Err(incomplete(text)),
        };
        Ok((Local { ms: local, micros: 0 }, self.zone))
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    parts: Parts,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Self {
        Reader { text, at: 0, parts: Parts::default() }
    }

    fn rest(&self) -> &'t [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or(&[])
    }

    /// The letters at the current position.
    fn word(&self) -> &'t str {
        let length = self.rest().iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        self.text.get(self.at..self.at + length).unwrap_or_default()
    }

    /// An error at the current position.
    fn fail(&self, what: &str) -> Error {
        let shown = self.text.get(self.at..).and_then(|rest| rest.chars().next()).unwrap_or('\0');
        unreadable(self.text, &format!("{}: {what} '{shown}'", self.at))
    }

    /// Parses `min` to `max` digits.
    fn digits(&mut self, min: usize, max: usize) -> Option<i64> {
        let rest = self.rest();
        let count = rest.iter().take(max).take_while(|byte| byte.is_ascii_digit()).count();
        if count < min {
            return None;
        }
        let number = rest[..count].to_str().ok()?.parse().ok()?;
        self.at += count;
        Some(number)
    }

    fn take(&mut self, wanted: &[u8]) -> bool {
        match self.rest().first() {
            Some(byte) if wanted.contains(byte) => {
                self.at += 1;
                true
            }
            _ => false,
        }
    }

    /// Parses a text by a checked format.
    fn read_by(mut self, format: &[u8]) -> Result<Parts> {
        self.parts.end = self.text.len();
        let mut rest = format.iter();
        while let Some(&byte) = rest.next() {
            if self.rest().is_empty() {
                return Err(self.fail("Not enough data available to satisfy format"));
            }
            if byte != b'%' {
                if !self.take(&[byte]) {
                    return Err(self.fail("Format literal not found"));
                }
                continue;
            }
            let letter = rest.next().copied().unwrap_or(b'%');
            self.read_part(letter)?;
        }
        if !self.rest().is_empty() {
            return Err(self.fail("Trailing data"));
        }
        Ok(self.parts)
    }

    fn read_part(&mut self, letter: u8) -> Result<()> {
        let (min, max, what) = match letter {
            b'Y' => (4, 4, "A four digit year could not be found"),
            b'G' => (4, 4, "A four digit ISO year could not be found"),
            b'm' => (1, 2, "A two digit month could not be found"),
            b'd' => (1, 2, "A two digit day could not be found"),
            b'H' => (1, 2, "A two digit hour could not be found"),
            b'M' => (2, 2, "A two digit minute could not be found"),
            b'S' => (2, 2, "A two digit second could not be found"),
            b'L' => (1, 3, "A three digit millisecond could not be found"),
            b'V' => (1, 2, "A two digit ISO week could not be found"),
            b'u' => (1, 1, "A single digit ISO day of week could not be found"),
            b'b' | b'B' => {
                let month = self.month_name();
                let what = "A textual month could not be found";
                self.parts.month = Some(month.ok_or_else(|| self.fail(what))?);
                return Ok(());
            }
            b'z' => {
                let zone = self
                    .offset()
                    .ok_or_else(|| self.fail("The timezone could not be found in the database"))?;
                self.parts.zone = Some((zone, None));
                return Ok(());
            }
            b'Z' => {
                let is_negative = self.rest().first() == Some(&b'-');
                if !self.take(b"+-") {
                    return Err(self.fail("Invalid timezone offset in minutes"));
                }
                let minutes = self
                    .digits(1, 4)
                    .ok_or_else(|| self.fail("Invalid timezone offset in minutes"))?;
                let offset = minutes * MINUTE_MS;
                self.parts.zone = Some((if is_negative { -offset } else { offset }, None));
                return Ok(());
            }
            _ => {
                return if self.take(b"%") {
                    Ok(())
                } else {
                    Err(self.fail("Format literal not found"))
                };
            }
        };
        let number = self.digits(min, max).ok_or_else(|| self.fail(what))?;
        let parts = &mut self.parts;
        match letter {
            b'Y' => parts.year = Some(number),
            b'G' => parts.iso_year = Some(number),
            b'm' => parts.month = Some(number),
            b'd' => parts.day = Some(number),
            b'H' => parts.hour = number,
            b'M' => parts.minute = number,
            b'S' => parts.second = number,
            b'L' => parts.millisecond = number,
            b'V' => parts.iso_week = Some(number),
            _ => parts.iso_day = Some(number),
        }
        Ok(())
    }

    fn month_name(&mut self) -> Option<i64> {
        let word = self.word();
        let is_name =
            |name: &&str| word.eq_ignore_ascii_case(name) || word.eq_ignore_ascii_case(&name[..3]);
        let at = MONTH_NAMES.iter().position(is_name)?;
        self.at += word.len();
        i64::try_from(at + 1).ok()
    }

    /// Parses `Z`, `+5`, `+05`, `+530`, `+0530`, `+5:30` or `+05:30` to milliseconds ahead of UTC.
    fn offset(&mut self) -> Option<i64> {
        if self.take(b"Z") {
            return Some(0);
        }
        let start = self.at;
        let is_behind = self.rest().first() == Some(&b'-');
        if !self.take(b"+-") {
            return None;
        }
        let first = self.at;
        let Some(number) = self.digits(1, 4) else {
            self.at = start;
            return None;
        };
        let (hours, mut minutes) = match self.at - first {
            1 | 2 => (number, 0),
            _ => (number / 100, number % 100),
        };
        let behind_hours = self.at;
        if behind_hours - first <= 2 && self.take(b":") {
            match self.digits(2, 2) {
                Some(given) => minutes = given,
                None => self.at = behind_hours,
            }
        }
        let offset = (hours * 60 + minutes) * MINUTE_MS;
        Some(if is_behind { -offset } else { offset })
    }
}
