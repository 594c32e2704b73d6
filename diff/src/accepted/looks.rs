//! Looks at a case and the replies to it, for the reasons of differences.

use marula_bson::{Type, Value};

use crate::case::{Case, failure};
use crate::compare::Difference;
use crate::shell;
use crate::tree::Tree;

/// Returns the texts of the errors in the replies; empty where there is none.
pub(crate) fn messages(difference: &Difference) -> [String; 2] {
    [failure(&difference.replies[0]).1, failure(&difference.replies[1]).1]
}

/// Returns the names of the stages of each pipeline of a case: its own after those of the view, and
/// those inside stages.
pub(crate) fn pipelines(case: &Case) -> Vec<Vec<String>> {
    let mut found = vec![stages(case)];
    for command in commands(case) {
        command.walk(&mut |_, value| {
            let Tree::Array(items) = value else { return };
            let name = |item: &Tree| match item {
                Tree::Doc(fields) => fields.first().map(|(name, _)| name.clone()),
                _ => None,
            };
            found.push(items.iter().filter_map(name).collect());
        });
    }
    found
}

/// Returns the names of the stages of a pipeline, a view's first.
pub(crate) fn stages(case: &Case) -> Vec<String> {
    let own = match case.command.get("pipeline") {
        Some(Tree::Array(own)) => &own[..],
        _ => &[],
    };
    let name = |stage: &Tree| match stage {
        Tree::Doc(fields) => fields.first().map(|(name, _)| name.clone()),
        _ => None,
    };
    case.view.iter().chain(own).filter_map(name).collect()
}

/// Returns whether the documents may have lost the `_id` that distinguishes them when they are
/// sorted.
pub(crate) fn takes_id_away(case: &Case) -> bool {
    let mut is_gone = count(&case.command, &|name| {
        let others = [
            "$replaceRoot",
            "$replaceWith",
            "$group",
            "$unset",
            "$unwind",
            "$unionWith",
            "$sortByCount",
            "$densify",
        ];
        others.contains(&name)
    }) > 0;
    let of_view = Tree::Array(case.view.to_vec());
    for part in [&case.command, &of_view] {
        part.walk(&mut |stage, value| {
            let projects = matches!(stage, "$project" | "$addFields" | "$set");
            is_gone |= projects && count(value, &|name| name == "_id") > 0;
        });
    }
    is_gone
}

/// Returns whether a document of a case or a command contains a value that `is_meant` accepts.
pub(crate) fn holds(case: &Case, is_meant: &dyn Fn(Value<'_>) -> bool) -> bool {
    let mut has = false;
    for tree in case.documents.iter().chain(case.others.iter()).chain(commands(case)) {
        tree.walk(&mut |_, value| {
            has |= matches!(value, Tree::Leaf(leaf) if is_meant(leaf.get()));
        });
    }
    has
}

/// Returns the tree with null instead of every number.
pub(crate) fn without_numbers(mut tree: Tree) -> Tree {
    tree.map_leaves(&|value| value.kind().is_number().then(|| Value::Null.to_buf()));
    tree
}

/// Returns the tree without the fields `$recordId`.
pub(crate) fn without_record_ids(tree: Tree) -> Tree {
    match tree {
        Tree::Leaf(_) => tree,
        Tree::Array(items) => Tree::Array(items.into_iter().map(without_record_ids).collect()),
        Tree::Doc(fields) => {
            let others = fields.into_iter().filter(|(name, _)| name != "$recordId");
            Tree::Doc(others.map(|(name, value)| (name, without_record_ids(value))).collect())
        }
    }
}

/// Returns the tree with the elements of every array sorted.
pub(crate) fn unordered_tree(tree: Tree) -> Tree {
    match tree {
        Tree::Leaf(_) => tree,
        Tree::Array(items) => {
            let mut items: Vec<_> = items.into_iter().map(unordered_tree).collect();
            items.sort_by_key(shell::value);
            Tree::Array(items)
        }
        Tree::Doc(fields) => Tree::Doc(
            fields.into_iter().map(|(name, value)| (name, unordered_tree(value))).collect(),
        ),
    }
}

/// Returns whether a document in the tree has a field twice.
pub(crate) fn has_twice(tree: &Tree) -> bool {
    match tree {
        Tree::Leaf(_) => false,
        Tree::Array(items) => items.iter().any(has_twice),
        Tree::Doc(fields) => fields.iter().enumerate().any(|(at, (name, value))| {
            fields[..at].iter().any(|(other, _)| other == name) || has_twice(value)
        }),
    }
}

/// Returns whether a path has a number in it.
pub(crate) fn names_a_place(path: &str) -> bool {
    path.split('.').any(|part| part.parse::<u32>().is_ok())
}

/// Returns the number of fields whose names are meant.
pub(crate) fn count(tree: &Tree, is_meant: &dyn Fn(&str) -> bool) -> usize {
    let mut found = 0;
    tree.walk(&mut |name, _| found += usize::from(is_meant(name)));
    found
}

/// Returns the tree with the fields of every document in the order of their names.
pub(crate) fn sorted(tree: Tree) -> Tree {
    match tree {
        Tree::Leaf(_) => tree,
        Tree::Array(items) => Tree::Array(items.into_iter().map(sorted).collect()),
        Tree::Doc(fields) => {
            let mut fields: Vec<_> =
                fields.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            Tree::Doc(fields)
        }
    }
}

/// The command of a case, and those after it.
pub(crate) fn commands(case: &Case) -> impl Iterator<Item = &Tree> {
    std::iter::once(&case.command).chain(case.steps.iter())
}

/// Returns whether a field of this name is in a command of a case.
pub(crate) fn mentions(case: &Case, wanted: &str) -> bool {
    commands(case).any(|one| count(one, &|name| name == wanted) > 0)
}

/// Returns the documents of a reply's first batch.
pub(crate) fn first_batch(reply: &Tree) -> &[Tree] {
    let batch = reply.get("cursor").and_then(|cursor| cursor.get("firstBatch"));
    batch.map_or(&[], Tree::items)
}

/// Returns whether a value of a type, other than documents and arrays, is somewhere in the tree.
pub(crate) fn has_kind(tree: &Tree, kind: Type) -> bool {
    match tree {
        Tree::Leaf(leaf) => leaf.kind() == kind,
        Tree::Array(items) => items.iter().any(|item| has_kind(item, kind)),
        Tree::Doc(fields) => fields.iter().any(|(_, value)| has_kind(value, kind)),
    }
}

/// Returns the tree without the versions of indexes on `_id`.
pub(crate) fn without_id_version(tree: Tree) -> Tree {
    match tree {
        Tree::Leaf(_) => tree,
        Tree::Array(items) => Tree::Array(items.into_iter().map(without_id_version).collect()),
        Tree::Doc(mut fields) => {
            let is_id = |(name, value): &(String, Tree)| {
                name == "name" && value.text().is_some_and(|text| text == "_id_")
            };
            if fields.iter().any(is_id) {
                fields.retain(|(name, _)| name != "v");
            }
            let fields = fields.into_iter();
            Tree::Doc(fields.map(|(name, value)| (name, without_id_version(value))).collect())
        }
    }
}

pub(crate) fn is_near(ours: f64, theirs: f64) -> bool {
    ours == theirs || (ours - theirs).abs() <= ours.abs() * 1e-15
}

/// Returns whether two replies are equal except for the last digits of decimals, and for the
/// notation of their zeros.
pub(crate) fn nearly_equal(ours: &Tree, theirs: &Tree) -> bool {
    match (ours, theirs) {
        (Tree::Leaf(ours), Tree::Leaf(theirs)) => match (ours.get(), theirs.get()) {
            (Value::Decimal128(ours), Value::Decimal128(theirs)) => {
                is_near(ours.to_f64(), theirs.to_f64())
            }
            (Value::Double(ours), Value::Double(theirs)) => is_near(ours, theirs),
            _ => ours == theirs,
        },
        (Tree::Array(ours), Tree::Array(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|(ours, theirs)| nearly_equal(ours, theirs))
        }
        (Tree::Doc(ours), Tree::Doc(theirs)) => {
            let same = |((name, ours), (other, theirs)): (&(String, Tree), &(String, Tree))| {
                name == other && nearly_equal(ours, theirs)
            };
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(same)
        }
        _ => false,
    }
}
