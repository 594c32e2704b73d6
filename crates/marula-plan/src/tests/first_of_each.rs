//! The law of scans that jump: they return one matching document for each value of a field, and it
//! is the first in the sort order.

use std::collections::BTreeMap;

use super::*;

const KEYS: [&str; 4] = ["a", "b", "c", "o.x"];

/// Returns the value at a path without arrays, as a key that equal values share; a missing value is
/// null.
fn key_of(doc: &DocBuf, key: &str) -> Vec<u8> {
    let pattern = SortPattern::parse(sort_by(&[(key, 1)]).as_doc(), &Context::default()).unwrap();
    let mut bytes = Vec::new();
    pattern.write_key(doc.as_doc(), &mut bytes).unwrap();
    bytes
}

fn sort_by(parts: &[(&str, i32)]) -> DocBuf {
    DocBuf::build(|out| {
        for (path, direction) in parts {
            out.append(*path, *direction);
        }
    })
}

fn sort_key(sort: &SortPattern, doc: &DocBuf) -> Vec<u8> {
    let mut key = Vec::new();
    sort.write_key(doc.as_doc(), &mut key).unwrap();
    key
}

/// Returns whether the plan of a query jumps; if so, executes and checks it.
fn jumps(
    db: &Db,
    collection: &Arc<Collection>,
    docs: &[DocBuf],
    (filter, sort, key): (&DocBuf, Option<&DocBuf>, &str),
    random: &mut Random,
) -> bool {
    let context = Context::default();
    let parsed = Filter::parse(filter.as_doc(), &context).unwrap();
    let matching = parsed.clone();
    let mut query = Query::new(parsed, context.clone());
    query.filter.add_index_conditions(&context);
    query.sort = sort.map(|sort| SortPattern::parse(sort.as_doc(), &context).unwrap());
    query.first_of_each = Some(FieldPath::new(key));
    let Some(plan) = planner::plan_first_of_each(&collection.state(), &query).unwrap() else {
        return false;
    };
    let what = format!("{} sorted {sort:?} by {key}: {}", filter.as_doc(), plan.summary());
    assert!(plan.gives_first_of_each(), "{what}");
    let pattern = query.sort.clone();
    let found = carry_out(db, collection, plan, query, random);
    let mut groups: BTreeMap<Vec<u8>, Vec<&DocBuf>> = BTreeMap::new();
    for doc in docs.iter().filter(|doc| matching.matches(doc.as_doc()).unwrap()) {
        groups.entry(key_of(doc, key)).or_default().push(doc);
    }
    assert_eq!(found.len(), groups.len(), "{what}");
    for given in &found {
        let group = groups.remove(&key_of(given, key));
        let group = group.unwrap_or_else(|| panic!("twice or wrong, {what}: {}", given.as_doc()));
        assert!(group.contains(&given), "{what}: {}", given.as_doc());
        if let Some(pattern) = &pattern {
            let first = group.iter().map(|doc| sort_key(pattern, doc)).min();
            assert_eq!(Some(sort_key(pattern, given)), first, "{what}");
        }
    }
    if let Some(pattern) = &pattern {
        let keys: Vec<Vec<u8>> = found.iter().map(|doc| sort_key(pattern, doc)).collect();
        assert!(keys.is_sorted(), "{what}");
    }
    true
}

#[test]
fn a_walk_that_jumps_gives_the_first_of_each() {
    let mut random = Random(7);
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let docs: Vec<DocBuf> = (0..DOCUMENTS).map(|id| document(&mut random, id)).collect();
    let some_arrays = indexable(&docs);
    let is_array = |value: Option<Value<'_>>| matches!(value, Some(Value::Array(_)));
    let no_arrays: Vec<DocBuf> = some_arrays
        .iter()
        .filter(|doc| !["b", "c", "o"].iter().any(|name| is_array(doc.as_doc().get(*name))))
        .cloned()
        .collect();
    let sets: &[&[DocBuf]] = &[
        &[doc! { "a": 1, "b": (-1) }, doc! { "b": (-1) }],
        &[doc! { "a": (-1), "o.x": 1 }, doc! { "c": 1, "a": 1, "b": 1 }],
        &[
            doc! { "o.x": 1, "a": 1 },
            doc! { "key": { "c": 1 }, "sparse": true },
            doc! { "a": "hashed" },
        ],
        &[
            doc! { "key": { "a": 1 }, "partialFilterExpression": { "a": { "$gt": 2 } } },
            doc! { "b": 1, "a": 1, "c": 1 },
            doc! { "$**": 1 },
        ],
    ];
    let mut jumped = BTreeMap::new();
    for (is_plain, docs) in [(true, &no_arrays), (false, &some_arrays)] {
        for (number, indexes) in sets.iter().enumerate() {
            let collection = collection(&db, &format!("{is_plain}{number}"), docs, indexes);
            for _ in 0..QUERIES {
                let key = *random.of(&KEYS);
                let filter = match random.below(3) {
                    0 => DocBuf::new(),
                    _ => filter(&mut random, 1),
                };
                let (up, other) = (*random.of(&[1, -1]), *random.of(&KEYS));
                let sort = match random.below(4) {
                    0 | 1 => None,
                    2 => Some(sort_by(&[(key, up)])),
                    _ if other == key => Some(sort_by(&[(key, up)])),
                    _ => Some(sort_by(&[(key, up), (other, *random.of(&[1, -1]))])),
                };
                let asked = (&filter, sort.as_ref(), key);
                let is_one = jumps(&db, &collection, docs, asked, &mut random);
                *jumped
                    .entry((is_plain, sort.is_some(), filter.as_doc().is_empty()))
                    .or_insert(0) += i32::from(is_one);
            }
        }
    }
    // Some plans of each kind have jumped.
    assert!(jumped.len() == 8 && jumped.values().all(|&count| count > 0), "{jumped:?}");
}

/// The scanned index, the location of the value in its entries, and the queries that no scan
/// supports. Read from `explain` of mongod 6.0.27, except where Marula reads documents and mongod
/// reads entries that do not determine the value.
#[test]
fn jumps_are_planned_as_mongod_does() {
    let db = Db::open(Arc::new(Memory::new())).unwrap();
    let docs: Vec<DocBuf> = (0..20)
        .map(|id| doc! { "_id": id, "a": (id % 3), "b": (id % 2), "m": [1, (id % 5)], "d": { "e": (id % 4) } })
        .collect();
    let indexes = [
        doc! { "a": 1, "b": 1, "c": 1 },
        doc! { "a": 1, "m": 1 },
        doc! { "d.e": (-1) },
        doc! { "key": { "s": 1 }, "sparse": true },
        doc! { "h": 1, "g": "hashed" },
    ];
    let collection = collection(&db, "c", &docs, &indexes);
    let context = Context::default();
    let plan = |filter: DocBuf, sort: DocBuf, key: &str, needs: Option<&[&str]>, limit| {
        let parsed = Filter::parse(filter.as_doc(), &context).unwrap();
        let mut query = Query::new(parsed, context.clone());
        if !sort.as_doc().is_empty() {
            query.sort = Some(SortPattern::parse(sort.as_doc(), &context).unwrap());
        }
        query.shown = needs.map(|needs| Shown::paths(needs.iter().map(FieldPath::new).collect()));
        query.limit = limit;
        query.first_of_each = Some(FieldPath::new(key));
        planner::plan_first_of_each(&collection.state(), &query).unwrap()
    };
    let check = |filter: DocBuf, sort: DocBuf, key: &str, needs: &[&str], wanted: &str| {
        let what = format!("{} {} {key} {needs:?}", filter.as_doc(), sort.as_doc());
        let plan = plan(filter, sort, key, Some(needs), None);
        let told = plan.map_or_else(String::new, |plan| {
            let printed = crate::explain::Printed {
                sort: Doc::EMPTY,
                projection: Doc::EMPTY,
                has_run: false,
                sorts_records: false,
            };
            let tree = crate::explain::tree(&plan, None, &printed);
            let mut told = Vec::new();
            let mut stage = Some(tree.as_doc());
            while let Some(doc) = stage {
                let text =
                    |name: &str| doc.get(name).and_then(|it| it.as_str()).map(ToString::to_string);
                told.extend(text("stage"));
                told.extend(text("indexName"));
                stage = doc.get("inputStage").and_then(|input| input.as_doc());
            }
            told.join(" ")
        });
        assert_eq!(told, wanted, "{what}");
    };
    let none = DocBuf::new;
    let covered = |index: &str| format!("PROJECTION_COVERED DISTINCT_SCAN {index}");
    check(none(), none(), "a", &["a"], &covered("index1"));
    check(none(), none(), "a", &["a", "b"], "PROJECTION_SIMPLE FETCH DISTINCT_SCAN index1");
    check(none(), none(), "a", &["a", "m"], "PROJECTION_SIMPLE FETCH DISTINCT_SCAN index1");
    check(none(), doc! { "a": (-1) }, "a", &["a", "b"], &covered("index0"));
    check(none(), doc! { "a": 1, "b": 1 }, "a", &["a", "z"], "FETCH DISTINCT_SCAN index0");
    check(none(), doc! { "b": 1 }, "a", &["a"], "");
    check(none(), doc! { "a": 1, "b": (-1) }, "a", &["a"], "");
    check(none(), none(), "d.e", &["d.e"], "PROJECTION_DEFAULT DISTINCT_SCAN index2");
    check(none(), none(), "_id", &["_id"], &covered("_id_"));
    check(doc! { "_id": 3 }, none(), "_id", &["_id"], &covered("_id_"));
    check(doc! { "_id": 3 }, none(), "a", &["a"], "");
    check(doc! { "a": { "$gt": 1 } }, none(), "a", &["a"], &covered("index0"));
    check(doc! { "a": { "$gt": 1 }, "b": 1 }, none(), "a", &["a", "c"], &covered("index0"));
    check(doc! { "a": 1 }, doc! { "b": 1 }, "b", &["b"], &covered("index0"));
    check(doc! { "a": { "$gt": 0 } }, none(), "b", &["b"], "");
    check(doc! { "a": { "$in": [1, 2] } }, none(), "b", &["b"], "");
    check(doc! { "a": { "$gt": 0 }, "z": 1 }, none(), "a", &["a"], "");
    check(doc! { "a": { "$gt": 0 }, "b": { "$mod": [2, 1] } }, none(), "a", &["a"], "");
    check(none(), none(), "m", &["m"], "");
    check(none(), none(), "b", &["b"], "");
    check(none(), none(), "s", &["s"], "");
    check(doc! { "s": { "$gt": 0 } }, none(), "s", &["s"], &covered("index3"));
    check(none(), none(), "h", &["h"], &covered("index4"));
    check(none(), none(), "h", &["g", "h"], "PROJECTION_SIMPLE FETCH DISTINCT_SCAN index4");
    assert!(plan(none(), none(), "a", None, None).is_some());
    assert!(plan(none(), none(), "a", None, Some(3)).is_none());
}
