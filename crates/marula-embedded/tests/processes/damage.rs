//! A damaged log: a store that has lost synced writes is refused unless its owner accepts the loss;
//! a store that opens has a prefix of the writes, and a line in the log describes the loss.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use marula_embedded::{Embedded, EmbeddedOptions, OnDamage};
use marula_storage::contract::Folder;
use marula_storage::{Error, Space, Store};
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::{entries, number, open};

/// The number of records written, each in its own commit.
const COUNT: u64 = 200;

#[test]
fn a_damaged_log_leaves_a_prefix_and_a_warning() {
    // Without a global subscriber, a concurrent test can cache the warning's callsite as disabled.
    tracing::subscriber::set_global_default(Warnings::default()).expect("no other test sets one");
    let damages: [(fn(&Path), bool); 3] =
        [(cut_short, true), (flip_in_the_middle, true), (append_garbage, false)];
    for (damage, loses_synced_writes) in damages {
        let folder = Folder::new();
        write_all(folder.path());
        let log = newest_log(folder.path());
        damage(&log);
        if loses_synced_writes {
            let refused = Embedded::open(EmbeddedOptions::new(folder.path())).map(drop);
            let name = log.to_string_lossy();
            assert!(
                matches!(&refused, Err(Error::Corrupt(text)) if text.contains(&*name)),
                "{refused:?}"
            );
        }
        let warnings = Warnings::default();
        let store = tracing::subscriber::with_default(warnings.clone(), || {
            let mut options = EmbeddedOptions::new(folder.path());
            options.on_damage = match loses_synced_writes {
                true => OnDamage::CutOff,
                false => OnDamage::Refuse,
            };
            Embedded::open(options).expect("the store opens up to the damage")
        });
        let records = entries(&store, Space::Records, &[1]);
        let numbers = records
            .iter()
            .map(|(key, _)| u64::from_be_bytes(key[1..].try_into().expect("8 bytes")));
        assert!(numbers.eq(0..records.len() as u64), "not a prefix");
        let count = number(&store, Space::Catalog, b"\x01count").unwrap_or(0);
        assert_eq!(count, records.len() as i64);
        let warnings = warnings.texts.lock();
        let told = match loses_synced_writes {
            true => "cannot be read from byte",
            false => "the end of the log is damaged",
        };
        let is_told = warnings.iter().any(|text| text.contains(told));
        assert!(is_told, "{warnings:?}");
        drop(warnings);
        // Writes after the damage are kept.
        let mut txn = store.begin();
        txn.put(Space::Records, &[2; 9], b"");
        txn.commit().expect("it commits");
        drop(store);
        assert_eq!(entries(&open(folder.path()), Space::Records, &[2]).len(), 1);
    }
}

fn write_all(folder: &Path) {
    let store = open(folder);
    for id in 0..COUNT {
        let mut txn = store.begin();
        txn.put(Space::Records, &[&[1], &id.to_be_bytes()[..]].concat(), &[7; 300]);
        txn.add(b"\x01count", 1);
        txn.commit().expect("it commits");
    }
}

fn newest_log(folder: &Path) -> PathBuf {
    let files = fs::read_dir(folder.join("store")).expect("it is there");
    let paths = files.map(|file| file.expect("a file").path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "log")).max().expect("a log")
}

fn cut_short(log: &Path) {
    let bytes = fs::read(log).expect("it reads");
    fs::write(log, &bytes[..bytes.len() - 7]).expect("it writes");
}

fn flip_in_the_middle(log: &Path) {
    let mut bytes = fs::read(log).expect("it reads");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(log, bytes).expect("it writes");
}

fn append_garbage(log: &Path) {
    let mut bytes = fs::read(log).expect("it reads");
    bytes.extend_from_slice(&[0xA5; 1000]);
    fs::write(log, bytes).expect("it writes");
}

/// Collects log entries of level WARN and above.
#[derive(Clone, Default)]
struct Warnings {
    texts: Arc<Mutex<Vec<String>>>,
    spans: Arc<AtomicU64>,
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Text(&self.texts));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Text<'w>(&'w Mutex<Vec<String>>);

impl Visit for Text<'_> {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        self.0.lock().push(format!("{value:?}"));
    }
}
