//! The cost of matching a filter: nanoseconds per document, by filter.
//!
//! The document has 40 fields and 2.6 KB; a few filters are also measured on documents of 100 bytes
//! and 100 KB. `cargo bench -p marula-query --bench filter`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use marula_bson::{DocBuf, doc};
use marula_query::context::Context;
use marula_query::filter::Filter;
use marula_query::sort::SortPattern;

/// A document of `fields` numbers and texts, an array, a document and a last field.
fn document(fields: i32) -> DocBuf {
    let text = "x".repeat(78);
    DocBuf::build(|out| {
        out.append("_id", 17_i64);
        for index in 0..fields {
            match index % 3 {
                0 => out.append(format!("number_{index}"), index),
                1 => out.append(format!("text_{index}"), &text),
                _ => out.append(format!("longer_text_{index}"), &text),
            };
        }
        let mut array = out.begin_array("tags");
        for tag in ["red", "green", "blue"] {
            array.push(tag);
        }
        drop(array);
        out.begin_doc("address").append("city", "Bern").append("zip", 3000);
        out.append("last", 5);
    })
}

/// Calls `run` for about a fifth of a second and prints nanoseconds per call.
fn measure(name: &str, mut run: impl FnMut() -> bool) {
    let once = |count: u32, run: &mut dyn FnMut() -> bool| {
        let start = Instant::now();
        for _ in 0..count {
            black_box(run());
        }
        start.elapsed()
    };
    let mut count = 1000;
    while once(count, &mut run) < Duration::from_millis(20) {
        count *= 2;
    }
    // The minimum of several runs excludes other work on the machine.
    let least = (0..10).map(|_| once(count, &mut run)).min().unwrap_or_default();
    println!("{name:<44} {:>8.1} ns", least.as_secs_f64() * 1e9 / f64::from(count));
}

fn main() {
    let document = document(36);
    println!("document of {} bytes, {} fields", document.len(), document.as_doc().iter().count());
    let many = DocBuf::build(|out| {
        let mut operators = out.begin_doc("last");
        let mut list = operators.begin_array("$in");
        for number in 0..1000 {
            list.push(number * 2 + 1);
        }
    });
    let filters = [
        doc! { "_id": 17_i64 },
        doc! { "number_18": 18 },
        doc! { "last": 5 },
        doc! { "last": 6 },
        doc! { "last": 5.0 },
        doc! { "absent": 5 },
        doc! { "last": { "$gt": 3, "$lt": 9 } },
        doc! { "number_0": 0, "number_18": 18, "last": 5 },
        doc! { "tags": "blue" },
        doc! { "address.city": "Bern" },
        doc! { "text_34": { "$regex": "^xxx" } },
        doc! { "text_34": { "$regex": "x{3}y" } },
        doc! { "tags": { "$elemMatch": { "$eq": "blue" } } },
        doc! { "$or": [{ "number_0": 5 }, { "last": { "$gte": 5 } }] },
        many,
    ];
    for filter in filters {
        let parsed = Filter::parse(filter.as_doc(), &Context::default()).expect("a good filter");
        let mut name = filter.as_doc().to_string();
        name.truncate(44);
        measure(&name, || parsed.matches(black_box(document.as_doc())).unwrap_or(false));
    }
    for (size, fields) in [("small", 1), ("large", 1500)] {
        let other = crate::document(fields);
        println!("{size} document of {} bytes", other.len());
        for filter in [
            doc! { "_id": 17_i64 },
            doc! { "last": { "$gt": 3, "$lt": 9 } },
            doc! { "tags": "blue" },
            doc! { "address.city": "Bern" },
            doc! { "absent": 5 },
        ] {
            let parsed = Filter::parse(filter.as_doc(), &Context::default()).expect("it is good");
            let name = format!("{size}: {}", filter.as_doc());
            measure(&name, || parsed.matches(black_box(other.as_doc())).unwrap_or(false));
        }
    }
    let filter =
        doc! { "number_18": { "$gt": 3, "$lt": 9 }, "text_1": "x", "last": { "$in": [1, 2] } };
    measure("parse of a filter with four conditions", || {
        Filter::parse(black_box(filter.as_doc()), &Context::default()).is_ok()
    });
    let pattern = SortPattern::parse(doc! { "last": -1, "_id": 1 }.as_doc(), &Context::default());
    let pattern = pattern.expect("a good pattern");
    let mut key = Vec::new();
    measure("sort key of two parts", || pattern.write_key(document.as_doc(), &mut key).is_ok());
}
