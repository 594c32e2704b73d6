//! BSON as bytes: views, a writer, order, key strings, paths, extended JSON.
//!
//! A document has one representation, its bytes. [`Doc`] borrows them, [`DocBuf`] owns them,
//! [`Value`] is one decoded value that borrows from them. No code here builds a tree.
//!
//! Bytes from a client pass [`validate`](mod@validate) once; after that the views rely on their
//! form and stop early, without a panic, where it is malformed nevertheless.
//!
//! This crate knows no collections, no input or output, and no ICU: a collator is passed in. Start
//! with [`doc`](mod@doc), then [`value`], then [`writer`].

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::unwrap_used))]

pub mod calendar;
pub mod decimal128;
pub mod directory;
pub mod doc;
pub mod ext_json;
mod field_set;
#[cfg(test)]
mod generated;
pub mod hex;
mod iso_date;
pub mod key_string;
mod nul;
pub mod object_id;
pub mod order;
pub mod path;
mod prefetch;
pub mod shell_text;
pub mod uuid;
pub mod validate;
pub mod value;
pub mod writer;

pub use bstr::{BStr, ByteSlice};
pub use decimal128::Decimal128;
pub use doc::{Doc, DocBuf, Element};
pub use field_set::FieldSet;
pub use key_string::{KeyStringReader, KeyStringWriter};
pub use object_id::ObjectId;
pub use order::Collator;
pub use path::FieldPath;
pub use value::{Binary, RawValue, Type, Value, ValueBuf, long};
pub use writer::{ArrayWriter, DocWriter};
