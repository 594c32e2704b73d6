//! Rows: many small documents with three indexes, while they outgrow the memory.
//!
//! The rows come in ten equal chunks. Within a chunk of 10·B rows, row j has the account
//! `B·chunk + (j mod B)` and the grade `j / B`: an account has exactly ten rows, spread over the
//! chunk, one of each grade. So what every find must return is known whatever has been inserted
//! since.

use crate::bson::Doc;
use crate::comparison::{
    Action, Axis, Comparison, Exercise, Group, Length, Sizes, Source, Step, inserts,
};
use crate::documents::passage;
use crate::message::Random;
use crate::operation::{Collection, Condition, Index, KeyKind, Shape, Value, number};

pub(super) static COMPARISON: Comparison = Comparison {
    name: "rows",
    title: "Rate against rows",
    about: "A hundred million rows of about 1 KB with three indexed columns: inserts in batches of 1,000, one by one, and \
            one by one waiting for the journal; finds by one condition (ten rows, 10 KB), by two conditions (one row), \
            and ten rows in the order of an index behind the first hundred; each against the number of rows, as the \
            data outgrows the memory. Servers that are started get a tenth of the data as their cache, but not less than \
            256 MB, the least that mongod takes; the operating system's own cache is not limited. Scale 1 is 100 million \
            rows.",
    groups: &[
        Group { id: "batch", title: "Insert in batches of 1,000 (per row)", axis: Axis::Rows },
        Group { id: "insert", title: "Insert one by one, 16 connections", axis: Axis::Rows },
        Group {
            id: "journaled",
            title: "Insert one by one waiting for the disk, 32 connections",
            axis: Axis::Rows,
        },
        Group { id: "one", title: "Find by one condition: 10 rows, 10 KB", axis: Axis::Rows },
        Group { id: "two", title: "Find by two conditions: 1 row", axis: Axis::Rows },
        Group { id: "sort", title: "Sort by an index, skip 100, 10 rows", axis: Axis::Rows },
    ],
    steps,
    cache_bytes: |sizes| Some((count(sizes) * ROW_BYTES / 10).max(256 << 20)),
};

const ROWS: Collection = Collection { name: "rows", key: KeyKind::Number };

const INDEXES: &[Index] = &[
    Index { name: "account", fields: &[number("account")], unique: false },
    Index { name: "grade", fields: &[number("grade")], unique: false },
    Index { name: "at", fields: &[number("at")], unique: false },
];

const ONE: usize = 1;
const TWO: usize = 2;
const SORT: usize = 3;

const ACCOUNT: Condition = Condition::Equal(number("account"));

const SHAPES: &[Shape] = &[
    Shape::Insert,
    Shape::Find { conditions: &[ACCOUNT], sort: None, skip: 0, limit: 0 },
    Shape::Find {
        conditions: &[ACCOUNT, Condition::Equal(number("grade"))],
        sort: None,
        skip: 0,
        limit: 0,
    },
    Shape::Find {
        conditions: &[Condition::AtLeast(number("at"))],
        sort: Some(number("at")),
        skip: 100,
        limit: 10,
    },
];

/// The approximate size of a row with its share of the indexes.
const ROW_BYTES: u64 = 1_100;

const CHUNKS: u64 = 10;

/// The number of rows with the same account.
const ACCOUNT_ROWS: u64 = 10;

/// The values of `at` are less than this prime, which is greater than the number of rows.
const AT_LIMIT: u64 = 2_147_483_647;

/// Returns the number of rows: whole chunks of whole accounts.
fn count(sizes: &Sizes) -> u64 {
    sizes.scaled(100_000_000, 5_000) / (CHUNKS * ACCOUNT_ROWS) * CHUNKS * ACCOUNT_ROWS
}

/// Returns the row's position in the order of `at`: steps of the golden ratio, which spread evenly
/// for any number of rows.
fn at(row: u64) -> i64 {
    ((row + 1) * 1_327_217_885 % AT_LIMIT) as i64
}

fn document(row: u64, chunk_rows: u64) -> Vec<u8> {
    let (chunk, place) = (row / chunk_rows, row % chunk_rows);
    let accounts = chunk_rows / ACCOUNT_ROWS;
    let mut random = Random::new(row + 5);
    Doc::new()
        .long("_id", row as i64)
        .long("account", (chunk * accounts + place % accounts) as i64)
        .long("grade", (place / accounts) as i64)
        .long("at", at(row))
        .double("amount", random.below(1_000_000) as f64 / 4.0)
        .str("text", passage(&mut random, 880))
        .finish()
}

fn steps(sizes: &Sizes) -> Vec<Step> {
    let all = count(sizes);
    let chunk = all / CHUNKS;
    let single = (chunk / 20).min(20_000);
    let journaled = (chunk / 50).min(2_000);
    let exercise = |connections, durable, length, classes, source| {
        Action::Exercise(Exercise {
            collection: ROWS,
            shapes: SHAPES,
            durable,
            connections,
            length,
            classes,
            source,
        })
    };
    let rows_of = move |row| document(row, chunk);
    let mut steps = vec![Step {
        group: None,
        name: "create".into(),
        x: 0.0,
        action: Action::Create(ROWS, INDEXES),
    }];
    for number in 0..CHUNKS {
        let (from, end) = (number * chunk, (number + 1) * chunk);
        let (batch_end, single_end) = (end - single - journaled, end - journaled);
        let mut add = |group: &'static str, action| {
            let name = format!("{group}, {end} rows");
            steps.push(Step { group: Some(group), name, x: end as f64, action });
        };
        let whole = Length::Source;
        add(
            "batch",
            exercise(2, false, whole, &["batch"], inserts(from, batch_end, 1_000, rows_of)),
        );
        add(
            "insert",
            exercise(16, false, whole, &["insert"], inserts(batch_end, single_end, 1, rows_of)),
        );
        add(
            "journaled",
            exercise(32, true, whole, &["insert"], inserts(single_end, end, 1, rows_of)),
        );
        if number == 0 {
            // Statistics of the first chunk are what a planner needs to see the indexes.
            let (name, action) = ("settle".into(), Action::Settle(ROWS));
            steps.push(Step { group: None, name, x: 0.0, action });
        }
        for (group, shape) in [("one", ONE), ("two", TWO), ("sort", SORT)] {
            let seed = sizes.seed + end;
            let source = Box::new(move || finds(shape, end, chunk, seed));
            let action =
                exercise(16, false, Length::Seconds(sizes.seconds / 2.0), &["find"], source);
            let name = format!("{group}, {end} rows");
            steps.push(Step { group: Some(group), name, x: end as f64, action });
        }
    }
    steps
}

/// Finds in the first `rows` rows.
fn finds(shape: usize, rows: u64, chunk: u64, seed: u64) -> Source {
    let mut random = Random::new(seed);
    let accounts = rows / ACCOUNT_ROWS;
    Box::new(move |_, operation| {
        operation.shape = shape;
        let account = random.below(accounts as usize) as i64;
        match shape {
            ONE => {
                operation.expected = ACCOUNT_ROWS;
                operation.values.push(Value::Number(account));
            }
            TWO => {
                operation.expected = 1;
                let grade = random.below(ACCOUNT_ROWS as usize) as u64;
                operation.values.extend([Value::Number(account), Value::Number(grade as i64)]);
                let accounts = chunk / ACCOUNT_ROWS;
                let (chunk_number, slot) = (account as u64 / accounts, account as u64 % accounts);
                if random.below(64) == 0 {
                    let row = chunk_number * chunk + grade * accounts + slot;
                    operation.content = Some(document(row, chunk));
                }
            }
            _ => {
                operation.expected = 10;
                // More than a hundred rows lie above the middle.
                let from = random.below(AT_LIMIT as usize / 2) as i64;
                operation.values.push(Value::Number(from));
            }
        }
        true
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::bson;

    #[test]
    fn an_account_has_ten_rows_of_different_grades() {
        let sizes = Sizes { scale: 1e-9, seconds: 1.0, seed: 1 };
        let all = count(&sizes);
        let mut accounts: HashMap<i64, Vec<i64>> = HashMap::new();
        for row in 0..all {
            let document = document(row, all / CHUNKS);
            let of = |name| bson::number(&document, name).expect("a number") as i64;
            accounts.entry(of("account")).or_default().push(of("grade"));
        }
        assert_eq!(accounts.len() as u64, all / ACCOUNT_ROWS);
        for grades in accounts.values_mut() {
            grades.sort_unstable();
            assert_eq!(*grades, (0..ACCOUNT_ROWS as i64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn places_differ_and_enough_lie_above_the_middle() {
        let mut places: Vec<i64> = (0..5_000).map(at).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 5_000);
        let above = places.iter().filter(|place| **place > AT_LIMIT as i64 / 2).count();
        assert!(above > 200);
    }
}
