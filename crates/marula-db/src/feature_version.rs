//! The stored feature compatibility version: a document of `admin.system.version`, as in mongod.
//!
//! A server writes the document when it serves a store for the first time. A changed document takes
//! effect at the next start, unless [`Db::set_feature_version`] changed it.

use marula_bson::{Doc, doc};
use marula_error::Result;
use marula_query::feature_version::FeatureVersion;

use crate::db::Db;
use crate::namespace::Namespace;

/// The database of the collection.
const DATABASE: &str = "admin";
/// The name of the collection.
const COLLECTION: &str = "system.version";
/// The document's `_id`.
const ID: &str = "featureCompatibilityVersion";

impl Db {
    /// Reads the stored version. A document without a valid version, written by hand, is logged and
    /// ignored: it must not keep a server from starting.
    pub(crate) fn load_feature_version(&self) -> Result<()> {
        let ns = namespace()?;
        let Some(stored) = self.stored_document(&ns, ID)? else { return Ok(()) };
        match read(stored.as_doc()) {
            Some(version) => self.use_feature_version(version),
            None => tracing::error!(
                found = %stored.as_doc(),
                "admin.system.version holds no feature compatibility version that is known: it is 6.0 until it is set anew"
            ),
        }
        Ok(())
    }

    /// Stores a version and applies it. Writes nothing if the version is unchanged.
    pub fn set_feature_version(&self, version: FeatureVersion, now_ms: i64) -> Result<()> {
        if version == self.feature_version() {
            return Ok(());
        }
        self.store_feature_version(version, now_ms)?;
        self.use_feature_version(version);
        Ok(())
    }

    /// Stores the version in use if none is stored.
    pub fn ensure_feature_version(&self, now_ms: i64) -> Result<()> {
        match self.stored_document(&namespace()?, ID)? {
            Some(_) => Ok(()),
            None => self.store_feature_version(self.feature_version(), now_ms),
        }
    }

    fn store_feature_version(&self, version: FeatureVersion, now_ms: i64) -> Result<()> {
        let document = doc! { "_id": ID, "version": version.name() };
        self.store_document(&namespace()?, document.as_doc(), now_ms)
    }
}

fn namespace() -> Result<Namespace> {
    Namespace::new(DATABASE, COLLECTION)
}

/// The version in a stored document.
fn read(doc: Doc<'_>) -> Option<FeatureVersion> {
    let name = doc.get("version").and_then(|version| version.as_str()).unwrap_or_default();
    FeatureVersion::from_name(name.as_ref())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use marula_storage::memory::Memory;

    use crate::unit::Unit;
    use crate::write::WriteOp;

    use super::*;

    fn check_kept(versions: &[FeatureVersion]) {
        let store = Arc::new(Memory::new());
        let mut expected = FeatureVersion::V6_0;
        for &version in versions {
            let db = Db::open(store.clone()).unwrap();
            assert_eq!(db.feature_version(), expected);
            db.set_feature_version(version, 0).unwrap();
            assert_eq!(db.feature_version(), version);
            expected = version;
        }
        assert_eq!(Db::open(store).unwrap().feature_version(), expected);
    }

    #[test]
    fn a_version_is_there_after_the_next_start() {
        use FeatureVersion::{V6_0, V7_0, V8_0};
        check_kept(&[]);
        check_kept(&[V6_0]);
        check_kept(&[V8_0, V8_0, V7_0, V6_0, V8_0]);
    }

    #[test]
    fn the_version_in_use_is_stored_unless_one_is() {
        let namespace = Namespace::new(DATABASE, COLLECTION).unwrap();
        let db = Db::open(Arc::new(Memory::new())).unwrap();
        let stored = || db.stored_document(&namespace, ID).unwrap();
        assert_eq!(stored(), None);
        db.ensure_feature_version(0).unwrap();
        assert_eq!(stored(), Some(doc! { "_id": ID, "version": "6.0" }));
        db.set_feature_version(FeatureVersion::V8_0, 0).unwrap();
        db.ensure_feature_version(0).unwrap();
        assert_eq!(stored(), Some(doc! { "_id": ID, "version": "8.0" }));

        let unknown = doc! { "_id": ID, "version": "9.9" };
        db.store_document(&namespace, unknown.as_doc(), 0).unwrap();
        db.ensure_feature_version(0).unwrap();
        assert_eq!(stored(), Some(unknown), "written by hand");
    }

    #[test]
    fn a_document_that_says_no_version_does_not_count() {
        for document in [
            doc! { "_id": ID },
            doc! { "_id": ID, "version": 8 },
            doc! { "_id": ID, "version": "9.9" },
        ] {
            let store = Arc::new(Memory::new());
            let db = Db::open(store.clone()).unwrap();
            let namespace = Namespace::new(DATABASE, COLLECTION).unwrap();
            let collection = db.collection_or_create(&namespace).unwrap();
            WriteOp::new(Unit::new(&db), 0).upsert(&collection, document.as_doc(), None).unwrap();
            drop((collection, db));
            let db = Db::open(store).unwrap();
            assert_eq!(db.feature_version(), FeatureVersion::V6_0, "{document:?}");
            db.set_feature_version(FeatureVersion::V8_0, 0).unwrap();
            assert_eq!(db.feature_version(), FeatureVersion::V8_0);
        }
    }
}
