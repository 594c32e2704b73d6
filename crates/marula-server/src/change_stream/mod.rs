//! Change streams: the oplog as events, one by one.
//!
//! ```text
//!   local.oplog.rs ──▶ operations ──▶ Maker ──▶ events ──▶ the rest of the pipeline ──▶ batch
//!        entries        in scope       event                                 its token ──┘
//! ```
//!
//! A stream is a cursor over a pipeline whose input is [`Events`]. It stores its [`Position`] in
//! the oplog and holds no resources of the store, so that an absent reader costs nothing. A
//! `getMore` without events is parked and woken by the next change in scope. The reply has the
//! position as `postBatchResumeToken`.

mod event;
mod token;

use std::collections::VecDeque;
use std::sync::Arc;

use marula_bson::{BStr, ByteSlice, Doc, DocBuf, DocWriter, Value};
use marula_db::oplog::Scope;
use marula_db::{Db, Namespace};
use marula_error::{Result, errors};
use marula_query::context::Interrupt;
use marula_query::stage::{ChangeStream, Pipeline, Source, Start, Step};
use marula_storage::{Direction, KeyRange, View};
use parking_lot::Mutex;

use event::{Event, Maker, Operation};
use token::{Position, Token, Version};

errors! {
    history_lost() = ChangeStreamHistoryLost, "Resume of change stream was not possible, as the resume point may no longer be in the oplog. ";
    not_found(token: &str) = ChangeStreamFatalError, "cannot resume stream; the resume token was not found. {{_data: \"{token}\"}}";
    from_end() = InvalidResumeToken, "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate notification";
    id_changed(expected: &str, found: &str) = ChangeStreamFatalError, "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline. Modifying the _id field of an event makes it impossible to resume the stream from that point. Only transformations that retain the unmodified _id field are allowed. Expected: {{ _id: {{ _data: \"{expected}\" }} }} but found: {found}";
    of_view(ns: &Namespace) = CommandNotSupportedOnView, "Namespace {ns} is a view, not a collection";
    of_time_series(ns: &Namespace) = CommandNotSupportedOnView, "Namespace {ns} is a timeseries collection";
}

/// The label of errors after which a client must not resume.
const LABEL: &str = "NonResumableChangeStreamError";

/// The maximum size of events that are made ahead of the pipeline.
const AHEAD_BYTES: usize = 256 * 1024;
/// The maximum number of entries that are read between two checks for an interruption.
const AHEAD_ENTRIES: usize = 1_000;

/// The token of the last event that a stream returned, or of the position after it.
type Progress = Arc<Mutex<String>>;

/// The cursor's part of a stream.
pub(crate) struct Followed {
    progress: Progress,
    /// The token after the batches so far.
    token: String,
    /// The scope of the stream.
    pub(crate) scope: Scope,
    /// Whether the stream has ended.
    is_over: bool,
}

impl Followed {
    /// Returns that of these events.
    pub(crate) fn of(events: &Events) -> Self {
        let progress = events.progress.clone();
        let token = progress.lock().clone();
        Followed { progress, token, scope: events.scope.clone(), is_over: false }
    }

    /// Records that there is no event for now.
    pub(crate) fn pause(&mut self) {
        self.token.clone_from(&self.progress.lock());
    }

    /// Records that there are no more events.
    pub(crate) fn end(&mut self) {
        self.pause();
        self.is_over = true;
    }

    /// Records that an event is returned.
    pub(crate) fn pass(&mut self, event: Doc<'_>) {
        if let Some(data) = data_of(event) {
            self.token.clear();
            self.token.push_str(&data.to_str_lossy());
        }
    }

    /// Checks that the pipeline has not changed an event's token.
    ///
    /// Errors: `id_changed`.
    pub(crate) fn check(&self, event: Doc<'_>) -> Result<()> {
        let expected = self.progress.lock();
        let body = expected.strip_suffix("04").unwrap_or(&expected);
        // A fragment's token has the event's token as its prefix.
        match data_of(event) {
            Some(data) if data.starts_with(body.as_bytes()) => Ok(()),
            _ => {
                let id = event.get("_id");
                let found = id.map_or_else(|| "{}".to_owned(), |id| format!("{{ _id: {id} }}"));
                Err(id_changed(&expected, &found).with_label(LABEL))
            }
        }
    }

    /// Appends the stream's position to a reply's cursor.
    pub(crate) fn append_to(&self, cursor: &mut DocWriter<'_>) {
        cursor.begin_doc("postBatchResumeToken").append("_data", self.token.as_str());
        if self.is_over {
            cursor.append("invalidated", true);
        }
    }
}

fn data_of(event: Doc<'_>) -> Option<&BStr> {
    event.get("_id")?.as_doc()?.get("_data")?.as_str()
}

/// The events of a stream: the input of its pipeline.
pub(crate) struct Events {
    db: Arc<Db>,
    stream: ChangeStream,
    scope: Scope,
    version: Version,
    interrupt: Option<Interrupt>,
    /// The position after which events are returned.
    position: Position,
    /// The newest entry when the end was last reached: nothing is read until there is a newer one.
    read_to: u64,
    /// The event after which the stream continues, until it has been found.
    awaited: Option<Token>,
    ahead: VecDeque<Event>,
    ahead_bytes: usize,
    current: DocBuf,
    /// Whether the stream has ended, with an event of its own.
    is_over: bool,
    progress: Progress,
}

/// Returns the scope of a pipeline on `ns`.
pub(crate) fn scope_of(stream: &ChangeStream, ns: &Namespace) -> Scope {
    match stream.is_of_cluster {
        true => Scope::Everything,
        false if ns.collection() == "$cmd.aggregate" => Scope::Database(ns.db().to_owned()),
        false => Scope::Collection(ns.db().to_owned(), ns.as_str().to_owned()),
    }
}

impl Events {
    /// Starts a stream on `ns`. The oplog is written from now on.
    ///
    /// Errors: those of a token that cannot be resumed from.
    pub(crate) fn start(
        db: Arc<Db>,
        ns: &Namespace,
        stream: &ChangeStream,
        pipeline: &Pipeline,
        interrupt: Option<Interrupt>,
    ) -> Result<Events> {
        db.start_oplog()?;
        let version = if pipeline.splits_events() { Version::Split } else { Version::Whole };
        let oplog = db.oplog();
        let (position, awaited) = match &stream.start {
            Start::Now => (Position::before(oplog.newest() + 1), None),
            Start::At(time) => (Position::before(*time), None),
            Start::Resume(data) | Start::After(data) => {
                let token = Token::parse(data)?;
                if token.position.is_end && matches!(stream.start, Start::Resume(_)) {
                    return Err(from_end());
                }
                let is_event = token.position.is_event && !token.position.is_end;
                let position =
                    if is_event { Position::before(token.position.time) } else { token.position };
                (position, is_event.then_some(token))
            }
        };
        let token = match (&awaited, &stream.start) {
            (Some(awaited), _) => awaited.data.clone(),
            (None, Start::Resume(data) | Start::After(data)) => data.to_uppercase(),
            _ => Token::high_water(position.time, version).data,
        };
        let events = Events {
            scope: scope_of(stream, ns),
            db,
            stream: stream.clone(),
            version,
            interrupt,
            position,
            read_to: 0,
            awaited,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            current: DocBuf::new(),
            is_over: false,
            progress: Arc::new(Mutex::new(token)),
        };
        events.check_history()?;
        Ok(events)
    }

    fn tell(&self, token: &Token) {
        self.progress.lock().clone_from(&token.data);
    }

    /// Checks that the oplog still has the entries after its position.
    ///
    /// Errors: `history_lost`.
    fn check_history(&self) -> Result<()> {
        let oplog = self.db.oplog();
        match oplog.is_on() && self.position.time >= oplog.since() {
            true => Ok(()),
            false => Err(history_lost().with_label(LABEL)),
        }
    }

    /// Makes the next events; returns whether the end of the oplog was reached.
    fn make_ahead(&mut self) -> Result<bool> {
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
            if self.is_full() || entries >= AHEAD_ENTRIES {
                return Ok(false);
            }
        }
        // Entries that were trimmed in the meantime may be missing.
        self.check_history()?;
        self.read_to = newest;
        // Between the events, if there was none since the last.
        if self.ahead.is_empty() && newest > self.position.time {
            self.position = Position::before(newest);
        }
        Ok(true)
    }

    /// Returns whether no more events need be made ahead: there are enough, or the last one.
    fn is_full(&self) -> bool {
        let is_ending = self.ahead.back().is_some_and(|event| event.token.position.is_end);
        is_ending || self.ahead_bytes >= AHEAD_BYTES
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
        self.ahead_bytes += event.document.len();
        self.ahead.push_back(event);
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

impl Source for Events {
    fn pull(&mut self) -> Result<Step> {
        loop {
            if let Some(event) = self.ahead.pop_front() {
                self.ahead_bytes -= event.document.len();
                self.tell(&event.token);
                self.is_over = event.token.position.is_end;
                self.current = event.document;
                return Ok(Step::Document);
            }
            if self.is_over {
                return Ok(Step::End);
            }
            let is_at_end = self.make_ahead()?;
            if self.ahead.is_empty() {
                if is_at_end {
                    if !self.position.is_event && self.awaited.is_none() {
                        self.tell(&Token::high_water(self.position.time, self.version));
                    }
                    return Ok(Step::Pause);
                }
                self.interrupt.as_ref().map_or(Ok(()), Interrupt::check)?;
            }
        }
    }

    fn doc(&self) -> Doc<'_> {
        self.current.as_doc()
    }
}

/// Checks that a namespace can have a change stream.
///
/// Errors: `of_view`, `of_time_series`: those cannot be followed.
pub(crate) fn check(db: &Db, ns: &Namespace) -> Result<()> {
    let Some(collection) = db.collection(ns) else { return Ok(()) };
    let options = &collection.state().options;
    match (&options.view, &options.time_series) {
        (Some(_), Some(_)) => Err(of_time_series(ns)),
        (Some(_), None) => Err(of_view(ns)),
        _ => Ok(()),
    }
}
