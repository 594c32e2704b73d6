//! Commands with a `collectionUUID`: that of the collection, of another one, or of none.
//!
//! Each server gives its collections UUIDs of its own. A command is generated with one that
//! represents the collection that was listed last, and each server is sent its own.

use marula_bson::{Binary, DocBuf, Value, ValueBuf};

use crate::server::database;
use crate::tree::{Tree, tree};
use crate::values::Maker;

const FIELD: &str = "collectionUUID";

/// The subtype of binary values that are UUIDs.
const SUBTYPE: u8 = 4;

/// Represents the UUID of the collection that was listed last.
const LISTED: &[u8; 16] = b"the last listed\0";

/// The UUID of no collection.
const NOBODYS: &[u8; 16] = b"0123456789abcdef";

fn uuid(bytes: &[u8]) -> Tree {
    Tree::of(Binary { subtype: SUBTYPE, bytes })
}

/// Returns whether a command has the UUID of the collection that was listed last.
pub(crate) fn names_listed(command: &DocBuf) -> bool {
    let value = command.as_doc().get(FIELD);
    value.is_some_and(|value| is_listed(value))
}

/// Returns the command with this UUID in place of that of the collection that was listed last.
pub(crate) fn with_listed(command: &DocBuf, listed: Option<&ValueBuf>) -> DocBuf {
    let mut command = Tree::of_doc(command.as_doc());
    command.map_leaves(&|value| if is_listed(value) { listed.cloned() } else { None });
    command.to_doc()
}

/// Returns the UUID in a reply to `listCollections`.
pub(crate) fn listed_in(reply: &DocBuf) -> Option<ValueBuf> {
    let cursor = reply.as_doc().get("cursor")?.as_doc()?;
    let listed = cursor.get("firstBatch")?.as_array()?.values().next()?.as_doc()?;
    Some(listed.get("info")?.as_doc()?.get("uuid")?.to_buf())
}

fn is_listed(value: Value<'_>) -> bool {
    matches!(value, Value::Binary(Binary { subtype: SUBTYPE, bytes }) if bytes == LISTED)
}

impl Maker {
    /// Adds a `collectionUUID` to a command on a collection; returns the commands to run.
    pub(crate) fn with_uuid(&mut self, mut command: Tree) -> Vec<Tree> {
        let mut steps = Vec::new();
        let value = if self.random.percent(60) {
            let name = if self.random.percent(65) { "k" } else { "c" };
            let filter = tree! { "name" => name };
            steps.push(tree! { "listCollections" => 1, "filter" => filter });
            uuid(LISTED)
        } else {
            uuid(NOBODYS)
        };
        let value = self.spoiled(value);
        if let Tree::Doc(fields) = &mut command {
            fields.push((FIELD.to_owned(), value));
        }
        steps.push(command);
        steps
    }

    /// Returns a command that takes a `collectionUUID` and is not among those of other generators.
    pub(crate) fn command_for_uuid(&mut self) -> Tree {
        let name = if self.random.percent(90) { "k" } else { "nothing" };
        match self.random.below(6) {
            0 | 1 => {
                let to = *self.random.pick(&["m", "m", "c"]);
                let from = format!("{}.{name}", database());
                let to = format!("{}.{to}", database());
                let mut rename = vec![
                    ("renameCollection".to_owned(), Tree::of(from.as_str())),
                    ("to".to_owned(), Tree::of(to.as_str())),
                ];
                if self.random.percent(50) {
                    rename.push(("dropTarget".to_owned(), Tree::of(true)));
                }
                Tree::Doc(rename)
            }
            2 => {
                let index = *self.random.pick(&["later", "*", "_id_", "x"]);
                tree! { "dropIndexes" => name, "index" => index }
            }
            3 => {
                let path = self.path();
                tree! { "distinct" => name, "key" => path.as_str(), "query" => self.filter(1) }
            }
            4 => tree! { "find" => name, "filter" => tree! {}, "sort" => tree! { "_id" => 1 } },
            _ => tree! { "count" => name },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_gets_the_uuid_that_it_listed() {
        let own = uuid(&[7; 16]);
        let item = tree! { "name" => "k", "info" => tree! { "uuid" => own.clone() } };
        let cursor = tree! { "id" => Tree::of(0_i64), "firstBatch" => Tree::Array(vec![item]) };
        let listed = listed_in(&tree! { "cursor" => cursor }.to_doc());
        let command = tree! { "count" => "k", FIELD => uuid(LISTED) }.to_doc();
        assert!(names_listed(&command));
        let expected = tree! { "count" => "k", FIELD => own }.to_doc();
        assert_eq!(with_listed(&command, listed.as_ref()), expected);
        assert_eq!(with_listed(&command, None), command);
        assert!(!names_listed(&tree! { "count" => "k", FIELD => uuid(NOBODYS) }.to_doc()));
    }
}
