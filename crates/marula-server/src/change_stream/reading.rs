//! Reads the oplog from a position on and makes events of its entries.

use std::collections::VecDeque;
use std::sync::Arc;

use marula_bson::{Doc, DocBuf, Value};
use marula_db::oplog::Scope;
use marula_db::{Db, Namespace};
use marula_error::{Result, errors};
use marula_query::stage::{ChangeStream, EventConditions};
use marula_storage::{Direction, KeyRange, View};

use super::LABEL;
use super::event::{Event, Maker, Operation};
use super::token::{Position, Token, Version};

errors! {
    history_lost() = ChangeStreamHistoryLost, "Resume of change stream was not possible, as the resume point may no longer be in the oplog. ";
    not_found(token: &str) = ChangeStreamFatalError, "cannot resume stream; the resume token was not found. {{_data: \"{token}\"}}";
}

/// The maximum size of the events of one step, unless a single event is larger.
const STEP_BYTES: usize = 256 * 1024;
/// The maximum number of entries that one step reads.
const STEP_ENTRIES: usize = 1_000;

/// Events in their order, shared by the streams that show them.
pub(super) type Batch = VecDeque<Arc<Event>>;

/// A reader of the oplog.
pub(super) struct Reading {
    pub(super) db: Arc<Db>,
    pub(super) stream: ChangeStream,
    pub(super) scope: Scope,
    pub(super) version: Version,
    /// The position after which events are returned.
    pub(super) position: Position,
    /// The newest entry when the end was last reached: nothing is read until there is a newer one.
    read_to: u64,
    /// The event after which the stream continues, until it has been found.
    awaited: Option<Token>,
    /// The conditions that decide whether documents are looked up for an event.
    pub(super) conditions: Option<EventConditions>,
    /// The events of the current step.
    events: Batch,
    events_bytes: usize,
}

impl Reading {
    /// Returns a reader of the events after a position, and after the event `awaited`.
    pub(super) fn new(
        db: Arc<Db>,
        stream: ChangeStream,
        scope: Scope,
        version: Version,
        position: Position,
        awaited: Option<Token>,
    ) -> Reading {
        let (read_to, conditions, events, events_bytes) = (0, None, Batch::new(), 0);
        Reading {
            db,
            stream,
            scope,
            version,
            position,
            read_to,
            awaited,
            conditions,
            events,
            events_bytes,
        }
    }

    /// Returns a reader that makes the same events, from the same position on.
    pub(super) fn another(&self) -> Reading {
        let (stream, scope) = (self.stream.clone(), self.scope.clone());
        Reading::new(self.db.clone(), stream, scope, self.version, self.position, None)
    }

    /// Returns whether the event after which the stream continues has been found.
    pub(super) fn is_resumed(&self) -> bool {
        self.awaited.is_none()
    }

    /// Has the reader know what other nodes have logged.
    ///
    /// Errors: those of the store.
    pub(super) fn renew(&self) -> Result<()> {
        self.db.renew_oplog()
    }

    /// Returns whether nothing has been logged since the end was reached.
    pub(super) fn is_at_end(&self) -> bool {
        self.db.oplog().newest() == self.read_to
    }

    /// Returns whether its position is later than that of the next entry.
    pub(super) fn is_ahead(&self) -> bool {
        self.position.time > self.db.oplog().newest().saturating_add(1)
    }

    /// Checks that the oplog still has the entries after its position.
    ///
    /// Errors: `history_lost`.
    pub(super) fn check_history(&self) -> Result<()> {
        let oplog = self.db.oplog();
        match oplog.is_on() && self.position.time >= oplog.since() {
            true => Ok(()),
            false => Err(history_lost().with_label(LABEL)),
        }
    }

    /// Returns the next events, and whether the end of the oplog was reached.
    ///
    /// Errors: `history_lost`, `not_found`, those of a document that an event requires.
    pub(super) fn step(&mut self) -> Result<(Batch, bool)> {
        let is_at_end = self.read()?;
        self.events_bytes = 0;
        Ok((std::mem::take(&mut self.events), is_at_end))
    }

    fn read(&mut self) -> Result<bool> {
        self.check_history()?;
        let Some(collection) = self.db.oplog().collection() else {
            return Err(history_lost().with_label(LABEL));
        };
        let newest = self.db.oplog().newest();
        if newest == self.read_to {
            return Ok(true);
        }
        let view = self.db.view_now()?;
        let range = KeyRange {
            start: self.position.time.to_be_bytes().to_vec(),
            end: newest.saturating_add(1).to_be_bytes().to_vec(),
        };
        if range.start >= range.end {
            self.read_to = newest;
            return Ok(true);
        }
        let mut cursor = collection.scan_between(&*view, &range, Direction::Forward)?;
        let mut get = |time: u64, visit: &mut dyn FnMut(Doc<'_>)| {
            collection.get(&*view, &time.to_be_bytes(), &mut Vec::new(), visit)
        };
        let mut entries = 0;
        while cursor.advance()? {
            self.take(&*view, cursor.doc(), &mut get)?;
            if let Some(Value::Timestamp(time)) = cursor.doc().get("ts") {
                self.position = self.position.max(Position::before(time));
            }
            entries += 1;
            if self.is_full() || entries >= STEP_ENTRIES {
                return Ok(false);
            }
        }
        // Entries that were trimmed in the meantime may be missing.
        self.db.renew_oplog_at(&*view)?;
        self.check_history()?;
        self.read_to = newest;
        // Between the events, if there was none since the last.
        if self.events.is_empty() && newest > self.position.time {
            self.position = Position::before(newest);
        }
        Ok(true)
    }

    /// Returns whether the step has enough events, or the last one of its stream.
    fn is_full(&self) -> bool {
        let is_ending = self.events.back().is_some_and(|event| event.token.position.is_end);
        is_ending || self.events_bytes >= STEP_BYTES
    }

    /// Makes the events of an entry; for a large one, the next ones.
    fn take(&mut self, view: &dyn View, entry: Doc<'_>, get: Get<'_>) -> Result<()> {
        let Some(Value::Timestamp(time)) = entry.get("ts") else { return Ok(()) };
        let wall = entry.get("wall").unwrap_or(Value::Null);
        let is_transaction = entry.get("lsid").is_some() && list_of(entry).is_some();
        if !is_transaction {
            let operation = Operation { fields: entry, transaction: None, time, wall, number: 0 };
            return self.add(view, &operation);
        }
        // Its events are made with the last of its entries.
        if entry.get("o").and_then(|o| o.as_doc()?.get("partialTxn")).is_some() {
            return Ok(());
        }
        let mut number = 0;
        let mut take_list = |part: Doc<'_>| {
            let list = list_of(part).unwrap_or(Doc::EMPTY);
            list.values().filter_map(|value| value.as_doc()).try_for_each(|fields| {
                let operation = Operation { fields, transaction: Some(entry), time, wall, number };
                number += 1;
                self.add(view, &operation)
            })
        };
        for part in earlier_parts(entry, get)? {
            let mut taken = Ok(());
            let is_there = get(part, &mut |part| taken = take_list(part))?;
            taken?;
            if !is_there {
                return Err(history_lost().with_label(LABEL));
            }
        }
        take_list(entry)
    }

    /// Makes the event of an operation, if it is shown and is after the stream's position.
    fn add(&mut self, view: &dyn View, operation: &Operation<'_>) -> Result<()> {
        if self.is_full() {
            return Ok(());
        }
        let position = Position {
            time: operation.time,
            is_event: true,
            operation: operation.number,
            is_end: false,
        };
        let awaited = self.awaited.as_ref().map(|awaited| awaited.position);
        if position <= self.position || awaited.is_some_and(|awaited| position < awaited) {
            return Ok(());
        }
        let db = self.db.clone();
        let maker = Maker {
            stream: &self.stream,
            scope: &self.scope,
            version: self.version,
            conditions: self.conditions.as_ref(),
            look_up: &|uuid, id| look_up(&db, uuid, operation.fields, id),
            image: &|image| image.find(&db, view),
        };
        let Some(event) = maker.event(operation)? else { return Ok(()) };
        let end = event.ends.then(|| maker.end(&event, operation));
        self.position = end.as_ref().map_or(position, |end| end.token.position);
        if let Some(awaited) = self.awaited.take() {
            if !awaited.is_of(&event.token) {
                return Err(not_found(&event.token.data).with_label(LABEL));
            }
            // After a fragment, the event is split again.
            if awaited.data.len() > event.token.data.len() {
                self.push(event);
            }
        } else {
            self.push(event);
        }
        end.into_iter().for_each(|end| self.push(end));
        Ok(())
    }

    fn push(&mut self, event: Event) {
        self.events_bytes += event.document.len();
        self.events.push_back(Arc::new(event));
    }
}

/// Returns the entry of a time.
type Get<'g> = &'g mut dyn FnMut(u64, &mut dyn FnMut(Doc<'_>)) -> Result<bool>;

/// Returns the operations of a transaction's entry.
fn list_of(entry: Doc<'_>) -> Option<Doc<'_>> {
    entry.get("o")?.as_doc()?.get("applyOps")?.as_array()
}

/// Returns the times of a transaction's entries before the last one, in order.
fn earlier_parts(last: Doc<'_>, get: Get<'_>) -> Result<Vec<u64>> {
    let previous = |entry: Doc<'_>| match entry.get("prevOpTime")?.as_doc()?.get("ts") {
        Some(Value::Timestamp(time)) if time > 0 => Some(time),
        _ => None,
    };
    let mut parts = Vec::new();
    let mut next = previous(last);
    while let Some(time) = next.take() {
        parts.push(time);
        get(time, &mut |entry| next = previous(entry))?;
    }
    parts.reverse();
    Ok(parts)
}

/// Returns the current document with this `_id`, in the collection of the operation.
fn look_up(db: &Db, uuid: &[u8; 16], operation: Doc<'_>, id: Value<'_>) -> Result<Option<DocBuf>> {
    let ns = operation.get("ns").and_then(|ns| ns.as_str()).map(|ns| ns.to_string());
    let Some(ns) = ns.and_then(|ns| Namespace::parse(&ns).ok()) else { return Ok(None) };
    let collection = db.collection(&ns).filter(|known| known.uuid() == uuid);
    let Some(collection) = collection else { return Ok(None) };
    let (view, mut scratch) = (db.view_now()?, Vec::new());
    let Some(record) = collection.find_id(&*view, id, &mut scratch)? else { return Ok(None) };
    let mut found = None;
    collection
        .get(&*view, record.as_bytes(), &mut scratch, &mut |doc| found = Some(doc.to_buf()))?;
    Ok(found)
}
