//! Sequences of commands: batches of a cursor with writes between them, lists of `applyOps`, and
//! the state after a restart of both servers.
//!
//! Two commands are not sent as written: a `getMore` gets the server's last opened cursor, and `{
//! restart: 1 }` ends both servers and starts them again on their data (see `server`).

use crate::server::database;
use crate::tree::{Tree, tree};
use crate::values::Maker;

impl Maker {
    /// Returns a find in small batches, and writes between them: the first command, and the others.
    pub(crate) fn batches(&mut self, has_indexes: bool) -> (Tree, Vec<Tree>) {
        let mut fields = vec![("find".to_owned(), Tree::of("c"))];
        if self.random.percent(50) {
            fields.push(("filter".to_owned(), self.filter(1)));
        }
        // The order of equal keys in an index scan is open.
        let way = if has_indexes { self.random.below(4) } else { 1 };
        let hint = match way {
            0 => tree! { "_id" => 1 },
            _ => tree! { "$natural" => if self.random.percent(70) { 1 } else { -1 } },
        };
        fields.push(("hint".to_owned(), hint));
        fields.push(("batchSize".to_owned(), Tree::of(self.random.between(0, 3) as i32)));
        if self.random.percent(15) {
            fields.push(("limit".to_owned(), Tree::of(self.random.between(1, 6) as i32)));
        }
        if self.random.percent(15) {
            fields.push(("skip".to_owned(), Tree::of(self.random.between(1, 3) as i32)));
        }
        let steps = self.batches_between(&mut Maker::write_between);
        (Tree::Doc(fields), steps)
    }

    /// Returns the further batches of a cursor, with writes before each of them.
    pub(crate) fn batches_between(
        &mut self,
        write: &mut dyn FnMut(&mut Maker) -> Tree,
    ) -> Vec<Tree> {
        let mut steps = Vec::new();
        for _ in 0..self.random.between(1, 4) {
            for _ in 0..self.random.below(3) {
                steps.push(write(self));
            }
            let mut more = vec![
                ("getMore".to_owned(), Tree::of(1_i64)),
                ("collection".to_owned(), Tree::of("c")),
            ];
            if self.random.percent(85) {
                more.push(("batchSize".to_owned(), Tree::of(self.random.between(1, 4) as i32)));
            }
            steps.push(Tree::Doc(more));
        }
        steps
    }

    fn write_between(&mut self) -> Tree {
        let filter = match self.random.below(4) {
            0 => self.filter(1),
            _ => Tree::field("_id", Tree::of(self.random.between(1, 12) as i32)),
        };
        match self.random.below(30) {
            0..9 => self.insert(),
            9..18 => {
                let limit = Tree::of(i32::from(self.random.percent(70)));
                let delete = tree! { "q" => filter, "limit" => limit };
                tree! { "delete" => "c", "deletes" => Tree::Array(vec![delete]) }
            }
            18..28 => {
                let statement = self.update_statement();
                tree! { "update" => "c", "updates" => Tree::Array(vec![statement]) }
            }
            28 => tree! { "createIndexes" => "c", "indexes" => Tree::Array(vec![
                tree! { "key" => tree! { "a" => 1 }, "name" => "later" },
            ]) },
            _ => tree! { "drop" => "c" },
        }
    }

    fn insert(&mut self) -> Tree {
        let id = Tree::of(self.random.between(20, 30) as i32);
        let Tree::Doc(mut fields) = self.inner(2) else { return tree! { "ping" => 1 } };
        fields.retain(|(name, _)| name != "_id");
        fields.insert(0, ("_id".to_owned(), id));
        tree! { "insert" => "c", "documents" => Tree::Array(vec![Tree::Doc(fields)]) }
    }

    /// Returns a list of `applyOps`. Each of several entries counts alone: their atomicity is a
    /// known difference.
    pub(crate) fn apply_ops(&mut self) -> Tree {
        // A condition needs an atomic list, and a single entry is one.
        let has_condition = self.random.percent(10);
        let count = if has_condition { 1 } else { self.random.between(1, 3) };
        let entries = (0..count).map(|_| self.entry()).collect();
        let mut fields = vec![("applyOps".to_owned(), Tree::Array(entries))];
        if !has_condition {
            fields.push(("allowAtomic".to_owned(), Tree::of(false)));
        }
        if self.random.percent(25) {
            fields.push(("alwaysUpsert".to_owned(), Tree::of(self.random.percent(50))));
        }
        if has_condition {
            let condition = tree! {
                "ns" => format!("{}.c", database()).as_str(),
                "q" => self.filter(1),
                "res" => self.filter(1),
            };
            fields.push(("preCondition".to_owned(), Tree::Array(vec![condition])));
        }
        Tree::Doc(fields)
    }

    /// Returns several lists of `applyOps`, with reads between them.
    pub(crate) fn lists_of_operations(&mut self) -> (Tree, Vec<Tree>) {
        let mut steps = Vec::new();
        for _ in 0..self.random.below(4) {
            steps.push(match self.random.below(8) {
                0..4 => self.apply_ops(),
                4 => tree! { "find" => "c", "filter" => self.filter(1), "hint" => tree! { "$natural" => 1 } },
                5 => tree! { "find" => "n", "batchSize" => 1000 },
                6 => tree! { "count" => "c", "query" => tree! {} },
                _ => tree! { "listCollections" => 1, "nameOnly" => Tree::of(true) },
            });
        }
        (self.apply_ops(), steps)
    }

    fn entry(&mut self) -> Tree {
        let name = if self.random.percent(85) { "c" } else { "n" };
        let ns = format!("{}.{name}", database());
        let ns = ns.as_str();
        let id = Tree::of(self.random.between(1, 5) as i32);
        let mut fields = match self.random.below(20) {
            0..5 => {
                let Tree::Doc(mut document) = self.inner(2) else { return Tree::of(1) };
                if self.random.percent(90) {
                    document.insert(0, ("_id".to_owned(), id));
                }
                vec![("op", "i".into()), ("ns", ns.into()), ("o", Tree::Doc(document))]
            }
            5..12 => {
                let change = self.changed();
                let which =
                    if self.random.percent(90) { Tree::field("_id", id) } else { self.filter(1) };
                vec![("op", "u".into()), ("ns", ns.into()), ("o2", which), ("o", change)]
            }
            12..16 => {
                let which =
                    if self.random.percent(90) { Tree::field("_id", id) } else { self.filter(1) };
                vec![("op", "d".into()), ("ns", ns.into()), ("o", which)]
            }
            16 => vec![("op", "n".into()), ("ns", ns.into()), ("o", self.inner(1))],
            _ => {
                let ns = format!("{}.$cmd", database());
                let command = self.command_entry(name);
                vec![("op", "c".into()), ("ns", ns.as_str().into()), ("o", command)]
            }
        };
        if self.random.percent(15) {
            fields.push(("b", Tree::of(self.random.percent(50))));
        }
        if self.random.percent(4) {
            let at = self.random.below(fields.len());
            let value = fields.remove(at).1;
            fields.insert(at, (["op", "o", "o2", "x"][self.random.below(4)], value));
        }
        Tree::Doc(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Returns an update entry for a document.
    fn changed(&mut self) -> Tree {
        match self.random.below(10) {
            0..6 => {
                let mut parts = Vec::new();
                for (name, percent) in [("d", 30), ("u", 50), ("i", 50)] {
                    if self.random.percent(percent) {
                        let field = self.named_path();
                        let field = field.split('.').next().unwrap_or("a").to_owned();
                        let value = if name == "d" { Tree::of(false) } else { self.value(1) };
                        parts.push((name.to_owned(), Tree::field(field, value)));
                    }
                }
                if self.random.percent(25) {
                    let inner = Tree::field("u", Tree::field("a", self.value(1)));
                    let name = *self.random.pick(&["sa", "sb", "sd"]);
                    let array = tree! { "a" => Tree::of(true), "u0" => self.value(0), "l" => 2 };
                    let inner = if self.random.percent(50) { inner } else { array };
                    parts.push((name.to_owned(), inner));
                }
                tree! { "$v" => 2, "diff" => Tree::Doc(parts) }
            }
            6..8 => {
                let value = self.value(1);
                tree! { "$v" => 1, "$set" => tree! { "a" => value } }
            }
            8 => {
                let value = self.value(1);
                tree! { "$set" => tree! { "b" => value } }
            }
            _ => self.inner(2),
        }
    }

    fn command_entry(&mut self, name: &str) -> Tree {
        match self.random.below(6) {
            0 => tree! { "create" => name },
            1 => tree! { "drop" => name },
            2 | 3 => tree! {
                "createIndexes" => name, "v" => 2, "key" => tree! { "a" => 1 }, "name" => "a_1"
            },
            4 => tree! { "dropIndexes" => name, "index" => "a_1" },
            _ => {
                let value = self.value(0);
                tree! { "collMod" => name, "validator" => tree! { "a" => tree! { "$ne" => value } } }
            }
        }
    }

    /// Returns writes, a restart, and queries afterwards: all stored data must exist and be valid.
    pub(crate) fn around_restart(&mut self) -> (Tree, Vec<Tree>) {
        let first = if self.random.percent(50) {
            let filter = self.validator();
            let action = if self.random.percent(70) { "error" } else { "warn" };
            tree! { "collMod" => "c", "validator" => filter, "validationAction" => action }
        } else {
            tree! { "ping" => 1 }
        };
        let mut steps = Vec::new();
        let insert = self.insert();
        steps.push(insert);
        for _ in 0..2 {
            let statement = self.update_statement();
            steps.push(tree! { "update" => "c", "updates" => Tree::Array(vec![statement]) });
        }
        steps.push(tree! { "restart" => 1 });
        let count = tree! { "count" => "c" };
        let indexes = tree! { "listIndexes" => "c" };
        let options = tree! {
            "listCollections" => 1, "filter" => tree! { "name" => "c" }, "nameOnly" => Tree::of(false)
        };
        steps.extend([count, indexes, options]);
        let insert = self.insert();
        steps.push(insert);
        let statement = self.update_statement();
        steps.push(tree! { "update" => "c", "updates" => Tree::Array(vec![statement]) });
        (first, steps)
    }
}

/// Returns the paths of indexes that a query plan marks as having arrays.
pub(crate) fn multikey(reply: &Tree) -> Tree {
    let mut found = Vec::new();
    reply.walk(&mut |name, value| {
        if matches!(name, "isMultiKey" | "multiKeyPaths") {
            found.push((name.to_owned(), value.clone()));
        }
    });
    Tree::Doc(found)
}
