//! A set of values by the equality of the query language, in insertion order.

use std::hash::{BuildHasher, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};
use marula_bson::{Collator, Value, ValueBuf, order};
use marula_error::Result;

use crate::meter;

/// The memory of a value in a set, besides its bytes.
pub(crate) const VALUE_BYTES: usize = size_of::<ValueBuf>() + size_of::<usize>();

/// Distinct values; 1, 1.0 and `NumberLong(1)` are one value.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValueSet {
    values: Vec<ValueBuf>,
    table: Table,
}

/// The positions of values in a list, by their hashes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    positions: HashTable<usize>,
    hashing: DefaultHashBuilder,
}

impl Table {
    /// The positions of these distinct values.
    pub(crate) fn of(values: &[ValueBuf], collator: Option<&dyn Collator>) -> Self {
        let mut table = Table::default();
        for (at, value) in values.iter().enumerate() {
            table.add(hash(&table.hashing, value.get(), collator), at, values, collator);
        }
        table
    }

    /// Returns whether the value is among `values`.
    pub(crate) fn contains(
        &self,
        values: &[ValueBuf],
        value: Value<'_>,
        collator: Option<&dyn Collator>,
    ) -> bool {
        self.find(hash(&self.hashing, value, collator), values, value, collator).is_some()
    }

    fn find(
        &self,
        hash: u64,
        values: &[ValueBuf],
        value: Value<'_>,
        collator: Option<&dyn Collator>,
    ) -> Option<usize> {
        let same = |&at: &usize| order::equal(values[at].get(), value, collator);
        self.positions.find(hash, same).copied()
    }

    fn add(&mut self, hash: u64, at: usize, values: &[ValueBuf], collator: Option<&dyn Collator>) {
        let rehash = |&at: &usize| hash_of(&self.hashing, values, at, collator);
        self.positions.insert_unique(hash, at, rehash);
    }
}

impl ValueSet {
    /// Adds a value. Returns the bytes that it takes, zero if it exists already.
    pub(crate) fn insert(&mut self, value: Value<'_>, collator: Option<&dyn Collator>) -> usize {
        let hash = hash(&self.table.hashing, value, collator);
        if self.table.find(hash, &self.values, value, collator).is_some() {
            return 0;
        }
        let kept = value.to_buf();
        let size = kept.as_raw().bytes().len() + VALUE_BYTES;
        self.table.add(hash, self.values.len(), &self.values, collator);
        self.values.push(kept);
        size
    }

    /// The place of the value in insertion order.
    pub(crate) fn position(
        &self,
        value: Value<'_>,
        collator: Option<&dyn Collator>,
    ) -> Option<usize> {
        let hash = hash(&self.table.hashing, value, collator);
        self.table.find(hash, &self.values, value, collator)
    }

    /// The values in insertion order.
    pub(crate) fn values(&self) -> impl Iterator<Item = Value<'_>> {
        self.values.iter().map(ValueBuf::get)
    }
}

/// A set of borrowed values.
pub(crate) struct BorrowedSet<'a, 'c> {
    values: Vec<Value<'a>>,
    /// The position of each value with its hash, so that no hash is recomputed when the table
    /// grows.
    table: HashTable<(u64, usize)>,
    hashing: DefaultHashBuilder,
    collator: Option<&'c dyn Collator>,
}

impl<'a, 'c> BorrowedSet<'a, 'c> {
    /// The set of these values. Each value is counted as work, here and in later calls.
    pub(crate) fn new(
        values: impl IntoIterator<Item = Value<'a>>,
        collator: Option<&'c dyn Collator>,
    ) -> Result<Self> {
        let mut set = BorrowedSet {
            values: Vec::new(),
            table: HashTable::new(),
            hashing: DefaultHashBuilder::default(),
            collator,
        };
        for value in values {
            set.insert(value)?;
        }
        Ok(set)
    }

    /// Adds a value; returns whether it is new.
    pub(crate) fn insert(&mut self, value: Value<'a>) -> Result<bool> {
        let hash = self.hash(value)?;
        if self.has(hash, value) {
            return Ok(false);
        }
        if self.values.len() == self.values.capacity() {
            meter::check_room(
                2 * self.values.len() * (size_of::<Value<'_>>() + size_of::<(u64, usize)>()),
            )?;
        }
        self.table.insert_unique(hash, (hash, self.values.len()), |&(hash, _)| hash);
        self.values.push(value);
        Ok(true)
    }

    /// Returns whether the set contains an equal value.
    pub(crate) fn contains(&self, value: Value<'_>) -> Result<bool> {
        Ok(self.has(self.hash(value)?, value))
    }

    /// Returns whether the set contains all of these values.
    pub(crate) fn contains_all<'v>(
        &self,
        mut values: impl Iterator<Item = Value<'v>>,
    ) -> Result<bool> {
        loop {
            match values.next() {
                Some(value) if self.contains(value)? => {}
                other => return Ok(other.is_none()),
            }
        }
    }

    fn hash(&self, value: Value<'_>) -> Result<u64> {
        meter::spend(meter::CALL)?;
        meter::spend_bytes(size(value))?;
        Ok(hash(&self.hashing, value, self.collator))
    }

    fn has(&self, hash: u64, value: Value<'_>) -> bool {
        let same = |&(_, at): &(u64, usize)| order::equal(self.values[at], value, self.collator);
        self.table.find(hash, same).is_some()
    }

    /// The values in insertion order.
    pub(crate) fn values(&self) -> &[Value<'a>] {
        &self.values
    }
}

fn hash_of(
    hashing: &DefaultHashBuilder,
    values: &[ValueBuf],
    at: usize,
    collator: Option<&dyn Collator>,
) -> u64 {
    hash(hashing, values[at].get(), collator)
}

/// The bytes of a value that may be long.
pub(super) fn size(value: Value<'_>) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Document(doc) | Value::Array(doc) => doc.as_bytes().len(),
        _ => 0,
    }
}

/// A hash that is equal for equal values.
pub(crate) fn hash(
    hashing: &DefaultHashBuilder,
    value: Value<'_>,
    collator: Option<&dyn Collator>,
) -> u64 {
    let mut hasher = hashing.build_hasher();
    order::hash(value, collator, &mut hasher);
    hasher.finish()
}
