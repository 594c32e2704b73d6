//! Dates by a format, as `$dateFromString` reads them with `format`.
//!
//! The rules are those of timelib, mongod's library. Mistakes are collected, and reading goes on
//! after each: a number that is missing at a place is looked for further on. The text and the
//! format end at their first NUL.

use bstr::BStr;
use marula_bson::calendar::{
    Civil, DAY_MS, MINUTE_MS, MONTH_NAMES, SECOND_MS, days_of_iso_week, month_length,
};
use marula_error::Result;

use super::date_scan::{Local, OwnZone, message_at};
use super::date_text::{incomplete, unreadable};
use super::date_token::{NO_OWN_ZONE, own_zone};
use crate::meter;

/// The number of mistakes after which a text is not read further.
const MOST_MISTAKES: usize = 10_000;

/// Reads a text by a checked format: its local time, and its zone.
pub(super) fn read(text: &BStr, format: &[u8]) -> Result<(Local, OwnZone)> {
    let mut reader = Reader { text: before_nul(text), ..Reader::default() };
    reader.run(before_nul(format))?;
    let ms = reader.local_ms();
    if !reader.mistakes.is_empty() {
        return Err(unreadable(text, &reader.mistakes.join("; ")));
    }
    let ms = ms.ok_or_else(|| incomplete(text))?;
    Ok((Local { ms, micros: 0 }, reader.zone))
}

fn before_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[derive(Default)]
struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    mistakes: Vec<String>,
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
    zone: OwnZone,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Notes a mistake at a place.
    fn fail(&mut self, at: usize, what: &str) {
        self.mistakes.push(message_at(self.text, at, what));
    }

    fn run(&mut self, format: &[u8]) -> Result<()> {
        let mut format = format.iter();
        while !self.rest().is_empty() && self.mistakes.len() < MOST_MISTAKES {
            meter::spend(meter::ELEMENT)?;
            match format.next() {
                None => {
                    self.fail(self.at, "Trailing data");
                    return Ok(());
                }
                Some(b'%') => self.read_part(format.next().copied().unwrap_or(b'%')),
                Some(byte) => self.read_literal(*byte),
            }
        }
        if format.next().is_some() {
            self.fail(self.at, "Not enough data available to satisfy format");
        }
        Ok(())
    }

    fn read_literal(&mut self, byte: u8) {
        if self.rest().first() != Some(&byte) {
            self.fail(self.at, "Format literal not found");
        }
        self.at += 1;
    }

    fn read_part(&mut self, letter: u8) {
        match letter {
            b'Y' => self.year = self.number(4, "A four digit year could not be found"),
            b'm' => self.month = self.number(2, "A two digit month could not be found"),
            b'd' => self.day = self.number(2, "A two digit day could not be found"),
            b'H' => {
                let hour = self.number(2, "A two digit hour could not be found");
                self.hour = hour.unwrap_or(self.hour);
            }
            b'M' => {
                let minute = self.two_digits("A two digit minute could not be found");
                self.minute = minute.unwrap_or(self.minute);
            }
            b'S' => {
                let second = self.two_digits("A two digit second could not be found");
                self.second = second.unwrap_or(self.second);
            }
            b'L' => self.read_milliseconds(),
            b'G' => self.iso_year = self.found(4, "A four digit ISO year could not be found"),
            b'V' => {
                let at = self.at;
                self.iso_week = self.found(2, "A two digit ISO week could not be found");
                if self.iso_week.is_some_and(|week| !(1..=53).contains(&week)) {
                    self.fail(at, "ISO Week must be between 1 and 53");
                }
            }
            b'u' => {
                let at = self.at;
                self.iso_day = self.found(1, "A single digit day of week could not be found");
                if self.iso_day.is_some_and(|day| !(1..=7).contains(&day)) {
                    self.fail(at, "Day of week must be between 1 and 7");
                }
            }
            b'b' | b'B' => self.read_month_name(),
            b'z' => {
                let (zone, length) = own_zone(self.rest());
                match zone {
                    None => self.fail(self.at, NO_OWN_ZONE),
                    zone => self.zone = zone,
                }
                self.at += length;
            }
            b'Z' => self.read_minutes_of_zone(),
            _ => self.read_literal(b'%'),
        }
    }

    /// The next number of at most `max` digits, with their number. Bytes before it are skipped.
    fn digits(&mut self, max: usize) -> Option<(i64, usize)> {
        self.at += self.rest().iter().take_while(|byte| !byte.is_ascii_digit()).count();
        let digits = self.rest().iter().take(max).take_while(|byte| byte.is_ascii_digit());
        let (number, count) = digits.fold((0, 0), |(number, count), digit| {
            (number * 10 + i64::from(digit - b'0'), count + 1)
        });
        self.at += count;
        (count > 0).then_some((number, count))
    }

    /// The next number, wherever it begins.
    fn found(&mut self, max: usize, missing: &str) -> Option<i64> {
        let at = self.at;
        let number = self.digits(max);
        if number.is_none() {
            self.fail(at, missing);
        }
        number.map(|(number, _)| number)
    }

    /// Notes a mistake if no digit is at the current place.
    fn expect_digit(&mut self) {
        if !self.rest().first().is_some_and(u8::is_ascii_digit) {
            self.fail(self.at, "Unexpected data found.");
        }
    }

    /// The number that should begin at the current place.
    fn number(&mut self, max: usize, missing: &str) -> Option<i64> {
        self.expect_digit();
        self.found(max, missing)
    }

    /// A number that must have two digits.
    fn two_digits(&mut self, missing: &str) -> Option<i64> {
        self.expect_digit();
        let at = self.at;
        match self.digits(2) {
            Some((number, 2)) => Some(number),
            _ => {
                self.fail(at, missing);
                None
            }
        }
    }

    /// The digits after the point of a second: `5` is half a second.
    fn read_milliseconds(&mut self) {
        self.expect_digit();
        let at = self.at;
        match self.digits(3) {
            Some((number, 1)) => self.millisecond = number * 100,
            Some((number, 2)) => self.millisecond = number * 10,
            Some((number, _)) => self.millisecond = number,
            None => self.fail(at, "A three digit millisecond could not be found"),
        }
    }

    fn read_month_name(&mut self) {
        let length = self.rest().iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        let word = &self.rest()[..length];
        let is_name = |name: &&str| {
            let name = name.as_bytes();
            word.eq_ignore_ascii_case(name) || word.eq_ignore_ascii_case(&name[..3])
        };
        match MONTH_NAMES.iter().position(is_name) {
            Some(at) => self.month = i64::try_from(at + 1).ok(),
            None => self.fail(self.at, "A textual month could not be found"),
        }
        self.at += length;
    }

    /// Minutes ahead of UTC. mongod counts their seconds in 32 bits, which overflow.
    #[allow(clippy::cast_possible_truncation)]
    fn read_minutes_of_zone(&mut self) {
        let Some((sign @ (b'+' | b'-'), digits)) = self.rest().split_first() else {
            return self.fail(self.at, "Invalid timezone offset in minutes");
        };
        let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
        let (minutes, count) = digits.fold((0_i64, 0), |(minutes, count), digit| {
            (minutes.saturating_mul(10).saturating_add(i64::from(digit - b'0')), count + 1)
        });
        self.at += 1 + count;
        let seconds = (minutes as i32).wrapping_mul((MINUTE_MS / SECOND_MS) as i32);
        let seconds = if *sign == b'-' { seconds.wrapping_neg() } else { seconds };
        self.zone = Some((i64::from(seconds) * SECOND_MS, None));
    }

    /// The local time; `None` if the year, the month or the day is missing. Notes the mistakes of
    /// the whole, at the place where reading ended.
    fn local_ms(&mut self) -> Option<i64> {
        const MIXED: &str = "Mixing of ISO dates with natural dates is not allowed";
        const INVALID: &str = "The parsed date was invalid";
        let at = self.at;
        let natural = (self.year, self.month, self.day);
        let mut of_week = None;
        if self.iso_year.or(self.iso_week).or(self.iso_day).is_some() {
            if self.year.is_some() {
                self.fail(at, MIXED);
            }
            match self.iso_year {
                None => self.fail(at, INVALID),
                Some(_) if natural != (None, None, None) => self.fail(at, MIXED),
                Some(year) => {
                    let (week, day) = (self.iso_week.unwrap_or(1), self.iso_day.unwrap_or(1));
                    of_week = Some(days_of_iso_week(year, week, day));
                }
            }
        }
        if self.hour > 23 || self.minute > 59 || self.second > 59 {
            self.fail(at, "The parsed time was invalid");
        }
        let mut time = Civil {
            year: 1970,
            month: 1,
            day: 1,
            hour: self.hour,
            minute: self.minute,
            second: self.second,
            millisecond: self.millisecond,
        };
        if let Some(days) = of_week {
            return Some(days * DAY_MS + time.of_day_ms());
        }
        let (Some(year), Some(month), Some(day)) = natural else { return None };
        if !(1..=12).contains(&month) || day < 1 || day > month_length(year, month) {
            self.fail(at, INVALID);
            return None;
        }
        (time.year, time.month, time.day) = (year, month, day);
        time.to_ms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the moment in UTC, or the mistakes without their common beginning.
    fn check(text: &str, format: &str, expected: std::result::Result<i64, &str>) {
        let found = read(text.into(), format.as_bytes());
        let found = found.map(|(local, zone)| local.ms - zone.map_or(0, |(offset, _)| offset));
        let prefix = format!("Error parsing date string '{text}'; ");
        let found = found.map_err(|error| error.message().replace(&prefix, ""));
        assert_eq!(found, expected.map_err(str::to_owned), "{text:?} by {format:?}");
    }

    const START: i64 = 1_577_836_800_000;

    #[test]
    fn milliseconds_are_the_digits_after_the_point() {
        for (text, ms) in [("5", 500), ("05", 50), ("005", 5), ("999 99", 990)] {
            let format = if ms == 990 { "%Y-%m-%d %L %L" } else { "%Y-%m-%d %L" };
            check(&format!("2020-01-01 {text}"), format, Ok(START + ms));
        }
    }

    #[test]
    fn parts_must_exist() {
        let time = "The parsed time was invalid '\0'";
        for text in ["24:00", "25:00", "23:60"] {
            let text = format!("2020-01-01 {text}");
            check(&text, "%Y-%m-%d %H:%M", Err(&format!("16: {time}")));
        }
        check("2020-01-01 23:59:60", "%Y-%m-%d %H:%M:%S", Err(&format!("19: {time}")));
        let date = "The parsed date was invalid '\0'";
        check("2020-13-01 25", "%Y-%m-%d %H", Err(&format!("13: {time}; 13: {date}")));
        check("2020-20-8", "%G-%V-%u", Err("8: Day of week must be between 1 and 7 '8'"));
        check("2020-54", "%G-%V", Err("5: ISO Week must be between 1 and 53 '5'"));
        check("10-3 25", "%V-%u %H", Err(&format!("7: {date}; 7: {time}")));
        check("2021-53-7", "%G-%V-%u", Ok(1_641_686_400_000));
    }

    #[test]
    fn mistakes_are_collected() {
        let not_enough = "Not enough data available to satisfy format '\0'";
        let literal = "Format literal not found";
        let cases = [
            (
                "x",
                "%Y",
                "0: Unexpected data found. 'x'; 0: A four digit year could not be found 'x'",
            ),
            ("x5y", "%d", "0: Unexpected data found. 'x'; 2: Trailing data 'y'"),
            ("2020/01/01", "%Y-%m-%d", &format!("4: {literal} '/'; 7: {literal} '/'")),
            (
                "2020-01-01 1:2:3",
                "%Y-%m-%d %H:%M:%S",
                "13: A two digit minute could not be found '2'; \
                 15: A two digit second could not be found '3'",
            ),
            (
                "a-b-c",
                "%G-%V-%u",
                &format!("0: A four digit ISO year could not be found 'a'; 5: {not_enough}"),
            ),
            ("2020\0-01-01", "%Y-%m-%d", &format!("4: {not_enough}")),
            (
                "x!",
                "%Z!",
                "0: Invalid timezone offset in minutes 'x'; 0: Format literal not found 'x'; \
                 1: Trailing data '!'",
            ),
        ];
        for (text, format, mistakes) in cases {
            check(text, format, Err(mistakes));
        }
        check("12", "%Y", Err(incomplete("12".into()).message()));
        check("2020-01-01\0", "%Y-%m-%d", Ok(START));
    }

    #[test]
    fn a_week_excludes_a_month() {
        let mixed = "Mixing of ISO dates with natural dates is not allowed '\0'";
        let date = "The parsed date was invalid '\0'";
        check("2020 2020", "%G %Y", Err(&format!("9: {mixed}; 9: {mixed}")));
        check("2020 1", "%G %d", Err(&format!("6: {mixed}")));
        check("1 1", "%u %m", Err(&format!("3: {date}")));
        let twice = format!("12: {mixed}; 12: {date}; 12: {date}");
        check("2020-02-30 1", "%Y-%m-%d %V", Err(&twice));
    }

    #[test]
    fn a_zone_is_an_offset_or_an_abbreviation() {
        const SECOND: i64 = 1_000;
        let ahead = [
            ("UTC", 0),
            ("a", 3_600),
            ("est", -18_000),
            ("(EST)", -18_000),
            (" \t+5", 18_000),
            ("GMT+5)", 18_000),
            ("+1:2", 3_720),
            ("+123", 4_980),
            ("+12:", 43_200),
            ("+12:3", 43_380),
            ("+:5", 0),
            ("-123456", -45_296),
            ("+12:34:56", 45_296),
            // A number ends at a colon in a wrong place.
            ("+12:345", 12),
            ("+9999", 362_340),
        ];
        for (zone, seconds) in ahead {
            let text = format!("2020-01-01{zone}");
            check(&text, "%Y-%m-%d%z", Ok(START - seconds * SECOND));
        }
        for zone in ["Europe/Paris", "+12345", "+1:234", "+", "EST5", "j", "("] {
            let text = format!("2020-01-01{zone}");
            let first = &zone[..1];
            let why = "passing a time zone identifier as part of the string is not allowed";
            check(&text, "%Y-%m-%d%z", Err(&format!("10: {why} '{first}'")));
        }
        let minutes = [
            ("+", 0),
            ("-90", -5_400),
            // Seconds overflow 32 bits.
            ("+35791395", -2_147_483_596),
            ("-99999999999999999999", 60),
        ];
        for (zone, seconds) in minutes {
            let text = format!("2020-01-01{zone}");
            check(&text, "%Y-%m-%d%Z", Ok(START - seconds * SECOND));
        }
        // The last of several counts.
        check("2020-01-01 EST +5", "%Y-%m-%d %z %z", Ok(START - 18_000 * SECOND));
    }
}
