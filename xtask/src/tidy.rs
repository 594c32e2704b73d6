//! Rules of the tree that no compiler checks.

use std::path::Path;

use crate::source::{self, Source};
use crate::{arrows, modules, words};

/// Names that name no concept.
const HOMELESS: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc"];

/// Text that must not occur in the repository's files (recorded replies are exempt), and what to do
/// instead. The strings are joined here so that this table passes the check.
const BANNED: &[(&str, &str, &str)] = &[
    (concat!("to", "do!("), ".rs", "answer MongoDB's own error for what is not there"),
    (concat!("unimpl", "emented!("), ".rs", "answer MongoDB's own error for what is not there"),
    (concat!("db", "g!("), ".rs", "remove it, or log it with `tracing`"),
    (concat!("#[ign", "ore"), ".rs", "assert the behaviour as it is, with a note on what is right"),
    (concat!("/work", "/"), "", "a path of one machine means nothing on another"),
    (concat!("/roo", "t/"), "", "a path of one machine means nothing on another"),
];

/// The last column of a comment, the same as for code.
const COLUMNS: usize = 100;

/// Checks the tree; the summary lists the ten longest files.
pub(crate) fn run(root: &Path) -> Result<String, Vec<String>> {
    let sources = source::read(root, "");
    let mut complaints = Vec::new();
    arrows::check(&sources, &mut complaints);
    modules::check(&sources, &mut complaints);
    for source in &sources {
        check_names(source, &mut complaints);
        check_text(source, &mut complaints);
        check_comments(source, &mut complaints);
        words::check(source, &mut complaints);
        if is_module(source) {
            check_docs(source, &mut complaints);
        }
    }
    if !complaints.is_empty() {
        return Err(complaints);
    }
    let mut sizes: Vec<(usize, &str)> = sources
        .iter()
        .filter(|source| source.path.ends_with(".rs"))
        .map(|source| (source.text.lines().count(), source.path.as_str()))
        .collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let mut summary = String::from("the ten longest files:\n");
    for (lines, path) in sizes.iter().take(10) {
        summary.push_str(&format!("{lines:6}  {path}\n"));
    }
    Ok(format!("{summary}tidy: {} files are in order", sources.len()))
}

fn is_module(source: &Source) -> bool {
    source.path.ends_with(".rs") && source.path.contains("/src/")
}

fn check_names(source: &Source, complaints: &mut Vec<String>) {
    let homeless = source.path.split(['/', '.']).find(|part| HOMELESS.contains(part));
    if let Some(name) = homeless.filter(|_| !source.path.contains("package")) {
        complaints.push(format!(
            "{}: '{name}' says nothing; name it after the concept it holds",
            source.path
        ));
    }
}

fn check_text(source: &Source, complaints: &mut Vec<String>) {
    for (number, line) in source.text.lines().enumerate() {
        for (text, ending, instead) in BANNED {
            if line.contains(text)
                && source.path.ends_with(ending)
                && !source.path.ends_with(".json")
            {
                complaints.push(format!("{}:{}: '{text}': {instead}", source.path, number + 1));
            }
        }
    }
}

/// Checks the last column of comments on lines of their own; rustfmt checks it for code.
fn check_comments(source: &Source, complaints: &mut Vec<String>) {
    let marks: &[&str] = match source.path.rsplit_once('.') {
        Some((_, "rs")) => &["//!", "///", "//"],
        Some((_, "py" | "sh")) => &["#"],
        _ if source.text.starts_with("#!") => &["#"],
        _ => return,
    };
    for (number, line) in source.text.lines().enumerate() {
        let words = marks.iter().find_map(|mark| line.trim_start().strip_prefix(mark));
        let Some(words) = words.filter(|_| line.chars().count() > COLUMNS) else { continue };
        let words = words.trim();
        // Tables, drawings and links stay on one line.
        let is_drawn = words.starts_with('|') || words.contains("  ") || words.contains("://");
        if !is_drawn {
            complaints.push(format!(
                "{}:{}: the comment goes beyond column {COLUMNS}; go on in the next line",
                source.path,
                number + 1
            ));
        }
    }
}

fn check_docs(source: &Source, complaints: &mut Vec<String>) {
    // A file of tests is introduced by its module.
    let tests = source.path.ends_with("tests.rs") || source.path.contains("/tests/");
    if !tests && !source.text.trim_start().starts_with("//!") {
        complaints.push(format!(
            "{}: open the module with a `//!` paragraph: what it is, its nouns",
            source.path
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints_of(path: &str, text: &str) -> usize {
        let source = Source { path: path.into(), text: text.into() };
        let mut complaints = Vec::new();
        check_names(&source, &mut complaints);
        check_text(&source, &mut complaints);
        check_comments(&source, &mut complaints);
        if is_module(&source) {
            check_docs(&source, &mut complaints);
        }
        complaints.len()
    }

    #[test]
    fn a_module_needs_a_paragraph_a_name_and_no_leftovers() {
        assert_eq!(complaints_of("crates/a/src/find.rs", "//! `find`.\nfn run() {}\n"), 0);
        assert_eq!(complaints_of("crates/a/src/find.rs", "fn run() {}\n"), 1);
        assert_eq!(complaints_of("crates/a/src/find/tests.rs", "fn run() {}\n"), 0);
        assert_eq!(complaints_of("crates/a/src/util.rs", "//! Things.\n"), 1);
        assert_eq!(complaints_of("crates/a/src/utility.rs", "//! Things.\n"), 0);
        assert_eq!(
            complaints_of("crates/a/src/x.rs", concat!("//! X.\nfn f() { to", "do!() }\n")),
            1
        );
    }

    #[test]
    fn a_comment_ends_where_code_does() {
        let word = "word ".repeat(20);
        let columns = |mark: &str, more: &str| format!("//! X.\n{mark} {word}{more}\n");
        let check = |path: &str, mark: &str, more: &str| complaints_of(path, &columns(mark, more));
        assert_eq!(check("crates/a/src/x.rs", "///", "more"), 1);
        assert_eq!(check("crates/a/src/x.rs", "    //", "more"), 1);
        assert_eq!(check("tests/x.py", "#", "more"), 1);
        assert_eq!(check("docs/x.md", "#", "more"), 0);
        assert_eq!(check("crates/a/src/x.rs", "//! |", "more |"), 0);
        assert_eq!(check("crates/a/src/x.rs", "//! field", "    u32"), 0);
        assert_eq!(check("crates/a/src/x.rs", "//! See", "https://example.org"), 0);
        assert_eq!(complaints_of("crates/a/src/x.rs", &format!("//! {}\n", "é".repeat(96))), 0);
        assert_eq!(complaints_of("crates/a/src/x.rs", &format!("//! {}\n", "é".repeat(97))), 1);
    }
}
