//! Mixed: YCSB-like records, inserted, then read and updated by many connections.

use crate::bson::Doc;
use crate::comparison::{
    Action, Axis, Comparison, Exercise, Group, Length, Sizes, Source, Step, inserts,
};
use crate::message::Random;
use crate::operation::{Collection, Condition, KeyKind, Shape, Value};

pub(super) static COMPARISON: Comparison = Comparison {
    name: "mixed",
    title: "YCSB-like load of many connections",
    about: "Two versions under a load as YCSB makes it: records of ten fields of 100 bytes under a text key; inserts \
            alone, then 80% reads and 20% updates of one field, at 100, 200, 500 and 1,000 connections; keys are drawn \
            by Zipf's law. Scale 1 is a million records.",
    groups: &[
        Group { id: "insert", title: "Insert only", axis: Axis::Connections },
        Group { id: "mixed", title: "80% reads, 20% updates", axis: Axis::Connections },
    ],
    steps,
    cache_bytes: |_| None,
};

const RECORDS: Collection = Collection { name: "usertable", key: KeyKind::Text };

const READ: usize = 1;
const UPDATE: usize = 2;

const FIELDS: [&str; 10] = [
    "field0", "field1", "field2", "field3", "field4", "field5", "field6", "field7", "field8",
    "field9",
];

const SHAPES: &[Shape] = &[
    Shape::Insert,
    Shape::Find { conditions: &[Condition::Key], sort: None, skip: 0, limit: 1 },
    Shape::Update { by: Condition::Key, set: &["field0"] },
];

const CONNECTIONS: [usize; 4] = [100, 200, 500, 1_000];

const FIELD_BYTES: usize = 100;

/// Keys do not come in order: YCSB hashes its record numbers.
fn key(number: u64) -> String {
    format!("user{:020}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

fn letters(random: &mut Random) -> String {
    let mut text = String::with_capacity(FIELD_BYTES + 8);
    while text.len() < FIELD_BYTES {
        text.extend(random.letters().map(char::from));
    }
    text.truncate(FIELD_BYTES);
    text
}

fn document(number: u64) -> Vec<u8> {
    let mut random = Random::new(number + 11);
    let doc = Doc::new().str("_id", &key(number));
    FIELDS.iter().fold(doc, |doc, field| doc.str(field, &letters(&mut random))).finish()
}

/// Numbers below a limit by Zipf's law with the constant that YCSB uses, the smallest most often.
///
/// Source: Gray et al., "Quickly generating billion-record synthetic databases" (1994).
struct Zipf {
    count: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

const THETA: f64 = 0.99;

impl Zipf {
    fn new(count: u64) -> Zipf {
        let zeta = |n: u64| (1..=n).map(|i| (i as f64).powf(-THETA)).sum::<f64>();
        let all = zeta(count);
        let count = count as f64;
        let eta = (1.0 - (2.0 / count).powf(1.0 - THETA)) / (1.0 - zeta(2) / all);
        Zipf { count, zeta: all, alpha: 1.0 / (1.0 - THETA), eta }
    }

    fn next(&self, random: &mut Random) -> u64 {
        let uniform = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(THETA) {
            return 1;
        }
        let place = self.count * (self.eta * uniform - self.eta + 1.0).powf(self.alpha);
        (place as u64).min(self.count as u64 - 1)
    }
}

fn steps(sizes: &Sizes) -> Vec<Step> {
    let count = sizes.scaled(1_000_000, 1_000);
    let seed = sizes.seed;
    let exercise = |connections, length, classes, source| {
        Action::Exercise(Exercise {
            collection: RECORDS,
            shapes: SHAPES,
            durable: false,
            connections,
            length,
            classes,
            source,
        })
    };
    let prepare = |name: &str, action| Step { group: None, name: name.into(), x: 0.0, action };
    let mut steps = vec![
        prepare("create", Action::Create(RECORDS, &[])),
        prepare(
            "load",
            exercise(4, Length::Source, &["batch"], inserts(0, count, 1_000, document)),
        ),
        prepare("settle", Action::Settle(RECORDS)),
    ];
    let length = Length::Seconds(sizes.seconds);
    for connections in CONNECTIONS {
        // Numbers of their own for each step: how many fit the time differs from server to server.
        let from = (connections as u64) << 40;
        steps.push(Step {
            group: Some("insert"),
            name: format!("insert, {connections} connections"),
            x: connections as f64,
            action: exercise(
                connections,
                length,
                &["insert"],
                inserts(from, u64::MAX, 1, document),
            ),
        });
    }
    steps.push(prepare("settle", Action::Settle(RECORDS)));
    for connections in CONNECTIONS {
        steps.push(Step {
            group: Some("mixed"),
            name: format!("80/20, {connections} connections"),
            x: connections as f64,
            action: exercise(
                connections,
                length,
                &["read", "update"],
                Box::new(move || mix(count, seed + connections as u64)),
            ),
        });
    }
    steps
}

/// Four reads for each update, of records below `count`.
fn mix(count: u64, seed: u64) -> Source {
    let mut random = Random::new(seed);
    let zipf = Zipf::new(count);
    Box::new(move |_, operation| {
        operation.values.push(Value::Text(key(zipf.next(&mut random))));
        if random.below(5) > 0 {
            (operation.shape, operation.class, operation.expected) = (READ, 0, 1);
        } else {
            (operation.shape, operation.class) = (UPDATE, 1);
            operation.values.push(Value::Text(letters(&mut random)));
        }
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_are_drawn_most() {
        let (zipf, mut random) = (Zipf::new(1_000), Random::new(1));
        let mut drawn = [0; 1_000];
        (0..100_000).for_each(|_| drawn[zipf.next(&mut random) as usize] += 1);
        assert!(drawn[0] > 2 * drawn[2]);
        assert!(drawn[2] > drawn[200]);
        assert!(drawn[500..].iter().sum::<i32>() > 1_000);
    }

    #[test]
    fn a_record_is_a_kilobyte() {
        assert!((1_000..1_300).contains(&document(5).len()));
    }
}
