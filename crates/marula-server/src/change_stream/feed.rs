//! The events that several streams share, so that one of them reads the oplog for all.
//!
//! ```text
//!                 from                  position
//!   local.oplog.rs  │ e e e e e e e e e e │
//!                      ▲       ▲           ▲
//!   streams         late:     takes       waits: the first to be woken reads on, the others
//!                   reads by  what        take what it has read
//!                   itself    follows
//! ```
//!
//! A feed belongs to the streams with the same scope and options: their events are the same, and
//! only the results of their pipelines differ. It keeps the newest events, within a bound. A stream
//! whose position is before these reads the oplog by itself, and so does a stream without others
//! of its kind. Streams whose events contain documents that are looked up, or images, have no feed.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use marula_db::oplog::Scope;
use marula_db::sweep;
use marula_error::Result;
use marula_query::stage::Shows;
use parking_lot::Mutex;

use super::reading::{Batch, Reading};
use super::token::{Position, Version};

/// The size of the events that a feed keeps before it reads on.
const KEPT_BYTES: usize = 256 * 1024;

/// The feeds of all open streams.
#[derive(Default)]
pub(crate) struct Feeds(Mutex<HashMap<Key, Weak<Feed>>>);

/// The properties that streams of one feed have in common.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    scope: Scope,
    version: Version,
    is_expanded: bool,
    disambiguates_paths: bool,
    shows_system: bool,
    is_raw: bool,
}

impl Feeds {
    /// Returns the feed of a stream; `None` if its events are its own.
    pub(super) fn join(&self, reading: &Reading) -> Option<Arc<Feed>> {
        let stream = &reading.stream;
        if (stream.full_document, stream.before_change) != (Shows::Nothing, Shows::Nothing) {
            return None;
        }
        let key = Key {
            scope: reading.scope.clone(),
            version: reading.version,
            is_expanded: stream.is_expanded,
            disambiguates_paths: stream.disambiguates_paths,
            shows_system: stream.shows_system,
            is_raw: stream.is_raw,
        };
        let mut feeds = self.0.lock();
        if let Some(feed) = feeds.get(&key).and_then(Weak::upgrade) {
            return Some(feed);
        }
        if sweep::is_due(feeds.len()) {
            feeds.retain(|_, feed| feed.strong_count() > 0);
        }
        let feed = Arc::new(Feed::of(reading.another()));
        feeds.insert(key, Arc::downgrade(&feed));
        Some(feed)
    }
}

/// The events that streams share.
pub(super) struct Feed(Mutex<Window>);

/// A part of the events of the oplog.
struct Window {
    /// The position after which all events are kept, up to that of `reading`.
    from: Position,
    events: Batch,
    bytes: usize,
    reading: Reading,
}

impl Feed {
    fn of(reading: Reading) -> Self {
        Feed(Mutex::new(Window { from: reading.position, events: Batch::new(), bytes: 0, reading }))
    }

    /// Returns the next events of a stream and whether the end of the oplog was reached, and moves
    /// the stream's position; `None` if the stream must read by itself.
    pub(super) fn follow(self: &Arc<Self>, stream: &mut Reading) -> Option<(Batch, bool)> {
        let mut window = self.0.lock();
        if Arc::strong_count(self) == 1 {
            window.restart(stream.position);
            return None;
        }
        if !stream.is_resumed() || stream.is_ahead() || stream.position < window.from {
            return None;
        }
        let mut events = window.after(stream.position);
        if events.is_empty() && !window.reading.is_at_end() {
            // The stream meets an error of the store by itself.
            if window.read_on().is_err() {
                window.restart(stream.position);
                return None;
            }
            events = window.after(stream.position);
        }
        let position = window.reading.position;
        match events.back() {
            // Nobody has followed the feed for a while.
            None if position < stream.position && !window.reading.is_at_end() => {
                window.restart(stream.position);
                return None;
            }
            None => stream.position = stream.position.max(position),
            Some(last) if last.token.position.is_end => stream.position = last.token.position,
            Some(_) => stream.position = position,
        }
        Some((events, window.reading.is_at_end()))
    }
}

impl Window {
    /// Forgets its events and continues at a position.
    fn restart(&mut self, position: Position) {
        self.events = Batch::new();
        (self.bytes, self.from) = (0, position);
        self.reading = self.reading.another();
        self.reading.position = position;
    }

    /// Returns the events after a position, up to one that ends the stream.
    fn after(&self, position: Position) -> Batch {
        let first = self.events.partition_point(|event| event.token.position <= position);
        let mut events = Batch::new();
        for event in self.events.range(first..) {
            events.push_back(event.clone());
            if event.token.position.is_end {
                break;
            }
        }
        events
    }

    /// Reads the next events, and forgets the oldest.
    fn read_on(&mut self) -> Result<()> {
        while self.bytes > KEPT_BYTES
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= oldest.document.len();
            self.from = oldest.token.position;
        }
        let (events, _) = self.reading.step()?;
        self.bytes += events.iter().map(|event| event.document.len()).sum::<usize>();
        self.events.extend(events);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;
    use marula_db::write::InsertReport;
    use marula_db::{Db, Namespace, Unit, WriteOp};
    use marula_query::stage::ChangeStream;
    use marula_storage::memory::Memory;

    use super::*;

    fn insert(db: &Db, ids: std::ops::Range<i32>, text: &str) {
        let ns = Namespace::new("d", "c").expect("a name");
        let collection = db.collection_or_create(&ns).expect("a collection");
        for id in ids {
            let document = doc! { "_id": id, "text": text };
            let (mut op, mut report) = (WriteOp::new(Unit::new(db), 0), InsertReport::default());
            op.insert(&collection, &mut std::iter::once(document.as_doc()), true, &mut report)
                .expect("an insert");
            assert!(report.errors.is_empty());
        }
    }

    /// A stream on `d.c` that continues at a position.
    fn stream(db: &Arc<Db>, position: Position) -> Reading {
        let scope = Scope::Collection("d".into(), "d.c".into());
        let stream = ChangeStream::default();
        Reading::new(db.clone(), stream, scope, Version::Whole, position, None)
    }

    fn now(db: &Db) -> Position {
        Position::before(db.oplog().newest() + 1)
    }

    fn tokens(batch: &Batch) -> Vec<&str> {
        batch.iter().map(|event| event.token.data.as_str()).collect()
    }

    fn open() -> Arc<Db> {
        let db = Arc::new(Db::open(Arc::new(Memory::new())).expect("a store"));
        insert(&db, 0..1, "");
        db.start_oplog().expect("an oplog");
        db
    }

    #[test]
    fn one_of_two_streams_reads_for_both() {
        let (db, feeds) = (open(), Feeds::default());
        let (mut first, mut second) = (stream(&db, now(&db)), stream(&db, now(&db)));
        let feed = feeds.join(&first).expect("a feed");
        assert!(feed.follow(&mut first).is_none(), "there is no other");
        let other = feeds.join(&second).expect("a feed");
        assert!(Arc::ptr_eq(&feed, &other));
        insert(&db, 1..4, "");
        let (of_first, is_at_end) = feed.follow(&mut first).expect("events");
        assert_eq!((of_first.len(), is_at_end), (3, true));
        let (of_second, _) = feed.follow(&mut second).expect("events");
        assert!(of_first.iter().zip(&of_second).all(|(one, other)| Arc::ptr_eq(one, other)));
        assert_eq!(of_second.len(), 3);
        assert_eq!(first.position, second.position);
        // No event comes twice, and an entry out of scope moves all positions.
        for reading in [&mut first, &mut second] {
            let (events, is_at_end) = feed.follow(reading).expect("no events");
            assert!(events.is_empty() && is_at_end);
        }
        assert!(db.note_in_oplog(doc! { "a": 1 }.as_doc()).expect("a note"));
        for reading in [&mut first, &mut second] {
            let (events, is_at_end) = feed.follow(reading).expect("no events");
            assert!(events.is_empty() && is_at_end);
            assert_eq!(reading.position, Position::before(db.oplog().newest()));
        }
    }

    /// Otherwise they would ask again and again until something is logged.
    #[test]
    fn streams_that_begin_at_the_end_are_at_the_end() {
        let (db, feeds) = (open(), Feeds::default());
        let (mut first, mut second) = (stream(&db, now(&db)), stream(&db, now(&db)));
        let feed = feeds.join(&first).expect("a feed");
        let _joined = feeds.join(&second).expect("a feed");
        for reading in [&mut first, &mut second] {
            let (events, is_at_end) = feed.follow(reading).expect("no events");
            assert!(events.is_empty() && is_at_end);
        }
        insert(&db, 1..2, "");
        for reading in [&mut first, &mut second] {
            assert_eq!(feed.follow(reading).expect("an event").0.len(), 1);
        }
    }

    #[test]
    fn a_stream_before_or_after_the_window_reads_by_itself() {
        let (db, feeds) = (open(), Feeds::default());
        let start = now(&db);
        let (mut first, mut late) = (stream(&db, start), stream(&db, start));
        let feed = feeds.join(&first).expect("a feed");
        let _second = feeds.join(&first).expect("a feed");
        let text = "x".repeat(10_000);
        let mut told = Vec::new();
        for n in 0..10 {
            insert(&db, n * 20 + 1..n * 20 + 21, &text);
            let (events, _) = feed.follow(&mut first).expect("events");
            told.extend(events);
        }
        assert_eq!(told.len(), 200);
        assert!(feed.follow(&mut late).is_none(), "the feed has forgotten these");
        let kept: usize = feed.0.lock().events.iter().map(|event| event.document.len()).sum();
        assert_eq!(kept, feed.0.lock().bytes);
        assert!(kept < 600_000, "{kept} bytes are kept");
        let mut caught_up = Batch::new();
        while late.position < first.position {
            let next = feed.follow(&mut late);
            caught_up.extend(next.map_or_else(|| late.step().expect("events").0, |next| next.0));
        }
        assert_eq!(tokens(&caught_up), tokens(&told.into()));
        assert!(feed.follow(&mut late).is_some());
        let mut future = stream(&db, Position::before(u64::MAX / 2));
        assert!(feed.follow(&mut future).is_none());
        assert!(feed.follow(&mut first).is_some(), "it disturbs nobody");
    }

    #[test]
    fn a_feed_that_nobody_has_followed_continues_where_the_next_stream_is() {
        let (db, feeds) = (open(), Feeds::default());
        let away = stream(&db, now(&db));
        let feed = feeds.join(&away).expect("a feed");
        insert(&db, 1..2_500, "");
        let mut next = stream(&db, now(&db));
        let _joined = feeds.join(&next).expect("a feed");
        insert(&db, 2_500..2_501, "");
        assert!(feed.follow(&mut next).is_none(), "it reads by itself");
        assert_eq!(next.step().expect("an event").0.len(), 1);
        insert(&db, 2_501..2_502, "");
        let (events, _) = feed.follow(&mut next).unwrap_or_else(|| next.step().expect("events"));
        assert_eq!(events.len(), 1);
        insert(&db, 2_502..2_503, "");
        assert_eq!(feed.follow(&mut next).expect("events").0.len(), 1);
    }

    #[test]
    fn streams_with_looked_up_documents_have_no_feed() {
        let (db, feeds) = (open(), Feeds::default());
        let mut own = stream(&db, now(&db));
        own.stream.full_document = Shows::Present;
        assert!(feeds.join(&own).is_none());
        let mut own = stream(&db, now(&db));
        own.stream.before_change = Shows::WhenAvailable;
        assert!(feeds.join(&own).is_none());
        let (plain, mut raw) = (stream(&db, now(&db)), stream(&db, now(&db)));
        raw.stream.is_raw = true;
        let feed = feeds.join(&plain).expect("a feed");
        assert!(!Arc::ptr_eq(&feed, &feeds.join(&raw).expect("a feed")));
    }
}
