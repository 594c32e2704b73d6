//! The log line about a slow transaction.
//!
//! Source: manual "Log Messages"; attributes recorded from mongod 6.0.

use std::ops::AddAssign;
use std::time::Duration;

use marula_bson::{Doc, DocWriter, long};
use marula_db::unit::{Examined, KeyChanges};

use super::Entry;
use super::report::write_parameters;
use crate::log::attributes;
use crate::request::Request;
use crate::row::Kind;
use crate::session::Lsid;

/// The counts of a transaction's requests. A count that is absent is not shown.
#[derive(Clone, Copy, Default)]
pub struct Work([Option<i64>; NAMES.len()]);

const NAMES: [&str; 11] = [
    "keysExamined",
    "docsExamined",
    "nMatched",
    "nreturned",
    "nBatches",
    "nModified",
    "ninserted",
    "ndeleted",
    "nUpserted",
    "keysInserted",
    "keysDeleted",
];

impl AddAssign for Work {
    fn add_assign(&mut self, more: Work) {
        for (sum, more) in self.0.iter_mut().zip(more.0) {
            *sum = sum.map_or(more, |sum| Some(sum + more.unwrap_or(0)));
        }
    }
}

impl Work {
    /// Returns the counts of a request: the keys and documents that it has examined, the index keys
    /// that it has written, and those in its reply.
    pub(crate) fn of(
        request: &Request<'_>,
        examined: Examined,
        changed: KeyChanges,
        reply: Doc<'_>,
    ) -> Self {
        let mut work = Work::default();
        work.set("keysInserted", changed.inserted.map(long));
        work.set("keysDeleted", changed.deleted.map(long));
        let reads = request.command.kind != Kind::Insert;
        if reads && !matches!(request.command.name, "commitTransaction" | "abortTransaction") {
            work.set("keysExamined", Some(long(examined.keys)));
            work.set("docsExamined", Some(long(examined.docs)));
        }
        let number = |name: &str| reply.get(name).and_then(|value| value.as_exact_i64());
        let count = |list: Option<Doc<'_>>| list.map(|list| long(list.iter().count() as u64));
        match request.command.name {
            "insert" => work.set("ninserted", number("n")),
            "delete" => work.set("ndeleted", number("n")),
            "update" => {
                let upserted = reply.get("upserted").and_then(|list| list.as_array());
                let upserted = count(upserted).unwrap_or(0);
                work.set("nMatched", number("n").map(|n| n - upserted));
                work.set("nModified", number("nModified"));
                work.set("nUpserted", Some(upserted));
            }
            _ => {}
        }
        let cursor = reply.get("cursor").and_then(|cursor| cursor.as_doc());
        let batch = cursor.and_then(|cursor| cursor.get("firstBatch").or(cursor.get("nextBatch")));
        if let Some(batch) = batch.and_then(|batch| batch.as_array()) {
            work.set("nreturned", count(Some(batch)));
            work.set("nBatches", Some(1));
        }
        work
    }

    fn set(&mut self, name: &str, count: Option<i64>) {
        let place = NAMES.iter().position(|known| *known == name);
        self.0[place.expect("the name is one of them")] = count;
    }

    fn write(&self, out: &mut DocWriter<'_>) {
        for (name, count) in NAMES.iter().zip(self.0) {
            if let Some(count) = count {
                out.append(name, count);
            }
        }
    }
}

/// Writes the line of a transaction that has ended; `cause` is the kind of end.
pub(super) fn log(lsid: &Lsid, entry: &Entry, cause: &str) {
    let micros = |time: Duration| long(time.as_micros());
    let (open, active) = (micros(entry.clock.began.elapsed()), micros(entry.clock.active()));
    let time = entry.read_time;
    let attr = attributes(|out| {
        let mut parameters = out.begin_doc("parameters");
        lsid.write(&mut parameters.begin_doc("lsid"));
        write_parameters(entry.number, &entry.read_concern, &mut parameters);
        parameters.finish();
        let time = format!("Timestamp({}, {})", time >> 32, time & 0xFFFF_FFFF);
        out.append("readTimestamp", time.as_str());
        entry.work.write(out);
        out.append("terminationCause", cause);
        out.append("timeActiveMicros", active);
        out.append("timeInactiveMicros", open.saturating_sub(active));
        out.append("numYields", 0);
        out.begin_doc("locks").finish();
        out.begin_doc("storage").finish();
        out.append("wasPrepared", false);
        out.append("durationMillis", open / 1_000);
    });
    tracing::info!(target: "TXN", id = 51_802, attr, "transaction");
}
