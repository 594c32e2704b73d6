//! Differences caused by the order in which stages are executed, or by the fields that mongod reads
//! for a later stage.
//!
//! The difference must disappear if every stage is kept in its place on both servers:
//! `as_written` makes that case. If both servers return results, Marula's must be the same whether
//! stages are rearranged or not: the error is then mongod's.

use std::rc::Rc;

use crate::accepted::Accepted;
use crate::accepted::looks::{count, messages, names_a_place, pipelines, stages};
use crate::case::{Case, failure};
use crate::tree::Tree;

/// Returns whether a pipeline failed when its stages were executed.
fn fails_at_work(reply: &Tree) -> bool {
    failure(reply).1.starts_with("PlanExecutor error")
}

/// Returns whether a pipeline failed before that, when its constants were computed.
fn fails_early(reply: &Tree) -> bool {
    failure(reply).1.starts_with("Failed to optimize pipeline")
}

pub(crate) const REARRANGED: &[Accepted] = &[
    Accepted {
        words: "If mongod moves a `$match` further, or not as far, other documents reach a failing stage",
        applies: |case, difference| {
            !difference.class.starts_with("results")
                && moves_a_condition(case)
                && (difference.replies.iter().any(fails_at_work)
                    || difference.replies.iter().all(fails_early))
        },
    },
    Accepted {
        words: "sorts by it, before a stage that writes a neighbouring path",
        applies: |case, difference| {
            let is_moved = |names: &Vec<String>| {
                let at = names.iter().position(|name| name == "$unwind");
                at.is_some_and(|at| names[at..].iter().any(|name| name == "$sort"))
            };
            difference.class.starts_with("code")
                && messages(difference).iter().any(|text| text.contains("parallel arrays"))
                && pipelines(case).iter().any(is_moved)
        },
    },
    Accepted {
        words: "on the old one, and finds other documents",
        applies: |case, difference| difference.class == "results" && moves_a_condition(case),
    },
    Accepted {
        words: "and computes its constants",
        applies: |case, difference| {
            let moves = |name: &String| {
                ["$project", "$addFields", "$set", "$unset", "$replaceRoot", "$replaceWith"]
                    .contains(&name.as_str())
            };
            let is_moved = |names: &Vec<String>| {
                let at = names.iter().position(|name| name == "$unionWith");
                at.is_some_and(|at| names[at..].iter().any(moves))
            };
            difference.replies.iter().all(fails_early) && pipelines(case).iter().any(is_moved)
        },
    },
    Accepted {
        words: "Two `$match` after another stage are combined, and their conditions are evaluated in their order",
        applies: |case, difference| {
            let are_two = |names: &Vec<String>| {
                names.windows(2).any(|pair| pair.iter().all(|name| name == "$match"))
            };
            !difference.class.starts_with("results")
                && difference.replies.iter().any(fails_at_work)
                && pipelines(case).iter().any(are_two)
        },
    },
    Accepted {
        words: "A `$skip` is moved before a `$lookup` in the middle of a pipeline",
        applies: |case, difference| {
            let skips_joined = |names: &Vec<String>| {
                let at = names.iter().position(|name| name == "$lookup");
                at.is_some_and(|at| names[at..].iter().any(|name| name == "$skip"))
            };
            let is_told = fails_at_work(&difference.replies[1]);
            is_told && pipelines(case).iter().any(skips_joined)
        },
    },
    Accepted {
        words: "A `$match` with an `$all` inside `$elemMatch` that mongod moves forward fails in mongod",
        applies: |case, difference| {
            let names = case.operators();
            let is_here = names.contains("$elemMatch") && names.contains("$match");
            (is_here || !case.view.is_empty())
                && [
                    "unknown top level operator: $",
                    "unknown operator: $and",
                    "unknown operator: $alwaysFalse",
                ]
                .iter()
                .any(|words| messages(difference)[1].contains(words))
        },
    },
    Accepted {
        words: "mongod computes a `$project` at the front for a batch of documents",
        applies: |case, difference| {
            let begins_with_one = |names: &Vec<String>| {
                let mut names = names.iter().skip_while(|name| *name == "$match");
                names.next().is_some_and(|name| name == "$project") && names.next().is_some()
            };
            let is_told =
                difference.class.starts_with("code") || difference.class.starts_with("message");
            is_told
                && pipelines(case).iter().any(begins_with_one)
                && difference.replies.iter().all(fails_at_work)
        },
    },
    Accepted {
        words: "A `$lookup` directly followed by a `$group`",
        applies: |case, difference| {
            let kinds = stages(case);
            let groups =
                |name: &String| matches!(&**name, "$group" | "$sortByCount" | "$bucket" | "$count");
            let is_pair = kinds.windows(2).any(|pair| pair[0] == "$lookup" && groups(&pair[1]));
            let mut by_number = false;
            case.command.walk(&mut |name, value| {
                by_number |= is_local_by_number(name, value);
            });
            let is_undefined = messages(difference)[0].contains("cannot compare to undefined");
            is_pair
                && (is_undefined && failure(&difference.replies[1]).0 == 0
                    || by_number && difference.class == "results")
        },
    },
    Accepted {
        words: "A `$sort` or a `localField` by an element's number (`b.0`) reads less in mongod",
        applies: |case, difference| {
            let mut is_by_number = false;
            case.command.walk(&mut |name, value| {
                is_by_number |= name == "$sort" && count(value, &names_a_place) > 0;
                is_by_number |= is_local_by_number(name, value);
            });
            let narrows = |name: &String| {
                [
                    "$group",
                    "$bucket",
                    "$bucketAuto",
                    "$sortByCount",
                    "$project",
                    "$replaceRoot",
                    "$replaceWith",
                    "$count",
                    "$facet",
                ]
                .contains(&&**name)
            };
            let is_told = difference.class == "results"
                || messages(difference).iter().any(|text| text.contains("PlanExecutor error"));
            let is_narrowed = |names: &Vec<String>| {
                let at = names.iter().position(|name| matches!(&**name, "$sort" | "$lookup"));
                at.is_some_and(|at| names[at..].iter().any(narrows))
            };
            let kinds = pipelines(case);
            is_told && is_by_number && kinds.iter().any(is_narrowed)
        },
    },
    Accepted {
        words: "by the order that a `$densify` or `$setWindowFields` outputs is removed wherever it is",
        applies: |case, difference| {
            let gives_order =
                |name: &String| matches!(&**name, "$densify" | "$setWindowFields" | "$fill");
            let is_sorted_behind = |names: &Vec<String>| {
                let at = names.iter().position(gives_order);
                at.is_some_and(|at| at > 0 && names[at..].iter().any(|name| name == "$sort"))
            };
            difference.replies.iter().all(fails_at_work)
                && pipelines(case).iter().any(is_sorted_behind)
        },
    },
    Accepted {
        words: "conditions on a path, and sorts by it, before a stage that writes a neighbouring path",
        applies: |case, difference| {
            let kinds = stages(case);
            let is_pair = |pair: &[String]| {
                matches!([&*pair[0], &*pair[1]], ["$unwind" | "$lookup", "$sort"])
            };
            matches!(&*difference.class, "code 0 for 2" | "code 0 for 16746" | "results")
                && (kinds.windows(2).any(is_pair) || kinds.iter().any(|name| name == "$facet"))
                && count(&case.command, &|name| name == "$sort") > 0
        },
    },
    Accepted {
        words: "A `$sort` after a `$setWindowFields` that sorts by its partition's own field",
        applies: |case, difference| {
            let mut is_both = false;
            case.command.walk(&mut |name, value| {
                if let ("$setWindowFields", Some(Tree::Leaf(by))) = (name, value.get("partitionBy"))
                {
                    let by = by.get().as_str().map(|by| by.to_string()).unwrap_or_default();
                    let sort = value.get("sortBy");
                    is_both |=
                        sort.is_some_and(|sort| sort.get(by.trim_start_matches('$')).is_some());
                }
            });
            difference.class == "results" && is_both
        },
    },
];

/// Returns whether a field is a `localField` with an element's number.
fn is_local_by_number(name: &str, value: &Tree) -> bool {
    let Tree::Leaf(leaf) = value else { return false };
    name == "localField" && leaf.get().as_str().is_some_and(|path| names_a_place(&path.to_string()))
}

/// Returns whether a condition is after a stage that it could be moved before. A condition at the
/// front stays there; a condition copied out of a `$redact` counts as after it.
fn moves_a_condition(case: &Case) -> bool {
    let is_moved = |names: &Vec<String>| {
        // A join's condition is a match after the stages of the view that it joins.
        let joins = |name: &String| matches!(&**name, "$lookup" | "$graphLookup" | "$unionWith");
        if !case.view.is_empty() && names.iter().any(joins) {
            return true;
        }
        let at = names.iter().rposition(|name| name == "$match");
        at.is_some_and(|at| names[..at].iter().any(|name| name != "$match"))
    };
    pipelines(case).iter().any(is_moved)
}

/// Returns the case with a stage between all its stages that no stage is moved across.
pub(crate) fn as_written(case: &Case) -> Case {
    let mut kept = case.clone();
    let mut view = apart(&case.view);
    if !view.is_empty() {
        // The join's query of the view comes after it.
        view.push(between());
    }
    kept.view = Rc::new(view);
    kept.command = with_pipelines_apart(&case.command);
    kept.steps = Rc::new(case.steps.iter().map(with_pipelines_apart).collect());
    kept
}

/// Returns a stage that no stage is moved across.
fn between() -> Tree {
    Tree::field("$_internalInhibitOptimization", Tree::Doc(Vec::new()))
}

/// Returns the stages of a pipeline, and those inside them, with others between them.
fn apart(stages: &[Tree]) -> Vec<Tree> {
    let mut kept = Vec::new();
    for stage in stages {
        let stage = match stage.fields() {
            [(name, argument)] if name == "$facet" => {
                let inside = argument
                    .fields()
                    .iter()
                    .map(|(name, value)| (name.clone(), pipeline_apart(value)));
                Tree::field("$facet", Tree::Doc(inside.collect()))
            }
            [(name, argument)] => Tree::field(name, with_pipelines_apart(argument)),
            _ => stage.clone(),
        };
        // A stage that produces its own documents stays first.
        if stage.get("$documents").is_none() {
            kept.push(between());
        }
        kept.push(stage);
    }
    kept
}

fn pipeline_apart(value: &Tree) -> Tree {
    match value {
        Tree::Array(stages) => Tree::Array(apart(stages)),
        other => other.clone(),
    }
}

fn with_pipelines_apart(argument: &Tree) -> Tree {
    let Tree::Doc(fields) = argument else { return argument.clone() };
    let apart = |(name, value): &(String, Tree)| match name.as_str() {
        "pipeline" => (name.clone(), pipeline_apart(value)),
        _ => (name.clone(), value.clone()),
    };
    Tree::Doc(fields.iter().map(apart).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;
    use crate::tree::tree;

    #[test]
    fn every_stage_is_kept_in_its_place() {
        let skip = || tree! { "$skip" => 1 };
        let list = |stages: &[Tree]| Tree::Array(stages.to_vec());
        let lookup = tree! { "$lookup" => tree! { "as" => "x", "pipeline" => list(&[skip()]) } };
        let facet = tree! { "$facet" => tree! { "x" => list(&[skip(), skip()]) } };
        let documents = tree! { "$documents" => "x" };
        let stages = apart(&[documents, lookup, facet]);
        let expected = "[{ $documents: \"x\" }, I, { $lookup: { as: \"x\", pipeline: [I, { $skip: 1 }] } }, I, \
                        { $facet: { x: [I, { $skip: 1 }, I, { $skip: 1 }] } }]";
        let shown = shell::value(&Tree::Array(stages));
        assert_eq!(shown.replace("{ $_internalInhibitOptimization: {} }", "I"), expected);
    }
}
