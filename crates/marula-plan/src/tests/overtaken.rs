//! Scans that writes overtake: index entries are those of the start, documents the newest.

use marula_db::RecordKey;
use marula_db::write::Change;
use marula_query::update::Touched;
use marula_storage::memory::Memory;

use super::*;

const COUNT: i32 = 20;

/// Scans the index on `b.c` from MinKey to MaxKey, and replaces document 5 by `new` when the first
/// one is found. Returns the ids of what is found.
fn scan(new: &DocBuf) -> Vec<i32> {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let docs: Vec<DocBuf> =
        (0..COUNT).map(|id| doc! { "_id": id, "b": (Value::Array(Doc::EMPTY)) }).collect();
    let collection = collection(&db, "overtaken", &docs, &[doc! { "b.c": 1 }]);
    let context = Context::default();
    // A document with an empty array has no value there, but an entry within these bounds.
    let filter = doc! { "b.c": { "$gte": Value::MinKey }, "gone": { "$ne": true } };
    let filter = Filter::parse(filter.as_doc(), &context).unwrap();
    let query = Query::new(filter, context);
    let plan = planner::plans(&collection.state(), &query).unwrap().swap_remove(0);
    assert!(plan.summary().starts_with("IXSCAN"), "{}", plan.summary());
    let mut execution = Execution::new(collection.clone(), plan, query);
    let mut found = Vec::new();
    let mut take = |given: crate::Found<'_>| {
        if found.is_empty() {
            let record = RecordKey::new(&6_i64.to_be_bytes());
            let mut change = |_: Doc<'_>, out: &mut Vec<u8>| {
                out.extend_from_slice(new);
                Ok(Change::Replace(Touched::All))
            };
            WriteOp::new(Unit::new(&db), 0)
                .update(&collection, &record, &mut change, None)
                .unwrap();
        }
        let Some(Value::Int32(id)) = given.doc.get("_id") else { panic!("no id") };
        found.push(id);
        Ok(Emit::Taken)
    };
    assert_eq!(execution.run(Unit::new(&db), &mut || Ok(()), &mut take).unwrap(), End::Exhausted);
    found
}

#[test]
fn a_write_changes_nothing_for_other_documents() {
    let all: Vec<i32> = (0..COUNT).collect();
    let others: Vec<i32> = (0..COUNT).filter(|&id| id != 5).collect();
    assert_eq!(scan(&doc! { "_id": 5, "b": 1, "gone": true }), others);
    assert_eq!(scan(&doc! { "_id": 5, "b": (Value::Array(Doc::EMPTY)), "gone": true }), others);
    assert_eq!(scan(&doc! { "_id": 5, "b": (Value::Array(Doc::EMPTY)), "new": 1 }), all);
    assert_eq!(scan(&doc! { "_id": 5, "b": { "c": 7 } }), all, "it matches at another place");
}
