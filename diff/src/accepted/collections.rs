//! Differences of collections with options, and of the errors of their unique keys.

use super::Accepted;
use super::looks::{commands, count, messages, without_id_version};
use crate::tree::Tree;

pub(super) const ROWS: &[Accepted] = &[
    Accepted {
        words: "The index on `_id` always has version 2",
        applies: |_, difference| {
            let [ours, theirs] = difference.replies.clone().map(without_id_version);
            difference.class == "results" && ours == theirs
        },
    },
    Accepted {
        words: "A measurement within the first minute, hour or day of the range of dates is stored",
        applies: |case, difference| {
            let is_series = commands(case).any(|one| count(one, &|name| name == "timeseries") > 0);
            difference.class == "code 0 for 159" && is_series
        },
    },
    Accepted {
        words: "A condition on a field that is neither the time nor the meta value is not evaluated on buckets",
        applies: |case, difference| {
            let has =
                |wanted: &str| commands(case).any(|one| count(one, &|name| name == wanted) > 0);
            // It fails on a measurement that mongod does not unpack.
            difference.class.ends_with(" for 0") && has("timeseries") && has("$expr")
        },
    },
    Accepted {
        words: "A measurement whose meta value is undefined can be read",
        applies: |_, difference| difference.class.ends_with(" for 5369600"),
    },
    Accepted {
        words: "A field that a measurement has twice has its first value",
        applies: |case, difference| {
            fn has_twice(tree: &Tree) -> bool {
                match tree {
                    Tree::Leaf(_) => false,
                    Tree::Array(items) => items.iter().any(has_twice),
                    Tree::Doc(fields) => fields.iter().enumerate().any(|(at, (name, value))| {
                        fields[..at].iter().any(|(other, _)| other == name) || has_twice(value)
                    }),
                }
            }
            let is_series = commands(case).any(|one| count(one, &|name| name == "timeseries") > 0);
            difference.class == "results" && is_series && commands(case).any(has_twice)
        },
    },
    Accepted {
        words: "mongod cannot run `$out` to a clustered collection that has a collation",
        applies: |case, difference| {
            let is_out = commands(case).any(|one| count(one, &|name| name == "$out") > 0);
            difference.class.ends_with(" for 197") && is_out
        },
    },
    Accepted {
        words: "A duplicate `_id` of a clustered collection is shown as it was inserted",
        applies: |case, difference| {
            let is_clustered =
                commands(case).any(|one| count(one, &|name| name == "clusteredIndex") > 0);
            let [ours, theirs] = messages(difference);
            let is_shown = matches!(&*difference.class, "message 11000" | "reply");
            is_clustered
                && ours.starts_with("E11000")
                && (is_shown || theirs.starts_with("KeyString format error"))
        },
    },
    Accepted {
        words: "A string in an error of a duplicate key under a collation",
        applies: |_, difference| {
            let front = |text: &String| {
                let (front, _) = text.split_once("dup key: ")?;
                Some(front.to_owned()).filter(|front| front.contains(" collation: "))
            };
            let [ours, theirs] = messages(difference);
            difference.class == "message 11000"
                && front(&ours).is_some()
                && front(&ours) == front(&theirs)
        },
    },
];
