//! A set of values by the equality of the query language, in the order of insertion.

use std::hash::{BuildHasher, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};
use marula_bson::{Collator, Value, ValueBuf, order};

/// Values that are kept, each once; 1, 1.0 and `NumberLong(1)` are one value.
#[derive(Default)]
pub(crate) struct ValueSet {
    values: Vec<ValueBuf>,
    table: HashTable<usize>,
    hashing: DefaultHashBuilder,
}

impl ValueSet {
    /// Adds a value. Answers the bytes that it takes, zero where it is there already.
    pub(crate) fn insert(&mut self, value: Value<'_>, collator: Option<&dyn Collator>) -> usize {
        let hash = hash(&self.hashing, value, collator);
        let same = |&at: &usize| order::equal(self.values[at].get(), value, collator);
        if self.table.find(hash, same).is_some() {
            return 0;
        }
        let kept = value.to_buf();
        let size = kept.as_raw().bytes().len() + size_of::<ValueBuf>() + size_of::<usize>();
        let rehash = |&at: &usize| hash_of(&self.hashing, &self.values, at, collator);
        self.table.insert_unique(hash, self.values.len(), rehash);
        self.values.push(kept);
        size
    }

    /// The values in the order of insertion.
    pub(crate) fn values(&self) -> impl Iterator<Item = Value<'_>> {
        self.values.iter().map(ValueBuf::get)
    }
}

/// A set of borrowed values.
pub(crate) struct BorrowedSet<'a, 'c> {
    values: Vec<Value<'a>>,
    table: HashTable<usize>,
    hashing: DefaultHashBuilder,
    collator: Option<&'c dyn Collator>,
}

impl<'a, 'c> BorrowedSet<'a, 'c> {
    /// The set of these values.
    pub(crate) fn new(
        values: impl IntoIterator<Item = Value<'a>>,
        collator: Option<&'c dyn Collator>,
    ) -> Self {
        let mut set = BorrowedSet {
            values: Vec::new(),
            table: HashTable::new(),
            hashing: DefaultHashBuilder::default(),
            collator,
        };
        for value in values {
            set.insert(value);
        }
        set
    }

    /// Adds a value; whether it is new.
    pub(crate) fn insert(&mut self, value: Value<'a>) -> bool {
        if self.contains(value) {
            return false;
        }
        let hash = hash(&self.hashing, value, self.collator);
        let rehash = |&at: &usize| self::hash(&self.hashing, self.values[at], self.collator);
        self.table.insert_unique(hash, self.values.len(), rehash);
        self.values.push(value);
        true
    }

    /// Whether an equal value is in the set.
    pub(crate) fn contains(&self, value: Value<'_>) -> bool {
        let hash = hash(&self.hashing, value, self.collator);
        let same = |&at: &usize| order::equal(self.values[at], value, self.collator);
        self.table.find(hash, same).is_some()
    }

    /// The values in the order of insertion.
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

/// A hash that equal values share.
pub(crate) fn hash(
    hashing: &DefaultHashBuilder,
    value: Value<'_>,
    collator: Option<&dyn Collator>,
) -> u64 {
    let mut hasher = hashing.build_hasher();
    order::hash(value, collator, &mut hasher);
    hasher.finish()
}
