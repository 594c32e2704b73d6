//! Updates: operators, replacements, pipelines, and the arrays that positional paths walk.

use crate::tree::{Tree, tree};
use crate::values::{Maker, NAMES};

const OPERATORS: [&str; 16] = [
    "$set",
    "$set",
    "$set",
    "$unset",
    "$inc",
    "$inc",
    "$mul",
    "$min",
    "$max",
    "$rename",
    "$push",
    "$push",
    "$addToSet",
    "$pull",
    "$bit",
    "$setOnInsert",
];

impl Maker {
    /// One statement of the command `update`: `q`, `u`, and options.
    pub(crate) fn update_statement(&mut self) -> Tree {
        let filter = match self.random.below(10) {
            0..4 => Tree::Doc(Vec::new()),
            4..6 => {
                let id = Tree::of(self.random.between(1, 4) as i32);
                Tree::field("_id", id)
            }
            _ => self.filter(1),
        };
        let mut fields = vec![("q".to_owned(), filter)];
        self.update_fields(&mut fields, "u");
        let is_replacement = fields[1].1.fields().iter().all(|(name, _)| !name.starts_with('$'))
            && matches!(fields[1].1, Tree::Doc(_));
        if self.random.percent(if is_replacement { 3 } else { 50 }) {
            fields.push(("multi".to_owned(), Tree::of(true)));
        }
        Tree::Doc(fields)
    }

    /// Adds the update under `name`, `arrayFilters` if its paths need them, and sometimes `upsert`.
    pub(crate) fn update_fields(&mut self, fields: &mut Vec<(String, Tree)>, name: &str) {
        let mut array_filters = Vec::new();
        let update = match self.random.below(100) {
            0..10 => self.replacement(),
            10..28 => self.update_pipeline(),
            _ => self.update_operators(&mut array_filters),
        };
        fields.push((name.to_owned(), update));
        if !array_filters.is_empty() {
            fields.push(("arrayFilters".to_owned(), Tree::Array(array_filters)));
        }
        if self.random.percent(25) {
            fields.push(("upsert".to_owned(), Tree::of(true)));
        }
    }

    fn replacement(&mut self) -> Tree {
        let Tree::Doc(mut fields) = self.inner(2) else { return Tree::Doc(Vec::new()) };
        if self.random.percent(15) {
            fields.insert(self.random.below(fields.len() + 1), ("_id".to_owned(), Tree::of(1)));
        }
        Tree::Doc(fields)
    }

    fn update_pipeline(&mut self) -> Tree {
        let count = self.random.between(1, 2);
        let stage = |maker: &mut Maker| match maker.random.below(10) {
            0..6 => {
                let name = *maker.random.pick(&["$set", "$addFields"]);
                Tree::field(name, maker.computed_fields(2))
            }
            6 => tree! { "$unset" => maker.path().as_str() },
            7 => tree! { "$replaceWith" => maker.expression("obj", 2) },
            8 => tree! { "$replaceRoot" => tree! { "newRoot" => maker.expression("obj", 2) } },
            _ if maker.random.percent(20) => maker.fill_stage(),
            _ => tree! { "$project" => maker.stage_projection() },
        };
        Tree::Array((0..count).map(|_| stage(self)).collect())
    }

    fn update_operators(&mut self, array_filters: &mut Vec<Tree>) -> Tree {
        let mut operators: Vec<(String, Tree)> = Vec::new();
        let count = if self.random.percent(75) { 1 } else { 2 };
        for _ in 0..count {
            let operator = match self.random.below(30) {
                0 => "$pop",
                1 => "$pullAll",
                2 => "$currentDate",
                3 => "$pop",
                _ => *self.random.pick(&OPERATORS),
            };
            if operators.iter().any(|(name, _)| name == operator) {
                continue;
            }
            let mut paths = Vec::new();
            for _ in 0..if self.random.percent(75) { 1 } else { 2 } {
                let (path, value) = self.update_place(array_filters);
                if paths.iter().all(|(other, _)| *other != path) {
                    let argument = self.update_argument(operator, &value);
                    paths.push((path, argument));
                }
            }
            operators.push((operator.to_owned(), Tree::Doc(paths)));
        }
        Tree::Doc(operators)
    }

    /// Returns a path to change; some of its positions become `$`, `$[]` or `$[e]`.
    fn update_place(&mut self, array_filters: &mut Vec<Tree>) -> (String, Tree) {
        let (path, value) = self.place();
        if self.random.percent(2) {
            return ("_id".to_owned(), Tree::of(1));
        }
        if let (Tree::Array(items), true) = (&value, self.random.percent(15)) {
            return (self.beyond(&path, items.len()), self.value(1));
        }
        let has_position = path.split('.').skip(1).any(|part| part.parse::<u32>().is_ok());
        if has_position && self.random.percent(45) {
            let mut parts: Vec<String> = path.split('.').map(str::to_owned).collect();
            for part in parts.iter_mut().skip(1).filter(|part| part.parse::<u32>().is_ok()) {
                *part = self.position(&value, array_filters);
            }
            return (parts.join("."), value);
        }
        if matches!(value, Tree::Array(_)) && self.random.percent(20) {
            let element = value.items().first().cloned().unwrap_or(value);
            let position = self.position(&element, array_filters);
            return (format!("{path}.{position}"), element);
        }
        (path, value)
    }

    fn position(&mut self, element: &Tree, array_filters: &mut Vec<Tree>) -> String {
        match self.random.below(10) {
            0..3 => "$".to_owned(),
            3..6 => "$[]".to_owned(),
            6..9 => {
                if array_filters.is_empty() {
                    let name =
                        if self.random.percent(70) { "e".to_owned() } else { "e.a".to_owned() };
                    let condition = if self.random.percent(50) {
                        element.clone()
                    } else {
                        self.operators(element, 1)
                    };
                    array_filters.push(Tree::field(name, condition));
                }
                "$[e]".to_owned()
            }
            _ => self.random.below(4).to_string(),
        }
    }

    fn update_argument(&mut self, operator: &str, value: &Tree) -> Tree {
        let argument = match operator {
            "$inc" | "$mul" if self.random.percent(95) => self.number(),
            "$rename" if self.random.percent(95) => {
                let path = if self.random.percent(60) {
                    (*self.random.pick(&NAMES)).to_owned()
                } else {
                    self.path()
                };
                return Tree::of(&path);
            }
            "$unset" => Tree::of(""),
            "$pop" if self.random.percent(90) => {
                Tree::of(if self.random.percent(50) { 1 } else { -1 })
            }
            "$push" | "$addToSet" => self.pushed(operator, value),
            "$pull" => match self.random.below(10) {
                0..4 => match value.items() {
                    [] => value.clone(),
                    items => self.random.pick(items).clone(),
                },
                4..8 => {
                    let element = value.items().first().unwrap_or(value).clone();
                    self.operators(&element, 1)
                }
                8 => self.filter(1),
                _ => self.value(1),
            },
            "$pullAll" => {
                let mut list = value.items().to_vec();
                list.truncate(2);
                list.push(self.scalar());
                self.spoiled(Tree::Array(list))
            }
            "$bit" => {
                let name = *self.random.pick(&["and", "or", "xor"]);
                let bits = if self.random.percent(70) {
                    Tree::of(*self.random.pick(&[1, 3, 5, -1]))
                } else {
                    self.number()
                };
                self.spoiled(Tree::field(name, bits))
            }
            "$currentDate" => match self.random.below(3) {
                0 => Tree::of(true),
                1 => tree! { "$type" => "date" },
                _ => tree! { "$type" => "timestamp" },
            },
            "$min" | "$max" if self.random.percent(50) => self.scalar(),
            _ => self.value(2),
        };
        self.spoiled(argument)
    }

    fn pushed(&mut self, operator: &str, value: &Tree) -> Tree {
        let known = value.items().first().cloned();
        let item = |maker: &mut Maker| match &known {
            Some(known) if maker.random.percent(40) => known.clone(),
            _ => maker.value(1),
        };
        if self.random.percent(45) {
            return item(self);
        }
        let count = self.random.below(4);
        let each = Tree::Array((0..count).map(|_| item(self)).collect());
        let mut fields = vec![("$each".to_owned(), self.spoiled(each))];
        if operator == "$push" {
            if self.random.percent(35) {
                fields.push(("$slice".to_owned(), self.small()));
            }
            if self.random.percent(35) {
                let order = match self.random.below(6) {
                    0..3 => Tree::of(1),
                    3 => Tree::of(-1),
                    4 => tree! { "a" => 1 },
                    _ => tree! { "a" => -1, "b" => 1 },
                };
                fields.push(("$sort".to_owned(), self.spoiled(order)));
            }
            if self.random.percent(35) {
                fields.push(("$position".to_owned(), self.small()));
            }
        }
        Tree::Doc(fields)
    }

    /// Returns fields with expressions, for `$set` and `$addFields`.
    pub(crate) fn computed_fields(&mut self, depth: usize) -> Tree {
        let mut fields: Vec<(String, Tree)> = Vec::new();
        for _ in 0..self.random.between(1, 2) {
            let path = self.path();
            let value = if self.random.percent(10) {
                Tree::field("a", self.expression("any", depth))
            } else {
                self.expression("any", depth)
            };
            if fields.iter().all(|(other, _)| *other != path) {
                fields.push((path, value));
            }
        }
        Tree::Doc(fields)
    }
}
