//! From a filter to batches of documents: the planner and the executor.
//!
//! ```text
//!   Query ──► planner ──► candidate plans ──► choice ──► Execution ──► batches of documents
//!               │              │               │  ▲
//!             bounds         trial ────────────┘  └── cache: the winning plan of a shape
//! ```
//!
//! A [`Query`] is a command's parsed request. A [`Plan`] is the way to execute it; it never
//! changes, and `explain` prints it. An [`Execution`] runs a plan batch by batch, and holds no
//! resources of the store between batches. The [`cache`] has the winning plan for a *shape* of
//! queries.
//!
//! This crate does not know connections, cursor ids and replies. Start with [`query`], [`planner`],
//! [`executor`].

pub mod bounds;
pub mod cache;
pub mod choice;
pub mod clustered;
pub mod executor;
pub mod explain;
pub mod plan;
pub mod planner;
pub mod query;
pub mod refusal;
pub mod shape;
mod tally;
mod tie_break;
pub mod time_budget;
pub mod trial;

pub use executor::{Emit, End, Execution, Found, Reads, StageRun, Stats};
pub use plan::{Given, Plan, Stage};
pub use query::{Hint, Query, Shown, Wanted, WordedCollation, Wording};
pub use tally::{counted_all, without_collection};
pub use time_budget::TimeBudget;

#[cfg(test)]
mod tests;
