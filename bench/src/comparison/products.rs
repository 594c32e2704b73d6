//! Products: documents of a shop: loaded, indexed, measured on disk, found and scanned.

use crate::bson::Doc;
use crate::comparison::{
    Action, Axis, Comparison, Exercise, Group, Length, Sizes, Source, Step, inserts,
};
use crate::documents;
use crate::operation::{Collection, Condition, Index, KeyKind, Shape, Value, number, text};

pub(super) static COMPARISON: Comparison = Comparison {
    name: "products",
    title: "JSON documents of a shop",
    about: "MongoDB against PostgreSQL's JSONB, server CPU as the measure: 100,000 product documents of 2.6 KB are \
            loaded, three indexes are built, sizes are taken; 9,091 are found by an index, nothing is found by an index \
            and by a full scan, and documents are inserted one by one. Scale 1 is 100,000 documents.",
    groups: &[
        Group { id: "write", title: "Loading and indexing", axis: Axis::Steps },
        Group { id: "read", title: "Finding", axis: Axis::Steps },
        Group { id: "size", title: "Bytes on disk", axis: Axis::Steps },
    ],
    steps,
    cache_bytes: |_| None,
};

const PRODUCTS: Collection = Collection { name: "products", key: KeyKind::Number };

const SERIES: Index = Index { name: "series", fields: &[text("series")], unique: false };
const SKU: Index = Index { name: "sku", fields: &[text("sku")], unique: true };
const CATEGORY_SOLD: Index =
    Index { name: "category_sold", fields: &[text("category"), number("sold")], unique: false };

const FIND_SERIES: usize = 1;
const FIND_COLOUR: usize = 2;

const SHAPES: &[Shape] = &[
    Shape::Insert,
    Shape::Find { conditions: &[Condition::Equal(text("series"))], sort: None, skip: 0, limit: 0 },
    Shape::Find { conditions: &[Condition::Equal(text("colour"))], sort: None, skip: 0, limit: 0 },
];

/// Of 100,000 products 9,091 are of the first series.
const SERIES_COUNT: u64 = 11;

fn series(number: u64) -> String {
    format!("series-{:02}", number % SERIES_COUNT)
}

fn document(number: u64) -> Vec<u8> {
    let doc = Doc::new().long("_id", number as i64).str("series", &series(number));
    documents::product_from(doc, number).finish()
}

/// The same find over and over, `times` or without an end.
fn find(shape: usize, value: String, expected: u64, times: Option<u64>) -> Box<dyn Fn() -> Source> {
    Box::new(move || {
        let value = value.clone();
        let mut done = 0;
        Box::new(move |_, operation| {
            (operation.shape, operation.expected) = (shape, expected);
            operation.values.push(Value::Text(value.clone()));
            done += 1;
            times.is_none_or(|times| done <= times)
        })
    })
}

fn steps(sizes: &Sizes) -> Vec<Step> {
    let count = sizes.scaled(100_000, 200);
    let single = sizes.scaled(10_000, 50);
    let found = count.div_ceil(SERIES_COUNT);
    let exercise = |class: &'static [&'static str], length, source| {
        Action::Exercise(Exercise {
            collection: PRODUCTS,
            shapes: SHAPES,
            durable: false,
            connections: 1,
            length,
            classes: class,
            source,
        })
    };
    let step = |group, name: &str, action| Step { group, name: name.into(), x: 0.0, action };
    let write = |name: &str, action| step(Some("write"), name, action);
    let read = |name: &str, action| step(Some("read"), name, action);
    let none = |shape, value: &str, times| find(shape, value.into(), 0, times);
    vec![
        step(None, "create", Action::Create(PRODUCTS, &[])),
        write(
            "load by 1,000 (per document)",
            exercise(&["batch"], Length::Source, inserts(0, count, 1_000, document)),
        ),
        write("build an index over one string", Action::Build(PRODUCTS, SERIES)),
        write("build a unique index", Action::Build(PRODUCTS, SKU)),
        write("build an index over two fields", Action::Build(PRODUCTS, CATEGORY_SOLD)),
        step(None, "settle", Action::Settle(PRODUCTS)),
        step(Some("size"), "documents and three indexes, compacted", Action::Sizes(PRODUCTS)),
        // Data that was just rewritten on disk is in no cache; the finds are measured warm.
        step(
            None,
            "warm up",
            exercise(&["find"], Length::Source, find(FIND_SERIES, series(0), found, Some(1))),
        ),
        step(
            None,
            "warm up",
            exercise(&["find"], Length::Source, none(FIND_COLOUR, "no such colour", Some(1))),
        ),
        read(
            &format!("find {found} documents by an index"),
            exercise(&["find"], Length::Source, find(FIND_SERIES, series(0), found, Some(5))),
        ),
        read(
            "find nothing by an index",
            exercise(
                &["find"],
                Length::Seconds(sizes.seconds),
                none(FIND_SERIES, "no such series", None),
            ),
        ),
        read(
            "find nothing by a full scan",
            exercise(&["find"], Length::Source, none(FIND_COLOUR, "no such colour", Some(3))),
        ),
        write(
            "insert one by one",
            exercise(&["insert"], Length::Source, inserts(count, count + single, 1, document)),
        ),
    ]
}
