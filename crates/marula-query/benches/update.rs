//! The cost of an update: nanoseconds per document.
//!
//! `cargo bench -p marula-query --bench update`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use marula_bson::{DocBuf, Value};
use marula_query::context::Context;
use marula_query::update::{Matched, Update, UpdateOptions};

/// A document of `count` text fields of `bytes` bytes, with a number at the start and at the end.
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
    let options = UpdateOptions::default();
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
    let huge = document(1000, 90);
    println!("document of {} bytes", huge.len());
    measure_update("$inc of the second field of 1003", &huge, &inc("count"));
    measure_update("$inc of the last field of 1003", &huge, &inc("last"));
    measure_update("$set of 15 fields of 1003", &huge, &set);
    let push = DocBuf::build(|update| {
        update.begin_doc("$push").append("list", 1);
    });
    measure_update("$push to a new array, 18 fields", &small, &push);
    measure_update("$push to a new array, 1003 fields", &huge, &push);
}
