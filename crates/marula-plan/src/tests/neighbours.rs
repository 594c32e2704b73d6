//! Scans of an index with a cursor over the records that moves along.

use marula_db::RecordKey;
use marula_storage::memory::Memory;

use super::*;

/// More records than the range of such a cursor.
const COUNT: i32 = 1_300;

/// Returns a collection whose records are in the order of `a`, except for some that were deleted or
/// moved.
fn shelf(db: &Db, random: &mut Random) -> (Arc<Collection>, Vec<DocBuf>) {
    let mut places: Vec<i32> = (0..COUNT).collect();
    for _ in 0..random.below(12) {
        let (from, to) = (random.below(places.len()), random.below(places.len()));
        places.swap(from, to);
    }
    let number = |place: i32| doc! { "_id": place, "a": place, "b": (place % 3) };
    let docs: Vec<DocBuf> = places.iter().map(|&place| number(place)).collect();
    let indexes = [doc! { "a": 1 }, doc! { "b": 1, "a": 1 }];
    let collection = collection(db, "beside", &docs, &indexes);
    let mut kept = Vec::new();
    let gone = random.below(40);
    for (record, doc) in (1_i64..).zip(docs) {
        if random.below(100) < gone {
            let record = RecordKey::new(&record.to_be_bytes());
            WriteOp::new(Unit::new(db), 0)
                .delete(&collection, &record, &mut |_| Ok(true), None)
                .unwrap();
        } else {
            kept.push(doc);
        }
    }
    (collection, kept)
}

fn place(doc: Doc<'_>) -> i32 {
    let Some(Value::Int32(place)) = doc.get("a") else { panic!("no place") };
    place
}

#[test]
fn documents_come_in_the_index_order() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let db = Db::open(Arc::new(Memory::new())).unwrap();
        let (collection, docs) = shelf(&db, &mut random);
        for round in 0..6 {
            let from = random.below(COUNT as usize) as i32;
            let to = from + random.below(COUNT as usize) as i32;
            let context = Context::default();
            // The second scan moves from value to value of `b`, and skips the entries outside its
            // bounds.
            let filter = match round % 2 {
                0 => doc! { "a": { "$gte": from, "$lt": to } },
                _ => doc! { "b": { "$gte": 0 }, "a": { "$gte": from, "$lt": to } },
            };
            let direction = *random.of(&[1, -1]);
            let make = || {
                let filter = Filter::parse(filter.as_doc(), &context).unwrap();
                let mut query = Query::new(filter, context.clone());
                let pattern = doc! { "a": direction };
                query.sort = Some(SortPattern::parse(pattern.as_doc(), &context).unwrap());
                query
            };
            let mut wanted: Vec<DocBuf> = docs
                .iter()
                .filter(|doc| (from..to).contains(&place(doc.as_doc())))
                .cloned()
                .collect();
            wanted.sort_by_key(|doc| place(doc.as_doc()) * direction);
            for plan in planner::plans(&collection.state(), &make()).unwrap() {
                let what = format!("seed {seed}, round {round}: {}", plan.summary());
                let found = carry_out(&db, &collection, plan, make(), &mut random);
                assert!(found == wanted, "{what}: {} of {}", found.len(), wanted.len());
            }
            check_counts(&db, &collection, &make, &format!("seed {seed}, round {round}"));
        }
    }
}

#[test]
fn what_was_written_meanwhile_is_looked_at_again() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let docs: Vec<DocBuf> = (0..COUNT).map(|place| doc! { "_id": place, "a": place }).collect();
    let collection = collection(&db, "beside", &docs, &[doc! { "a": 1 }]);
    let context = Context::default();
    let filter = doc! { "a": { "$gte": 0 } };
    let query = Query::new(Filter::parse(filter.as_doc(), &context).unwrap(), context.clone());
    let plan = planner::plans(&collection.state(), &query).unwrap().swap_remove(0);
    assert!(plan.summary().starts_with("IXSCAN"), "{}", plan.summary());
    let mut execution = Execution::new(collection.clone(), plan, query);
    let mut found = 0;
    // Documents are moved during the scan; each is returned once, or deleted before its turn.
    loop {
        let mut last = None;
        let mut take = |given: crate::Found<'_>| {
            last = Some(place(given.doc));
            found += 1;
            Ok(if found % 50 == 0 { Emit::Enough } else { Emit::Taken })
        };
        if execution.run(Unit::new(&db), &mut || Ok(()), &mut take).unwrap() == End::Exhausted {
            break;
        }
        let next = i64::from(last.expect("one was given")) + 2;
        if next <= i64::from(COUNT) {
            let record = RecordKey::new(&next.to_be_bytes());
            WriteOp::new(Unit::new(&db), 0)
                .delete(&collection, &record, &mut |_| Ok(true), None)
                .unwrap();
        }
    }
    assert_eq!(found, COUNT - 25, "one went after each fifty");
}
