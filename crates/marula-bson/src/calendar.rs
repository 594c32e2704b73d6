//! The calendar: dates of the proleptic Gregorian calendar, days of the week, ISO weeks.
//!
//! A moment is milliseconds since 1970, as BSON stores it. A [`Civil`] is the calendar date and
//! clock time of a moment, in UTC or at a given offset from it.
//!
//! The library computes dates in the years -9999 to 9999 only, and moments of BSON reach 292
//! million years in both directions. The calendar, including days of the week and ISO weeks,
//! repeats after 400 years. So a moment is moved into the cycle that begins with 1970, converted by
//! the library, and the result is moved back by whole cycles:
//!
//! ```text
//!   ... ──┬── 1570 ──────┬── 1970 ──────┬── 2370 ──────┬── 2770 ...
//!         │   cycle -1   │   cycle 0    │   cycle 1    │   146 097 days each
//!                        └ library ─────┘
//! ```
//!
//! This module knows no named time zones; those are part of the query language.

use jiff::Timestamp;
use jiff::civil::{Date, ISOWeekDate, Weekday};
use jiff::tz::Offset;

/// A second in milliseconds.
pub const SECOND_MS: i64 = 1000;
/// A minute in milliseconds.
pub const MINUTE_MS: i64 = 60 * SECOND_MS;
/// An hour in milliseconds.
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
/// A day in milliseconds; the calendar has no leap seconds.
pub const DAY_MS: i64 = 24 * HOUR_MS;
/// The 400 years after which the calendar repeats, in milliseconds.
pub const CYCLE_MS: i64 = CYCLE_DAYS * DAY_MS;

const CYCLE_DAYS: i64 = 146_097;
const CYCLE_YEARS: i64 = 400;
const EPOCH_YEAR: i64 = 1970;

/// The English names of the months; the first three letters are the short name.
pub const MONTH_NAMES: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A calendar date and clock time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Civil {
    /// The year; 0 is the year before 1.
    pub year: i64,
    /// The month of the year, from 1.
    pub month: i64,
    /// The day of the month, from 1.
    pub day: i64,
    /// The hour of the day, from 0.
    pub hour: i64,
    /// The minute of the hour, from 0.
    pub minute: i64,
    /// The second of the minute, from 0.
    pub second: i64,
    /// The millisecond of the second, from 0.
    pub millisecond: i64,
}

impl Civil {
    /// The date and time in UTC.
    pub fn of_ms(ms: i64) -> Civil {
        Civil::of_ms_ahead(ms, 0)
    }

    /// The date and time `offset_ms` ahead of UTC. It may lie outside the range of moments.
    pub fn of_ms_ahead(ms: i64, offset_ms: i64) -> Civil {
        let in_cycle = ms.rem_euclid(CYCLE_MS).saturating_add(offset_ms);
        let cycle = ms.div_euclid(CYCLE_MS) + in_cycle.div_euclid(CYCLE_MS);
        let at = Timestamp::from_millisecond(in_cycle.rem_euclid(CYCLE_MS))
            .expect("the library reaches to the year 9999");
        let reading = Offset::UTC.to_datetime(at);
        Civil {
            year: i64::from(reading.year()) + cycle * CYCLE_YEARS,
            month: i64::from(reading.month()),
            day: i64::from(reading.day()),
            hour: i64::from(reading.hour()),
            minute: i64::from(reading.minute()),
            second: i64::from(reading.second()),
            millisecond: i64::from(reading.millisecond()),
        }
    }

    /// The milliseconds from 1970-01-01T00:00 to this date and time; components out of range carry
    /// over. `None` if the result is outside the range of moments.
    pub fn to_ms(self) -> Option<i64> {
        days_of(self.year, self.month, 1)
            .checked_add(self.day - 1)?
            .checked_mul(DAY_MS)?
            .checked_add(self.of_day_ms())
    }

    /// The milliseconds since midnight.
    pub fn of_day_ms(self) -> i64 {
        self.hour * HOUR_MS + self.minute * MINUTE_MS + self.second * SECOND_MS + self.millisecond
    }

    /// The date in the library's cycle, and the number of its cycle.
    fn date(self) -> (Date, i64) {
        let (year, cycle) = year_in_cycle(self.year);
        match (i8::try_from(self.month), i8::try_from(self.day)) {
            (Ok(month), Ok(day)) => Date::new(year, month, day).ok().map(|date| (date, cycle)),
            _ => None,
        }
        .unwrap_or_else(|| date_of(days_of(self.year, self.month, self.day)))
    }

    /// The day of the year, from 1.
    pub fn day_of_year(self) -> i64 {
        i64::from(self.date().0.day_of_year())
    }

    /// The day of the week, from 1 on Sunday.
    pub fn day_of_week(self) -> i64 {
        i64::from(self.date().0.weekday().to_sunday_one_offset())
    }

    /// The day of the week, from 1 on Monday.
    pub fn iso_day_of_week(self) -> i64 {
        i64::from(self.date().0.weekday().to_monday_one_offset())
    }

    /// The week of the year, from 0; weeks start on Sunday.
    pub fn week(self) -> i64 {
        let (date, _) = self.date();
        let day_of_week = i64::from(date.weekday().to_sunday_one_offset());
        (i64::from(date.day_of_year()) + 7 - day_of_week) / 7
    }

    /// The ISO week and its ISO year.
    pub fn iso_week(self) -> (i64, i64) {
        let (date, cycle) = self.date();
        let week = date.iso_week_date();
        (i64::from(week.week()), i64::from(week.year()) + cycle * CYCLE_YEARS)
    }
}

/// Days from 1970-01-01 to a date; months and days may be any number.
pub fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = year.saturating_add((month - 1).div_euclid(12));
    let (first, cycle) = first_of_month(year, (month - 1).rem_euclid(12) + 1);
    cycle.saturating_mul(CYCLE_DAYS).saturating_add(epoch_days(first) + day - 1)
}

/// The number of days of a month.
pub fn month_length(year: i64, month: i64) -> i64 {
    days_of(year, month + 1, 1) - days_of(year, month, 1)
}

/// Days from 1970-01-01 to a day of an ISO week; weeks and days may be any number.
pub fn days_of_iso_week(year: i64, week: i64, day: i64) -> i64 {
    let (year, cycle) = year_in_cycle(year);
    let monday = ISOWeekDate::new(year, 1, Weekday::Monday).expect("each year has a first week");
    cycle * CYCLE_DAYS + epoch_days(monday.date()) + (week - 1) * 7 + day - 1
}

/// The year of the library's cycle that corresponds to `year`, and the number of the cycle of
/// `year`.
fn year_in_cycle(year: i64) -> (i16, i64) {
    let since = year.saturating_sub(EPOCH_YEAR);
    let like = EPOCH_YEAR + since.rem_euclid(CYCLE_YEARS);
    (i16::try_from(like).expect("before 2370"), since.div_euclid(CYCLE_YEARS))
}

/// The first day of a month (1 to 12) in the library's cycle, and the number of its cycle.
fn first_of_month(year: i64, month: i64) -> (Date, i64) {
    let (year, cycle) = year_in_cycle(year);
    let month = i8::try_from(month).expect("a month is at most 12");
    (Date::new(year, month, 1).expect("each month has a first day"), cycle)
}

/// The date `days` after 1970-01-01 in the library's cycle, and the number of its cycle.
fn date_of(days: i64) -> (Date, i64) {
    let at = Timestamp::from_second(days.rem_euclid(CYCLE_DAYS) * (DAY_MS / SECOND_MS))
        .expect("the library reaches to the year 9999");
    (Offset::UTC.to_datetime(at).date(), days.div_euclid(CYCLE_DAYS))
}

/// Days from 1970-01-01 to a date in the library's range.
fn epoch_days(date: Date) -> i64 {
    date.duration_since(Date::constant(1970, 1, 1)).as_hours() / 24
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Folds all components of many readings, for numbers of all sizes, into one number.
    ///
    /// The expected number was computed by the formulas of Howard Hinnant's "chrono-Compatible
    /// Low-Level Date Algorithms" (days from civil, civil from days), which need no library.
    #[test]
    fn readings_over_the_whole_range_are_those_of_the_formulas() {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut note = |number: i64| {
            for byte in number.to_le_bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        let mut random = 1_u64;
        for round in 0..100_000_i64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let ms = random.cast_signed() >> (round % 40);
            let civil = Civil::of_ms(ms);
            assert_eq!(civil.to_ms(), Some(ms));
            let (iso_week, iso_year) = civil.iso_week();
            let (year, month) = (civil.year, civil.month);
            for part in [
                year,
                month,
                civil.day,
                civil.hour,
                civil.minute,
                civil.second,
                civil.millisecond,
                civil.day_of_year(),
                civil.day_of_week(),
                civil.iso_day_of_week(),
                civil.week(),
                iso_week,
                iso_year,
                days_of(year, month, civil.day),
                days_of(year, month - round % 1000, 1),
                month_length(year, month),
                days_of_iso_week(iso_year, iso_week + round % 100, civil.iso_day_of_week()),
            ] {
                note(part);
            }
        }
        assert_eq!(hash, 0xba59_cd84_bb6d_1191);
    }

    #[test]
    fn the_first_and_the_last_moment_have_a_reading() {
        let last = Civil {
            year: 292_278_994,
            month: 8,
            day: 17,
            hour: 7,
            minute: 12,
            second: 55,
            millisecond: 807,
        };
        assert_eq!(Civil::of_ms(i64::MAX), last);
        assert_eq!(last.to_ms(), Some(i64::MAX));
        assert_eq!((last.iso_week(), last.week(), last.day_of_week()), ((33, 292_278_994), 33, 1));
        let first = Civil {
            year: -292_275_055,
            month: 5,
            day: 16,
            hour: 16,
            minute: 47,
            second: 4,
            millisecond: 192,
        };
        assert_eq!(Civil::of_ms(i64::MIN), first);
        assert_eq!(
            (first.iso_week(), first.week(), first.day_of_week()),
            ((19, -292_275_055), 20, 1)
        );
        // The midnight before the first moment is outside the range.
        assert_eq!(first.to_ms(), None);
    }

    #[test]
    fn a_reading_ahead_of_utc_may_lie_beyond_the_last_moment() {
        let ahead = Civil::of_ms_ahead(i64::MAX, 17 * HOUR_MS);
        assert_eq!((ahead.month, ahead.day, ahead.hour, ahead.millisecond), (8, 18, 0, 807));
        assert_eq!(ahead.to_ms(), None);
        let behind = Civil::of_ms_ahead(0, -1);
        assert_eq!((behind.year, behind.month, behind.millisecond), (1969, 12, 999));
        assert_eq!(Civil::of_ms_ahead(-1, 1), Civil::of_ms(0));
    }

    #[test]
    fn months_days_and_weeks_beyond_their_range_carry_over() {
        assert_eq!(days_of(2000, 25, 0), days_of(2001, 12, 31));
        assert_eq!(days_of(2000, -11, 32), days_of(1999, 2, 1));
        assert_eq!(days_of_iso_week(2020, 54, 8), days_of(2021, 1, 11));
        assert_eq!(days_of_iso_week(2021, 0, 1), days_of(2020, 12, 28));
        assert_eq!(month_length(1900, 2) + month_length(2000, 2), 28 + 29);
        let carried = Civil { month: 14, day: 130, ..Civil::of_ms(0) };
        assert_eq!(carried.day_of_week(), Civil::of_ms(carried.to_ms().unwrap()).day_of_week());
        for year in [i64::MIN, i64::MAX] {
            assert_eq!(days_of(year, 1, 1).checked_mul(DAY_MS), None);
        }
    }
}
