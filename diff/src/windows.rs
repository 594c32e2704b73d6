//! Stages that read neighbours: `$setWindowFields`, `$fill`, `$densify`.

use marula_bson::Value;

use crate::accumulators::{ACCUMULATORS, ORDERLESS};
use crate::tree::{Tree, tree};
use crate::values::{Maker, NAMES};

const DAY_MS: i64 = 86_400_000;

impl Maker {
    /// Returns a `$setWindowFields` whose result does not depend on the order of equal documents.
    pub(crate) fn window(&mut self) -> Tree {
        let mut fields = Vec::new();
        if self.random.percent(40) {
            let by = if self.random.percent(70) {
                Tree::of(&format!("${}", self.random.pick(&NAMES)))
            } else {
                self.expression("any", 1)
            };
            fields.push(("partitionBy".to_owned(), by));
        }
        let name = *self.random.pick(&NAMES);
        let direction = if self.random.percent(70) { 1 } else { -1 };
        let form = self.random.below(10);
        let sort = match form {
            // Ranks and ranges require one field, in which equal values count as one.
            0..4 => tree! { name => direction },
            4..6 => tree! { name => direction, "_id" => 1 },
            _ => tree! { "_id" => direction },
        };
        fields.push(("sortBy".to_owned(), sort));
        let mut output = Vec::new();
        for target in ["w", "a.w"].into_iter().take(self.random.between(1, 2)) {
            let function = match form {
                0..2 => {
                    let operator = *self.random.pick(&["$rank", "$denseRank"]);
                    Tree::field(operator, Tree::Doc(Vec::new()))
                }
                2..4 => self.ranged(),
                _ => self.window_function(),
            };
            output.push((target.to_owned(), function));
        }
        fields.push(("output".to_owned(), Tree::Doc(output)));
        tree! { "$setWindowFields" => Tree::Doc(fields) }
    }

    /// Returns an accumulator over a range of the sort field, in units of time or numbers.
    fn ranged(&mut self) -> Tree {
        let (operator, wish) = *self.random.pick(&ACCUMULATORS[..ORDERLESS]);
        let Tree::Doc(mut fields) = self.accumulator(operator, wish) else {
            return Tree::Doc(Vec::new());
        };
        let mut window = Tree::field("range", self.bounds(true));
        if let (Tree::Doc(window), true) = (&mut window, self.random.percent(30)) {
            let unit = self.expression("unit", 0);
            window.push(("unit".to_owned(), unit));
        }
        fields.push(("window".to_owned(), window));
        Tree::Doc(fields)
    }

    fn bounds(&mut self, fractions: bool) -> Tree {
        let low = self.random.below(4) as i32 - 2;
        let high = low + self.random.below(3) as i32;
        let mut bound = |number: i32| match self.random.below(5) {
            0 => Tree::of("unbounded"),
            1 if number == 0 => Tree::of("current"),
            2 if fractions => Tree::of(f64::from(number) + 0.5),
            _ => Tree::of(number),
        };
        let bounds = Tree::Array(vec![bound(low), bound(high)]);
        self.spoiled(bounds)
    }

    fn window_function(&mut self) -> Tree {
        let nothing = || Tree::Doc(Vec::new());
        match self.random.below(16) {
            0 => tree! { "$documentNumber" => nothing() },
            1..3 => {
                let by = self.small();
                let mut fields = tree! { "output" => self.expression("any", 1), "by" => by };
                if let (Tree::Doc(fields), true) = (&mut fields, self.random.percent(60)) {
                    let default = self.scalar();
                    fields.push(("default".to_owned(), Tree::field("$literal", default)));
                }
                tree! { "$shift" => fields }
            }
            3 => {
                let operator = *self.random.pick(&["$locf", "$linearFill"]);
                let of = self.reference("num");
                Tree::field(operator, of)
            }
            4 => {
                let input = self.expression("num", 1);
                let (name, value) = if self.random.percent(50) {
                    ("N", Tree::of(self.random.between(1, 4) as i32))
                } else {
                    ("alpha", Tree::of(*self.random.pick(&[0.5, 0.1, 0.9, 1.5])))
                };
                let value = self.spoiled(value);
                tree! { "$expMovingAvg" => tree! { "input" => input, name => value } }
            }
            5..7 => {
                let operator = *self.random.pick(&["$derivative", "$integral"]);
                let mut fields = tree! { "input" => self.expression("num", 1) };
                if let (Tree::Doc(fields), true) = (&mut fields, self.random.percent(15)) {
                    let unit = self.expression("unit", 0);
                    fields.push(("unit".to_owned(), unit));
                }
                let window = self.window_of_documents();
                Tree::Doc(vec![(operator.to_owned(), fields), ("window".to_owned(), window)])
            }
            7 => {
                let operator = *self.random.pick(&["$covariancePop", "$covarianceSamp"]);
                let both = vec![self.expression("num", 1), self.expression("num", 1)];
                let window = self.window_of_documents();
                Tree::Doc(vec![
                    (operator.to_owned(), Tree::Array(both)),
                    ("window".to_owned(), window),
                ])
            }
            _ => {
                let (operator, wish) = *self.random.pick(&ACCUMULATORS[..ACCUMULATORS.len() - 2]);
                let Tree::Doc(mut fields) = self.accumulator(operator, wish) else {
                    return nothing();
                };
                if self.random.percent(85) {
                    fields.push(("window".to_owned(), self.window_of_documents()));
                }
                Tree::Doc(fields)
            }
        }
    }

    fn window_of_documents(&mut self) -> Tree {
        let kind = if self.random.percent(80) { "documents" } else { "range" };
        Tree::field(kind, self.bounds(kind == "range"))
    }

    /// Adds a `$fill`, and a sort after it.
    pub(crate) fn fill(&mut self, stages: &mut Vec<Tree>) {
        let stage = self.fill_stage();
        stages.push(stage);
        stages.push(tree! { "$sort" => tree! { "_id" => 1 } });
    }

    /// Returns a `$fill`, which outputs documents in any order.
    pub(crate) fn fill_stage(&mut self) -> Tree {
        let mut fields = Vec::new();
        match self.random.below(6) {
            0 => {
                let by = self.reference("any");
                fields.push(("partitionBy".to_owned(), tree! { "p" => by }));
            }
            1 => {
                let by = Tree::Array(vec![Tree::of(*self.random.pick(&NAMES))]);
                fields.push(("partitionByFields".to_owned(), by));
            }
            _ => {}
        }
        if self.random.percent(95) {
            fields.push(("sortBy".to_owned(), tree! { "_id" => 1 }));
        }
        let mut output: Vec<(String, Tree)> = Vec::new();
        for _ in 0..self.random.between(1, 2) {
            let path = self.path();
            let filled = match self.random.below(4) {
                0 => tree! { "value" => self.expression("any", 1) },
                1 => tree! { "method" => "linear" },
                _ => tree! { "method" => "locf" },
            };
            if output.iter().all(|(other, _)| *other != path) {
                output.push((path, self.spoiled(filled)));
            }
        }
        fields.push(("output".to_owned(), Tree::Doc(output)));
        tree! { "$fill" => Tree::Doc(fields) }
    }

    /// Adds a `$densify`, and a sort after it that distinguishes the new documents.
    pub(crate) fn densify(&mut self, stages: &mut Vec<Tree>) {
        let name = *self.random.pick(&["a", "b", "d", "_id"]);
        let is_dated = self.random.percent(20);
        // Only values other than numbers, dates and missing ones are rejected: usually such
        // documents are removed before.
        if self.random.percent(80) {
            let condition = match self.random.percent(70) {
                true if is_dated => {
                    let day = |number: i64| Tree::of(Value::DateTime(number * DAY_MS));
                    tree! { "$gte" => day(-1_000), "$lte" => day(40_000) }
                }
                true => tree! { "$gte" => -200, "$lte" => 200 },
                false => tree! { "$type" => if is_dated { "date" } else { "number" } },
            };
            stages.push(tree! { "$match" => Tree::field(name, condition) });
        }
        let range = if is_dated { self.range_of_dates() } else { self.range_of_numbers() };
        let mut fields = vec![("field".to_owned(), Tree::of(name)), ("range".to_owned(), range)];
        let mut sort = vec![(name.to_owned(), Tree::of(1))];
        if self.random.percent(40) {
            let names: &[&str] = match self.random.below(4) {
                0 => &["b", "x"],
                1 => &["x.a"],
                2 => &["b"],
                _ => &["x"],
            };
            if !names.contains(&name) {
                let by = names.iter().map(|by| Tree::of(*by)).collect();
                fields.push(("partitionByFields".to_owned(), Tree::Array(by)));
                sort.extend(names.iter().map(|by| ((*by).to_owned(), Tree::of(1))));
            }
        }
        if name != "_id" {
            sort.push(("_id".to_owned(), Tree::of(1)));
        }
        stages.push(tree! { "$densify" => Tree::Doc(fields) });
        stages.push(tree! { "$sort" => Tree::Doc(sort) });
    }

    /// Returns the range of a `$densify` of numbers: also one whose steps lead over its bounds.
    fn range_of_numbers(&mut self) -> Tree {
        let mut range = tree! {
            "step" => *self.random.pick(&[1, 3, 11, 25, 104]),
            "bounds" => match self.random.below(4) {
                0 => Tree::Array(vec![Tree::of(-3), Tree::of(9)]),
                1 => Tree::of("partition"),
                _ => Tree::of("full"),
            },
        };
        if let (Tree::Doc(range), true) = (&mut range, self.random.percent(5)) {
            let unit = self.expression("unit", 0);
            range.push(("unit".to_owned(), unit));
        }
        range
    }

    /// Returns the range of a `$densify` of dates, whose steps are years and months as well.
    fn range_of_dates(&mut self) -> Tree {
        let unit = *self.random.pick(&["year", "quarter", "month", "week", "day"]);
        let step = if unit == "day" { 300 } else { self.random.between(5, 60) as i32 };
        let bounds = match self.random.below(4) {
            0 | 1 => {
                let day = self.random.between(0, 20_000) as i64;
                let length = *self.random.pick(&[1, 40, 2_000]);
                Tree::Array(
                    [day, day + length].map(|day| Tree::of(Value::DateTime(day * DAY_MS))).to_vec(),
                )
            }
            2 => Tree::of("partition"),
            _ => Tree::of("full"),
        };
        tree! { "step" => step, "unit" => unit, "bounds" => bounds }
    }
}
