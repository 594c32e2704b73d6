//! The table, on the terminal and as files.

use std::fmt::Write as _;
use std::fs;

use crate::rows::{Measure, Reached, RowResult};
use crate::table::TableArgs;

fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or("–".into(), |value| format!("{value:.digits$}"))
}

fn verdict(result: &RowResult) -> &'static str {
    let Some(ratio) = result.ratio else { return "" };
    let row = result.row;
    let (must, aim) = match row.measure {
        Measure::ThroughputOfRowAbove => (ratio >= row.must, ratio >= row.aim),
        _ => (ratio <= row.must, ratio <= row.aim),
    };
    match (must, aim) {
        (_, true) => "aim",
        (true, false) => "must",
        (false, false) => "MISSED",
    }
}

const HEAD: [&str; 13] = [
    "row",
    "conns",
    "Marula/s",
    "mongod/s",
    "Marula µs",
    "mongod µs",
    "floor µs",
    "Marula p99",
    "mongod p99",
    "ratio",
    "must",
    "aim",
    "reached",
];

fn cells(result: &RowResult) -> [String; 13] {
    let row = result.row;
    // Rows of other measures show megabytes or a wait instead of microseconds of server CPU.
    let cost = |side: Option<Reached>| match row.measure {
        Measure::Disk => side.map_or("–".into(), |side| format!("{:.1} MB", side.disk_mb)),
        Measure::Wait | Measure::WaitWithin(_) => {
            side.map_or("–".into(), |side| format!("{:.0} wait", side.wait_us))
        }
        _ => cell(side.map(|side| side.cpu_us), 1),
    };
    let other = |value: Option<f64>| cell(value.filter(|_| row.measure != Measure::Disk), 0);
    [
        row.title.into(),
        row.connections.to_string(),
        other(result.marula.map(|side| side.per_second)),
        other(result.mongod.map(|side| side.per_second)),
        cost(result.marula),
        cost(result.mongod),
        cell(result.floor.map(|side| side.cpu_us), 1),
        other(result.marula.map(|side| side.p99_us)),
        other(result.mongod.map(|side| side.p99_us)),
        cell(result.ratio, 2),
        row.must.to_string(),
        row.aim.to_string(),
        verdict(result).into(),
    ]
}

/// Prints the table; µs are server CPU per operation, p99 the client's wait in µs.
pub(crate) fn print(results: &[RowResult]) {
    let mut lines = vec![HEAD.map(str::to_owned)];
    lines.extend(results.iter().map(cells));
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    for line in &lines {
        let mut text = String::new();
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            let _ = if column == 0 {
                write!(text, "{cell:<width$}")
            } else {
                write!(text, "  {cell:>width$}")
            };
        }
        println!("{}", text.trim_end());
    }
}

/// Writes the table as Markdown and as JSON into the args' folder.
pub(crate) fn write(results: &[RowResult], args: &TableArgs) -> Result<(), String> {
    let mut page = String::from("# Server CPU per operation\n\n");
    let _ = writeln!(page, "{}\n", machine(args));
    let _ = writeln!(page, "| {} |\n|{}", HEAD.join(" | "), " --- |".repeat(HEAD.len()));
    let mut records = Vec::new();
    for result in results {
        let line = cells(result);
        let _ = writeln!(page, "| {} |", line.join(" | "));
        let side = |side: Option<Reached>| match side {
            None => "null".into(),
            Some(side) => format!(
                "{{\"perSecond\": {:.1}, \"cpuMicros\": {:.2}, \"p99Micros\": {:.0}, \"diskMegabytes\": {:.1}, \"waitMicros\": {:.1}}}",
                side.per_second, side.cpu_us, side.p99_us, side.disk_mb, side.wait_us
            ),
        };
        records.push(format!(
            "  {{\"row\": \"{}\", \"connections\": {}, \"marula\": {}, \"mongod\": {}, \"floor\": {}, \"ratio\": {}, \
             \"must\": {}, \"aim\": {}}}",
            result.row.name,
            result.row.connections,
            side(result.marula),
            side(result.mongod),
            side(result.floor),
            result.ratio.map_or("null".into(), |ratio| format!("{ratio:.3}")),
            result.row.must,
            result.row.aim,
        ));
    }
    let write = |name: &str, text: String| {
        let path = args.out.join(name);
        fs::create_dir_all(&args.out)
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| format!("{}: {error}", path.display()))
    };
    write("bench.md", page)?;
    write("bench.json", format!("[\n{}\n]\n", records.join(",\n")))?;
    println!("written: {0}/bench.md, {0}/bench.json", args.out.display());
    Ok(())
}

/// Returns the conditions of the numbers: processor, cores, commit, sizes.
fn machine(args: &TableArgs) -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let commit = std::process::Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let commit = commit
        .map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned())
        .unwrap_or_default();
    // Not `available_parallelism`: this program has pinned itself by now.
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    format!(
        "Commit {commit}; {}, {cores} cores; {} runs of {} s per row and side, alternating, medians; {} documents. \
         µs: server CPU per operation (per document for insertMany, per scan for the scan); floor: a server that \
         answers canned bytes.",
        model.trim_matches([' ', '\t', ':']),
        args.runs,
        args.seconds,
        args.documents
    )
}
