//! Winners of a trial continue where it stopped, and cached plans are made from their own indexes.

use marula_db::{Change, RecordKey};

use super::*;
use crate::shape::shape_of;

const COUNT: i32 = 1_000;

/// Returns a collection with two indexes on its documents; each document has `bytes` of text.
fn documents(db: &Db, bytes: usize) -> Arc<Collection> {
    let text = "x".repeat(bytes);
    let docs: Vec<DocBuf> = (0..COUNT)
        .map(|id| doc! { "_id": id, "a": (COUNT - id), "b": (id % 500), "text": (text.as_str()) })
        .collect();
    collection(db, "winners", &docs, &[doc! { "a": 1 }, doc! { "b": 1 }])
}

/// Returns a query for 400 documents, which the index on `b` finds with fewer entries.
fn asked() -> Query {
    let context = Context::default();
    let filter = doc! { "a": { "$gte": 0 }, "b": { "$lt": 200 } };
    Query::new(Filter::parse(filter.as_doc(), &context).unwrap(), context)
}

fn ids(docs: &[DocBuf]) -> Vec<i32> {
    let id = |doc: &DocBuf| doc.as_doc().get("_id").and_then(|id| id.as_exact_i64()).unwrap();
    docs.iter().map(|doc| i32::try_from(id(doc)).unwrap()).collect()
}

fn wanted() -> Vec<i32> {
    (0..200).flat_map(|b| [b, b + 500]).collect()
}

#[test]
fn a_winner_gives_what_it_has_found_and_does_no_work_twice() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let collection = documents(&db, 10);
    let execution = chosen(&db, &collection, asked());
    assert_eq!(execution.plan().summary(), "IXSCAN { b: 1 }");
    assert!(execution.examined().docs > 100, "the trial's work is the winner's");
    let (plan, run) = (execution.plan().clone(), execution.stages().stats);
    assert_eq!(run.advanced, 101, "a first batch");
    let found = carry_on(&db, execution, &mut Random(7));
    assert_eq!(ids(&found), wanted());

    let examined = |mut execution: Execution| {
        execution.run(Unit::new(&db), &mut || Ok(()), &mut |_| Ok(Emit::Taken)).unwrap();
        let examined = execution.examined();
        (examined.keys, examined.docs)
    };
    collection.plans().clear(None);
    let gone_on = examined(chosen(&db, &collection, asked()));
    assert_eq!(gone_on, examined(Execution::new(collection.clone(), plan, asked())));
}

#[test]
fn a_winner_that_is_at_its_end_knows_it() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let collection = documents(&db, 10);
    let context = Context::default();
    let filter = doc! { "a": { "$gte": 0 }, "b": { "$lt": 2 } };
    let filter = Filter::parse(filter.as_doc(), &context).unwrap();
    let mut execution = chosen(&db, &collection, Query::new(filter, context));
    let mut given = 0;
    let end = execution
        .run(Unit::new(&db), &mut || Ok(()), &mut |_| {
            given += 1;
            Ok(if given == 4 { Emit::Enough } else { Emit::Taken })
        })
        .unwrap();
    assert_eq!((end, given), (End::Exhausted, 4));
}

/// Four hundred documents of 200 KB are not kept in memory.
#[test]
fn a_winner_that_has_found_too_much_begins_again() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let collection = documents(&db, 200 << 10);
    let execution = chosen(&db, &collection, asked());
    assert_eq!(execution.plan().summary(), "IXSCAN { b: 1 }");
    assert_eq!(execution.examined().docs, 0, "nothing is done yet");
    assert_eq!(ids(&carry_on(&db, execution, &mut Random(11))), wanted());
}

/// A document that an update moved ahead in the scanned index is not returned again, whether it was
/// found in the trial or later.
#[test]
fn a_winner_gives_once_what_is_moved_ahead_of_it() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let collection = documents(&db, 10);
    let mut execution = chosen(&db, &collection, asked());
    execution.give_once();
    let mut given = Vec::new();
    loop {
        let mut batch = Vec::new();
        let end = execution
            .run(Unit::new(&db), &mut || Ok(()), &mut |found| {
                batch.push(RecordKey::new(found.record));
                Ok(if batch.len() < 30 { Emit::Taken } else { Emit::Enough })
            })
            .unwrap();
        for record in &batch {
            let mut ahead = |doc: Doc<'_>, out: &mut Vec<u8>| {
                let moved = doc! { "_id": (doc.get("_id").unwrap()), "a": 1, "b": 199.5 };
                out.extend_from_slice(moved.as_doc().as_bytes());
                let touched = marula_query::update::Touched::All;
                Ok(Change::Replace(touched))
            };
            WriteOp::new(Unit::new(&db), 0).update(&collection, record, &mut ahead, None).unwrap();
        }
        given.extend(batch);
        if end == End::Exhausted {
            break;
        }
    }
    let all = given.len();
    given.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    given.dedup();
    assert_eq!((all, given.len()), (400, 400));
}

#[test]
fn a_plan_of_the_cache_is_made_from_its_own_indexes() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let collection = documents(&db, 10);
    let state = collection.state();
    for _ in 0..2 {
        carry_on(&db, chosen(&db, &collection, asked()), &mut Random(1));
    }
    let known = collection.plans().find(shape_of(&asked(), &state), &state).unwrap();
    let plans = planner::plans_by(&state, &asked(), &known.indexes).unwrap();
    let all = planner::plans(&state, &asked()).unwrap();
    assert_eq!((plans.len(), all.len()), (1, 2));
    assert_eq!(plans[0].summary(), "IXSCAN { b: 1 }");
    let execution = chosen(&db, &collection, asked());
    assert_eq!(execution.examined().docs, 0, "nothing was tried");
    assert_eq!(ids(&carry_on(&db, execution, &mut Random(3))), wanted());
}
