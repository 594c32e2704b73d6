//! The permitted dependencies between crates, compared with the manifests.

use crate::source::Source;

/// Each crate of the repository and the other ones that it may depend on, also in its tests. A new
/// arrow is a decision: it changes this table, the manifest and ARCHITECTURE.md together.
const ARROWS: &[(&str, &[&str])] = &[
    ("marula-error", &[]),
    ("marula-bson", &[]),
    ("marula-wire", &["bson", "error"]),
    ("marula-query", &["bson", "error"]),
    ("marula-storage", &[]),
    ("marula-embedded", &["storage"]),
    ("marula-distributed", &["storage"]),
    ("marula-backup", &[]),
    ("marula-db", &["storage", "query", "bson", "error"]),
    ("marula-plan", &["db", "query", "bson", "error", "storage"]),
    ("marula-operation", &["plan", "db", "query", "bson", "error", "storage"]),
    ("marula-server", &["operation", "plan", "db", "wire", "query", "bson", "error", "storage"]),
    (
        "marula",
        &["server", "embedded", "distributed", "backup", "storage", "wire", "bson", "error", "db"],
    ),
    ("marula-simulation", &["distributed", "db", "query", "bson", "error", "storage"]),
    ("marula-bench", &[]),
    ("marula-diff", &["wire", "bson"]),
    ("xtask", &[]),
];

/// Complains about dependencies in manifests that the table does not have, and about arrows of the
/// table that a manifest does not have.
pub(crate) fn check(sources: &[Source], complaints: &mut Vec<String>) {
    for manifest in sources.iter().filter(|source| source.path.ends_with("Cargo.toml")) {
        // Packages with their own workspace (fuzzing, the driver's tests) are not part of the
        // product.
        let of_product = ["crates/", "bench/", "diff/", "xtask/"]
            .iter()
            .any(|folder| manifest.path.starts_with(folder));
        let Some(name) = package(&manifest.text).filter(|_| of_product) else { continue };
        let Some((_, allowed)) = ARROWS.iter().find(|(krate, _)| *krate == name) else {
            complaints.push(format!(
                "{}: crate '{name}' is not in ARROWS of xtask; add its row",
                manifest.path
            ));
            continue;
        };
        let used = dependencies(&manifest.text);
        for to in allowed.iter().filter(|to| !used.contains(to)) {
            complaints.push(format!(
                "{}: ARROWS of xtask lets '{name}' know 'marula-{to}', which it does not use",
                manifest.path
            ));
        }
        for to in used {
            if !allowed.contains(&to) {
                complaints.push(format!(
                    "{}: '{name}' may not know 'marula-{to}' (ARROWS of xtask); hand in what it needs as an argument",
                    manifest.path
                ));
            }
        }
    }
}

fn package(manifest: &str) -> Option<&str> {
    manifest.lines().find_map(|line| line.strip_prefix("name = "))?.split('"').nth(1)
}

/// Returns the repository's crates that a manifest depends on, without their prefix.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.contains("dependencies");
        } else if inside && let Some(rest) = line.strip_prefix("marula-") {
            found.push(
                rest.split(|c: char| !c.is_alphanumeric() && c != '-').next().unwrap_or(rest),
            );
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints_of(manifest: &str) -> Vec<String> {
        let source = Source { path: "crates/x/Cargo.toml".into(), text: manifest.into() };
        let mut complaints = Vec::new();
        check(&[source], &mut complaints);
        complaints
    }

    #[test]
    fn an_arrow_of_the_table_is_fine_and_another_is_not() {
        let manifest = |to: &str| {
            format!(
                "[package]\nname = \"marula-query\"\n[dependencies]\nmarula-error = 1\n{to}.workspace = true\n"
            )
        };
        assert!(complaints_of(&manifest("marula-bson")).is_empty());
        // One that it may not have, and one that it does not have.
        let complaints = complaints_of(&manifest("marula-db"));
        assert!(complaints[0].contains("which it does not use"), "{complaints:?}");
        assert!(complaints[1].contains("may not know 'marula-db'"), "{complaints:?}");
    }

    #[test]
    fn test_dependencies_are_arrows_too() {
        let manifest = "[package]\nname = \"marula-storage\"\n[dev-dependencies]\nmarula-server = { path = \"../s\" }\n";
        assert_eq!(complaints_of(manifest).len(), 1);
    }

    #[test]
    fn a_crate_without_a_row_is_named() {
        assert!(complaints_of("[package]\nname = \"marula-new\"\n")[0].contains("marula-new"));
    }
}
