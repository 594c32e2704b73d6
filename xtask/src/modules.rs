//! The permitted uses between the server's modules, compared with its files.

use std::collections::BTreeSet;

use crate::source::Source;

const FOLDER: &str = "crates/marula-server/src/";

/// Each module of the server and the modules of the same crate that its files may use. A new arrow
/// is a decision: most things are passed as arguments.
const ARROWS: &[(&str, &[&str])] = &[
    ("audit", &["auth", "log_file", "request"]),
    (
        "auth",
        &[
            "command",
            "connection",
            "context",
            "counters",
            "dispatch",
            "fields",
            "log",
            "net",
            "request",
            "row",
            "server",
            "session",
        ],
    ),
    ("backups", &[]),
    ("catalog_log", &["log"]),
    ("cluster", &["command", "server"]),
    ("cluster_fields", &["fields"]),
    ("collection_uuid", &["context", "request"]),
    (
        "command",
        &[
            "auth",
            "backups",
            "catalog_log",
            "change_stream",
            "cluster",
            "cluster_fields",
            "collection_uuid",
            "concern",
            "context",
            "counters",
            "cursor",
            "dispatch",
            "ended",
            "environment",
            "error_labels",
            "fail_point",
            "fields",
            "host",
            "listing",
            "log",
            "net",
            "nodes",
            "operation",
            "oplog_keeper",
            "parameters",
            "pipeline_source",
            "profiling",
            "read_preference",
            "replica_set",
            "request",
            "row",
            "server",
            "session",
            "shown_command",
            "stable_api",
            "statements",
            "storage_size",
            "time_series",
            "transactions",
            "user_writes",
            "write_lock",
            "write_reply",
            "writes",
        ],
    ),
    ("concern", &["fields", "row"]),
    ("connection", &["audit", "auth", "fail_point", "net", "operation", "session"]),
    (
        "context",
        &[
            "auth",
            "connection",
            "ended",
            "memory",
            "net",
            "operation",
            "server",
            "session",
            "snapshots",
            "stored_code",
            "transactions",
        ],
    ),
    ("counters", &["command", "concern", "read_preference", "row"]),
    ("cursor", &["auth", "context", "counters", "session", "snapshots"]),
    ("default_concerns", &["concern"]),
    (
        "dispatch",
        &[
            "audit",
            "auth",
            "command",
            "connection",
            "context",
            "ended",
            "error_labels",
            "fail_point",
            "inline",
            "log",
            "net",
            "request",
            "row",
            "server",
            "snapshots",
            "transactions",
            "write_lock",
        ],
    ),
    ("ended", &["connection", "dispatch", "log", "profiling", "request", "row", "server"]),
    ("environment", &["context", "net", "request"]),
    ("error_labels", &["request", "transactions"]),
    ("fail_point", &["command", "connection", "error_labels", "request", "server"]),
    ("fields", &["session"]),
    ("host", &["server"]),
    ("inline", &["request", "row"]),
    ("listing", &["context", "cursor", "fields", "request"]),
    ("memory", &["server"]),
    ("metrics", &["counters", "cursor", "host", "memory", "net", "server", "transactions"]),
    ("nodes", &["auth", "command", "server", "session", "user_writes"]),
    ("operation", &["auth", "net", "row", "session", "shown_command"]),
    (
        "parameters",
        &[
            "auth",
            "command",
            "fail_point",
            "host",
            "log",
            "memory",
            "net",
            "server",
            "session",
            "snapshots",
            "transactions",
        ],
    ),
    ("oplog_keeper", &["server"]),
    ("pipeline_source", &["change_stream", "context", "cursor", "report", "server", "time_series"]),
    ("primacy", &["net"]),
    ("profiling", &["server"]),
    ("repeated", &["fields"]),
    ("replica_set", &["context", "fields"]),
    ("report", &["auth", "cluster", "command", "context", "host", "nodes", "server", "session"]),
    (
        "request",
        &[
            "cluster_fields",
            "command",
            "concern",
            "fields",
            "read_preference",
            "repeated",
            "row",
            "session",
            "stable_api",
        ],
    ),
    ("row", &["auth", "context", "fields", "net", "request"]),
    (
        "server",
        &[
            "audit",
            "auth",
            "backups",
            "catalog_log",
            "change_stream",
            "counters",
            "cursor",
            "default_concerns",
            "fail_point",
            "log",
            "log_file",
            "memory",
            "net",
            "operation",
            "oplog_keeper",
            "parameters",
            "primacy",
            "profiling",
            "replica_set",
            "session",
            "snapshots",
            "temp_files",
            "transactions",
            "user_writes",
            "write_lock",
        ],
    ),
    ("session", &["fields"]),
    ("shown_command", &["row"]),
    ("snapshots", &["concern", "request", "row"]),
    ("stable_api", &["request"]),
    (
        "statements",
        &["collection_uuid", "context", "ended", "fields", "request", "write_reply", "writes"],
    ),
    ("time_series", &["command", "fields", "request"]),
    ("ttl", &["server"]),
    ("transactions", &["concern", "log", "operation", "profiling", "request", "row", "session"]),
    ("user_writes", &["context"]),
    ("write_lock", &["dispatch", "net", "operation", "row", "server"]),
    ("writes", &["context", "fields", "request"]),
];

/// Complains about uses in the server's files that the table does not have, and about arrows of the
/// table without a use.
pub(crate) fn check(sources: &[Source], complaints: &mut Vec<String>) {
    check_against(ARROWS, sources, complaints);
}

fn check_against(table: &[(&str, &[&str])], sources: &[Source], complaints: &mut Vec<String>) {
    let files = || sources.iter().filter(|source| source.path.starts_with(FOLDER));
    let modules: BTreeSet<&str> = files().filter_map(module).collect();
    let mut drawn = BTreeSet::new();
    for source in files() {
        let Some(from) = module(source) else { continue };
        let names = named(source);
        for to in modules.iter().copied().filter(|to| names.contains(*to) && *to != from) {
            drawn.insert((from, to));
            if !table.iter().any(|(module, allowed)| *module == from && allowed.contains(&to)) {
                complaints.push(format!(
                    "{}: '{from}' may not know '{to}' (ARROWS in xtask/src/modules.rs); hand in what it needs as an argument",
                    source.path
                ));
            }
        }
    }
    for (from, allowed) in table {
        for to in allowed.iter().filter(|to| !drawn.contains(&(*from, **to))) {
            complaints.push(format!(
                "xtask/src/modules.rs: '{from}' does not name '{to}' any more; take the arrow out"
            ));
        }
    }
}

/// Returns the top-level module of the crate that a file belongs to; `None` for the crate's root
/// file and for tests.
fn module(source: &Source) -> Option<&str> {
    let path = source.path.strip_prefix(FOLDER)?;
    let is_test = path.ends_with("tests.rs") || path.contains("/tests/");
    let name = path.split(['/', '.']).next()?;
    (path.ends_with(".rs") && !is_test && name != "lib").then_some(name)
}

/// Returns the names of the crate's modules that the code of a file uses, by `crate::` or by
/// `super::` from its place, without its tests.
fn named(source: &Source) -> BTreeSet<String> {
    let code = without_tests(&source.text);
    let path = source.path.strip_prefix(FOLDER).unwrap_or_default();
    let folders = path.matches('/').count();
    let depth = if path.ends_with("/mod.rs") { folders } else { folders + 1 };
    let up = "super::".repeat(depth);
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        names.extend(first_names(&code[at + "crate::".len()..]));
    }
    for (at, _) in code.match_indices(&up).filter(|(at, _)| !code[..*at].ends_with("super::")) {
        names.extend(first_names(&code[at + up.len()..]));
    }
    names
}

/// Returns the code of a file without comments and without the items for tests. Relies on the
/// formatter: an item ends with its first line at its own indentation that ends with `;` or `}`.
fn without_tests(text: &str) -> String {
    let mut code = String::new();
    let mut skipped: Option<usize> = None;
    for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
        let indent = line.len() - line.trim_start().len();
        match skipped {
            _ if line.trim() == "#[cfg(test)]" => skipped = Some(indent),
            Some(of_item) => {
                let ends = line.ends_with(';') || line.ends_with('}');
                skipped = skipped.filter(|_| !(indent == of_item && ends));
            }
            None => {
                code.push_str(line);
                code.push('\n');
            }
        }
    }
    code
}

/// Returns the first name of each path after `crate::`: one, or those of a list in braces.
fn first_names(rest: &str) -> Vec<String> {
    let Some(list) = rest.strip_prefix('{') else { return vec![first_word(rest)] };
    let (mut names, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(first_word(&list[begin..at]));
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
}

fn first_word(text: &str) -> String {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    text.trim_start().split(|c: char| !is_of_word(c)).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints_of(table: &[(&str, &[&str])]) -> Vec<String> {
        let source = |path: &str, text: &str| Source {
            path: format!("{FOLDER}{path}"),
            text: text.to_owned(),
        };
        let sources = [
            source("lib.rs", "pub use crate::above;"),
            source("below.rs", "fn f() {}\n#[cfg(test)]\nuse crate::above::g;"),
            source("above/mod.rs", "// crate::nothing\nuse crate::{Root, below, below::f};\n"),
            source("under.rs", "#[cfg(test)]\nmod tests;\nfn f() {\n    super::below::f();\n}\n"),
            source("above/in.rs", "use super::f;\nuse crate::{\n    Root::{below, a},\n};\n"),
            source("above/tests.rs", "use crate::other;\n"),
        ];
        let mut complaints = Vec::new();
        check_against(table, &sources, &mut complaints);
        complaints
    }

    #[test]
    fn an_arrow_is_in_the_table_and_every_arrow_of_the_table_is_drawn() {
        assert!(complaints_of(&[("above", &["below"]), ("under", &["below"])]).is_empty());
        assert!(complaints_of(&[])[0].contains("'above' may not know 'below'"));
        let stale =
            complaints_of(&[("above", &["below"]), ("under", &["below"]), ("below", &["above"])]);
        assert!(stale[0].contains("'below' does not name 'above'"), "{stale:?}");
    }
}
