//! Changes of a collection that another client has dropped or changed since it was looked up.

use std::sync::Arc;

use marula_bson::{DocBuf, doc};
use marula_error::{Result, codes};
use marula_storage::Store;
use marula_storage::memory::Memory;

use super::until_unchanged;
use crate::catalog::indexes::DropSelector;
use crate::catalog::options::CollectionOptions;
use crate::db::Db;
use crate::index::IndexSpec;
use crate::namespace::Namespace;

#[test]
fn no_change_brings_a_dropped_collection_back() {
    let ns = Namespace::new("db", "c").unwrap();
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let db = Db::open(store.clone()).unwrap();
    let collection = db.create_collection(&ns, CollectionOptions::default()).unwrap();
    let a = doc! { "key": { "a": 1 }, "name": "a" };
    let b = doc! { "key": { "b": 1 }, "name": "b" };
    let [a, b] = [a, b].map(|spec| IndexSpec::parse(spec.as_doc(), None).unwrap());
    db.create_indexes(&collection, vec![a], &mut || Ok(())).unwrap();
    db.drop_collection(&ns).unwrap();
    let state = collection.state();
    let changes: [Result<()>; 4] = [
        db.change_collection(&collection, &state, state.options.clone(), &|_| None),
        db.shard_collection(&collection, None),
        db.create_indexes(&collection, vec![b], &mut || Ok(())).map(drop),
        db.drop_indexes(&collection, &DropSelector::Names(vec!["a".to_owned()])).map(drop),
    ];
    for change in changes {
        assert_eq!(change.unwrap_err().code(), codes::NamespaceNotFound);
    }
    drop(db);
    assert!(Db::open(store).unwrap().collection(&ns).is_none());
}

#[test]
fn no_change_takes_back_another_one() {
    let ns = Namespace::new("db", "c").unwrap();
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let collection = db.create_collection(&ns, CollectionOptions::default()).unwrap();
    let options = |document: DocBuf| CollectionOptions::parse(document.as_doc()).unwrap();
    let before = collection.state();
    let strict = doc! { "validationLevel": "strict" };
    db.change_collection(&collection, &before, options(strict), &|_| None).unwrap();
    let warn = doc! { "validationAction": "warn" };
    let refused = db.change_collection(&collection, &before, options(warn), &|_| None);
    assert_eq!(refused.unwrap_err().code(), codes::WriteConflict);

    let mut attempts = 0;
    until_unchanged(|| {
        attempts += 1;
        let state = if attempts == 1 { before.clone() } else { collection.state() };
        let both = doc! { "validationLevel": "strict", "validationAction": "warn" };
        db.change_collection(&collection, &state, options(both), &|_| None)
    })
    .unwrap();
    assert_eq!(attempts, 2);
}

#[test]
fn a_time_series_is_shown_with_the_options_of_its_buckets() {
    let ns = Namespace::new("db", "c").unwrap();
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let options = |granularity: &str| {
        let series = doc! { "timeField": "t", "granularity": granularity };
        CollectionOptions::parse(doc! { "timeseries": &series }.as_doc()).unwrap()
    };
    db.create_time_series(&ns, options("seconds")).unwrap();
    let shown = db.collection(&ns).unwrap();
    let buckets = db.buckets_of(&shown).unwrap().unwrap();
    for _ in 0..200 {
        std::thread::scope(|scope| {
            for granularity in ["minutes", "hours"] {
                let (db, buckets) = (&db, &buckets);
                scope.spawn(move || {
                    until_unchanged(|| {
                        let changed = options(granularity);
                        db.change_time_series(buckets, &buckets.state(), changed, &|_| None)
                    })
                    .unwrap();
                });
            }
        });
        let [of_view, of_buckets] =
            [&shown, &buckets].map(|one| one.state().options.time_series.clone());
        assert_eq!(of_view, of_buckets);
    }
}
