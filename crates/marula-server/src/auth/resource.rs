//! Resources: the objects of a privilege's actions.
//!
//! A resource names a collection, a database, collections of this name in every database,
//! time-series buckets, the cluster, or everything. Source: manual "Resource Document"; errors
//! recorded from mongod 6.0.

use marula_bson::{DocWriter, doc_fields};

/// The resource of a privilege.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Resource {
    /// Everything.
    Any,
    /// The server itself.
    Cluster,
    /// Collections. An empty database means all databases, an empty collection all collections
    /// except the server's own.
    Collections {
        /// The database.
        db: String,
        /// The collection.
        collection: String,
    },
    /// The buckets of time-series collections; an empty name means all.
    Buckets {
        /// The database.
        db: String,
        /// The collection of the buckets.
        collection: String,
    },
}

impl Resource {
    /// Returns the collections of this name in this database.
    pub(crate) fn collections(db: &str, collection: &str) -> Self {
        Resource::Collections { db: db.to_owned(), collection: collection.to_owned() }
    }

    /// Returns whether a role of the database `db` may have a privilege on it: only on its own
    /// database's collections.
    pub(crate) fn is_of_database(&self, db: &str) -> bool {
        matches!(self, Resource::Collections { db: own, .. } if own == db)
    }

    /// Appends it as the field `resource`.
    pub(crate) fn write(&self, out: &mut DocWriter<'_>) {
        let mut resource = out.begin_doc("resource");
        match self {
            Resource::Any => {
                resource.append("anyResource", true);
            }
            Resource::Cluster => {
                resource.append("cluster", true);
            }
            Resource::Collections { db, collection } => {
                doc_fields!(resource; "db": db.as_str(), "collection": collection.as_str());
            }
            Resource::Buckets { db, collection } => {
                resource.append("system_buckets", collection.as_str());
                if !db.is_empty() {
                    resource.append("db", db.as_str());
                }
            }
        }
    }
}
