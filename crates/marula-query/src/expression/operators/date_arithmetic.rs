//! Date operators that compute dates: `$dateAdd`, `$dateDiff`, `$dateTrunc`, `$dateFromParts`.

use marula_bson::Value;
use marula_bson::calendar::{
    Civil, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, days_of, days_of_iso_week,
};
use marula_error::{Error, Result, errors};

use super::date::{as_date, given, given_or_missing, zone};
use super::{known, named};
use crate::expression::calendar::{Unit, Zone, moved};
use crate::expression::{Expression, Frame, Operator, Scope, print};

pub(super) static OPERATORS: &[Operator] = &[
    Operator::named("$dateAdd", ADD, parse_add, |args, frame| add("$dateAdd", 1, args, frame)),
    Operator::named(
        "$dateDiff",
        &["startDate", "endDate", "unit", "timezone", "startOfWeek"],
        parse_diff,
        diff,
    ),
    Operator::named("$dateFromParts", FROM_PARTS, parse_from_parts, from_parts),
    Operator::named("$dateSubtract", ADD, parse_add, |args, frame| {
        add("$dateSubtract", -1, args, frame)
    }),
    Operator::named(
        "$dateTrunc",
        &["date", "unit", "binSize", "timezone", "startOfWeek"],
        parse_trunc,
        trunc,
    ),
];

const ADD: &[&str] = &["startDate", "unit", "amount", "timezone"];
const FROM_PARTS: &[&str] = &[
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "millisecond",
    "isoWeekYear",
    "isoWeek",
    "isoDayOfWeek",
    "timezone",
];

errors! {
    add_not_object(name: &str) = 5166400, "{name} expects an object as its argument";
    add_unknown(name: &str, argument: &str) = 5166401, "Unrecognized argument to {name}: {argument}. Expected arguments are startDate, unit, amount, and optionally timezone.";
    add_missing(name: &str) = 5166402, "{name} requires startDate, unit, and amount to be present";
    add_not_date(name: &str) = 5166403, "{name} requires startDate to be convertible to a date";
    add_unit_not_string(name: &str) = 5166404, "{name} expects string defining the time unit";
    add_amount_not_integer(name: &str) = 5166405, "{name} expects integer amount of time units";
    add_amount_too_large(amount: i64, unit: &str) = 5976500, "invalid dateAdd 'amount' parameter value: {amount} {unit}";
    subtract_too_large(name: &str, amount: i64) = 6045000, "invalid {name} 'amount' parameter value: {amount}";
    pub(super) parts_too_long() = DurationOverflow, "Overflow casting from a lower-precision duration to a higher-precision duration";
    duration_overflow(amount: i64, sum: i64) = DurationOverflow, "Overflow while adding {amount}ms to {sum}ms";
    date_overflow() = 5166406, "dateAdd overflowed";
    unknown_unit(name: &str) = FailedToParse, "unknown time unit value: {name}";
    diff_not_object() = 5166301, "$dateDiff only supports an object as its argument";
    diff_unknown(argument: &str) = 5166302, "Unrecognized argument to $dateDiff: {argument}";
    diff_no_start() = 5166303, "Missing 'startDate' parameter to $dateDiff";
    diff_no_end() = 5166304, "Missing 'endDate' parameter to $dateDiff";
    diff_no_unit() = 5166305, "Missing 'unit' parameter to $dateDiff";
    diff_not_date(which: &str, kind: &str) = 5166307, "$dateDiff requires '{which}' to be a date, but got {kind}";
    diff_overflow() = 5166308, "dateDiff overflowed";
    unit_not_string(name: &str, kind: &str) = 5439013, "{name} requires 'unit' to be a string, but got {kind}";
    unit_unknown(name: &str, text: &str) = 5439014, "{name} parameter 'unit' value cannot be recognized as a time unit: {text}";
    week_start_not_string(name: &str, kind: &str) = 5439015, "{name} requires 'startOfWeek' to be a string, but got {kind}";
    week_start_unknown(name: &str, text: &str) = 5439016, "{name} parameter 'startOfWeek' value cannot be recognized as a day of a week: {text}";
    trunc_not_object() = 5439007, "$dateTrunc only supports an object as its argument";
    trunc_unknown(argument: &str) = 5439008, "Unrecognized argument to $dateTrunc: {argument}. Expected arguments are date, unit, and optionally, binSize, timezone, startOfWeek";
    trunc_no_date() = 5439009, "Missing 'date' parameter to $dateTrunc";
    trunc_no_unit() = 5439010, "Missing 'unit' parameter to $dateTrunc";
    trunc_not_date(kind: &str) = 5439012, "$dateTrunc requires 'date' to be a date, but got {kind}";
    trunc_bin_not_integer(text: &str, kind: &str) = 5439017, "$dateTrunc requires 'binSize' to be a 64-bit integer, but got value '{text}' of type {kind}";
    trunc_bin_not_positive(bin: i64) = 5439018, "$dateTrunc requires 'binSize' to be greater than 0, but got value {bin}";
    trunc_overflow() = 5439000, "dateTrunc overflowed";
    trunc_bin_overflow() = 5439002, "dateTrunc overflowed";
    trunc_bin_too_large() = 5439006, "dateTrunc unsupported binSize value";
    parts_not_object() = 40519, "$dateFromParts only supports an object as its argument";
    parts_unknown(argument: &str) = 40518, "Unrecognized argument to $dateFromParts: {argument}";
    parts_no_year() = 40516, "$dateFromParts requires either 'year' or 'isoWeekYear' to be present";
    parts_iso_in_natural() = 40489, "$dateFromParts does not allow mixing natural dates with ISO dates";
    parts_natural_in_iso() = 40525, "$dateFromParts does not allow mixing ISO dates with natural dates";
    parts_not_integer(name: &str, kind: &str, text: &str) = 40515, "'{name}' must evaluate to an integer, found {kind} with value {text}";
    parts_year_out_of_range(year: i64) = 40523, "'year' must evaluate to an integer in the range 1 to 9999, found {year}";
    parts_iso_year_out_of_range(year: i64) = 31095, "'isoWeekYear' must evaluate to an integer in the range 1 to 9999, found {year}";
    parts_out_of_range(name: &str, value: i64) = 31034, "'{name}' must evaluate to a value in the range [-32768, 32767]; value {value} is not in range";
}

fn parse_add(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let name = operator.name;
    let Value::Document(doc) = value else {
        return Err(add_not_object(name));
    };
    let (mut start, mut unit, mut amount) = (None, None, None);
    let mut zone = Expression::Missing;
    for element in doc {
        let value = element.value.get();
        match &**element.name {
            b"startDate" => start = Some(Expression::parse(value, scope)?),
            b"unit" => unit = Some(Expression::parse(value, scope)?),
            b"amount" => amount = Some(Expression::parse(value, scope)?),
            b"timezone" => zone = given(value, scope)?,
            _ => return Err(add_unknown(name, &element.name.to_string())),
        }
    }
    match (start, unit, amount) {
        (Some(start), Some(unit), Some(amount)) => Ok(operator.call([start, unit, amount, zone])),
        _ => Err(add_missing(name)),
    }
}

fn add<'a>(
    name: &str,
    sign: i64,
    args: &'a [Expression],
    frame: &Frame<'a>,
) -> Result<Option<Value<'a>>> {
    let Some(start) = known(&args[0], frame)? else {
        return Ok(Some(Value::Null));
    };
    let unit = known(&args[1], frame)?;
    let amount = known(&args[2], frame)?;
    let (Some(unit), Some(amount)) = (unit, amount) else {
        return Ok(Some(Value::Null));
    };
    let Some(zone) = zone(&args[3], frame)? else {
        return Ok(Some(Value::Null));
    };
    let start = as_date(start).ok_or_else(|| add_not_date(name))?;
    let Value::String(unit_name) = unit else {
        return Err(add_unit_not_string(name));
    };
    let unit = Unit::parse(unit_name).ok_or_else(|| unknown_unit(&unit_name.to_string()))?;
    let amount = amount.as_exact_i64().ok_or_else(|| add_amount_not_integer(name))?;
    let amount = amount.checked_mul(sign).ok_or_else(|| subtract_too_large(name, amount))?;
    if amount.unsigned_abs() > unit.amount_max().unsigned_abs() {
        return Err(add_amount_too_large(amount, &unit_name.to_string()));
    }
    let moved = moved(start, unit, amount, &zone).ok_or_else(|| match unit {
        Unit::Millisecond => duration_overflow(amount, start.wrapping_add(amount)),
        _ => date_overflow(),
    })?;
    Ok(Some(Value::DateTime(moved)))
}

/// The unit named by a value.
fn read_unit(name: &str, value: Value<'_>) -> Result<Unit> {
    match value {
        Value::String(text) => {
            Unit::parse(text).ok_or_else(|| unit_unknown(name, &text.to_string()))
        }
        value => Err(unit_not_string(name, value.kind().alias())),
    }
}

/// The zone in an argument, with errors in the form of `$dateDiff` and `$dateTrunc`.
fn named_zone<'a>(name: &str, arg: &'a Expression, frame: &Frame<'a>) -> Result<Option<Zone>> {
    zone(arg, frame).map_err(|error| {
        error.caused_by(&format!("{name} parameter 'timezone' value parsing failed"))
    })
}

/// The first day of a week, evaluated only if the unit is a week.
fn first_of_week<'a>(
    unit: Value<'a>,
    arg: &'a Expression,
    frame: &Frame<'a>,
) -> Result<Option<Value<'a>>> {
    match unit {
        Value::String(text) if **text == *b"week" => arg.eval(frame),
        _ => Ok(None),
    }
}

/// The first day of a week, from 0 for Monday; Sunday by default.
fn read_week_start(name: &str, given: Option<Value<'_>>) -> Result<i64> {
    const DAYS: [(&str, &str); 7] = [
        ("monday", "mon"),
        ("tuesday", "tue"),
        ("wednesday", "wed"),
        ("thursday", "thu"),
        ("friday", "fri"),
        ("saturday", "sat"),
        ("sunday", "sun"),
    ];
    match given {
        None => Ok(6),
        Some(Value::String(text)) => {
            let text = text.to_string();
            let lower = text.to_ascii_lowercase();
            let day = DAYS.iter().position(|(long, short)| lower == *long || lower == *short);
            match day.and_then(|day| i64::try_from(day).ok()) {
                Some(day) => Ok(day),
                None => Err(week_start_unknown(name, &text)),
            }
        }
        Some(value) => Err(week_start_not_string(name, value.kind().alias())),
    }
}

fn parse_diff(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::Document(doc) = value else {
        return Err(diff_not_object());
    };
    let names = ["startDate", "endDate", "unit", "timezone", "startOfWeek"];
    let [start, end, unit, zone, week_start] = named::unparsed(doc, names, diff_unknown)?;
    let start = start.ok_or_else(diff_no_start)?;
    let end = end.ok_or_else(diff_no_end)?;
    let unit = unit.ok_or_else(diff_no_unit)?;
    // Missing arguments are reported before invalid ones.
    Ok(operator.call([
        Expression::parse(start, scope)?,
        Expression::parse(end, scope)?,
        Expression::parse(unit, scope)?,
        given_or_missing(zone, scope)?,
        given_or_missing(week_start, scope)?,
    ]))
}

fn diff<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    const NAME: &str = "$dateDiff";
    let Some(start) = known(&args[0], frame)? else {
        return Ok(Some(Value::Null));
    };
    let Some(end) = known(&args[1], frame)? else {
        return Ok(Some(Value::Null));
    };
    let Some(unit) = known(&args[2], frame)? else {
        return Ok(Some(Value::Null));
    };
    let week_start = first_of_week(unit, &args[4], frame)?;
    if week_start.is_some_and(|given| given.is_nullish()) {
        return Ok(Some(Value::Null));
    }
    let Some(zone) = named_zone(NAME, &args[3], frame)? else {
        return Ok(Some(Value::Null));
    };
    let date = |which: &str, value: Value<'a>| {
        as_date(value).ok_or_else(|| diff_not_date(which, value.kind().alias()))
    };
    let (start, end) = (date("startDate", start)?, date("endDate", end)?);
    let unit = read_unit(NAME, unit)?;
    let week_start = read_week_start(NAME, week_start)?;
    let count = |moment: i64| boundaries_before(moment, unit, &zone, week_start);
    let difference = match unit {
        Unit::Millisecond => end.checked_sub(start),
        // A change of the offset in between does not count as time; partial units do not count.
        Unit::Hour | Unit::Minute => {
            let offset = |moment: i64| zone.local_ms(moment) - moment;
            let put_on = offset(end) - offset(start);
            Some(count(end) - count(start) - put_on / unit.ms())
        }
        _ => count(end).checked_sub(count(start)),
    };
    difference.map(|difference| Some(difference.into())).ok_or_else(diff_overflow)
}

/// The number of boundaries of a unit between a fixed time and this one.
fn boundaries_before(moment: i64, unit: Unit, zone: &Zone, week_start: i64) -> i64 {
    let local = zone.local_ms(moment);
    if let Some(months) = unit.months() {
        let civil = Civil::of_ms(local);
        return (civil.year * 12 + civil.month - 1).div_euclid(months);
    }
    match unit {
        // 1970-01-01 was a Thursday, the third day after Monday.
        Unit::Week => (local.div_euclid(DAY_MS) + 3 - week_start).div_euclid(7),
        Unit::Day | Unit::Hour | Unit::Minute => local.div_euclid(unit.ms()),
        _ => moment.div_euclid(unit.ms()),
    }
}

fn parse_trunc(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::Document(doc) = value else {
        return Err(trunc_not_object());
    };
    let names = ["date", "unit", "binSize", "timezone", "startOfWeek"];
    let [date, unit, bin, zone, week_start] = named::unparsed(doc, names, trunc_unknown)?;
    let date = date.ok_or_else(trunc_no_date)?;
    let unit = unit.ok_or_else(trunc_no_unit)?;
    // Missing arguments are reported before invalid ones.
    Ok(operator.call([
        Expression::parse(date, scope)?,
        Expression::parse(unit, scope)?,
        Expression::parse(bin.unwrap_or(Value::Int32(1)), scope)?,
        given_or_missing(zone, scope)?,
        given_or_missing(week_start, scope)?,
    ]))
}

fn trunc<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    const NAME: &str = "$dateTrunc";
    let Some(date) = known(&args[0], frame)? else {
        return Ok(Some(Value::Null));
    };
    let Some(unit) = known(&args[1], frame)? else {
        return Ok(Some(Value::Null));
    };
    let Some(bin) = known(&args[2], frame)? else {
        return Ok(Some(Value::Null));
    };
    let week_start = first_of_week(unit, &args[4], frame)?;
    if week_start.is_some_and(|given| given.is_nullish()) {
        return Ok(Some(Value::Null));
    }
    let Some(zone) = named_zone(NAME, &args[3], frame)? else {
        return Ok(Some(Value::Null));
    };
    let date = as_date(date).ok_or_else(|| trunc_not_date(date.kind().alias()))?;
    let unit = read_unit(NAME, unit)?;
    let size = bin
        .as_exact_i64()
        .ok_or_else(|| trunc_bin_not_integer(&print::value(bin), bin.kind().alias()))?;
    if size <= 0 {
        return Err(trunc_bin_not_positive(size));
    }
    let week_start = read_week_start(NAME, week_start)?;
    let start = match unit {
        Unit::Hour | Unit::Minute | Unit::Second | Unit::Millisecond => {
            start_of_time_bin(date, unit, size, &zone)
        }
        _ => start_of_day_bin(date, unit, size, &zone, week_start),
    };
    start.map(|start| Some(Value::DateTime(start)))
}

/// The maximum bin size of units of a day or more.
const BIN_MAX: i64 = 100_000_000_000;

/// The day from which bins are counted, in days since 1970: 2000-01-01.
fn reference_day() -> i64 {
    days_of(2000, 1, 1)
}

/// The start of the bin of a date, for units of hours or less.
fn start_of_time_bin(date: i64, unit: Unit, size: i64, zone: &Zone) -> Result<i64> {
    let bin = size.checked_mul(unit.ms()).ok_or_else(trunc_bin_overflow)?;
    let first = zone.moment(reference_day() * DAY_MS);
    let since = date.checked_sub(first).ok_or_else(trunc_overflow)?;
    let start = since.div_euclid(bin).checked_mul(bin).and_then(|since| first.checked_add(since));
    start.ok_or_else(trunc_overflow)
}

/// The start of the bin of a date, for units of days or more; weeks are counted from the first one
/// that starts in 2000.
fn start_of_day_bin(date: i64, unit: Unit, size: i64, zone: &Zone, week_start: i64) -> Result<i64> {
    if size > BIN_MAX {
        return Err(trunc_bin_too_large());
    }
    let mut first = reference_day();
    let since = match unit.months() {
        Some(months) => {
            let civil = zone.civil(date);
            ((civil.year - 2000) * 12 + civil.month - 1).div_euclid(months)
        }
        None => {
            if unit == Unit::Week {
                // The first such day of the week on or after the reference, which was a Saturday.
                first += (week_start - 5).rem_euclid(7);
            }
            let since = zone.local_ms(date).checked_sub(first * DAY_MS);
            since.ok_or_else(date_overflow)?.div_euclid(unit.ms())
        }
    };
    let amount = since.div_euclid(size).checked_mul(size).ok_or_else(date_overflow)?;
    if amount.unsigned_abs() > unit.amount_max().unsigned_abs() {
        return Err(add_amount_too_large(amount, unit.name()));
    }
    let local = match unit.months() {
        Some(months) => amount
            .checked_mul(months)
            .and_then(|months| days_of(2000, months.checked_add(1)?, 1).checked_mul(DAY_MS)),
        None => amount.checked_mul(unit.ms()).and_then(|since| since.checked_add(first * DAY_MS)),
    };
    local.map(|local| zone.moment(local)).ok_or_else(date_overflow)
}

fn parse_from_parts(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::Document(doc) = value else {
        return Err(parts_not_object());
    };
    let mut args: [Expression; 11] = [const { Expression::Missing }; 11];
    let mut is_given = [false; 11];
    for element in doc {
        let at = FROM_PARTS.iter().position(|name| *name.as_bytes() == **element.name);
        let at = at.ok_or_else(|| parts_unknown(&element.name.to_string()))?;
        args[at] = given(element.value.get(), scope)?;
        is_given[at] = true;
    }
    let [year, month, day, .., iso_year, iso_week, iso_day, _] = is_given;
    match (year, iso_year) {
        (false, false) => return Err(parts_no_year()),
        (true, _) if iso_year || iso_week || iso_day => return Err(parts_iso_in_natural()),
        (false, true) if month || day => return Err(parts_natural_in_iso()),
        _ => {}
    }
    Ok(operator.call(args))
}

fn from_parts<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let is_iso = matches!(args[0], Expression::Missing);
    let mut parts = [0, 1, 1, 0, 0, 0, 0, 0, 1, 1];
    let mut read = |at: usize| -> Result<bool> {
        if matches!(args[at], Expression::Missing) {
            return Ok(true);
        }
        let Some(value) = known(&args[at], frame)? else { return Ok(false) };
        let name = FROM_PARTS[at];
        parts[at] = value
            .as_exact_i64()
            .ok_or_else(|| parts_not_integer(name, value.kind().alias(), &print::value(value)))?;
        check_part(name, parts[at]).map(|()| true)
    };
    // The time of day is checked first, then the zone, then the day: this determines which of
    // several errors is reported.
    for at in 3..7 {
        if !read(at)? {
            return Ok(Some(Value::Null));
        }
    }
    let Some(zone) = zone(&args[10], frame)? else {
        return Ok(Some(Value::Null));
    };
    for at in if is_iso { [7, 8, 9] } else { [0, 1, 2] } {
        if !read(at)? {
            return Ok(Some(Value::Null));
        }
    }
    check_year(is_iso, if is_iso { parts[7] } else { parts[0] })?;
    // mongod computes these two parts in microseconds, which limits their range.
    if parts[5..7].iter().any(|part| part.unsigned_abs() > i64::MAX.unsigned_abs() / 1000) {
        return Err(parts_too_long());
    }
    let [year, month, day, hour, minute, second, millisecond, iso_year, iso_week, iso_day] = parts;
    let days = if is_iso {
        days_of_iso_week(iso_year, iso_week, iso_day)
    } else {
        days_of(year, month, 1) + day - 1
    };
    let time = hour * HOUR_MS + minute * MINUTE_MS + second * SECOND_MS;
    let local = days * DAY_MS + time;
    let moment = zone.moment(local.saturating_add(millisecond));
    Ok(Some(Value::DateTime(moment)))
}

fn check_year(is_iso: bool, year: i64) -> Result<()> {
    match ((1..=9999).contains(&year), is_iso) {
        (true, _) => Ok(()),
        (false, true) => Err(parts_iso_year_out_of_range(year)),
        (false, false) => Err(parts_year_out_of_range(year)),
    }
}

fn check_part(name: &str, value: i64) -> Result<(), Error> {
    match name {
        // The year is checked after all parts are known; seconds and milliseconds have no limit
        // here.
        "year" | "isoWeekYear" | "second" | "millisecond" => Ok(()),
        _ if !(-32768..=32767).contains(&value) => Err(parts_out_of_range(name, value)),
        _ => Ok(()),
    }
}
