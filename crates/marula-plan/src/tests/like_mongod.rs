//! Behaviour that `explain` of mongod 6.0.27 shows: the candidate plans, their order, and the
//! winner.

use super::*;
use crate::Hint;
use crate::planner::subplan::{Branch, Branches, branches};
use crate::shape::shape_of;

fn query(filter: &DocBuf) -> Query {
    let context = Context::default();
    Query::new(Filter::parse(filter.as_doc(), &context).unwrap(), context)
}

/// Returns a collection of documents 0 to 59, with remainders as `a`, `b` and `c`, and these
/// indexes.
fn remainders(db: &Db, name: &str, indexes: &[DocBuf]) -> Arc<Collection> {
    let docs: Vec<DocBuf> = (0..60)
        .map(|id| {
            doc! { "_id": id, "a": (id % 2), "b": (id % 3), "c": (id % 5), "m": [(id % 4), 7] }
        })
        .collect();
    collection(db, name, &docs, indexes)
}

/// The indexes that are intersected, the order of the plans, and the plans that are left out.
#[test]
fn plans_are_considered_in_mongods_order() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let collection =
        remainders(&db, "c", &[doc! { "a": 1 }, doc! { "b": 1 }, doc! { "c": 1 }, doc! { "m": 1 }]);
    let check = |filter: DocBuf, wanted: &[&str]| {
        let plans = planner::plans(&collection.state(), &query(&filter)).unwrap();
        let found: Vec<String> = plans.iter().map(|plan| shown(&plan.root)).collect();
        assert_eq!(found, wanted, "{}", filter.as_doc());
    };
    check(doc! { "b": 1, "a": 1 }, &["FETCH(a)", "FETCH(b)", "FETCH(AND_SORTED(a, b))"]);
    check(doc! { "a": 1, "b": { "$gt": 1 } }, &["FETCH(a)", "FETCH(b)"]);
    check(
        doc! { "a": 1, "b": { "$gt": 1 }, "c": { "$in": [1] } },
        &["FETCH(a)", "FETCH(b)", "FETCH(c)", "FETCH(AND_SORTED(a, c))"],
    );
    // Scans that arrays separate are intersected with each other, and with nothing else.
    check(
        doc! { "a": 1, "m": { "$all": [1, 2, 3] } },
        &["FETCH(a)", "FETCH(m)", "FETCH(m)", "FETCH(m)", "FETCH(AND_SORTED(m, m, m))"],
    );
    // Four pairs are considered, including those that do not meet.
    check(
        doc! { "a": 1, "b": { "$gt": 1 }, "c": 1, "m": 1 },
        &[
            "FETCH(a)",
            "FETCH(b)",
            "FETCH(c)",
            "FETCH(m)",
            "FETCH(AND_SORTED(a, c))",
            "FETCH(AND_SORTED(a, m))",
        ],
    );
    check(
        doc! { "z": 1, "$or": [{ "a": 1, "b": 1 }, { "c": 1 }] },
        &[
            "FETCH(OR(FETCH(a), c))",
            "FETCH(OR(FETCH(b), c))",
            "FETCH(OR(FETCH(AND_SORTED(a, b)), c))",
        ],
    );
    // Single conditions come last, by their index, and those of one index together.
    check(
        doc! { "z": 1, "$or": [{ "a": { "$lt": 1 } }, { "c": 1, "y": 1 }, { "b": 1 }, { "a": { "$gt": 5 } }] },
        &["FETCH(OR(FETCH(c), a, b))"],
    );
    check(doc! { "$or": [{ "a": { "$lt": 1 } }, { "a": { "$gt": 5 } }] }, &["FETCH(a)"]);
}

/// Returns the stages of a tree and the fields of its indexes.
fn shown(node: &Stage) -> String {
    let inputs: Vec<String> = node.inputs().iter().map(shown).collect();
    let name = match node {
        Stage::Ixscan(scan) => {
            return scan.index.spec.parts.iter().map(|part| part.path.to_string()).collect();
        }
        Stage::Fetch(_) => "FETCH",
        Stage::Or(_) => "OR",
        Stage::AndSorted(_) => "AND_SORTED",
        Stage::Collscan(_) => "COLLSCAN",
        _ => "?",
    };
    format!("{name}({})", inputs.join(", "))
}

/// Records the counts of an index scan: keys, seeks and units of work.
fn note_scans(stage: &Stage, run: &crate::StageRun, found: &mut Option<(u64, u64, u64)>) {
    if let Stage::Ixscan(_) = stage {
        *found = Some((run.stats.keys, run.stats.seeks, run.stats.works));
    }
    run.each_input(stage, &mut |stage, run| note_scans(stage, run, found));
}

/// A document that is deleted or changed between two batches is not returned, and the rest is
/// returned once.
#[test]
fn indexes_that_meet_see_writes_between_batches() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let collection = remainders(&db, "c", &[doc! { "a": 1 }, doc! { "b": 1 }]);
    let filter = doc! { "a": 1, "b": 1 };
    let mut plans = planner::plans(&collection.state(), &query(&filter)).unwrap();
    let plan = plans.pop().unwrap();
    assert_eq!(shown(&plan.root), "FETCH(AND_SORTED(a, b))");
    let mut execution = Execution::new(collection.clone(), plan, query(&filter));
    let mut found = Vec::new();
    let mut run = |execution: &mut Execution, count: usize| {
        let mut room = count;
        execution
            .run(Unit::new(&db), &mut || Ok(()), &mut |given| {
                found.push(given.doc.get("_id").unwrap().as_f64().unwrap() as i32);
                room -= 1;
                Ok(if room == 0 { Emit::Enough } else { Emit::Taken })
            })
            .unwrap()
    };
    assert_eq!(run(&mut execution, 2), End::Paused);
    for id in [13, 25] {
        let record = collection
            .find_id(Unit::new(&db).view(), marula_bson::Value::Int32(id), &mut Vec::new())
            .unwrap()
            .unwrap();
        WriteOp::new(Unit::new(&db), 0)
            .delete(&collection, &record, &mut |_| Ok(true), None)
            .unwrap();
    }
    let more = doc! { "_id": 61, "a": 1, "b": 1 };
    let mut report = InsertReport::default();
    WriteOp::new(Unit::new(&db), 0)
        .insert(&collection, &mut std::iter::once(more.as_doc()), true, &mut report)
        .unwrap();
    assert_eq!(run(&mut execution, usize::MAX), End::Exhausted);
    assert_eq!(found, [1, 7, 19, 31, 37, 43, 49, 55, 61]);
}

/// Each branch of an `$or` has its own trial, whose result is cached for the shape of the branch.
#[test]
fn branches_choose_one_by_one() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let indexes = [doc! { "a": 1 }, doc! { "b": 1 }, doc! { "c": 1 }];
    let collection = remainders(&db, "c", &indexes);
    let filter = doc! { "$or": [{ "a": 1, "c": 1 }, { "a": 0, "b": 1 }] };
    let choose = || {
        let wording = Wording { filter: Some(filter.as_doc()), ..Wording::default() };
        let chosen = choice::choose(
            Unit::new(&db),
            &collection,
            query(&filter),
            &wording,
            TimeBudget::Long,
            &mut || Ok(()),
        );
        chosen.unwrap().plan().clone()
    };
    // Each uses the index that leads to fewer documents.
    assert_eq!(shown(&choose().root), "OR(FETCH(b), FETCH(c))");
    assert_eq!(shown(&choose().root), "OR(FETCH(b), FETCH(c))");
    let cache = collection.plans();
    let mut asked: Vec<(String, bool)> = cache
        .report(&collection.state())
        .iter()
        .map(|entry| {
            let entry = entry.as_doc();
            let query = entry.get("createdFromQuery").unwrap().as_doc().unwrap();
            let query = query.get("query").unwrap().to_string();
            (query, entry.get("isActive").unwrap().is_truthy())
        })
        .collect();
    asked.sort();
    let wanted = [
        ("{ $and: [ { a: { $eq: 0 } }, { b: { $eq: 1 } } ] }".to_owned(), true),
        ("{ $and: [ { a: { $eq: 1 } }, { c: { $eq: 1 } } ] }".to_owned(), true),
    ];
    assert_eq!(asked, wanted);
    // Of a branch whose plan is known, no other plan is made.
    let state = collection.state();
    let known = |branch: &Query| cache.find(shape_of(branch, &state), &state);
    let (whole, again) = (query(&filter), query(&filter));
    let plans_of_each = |branches| match branches {
        Some(Branches::Several(branches)) => {
            branches.iter().map(|branch: &Branch| branch.plans.len()).collect::<Vec<_>>()
        }
        _ => panic!("there are several branches"),
    };
    assert_eq!(plans_of_each(branches(&state, &whole, None).unwrap()), [3, 3]);
    assert_eq!(plans_of_each(branches(&state, &again, Some(&known)).unwrap()), [1, 1]);
    // If a branch has no index, the query is planned as a whole.
    let filter = doc! { "$or": [{ "a": 1, "b": 1 }, { "z": 1 }] };
    assert!(branches(&state, &query(&filter), None).unwrap().is_none());
}

/// Of plans with the same work, the one with the best fitting index wins.
#[test]
fn a_tie_goes_to_the_index_that_fits() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    for (number, (indexes, filter, wanted)) in [
        (vec![doc! { "a": 1 }, doc! { "a": 1, "b": 1 }], doc! { "a": 1, "b": 1 }, "ab"),
        (vec![doc! { "a": 1, "b": 1 }, doc! { "a": 1 }], doc! { "a": 1 }, "a"),
        (vec![doc! { "a": 1, "x": 1 }, doc! { "a": 1, "c": 1 }], doc! { "a": 1 }, "ax"),
        (
            vec![doc! { "a": 1, "b": 1 }, doc! { "a": 1, "c": 1 }],
            doc! { "a": 1, "b": { "$in": [1, 2] }, "c": 1 },
            "ac",
        ),
        (
            vec![doc! { "a": 1 }, doc! { "b": 1 }],
            doc! { "a": { "$gt": 1 }, "b": { "$gt": 1, "$lt": 5 } },
            "b",
        ),
        (
            vec![doc! { "a": 1 }, doc! { "b": 1 }],
            doc! { "a": { "$gt": "x" }, "b": { "$gt": 1 } },
            "a",
        ),
        (vec![doc! { "$**": 1 }, doc! { "b": 1 }], doc! { "a": 1, "b": { "$gt": 1 } }, "$**"),
        (vec![doc! { "$**": 1 }, doc! { "b": 1 }], doc! { "a": 1, "b": 1 }, "b"),
    ]
    .into_iter()
    .enumerate()
    {
        let collection = collection(&db, &format!("c{number}"), &[], &indexes);
        let choice = {
            let wording = Wording::default();
            choice::explain(
                Unit::new(&db),
                &collection,
                query(&filter),
                &wording,
                &mut |_, _| (),
                &mut || Ok(()),
            )
            .unwrap()
        };
        assert_eq!(
            shown(&choice.execution.plan().root),
            format!("FETCH({wanted})"),
            "{}",
            filter.as_doc()
        );
    }
}

/// Checks whether the plan of a query provides an order without a sort stage.
fn check_order(collection: &Collection, filter: &DocBuf, sort: &DocBuf, is_given: bool) {
    let mut asked = query(filter);
    asked.sort = Some(SortPattern::parse(sort.as_doc(), &asked.context).unwrap());
    let plan = planner::plan(&collection.state(), &asked).unwrap();
    let sorts = plan.root.any(&|stage| matches!(stage, Stage::Sort(_)));
    assert_eq!(!sorts, is_given, "{} by {}", filter.as_doc(), sort.as_doc());
}

/// A field with one value in all documents does not order them.
#[test]
fn a_sort_may_name_what_has_one_value() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let collection = collection(&db, "c", &[], &[doc! { "a": 1, "b": 1, "c": 1 }]);
    let check = |filter, sort, is_given| check_order(&collection, &filter, &sort, is_given);
    check(doc! { "a": 1 }, doc! { "b": -1, "a": -1 }, true);
    check(doc! { "a": 1 }, doc! { "b": 1, "a": -1, "c": 1 }, true);
    check(doc! { "a": 1 }, doc! { "b": 1, "a": -1, "c": -1 }, false);
    check(doc! { "a": 1, "c": 1 }, doc! { "c": 1, "b": 1 }, true);
    check(doc! { "a": { "$gt": 1 }, "b": 1 }, doc! { "a": 1, "c": 1 }, true);
    check(doc! { "a": { "$in": [1, 2] } }, doc! { "b": 1, "a": 1 }, false);
    check(doc! { "a": 1, "z": 1 }, doc! { "b": 1, "z": 1 }, false);
}

/// A count relies on the entries for null or missing fields, as long as no document has two
/// entries.
#[test]
fn null_is_counted_by_entries() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let some: Vec<DocBuf> = vec![
        doc! { "_id": 1, "a": null, "b": 1 },
        doc! { "_id": 2, "b": 1 },
        doc! { "_id": 3, "a": (Value::Undefined), "b": 1 },
        doc! { "_id": 4, "a": 1, "b": 1 },
    ];
    let array = [some.clone(), vec![doc! { "_id": 5, "a": [1, null], "b": 1 }]].concat();
    let ascending = doc! { "a": 1, "b": 1 };
    let descending = doc! { "a": (-1) };
    for (number, (docs, index, filter, wanted)) in [
        (&some, &ascending, doc! { "a": null }, "OR(ab, ab)"),
        (&some, &ascending, doc! { "a": null, "b": 1 }, "OR(ab, ab)"),
        (&some, &ascending, doc! { "a": { "$in": [null, 1] } }, "ab"),
        (&some, &descending, doc! { "a": null }, "a"),
        (&array, &ascending, doc! { "a": null }, "FETCH(ab)"),
    ]
    .into_iter()
    .enumerate()
    {
        let collection = collection(&db, &format!("c{number}"), docs, std::slice::from_ref(index));
        let count = || Query { wanted: Wanted::Count, ..query(&filter) };
        let asked = count();
        let plan = planner::plan(&collection.state(), &asked).unwrap();
        assert_eq!(shown(&plan.root), wanted, "{}", filter.as_doc());
        let found = carry_out(&db, &collection, plan, asked, &mut Random(1)).len();
        let matching = Filter::parse(filter.as_doc(), &Context::default()).unwrap();
        let expected = docs.iter().filter(|doc| matching.matches(doc.as_doc()).unwrap()).count();
        assert_eq!(found, expected, "{}", filter.as_doc());
    }
}

/// A key pattern that several indexes have is no valid hint.
#[test]
fn a_hint_that_means_two_indexes_is_refused() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let partial = doc! { "key": { "a": 1 }, "partialFilterExpression": { "a": 1 } };
    let collection = collection(&db, "c", &[], &[doc! { "a": 1 }, partial]);
    let with = |hint: Hint| {
        let asked = Query { hint: Some(hint), ..query(&doc! { "a": 1 }) };
        planner::plans(&collection.state(), &asked).map(|plans| plans.len())
    };
    assert_eq!(with(Hint::Name("index0".to_owned())).unwrap(), 1);
    let error = with(Hint::Key(doc! { "a": 1 })).expect_err("two indexes have the key");
    assert_eq!(
        error.message(),
        "Hint matched multiple indexes, must hint by index name. Matched: kp: { a: 1 } name: '(index0, )' io: { v: 2, key: { a: 1 }, name: \"index0\" } and kp: { a: 1 } name: '(index1, )' io: { v: 2, key: { a: 1 }, name: \"index1\", partialFilterExpression: { a: 1 } }"
    );
}

/// The numbers of entries examined and seeks, for scans of several intervals. A scan ends with the
/// last value of the query, and examines no entry after it.
#[test]
fn walks_look_at_as_many_entries() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let docs: Vec<DocBuf> = (0..200)
        .map(|id| doc! { "_id": id, "a": (id % 10), "b": (id % 7), "c": (id % 4) })
        .collect();
    let indexes = [doc! { "a": 1, "b": 1 }, doc! { "c": 1, "b": (-1) }];
    let collection = collection(&db, "c", &docs, &indexes);
    let check = |filter: DocBuf, sort: Option<DocBuf>, wanted: (u64, u64, u64)| {
        let mut asked = query(&filter);
        asked.sort = sort.map(|sort| SortPattern::parse(sort.as_doc(), &asked.context).unwrap());
        let mut plans = planner::plans(&collection.state(), &asked).unwrap();
        let mut execution = Execution::new(collection.clone(), plans.remove(0), asked);
        execution.run(Unit::new(&db), &mut || Ok(()), &mut |_| Ok(Emit::Taken)).unwrap();
        let mut found = None;
        note_scans(&execution.plan().root, execution.stages(), &mut found);
        assert_eq!(found, Some(wanted), "{}", filter.as_doc());
    };
    check(doc! { "a": { "$in": [1, 2] }, "b": { "$lt": 3 } }, None, (20, 2, 20));
    check(
        doc! { "a": { "$in": [1, 2] }, "b": { "$lt": 3 } },
        Some(doc! { "a": (-1), "b": (-1) }),
        (20, 2, 20),
    );
    check(
        doc! { "a": { "$in": [1, 2] }, "b": { "$gt": 3 } },
        Some(doc! { "a": (-1), "b": (-1) }),
        (18, 2, 18),
    );
    check(doc! { "c": { "$in": [0, 3] }, "b": { "$gt": 3 } }, None, (45, 3, 45));
    check(doc! { "a": { "$in": [1.5, 2] }, "b": 3 }, None, (5, 2, 5));
    check(doc! { "a": { "$gt": 5, "$lt": 2 } }, None, (0, 1, 1));
}

/// A scan of a few values is split into scans that are merged if the sort is on the fields after
/// these values.
#[test]
fn sorts_behind_single_values_are_merged() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let collection = collection(&db, "c", &[], &[doc! { "a": 1, "b": 1, "c": 1 }]);
    let many: Vec<Value<'_>> = (0..201).map(Value::Int32).collect();
    let many = DocBuf::build(|filter| {
        let mut list = filter.begin_doc("a");
        let mut list = list.begin_array("$in");
        many.iter().for_each(|value| {
            list.push(*value);
        });
    });
    let check = |filter: DocBuf, sort: DocBuf, wanted: (usize, bool)| {
        let mut asked = query(&filter);
        asked.sort = Some(SortPattern::parse(sort.as_doc(), &asked.context).unwrap());
        let plan = planner::plan(&collection.state(), &asked).unwrap();
        let mut walks = 0;
        plan.root.walk(&mut |node| walks += usize::from(matches!(node, Stage::Ixscan(_))));
        assert_eq!((walks, plan.has_more_walks), wanted, "{}", sort.as_doc());
    };
    let some = || doc! { "a": { "$in": [1, 2] }, "b": { "$in": [1, 2, 3] } };
    check(some(), doc! { "c": 1 }, (6, false));
    check(some(), doc! { "b": 1 }, (1, false));
    check(some(), doc! { "b": 1, "c": 1 }, (1, false));
    check(doc! { "a": { "$in": [1, 2] }, "b": { "$gt": 1 } }, doc! { "b": 1 }, (2, false));
    check(doc! { "a": { "$in": [1, 2] }, "b": 1 }, doc! { "b": 1, "c": 1 }, (1, false));
    check(many.clone(), doc! { "b": (-1) }, (1, true));
    check(many.clone(), doc! { "c": 1 }, (1, false));
    check(many, doc! { "b": 1, "c": (-1) }, (1, false));
}

/// Two indexes are not intersected for conditions that one index supports.
#[test]
fn one_index_outdoes_two_that_meet() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let filter = doc! { "a": 1, "b": 1, "c": 1 };
    let single = || vec![doc! { "a": 1 }, doc! { "b": 1 }, doc! { "c": 1 }];
    for (number, (index, wanted)) in [
        (doc! { "a": 1, "b": 1 }, vec!["a, c", "b, c", "c, ab"]),
        (doc! { "b": 1, "c": 1 }, vec!["a, b", "a, c", "a, bc"]),
        (doc! { "a": 1, "b": 1, "c": 1 }, vec![]),
    ]
    .into_iter()
    .enumerate()
    {
        let indexes = [single(), vec![index]].concat();
        let collection = collection(&db, &format!("c{number}"), &[], &indexes);
        let plans = planner::plans(&collection.state(), &query(&filter)).unwrap();
        let found: Vec<String> = plans.iter().map(|plan| shown(&plan.root)).collect();
        let wanted = wanted.iter().map(|pair| format!("FETCH(AND_SORTED({pair}))"));
        let found = found.into_iter().filter(|plan| plan.contains("AND_SORTED"));
        assert_eq!(found.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
        assert!(plans.iter().all(|plan| !plan.has_more_intersections));
    }
}

/// An index with another collation provides the order of values other than strings.
#[test]
fn another_order_of_strings_matters_to_strings_alone() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let index = doc! { "key": { "n": 1, "s": (-1) }, "collation": { "locale": "fr" } };
    let collection = collection(&db, "c", &[], &[index]);
    let check = |filter, sort, is_given| check_order(&collection, &filter, &sort, is_given);
    check(doc! { "n": 1 }, doc! { "n": 1 }, true);
    check(doc! { "n": { "$gt": 1 } }, doc! { "n": (-1) }, true);
    check(doc! { "n": null }, doc! { "n": 1 }, true);
    check(doc! { "n": { "$ne": 1 } }, doc! { "n": 1 }, false);
    check(doc! { "n": 1 }, doc! { "s": 1 }, false);
    check(doc! {}, doc! { "n": 1 }, false);
}
