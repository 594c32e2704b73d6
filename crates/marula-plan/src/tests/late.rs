//! Pages after the first, whose documents a sort fetches at the end.

use marula_db::RecordKey;
use marula_storage::memory::Memory;

use super::*;

const COUNT: i32 = 4_000;
const SKIP: u64 = 100;
const LIMIT: u64 = 10;

/// Returns the position of a document in the sort order; each has its own.
fn place(number: i32) -> i32 {
    number * 37 % COUNT
}

fn documents(bytes_of: impl Fn(i32) -> usize) -> Vec<DocBuf> {
    let text = |number| "x".repeat(bytes_of(number));
    let each = 0..COUNT;
    each.map(
        |number| doc! { "a": number, "place": (place(number)), "text": (text(number).as_str()) },
    )
    .collect()
}

/// Returns the positions of the second page, and the number of documents examined for it.
/// `meanwhile` is called between units of work.
fn second_page(
    docs: &[DocBuf],
    meanwhile: &mut dyn FnMut(&Db, &Arc<Collection>),
) -> (Vec<i32>, u64) {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let collection = collection(&db, "late", docs, &[doc! { "a": 1 }]);
    let context = Context::default();
    let filter = doc! { "a": { "$gte": 0 }, "place": { "$gte": 0 } };
    let filter = Filter::parse(filter.as_doc(), &context).unwrap();
    let mut query = Query::new(filter, context.clone());
    query.sort = Some(SortPattern::parse(doc! { "place": 1 }.as_doc(), &context).unwrap());
    (query.skip, query.limit) = (SKIP, Some(LIMIT));
    let plan = planner::plans(&collection.state(), &query).unwrap().swap_remove(0);
    assert!(plan.summary().starts_with("IXSCAN"), "{}", plan.summary());
    let mut execution = Execution::new(collection.clone(), plan, query);
    let mut found = Vec::new();
    let mut interrupt = || {
        meanwhile(&db, &collection);
        Ok(())
    };
    let mut take = |given: crate::Found<'_>| {
        assert!(given.doc.get("text").is_some(), "all of the document");
        let Some(Value::Int32(place)) = given.doc.get("place") else { panic!("no place") };
        found.push(place);
        Ok(Emit::Taken)
    };
    assert_eq!(execution.run(Unit::new(&db), &mut interrupt, &mut take).unwrap(), End::Exhausted);
    (found, execution.examined().docs)
}

fn delete(db: &Db, collection: &Arc<Collection>, number: i32) {
    let record = RecordKey::new(&(i64::from(number) + 1).to_be_bytes());
    WriteOp::new(Unit::new(db), 0).delete(collection, &record, &mut |_| Ok(true), None).unwrap();
}

#[test]
fn a_page_is_fetched_in_the_end() {
    let (page, looked_at) = second_page(&documents(|_| 10), &mut |_, _| {});
    assert_eq!(page, (100..110).collect::<Vec<_>>());
    assert_eq!(looked_at, COUNT as u64, "each once");
}

#[test]
fn a_page_that_was_written_meanwhile_is_sorted_anew() {
    // A document scanned before the first interruption, and on the page.
    let gone = (0..1000).find(|&number| (100..110).contains(&place(number))).unwrap();
    let mut is_done = false;
    let (page, looked_at) = second_page(&documents(|_| 10), &mut |db, collection| {
        if !std::mem::replace(&mut is_done, true) {
            delete(db, collection, gone);
        }
    });
    let anew: Vec<i32> = (0..).filter(|&other| other != place(gone)).skip(100).take(10).collect();
    assert_eq!(page, anew);
    assert!(looked_at > COUNT as u64, "twice");
}

#[test]
fn a_large_document_is_held_among_those_that_are_fetched() {
    let large = |number| if place(number) % 103 == 0 { 40 << 10 } else { 10 };
    let (page, looked_at) = second_page(&documents(large), &mut |_, _| {});
    assert_eq!(page, (100..110).collect::<Vec<_>>());
    assert_eq!(looked_at, COUNT as u64, "each once");
}

#[test]
fn a_page_of_many_large_documents_is_copied() {
    let large = |number| if number < 150 { 40 << 10 } else { 10 };
    let (page, looked_at) = second_page(&documents(large), &mut |_, _| {});
    assert_eq!(page, (100..110).collect::<Vec<_>>());
    assert!(looked_at > COUNT as u64, "twice");
}
