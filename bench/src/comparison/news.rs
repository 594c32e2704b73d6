//! News: a million items with four indexes, written and read by key.

use crate::bson::Doc;
use crate::comparison::{
    Action, Axis, Comparison, Exercise, Group, Length, Sizes, Source, Step, inserts,
};
use crate::documents::{passage, words};
use crate::message::Random;
use crate::operation::{Collection, Condition, Index, KeyKind, Shape, Value, number, tags, text};

pub(super) static COMPARISON: Comparison = Comparison {
    name: "news",
    title: "News items by key",
    about: "MongoDB against Tokyo Tyrant's table database: 1.1 million news items of about 700 bytes with four secondary \
            indexes, one of them over tags; inserts by one and by 5 to 100 connections, then a million gets and a \
            million updates by key. Scale 1 is 1.1 million items: 500,000 loaded in batches, 100,000 inserted one by one \
            at each number of connections.",
    groups: &[
        Group { id: "load", title: "Load in batches of 1,000 (per item)", axis: Axis::Steps },
        Group { id: "insert", title: "Insert one by one, four indexes", axis: Axis::Connections },
        Group { id: "get", title: "Get by key", axis: Axis::Connections },
        Group { id: "update", title: "Update two fields by key", axis: Axis::Connections },
    ],
    steps,
    cache_bytes: |_| None,
};

const NEWS: Collection = Collection { name: "news", key: KeyKind::Number };

const INDEXES: &[Index] = &[
    Index { name: "published", fields: &[number("published")], unique: false },
    Index { name: "source", fields: &[text("source")], unique: false },
    Index { name: "section", fields: &[text("section")], unique: false },
    Index { name: "tags", fields: &[tags("tags")], unique: false },
];

const GET: usize = 1;
const UPDATE: usize = 2;

const SHAPES: &[Shape] = &[
    Shape::Insert,
    Shape::Find { conditions: &[Condition::Key], sort: None, skip: 0, limit: 1 },
    Shape::Update { by: Condition::Key, set: &["views", "state"] },
];

const INSERT_CONNECTIONS: [u64; 6] = [1, 5, 10, 20, 50, 100];
const KEY_CONNECTIONS: [usize; 2] = [1, 20];

/// The number of results of which one is compared as a whole: generating an item costs the client
/// more than sending it.
const COMPARED_EACH: usize = 64;

fn document(number: u64) -> Vec<u8> {
    let mut random = Random::new(number + 7_000_003);
    let words = words();
    // Tags of one item differ, because the index is on a set.
    let first = random.below(words.len() - 3);
    let tags: Vec<&str> = (0..3).map(|step| words[first + step]).collect();
    let source = format!("source {}", random.below(2_000));
    let section = format!("section {}", random.below(40));
    Doc::new()
        .long("_id", number as i64)
        .str("title", passage(&mut random, 60))
        .long("published", 1_200_000_000 + number as i64 * 7)
        .str("source", &source)
        .str("section", &section)
        .strings("tags", &tags)
        .str("state", "new     ")
        .long("views", random.below(100_000) as i64)
        .str("body", passage(&mut random, 420))
        .finish()
}

fn steps(sizes: &Sizes) -> Vec<Step> {
    let loaded = sizes.scaled(500_000, 500);
    let each = sizes.scaled(100_000, 100);
    let all = loaded + each * INSERT_CONNECTIONS.len() as u64;
    let keyed = sizes.scaled(1_000_000, 500);
    let seed = sizes.seed;
    let exercise = |connections, classes, source| {
        Action::Exercise(Exercise {
            collection: NEWS,
            shapes: SHAPES,
            durable: false,
            connections,
            length: Length::Source,
            classes,
            source,
        })
    };
    let mut steps = vec![
        Step { group: None, name: "create".into(), x: 0.0, action: Action::Create(NEWS, INDEXES) },
        Step {
            group: Some("load"),
            name: "load by 1,000".into(),
            x: 0.0,
            action: exercise(1, &["batch"], inserts(0, loaded, 1_000, document)),
        },
    ];
    for (place, connections) in INSERT_CONNECTIONS.into_iter().enumerate() {
        let from = loaded + each * place as u64;
        steps.push(Step {
            group: Some("insert"),
            name: format!("insert, {connections} connections"),
            x: connections as f64,
            action: exercise(
                connections as usize,
                &["insert"],
                inserts(from, from + each, 1, document),
            ),
        });
    }
    steps.push(Step { group: None, name: "settle".into(), x: 0.0, action: Action::Settle(NEWS) });
    for (group, class) in [("get", &["get"]), ("update", &["update"])] {
        for connections in KEY_CONNECTIONS {
            let source: Box<dyn Fn() -> Source> = match group {
                "get" => Box::new(move || gets(all, keyed, seed)),
                _ => Box::new(move || updates(all, keyed, seed)),
            };
            steps.push(Step {
                group: Some(group),
                name: format!("{group}, {connections} connections"),
                x: connections as f64,
                action: exercise(connections, class, source),
            });
        }
    }
    steps
}

/// Gets of `count` random items out of `all`.
fn gets(all: u64, count: u64, seed: u64) -> Source {
    let mut random = Random::new(seed);
    let mut done = 0;
    Box::new(move |_, operation| {
        let item = random.below(all as usize) as u64;
        (operation.shape, operation.expected) = (GET, 1);
        operation.values.push(Value::Number(item as i64));
        if random.below(COMPARED_EACH) == 0 {
            operation.content = Some(document(item));
        }
        done += 1;
        done <= count
    })
}

/// Updates of `count` random items out of `all`.
fn updates(all: u64, count: u64, seed: u64) -> Source {
    let mut random = Random::new(seed + 1);
    let mut done = 0;
    Box::new(move |_, operation| {
        operation.shape = UPDATE;
        operation.values.extend([
            Value::Number(random.below(all as usize) as i64),
            Value::Number(random.below(100_000) as i64),
            Value::Text("read    ".into()),
        ]);
        done += 1;
        done <= count
    })
}
