//! Differences of stages, and of the order of their results.

use std::collections::BTreeSet;

use marula_bson::Value;

use super::Accepted;
use super::looks::{
    commands, count, first_batch, has_twice, mentions, messages, pipelines, sorted, takes_id_away,
    unordered_tree,
};
use crate::case::failure;
use crate::tree::Tree;

pub(super) const ROWS: &[Accepted] = &[
    Accepted {
        words: "Of a document with a field twice, a stage or a projection shows what is stored",
        applies: |case, difference| {
            let shows = ["pipeline", "projection", "fields"];
            let mut is_shown = false;
            for command in commands(case) {
                is_shown |= shows.iter().any(|name| command.get(name).is_some());
            }
            let mut names = BTreeSet::new();
            let shown = difference.replies.iter().chain(commands(case));
            shown.for_each(|tree| note_repeated(tree, &mut names));
            // Documents that come in any order were compared by their bytes, and had others.
            let [ours, theirs] = difference.replies.clone().map(|reply| {
                let rest = without(reply, &names);
                if case.is_unordered() { unordered_tree(rest) } else { rest }
            });
            case.kind == "repeated"
                && difference.class == "results"
                && is_shown
                && !names.is_empty()
                && (ours == theirs || differs_only_where_repeated(&difference.replies))
        },
    },
    Accepted {
        words: "A `$sort` that names a field twice sorts by the first",
        applies: |case, difference| {
            let mut is_named_twice = false;
            for command in commands(case) {
                command.walk(&mut |name, value| {
                    is_named_twice |= name == "$sort" && has_twice(value);
                });
            }
            matches!(&*difference.class, "results" | "message 2") && is_named_twice
        },
    },
    Accepted {
        words: "**Locations of equal distance** come in the order of the index",
        applies: |case, difference| {
            let mut field = None;
            case.command.walk(&mut |name, value| {
                if name == "distanceField" {
                    field = value.text();
                }
            });
            let distances = difference.replies.each_ref().map(|reply| {
                let mut found = Vec::new();
                reply.walk(&mut |name, value| {
                    if field.as_ref().is_some_and(|field| name == &**field) {
                        found.push(value.clone());
                    }
                });
                found
            });
            let [ours, theirs] = difference.replies.clone().map(unordered_tree);
            difference.class == "results"
                && !distances[0].is_empty()
                && distances[0] == distances[1]
                && ours == theirs
        },
    },
    Accepted {
        words: "A `$setWindowFields` without an output gives a document that has a field twice as it is",
        applies: |case, difference| {
            let mut is_bare = false;
            for command in commands(case) {
                command.walk(&mut |name, value| {
                    let output = value.get("output");
                    is_bare |= name == "$setWindowFields"
                        && output.is_some_and(|output| output.fields().is_empty());
                });
            }
            difference.class == "results" && case.kind == "repeated" && is_bare
        },
    },
    Accepted {
        words: "A field that one stage removes and a later one sets again is at the end",
        applies: |case, difference| {
            let sets = [
                "$set",
                "$addFields",
                "$project",
                "$unset",
                "$replaceRoot",
                "$replaceWith",
                "$fill",
                "$setWindowFields",
                "$lookup",
                "$graphLookup",
                "$unwind",
                "$densify",
                "$documents",
                "$setField",
                "includeArrayIndex",
            ];
            let of_view = Tree::Array(case.view.to_vec());
            let changes = commands(case).chain([&of_view]);
            let changes: usize =
                changes.map(|part| count(part, &|name| sets.contains(&name))).sum();
            let [ours, theirs] = difference.replies.clone().map(sorted);
            difference.class == "results" && changes > 1 && ours == theirs
        },
    },
    Accepted {
        words: "A `$densify` that reaches the last date",
        applies: |case, difference| {
            difference.class == "code 0 for 159"
                && count(&case.command, &|name| name == "$densify") > 0
                && messages(difference)[1].contains("Overflow while adding")
        },
    },
    Accepted {
        words: "A `CURRENT` that the `let` of a `$lookup` from a view binds",
        applies: |case, difference| {
            difference.class == "results" && !case.view.is_empty() && mentions(case, "CURRENT")
        },
    },
    Accepted {
        words: "which later stages then do not know",
        applies: |case, difference| {
            let mut asked = 0;
            let note = |value: Value<'_>| value.as_str().is_some_and(|name| name == "recordId");
            for one in commands(case) {
                one.walk(&mut |name, value| {
                    let is_asked = matches!(value, Tree::Leaf(leaf) if note(leaf.get()));
                    asked += usize::from(name == "$meta" && is_asked);
                });
            }
            difference.class == "results" && case.kind == "metadata" && asked > 1
        },
    },
    Accepted {
        words: "the sort field of a window with a `range` is the document's",
        applies: |case, difference| {
            let has = |wanted: &str| count(&case.command, &|name| name == wanted) > 0;
            let is_told = difference.class == "results" || difference.class.contains("5429414");
            is_told && ["CURRENT", "$setWindowFields", "range"].iter().all(|name| has(name))
        },
    },
    Accepted {
        words: "The documents of a `$sample` are random",
        applies: |case, difference| {
            let mut gives_some = false;
            case.command.walk(&mut |name, value| {
                let size = value.get("size").and_then(|size| match size {
                    Tree::Leaf(size) => size.get().as_f64(),
                    _ => None,
                });
                gives_some |= name == "$sample" && size.is_some_and(|size| size >= 1.0);
            });
            let errors = messages(difference);
            let has_failed = |text: &String| text.contains("PlanExecutor error");
            let is_other = errors.iter().all(|text| text.is_empty() || has_failed(text));
            gives_some && is_other && errors.iter().any(has_failed)
        },
    },
    Accepted {
        words: "The size of a `$facet`'s result is counted in stored form",
        applies: |case, difference| {
            difference.class.ends_with(" for 4031700")
                && count(&case.command, &|name| name == "$facet") > 0
        },
    },
    Accepted {
        words: "a computed partition that uses a variable of the outer `$lookup`",
        applies: |case, difference| {
            let mut is_computed = false;
            case.command.walk(&mut |name, value| {
                let names_one = |value: Value<'_>| {
                    let text = value.as_str();
                    text.is_some_and(|text| text.starts_with(b"$$")).then(|| Value::Null.to_buf())
                };
                if let ("partitionBy", Tree::Doc(_)) = (name, value) {
                    let mut without = value.clone();
                    without.map_leaves(&names_one);
                    is_computed |= without != *value;
                }
            });
            let is_told = difference.class == "results" || difference.class.ends_with(" for 0");
            is_told && is_computed && count(&case.command, &|name| name == "let") > 0
        },
    },
    Accepted {
        words: "the partitions get their last documents in the order in which they first occurred",
        applies: |case, difference| {
            let [ours, theirs] = difference.replies.clone().map(unordered_tree);
            difference.class == "results"
                && count(&case.command, &|name| name == "$densify") > 0
                && count(&case.command, &|name| name == "partitionByFields") > 0
                && ours == theirs
        },
    },
    Accepted {
        words: "the constants inside a `$unionWith` of a view are computed before the later stages are parsed",
        applies: |case, difference| {
            let has = |stage: &str| count(&case.command, &|name| name == stage) > 0;
            let [ours, theirs] = messages(difference);
            let is_of_constants = |text: &String| text.contains("Failed to optimize pipeline");
            let is_of_union =
                has("$unionWith") && theirs.starts_with("Failed to optimize pipeline");
            let is_of_join = has("$lookup") || has("$graphLookup");
            !case.view.is_empty()
                && (is_of_union || is_of_join && is_of_constants(&ours) && is_of_constants(&theirs))
        },
    },
    Accepted {
        words: "Documents with equal sort keys may come in another order",
        applies: |case, difference| {
            let has = |stage: &str| count(&case.command, &|name| name == stage) > 0;
            let unordered = ["$group", "$sortByCount", "$bucket"].iter().any(|stage| has(stage));
            // A part of a sorted result may end between equal documents.
            let cuts = |names: &Vec<String>| {
                let at = names.iter().position(|name| name == "$sort");
                let is_part = |name: &String| matches!(&**name, "$limit" | "$skip");
                at.is_some_and(|at| names[at..].iter().any(is_part))
            };
            // The same holds if a first batch ends between them.
            let goes_on = |reply: &Tree| {
                let id = reply.get("cursor").and_then(|cursor| cursor.get("id"));
                matches!(id, Some(Tree::Leaf(id)) if id.get() != Value::Int64(0))
            };
            let is_cut = pipelines(case).iter().any(cuts) || difference.replies.iter().all(goes_on);
            // Windows show the order of groups with equal sort keys.
            let windows = has("$setWindowFields") || has("$fill");
            let [ours, theirs] = difference.replies.clone().map(unordered_tree);
            difference.class == "results"
                && (has("$sort") && unordered && ours == theirs
                    || has("$sort") && is_cut && takes_id_away(case)
                    || windows && unordered)
        },
    },
    Accepted {
        words: "A `$geoNear` in the pipeline of a `$lookup` evaluates its `query` with the variables of each document",
        applies: |case, difference| {
            let joins = |pipeline: &Vec<String>| pipeline.iter().any(|name| name == "$lookup");
            difference.class == "results"
                && mentions(case, "$geoNear")
                && mentions(case, "let")
                && pipelines(case).iter().any(joins)
        },
    },
    Accepted {
        words: "`n` of `$minN` and similar accumulators is a long",
        applies: |_, difference| difference.class == "code 5787908 for 0",
    },
    Accepted {
        words: "If several documents or fields of `$setWindowFields` and `$fill` fail, another failure may be reported",
        applies: |case, difference| {
            let windows =
                count(&case.command, &|name| matches!(name, "$setWindowFields" | "$fill"));
            let is_cut = count(&case.command, &|name| name == "$limit") > 0;
            let [ours, theirs] = [0, 1].map(|side| failure(&difference.replies[side]));
            let executes =
                |(code, text): &(i32, String)| *code != 0 && text.starts_with("PlanExecutor error");
            windows > 0 && executes(&ours) && (executes(&theirs) || is_cut && theirs.0 == 0)
        },
    },
    Accepted {
        words: "It parses the moved stage again, and so rejects a `$set` of `$db`",
        applies: |case, difference| {
            difference.class == "code 0 for 168"
                && messages(difference)[1].contains("Unrecognized expression '$")
                && mentions(case, "$unionWith")
        },
    },
    Accepted {
        words: "An `$expr` that fails on a document is not always evaluated if an index supports",
        applies: |case, difference| {
            // The errors of an update's statements do not contain their origin.
            let is_update = commands(case)
                .any(|one| one.get("updates").is_some() || one.get("deletes").is_some());
            let executes = |reply: &Tree| {
                let (code, text) = failure(reply);
                text.contains("xecutor error")
                    || text.contains("while multiplanner was")
                    || is_update && code != 0 && !text.contains("Failed to optimize")
            };
            let names_id = commands(case).any(|one| count(one, &|name| name == "_id") > 0);
            let searches = ["$near", "$nearSphere", "$geoNear"];
            let by_distance =
                commands(case).any(|one| count(one, &|it| searches.contains(&it)) > 0);
            let makes_index = commands(case).any(|one| one.get("createIndexes").is_some());
            (case.kind == "indexed"
                || makes_index
                || names_id
                || by_distance && !case.indexes.is_empty())
                && (difference.class.starts_with("code")
                    || messages(difference)[1].contains("while multiplanner was"))
                && case.operators().contains("$expr")
                && difference.replies.iter().any(executes)
        },
    },
];

/// Returns whether documents that have a field twice are all that differs between two batches.
fn differs_only_where_repeated(replies: &[Tree; 2]) -> bool {
    let [ours, theirs] = replies.each_ref().map(first_batch);
    let mut pairs = ours.iter().zip(theirs);
    ours.len() == theirs.len()
        && pairs.all(|(ours, theirs)| ours == theirs || has_twice(ours) || has_twice(theirs))
}

/// Notes the names that a document has more than once, at any depth.
fn note_repeated(tree: &Tree, names: &mut BTreeSet<String>) {
    match tree {
        Tree::Leaf(_) => {}
        Tree::Array(items) => items.iter().for_each(|item| note_repeated(item, names)),
        Tree::Doc(fields) => {
            for (at, (name, value)) in fields.iter().enumerate() {
                if fields[..at].iter().any(|(other, _)| other == name) {
                    names.insert(name.clone());
                }
                note_repeated(value, names);
            }
        }
    }
}

/// Returns the tree without the fields of these names.
fn without(tree: Tree, names: &BTreeSet<String>) -> Tree {
    match tree {
        Tree::Leaf(value) => Tree::Leaf(value),
        Tree::Array(items) => {
            Tree::Array(items.into_iter().map(|item| without(item, names)).collect())
        }
        Tree::Doc(fields) => {
            let kept = fields.into_iter().filter(|(name, _)| !names.contains(name));
            Tree::Doc(kept.map(|(name, value)| (name, without(value, names))).collect())
        }
    }
}
