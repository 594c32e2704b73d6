//! Pipelines of `aggregate`.

use crate::tree::{Tree, tree};
use crate::values::{Maker, NAMES};

const ACCUMULATORS: [(&str, &str); 14] = [
    ("$sum", "num"),
    ("$avg", "num"),
    ("$min", "any"),
    ("$max", "any"),
    ("$first", "any"),
    ("$last", "any"),
    ("$push", "any"),
    ("$count", ""),
    ("$mergeObjects", "obj"),
    ("$stdDevPop", "num"),
    ("$stdDevSamp", "num"),
    ("$addToSet", "any"),
    ("$firstN", "n"),
    ("$top", "top"),
];

impl Maker {
    /// A pipeline that computes one expression of each document: the shortest way to try expressions.
    pub(crate) fn expression_pipeline(&mut self) -> Tree {
        let wish = *self.random.pick(&["any", "any", "num", "str", "arr", "date", "bool", "obj"]);
        let expression = self.expression(wish, 3);
        let stage = tree! { "$project" => tree! { "r" => expression } };
        Tree::Array(vec![stage])
    }

    pub(crate) fn pipeline(&mut self) -> Tree {
        let mut stages = Vec::new();
        for _ in 0..self.random.between(1, 4) {
            self.stage(&mut stages, true);
        }
        Tree::Array(stages)
    }

    fn stage(&mut self, stages: &mut Vec<Tree>, outer: bool) {
        let stage = match self.random.below(100) {
            0..16 => tree! { "$match" => self.filter(1) },
            16..26 => tree! { "$project" => self.stage_projection() },
            26..36 => {
                let name = *self.random.pick(&["$addFields", "$set"]);
                Tree::field(name, self.computed_fields(2))
            }
            36..48 => return self.group(stages),
            48..54 => tree! { "$sort" => self.sort() },
            54..57 => {
                stages.push(tree! { "$sort" => tree! { "_id" => 1 } });
                let name = *self.random.pick(&["$limit", "$skip"]);
                let count = Tree::of(self.random.between(1, 6) as i32);
                Tree::field(name, self.spoiled(count))
            }
            57..67 => self.unwind(),
            67..71 => self.bucket(),
            71..74 => {
                let on = self.reference("any");
                stages.push(tree! { "$sortByCount" => on });
                tree! { "$sort" => tree! { "count" => -1, "_id" => 1 } }
            }
            74..76 => tree! { "$count" => "n" },
            76..79 => {
                let name = *self.random.pick(&["$replaceRoot", "$replaceWith"]);
                let root = self.expression("obj", 2);
                let root = if name == "$replaceRoot" {
                    tree! { "newRoot" => root }
                } else {
                    root
                };
                Tree::field(name, root)
            }
            79..82 => {
                let path = self.path();
                tree! { "$unset" => path.as_str() }
            }
            82..85 if outer => {
                let mut first = Vec::new();
                self.stage(&mut first, false);
                let mut second = Vec::new();
                self.stage(&mut second, false);
                tree! { "$facet" => tree! { "a" => Tree::Array(first), "b" => Tree::Array(second) } }
            }
            85..91 if outer => self.lookup(),
            91..96 => {
                let window = self.window();
                stages.push(window);
                tree! { "$sort" => tree! { "_id" => 1 } }
            }
            96..98 if outer => {
                let mut inner = Vec::new();
                self.stage(&mut inner, false);
                tree! { "$unionWith" => tree! { "coll" => "other", "pipeline" => Tree::Array(inner) } }
            }
            98 => {
                let condition = self.expression("bool", 1);
                let branch = |maker: &mut Maker| {
                    let outcome = *maker.random.pick(&["$$DESCEND", "$$PRUNE", "$$KEEP"]);
                    Tree::of(outcome)
                };
                let branches = vec![condition, branch(self), branch(self)];
                tree! { "$redact" => tree! { "$cond" => Tree::Array(branches) } }
            }
            _ => self.graph_lookup(),
        };
        stages.push(stage);
    }

    fn accumulators(&mut self, fields: &mut Vec<(String, Tree)>) {
        for name in ["n", "m"].into_iter().take(self.random.between(1, 2)) {
            let (operator, wish) = *self.random.pick(&ACCUMULATORS);
            fields.push((name.to_owned(), self.accumulator(operator, wish)));
        }
    }

    fn accumulator(&mut self, operator: &str, wish: &str) -> Tree {
        let argument = match wish {
            "" => Tree::Doc(Vec::new()),
            "n" => {
                let operator = *self.random.pick(&["$firstN", "$lastN", "$maxN", "$minN"]);
                let input = self.expression("any", 1);
                let count = Tree::of(self.random.between(1, 3) as i32);
                return Tree::field(
                    operator,
                    tree! { "input" => input, "n" => self.spoiled(count) },
                );
            }
            "top" => {
                let sort = self.sort();
                let output = self.expression("any", 1);
                tree! { "sortBy" => sort, "output" => output }
            }
            wish => self.expression(wish, 1),
        };
        Tree::field(operator, argument)
    }

    fn group(&mut self, stages: &mut Vec<Tree>) {
        let by = match self.random.below(10) {
            0 => Tree::of(marula_bson::Value::Null),
            1..6 => self.reference("any"),
            6 => tree! { "a" => self.reference("any"), "b" => self.reference("any") },
            _ => self.expression("any", 1),
        };
        let mut fields = vec![("_id".to_owned(), by)];
        self.accumulators(&mut fields);
        let sets: Vec<String> = fields
            .iter()
            .filter(|(_, value)| value.get("$addToSet").is_some())
            .map(|(name, _)| name.clone())
            .collect();
        stages.push(tree! { "$group" => Tree::Doc(fields) });
        stages.push(tree! { "$sort" => tree! { "_id" => 1 } });
        for name in sets {
            // The order of a set is open.
            let sorted = tree! { "$sortArray" => tree! { "input" => format!("${name}").as_str(), "sortBy" => 1 } };
            stages.push(tree! { "$addFields" => Tree::field(name, sorted) });
        }
    }

    fn unwind(&mut self) -> Tree {
        let path = format!("${}", self.path());
        if self.random.percent(50) {
            return tree! { "$unwind" => path.as_str() };
        }
        let mut fields = vec![("path".to_owned(), Tree::of(&path))];
        if self.random.percent(60) {
            fields.push(("preserveNullAndEmptyArrays".to_owned(), Tree::of(true)));
        }
        if self.random.percent(50) {
            fields.push(("includeArrayIndex".to_owned(), Tree::of(&self.path())));
        }
        tree! { "$unwind" => Tree::Doc(fields) }
    }

    fn bucket(&mut self) -> Tree {
        let by = self.reference("num");
        if self.random.percent(40) {
            let buckets = Tree::of(self.random.between(1, 4) as i32);
            let mut fields = vec![("groupBy".to_owned(), by), ("buckets".to_owned(), buckets)];
            if self.random.percent(30) {
                let granularity = *self.random.pick(&["R5", "R10", "1-2-5", "E6", "POWERSOF2"]);
                fields.push(("granularity".to_owned(), Tree::of(granularity)));
            }
            return tree! { "$bucketAuto" => Tree::Doc(fields) };
        }
        let boundaries = match self.random.below(4) {
            0 => vec![Tree::of("a"), Tree::of("b"), Tree::of("z")],
            1 => vec![self.number(), self.number()],
            _ => [-5, 0, 2, 10].map(Tree::of).to_vec(),
        };
        let mut fields =
            vec![("groupBy".to_owned(), by), ("boundaries".to_owned(), Tree::Array(boundaries))];
        if self.random.percent(85) {
            fields.push(("default".to_owned(), Tree::of("other")));
        }
        if self.random.percent(40) {
            let mut output = Vec::new();
            self.accumulators(&mut output);
            if output.iter().all(|(_, value)| value.get("$addToSet").is_none()) {
                fields.push(("output".to_owned(), Tree::Doc(output)));
            }
        }
        tree! { "$bucket" => Tree::Doc(fields) }
    }

    fn lookup(&mut self) -> Tree {
        let mut fields = vec![("from".to_owned(), Tree::of("other"))];
        let (local, foreign) = (self.path(), self.path());
        let simple = self.random.percent(75);
        if simple {
            fields.push(("localField".to_owned(), Tree::of(&local)));
            fields.push(("foreignField".to_owned(), Tree::of(&foreign)));
        }
        if !simple || self.random.percent(30) {
            if self.random.percent(70) {
                fields.push(("let".to_owned(), Tree::field("v", self.reference("any"))));
                let condition = self.with_lookup_variable();
                let stages = vec![tree! { "$match" => tree! { "$expr" => condition } }];
                fields.push(("pipeline".to_owned(), Tree::Array(stages)));
            } else {
                let mut stages = Vec::new();
                self.stage(&mut stages, false);
                fields.push(("pipeline".to_owned(), Tree::Array(stages)));
            }
        }
        let to = if self.random.percent(70) { "joined".to_owned() } else { self.path() };
        fields.push(("as".to_owned(), Tree::of(&to)));
        tree! { "$lookup" => Tree::Doc(fields) }
    }

    fn with_lookup_variable(&mut self) -> Tree {
        let operator = *self.random.pick(&["$eq", "$eq", "$gt", "$lt"]);
        Tree::field(operator, Tree::Array(vec![self.reference("any"), Tree::of("$$v")]))
    }

    fn graph_lookup(&mut self) -> Tree {
        let (from, to) = (self.path(), self.path());
        // What is found comes in no order of its own: its number is what can be compared.
        tree! {
            "$graphLookup" => tree! {
                "from" => "other",
                "startWith" => self.reference("any"),
                "connectFromField" => from.as_str(),
                "connectToField" => to.as_str(),
                "maxDepth" => 0,
                "as" => "joined",
            },
        }
    }

    fn window(&mut self) -> Tree {
        let mut fields = Vec::new();
        if self.random.percent(40) {
            fields.push((
                "partitionBy".to_owned(),
                Tree::of(&format!("${}", self.random.pick(&NAMES))),
            ));
        }
        let by_rank = self.random.percent(20);
        let sort = if by_rank {
            let name = *self.random.pick(&NAMES);
            tree! { name => 1 }
        } else {
            tree! { "_id" => 1 }
        };
        fields.push(("sortBy".to_owned(), sort));
        let output = if by_rank {
            let operator = *self.random.pick(&["$rank", "$denseRank"]);
            Tree::field(operator, Tree::Doc(Vec::new()))
        } else {
            self.window_function()
        };
        fields.push(("output".to_owned(), Tree::field("w", output)));
        tree! { "$setWindowFields" => Tree::Doc(fields) }
    }

    fn window_function(&mut self) -> Tree {
        match self.random.below(10) {
            0 => tree! { "$documentNumber" => Tree::Doc(Vec::new()) },
            1 => tree! { "$shift" => tree! {
                "output" => self.reference("any"),
                "by" => self.random.below(5) as i32 - 2,
                "default" => self.literal_number(),
            } },
            _ => {
                let (operator, wish) = *self.random.pick(&ACCUMULATORS[..11]);
                let Tree::Doc(mut fields) = self.accumulator(operator, wish) else {
                    return Tree::Doc(Vec::new());
                };
                let low = self.random.below(4) as i32 - 2;
                let high = low + self.random.below(3) as i32;
                let bound = |maker: &mut Maker, number: i32, open: &str| match maker.random.below(4)
                {
                    0 => Tree::of(open),
                    1 if number == 0 => Tree::of("current"),
                    _ => Tree::of(number),
                };
                if self.random.percent(80) {
                    let kind = *self.random.pick(&["documents", "documents", "range"]);
                    let bounds =
                        vec![bound(self, low, "unbounded"), bound(self, high, "unbounded")];
                    fields.push(("window".to_owned(), Tree::field(kind, Tree::Array(bounds))));
                }
                Tree::Doc(fields)
            }
        }
    }

    fn literal_number(&mut self) -> Tree {
        self.small()
    }
}
