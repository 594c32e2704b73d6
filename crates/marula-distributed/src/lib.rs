//! The engine of many nodes: an adapter from Marula's store to an existing distributed store.
//!
//! ```text
//!  Store, View, Txn          what the layers above ask            marula-storage
//!    store  view  cursor  txn     the adapter
//!    layout   read   outcome      large values in parts, long keys, commits made once
//!    shared  pin                  every round trip passes here
//!    lease   nodes   heartbeat    who serves the store: one process, or several
//!    survey                       the same, as somebody outside sees it
//!  Kv                        what the adapter asks                kv
//!    sim                     a store in this process, with faults
//!    etcd                    a cluster of etcd servers
//!    fdb                     a FoundationDB cluster
//! ```
//!
//! Start with [`kv`], then [`store`]. [`kv_contract`] has the tests that every backend passes.
//!
//! It knows no documents and no MongoDB.

pub mod kv;
pub mod kv_contract;

pub mod store;
pub mod survey;

mod cursor;
mod heartbeat;
mod layout;
mod lease;
mod nodes;
mod outcome;
mod pin;
mod read;
mod requests;
mod shared;
mod txn;
mod view;

pub mod etcd;
pub mod fdb;
pub mod sim;

#[cfg(test)]
mod tests;

pub use lease::LeaseOptions;
pub use store::{Distributed, Options};
