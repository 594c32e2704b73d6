//! Replacing another collection, and crashes before that.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use marula_bson::{DocBuf, doc};
use marula_error::codes;
use marula_storage::Store;
use marula_storage::memory::Memory;

use super::source_gone;
use crate::catalog::options::CollectionOptions;
use crate::db::Db;
use crate::index::IndexSpec;
use crate::namespace::Namespace;
use crate::unit::Unit;
use crate::write::{InsertReport, WriteOp};

fn ns(name: &str) -> Namespace {
    Namespace::new("db", name).unwrap()
}

fn insert(db: &Db, name: &str, docs: &[DocBuf]) -> InsertReport {
    let collection = db.collection(&ns(name)).unwrap();
    let mut report = InsertReport::default();
    WriteOp::new(Unit::new(db), 0)
        .insert(&collection, &mut docs.iter().map(DocBuf::as_doc), true, &mut report)
        .unwrap();
    report
}

fn with_target(store: Arc<dyn Store>) -> Db {
    let db = Db::open(store).unwrap();
    let options = doc! { "validator": { "k": { "$gt": 0 } } };
    let options = CollectionOptions::parse(options.as_doc()).unwrap();
    let target = db.create_collection(&ns("target"), options).unwrap();
    let spec = doc! { "key": { "k": 1 }, "name": "k_1", "unique": true };
    let spec = IndexSpec::parse(spec.as_doc(), None).unwrap();
    db.create_indexes(&target, vec![spec], &mut || Ok(())).unwrap();
    insert(&db, "target", &[doc! { "_id": 1, "k": 1 }]);
    db
}

#[test]
fn the_new_collection_has_options_and_indexes_of_the_old() {
    let db = with_target(Arc::new(Memory::new()));
    let temporary = db.create_temporary(&ns("target")).unwrap();
    let name = temporary.namespace();
    assert!(name.collection().starts_with("tmp.agg_out."), "{name}");
    let documents = [doc! { "_id": 5, "k": 7 }, doc! { "_id": 6, "k": 7 }];
    let report = insert(&db, name.collection(), &documents);
    assert_eq!(report.inserted, 1, "the unique index holds in the temporary collection");
    assert_eq!(db.collection(&ns("target")).unwrap().count(), 1);

    db.put_in_place(&name, &ns("target")).unwrap();
    let target = db.collection(&ns("target")).unwrap();
    assert!(Arc::ptr_eq(&target, &temporary) && db.collection(&name).is_none());
    assert_eq!(target.state().indexes.len(), 2);
    assert!(target.state().options.document.as_doc().get("temp").is_none());
    assert!(target.state().options.validator.is_some());
}

#[test]
fn a_target_that_changed_meanwhile_is_not_replaced() {
    let db = with_target(Arc::new(Memory::new()));
    let temporary = db.create_temporary(&ns("target")).unwrap();
    let target = db.collection(&ns("target")).unwrap();
    let spec = doc! { "key": { "z": 1 }, "name": "z_1" };
    let spec = IndexSpec::parse(spec.as_doc(), None).unwrap();
    db.create_indexes(&target, vec![spec], &mut || Ok(())).unwrap();
    let error = db.put_in_place(&temporary.namespace(), &ns("target")).unwrap_err();
    assert_eq!(
        error.message(),
        "indexes of target collection db.target changed during processing."
    );
    assert!(Arc::ptr_eq(&target, &db.collection(&ns("target")).unwrap()));
}

#[test]
fn the_next_start_drops_what_was_not_finished() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let db = with_target(store.clone());
    let name = db.create_temporary(&ns("target")).unwrap().namespace();
    drop(db);
    let db = Db::open(store).unwrap();
    assert!(db.collection(&name).is_none() && db.collection(&ns("target")).is_some());
}

#[test]
fn nobody_writes_to_a_collection_while_a_copy_is_made_that_replaces_it() {
    let db = with_target(Arc::new(Memory::new()));
    let source = db.collection(&ns("target")).unwrap();
    let copy = db.create_collection(&ns("copy"), CollectionOptions::default()).unwrap();
    let refused = db.replace_by_copy(&source, &copy, &mut || Err(source_gone(&ns("x"))));
    assert_eq!(refused.unwrap_err().code(), codes::NamespaceNotFound);
    assert_eq!(insert(&db, "target", &[doc! { "_id": 2, "k": 2 }]).inserted, 1);

    let both = Barrier::new(2);
    std::thread::scope(|scope| {
        let mut writer = None;
        let mut fill = || {
            insert(&db, "copy", &[doc! { "_id": 1 }, doc! { "_id": 2 }]);
            writer = Some(scope.spawn(|| {
                let mut op = WriteOp::new(Unit::new(&db), 0);
                let looked_up = op.look_up(&ns("target")).unwrap();
                both.wait();
                op.upsert(&looked_up, doc! { "_id": 3, "k": 3 }.as_doc(), None)
            }));
            both.wait();
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        };
        db.replace_by_copy(&source, &copy, &mut fill).unwrap();
        let outcome = writer.expect("it was started").join().unwrap();
        assert_eq!(outcome.unwrap_err().code(), codes::QueryPlanKilled);
    });
    assert!(Arc::ptr_eq(&db.collection(&ns("target")).unwrap(), &copy));
    assert!(db.collection(&ns("copy")).is_none() && source.is_dropped());
    assert_eq!((copy.count(), source.count()), (2, 2));
}
