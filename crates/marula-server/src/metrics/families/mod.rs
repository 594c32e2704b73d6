//! The tables of families: each row is a metric as Prometheus sees it.
//!
//! A new metric is a row here, a row in docs/metrics.md, and perhaps a panel in
//! docs/grafana/marula.json; a test compares all three with a server's output. The number of series
//! does not depend on the data: no label has the name of a database, a collection or a client.

mod connections;
mod operations;
mod process;
mod storage;

use super::exposition::Family;

/// All tables, in the order in which they are exposed.
pub(super) static ALL: [&[Family]; 4] =
    [process::FAMILIES, operations::FAMILIES, connections::FAMILIES, storage::FAMILIES];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::exposition::Kind;
    use super::*;

    #[test]
    fn names_are_those_of_prometheus_conventions() {
        let mut seen = HashSet::new();
        for family in ALL.iter().copied().flatten() {
            let Family { name, kind, help, .. } = family;
            assert!(seen.insert(name), "{name} stands in the tables twice");
            assert!(name.starts_with("marula_") || name.starts_with("process_"), "{name}");
            let is_counter = name.ends_with("_total");
            assert_eq!(is_counter, *kind == Kind::Counter, "{name}");
            assert_eq!(name.ends_with("_duration_seconds"), *kind == Kind::Histogram, "{name}");
            assert!(!help.is_empty() && !help.ends_with('.') && !help.contains('\n'), "{name}");
        }
    }
}
