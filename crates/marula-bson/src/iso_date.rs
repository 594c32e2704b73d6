//! Moments as ISO 8601 text, in the proleptic Gregorian calendar.

use crate::calendar::{Civil, DAY_MS, days_of, month_length};

/// `ms` since 1970 as `2020-01-31T23:59:59.123Z`, without a zero fraction; `None` outside the years
/// 1970 to 9999.
pub(crate) fn print(ms: i64) -> Option<String> {
    const YEAR_10000_MS: i64 = 253_402_300_800_000;
    if !(0..YEAR_10000_MS).contains(&ms) {
        return None;
    }
    let Civil { year, month, day, hour, minute, second, millisecond } = Civil::of_ms(ms);
    let fraction = if millisecond == 0 { String::new() } else { format!(".{millisecond:03}") };
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z"))
}

/// Parses `YYYY-MM-DDThh:mm:ss[.f…](Z|±hh:mm|±hhmm|±hh)` to milliseconds since 1970.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('T')?;
    let (year, month_day) = date.split_once('-')?;
    let (month, day) = month_day.split_once('-')?;
    let zone_at = time.find(['Z', '+', '-'])?;
    let (clock, zone) = time.split_at_checked(zone_at)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let (hours, minutes_seconds) = clock.split_once(':')?;
    let (minutes, seconds) = minutes_seconds.split_once(':')?;
    let year = number(year, 4, 0, 9999)?;
    let month = number(month, 2, 1, 12)?;
    let day = number(day, 2, 1, month_length(year, month))?;
    let hours = number(hours, 2, 0, 23)?;
    let minutes = number(minutes, 2, 0, 59)?;
    let seconds = number(seconds, 2, 0, 59)?;
    if fraction.is_empty() || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let fraction = format!("{fraction:0<3}").get(..3)?.parse::<i64>().ok()?;
    let in_day = ((hours * 60 + minutes) * 60 + seconds) * 1000 + fraction;
    Some(days_of(year, month, day) * DAY_MS + in_day - zone_ms(zone)?)
}

fn zone_ms(zone: &str) -> Option<i64> {
    let (sign, digits) = match zone.split_at_checked(1)? {
        ("Z", "") => return Some(0),
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits.len() {
        2 => (digits, "00"),
        4 => digits.split_at_checked(2)?,
        _ => digits.split_once(':')?,
    };
    let minutes = number(hours, 2, 0, 23)? * 60 + number(minutes, 2, 0, 59)?;
    Some(sign * minutes * 60_000)
}

fn number(text: &str, digits: usize, least: i64, greatest: i64) -> Option<i64> {
    if text.len() != digits || !text.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|number| (least..=greatest).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_print_and_parse() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_356_351_330_501, "2012-12-24T12:15:30.501Z"),
            (1_582_934_400_000, "2020-02-29T00:00:00Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(print(ms).as_deref(), Some(text));
            assert_eq!(parse(text), Some(ms));
        }
        assert_eq!(print(-1), None);
        assert_eq!(print(253_402_300_800_000), None);
        for (text, ms) in [
            ("1970-01-01T01:00:00+01:00", 0),
            ("1970-01-01T01:30:00+0130", 0),
            ("1969-12-31T22:00:00-02", 0),
            ("0000-01-01T00:00:00Z", -62_167_219_200_000),
            ("1970-01-01T00:00:00.1239Z", 123),
            ("1970-01-01T00:00:00.1Z", 100),
        ] {
            assert_eq!(parse(text), Some(ms), "{text}");
        }
        for text in [
            "",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-02-29T00:00:00Z",
            "1970-13-01T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:00.Z",
            "1970-1-1T00:00:00Z",
            "1970-01-01T00:00:00+1",
            "+970-01-01T00:00:00Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
