//! The cost of projecting a document: nanoseconds per document, by its size.
//!
//! `cargo bench -p marula-query --bench projection`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use marula_bson::{DocBuf, doc};
use marula_query::context::Context;
use marula_query::projection::{Metadata, Policy, Projection};

/// A document of `fields` text fields between its first fields and its last.
fn document(fields: usize) -> DocBuf {
    let text = "x".repeat(78);
    DocBuf::build(|out| {
        out.append("_id", 17).append("first", 1);
        for index in 0..fields {
            out.append(format!("text_{index}"), &text);
        }
        out.begin_doc("address").append("city", "Bern").append("zip", 3000);
        let mut list = out.begin_array("list");
        for number in 0..10 {
            list.push(&doc! { "n": number, "s": "text" });
        }
        drop(list);
        out.append("last", 5);
    })
}

/// Nanoseconds per call: the minimum of several runs, which excludes other work on the machine.
fn nanoseconds(run: &mut dyn FnMut()) -> f64 {
    let mut once = |count: u32| {
        let start = Instant::now();
        (0..count).for_each(|_| run());
        start.elapsed()
    };
    let mut count = 100;
    while once(count) < Duration::from_millis(20) {
        count *= 2;
    }
    let least = (0..5).map(|_| once(count)).min().unwrap_or_default();
    least.as_secs_f64() * 1e9 / f64::from(count)
}

fn main() {
    let context = Context::default();
    for fields in [2, 40, 1000] {
        let document = document(fields);
        println!("document of {} bytes", document.len());
        for written in [
            doc! { "first": 1 },
            doc! { "last": 1, "_id": 0 },
            doc! { "first": 0 },
            doc! { "last": 0, "address.zip": 0 },
            doc! { "address.city": 1, "list.n": 1 },
            doc! { "list": { "$slice": [2, 3] } },
            doc! { "list": { "$elemMatch": { "n": 7 } } },
            doc! { "sum": { "$add": ["$first", "$last"] } },
        ] {
            let mut projection =
                Projection::parse(written.as_doc(), Policy::Find, &context).expect("it is good");
            projection.optimize(&context).expect("its expressions are good");
            let mut out = Vec::new();
            let cost = nanoseconds(&mut || {
                out.clear();
                let metadata = Metadata::default();
                let doc = black_box(document.as_doc());
                projection.apply(doc, None, &metadata, &context, &mut out).expect("it applies");
                black_box(&out);
            });
            println!("  {:<50} {cost:>8.0} ns", written.as_doc().to_string());
        }
    }
}
