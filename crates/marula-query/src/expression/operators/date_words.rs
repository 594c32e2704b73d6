//! The words of dates: abbreviations of time zones, months, days of the week, units and numbers.

use bstr::ByteSlice;

use super::date_scan::Unit;

/// The offset of a time zone abbreviation from UTC in seconds; case is ignored.
///
/// Source: mongod 6.0, tested with every word of up to four letters.
pub(super) fn zone_seconds(word: &str) -> Option<i64> {
    let word = word.to_ascii_lowercase();
    let at = ZONES.binary_search_by_key(&&*word, |(name, _)| name).ok()?;
    Some(ZONES[at].1)
}

/// The text without surrounding blanks, which do not count as positions either. At least one byte
/// remains.
pub(super) fn without_blanks(text: &[u8]) -> &[u8] {
    let is_blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c');
    match text.trim_with(is_blank) {
        b"" => text.get(text.len().saturating_sub(1)..).unwrap_or(text),
        trimmed => trimmed,
    }
}

/// The month of a name or Roman number, from 1.
pub(super) fn month(word: &[u8]) -> Option<i64> {
    let roman = MONTHS_ROMAN.iter().position(|name| name.as_bytes() == word);
    let at = roman.or_else(|| place(word, &MONTHS_LONG)).or_else(|| place(word, &MONTHS_SHORT))?;
    // `sept` is the last of the short names.
    Some(if at == 12 { 9 } else { i64::try_from(at).ok()? + 1 })
}

/// The amount of a word such as `first`.
pub(super) fn ordinal(word: &[u8]) -> Option<i64> {
    i64::try_from(place(word, &ORDINALS)? + 1).ok()
}

/// The amount of a word such as `next`.
pub(super) fn direction(word: &[u8]) -> Option<i64> {
    Some([1, -1, -1, 0][place(word, &DIRECTIONS)?])
}

/// The unit of a word in the singular or plural.
pub(super) fn unit(word: &[u8]) -> Option<Unit> {
    if let Some(at) = place(word, &WEEKDAYS) {
        return Some(Unit::Weekday(i64::try_from(at % 7).ok()?));
    }
    let singular = word.strip_suffix(b"s").or_else(|| word.strip_suffix(b"S")).unwrap_or(word);
    let is = |names: &[&str]| place(word, names).is_some() || place(singular, names).is_some();
    Some(if is(&["weekday"]) {
        Unit::Workdays
    } else if is(&["ms", "msec", "millisecond"]) {
        Unit::Micros(1000)
    } else if is(&["µs", "usec", "microsecond"]) {
        Unit::Micros(1)
    } else if is(&["sec", "second"]) {
        Unit::Seconds
    } else if is(&["min", "minute"]) {
        Unit::Minutes
    } else if is(&["hour"]) {
        Unit::Hours
    } else if is(&["day"]) {
        Unit::Days(1)
    } else if is(&["week"]) {
        Unit::Days(7)
    } else if is(&["fortnight", "forthnight"]) {
        Unit::Days(14)
    } else if is(&["month"]) {
        Unit::Months
    } else if is(&["year"]) {
        Unit::Years
    } else {
        return None;
    })
}

fn place(word: &[u8], words: &[&str]) -> Option<usize> {
    words.iter().position(|known| word.eq_ignore_ascii_case(known.as_bytes()))
}

pub(super) const MONTHS_LONG: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

pub(super) const MONTHS_SHORT: [&str; 13] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "sept"];

pub(super) const MONTHS_ROMAN: [&str; 12] =
    ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

pub(super) const ORDINALS: [&str; 12] = [
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
    "eleventh", "twelfth",
];

pub(super) const DIRECTIONS: [&str; 4] = ["next", "last", "previous", "this"];

/// The days of the week from Sunday: long, plural and short.
pub(super) const WEEKDAYS: [&str; 21] = [
    "sunday",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sundays",
    "mondays",
    "tuesdays",
    "wednesdays",
    "thursdays",
    "fridays",
    "saturdays",
    "sun",
    "mon",
    "tue",
    "wed",
    "thu",
    "fri",
    "sat",
];

pub(super) const WORKDAYS: [&str; 2] = ["weekday", "weekdays"];

/// The other units. A week has a form of its own, but for its plural.
pub(super) const UNITS: [&str; 31] = [
    "ms",
    "µs",
    "msec",
    "msecs",
    "millisecond",
    "milliseconds",
    "microsecond",
    "microseconds",
    "usec",
    "usecs",
    "sec",
    "secs",
    "second",
    "seconds",
    "min",
    "mins",
    "minute",
    "minutes",
    "hour",
    "hours",
    "day",
    "days",
    "fortnight",
    "fortnights",
    "forthnight",
    "forthnights",
    "month",
    "months",
    "year",
    "years",
    "weeks",
];

/// The abbreviations, sorted, with their offsets in seconds.
const ZONES: [(&str, i64); 144] = [
    ("a", 3600),
    ("acdt", 37800),
    ("acst", 34200),
    ("addt", -7200),
    ("adt", -10800),
    ("aedt", 39600),
    ("aest", 36000),
    ("ahdt", -32400),
    ("ahst", -36000),
    ("akdt", -28800),
    ("akst", -32400),
    ("amt", -13840),
    ("apt", -10800),
    ("ast", -14400),
    ("awdt", 32400),
    ("awst", 28800),
    ("awt", -10800),
    ("b", 7200),
    ("bdst", 7200),
    ("bdt", -36000),
    ("bmt", -14309),
    ("bst", 3600),
    ("c", 10800),
    ("cast", 34200),
    ("cat", 7200),
    ("cddt", -14400),
    ("cdt", -18000),
    ("cemt", 10800),
    ("cest", 7200),
    ("cet", 3600),
    ("chst", 36000),
    ("cmt", -15408),
    ("cpt", -18000),
    ("cst", -21600),
    ("cwt", -18000),
    ("d", 14400),
    ("dmt", -1521),
    ("e", 18000),
    ("eat", 10800),
    ("eddt", -10800),
    ("edt", -14400),
    ("eest", 10800),
    ("eet", 7200),
    ("emt", -26248),
    ("ept", -14400),
    ("est", -18000),
    ("ewt", -14400),
    ("f", 21600),
    ("ffmt", -14660),
    ("fmt", -4056),
    ("g", 25200),
    ("gdt", 39600),
    ("gmt", 0),
    ("gst", 36000),
    ("h", 28800),
    ("hdt", -34200),
    ("hkst", 32400),
    ("hkt", 28800),
    ("hmt", -19776),
    ("hpt", -34200),
    ("hst", -36000),
    ("hwt", -34200),
    ("i", 32400),
    ("iddt", 14400),
    ("idt", 10800),
    ("imt", 25025),
    ("ist", 7200),
    ("jdt", 36000),
    ("jmt", 8440),
    ("jst", 32400),
    ("k", 36000),
    ("kdt", 36000),
    ("kmt", 5736),
    ("kst", 30600),
    ("l", 39600),
    ("lst", 9394),
    ("m", 43200),
    ("mddt", -18000),
    ("mdst", 16279),
    ("mdt", -21600),
    ("mest", 7200),
    ("met", 3600),
    ("mmt", 9017),
    ("mpt", -21600),
    ("msd", 14400),
    ("msk", 10800),
    ("mst", -25200),
    ("mwt", -21600),
    ("n", -3600),
    ("nddt", -5400),
    ("ndt", -9052),
    ("npt", -9000),
    ("nst", -12600),
    ("nwt", -9000),
    ("nzdt", 46800),
    ("nzmt", 41400),
    ("nzst", 43200),
    ("o", -7200),
    ("p", -10800),
    ("pddt", -21600),
    ("pdt", -25200),
    ("pkst", 21600),
    ("pkt", 18000),
    ("plmt", 25590),
    ("pmt", -13236),
    ("ppmt", -17340),
    ("ppt", -25200),
    ("pst", -28800),
    ("pwt", -25200),
    ("q", -14400),
    ("qmt", -18840),
    ("r", -18000),
    ("rmt", 5794),
    ("s", -21600),
    ("sast", 7200),
    ("sdmt", -16800),
    ("sjmt", -20173),
    ("smt", -13884),
    ("sst", -39600),
    ("t", -25200),
    ("tbmt", 10751),
    ("tmt", 12344),
    ("u", -28800),
    ("uct", 0),
    ("utc", 0),
    ("v", -32400),
    ("w", -36000),
    ("wast", 7200),
    ("wat", 3600),
    ("wemt", 7200),
    ("west", 3600),
    ("wet", 0),
    ("wib", 25200),
    ("wit", 32400),
    ("wita", 28800),
    ("wmt", 5040),
    ("x", -39600),
    ("y", -43200),
    ("yddt", -25200),
    ("ydt", -28800),
    ("ypt", -28800),
    ("yst", -32400),
    ("ywt", -28800),
    ("z", 0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_found_in_any_case() {
        assert_eq!(zone_seconds("CET"), Some(3_600));
        assert_eq!(zone_seconds("est"), Some(-18_000));
        assert_eq!(zone_seconds("ndt"), Some(-9_052));
        assert_eq!(zone_seconds("j"), None);
        assert!(ZONES.is_sorted());
    }
}
