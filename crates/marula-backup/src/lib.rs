//! Backups: the files of a data folder, stored as objects in a folder or an object store.
//!
//! ```text
//! <target>/repository.json               identifies a repository, and the key that encrypts it
//! <target>/backups/<id>.json             a manifest: the files of one backup, and their objects
//! <target>/objects/<ab>/<name>           a part of a file; its name is derived from its content
//! <target>/log/<run>/<first>-<last>-<until>   writes of a server, in commit order
//! <target>/log/<run>/until               the time until which the log of that run is complete
//! <target>/underway/<what>-<id>          a backup or a pruning in progress
//! ```
//!
//! A [`Target`](target::Target) stores bytes under names. A [`Repository`] is a target with an
//! optional key. [`create`](create()) sends files, [`fetch`] restores them, [`prune`](prune())
//! removes old backups. The engine defines what the files contain and how the log is applied; this
//! crate does not know it.
//!
//! To start reading, see [`manifest`], then [`create`](mod@create).

pub mod create;
mod error;
pub mod fetch;
pub mod key;
pub mod log;
pub mod manifest;
pub mod moment;
mod pace;
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
