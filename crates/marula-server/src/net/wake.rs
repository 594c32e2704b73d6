//! Waking a network worker, and through it a parked request, from any thread.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// What others leave for a worker, who is woken once for all that has gathered.
pub(super) struct Mailbox<M> {
    mails: Mutex<Vec<M>>,
    bell: mio::Waker,
    /// Whether the bell was rung since the worker last looked: one write to the kernel is enough.
    rung: AtomicBool,
}

impl<M> Mailbox<M> {
    pub(super) fn new(registry: &mio::Registry, token: mio::Token) -> io::Result<Self> {
        let bell = mio::Waker::new(registry, token)?;
        Ok(Mailbox { mails: Mutex::new(Vec::new()), bell, rung: AtomicBool::new(false) })
    }

    /// Leaves a mail and wakes the worker.
    pub(super) fn send(&self, mail: M) {
        self.mails.lock().push(mail);
        if !self.rung.swap(true, Ordering::AcqRel)
            && let Err(error) = self.bell.wake()
        {
            tracing::error!(%error, "could not wake a network worker");
        }
    }

    /// Moves what has gathered to `into`, which is empty.
    pub(super) fn take(&self, into: &mut Vec<M>) {
        // In this order: a mail that comes between the two rings again.
        self.rung.store(false, Ordering::Release);
        mem::swap(&mut *self.mails.lock(), into);
    }
}

/// Names one parked request: the connection's slot, and a number that no other request of the
/// worker has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket {
    pub(super) slot: usize,
    pub(super) number: u64,
}

/// What becomes of a parked request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bidding {
    /// It goes on.
    Continue,
    /// Its connection is closed without a reply.
    HangUp,
}

/// Where a [`Wake`] rings.
pub(super) trait Ring: Send + Sync {
    fn ring(&self, ticket: Ticket, bidding: Bidding);
}

/// Continues one parked request.
///
/// It may be called from any thread and at any time: when the connection is gone, it does nothing.
/// Dropping it wakes too, so that no request is forgotten.
pub struct Wake {
    /// Nothing once it is to be silent.
    ring: Option<Arc<dyn Ring>>,
    ticket: Ticket,
    bidding: Bidding,
}

impl Wake {
    pub(super) fn new(ring: Arc<dyn Ring>, ticket: Ticket) -> Self {
        Wake { ring: Some(ring), ticket, bidding: Bidding::Continue }
    }

    /// Continues the request. Dropping the value does the same; the call says it.
    pub fn wake(self) {}

    /// Another that continues the same request: the first that is called does.
    pub fn another(&self) -> Wake {
        Wake { ring: self.ring.clone(), ticket: self.ticket, bidding: Bidding::Continue }
    }

    /// Drops it silently: the request is known to have gone on.
    pub fn forget(mut self) {
        self.ring = None;
    }

    /// Closes the connection instead, and forgets a reply that was held back: it would not have
    /// been true.
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
