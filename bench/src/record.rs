//! The record of a run: the raw numbers as JSON, from which every page is drawn.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use serde_derive::{Deserialize, Serialize};

use crate::comparison::{Axis, Comparison, Sizes};
use crate::process;
use crate::target::Target;

/// The version of this format; a reader rejects another.
pub(crate) const FORMAT: u32 = 1;

/// One comparison's numbers.
#[derive(Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) format: u32,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) about: String,
    /// The command to repeat it.
    pub(crate) command: String,
    pub(crate) scale: f64,
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
    pub(crate) runs: usize,
    /// Seconds since 1970.
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    /// The reason why it ended early, if it did.
    pub(crate) stopped: Option<String>,
    pub(crate) machine: Machine,
    pub(crate) targets: Vec<TargetRecord>,
    pub(crate) groups: Vec<GroupRecord>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    /// The load averages at the start and at the end: other work of the machine.
    pub(crate) load_begin: String,
    pub(crate) load_end: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct TargetRecord {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) setting: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct GroupRecord {
    pub(crate) id: String,
    pub(crate) title: String,
    /// `connections`, `rows` or `steps`.
    pub(crate) axis: String,
    pub(crate) points: Vec<Point>,
}

/// One step on every target.
#[derive(Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) name: String,
    pub(crate) x: f64,
    /// For each target, a sample of each run.
    pub(crate) samples: Vec<Vec<Sample>>,
}

/// One measurement of one step on one target.
#[derive(Serialize, Deserialize, Default, Clone)]
pub(crate) struct Sample {
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
    /// Microseconds of the server's CPU per operation.
    pub(crate) server_cpu_us: Option<f64>,
    /// The same of the load generator.
    pub(crate) client_cpu_us: f64,
    /// By the name of the operations' class.
    pub(crate) latencies: BTreeMap<String, Latency>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) written_bytes: Option<u64>,
    /// Documents and indexes on disk, as the server counts them.
    pub(crate) data_bytes: Option<u64>,
    pub(crate) index_bytes: Option<u64>,
    /// The data folder without logs.
    pub(crate) folder_bytes: Option<u64>,
}

/// The durations of operations, in microseconds.
#[derive(Serialize, Deserialize, Clone, Copy)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl Latency {
    /// The percentiles of waits in nanoseconds.
    pub(crate) fn of(waits: &Histogram<u64>) -> Latency {
        let at = |quantile| waits.value_at_quantile(quantile) as f64 / 1000.0;
        Latency {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: waits.max() as f64 / 1000.0,
        }
    }
}

impl Sample {
    pub(crate) fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.operations as f64 / self.seconds } else { 0.0 }
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

impl Machine {
    fn here() -> Machine {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
        let kernel = Command::new("uname").args(["-sr"]).output();
        Machine {
            processor: model.trim_matches([' ', '\t', ':']).into(),
            cores: cpu.lines().filter(|line| line.starts_with("processor")).count(),
            memory_bytes: process::memory_total_bytes(),
            kernel: kernel
                .map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned())
                .unwrap_or_default(),
            load_begin: load_average(),
            load_end: String::new(),
        }
    }
}

impl Record {
    /// A record without samples.
    pub(crate) fn begin(
        comparison: &Comparison,
        sizes: &Sizes,
        runs: usize,
        command: &str,
        targets: &[Target],
    ) -> Record {
        let groups = comparison.groups.iter().map(|group| GroupRecord {
            id: group.id.into(),
            title: group.title.into(),
            axis: match group.axis {
                Axis::Connections => "connections".into(),
                Axis::Rows => "rows".into(),
                Axis::Steps => "steps".into(),
            },
            points: Vec::new(),
        });
        let targets = targets.iter().map(|target| TargetRecord {
            name: target.name.clone(),
            version: target.version.clone(),
            setting: target.setting.clone(),
        });
        Record {
            format: FORMAT,
            name: comparison.name.into(),
            title: comparison.title.into(),
            about: comparison.about.into(),
            command: command.into(),
            scale: sizes.scale,
            seconds: sizes.seconds,
            seed: sizes.seed,
            runs,
            begun: now(),
            ended: now(),
            stopped: None,
            machine: Machine::here(),
            targets: targets.collect(),
            groups: groups.collect(),
        }
    }

    /// Adds a sample of a step on target number `target`.
    pub(crate) fn add(&mut self, group: &str, name: &str, x: f64, target: usize, sample: Sample) {
        let targets = self.targets.len();
        let group = self.groups.iter_mut().find(|known| known.id == group);
        let points = &mut group.expect("a step's group is one of its comparison").points;
        let place = points.iter().position(|point| point.name == name).unwrap_or_else(|| {
            points.push(Point { name: name.into(), x, samples: vec![Vec::new(); targets] });
            points.len() - 1
        });
        points[place].samples[target].push(sample);
    }

    /// Writes the record into its folder; an existing file is replaced atomically.
    pub(crate) fn save(&mut self, folder: &Path) -> Result<(), String> {
        self.ended = now();
        self.machine.load_end = load_average();
        let path = folder.join(format!("{}.json", self.name));
        let part = path.with_extension("json.part");
        let text = serde_json::to_string_pretty(self).expect("a record is plain data");
        fs::write(&part, text)
            .and_then(|()| fs::rename(&part, &path))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The records of a folder, in the order of the comparisons.
    pub(crate) fn load_all(folder: &Path) -> Result<Vec<Record>, String> {
        let mut found = Vec::new();
        for comparison in crate::comparison::COMPARISONS {
            let path = folder.join(format!("{}.json", comparison.name));
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let record: Record = serde_json::from_str(&text)
                .map_err(|error| format!("{}: not a record: {error}", path.display()))?;
            if record.format != FORMAT {
                return Err(format!("{}: format {} is unknown", path.display(), record.format));
            }
            found.push(record);
        }
        match found.is_empty() {
            true => Err(format!("'{}' has no results of marula bench run", folder.display())),
            false => Ok(found),
        }
    }
}
