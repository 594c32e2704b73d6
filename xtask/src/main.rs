//! Automation of the repository, with the standard library only.
//!
//! `tidy` checks rules that a compiler does not: arrows between crates and the server's modules,
//! names, module docs, words in comments. `docs` generates the reference pages from the code. Each
//! complaint says what to do instead.

mod arrows;
mod docs;
mod modules;
mod source;
mod tidy;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask tidy           arrows, names, module docs; prints the ten longest files
cargo xtask docs           writes docs/reference/
cargo xtask docs --check   fails when docs/reference/ does not follow from the code";

/// The folder of the repository.
fn root() -> PathBuf {
    // Read at run time: checkouts that share a target folder share this program too.
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| "xtask".into());
    Path::new(&own).parent().expect("xtask lies in the repository").to_owned()
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["tidy"] => tidy::run(&root()),
        ["docs"] => docs::write(&root()),
        ["docs", "--check"] => docs::check(&root()),
        _ => Err(vec![USAGE.to_owned()]),
    };
    match result {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(complaints) => {
            complaints.iter().for_each(|complaint| eprintln!("{complaint}"));
            ExitCode::FAILURE
        }
    }
}
