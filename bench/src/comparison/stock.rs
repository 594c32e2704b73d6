//! Stock: a small table that all clients update, one unique code at a time.

use crate::bson::Doc;
use crate::comparison::{
    Action, Axis, Comparison, Exercise, Group, Length, Sizes, Source, Step, inserts,
};
use crate::documents::{self, HOT_FIELDS};
use crate::message::Random;
use crate::operation::{Collection, Condition, Index, KeyKind, Shape, Value, text};

pub(super) static COMPARISON: Comparison = Comparison {
    name: "stock",
    title: "Concurrent updates of a stock table",
    about: "Three engines under concurrent updates: 1,000 documents of about 1 KB with a unique index over their code; \
            15 fields of one of them are set by code, at 1 to 1,024 connections; then the same with as many reads. \
            Scale 1 is 1,000 codes.",
    groups: &[
        Group { id: "update", title: "Update 15 fields by a unique code", axis: Axis::Connections },
        Group {
            id: "mixed",
            title: "The same updates, one read for each",
            axis: Axis::Connections,
        },
    ],
    steps,
    cache_bytes: |_| None,
};

const STOCK: Collection = Collection { name: "stock", key: KeyKind::Number };

const INDEXES: &[Index] = &[Index { name: "code", fields: &[text("code")], unique: true }];

const BY_CODE: Condition = Condition::Equal(text("code"));

const SHAPES: &[Shape] = &[
    Shape::Insert,
    Shape::Update { by: BY_CODE, set: &HOT_FIELDS },
    Shape::Find { conditions: &[BY_CODE], sort: None, skip: 0, limit: 1 },
    Shape::Find { conditions: &[], sort: None, skip: 0, limit: 0 },
];

const CONNECTIONS: [usize; 6] = [1, 4, 16, 64, 256, 1024];

fn document(number: u64) -> Vec<u8> {
    documents::hot_from(Doc::new().long("_id", number as i64), number as usize).finish()
}

fn steps(sizes: &Sizes) -> Vec<Step> {
    let codes = sizes.scaled(1_000, 100);
    let exercise = |connections, length, classes, source| {
        Action::Exercise(Exercise {
            collection: STOCK,
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
        prepare("create", Action::Create(STOCK, INDEXES)),
        prepare(
            "load",
            exercise(1, Length::Source, &["insert"], inserts(0, codes, 1_000, document)),
        ),
        prepare("settle", Action::Settle(STOCK)),
    ];
    let length = Length::Seconds(sizes.seconds);
    for (group, reads, name) in [("update", false, "update"), ("mixed", true, "update and read")] {
        for connections in CONNECTIONS {
            let seed = sizes.seed + connections as u64;
            let source = Box::new(move || updates(codes, seed, reads));
            steps.push(Step {
                group: Some(group),
                name: format!("{name}, {connections} connections"),
                x: connections as f64,
                action: exercise(connections, length, &["update", "read"], source),
            });
        }
    }
    // Updates neither lost nor doubled a document.
    let all: Box<dyn Fn() -> Source> = Box::new(move || {
        let mut left = 1;
        Box::new(move |_, operation| {
            (operation.shape, operation.expected) = (3, codes);
            left -= 1;
            left == 0
        })
    });
    steps.push(prepare("count", exercise(1, Length::Source, &["find"], all)));
    steps
}

/// Updates of random codes; with `reads`, every other operation of a connection is a read.
fn updates(codes: u64, seed: u64, reads: bool) -> Source {
    let mut random = Random::new(seed);
    let mut turn: Vec<bool> = Vec::new();
    Box::new(move |connection, operation| {
        if turn.len() <= connection {
            turn.resize(connection + 1, false);
        }
        let code = documents::code(random.below(codes as usize));
        operation.values.push(Value::Text(code));
        let read = reads && turn[connection];
        turn[connection] = !read;
        if read {
            (operation.shape, operation.class, operation.expected) = (2, 1, 1);
        } else {
            (operation.shape, operation.class) = (1, 0);
            operation.values.extend(HOT_FIELDS.iter().map(|_| {
                let letters = random.letters();
                let letters = std::str::from_utf8(&letters).expect("letters are ASCII");
                Value::Text(format!("{letters} in this field now"))
            }));
        }
        true
    })
}
