//! The calendar of date operators: the proleptic Gregorian one, and time zones.
//!
//! A moment is milliseconds since 1970; a [`Civil`] is what a clock on the wall of a [`Zone`] shows.
//! Both reach further than any date library: BSON dates span 290 million years either way.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use marula_error::{Result, errors};

pub(crate) const SECOND_MS: i64 = 1000;
pub(crate) const MINUTE_MS: i64 = 60 * SECOND_MS;
pub(crate) const HOUR_MS: i64 = 60 * MINUTE_MS;
pub(crate) const DAY_MS: i64 = 24 * HOUR_MS;
/// After 400 years the calendar repeats, the days of the week too.
const CYCLE_MS: i64 = 146_097 * DAY_MS;

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

/// What calendar and clock show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// From 1.
    pub(crate) month: i64,
    /// Of the month, from 1.
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    pub(crate) millisecond: i64,
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
                // A day inside the library's range, whose edges have no rule of their own. Beyond it the rules go
                // on, and what they say repeats with the calendar.
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
        // The reading may lie beyond what a moment can be.
        Civil::of_wide_ms(i128::from(moment) + i128::from(self.offset_ms(moment)))
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

/// Days from 1970-01-01 to a date; months may be any number.
pub(crate) fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = year.saturating_add((month - 1).div_euclid(12));
    let month = (month - 1).rem_euclid(12) + 1;
    // Years start in March, so that the leap day is the last.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era.saturating_mul(146_097).saturating_add(day_of_era - 719_468)
}

/// The date so many days after 1970-01-01: year, month, day.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// How many days a month has.
pub(crate) fn month_length(year: i64, month: i64) -> i64 {
    days_of(year, month + 1, 1) - days_of(year, month, 1)
}

impl Civil {
    /// The reading so many milliseconds after the reading 1970-01-01T00:00.
    pub(crate) fn of_ms(ms: i64) -> Civil {
        Civil::of_wide_ms(i128::from(ms))
    }

    fn of_wide_ms(ms: i128) -> Civil {
        let day = i128::from(DAY_MS);
        let part = |ms: i128| i64::try_from(ms).expect("a date and a day are within a long");
        let (year, month, day) = date_of(part(ms.div_euclid(day)));
        let of_day = part(ms.rem_euclid(i128::from(DAY_MS)));
        Civil {
            year,
            month,
            day,
            hour: of_day / HOUR_MS,
            minute: of_day / MINUTE_MS % 60,
            second: of_day / SECOND_MS % 60,
            millisecond: of_day % SECOND_MS,
        }
    }

    /// The milliseconds to the reading; parts beyond their range carry over. `None` where no date is so far.
    pub(crate) fn to_ms(self) -> Option<i64> {
        days_of(self.year, self.month, 1)
            .checked_add(self.day - 1)?
            .checked_mul(DAY_MS)?
            .checked_add(self.of_day_ms())
    }

    /// The milliseconds since midnight.
    pub(crate) fn of_day_ms(self) -> i64 {
        self.hour * HOUR_MS + self.minute * MINUTE_MS + self.second * SECOND_MS + self.millisecond
    }

    fn days(self) -> i64 {
        days_of(self.year, self.month, self.day)
    }

    /// The day of the year, from 1.
    pub(crate) fn day_of_year(self) -> i64 {
        self.days() - days_of(self.year, 1, 1) + 1
    }

    /// The day of the week, from 1 on Sunday.
    pub(crate) fn day_of_week(self) -> i64 {
        // 1970-01-01 was a Thursday.
        (self.days() + 4).rem_euclid(7) + 1
    }

    /// The day of the week, from 1 on Monday.
    pub(crate) fn iso_day_of_week(self) -> i64 {
        (self.days() + 3).rem_euclid(7) + 1
    }

    /// The week of the year, from 0; weeks start on Sunday.
    pub(crate) fn week(self) -> i64 {
        (self.day_of_year() + 7 - self.day_of_week()) / 7
    }

    /// The ISO week and the year it belongs to.
    pub(crate) fn iso_week(self) -> (i64, i64) {
        // A week belongs to the year of its Thursday.
        let thursday = self.days() + 4 - self.iso_day_of_week();
        let (year, ..) = date_of(thursday);
        ((thursday - days_of(year, 1, 1)) / 7 + 1, year)
    }
}

/// Days from 1970-01-01 to a day of an ISO week; weeks and days may be any number.
pub(crate) fn days_of_iso_week(year: i64, week: i64, day: i64) -> i64 {
    // The fourth of January is in the first week.
    let fourth = days_of(year, 1, 4);
    let monday = fourth - (fourth + 3).rem_euclid(7);
    monday + (week - 1) * 7 + day - 1
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
/// Of dates before 1970 with a fraction of a second, mongod 6.0 loses a second on the way, for every unit but
/// milliseconds; so does this.
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
