//! Medians and their spread, and how a number is written for people.

use crate::record::{GroupRecord, Sample};

/// A number of a sample, for a chart or a column.
#[derive(Clone)]
pub(crate) struct Metric {
    pub(crate) title: String,
    pub(crate) unit: Unit,
    pub(crate) larger_is_better: bool,
    pub(crate) of: Read,
}

/// The number of a sample that a metric reads.
#[derive(Clone)]
pub(crate) enum Read {
    PerSecond,
    ServerCpu,
    ClientCpu,
    /// The class of operations, and the percentile's name.
    Wait(String, Percentile),
    /// Microseconds from one operation to the next, with one connection.
    TimeEach,
    Data,
    Index,
    Folder,
    Memory,
    WrittenEach,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Percentile {
    P50,
    P99,
    P999,
}

impl Percentile {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Percentile::P50 => "p50",
            Percentile::P99 => "p99",
            Percentile::P999 => "p99.9",
        }
    }
}

/// The unit of a number.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Unit {
    PerSecond,
    Micros,
    Bytes,
}

/// The median of the runs, and the smallest and the largest of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Read {
    fn of(&self, sample: &Sample) -> Option<f64> {
        let bytes = |value: Option<u64>| value.map(|value| value as f64);
        match self {
            Read::PerSecond => Some(sample.per_second()).filter(|rate| *rate > 0.0),
            Read::ServerCpu => sample.server_cpu_us,
            Read::ClientCpu => Some(sample.client_cpu_us),
            Read::Wait(class, percentile) => {
                sample.latencies.get(class).map(|wait| match percentile {
                    Percentile::P50 => wait.p50,
                    Percentile::P99 => wait.p99,
                    Percentile::P999 => wait.p999,
                })
            }
            Read::TimeEach => Some(sample.seconds * 1e6 / sample.operations as f64)
                .filter(|_| sample.operations > 0),
            Read::Data => bytes(sample.data_bytes),
            Read::Index => bytes(sample.index_bytes),
            Read::Folder => bytes(sample.folder_bytes),
            Read::Memory => bytes(sample.memory_bytes),
            Read::WrittenEach => {
                bytes(sample.written_bytes).map(|all| all / sample.operations.max(1) as f64)
            }
        }
    }
}

impl Metric {
    fn new(title: &str, unit: Unit, larger_is_better: bool, of: Read) -> Metric {
        Metric { title: title.into(), unit, larger_is_better, of }
    }

    pub(crate) fn server_cpu() -> Metric {
        Metric::new("Server CPU per operation", Unit::Micros, false, Read::ServerCpu)
    }

    pub(crate) fn rate() -> Metric {
        Metric::new("Throughput", Unit::PerSecond, true, Read::PerSecond)
    }

    /// Returns the load generator's own CPU time, for comparison.
    pub(crate) fn client_cpu() -> Metric {
        Metric::new("Client CPU per operation", Unit::Micros, false, Read::ClientCpu)
    }

    /// The spread over the samples that have this number.
    pub(crate) fn spread(&self, samples: &[Sample]) -> Option<Spread> {
        let mut values: Vec<f64> = samples.iter().filter_map(|sample| self.of.of(sample)).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let median = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
        Some(Spread { median, min, max })
    }
}

/// Returns the metrics of a group's samples, the most significant first.
pub(crate) fn metrics(group: &GroupRecord) -> Vec<Metric> {
    let samples = || group.points.iter().flat_map(|point| point.samples.iter().flatten());
    // Steps without an axis have one connection: the time of one operation has the same meaning as
    // a rate.
    let steps = group.axis == "steps";
    let speed = match steps {
        true => Metric::new("Time per operation", Unit::Micros, false, Read::TimeEach),
        false => Metric::rate(),
    };
    let cpu = Metric::server_cpu();
    let mut found = if steps { vec![cpu, speed] } else { vec![speed, cpu] };
    let mut classes: Vec<&String> = samples().flat_map(|sample| sample.latencies.keys()).collect();
    classes.sort_unstable();
    classes.dedup();
    for class in classes {
        for percentile in [Percentile::P50, Percentile::P99, Percentile::P999] {
            let title = format!("Latency of {class}, {}", percentile.name());
            let of = Read::Wait(class.clone(), percentile);
            found.push(Metric::new(&title, Unit::Micros, false, of));
        }
    }
    found.extend([
        Metric::new("Bytes of documents", Unit::Bytes, false, Read::Data),
        Metric::new("Bytes of indexes", Unit::Bytes, false, Read::Index),
        Metric::new("Bytes of the data folder", Unit::Bytes, false, Read::Folder),
        Metric::new("Bytes written per operation", Unit::Bytes, false, Read::WrittenEach),
        Metric::new("Server memory", Unit::Bytes, false, Read::Memory),
    ]);
    found.retain(|metric| samples().any(|sample| metric.of.of(sample).is_some()));
    found
}

/// A number at an axis, in few letters.
pub(crate) fn short(value: f64, unit: Unit) -> String {
    let plain = |value: f64| {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match unit {
        _ if value == 0.0 => "0".into(),
        Unit::PerSecond if value >= 1e6 => format!("{}M/s", plain(value / 1e6)),
        Unit::PerSecond if value >= 1e3 => format!("{}k/s", plain(value / 1e3)),
        Unit::PerSecond => format!("{}/s", plain(value)),
        Unit::Micros if value >= 1e6 => format!("{} s", plain(value / 1e6)),
        Unit::Micros if value >= 1e3 => format!("{} ms", plain(value / 1e3)),
        Unit::Micros => format!("{} µs", plain(value)),
        Unit::Bytes => written(value, unit),
    }
}

/// A number with its unit, three digits of it.
pub(crate) fn written(value: f64, unit: Unit) -> String {
    match unit {
        Unit::PerSecond => format!("{}/s", thousands(value)),
        Unit::Micros if value >= 1e6 => format!("{} s", digits(value / 1e6)),
        Unit::Micros if value >= 1e4 => format!("{} ms", digits(value / 1e3)),
        Unit::Micros => format!("{} µs", digits(value)),
        Unit::Bytes if value >= 1e9 => format!("{} GB", digits(value / 1e9)),
        Unit::Bytes if value >= 1e6 => format!("{} MB", digits(value / 1e6)),
        Unit::Bytes if value >= 1e3 => format!("{} kB", digits(value / 1e3)),
        Unit::Bytes => format!("{value:.0} B"),
    }
}

fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => thousands(value),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A whole number with commas.
pub(crate) fn thousands(value: f64) -> String {
    let plain = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, letter) in plain.chars().enumerate() {
        if place > 0 && (plain.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(letter);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        let check = |value, unit, wanted| assert_eq!(written(value, unit), wanted);
        check(68_739.4, Unit::PerSecond, "68,739/s");
        check(999.0, Unit::PerSecond, "999/s");
        check(5.912, Unit::Micros, "5.91 µs");
        check(12_345.0, Unit::Micros, "12.3 ms");
        check(2_500_000.0, Unit::Micros, "2.50 s");
        check(39_600_000.0, Unit::Bytes, "39.6 MB");
        check(12.0, Unit::Bytes, "12 B");
    }

    #[test]
    fn a_median_stands_between_its_neighbours() {
        let metric = Metric::new("", Unit::Micros, false, Read::ServerCpu);
        let sample = |cpu| Sample { server_cpu_us: Some(cpu), ..Sample::default() };
        let spread = metric.spread(&[sample(4.0), sample(1.0), sample(2.0), sample(3.0)]);
        assert_eq!(spread, Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(metric.spread(&[Sample::default()]), None);
    }
}
