//! Reduces a case while its difference stays.
//!
//! All edits that remove, lift or simplify one node are tried, the most effective first, until none
//! preserves the difference.

use std::rc::Rc;

use marula_bson::{Type, Value};

use crate::case::Case;
use crate::tree::Tree;

/// Returns the smallest case for which `still` holds that is found within `tries` attempts.
pub(crate) fn shrink(case: &Case, mut tries: usize, still: &mut dyn FnMut(&Case) -> bool) -> Case {
    let mut smallest = case.clone();
    'again: loop {
        for candidate in candidates(&smallest) {
            if tries == 0 {
                return smallest;
            }
            if candidate.is_askable() {
                tries -= 1;
                if still(&candidate) {
                    smallest = candidate;
                    continue 'again;
                }
            }
        }
        return smallest;
    }
}

/// Returns every case that is one simplification away, the smallest first.
pub(crate) fn candidates(case: &Case) -> Vec<Case> {
    let mut found = Vec::new();
    let mut with = |change: &dyn Fn(&mut Case)| {
        let mut other = case.clone();
        change(&mut other);
        found.push(other);
    };
    let lists = [&case.documents, &case.others, &case.indexes, &case.view, &case.steps]
        .map(|list| list_edits(list));
    for (which, lists) in lists.into_iter().enumerate() {
        for list in lists {
            let list = Rc::new(list);
            with(&|case| match which {
                0 => case.documents = list.clone(),
                1 => case.others = list.clone(),
                2 => case.indexes = list.clone(),
                3 => case.view = list.clone(),
                _ => case.steps = list.clone(),
            });
        }
    }
    for command in edits(&case.command) {
        // The first field is the command's name.
        if command.fields().first() == case.command.fields().first() {
            with(&|case| case.command = command.clone());
        }
    }
    found.sort_by_key(size);
    found
}

fn size(case: &Case) -> usize {
    let sizes = |list: &[Tree]| list.iter().map(Tree::size).sum::<usize>();
    sizes(&case.documents)
        + sizes(&case.others)
        + 3 * sizes(&case.indexes)
        + 2 * sizes(&case.view)
        + 2 * sizes(&case.steps)
        + 2 * case.command.size()
}

fn list_edits(list: &[Tree]) -> Vec<Vec<Tree>> {
    let mut found = Vec::new();
    let half = list.len() / 2;
    if list.len() > 3 {
        found.extend([list[half..].to_vec(), list[..half].to_vec()]);
    }
    for (index, item) in list.iter().enumerate() {
        let mut fewer = list.to_vec();
        fewer.remove(index);
        found.push(fewer);
        let keeps_id = |edit: &Tree| {
            let same_command = !is_step(item) || edit.fields().first() == item.fields().first();
            edit.get("_id") == item.get("_id") && matches!(edit, Tree::Doc(_)) && same_command
        };
        for edit in edits(item).into_iter().filter(keeps_id) {
            let mut other = list.to_vec();
            other[index] = edit;
            found.push(other);
        }
    }
    found
}

/// Returns whether an item of a list is a command and not a document, which has its `_id` at the
/// front.
fn is_step(item: &Tree) -> bool {
    const STEPS: [&str; 24] = [
        "aggregate",
        "applyOps",
        "convertToCapped",
        "distinct",
        "explain",
        "killCursors",
        "mapReduce",
        "collMod",
        "find",
        "findAndModify",
        "ping",
        "insert",
        "update",
        "delete",
        "getMore",
        "restart",
        "createIndexes",
        "drop",
        "dropIndexes",
        "renameCollection",
        "count",
        "listIndexes",
        "listCollections",
        "validate",
    ];
    item.fields().first().is_some_and(|(name, _)| STEPS.contains(&name.as_str()))
}

/// Returns every tree that is one simplification away.
fn edits(tree: &Tree) -> Vec<Tree> {
    let mut found = Vec::new();
    match tree {
        Tree::Leaf(leaf) => match leaf.get() {
            Value::String(text) if text.starts_with(b"$") => {
                let text = text.to_string();
                if let Some((front, _)) = text.rsplit_once('.') {
                    found.push(Tree::of(front));
                }
            }
            Value::Int32(1 | 0) => {}
            value if value.kind() == Type::String && value != Value::from("a") => {
                found.push(Tree::of("a"));
            }
            value if value.kind() != Type::String => found.push(Tree::of(1)),
            _ => {}
        },
        Tree::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let with = |replacement: Option<Tree>| {
                    let mut other = items.clone();
                    match replacement {
                        Some(replacement) => other[index] = replacement,
                        None => drop(other.remove(index)),
                    }
                    Tree::Array(other)
                };
                found.push(with(None));
                found.push(item.clone());
                found.extend(edits(item).into_iter().map(|edit| with(Some(edit))));
            }
        }
        Tree::Doc(fields) => {
            for (index, (name, value)) in fields.iter().enumerate() {
                let with = |replacement: Option<(String, Tree)>| {
                    let mut other = fields.clone();
                    match replacement {
                        Some(replacement) => other[index] = replacement,
                        None => drop(other.remove(index)),
                    }
                    Tree::Doc(other)
                };
                found.push(with(None));
                found.push(value.clone());
                found.extend(edits(value).into_iter().map(|edit| with(Some((name.clone(), edit)))));
                if let Some((front, _)) = name.rsplit_once('.')
                    && fields.iter().all(|(other, _)| other != front)
                {
                    found.push(with(Some((front.to_owned(), value.clone()))));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tree;

    #[test]
    fn what_does_not_matter_goes() {
        let case = Case {
            kind: "find",
            documents: Rc::new(
                (0..9).map(|id| tree! { "_id" => id, "a" => id, "b" => "x" }).collect(),
            ),
            others: Rc::default(),
            indexes: Rc::default(),
            view: Rc::default(),
            steps: Rc::default(),
            command: tree! {
                "find" => "c",
                "filter" => tree! { "a" => tree! { "$gt" => 3 }, "b" => tree! { "$ne" => 5 } },
                "limit" => 7,
            },
        };
        let mut still = |case: &Case| {
            case.command.get("filter").is_some()
                && case.operators().contains("$ne")
                && case.documents.iter().any(|doc| doc.get("_id") == Some(&Tree::of(4)))
        };
        let small = shrink(&case, 1000, &mut still);
        assert_eq!(*small.documents, [tree! { "_id" => 4 }]);
        assert_eq!(small.command, tree! { "find" => "c", "filter" => tree! { "$ne" => 1 } });
    }
}
