//! Writes that mark an index as one with arrays, and fail; then the same in another document.
//!
//! The mark of the failed write is undone with it, and the next write must set it again: a query
//! through an index without the mark misses documents.

use crate::tree::{Tree, tree};
use crate::values::Maker;

/// The number of documents before the writes.
const COUNT: i32 = 3;

impl Maker {
    /// Returns documents without arrays, of which no two have the same `u`.
    pub(crate) fn documents_without_marks(&mut self) -> Vec<Tree> {
        let document = |maker: &mut Maker, id: i32| {
            let mut fields = vec![("_id".to_owned(), Tree::of(id)), ("u".to_owned(), Tree::of(id))];
            for name in ["a", "b"] {
                if maker.random.percent(80) {
                    // No two documents share one of these either: the index may be unique.
                    fields.push((name.to_owned(), Tree::of(10 * id)));
                }
            }
            Tree::Doc(fields)
        };
        (1..=COUNT).map(|id| document(self, id)).collect()
    }

    /// Returns an index that the arrays are in, before or after one that refuses the write.
    pub(crate) fn indexes_with_marks(&mut self) -> Vec<Tree> {
        let refusing = tree! { "key" => tree! { "u" => 1 }, "unique" => Tree::of(true) };
        let key = match self.random.below(8) {
            0 => tree! { "a" => -1 },
            1 => tree! { "a" => 1, "b" => 1 },
            2 => tree! { "b" => 1, "a" => 1 },
            3 => tree! { "a.x" => 1 },
            4 => tree! { "a" => 1, "a.x" => 1 },
            5 => tree! { "$**" => 1 },
            _ => tree! { "a" => 1 },
        };
        match self.random.below(5) {
            // The entries of the array collide with another document's.
            0 => vec![tree! { "key" => tree! { "a" => 1 }, "unique" => Tree::of(true) }, refusing],
            1 => vec![tree! { "key" => tree! { "u" => 1, "a" => 1 }, "unique" => Tree::of(true) }],
            2 | 3 => vec![key, refusing],
            _ => vec![refusing, key],
        }
    }

    /// Returns a write that fails, and the commands after it.
    pub(crate) fn around_marks(&mut self, restarts: bool) -> (Tree, Vec<Tree>) {
        let array = self.marking();
        // Equal to what the document 3 has: in `u`, and in `a` if that index is unique.
        let taken = Tree::of(COUNT);
        let first = self.marking_write(1, &array, &taken);
        let mut steps = Vec::new();
        if self.random.percent(40) {
            steps.extend(self.by_marks());
        }
        let other = if self.random.percent(80) { array } else { self.marking() };
        let id = if self.random.percent(70) { 2 } else { 30 };
        let second = self.marking_write(id, &other, &Tree::of(id));
        steps.push(second);
        steps.extend(self.by_marks());
        if restarts {
            steps.push(tree! { "restart" => 1 });
            steps.extend(self.by_marks());
        }
        (first, steps)
    }

    /// An array, or a document with one.
    fn marking(&mut self) -> Tree {
        let ends = [Tree::of(0), Tree::of(*self.random.pick(&[25, 30, 100]))];
        match self.random.below(8) {
            0 => Tree::Array(Vec::new()),
            1 => Tree::Array(vec![ends[0].clone()]),
            2 => tree! { "x" => Tree::Array(ends.to_vec()) },
            3 => Tree::Array(ends.map(|end| tree! { "x" => end }).to_vec()),
            _ => Tree::Array(ends.to_vec()),
        }
    }

    /// Returns a write of the array and of `u` to one document.
    fn marking_write(&mut self, id: i32, array: &Tree, u: &Tree) -> Tree {
        let which = tree! { "_id" => id };
        let whole = tree! { "_id" => id, "a" => array.clone(), "u" => u.clone() };
        let changed = tree! { "a" => array.clone(), "u" => u.clone() };
        let update = |change: Tree| {
            let statement =
                tree! { "q" => which.clone(), "u" => change, "upsert" => Tree::of(true) };
            tree! { "update" => "c", "updates" => Tree::Array(vec![statement]) }
        };
        match self.random.below(10) {
            0 | 1 => {
                // The id of a stored document would be refused by the index on `_id`.
                let id = if id <= COUNT { id + 20 } else { id };
                let document = tree! { "_id" => id, "a" => array.clone(), "u" => u.clone() };
                tree! { "insert" => "c", "documents" => Tree::Array(vec![document]) }
            }
            2 => update(whole),
            3 => {
                let literal = tree! { "$literal" => array.clone() };
                let stage = tree! { "$set" => tree! { "a" => literal, "u" => u.clone() } };
                update(Tree::Array(vec![stage]))
            }
            4 => tree! {
                "findAndModify" => "c", "query" => which,
                "update" => tree! { "$set" => changed }, "new" => Tree::of(true),
            },
            _ => update(tree! { "$set" => changed }),
        }
    }

    /// Returns queries whose bounds an index without the mark would intersect.
    fn by_marks(&mut self) -> Vec<Tree> {
        let mut found = Vec::new();
        for _ in 0..self.random.between(1, 3) {
            let path = if self.random.percent(75) { "a" } else { "a.x" };
            let between = tree! { "$gt" => 11, "$lt" => 19 };
            let condition = match self.random.below(6) {
                0 => tree! { "$elemMatch" => between },
                1 => Tree::of(0),
                2 => tree! { "$gte" => 0, "$ne" => 0 },
                3 => Tree::Array(Vec::new()),
                _ => between,
            };
            let mut find = vec![
                ("find".to_owned(), Tree::of("c")),
                ("filter".to_owned(), Tree::field(path, condition)),
            ];
            if self.random.percent(40) {
                let hint = format!("i{}", self.random.below(2));
                find.push(("hint".to_owned(), Tree::of(hint.as_str())));
            }
            if self.random.percent(30) {
                let shown = Tree::Doc(vec![
                    ("_id".to_owned(), Tree::of(0)),
                    (path.to_owned(), Tree::of(1)),
                ]);
                find.push(("projection".to_owned(), shown));
            }
            found.push(Tree::Doc(find));
        }
        found
    }
}
