use std::sync::Arc;
use std::thread;

use marula_bson::{DocBuf, Value, doc};
use marula_storage::memory::Memory;
use marula_storage::{Direction, Store};

use super::*;
use crate::unit::Unit;
use crate::write::{InsertReport, WriteOp};

fn insert(db: &Db, collection: &Collection, id: i32, text: &str) {
    let mut op = WriteOp::new(Unit::new(db), 0);
    let document = doc! { "_id": id, "text": text };
    let mut report = InsertReport::default();
    op.insert(collection, &mut std::iter::once(document.as_doc()), true, &mut report).unwrap();
    assert!(report.errors.is_empty());
}

fn entries(db: &Db) -> Vec<DocBuf> {
    let collection = db.oplog().collection().unwrap();
    let mut entries = Vec::new();
    let mut cursor = collection.scan(db.store(), Direction::Forward).unwrap();
    while cursor.advance().unwrap() {
        entries.push(cursor.doc().to_buf());
    }
    entries
}

fn times(db: &Db) -> Vec<u64> {
    let time = |entry: &DocBuf| match entry.as_doc().get("ts") {
        Some(Value::Timestamp(time)) => time,
        other => panic!("no time: {other:?}"),
    };
    entries(db).iter().map(time).collect()
}

#[test]
fn entries_are_in_the_order_of_the_commits_and_go_on_after_a_restart() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let db = Arc::new(Db::open(store.clone()).unwrap());
    let collection = db.collection_or_create(&Namespace::new("d", "c").unwrap()).unwrap();
    insert(&db, &collection, -1, "");
    assert_eq!((db.oplog().is_on(), db.oplog().newest()), (false, 0));
    db.start_oplog().unwrap();
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let (db, collection) = (db.clone(), collection.clone());
            thread::spawn(move || {
                (0..50).for_each(|n| insert(&db, &collection, number * 50 + n, ""))
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let before = times(&db);
    // The first entry, and 200 inserts.
    assert_eq!(before.len(), 201);
    assert!(before.is_sorted_by(|a, b| a < b));
    assert_eq!(before.last(), Some(&db.oplog().newest()));
    assert_eq!(db.oplog().collection().unwrap().count(), 201);
    drop((collection, db));
    let db = Db::open(store).unwrap();
    assert_eq!((db.oplog().since(), db.oplog().newest()), (before[0], before[200]));
    let collection = db.collection(&Namespace::new("d", "c").unwrap()).unwrap();
    insert(&db, &collection, 1_000, "");
    assert!(db.oplog().newest() > before[200]);
    db.stop_oplog().unwrap();
    insert(&db, &collection, 1_001, "");
    assert!(db.collection(&namespace().unwrap()).is_none());
}

#[test]
fn what_outgrows_its_bound_goes_from_the_front() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let collection = db.collection_or_create(&Namespace::new("d", "c").unwrap()).unwrap();
    db.start_oplog().unwrap();
    let text = "x".repeat(1_000);
    (0..100).for_each(|id| insert(&db, &collection, id, &text));
    db.resize_oplog(20_000).unwrap();
    let all = times(&db);
    // Young entries stay, whatever the size.
    db.trim_oplog(Retention { at_least_ms: 3_600_000, images_ms: None }).unwrap();
    assert_eq!(times(&db), all);
    db.trim_oplog(Retention { at_least_ms: 0, images_ms: None }).unwrap();
    let rest = times(&db);
    assert!(rest.len() < 20 && rest.len() > 10, "{} are left", rest.len());
    assert_eq!(rest, all[all.len() - rest.len()..]);
    assert_eq!(db.oplog().since(), rest[0]);
    let oplog = db.oplog().collection().unwrap();
    assert_eq!(oplog.count(), i64::try_from(rest.len()).unwrap());
    let bytes: usize = entries(&db).iter().map(|entry| entry.len()).sum();
    assert_eq!(oplog.size_bytes(), i64::try_from(bytes).unwrap());
}

#[test]
fn an_oplog_whose_beginning_was_cut_off_begins_anew() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let db = Db::open(store.clone()).unwrap();
    let collection = db.collection_or_create(&Namespace::new("d", "c").unwrap()).unwrap();
    db.start_oplog().unwrap();
    insert(&db, &collection, 1, "");
    let before = times(&db);
    drop((collection, db));
    let mut txn = store.begin();
    txn.delete(Space::Catalog, &keys::OPLOG_BEGUN);
    txn.commit().unwrap();
    let db = Db::open(store.clone()).unwrap();
    let after = times(&db);
    assert_eq!((after.len(), db.oplog().since()), (1, after[0]));
    assert!(after[0] > before[1]);
    assert_eq!(db.oplog().collection().unwrap().count(), 1);
    drop(db);
    assert_eq!(times(&Db::open(store).unwrap()), after);
}

#[test]
fn who_begins_it_beside_another_waits_until_it_has_begun() {
    for _ in 0..20 {
        let db = Arc::new(Db::open(Arc::new(Memory::new())).unwrap());
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let db = db.clone();
                thread::spawn(move || {
                    db.start_oplog().unwrap();
                    (db.oplog().since(), db.oplog().newest())
                })
            })
            .collect();
        for thread in threads {
            let (since, newest) = thread.join().unwrap();
            assert!(since != 0 && newest >= since);
        }
        assert_eq!(entries(&db).len(), 1);
    }
}
