//! An ordered map with cheap copies: a B+ tree of shared nodes.
//!
//! ```text
//!    Tree ──► Branch ─┬─ least key, child ──► Leaf [entry, entry, …]
//!                     ├─ least key, child ──► Leaf [entry, …]
//!                     └─ least key, child ──► Leaf        ◄── also shared by copies of the tree
//! ```
//!
//! A *leaf* holds entries in key order; a *branch* holds children and the least key below each.
//! Copying a [`Tree`] copies one pointer; a later write copies only the nodes on its path that
//! another tree still shares ([`Arc::make_mut`]). Each node stores its *weight*, so ranks and split
//! points cost one descent. Sparse nodes are not merged, only empty ones removed: the tree stays
//! correct, at worst sparse.

use std::cmp::Ordering;
use std::sync::Arc;

/// The maximum number of entries of a leaf and of children of a branch.
const NODE_MAX: usize = 64;

/// Bytes that several trees share.
pub type Bytes = Arc<[u8]>;

/// An ordered map from keys to values.
#[derive(Clone)]
pub struct Tree {
    root: Arc<TreeNode>,
}

/// The number and size of the entries below a node.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Weight {
    /// Number of entries.
    pub keys: u64,
    /// Total bytes of keys and values.
    pub bytes: u64,
}

#[derive(Clone)]
enum TreeNode {
    Leaf { entries: Vec<(Bytes, Bytes)>, weight: Weight },
    Branch { children: Vec<(Bytes, Arc<TreeNode>)>, weight: Weight },
}

/// The position of an entry: its leaf and its index in the leaf.
pub struct EntryPosition {
    leaf: Arc<TreeNode>,
    index: usize,
}

impl EntryPosition {
    /// The key of the entry.
    pub fn key(&self) -> &[u8] {
        &self.entry().0
    }

    /// The value of the entry.
    pub fn value(&self) -> &[u8] {
        &self.entry().1
    }

    /// Moves to the next entry of the same leaf; returns whether there is one.
    pub fn step_up(&mut self) -> bool {
        let is_there = self.index + 1 < self.leaf.entries().len();
        self.index += usize::from(is_there);
        is_there
    }

    /// Moves to the previous entry of the same leaf; returns whether there is one.
    pub fn step_down(&mut self) -> bool {
        let is_there = self.index > 0;
        self.index -= usize::from(is_there);
        is_there
    }

    fn entry(&self) -> &(Bytes, Bytes) {
        &self.leaf.entries()[self.index]
    }
}

impl Default for Tree {
    fn default() -> Self {
        Tree { root: Arc::new(TreeNode::Leaf { entries: Vec::new(), weight: Weight::default() }) }
    }
}

impl Tree {
    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        let mut node = &self.root;
        loop {
            match &**node {
                TreeNode::Leaf { entries, .. } => {
                    let at = entries.binary_search_by(|(other, _)| (**other).cmp(key)).ok()?;
                    return Some(&entries[at].1);
                }
                TreeNode::Branch { children, .. } => node = &children[child_of(children, key)].1,
            }
        }
    }

    /// Sets `key` to `value`.
    pub fn insert(&mut self, key: Bytes, value: Bytes) {
        let Some((least, right)) = Arc::make_mut(&mut self.root).insert(key, value) else { return };
        let left = self.root.clone();
        let weight = left.weight().plus(right.weight());
        // The least key of the first child is never compared, so it may be empty.
        let children = vec![(Bytes::from(&[][..]), left), (least, right)];
        self.root = Arc::new(TreeNode::Branch { children, weight });
    }

    /// Removes `key` if it is present.
    pub fn remove(&mut self, key: &[u8]) {
        // Removing an absent key must not copy the path, which readers may share.
        if self.get(key).is_none() {
            return;
        }
        Arc::make_mut(&mut self.root).remove(key);
        loop {
            match &*self.root {
                TreeNode::Branch { children, .. } if children.len() == 1 => {
                    let only = children[0].1.clone();
                    self.root = only;
                }
                TreeNode::Branch { children, .. } if children.is_empty() => *self = Tree::default(),
                _ => return,
            }
        }
    }

    /// Removes every key from `start` (inclusive) to `end` (exclusive).
    pub fn clear(&mut self, start: &[u8], end: &[u8]) {
        while let Some(place) = self.at_or_above(start, Ordering::Equal) {
            if place.key() >= end {
                return;
            }
            let key = Bytes::from(place.key());
            // Drop the reference to the leaf first, or the removal copies it.
            drop(place);
            self.remove(&key);
        }
    }

    /// The least key ≥ `key`, or > `key` when `least` is [`Ordering::Greater`].
    pub fn at_or_above(&self, key: &[u8], least: Ordering) -> Option<EntryPosition> {
        above(&self.root, key, least)
    }

    /// The greatest key ≤ `key`, or < `key` when `most` is [`Ordering::Less`].
    pub fn at_or_below(&self, key: &[u8], most: Ordering) -> Option<EntryPosition> {
        below(&self.root, key, most)
    }

    /// The weight of all keys below `key`, which is excluded.
    pub fn weight_below(&self, key: &[u8]) -> Weight {
        let mut sum = Weight::default();
        let mut node = &self.root;
        loop {
            match &**node {
                TreeNode::Leaf { entries, .. } => {
                    return entries
                        .iter()
                        .take_while(|(other, _)| **other < *key)
                        .fold(sum, |sum, (key, value)| sum.plus(Weight::of(key, value)));
                }
                TreeNode::Branch { children, .. } => {
                    let at = child_of(children, key);
                    sum = children[..at].iter().fold(sum, |sum, (_, left)| sum.plus(left.weight()));
                    node = &children[at].1;
                }
            }
        }
    }

    /// The key of rank `rank`: the one with `rank` keys below it.
    pub fn key_of_rank(&self, mut rank: u64) -> Option<&Bytes> {
        let mut node = &self.root;
        loop {
            match &**node {
                TreeNode::Leaf { entries, .. } => {
                    return entries.get(usize::try_from(rank).ok()?).map(|(key, _)| key);
                }
                TreeNode::Branch { children, .. } => {
                    node = &children
                        .iter()
                        .find(|(_, child)| {
                            let keys = child.weight().keys;
                            let is_here = rank < keys;
                            if !is_here {
                                rank -= keys;
                            }
                            is_here
                        })?
                        .1;
                }
            }
        }
    }

    /// The weight of the whole tree.
    pub fn weight(&self) -> Weight {
        self.root.weight()
    }

    /// Checks the order of keys and the weights; returns one line per fault.
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut last = None;
        self.root.check(&mut last, &mut wrong);
        wrong
    }
}

/// The index of the child that may hold `key`.
fn child_of(children: &[(Bytes, Arc<TreeNode>)], key: &[u8]) -> usize {
    // Keys often ascend, as record ids do.
    match children {
        [_, .., (least, _)] if **least <= *key => children.len() - 1,
        _ => children[1..].partition_point(|(least, _)| **least <= *key),
    }
}

fn above(node: &Arc<TreeNode>, key: &[u8], least: Ordering) -> Option<EntryPosition> {
    match &**node {
        TreeNode::Leaf { entries, .. } => {
            let index = entries.partition_point(|(other, _)| (**other).cmp(key) < least);
            (index < entries.len()).then(|| EntryPosition { leaf: node.clone(), index })
        }
        // Only the first child can have no such key: the others are not empty and their keys are
        // greater.
        TreeNode::Branch { children, .. } => children[child_of(children, key)..]
            .iter()
            .find_map(|(_, child)| above(child, key, least)),
    }
}

fn below(node: &Arc<TreeNode>, key: &[u8], most: Ordering) -> Option<EntryPosition> {
    match &**node {
        TreeNode::Leaf { entries, .. } => {
            let end = entries.partition_point(|(other, _)| (**other).cmp(key) <= most);
            let index = end.checked_sub(1)?;
            Some(EntryPosition { leaf: node.clone(), index })
        }
        TreeNode::Branch { children, .. } => children[..=child_of(children, key)]
            .iter()
            .rev()
            .find_map(|(_, child)| below(child, key, most)),
    }
}

impl TreeNode {
    fn weight(&self) -> Weight {
        match self {
            TreeNode::Leaf { weight, .. } | TreeNode::Branch { weight, .. } => *weight,
        }
    }

    fn entries(&self) -> &[(Bytes, Bytes)] {
        match self {
            TreeNode::Leaf { entries, .. } => entries,
            TreeNode::Branch { .. } => unreachable!("a place is in a leaf"),
        }
    }

    /// Sets `key`; if the node had to be split, returns the upper half and its least key.
    fn insert(&mut self, key: Bytes, value: Bytes) -> Option<(Bytes, Arc<TreeNode>)> {
        match self {
            TreeNode::Leaf { entries, weight } => {
                // Keys often ascend, as record ids do.
                let is_last = entries.last().is_none_or(|(last, _)| **last < *key);
                let place = match is_last {
                    true => Err(entries.len()),
                    false => entries.binary_search_by(|(other, _)| (**other).cmp(&key)),
                };
                match place {
                    Ok(at) => {
                        weight.bytes -= entries[at].1.len() as u64;
                        weight.bytes += value.len() as u64;
                        entries[at].1 = value;
                    }
                    Err(at) => {
                        *weight = weight.plus(Weight::of(&key, &value));
                        entries.insert(at, (key, value));
                    }
                }
                if entries.len() <= NODE_MAX {
                    return None;
                }
                let upper = entries.split_off(split_at(entries.len(), is_last));
                let upper_weight = upper
                    .iter()
                    .fold(Weight::default(), |sum, (key, value)| sum.plus(Weight::of(key, value)));
                *weight = weight.minus(upper_weight);
                let least = upper[0].0.clone();
                Some((least, Arc::new(TreeNode::Leaf { entries: upper, weight: upper_weight })))
            }
            TreeNode::Branch { children, weight } => {
                let at = child_of(children, &key);
                let is_last = at + 1 == children.len();
                let child = Arc::make_mut(&mut children[at].1);
                *weight = weight.minus(child.weight());
                let split = child.insert(key, value);
                *weight = weight.plus(child.weight());
                if let Some((least, right)) = split {
                    *weight = weight.plus(right.weight());
                    children.insert(at + 1, (least, right));
                }
                if children.len() <= NODE_MAX {
                    return None;
                }
                let upper = children.split_off(split_at(children.len(), is_last));
                let upper_weight = upper
                    .iter()
                    .fold(Weight::default(), |sum, (_, child)| sum.plus(child.weight()));
                *weight = weight.minus(upper_weight);
                let least = upper[0].0.clone();
                Some((least, Arc::new(TreeNode::Branch { children: upper, weight: upper_weight })))
            }
        }
    }

    /// Removes `key`, which must be present.
    fn remove(&mut self, key: &[u8]) {
        match self {
            TreeNode::Leaf { entries, weight } => {
                let at = entries
                    .binary_search_by(|(other, _)| (**other).cmp(key))
                    .expect("the key was found before it is removed");
                let (key, value) = entries.remove(at);
                *weight = weight.minus(Weight::of(&key, &value));
            }
            TreeNode::Branch { children, weight } => {
                let at = child_of(children, key);
                let child = Arc::make_mut(&mut children[at].1);
                *weight = weight.minus(child.weight());
                child.remove(key);
                *weight = weight.plus(child.weight());
                if child.weight().keys == 0 {
                    children.remove(at);
                }
            }
        }
    }

    fn check<'n>(&'n self, last: &mut Option<&'n Bytes>, wrong: &mut Vec<String>) {
        let mut sum = Weight::default();
        match self {
            TreeNode::Leaf { entries, .. } => {
                for (key, value) in entries {
                    if last.is_some_and(|last| last >= key) {
                        wrong.push(format!("key {key:02x?} is not above the key before it"));
                    }
                    *last = Some(key);
                    sum = sum.plus(Weight::of(key, value));
                }
            }
            TreeNode::Branch { children, .. } => {
                for (_, child) in children {
                    child.check(last, wrong);
                    sum = sum.plus(child.weight());
                }
            }
        }
        if sum != self.weight() {
            wrong.push(format!("a node has weight {sum:?} and records {:?}", self.weight()));
        }
    }
}

/// Returns where to split a full node: in the middle, or after all old entries when the new one is
/// the last, as with ascending keys, so that the lower nodes stay full.
fn split_at(len: usize, is_last: bool) -> usize {
    if is_last { len - 1 } else { len / 2 }
}

impl Weight {
    fn of(key: &[u8], value: &[u8]) -> Weight {
        Weight { keys: 1, bytes: (key.len() + value.len()) as u64 }
    }

    fn plus(self, other: Weight) -> Weight {
        Weight { keys: self.keys + other.keys, bytes: self.bytes + other.bytes }
    }

    /// Subtracts the weight of a part.
    pub fn minus(self, other: Weight) -> Weight {
        Weight { keys: self.keys - other.keys, bytes: self.bytes - other.bytes }
    }
}
