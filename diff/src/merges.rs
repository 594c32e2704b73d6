//! Queries whose walks over several ranges of an index, or over several indexes, are merged into
//! one order: mongod's plan `SORT_MERGE`.
//!
//! The plan holds the next entry of each walk while others write, and each walk continues from a
//! key that may have moved or gone.

use marula_bson::Value;

use crate::tree::{Tree, tree};
use crate::values::Maker;

impl Maker {
    /// Returns documents whose `a` and `c` have few values, so that a walk finds several of them.
    pub(crate) fn documents_to_merge(&mut self, count: usize) -> Vec<Tree> {
        let has_arrays = self.random.percent(25);
        (1..=count).map(|number| self.document_to_merge(number as i32, has_arrays)).collect()
    }

    fn document_to_merge(&mut self, id: i32, has_arrays: bool) -> Tree {
        let mut fields = vec![("_id".to_owned(), Tree::of(id))];
        for name in ["a", "b", "c"] {
            if self.random.percent(93) {
                // An array in `b` ends the order of the index for all documents.
                let value = self.merged_value(has_arrays && (name != "b" || id % 5 == 0));
                fields.push((name.to_owned(), value));
            }
        }
        Tree::Doc(fields)
    }

    fn merged_value(&mut self, has_arrays: bool) -> Tree {
        let number = Tree::of(self.random.between(1, 3) as i32);
        match self.random.below(24) {
            0 => Tree::of(Value::Null),
            1 => Tree::of("x"),
            2 => Tree::of(1.0),
            3..6 if has_arrays => Tree::Array(vec![number, self.small()]),
            _ => number,
        }
    }

    /// Returns the indexes of these queries. They end in `_id`: the order of equal keys is open.
    pub(crate) fn indexes_to_merge(&mut self) -> Vec<Tree> {
        let down = if self.random.percent(75) { 1 } else { -1 };
        match self.random.below(4) {
            0 => vec![tree! { "a" => 1, "c" => 1, "b" => down, "_id" => down }],
            _ => vec![
                tree! { "a" => 1, "b" => down, "_id" => down },
                tree! { "c" => -1, "b" => down, "_id" => down },
            ],
        }
    }

    /// Returns a find in small batches by `indexes`, and writes between them.
    pub(crate) fn merged_batches(&mut self, indexes: &[Tree]) -> (Tree, Vec<Tree>) {
        let mut fields = vec![("find".to_owned(), Tree::of("c"))];
        let (filter, is_one_index) = match indexes {
            [_] => (self.points_of(&["a", "c"]), true),
            _ if self.random.percent(50) => (self.points_of(&["a"]), true),
            _ => (self.branches(), false),
        };
        fields.push(("filter".to_owned(), filter));
        let down = if self.random.percent(60) { 1 } else { -1 };
        fields.push(("sort".to_owned(), tree! { "b" => down, "_id" => down }));
        if is_one_index && self.random.percent(50) {
            fields.push(("hint".to_owned(), Tree::of("i0")));
        }
        if self.random.percent(25) {
            // Without a field that no index has, the documents need not be read.
            let shown = match self.random.below(3) {
                0 => tree! { "a" => 1, "b" => 1 },
                1 => tree! { "b" => 1 },
                _ => tree! { "_id" => 0, "b" => 1, "c" => 1 },
            };
            fields.push(("projection".to_owned(), shown));
        }
        fields.push(("batchSize".to_owned(), Tree::of(self.random.between(0, 3) as i32)));
        for name in ["limit", "skip"] {
            if self.random.percent(10) {
                fields.push((name.to_owned(), Tree::of(self.random.between(1, 6) as i32)));
            }
        }
        let steps = self.batches_between(&mut Maker::write_to_merged);
        (Tree::Doc(fields), steps)
    }

    /// Returns equalities on the first fields of an index, each to be a walk of its own.
    fn points_of(&mut self, names: &[&str]) -> Tree {
        let mut fields = Vec::new();
        for name in names {
            let condition = self.points();
            fields.push(((*name).to_owned(), condition));
        }
        if self.random.percent(25) {
            let name = *self.random.pick(&["$gt", "$lte", "$ne"]);
            fields.push(("b".to_owned(), Tree::field(name, self.small())));
        }
        Tree::Doc(fields)
    }

    fn points(&mut self) -> Tree {
        match self.random.below(20) {
            0..3 => return self.merged_value(false),
            // No point: the entries are sorted in memory, before their documents are read.
            3 => return tree! { "$gte" => self.small() },
            _ => {}
        }
        let count = self.random.between(1, 4);
        let mut list: Vec<_> = (0..count).map(|_| self.merged_value(false)).collect();
        if self.random.percent(4) {
            list.push(self.regex());
        }
        tree! { "$in" => Tree::Array(list) }
    }

    /// Returns an `$or` of equalities. A branch names a first field of one index alone: which of
    /// two indexes serves is open.
    fn branches(&mut self) -> Tree {
        let count = self.random.between(2, 3);
        let branch = |maker: &mut Maker| {
            let name = *maker.random.pick(&["a", "c"]);
            if maker.random.percent(20) {
                return maker.points_of(&[name]);
            }
            let value = maker.merged_value(false);
            Tree::field(name, value)
        };
        tree! { "$or" => Tree::Array((0..count).map(|_| branch(self)).collect()) }
    }

    fn write_to_merged(&mut self) -> Tree {
        let which = match self.random.below(4) {
            0 => Tree::field(*self.random.pick(&["a", "b", "c"]), self.merged_value(false)),
            _ => Tree::field("_id", Tree::of(self.random.between(1, 12) as i32)),
        };
        let is_multi = self.random.percent(40);
        match self.random.below(40) {
            0..10 => {
                let id = self.random.between(13, 20) as i32;
                let document = self.document_to_merge(id, false);
                tree! { "insert" => "c", "documents" => Tree::Array(vec![document]) }
            }
            10..20 => {
                let limit = Tree::of(i32::from(!is_multi));
                let delete = tree! { "q" => which, "limit" => limit };
                tree! { "delete" => "c", "deletes" => Tree::Array(vec![delete]) }
            }
            20..38 => {
                let change = self.change_of_merged();
                let multi = Tree::of(is_multi);
                let update = tree! { "q" => which, "u" => change, "multi" => multi };
                tree! { "update" => "c", "updates" => Tree::Array(vec![update]) }
            }
            38 => tree! { "dropIndexes" => "c", "index" => "i0" },
            _ => tree! { "drop" => "c" },
        }
    }

    /// Returns an update that moves entries of the indexes, or lets them be.
    fn change_of_merged(&mut self) -> Tree {
        let name = *self.random.pick(&["a", "b", "b", "c"]);
        match self.random.below(12) {
            0 => tree! { "$unset" => Tree::field(name, Tree::of("")) },
            1..4 => tree! { "$inc" => tree! { "b" => self.small() } },
            4 => {
                let list = Tree::Array(vec![self.merged_value(false), self.merged_value(false)]);
                tree! { "$set" => Tree::field(name, list) }
            }
            5 => tree! { "$set" => tree! { "d" => self.small() } },
            _ => tree! { "$set" => Tree::field(name, self.merged_value(false)) },
        }
    }
}
