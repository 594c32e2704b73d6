//! Plans that are attempted within a time budget.

use std::time::Duration;

use super::*;

const COUNT: i32 = 5_000;
const LITTLE: Duration = Duration::from_secs(3_600);

/// Returns the chosen plan; `None` if the operation is postponed.
fn chosen(
    db: &Db,
    collection: &Arc<Collection>,
    filter: &DocBuf,
    time_budget: TimeBudget,
) -> Option<Execution> {
    let context = Context::default();
    let filter = Filter::parse(filter.as_doc(), &context).unwrap();
    let query = Query::new(filter, context);
    let wording = Wording::default();
    let chosen =
        choice::choose(Unit::new(db), collection, query, &wording, time_budget, &mut || Ok(()));
    match chosen {
        Ok(execution) => Some(execution),
        Err(error) if error.is_postponed() => None,
        Err(error) => panic!("{error}"),
    }
}

fn numbers(db: &Db) -> Arc<Collection> {
    let docs: Vec<DocBuf> = (0..COUNT).map(|number| doc! { "a": number }).collect();
    collection(db, "numbers", &docs, &[doc! { "a": 1 }])
}

#[test]
fn what_goes_by_an_index_and_runs_no_code_may_be_tried() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let collection = numbers(&db);
    let (short, little) = (TimeBudget::Short, TimeBudget::UpTo(LITTLE));
    let regex = || Value::Regex { pattern: "(x*)*y".into(), options: "".into() };
    let check = |filter: &DocBuf, is_tried: bool| {
        let is_chosen = |time_budget| chosen(&db, &collection, filter, time_budget).is_some();
        assert!(!is_chosen(short) && is_chosen(TimeBudget::Long), "{}", filter.as_doc());
        assert_eq!(is_chosen(little), is_tried, "{}", filter.as_doc());
    };
    check(&doc! { "a": { "$gt": 7 } }, true);
    check(&doc! { "a": { "$gt": 7 }, "b": { "$elemMatch": { "c": { "$in": [1, 2] } } } }, true);
    check(&doc! { "$or": [{ "a": 7 }, { "a": 9 }] }, true);
    check(&doc! { "b": 7 }, false);
    check(&doc! { "a": 7, "b": (regex()) }, false);
    check(&doc! { "a": 7, "b": { "$in": [(regex())] } }, false);
    check(&doc! { "a": 7, "b": { "$not": { "$elemMatch": { "c": (regex()) } } } }, false);
    check(&doc! { "a": 7, "$expr": { "$eq": ["$a", "$b"] } }, false);
}

#[test]
fn a_try_ends_in_time_and_is_not_made_again_soon() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let collection = numbers(&db);
    let filter = doc! { "a": { "$gte": 0 } };
    let again = || chosen(&db, &collection, &filter, TimeBudget::UpTo(Duration::from_nanos(1)));
    let mut execution = again().expect("nothing is known of it");
    let mut given = 0;
    let mut take = |_: crate::Found<'_>| {
        given += 1;
        Ok(Emit::Taken)
    };
    let ended = execution.run(Unit::new(&db), &mut || Ok(()), &mut take);
    assert!(ended.is_err_and(|error| error.is_postponed()));
    assert!(given < COUNT / 2, "{given}");
    let uses = || collection.state().indexes[1].usage().0;
    assert_eq!(uses(), 0, "what is begun anew is no use yet");
    assert!(again().is_none(), "it took too long");

    let other = doc! { "a": { "$gt": 0 } };
    let nanosecond = TimeBudget::UpTo(Duration::from_nanos(1));
    let mut execution = chosen(&db, &collection, &other, nanosecond).expect("nothing is known");
    execution.lift_time_limit();
    let mut take = |_: crate::Found<'_>| Ok(Emit::Taken);
    let end = execution.run(Unit::new(&db), &mut || Ok(()), &mut take).unwrap();
    assert_eq!((end, uses()), (End::Exhausted, 1));

    let mut execution = chosen(&db, &collection, &filter, TimeBudget::Timed).unwrap();
    let counted = execution.count(Unit::new(&db), u64::MAX, &mut || Ok(())).unwrap();
    assert_eq!(counted, COUNT as u64);
    assert_eq!(uses(), 2);
}
