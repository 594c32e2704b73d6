//! The rows of change streams: many streams on one collection while it is written, the time from
//! an insert to its event, and resuming at an old token. The servers are replica sets of one node.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bson::{self, Doc};
use crate::fill::drop_collection;
use crate::load::{self, Answer, Blocking, Load, Traffic};
use crate::message::{self, Template};
use crate::side::Side;

/// The work of a row.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Stream {
    /// A hundred streams on one collection that gets 5,000 documents per second.
    Hundred,
    /// One stream that waits, and single inserts: from the sending of one to its event.
    Wait,
    /// Opens a stream at a token that many entries of the oplog follow.
    Resume,
}

/// The measurements of a row.
pub(crate) struct Followed {
    /// Events that were received.
    pub(crate) events: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_ns: u64,
    /// The median of the waits, in microseconds.
    pub(crate) wait_us: f64,
}

const COLLECTION: &str = "followed";
const STREAMS: usize = 100;
/// Documents of one insert, and the time between two inserts: 5,000 documents per second.
const BATCH: usize = 5;
const PACE: Duration = Duration::from_millis(1);
/// Entries of the oplog that a stream resumes in, per second of a run.
const ENTRIES_PER_SECOND: usize = 333_334;
const NUMBER_MARK: i64 = 0x0CCC_CCCC_CCCC_CCCC;
/// Longer than any `getMore` of a row waits.
const AWAIT_MS: i32 = 1_000;
const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs a row for about `seconds`.
pub(crate) fn run(kind: Stream, side: &mut Side, seconds: f64) -> Result<Followed, String> {
    let mut control = Blocking::new(side.address)?;
    drop_collection(&mut control, COLLECTION);
    control.command(Doc::new().str("create", COLLECTION).str("$db", "bench"))?;
    match kind {
        Stream::Hundred => hundred(&mut control, side, seconds),
        Stream::Wait => wait(&mut control, side.address, seconds),
        Stream::Resume => resume(&mut control, seconds),
    }
}

/// Opens a stream; returns its cursor and the reply.
fn open(control: &mut Blocking, options: Doc) -> Result<(i64, Vec<u8>), String> {
    let pipeline = vec![Doc::new().doc("$changeStream", options)];
    let body = Doc::new().str("aggregate", COLLECTION).array("pipeline", pipeline);
    let reply = control.command(body.doc("cursor", Doc::new()).str("$db", "bench"))?;
    let id = bson::field(&reply, "cursor").and_then(|(_, cursor)| bson::number_long(cursor, "id"));
    Ok((id.ok_or("a stream has no cursor")?, reply))
}

fn get_more(cursor: i64) -> Doc {
    let body = Doc::new().long("getMore", cursor).str("collection", COLLECTION);
    body.int("maxTimeMS", AWAIT_MS).str("$db", "bench")
}

/// An insert of documents whose `n` is filled in later.
fn insert(count: usize) -> Template {
    let document = Doc::new().long("n", NUMBER_MARK).str("name", "a name of usual length").finish();
    let body = Doc::new().str("insert", COLLECTION).str("$db", "bench");
    Template::new(body, Some(("documents", &vec![document; count])))
}

/// Sends an insert whose documents are numbered from `first` on.
fn number_and_send(
    control: &mut Blocking,
    template: &mut Template,
    places: &[usize],
    first: u64,
) -> Result<(), String> {
    for (number, place) in (first..).zip(places) {
        template.put(*place, &number.to_le_bytes());
    }
    control.send(&template.bytes).map(|_| ())
}

/// The events of a batch, checked to be the inserts that follow `next`.
fn check_events(reply: &[u8], batch: &str, next: &mut u64) -> Result<u64, String> {
    let cursor = bson::field(reply, "cursor").ok_or("a reply has no cursor")?.1;
    let batch = bson::field(cursor, batch).ok_or("a reply has no batch")?.1;
    let mut count = 0;
    for event in bson::documents(batch) {
        let document = bson::field(event, "fullDocument").ok_or("an event is no insert")?.1;
        let number = bson::number_long(document, "n").ok_or("a document has no number")?;
        if number as u64 != *next {
            return Err(format!("the event of document {number} came in place of {next}"));
        }
        *next += 1;
        count += 1;
    }
    Ok(count)
}

/// A hundred readers of the same events.
struct Readers<'a> {
    requests: Vec<Vec<u8>>,
    next: Vec<u64>,
    written: &'a AtomicU64,
    has_ended: &'a AtomicBool,
}

impl Traffic for Readers<'_> {
    fn request(&mut self, connection: usize) -> Option<&[u8]> {
        let is_done = self.has_ended.load(Ordering::Acquire)
            && self.next[connection] == self.written.load(Ordering::Acquire);
        (!is_done).then(|| &*self.requests[connection])
    }

    fn whole(&self, reply: &[u8]) -> bool {
        message::whole(reply)
    }

    fn answer(&mut self, connection: usize, reply: &[u8]) -> Result<Answer, String> {
        let count =
            check_events(message::succeeded(reply)?, "nextBatch", &mut self.next[connection])?;
        Ok(Answer::Done { class: 0, count })
    }

    fn more(&mut self, connection: usize) -> &[u8] {
        &self.requests[connection]
    }
}

fn hundred(control: &mut Blocking, side: &mut Side, seconds: f64) -> Result<Followed, String> {
    let mut requests = Vec::new();
    for _ in 0..STREAMS {
        let (cursor, _) = open(control, Doc::new())?;
        requests.push(Template::new(get_more(cursor), None).bytes);
    }
    let (written, has_ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let address = side.address;
    let mut readers =
        Readers { requests, next: vec![0; STREAMS], written: &written, has_ended: &has_ended };
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let outcome = write(address, seconds, &written);
            has_ended.store(true, Ordering::Release);
            outcome
        });
        let connect = || load::connect(address);
        let load = Load {
            connect: &connect,
            connections: STREAMS,
            warm_up: Duration::ZERO,
            time: None,
            timeout: TIMEOUT,
        };
        let driven = load::drive(&load, &mut readers, &mut || side.cpu_ns())?;
        writer.join().map_err(|_| "the writer panicked".to_owned())??;
        let events = written.load(Ordering::Acquire) * STREAMS as u64;
        if driven.operations != events {
            return Err(format!("{} of {events} events came", driven.operations));
        }
        Ok(Followed { events, seconds: driven.seconds, cpu_ns: driven.cpu_ns, wait_us: 0.0 })
    })
}

/// Writes at a steady pace, as far as the server lets it.
fn write(address: SocketAddr, seconds: f64, written: &AtomicU64) -> Result<(), String> {
    let mut control = Blocking::new(address)?;
    let mut template = insert(BATCH);
    let places = template.places(&NUMBER_MARK.to_le_bytes());
    let begin = Instant::now();
    let mut number = 0;
    while begin.elapsed().as_secs_f64() < seconds {
        number_and_send(&mut control, &mut template, &places, number)?;
        number += BATCH as u64;
        written.store(number, Ordering::Release);
        let due = begin + PACE * u32::try_from(number / BATCH as u64).unwrap_or(u32::MAX);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

fn wait(control: &mut Blocking, address: SocketAddr, seconds: f64) -> Result<Followed, String> {
    let (cursor, _) = open(control, Doc::new())?;
    let request = Template::new(get_more(cursor), None).bytes;
    let mut reader = Blocking::new(address)?;
    let mut template = insert(1);
    let places = template.places(&NUMBER_MARK.to_le_bytes());
    let (mut next, mut waits) = (0, Vec::new());
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < seconds || waits.is_empty() {
        let number = next;
        let heard = thread::scope(|scope| {
            let reading = scope.spawn(|| -> Result<Instant, String> {
                while next == number {
                    let reply = reader.send(&request)?;
                    check_events(&reply, "nextBatch", &mut next)?;
                }
                Ok(Instant::now())
            });
            // Gives the reader the time to begin its wait.
            thread::sleep(Duration::from_millis(2));
            let sent = Instant::now();
            number_and_send(control, &mut template, &places, number)?;
            let heard = reading.join().map_err(|_| "the reader panicked".to_owned())??;
            Ok::<_, String>(heard.duration_since(sent))
        })?;
        waits.push(heard.as_nanos() as f64 / 1000.0);
    }
    Ok(medians(waits, begin))
}

/// The median of waits.
fn medians(mut waits: Vec<f64>, begin: Instant) -> Followed {
    waits.sort_by(f64::total_cmp);
    Followed {
        events: waits.len() as u64,
        seconds: begin.elapsed().as_secs_f64(),
        cpu_ns: 0,
        wait_us: waits[waits.len() / 2],
    }
}

fn resume(control: &mut Blocking, seconds: f64) -> Result<Followed, String> {
    const AT_ONCE: usize = 1_000;
    let (cursor, _) = open(control, Doc::new())?;
    let entries = (seconds * ENTRIES_PER_SECOND as f64) as usize;
    let mut template = insert(AT_ONCE);
    let places = template.places(&NUMBER_MARK.to_le_bytes());
    let mut token = None;
    for batch in 0..(entries / AT_ONCE).max(2) {
        number_and_send(control, &mut template, &places, (batch * AT_ONCE) as u64)?;
        if batch == 0 {
            let reply = control.command(get_more(cursor))?;
            token = first_token(&reply);
        }
    }
    let token = token.ok_or("an event has no token")?;
    let (begin, mut waits) = (Instant::now(), Vec::new());
    for _ in 0..9 {
        let options = Doc::new().doc("resumeAfter", Doc::new().str("_data", &token));
        let opening = Instant::now();
        let (cursor, reply) = open(control, options)?;
        let mut next = 1;
        if check_events(&reply, "firstBatch", &mut next)? == 0 {
            check_events(&control.command(get_more(cursor))?, "nextBatch", &mut next)?;
        }
        waits.push(opening.elapsed().as_nanos() as f64 / 1000.0);
        if next == 1 {
            return Err("no event follows the token".into());
        }
        let kill = Doc::new().str("killCursors", COLLECTION).longs("cursors", &[cursor]);
        control.command(kill.str("$db", "bench"))?;
    }
    Ok(medians(waits, begin))
}

/// The token of the first event of a batch.
fn first_token(reply: &[u8]) -> Option<String> {
    let batch = bson::field(bson::field(reply, "cursor")?.1, "nextBatch")?.1;
    let event = bson::documents(batch).next()?;
    bson::text(bson::field(event, "_id")?.1, "_data")
}
