//! Those who wait for inserts: `getMore` of a tailable cursor at the end of a capped collection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::Collection;
use crate::sweep;

/// A function called once when documents are inserted.
pub type Listener = Box<dyn FnOnce() + Send>;

/// The number of inserts at some moment: see [`Collection::on_insert`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrivals(u64);

/// The listeners, and the number of inserts that they have seen.
#[derive(Default)]
pub(super) struct Waiters {
    arrivals: AtomicU64,
    listeners: Mutex<Vec<(Instant, Listener)>>,
}

impl Collection {
    /// The number of inserts so far; read it before reading documents, and pass it to
    /// [`Collection::on_insert`].
    pub fn arrivals(&self) -> Arrivals {
        Arrivals(self.waiters.arrivals.load(Ordering::SeqCst))
    }

    /// Calls `listener` once, when documents are inserted after `seen` was read, or the collection
    /// is dropped; at once if that has happened already. It may be discarded after `until`.
    pub fn on_insert(&self, seen: Arrivals, until: Instant, listener: Listener) {
        let mut listeners = self.waiters.listeners.lock();
        if self.arrivals() != seen || self.is_dropped() {
            drop(listeners);
            return listener();
        }
        if sweep::is_due(listeners.len()) {
            let now = Instant::now();
            listeners.retain(|(until, _)| *until > now);
        }
        listeners.push((until, listener));
    }

    /// Notifies listeners of inserts. The counter is incremented first, so that a listener that
    /// locks later sees the change.
    pub(crate) fn notify_listeners(&self) {
        self.waiters.arrivals.fetch_add(1, Ordering::SeqCst);
        if self.state().options.capped.is_none() && !self.is_dropped() {
            // Only capped collections have tailable cursors.
            return;
        }
        let listeners = std::mem::take(&mut *self.waiters.listeners.lock());
        listeners.into_iter().for_each(|(_, listener)| listener());
    }

    /// Returns whether anybody waits.
    pub(crate) fn has_listeners(&self) -> bool {
        !self.waiters.listeners.lock().is_empty()
    }
}
