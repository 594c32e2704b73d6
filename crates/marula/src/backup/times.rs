//! Moments and durations as people write them.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Span, SpanRelativeTo, Timestamp, Zoned};
use marula_backup::moment::Wanted;

use crate::Failure;

/// The longest duration that is taken: a hundred years.
const DURATION_US_MAX: i64 = 100 * 366 * 24 * 3_600_000_000;

/// The moment that a text means; times without a zone are those of this machine.
pub(super) fn moment(text: &str) -> Result<Wanted, Failure> {
    match text.trim() {
        "latest" => Ok(Wanted::Latest),
        text => at(text, &Zoned::now()).map(Wanted::At).ok_or_else(|| {
            format!(
                "'{text}' is not a time: say 'latest', '2026-11-23 14:03', '2026-11-23T13:03:00Z', 'yesterday 14:03' or '10 minutes ago'"
            )
        }),
    }
}

/// The microseconds of a duration such as `90s`, `6h`, `7 days`.
pub(super) fn duration_us(name: &str, text: &str) -> Result<i64, Failure> {
    let span: Option<Span> = text.trim().parse().ok();
    let duration = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    let us = duration.and_then(|duration| i64::try_from(duration.as_micros()).ok());
    us.filter(|us| (0..=DURATION_US_MAX).contains(us))
        .ok_or_else(|| format!("{name} '{text}' is not a time such as 90s, 6h or 7d"))
}

/// A moment for people: by the clock of this machine, and in UTC.
pub(super) fn shown(us: i64) -> String {
    let Ok(time) = Timestamp::from_microsecond(us) else { return format!("{us} µs") };
    let here = time.to_zoned(TimeZone::system());
    here.strftime("%Y-%m-%d %H:%M:%S%.3f %Z").to_string()
}

fn at(text: &str, now: &Zoned) -> Option<i64> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time.as_microsecond());
    }
    if let Some(span) = text.strip_suffix(" ago") {
        let span: Span = span.trim().parse().ok()?;
        return now.checked_sub(span.abs()).ok().map(|time| time.timestamp().as_microsecond());
    }
    let of_day = |day: jiff::civil::Date, time: &str| {
        let time: Time = time.trim().parse().ok()?;
        Some(day.to_datetime(time))
    };
    let civil: DateTime = if let Some(time) = text.strip_prefix("yesterday ") {
        of_day(now.date().yesterday().ok()?, time)?
    } else if let Some(time) = text.strip_prefix("today ") {
        of_day(now.date(), time)?
    } else if text.contains('-') {
        text.parse().ok()?
    } else {
        of_day(now.date(), text)?
    };
    let zoned = civil.to_zoned(now.time_zone().clone()).ok()?;
    Some(zoned.timestamp().as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_many_forms() {
        let now: Zoned = "2026-11-24T10:00:00+01:00[Europe/Berlin]".parse().expect("a time");
        for (text, expected) in [
            ("2026-11-23 14:03", "2026-11-23T13:03:00Z"),
            ("2026-11-23 14:03:10.5", "2026-11-23T13:03:10.5Z"),
            ("2026-11-23T14:03", "2026-11-23T13:03:00Z"),
            ("2026-11-23T14:03:00Z", "2026-11-23T14:03:00Z"),
            ("2026-11-23T14:03:00+02:00", "2026-11-23T12:03:00Z"),
            ("2026-07-01 14:03", "2026-07-01T12:03:00Z"),
            ("yesterday 14:03", "2026-11-23T13:03:00Z"),
            ("today 08:00:30", "2026-11-24T07:00:30Z"),
            ("09:30", "2026-11-24T08:30:00Z"),
            ("10 minutes ago", "2026-11-24T08:50:00Z"),
            ("2d ago", "2026-11-22T09:00:00Z"),
        ] {
            let expected: Timestamp = expected.parse().expect("a time");
            assert_eq!(at(text, &now), Some(expected.as_microsecond()), "{text}");
        }
        for text in ["", "x", "yesterday", "yesterday x", "25:00", "2026-13-01", "ago", "x ago"] {
            assert_eq!(at(text, &now), None, "{text}");
        }
    }

    #[test]
    fn durations_have_units() {
        for (text, seconds) in
            [("90s", 90), ("6h", 21_600), ("7d", 604_800), ("2 weeks", 1_209_600)]
        {
            assert_eq!(duration_us("x", text), Ok(seconds * 1_000_000), "{text}");
        }
        for text in ["", "6", "-6h", "x", "200 years", "1 month"] {
            assert!(duration_us("x", text).is_err(), "{text}");
        }
    }
}
