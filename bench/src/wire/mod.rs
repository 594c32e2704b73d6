//! The protocols: MongoDB's, or PostgreSQL's with a table of JSONB.
//!
//! A [`Wire`] encodes operations and checks replies for one load; an [`Admin`] is a connection for
//! commands that are not measured: collections, indexes, sizes, flushing.

use std::net::TcpStream;

use crate::operation::{Collection, Index, Operation};

pub(crate) mod mongo;
pub(crate) mod postgres;
pub(crate) mod scram;

/// The requests and replies of one load.
pub(crate) trait Wire {
    /// Creates a connection that is ready for requests.
    fn connect(&self) -> Result<TcpStream, String>;
    /// Returns whether these bytes are a complete reply.
    fn whole(&self, reply: &[u8]) -> bool;
    /// Appends the request for an operation.
    fn encode(&mut self, connection: usize, operation: &Operation, out: &mut Vec<u8>);
    /// Rejects a wrong reply; if the reply is partial, appends the request for the next part and
    /// returns true.
    fn check(
        &mut self,
        connection: usize,
        operation: &mut Operation,
        reply: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, String>;
}

/// A connection for commands that are not measured.
pub(crate) trait Admin {
    /// Returns the server's name and version.
    fn version(&mut self) -> Result<String, String>;
    /// Creates the collection again, empty, without indexes except the one on `_id`.
    fn create(&mut self, collection: &Collection) -> Result<(), String>;
    /// Builds an index and waits for it.
    fn index(&mut self, collection: &Collection, index: &Index) -> Result<(), String>;
    /// Runs the maintenance of an administrator after a load: statistics for the planner, if the
    /// server has any.
    fn analyze(&mut self, collection: &Collection) -> Result<(), String>;
    /// Releases the unused space of a collection, as an administrator would before measuring its
    /// size.
    fn compact(&mut self, collection: &Collection) -> Result<(), String>;
    /// Returns when all written data is on disk.
    fn flush(&mut self) -> Result<(), String>;
    /// Bytes of the documents and bytes of the indexes on disk, as the server counts them.
    fn sizes(&mut self, collection: &Collection) -> Result<(u64, u64), String>;
}
