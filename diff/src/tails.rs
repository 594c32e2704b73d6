//! Tailable cursors on a capped collection, `t`: inserts between the batches, documents that are
//! overwritten before they are read, and several cursors at once.

use crate::tree::{Tree, tree};
use crate::values::Maker;

/// Milliseconds that a `getMore` waits for documents.
const WAIT: i32 = 3;

impl Maker {
    /// Returns the command that creates the collection, and commands on it.
    pub(crate) fn around_a_tail(&mut self) -> (Tree, Vec<Tree>) {
        let mut create = vec![
            ("create".to_owned(), Tree::of("t")),
            ("capped".to_owned(), Tree::of(true)),
            ("size".to_owned(), Tree::of(*self.random.pick(&[4096, 4096, 100_000]))),
        ];
        if self.random.percent(80) {
            create.push(("max".to_owned(), Tree::of(self.random.between(1, 5) as i32)));
        }
        let waits = self.random.percent(30);
        let mut steps = Vec::new();
        let mut id = 0;
        for _ in 0..self.random.below(4) {
            steps.push(self.insert_at_the_end(&mut id));
        }
        steps.push(self.tail(waits));
        for _ in 0..self.random.between(3, 10) {
            let step = match self.random.below(40) {
                0..14 => self.insert_at_the_end(&mut id),
                14..29 => self.more_of_a_tail(waits),
                29..32 => self.tail(waits),
                32 | 33 => tree! { "find" => "t", "batchSize" => 1 },
                34 => tree! {
                    "aggregate" => "t", "pipeline" => Tree::Array(Vec::new()),
                    "cursor" => tree! { "batchSize" => 1 },
                },
                35 => {
                    let delete = tree! { "q" => tree! { "_id" => self.small() }, "limit" => 1 };
                    tree! { "delete" => "t", "deletes" => Tree::Array(vec![delete]) }
                }
                36 => {
                    let value = self.value(1);
                    let change = tree! { "$set" => tree! { "a" => value } };
                    let update = tree! { "q" => tree! { "_id" => self.small() }, "u" => change };
                    tree! { "update" => "t", "updates" => Tree::Array(vec![update]) }
                }
                37 => tree! { "killCursors" => "t", "cursors" => Tree::Array(vec![self.which()]) },
                38 => tree! { "count" => "t", "query" => tree! {} },
                _ => match self.random.below(5) {
                    0 => tree! { "drop" => "t" },
                    1 => tree! { "convertToCapped" => "t", "size" => 4096 },
                    2 => tree! { "collMod" => "t", "cappedMax" => 2 },
                    3 => tree! { "collMod" => "t", "cappedSize" => 4096 },
                    _ => tree! { "createIndexes" => "t", "indexes" => Tree::Array(vec![
                        tree! { "key" => tree! { "a" => 1 }, "name" => "later" },
                    ]) },
                },
            };
            steps.push(step);
        }
        steps.push(tree! { "find" => "t", "batchSize" => 1000 });
        (Tree::Doc(create), steps)
    }

    /// One document: with several in a command a capped collection may exceed its limit.
    fn insert_at_the_end(&mut self, id: &mut i32) -> Tree {
        *id += 1;
        let value = self.small();
        let mut document = vec![("_id".to_owned(), Tree::of(*id)), ("a".to_owned(), value)];
        if self.random.percent(20) {
            document.push(("long".to_owned(), Tree::of("x".repeat(1500).as_str())));
        }
        tree! { "insert" => "t", "documents" => Tree::Array(vec![Tree::Doc(document)]) }
    }

    fn tail(&mut self, waits: bool) -> Tree {
        let mut fields = vec![
            ("find".to_owned(), Tree::of("t")),
            ("tailable".to_owned(), Tree::of(true)),
            ("batchSize".to_owned(), Tree::of(self.random.between(0, 3) as i32)),
        ];
        if waits {
            fields.push(("awaitData".to_owned(), Tree::of(true)));
        }
        if self.random.percent(25) {
            let filter = match self.random.below(3) {
                0 => tree! { "_id" => tree! { "$gt" => self.small() } },
                _ => tree! { "a" => tree! { "$gte" => self.small() } },
            };
            fields.push(("filter".to_owned(), filter));
        }
        if self.random.percent(10) {
            let (name, value) = match self.random.below(8) {
                0 => ("sort", tree! { "_id" => 1 }),
                1 => ("sort", tree! { "$natural" => 1 }),
                2 => ("hint", tree! { "$natural" => -1 }),
                3 => ("hint", tree! { "_id" => 1 }),
                4 => ("singleBatch", Tree::of(true)),
                5 => ("limit", Tree::of(self.random.between(1, 3) as i32)),
                6 => ("skip", Tree::of(self.random.between(1, 3) as i32)),
                _ => ("projection", tree! { "_id" => 1 }),
            };
            fields.push((name.to_owned(), value));
        }
        Tree::Doc(fields)
    }

    /// The number of a cursor, counted from the last opened one.
    fn which(&mut self) -> Tree {
        Tree::of(if self.random.percent(75) { 1_i64 } else { self.random.between(2, 3) as i64 })
    }

    fn more_of_a_tail(&mut self, waits: bool) -> Tree {
        let mut fields =
            vec![("getMore".to_owned(), self.which()), ("collection".to_owned(), Tree::of("t"))];
        if self.random.percent(60) {
            let size = self.random.between(1, 3) as i32;
            fields.push(("batchSize".to_owned(), Tree::of(size)));
        }
        // Without it a cursor that waits does so for a second.
        if waits || self.random.percent(3) {
            fields.push(("maxTimeMS".to_owned(), Tree::of(WAIT)));
        }
        Tree::Doc(fields)
    }
}
