//! Change streams: the oplog as events, one by one.
//!
//! ```text
//!   local.oplog.rs ──▶ operations ──▶ Maker ──▶ events ──▶ the rest of the pipeline ──▶ batch
//!        entries        in scope       event    or Feed                      its token ──┘
//! ```
//!
//! A stream is a cursor over a pipeline whose input is [`Events`]. It stores its [`Position`] in
//! the oplog and holds no resources of the store, so that an absent reader costs nothing. A
//! `getMore` without events is parked and woken by the next change in scope. Of several streams
//! that are woken, the first reads the oplog for all of them ([`feed`]). The reply has the position
//! as `postBatchResumeToken`.

mod description;
mod event;
mod feed;
mod reading;
mod token;

use std::any::Any;
use std::sync::Arc;

use marula_bson::{BStr, ByteSlice, Doc, DocWriter};
use marula_db::oplog::Scope;
use marula_db::{Db, Namespace};
use marula_error::{Result, errors};
use marula_operation::pipeline::StreamPosition;
use marula_query::context::{Context as QueryContext, Interrupt};
use marula_query::stage::{ChangeStream, EventConditions, Pipeline, Source, Start, Step};
use parking_lot::Mutex;

use event::Event;
use feed::Feed;
pub(crate) use feed::Feeds;
use reading::{Batch, Reading};
use token::{Position, Token, Version};

errors! {
    from_end() = InvalidResumeToken, "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate notification";
    id_changed(expected: &str, found: &str) = ChangeStreamFatalError, "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline. Modifying the _id field of an event makes it impossible to resume the stream from that point. Only transformations that retain the unmodified _id field are allowed. Expected: {{ _id: {{ _data: \"{expected}\" }} }} but found: {found}";
}

/// The label of errors after which a client must not resume.
const LABEL: &str = "NonResumableChangeStreamError";

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
        Followed { progress, token, scope: events.reading.scope.clone(), is_over: false }
    }

    /// Appends the stream's position to a reply's cursor.
    pub(crate) fn append_to(&self, cursor: &mut DocWriter<'_>) {
        cursor.begin_doc("postBatchResumeToken").append("_data", self.token.as_str());
        if self.is_over {
            cursor.append("invalidated", true);
        }
    }
}

impl StreamPosition for Followed {
    fn pause(&mut self) {
        self.token.clone_from(&self.progress.lock());
    }

    fn end(&mut self) {
        self.pause();
        self.is_over = true;
    }

    fn pass(&mut self, event: Doc<'_>) {
        if let Some(data) = data_of(event) {
            self.token.clear();
            self.token.push_str(&data.to_str_lossy());
        }
    }

    fn check(&self, event: Doc<'_>) -> Result<()> {
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

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn data_of(event: Doc<'_>) -> Option<&BStr> {
    event.get("_id")?.as_doc()?.get("_data")?.as_str()
}

/// The events of a stream: the input of its pipeline.
pub(crate) struct Events {
    reading: Reading,
    /// The feed of the stream, if its events are not its own.
    feed: Option<Arc<Feed>>,
    interrupt: Option<Interrupt>,
    /// The events before the stream's position that have not been returned.
    ahead: Batch,
    current: Option<Arc<Event>>,
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
        feeds: &Feeds,
        context: &QueryContext,
    ) -> Result<Events> {
        db.start_oplog()?;
        db.renew_oplog()?;
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
        let scope = scope_of(stream, ns);
        let mut reading = Reading::new(db, stream.clone(), scope, version, position, awaited);
        reading.conditions = EventConditions::of(stream, pipeline, context);
        reading.check_history()?;
        Ok(Events {
            feed: feeds.join(&reading),
            reading,
            interrupt: context.interrupt.clone(),
            ahead: Batch::new(),
            current: None,
            is_over: false,
            progress: Arc::new(Mutex::new(token)),
        })
    }

    fn advance_to(&self, token: &Token) {
        self.progress.lock().clone_from(&token.data);
    }

    /// Returns the next events, and whether the end of the oplog was reached.
    fn next(&mut self) -> Result<(Batch, bool)> {
        self.reading.renew()?;
        self.reading.check_history()?;
        let shared = self.feed.as_ref().and_then(|feed| feed.follow(&mut self.reading));
        shared.map_or_else(|| self.reading.step(), Ok)
    }
}

impl Source for Events {
    fn pull(&mut self) -> Result<Step> {
        loop {
            if let Some(event) = self.ahead.pop_front() {
                self.advance_to(&event.token);
                self.is_over = event.token.position.is_end;
                if event.is_rejected {
                    continue;
                }
                self.current = Some(event);
                return Ok(Step::Document);
            }
            if self.is_over {
                return Ok(Step::End);
            }
            let (events, is_at_end) = self.next()?;
            self.ahead = events;
            if self.ahead.is_empty() {
                if is_at_end {
                    let position = self.reading.position;
                    if !position.is_event && self.reading.is_resumed() {
                        self.advance_to(&Token::high_water(position.time, self.reading.version));
                    }
                    return Ok(Step::Pause);
                }
                self.interrupt.as_ref().map_or(Ok(()), Interrupt::check)?;
            }
        }
    }

    fn doc(&self) -> Doc<'_> {
        self.current.as_ref().map_or(Doc::EMPTY, |event| event.document.as_doc())
    }
}
