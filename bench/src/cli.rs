//! The command line of `marula-bench`, which `marula bench` runs too: the subcommands.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::comparison::{self, COMPARISONS, Sizes};
use crate::echo;
use crate::interrupt;
use crate::pages;
use crate::runner::{self, Plan};
use crate::table::{self, TableArgs};
use crate::target::{Starting, Target};

/// Measures Marula and other servers.
#[derive(Parser, Debug)]
#[command(name = "marula-bench", bin_name = "marula bench", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// List the comparisons
    List,
    /// Run comparisons on servers and write a report
    Run(RunArgs),
    /// Draw the report of a folder again from its raw results
    Report(ReportArgs),
    /// Measure server CPU per operation, row by row: the table of `make bench`
    Table(TableArgs),
    /// Reply to every message with the same bytes, which is the minimum cost of any server
    #[command(hide = true)]
    Echo { port: String },
}

#[derive(Args, Debug)]
#[command(after_help = "\
Targets, one for each --target:
  marula                        the program beside this one, started on a fresh folder
  marula:PATH                   another build of it, started the same way
  mongod                        the mongod of --mongod, started on a fresh folder
  postgres                      the PostgreSQL of --postgres, started on a fresh folder
  tokyocabinet                  Tokyo Cabinet's table database, embedded: its C library (Debian: libtokyocabinet9) is
                                called within this program; answers news and mixed
  mongodb://[USER:WORD@]HOST:PORT
                                a running server of MongoDB's protocol
  postgresql://USER:WORD@HOST:PORT/DATABASE
                                a running PostgreSQL; tables of the comparison's names are dropped there

Running servers lose the database marula_bench (MongoDB) or tables named like the comparison (PostgreSQL).
A wrong answer of any server ends the run with an error. Ctrl-C leaves a report of what was measured.

  marula bench run stock --target marula --mongod /usr/bin/mongod --out report
  marula bench run rows --scale 0.02 --target marula --postgres /usr/lib/postgresql/15/bin --out report")]
struct RunArgs {
    /// The comparisons (see `marula bench list`), or `all`
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,

    /// A server to compare; may be given several times [default: marula]
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<String>,

    /// A mongod to start on a fresh folder as a further target
    #[arg(long, value_name = "PATH")]
    mongod: Option<PathBuf>,

    /// PostgreSQL's folder of programs (initdb, postgres), to start a server on a fresh folder as a
    /// further target
    #[arg(long, value_name = "BIN_DIR")]
    postgres: Option<PathBuf>,

    /// The folder for the report and the raw results
    #[arg(long, value_name = "DIR", default_value = "bench-report")]
    out: PathBuf,

    /// The size of the comparison; 1 is the published size
    #[arg(long, default_value_t = 1.0)]
    scale: f64,

    /// The seed of the requests
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// The number of measurements; the report shows medians and the spread
    #[arg(long, default_value_t = 3)]
    runs: usize,

    /// The duration of each step that is limited by time, in seconds
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,

    /// Memory for the cache of each started server, in megabytes [default: the server's own choice;
    /// for `rows` a tenth of the data]
    #[arg(long, value_name = "MB")]
    cache: Option<u64>,

    /// The folder for the data of started servers [default: the system's folder for temporary
    /// files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct ReportArgs {
    /// The folder that `marula bench run --out` wrote
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Runs the command of the command line.
pub fn main() -> ExitCode {
    match run(&Cli::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("marula bench: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: &Verb) -> Result<(), String> {
    match verb {
        Verb::List => {
            for comparison in COMPARISONS {
                println!(
                    "{:<10} {}\n           {}\n",
                    comparison.name, comparison.title, comparison.about
                );
            }
            Ok(())
        }
        Verb::Run(args) => compare(args),
        Verb::Report(args) => report(&args.folder),
        Verb::Table(args) => table::run(args.clone()),
        Verb::Echo { port } => echo::serve(port),
    }
}

fn report(folder: &std::path::Path) -> Result<(), String> {
    let report = pages::write(folder)?;
    for file in &report.files {
        println!("{}", file.display());
    }
    let charts = folder.join("charts");
    println!("{}: {} charts, {} pictures", charts.display(), report.charts, report.pictures);
    Ok(())
}

fn compare(args: &RunArgs) -> Result<(), String> {
    if !(args.scale > 0.0 && args.seconds > 0.0 && args.runs > 0) {
        return Err("--scale, --seconds and --runs must be more than 0".into());
    }
    let comparisons = match args.names.iter().any(|name| name == "all") {
        true => COMPARISONS.to_vec(),
        false => {
            args.names.iter().map(|name| comparison::by_name(name)).collect::<Result<_, _>>()?
        }
    };
    let mut words = args.targets.clone();
    for (given, word) in [(&args.mongod, "mongod"), (&args.postgres, "postgres")] {
        if given.is_some() && !words.iter().any(|known| known == word) {
            words.push(word.into());
        }
    }
    if words.is_empty() {
        words.push("marula".into());
    }
    fs::create_dir_all(&args.out).map_err(|error| format!("{}: {error}", args.out.display()))?;
    let command: Vec<String> = std::env::args().skip(1).map(|word| without_login(&word)).collect();
    let command = format!("marula bench {}", command.join(" "));
    interrupt::listen()?;
    many_files();
    let myself = std::env::current_exe().map_err(|error| format!("where am I: {error}"))?;

    let mut outcome = Ok(());
    for comparison in comparisons {
        let sizes = Sizes { scale: args.scale, seconds: args.seconds, seed: args.seed };
        let starting = Starting {
            marula: myself.with_file_name("marula"),
            mongod: args.mongod.clone(),
            postgres: args.postgres.clone(),
            folder: args.folder.clone().unwrap_or_else(std::env::temp_dir),
            cache_bytes: args.cache.map(|mb| mb << 20).or_else(|| (comparison.cache_bytes)(&sizes)),
        };
        let plan = Plan { comparison, sizes, runs: args.runs, command: &command, out: &args.out };
        outcome =
            open_all(&words, &starting).and_then(|mut targets| runner::run(&plan, &mut targets));
        if outcome.is_err() {
            break;
        }
    }
    match report(&args.out) {
        Err(error) if outcome.is_ok() => Err(error),
        _ => outcome,
    }
}

/// Returns a word of the command line in the form that a report may show.
fn without_login(word: &str) -> String {
    match (word.split_once("://"), word.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, place))) => format!("{scheme}://…@{place}"),
        _ => word.to_owned(),
    }
}

/// Opens the targets; two of the same name are numbered.
fn open_all(words: &[String], starting: &Starting) -> Result<Vec<Target>, String> {
    let mut targets: Vec<Target> = Vec::new();
    for word in words {
        let mut target = Target::open(word, starting)?;
        let same = targets.iter().filter(|known| known.name.starts_with(&target.name)).count();
        if same > 0 {
            target.name = format!("{} ({})", target.name, same + 1);
        }
        targets.push(target);
    }
    Ok(targets)
}

/// A thousand connections need as many open files; the usual limit is 1,024.
fn many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If that is rejected, the step that needs them reports it.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_shows_no_password() {
        let check = |word: &str, wanted: &str| assert_eq!(without_login(word), wanted);
        check("postgresql://me:secret@127.0.0.1/shop", "postgresql://…@127.0.0.1/shop");
        check("mongodb://127.0.0.1:27017", "mongodb://127.0.0.1:27017");
        check("--out=a@b", "--out=a@b");
    }
}
