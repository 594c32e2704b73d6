//! Time zones and units of time for date operators.
//!
//! The calendar itself is [`marula_bson::calendar`]. A moment is milliseconds since 1970; a
//! [`Civil`] is the local time in a [`Zone`].

use jiff::Timestamp;
use jiff::tz::TimeZone;
use marula_bson::calendar::{CYCLE_MS, Civil, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, month_length};
use marula_error::{Result, errors};

errors! {
    unknown_zone(name: &str) = 40485, "unrecognized time zone identifier: \"{name}\"";
}

/// A time zone.
#[derive(Clone, Debug)]
pub(crate) enum Zone {
    /// UTC, by its name or by default.
    Utc,
    /// A fixed offset from UTC in milliseconds.
    Fixed(i64),
    /// A zone of the IANA database.
    Named(TimeZone),
}

impl Zone {
    /// Parses a zone: `"Europe/London"`, `"+05:30"`, `"+0530"`, `"+05"`.
    pub(crate) fn parse(name: &str) -> Result<Zone> {
        if let Some(offset) = parse_offset(name) {
            return Ok(Zone::Fixed(offset));
        }
        if name == "UTC" || name == "GMT" {
            return Ok(Zone::Utc);
        }
        // The database ignores case; mongod does not.
        match TimeZone::get(name) {
            Ok(zone) if zone.iana_name() == Some(name) => Ok(Zone::Named(zone)),
            _ => Err(unknown_zone(name)),
        }
    }

    /// The zone's offset from UTC at a moment, in milliseconds.
    pub(crate) fn offset_ms(&self, moment: i64) -> i64 {
        match self {
            Zone::Utc => 0,
            Zone::Fixed(offset) => *offset,
            Zone::Named(zone) => {
                // The edges of the library's range have no rules, so stay a day inside. Beyond it
                // the rules continue and repeat with the calendar.
                let min = Timestamp::MIN.as_millisecond() + DAY_MS;
                let max = Timestamp::MAX.as_millisecond() - DAY_MS;
                let moment = match moment {
                    late if late > max => max - CYCLE_MS + (late - max).rem_euclid(CYCLE_MS),
                    moment => moment.max(min),
                };
                let at = Timestamp::from_millisecond(moment).unwrap_or(Timestamp::UNIX_EPOCH);
                i64::from(zone.to_offset(at).seconds()) * SECOND_MS
            }
        }
    }

    /// The local time at a moment.
    pub(crate) fn civil(&self, moment: i64) -> Civil {
        Civil::of_ms_ahead(moment, self.offset_ms(moment))
    }

    /// The local time as milliseconds since local 1970-01-01T00:00.
    pub(crate) fn local_ms(&self, moment: i64) -> i64 {
        moment.saturating_add(self.offset_ms(moment))
    }

    /// The moment of a local time: the first of two; in a gap, shifted by the gap.
    pub(crate) fn moment(&self, local: i64) -> i64 {
        let before = local.saturating_sub(self.offset_ms(local.saturating_sub(DAY_MS)));
        if self.local_ms(before) == local {
            return before;
        }
        let after = local.saturating_sub(self.offset_ms(local.saturating_add(DAY_MS)));
        if self.local_ms(after) == local { after } else { before }
    }
}

/// Parses `+hh`, `+hhmm`, `+hh:mm` to milliseconds.
pub(crate) fn parse_offset(text: &str) -> Option<i64> {
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits.as_bytes() {
        [_, _] => (digits, "0"),
        [_, _, b':', _, _] => digits.split_once(':')?,
        [_, _, _, _] => digits.split_at_checked(2)?,
        _ => return None,
    };
    if !hours.bytes().chain(minutes.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    Some(sign * (hours * HOUR_MS + minutes * MINUTE_MS))
}

/// A unit of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
}

impl Unit {
    /// The unit with this name.
    pub(crate) fn parse(name: &[u8]) -> Option<Unit> {
        Some(match name {
            b"year" => Unit::Year,
            b"quarter" => Unit::Quarter,
            b"month" => Unit::Month,
            b"week" => Unit::Week,
            b"day" => Unit::Day,
            b"hour" => Unit::Hour,
            b"minute" => Unit::Minute,
            b"second" => Unit::Second,
            b"millisecond" => Unit::Millisecond,
            _ => return None,
        })
    }

    /// The name that [`Unit::parse`] reads.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Year => "year",
            Unit::Quarter => "quarter",
            Unit::Month => "month",
            Unit::Week => "week",
            Unit::Day => "day",
            Unit::Hour => "hour",
            Unit::Minute => "minute",
            Unit::Second => "second",
            Unit::Millisecond => "millisecond",
        }
    }

    /// The number of months of the unit; `None` if it is counted in milliseconds.
    pub(crate) fn months(self) -> Option<i64> {
        match self {
            Unit::Year => Some(12),
            Unit::Quarter => Some(3),
            Unit::Month => Some(1),
            _ => None,
        }
    }

    /// The number of milliseconds of the unit; zero if it is counted in months.
    pub(crate) fn ms(self) -> i64 {
        match self {
            Unit::Year | Unit::Quarter | Unit::Month => 0,
            Unit::Week => 7 * DAY_MS,
            Unit::Day => DAY_MS,
            Unit::Hour => HOUR_MS,
            Unit::Minute => MINUTE_MS,
            Unit::Second => SECOND_MS,
            Unit::Millisecond => 1,
        }
    }

    /// The largest amount that `$dateAdd` accepts: less than the days from the first date to the
    /// last, or than that many years, each counted as 365 days.
    pub(crate) fn amount_max(self) -> i64 {
        const DAYS: i64 = i64::MAX.div_euclid(DAY_MS) - i64::MIN.div_euclid(DAY_MS);
        const YEARS: i64 = DAYS / 365 + 1;
        match (self, self.months()) {
            (_, Some(months)) => YEARS * 12 / months - 1,
            (Unit::Millisecond, None) => i64::MAX,
            (Unit::Week, None) => DAYS / 7 - 1,
            (_, None) => DAYS * (DAY_MS / self.ms()) - 1,
        }
    }
}

/// Adds units by the calendar of UTC; `None` if the result is out of range.
pub(crate) fn add_units(start: i64, unit: Unit, amount: i64) -> Option<i64> {
    moved(start, unit, amount, &Zone::Utc)
}

/// Adds units; for days and longer units the local clock time stays the same.
///
/// For dates before 1970 with a fraction of a second, mongod 6.0 loses a second with every unit
/// except milliseconds; so does this function.
pub(crate) fn moved(start: i64, unit: Unit, amount: i64, zone: &Zone) -> Option<i64> {
    let has_fraction = start % SECOND_MS != 0;
    let lost = if start < 0 && has_fraction && unit != Unit::Millisecond { SECOND_MS } else { 0 };
    let moved = moved_exactly(start, unit, amount, zone)?.checked_sub(lost)?;
    // As in mongod, seconds and milliseconds are combined at the end, and the seconds alone must be
    // a valid date too.
    if unit != Unit::Millisecond {
        moved.div_euclid(SECOND_MS).checked_mul(SECOND_MS)?;
    }
    Some(moved)
}

fn moved_exactly(start: i64, unit: Unit, amount: i64, zone: &Zone) -> Option<i64> {
    if let Some(months) = unit.months() {
        let civil = zone.civil(start);
        let months =
            (civil.year * 12 + civil.month - 1).checked_add(amount.checked_mul(months)?)?;
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
        let day = civil.day.min(month_length(year, month));
        return Some(zone.moment(Civil { year, month, day, ..civil }.to_ms()?));
    }
    // The span of all dates does not fit 64 bits of milliseconds.
    let delta = i128::from(amount) * i128::from(unit.ms());
    let later = |start: i64| i64::try_from(i128::from(start) + delta).ok();
    match unit {
        Unit::Week | Unit::Day => {
            let local = start.checked_add(zone.offset_ms(start))?;
            Some(zone.moment(later(local)?))
        }
        _ => later(start),
    }
}
