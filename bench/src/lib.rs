//! Measures Marula and other servers over the wire: published comparisons, and the table of `make
//! bench`.
//!
//! `marula bench`, which is the program `marula-bench` ([`cli`]), reruns five published comparisons
//! for users (`comparison`), and prints the table that guides the project (`table`), with a
//! required and a desired ratio to mongod in each row. Both use one load generator (`load`), the
//! same documents, and the same readings of `/proc` (`process`). Nothing of the product is used: a
//! benchmark must not share an error with the code that it measures.
//!
//! A comparison consists of steps of operations (`operation`); a step is an exercise over a wire
//! (`wire`: MongoDB's protocol, or PostgreSQL's with JSONB) on a target (`target`), or calls of an
//! engine within this process (`embedded`); the runner executes the steps on every target in turn
//! and writes a record, from which the pages are drawn. Start reading in `comparison`.

pub mod cli;

mod bson;
mod comparison;
mod documents;
mod echo;
mod embedded;
mod exercise;
mod fill;
mod index_build;
mod interrupt;
mod json;
mod load;
mod lookups;
mod message;
mod operation;
mod pages;
mod pipelines;
mod process;
mod record;
mod report;
mod requests;
mod rows;
mod runner;
mod side;
mod streams;
mod table;
mod target;
mod transactions;
mod waits;
mod wire;
