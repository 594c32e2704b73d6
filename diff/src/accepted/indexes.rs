//! Differences of plans: documents that mongod misses, and indexes that are not used.

use marula_bson::{Type, Value};

use super::Accepted;
use super::looks::{
    commands, count, first_batch, has_kind, holds, mentions, messages, names_a_place,
};
use crate::case::{Case, key_of};
use crate::compare::{Difference, sort_fields};
use crate::tree::Tree;

pub(super) const ROWS: &[Accepted] = &[
    Accepted {
        words: "`{ a: { $gte: MinKey } }` does not use a wildcard index",
        applies: |case, difference| {
            let is_wildcard =
                |index: &Tree| key_of(index).fields().iter().any(|(name, _)| name.contains("$**"));
            let is_end = |value: Value<'_>| matches!(value, Value::MinKey | Value::MaxKey);
            // Otherwise what the index shows is the difference.
            let [ours, theirs] = messages(difference);
            case.kind == "metadata"
                && case.indexes.iter().any(is_wildcard)
                && holds(case, &is_end)
                && (difference.class == "results"
                    || shows_entries(case)
                    || ours.contains("wildcard index")
                    || theirs.contains("$meta projection"))
        },
    },
    Accepted {
        words: "`{ $meta: \"indexKey\" }`, with `returnKey` and in `explain`",
        applies: |case, difference| {
            difference.class == "results"
                && shows_entries(case)
                && case.indexes.iter().any(|index| index.get("collation").is_some())
                && holds(case, &|value| value.as_str().is_some_and(|text| !text.is_empty()))
        },
    },
    Accepted {
        words: "The fields of a `2d` index after the location have an entry for each element of an array",
        applies: |case, difference| {
            let is_compound = |index: &Tree| key_of(index).fields().len() > 1;
            case.kind == "metadata"
                && difference.class == "results"
                && case.indexes.iter().any(|index| is_compound(index) && is_flat(index))
                && shows_entries(case)
        },
    },
    Accepted {
        words: "A search of a `2d` index across the 180th meridian",
        applies: |case, difference| {
            let stored: Vec<[f64; 2]> = case.documents.iter().flat_map(points).collect();
            let is_beyond =
                |asked: &[f64; 2]| stored.iter().any(|stored| (stored[0] - asked[0]).abs() > 180.0);
            let [ours, theirs] = difference.replies.each_ref().map(first_batch);
            difference.class == "results"
                && case.indexes.iter().any(is_flat)
                && points(&case.command).iter().any(is_beyond)
                && theirs.iter().all(|document| ours.contains(document))
        },
    },
    Accepted {
        words: "A search by distance with a hint of an index whose first field is another",
        applies: |case, difference| {
            let is_behind = |index: &Tree| {
                let mut key = key_of(index).fields().iter();
                key.next().is_some_and(|(_, kind)| kind.text().is_none())
                    && key.any(|(_, kind)| kind.text().is_some_and(|kind| kind.starts_with("2d")))
            };
            // An expression may fail on the key that only mongod's walk has.
            let reads_key = difference.class.starts_with("code 0 for")
                && count(&case.command, &|name| name == "$meta") > 0;
            (difference.class == "results" || reads_key)
                && case.command.get("hint").is_some()
                && case.indexes.iter().any(is_behind)
                && count(&case.command, &|name| name.starts_with("$near") || name == "$geoNear") > 0
        },
    },
    Accepted {
        words: "mongod counts the parts of an index's path modulo 256",
        applies: |case, difference| {
            let theirs = &messages(difference)[1];
            let parts_of = |path: &str| path.matches('.').count() + 1;
            let parts = theirs.split([' ', ',']).map(parts_of);
            let is_refused = difference.class == "code 0 for 67"
                && theirs.contains("Index keys cannot be an empty field")
                && parts.max().is_some_and(|parts| parts >= 256);
            // The index of a list, or one that later commands use, is missing.
            let mut of_indexes = case.indexes.iter().flat_map(|index| key_of(index).fields());
            let is_missing = difference.class == "results"
                && of_indexes.any(|(path, _)| parts_of(path) % 256 == 0);
            is_refused || is_missing
        },
    },
    Accepted {
        words: "An aggregation whose stages ask for index keys reads the documents",
        applies: |case, difference| {
            difference.class == "results"
                && case.command.get("aggregate").is_some()
                && holds(case, &is_index_key)
                && (has_kind(&difference.replies[1], Type::Null) || differs_in_order(difference))
        },
    },
    Accepted {
        words: "A search by distance uses an index whose first field has a negated condition",
        applies: |case, difference| {
            let searches = ["$near", "$nearSphere", "$geoNear"];
            difference.class == "code 0 for 291"
                && count(&case.command, &|name| searches.contains(&name)) > 0
                && count(&case.command, &|name| matches!(name, "$ne" | "$nin" | "$not")) > 0
        },
    },
    Accepted {
        words: "mongod misses a point on the border of a polygon that is a border of cells",
        applies: |case, difference| {
            let corners = points(&case.command);
            let [ours, theirs] = [0, 1].map(|number| first_batch(&difference.replies[number]));
            let is_on_border =
                |doc: &&Tree| points(doc).iter().any(|point| is_on_border(point, &corners));
            let mut more = ours.iter().filter(|doc| !theirs.contains(doc));
            difference.class == "results"
                && case.kind == "place"
                && theirs.iter().all(|doc| ours.contains(doc))
                && more.all(|doc| is_on_border(&doc))
        },
    },
    Accepted {
        words: "a line that begins or ends on the border of a polygon is within it",
        applies: |case, difference| {
            let corners = points(&case.command);
            let [ours, theirs] = [0, 1].map(|number| first_batch(&difference.replies[number]));
            let is_explained =
                |doc: &&Tree| points(doc).iter().any(|point| is_on_border(point, &corners));
            let only = |one: &[Tree], other: &[Tree]| {
                one.iter().filter(|doc| !other.contains(doc)).all(|doc| is_explained(&doc))
            };
            difference.class == "results"
                && case.kind == "place"
                && mentions(case, "$geoWithin")
                && only(ours, theirs)
                && only(theirs, ours)
        },
    },
    Accepted {
        words: "`{ $meta: \"indexKey\" }` of a wildcard index names a value by the path of its entry",
        applies: |case, difference| {
            let is_wildcard =
                |index: &Tree| key_of(index).fields().iter().any(|(path, _)| path.ends_with("$**"));
            difference.class == "results"
                && case.indexes.iter().any(is_wildcard)
                && (mentions(case, "$meta") || mentions(case, "returnKey"))
                && count(&difference.replies[0], &|name| name == "$_path") > 0
        },
    },
    Accepted {
        words: "An `$or` with a sort by a field that has arrays in the branches' indexes is sorted in memory",
        applies: |case, difference| {
            let [ours, theirs] = difference.replies.each_ref().map(|reply| reply.get("cursor"));
            let part = |cursor: Option<&Tree>, name| cursor?.get(name).cloned();
            difference.class == "results"
                && !case.indexes.is_empty()
                && case.command.get("sort").is_some()
                && count(&case.command, &|name| name == "$or") > 0
                && part(ours, "firstBatch") == part(theirs, "firstBatch")
                && case.documents.iter().any(holds_array)
                && part(theirs, "id") == Some(Tree::of(0_i64))
        },
    },
    Accepted {
        words: "**A cursor over an index while its documents change.**",
        applies: |case, difference| {
            let is_planned = case.command.get("sort").is_some() || mentions(case, "$or");
            let changes = ["insert", "update", "delete", "findAndModify", "dropIndexes"];
            let is_changed = |step: &Tree| changes.iter().any(|name| step.get(name).is_some());
            let is_told = difference.class == "results" || difference.class == "code 0 for 175";
            case.kind == "getMore"
                && !case.indexes.is_empty()
                && is_planned
                && is_told
                && (case.steps.iter().any(is_changed) || differs_in_order(difference))
        },
    },
    Accepted {
        words: "Where the walks of several indexes are merged into the order of a sort",
        applies: |case, difference| {
            let sort = case.command.get("sort").map_or(&[][..], Tree::fields);
            let [ours, theirs] = difference.replies.each_ref().map(batch);
            let lacks_field = |doc: &Tree| sort.iter().any(|(path, _)| doc.get(path).is_none());
            let in_order = |batch: &[Tree]| {
                let mut batch = batch.to_vec();
                batch.sort_by_key(crate::shell::value);
                batch
            };
            // A limit, or the end of a batch, leaves out others of a wrong order.
            let is_cut = ["limit", "skip"].iter().any(|field| case.command.get(field).is_some())
                || difference.replies.iter().any(is_part);
            difference.class == "results"
                && mentions(case, "$or")
                && !case.indexes.is_empty()
                && ours.iter().chain(theirs).any(lacks_field)
                && ours.len() == theirs.len()
                && (is_cut || in_order(ours) == in_order(theirs))
        },
    },
    Accepted {
        words: "A failed update or findAndModify may leave the mark",
        applies: |_, difference| {
            let flags = difference
                .replies
                .each_ref()
                .map(|reply| reply.get("plan").and_then(|plan| plan.get("isMultiKey")).cloned());
            difference.class == "marks" && flags == [Some(Tree::of(true)), Some(Tree::of(false))]
        },
    },
    Accepted {
        words: "A symbol is sorted and indexed under a collation",
        applies: |case, difference| {
            let is_asked = difference.class.ends_with(" for 201")
                || ["results", "reply"].contains(&&*difference.class);
            let is_sorted = commands(case).any(|one| {
                count(one, &|name| matches!(name, "sort" | "$sort" | "sortBy")) > 0
                    && count(one, &|name| name == "collation") > 0
            });
            let is_indexed = case.indexes.iter().any(|index| index.get("collation").is_some());
            let creates = commands(case).any(|one| {
                count(one, &|name| name == "create") > 0
                    && count(one, &|name| name == "collation") > 0
            });
            let bounds = ["min", "max"].iter().any(|name| case.command.get(name).is_some());
            let is_bounded = bounds && difference.class.starts_with("code 51174 for ");
            (is_asked && (is_sorted || creates) || is_indexed || is_bounded)
                && (holds(case, &|value| matches!(value, Value::Symbol(_)))
                    || commands(case).any(|one| has_kind(one, Type::Symbol)))
        },
    },
    Accepted {
        words: "A sort by `a.0` and by another path through `a` is not rejected for parallel arrays",
        applies: |case, difference| {
            let mut is_sorted = false;
            case.command.walk(&mut |name, value| {
                is_sorted |= matches!(name, "sort" | "$sort") && count(value, &names_a_place) > 0;
            });
            let is_told = difference.class.ends_with(" for 2");
            is_told && messages(difference)[1].contains("parallel arrays") && is_sorted
        },
    },
    Accepted {
        words: "For an index on a field and on a part of it",
        applies: |case, difference| {
            let has_part = |index: &Tree| {
                let paths = || key_of(index).fields().iter().map(|(path, _)| path.as_str());
                paths().any(|path| {
                    paths().any(|other| {
                        other.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
                    })
                })
            };
            case.kind == "indexed"
                && difference.class == "results"
                && case.command.get("projection").is_some()
                && case.indexes.iter().any(has_part)
        },
    },
    Accepted {
        words: "The reason why a hinted wildcard index cannot be used",
        applies: |case, difference| {
            let is_wildcard =
                |index: &Tree| count(index, &|name| name == "$**" || name.ends_with(".$**")) > 0;
            matches!(&*difference.class, "message 291" | "code 0 for 291")
                && case.command.get("hint").is_some()
                && case.indexes.iter().any(is_wildcard)
        },
    },
    Accepted {
        words: "For an array in an array, a wildcard index on a part of documents",
        applies: |case, difference| {
            let is_on_part = |index: &Tree| count(index, &|name| name.ends_with(".$**")) > 0;
            let is_list = |tree: &Tree| matches!(tree, Tree::Array(_));
            let mut has_nested = false;
            let mut look = |_: &str, value: &Tree| {
                has_nested |= value.items().iter().any(is_list);
            };
            case.documents.iter().for_each(|doc| doc.walk(&mut look));
            case.command.walk(&mut look);
            difference.class == "results"
                && difference.replies[0].get("keysPerIndex").is_some()
                && case.indexes.iter().any(is_on_part)
                && has_nested
        },
    },
    Accepted {
        words: "If mongod misses documents through a wildcard index, Marula does not use it",
        applies: |case, difference| {
            let is_wildcard =
                |index: &Tree| count(index, &|name| name == "$**" || name.ends_with(".$**")) > 0;
            let mut asks_for_ends = false;
            case.command.walk(&mut |_, value| {
                asks_for_ends |= matches!(value.kind(), Type::Null | Type::MinKey | Type::MaxKey);
            });
            let found = difference.replies.each_ref().map(|reply| first_batch(reply).len());
            let mut names_place = false;
            case.command.walk(&mut |name, _| names_place |= names_a_place(name));
            let is_hinted = case.command.get("hint").is_some();
            let is_refused = difference.class == "code 291 for 0" && is_hinted && names_place;
            let is_missing = difference.class == "results" && asks_for_ends && found[0] > found[1];
            let is_end_refused = difference.class == "code 291 for 0" && is_hinted && asks_for_ends;
            matches!(case.kind, "indexed" | "metadata")
                && case.indexes.iter().any(is_wildcard)
                && (is_refused || is_end_refused || is_missing)
        },
    },
    Accepted {
        words: "A number in an index's path is only an array index",
        applies: |case, difference| {
            let mut asks_for_none = count(&case.command, &|name| name == "$exists") > 0;
            case.command.walk(&mut |_, value| {
                asks_for_none |= matches!(value.kind(), Type::Null | Type::MinKey | Type::MaxKey);
            });
            let shown = case.command.get("projection");
            let shows_place = shown.is_some_and(|shown| count(shown, &names_a_place) > 0);
            // A document that mongod finds may be one that it cannot sort.
            let is_sorted = difference.class == "code 0 for 2"
                && messages(difference)[1].contains("parallel arrays");
            case.kind == "indexed"
                && (difference.class == "results" || is_sorted)
                && (asks_for_none || shows_place)
                && case.indexes.iter().any(|index| count(index, &names_a_place) > 0)
        },
    },
    Accepted {
        words: "Through an index that has a collation and arrays, mongod misses",
        applies: |case, difference| {
            let mut asks_for_least = false;
            case.command.walk(&mut |name, value| {
                asks_for_least |= name == "$gte" && value.kind() == Type::MinKey;
            });
            let has_collation = |index: &Tree| index.get("collation").is_some();
            let found = difference.replies.each_ref().map(|reply| first_batch(reply).len());
            case.kind == "indexed"
                && difference.class == "results"
                && asks_for_least
                && case.indexes.iter().any(has_collation)
                && found[0] > found[1]
        },
    },
];

/// Returns whether it is a `2d` index.
fn is_flat(index: &Tree) -> bool {
    let mut key = key_of(index).fields().iter();
    key.any(|(_, kind)| kind.text().is_some_and(|kind| kind == "2d"))
}

/// Returns whether a reply has a batch that is not its cursor's only one.
fn is_part(reply: &Tree) -> bool {
    reply.get("cursor").is_some_and(|cursor| {
        cursor.get("nextBatch").is_some() || cursor.get("id") != Some(&Tree::of(0_i64))
    })
}

/// Returns whether a value of a document is an array.
fn holds_array(document: &Tree) -> bool {
    let is_array = |(_, value): &(String, Tree)| matches!(value, Tree::Array(_));
    document.fields().iter().any(|field| is_array(field) || holds_array(&field.1))
}

/// Returns the documents of a reply's first or next batch.
fn batch(reply: &Tree) -> &[Tree] {
    let next = reply.get("cursor").and_then(|cursor| cursor.get("nextBatch"));
    next.map_or(first_batch(reply), Tree::items)
}

/// Returns whether two replies differ only in the order of the fields of their documents.
fn differs_in_order(difference: &Difference) -> bool {
    let [ours, theirs] = difference.replies.clone().map(|mut reply| {
        sort_fields(&mut reply);
        reply
    });
    ours == theirs
}

/// Returns whether a point is a corner, or is on a border along a meridian or the equator: other
/// borders are curves, which the generator's points are not on.
fn is_on_border(point: &[f64; 2], corners: &[[f64; 2]]) -> bool {
    let share = |axis: usize| corners.iter().filter(|it| it[axis] == point[axis]).count() > 1;
    corners.contains(point) || share(0) || point[1] == 0.0 && share(1)
}

/// Returns the pairs of numbers in a tree.
fn points(tree: &Tree) -> Vec<[f64; 2]> {
    let number = |tree: &Tree| match tree {
        Tree::Leaf(leaf) => leaf.get().as_f64(),
        _ => None,
    };
    let mut found = Vec::new();
    tree.walk(&mut |_, value| {
        if let [x, y] = value.items()
            && let (Some(x), Some(y)) = (number(x), number(y))
        {
            found.push([x, y]);
        }
    });
    found
}

/// Returns whether a command shows the entries of an index.
fn shows_entries(case: &Case) -> bool {
    holds(case, &is_index_key) || mentions(case, "returnKey")
}

/// Returns whether a value is the name of the metadata that has the entry of an index.
fn is_index_key(value: Value<'_>) -> bool {
    value.as_str().is_some_and(|name| name == "indexKey")
}
