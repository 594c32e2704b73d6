//! The differences found, grouped so that each fault is reported once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::case::Case;
use crate::compare::Difference;
use crate::shell;
use crate::tree::Tree;

/// The number of cases after which a fault is no longer reduced.
const SHRUNK_MAX: usize = 3;

#[derive(Default)]
pub(crate) struct Report {
    cases: BTreeMap<&'static str, usize>,
    groups: BTreeMap<String, Group>,
    accepted: BTreeMap<&'static str, usize>,
}

struct Group {
    kind: &'static str,
    class: String,
    operators: BTreeSet<String>,
    shrunk: usize,
    count: usize,
}

impl Report {
    pub(crate) fn ran(&mut self, kind: &'static str) {
        *self.cases.entry(kind).or_default() += 1;
    }

    pub(crate) fn total(&self) -> usize {
        self.cases.values().sum()
    }

    /// Counts a difference in a group that it very likely belongs to: same kind, same class, same
    /// operators and more.
    pub(crate) fn is_known(&mut self, case: &Case, class: &str) -> bool {
        let operators = case.operators();
        let group = self.groups.values_mut().find(|group| {
            group.shrunk >= SHRUNK_MAX
                && group.kind == case.kind
                && group.class == class
                && group.operators.is_subset(&operators)
        });
        group.map(|group| group.count += 1).is_some()
    }

    /// Counts an explained difference.
    pub(crate) fn accept(&mut self, words: &'static str) {
        *self.accepted.entry(words).or_default() += 1;
    }

    /// Adds a reduced case without an explanation; prints it if its signature is new.
    pub(crate) fn add(&mut self, case: &Case, difference: &Difference, origin: &str) {
        let signature =
            format!("{} {} {}", case.kind, difference.class, shape(&case.command, true));
        if let Some(group) = self.groups.get_mut(&signature) {
            group.count += 1;
            group.shrunk += 1;
            return;
        }
        print(case, difference, origin);
        let group = Group {
            kind: case.kind,
            class: difference.class.clone(),
            operators: case.operators(),
            shrunk: 1,
            count: 1,
        };
        self.groups.insert(signature, group);
    }

    /// Adds a server that crashed.
    pub(crate) fn add_crash(&mut self, case: &Case, server: &str, ending: &str, origin: &str) {
        println!("--- {server} {ending} ({}), {origin}\n{}", case.kind, shell::text(case));
        let group = Group {
            kind: case.kind,
            class: format!("{server} {ending}"),
            operators: case.operators(),
            shrunk: 1,
            count: 1,
        };
        self.groups.insert(format!("{server} {ending} {}", shape(&case.command, true)), group);
    }

    /// Returns whether every difference is explained.
    pub(crate) fn is_clean(&self) -> bool {
        self.groups.is_empty()
    }

    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        let kinds: Vec<String> =
            self.cases.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let _ = writeln!(text, "{} cases: {}", self.total(), kinds.join(", "));
        for (words, count) in &self.accepted {
            let _ = writeln!(text, "{count:7}  accepted: {words}");
        }
        for (signature, group) in &self.groups {
            let _ = writeln!(text, "{:7}  {signature}", group.count);
        }
        let _ = write!(text, "{} differences", self.groups.len());
        text
    }
}

/// Prints a difference as text for mongosh.
pub(crate) fn print(case: &Case, difference: &Difference, origin: &str) {
    println!("--- {} ({}), {origin}", difference.class, case.kind);
    print!("{}", shell::text(case));
    for (name, reply) in ["marula", "mongod"].iter().zip(&difference.replies) {
        println!("// {name}: {}", shell::value(reply));
    }
    println!();
}

/// Returns a command without its details: names of fields and values are replaced by their types.
fn shape(tree: &Tree, top: bool) -> String {
    match tree {
        Tree::Leaf(leaf) => match leaf.get().as_str() {
            Some(text) if text.starts_with(b"$") => "path".to_owned(),
            _ => leaf.kind().alias().to_owned(),
        },
        Tree::Array(items) => {
            let mut shapes: Vec<String> = items.iter().map(|item| shape(item, false)).collect();
            shapes.dedup();
            format!("[{}]", shapes.join(","))
        }
        Tree::Doc(fields) => {
            let shapes: Vec<String> = fields
                .iter()
                .filter(|(name, _)| !top || !matches!(name.as_str(), "cursor" | "batchSize"))
                .map(|(name, value)| {
                    let name = if top || name.starts_with('$') { name.as_str() } else { "f" };
                    let inner = shape(value, false);
                    if top && inner == "string" {
                        name.to_owned()
                    } else {
                        format!("{name}:{inner}")
                    }
                })
                .collect();
            format!("{{{}}}", shapes.join(","))
        }
    }
}
