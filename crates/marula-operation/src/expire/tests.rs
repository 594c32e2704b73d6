//! The expiry of documents, over the in-memory store. The expectations are those of mongod 6.0.

use std::sync::Arc;

use marula_bson::{DocBuf, Value, doc};
use marula_db::write::InsertReport;
use marula_db::{Collection, CollectionOptions, Db, IndexSpec, Namespace, Unit, WriteOp, validate};
use marula_storage::memory::Memory;

use super::ExpireOp;

const NOW_MS: i64 = 1_700_000_000_000;
const OLD: Value<'static> = Value::DateTime(NOW_MS - 3_600_000);
const NEW: Value<'static> = Value::DateTime(NOW_MS + 3_600_000);

fn fill(options: &DocBuf, index: Option<&DocBuf>, docs: &[DocBuf]) -> (Db, Arc<Collection>) {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let options = CollectionOptions::parse(options.as_doc()).unwrap();
    let collection = db.create_collection(&Namespace::new("db", "c").unwrap(), options).unwrap();
    if let Some(index) = index {
        let spec = IndexSpec::parse(index.as_doc(), None).unwrap();
        db.create_indexes(&collection, vec![spec], &mut || Ok(())).unwrap();
    }
    let mut report = InsertReport::default();
    WriteOp::new(Unit::new(&db), 0)
        .insert(&collection, &mut docs.iter().map(DocBuf::as_doc), true, &mut report)
        .unwrap();
    assert_eq!(report.inserted, docs.len());
    (db, collection)
}

fn expire(
    db: &Db,
    collection: &Collection,
    now_ms: i64,
    go_on: &mut dyn FnMut() -> bool,
) -> marula_error::Result<u64> {
    ExpireOp { now_ms }.run(Unit::new(db), collection, go_on)
}

/// Expires once and compares the remaining `_id`s.
#[track_caller]
fn check(options: &DocBuf, index: Option<&DocBuf>, docs: &[DocBuf], left: &[&str]) {
    let (db, collection) = fill(options, index, docs);
    let deleted = expire(&db, &collection, NOW_MS, &mut || true).unwrap();
    let mut found = Vec::new();
    let view = Unit::new(&db).view();
    let mut cursor = collection.scan(view, marula_storage::Direction::Forward).unwrap();
    while cursor.advance().unwrap() {
        found.push(cursor.doc().get("_id").unwrap().to_string());
    }
    drop(cursor);
    assert_eq!(found, left);
    assert_eq!(deleted as usize, docs.len() - left.len());
    let report = validate::check(&db, &collection, &mut || Ok(())).unwrap();
    assert!(report.is_valid(), "{:?}", report.errors);
}

fn of_all_types() -> Vec<DocBuf> {
    vec![
        doc! { "_id": 1, "d": OLD },
        doc! { "_id": 2, "d": NEW },
        doc! { "_id": 3, "d": "x" },
        doc! { "_id": 4 },
        doc! { "_id": 5, "d": [NEW, OLD] },
        doc! { "_id": 6, "d": [] },
        doc! { "_id": 7, "d": Value::Null },
        doc! { "_id": 8, "d": Value::Timestamp(1) },
        doc! { "_id": 9, "d": 5 },
        doc! { "_id": 10, "d": { "d": OLD } },
        doc! { "_id": 11, "d": [[OLD]] },
        doc! { "_id": 12, "d": [5, OLD] },
        doc! { "_id": 13, "d": Value::DateTime(-1) },
        doc! { "_id": 14, "d": Value::MaxKey },
        doc! { "_id": 15, "d": Value::Boolean(true) },
    ]
}

#[test]
fn dates_expire_and_other_values_do_not() {
    let left = ["2", "3", "4", "6", "7", "8", "9", "10", "11", "14", "15"];
    for direction in [1, -1] {
        for extra in
            [doc! {}, doc! { "sparse": true }, doc! { "hidden": true }, doc! { "unique": false }]
        {
            let index = DocBuf::build(|out| {
                out.append("key", &doc! { "d": direction }).append("name", "ttl");
                out.append("expireAfterSeconds", 0);
                for element in extra.as_doc() {
                    out.append_raw(element.name, element.value);
                }
            });
            check(&doc! {}, Some(&index), &of_all_types(), &left);
        }
    }
}

#[test]
fn seconds_are_added_to_the_date() {
    let docs = [
        doc! { "_id": 1, "d": Value::DateTime(NOW_MS - 10_001) },
        doc! { "_id": 2, "d": Value::DateTime(NOW_MS - 10_000) },
        doc! { "_id": 3, "d": Value::DateTime(NOW_MS - 9_999) },
    ];
    let index =
        |seconds: f64| doc! { "key": { "d": 1 }, "name": "ttl", "expireAfterSeconds": seconds };
    check(&doc! {}, Some(&index(10.0)), &docs, &["3"]);
    check(&doc! {}, Some(&index(10.9)), &docs, &["3"]);
    check(&doc! {}, Some(&index(f64::NAN)), &docs, &["1", "2", "3"]);
}

#[test]
fn a_partial_index_expires_what_it_holds() {
    let index = doc! {
        "key": { "d": 1 }, "name": "ttl", "expireAfterSeconds": 0,
        "partialFilterExpression": { "p": 1 },
    };
    let docs = [doc! { "_id": 1, "d": OLD }, doc! { "_id": 2, "d": OLD, "p": 1 }];
    check(&doc! {}, Some(&index), &docs, &["1"]);
}

#[test]
fn a_clustered_collection_expires_by_its_id() {
    let options =
        doc! { "clusteredIndex": { "key": { "_id": 1 }, "unique": true }, "expireAfterSeconds": 0 };
    let docs = [doc! { "_id": 1 }, doc! { "_id": "x" }, doc! { "_id": OLD }, doc! { "_id": NEW }];
    let new = NEW.to_string();
    check(&options, None, &docs, &["1", "\"x\"", &new]);
}

#[test]
fn many_documents_go_in_batches_and_may_be_stopped() {
    let index = doc! { "key": { "d": 1 }, "name": "ttl", "expireAfterSeconds": 0 };
    let docs: Vec<_> = (0..200).map(|n| doc! { "_id": n, "d": [OLD, n] }).collect();
    let (db, collection) = fill(&doc! {}, Some(&index), &docs);
    let mut batches = 0;
    let mut once = || {
        batches += 1;
        batches == 1
    };
    assert_eq!(expire(&db, &collection, NOW_MS, &mut once).unwrap(), 64);
    assert_eq!(expire(&db, &collection, NOW_MS, &mut || true).unwrap(), 136);
    assert_eq!(collection.count(), 0);
}

#[test]
fn buckets_expire_when_their_latest_measurement_has() {
    let options = doc! {
        "clusteredIndex": true,
        "expireAfterSeconds": 600_i64,
        "timeseries": { "timeField": "t", "granularity": "seconds" }
    };
    let options = CollectionOptions::parse(options.as_doc()).unwrap();
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let ns = Namespace::new("db", "c").unwrap();
    db.create_time_series(&ns, options).unwrap();
    let buckets = db.buckets_of(&db.collection(&ns).unwrap()).unwrap().unwrap();
    let minutes_ago = |minutes: i64| doc! { "t": Value::DateTime(NOW_MS - minutes * 60_000) };
    // A bucket may span an hour: it is examined once a bucket that began with it would have expired
    // for sure.
    for docs in
        [vec![minutes_ago(200), minutes_ago(150)], vec![minutes_ago(75)], vec![minutes_ago(5)]]
    {
        let mut report = InsertReport::default();
        let mut docs = docs.iter().map(DocBuf::as_doc);
        WriteOp::new(Unit::new(&db), NOW_MS)
            .insert_measurements(&buckets, &mut docs, true, &mut report)
            .unwrap();
        assert!(report.errors.is_empty());
    }
    assert_eq!(buckets.count(), 3);
    assert_eq!(expire(&db, &buckets, NOW_MS, &mut || true).unwrap(), 2);
    assert_eq!(expire(&db, &buckets, NOW_MS + 3_600_000, &mut || true).unwrap(), 0);
    assert_eq!(expire(&db, &buckets, NOW_MS + 7_200_000, &mut || true).unwrap(), 1);
}
