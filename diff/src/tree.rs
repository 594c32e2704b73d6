//! Documents as trees: a generator builds them and a shrinker reduces them.
//!
//! The product stores documents as bytes; here each node must be replaceable, and speed does not
//! matter.

use marula_bson::{ArrayWriter, Doc, DocBuf, DocWriter, Type, Value, ValueBuf};

/// One value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Tree {
    /// Neither a document nor an array.
    Leaf(ValueBuf),
    Array(Vec<Tree>),
    Doc(Vec<(String, Tree)>),
}

impl Tree {
    pub(crate) fn of<'v>(value: impl Into<Value<'v>>) -> Tree {
        match value.into() {
            Value::Document(doc) => Tree::of_doc(doc),
            Value::Array(array) => Tree::Array(array.values().map(Tree::of).collect()),
            leaf => Tree::Leaf(leaf.to_buf()),
        }
    }

    pub(crate) fn of_doc(doc: Doc<'_>) -> Tree {
        let fields = doc.iter().map(|field| (field.name.to_string(), Tree::of(field.value.get())));
        Tree::Doc(fields.collect())
    }

    /// A document with one field.
    pub(crate) fn field(name: impl Into<String>, value: Tree) -> Tree {
        Tree::Doc(vec![(name.into(), value)])
    }

    pub(crate) fn fields(&self) -> &[(String, Tree)] {
        match self {
            Tree::Doc(fields) => fields,
            _ => &[],
        }
    }

    pub(crate) fn items(&self) -> &[Tree] {
        match self {
            Tree::Array(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Tree> {
        self.fields().iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Tree::Leaf(leaf) => leaf.get().as_str().map(ToString::to_string),
            _ => None,
        }
    }

    pub(crate) fn kind(&self) -> Type {
        match self {
            Tree::Leaf(leaf) => leaf.kind(),
            Tree::Array(_) => Type::Array,
            Tree::Doc(_) => Type::Document,
        }
    }

    /// Returns the bytes of a document; any other value becomes the field `v` of one.
    pub(crate) fn to_doc(&self) -> DocBuf {
        DocBuf::build(|writer| match self {
            Tree::Doc(fields) => write_fields(fields, writer),
            other => write_field("v", other, writer),
        })
    }

    /// The number of nodes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Tree::Leaf(_) => 1,
            Tree::Array(items) => 1 + items.iter().map(Tree::size).sum::<usize>(),
            Tree::Doc(fields) => 1 + fields.iter().map(|(_, value)| value.size()).sum::<usize>(),
        }
    }

    /// Calls `visit` for every field's name and every node of the tree, outermost first.
    pub(crate) fn walk(&self, visit: &mut dyn FnMut(&str, &Tree)) {
        match self {
            Tree::Leaf(_) => {}
            Tree::Array(items) => items.iter().for_each(|item| {
                visit("", item);
                item.walk(visit);
            }),
            Tree::Doc(fields) => fields.iter().for_each(|(name, value)| {
                visit(name, value);
                value.walk(visit);
            }),
        }
    }

    /// Replaces each leaf for which `replace` returns a value.
    pub(crate) fn map_leaves(&mut self, replace: &dyn Fn(Value<'_>) -> Option<ValueBuf>) {
        match self {
            Tree::Leaf(leaf) => {
                if let Some(other) = replace(leaf.get()) {
                    *leaf = other;
                }
            }
            Tree::Array(items) => items.iter_mut().for_each(|item| item.map_leaves(replace)),
            Tree::Doc(fields) => {
                fields.iter_mut().for_each(|(_, value)| value.map_leaves(replace));
            }
        }
    }
}

impl From<&str> for Tree {
    fn from(text: &str) -> Tree {
        Tree::of(text)
    }
}

impl From<i32> for Tree {
    fn from(number: i32) -> Tree {
        Tree::of(number)
    }
}

/// A document from its fields.
macro_rules! tree {
    ($($name:expr => $value:expr),* $(,)?) => {
        $crate::tree::Tree::Doc(vec![$(($name.into(), $value.into())),*])
    };
}
pub(crate) use tree;

fn write_fields(fields: &[(String, Tree)], writer: &mut DocWriter<'_>) {
    fields.iter().for_each(|(name, value)| write_field(name, value, writer));
}

fn write_field(name: &str, value: &Tree, writer: &mut DocWriter<'_>) {
    match value {
        Tree::Leaf(leaf) => {
            writer.append(name, leaf);
        }
        Tree::Array(items) => write_items(items, &mut writer.begin_array(name)),
        Tree::Doc(fields) => write_fields(fields, &mut writer.begin_doc(name)),
    }
}

fn write_items(items: &[Tree], writer: &mut ArrayWriter<'_>) {
    for item in items {
        match item {
            Tree::Leaf(leaf) => {
                writer.push(leaf);
            }
            Tree::Array(items) => write_items(items, &mut writer.begin_array()),
            Tree::Doc(fields) => write_fields(fields, &mut writer.begin_doc()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_its_bytes() {
        let built = marula_bson::doc! { "a": [1, { "b": 2.5 }, []], "c": {}, "d": null };
        assert_eq!(Tree::of_doc(built.as_doc()).to_doc(), built);
    }
}
