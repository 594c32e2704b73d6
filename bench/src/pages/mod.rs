//! The report of a folder of results: a page with charts, the charts as files, tables in Markdown.
//!
//! Everything is drawn from the raw results alone, so that a report can be drawn again, also on
//! another machine.

use std::fs;
use std::path::{Path, PathBuf};

use crate::record::{GroupRecord, Record};

mod bars;
mod html;
mod lines;
mod markdown;
mod numbers;
mod picture;
mod svg;

/// The files of a report.
pub(crate) struct Report {
    /// The page and the tables.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) charts: usize,
    /// Pictures, if a browser is installed.
    pub(crate) pictures: usize,
}

/// Writes the report next to the results.
pub(crate) fn write(folder: &Path) -> Result<Report, String> {
    let records = Record::load_all(folder)?;
    let put = |path: PathBuf, text: String| {
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<PathBuf, String>(path)
    };
    let files = vec![
        put(folder.join("report.html"), html::page(&records))?,
        put(folder.join("report.md"), markdown::page(&records))?,
    ];
    let charts = folder.join("charts");
    fs::create_dir_all(&charts).map_err(|error| format!("{}: {error}", charts.display()))?;
    let mut report = Report { files, charts: 0, pictures: 0 };
    for record in &records {
        for group in record.groups.iter().filter(|group| !group.points.is_empty()) {
            for chart in html::charts(record, group) {
                put(charts.join(format!("{}.svg", chart.name)), svg::file(&chart.element))?;
                report.charts += 1;
            }
        }
        if record.groups.iter().all(|group| group.points.is_empty()) {
            continue;
        }
        let sheet = put(charts.join(format!("{}.html", record.name)), html::sheet(record))?;
        let picture = charts.join(format!("{}.png", record.name));
        report.pictures +=
            usize::from(picture::draw(&sheet, SHEET_WIDTH, height(record), &picture));
        // The page was made for its picture alone.
        let _ = fs::remove_file(sheet);
    }
    Ok(report)
}

const SHEET_WIDTH: u32 = 1480;

/// Returns the approximate height of a record's sheet: four charts side by side.
fn height(record: &Record) -> u32 {
    let of = |group: &GroupRecord| {
        let charts = html::charts(record, group).len() as u32;
        let chart = match group.axis.as_str() {
            "steps" => 90 + group.points.len() as u32 * (34 + 20 * record.targets.len() as u32),
            _ => 290,
        };
        64 + charts.div_ceil(4) * (chart * 3 / 4 + 14)
    };
    let groups = record.groups.iter().filter(|group| !group.points.is_empty());
    170 + groups.map(of).sum::<u32>()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::comparison::{COMPARISONS, Sizes};
    use crate::record::{Latency, Sample, TargetRecord};

    fn record(targets: usize, points: usize) -> Record {
        let sizes = Sizes { scale: 1.0, seconds: 1.0, seed: 1 };
        let mut record = Record::begin(COMPARISONS[1], &sizes, 2, "marula bench <run>", &[]);
        record.targets = (0..targets)
            .map(|place| TargetRecord {
                name: format!("server {place}"),
                version: "1 & 2".into(),
                setting: String::new(),
            })
            .collect();
        let wait = Latency { p50: 1.0, p90: 2.0, p99: 3.0, p999: 4.0, max: 5.0 };
        for (point, target) in (0..points).flat_map(|point| (0..targets).map(move |t| (point, t))) {
            let sample = Sample {
                operations: 1_000,
                seconds: 1.0 + target as f64,
                server_cpu_us: Some(9.0),
                latencies: BTreeMap::from([("update".into(), wait)]),
                ..Sample::default()
            };
            record.add("update", &format!("step {point}"), (point + 1) as f64, target, sample);
        }
        record
    }

    #[test]
    fn a_report_is_drawn_of_whatever_there_is() {
        for (targets, points) in [(0, 0), (1, 0), (1, 1), (2, 3), (7, 2)] {
            let page = html::page(&[record(targets, points)]);
            assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
            assert_eq!(page.contains("<svg"), points > 0, "{targets} targets, {points} points");
            assert!(!page.contains("NaN") && !page.contains("inf"), "{targets} targets");
            assert!(page.contains("marula bench &lt;run&gt;"));
        }
    }

    #[test]
    fn a_stopped_run_says_so() {
        let mut record = record(2, 1);
        record.stopped = Some("stopped by Ctrl-C".into());
        assert!(html::page(std::slice::from_ref(&record)).contains("stopped by Ctrl-C"));
        assert!(markdown::page(&[record]).contains("stopped by Ctrl-C"));
    }

    #[test]
    fn a_ratio_is_of_the_first_server_to_another() {
        let page = html::page(&[record(2, 2)]);
        // The second server took twice the time.
        assert!(page.contains("<td>Throughput</td><td class=\"number good\">2.00</td>"));
        assert!(page.contains("<td class=\"number \">1.00</td>"));
    }

    #[test]
    fn a_record_survives_its_file() {
        let text = serde_json::to_string(&record(2, 2)).expect("plain data");
        let read: Record = serde_json::from_str(&text).expect("what was written");
        assert_eq!(html::page(&[read]), html::page(&[record(2, 2)]));
    }
}
