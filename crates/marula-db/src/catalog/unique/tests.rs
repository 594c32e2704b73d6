//! Preparing an index and converting it to a unique one, over the in-memory store.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, doc};
use marula_error::codes;
use marula_query::update::Touched;
use marula_storage::memory::Memory;

use crate::build::BuildOptions;
use crate::catalog::options::CollectionOptions;
use crate::collection::Collection;
use crate::db::Db;
use crate::index::IndexSpec;
use crate::namespace::Namespace;
use crate::unit::Unit;
use crate::write::{Change, InsertReport, WriteOp};

/// A collection of these documents with a prepared index on `a`.
fn prepared(options: &DocBuf, documents: &[DocBuf]) -> (Db, Arc<Collection>) {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let options = CollectionOptions::parse(options.as_doc()).unwrap();
    let collection = db.create_collection(&Namespace::new("db", "c").unwrap(), options).unwrap();
    for document in documents {
        assert_eq!(insert(&db, &collection, std::slice::from_ref(document)), 1);
    }
    let spec = doc! { "key": { "a": 1 }, "name": "a", "prepareUnique": true };
    let spec = IndexSpec::parse(spec.as_doc(), None).unwrap();
    db.create_indexes(&collection, vec![spec], &mut || Ok(())).unwrap();
    (db, collection)
}

/// Inserts those documents that can be inserted; returns their number.
fn insert(db: &Db, collection: &Collection, documents: &[DocBuf]) -> usize {
    let mut report = InsertReport::default();
    let mut docs = documents.iter().map(DocBuf::as_doc);
    WriteOp::new(Unit::new(db), 0).insert(collection, &mut docs, false, &mut report).unwrap();
    assert!(report.errors.iter().all(|(_, error)| error.code() == codes::DuplicateKey));
    report.inserted
}

fn replace(db: &Db, collection: &Collection, id: i32, with: &DocBuf) -> Option<marula_error::Code> {
    let record = collection.find_id(db.store(), id.into(), &mut Vec::new()).unwrap().unwrap();
    let mut change = |_: Doc<'_>, out: &mut Vec<u8>| {
        out.extend_from_slice(with);
        Ok(Change::Replace(Touched::All))
    };
    WriteOp::new(Unit::new(db), 0)
        .update(collection, &record, &mut change, None)
        .err()
        .map(|e| e.code())
}

fn make_unique(db: &Db, collection: &Collection) -> marula_error::Result<()> {
    let index = collection.state().index("a").unwrap().clone();
    db.check_unique(collection, &index, &mut || Ok(()))?;
    let spec = doc! { "key": { "a": 1 }, "name": "a", "unique": true };
    let spec = IndexSpec::parse(spec.as_doc(), None).unwrap();
    let options = BuildOptions {
        memory_bytes_max: 1 << 20,
        is_collection_new: false,
        watch: &mut |_| Ok(()),
    };
    db.make_unique(collection, &index, spec, options)?;
    assert!(index.is_dropped());
    Ok(())
}

#[track_caller]
fn assert_sound(db: &Db, collection: &Collection) {
    let report = crate::validate::check(db, collection, &mut || Ok(())).unwrap();
    assert!(report.is_valid(), "{:?}", report.errors);
}

#[test]
fn no_write_adds_a_key_that_another_document_has() {
    for options in [doc! {}, doc! { "clusteredIndex": { "key": { "_id": 1 }, "unique": true } }] {
        let (db, collection) = prepared(
            &options,
            &[doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 1 }, doc! { "_id": 3, "a": [5, 6] }],
        );
        assert_eq!(insert(&db, &collection, &[doc! { "_id": 10, "a": 1 }]), 0);
        assert_eq!(insert(&db, &collection, &[doc! { "_id": 10, "a": [7, 6] }]), 0);
        let twice = [
            doc! { "_id": 11, "a": 8 },
            doc! { "_id": 12, "a": 8 },
            doc! { "_id": 13, "a": [9, 9] },
        ];
        assert_eq!(insert(&db, &collection, &twice), 2, "one of two alike in one command");
        // A document keeps its own key; the same number of another type is a new entry.
        assert_eq!(replace(&db, &collection, 1, &doc! { "_id": 1, "a": 1, "z": 1 }), None);
        assert_eq!(
            replace(&db, &collection, 1, &doc! { "_id": 1, "a": 1.0 }),
            Some(codes::DuplicateKey)
        );
        assert_eq!(replace(&db, &collection, 3, &doc! { "_id": 3, "a": 5.0 }), None);
        assert_eq!(
            replace(&db, &collection, 3, &doc! { "_id": 3, "a": 8 }),
            Some(codes::DuplicateKey)
        );
        assert_sound(&db, &collection);
    }
}

#[test]
fn an_index_becomes_unique_once_no_key_is_shared() {
    let documents: Vec<DocBuf> = (0..300).map(|n| doc! { "_id": n, "a": n / 2 * 2 }).collect();
    let (db, collection) = prepared(&doc! {}, &documents);
    let error = make_unique(&db, &collection).unwrap_err();
    assert_eq!(error.code(), codes::CannotConvertIndexToUnique);
    let fields = error.fields().to_vec();
    assert!(!fields.is_empty());
    assert!(!collection.state().index("a").unwrap().spec.unique);
    for n in (1..300).step_by(2) {
        assert_eq!(replace(&db, &collection, n, &doc! { "_id": n, "a": [n, 1000 + n] }), None);
    }
    make_unique(&db, &collection).unwrap();
    let index = collection.state().index("a").unwrap().clone();
    assert!(index.spec.unique && index.is_multikey());
    assert_eq!(insert(&db, &collection, &[doc! { "_id": 999, "a": 1001 }]), 0);
    assert_eq!(insert(&db, &collection, &[doc! { "_id": 999, "a": 999 }]), 1);
    assert_sound(&db, &collection);
}

#[test]
fn an_index_dropped_meanwhile_does_not_come_back() {
    let documents: Vec<DocBuf> = (0..1000).map(|n| doc! { "_id": n, "a": n }).collect();
    let (db, collection) = prepared(&doc! {}, &documents);
    let index = collection.state().index("a").unwrap().clone();
    let spec = doc! { "key": { "a": 1 }, "name": "a", "unique": true };
    let spec = IndexSpec::parse(spec.as_doc(), None).unwrap();
    let mut is_dropped = false;
    let mut watch = |_| {
        if !std::mem::replace(&mut is_dropped, true) {
            let names = crate::catalog::indexes::DropSelector::Names(vec!["a".into()]);
            db.drop_indexes(&collection, &names).unwrap();
        }
        Ok(())
    };
    let options =
        BuildOptions { memory_bytes_max: 1 << 20, is_collection_new: false, watch: &mut watch };
    let error = db.make_unique(&collection, &index, spec, options).unwrap_err();
    assert_eq!(error.code(), codes::WriteConflict, "the change is made again");
    assert_eq!(collection.state().indexes.len(), 1);
    let walk = marula_storage::KeyRange { start: Vec::new(), end: vec![0xFF] };
    let direction = marula_storage::Direction::Forward;
    let error = collection.scan_index(db.store(), index, &walk, direction).err().unwrap();
    assert_eq!(error.code(), codes::QueryPlanKilled, "what walks it is told");
    assert_sound(&db, &collection);
}
