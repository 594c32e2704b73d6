//! From a filter to batches of documents: the planner and the executor.
//!
//! Nouns: a [`Query`] is what a command asks, parsed; a [`Plan`] says how it is answered, never
//! changes, and is what `explain` prints; an [`Execution`] carries a plan out, batch by batch, and
//! can rest between batches without holding anything of the store. Which plan does best for a
//! *shape* of queries is kept in a [`cache`].
//!
//! Connections, cursors' ids and replies are not known here. Start with [`query`], [`planner`],
//! [`executor`].

pub mod bounds;
pub mod cache;
pub mod choice;
pub mod clustered;
pub mod executor;
pub mod explain;
pub mod patience;
pub mod plan;
pub mod planner;
pub mod query;
pub mod refusal;
pub mod shape;
mod tally;
mod tie_break;
pub mod trial;

pub use executor::{Emit, End, Execution, Found, Reads, StageRun, Stats};
pub use patience::Patience;
pub use plan::{Plan, Stage};
pub use query::{Hint, Query, Shown, Wanted, WordedCollation, Wording};

#[cfg(test)]
mod tests;
