//! Prometheus' text format.

use std::fmt::Write;

use marula_storage::times::{LIMITS_US, TimesReading};

use super::reading::Reading;

/// The kind of a family's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// They only grow, and restart with the process.
    Counter,
    /// They go up and down.
    Gauge,
    /// Durations in seconds, by upper limits.
    Histogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric with its samples.
pub(super) struct Family {
    /// The name; that of a counter ends with `_total`.
    pub(super) name: &'static str,
    /// The kind of its numbers.
    pub(super) kind: Kind,
    /// A description, as a sentence without the full stop.
    pub(super) help: &'static str,
    /// Writes the samples; a family without any is left out.
    pub(super) write: fn(&Reading<'_>, &mut Samples<'_>),
}

/// The text so far.
#[derive(Default)]
pub(super) struct Exposition(String);

/// The place for a family's samples.
pub(super) struct Samples<'t> {
    text: &'t mut String,
    name: &'static str,
}

/// Names and values of labels. Both are constants of the server, without a quote or a backslash.
pub(super) type Labels<'l> = &'l [(&'static str, &'l str)];

impl Exposition {
    /// Adds a family.
    pub(super) fn family(&mut self, family: &Family, reading: &Reading<'_>) {
        let before = self.0.len();
        let Family { name, kind, help, write } = family;
        let _ = write!(self.0, "# HELP {name} {help}.\n# TYPE {name} {}\n", kind.name());
        let head = self.0.len();
        write(reading, &mut Samples { text: &mut self.0, name });
        if self.0.len() == head {
            self.0.truncate(before);
        }
    }

    /// The whole text.
    pub(super) fn finish(self) -> String {
        self.0
    }
}

impl Samples<'_> {
    /// Adds the only sample of a family.
    pub(super) fn one(&mut self, value: impl Number) {
        self.labelled(&[], value);
    }

    /// Adds the only sample, if there is one.
    pub(super) fn maybe(&mut self, value: Option<impl Number>) {
        if let Some(value) = value {
            self.one(value);
        }
    }

    /// Adds a sample with labels.
    pub(super) fn labelled(&mut self, labels: Labels<'_>, value: impl Number) {
        self.line("", labels, value);
    }

    /// Adds a histogram of durations.
    pub(super) fn times(&mut self, labels: Labels<'_>, times: &TimesReading) {
        let mut count = 0;
        let limits = LIMITS_US.iter().map(|&us| seconds(us).to_string());
        let limits = limits.chain(std::iter::once("+Inf".to_owned()));
        for (limit, here) in limits.zip(times.ranges) {
            count += here;
            let mut with_limit = labels.to_vec();
            with_limit.push(("le", &limit));
            self.line("_bucket", &with_limit, count);
        }
        self.line("_sum", labels, seconds(times.us));
        self.line("_count", labels, count);
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, value: impl Number) {
        let text = &mut *self.text;
        text.push_str(self.name);
        text.push_str(suffix);
        for (index, (name, value)) in labels.iter().enumerate() {
            text.push(if index == 0 { '{' } else { ',' });
            text.push_str(name);
            text.push_str("=\"");
            for c in value.chars() {
                match c {
                    '\\' => text.push_str("\\\\"),
                    '"' => text.push_str("\\\""),
                    '\n' => text.push_str("\\n"),
                    c => text.push(c),
                }
            }
            text.push('"');
        }
        if !labels.is_empty() {
            text.push('}');
        }
        text.push(' ');
        value.write(text);
        text.push('\n');
    }
}

/// Converts microseconds to seconds, the unit of all durations here.
pub(super) fn seconds(us: u64) -> f64 {
    us as f64 / 1_000_000.0
}

/// The type of a sample.
pub(super) trait Number {
    /// Writes it in the text format.
    fn write(self, text: &mut String);
}

macro_rules! numbers {
    ($($kind:ty),*) => { $(
        impl Number for $kind {
            fn write(self, text: &mut String) {
                let _ = write!(text, "{self}");
            }
        }
    )* };
}
numbers!(u64, i64, f64);

impl Number for bool {
    fn write(self, text: &mut String) {
        text.push(if self { '1' } else { '0' });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Samples<'_>)) -> String {
        let mut text = String::new();
        write(&mut Samples { text: &mut text, name: "n" });
        text
    }

    #[test]
    fn samples_are_lines_of_the_text_format() {
        let text = written(|samples| {
            samples.one(7_u64);
            samples.labelled(&[("a", "b"), ("c", "q\"\\\n")], 0.5);
            samples.labelled(&[("a", "")], true);
        });
        assert_eq!(text, "n 7\nn{a=\"b\",c=\"q\\\"\\\\\\n\"} 0.5\nn{a=\"\"} 1\n");
    }

    #[test]
    fn a_histogram_is_cumulative_and_ends_with_its_count() {
        let times = marula_storage::times::Times::default();
        for us in [10, 20, 40, 3_600_000_000] {
            times.add_us(us);
        }
        let text = written(|samples| samples.times(&[("x", "y")], &times.read()));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "n_bucket{x=\"y\",le=\"0.000032\"} 2");
        assert_eq!(lines[1], "n_bucket{x=\"y\",le=\"0.000064\"} 3");
        let end = &lines[LIMITS_US.len() - 1..];
        assert_eq!(end[0], "n_bucket{x=\"y\",le=\"33.554432\"} 3");
        assert_eq!(end[1], "n_bucket{x=\"y\",le=\"+Inf\"} 4");
        assert_eq!(end[2..], ["n_sum{x=\"y\"} 3600.00007", "n_count{x=\"y\"} 4"]);
    }
}
