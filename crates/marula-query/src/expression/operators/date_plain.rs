//! Dates as programs write them, `2020-01-31` and `2020-01-31T23:59:59.123Z`: read at sight.
//!
//! The search for the longest token takes ten times as long. Any other text is left to it
//! (`date_scan.rs`), which reads these texts to the same moments.

use marula_bson::calendar::{Civil, HOUR_MS, MINUTE_MS, month_length};

use super::date_scan::{Local, OwnZone};

/// Reads `YYYY-MM-DD`, which a time of day may follow: `T` or a blank, `hh:mm:ss`, at most three
/// digits after a point, and `Z` or `±hh:mm`. `None` for all other texts, and for parts out of
/// range.
pub(super) fn read(text: &[u8]) -> Option<(Local, OwnZone)> {
    let (year, b'-', month, b'-', day) = (
        number(text, 0, 4)?,
        *text.get(4)?,
        number(text, 5, 2)?,
        *text.get(7)?,
        number(text, 8, 2)?,
    ) else {
        return None;
    };
    if !(1..=12).contains(&month) || !(1..=month_length(year, month)).contains(&day) {
        return None;
    }
    let mut date = Civil { year, month, day, hour: 0, minute: 0, second: 0, millisecond: 0 };
    let (mut micros, mut zone) = (0, None);
    if let Some(between) = text.get(10) {
        let (b'T' | b' ', hour, b':', minute, b':', second) = (
            *between,
            number(text, 11, 2)?,
            *text.get(13)?,
            number(text, 14, 2)?,
            *text.get(16)?,
            number(text, 17, 2)?,
        ) else {
            return None;
        };
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        (date.hour, date.minute, date.second) = (hour, minute, second);
        let mut rest = text.get(19..)?;
        if let [b'.', fraction @ ..] = rest {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            micros = match digits {
                1 => number(fraction, 0, 1)? * 100_000,
                2 => number(fraction, 0, 2)? * 10_000,
                3 => number(fraction, 0, 3)? * 1_000,
                _ => return None,
            };
            rest = &fraction[digits..];
        }
        zone = zone_of(rest)?;
    }
    Some((Local { ms: date.to_ms()?, micros }, zone))
}

/// The zone at the end of a text; `None` if this is none of the plain ones.
fn zone_of(text: &[u8]) -> Option<OwnZone> {
    let sign = match text {
        [] => return Some(None),
        [b'Z'] => return Some(Some((0, Some("Z".to_owned())))),
        [b'+', _, _, b':', _, _] => 1,
        [b'-', _, _, b':', _, _] => -1,
        _ => return None,
    };
    let (hours, minutes) = (number(text, 1, 2)?, number(text, 4, 2)?);
    let is_plain = hours <= 23 && minutes <= 59;
    is_plain.then(|| Some((sign * (hours * HOUR_MS + minutes * MINUTE_MS), None)))
}

/// The number of exactly `count` digits at a position.
fn number(text: &[u8], at: usize, count: usize) -> Option<i64> {
    text.get(at..at + count)?.iter().try_fold(0, |number, byte| {
        byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::operators::date_scan;

    #[test]
    fn plain_texts_are_read_as_their_tokens_are() {
        let dates =
            ["0000-01-01", "0001-02-28", "1582-10-10", "1969-12-31", "2000-02-29", "9999-12-31"];
        let times = [
            "",
            "T00:00:00",
            " 23:59:59",
            "T12:34:56.7",
            "T01:02:03.04",
            " 01:02:03.999",
            "T01:02:03.000",
        ];
        let zones = ["", "Z", "+00:00", "-00:00", "+02:00", "-23:59", "+14:30"];
        for date in dates {
            for time in times {
                for zone in zones.iter().filter(|zone| zone.is_empty() || !time.is_empty()) {
                    let text = format!("{date}{time}{zone}");
                    let (plain, own) =
                        read(text.as_bytes()).unwrap_or_else(|| panic!("{text} is plain"));
                    let (local, zone) =
                        date_scan::read_tokens((*text).into()).expect("it is a date");
                    assert_eq!(
                        (plain.ms, plain.micros, own),
                        (local.ms, local.micros, zone),
                        "{text}"
                    );
                }
            }
        }
    }

    #[test]
    fn other_texts_are_left_to_their_tokens() {
        for text in [
            "",
            "2020",
            "2020-1-2",
            "2020-13-01",
            "2020-02-30",
            "2020-00-10",
            "2020-01-00",
            "2020-01-02 ",
            "2020-01-02T",
            "2020-01-02T03:04",
            "2020-01-02T24:00:00",
            "2020-01-02T03:60:00",
            "2020-01-02T03:04:60",
            "2020-01-02T03:04:05.",
            "2020-01-02T03:04:05.1234",
            "2020-01-02T03:04:05z",
            "2020-01-02t03:04:05Z",
            "2020-01-02T03:04:05+0200",
            "2020-01-02T03:04:05+24:00",
            "2020-01-02T03:04:05 Z",
            "+020-01-02",
            "2020/01/02",
            "2020-01-02T03:04:05Zx",
            "２０２０-01-02",
        ] {
            assert!(read(text.as_bytes()).is_none(), "{text:?}");
        }
    }
}
