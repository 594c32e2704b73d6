//! Usage counters of a collection since the start of the server, by kind of operation, as shown by
//! `top`.

use std::sync::atomic::{AtomicU64, Ordering};

/// The kind of use of a collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Use {
    Query,
    GetMore,
    Insert,
    Update,
    Remove,
    /// A reading command.
    ReadCommand,
    /// A writing command.
    WriteCommand,
}

/// The number of operations, and their total time in microseconds.
#[derive(Default, Debug)]
pub struct Used {
    count: AtomicU64,
    us: AtomicU64,
}

impl Used {
    /// The number of operations.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Their total time in microseconds.
    pub fn us(&self) -> u64 {
        self.us.load(Ordering::Relaxed)
    }
}

/// The operations of all kinds.
#[derive(Default, Debug)]
pub struct Usage([Used; 7]);

impl Usage {
    /// Adds `operations` with this total time in microseconds.
    pub fn add(&self, kind: Use, operations: u64, us: u64) {
        let used = &self.0[kind as usize];
        used.count.fetch_add(operations, Ordering::Relaxed);
        used.us.fetch_add(us, Ordering::Relaxed);
    }

    /// The operations of a kind.
    pub fn of(&self, kind: Use) -> &Used {
        &self.0[kind as usize]
    }

    /// The number of operations of several kinds, and their total time in microseconds.
    pub fn sum(&self, kinds: &[Use]) -> (u64, u64) {
        let used = kinds.iter().map(|&kind| self.of(kind));
        used.fold((0, 0), |(count, us), used| {
            (count.saturating_add(used.count()), us.saturating_add(used.us()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_by_kind() {
        let usage = Usage::default();
        usage.add(Use::Query, 1, 5);
        usage.add(Use::Update, 3, 7);
        assert_eq!(usage.sum(&[Use::Query, Use::Update]), (4, 12));
        assert_eq!(usage.sum(&[Use::Insert]), (0, 0));
    }
}
