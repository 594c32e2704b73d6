//! Pipelines of `aggregate`.

use crate::joins::sorted_by_id;
use crate::tree::{Tree, tree};
use crate::values::Maker;

impl Maker {
    /// Returns a pipeline that computes one expression of each document: the shortest way to test
    /// expressions.
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
        self.with_nothing(&mut stages);
        Tree::Array(stages)
    }

    /// Returns the stages of a view, which change documents one by one.
    pub(crate) fn view(&mut self) -> Vec<Tree> {
        let count = self.random.between(1, 2);
        (0..count).map(|_| self.simple_stage()).collect()
    }

    /// A few stages inside another stage.
    pub(crate) fn inner_pipeline(&mut self) -> Tree {
        let mut stages = Vec::new();
        for _ in 0..self.random.between(0, 2) {
            self.stage(&mut stages, false);
        }
        self.with_nothing(&mut stages);
        Tree::Array(stages)
    }

    /// Inserts a stage that leaves everything unchanged.
    fn with_nothing(&mut self, stages: &mut Vec<Tree>) {
        if self.random.percent(6) {
            let at = self.random.between(0, stages.len());
            let stage = match self.random.below(5) {
                0 => tree! { "$skip" => 0 },
                1 => tree! { "$match" => tree! { "$expr" => Tree::of(true) } },
                _ => tree! { "$match" => Tree::Doc(Vec::new()) },
            };
            stages.insert(at, stage);
        }
    }

    /// Returns a number for an argument that is a count, of any type and with any fraction.
    fn count(&mut self) -> Tree {
        if self.random.percent(70) { self.small() } else { self.number() }
    }

    fn simple_stage(&mut self) -> Tree {
        match self.random.below(10) {
            0..4 => tree! { "$match" => self.filter(1) },
            4..6 => tree! { "$project" => self.stage_projection() },
            6..8 => {
                let name = *self.random.pick(&["$addFields", "$set"]);
                Tree::field(name, self.computed_fields(2))
            }
            8 => self.unwind(),
            _ => self.unset(),
        }
    }

    fn stage(&mut self, stages: &mut Vec<Tree>, outer: bool) {
        let stage = match self.random.below(100) {
            0..34 => self.simple_stage(),
            34..45 => return self.group(stages),
            45..50 => tree! { "$sort" => self.sort() },
            50..53 => {
                stages.push(tree! { "$sort" => tree! { "_id" => 1 } });
                let name = *self.random.pick(&["$limit", "$skip"]);
                let count = self.count();
                Tree::field(name, self.spoiled(count))
            }
            53..57 => self.unwind(),
            57..62 => self.bucket(),
            62..64 => {
                let on = self.reference("any");
                stages.push(tree! { "$sortByCount" => on });
                tree! { "$sort" => tree! { "count" => -1, "_id" => 1 } }
            }
            64 if self.random.percent(50) => {
                let size = self.count();
                stages.push(tree! { "$sample" => tree! { "size" => self.spoiled(size) } });
                tree! { "$count" => "n" }
            }
            64 => tree! { "$count" => "n" },
            65..69 => self.replace_root(),
            69..73 if outer => self.facet(),
            73..81 if outer => self.lookup(),
            81..84 if outer => self.union_with(),
            84..91 => {
                let window = self.window();
                stages.push(window);
                tree! { "$sort" => tree! { "_id" => 1 } }
            }
            91..93 => return self.densify(stages),
            93..95 => return self.fill(stages),
            95..97 => {
                let lookup = self.graph_lookup();
                stages.push(lookup);
                sorted_by_id("joined")
            }
            _ => self.redact(),
        };
        stages.push(stage);
    }

    fn replace_root(&mut self) -> Tree {
        let name = *self.random.pick(&["$replaceRoot", "$replaceWith"]);
        let root = match self.random.below(3) {
            0 => {
                let parts = vec![self.expression("obj", 1), Tree::of("$$ROOT")];
                tree! { "$mergeObjects" => Tree::Array(parts) }
            }
            _ => self.expression("obj", 2),
        };
        let root = if name == "$replaceRoot" {
            tree! { "newRoot" => root }
        } else {
            root
        };
        Tree::field(name, root)
    }

    pub(crate) fn unset(&mut self) -> Tree {
        if self.random.percent(60) {
            let path = self.named_path();
            return tree! { "$unset" => path.as_str() };
        }
        let count = self.random.between(1, 2);
        let paths = (0..count).map(|_| Tree::of(&self.path())).collect();
        tree! { "$unset" => self.spoiled(Tree::Array(paths)) }
    }

    fn facet(&mut self) -> Tree {
        let count = self.random.between(1, 3);
        let facets = ["a", "b", "d"][..count]
            .iter()
            .map(|name| ((*name).to_owned(), self.inner_pipeline()))
            .collect();
        tree! { "$facet" => Tree::Doc(facets) }
    }

    fn redact(&mut self) -> Tree {
        let branch = |maker: &mut Maker| {
            let outcome = *maker.random.pick(&["$$DESCEND", "$$DESCEND", "$$PRUNE", "$$KEEP"]);
            Tree::of(outcome)
        };
        let condition = self.expression("bool", 1);
        let branches = vec![condition, branch(self), branch(self)];
        let whole = tree! { "$cond" => Tree::Array(branches) };
        tree! { "$redact" => self.spoiled(whole) }
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

    pub(crate) fn unwind(&mut self) -> Tree {
        let path = format!("${}", self.named_path());
        if self.random.percent(50) {
            return tree! { "$unwind" => path.as_str() };
        }
        let mut fields = vec![("path".to_owned(), Tree::of(&path))];
        if self.random.percent(60) {
            fields.push(("preserveNullAndEmptyArrays".to_owned(), Tree::of(true)));
        }
        if self.random.percent(50) {
            fields.push(("includeArrayIndex".to_owned(), Tree::of(&self.named_path())));
        }
        tree! { "$unwind" => Tree::Doc(fields) }
    }

    fn bucket(&mut self) -> Tree {
        let by = self.reference("num");
        if self.random.percent(40) {
            let buckets = Tree::of(self.random.between(1, 4) as i32);
            let mut fields = vec![("groupBy".to_owned(), by), ("buckets".to_owned(), buckets)];
            if self.random.percent(30) {
                let granularity = *self.random.pick(&[
                    "R5",
                    "R10",
                    "R20",
                    "1-2-5",
                    "E6",
                    "E12",
                    "POWERSOF2",
                    "x",
                ]);
                fields.push(("granularity".to_owned(), Tree::of(granularity)));
            }
            if self.random.percent(40) {
                self.output(&mut fields);
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
            self.output(&mut fields);
        }
        tree! { "$bucket" => Tree::Doc(fields) }
    }

    /// Returns the accumulators of buckets, none with an open order.
    fn output(&mut self, fields: &mut Vec<(String, Tree)>) {
        let mut output = Vec::new();
        self.accumulators(&mut output);
        if output.iter().all(|(_, value)| value.get("$addToSet").is_none()) {
            fields.push(("output".to_owned(), Tree::Doc(output)));
        }
    }
}
