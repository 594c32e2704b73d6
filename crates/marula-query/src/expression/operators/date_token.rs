//! The text of one token of a date, read part by part.

use marula_bson::calendar::{HOUR_MS, MINUTE_MS, SECOND_MS};

use super::date_scan::{OwnZone, Search, Unit};
use super::date_words::{direction, month, ordinal, unit, zone_seconds};

/// The text of a token, as its parts are read.
#[derive(Clone, Copy)]
pub(super) struct Words<'t> {
    /// The whole text.
    pub(super) text: &'t [u8],
    at: usize,
}

impl<'t> Words<'t> {
    /// Returns those of a token's text, from its beginning.
    pub(super) fn of(text: &'t [u8]) -> Self {
        Words { text, at: 0 }
    }

    /// The text that is not read yet.
    pub(super) fn rest(&self) -> &'t [u8] {
        self.text.get(self.at..).unwrap_or(&[])
    }

    /// Skips the bytes before the first that belongs to the next part.
    pub(super) fn skip_to(&mut self, belongs: impl Fn(&u8) -> bool) {
        self.at += self.rest().iter().take_while(|byte| !belongs(byte)).count();
    }

    /// Skips the next byte if it is in a set; returns whether it is.
    pub(super) fn take(&mut self, set: &[u8]) -> bool {
        let found = self.rest().first().is_some_and(|byte| set.contains(byte));
        self.at += usize::from(found);
        found
    }

    /// The next number, of at most `max` digits, and the number of digits.
    pub(super) fn digits(&mut self, max: usize) -> Option<(i64, usize)> {
        self.skip_to(u8::is_ascii_digit);
        let rest = self.rest();
        let count = rest.iter().take(max).take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        let number = rest[..count].iter().fold(0_i64, |number, digit| {
            number.saturating_mul(10).saturating_add(i64::from(digit - b'0'))
        });
        (count > 0).then_some((number, count))
    }

    /// The next number, of at most `max` digits, if there is one.
    pub(super) fn maybe_number(&mut self, max: usize) -> Option<i64> {
        self.digits(max).map(|(number, _)| number)
    }

    /// The next number, of at most `max` digits, or zero.
    pub(super) fn number(&mut self, max: usize) -> i64 {
        self.maybe_number(max).unwrap_or(0)
    }

    /// The next year, if there is one; a year of two digits is near 2000.
    pub(super) fn year(&mut self) -> Option<i64> {
        Some(match self.digits(4)? {
            (year, 4) => year,
            (year @ 0..70, _) => 2000 + year,
            (year @ 70..100, _) => 1900 + year,
            (year, _) => year,
        })
    }

    /// The next number with its signs, of which the first counts.
    pub(super) fn signed(&mut self) -> i64 {
        self.skip_to(|byte| byte.is_ascii_digit() || matches!(byte, b'+' | b'-'));
        let is_negative = self.rest().first() == Some(&b'-');
        let number = self.number(usize::MAX);
        if is_negative { -number } else { number }
    }

    /// The microseconds of a fraction, with the point before it.
    pub(super) fn fraction(&mut self) -> i64 {
        self.at += 1;
        let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        let counted = &self.rest()[..digits.min(6)];
        self.at += digits;
        (0..6).fold(0, |micros, place| {
            micros * 10 + counted.get(place).map_or(0, |digit| i64::from(digit - b'0'))
        })
    }

    /// The hour of the day, if `am` or `pm` follows.
    pub(super) fn meridian(&mut self, hour: i64) -> i64 {
        let is_letter = |byte: &u8| matches!(byte, b'a' | b'A' | b'p' | b'P');
        let mut after = *self;
        after.skip_to(|byte| byte.is_ascii_alphabetic());
        let [letter, rest @ ..] = after.rest() else { return hour };
        let has_m = matches!(rest, [b'm' | b'M', ..] | [b'.', b'm' | b'M', ..]);
        if !is_letter(letter) || !has_m {
            return hour;
        }
        self.at = self.text.len();
        match (letter, hour) {
            (b'a' | b'A', 12) => 0,
            (b'a' | b'A', _) | (_, 12) => hour,
            _ => hour + 12,
        }
    }

    /// The next word.
    pub(super) fn word(&mut self) -> &'t [u8] {
        let is_part = |byte: &u8| byte.is_ascii_alphabetic() || !byte.is_ascii();
        self.skip_to(is_part);
        let rest = self.rest();
        let length = rest.iter().take_while(|byte| is_part(byte)).count();
        self.at += length;
        &rest[..length]
    }

    /// The next month by name; the ending of a number (`1st`) is no name.
    pub(super) fn month(&mut self) -> Option<i64> {
        if let [a, b, ..] = self.rest()
            && matches!([*a, *b], [b's', b't'] | [b'n', b'd'] | [b'r', b'd'] | [b't', b'h'])
        {
            self.at += 2;
        }
        month(self.word())
    }

    /// The amount of `first` or `next`, and how a day of the week is found after it.
    pub(super) fn relative(&mut self) -> (i64, Search) {
        let word = self.word();
        match (ordinal(word), direction(word)) {
            (Some(amount), _) => (amount, Search::After),
            (None, Some(amount)) if amount == 0 => (amount, Search::From),
            (None, Some(amount)) => (amount, Search::After),
            (None, None) => (0, Search::After),
        }
    }

    /// The unit that the next word names, or none: zero days.
    pub(super) fn unit(&mut self) -> Unit {
        unit(self.word()).unwrap_or(Unit::Days(0))
    }
}

/// The mistake of a text that should begin with a zone.
pub(super) const NO_OWN_ZONE: &str =
    "passing a time zone identifier as part of the string is not allowed";

/// The zone at the beginning of a text, and the number of bytes that it takes: an offset, or the
/// abbreviation of a zone, perhaps in parentheses. `None` if there is no such zone.
pub(super) fn own_zone(text: &[u8]) -> (OwnZone, usize) {
    let count = |at: usize, belongs: fn(u8) -> bool| {
        text.get(at..).unwrap_or_default().iter().take_while(|byte| belongs(**byte)).count()
    };
    let mut at = count(0, |byte| matches!(byte, b' ' | b'\t' | b'('));
    if let [b'G', b'M', b'T', b'+' | b'-', ..] = text[at..] {
        at += 3;
    }
    let (zone, end) = if let [sign @ (b'+' | b'-'), digits @ ..] = &text[at..] {
        let length = count(at + 1, |byte| byte.is_ascii_digit() || byte == b':');
        let offset = offset_of(&digits[..length]);
        let offset = offset.map(|offset| if *sign == b'-' { -offset } else { offset });
        (offset.map(|offset| (offset, None)), at + 1 + length)
    } else {
        let is_part =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'+');
        let length = count(at, is_part);
        let name = String::from_utf8_lossy(&text[at..at + length]).to_ascii_uppercase();
        let seconds = zone_seconds(&name);
        (seconds.map(|seconds| (seconds * SECOND_MS, Some(name))), at + length)
    };
    (zone, end + count(end, |byte| byte == b')'))
}

/// The milliseconds of an offset of digits and colons without its sign: `2`, `230`, `0230`,
/// `2:30`, `02:30:15`, `023015`. As in mongod, a number ends at a colon in a wrong place.
fn offset_of(text: &[u8]) -> Option<i64> {
    let number = |at: usize| {
        let digits = text.get(at..).unwrap_or_default();
        let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
    };
    let has_colon = |at: usize| text.get(at) == Some(&b':');
    let (hours, minutes, seconds) = match text.len() {
        1 | 2 => (number(0), 0, 0),
        3 | 4 if has_colon(1) => (number(0), number(2), 0),
        3..=5 if has_colon(2) => (number(0), number(3), 0),
        3 | 4 => (number(0) / 100, number(0) % 100, 0),
        6 => (number(0) / 10_000, number(0) / 100 % 100, number(0) % 100),
        8 if has_colon(2) && has_colon(5) => (number(0), number(3), number(6)),
        _ => return None,
    };
    Some(hours * HOUR_MS + minutes * MINUTE_MS + seconds * SECOND_MS)
}
