//! Totals of the catalogue. They are maintained with each change, so that monitoring does not visit
//! every collection.

use crate::collection::State;

/// The numbers of databases, collections and indexes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Databases with at least one collection.
    pub databases: u64,
    /// Collections, the buckets of time series included; neither views nor time series.
    pub collections: u64,
    /// The capped ones of these.
    pub capped: u64,
    /// The clustered ones of these.
    pub clustered: u64,
    /// Views, without time series.
    pub views: u64,
    /// Time series.
    pub time_series: u64,
    /// Complete indexes.
    pub indexes: u64,
    /// Index builds in progress.
    pub index_builds: u64,
}

impl Totals {
    /// Adds a collection with this state.
    pub(super) fn add(&mut self, state: &State) {
        self.change(state, u64::strict_add);
    }

    /// Subtracts a collection that was added with this state.
    pub(super) fn subtract(&mut self, state: &State) {
        self.change(state, u64::strict_sub);
    }

    fn change(&mut self, state: &State, by: fn(u64, u64) -> u64) {
        let options = &state.options;
        let kind = match (&options.view, &options.time_series) {
            (Some(_), Some(_)) => &mut self.time_series,
            (Some(_), None) => &mut self.views,
            (None, _) => &mut self.collections,
        };
        *kind = by(*kind, 1);
        if options.view.is_none() {
            self.capped = by(self.capped, u64::from(options.capped.is_some()));
            self.clustered = by(self.clustered, u64::from(options.clustered.is_some()));
        }
        self.indexes = by(self.indexes, state.indexes.len() as u64);
        self.index_builds = by(self.index_builds, state.building.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use marula_bson::{DocBuf, doc};
    use marula_storage::memory::Memory;

    use super::*;
    use crate::catalog::options::CollectionOptions;
    use crate::db::Db;
    use crate::index::IndexSpec;
    use crate::namespace::Namespace;

    fn ns(db: &str, name: &str) -> Namespace {
        Namespace::new(db, name).unwrap()
    }

    /// Returns the totals of all collections, which are visited, after a comparison with those of
    /// the catalogue.
    fn checked(db: &Db) -> Totals {
        let mut visited = Totals::default();
        db.catalog().all().iter().for_each(|collection| visited.add(&collection.state()));
        visited.databases = db.catalog().databases().len() as u64;
        assert_eq!(db.catalog().totals(), visited);
        visited
    }

    #[test]
    fn each_change_is_counted() {
        let db = Db::open(Arc::new(Memory::new())).unwrap();
        assert_eq!(checked(&db), Totals::default());
        let create = |db: &Db, name: &Namespace, options: DocBuf| {
            let options = CollectionOptions::parse(options.as_doc()).unwrap();
            let created = db.create_collection(name, options).unwrap();
            checked(db);
            created
        };
        let plain = create(&db, &ns("a", "plain"), doc! {});
        create(&db, &ns("b", "capped"), doc! { "capped": true, "size": 4096 });
        create(&db, &ns("b", "view"), doc! { "viewOn": "capped", "pipeline": [] });
        let clustered = doc! { "clusteredIndex": { "key": { "_id": 1 }, "unique": true } };
        create(&db, &ns("b", "clustered"), clustered);
        let all = checked(&db);
        // The view's definition is in `system.views`.
        assert_eq!((all.databases, all.collections, all.views), (2, 4, 1));
        assert_eq!((all.capped, all.clustered, all.indexes), (1, 1, 3));

        let spec = doc! { "key": { "k": 1 }, "name": "k_1" };
        let spec = IndexSpec::parse(spec.as_doc(), None).unwrap();
        db.create_indexes(&plain, vec![spec], &mut || Ok(())).unwrap();
        assert_eq!(checked(&db).indexes, 4);
        db.rename_collection(&ns("a", "plain"), &ns("b", "capped"), true).unwrap();
        let all = checked(&db);
        assert_eq!((all.databases, all.capped, all.collections, all.indexes), (1, 0, 3, 3));
        db.drop_collection(&ns("b", "capped")).unwrap();
        assert_eq!(checked(&db).indexes, 1);
        db.drop_database("b").unwrap();
        assert_eq!(checked(&db), Totals::default());
    }
}
