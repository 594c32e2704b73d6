//! Several processes over one store.
//!
//! Each process is a *node*. It keeps in memory what the store says of itself (the catalogue), and
//! another node may change that. The *epoch* names the state of these things: a transaction that
//! changes them changes the epoch too ([`Txn::change_epoch`](crate::Txn::change_epoch)), and no
//! transaction commits unless the epoch is still the one that its node has *accepted*, which is the
//! epoch that its memory is of. So a node that has missed a change cannot write by what was true
//! before it.
//!
//! ```text
//!   node A   drops a collection: commit, epoch 7 ─► 8
//!   node B   inserts into it:    commit under epoch 7 ─► Conflict ─► reads anew, accepts 8
//! ```
//!
//! A store of one process has none of this: [`Store::nodes`](crate::Store::nodes) returns `None`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::store::{Result, View};

/// Names a state of what nodes keep in memory. Equal only to itself; not ordered.
pub type Epoch = u64;

/// The number of bits of a node's number.
pub const NODE_BITS: u32 = 12;

/// A process that serves the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its number among those that serve the store now.
    pub number: u32,
    /// Distinguishes it from earlier nodes of this number.
    pub id: i64,
    /// Its name, as it gave it.
    pub name: String,
    /// Host and port that clients use.
    pub host: String,
    /// Its release.
    pub version: String,
    /// The time when it was started, by its own clock, in milliseconds since 1970.
    pub started_ms: i64,
    /// The time of its last sign of life, by its own clock, in milliseconds since 1970.
    pub ping_ms: i64,
}

/// Executes a request of another node and returns the reply.
pub type Execute = Box<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// The means of a node to share a store with others.
pub trait Nodes: Send + Sync {
    /// This node. Its number has [`NODE_BITS`] bits, and no other process has it until this one
    /// ends.
    fn own(&self) -> Node;

    /// The nodes that serve the store, this one included.
    fn list(&self) -> Result<Vec<Node>>;

    /// Sends a request to other nodes, by their numbers; returns the replies that are there in
    /// time. A request may be executed more than once.
    fn request(
        &self,
        to: &[u32],
        request: &[u8],
        timeout: Duration,
    ) -> Result<HashMap<u32, Vec<u8>>>;

    /// Sets the function that executes the requests of other nodes, on a thread that there is for
    /// them. Set once.
    fn on_request(&self, execute: Execute);

    /// Sets the function that brings memory up to date. A reader that takes a newer state of the
    /// store calls it first when the epoch of that state is not the accepted one.
    fn on_new_epoch(&self, renew: Box<dyn Fn() -> Result<()> + Send + Sync>);

    /// A view of this moment, and its epoch.
    fn view(&self) -> Result<(Arc<dyn View>, Epoch)>;

    /// The epoch of what is in memory.
    fn accepted(&self) -> Epoch;

    /// Records that memory is now of this epoch.
    fn accept(&self, epoch: Epoch);

    /// Returns whether a transaction or a read of this node has met another epoch than the accepted
    /// one since the last call of [`Nodes::accept`].
    fn is_stale(&self) -> bool;

    /// Takes the lock under which nodes change the catalogue, one at a time; returns `false` while
    /// another node holds it. The lock of a node that has ended is free.
    fn try_lock(&self) -> Result<bool>;

    /// Releases the lock. Where that fails it is free once this node has ended.
    fn unlock(&self);
}
