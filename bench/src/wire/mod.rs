//! How a server is spoken to: MongoDB's protocol, or PostgreSQL's with a table of JSONB.
//!
//! A [`Wire`] encodes operations and checks answers for one load; an [`Admin`] is one connection
//! for what is not measured: collections, indexes, sizes, flushing.

use std::net::TcpStream;

use crate::operation::{Collection, Index, Operation};

pub(crate) mod mongo;
pub(crate) mod postgres;
pub(crate) mod scram;

/// The requests and answers of one load.
pub(crate) trait Wire {
    /// A connection, greeted and ready.
    fn connect(&self) -> Result<TcpStream, String>;
    /// Whether these bytes are a whole answer.
    fn whole(&self, reply: &[u8]) -> bool;
    /// Appends the request for an operation.
    fn encode(&mut self, connection: usize, operation: &Operation, out: &mut Vec<u8>);
    /// Refuses a wrong answer; when the answer is a part, appends the request for the next part and
    /// returns true.
    fn check(
        &mut self,
        connection: usize,
        operation: &mut Operation,
        reply: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, String>;
}

/// One connection for what is not measured.
pub(crate) trait Admin {
    /// What the server calls itself.
    fn version(&mut self) -> Result<String, String>;
    /// Makes the collection anew, empty, without indexes but the one over `_id`.
    fn create(&mut self, collection: &Collection) -> Result<(), String>;
    /// Builds an index and waits for it.
    fn index(&mut self, collection: &Collection, index: &Index) -> Result<(), String>;
    /// What an administrator runs after a load: statistics for the planner, where the server has
    /// any.
    fn analyze(&mut self, collection: &Collection) -> Result<(), String>;
    /// Gives back what a collection holds and does not need, as an administrator would before
    /// weighing it.
    fn compact(&mut self, collection: &Collection) -> Result<(), String>;
    /// Everything that was written is on disk when this returns.
    fn flush(&mut self) -> Result<(), String>;
    /// Bytes of the documents and bytes of the indexes on disk, as the server counts them.
    fn sizes(&mut self, collection: &Collection) -> Result<(u64, u64), String>;
}
