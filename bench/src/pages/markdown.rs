//! The tables as Markdown: for each group a line for each step, and for each server its numbers.

use std::fmt::Write as _;

use crate::pages::numbers::{Percentile, Read, metrics, written};
use crate::record::Record;

/// The whole page.
pub(crate) fn page(records: &[Record]) -> String {
    let mut page = String::from("# Comparisons\n\n");
    page.push_str(
        "Medians over the runs. CPU is the server's, per operation, as the kernel accounts for it; latencies are the \
         client's. ↑: more is better, ↓: less is. A ratio between servers counts, a lone number depends on the machine.\n",
    );
    for record in records {
        let _ = write!(page, "\n## {}\n\n{}\n\n", record.title, record.about);
        let _ = writeln!(page, "{}\n", machine(record));
        let _ = writeln!(page, "    {}\n", record.command);
        if let Some(why) = &record.stopped {
            let _ = writeln!(page, "**Not complete:** {why}.\n");
        }
        let _ = writeln!(page, "| server | version | started as |\n| --- | --- | --- |");
        for target in &record.targets {
            let _ =
                writeln!(page, "| {} | {} | `{}` |", target.name, target.version, target.setting);
        }
        for group in record.groups.iter().filter(|group| !group.points.is_empty()) {
            let _ = write!(page, "\n### {}\n\n", group.title);
            // All percentiles would not fit a line; the page with charts has them.
            let shown: Vec<_> = metrics(group)
                .into_iter()
                .filter(|metric| {
                    !matches!(metric.of, Read::Wait(_, Percentile::P50 | Percentile::P999))
                })
                .collect();
            let heads: Vec<String> = shown
                .iter()
                .map(|metric| {
                    format!("{} {}", metric.title, if metric.larger_is_better { "↑" } else { "↓" })
                })
                .collect();
            let _ = writeln!(page, "| step | server | {} |", heads.join(" | "));
            let _ = writeln!(page, "| --- | --- |{}", " ---: |".repeat(shown.len()));
            for point in &group.points {
                for (target, samples) in record.targets.iter().zip(&point.samples) {
                    let cells: Vec<String> = shown
                        .iter()
                        .map(|metric| {
                            let spread = metric.spread(samples);
                            spread
                                .map_or("–".into(), |spread| written(spread.median, metric.unit))
                        })
                        .collect();
                    let _ = writeln!(
                        page,
                        "| {} | {} | {} |",
                        point.name,
                        target.name,
                        cells.join(" | ")
                    );
                }
            }
        }
    }
    page
}

/// Returns the conditions of the numbers, in a sentence.
pub(crate) fn machine(record: &Record) -> String {
    let machine = &record.machine;
    format!(
        "{}, {} cores, {:.0} GB of memory, {}; load average {} at the begin, {} at the end; scale {}, seed {}, {} runs, \
         {} s per timed step.",
        machine.processor,
        machine.cores,
        machine.memory_bytes as f64 / 1e9,
        machine.kernel,
        machine.load_begin,
        machine.load_end,
        record.scale,
        record.seed,
        record.runs,
        record.seconds
    )
}
