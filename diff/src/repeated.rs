//! Documents and commands with one field twice: stored documents, replacements, operators of
//! updates, filters, keys, sorts, projections, stages.
//!
//! A command of any other generator gets one of its fields, at any depth, a second time.

use crate::tree::{Tree, tree};
use crate::values::Maker;

impl Maker {
    /// Returns an insert of documents with repeated fields, and commands on them.
    pub(crate) fn with_repeated_fields(
        &mut self,
        make: &mut dyn FnMut(&mut Maker) -> Tree,
    ) -> (Tree, Vec<Tree>) {
        let first = self.repeated_insert(50);
        let mut steps = Vec::new();
        for number in 0..self.random.between(1, 3) {
            let step = match self.random.below(12) {
                0 => self.repeated_insert(60 + 5 * number as i32),
                1 => {
                    let key = tree! { "a" => 1, "b.c" => -1 };
                    let key = self.with_one_repeated(&key);
                    tree! { "createIndexes" => "c", "indexes" => Tree::Array(vec![
                        tree! { "key" => key, "name" => "repeated" },
                    ]) }
                }
                2 => {
                    let key = self.with_one_repeated(&tree! { "_id" => 1 });
                    tree! { "find" => "c", "hint" => key }
                }
                _ => {
                    let command = make(self);
                    // As it is, on documents with repeated fields; or with one itself.
                    if self.random.percent(30) { command } else { self.with_one_repeated(&command) }
                }
            };
            steps.push(step);
        }
        (first, steps)
    }

    fn repeated_insert(&mut self, id: i32) -> Tree {
        let document = |maker: &mut Maker, id: i32| {
            let Tree::Doc(mut fields) = maker.inner(2) else { return tree! {} };
            fields.retain(|(name, _)| name != "_id");
            fields.insert(0, ("_id".to_owned(), Tree::of(id)));
            maker.with_one_repeated(&Tree::Doc(fields))
        };
        let documents = (0..2).map(|number| document(self, id + number)).collect();
        tree! { "insert" => "c", "documents" => Tree::Array(documents), "ordered" => Tree::of(false) }
    }

    /// Returns a document with one of its fields, at any depth, twice. A command's own fields are
    /// rarely repeated.
    pub(crate) fn with_one_repeated(&mut self, of: &Tree) -> Tree {
        let count = count_documents(of);
        let mut left = self.random.below(count);
        if left == 0 && count > 1 && self.random.percent(70) {
            left = self.random.below(count);
        }
        self.repeat_in(of, &mut left).0
    }

    /// Repeats a field of the document that `left` counts down to; returns whether it is in here.
    fn repeat_in(&mut self, of: &Tree, left: &mut usize) -> (Tree, bool) {
        match of {
            Tree::Leaf(_) => (of.clone(), false),
            Tree::Array(items) => {
                let mut items = items.clone();
                for item in &mut items {
                    let (changed, is_done) = self.repeat_in(item, left);
                    if is_done {
                        *item = changed;
                        return (Tree::Array(items), true);
                    }
                }
                (Tree::Array(items), false)
            }
            Tree::Doc(fields) => {
                let mut fields = fields.clone();
                if !fields.is_empty() {
                    if *left == 0 {
                        let at = self.random.below(fields.len());
                        let (name, value) = fields[at].clone();
                        let value = match self.random.below(10) {
                            0..3 => value,
                            3..6 => fields[self.random.below(fields.len())].1.clone(),
                            _ => self.value(1),
                        };
                        fields.insert(self.random.between(at, fields.len()), (name, value));
                        return (Tree::Doc(fields), true);
                    }
                    *left -= 1;
                }
                for (_, inner) in &mut fields {
                    let (changed, is_done) = self.repeat_in(inner, left);
                    if is_done {
                        *inner = changed;
                        return (Tree::Doc(fields), true);
                    }
                }
                (Tree::Doc(fields), false)
            }
        }
    }
}

/// Returns the number of documents with fields, `tree` included.
fn count_documents(tree: &Tree) -> usize {
    let mut count = usize::from(!tree.fields().is_empty());
    tree.walk(&mut |_, value| count += usize::from(!value.fields().is_empty()));
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_field_more_is_in_the_document_at_every_depth() {
        let document =
            tree! { "a" => tree! { "b" => 1 }, "c" => Tree::Array(vec![tree! { "d" => 1 }]) };
        for seed in 0..50 {
            let repeated = Maker::new(seed).with_one_repeated(&document);
            assert!(repeated.size() > document.size(), "{repeated:?}");
        }
    }
}
