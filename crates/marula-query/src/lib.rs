//! MongoDB's query language, pure: filters, updates, projections, sorts, expressions, stages.
//!
//! Each is parsed once into a typed form, which then runs on documents' bytes. Nothing here uses
//! storage, clocks, input or output, or threads: an operation gets its inputs from outside (the
//! time, the collation, `let` variables) in a [`context::Context`].
//!
//! Start with [`context`], then [`filter`], [`expression`], [`update`], [`projection`], [`stage`].

pub mod accumulator;
pub mod collation;
pub mod context;
pub mod expression;
pub mod feature_version;
mod field_map;
pub mod filter;
pub mod geo;
pub mod hashed_key;
pub mod javascript;
mod json_schema;
pub mod known;
pub mod meter;
pub mod once;
pub mod projection;
pub mod quick;
pub mod regex;
pub mod sort;
pub mod spill;
pub mod stage;
pub mod text;
pub mod update;
pub mod usage;
pub mod validation;
pub mod values_at_path;
mod window;
