//! Time zones and units of time, as date operators name them.
//!
//! The calendar itself is [`marula_bson::calendar`]. A moment is milliseconds since 1970; a
//! [`Civil`] is what a clock on the wall of a [`Zone`] shows.

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
    /// So many milliseconds ahead of UTC.
    Fixed(i64),
    /// A zone of the IANA database.
    Named(TimeZone),
}

impl Zone {
    /// Greenwich.
    pub(crate) const UTC: Zone = Zone::Fixed(0);

    /// The zone that `name` names: `"Europe/London"`, `"+05:30"`, `"+0530"`, `"+05"`.
    pub(crate) fn parse(name: &str) -> Result<Zone> {
        if let Some(offset) = parse_offset(name) {
            return Ok(Zone::Fixed(offset));
        }
        if name == "UTC" || name == "GMT" {
            return Ok(Zone::UTC);
        }
        // The database does not mind the case of letters; mongod does.
        match TimeZone::get(name) {
            Ok(zone) if zone.iana_name() == Some(name) => Ok(Zone::Named(zone)),
            _ => Err(unknown_zone(name)),
        }
    }

    /// How far the zone is ahead of UTC at a moment, in milliseconds.
    pub(crate) fn offset_ms(&self, moment: i64) -> i64 {
        match self {
            Zone::Fixed(offset) => *offset,
            Zone::Named(zone) => {
                // A day inside the library's range, whose edges have no rule of their own. Beyond
                // it the rules go on, and what they say repeats with the calendar.
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

    /// What the zone's clock shows at a moment.
    pub(crate) fn civil(&self, moment: i64) -> Civil {
        Civil::of_ms_ahead(moment, self.offset_ms(moment))
    }

    /// The clock's reading as milliseconds since the reading 1970-01-01T00:00.
    pub(crate) fn local_ms(&self, moment: i64) -> i64 {
        moment.saturating_add(self.offset_ms(moment))
    }

    /// The moment at which the clock shows `local`: the first of two; past a gap, the gap later.
    pub(crate) fn moment(&self, local: i64) -> i64 {
        let before = local.saturating_sub(self.offset_ms(local.saturating_sub(DAY_MS)));
        if self.local_ms(before) == local {
            return before;
        }
        let after = local.saturating_sub(self.offset_ms(local.saturating_add(DAY_MS)));
        if self.local_ms(after) == local { after } else { before }
    }
}

/// `+hh`, `+hhmm`, `+hh:mm` in milliseconds.
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
    /// The unit of this name.
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

    /// How many months the unit has; `None` where it is counted in milliseconds.
    pub(crate) fn months(self) -> Option<i64> {
        match self {
            Unit::Year => Some(12),
            Unit::Quarter => Some(3),
            Unit::Month => Some(1),
            _ => None,
        }
    }

    /// How many milliseconds the unit has; zero of one that is counted in months.
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

    /// The largest amount that `$dateAdd` takes: what spans all dates, roughly.
    pub(crate) fn amount_max(self) -> i64 {
        match self.months() {
            Some(months) => 600_000_000 * 12 / months,
            None => i64::MAX / self.ms().max(1),
        }
    }
}

/// The date so many units later by the calendar of UTC; `None` where no date is so far.
pub(crate) fn add_units(start: i64, unit: Unit, amount: i64) -> Option<i64> {
    moved(start, unit, amount, &Zone::UTC)
}

/// The date so many units later: days and longer keep the clock's reading.
///
/// Of dates before 1970 with a fraction of a second, mongod 6.0 loses a second on the way, for
/// every unit but milliseconds; so does this.
pub(crate) fn moved(start: i64, unit: Unit, amount: i64, zone: &Zone) -> Option<i64> {
    let has_fraction = start % SECOND_MS != 0;
    let lost = if start < 0 && has_fraction && unit != Unit::Millisecond { SECOND_MS } else { 0 };
    let moved = moved_exactly(start, unit, amount, zone)?.checked_sub(lost)?;
    // Whole seconds and the rest are put together, and the seconds alone must be a date too.
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
    let delta = amount.checked_mul(unit.ms())?;
    match unit {
        Unit::Week | Unit::Day => {
            let local = start.checked_add(zone.offset_ms(start))?;
            Some(zone.moment(local.checked_add(delta)?))
        }
        _ => start.checked_add(delta),
    }
}
