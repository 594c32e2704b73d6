//! Limits of time: commands that surely exceed theirs, and commands that surely do not.

use marula_bson::Value;

use crate::tree::{Tree, tree};
use crate::values::Maker;

/// Code that ends only if it is interrupted.
const ENDLESS: &str = "while (true) {}";

impl Maker {
    /// Returns commands with limits of time.
    pub(crate) fn in_limited_time(&mut self) -> (Tree, Vec<Tree>) {
        let first = self.limited();
        let mut steps = Vec::new();
        for _ in 0..self.random.below(2) {
            let step = self.limited();
            steps.push(step);
        }
        if self.random.percent(40) {
            // The first two documents take no time; the limit is inherited by the next batch.
            let code = format!("if (this._id > 2) {{ {ENDLESS} }} return true");
            let (limit, code) = match self.random.percent(75) {
                true => (self.short(), code.as_str()),
                false => (Tree::of(60_000), "return true"),
            };
            steps.push(tree! {
                "find" => "c", "filter" => tree! { "$where" => code }, "batchSize" => 2,
                "maxTimeMS" => limit,
            });
            let mut more = tree! { "getMore" => Tree::of(1_i64), "collection" => "c" };
            if self.random.percent(20)
                && let Tree::Doc(fields) = &mut more
            {
                fields.push(("maxTimeMS".to_owned(), Tree::of(1000)));
            }
            steps.extend([more.clone(), more]);
        }
        (first, steps)
    }

    /// Enough for mongod to begin, even if other processes run; what exceeds it is endless.
    fn short(&mut self) -> Tree {
        Tree::of(self.random.between(60, 90) as i32)
    }

    fn limited(&mut self) -> Tree {
        let is_endless = self.random.percent(60);
        let mut command = self.limited_command(is_endless);
        if is_endless && self.random.percent(10) {
            command = tree! { "explain" => command, "verbosity" => "executionStats" };
        }
        let limit = match self.random.below(10) {
            _ if is_endless => self.short(),
            0 => Tree::of(0),
            1 => self.number(),
            2 => self.value(1),
            3 => Tree::of(i64::from(i32::MAX)),
            4 => Tree::of(-1),
            5 => Tree::of(Value::Null),
            _ => Tree::of(60_000),
        };
        // A number that is short might end the command on one server alone.
        let limit = match &limit {
            Tree::Leaf(leaf) if !is_endless => match leaf.get().as_f64() {
                Some(number) if number > 0.0 && number < 60_000.0 => Tree::of(60_000),
                _ => limit,
            },
            _ => limit,
        };
        if let Tree::Doc(fields) = &mut command {
            fields.push(("maxTimeMS".to_owned(), limit));
        }
        command
    }

    fn limited_command(&mut self, is_endless: bool) -> Tree {
        let filter = match is_endless {
            true => self.endless_filter(),
            false => self.filter(1),
        };
        let change = tree! { "$set" => tree! { "a" => self.small() } };
        match self.random.below(12) {
            0 => tree! { "find" => "c", "filter" => filter },
            1 => tree! { "count" => "c", "query" => filter },
            2 => tree! { "distinct" => "c", "key" => "a", "query" => filter },
            3 => {
                let multi = Tree::of(self.random.percent(50));
                let update = tree! { "q" => filter, "u" => change, "multi" => multi };
                tree! { "update" => "c", "updates" => Tree::Array(vec![update]) }
            }
            4 => {
                let delete = tree! { "q" => filter, "limit" => 0 };
                tree! { "delete" => "c", "deletes" => Tree::Array(vec![delete]) }
            }
            5 => tree! { "findAndModify" => "c", "query" => filter, "update" => change },
            6 => {
                let body = if is_endless { ENDLESS } else { "emit(1, 1)" };
                tree! {
                    "mapReduce" => "c",
                    "map" => format!("function() {{ {body} }}").as_str(),
                    "reduce" => "function(k, v) { return 1 }",
                    "out" => tree! { "inline" => 1 },
                }
            }
            _ => {
                let stages = match is_endless {
                    true => self.endless_stages(),
                    false => vec![tree! { "$match" => filter }],
                };
                tree! {
                    "aggregate" => "c", "pipeline" => Tree::Array(stages), "cursor" => tree! {},
                }
            }
        }
    }

    fn endless_filter(&mut self) -> Tree {
        let function = tree! {
            "body" => format!("function() {{ {ENDLESS} }}").as_str(),
            "args" => Tree::Array(Vec::new()),
            "lang" => "js",
        };
        match self.random.below(3) {
            0 => tree! { "$expr" => tree! { "$function" => function } },
            1 => tree! { "_id" => tree! { "$gt" => 0 }, "$where" => ENDLESS },
            _ => tree! { "$where" => format!("function() {{ {ENDLESS} }}").as_str() },
        }
    }

    /// Stages that read as many documents as take hours.
    fn endless_stages(&mut self) -> Vec<Tree> {
        let mut stages = Vec::new();
        if self.random.percent(20) {
            return vec![tree! { "$match" => self.endless_filter() }];
        }
        for name in ["x", "y", "z"] {
            match self.random.below(3) {
                0 => {
                    let found = tree! { "from" => "c", "pipeline" => Tree::Array(vec![
                        tree! { "$project" => tree! { "l" => tree! { "$range" => Tree::Array(vec![
                            Tree::of(0), Tree::of(3000),
                        ]) } } },
                        tree! { "$unwind" => "$l" },
                    ]), "as" => name };
                    stages.push(tree! { "$lookup" => found });
                }
                _ => {
                    let range = Tree::Array(vec![Tree::of(0), Tree::of(9000)]);
                    stages.push(
                        tree! { "$addFields" => Tree::field(name, tree! { "$range" => range }) },
                    );
                }
            }
            stages.push(tree! { "$unwind" => format!("${name}").as_str() });
        }
        match self.random.below(8) {
            0 => stages.push(tree! { "$count" => "n" }),
            1 => stages.push(tree! { "$match" => tree! { "x" => -1 } }),
            2 => stages.push(tree! { "$out" => "m" }),
            3 => {
                let whole = std::mem::take(&mut stages);
                let mut whole = whole;
                whole.push(tree! { "$count" => "n" });
                stages.push(tree! { "$facet" => tree! { "f" => Tree::Array(whole) } });
            }
            4 => {
                let mut whole = std::mem::take(&mut stages);
                whole.push(tree! { "$count" => "n" });
                let union = tree! { "coll" => "c", "pipeline" => Tree::Array(whole) };
                stages.push(tree! { "$unionWith" => union });
            }
            5 => {
                let by = tree! { "_id" => Tree::of(Value::Null), "n" => tree! { "$sum" => 1 } };
                stages.push(tree! { "$group" => by });
                stages.push(tree! { "$sort" => tree! { "_id" => 1 } });
            }
            6 => stages.push(tree! { "$skip" => Tree::of(i64::MAX) }),
            _ => {
                stages.push(tree! { "$match" => tree! { "_id" => -1, "x" => -1, "y" => 1 } });
                stages.push(tree! { "$limit" => 1 });
            }
        }
        stages
    }
}

/// Returns whether a command that may be endless has a limit of time that ends it.
pub(crate) fn is_ended(command: &Tree) -> bool {
    let mut is_endless = false;
    command.walk(&mut |name, value| {
        is_endless |= name == "$range" || value.text().is_some_and(|text| text.contains(ENDLESS));
    });
    let limit = match command.get("maxTimeMS") {
        Some(Tree::Leaf(leaf)) => leaf.get().as_f64().unwrap_or_default(),
        _ => 0.0,
    };
    !is_endless || (1.0..=1000.0).contains(&limit)
}
