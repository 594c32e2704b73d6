//! The read concerns and read preferences of reads, for `serverStatus`.

use super::Counter;
use crate::concern::{ReadConcern, ReadLevel};
use crate::read_preference::{NAMES, ReadPreference};

/// The counters of read concerns, inside or outside transactions.
#[derive(Default)]
#[allow(missing_docs)]
pub struct Concerns {
    pub none: Counter,
    pub local: Counter,
    pub available: Counter,
    pub majority: Counter,
    pub linearizable: Counter,
    pub snapshot_with_cluster_time: Counter,
    pub snapshot_without_cluster_time: Counter,
}

impl Concerns {
    fn note(&self, concern: &ReadConcern) {
        let counter = match concern.level {
            None => &self.none,
            Some(ReadLevel::Local) => &self.local,
            Some(ReadLevel::Available) => &self.available,
            Some(ReadLevel::Majority) => &self.majority,
            Some(ReadLevel::Linearizable) => &self.linearizable,
            Some(ReadLevel::Snapshot) if concern.at_cluster_time.is_some() => {
                &self.snapshot_with_cluster_time
            }
            Some(ReadLevel::Snapshot) => &self.snapshot_without_cluster_time,
        };
        counter.add(1);
    }
}

/// The counters.
#[derive(Default)]
pub struct ReadCounters {
    /// Reads outside transactions.
    pub outside: Concerns,
    /// The first commands of transactions, which set the concern for all.
    pub inside: Concerns,
    /// Reads by read preference, in the order of [`NAMES`].
    pub by_preference: [Counter; NAMES.len()],
}

impl ReadCounters {
    /// Counts a read outside transactions.
    pub fn note(&self, concern: &ReadConcern, preference: ReadPreference) {
        self.outside.note(concern);
        self.note_preference(preference);
    }

    /// Counts a command in a transaction, which has a concern only if it starts the transaction.
    pub fn note_in_transaction(&self, begins: Option<&ReadConcern>, preference: ReadPreference) {
        if let Some(concern) = begins {
            self.inside.note(concern);
        }
        self.note_preference(preference);
    }

    fn note_preference(&self, preference: ReadPreference) {
        self.by_preference[preference.mode].add(1);
        if preference.is_tagged {
            self.by_preference[NAMES.len() - 1].add(1);
        }
    }
}
