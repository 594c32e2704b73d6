//! Backups: the files of a data folder, kept as objects in a folder or an object store.
//!
//! ```text
//! <target>/repository.json               what this is, and which key it is encrypted with
//! <target>/backups/<id>.json             a manifest: the files of one backup, and their objects
//! <target>/objects/<ab>/<name>           a part of a file, named by its content
//! <target>/log/<run>/<first>-<last>-<until>   writes of a server, in the order of its commits
//! <target>/log/<run>/until               up to when the log of that run is known to be complete
//! <target>/underway/<what>-<id>          a backup or a pruning that is being made
//! ```
//!
//! A [`Target`](target::Target) stores bytes under names. A [`Repository`] is a target with a key,
//! or without one. [`create`](create()) sends files, [`fetch`] brings them back, [`prune`](prune())
//! removes what is too old. What the files mean, and how the log is applied, is the engine's
//! business: nothing here knows it.
//!
//! Start with [`manifest`], then [`create`](mod@create).

pub mod create;
mod error;
pub mod fetch;
pub mod key;
pub mod log;
pub mod manifest;
pub mod moment;
pub mod progress;
pub mod prune;
pub mod repository;
mod sealed;
pub mod target;
mod underway;
mod work;

pub use create::create;
pub use error::{Error, Result};
pub use key::Key;
pub use manifest::Manifest;
pub use progress::Progress;
pub use prune::prune;
pub use repository::Repository;
