//! The table of `make bench`: server CPU per operation of Marula beside that of mongod, over the same bytes on the wire.
//!
//! A *side* is one server process that this program starts with a fresh folder; a *row* is one workload with its
//! required and its hoped-for ratio; a *run* is one measurement of one row on one side. Runs alternate between the
//! sides (A B A B …), so that a slow minute of the machine hits both, and the table shows medians. Requests are
//! prepared messages with a few patched bytes, so that the client costs little beside the server. Start reading in
//! `rows`.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::{echo, report, rows};

/// What the command line asks for.
pub(crate) struct Options {
    pub(crate) marula: Option<String>,
    pub(crate) mongod: Option<String>,
    pub(crate) rows: Vec<String>,
    pub(crate) runs: usize,
    pub(crate) seconds: f64,
    pub(crate) documents: usize,
    pub(crate) smoke: bool,
    pub(crate) out: PathBuf,
}

const USAGE: &str = "\
marula-bench [--marula PATH] [--mongod PATH] [--rows NAME,NAME] [--runs 5] [--seconds 3] [--documents 100000]
             [--out FOLDER] [--smoke] [--list]
  --rows       only rows whose name starts with one of these
  --smoke      every row with tiny inputs: does it work, not how fast
marula-bench --echo PORT    answers every message with the same bytes: the floor of any server";

fn options() -> Result<Options, String> {
    let mut options = Options {
        marula: None,
        mongod: None,
        rows: Vec::new(),
        runs: 5,
        seconds: 3.0,
        documents: 100_000,
        smoke: false,
        out: PathBuf::from("target/bench"),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number =
            |text: String| text.parse::<f64>().map_err(|_| format!("not a number: '{text}'"));
        match word.as_str() {
            "--marula" => options.marula = Some(value()?),
            "--mongod" => options.mongod = Some(value()?),
            "--rows" => options.rows = value()?.split(',').map(str::to_owned).collect(),
            "--runs" => options.runs = number(value()?)?.max(1.0) as usize,
            "--seconds" => options.seconds = number(value()?)?,
            "--documents" => options.documents = number(value()?)? as usize,
            "--out" => options.out = PathBuf::from(value()?),
            "--smoke" => {
                options.smoke = true;
                (options.runs, options.seconds, options.documents) = (1, 0.1, 2_000);
            }
            _ => return Err(format!("unknown option '{word}'\n{USAGE}")),
        }
    }
    if options.marula.is_none() && options.mongod.is_none() {
        return Err(format!("name a server to measure\n{USAGE}"));
    }
    Ok(options)
}

fn run() -> Result<(), String> {
    let first: Vec<String> = std::env::args().skip(1).take(2).collect();
    match first.first().map(String::as_str) {
        Some("--echo") => return echo::serve(first.get(1).map_or("0", String::as_str)),
        Some("--list") => {
            for row in rows::ROWS {
                println!("{:<14} {}", row.name, row.title);
            }
            return Ok(());
        }
        _ => {}
    }
    let options = options()?;
    let results = rows::measure(&options)?;
    report::print(&results);
    if options.smoke {
        println!("bench: every row works ({} rows)", results.len());
        return Ok(());
    }
    report::write(&results, &options)
}

/// The program `marula-bench`, as `make bench` runs it.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench: {message}");
            ExitCode::FAILURE
        }
    }
}
