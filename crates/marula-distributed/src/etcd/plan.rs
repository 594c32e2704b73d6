//! The result of the changes of a commit, made in order: a transaction of etcd changes no key
//! twice.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use marula_storage::KeyRange;
use serde_json::{Value, json};

use super::operation_of;
use crate::kv::Mutation;

/// The end of a commit's changes.
#[derive(Default)]
pub(super) struct Plan {
    keys: BTreeMap<Vec<u8>, Final>,
    cleared: Vec<KeyRange>,
}

/// The final change of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Final {
    Set(Vec<u8>),
    Clear,
    /// A counter: by how much it grows, from what it is or from zero.
    Add {
        delta: i64,
        from_zero: bool,
    },
}

impl Plan {
    pub(super) fn of(mutations: &[Mutation]) -> Self {
        let mut plan = Plan::default();
        for mutation in mutations {
            match mutation {
                Mutation::Set(key, value) => plan.set(key, Final::Set(value.clone())),
                Mutation::Clear(key) => plan.set(key, Final::Clear),
                Mutation::ClearRange(range) if range.start >= range.end => {}
                Mutation::ClearRange(range) => {
                    plan.keys.retain(|key, _| *key < range.start || *key >= range.end);
                    plan.cleared.push(range.clone());
                }
                Mutation::Add(key, delta) => plan.add(key, *delta),
                Mutation::SetStamped { .. } => unreachable!("stamped keys were refused before"),
            }
        }
        plan
    }

    fn set(&mut self, key: &[u8], end: Final) {
        self.keys.insert(key.to_vec(), end);
    }

    fn add(&mut self, key: &[u8], more: i64) {
        let end = match self.keys.get(key) {
            Some(Final::Add { delta, from_zero }) => {
                Final::Add { delta: delta.wrapping_add(more), from_zero: *from_zero }
            }
            Some(Final::Clear) => Final::Add { delta: more, from_zero: true },
            Some(Final::Set(value)) => {
                let old = value.as_slice().try_into().map_or(0, i64::from_le_bytes);
                Final::Add { delta: old.wrapping_add(more), from_zero: true }
            }
            None => {
                let is_cleared = |range: &KeyRange| *range.start <= *key && *key < *range.end;
                Final::Add { delta: more, from_zero: self.cleared.iter().any(is_cleared) }
            }
        };
        self.set(key, end);
    }

    /// The number of operations that the changes take, about.
    pub(super) fn len(&self) -> usize {
        self.keys.len() + self.cleared.len()
    }

    /// Whether a key has a new value in the end.
    pub(super) fn sets(&self, key: &[u8]) -> bool {
        matches!(self.keys.get(key), Some(Final::Set(_)))
    }

    /// The counters whose present value must be known, and what is added to them.
    pub(super) fn added(&self) -> impl Iterator<Item = (&Vec<u8>, i64)> {
        self.keys.iter().filter_map(|(key, end)| match end {
            Final::Add { delta, from_zero: false } => Some((key, *delta)),
            _ => None,
        })
    }

    /// The other keys that get a new value, or lose theirs by themselves.
    pub(super) fn changed(&self) -> impl Iterator<Item = &Vec<u8>> {
        let is_added = |end: &Final| matches!(end, Final::Add { from_zero: false, .. });
        self.keys.iter().filter(move |(_, end)| !is_added(end)).map(|(key, _)| key)
    }

    /// The cleared ranges, as they were given.
    pub(super) fn cleared(&self) -> &[KeyRange] {
        &self.cleared
    }

    /// The operations of etcd, but for those on the counters of [`Plan::added`].
    pub(super) fn operations(&self) -> impl Iterator<Item = Value> {
        let cleared = self.cleared_alone().into_iter().map(|range| {
            json!({ "request_delete_range": {
                "key": BASE64.encode(&range.start),
                "range_end": BASE64.encode(&range.end),
            } })
        });
        let keys = self.keys.iter().filter_map(|(key, end)| match end {
            Final::Set(value) => Some(operation_of(key, Some(value))),
            Final::Clear => Some(operation_of(key, None)),
            Final::Add { delta, from_zero: true } => {
                Some(operation_of(key, Some(&delta.to_le_bytes())))
            }
            Final::Add { from_zero: false, .. } => None,
        });
        cleared.chain(keys)
    }

    /// The cleared ranges without the keys that are set after them.
    fn cleared_alone(&self) -> Vec<KeyRange> {
        let mut pieces = Vec::new();
        for range in &self.cleared {
            let mut start = range.start.clone();
            for (key, _) in self.keys.range(range.start.clone()..range.end.clone()) {
                if start < *key {
                    pieces.push(KeyRange { start: start.clone(), end: key.clone() });
                }
                start = [&key[..], &[0]].concat();
            }
            if start < range.end {
                pieces.push(KeyRange { start, end: range.end.clone() });
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_changed_twice() {
        let range = |start: &str, end: &str| KeyRange { start: start.into(), end: end.into() };
        let plan = Plan::of(&[
            Mutation::Set(b"a".to_vec(), b"1".to_vec()),
            Mutation::Set(b"a".to_vec(), b"2".to_vec()),
            Mutation::Set(b"m".to_vec(), b"1".to_vec()),
            Mutation::ClearRange(range("l", "p")),
            Mutation::ClearRange(range("z", "y")),
            Mutation::Set(b"n".to_vec(), b"1".to_vec()),
            Mutation::Add(b"o".to_vec(), 5),
            Mutation::Add(b"q".to_vec(), 2),
            Mutation::Add(b"q".to_vec(), 3),
            Mutation::Clear(b"r".to_vec()),
            Mutation::Add(b"r".to_vec(), 1),
        ]);
        let ends: Vec<(&str, &Final)> = plan
            .keys
            .iter()
            .map(|(key, end)| (std::str::from_utf8(key).expect("text"), end))
            .collect();
        assert_eq!(
            ends,
            [
                ("a", &Final::Set(b"2".to_vec())),
                ("n", &Final::Set(b"1".to_vec())),
                ("o", &Final::Add { delta: 5, from_zero: true }),
                ("q", &Final::Add { delta: 5, from_zero: false }),
                ("r", &Final::Add { delta: 1, from_zero: true }),
            ]
        );
        assert_eq!(plan.added().collect::<Vec<_>>(), [(&b"q".to_vec(), 5)]);
        assert_eq!(plan.changed().collect::<Vec<_>>(), [b"a", b"n", b"o", b"r"]);
        assert_eq!(plan.cleared_alone(), [range("l", "n"), range("n\0", "o"), range("o\0", "p")]);
    }
}
