//! Known differences that stay: each is a sentence of docs/differences.md.
//!
//! Those caused by the order in which stages are executed are in `rearranged`.

use marula_bson::{Type, Value};

use crate::case::{Case, failure, key_of};
use crate::compare::Difference;
use crate::shell;
use crate::tree::Tree;

/// An explained difference.
pub(crate) struct Accepted {
    /// The words of docs/differences.md that describe it.
    pub(crate) words: &'static str,
    /// Returns whether a reduced case shows this difference and no other.
    pub(crate) applies: fn(&Case, &Difference) -> bool,
}

pub(crate) const ACCEPTED: &[Accepted] = &[
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
            let changes =
                [&case.command, &of_view].map(|part| count(part, &|name| sets.contains(&name)));
            let changes: usize = changes.iter().sum();
            let [ours, theirs] = difference.replies.clone().map(sorted);
            difference.class == "results" && changes > 1 && ours == theirs
        },
    },
    Accepted {
        words: "The number of these prefixes depends on the stages that mongod has combined",
        applies: |case, difference| {
            let steps = ["Failed to optimize expression", "Failed to optimize pipeline"];
            let without = |text: &String| {
                let steps = steps.map(|step| format!("{step} :: caused by :: "));
                steps.iter().fold(text.clone(), |text, step| text.replace(step, ""))
            };
            let [ours, theirs] = messages(difference);
            difference.class.starts_with("message")
                && ([&ours, &theirs]
                    .iter()
                    .all(|text| text.contains(steps[0]) || text.contains(steps[1]))
                    || case.kind == "applyOps")
                && without(&ours) == without(&theirs)
        },
    },
    Accepted {
        words: "A sum of numbers beyond 2^53 that nearly cancel out is exact",
        applies: |case, difference| {
            const EXACT_END: f64 = 9_007_199_254_740_992.0;
            let is_large =
                |value: Value<'_>| value.as_f64().is_some_and(|number| number.abs() > EXACT_END);
            let has_large = holds(case, &is_large);
            let [ours, theirs] = difference.replies.clone().map(without_numbers);
            let sums = count(&case.command, &|name| matches!(name, "$sum" | "$avg" | "$add")) > 0;
            difference.class == "results" && has_large && sums && ours == theirs
        },
    },
    Accepted {
        words: "A date within a day of either end of the range, in a time zone",
        applies: |_, difference| {
            difference.class == "code 5166406 for 0"
                && messages(difference)[0].contains("overflowed")
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
        words: "the last bits of deviations and covariances may differ",
        applies: |case, difference| {
            let names =
                ["$stdDevPop", "$stdDevSamp", "$covariancePop", "$covarianceSamp", "$sum", "$avg"];
            let [ours, theirs] = difference.replies.clone().map(without_numbers);
            difference.class == "results"
                && count(&case.command, &|name| name == "$setWindowFields") > 0
                && count(&case.command, &|name| names.contains(&name)) > 0
                && ours == theirs
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
        words: "The input document in an error of `$replaceRoot` contains the read fields as a whole",
        applies: |_, difference| {
            let [ours, theirs] = messages(difference);
            let before = |text: &str| {
                let text = text.replace("'replacement document'", "'newRoot' expression");
                text.split("Input document: ").next().map(str::to_owned)
            };
            ours.contains("Input document: ") && before(&ours) == before(&theirs)
        },
    },
    Accepted {
        words: "A text with digits that is not a date is rejected in other words",
        applies: |_, difference| {
            let is_of_date = |text: &String| {
                ["date/time string", "Error parsing date string"]
                    .iter()
                    .any(|part| text.contains(part))
            };
            difference.class == "message 241" && messages(difference).iter().all(is_of_date)
        },
    },
    Accepted {
        words: "Bytes that are not UTF-8 are shown as U+FFFD in the text of an error",
        applies: |_, difference| {
            let [ours, theirs] = messages(difference);
            difference.class == "reply" && ours == theirs && ours.contains('\u{FFFD}')
        },
    },
    Accepted {
        words: "The last of the 34 digits of decimal logarithms, powers and trigonometry may differ",
        applies: |_, difference| {
            let [ours, theirs] = &difference.replies;
            let [our_text, their_text] = messages(difference);
            let digits = our_text.rsplit(|part: char| !part.is_ascii_digit()).next();
            let is_in_text = digits.is_some_and(|digits| digits.len() >= 30)
                && our_text.len() == their_text.len()
                && our_text.get(..our_text.len().saturating_sub(2))
                    == their_text.get(..their_text.len().saturating_sub(2));
            match difference.class.as_str() {
                "results" => nearly_equal(ours, theirs),
                class => class.starts_with("message") && is_in_text,
            }
        },
    },
    Accepted {
        words: "Of several constant expressions of a projection that fail, another may be reported",
        applies: |case, difference| {
            let shows = ["$project", "$addFields", "$set", "fields", "projection"];
            let mut are_several = false;
            let of_view = Tree::Array(case.view.to_vec());
            for part in [&case.command, &of_view] {
                part.walk(&mut |name, value| {
                    let calls = count(value, &|name| name.starts_with('$'));
                    are_several |= shows.contains(&name) && calls > 1;
                });
            }
            let codes = [&difference.replies[0], &difference.replies[1]].map(failure);
            let is_early = |(code, text): &(i32, String)| {
                let is_of_constants =
                    text.contains("Failed to optimize pipeline") || !text.contains("xecutor error");
                *code != 0 && is_of_constants
            };
            // Both are reported after the same words.
            let words = |text: &String| {
                text.rsplit_once(" :: caused by :: ").map(|(words, _)| words.to_owned())
            };
            let [ours, theirs] = messages(difference);
            let is_told = ["code", "message"].iter().any(|what| difference.class.starts_with(what));
            is_told && are_several && codes.iter().all(is_early) && words(&ours) == words(&theirs)
        },
    },
    Accepted {
        words: "Of two arrays in which such a number is ambiguous (16746), the other may be reported",
        applies: |_, difference| difference.class == "message 16746",
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
        words: "The last bit of a double's hyperbolic function may differ",
        applies: |case, difference| {
            let names = ["$acosh", "$asinh", "$atanh", "$cosh", "$sinh", "$tanh"];
            let [ours, theirs] = &difference.replies;
            difference.class == "results"
                && count(&case.command, &|name| names.contains(&name)) > 0
                && nearly_equal(ours, theirs)
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
        words: "`n` of `$minN` and similar accumulators is a long",
        applies: |_, difference| difference.class == "code 5787908 for 0",
    },
    Accepted {
        words: "The negation of an inequality with a symbol",
        applies: |_, difference| difference.class == "code 0 for 4457011",
    },
    Accepted {
        words: "An error next to a `$rename` shows the document without the moved field",
        applies: |case, difference| {
            difference.class == "message 28" && count(&case.command, &|name| name == "$rename") > 0
        },
    },
    Accepted {
        words: "The document in an upsert's error is shown without the `_id`",
        applies: |_, difference| {
            let [ours, theirs] = messages(difference);
            difference.class.starts_with("message")
                && ours.split("{no id}").next() == theirs.split("{_id: ").next()
                && ours.contains("{no id}")
        },
    },
    Accepted {
        words: "A filter that names `_id` twice is evaluated as a whole",
        applies: |case, _| {
            let is_id = |field: &&(String, Tree)| field.0 == "_id";
            let mut is_twice = false;
            case.command.walk(&mut |name, value| {
                if let ("filter" | "query" | "q", Tree::Doc(fields)) = (name, value) {
                    is_twice |= fields.iter().filter(is_id).count() > 1;
                }
            });
            is_twice
        },
    },
    Accepted {
        words: "A `$jsonSchema` uses no index, and is evaluated before or after an `$expr`",
        applies: |case, difference| {
            let executes = |reply: &Tree| failure(reply).1.contains("xecutor error");
            (case.kind == "indexed" || case.operators().contains("$expr"))
                && case.operators().contains("$jsonSchema")
                && difference.replies.iter().any(executes)
        },
    },
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
        words: "A symbol is sorted and indexed under a collation",
        applies: |case, difference| {
            let is_asked = difference.class.ends_with(" for 201") || difference.class == "results";
            let is_sorted =
                count(&case.command, &|name| matches!(name, "sort" | "$sort" | "sortBy")) > 0
                    && count(&case.command, &|name| name == "collation") > 0;
            let is_indexed = case.indexes.iter().any(|index| index.get("collation").is_some());
            let creates = commands(case).any(|one| {
                count(one, &|name| name == "create") > 0
                    && count(one, &|name| name == "collation") > 0
            });
            (is_asked && (is_sorted || creates) || is_indexed)
                && (holds(case, &|value| matches!(value, Value::Symbol(_)))
                    || commands(case).any(has_symbol))
        },
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
        words: "An `$expr` that fails on a document is not always evaluated if an index supports",
        applies: |case, difference| {
            // The errors of an update's statements do not contain their origin.
            let is_update = case.kind == "update";
            let executes = |reply: &Tree| {
                let (code, text) = failure(reply);
                text.contains("xecutor error")
                    || text.contains("while multiplanner was")
                    || is_update && code != 0 && !text.contains("Failed to optimize")
            };
            let names_id = count(&case.command, &|name| name == "_id") > 0;
            (case.kind == "indexed" || names_id)
                && (difference.class.starts_with("code")
                    || messages(difference)[1].contains("while multiplanner was"))
                && case.operators().contains("$expr")
                && difference.replies.iter().any(executes)
        },
    },
    Accepted {
        words: "The sign of a NaN that is not the result of a sum",
        applies: |_, difference| {
            let [ours, theirs] = [0, 1].map(|side| shell::value(&difference.replies[side]));
            difference.class == "results" && ours == theirs && ours.contains("NaN")
        },
    },
    Accepted {
        words: "An `_id` that is generated for an upsert differs between servers, in messages too",
        applies: |case, difference| {
            let without_ids = |text: &str| {
                let words = text.split(' ').map(|word| match word.len() {
                    24 if word.bytes().all(|byte| byte.is_ascii_hexdigit()) => "<id>",
                    _ => word,
                });
                words.collect::<Vec<_>>().join(" ")
            };
            let [ours, theirs] = messages(difference);
            count(&case.command, &|name| name == "upsert") > 0
                && without_ids(&ours) == without_ids(&theirs)
                && without_ids(&ours).contains("<id>")
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
        words: "An int that `$round` makes too large for 32 bits becomes a long",
        applies: |case, difference| {
            difference.class == "results" && case.operators().contains("$round")
        },
    },
    Accepted {
        words: "An upsert whose `$push` cuts `_id` to no elements fails with 53, not 54",
        applies: |case, difference| {
            difference.class == "code 53 for 54" && case.operators().contains("$slice")
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
            let found = difference.replies.each_ref().map(|reply| {
                let batch = reply.get("cursor").and_then(|cursor| cursor.get("firstBatch"));
                batch.map_or(0, |batch| batch.items().len())
            });
            case.kind == "indexed"
                && difference.class == "results"
                && case.indexes.iter().any(is_wildcard)
                && asks_for_ends
                && found[0] > found[1]
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
            case.kind == "indexed"
                && difference.class == "results"
                && (asks_for_none || shows_place)
                && case.indexes.iter().any(|index| count(index, &names_a_place) > 0)
        },
    },
    Accepted {
        words: "The message of a query that cannot be planned shows the filter in Marula's form",
        applies: |_, difference| {
            // The form stands between these words.
            let around = |text: &String| {
                let (front, rest) = text.split_once("Tree: ")?;
                let (_, back) = rest.rsplit_once("Sort: {")?;
                Some((front.to_owned(), back.to_owned()))
            };
            let [ours, theirs] = messages(difference);
            difference.class.starts_with("message")
                && ours.starts_with("error processing query: ")
                && around(&ours).is_some()
                && around(&ours) == around(&theirs)
        },
    },
    Accepted {
        words: "After a `$densify` it shows no projection",
        applies: |case, difference| {
            let without = |text: &String| {
                let (front, rest) = text.split_once("\nProj: ")?;
                let (_, back) = rest.split_once('\n')?;
                Some((front.to_owned(), back.to_owned()))
            };
            let [ours, theirs] = messages(difference);
            difference.class.starts_with("message")
                && count(&case.command, &|name| name == "$densify") > 0
                && without(&ours).is_some()
                && without(&ours) == without(&theirs)
        },
    },
    Accepted {
        words: "Inserts that were rejected have used up record ids in mongod",
        applies: |case, difference| {
            let [ours, theirs] = difference.replies.clone().map(without_record_ids);
            difference.class == "results"
                && case.command.get("showRecordId").is_some()
                && ours == theirs
        },
    },
    Accepted {
        words: "A result that is nested more than 200 levels deep is returned",
        applies: |_, difference| {
            difference.class == "code 0 for 15"
                && messages(difference)[1].contains("cannot convert document to BSON")
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
    Accepted {
        words: "Through an index that has a collation and arrays, mongod misses",
        applies: |case, difference| {
            let mut asks_for_least = false;
            case.command.walk(&mut |name, value| {
                asks_for_least |= name == "$gte" && value.kind() == Type::MinKey;
            });
            let has_collation = |index: &Tree| index.get("collation").is_some();
            let found = difference.replies.each_ref().map(|reply| {
                let batch = reply.get("cursor").and_then(|cursor| cursor.get("firstBatch"));
                batch.map_or(0, |batch| batch.items().len())
            });
            case.kind == "indexed"
                && difference.class == "results"
                && asks_for_least
                && case.indexes.iter().any(has_collation)
                && found[0] > found[1]
        },
    },
];

/// Returns the words of the first row that matches a difference.
pub(crate) fn accepted_as(
    rows: &[Accepted],
    case: &Case,
    difference: &Difference,
) -> Option<&'static str> {
    rows.iter().find(|row| (row.applies)(case, difference)).map(|row| row.words)
}

pub(crate) fn messages(difference: &Difference) -> [String; 2] {
    [failure(&difference.replies[0]).1, failure(&difference.replies[1]).1]
}

/// Returns the names of the stages of each pipeline of a case: its own after those of the view, and
/// those inside stages.
pub(crate) fn pipelines(case: &Case) -> Vec<Vec<String>> {
    let mut found = vec![stages(case)];
    case.command.walk(&mut |_, value| {
        let Tree::Array(items) = value else { return };
        let name = |item: &Tree| match item {
            Tree::Doc(fields) => fields.first().map(|(name, _)| name.clone()),
            _ => None,
        };
        found.push(items.iter().filter_map(name).collect());
    });
    found
}

/// Returns the names of the stages of a pipeline, a view's first.
pub(crate) fn stages(case: &Case) -> Vec<String> {
    let own = match case.command.get("pipeline") {
        Some(Tree::Array(own)) => &own[..],
        _ => &[],
    };
    let name = |stage: &Tree| match stage {
        Tree::Doc(fields) => fields.first().map(|(name, _)| name.clone()),
        _ => None,
    };
    case.view.iter().chain(own).filter_map(name).collect()
}

/// Returns whether the documents may have lost the `_id` that distinguishes them when they are
/// sorted.
fn takes_id_away(case: &Case) -> bool {
    let mut is_gone = count(&case.command, &|name| {
        let others = [
            "$replaceRoot",
            "$replaceWith",
            "$group",
            "$unset",
            "$unwind",
            "$unionWith",
            "$sortByCount",
            "$densify",
        ];
        others.contains(&name)
    }) > 0;
    let of_view = Tree::Array(case.view.to_vec());
    for part in [&case.command, &of_view] {
        part.walk(&mut |stage, value| {
            let projects = matches!(stage, "$project" | "$addFields" | "$set");
            is_gone |= projects && count(value, &|name| name == "_id") > 0;
        });
    }
    is_gone
}

/// Returns whether a document of a case or its command contains a value that `is_meant` accepts.
fn holds(case: &Case, is_meant: &dyn Fn(Value<'_>) -> bool) -> bool {
    let mut has = false;
    for tree in case.documents.iter().chain(case.others.iter()).chain([&case.command]) {
        tree.walk(&mut |_, value| {
            has |= matches!(value, Tree::Leaf(leaf) if is_meant(leaf.get()));
        });
    }
    has
}

/// Returns the tree with null instead of every number.
fn without_numbers(mut tree: Tree) -> Tree {
    tree.map_leaves(&|value| value.kind().is_number().then(|| Value::Null.to_buf()));
    tree
}

/// Returns the tree without the fields `$recordId`.
fn without_record_ids(tree: Tree) -> Tree {
    match tree {
        Tree::Leaf(_) => tree,
        Tree::Array(items) => Tree::Array(items.into_iter().map(without_record_ids).collect()),
        Tree::Doc(fields) => {
            let others = fields.into_iter().filter(|(name, _)| name != "$recordId");
            Tree::Doc(others.map(|(name, value)| (name, without_record_ids(value))).collect())
        }
    }
}

/// Returns the tree with the elements of every array sorted.
fn unordered_tree(tree: Tree) -> Tree {
    match tree {
        Tree::Leaf(_) => tree,
        Tree::Array(items) => {
            let mut items: Vec<_> = items.into_iter().map(unordered_tree).collect();
            items.sort_by_key(shell::value);
            Tree::Array(items)
        }
        Tree::Doc(fields) => Tree::Doc(
            fields.into_iter().map(|(name, value)| (name, unordered_tree(value))).collect(),
        ),
    }
}

/// Returns whether a path has a number in it.
pub(crate) fn names_a_place(path: &str) -> bool {
    path.split('.').any(|part| part.parse::<u32>().is_ok())
}

pub(crate) fn count(tree: &Tree, is_meant: &dyn Fn(&str) -> bool) -> usize {
    let mut found = 0;
    tree.walk(&mut |name, _| found += usize::from(is_meant(name)));
    found
}

/// Returns the tree with the fields of every document in the order of their names.
fn sorted(tree: Tree) -> Tree {
    match tree {
        Tree::Leaf(_) => tree,
        Tree::Array(items) => Tree::Array(items.into_iter().map(sorted).collect()),
        Tree::Doc(fields) => {
            let mut fields: Vec<_> =
                fields.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            Tree::Doc(fields)
        }
    }
}

/// The command of a case, and those after it.
fn commands(case: &Case) -> impl Iterator<Item = &Tree> {
    std::iter::once(&case.command).chain(case.steps.iter())
}

/// Returns whether a symbol is somewhere in the tree.
fn has_symbol(tree: &Tree) -> bool {
    match tree {
        Tree::Leaf(leaf) => matches!(leaf.get(), Value::Symbol(_)),
        Tree::Array(items) => items.iter().any(has_symbol),
        Tree::Doc(fields) => fields.iter().any(|(_, value)| has_symbol(value)),
    }
}

/// Returns the tree without the versions of indexes on `_id`.
fn without_id_version(tree: Tree) -> Tree {
    match tree {
        Tree::Leaf(_) => tree,
        Tree::Array(items) => Tree::Array(items.into_iter().map(without_id_version).collect()),
        Tree::Doc(mut fields) => {
            let is_id = |(name, value): &(String, Tree)| {
                name == "name" && value.text().is_some_and(|text| text == "_id_")
            };
            if fields.iter().any(is_id) {
                fields.retain(|(name, _)| name != "v");
            }
            let fields = fields.into_iter();
            Tree::Doc(fields.map(|(name, value)| (name, without_id_version(value))).collect())
        }
    }
}

fn is_near(ours: f64, theirs: f64) -> bool {
    ours == theirs || (ours - theirs).abs() <= ours.abs() * 1e-15
}

/// Returns whether two replies are equal except for the last digits of decimals, and for the
/// notation of their zeros.
fn nearly_equal(ours: &Tree, theirs: &Tree) -> bool {
    match (ours, theirs) {
        (Tree::Leaf(ours), Tree::Leaf(theirs)) => match (ours.get(), theirs.get()) {
            (Value::Decimal128(ours), Value::Decimal128(theirs)) => {
                is_near(ours.to_f64(), theirs.to_f64())
            }
            (Value::Double(ours), Value::Double(theirs)) => is_near(ours, theirs),
            _ => ours == theirs,
        },
        (Tree::Array(ours), Tree::Array(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|(ours, theirs)| nearly_equal(ours, theirs))
        }
        (Tree::Doc(ours), Tree::Doc(theirs)) => {
            let same = |((name, ours), (other, theirs)): (&(String, Tree), &(String, Tree))| {
                name == other && nearly_equal(ours, theirs)
            };
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(same)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rearranged::REARRANGED;
    use crate::two_mistakes;

    #[test]
    fn each_is_in_the_docs() {
        let page = include_str!("../../docs/differences.md");
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for accepted in ACCEPTED.iter().chain(REARRANGED) {
            assert!(flat(page).contains(&flat(accepted.words)), "{}", accepted.words);
        }
        assert!(flat(page).contains(two_mistakes::WORDS));
        assert!(flat(page).contains(crate::CONSEQUENCE));
    }
}
