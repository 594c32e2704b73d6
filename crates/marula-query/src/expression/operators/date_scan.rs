//! Dates without a format: the parts that the tokens of a text name, and the moment that they make.
//!
//! A text names a date and a time at most once, and any number of shifts, such as `+2 days`. They
//! are applied when the whole text is read. Errors and warnings are collected; both refuse the
//! text.

use bstr::BStr;
use marula_bson::calendar::{Civil, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, month_length};
use marula_error::Result;

use super::date::shown;
use super::date_arithmetic::parts_too_long;
use super::date_patterns::{BLANKS, Form, token};
use super::date_plain;
use super::date_text::{incomplete, unreadable};
use super::date_token::{NO_OWN_ZONE, Words, own_zone};
use super::date_words::without_blanks;
use crate::meter;

/// The fraction of a time that was given without colons, `1122`, in microseconds: mongod's library
/// leaves its mark for "not given" in it.
const NO_FRACTION: i64 = -99_999;

/// The year of a date without one, when its day is checked; it is no leap year.
const NO_YEAR: i64 = -99_999;

/// The number of bytes of messages after which a text is not read further.
const LONGEST_MESSAGES: usize = 1 << 20;

/// The number of tokens after which a text is not read further, but refused.
const MOST_TOKENS: usize = 50_000;

/// The cost of finding the longest token at a place.
const TOKEN: usize = 256;

/// The offset of a date from UTC in milliseconds, and the zone's name if it was named.
pub(super) type OwnZone = Option<(i64, Option<String>)>;

/// A time before its zone counts.
pub(super) struct Local {
    /// The milliseconds of whole seconds since 1970.
    pub(super) ms: i64,
    /// The microseconds that are added to them. Both together are cut to milliseconds, towards
    /// 1970.
    pub(super) micros: i64,
}

/// Reads a text: its local time, and its zone.
pub(super) fn read(text: &BStr) -> Result<(Local, OwnZone)> {
    date_plain::read(text).map_or_else(|| read_tokens(text), Ok)
}

/// Reads a text by its tokens.
pub(super) fn read_tokens(whole: &BStr) -> Result<(Local, OwnZone)> {
    if whole.is_empty() {
        return Err(unreadable(whole, "0: Empty string '\0'"));
    }
    let text = without_blanks(whole);
    let mut scan = Scan { text, ..Scan::default() };
    scan.run()?;
    scan.check();
    scan.errors.append(&mut scan.warnings);
    if !scan.errors.is_empty() {
        return Err(unreadable(whole, &scan.errors.join("; ")));
    }
    let (Some(year), Some(month), Some(day)) = (scan.year, scan.month, scan.day) else {
        return Err(incomplete(whole));
    };
    let local = scan.moment(year, month, day).ok_or_else(parts_too_long)?;
    Ok((local, scan.zone))
}

/// The message about a mistake at a place of a text, with the byte there.
pub(super) fn message_at(text: &[u8], at: usize, what: &str) -> String {
    let byte = text.get(at).copied().unwrap_or(0);
    format!("{at}: {what} '{}'", shown(byte))
}

/// Amounts to add.
#[derive(Default)]
struct Shift {
    years: i64,
    months: i64,
    days: i64,
    hours: i64,
    minutes: i64,
    seconds: i64,
    micros: i64,
    special: Option<Special>,
}

/// A shift that does not only add. A text has one: the last.
#[derive(Clone, Copy)]
enum Special {
    /// Days from Monday to Friday.
    Workdays(i64),
    /// `first monday of`: the weeks are those of this month, or of the next one.
    WeeksOf(End),
}

impl Shift {
    /// Turns the amounts; in mongod not the microseconds.
    fn turn(&mut self) {
        let parts = [
            &mut self.years,
            &mut self.months,
            &mut self.days,
            &mut self.hours,
            &mut self.minutes,
            &mut self.seconds,
        ];
        for part in parts {
            *part = -*part;
        }
        if let Some(Special::Workdays(days)) = &mut self.special {
            *days = -*days;
        }
    }
}

/// A unit of a shift.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Years,
    Months,
    /// This number of days.
    Days(i64),
    Hours,
    Minutes,
    Seconds,
    /// This number of microseconds.
    Micros(i64),
    /// A day of the week, from Sunday.
    Weekday(i64),
    Workdays,
}

/// How a day of the week is found from a date.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum Search {
    /// The next one after the date.
    #[default]
    After,
    /// The date itself, or the next one.
    From,
    /// The one in the week of the date.
    Within,
}

/// One of two ends of a month.
#[derive(Clone, Copy, PartialEq)]
enum End {
    First,
    Last,
}

#[derive(Default)]
struct Scan<'t> {
    text: &'t [u8],
    /// Where the current token begins.
    at: usize,
    errors: Vec<String>,
    warnings: Vec<String>,
    /// The length of all messages.
    length: usize,
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    micros: Option<i64>,
    has_date: bool,
    times: usize,
    zones: usize,
    zone: OwnZone,
    shift: Shift,
    weekday: Option<i64>,
    search: Search,
    day_of: Option<End>,
}

impl<'t> Scan<'t> {
    fn run(&mut self) -> Result<()> {
        let mut tokens = 0;
        while self.at < self.text.len() && self.length < LONGEST_MESSAGES {
            meter::spend(TOKEN)?;
            tokens += 1;
            if tokens > MOST_TOKENS {
                self.fail("Unexpected character");
                break;
            }
            let blanks = self.text[self.at..].iter().take_while(|byte| BLANKS.contains(byte));
            let blanks = blanks.count();
            match token(self.text, self.at) {
                Some((form, end)) => {
                    let words = &self.text[self.at..end.min(self.text.len())];
                    self.act(form, Words::of(words));
                    self.at = end;
                }
                None if blanks > 0 => self.at += blanks,
                None => {
                    if !matches!(self.text[self.at], b'.' | b',' | b'\n' | 0) {
                        self.fail("Unexpected character");
                    }
                    self.at += 1;
                }
            }
        }
        Ok(())
    }

    fn message(&mut self, what: &str) -> String {
        let message = message_at(self.text, self.at, what);
        self.length += message.len();
        message
    }

    fn fail(&mut self, what: &str) {
        let message = self.message(what);
        self.errors.push(message);
    }

    fn warn(&mut self, what: &str) {
        let message = self.message(what);
        self.warnings.push(message);
    }

    /// Checks the time and the date at the end of the text.
    fn check(&mut self) {
        self.at = self.text.len() + 1;
        let is_time = (0..24).contains(&self.hour) && self.minute < 60 && self.second < 60;
        if self.times > 0 && !is_time {
            self.warn("The parsed time was invalid");
        }
        let is_date = match (self.year.unwrap_or(NO_YEAR), self.month, self.day) {
            (year, Some(month), Some(day)) => {
                (1..=12).contains(&month) && (1..=month_length(year, month)).contains(&day)
            }
            _ => false,
        };
        if self.has_date && !is_date {
            self.warn("The parsed date was invalid");
        }
    }

    fn forget_time(&mut self) {
        self.times = 0;
        (self.hour, self.minute, self.second, self.micros) = (0, 0, 0, Some(0));
    }

    /// Begins a time; false if there is one already.
    fn begin_time(&mut self) -> bool {
        if self.times > 0 {
            self.fail("Double time specification");
            return false;
        }
        self.forget_time();
        self.times = 1;
        true
    }

    /// Begins a date; false if there is one already.
    fn begin_date(&mut self) -> bool {
        if self.has_date {
            self.fail("Double date specification");
            return false;
        }
        self.has_date = true;
        true
    }

    /// Begins a zone; false if there is one already.
    fn begin_zone(&mut self) -> bool {
        self.zones += 1;
        match self.zones {
            1 => {}
            2 => self.warn("Double timezone specification"),
            _ => self.fail("Double timezone specification"),
        }
        self.zones == 1
    }

    fn act(&mut self, form: Form, mut words: Words<'t>) {
        match form {
            Form::Now => {}
            Form::Midnight => self.forget_time(),
            Form::Noon => {
                self.forget_time();
                self.times = 1;
                self.hour = 12;
            }
            Form::Yesterday | Form::Tomorrow => {
                self.forget_time();
                self.shift.days = if form == Form::Yesterday { -1 } else { 1 };
            }
            Form::Timestamp => self.timestamp(words),
            Form::DayOf => {
                self.forget_time();
                let is_first = matches!(words.text.first(), Some(b'f' | b'F'));
                self.day_of = Some(if is_first { End::First } else { End::Last });
            }
            Form::Around => {
                let is_after = matches!(words.text.first(), Some(b'b' | b'B'));
                self.forget_time();
                self.times = 1;
                let hour = words.number(2);
                let hour = words.meridian(hour);
                (self.hour, self.minute) = if is_after { (hour, 15) } else { (hour - 1, 45) };
            }
            Form::WeekdayOf => {
                self.forget_time();
                let (amount, search) = words.relative();
                let is_first = amount > 0;
                let month = if is_first { End::First } else { End::Last };
                self.shift.special = Some(Special::WeeksOf(month));
                let search = if is_first { Search::From } else { search };
                self.add(amount, search, &mut words, true);
            }
            Form::Time12 | Form::Time24 => {
                if self.begin_time() {
                    self.time(&mut words);
                }
            }
            Form::TimeOrYear => {
                match self.times {
                    0 => {
                        (self.hour, self.minute) = (words.number(2), words.number(2));
                        self.second = 0;
                    }
                    1 => self.year = Some(words.number(4)),
                    _ => return self.fail("Double time specification"),
                }
                self.times += 1;
            }
            Form::TimeWithoutColons => {
                if self.begin_time() {
                    self.three_numbers(&mut words);
                }
            }
            Form::Year => self.year = Some(words.number(4)),
            Form::Ago => {
                self.shift.turn();
                self.weekday = self.weekday.map(|day| if day == 0 { -7 } else { -day });
            }
            Form::Weekday => {
                self.forget_time();
                self.weekday = Some(match words.unit() {
                    Unit::Weekday(day) => day,
                    // `weekday` alone is a Monday in mongod.
                    _ => 1,
                });
                if self.search != Search::Within {
                    self.search = Search::From;
                }
            }
            Form::RelativeWeek => {
                let (amount, search) = words.relative();
                self.add(amount, search, &mut words, true);
                self.search = Search::Within;
                self.weekday = self.weekday.or(Some(1));
            }
            Form::RelativeText => {
                let (amount, search) = words.relative();
                self.add(amount, search, &mut words, true);
            }
            Form::Relative => {
                let amount = words.signed();
                self.add(amount, Search::From, &mut words, false);
            }
            Form::Zone => {
                if self.begin_zone() {
                    self.read_zone(words);
                }
            }
            _ => self.date(form, words),
        }
    }

    /// Reads the tokens that name a date, some of them with a time.
    fn date(&mut self, form: Form, mut words: Words<'t>) {
        let is_time_first = matches!(form, Form::YearMonthDayTime | Form::DayNameYearTime);
        let is_time_after = matches!(form, Form::NameDayTime12 | Form::NameDayTime24);
        if is_time_first && !self.begin_time() || !self.begin_date() {
            return;
        }
        let (year, month, day) = match form {
            Form::MonthDayYear => {
                let (month, day) = (words.number(2), words.number(2));
                // mongod does not find the year after an ending such as `th`.
                let has_year = words.rest().first() == Some(&b'/');
                (words.year().filter(|_| has_year), Some(month), day)
            }
            Form::YearMonthDay | Form::YearMonthDayTime => {
                let is_signed = matches!(words.text.first(), Some(b'+' | b'-'));
                let year = if is_signed { Some(words.signed()) } else { words.year() };
                (year, Some(words.number(2).abs()), words.number(2))
            }
            Form::YearMonth => (words.year(), Some(words.number(2)), 1),
            Form::DayMonthYear => {
                let (day, month) = (words.number(2), words.number(2));
                (words.year(), Some(month), day)
            }
            Form::DayNameYear | Form::DayName | Form::DayNameYearTime => {
                let (day, month) = (words.number(2), words.month());
                (words.year(), month, day)
            }
            Form::NameYear => {
                let month = words.month();
                (words.year(), month, 1)
            }
            Form::YearName => (words.year(), words.month(), 1),
            Form::NameDayYear => {
                let (month, day) = (words.month(), words.number(2));
                (words.year(), month, day)
            }
            Form::NameDayTime12 | Form::NameDayTime24 => (None, words.month(), words.number(2)),
            Form::YearNameDay => (words.year(), words.month(), words.number(2)),
            // mongod takes the day of the year for one of January.
            Form::YearDay => (words.year(), Some(1), words.number(3)),
            Form::IsoWeek => {
                let (year, week) = (words.year(), words.number(2));
                let day = words.maybe_number(1).unwrap_or(1);
                self.shift.days = days_to_week(year, week, day);
                (year, Some(1), 1)
            }
            _ => {
                self.month = words.month();
                return;
            }
        };
        self.year = year.or(self.year);
        (self.month, self.day) = (month, Some(day));
        let has_time = is_time_first || (is_time_after && self.begin_time());
        if !has_time {
            return;
        }
        match form {
            Form::NameDayTime12 => self.time(&mut words),
            Form::NameDayTime24 => {
                (self.hour, self.minute) = (words.number(2), words.number(2));
                // After a point mongod looks for a zone.
                if words.take(b":") {
                    self.second = words.number(2);
                }
            }
            _ => self.three_numbers(&mut words),
        }
        if words.rest().iter().any(|byte| !BLANKS.contains(byte)) {
            self.read_zone(words);
        }
    }

    /// Reads a time with colons or points, perhaps of twelve hours.
    fn time(&mut self, words: &mut Words<'t>) {
        let hour = words.number(2);
        if words.take(b":.") {
            self.minute = words.number(2);
            if words.take(b":.") {
                self.second = words.number(2);
                if matches!(words.rest(), [b':' | b'.', ..]) {
                    self.micros = Some(words.fraction());
                }
            }
        }
        self.hour = words.meridian(hour);
    }

    fn three_numbers(&mut self, words: &mut Words<'t>) {
        (self.hour, self.minute) = (words.number(2), words.number(2));
        self.second = words.number(2);
        if words.rest().first() == Some(&b'.') {
            self.micros = Some(words.fraction());
        }
    }

    fn timestamp(&mut self, mut words: Words<'t>) {
        self.has_date = false;
        (self.year, self.month, self.day) = (None, None, None);
        self.forget_time();
        if !self.begin_zone() {
            return;
        }
        (self.year, self.month, self.day) = (Some(1970), Some(1), Some(1));
        self.zone = Some((0, None));
        let is_negative = words.text.get(1) == Some(&b'-');
        let seconds = words.signed();
        self.shift.seconds = self.shift.seconds.saturating_add(seconds);
        match words.rest().len() {
            0 => {}
            1 => self.fail("Found unexpected data"),
            _ => {
                let micros = words.fraction();
                self.shift.micros = if is_negative { -micros } else { micros };
            }
        }
    }

    /// Adds an amount of the unit that follows.
    fn add(&mut self, amount: i64, search: Search, words: &mut Words<'t>, forgets_time: bool) {
        let unit = words.unit();
        let shift = &mut self.shift;
        let (part, size) = match unit {
            Unit::Years => (&mut shift.years, 1),
            Unit::Months => (&mut shift.months, 1),
            Unit::Days(days) => (&mut shift.days, days),
            Unit::Hours => (&mut shift.hours, 1),
            Unit::Minutes => (&mut shift.minutes, 1),
            Unit::Seconds => (&mut shift.seconds, 1),
            Unit::Micros(micros) => (&mut shift.micros, micros),
            Unit::Weekday(day) => {
                self.weekday = Some(day);
                self.search = search;
                let weeks = if amount > 0 { amount - 1 } else { amount };
                shift.days = shift.days.saturating_add(weeks.saturating_mul(7));
                if forgets_time {
                    self.forget_time();
                }
                return;
            }
            Unit::Workdays => {
                shift.special = Some(Special::Workdays(amount));
                if forgets_time {
                    self.forget_time();
                }
                return;
            }
        };
        *part = part.saturating_add(amount.saturating_mul(size));
    }

    /// Reads an offset, or the abbreviation of a zone.
    fn read_zone(&mut self, words: Words<'t>) {
        match own_zone(words.rest()).0 {
            None => self.fail(NO_OWN_ZONE),
            zone => self.zone = zone,
        }
    }

    /// The local time of the date and all that shifts it; `None` if it lies outside of the range of
    /// dates.
    fn moment(&mut self, year: i64, month: i64, day: i64) -> Option<Local> {
        let shift = &mut self.shift;
        let (mut months, mut start) = (month, day);
        if let Some(Special::WeeksOf(end)) = shift.special {
            start = 1;
            months = months.checked_add(std::mem::take(&mut shift.months))?;
            months = months.checked_add(i64::from(end == End::Last))?;
        }
        // A day of the week is found from the first or last day, and then replaced by that of its
        // month.
        match self.day_of {
            None => {}
            Some(End::First) => start = 1,
            Some(End::Last) => (months, start) = (months.checked_add(1)?, 0),
        }
        let mut days = days_of(year, months)?.checked_add(start - 1)?;
        if let Some(weekday) = self.weekday {
            days = days.checked_add(days_to_weekday(days, weekday, self.search, shift.days))?;
        }
        let date = Civil::of_ms(days.checked_mul(DAY_MS)?);
        let year = date.year.checked_add(shift.years)?;
        let month = date.month.checked_add(shift.months)?;
        days = match self.day_of {
            None => days_of(year, month)?.checked_add(date.day - 1)?.checked_add(shift.days)?,
            Some(End::First) => days_of(year, month)?,
            Some(End::Last) => days_of(year, month.checked_add(1)?)? - 1,
        };
        let fraction = if self.times > 0 { self.micros.unwrap_or(NO_FRACTION) } else { 0 };
        let micros = fraction.checked_add(shift.micros)?;
        let parts = [
            (self.hour.checked_add(shift.hours)?, HOUR_MS),
            (self.minute.checked_add(shift.minutes)?, MINUTE_MS),
            (self.second.checked_add(shift.seconds)?, SECOND_MS),
        ];
        let mut of_day = 0_i64;
        for (amount, size) in parts {
            of_day = of_day.checked_add(amount.checked_mul(size)?)?;
        }
        let mut ms = days.checked_mul(DAY_MS)?.checked_add(of_day)?;
        if let Some(Special::Workdays(workdays)) = shift.special {
            let days = days_to_workday(ms.div_euclid(DAY_MS), workdays);
            ms = ms.checked_add(days.checked_mul(DAY_MS)?)?;
        }
        Some(Local { ms, micros })
    }
}

/// The days from 1970 to the first day of a month, which may lie outside of its year.
fn days_of(year: i64, month: i64) -> Option<i64> {
    let from_january = month.checked_sub(1)?;
    let year = year.checked_add(from_january.div_euclid(12))?;
    let month = from_january.rem_euclid(12) + 1;
    let first = Civil { year, month, day: 1, hour: 0, minute: 0, second: 0, millisecond: 0 };
    Some(first.to_ms()?.div_euclid(DAY_MS))
}

/// The day of the week, from Sunday.
fn weekday_of(days: i64) -> i64 {
    (days + 4).rem_euclid(7)
}

/// The days from the first of January to a day of an ISO week.
fn days_to_week(year: Option<i64>, week: i64, day: i64) -> i64 {
    let first = year.and_then(|year| days_of(year, 1)).map_or(0, weekday_of);
    let to_week = if first > 4 { 7 - first } else { -first };
    to_week + (week - 1) * 7 + day
}

/// The days from a date to a day of the week. A negative one, and a shift by `days` to the past,
/// lead to the one before.
fn days_to_weekday(from: i64, weekday: i64, search: Search, days: i64) -> i64 {
    let current = weekday_of(from);
    if search == Search::Within {
        // The week begins on Monday.
        let weekday = match (current, weekday) {
            (0, 1..) => weekday - 7,
            (1.., 0) => 7,
            _ => weekday,
        };
        return weekday - current;
    }
    if weekday < 0 {
        return -(7 - (weekday.abs() - current));
    }
    let difference = weekday - current;
    let is_after = if search == Search::From { difference < 0 } else { difference <= 0 };
    let moves = if days < 0 { difference < 0 } else { is_after };
    if moves { difference + 7 } else { difference }
}

/// The days from a date to the `count`th day from Monday to Friday after it.
fn days_to_workday(from: i64, count: i64) -> i64 {
    let is_free = |days: i64| matches!(weekday_of(from + days), 0 | 6);
    let step = if count < 0 { -1 } else { 1 };
    // One week is walked, day by day.
    let weeks = (count.abs() - 1).max(0) / 5;
    let mut days = step * weeks * 7;
    for _ in 0..count.abs() - weeks * 5 {
        days += step;
        while is_free(days) {
            days += step;
        }
    }
    while is_free(days) {
        days += step;
    }
    days
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_without_digits_are_refused_in_mongods_words() {
        for (text, expected) in [
            ("a", ""),
            ("z", ""),
            ("aB", "0: passing a time zone identifier as part of the string is not allowed 'a'"),
            ("abc", "0: passing a time zone identifier as part of the string is not allowed 'a'"),
            (
                "abcdefg",
                "0: passing a time zone identifier as part of the string is not allowed 'a'; 6: Double timezone specification 'g'",
            ),
            (
                "abcdefgh ij",
                "0: passing a time zone identifier as part of the string is not allowed 'a'; 9: Double timezone specification 'i'; 6: Double timezone specification 'g'",
            ),
            ("a b", "2: Double timezone specification 'b'"),
            ("a b c", "4: Double timezone specification 'c'; 2: Double timezone specification 'b'"),
            (
                "a b c d",
                "4: Double timezone specification 'c'; 6: Double timezone specification 'd'; 2: Double timezone specification 'b'",
            ),
            ("a,b,c", "4: Double timezone specification 'c'; 2: Double timezone specification 'b'"),
            ("a-b", "1: Unexpected character '-'; 2: Double timezone specification 'b'"),
            ("a_b", "1: Unexpected character '_'; 2: Double timezone specification 'b'"),
            (
                "Abc/Def",
                "0: passing a time zone identifier as part of the string is not allowed 'A'",
            ),
            ("Ab/cd", "0: passing a time zone identifier as part of the string is not allowed 'A'"),
            (
                "AB/Cd",
                "0: passing a time zone identifier as part of the string is not allowed 'A'; 2: Unexpected character '/'; 3: Double timezone specification 'C'",
            ),
            (
                "europe/paris",
                "0: passing a time zone identifier as part of the string is not allowed 'e'; 6: Unexpected character '/'; 7: Double timezone specification 'p'",
            ),
            ("utc", ""),
            ("j", "0: passing a time zone identifier as part of the string is not allowed 'j'"),
            ("$", "0: Unexpected character '$'"),
            ("a$b", "1: Unexpected character '$'; 2: Double timezone specification 'b'"),
            (" a", ""),
            ("a)", ""),
            ("(abc)", "0: passing a time zone identifier as part of the string is not allowed '('"),
            ("((a))", "0: Unexpected character '('; 4: Unexpected character ')'"),
            ("a(b)", "1: Double timezone specification '('"),
            (
                "-Infinity",
                "0: Unexpected character '-'; 1: passing a time zone identifier as part of the string is not allowed 'I'; 7: Double timezone specification 't'",
            ),
            (
                "undefined",
                "0: passing a time zone identifier as part of the string is not allowed 'u'; 6: Double timezone specification 'n'",
            ),
            ("mon", ""),
            ("mondays", ""),
            ("xmon", "0: passing a time zone identifier as part of the string is not allowed 'x'"),
            (
                "sun day",
                "4: passing a time zone identifier as part of the string is not allowed 'd'",
            ),
            ("jan", "4: The parsed date was invalid '\0'"),
            ("jan feb", "4: Double date specification 'f'; 8: The parsed date was invalid '\0'"),
            ("march a", "8: The parsed date was invalid '\0'"),
            ("noon noon", ""),
            ("first", "0: passing a time zone identifier as part of the string is not allowed 'f'"),
            ("first day", ""),
            ("last mon", ""),
            ("ago", ""),
            (
                "mon abc",
                "4: passing a time zone identifier as part of the string is not allowed 'a'",
            ),
            (
                "abc now",
                "0: passing a time zone identifier as part of the string is not allowed 'a'",
            ),
            ("weekdays", ""),
            (
                "sec a",
                "0: passing a time zone identifier as part of the string is not allowed 's'; 4: Double timezone specification 'a'",
            ),
            ("tuesday", ""),
            ("tues", "0: passing a time zone identifier as part of the string is not allowed 't'"),
            ("\"a\"", "0: Unexpected character '\"'; 2: Unexpected character '\"'"),
            ("@a", "0: Unexpected character '@'"),
            (";", "0: Unexpected character ';'"),
            ("..", ""),
            ("a b$", "3: Unexpected character '$'; 2: Double timezone specification 'b'"),
            (
                "foo bar baz",
                "0: passing a time zone identifier as part of the string is not allowed 'f'; 8: Double timezone specification 'b'; 4: Double timezone specification 'b'",
            ),
        ] {
            let expected = match expected {
                "" => incomplete(text.into()),
                said => unreadable(text.into(), said),
            };
            let Err(error) = read(text.into()) else { panic!("{text:?} is no date") };
            assert_eq!(error.message(), expected.message(), "{text:?}");
        }
    }
}
