//! Operations: what commands do with documents, without requests, replies and cursors' ids.
//!
//! An operation is a type with the same parts: `parse` reads the fields of a command and makes
//! every complaint about their form; `ACTIONS` are the actions that its user must be allowed;
//! `prepare` chooses a plan; `run` or `fill` executes it; `explained` returns the query for
//! `explain`. The query is made in one place, so that `explain` refuses whatever the operation
//! refuses.
//!
//! ```text
//!   fields of a command ──parse──► FindOp ──prepare──► FindDocuments ──fill──► batch
//!                                     └────explained──► Query ──► explain
//! ```
//!
//! An operation runs in an [`Env`]: the unit of work, and the few services of the server that the
//! trait [`Host`] lists. An operation that takes longer than its thread may take is
//! [postponed](marula_error::Error::postponed): it has done nothing, and runs again on a thread of
//! the pool. Connections, requests, replies and access control are not known here. Start with
//! [`env`](mod@env), then [`find`].

pub mod aggregate;
pub mod args;
mod by_id;
mod candidates;
pub mod count;
pub mod delete;
pub mod distinct;
pub mod documents;
pub mod env;
pub mod expire;
pub mod find;
pub mod find_and_modify;
pub mod insert;
pub mod on_views;
pub mod pipeline;
pub mod statements;
pub mod targets;
pub mod time_series;
pub mod update;
pub mod upsert;
pub mod views;

pub use args::Arguments;
pub use env::{Env, Host};
