//! Filters.

use marula_bson::{Type, Value};

use crate::tree::{Tree, tree};
use crate::values::Maker;

/// Names of types that `$type` accepts, and some invalid ones.
const TYPES: [&str; 24] = [
    "double",
    "string",
    "object",
    "array",
    "binData",
    "undefined",
    "objectId",
    "bool",
    "date",
    "null",
    "regex",
    "dbPointer",
    "javascript",
    "symbol",
    "javascriptWithScope",
    "int",
    "timestamp",
    "long",
    "decimal",
    "minKey",
    "maxKey",
    "number",
    "missing",
    "text",
];

impl Maker {
    /// Returns a filter whose `$and`, `$or` and similar operators are nested at most `depth` deep.
    pub(crate) fn filter(&mut self, depth: usize) -> Tree {
        let count = match self.random.below(20) {
            0 => 0,
            1..14 => 1,
            14..18 => 2,
            _ => 3,
        };
        let mut fields: Vec<(String, Tree)> = Vec::new();
        for _ in 0..count {
            let clause = self.clause(depth);
            if fields.iter().all(|(name, _)| *name != clause.0) || self.random.percent(10) {
                fields.push(clause);
            }
        }
        Tree::Doc(fields)
    }

    fn clause(&mut self, depth: usize) -> (String, Tree) {
        match self.random.below(100) {
            0..14 if depth > 0 => {
                let operator = *self.random.pick(&["$and", "$or", "$nor"]);
                let count = self.random.between(1, 3);
                let list = (0..count).map(|_| self.filter(depth - 1)).collect();
                (operator.to_owned(), self.spoiled(Tree::Array(list)))
            }
            14..20 => {
                let expression = self.expression("any", 2);
                ("$expr".to_owned(), expression)
            }
            20..22 => {
                let id = self.small();
                ("_id".to_owned(), id)
            }
            22 => ("$jsonSchema".to_owned(), self.json_schema()),
            _ => {
                let (path, value) = self.place();
                let condition = match value.kind() {
                    _ if self.random.percent(70) => self.operators(&value, depth.min(2)),
                    // A document of operators is not a value: of $-names generated documents have
                    // those of references.
                    _ => value,
                };
                (path, condition)
            }
        }
    }

    /// Returns operators on a path with a known `value`.
    pub(crate) fn operators(&mut self, value: &Tree, depth: usize) -> Tree {
        let mut fields = Vec::new();
        let count = if self.random.percent(80) { 1 } else { 2 };
        for _ in 0..count {
            self.operator(value, depth, &mut fields);
        }
        Tree::Doc(fields)
    }

    fn operator(&mut self, value: &Tree, depth: usize, fields: &mut Vec<(String, Tree)>) {
        let mut add = |name: &str, argument: Tree| fields.push((name.to_owned(), argument));
        match self.random.below(40) {
            0..10 => {
                let name = *self.random.pick(&["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]);
                let argument = match self.random.below(100) {
                    0..66 => value.clone(),
                    66..94 => self.near(value),
                    _ => self.extreme(),
                };
                add(name, argument);
            }
            10..15 => {
                let name = *self.random.pick(&["$in", "$nin"]);
                let list = self.list_with(value);
                add(name, self.spoiled(list));
            }
            15..17 => {
                let flag = if self.random.percent(70) {
                    Tree::of(self.random.percent(50))
                } else {
                    self.scalar()
                };
                add("$exists", flag);
            }
            17..20 => add("$type", self.type_list(value)),
            20..22 => {
                let pair = vec![self.number_for_modulo(), self.number_for_modulo()];
                add("$mod", self.spoiled(Tree::Array(pair)));
            }
            22..24 => {
                let Tree::Leaf(regex) = self.regex() else { return };
                let Value::Regex { pattern, options } = regex.get() else { return };
                if self.random.percent(50) {
                    add("$regex", Tree::of(regex.get()));
                } else {
                    add("$regex", Tree::of(pattern));
                    if !options.is_empty() || self.random.percent(20) {
                        add("$options", Tree::of(options));
                    }
                }
            }
            24..27 => {
                let list = if self.random.percent(25) && depth > 0 {
                    let inner = self.element_match(value, depth);
                    Tree::Array(vec![Tree::field("$elemMatch", inner)])
                } else {
                    self.list_with(value)
                };
                add("$all", self.spoiled(list));
            }
            27..31 if depth > 0 => {
                let inner = self.element_match(value, depth);
                add("$elemMatch", self.spoiled(inner));
            }
            31..33 => {
                let size = if self.random.percent(85) {
                    Tree::of(self.random.below(4) as i32)
                } else {
                    self.scalar()
                };
                add("$size", size);
            }
            33..36 => {
                let name = *self.random.pick(&[
                    "$bitsAllSet",
                    "$bitsAnySet",
                    "$bitsAllClear",
                    "$bitsAnyClear",
                ]);
                add(name, self.bit_mask());
            }
            _ if depth > 0 => {
                let inner = if self.random.percent(15) {
                    self.regex()
                } else {
                    self.operators(value, depth - 1)
                };
                add("$not", self.spoiled(inner));
            }
            _ => add("$ne", value.clone()),
        }
    }

    /// Returns an argument of `$elemMatch`: operators on the elements, or a filter of documents.
    fn element_match(&mut self, value: &Tree, depth: usize) -> Tree {
        let element = match value.items() {
            [] => value.clone(),
            items => self.random.pick(items).clone(),
        };
        if matches!(element, Tree::Array(_)) && self.random.percent(50) {
            // The elements of an array of arrays are matched by an inner `$elemMatch`.
            let item = element.items().first().unwrap_or(&element).clone();
            return Tree::field("$elemMatch", self.operators(&item, depth - 1));
        }
        if self.random.percent(50) {
            return self.operators(&element, depth - 1);
        }
        let known = match element.fields() {
            [] => None,
            fields => Some(self.random.pick(fields).clone()),
        };
        match known {
            Some((name, value)) if self.random.percent(60) => {
                let condition =
                    if self.random.percent(50) { self.operators(&value, depth - 1) } else { value };
                Tree::field(name, condition)
            }
            _ => self.filter(depth - 1),
        }
    }

    /// Returns another value of the same type, or one of a neighbouring type.
    fn near(&mut self, value: &Tree) -> Tree {
        match value.kind() {
            kind if kind.is_number() => self.number(),
            Type::String | Type::Symbol => self.string(),
            Type::DateTime => self.date(),
            _ => self.value(1),
        }
    }

    fn list_with(&mut self, value: &Tree) -> Tree {
        let count = self.random.below(4);
        let mut list: Vec<Tree> = (0..count).map(|_| self.near(value)).collect();
        if self.random.percent(75) {
            list.push(value.clone());
        }
        if self.random.percent(15) {
            list.push(self.regex());
        }
        if let (true, Tree::Array(items)) = (self.random.percent(40), value) {
            list.extend(items.iter().cloned());
        }
        Tree::Array(list)
    }

    fn type_list(&mut self, value: &Tree) -> Tree {
        let name = |maker: &mut Maker| match maker.random.below(10) {
            0..3 => Tree::of(value.kind().alias()),
            3..7 => Tree::of(*maker.random.pick(&TYPES)),
            7 => maker.small(),
            _ => Tree::of(maker.random.between(1, 21) as i32),
        };
        if self.random.percent(70) {
            return name(self);
        }
        let count = self.random.below(3);
        Tree::Array((0..count).map(|_| name(self)).collect())
    }

    fn number_for_modulo(&mut self) -> Tree {
        if self.random.percent(80) { self.small() } else { self.number() }
    }

    fn bit_mask(&mut self) -> Tree {
        match self.random.below(10) {
            0..4 => self.small(),
            4..8 => {
                let count = self.random.below(4);
                let bits = [0, 1, 2, 3, 5, 31, 32, 63, 64, 200];
                let bit = |maker: &mut Maker| match maker.random.below(30) {
                    0 => maker.scalar(),
                    1 => Tree::of(f64::from(*maker.random.pick(&bits))),
                    _ => Tree::of(*maker.random.pick(&bits)),
                };
                Tree::Array((0..count).map(|_| bit(self)).collect())
            }
            8 => self.number(),
            _ => self.scalar(),
        }
    }

    fn json_schema(&mut self) -> Tree {
        let (path, value) = self.place();
        let name = path.split('.').next().unwrap_or("a").to_owned();
        let kind = tree! { "bsonType" => value.kind().alias() };
        match self.random.below(4) {
            0 => tree! { "required" => Tree::Array(vec![Tree::of(&name)]) },
            1 => {
                tree! { "properties" => Tree::field(name, tree! { "enum" => Tree::Array(vec![value]) }) }
            }
            2 => tree! { "properties" => Tree::field(name, tree! { "minimum" => self.small() }) },
            _ => tree! { "properties" => Tree::field(name, kind) },
        }
    }

    /// Returns the argument, or rarely an invalid one.
    pub(crate) fn spoiled(&mut self, argument: Tree) -> Tree {
        if self.random.percent(2) { self.value(1) } else { argument }
    }
}
