//! The law of the planner: every plan of a query gives the same result, with any set of indexes and
//! without indexes: ordinary, compound, multikey, unique, sparse, partial, hashed and wildcard
//! ones, compound wildcards, and parallel arrays. Indexes on locations and text support queries of
//! their own and have their own tests.
//!
//! Documents, index sets and queries are generated from a seed, which a failure prints. Every
//! candidate plan is executed, in batches of odd sizes, and compared with a match of the filter on
//! every document.

mod first_of_each;
mod late;
mod like_mongod;
mod neighbours;
mod overtaken;
mod tried;
mod winners;

use std::sync::Arc;

use marula_bson::{ArrayWriter, Doc, DocBuf, DocWriter, FieldPath, Value, ValueBuf, doc};
use marula_db::collection::Collection;
use marula_db::write::InsertReport;
use marula_db::{CollectionOptions, Db, IndexSpec, Namespace, Unit, WriteOp};
use marula_query::context::Context;
use marula_query::filter::Filter;
use marula_query::projection::{Metadata, Policy, Projection};
use marula_query::sort::SortPattern;
use marula_storage::memory::Memory;

use crate::plan::Stage;
use crate::{
    Emit, End, Execution, Plan, Query, Shown, TimeBudget, Wanted, Wording, choice, planner,
};

const DOCUMENTS: i32 = 120;
const QUERIES: usize = 150;

/// Pseudo-random numbers, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        // Knuth's multiplier; the upper bits are the good ones.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn number(&mut self) -> i32 {
        i32::try_from(self.below(8)).unwrap()
    }

    fn of<'t, T>(&mut self, choices: &'t [T]) -> &'t T {
        &choices[self.below(choices.len())]
    }
}

fn value(random: &mut Random, name: &str, out: &mut DocWriter<'_>) {
    match random.below(12) {
        0 => out.append(name, Value::Null),
        1 => out.append(name, *random.of(&["x", "xy", "y", ""])),
        2 => out.append(name, f64::from(random.number()) + 0.5),
        3 => out,
        4 => {
            let mut array = out.begin_array(name);
            for _ in 0..random.below(4) {
                array.push(random.number());
            }
            array.finish();
            out
        }
        5 => out.append(name, &doc! { "x": (random.number()) }),
        _ => out.append(name, random.number()),
    };
}

fn document(random: &mut Random, id: i32) -> DocBuf {
    DocBuf::build(|out| {
        out.append("_id", id);
        for name in ["a", "b", "c"] {
            value(random, name, out);
        }
        match random.below(3) {
            0 => value(random, "o", out),
            1 => {
                let mut array = out.begin_array("o");
                for _ in 0..random.below(3) {
                    let mut element = array.begin_doc();
                    element.append("x", random.number());
                    if random.below(3) > 0 {
                        element.append("y", random.number());
                    }
                }
            }
            _ => {}
        }
    })
}

fn predicate(random: &mut Random, out: &mut DocWriter<'_>) {
    let path = *random.of(&["a", "a", "b", "b", "c", "o.x", "o.y", "o", "_id"]);
    let number = random.number();
    if path == "o" {
        let mut inner = out.begin_doc("o");
        let mut element = inner.begin_doc("$elemMatch");
        element.append("x", number);
        if random.below(2) == 0 {
            element.append("y", &doc! { "$gte": (random.number()) });
        }
        return;
    }
    match random.below(18) {
        0..5 => {
            out.append(path, number);
            return;
        }
        5 => {
            out.append(path, Value::Null);
            return;
        }
        6 => {
            out.append(
                path,
                Value::Regex {
                    pattern: (*random.of(&["^x", "y", "^"])).into(),
                    options: "".into(),
                },
            );
            return;
        }
        _ => {}
    }
    let mut operators = out.begin_doc(path);
    match random.below(12) {
        0 => operators.append("$gt", number),
        1 => operators.append("$lte", number),
        2 => operators.append("$gte", number).append("$lt", number + 3),
        3 => operators.append("$ne", number),
        4 => operators.append("$ne", Value::Null),
        5 => operators.append("$exists", random.below(2) == 0),
        6 => operators.append("$type", *random.of(&["int", "number", "null", "array", "string"])),
        7 => operators.append("$not", &doc! { "$gt": number }),
        8 => operators.append("$lt", *random.of(&["xy", "x"])),
        9 => operators.append("$elemMatch", &doc! { "$gt": number, "$ne": 5 }),
        _ => {
            let name = *random.of(&["$in", "$in", "$nin", "$all"]);
            let mut array = operators.begin_array(name);
            array.push(number).push(random.number());
            if random.below(4) == 0 {
                array.push(Value::Null);
            }
            array.finish();
            &mut operators
        }
    };
}

/// Returns a comparison of a path with a constant as an expression.
fn comparison(random: &mut Random) -> DocBuf {
    let op = *random.of(&["$eq", "$eq", "$lt", "$lte", "$gt", "$gte", "$ne"]);
    let path = *random.of(&["$a", "$b", "$c", "$o.x", "$o"]);
    DocBuf::build(|out| {
        let mut args = out.begin_array(op);
        let is_turned = random.below(3) == 0;
        if !is_turned {
            args.push(path);
        }
        match random.below(8) {
            0 => args.push(Value::Null),
            1 => args.push("x"),
            2 => args.push(&doc! { "x": (random.number()) }),
            3 => args.push(*random.of(&[Value::MinKey, Value::MaxKey])),
            _ => args.push(random.number()),
        };
        if is_turned {
            args.push(path);
        }
    })
}

fn expression(random: &mut Random) -> DocBuf {
    match random.below(4) {
        0 => {
            let name = *random.of(&["$and", "$or"]);
            DocBuf::build(|out| {
                let mut list = out.begin_array(name);
                list.push(&comparison(random)).push(&comparison(random));
            })
        }
        _ => comparison(random),
    }
}

fn filter(random: &mut Random, depth: usize) -> DocBuf {
    DocBuf::build(|out| match random.below(7) {
        0 => {}
        3 => {
            out.append("$expr", &expression(random));
        }
        1 if depth > 0 => {
            let mut array = out.begin_array("$or");
            for _ in 0..2 + random.below(2) {
                array.push(&filter(random, depth - 1));
            }
        }
        2 if depth > 0 => {
            let mut array = out.begin_array("$and");
            for _ in 0..2 {
                array.push(&filter(random, depth - 1));
            }
            array.push(&DocBuf::build(|out| predicate(random, out)));
        }
        _ => predicate(random, out),
    })
}

fn collection(db: &Db, name: &str, docs: &[DocBuf], indexes: &[DocBuf]) -> Arc<Collection> {
    let options = CollectionOptions::parse(Doc::EMPTY).unwrap();
    let collection = db.create_collection(&Namespace::new("db", name).unwrap(), options).unwrap();
    let specs = indexes.iter().enumerate().map(|(number, given)| {
        let name = format!("index{number}");
        let mut spec = match given.as_doc().get("key") {
            Some(_) => given.clone(),
            None => doc! { "key": given },
        };
        spec.push("name", name.as_str());
        IndexSpec::parse(spec.as_doc(), None).unwrap()
    });
    db.create_indexes(&collection, specs.collect(), &mut || Ok(())).unwrap();
    let mut report = InsertReport::default();
    let mut each = docs.iter().map(DocBuf::as_doc);
    WriteOp::new(Unit::new(db), 0).insert(&collection, &mut each, true, &mut report).unwrap();
    assert!(report.errors.is_empty(), "a generated document was refused");
    collection
}

/// Returns the documents of a plan in its order, executed in batches of odd sizes.
fn carry_out(
    db: &Db,
    collection: &Arc<Collection>,
    plan: Plan,
    query: Query,
    random: &mut Random,
) -> Vec<DocBuf> {
    carry_on(db, Execution::new(collection.clone(), plan, query), random)
}

/// Returns the remaining documents of an execution in its order, in batches of odd sizes.
fn carry_on(db: &Db, mut execution: Execution, random: &mut Random) -> Vec<DocBuf> {
    let mut found = Vec::new();
    loop {
        let mut room = 1 + random.below(40);
        match random.below(3) {
            0 => execution.expect(room),
            1 => execution.expect(usize::MAX),
            _ => {}
        }
        let end = execution
            .run(Unit::new(db), &mut || Ok(()), &mut |document| {
                if room == 0 {
                    return Ok(Emit::Full);
                }
                found.push(document.doc.to_buf());
                room -= 1;
                Ok(if room == 0 && found.len() % 2 == 0 { Emit::Enough } else { Emit::Taken })
            })
            .unwrap();
        if end == End::Exhausted {
            let given = execution.stages().stats.advanced;
            assert_eq!(given, found.len() as u64, "{}", execution.plan().summary());
            return found;
        }
    }
}

/// Returns the counts of a plan's stages once they have returned `count` documents, or all.
fn counted(
    db: &Db,
    collection: &Arc<Collection>,
    (plan, query): (Plan, Query),
    expected: usize,
    count: usize,
) -> String {
    let mut execution = Execution::new(collection.clone(), plan, query);
    execution.expect(expected);
    let mut given = 0;
    execution
        .run(Unit::new(db), &mut || Ok(()), &mut |_| {
            given += 1;
            Ok(if given < count { Emit::Taken } else { Emit::Enough })
        })
        .unwrap();
    let mut counted = String::new();
    print_stats(&execution.plan().root, execution.stages(), &mut counted);
    counted
}

fn print_stats(stage: &Stage, run: &crate::StageRun, out: &mut String) {
    *out += &format!("{:?}\n", run.stats);
    run.each_input(stage, &mut |stage, run| print_stats(stage, run, out));
}

/// Checks that counts are the same with and without reading ahead.
fn check_counts(db: &Db, collection: &Arc<Collection>, make: &dyn Fn() -> Query, what: &str) {
    let state = collection.state();
    let plans = || planner::plans(&state, &make()).unwrap();
    for number in 0..plans().len() {
        for count in [1, 7, usize::MAX] {
            let counted = |expected| {
                let plan = plans().swap_remove(number);
                counted(db, collection, (plan, make()), expected, count)
            };
            let one_by_one = counted(1);
            assert_eq!(counted(usize::MAX), one_by_one, "{count} of {what}, plan {number}");
            assert_eq!(counted(count), one_by_one, "expecting {count} of {what}, plan {number}");
        }
    }
}

fn sorted(mut docs: Vec<DocBuf>) -> Vec<DocBuf> {
    docs.sort_by(|a, b| a.as_doc().as_bytes().cmp(b.as_doc().as_bytes()));
    docs
}

/// Index sets of documents without parallel arrays.
fn check_all_kinds(seed: u64) {
    let mut random = Random(seed);
    let docs: Vec<DocBuf> = (0..DOCUMENTS).map(|id| document(&mut random, id)).collect();
    // Documents that cannot be indexed, because of a hash or parallel arrays, are left out for all
    // sets.
    let docs = indexable(&docs);
    let sets: &[&[DocBuf]] = &[
        &[doc! { "a": 1 }, doc! { "b": (-1) }],
        &[doc! { "a": 1, "b": (-1) }, doc! { "o.x": 1, "o.y": 1 }],
        &[doc! { "b": 1, "c": 1 }, doc! { "c": (-1) }, doc! { "o.x": 1 }],
        &[doc! { "c": 1, "o.x": 1 }, doc! { "a": (-1) }, doc! { "a": "hashed" }],
        &[
            doc! { "key": { "a": 1 }, "sparse": true },
            doc! { "key": { "c": 1, "b": (-1) }, "sparse": true },
            doc! { "key": { "o.x": (-1) }, "sparse": true },
        ],
        &[
            doc! { "key": { "a": 1 }, "partialFilterExpression": { "a": { "$gt": 2 } } },
            doc! { "key": { "b": 1, "a": 1 }, "partialFilterExpression": { "b": { "$exists": true } } },
            doc! { "key": { "c": 1, "_id": 1 }, "unique": true },
        ],
        &[doc! { "$**": 1 }],
        &[doc! { "o.$**": 1 }, doc! { "a": "hashed", "_id": 1 }],
        &[doc! { "key": { "a": 1, "$**": 1 }, "wildcardProjection": { "a": 0 } }],
        &[doc! { "key": { "$**": (-1), "a": (-1) }, "wildcardProjection": { "b": 1, "o": 1 } }],
        &[doc! { "a": (-1), "o.$**": (-1), "_id": 1 }, doc! { "_id": 1, "c.$**": 1, "a": 1 }],
    ];
    check(seed, &mut random, &docs, sets, |random| filter(random, 2));
}

/// Index sets of documents with parallel arrays.
fn check_parallel_arrays(seed: u64) {
    let mut random = Random(seed);
    let docs: Vec<DocBuf> = (0..DOCUMENTS).map(|id| document(&mut random, id)).collect();
    let parallel = |key: DocBuf| doc! { "key": (&key), "parallelArrays": true };
    let sets: &[&[DocBuf]] = &[
        &[parallel(doc! { "a": 1, "b": (-1) }), parallel(doc! { "o.x": 1, "c": 1, "o.y": (-1) })],
        &[parallel(doc! { "b": 1, "c": (-1), "a": 1 }), doc! { "a": 1 }],
        &[
            doc! { "key": { "c": 1, "o.x": 1 }, "sparse": true, "parallelArrays": true },
            doc! { "key": { "a": (-1), "c": 1, "_id": 1 }, "unique": true, "parallelArrays": true },
            doc! { "$**": 1 },
        ],
    ];
    check(seed, &mut random, &docs, sets, |random| filter(random, 2));
}

fn check(
    seed: u64,
    random: &mut Random,
    docs: &[DocBuf],
    sets: &[&[DocBuf]],
    filter: fn(&mut Random) -> DocBuf,
) {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let collections: Vec<Arc<Collection>> = sets
        .iter()
        .enumerate()
        .map(|(number, indexes)| collection(&db, &format!("c{number}"), docs, indexes))
        .collect();
    let context = Context::default();
    for number in 0..QUERIES {
        let text = filter(random);
        let sort = match random.below(3) {
            0 => None,
            1 => Some(doc! { "c": (*random.of(&[1, -1])), "_id": 1 }),
            _ => Some(doc! { "b": (*random.of(&[1, -1])), "_id": (-1) }),
        };
        let what = format!("seed {seed}, query {number}: {} sorted {sort:?}", text.as_doc());
        let make = || {
            let parsed = Filter::parse(text.as_doc(), &context).unwrap();
            let mut query = Query::new(parsed, context.clone());
            query.filter.add_index_conditions(&context);
            query.sort =
                sort.as_ref().map(|sort| SortPattern::parse(sort.as_doc(), &context).unwrap());
            query
        };
        let matching = Filter::parse(text.as_doc(), &context).unwrap();
        let mut wanted: Vec<DocBuf> =
            docs.iter().filter(|doc| matching.matches(doc.as_doc()).unwrap()).cloned().collect();
        if let Some(pattern) = make().sort {
            wanted.sort_by_cached_key(|doc| {
                let mut key = Vec::new();
                pattern.write_key(doc.as_doc(), &mut key).unwrap();
                key
            });
        }
        for collection in &collections {
            let state = collection.state();
            for plan in planner::plans(&state, &make()).unwrap() {
                let what = format!("{what} by {}", plan.summary());
                let found = carry_out(&db, collection, plan, make(), random);
                match sort {
                    Some(_) => assert!(found == wanted, "{what}"),
                    None => assert!(sorted(found) == sorted(wanted.clone()), "{what}"),
                }
            }
            if number % 10 == 0 {
                check_counts(&db, collection, &make, &what);
            }
            check_chosen(&db, collection, make(), wanted.len(), &what);
            for _ in 0..3 {
                let found = carry_on(&db, chosen(&db, collection, make()), random);
                match sort {
                    Some(_) => assert!(found == wanted, "chosen for {what}"),
                    None => assert!(sorted(found) == sorted(wanted.clone()), "chosen for {what}"),
                }
            }
            check_covered(&db, collection, make(), &wanted, &what, random);
        }
    }
}

/// Returns a value for a field that paths with numbers read; `kinds` selects: 2 scalars, 5
/// documents too, 7 all.
fn place(random: &mut Random, (kinds, nests): (usize, bool), depth: usize) -> ValueBuf {
    let kinds = if depth < 3 { kinds } else { 2 };
    let number = random.number();
    match random.below(kinds) {
        0 | 1 => ValueBuf::from(number),
        2 => {
            let inner = place(random, (7, nests), depth + 1);
            ValueBuf::from(Value::Document(doc! { "0": (&inner) }.as_doc()))
        }
        3 | 4 => {
            let inner = place(random, (7, nests), depth + 1);
            ValueBuf::from(Value::Document(doc! { "x": (&inner), "0": number }.as_doc()))
        }
        _ => {
            let mut bytes = Vec::new();
            let mut array = ArrayWriter::new(&mut bytes);
            for _ in 0..random.below(3) {
                array.push(&place(random, (if nests { 7 } else { 5 }, nests), depth + 1));
            }
            array.finish();
            ValueBuf::from(Value::Array(Doc::trusted(&bytes)))
        }
    }
}

/// Returns a filter with numbers in its paths.
fn filter_by_places(random: &mut Random) -> DocBuf {
    let path = *random.of(&["p.0", "p.0.x", "p.x.0", "p.x", "p.0.0", "p.0.x.0", "p.1", "p", "q.0"]);
    let number = random.number();
    let condition = |random: &mut Random| match random.below(6) {
        0 => doc! { "$gte": number },
        1 => doc! { "$exists": true },
        2 => doc! { "$type": (*random.of(&["int", "array", "object"])) },
        3 => doc! { "$in": [number, (random.number())] },
        _ => doc! { "$eq": number },
    };
    let inner = condition(random);
    let element = match random.below(4) {
        0 => inner.clone(),
        _ => DocBuf::build(|out| {
            out.append(*random.of(&["0", "x", "x.0", "0.x"]), &inner);
        }),
    };
    DocBuf::build(|out| {
        if random.below(4) == 0 {
            out.append("q", number);
        }
        match random.below(3) {
            0 => out.append(path, &doc! { "$elemMatch": (&element) }),
            _ => out.append(path, &inner),
        };
    })
}

/// Wildcard indexes of documents whose field names are numbers, with or without nested arrays: a
/// number in a path then has several meanings.
fn check_places(seed: u64, nests: bool) {
    let mut random = Random(seed);
    let docs: Vec<DocBuf> = (0..DOCUMENTS)
        .map(|id| {
            doc! { "_id": id, "p": (&place(&mut random, (7, nests), 0)), "q": (id % 8) }
        })
        .collect();
    let sets: &[&[DocBuf]] = &[
        &[doc! { "$**": 1 }],
        &[doc! { "p.$**": 1 }, doc! { "q": 1 }],
        &[doc! { "key": { "$**": 1 }, "wildcardProjection": { "p.x": 0 } }],
        &[doc! { "q": 1, "p.$**": (-1) }, doc! { "p.$**": 1, "q": (-1) }],
    ];
    check(seed, &mut random, &docs, sets, filter_by_places);
}

/// Returns the documents that every index can contain: without an array at `a`, and with at most
/// one among `b`, `c` and `o`.
fn indexable(docs: &[DocBuf]) -> Vec<DocBuf> {
    let is_array =
        |doc: &DocBuf, name: &str| matches!(doc.as_doc().get(name), Some(Value::Array(_)));
    let fits = |doc: &&DocBuf| {
        let arrays = ["b", "c", "o"].iter().filter(|name| is_array(doc, name)).count();
        !is_array(doc, "a") && arrays < 2
    };
    docs.iter().filter(fits).cloned().collect()
}

/// Returns the plan that a caller without a time limit gets: first by trial, then from the cache.
fn chosen(db: &Db, collection: &Arc<Collection>, query: Query) -> Execution {
    let (unit, wording) = (Unit::new(db), Wording::default());
    choice::choose(unit, collection, query, &wording, TimeBudget::Long, &mut || Ok(())).unwrap()
}

/// The chosen plan counts correctly, first by trial, then from the cache.
fn check_chosen(db: &Db, collection: &Arc<Collection>, query: Query, wanted: usize, what: &str) {
    let mut query = Some(Query { wanted: Wanted::Count, sort: None, ..query });
    for _ in 0..2 {
        let asked = query.take().unwrap();
        let again = Query {
            wanted: Wanted::Count,
            ..Query::new(asked.filter.clone(), asked.context.clone())
        };
        let mut execution = chosen(db, collection, asked);
        let count = execution.count(Unit::new(db), u64::MAX, &mut || Ok(())).unwrap();
        assert_eq!(count, wanted as u64, "counted, {what}");
        query = Some(again);
    }
}

/// An index covers the documents' values; null may represent a missing field.
fn check_covered(
    db: &Db,
    collection: &Arc<Collection>,
    mut query: Query,
    wanted: &[DocBuf],
    what: &str,
    random: &mut Random,
) {
    let shown = random.of(&[doc! { "a": 1, "_id": 0 }, doc! { "b": 1, "c": 1, "_id": 0 }]).clone();
    let projection = Projection::parse(shown.as_doc(), Policy::Find, &query.context).unwrap();
    query.shown = Some(Shown::of(&projection, shown.as_doc()));
    let context = query.context.clone();
    let show = |doc: Doc<'_>| {
        let mut out = Vec::new();
        projection.apply(doc, None, &Metadata::default(), &context, &mut out).unwrap();
        let out = DocBuf::trusted(out);
        // In a fixed order, and without null.
        DocBuf::build(|doc| {
            for name in ["a", "b", "c"] {
                let value = FieldPath::new(name).get(out.as_doc());
                if let Some(value) = value.filter(|value| !value.get().is_nullish()) {
                    doc.append_raw(name, value);
                }
            }
        })
    };
    let wanted = sorted(wanted.iter().map(|doc| show(doc.as_doc())).collect());
    for plan in planner::plans(&collection.state(), &query).unwrap() {
        let what = format!("showing {}, {what} by {}", shown.as_doc(), plan.summary());
        let asked = Query {
            sort: query.sort.clone(),
            shown: query.shown.clone(),
            ..Query::new(query.filter.clone(), query.context.clone())
        };
        let found = carry_out(db, collection, plan, asked, random);
        let found = sorted(found.iter().map(|doc| show(doc.as_doc())).collect());
        assert!(found == wanted, "{what}");
    }
}

#[test]
fn every_plan_gives_the_same_answer() {
    for seed in 1..=2 {
        check_all_kinds(seed);
    }
}

#[test]
fn every_plan_gives_the_same_answer_of_arrays_side_by_side() {
    check_parallel_arrays(1);
}

#[test]
fn every_plan_gives_the_same_answer_by_places() {
    for (seed, nests) in [(1, true), (2, true), (3, false), (4, false)] {
        check_places(seed, nests);
    }
}

/// Residual conditions are in mongod's order: those that bound the index, those without a path, the
/// rest by their paths. Read from `explain` of mongod 6.0.27.
#[test]
fn what_an_index_leaves_is_checked_in_mongods_order() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let collection = collection(&db, "c", &[], &[doc! { "c": 1 }]);
    let expression = doc! { "$size": ["$z"] };
    for (filter, wanted) in [
        (
            doc! { "c": 1, "d": 2, "e": { "$gt": 2 }, "$expr": (&expression), "f": { "$ne": 1 } },
            r#"{ $and: [ { f: { $not: { $eq: 1 } } }, { $expr: { $size: [ "$z" ] } }, { d: { $eq: 2 } }, { e: { $gt: 2 } } ] }"#,
        ),
        (
            doc! { "c": { "$exists": true, "$bitsAnySet": 1 }, "$expr": (&expression) },
            r#"{ $and: [ { c: { $exists: true } }, { $expr: { $size: [ "$z" ] } }, { c: { $bitsAnySet: [ 0 ] } } ] }"#,
        ),
        (
            doc! { "c": 1, "g": { "$type": 2 }, "d": 2, "$or": [{ "h": 1 }, { "i": 1 }] },
            r#"{ $and: [ { $or: [ { h: { $eq: 1 } }, { i: { $eq: 1 } } ] }, { d: { $eq: 2 } }, { g: { $type: [ 2 ] } } ] }"#,
        ),
    ] {
        let context = Context::default();
        let parsed = Filter::parse(filter.as_doc(), &context).unwrap();
        let plan = planner::plan(&collection.state(), &Query::new(parsed, context)).unwrap();
        let Stage::Fetch(fetch) = &plan.root else { panic!("{}", plan.summary()) };
        let rest = fetch.filter.as_ref().unwrap().to_doc();
        assert_eq!(rest.as_doc().to_string(), wanted);
    }
}

/// A plan that fails in a trial ends the query, even if another plan would have succeeded.
#[test]
fn a_plan_that_fails_in_a_trial_ends_the_query() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let docs = [doc! { "_id": 1, "a": 1, "b": 2 }, doc! { "_id": 2, "a": 1, "b": 1, "z": [1] }];
    let filter = doc! { "a": 1, "b": 1, "$expr": { "$gte": [{ "$size": "$z" }, 0] } };
    let trying = "error while multiplanner was selecting best plan :: caused by :: ";
    let mut names = (0..).map(|number| format!("c{number}"));
    for (indexes, wanted) in
        [(vec![doc! { "a": 1 }, doc! { "b": 1 }], Some(trying)), (vec![doc! { "b": 1 }], None)]
    {
        // A document that may have changed since the scan began is checked with the whole query,
        // whose conditions have another order; here the clean-up after an index build does that. So
        // the attempt is repeated after a write.
        let chosen = names.by_ref().find_map(|name| {
            let collection = collection(&db, &name, &docs, &indexes);
            let stamp = db.moment();
            let context = Context::default();
            let query = Query::new(Filter::parse(filter.as_doc(), &context).unwrap(), context);
            let wording = Wording::default();
            let chosen = choice::choose(
                Unit::new(&db),
                &collection,
                query,
                &wording,
                TimeBudget::Long,
                &mut || Ok(()),
            );
            (db.moment() == stamp).then_some(chosen)
        });
        let chosen = chosen.expect("there are always more names");
        match (chosen, wanted) {
            (Err(error), Some(prefix)) => {
                let reason = "The argument to $size must be an array, but was of type: missing";
                assert_eq!(error.message(), format!("{prefix}{reason}"));
            }
            (Ok(_), None) => {}
            (chosen, _) => panic!("{indexes:?}: {:?}", chosen.err()),
        }
    }
}

/// An index finds the values less or greater than an array, whatever types the elements have.
#[test]
fn arrays_are_found_on_both_sides_of_an_array() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let constants = [
        doc! { "v": [5] },
        doc! { "v": [true] },
        doc! { "v": [[true]] },
        doc! { "v": [] },
        doc! { "v": ["x", 1] },
        doc! { "v": [Value::MaxKey] },
        doc! { "v": [[5], true] },
        doc! { "v": [Value::DateTime(7)] },
        doc! { "v": [[Value::DateTime(7)]] },
    ];
    let value = |doc: &DocBuf| doc.as_doc().get_raw(b"v").map(|value| value.to_buf()).unwrap();
    let docs: Vec<DocBuf> = constants
        .iter()
        .zip(1_i32..)
        .map(|(constant, id)| doc! { "_id": id, "a": (&value(constant)) })
        .collect();
    let collection = collection(&db, "c", &docs, &[doc! { "a": 1 }]);
    let mut random = Random(1);
    for constant in &constants {
        for op in ["$lt", "$lte", "$gt", "$gte", "$eq"] {
            let filter = DocBuf::build(|out| {
                out.begin_doc("a").append(op, &value(constant));
            });
            let context = Context::default();
            let parsed = Filter::parse(filter.as_doc(), &context).unwrap();
            let wanted: Vec<DocBuf> =
                docs.iter().filter(|doc| parsed.matches(doc.as_doc()).unwrap()).cloned().collect();
            let query = Query::new(parsed.clone(), context.clone());
            for plan in planner::plans(&collection.state(), &query).unwrap() {
                let query = Query::new(parsed.clone(), context.clone());
                let found = carry_out(&db, &collection, plan, query, &mut random);
                assert_eq!(sorted(found), sorted(wanted.clone()), "{}", filter.as_doc());
            }
        }
    }
}
