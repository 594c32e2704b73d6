//! Waking a network worker, and through it a parked request, from any thread.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Mail for a worker, which is woken once for all that has accumulated.
pub(super) struct Mailbox<M> {
    mails: Mutex<Vec<M>>,
    bell: mio::Waker,
    /// Whether the bell was rung since the worker last checked: one system call suffices.
    rung: AtomicBool,
}

impl<M> Mailbox<M> {
    pub(super) fn new(registry: &mio::Registry, token: mio::Token) -> io::Result<Self> {
        let bell = mio::Waker::new(registry, token)?;
        Ok(Mailbox { mails: Mutex::new(Vec::new()), bell, rung: AtomicBool::new(false) })
    }

    /// Adds a mail and wakes the worker.
    pub(super) fn send(&self, mail: M) {
        self.mails.lock().push(mail);
        if !self.rung.swap(true, Ordering::AcqRel)
            && let Err(error) = self.bell.wake()
        {
            tracing::error!(%error, "could not wake a network worker");
        }
    }

    /// Moves all mail to `into`, which is empty.
    pub(super) fn take(&self, into: &mut Vec<M>) {
        // In this order: a mail added between the two rings again.
        self.rung.store(false, Ordering::Release);
        mem::swap(&mut *self.mails.lock(), into);
    }
}

/// Identifies a parked request: the connection's slot, and a number that is unique in the worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket {
    pub(super) slot: usize,
    pub(super) number: u64,
}

/// The continuation of a parked request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bidding {
    /// It continues.
    Continue,
    /// Its connection is closed without a reply.
    HangUp,
}

/// The target of a [`Wake`].
pub(super) trait Ring: Send + Sync {
    fn ring(&self, ticket: Ticket, bidding: Bidding);
}

/// Continues one parked request.
///
/// It may be called from any thread at any time; if the connection is closed, it does nothing.
/// Dropping it wakes too, so that no request is forgotten.
pub struct Wake {
    /// `None` once it is disabled.
    ring: Option<Arc<dyn Ring>>,
    ticket: Ticket,
    bidding: Bidding,
}

impl Wake {
    pub(super) fn new(ring: Arc<dyn Ring>, ticket: Ticket) -> Self {
        Wake { ring: Some(ring), ticket, bidding: Bidding::Continue }
    }

    /// Continues the request. Dropping the value does the same; the call makes it explicit.
    pub fn wake(self) {}

    /// Returns another wake for the same request: the first call counts.
    pub fn another(&self) -> Wake {
        Wake { ring: self.ring.clone(), ticket: self.ticket, bidding: Bidding::Continue }
    }

    /// Drops it without an effect: the request has continued, or continues at its deadline alone.
    pub fn forget(mut self) {
        self.ring = None;
    }

    /// Closes the connection instead, and drops a held reply, which would not be true.
    pub fn hang_up(mut self) {
        self.bidding = Bidding::HangUp;
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        if let Some(ring) = &self.ring {
            ring.ring(self.ticket, self.bidding);
        }
    }
}
