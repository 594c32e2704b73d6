//! What reads asked for: their read concerns and read preferences, for `serverStatus`.

use super::Counter;
use crate::concern::{ReadConcern, ReadLevel};
use crate::read_preference::{NAMES, ReadPreference};

/// What is counted of read concerns, inside of transactions or outside.
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
    /// Of reads outside of transactions.
    pub outside: Concerns,
    /// Of the first commands of transactions, which say the concern for all.
    pub inside: Concerns,
    /// Of each read preference, in the order of [`NAMES`].
    pub by_preference: [Counter; NAMES.len()],
}

impl ReadCounters {
    /// Counts a read outside of transactions.
    pub fn note(&self, concern: &ReadConcern, preference: ReadPreference) {
        self.outside.note(concern);
        self.note_preference(preference);
    }

    /// Counts a command in a transaction, which says a concern only where it begins one.
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
