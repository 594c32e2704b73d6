//! Builds with concurrent writers, over the in-memory store. Writers run in the progress callback,
//! so that each test controls when a write happens; one test runs writers in threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use marula_bson::{Doc, DocBuf, doc};
use marula_error::codes;
use marula_query::update::Touched;
use marula_storage::memory::Memory;

use super::{BuildOptions, Phase, Progress};
use crate::catalog::indexes::DropSelector;
use crate::catalog::options::CollectionOptions;
use crate::collection::Collection;
use crate::db::Db;
use crate::index::IndexSpec;
use crate::namespace::Namespace;
use crate::unit::Unit;
use crate::write::{Change, InsertReport, WriteOp, Written};

const CLUSTERED: &str = "clustered";

/// A collection with the documents `{ _id: n, a: n, t: [n, n + 1] }` for every `n` below `count`.
fn fill(kind: &str, count: i32) -> (Arc<Db>, Arc<Collection>) {
    let db = Arc::new(Db::open(Arc::new(Memory::new())).unwrap());
    let options = match kind {
        CLUSTERED => doc! { "clusteredIndex": { "key": { "_id": 1 }, "unique": true } },
        _ => doc! {},
    };
    let options = CollectionOptions::parse(options.as_doc()).unwrap();
    let collection = db.create_collection(&Namespace::new("db", "c").unwrap(), options).unwrap();
    for n in 0..count {
        insert(&db, &collection, &doc! { "_id": n, "a": n, "t": [n, n + 1] });
    }
    (db, collection)
}

fn insert(db: &Db, collection: &Collection, doc: &DocBuf) {
    let mut report = InsertReport::default();
    let mut docs = std::iter::once(doc.as_doc());
    WriteOp::new(Unit::new(db), 0).insert(collection, &mut docs, true, &mut report).unwrap();
    assert_eq!(report.inserted, 1, "{:?}", report.errors);
}

fn find(db: &Db, collection: &Collection, id: i32) -> Option<crate::RecordKey> {
    collection.find_id(db.store(), id.into(), &mut Vec::new()).unwrap()
}

fn replace(db: &Db, collection: &Collection, id: i32, with: &DocBuf) -> Written {
    let Some(record) = find(db, collection, id) else { return Written::Skipped };
    let mut change = |_: Doc<'_>, out: &mut Vec<u8>| {
        out.extend_from_slice(with);
        Ok(Change::Replace(Touched::All))
    };
    WriteOp::new(Unit::new(db), 0).update(collection, &record, &mut change, None).unwrap()
}

fn delete(db: &Db, collection: &Collection, id: i32) {
    if let Some(record) = find(db, collection, id) {
        WriteOp::new(Unit::new(db), 0)
            .delete(collection, &record, &mut |_| Ok(true), None)
            .unwrap();
    }
}

fn specs(documents: &[DocBuf]) -> Vec<IndexSpec> {
    documents.iter().map(|spec| IndexSpec::parse(spec.as_doc(), None).unwrap()).collect()
}

fn three() -> Vec<IndexSpec> {
    specs(&[
        doc! { "key": { "a": 1 }, "name": "a" },
        doc! { "key": { "t": -1, "_id": 1 }, "name": "t" },
        doc! { "key": { "a": 1, "t": 1 }, "name": "partial", "partialFilterExpression": { "a": { "$gt": 100 } } },
    ])
}

fn unique() -> Vec<IndexSpec> {
    specs(&[
        doc! { "key": { "t": 1 }, "name": "t" },
        doc! { "key": { "a": 1 }, "name": "a", "unique": true },
    ])
}

/// Builds, and calls `write` at every progress report.
fn build(
    db: &Db,
    collection: &Collection,
    specs: &[IndexSpec],
    memory_bytes_max: usize,
    write: &mut dyn FnMut(Progress) -> marula_error::Result<()>,
) -> marula_error::Result<(usize, usize)> {
    db.build_indexes(
        collection,
        specs,
        BuildOptions { memory_bytes_max, is_collection_new: false, watch: write },
    )
}

#[track_caller]
fn assert_sound(db: &Db, collection: &Collection) {
    let report = crate::validate::check(db, collection, &mut || Ok(())).unwrap();
    assert!(report.is_valid(), "{:?}", report.errors);
    assert!(collection.state().building.is_empty());
}

/// The writes at the `n`th call.
fn disturb(db: &Db, collection: &Collection, n: i32) {
    // Documents that were scanned, documents that will be scanned, and new ones.
    for id in [n * 37 % 2000, n * 91 % 2000, 2000 - n * 13 % 2000] {
        let with = doc! { "_id": id, "a": id + 10_000 * n, "t": [n, "x", id] };
        replace(db, collection, id, &with);
    }
    delete(db, collection, n * 53 % 2000);
    insert(db, collection, &doc! { "_id": 10_000 + n, "a": -n, "t": n });
    replace(db, collection, 10_000 + n, &doc! { "_id": 10_000 + n, "a": -n - 5000, "t": [[n]] });
    insert(db, collection, &doc! { "_id": 20_000 + n, "a": 20_000 + n });
    delete(db, collection, 20_000 + n);
}

#[test]
fn what_is_written_during_a_build_is_in_the_indexes() {
    for kind in ["", CLUSTERED] {
        // With little memory there are many runs in the store.
        for memory_bytes_max in [1 << 20, 10_000] {
            for wanted in [three(), unique()] {
                let (db, collection) = fill(kind, 2000);
                let ids = wanted.len();
                let (mut calls, mut phases) = (0, Vec::new());
                let mut write = |progress: Progress| {
                    calls += 1;
                    if phases.last() != Some(&progress.phase) {
                        phases.push(progress.phase);
                    }
                    if calls < 60 {
                        disturb(&db, &collection, calls);
                    }
                    Ok(())
                };
                let counts = build(&db, &collection, &wanted, memory_bytes_max, &mut write);
                let before = usize::from(kind != CLUSTERED);
                assert_eq!(counts.unwrap(), (before, before + ids));
                assert!(calls > 10, "{calls}");
                assert_eq!(phases[..2], [Phase::Scan, Phase::Load]);
                assert_sound(&db, &collection);
                // Also write afterwards.
                disturb(&db, &collection, 100);
                assert_sound(&db, &collection);
                assert_eq!(collection.state().indexes.len(), before + ids);
            }
        }
    }
}

#[test]
fn writers_in_threads_and_a_build_agree() {
    for wanted in [three(), unique()] {
        let (db, collection) = fill("", 3000);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 1..4 {
                let (db, collection, is_over) = (&db, &collection, &is_over);
                scope.spawn(move || {
                    let mut n = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        n += 1;
                        let id = writer * 100_000 + n % 500;
                        delete(db, collection, id);
                        insert(db, collection, &doc! { "_id": id, "a": id, "t": [n, n % 7] });
                        let mine = n % 1000 * 3 + writer - 1;
                        let a = mine + 1_000_000 + n % 2;
                        replace(db, collection, mine, &doc! { "_id": mine, "a": a + mine, "t": n });
                    }
                });
            }
            for _ in 0..3 {
                build(&db, &collection, &wanted, 1 << 16, &mut |_| Ok(())).unwrap();
                assert_sound(&db, &collection);
                db.drop_indexes(&collection, &DropSelector::All).unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_sound(&db, &collection);
    }
}

/// A duplicate that exists at the end fails the build, whenever it was created; one that is gone
/// does not.
#[test]
fn duplicates_are_looked_for_at_the_end() {
    for phase in [Phase::Scan, Phase::Load] {
        for stays in [true, false] {
            let (db, collection) = fill("", 1000);
            let mut is_done = false;
            let mut write = |progress: Progress| {
                if progress.phase == phase && !is_done {
                    is_done = true;
                    insert(&db, &collection, &doc! { "_id": -1, "a": 5 });
                    if !stays {
                        delete(&db, &collection, -1);
                    }
                }
                Ok(())
            };
            let outcome = build(&db, &collection, &unique(), 1 << 20, &mut write);
            assert!(is_done);
            if !stays {
                outcome.unwrap();
            } else {
                let error = outcome.unwrap_err();
                assert_eq!(error.code(), codes::DuplicateKey);
                assert!(error.message().starts_with("Index build failed: "), "{error}");
                let end = " ) :: caused by :: E11000 duplicate key error collection: db.c index: a dup key: { a: 5 }";
                assert!(error.message().ends_with(end), "{error}");
                assert_eq!(collection.state().indexes.len(), 1);
            }
            assert_sound(&db, &collection);
        }
    }
}

#[test]
fn a_document_takes_over_the_key_of_another_during_a_build() {
    let (db, collection) = fill("", 1000);
    let mut calls = 0;
    let mut write = |_: Progress| {
        calls += 1;
        // 3 and 4 swap their keys repeatedly, through a third key.
        let (x, y) = if calls % 2 == 1 { (4, 3) } else { (3, 4) };
        replace(&db, &collection, 3, &doc! { "_id": 3, "a": -1 });
        replace(&db, &collection, 4, &doc! { "_id": 4, "a": y });
        replace(&db, &collection, 3, &doc! { "_id": 3, "a": x });
        Ok(())
    };
    build(&db, &collection, &unique(), 1 << 20, &mut write).unwrap();
    assert_sound(&db, &collection);
}

#[test]
fn what_cannot_be_indexed_is_refused_during_a_build() {
    let (db, collection) = fill("", 600);
    let wanted = specs(&[doc! { "key": { "a": 1, "t": 1 }, "name": "at" }]);
    let mut refusals = 0;
    let mut write = |_: Progress| {
        let mut report = InsertReport::default();
        let parallel = doc! { "_id": -1, "a": [1, 2], "t": [1, 2] };
        let mut docs = std::iter::once(parallel.as_doc());
        WriteOp::new(Unit::new(&db), 0).insert(&collection, &mut docs, true, &mut report).unwrap();
        assert_eq!(report.errors[0].1.code(), codes::CannotIndexParallelArrays);
        refusals += 1;
        Ok(())
    };
    build(&db, &collection, &wanted, 1 << 20, &mut write).unwrap();
    assert!(refusals > 0);
    assert_sound(&db, &collection);
}

#[test]
fn a_build_that_ends_early_leaves_nothing() {
    type Stop = fn(&Db, &Collection) -> marula_error::Result<()>;
    let stops: [Stop; 4] = [
        |_, _| Err(marula_error::Error::new(codes::Interrupted, "operation was interrupted")),
        |db, collection| db.drop_indexes(collection, &DropSelector::All).map(|_| ()),
        |db, collection| {
            let names = vec!["a".into(), "t".into()];
            db.drop_indexes(collection, &DropSelector::Names(names)).map(|_| ())
        },
        |db, _| db.drop_database("db").map(|_| ()),
    ];
    for stop in stops {
        let (db, collection) = fill("", 2000);
        let mut calls = 0;
        let mut write = |_: Progress| {
            calls += 1;
            disturb(&db, &collection, calls);
            if calls == 5 { stop(&db, &collection) } else { Ok(()) }
        };
        let error = build(&db, &collection, &unique(), 1 << 20, &mut write).unwrap_err();
        assert!([codes::Interrupted, codes::IndexBuildAborted].contains(&error.code()), "{error}");
        assert!(collection.state().building.is_empty());
        if !collection.is_dropped() {
            assert_sound(&db, &collection);
            assert_eq!(collection.state().indexes.len(), 1);
            build(&db, &collection, &unique(), 1 << 20, &mut |_| Ok(())).unwrap();
            assert_sound(&db, &collection);
        }
    }
}

#[test]
fn other_changes_during_a_build_are_done_or_refused() {
    let (db, collection) = fill("", 1000);
    let mut is_done = false;
    let mut write = |_: Progress| {
        if std::mem::replace(&mut is_done, true) {
            return Ok(());
        }
        // A single index of a build cannot be dropped.
        let one = DropSelector::Names(vec!["a".into()]);
        assert_eq!(db.drop_indexes(&collection, &one).unwrap_err().code(), codes::IndexNotFound);
        let refused = codes::BackgroundOperationInProgressForNamespace;
        let to = Namespace::new("db", "d").unwrap();
        let renamed = db.rename_collection(&collection.namespace(), &to, false);
        assert_eq!(renamed.unwrap_err().code(), refused);
        let state = collection.state();
        let changed = db.change_collection(&collection, &state, state.options.clone(), &|_| None);
        assert_eq!(changed.unwrap_err().code(), refused);
        // Other collections, and other indexes of this one, do not wait.
        db.create_collection(&to, CollectionOptions::default()).unwrap();
        let other = specs(&[doc! { "key": { "b": 1 }, "name": "b" }]);
        let counts = build(&db, &collection, &other, 1 << 20, &mut |_| Ok(())).unwrap();
        assert_eq!(counts, (3, 4));
        let same_name = specs(&[doc! { "key": { "c": 1 }, "name": "a" }]);
        let error = build(&db, &collection, &same_name, 1 << 20, &mut |_| Ok(())).unwrap_err();
        assert_eq!(error.code(), codes::IndexKeySpecsConflict);
        Ok(())
    };
    build(&db, &collection, &unique(), 1 << 20, &mut write).unwrap();
    assert_sound(&db, &collection);
    assert_eq!(collection.state().indexes.len(), 4);
}

#[test]
fn a_build_of_the_same_indexes_is_waited_for() {
    let (db, collection) = fill("", 2000);
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| build(&db, &collection, &unique(), 1 << 20, &mut |_| Ok(()))))
            .collect();
        let mut built = 0;
        for other in others {
            let (before, after) = other.join().unwrap().unwrap();
            assert_eq!(after, 3);
            built += usize::from(before < after);
        }
        assert_eq!(built, 1);
    });
    assert_sound(&db, &collection);
}

/// A name listed twice is not found the second time, and a key pattern of two indexes is ambiguous.
#[test]
fn what_dropping_means_is_told_apart() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let ns = Namespace::parse("d.c").unwrap();
    let collection = db.collection_or_create(&ns).unwrap();
    let specs = [
        doc! { "key": { "a": 1 }, "name": "one" },
        doc! { "key": { "a": 1 }, "name": "two", "partialFilterExpression": { "a": 1 } },
    ];
    let specs: Vec<IndexSpec> =
        specs.iter().map(|spec| IndexSpec::parse(spec.as_doc(), None).unwrap()).collect();
    db.create_indexes(&collection, specs, &mut || Ok(())).unwrap();
    let twice = DropSelector::Names(vec!["one".to_owned(), "one".to_owned()]);
    let error = db.drop_indexes(&collection, &twice).err().unwrap();
    assert_eq!(error.message(), "index not found with name [one]");
    let key = doc! { "a": 1 };
    let error = db.drop_indexes(&collection, &DropSelector::Key(key.as_doc())).err().unwrap();
    assert_eq!(
        error.message(),
        "2 indexes found for key: { a: 1 }, identify by name instead. Conflicting indexes: { v: 2, key: { a: 1 }, name: \"one\" }, { v: 2, key: { a: 1 }, name: \"two\", partialFilterExpression: { a: 1 } }"
    );
    assert_eq!(collection.state().indexes.len(), 3);
}
