//! Variables: `let` of commands and stages, where filters of other stages see them, and names that
//! redefine those of the system.

use crate::tree::{Tree, tree};
use crate::values::Maker;

/// Names of variables; most of them are valid.
const NAMES: [&str; 20] = [
    "v", "v", "v", "v", "v", "v", "w", "w", "w", "CURRENT", "CURRENT", "ROOT", "NOW", "this", "V",
    "é", "v.x", "", "REMOVE", "1v",
];

impl Maker {
    /// Returns documents with a place in `p` in addition to their other fields.
    pub(crate) fn documents_with_places(&mut self, count: usize) -> Vec<Tree> {
        let mut documents = self.documents(count);
        for (number, document) in documents.iter_mut().enumerate() {
            if let Tree::Doc(fields) = document {
                let place = vec![Tree::of(number as i32), Tree::of(0.5)];
                fields.push(("p".to_owned(), Tree::Array(place)));
            }
        }
        documents
    }

    /// Returns commands with variables.
    pub(crate) fn with_variables(&mut self) -> (Tree, Vec<Tree>) {
        let first = self.command_with_variables();
        let steps = (0..self.random.below(3)).map(|_| self.command_with_variables()).collect();
        (first, steps)
    }

    fn command_with_variables(&mut self) -> Tree {
        let has_let = self.random.percent(75);
        let names: &[&'static str] = if has_let { &["v"] } else { &[] };
        let bound = has_let.then(|| self.bound_by_command());
        let mut command = self.with(names, |maker| match maker.random.below(20) {
            0 | 1 => tree! {
                "find" => "c", "filter" => maker.condition(),
                "projection" => tree! { "r" => maker.redefined(2) }, "hint" => tree! { "$natural" => 1 },
            },
            2 | 3 => {
                let stage = tree! { "$set" => tree! { "r" => maker.redefined(1) } };
                let change = match maker.random.percent(70) {
                    true => Tree::Array(vec![stage]),
                    false => tree! { "$set" => tree! { "r" => 1 } },
                };
                let mut update = tree! {
                    "q" => maker.condition(), "u" => change, "multi" => Tree::of(true),
                };
                if maker.random.percent(30)
                    && let Tree::Doc(fields) = &mut update
                {
                    let constants = tree! { "w" => maker.value(1) };
                    fields.push(("c".to_owned(), constants));
                }
                tree! { "update" => "c", "updates" => Tree::Array(vec![update]) }
            }
            4 => {
                let delete = tree! { "q" => maker.condition(), "limit" => 0 };
                tree! { "delete" => "c", "deletes" => Tree::Array(vec![delete]) }
            }
            5 => tree! {
                "findAndModify" => "c", "query" => maker.condition(), "sort" => tree! { "_id" => 1 },
                "update" => Tree::Array(vec![tree! { "$set" => tree! { "r" => maker.redefined(1) } }]),
                "fields" => tree! { "s" => maker.redefined(1) },
            },
            6 => tree! { "count" => "c", "query" => maker.condition() },
            7 => tree! { "distinct" => "c", "key" => "_id", "query" => maker.condition() },
            _ => {
                let stages = maker.stages_with_variables();
                tree! { "aggregate" => "c", "pipeline" => stages, "cursor" => tree! {} }
            }
        });
        if let (Tree::Doc(fields), Some(bound)) = (&mut command, bound) {
            fields.push(("let".to_owned(), bound));
        }
        command
    }

    /// The `let` of a command, whose variables are constants.
    fn bound_by_command(&mut self) -> Tree {
        let value = match self.random.below(10) {
            0..7 => Tree::field("$literal", self.value(1)),
            7 => Tree::of("$$NOW"),
            _ => self.expression("any", 1),
        };
        let mut fields = vec![((*self.random.pick(&NAMES[..12])).to_owned(), value)];
        if self.random.percent(25) {
            let name = *self.random.pick(&NAMES);
            if fields.iter().all(|(other, _)| other != name) {
                let value = if self.random.percent(50) { Tree::of("$$v") } else { self.small() };
                fields.push((name.to_owned(), value));
            }
        }
        let bound = Tree::Doc(fields);
        self.spoiled(bound)
    }

    /// A filter that uses a variable.
    fn condition(&mut self) -> Tree {
        let condition = match self.random.below(6) {
            0..3 => {
                let operator = *self.random.pick(&["$eq", "$ne", "$gt", "$lte", "$in"]);
                let variable = Tree::of(*self.random.pick(&["$$v", "$$v", "$$v", "$$w", "$$v.a"]));
                Tree::field(operator, Tree::Array(vec![self.reference("any"), variable]))
            }
            3 => self.redefined(1),
            _ => self.expression("bool", 2),
        };
        let expression = tree! { "$expr" => condition };
        match self.random.below(10) {
            0 => self.filter(1),
            1 => tree! { "$nor" => Tree::Array(vec![expression]) },
            2 => {
                let other = self.filter(1);
                tree! { "$or" => Tree::Array(vec![other, expression]) }
            }
            _ => expression,
        }
    }

    /// An expression in which a variable is bound, perhaps one of the system.
    fn redefined(&mut self, depth: usize) -> Tree {
        let name = *self.random.pick(&NAMES);
        let names: &[&'static str] = &["v"];
        let bound = self.expression(if depth == 0 { "any" } else { "obj" }, 1);
        let inner = |maker: &mut Maker| {
            let inner = maker.with(names, |maker| match maker.random.below(6) {
                0 => Tree::of(*maker.random.pick(&[
                    "$$ROOT",
                    "$$CURRENT",
                    "$$ROOT.a",
                    "$$CURRENT.a",
                ])),
                1 => Tree::of(*maker.random.pick(&["$a", "$a.b", "$b", "$_id"])),
                2 if depth > 0 => maker.redefined(depth - 1),
                _ => maker.expression("any", 1),
            });
            match maker.random.percent(40) {
                true => tree! { "i" => inner, "c" => "$a", "r" => "$$ROOT._id" },
                false => inner,
            }
        };
        match self.random.below(8) {
            0 | 1 => {
                let input = self.expression("arr", 1);
                let body = inner(self);
                tree! { "$map" => tree! { "input" => input, "as" => name, "in" => body } }
            }
            2 => {
                let input = self.expression("arr", 1);
                let body = inner(self);
                tree! { "$filter" => tree! { "input" => input, "as" => name, "cond" => body } }
            }
            3 => {
                let input = self.expression("arr", 1);
                let body = self.with(&["this", "value"], inner);
                tree! { "$reduce" => tree! { "input" => input, "initialValue" => bound, "in" => body } }
            }
            _ => {
                let mut variables = vec![(name.to_owned(), bound)];
                if self.random.percent(25) && name != "w" {
                    // Variables of one list do not see each other.
                    let other =
                        if self.random.percent(50) { Tree::of("$$v") } else { Tree::of("$a") };
                    variables.push(("w".to_owned(), other));
                }
                let body = inner(self);
                tree! { "$let" => tree! { "vars" => Tree::Doc(variables), "in" => body } }
            }
        }
    }

    fn stages_with_variables(&mut self) -> Tree {
        let mut stages = Vec::new();
        if self.random.percent(25) {
            stages.push(self.near_with_variables());
        }
        for _ in 0..self.random.between(1, 2) {
            self.stage_with_variables(&mut stages, 2);
        }
        Tree::Array(stages)
    }

    fn near_with_variables(&mut self) -> Tree {
        let mut near = tree! {
            "near" => tree! { "type" => "Point", "coordinates" => Tree::Array(vec![Tree::of(0), Tree::of(0)]) },
            "distanceField" => "d", "key" => "p", "query" => self.condition(),
        };
        if let Tree::Doc(fields) = &mut near {
            // An expression may compute the place or a distance, of constants.
            let part = match self.random.below(12) {
                0 => Some(("maxDistance", Tree::of("$$v"))),
                1 => Some((
                    "minDistance",
                    tree! { "$add" => Tree::Array(vec![Tree::of("$$v"), Tree::of(1)]) },
                )),
                2 => Some(("distanceMultiplier", Tree::of("$$v"))),
                _ => None,
            };
            fields.extend(part.map(|(name, value)| (name.to_owned(), value)));
        }
        tree! { "$geoNear" => near }
    }

    fn stage_with_variables(&mut self, stages: &mut Vec<Tree>, depth: usize) {
        let stage = match self.random.below(14) {
            0..2 => tree! { "$match" => self.condition() },
            2..4 => tree! { "$project" => tree! { "r" => self.redefined(2) } },
            4 => tree! { "$addFields" => tree! { "r" => self.redefined(1) } },
            5 => tree! { "$replaceWith" => tree! { "_id" => "$_id", "r" => self.redefined(1) } },
            6..8 => {
                let from = *self.random.pick(&["other", "c"]);
                let to = *self.random.pick(&["a", "b", "_id", "x"]);
                let walk = tree! {
                    "from" => from, "startWith" => self.reference("any"), "connectFromField" => "a",
                    "connectToField" => to, "as" => "joined", "maxDepth" => 2,
                    "restrictSearchWithMatch" => self.condition(),
                };
                stages.push(tree! { "$graphLookup" => walk });
                crate::joins::sorted_by_id("joined")
            }
            8 if depth > 0 => {
                let mut inner = Vec::new();
                self.stage_with_variables(&mut inner, depth - 1);
                let from = *self.random.pick(&["other", "c"]);
                tree! { "$unionWith" => tree! { "coll" => from, "pipeline" => Tree::Array(inner) } }
            }
            9 if depth > 0 => {
                let mut inner = Vec::new();
                self.stage_with_variables(&mut inner, depth - 1);
                tree! { "$facet" => tree! { "f" => Tree::Array(inner) } }
            }
            _ if depth > 0 => {
                let mut fields =
                    vec![("from".to_owned(), Tree::of(*self.random.pick(&["other", "c"])))];
                if self.random.percent(70) {
                    let name = *self.random.pick(&NAMES);
                    let value = self.expression("any", 1);
                    fields.push(("let".to_owned(), Tree::field(name, value)));
                }
                let mut inner = Vec::new();
                if self.random.percent(10) {
                    inner.push(self.near_with_variables());
                }
                for _ in 0..self.random.between(1, 2) {
                    self.stage_with_variables(&mut inner, depth - 1);
                }
                fields.push(("pipeline".to_owned(), Tree::Array(inner)));
                fields.push(("as".to_owned(), Tree::of("joined")));
                tree! { "$lookup" => Tree::Doc(fields) }
            }
            _ => tree! { "$match" => self.condition() },
        };
        stages.push(stage);
    }
}
