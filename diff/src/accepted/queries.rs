//! Differences of filters, updates and writes.

use marula_bson::Value;

use super::Accepted;
use super::looks::{
    commands, count, first_batch, holds, mentions, messages, pipelines, without_record_ids,
};
use crate::case::failure;
use crate::tree::Tree;

pub(super) const ROWS: &[Accepted] = &[
    Accepted {
        words: "A sort by an element's number (`a.0`) with a projection of the same field uses the stored value",
        applies: |case, difference| {
            let names = |field: &str| -> Vec<String> {
                let fields = case.command.get(field).map_or(&[][..], Tree::fields);
                fields.iter().map(|(path, _)| path.clone()).collect()
            };
            let first = |path: &String| path.split('.').next().map(str::to_owned);
            let has_number =
                |path: &String| path.split('.').any(|part| part.parse::<u32>().is_ok());
            let shown: Vec<_> =
                ["projection", "fields"].iter().flat_map(|field| names(field)).collect();
            let is_shown = |path: &String| shown.iter().any(|other| first(other) == first(path));
            let is_told = difference.class == "results" || difference.class.contains("16746");
            is_told && names("sort").iter().any(|path| has_number(path) && is_shown(path))
        },
    },
    Accepted {
        words: "mongod compares a no-break space as a character under",
        applies: |case, difference| {
            let is_text = |value: Value<'_>, text: &str| {
                value.as_str().is_some_and(|found| found.to_string().contains(text))
            };
            difference.class == "results"
                && mentions(case, "maxVariable")
                && holds(case, &|value| is_text(value, "shifted"))
                && holds(case, &|value| is_text(value, "\u{a0}"))
        },
    },
    Accepted {
        words: "Where a part of a positional path is missing, mongod looks for the rest of the path next to it",
        applies: |case, difference| {
            let is_deep =
                |name: &str| name.strip_suffix(".$").is_some_and(|path| path.contains('.'));
            ["code 0 for 51246", "code 0 for 51247", "results"].contains(&&*difference.class)
                && count(&case.command, &is_deep) > 0
        },
    },
    Accepted {
        words: "An update path of more than 250 parts is rejected (15)",
        applies: |case, difference| {
            let is_long = |name: &str| name.bytes().filter(|&byte| byte == b'.').count() >= 250;
            let is_long_name =
                |value: Value<'_>| value.as_str().is_some_and(|name| is_long(&name.to_string()));
            (difference.class.starts_with("code 15 for ") || difference.class == "message 15")
                && (commands(case).any(|one| count(one, &is_long) > 0)
                    || holds(case, &is_long_name))
        },
    },
    Accepted {
        words: "A shape that touches the edge of another in a single point intersects it",
        applies: |case, difference| {
            let [ours, theirs] = difference.replies.each_ref().map(first_batch);
            let intersects = count(&case.command, &|name| name == "$geoIntersects") > 0;
            let is_part = theirs.iter().all(|doc| ours.contains(doc));
            difference.class == "results" && intersects && is_part
        },
    },
    Accepted {
        words: "Lines that meet at a pole, which they give different longitudes",
        applies: |case, difference| {
            let is_pole = |value: Value<'_>| value.as_f64().is_some_and(|it| it.abs() == 90.0);
            let intersects = count(&case.command, &|name| name == "$geoIntersects") > 0;
            difference.class == "results" && intersects && holds(case, &is_pole)
        },
    },
    Accepted {
        words: "A `$sort` by a text score that there is none of is rejected",
        applies: |case, difference| {
            let is_replaced = commands(case).any(|one| count(one, &|name| name == "$sort") > 1);
            difference.class.starts_with("code 40218 for ") && is_replaced
        },
    },
    Accepted {
        words: "A sort by an element's number (`a.0`) with a projection of the same field",
        applies: |case, difference| {
            let mut by_number = false;
            case.command.walk(&mut |name, value| {
                if let ("sort", Tree::Doc(fields)) = (name, value) {
                    let is_number = |part: &str| part.parse::<u32>().is_ok();
                    by_number |= fields.iter().any(|(path, _)| path.split('.').any(is_number));
                }
            });
            difference.class == "results"
                && by_number
                && count(&case.command, &|name| name == "projection") > 0
        },
    },
    Accepted {
        words: "A single document found by `_id` is not sorted",
        applies: |case, difference| {
            let fails = |text: &String| {
                text.ends_with("keys that are parallel arrays")
                    || text.contains("Ambiguous field name")
            };
            let mut has_id = false;
            case.command.walk(&mut |name, value| {
                if matches!(name, "filter" | "query") {
                    has_id |= count(value, &|name| name == "_id") > 0;
                }
            });
            let is_told = matches!(&*difference.class, "code 0 for 2" | "code 0 for 16746");
            is_told && has_id && fails(&messages(difference)[1])
        },
    },
    Accepted {
        words: "The negation of an inequality with a symbol",
        applies: |_, difference| difference.class == "code 0 for 4457011",
    },
    Accepted {
        words: "A filter that names `_id` twice is evaluated as a whole",
        applies: |case, _| {
            let is_id = |field: &&(String, Tree)| field.0 == "_id";
            let mut is_twice = false;
            for command in commands(case) {
                command.walk(&mut |name, value| {
                    if let ("filter" | "query" | "q", Tree::Doc(fields)) = (name, value) {
                        is_twice |= fields.iter().filter(is_id).count() > 1;
                    }
                });
            }
            is_twice
        },
    },
    Accepted {
        words: "A `$jsonSchema` uses no index, and is evaluated before or after an `$expr`",
        applies: |case, difference| {
            let executes = |reply: &Tree| failure(reply).1.contains("xecutor error");
            let has_failed = (case.kind == "indexed" || case.operators().contains("$expr"))
                && difference.replies.iter().any(executes);
            // The first of the documents that a precondition finds.
            let is_other = ["code 2 for 0", "code 0 for 2"].contains(&&*difference.class)
                && case.command.get("preCondition").is_some();
            // The document that a write of one changes.
            let is_written = difference.class == "results"
                && commands(case).any(|one| one.get("createIndexes").is_some())
                && commands(case)
                    .any(|one| one.get("deletes").is_some() || one.get("updates").is_some());
            case.operators().contains("$jsonSchema") && (has_failed || is_other || is_written)
        },
    },
    Accepted {
        words: "An inclusion leaves an empty array of an array of scalars",
        applies: |case, difference| {
            let mut is_deep = count(&case.command, &|name| name.contains('.')) > 0;
            case.command.walk(&mut |name, value| {
                let is_inner = |(_, shown): &(String, Tree)| matches!(shown, Tree::Doc(inner) if inner.iter().any(|(name, _)| !name.starts_with('$')));
                is_deep |= name == "$project" && value.fields().iter().any(is_inner);
            });
            let is_told =
                difference.class == "results" || difference.class.starts_with("code 0 for");
            let kinds: Vec<String> = pipelines(case).concat();
            let projects = kinds.iter().filter(|name| *name == "$project").count();
            let asking =
                ["$addFields", "$set", "$group", "$sortByCount", "$bucket", "$unwind", "$lookup"];
            let asks = kinds.iter().any(|name| asking.contains(&name.as_str()));
            let is_asked = projects > 1 || projects > 0 && asks;
            // A message may print such an array.
            let is_shown = messages(difference)[1].contains("MISSING");
            is_told && (is_deep || !case.view.is_empty()) && is_asked || is_shown && projects > 0
        },
    },
    Accepted {
        words: "An upsert whose `$push` cuts `_id` to no elements fails with 53, not 54",
        applies: |case, difference| {
            difference.class == "code 53 for 54" && case.operators().contains("$slice")
        },
    },
    Accepted {
        words: "Inserts that were rejected have used up record ids in mongod",
        applies: |case, difference| {
            let [ours, theirs] = difference.replies.clone().map(without_record_ids);
            let batches = difference.replies.each_ref().map(|reply| first_batch(reply).len());
            let mut asks = false;
            case.command.walk(&mut |name, value| {
                asks |= name == "$meta" && value.text().is_some_and(|text| text == "recordId");
            });
            let is_shown = case.command.get("showRecordId").is_some() && ours == theirs;
            let is_metadata = asks && !case.indexes.is_empty() && batches[0] == batches[1];
            difference.class == "results" && (is_shown || is_metadata)
        },
    },
    Accepted {
        words: "An update path of more than 250 parts",
        applies: |case, difference| {
            let is_long = |name: &str| name.split('.').count() > 250;
            let mut has_long = count(&case.command, &is_long) > 0;
            case.command.walk(&mut |_, value| {
                has_long |= value.text().is_some_and(|text| is_long(&text));
            });
            matches!(case.kind, "update" | "findAndModify")
                && has_long
                && difference.class.starts_with("code 15 for")
        },
    },
];
