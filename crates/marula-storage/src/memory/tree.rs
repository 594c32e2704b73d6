//! An ordered map whose copies are free: a B+ tree of shared nodes.
//!
//! A *leaf* holds entries in key order, a *branch* holds children and the least key below each.
//! Copying a [`Tree`] copies one pointer; a write afterwards copies only the nodes on its path that
//! somebody else still shares ([`Arc::make_mut`]). Each node knows its *weight*, so ranks and split
//! points cost one descent. Nodes that run low are not merged, only empty ones removed: the tree
//! stays right, at worst sparse.

use std::cmp::Ordering;
use std::sync::Arc;

/// Entries of a leaf and children of a branch, at most.
const NODE_MAX: usize = 64;

/// Bytes that several trees share.
pub type Bytes = Arc<[u8]>;

/// Keys and values in key order.
#[derive(Clone)]
pub struct Tree {
    root: Arc<Node>,
}

/// How much lies below a node.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Weight {
    /// Entries.
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

#[derive(Clone)]
enum Node {
    Leaf { entries: Vec<(Bytes, Bytes)>, weight: Weight },
    Branch { children: Vec<(Bytes, Arc<Node>)>, weight: Weight },
}

/// Where an entry stands: its leaf and its index there.
pub struct Place {
    leaf: Arc<Node>,
    index: usize,
}

impl Place {
    /// The key here.
    pub fn key(&self) -> &[u8] {
        &self.entry().0
    }

    /// The value here.
    pub fn value(&self) -> &[u8] {
        &self.entry().1
    }

    /// Moves to the next entry of the same leaf; answers whether there is one.
    pub fn step_up(&mut self) -> bool {
        let is_there = self.index + 1 < self.leaf.entries().len();
        self.index += usize::from(is_there);
        is_there
    }

    /// Moves to the previous entry of the same leaf; answers whether there is one.
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
        Tree { root: Arc::new(Node::Leaf { entries: Vec::new(), weight: Weight::default() }) }
    }
}

impl Tree {
    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        let mut node = &self.root;
        loop {
            match &**node {
                Node::Leaf { entries, .. } => {
                    let at = entries.binary_search_by(|(other, _)| (**other).cmp(key)).ok()?;
                    return Some(&entries[at].1);
                }
                Node::Branch { children, .. } => node = &children[child_of(children, key)].1,
            }
        }
    }

    /// Sets `key` to `value`.
    pub fn insert(&mut self, key: &[u8], value: Bytes) {
        let Some((least, right)) = Arc::make_mut(&mut self.root).insert(key, value) else { return };
        let left = self.root.clone();
        let weight = left.weight().plus(right.weight());
        // The least key of the first child is never compared with, so any stands for it.
        let children = vec![(Bytes::from(&[][..]), left), (least, right)];
        self.root = Arc::new(Node::Branch { children, weight });
    }

    /// Removes `key`, if it is there.
    pub fn remove(&mut self, key: &[u8]) {
        // A miss must not copy the path, which readers may share.
        if self.get(key).is_none() {
            return;
        }
        Arc::make_mut(&mut self.root).remove(key);
        loop {
            match &*self.root {
                Node::Branch { children, .. } if children.len() == 1 => {
                    let only = children[0].1.clone();
                    self.root = only;
                }
                Node::Branch { children, .. } if children.is_empty() => *self = Tree::default(),
                _ => return,
            }
        }
    }

    /// Removes every key from `start`, included, to `end`, excluded.
    pub fn clear(&mut self, start: &[u8], end: &[u8]) {
        while let Some(place) = self.at_or_above(start, Ordering::Equal) {
            if place.key() >= end {
                return;
            }
            let key = Bytes::from(place.key());
            // Let go of the leaf first, or the removal copies it.
            drop(place);
            self.remove(&key);
        }
    }

    /// The least key ≥ `key`, or > `key` when `least` is [`Ordering::Greater`].
    pub fn at_or_above(&self, key: &[u8], least: Ordering) -> Option<Place> {
        above(&self.root, key, least)
    }

    /// The greatest key ≤ `key`, or < `key` when `most` is [`Ordering::Less`].
    pub fn at_or_below(&self, key: &[u8], most: Ordering) -> Option<Place> {
        below(&self.root, key, most)
    }

    /// What lies below `key`, itself excluded.
    pub fn weight_below(&self, key: &[u8]) -> Weight {
        let mut sum = Weight::default();
        let mut node = &self.root;
        loop {
            match &**node {
                Node::Leaf { entries, .. } => {
                    return entries
                        .iter()
                        .take_while(|(other, _)| **other < *key)
                        .fold(sum, |sum, (key, value)| sum.plus(Weight::of(key, value)));
                }
                Node::Branch { children, .. } => {
                    let at = child_of(children, key);
                    sum = children[..at].iter().fold(sum, |sum, (_, left)| sum.plus(left.weight()));
                    node = &children[at].1;
                }
            }
        }
    }

    /// The key that has `rank` keys below it.
    pub fn key_of_rank(&self, mut rank: u64) -> Option<&Bytes> {
        let mut node = &self.root;
        loop {
            match &**node {
                Node::Leaf { entries, .. } => {
                    return entries.get(usize::try_from(rank).ok()?).map(|(key, _)| key);
                }
                Node::Branch { children, .. } => {
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

    /// What the whole tree weighs.
    pub fn weight(&self) -> Weight {
        self.root.weight()
    }

    /// What is wrong with the tree, one line each.
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut last = None;
        self.root.check(&mut last, &mut wrong);
        wrong
    }
}

/// The index of the child that holds `key`, if any does.
fn child_of(children: &[(Bytes, Arc<Node>)], key: &[u8]) -> usize {
    children[1..].partition_point(|(least, _)| **least <= *key)
}

fn above(node: &Arc<Node>, key: &[u8], least: Ordering) -> Option<Place> {
    match &**node {
        Node::Leaf { entries, .. } => {
            let index = entries.partition_point(|(other, _)| (**other).cmp(key) < least);
            (index < entries.len()).then(|| Place { leaf: node.clone(), index })
        }
        // No child but the first can fail: they are not empty, and their keys are greater.
        Node::Branch { children, .. } => children[child_of(children, key)..]
            .iter()
            .find_map(|(_, child)| above(child, key, least)),
    }
}

fn below(node: &Arc<Node>, key: &[u8], most: Ordering) -> Option<Place> {
    match &**node {
        Node::Leaf { entries, .. } => {
            let behind = entries.partition_point(|(other, _)| (**other).cmp(key) <= most);
            let index = behind.checked_sub(1)?;
            Some(Place { leaf: node.clone(), index })
        }
        Node::Branch { children, .. } => children[..=child_of(children, key)]
            .iter()
            .rev()
            .find_map(|(_, child)| below(child, key, most)),
    }
}

impl Node {
    fn weight(&self) -> Weight {
        match self {
            Node::Leaf { weight, .. } | Node::Branch { weight, .. } => *weight,
        }
    }

    fn entries(&self) -> &[(Bytes, Bytes)] {
        match self {
            Node::Leaf { entries, .. } => entries,
            Node::Branch { .. } => unreachable!("a place is in a leaf"),
        }
    }

    /// Sets `key`; answers the upper half, and its least key, when the node had to be split.
    fn insert(&mut self, key: &[u8], value: Bytes) -> Option<(Bytes, Arc<Node>)> {
        match self {
            Node::Leaf { entries, weight } => {
                match entries.binary_search_by(|(other, _)| (**other).cmp(key)) {
                    Ok(at) => {
                        weight.bytes -= entries[at].1.len() as u64;
                        weight.bytes += value.len() as u64;
                        entries[at].1 = value;
                    }
                    Err(at) => {
                        *weight = weight.plus(Weight::of(key, &value));
                        entries.insert(at, (Bytes::from(key), value));
                    }
                }
                if entries.len() <= NODE_MAX {
                    return None;
                }
                let upper =
                    entries.split_off(split_at(entries.len(), &entries[entries.len() - 1].0, key));
                let upper_weight = upper
                    .iter()
                    .fold(Weight::default(), |sum, (key, value)| sum.plus(Weight::of(key, value)));
                *weight = weight.minus(upper_weight);
                let least = upper[0].0.clone();
                Some((least, Arc::new(Node::Leaf { entries: upper, weight: upper_weight })))
            }
            Node::Branch { children, weight } => {
                let at = child_of(children, key);
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
                let upper = children.split_off(split_at(
                    children.len(),
                    &children[children.len() - 1].0,
                    key,
                ));
                let upper_weight = upper
                    .iter()
                    .fold(Weight::default(), |sum, (_, child)| sum.plus(child.weight()));
                *weight = weight.minus(upper_weight);
                let least = upper[0].0.clone();
                Some((least, Arc::new(Node::Branch { children: upper, weight: upper_weight })))
            }
        }
    }

    /// Removes `key`, which is there.
    fn remove(&mut self, key: &[u8]) {
        match self {
            Node::Leaf { entries, weight } => {
                let at = entries
                    .binary_search_by(|(other, _)| (**other).cmp(key))
                    .expect("the key was found before it is removed");
                let (key, value) = entries.remove(at);
                *weight = weight.minus(Weight::of(&key, &value));
            }
            Node::Branch { children, weight } => {
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
            Node::Leaf { entries, .. } => {
                for (key, value) in entries {
                    if last.is_some_and(|last| last >= key) {
                        wrong.push(format!("key {key:02x?} is not above the key before it"));
                    }
                    *last = Some(key);
                    sum = sum.plus(Weight::of(key, value));
                }
            }
            Node::Branch { children, .. } => {
                for (_, child) in children {
                    child.check(last, wrong);
                    sum = sum.plus(child.weight());
                }
            }
        }
        if sum != self.weight() {
            wrong.push(format!("a node weighs {sum:?} and says {:?}", self.weight()));
        }
    }
}

/// Where to cut a node that is over-full: in the middle, but behind all old entries when keys
/// ascend, as record ids do, so that the nodes left behind are full.
fn split_at(len: usize, last: &[u8], key: &[u8]) -> usize {
    if *last <= *key { len - 1 } else { len / 2 }
}

impl Weight {
    fn of(key: &[u8], value: &[u8]) -> Weight {
        Weight { keys: 1, bytes: (key.len() + value.len()) as u64 }
    }

    fn plus(self, other: Weight) -> Weight {
        Weight { keys: self.keys + other.keys, bytes: self.bytes + other.bytes }
    }

    /// What is left of a weight without a part of it.
    pub fn minus(self, other: Weight) -> Weight {
        Weight { keys: self.keys - other.keys, bytes: self.bytes - other.bytes }
    }
}
