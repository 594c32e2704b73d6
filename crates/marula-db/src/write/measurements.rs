//! Inserts measurements into a time-series collection. They are grouped by meta value and added to
//! its open bucket or to new ones, so that one insert writes a bucket once.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use marula_bson::{Collator, Doc, DocBuf, Value, ValueBuf, key_string};
use marula_error::{Error, Result, codes, errors};
use marula_query::update::Touched;

use super::{Change, InsertReport, WriteOp, Written};
use crate::collection::{Collection, State};
use crate::index::IndexKind;
use crate::index::keys::{KeyMaker, KeySet, is_about_keys};
use crate::keys::RecordKey;
use crate::session::{Done, StatementIds};
use crate::time_series::bucket::{self, Bucket, Full};
use crate::time_series::open::Counters;
use crate::time_series::{TimeSeries, is_extended, normalize};

errors! {
    no_time(field: &str) = BadValue, "'{field}' must be present and contain a valid BSON UTC datetime value";
}

/// A measurement to be added to a bucket.
#[derive(Clone, Copy)]
struct Measurement<'d> {
    doc: Doc<'d>,
    time_ms: i64,
    position: usize,
}

/// The measurements of one meta value, in insertion order.
struct Group<'d> {
    /// `{ meta: <value> }` with its fields sorted; empty if there is none.
    meta: DocBuf,
    measurements: Vec<Measurement<'d>>,
    /// The number of them that are inserted or have failed.
    done: usize,
    /// Whether its last bucket was closed because it was full.
    is_reopened: bool,
}

impl<'d> Group<'d> {
    fn rest(&self) -> &[Measurement<'d>] {
        &self.measurements[self.done..]
    }
}

impl WriteOp<'_> {
    /// Inserts measurements into their bucket collection. An ordered insert stops at the first
    /// error.
    ///
    /// Each measurement is a statement of the session. The outer error does not belong to a
    /// measurement. Errors: `no_time` for each measurement without a valid time; those of an index
    /// that does not take one, without an order for those of its bucket's document and of later
    /// ones; a bucket that grows too large.
    pub fn insert_measurements<'d>(
        &mut self,
        buckets: &Collection,
        docs: &mut dyn Iterator<Item = Doc<'d>>,
        ordered: bool,
        report: &mut InsertReport,
    ) -> Result<()> {
        let state = buckets.state();
        let Some(options) = &state.options.time_series else { return Ok(()) };
        let mut groups = Groups::default();
        for (position, doc) in (report.attempted..).zip(docs) {
            if let Some(numbered) = &self.numbered {
                let number = self.ids.at(position);
                if numbered.done(number).is_some() {
                    report.inserted += 1;
                    report.retried.push(number);
                    continue;
                }
            }
            let measurement = bucket::time_of(options, doc)
                .map(|time_ms| Measurement { doc, time_ms, position })
                .ok_or_else(|| no_time(&options.time_field))
                // Without an order it is the bucket's document that fails.
                .and_then(|measurement| match ordered {
                    true => check_indexes(&state, options, &measurement).map(|()| measurement),
                    false => Ok(measurement),
                });
            match measurement {
                Ok(measurement) => groups.add(options, measurement),
                Err(error) => {
                    report.errors.push((position, error));
                    if ordered {
                        break;
                    }
                }
            }
        }
        if !options.extended_range && groups.has_extended {
            self.unit.db().note_extended_range(buckets)?;
        }
        // This module guarantees the form of a bucket.
        let bypassed = std::mem::replace(&mut self.bypass_validation, true);
        let outcome = self.insert_groups(buckets, &mut groups.list, report);
        self.bypass_validation = bypassed;
        report.errors.sort_by_key(|(position, _)| *position);
        outcome
    }

    /// Writes the documents of buckets in the order of their first measurements, as mongod does:
    /// after one that an index does not take, none is written.
    fn insert_groups(
        &mut self,
        buckets: &Collection,
        groups: &mut [Group<'_>],
        report: &mut InsertReport,
    ) -> Result<()> {
        let next_of = |group: &Group<'_>| group.rest().first().map(|first| first.position);
        let mut order: BinaryHeap<Reverse<(usize, usize)>> = (groups.iter().enumerate())
            .filter_map(|(number, group)| Some(Reverse((next_of(group)?, number))))
            .collect();
        while let Some(Reverse((_, number))) = order.pop() {
            let group = &mut groups[number];
            match self.insert_into_one(buckets, group, report) {
                Ok(()) => {}
                Err(error) if is_about_keys(&error) => {
                    let rest = groups.iter().flat_map(|group| group.rest());
                    report.errors.extend(rest.map(|one| (one.position, error.clone())));
                    return Ok(());
                }
                // A measurement that fits into no bucket fails alone.
                Err(error) if is_of_document(&error) => {
                    report.errors.push((group.rest()[0].position, error));
                    group.done += 1;
                }
                Err(error) => return Err(error),
            }
            order.extend(next_of(group).map(|position| Reverse((position, number))));
        }
        Ok(())
    }

    /// Adds the next measurements of a group to its open bucket, or begins another one with them.
    fn insert_into_one(
        &mut self,
        buckets: &Collection,
        group: &mut Group<'_>,
        report: &mut InsertReport,
    ) -> Result<()> {
        let open = buckets.open_buckets();
        let key = group.meta.as_doc().as_bytes();
        let _lane = open.lane(key);
        let rest = group.rest();
        let outcome = match open.get(key) {
            Some(record) => self.extend(buckets, group, &record, rest).inspect(|&(added, _)| {
                Counters::add(&open.counters.bucket_updates, usize::from(added > 0));
            }),
            None => self.begin(buckets, group, rest).map(|(record, added, full)| {
                Counters::add(&open.counters.bucket_inserts, 1);
                if !group.is_reopened {
                    Counters::add(&open.counters.opened_due_to_metadata, 1);
                }
                open.opened(key, record);
                (added, full)
            }),
        };
        let (added, full) = outcome.inspect_err(|_| open.closed(key, None))?;
        if added < rest.len() {
            open.closed(key, full);
            group.is_reopened = full.is_some();
        }
        Counters::add(&open.counters.measurements, added);
        report.inserted += added;
        group.done += added;
        Ok(())
    }

    /// Adds measurements to a bucket until it is full. Returns their number and why the bucket is
    /// full; `None` if its document is gone or belongs to another meta value.
    fn extend(
        &mut self,
        buckets: &Collection,
        group: &Group<'_>,
        record: &RecordKey,
        rest: &[Measurement<'_>],
    ) -> Result<(usize, Option<Full>)> {
        let (added, full) = (Cell::new(0), Cell::new(None));
        let state = buckets.state();
        let Some(options) = &state.options.time_series else { return Ok((0, None)) };
        let collator = collator(&state);
        let mut change = |document: Doc<'_>, out: &mut Vec<u8>| {
            added.set(0);
            full.set(None);
            let Some(mut bucket) = Bucket::load(options, document) else { return Ok(Change::Skip) };
            if bucket.meta().map(ValueBuf::get) != group.meta.as_doc().get("meta") {
                return Ok(Change::Skip);
            }
            let (count, why) = fill(&mut bucket, options, rest, collator);
            full.set(why);
            if count == 0 {
                return Ok(Change::Skip);
            }
            bucket.write(out);
            added.set(count);
            Ok(Change::Replace(Touched::All))
        };
        let ids = self.ids.clone();
        let statements = || statements_of(&rest[..added.get()], &ids);
        match self.update_as(buckets, record, &mut change, Some(&statements)) {
            Ok(Written::Changed) => Ok((added.get(), full.get())),
            Ok(_) => Ok((0, full.get())),
            // The document would be too large with all of them: they begin a new bucket.
            Err(error) if is_of_document(&error) => Ok((0, Some(Full::Size))),
            Err(error) => Err(error),
        }
    }

    /// Begins a bucket with the measurements that fit, at least one.
    fn begin(
        &mut self,
        buckets: &Collection,
        group: &Group<'_>,
        rest: &[Measurement<'_>],
    ) -> Result<(RecordKey, usize, Option<Full>)> {
        let state = buckets.state();
        let options = state.options.time_series.as_ref().expect("the collection is one of buckets");
        let meta = group.meta.as_doc().get("meta").map(|meta| meta.to_buf());
        let mut bucket = Bucket::begin(options, meta, rest[0].time_ms);
        let (added, full) = fill(&mut bucket, options, rest, collator(&state));
        let mut document = Vec::new();
        bucket.write(&mut document);
        let statements = statements_of(&rest[..added], &self.ids);
        self.insert_one(buckets, Doc::trusted(&document), &statements)?;
        let mut key = Vec::new();
        key_string::encode_part(Value::ObjectId(bucket.id()), false, None, &mut key);
        Ok((RecordKey::new(&key), added, full))
    }
}

/// The measurements of an insert, grouped by meta value.
#[derive(Default)]
struct Groups<'d> {
    list: Vec<Group<'d>>,
    places: HashMap<Vec<u8>, usize>,
    has_extended: bool,
}

impl<'d> Groups<'d> {
    fn add(&mut self, options: &TimeSeries, measurement: Measurement<'d>) {
        self.has_extended |= is_extended(measurement.time_ms);
        let mut meta = DocBuf::new();
        let field = options.meta_field.as_ref();
        if let Some(value) = field.and_then(|field| measurement.doc.get(field)) {
            normalize(value, &mut meta);
        }
        let place = match self.places.get(meta.as_doc().as_bytes()) {
            Some(&place) => place,
            None => {
                self.places.insert(meta.as_doc().as_bytes().to_vec(), self.list.len());
                let measurements = Vec::new();
                self.list.push(Group { meta, measurements, done: 0, is_reopened: false });
                self.list.len() - 1
            }
        };
        self.list[place].measurements.push(measurement);
    }
}

/// Adds measurements until one does not fit.
fn fill(
    bucket: &mut Bucket,
    options: &TimeSeries,
    measurements: &[Measurement<'_>],
    collator: Option<&dyn Collator>,
) -> (usize, Option<Full>) {
    for (count, measurement) in measurements.iter().enumerate() {
        let pushed = bucket.push(options, measurement.doc, measurement.time_ms, collator);
        if let Err(full) = pushed {
            return (count, Some(full));
        }
    }
    (measurements.len(), None)
}

fn collator(state: &State) -> Option<&dyn Collator> {
    state.options.collation.as_ref().map(|collation| collation.collator())
}

fn statements_of(measurements: &[Measurement<'_>], ids: &StatementIds) -> Vec<(i32, Done)> {
    let done = |measurement: &Measurement<'_>| (ids.at(measurement.position), Done::Inserted);
    measurements.iter().map(done).collect()
}

/// Checks that the indexes take a measurement.
///
/// Errors: those of the indexes' keys.
fn check_indexes(state: &State, options: &TimeSeries, measurement: &Measurement<'_>) -> Result<()> {
    if state.indexes.is_empty() {
        return Ok(());
    }
    // Other values than places can be refused only if they are arrays.
    let has_array = has_array(measurement.doc);
    let mut indexes = (state.indexes.iter())
        .filter(|index| has_array || matches!(index.spec.kind, IndexKind::Places(_)))
        .peekable();
    if indexes.peek().is_none() {
        return Ok(());
    }
    let meta = options.meta_field.as_ref().and_then(|field| measurement.doc.get(field));
    let meta = meta.map(|meta| meta.to_buf());
    let mut bucket = Bucket::begin(options, meta, measurement.time_ms);
    fill(&mut bucket, options, std::slice::from_ref(measurement), collator(state));
    let (mut document, mut keys) = (Vec::new(), KeySet::default());
    bucket.write(&mut document);
    indexes.try_for_each(|index| {
        match KeyMaker::default().make(index, Doc::trusted(&document), &mut keys) {
            Err(error) if is_about_keys(&error) => Err(error),
            // Of anything else the write itself decides.
            _ => Ok(()),
        }
    })
}

/// Returns whether there is an array anywhere in a document. The depth of documents is bounded.
fn has_array(doc: Doc<'_>) -> bool {
    doc.iter().any(|element| match element.value.get() {
        Value::Array(_) => true,
        Value::Document(inner) => has_array(inner),
        _ => false,
    })
}

/// Returns whether an error is about the size or the depth of a document.
fn is_of_document(error: &Error) -> bool {
    [codes::BSONObjectTooLarge, codes::BadValue, codes::Overflow].contains(&error.code())
}
