//! Changes of the catalogue as a watcher receives them: the server logs and audits them.
//!
//! The watcher is called after the commit of a change, on the thread that made it. It must not
//! change the catalogue.

use marula_error::Error;

use crate::build::Build;
use crate::collection::Collection;
use crate::index::Index;
use crate::namespace::Namespace;

/// A change of the catalogue.
pub enum CatalogEvent<'a> {
    /// A collection or view is there, with the indexes that it was made with.
    Created {
        /// The new collection or view.
        collection: &'a Collection,
        /// Whether it is the first of its database, which is there from now on.
        is_first: bool,
    },
    /// A collection or view is gone.
    Dropped(&'a Collection),
    /// A collection has another name.
    Renamed {
        /// The collection, by its new name.
        collection: &'a Collection,
        /// Its name before.
        from: &'a Namespace,
    },
    /// A database was dropped, with this number of collections.
    DatabaseDropped(&'a str, usize),
    /// Indexes of a collection are about to be built.
    BuildBegun(&'a Collection, &'a Build),
    /// They are part of the collection.
    BuildDone(&'a Collection, &'a Build),
    /// They were not built.
    BuildFailed(&'a Collection, &'a Build, &'a Error),
    /// An index is gone.
    IndexDropped(&'a Collection, &'a Index),
}

/// Receives changes of the catalogue.
pub type CatalogWatcher = Box<dyn Fn(&CatalogEvent<'_>) + Send + Sync>;
