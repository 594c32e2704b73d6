//! The table of `make bench`: server CPU per operation of Marula and of mongod, over the same bytes
//! on the wire.
//!
//! A *side* is one server process that this program starts with a fresh folder; a *row* is one
//! workload with its required and its desired ratio; a *run* is one measurement of one row on one
//! side. Runs alternate between the sides (A B A B …), so that a slow minute of the machine affects
//! both, and the table shows medians. Requests are prepared messages with a few patched bytes, so
//! that the client costs little compared with the server. Start reading in `rows`.

use std::path::PathBuf;

use clap::Args;

use crate::{report, rows};

/// The arguments of the command line.
#[derive(Args, Clone, Debug)]
pub(crate) struct TableArgs {
    /// The marula to measure
    #[arg(long, value_name = "PATH")]
    pub(crate) marula: Option<String>,

    /// The mongod to measure
    #[arg(long, value_name = "PATH")]
    pub(crate) mongod: Option<String>,

    /// Only rows whose name starts with one of these
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub(crate) rows: Vec<String>,

    /// The number of measurements of each row on each server
    #[arg(long, default_value_t = 5)]
    pub(crate) runs: usize,

    /// The duration of each measurement in seconds
    #[arg(long, default_value_t = 3.0)]
    pub(crate) seconds: f64,

    /// The number of documents of each collection
    #[arg(long, default_value_t = 100_000)]
    pub(crate) documents: usize,

    /// The folder of the table
    #[arg(long, value_name = "FOLDER", default_value = "target/bench")]
    pub(crate) out: PathBuf,

    /// Run every row once with tiny inputs, as a test of the function and not of the speed
    #[arg(long, conflicts_with_all = ["runs", "seconds", "documents"])]
    pub(crate) smoke: bool,

    /// List the rows
    #[arg(long)]
    list: bool,
}

/// Measures the rows, prints the table and writes it.
pub(crate) fn run(mut args: TableArgs) -> Result<(), String> {
    if args.list {
        for row in rows::ROWS {
            println!("{:<14} {}", row.name, row.title);
        }
        return Ok(());
    }
    if args.marula.is_none() && args.mongod.is_none() {
        return Err("name a server to measure (--marula, --mongod)".into());
    }
    if args.runs == 0 {
        return Err("--runs must be more than 0".into());
    }
    if args.smoke {
        (args.runs, args.seconds, args.documents) = (1, 0.1, 2_000);
    }
    let results = rows::measure(&args)?;
    report::print(&results);
    if args.smoke {
        println!("bench: every row works ({} rows)", results.len());
        return Ok(());
    }
    report::write(&results, &args)
}
