//! Differences of collections with options, and of the errors of their unique keys.

use super::Accepted;
use super::looks::{commands, first_batch, has_twice, mentions, messages, without_id_version};
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
        words: "A tailable cursor that has read nothing when the collection becomes empty",
        applies: |case, difference| {
            let reads_nothing = |step: &Tree| {
                step.get("tailable").is_some() && step.get("batchSize") == Some(&Tree::of(0))
            };
            let next = |number: usize| {
                let batch = difference.replies[number].get("cursor")?.get("nextBatch")?;
                Some(batch.items().is_empty())
            };
            case.kind == "tail"
                && difference.class == "results"
                && commands(case).any(reads_nothing)
                && commands(case).any(|step| step.get("delete").is_some())
                && (next(0), next(1)) == (Some(false), Some(true))
        },
    },
    Accepted {
        words: "those on measured values are checked, and not stored",
        applies: |case, difference| {
            let is_of_key = ["5930501", "16766", "183934"]
                .iter()
                .any(|code| difference.class == format!("code {code} for 0"));
            let is_partial =
                mentions(case, "timeseries") && mentions(case, "partialFilterExpression");
            is_of_key && is_partial
        },
    },
    Accepted {
        words: "A measurement within the first minute, hour or day of the range of dates is stored",
        applies: |case, difference| {
            let is_series = mentions(case, "timeseries");
            difference.class.ends_with(" for 159") && is_series
        },
    },
    Accepted {
        words: "An `$expr` on a measured value is not evaluated on buckets",
        applies: |case, difference| {
            // It fails on a measurement that mongod does not unpack, or on a bucket.
            let is_failure =
                difference.class.ends_with(" for 0") || difference.class.starts_with("code 0 for");
            is_failure && mentions(case, "timeseries") && mentions(case, "$expr")
        },
    },
    Accepted {
        words: "A condition on measurements may name a path that is none of an expression",
        applies: |case, difference| {
            let is_series = mentions(case, "timeseries");
            difference.class == "code 0 for 40353" && is_series
        },
    },
    Accepted {
        words: "A condition on measurements next to an empty one may have an `$elemMatch` with `$all`",
        applies: |case, difference| {
            let [_, theirs] = messages(difference);
            let is_not_read_back =
                theirs.contains("optimize pipeline :: caused by :: unknown top level operator");
            difference.class == "code 0 for 2" && is_not_read_back && mentions(case, "timeseries")
        },
    },
    Accepted {
        words: "A `$jsonSchema` within an `$elemMatch` of an update or delete of measurements",
        applies: |case, difference| {
            let is_schema = mentions(case, "$jsonSchema") && mentions(case, "$elemMatch");
            difference.class == "code 0 for 72" && mentions(case, "timeseries") && is_schema
        },
    },
    Accepted {
        words: "An update pipeline on a document with a field twice",
        applies: |case, difference| {
            let is_pipeline = commands(case).any(|one| {
                let mut found = false;
                one.walk(&mut |name, value| {
                    let is_update = matches!(name, "u" | "update" | "whenMatched");
                    found |= is_update && matches!(value, Tree::Array(_));
                });
                found
            });
            let is_told =
                difference.class == "results" || difference.class.ends_with(" for 7693400");
            is_told && is_pipeline && commands(case).any(has_twice)
        },
    },
    Accepted {
        words: "A view that cannot be created leaves no `system.views`",
        applies: |_, difference| {
            let replies = difference.replies.clone().map(without_id_version);
            let [ours, theirs] = replies.each_ref().map(first_batch);
            let is_it = |item: &&Tree| {
                item.get("name").is_some_and(|name| *name == Tree::of("system.views"))
            };
            let others = theirs.iter().filter(|item| !is_it(item));
            difference.class == "results" && ours.len() < theirs.len() && ours.iter().eq(others)
        },
    },
    Accepted {
        words: "`applyOps` rejects an `_id` that no insert can have",
        applies: |case, difference| {
            let is_of_id = ["code 53 for ", "code 54 for "]
                .iter()
                .any(|class| difference.class.starts_with(class));
            let [ours, _] = messages(difference);
            let is_condition = difference.class.starts_with("code 2 for ")
                && ["cannot compare to undefined", "unknown operator: "]
                    .iter()
                    .any(|message| ours.starts_with(message));
            case.kind == "applyOps" && (is_of_id || is_condition)
        },
    },
    Accepted {
        words: "With `allowAtomic: false`, mongod stores the document of a kind `i` with its `_id` where it is",
        applies: |case, difference| {
            let is_apart = case.kind == "applyOps"
                && commands(case).any(|one| one.get("allowAtomic") == Some(&Tree::of(false)));
            let [ours, theirs] = difference.replies.each_ref().map(first_batch);
            let is_same = ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|(ours, theirs)| sorted(ours) == sorted(theirs));
            difference.class == "results" && is_apart && is_same
        },
    },
    Accepted {
        words: "An `$expr` that is only the path of the meta value",
        applies: |case, difference| {
            let mut is_path = false;
            commands(case).for_each(|one| {
                one.walk(&mut |name, value| {
                    is_path |= name == "$expr" && matches!(value, Tree::Leaf(_));
                });
            });
            let is_told = difference.class == "results" || difference.class.ends_with(" for 0");
            is_told && is_path && mentions(case, "timeseries") && mentions(case, "metaField")
        },
    },
    Accepted {
        words: "A measurement whose meta value is undefined can be read",
        applies: |_, difference| difference.class.ends_with(" for 5369600"),
    },
    Accepted {
        words: "A validator with an empty condition in an `$or` is met",
        applies: |case, difference| {
            let is_evaluated = difference.class == "code 0 for 121" && mentions(case, "validator");
            is_evaluated && mentions(case, "$or") && mentions(case, "$expr")
        },
    },
    Accepted {
        words: "A field that a measurement has twice has its first value",
        applies: |case, difference| {
            let is_series = mentions(case, "timeseries");
            let is_told = ["results", "reply"].contains(&&*difference.class)
                || difference.class.ends_with(" for 4728000");
            is_told && is_series && commands(case).any(has_twice)
        },
    },
    Accepted {
        words: "mongod cannot run `$out` to a clustered collection that has a collation",
        applies: |case, difference| {
            let is_out = mentions(case, "$out");
            difference.class.ends_with(" for 197") && is_out
        },
    },
    Accepted {
        words: "The values of a `distinct` on a view or on measurements are sorted",
        applies: |case, difference| {
            let values = |reply: &Tree| {
                let mut values = reply.get("values").map_or(Vec::new(), |it| it.items().to_vec());
                values.sort_by_key(crate::shell::value);
                values
            };
            let [ours, theirs] = difference.replies.each_ref().map(values);
            let is_derived = mentions(case, "viewOn") || mentions(case, "timeseries");
            mentions(case, "distinct") && is_derived && !ours.is_empty() && ours == theirs
        },
    },
    Accepted {
        words: "A duplicate `_id` of a clustered collection is shown as it was inserted",
        applies: |case, difference| {
            let is_clustered = mentions(case, "clusteredIndex");
            let [ours, theirs] = messages(difference);
            let is_shown = matches!(&*difference.class, "message 11000" | "reply");
            let is_duplicate = ours.starts_with("E11000")
                || write_errors(&difference.replies[0]).any(|error| error.starts_with("E11000 "));
            is_clustered
                && is_duplicate
                && (is_shown || theirs.starts_with("KeyString format error"))
        },
    },
    Accepted {
        words: "A string in an error of a duplicate key under a collation",
        applies: |_, difference| {
            let [ours, theirs] = messages(difference);
            let is_first = front_of_collated(&ours).is_some()
                && front_of_collated(&ours) == front_of_collated(&theirs);
            let [ours, theirs] = difference.replies.each_ref().map(without_collated_keys);
            match &*difference.class {
                "message 11000" => is_first,
                // Of several errors, the first may be the same.
                "reply" => is_first || ours == theirs,
                _ => false,
            }
        },
    },
];

/// Returns the text of an error of a duplicate key under a collation before the key.
fn front_of_collated(text: &str) -> Option<String> {
    let (front, _) = text.split_once("dup key: ")?;
    Some(front.to_owned()).filter(|front| front.contains(" collation: "))
}

/// Returns a reply without the keys in its errors of duplicate keys under a collation.
fn without_collated_keys(reply: &Tree) -> Tree {
    match reply {
        Tree::Leaf(_) => reply.clone(),
        Tree::Array(items) => Tree::Array(items.iter().map(without_collated_keys).collect()),
        Tree::Doc(fields) => {
            let text = reply.get("errmsg").and_then(Tree::text);
            let front = text.and_then(|text| front_of_collated(&text));
            let shown = |(name, value): &(String, Tree)| match (name.as_str(), &front) {
                ("errmsg", Some(front)) => Some((name.clone(), Tree::of(front.as_str()))),
                ("keyValue", Some(_)) => None,
                _ => Some((name.clone(), without_collated_keys(value))),
            };
            Tree::Doc(fields.iter().filter_map(shown).collect())
        }
    }
}

/// Returns the fields of a document in the order of their names.
fn sorted(doc: &Tree) -> Vec<&(String, Tree)> {
    let mut fields: Vec<_> = doc.fields().iter().collect();
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    fields
}

/// Returns the messages of a reply's `writeErrors`.
fn write_errors(reply: &Tree) -> impl Iterator<Item = String> {
    let errors = reply.get("writeErrors").map_or(&[][..], Tree::items);
    errors.iter().filter_map(|error| error.get("errmsg")?.text())
}
