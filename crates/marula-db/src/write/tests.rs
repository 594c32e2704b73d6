//! Writes against the in-memory store; after each test the collection must be sound.

use std::sync::Arc;
use std::time::Duration;

use marula_bson::{Doc, DocBuf, Value, doc};
use marula_error::codes;
use marula_query::update::Touched;
use marula_storage::memory::Memory;

use super::{Change, InsertReport, WriteOp, Written};
use crate::catalog::indexes::DropSelector;
use crate::catalog::options::CollectionOptions;
use crate::collection::Collection;
use crate::db::Db;
use crate::index::IndexSpec;
use crate::keys::RecordKey;
use crate::namespace::Namespace;
use crate::transaction::{Limits, Transaction};
use crate::unit::{Parking, Unit};

const LIMITS: Limits =
    Limits { lock_timeout: Duration::from_millis(5), bytes_max: 1 << 20, total_bytes_max: 1 << 30 };

fn open() -> Db {
    Db::open(Arc::new(Memory::new())).unwrap()
}

fn create(db: &Db, options: &DocBuf) -> Arc<Collection> {
    let options = CollectionOptions::parse(options.as_doc()).unwrap();
    db.create_collection(&Namespace::new("db", "c").unwrap(), options).unwrap()
}

fn index(db: &Db, collection: &Collection, spec: &DocBuf) -> marula_error::Result<(usize, usize)> {
    let spec = IndexSpec::parse(spec.as_doc(), None)?;
    db.create_indexes(collection, vec![spec], &mut || Ok(()))
}

fn insert(db: &Db, collection: &Collection, docs: &[DocBuf], ordered: bool) -> InsertReport {
    let mut report = InsertReport::default();
    WriteOp::new(Unit::new(db), 0)
        .insert(collection, &mut docs.iter().map(DocBuf::as_doc), ordered, &mut report)
        .unwrap();
    report
}

fn record(db: &Db, collection: &Collection, id: impl Into<Value<'static>>) -> RecordKey {
    collection.find_id(db.store(), id.into(), &mut Vec::new()).unwrap().unwrap()
}

fn replace(
    db: &Db,
    collection: &Collection,
    id: i32,
    with: &DocBuf,
) -> marula_error::Result<Written> {
    let record = record(db, collection, id);
    let mut change = |_: Doc<'_>, out: &mut Vec<u8>| {
        out.extend_from_slice(with);
        Ok(Change::Replace(Touched::All))
    };
    WriteOp::new(Unit::new(db), 0).update(collection, &record, &mut change, None)
}

fn ids(db: &Db, collection: &Collection) -> Vec<String> {
    let mut found = Vec::new();
    let mut cursor = collection.scan(db.store(), marula_storage::Direction::Forward).unwrap();
    while cursor.advance().unwrap() {
        found.push(cursor.doc().get("_id").unwrap().to_string());
    }
    found
}

#[track_caller]
fn assert_sound(db: &Db, collection: &Collection) {
    let report = crate::validate::check(db, collection, &mut || Ok(())).unwrap();
    assert!(report.is_valid(), "{:?}", report.errors);
    assert_eq!(report.records, collection.count());
}

#[test]
fn an_ordered_insert_stops_at_the_first_error_and_an_unordered_one_goes_on() {
    let docs = [doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 1 }, doc! { "_id": 3 }];
    for (ordered, inserted) in [(true, 2), (false, 3)] {
        let db = open();
        let collection = create(&db, &doc! {});
        let report = insert(&db, &collection, &docs, ordered);
        assert_eq!(report.inserted, inserted);
        let [(position, error)] = &report.errors[..] else { panic!("{report:?}") };
        assert_eq!(*position, 2);
        assert_eq!(
            error.message(),
            "E11000 duplicate key error collection: db.c index: _id_ dup key: { _id: 1 }"
        );
        assert_sound(&db, &collection);
    }
}

#[test]
fn taken_keys_are_found_wherever_many_ids_lie() {
    // Ascending ids are looked up together, others one by one.
    let ascending: Vec<i32> = (0..40).map(|n| n * 10).collect();
    let mut descending = ascending.clone();
    descending.reverse();
    let mut repeating = ascending.clone();
    repeating[39] = 0;
    for unique in [false, true] {
        for (ids, stored, refused) in [
            (&ascending, -5, None),
            (&ascending, 395, None),
            (&ascending, 205, None),
            (&ascending, 0, Some(0)),
            (&ascending, 200, Some(20)),
            (&ascending, 390, Some(39)),
            (&descending, 200, Some(19)),
            (&repeating, 1_000, Some(39)),
        ] {
            let db = open();
            let collection = create(&db, &doc! {});
            let spec = doc! { "key": { "a": 1 }, "name": "a_1", "unique": unique };
            index(&db, &collection, &spec).unwrap();
            let stored = doc! { "_id": stored, "a": stored };
            insert(&db, &collection, &[stored], true);
            let docs: Vec<DocBuf> = ids.iter().map(|&n| doc! { "_id": n, "a": -n }).collect();
            let report = insert(&db, &collection, &docs, false);
            // In the unique index, which descends, only a zero is stored already.
            let positions: Vec<usize> = report.errors.iter().map(|(place, _)| *place).collect();
            assert_eq!(positions, Vec::from_iter(refused), "{ids:?}");
            assert_eq!(report.inserted, 40 - positions.len());
            assert_sound(&db, &collection);
        }
    }
}

#[test]
fn a_document_that_fails_one_unique_index_claims_no_key_of_another() {
    let db = open();
    let collection = create(&db, &doc! {});
    index(&db, &collection, &doc! { "key": { "a": 1 }, "name": "a_1", "unique": true }).unwrap();
    let docs = [
        doc! { "_id": 1, "a": 1 },
        doc! { "_id": 2, "a": 1 },
        doc! { "_id": 2, "a": 2 },
        doc! { "_id": 3, "a": 2 },
    ];
    let report = insert(&db, &collection, &docs, false);
    assert_eq!(report.errors.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [1, 3]);
    assert_sound(&db, &collection);
}

#[test]
fn an_update_moves_index_entries_and_respects_unique_keys() {
    let db = open();
    let collection = create(&db, &doc! {});
    index(&db, &collection, &doc! { "key": { "a": 1, "b": -1 }, "name": "ab", "unique": true })
        .unwrap();
    insert(&db, &collection, &[doc! { "_id": 1, "a": 1, "b": 1 }, doc! { "_id": 2, "a": 2 }], true);
    assert_eq!(
        replace(&db, &collection, 2, &doc! { "_id": 2, "a": [3, 4] }).unwrap(),
        Written::Changed
    );
    let error = replace(&db, &collection, 2, &doc! { "_id": 2, "a": [5, 1], "b": 1 }).unwrap_err();
    assert_eq!(error.code(), marula_error::codes::DuplicateKey);
    assert!(collection.state().index("ab").unwrap().is_multikey());
    assert_sound(&db, &collection);
}

#[test]
fn a_deleted_document_takes_its_entries_along() {
    let db = open();
    let collection = create(&db, &doc! {});
    index(&db, &collection, &doc! { "key": { "a.b": 1 }, "name": "ab" }).unwrap();
    insert(
        &db,
        &collection,
        &[doc! { "_id": 1, "a": [{ "b": 1 }, { "b": [2, 3] }, 4] }, doc! { "_id": 2 }],
        true,
    );
    let target = record(&db, &collection, 1);
    let deleted = WriteOp::new(Unit::new(&db), 0)
        .delete(&collection, &target, &mut |_| Ok(true), None)
        .unwrap();
    assert!(deleted);
    assert_eq!(ids(&db, &collection), ["2"]);
    assert_sound(&db, &collection);
}

#[test]
fn an_index_is_built_over_documents_that_are_there() {
    let db = open();
    let collection = create(&db, &doc! {});
    let docs: Vec<DocBuf> =
        (0..500).map(|n| doc! { "_id": n, "a": n % 7, "t": [n, { "x": n }] }).collect();
    insert(&db, &collection, &docs, true);
    assert_eq!(
        index(&db, &collection, &doc! { "key": { "t.x": 1 }, "name": "tx" }).unwrap(),
        (1, 2)
    );
    assert_eq!(
        index(&db, &collection, &doc! { "key": { "t.x": 1 }, "name": "tx" }).unwrap(),
        (2, 2)
    );
    assert_sound(&db, &collection);
    let error = index(&db, &collection, &doc! { "key": { "a": 1 }, "name": "a", "unique": true })
        .unwrap_err();
    assert_eq!(error.code(), marula_error::codes::DuplicateKey);
    assert_sound(&db, &collection);
    assert_eq!(db.drop_indexes(&collection, &DropSelector::All).unwrap(), 2);
    assert_sound(&db, &collection);
}

#[test]
fn hashed_and_wildcard_indexes_follow_the_documents() {
    let db = open();
    let collection = create(&db, &doc! {});
    index(&db, &collection, &doc! { "key": { "a": "hashed", "b": 1 }, "name": "h" }).unwrap();
    index(&db, &collection, &doc! { "key": { "$**": 1 }, "name": "w" }).unwrap();
    let first = doc! { "_id": 1, "a": "x", "c": { "d": [1, 2] } };
    insert(&db, &collection, &[first, doc! { "_id": 2 }], true);
    assert_sound(&db, &collection);
    replace(&db, &collection, 1, &doc! { "_id": 1, "a": 1.5, "c": { "d": 3 } }).unwrap();
    assert_sound(&db, &collection);
    index(&db, &collection, &doc! { "key": { "c.$**": 1 }, "name": "below" }).unwrap();
    let error = replace(&db, &collection, 2, &doc! { "_id": 2, "b": [1] }).unwrap_err();
    assert_eq!(error.code().number(), 16_766);
    let target = record(&db, &collection, 1);
    WriteOp::new(Unit::new(&db), 0).delete(&collection, &target, &mut |_| Ok(true), None).unwrap();
    assert_sound(&db, &collection);
}

#[test]
fn a_text_index_follows_the_documents() {
    let db = open();
    let collection = create(&db, &doc! {});
    let spec = doc! { "key": { "p": 1, "a": "text", "b.c": "text" }, "name": "t" };
    index(&db, &collection, &spec).unwrap();
    let first = doc! { "_id": 1, "p": 5, "a": ["running coffee", "tea"], "b": { "c": "x" } };
    insert(&db, &collection, &[first, doc! { "_id": 2 }], true);
    assert_sound(&db, &collection);
    let long = "word".repeat(100);
    replace(&db, &collection, 1, &doc! { "_id": 1, "a": long.as_str() }).unwrap();
    assert_sound(&db, &collection);
    let error = replace(&db, &collection, 2, &doc! { "_id": 2, "p": [1] }).unwrap_err();
    assert_eq!(error.code().number(), 201);
    let error =
        replace(&db, &collection, 2, &doc! { "_id": 2, "language": "klingon" }).unwrap_err();
    assert_eq!(error.code().number(), 17_262);
    let target = record(&db, &collection, 1);
    WriteOp::new(Unit::new(&db), 0).delete(&collection, &target, &mut |_| Ok(true), None).unwrap();
    assert_sound(&db, &collection);
    let second = doc! { "key": { "z": "text" }, "name": "z" };
    assert_eq!(index(&db, &collection, &second).unwrap_err().code().number(), 67);
}

#[test]
fn a_capped_collection_forgets_its_oldest_documents() {
    let db = open();
    let collection = create(&db, &doc! { "capped": true, "size": 4096, "max": 3 });
    for n in 0..10 {
        insert(&db, &collection, &[doc! { "_id": n }], true);
    }
    assert_eq!(ids(&db, &collection), ["7", "8", "9"]);
    let batch: Vec<DocBuf> = (10..20).map(|n| doc! { "_id": n }).collect();
    assert_eq!(insert(&db, &collection, &batch, true).inserted, 10);
    assert_eq!(ids(&db, &collection), ["17", "18", "19"]);
    assert_sound(&db, &collection);
}

#[test]
fn a_document_that_a_capped_collection_removes_is_not_written_back() {
    let db = Arc::new(open());
    let collection = create(&db, &doc! { "capped": true, "size": 4096, "max": 2 });
    index(&db, &collection, &doc! { "key": { "a": 1 }, "name": "a" }).unwrap();
    insert(&db, &collection, &[doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 2 }], true);
    let (shared_db, shared) = (db.clone(), collection.clone());
    let mut other = None;
    let mut change = |_: Doc<'_>, out: &mut Vec<u8>| {
        let (db, collection) = (shared_db.clone(), shared.clone());
        let inserting =
            std::thread::spawn(move || insert(&db, &collection, &[doc! { "_id": 3 }], true));
        // Long enough for an insert that nothing holds up.
        std::thread::sleep(Duration::from_millis(50));
        other = Some(inserting);
        out.extend_from_slice(&doc! { "_id": 1, "a": 7 });
        Ok(Change::Replace(Touched::All))
    };
    let oldest = record(&db, &collection, 1);
    let mut op = WriteOp::new(Unit::new(&db), 0);
    op.update(&collection, &oldest, &mut change, None).unwrap();
    assert_eq!(other.expect("an insert was started").join().unwrap().inserted, 1);
    assert_eq!(ids(&db, &collection), ["2", "3"]);
    assert_sound(&db, &collection);
}

#[test]
fn a_write_sees_the_transaction_that_was_committed_while_it_was_computed() {
    let db = Arc::new(open());
    let collection = create(&db, &doc! {});
    insert(&db, &collection, &[doc! { "_id": 1, "n": 0 }, doc! { "_id": 2, "n": 0 }], true);
    let increment = |old: Doc<'_>, out: &mut Vec<u8>| {
        let Some(Value::Int32(n)) = old.get("n") else { panic!("n is a number") };
        let id = old.get("_id").expect("documents have ids");
        out.extend_from_slice(&doc! { "_id": id, "n": n + 1, "s": "longer" });
        Ok(Change::Replace(Touched::All))
    };
    let begin = |id: i32| {
        let transaction = Transaction::begin(&db, LIMITS).unwrap();
        let mut op = WriteOp::new(Unit::new(&db).within(&transaction), 0);
        op.update(&collection, &record(&db, &collection, id), &mut { increment }, None).unwrap();
        transaction
    };

    let transaction = begin(1);
    let mut calls = 0;
    let mut change = |old: Doc<'_>, out: &mut Vec<u8>| {
        calls += 1;
        if calls == 1 {
            transaction.commit(None).unwrap();
        }
        increment(old, out)
    };
    let mut op = WriteOp::new(Unit::new(&db), 0);
    op.update(&collection, &record(&db, &collection, 1), &mut change, None).unwrap();
    assert_eq!(calls, 2);
    let mut found = DocBuf::default();
    collection
        .get(db.store(), record(&db, &collection, 1).as_bytes(), &mut Vec::new(), &mut |doc| {
            found = doc.to_buf();
        })
        .unwrap();
    assert_eq!(found, doc! { "_id": 1, "n": 2, "s": "longer" });

    let transaction = begin(2);
    let mut calls = 0;
    let mut is_wanted = |_: Doc<'_>| {
        calls += 1;
        if calls == 1 {
            transaction.commit(None).unwrap();
        }
        Ok(true)
    };
    let mut op = WriteOp::new(Unit::new(&db), 0);
    op.delete(&collection, &record(&db, &collection, 2), &mut is_wanted, None).unwrap();
    assert_eq!((calls, ids(&db, &collection)), (2, vec!["1".to_owned()]));
    assert_sound(&db, &collection);
}

/// On a thread that may not wait, a write is postponed whatever it would wait for, and has done
/// nothing; nor has one that is abandoned until the key is free that a transaction holds.
#[test]
fn what_would_wait_is_postponed() {
    let db = Arc::new(open());
    let collection = create(&db, &doc! {});
    insert(&db, &collection, &[doc! { "_id": 1, "n": 0 }], true);
    let document = doc! { "_id": 1, "n": 1 };
    let update = |op: &mut WriteOp<'_>| {
        let mut change = |_: Doc<'_>, out: &mut Vec<u8>| {
            out.extend_from_slice(&document);
            Ok(Change::Replace(Touched::All))
        };
        op.update(&collection, &record(&db, &collection, 1), &mut change, None)
    };
    let is_postponed = |op: &mut WriteOp<'_>| match update(op) {
        Err(error) => error.is_postponed(),
        Ok(_) => false,
    };

    let transaction = Transaction::begin(&db, LIMITS).unwrap();
    update(&mut WriteOp::new(Unit::new(&db).within(&transaction), 0)).unwrap();
    let parking = Parking::default();
    let mut inline = WriteOp::new(Unit::new(&db).parked(&parking), 0);
    inline.may_wait = false;
    parking.begin(false);
    assert!(is_postponed(&mut inline));
    assert!(parking.end().is_none(), "it runs again at once, where it may wait");
    parking.begin(true);
    assert!(is_postponed(&mut WriteOp::new(Unit::new(&db).parked(&parking), 0)));
    assert!(parking.end().is_some(), "it runs again when the key is free");
    parking.begin(true);
    parking.forbid();
    assert!(!parking.is_blocked(), "what has written something waits");
    transaction.abort();

    let held = collection.hold_off().unwrap();
    assert!(is_postponed(&mut inline));
    drop(held);
    let large = doc! { "_id": 2, "s": "x".repeat(100_000).as_str() };
    let mut report = InsertReport::default();
    let mut documents = [large.as_doc()].into_iter();
    let refused = inline.insert(&collection, &mut documents, true, &mut report);
    assert!(refused.is_err_and(|error| error.is_postponed()));
    assert_eq!((report.inserted, report.errors.len()), (0, 0));
    assert_eq!(ids(&db, &collection), ["1"]);
    assert_eq!(update(&mut inline).unwrap(), Written::Changed);
    assert_sound(&db, &collection);
}

/// A session is killed while its statement computes a change.
#[test]
fn a_statement_whose_transaction_ends_fails_and_changes_nothing() {
    let db = Arc::new(open());
    let collection = create(&db, &doc! {});
    insert(&db, &collection, &[doc! { "_id": 1, "n": 0 }], true);
    let transaction = Transaction::begin(&db, LIMITS).unwrap();
    let unit = Unit::new(&db).within(&transaction);
    unit.touch(&collection).unwrap();
    let mut change = |_: Doc<'_>, out: &mut Vec<u8>| {
        transaction.abort();
        out.extend_from_slice(&doc! { "_id": 1, "n": 1 });
        Ok(Change::Replace(Touched::All))
    };
    let mut op = WriteOp::new(unit, 0);
    let record = record(&db, &collection, 1);
    let refused = op.update(&collection, &record, &mut change, None).unwrap_err();
    assert_eq!(refused.code(), codes::NoSuchTransaction);
    let refused = op.update(&collection, &record, &mut change, None).unwrap_err();
    assert_eq!(refused.code(), codes::NoSuchTransaction, "it locks nothing any more");
    drop(collection.hold_off().expect("nothing holds the collection"));
    assert_sound(&db, &collection);
}

#[test]
fn a_collection_that_was_dropped_or_renamed_after_the_look_up_takes_no_write() {
    let name = |name: &str| Namespace::new("db", name).unwrap();
    for is_drop in [true, false] {
        let db = open();
        let created = create(&db, &doc! {});
        insert(&db, &created, &[doc! { "_id": 1 }], true);
        let mut op = WriteOp::new(Unit::new(&db), 0);
        let collection = op.look_up(&name("c")).unwrap();
        match is_drop {
            true => db.drop_collection(&name("c")).map(drop).unwrap(),
            false => db.rename_collection(&name("c"), &name("d"), false).unwrap(),
        }
        let record = RecordKey::of_record_id(1);
        let mut same = |_: Doc<'_>, _: &mut Vec<u8>| Ok(Change::Same);
        let refused = [
            op.upsert(&collection, doc! { "_id": 2 }.as_doc(), None).unwrap_err(),
            op.update(&collection, &record, &mut same, None).unwrap_err(),
            op.delete(&collection, &record, &mut |_| Ok(true), None).map(drop).unwrap_err(),
        ];
        assert!(refused.iter().all(|error| error.code() == codes::QueryPlanKilled), "{refused:?}");
        assert_eq!(op.commits(), 0);
        let again = op.look_up_or_create(&name("c")).unwrap();
        op.upsert(&again, doc! { "_id": 2 }.as_doc(), None).unwrap();
        assert_eq!(ids(&db, &again), ["2"]);
        if !is_drop {
            assert_eq!(ids(&db, &collection), ["1"]);
        }
    }
}

#[test]
fn an_insert_whose_collection_is_renamed_reports_what_it_has_done() {
    const COUNT: i32 = 2_500;
    let name = |name: &str| Namespace::new("db", name).unwrap();
    let db = open();
    create(&db, &doc! {});
    let docs: Vec<DocBuf> = (0..COUNT).map(|n| doc! { "_id": n / 2 * 2 }).collect();
    let mut op = WriteOp::new(Unit::new(&db), 0);
    let collection = op.look_up(&name("c")).unwrap();
    // A new transaction begins before the next document.
    let mut asked = docs.iter().enumerate().map(|(position, doc)| {
        if position == 1_000 {
            db.rename_collection(&name("c"), &name("d"), false).unwrap();
        }
        doc.as_doc()
    });
    let mut report = InsertReport::default();
    let error = op.insert(&collection, &mut asked, false, &mut report).unwrap_err();
    assert_eq!((error.code(), report.attempted), (codes::QueryPlanKilled, 1_000));
    assert_eq!((report.inserted, report.errors.len()), (500, 500));
    let again = op.look_up_or_create(&name("c")).unwrap();
    let mut rest = docs[report.attempted..].iter().map(|doc| doc.as_doc());
    op.insert(&again, &mut rest, false, &mut report).unwrap();
    assert_eq!((report.inserted, report.errors.len()), (1_250, 1_250));
    assert!(report.errors.iter().all(|(position, _)| position % 2 == 1));
    assert_eq!((ids(&db, &collection).len(), ids(&db, &again).len()), (500, 750));
}

#[test]
fn a_clustered_collection_is_in_the_order_of_its_ids() {
    let db = open();
    let collection =
        create(&db, &doc! { "clusteredIndex": { "key": { "_id": 1 }, "unique": true } });
    index(&db, &collection, &doc! { "key": { "a": 1 }, "name": "a" }).unwrap();
    let docs = [
        doc! { "_id": 3, "a": 1 },
        doc! { "_id": 1, "a": 1 },
        doc! { "_id": 2 },
        doc! { "_id": 1 },
    ];
    let report = insert(&db, &collection, &docs, false);
    assert_eq!((report.inserted, report.errors.len()), (3, 1));
    assert_eq!(ids(&db, &collection), ["1", "2", "3"]);
    assert_sound(&db, &collection);
}

#[test]
fn what_is_committed_is_there_when_the_store_is_opened_again() {
    let store = Arc::new(Memory::new());
    {
        let db = Db::open(store.clone()).unwrap();
        let collection = create(&db, &doc! {});
        index(&db, &collection, &doc! { "key": { "a": 1 }, "name": "a" }).unwrap();
        insert(&db, &collection, &[doc! { "_id": 1, "a": [1, 2] }, doc! { "_id": 2 }], true);
    }
    let db = Db::open(store).unwrap();
    let collection = db.collection(&Namespace::new("db", "c").unwrap()).unwrap();
    assert_eq!(collection.count(), 2);
    assert!(collection.state().index("a").unwrap().is_multikey());
    insert(&db, &collection, &[doc! { "_id": 3 }], true);
    assert_eq!(ids(&db, &collection), ["1", "2", "3"]);
    assert_sound(&db, &collection);
}

#[test]
fn random_writes_by_several_threads_leave_a_sound_collection() {
    let db = Arc::new(open());
    let collection = create(&db, &doc! {});
    index(
        &db,
        &collection,
        &doc! { "key": { "a": 1 }, "name": "a", "unique": true, "sparse": true },
    )
    .unwrap();
    index(&db, &collection, &doc! { "key": { "t": 1, "a": -1 }, "name": "t" }).unwrap();
    let seed: u64 = rand::random();
    println!("seed {seed}");
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (db, collection) = (&db, &collection);
            scope.spawn(move || write_at_random(db, collection, seed.wrapping_add(thread)));
        }
    });
    assert_sound(&db, &collection);
}

/// Every second write is one of a client's transaction.
fn write_at_random(db: &Arc<Db>, collection: &Collection, seed: u64) {
    use rand::{RngExt, SeedableRng};
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    for _ in 0..250 {
        write_one(Unit::new(db), collection, &mut random).unwrap();
        let transaction = Transaction::begin(db, LIMITS).unwrap();
        let mut outcome = Ok(());
        for _ in 0..random.random_range(1..4) {
            outcome = outcome.and_then(|()| {
                write_one(Unit::new(db).within(&transaction), collection, &mut random)
            });
        }
        match outcome {
            Ok(()) => transaction.commit(None).unwrap(),
            Err(error) => assert_eq!(error.code(), codes::WriteConflict),
        }
    }
}

/// Inserts, replaces or deletes a document. A duplicate key is a valid outcome.
fn write_one(
    unit: Unit<'_>,
    collection: &Collection,
    random: &mut impl rand::RngExt,
) -> marula_error::Result<()> {
    let id = random.random_range(0..50);
    let a = random.random_range(0..50);
    let given = doc! { "_id": id, "a": a, "t": [a, id, "x"] };
    let mut op = WriteOp::new(unit, 0);
    if random.random_bool(0.4) {
        let mut report = InsertReport::default();
        return op.insert(collection, &mut [given.as_doc()].into_iter(), true, &mut report);
    }
    let found = collection.find_id(unit.view(), Value::Int32(id), &mut Vec::new())?;
    let Some(record) = found else { return Ok(()) };
    if random.random_bool(0.3) {
        return op.delete(collection, &record, &mut |_| Ok(true), None).map(drop);
    }
    let mut change = |_: Doc<'_>, out: &mut Vec<u8>| {
        out.extend_from_slice(&given);
        Ok(Change::Replace(Touched::All))
    };
    match op.update(collection, &record, &mut change, None) {
        Err(error) if error.code() == codes::DuplicateKey => Ok(()),
        other => other.map(drop),
    }
}
