//! The engine of many nodes: an adapter from Marula's store to an existing distributed store.
//!
//! [`kv`] is what the adapter asks of that store, and [`kv_contract`] the tests that each backend
//! passes. [`sim`] is one in this process, with FoundationDB's contract, by seed. Start with
//! [`kv`].
//!
//! It knows no documents and no MongoDB.

pub mod kv;
pub mod kv_contract;
pub mod sim;
