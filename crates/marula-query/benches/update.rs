//! What an update and a projection cost: nanoseconds per document.
//!
//! `cargo bench -p marula-query --bench update`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use marula_bson::{DocBuf, Value};
use marula_query::context::Context;
use marula_query::projection::{Metadata, Policy, Projection};
use marula_query::update::{Matched, Update, UpdateOptions};

/// A document of `count` text fields of `bytes` bytes, with a number at the front and at the back.
fn document(count: usize, bytes: usize) -> DocBuf {
    let text = "x".repeat(bytes);
    DocBuf::build(|out| {
        out.append("_id", 17_i64).append("count", 1);
        for index in 0..count {
            out.append(format!("field{index}"), &text);
        }
        out.append("last", 5);
    })
}

/// Calls `run` for about a fifth of a second and prints nanoseconds per call.
fn measure(name: &str, mut run: impl FnMut() -> usize) {
    let mut count = 1_u32;
    let elapsed = loop {
        let start = Instant::now();
        for _ in 0..count {
            black_box(run());
        }
        let elapsed = start.elapsed();
        if elapsed > Duration::from_millis(200) {
            break elapsed;
        }
        count = count.saturating_mul(2);
    };
    println!("{name:<45} {:>8.0} ns", elapsed.as_secs_f64() * 1e9 / f64::from(count));
}

fn measure_update(name: &str, doc: &DocBuf, update: &DocBuf) {
    let context = Context::default();
    let options = UpdateOptions { array_filters: None, constants: None, multi: false };
    let update =
        Update::parse(Value::from(update), &options, &context).expect("the update is good");
    let mut out = Vec::new();
    measure(name, || {
        out.clear();
        let applied = update.apply(doc.as_doc(), &Matched::default(), &context, &mut out);
        assert!(applied.expect("the update applies").changed);
        out.len()
    });
}

fn measure_projection(name: &str, doc: &DocBuf, spec: &DocBuf) {
    let context = Context::default();
    let projection =
        Projection::parse(spec.as_doc(), Policy::Find, &context).expect("the projection is good");
    let mut out = Vec::new();
    measure(name, || {
        out.clear();
        projection
            .apply(doc.as_doc(), None, &Metadata::default(), &context, &mut out)
            .expect("the projection applies");
        out.len()
    });
}

fn main() {
    let small = document(15, 25);
    let large = document(37, 55);
    let set = DocBuf::build(|update| {
        let mut fields = update.begin_doc("$set");
        for index in 0..15 {
            fields.append(format!("field{index}"), "a text of twenty-five bytes");
        }
    });
    println!("documents of {} and {} bytes", small.len(), large.len());
    measure_update("$set of 15 fields of 18", &small, &set);
    let inc = |name: &str| {
        DocBuf::build(|update| {
            update.begin_doc("$inc").append(name, 1);
        })
    };
    measure_update("$inc of the second field of 40", &large, &inc("count"));
    measure_update("$inc of the last field of 40", &large, &inc("last"));
    measure_update("$inc of a new field of 41", &large, &inc("new"));
    let project = |first: &str, second: &str| {
        DocBuf::build(|spec| {
            spec.append(first, 1).append(second, 1);
        })
    };
    measure_projection("2 fields of 40, early", &large, &project("count", "field5"));
    measure_projection("2 fields of 40, to the end", &large, &project("field5", "last"));
    measure_projection(
        "all but 2 fields of 40",
        &large,
        &DocBuf::build(|spec| {
            spec.append("field5", 0).append("field20", 0);
        }),
    );
}
