//! The numbers of a collection: its documents and their size, as the store has them, and its use
//! since the start of the server.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use marula_error::Result;
use marula_storage::View;

use super::Collection;
use crate::keys::{self, Ident};
use crate::latencies::Latencies;
use crate::usage::Usage;
use crate::validate::counter;

/// The number of collection scans by queries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scans {
    /// All scans.
    pub total: i64,
    /// Scans of tailable queries.
    pub tailable: i64,
}

/// The counters.
#[derive(Default)]
pub(super) struct Counters {
    documents: AtomicI64,
    bytes: AtomicI64,
    scans: AtomicI64,
    tailable_scans: AtomicI64,
    /// Allocated for collections that commands have used, which are fewer than all collections.
    latencies: OnceLock<Box<(Latencies, Usage)>>,
}

impl Counters {
    /// Loads the stored counters.
    pub(super) fn load(ident: Ident, store: &dyn View) -> Result<Self> {
        Ok(Counters {
            documents: AtomicI64::new(counter(store, &keys::count(ident))?),
            bytes: AtomicI64::new(counter(store, &keys::size(ident))?),
            ..Counters::default()
        })
    }
}

impl Collection {
    /// The number of its documents.
    pub fn count(&self) -> i64 {
        self.counters.documents.load(Ordering::Relaxed)
    }

    /// The uncompressed size of its documents in bytes.
    pub fn size_bytes(&self) -> i64 {
        self.counters.bytes.load(Ordering::Relaxed)
    }

    /// Adds a commit's changes of the counters, which are already stored, to those in memory.
    pub(crate) fn counted(&self, documents: i64, bytes: i64) {
        self.counters.documents.fetch_add(documents, Ordering::Relaxed);
        self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Sets the counters to what the store has. Listeners look whether other nodes have inserted
    /// documents: in a full capped collection the counters do not tell.
    pub(crate) fn set_counters(&self, documents: i64, bytes: i64) {
        self.counters.documents.store(documents, Ordering::Relaxed);
        self.counters.bytes.store(bytes, Ordering::Relaxed);
        if self.has_listeners() {
            self.notify_listeners();
        }
    }

    /// The latencies of operations on it since the start of the server.
    pub fn latencies(&self) -> &Latencies {
        &self.counters.latencies.get_or_init(Box::default).0
    }

    /// The usage counters since the start of the server.
    pub fn usage(&self) -> &Usage {
        &self.counters.latencies.get_or_init(Box::default).1
    }

    /// Counts a collection scan of a query.
    pub fn note_scan(&self) {
        self.counters.scans.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the last counted scan as tailable.
    pub fn note_tailable(&self) {
        self.counters.tailable_scans.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of collection scans by queries since the start of the server.
    pub fn scans(&self) -> Scans {
        Scans {
            total: self.counters.scans.load(Ordering::Relaxed),
            tailable: self.counters.tailable_scans.load(Ordering::Relaxed),
        }
    }
}
