//! Passes the commit to the compiler: `$MARULA_COMMIT` if a package is built without its
//! repository, otherwise the output of git.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=MARULA_COMMIT");
    // The file that git rewrites with every commit, checkout and rebase.
    let log = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]);
    if let Some(log) = log.filter(|log| Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    } else {
        println!("cargo::rerun-if-changed=build.rs");
    }
    let given = std::env::var("MARULA_COMMIT").ok().filter(|given| !given.is_empty());
    let commit = given.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!("cargo::rustc-env=MARULA_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}

/// Returns the output of git; `None` without git or a repository.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}
