//! Accumulators, of groups, buckets and windows.

use crate::tree::{Tree, tree};
use crate::values::Maker;

/// Accumulators and their arguments: a requested type of an expression, or a special form. Those up
/// to `$stdDevSamp` have the same result in any order.
pub(crate) const ACCUMULATORS: [(&str, &str); 21] = [
    ("$sum", "num"),
    ("$avg", "num"),
    ("$min", "any"),
    ("$max", "any"),
    ("$count", ""),
    ("$stdDevPop", "num"),
    ("$stdDevSamp", "num"),
    ("$first", "any"),
    ("$last", "any"),
    ("$push", "any"),
    ("$mergeObjects", "obj"),
    ("$firstN", "n"),
    ("$lastN", "n"),
    ("$maxN", "n"),
    ("$minN", "n"),
    ("$top", "top"),
    ("$bottom", "top"),
    ("$topN", "topN"),
    ("$bottomN", "topN"),
    ("$addToSet", "any"),
    ("$sum", "any"),
];

/// The number of accumulators that do not depend on the order of documents.
pub(crate) const ORDERLESS: usize = 7;

impl Maker {
    /// Adds one or two fields of accumulators.
    pub(crate) fn accumulators(&mut self, fields: &mut Vec<(String, Tree)>) {
        for name in ["n", "m"].into_iter().take(self.random.between(1, 2)) {
            let (operator, wish) = *self.random.pick(&ACCUMULATORS);
            fields.push((name.to_owned(), self.accumulator(operator, wish)));
        }
    }

    /// `{ $operator: argument }`.
    pub(crate) fn accumulator(&mut self, operator: &str, wish: &str) -> Tree {
        let argument = match wish {
            "" if self.random.percent(2) => self.value(1),
            "" => Tree::Doc(Vec::new()),
            "n" => {
                let input = self.expression("any", 1);
                tree! { "input" => input, "n" => self.how_many() }
            }
            "top" | "topN" => {
                // Of equal documents any may be chosen: the sort ends with a field that
                // distinguishes them.
                let sort = self.sort();
                let output = self.expression("any", 1);
                let mut argument = tree! { "sortBy" => sort, "output" => output };
                if let (Tree::Doc(fields), "topN") = (&mut argument, wish) {
                    fields.push(("n".to_owned(), self.how_many()));
                }
                argument
            }
            wish => self.expression(wish, 1),
        };
        Tree::field(operator, argument)
    }

    fn how_many(&mut self) -> Tree {
        let count = Tree::of(self.random.between(1, 3) as i32);
        self.spoiled(count)
    }
}
