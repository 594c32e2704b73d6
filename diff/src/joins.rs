//! Stages that read another collection: `$lookup`, `$graphLookup`, `$unionWith`.

use crate::tree::{Tree, tree};
use crate::values::Maker;

/// Returns a stage that sorts the found documents, which have no defined order.
pub(crate) fn sorted_by_id(name: &str) -> Tree {
    let input = format!("${name}");
    let sorted = tree! { "input" => input.as_str(), "sortBy" => tree! { "_id" => 1 } };
    tree! { "$addFields" => Tree::field(name, tree! { "$sortArray" => sorted }) }
}

impl Maker {
    fn other_collection(&mut self) -> Tree {
        Tree::of(*self.random.pick(&["other", "other", "other", "c", "v", "nothing"]))
    }

    /// `$lookup` by a field, by a pipeline with variables, or both.
    pub(crate) fn lookup(&mut self) -> Tree {
        if self.random.percent(4) {
            let documents = self.document_list();
            let stages = vec![tree! { "$documents" => documents }];
            return tree! { "$lookup" => tree! { "pipeline" => Tree::Array(stages), "as" => "joined" } };
        }
        let mut fields = vec![("from".to_owned(), self.other_collection())];
        let (local, foreign) = (self.named_path(), self.named_path());
        let simple = self.random.percent(70);
        if simple {
            fields.push(("localField".to_owned(), Tree::of(&local)));
            fields.push(("foreignField".to_owned(), Tree::of(&foreign)));
        }
        if !simple || self.random.percent(30) {
            let has_variable = self.random.percent(70);
            if has_variable {
                let name = if self.random.percent(4) { "CURRENT" } else { "v" };
                fields.push(("let".to_owned(), Tree::field(name, self.reference("any"))));
            }
            let names: &[&'static str] = if has_variable { &["v"] } else { &[] };
            let stages = self.with(names, |maker| match maker.random.below(4) {
                1 if has_variable => {
                    let walk = maker.graph_lookup();
                    Tree::Array(vec![walk, sorted_by_id("joined")])
                }
                0 if has_variable => {
                    let condition = maker.with_lookup_variable();
                    Tree::Array(vec![tree! { "$match" => tree! { "$expr" => condition } }])
                }
                _ => maker.inner_pipeline(),
            });
            fields.push(("pipeline".to_owned(), stages));
        }
        let to = if self.random.percent(70) { "joined".to_owned() } else { self.named_path() };
        fields.push(("as".to_owned(), Tree::of(&to)));
        tree! { "$lookup" => Tree::Doc(fields) }
    }

    fn with_lookup_variable(&mut self) -> Tree {
        let operator = *self.random.pick(&["$eq", "$eq", "$gt", "$lt", "$in"]);
        Tree::field(operator, Tree::Array(vec![self.reference("any"), Tree::of("$$v")]))
    }

    /// Returns a `$graphLookup` into the field `joined`, whose order is open.
    pub(crate) fn graph_lookup(&mut self) -> Tree {
        let (from, to) = (self.named_path(), self.named_path());
        let mut fields = vec![
            ("from".to_owned(), self.other_collection()),
            ("startWith".to_owned(), self.expression("any", 1)),
            ("connectFromField".to_owned(), Tree::of(&from)),
            ("connectToField".to_owned(), Tree::of(&to)),
            ("as".to_owned(), Tree::of("joined")),
        ];
        if self.random.percent(50) {
            let depth = Tree::of(self.random.below(3) as i32);
            fields.push(("maxDepth".to_owned(), self.spoiled(depth)));
        }
        if self.random.percent(30) {
            fields.push(("depthField".to_owned(), Tree::of("depth")));
        }
        if self.random.percent(30) {
            // The variable exists if the stage is in a `$lookup` that defines it; otherwise it is
            // an error.
            let restriction = match self.random.below(3) {
                0 => tree! { "$expr" => self.with_lookup_variable() },
                _ => self.filter(1),
            };
            fields.push(("restrictSearchWithMatch".to_owned(), restriction));
        }
        tree! { "$graphLookup" => Tree::Doc(fields) }
    }

    /// Returns a `$unionWith` in one of its forms.
    pub(crate) fn union_with(&mut self) -> Tree {
        let from = self.other_collection();
        if self.random.percent(30) {
            return tree! { "$unionWith" => from };
        }
        tree! { "$unionWith" => tree! { "coll" => from, "pipeline" => self.inner_pipeline() } }
    }

    /// The argument of `$documents`.
    pub(crate) fn document_list(&mut self) -> Tree {
        let count = self.random.between(0, 3);
        let list = (0..count)
            .map(|number| {
                let mut fields = vec![("_id".to_owned(), Tree::of(number as i32))];
                for name in ["a", "b"] {
                    let value = self.expression("any", 1);
                    fields.push((name.to_owned(), value));
                }
                Tree::Doc(fields)
            })
            .collect();
        let list = Tree::Array(list);
        self.spoiled(list)
    }
}
