//! Running pipelines: the query at their front, the stages after it, their writes.
//!
//! ```text
//!   collection ─► Execution ─► CollectionSource ─► stages ─► PipelineDocuments ─► batch of a reply
//!                 the front,   reads ahead a       the rest
//!                 as a query   little at a time
//! ```
//!
//! [`start`] begins it; stages reach other collections, and write, through [`world`]. The services
//! that only the server has come from a [`PipelineHost`].

mod collection_source;
mod documents;
pub mod front;
pub(crate) mod geo_near;
pub mod host;
mod random_documents;
mod start;
mod world;
mod writes;

pub use documents::PipelineDocuments;
pub(crate) use documents::PipelineOptions;
pub use front::Front;
pub use host::{Followed, PipelineHost, StageWrites, StreamPosition, Work};
pub(crate) use start::check_without_collection;
pub use start::count_given;
