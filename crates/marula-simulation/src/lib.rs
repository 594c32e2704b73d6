//! Several nodes over one simulated store, in one process, in an order that a seed determines.
//!
//! Each node is a database of its own over `marula_distributed::sim::Sim`, with one thread.
//! At each call to the store the threads wait for their turn (`turns`), so that one runs at a
//! time and a seed repeats the whole run, with the faults of the store. `history` checks that the
//! outcomes have one order.
//!
//! `MARULA_RUNS=1000 cargo test -p marula-simulation` runs more seeds, and `MARULA_SEED=7
//! MARULA_RUNS=1` repeats one. A dropped collection is cleared by a thread of its node that takes
//! no turns: runs with drops are repeated up to its calls.
//!
//! The crate has tests alone: it holds the arrow from a database to a distributed store, which
//! neither of their crates may have.

#[cfg(test)]
mod cluster;
#[cfg(test)]
mod history;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turns;
