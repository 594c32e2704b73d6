//! etcd 3.4 and later, by its JSON gateway (`/v3/kv/…`), which every server has on its client port.
//!
//! A version is etcd's revision. A commit is one transaction of etcd: it compares the modification
//! revisions of the keys that were read, which tell a change, and puts and deletes. A key that was
//! there and was deleted since has no revision; so it is compared with what it was, which takes a
//! round trip unless this process has read the key at that version, or written it last.
//!
//! etcd has no additions: counters are compared in the transaction that sets them, and commits that
//! add to counters at the same time share one (see `commit`). Reads of keys share requests in the
//! same way (see `gather`).

mod commit;
mod gather;
mod http;
mod login;
mod plan;
mod status;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use marula_storage::cluster::Connections;
use marula_storage::{ClusterStatus, Direction, KeyRange, Stamp};
use parking_lot::Mutex;
use rustls::ClientConfig;
use serde_json::{Value, json};

use self::commit::Proposal;
use self::gather::Gather;
use self::http::{Endpoint, Failure};
use self::login::Login;
use crate::kv::{
    Block, BlockLimit, Commit, Estimate, Kv, KvError, Limits, Mutation, Result, Version,
};

/// The time for which revisions are kept: the store is compacted to the revision of that time ago.
const VERSION_AGE_MAX: Duration = Duration::from_secs(60);

/// Entries of one answer: etcd limits them by number alone, and they may have 90 KB each.
const ENTRIES_MAX: usize = 256;

/// Bytes of a commit. The servers must take as much: `--max-request-bytes` is 1.5 MB unless set
/// otherwise.
const COMMIT_BYTES_MAX: usize = 8_000_000;

/// Changes of a commit. The servers must take as many: `--max-txn-ops` is 128 unless set
/// otherwise.
const MUTATIONS_MAX: usize = 20_000;

/// Keys whose revisions are known from reads, at most.
const KNOWN_MAX: usize = 10_000;

/// Reads of keys that are in progress at a time.
const READ_LANES: usize = 8;

/// A watch asks again after so long.
const WATCH_STEP: Duration = Duration::from_millis(50);

/// A cluster of etcd servers.
pub struct Etcd {
    endpoints: Vec<Endpoint>,
    tls: Option<Arc<ClientConfig>>,
    login: Login,
    current: AtomicUsize,
    limits: Limits,
    known: Mutex<Known>,
    /// The revisions that keys have by commits of this process, where nobody has written since.
    own: Mutex<HashMap<Vec<u8>, u64>>,
    /// The counters as the last commit of this process left them: value and revision.
    counters: Mutex<HashMap<Vec<u8>, (i64, u64)>>,
    reads: Gather<Read, Seen>,
    commits: Gather<Proposal, Stamp>,
    /// Of commits that add to counters.
    additions: Gather<Proposal, Stamp>,
    compaction: Mutex<VecDeque<(Instant, Version)>>,
}

/// Modification revisions of keys at versions, as they were read; zero where there was none.
#[derive(Default)]
struct Known {
    revisions: HashMap<(Version, Vec<u8>), u64>,
    order: VecDeque<(Version, Vec<u8>)>,
}

impl Known {
    fn note(&mut self, at: Version, key: &[u8], revision: u64) {
        if self.revisions.insert((at, key.to_vec()), revision).is_none() {
            self.order.push_back((at, key.to_vec()));
        }
        if self.order.len() > KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.revisions.remove(&oldest);
        }
    }
}

/// Keys that are to be read at once, at a version or as they are now.
struct Read {
    at: Option<Version>,
    keys: Vec<Vec<u8>>,
}

/// The keys of a [`Read`], and the revision that the store has.
#[derive(Clone)]
struct Seen {
    version: Version,
    entries: Vec<Option<Entry>>,
}

/// As many as one reply may have.
fn choose_reads(waiting: &mut dyn Iterator<Item = &Read>) -> Vec<bool> {
    let mut count = 0;
    let has_room = |read: &Read| {
        let sum = count + read.keys.len();
        let has_room = sum <= ENTRIES_MAX;
        if has_room {
            count = sum;
        }
        has_room
    };
    waiting.map(has_room).collect()
}

/// A key as etcd shows it.
#[derive(Clone)]
struct Entry {
    key: Vec<u8>,
    value: Vec<u8>,
    revision: u64,
}

/// Whether a request that fails may have changed something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// It changes nothing: it may be sent again.
    Reads,
    /// It may have been executed.
    Writes,
}

impl Etcd {
    /// The cluster that these servers are of. Nothing is sent yet. An endpoint is of the form
    /// `http://host:port`; with `https`, requests go over TLS as `tls` has it, and with
    /// `user:password@` in front of the host they are made as that user, percent-encoded.
    pub fn new(endpoints: &[String], tls: Option<Arc<ClientConfig>>) -> Result<Self, String> {
        if endpoints.is_empty() {
            return Err("no endpoint of etcd is given".to_owned());
        }
        let (login, endpoints) = Login::of(endpoints)?;
        let endpoints = endpoints.iter().map(|text| Endpoint::parse(text, tls.as_ref()));
        Ok(Etcd {
            endpoints: endpoints.collect::<Result<_, _>>()?,
            tls,
            login,
            current: AtomicUsize::new(0),
            limits: Limits {
                // etcd has no limit of its own; this one keeps requests small.
                key_bytes_max: 10_000,
                value_bytes_max: 1_000_000,
                commit_bytes_max: COMMIT_BYTES_MAX,
                mutations_max: MUTATIONS_MAX,
                version_age_max: VERSION_AGE_MAX,
            },
            known: Mutex::default(),
            own: Mutex::default(),
            counters: Mutex::default(),
            reads: Gather::new(READ_LANES, choose_reads),
            commits: Gather::new(commit::LANES, commit::choose),
            additions: Gather::new(1, commit::choose),
            compaction: Mutex::default(),
        })
    }

    /// A server of the cluster at another address.
    fn endpoint(&self, url: &str) -> Result<Endpoint, String> {
        Endpoint::parse(url, self.tls.as_ref())
    }

    /// Sends a request, as the user of the endpoints.
    fn call(&self, path: &str, request: &Value, effect: Effect) -> Result<Value> {
        let body = request.to_string();
        if !self.login.has_user() {
            return self.send(path, &body, effect, None);
        }
        let token = self.token(None)?;
        match self.send(path, &body, effect, token.as_deref()) {
            Err(KvError::Unavailable(what)) if login::is_refused(&what) => {
                let token = self.token(Some(token.as_deref().unwrap_or_default()))?;
                self.send(path, &body, effect, token.as_deref())
            }
            outcome => outcome,
        }
    }

    /// Sends a request to a server that can be reached.
    fn send(&self, path: &str, body: &str, effect: Effect, token: Option<&str>) -> Result<Value> {
        let mut last = String::new();
        for _ in 0..self.endpoints.len() {
            let number = self.current.load(Ordering::Relaxed) % self.endpoints.len();
            let endpoint = &self.endpoints[number];
            let outcome = endpoint.post(path, body.as_bytes(), token);
            let next = || {
                let _ = self.current.compare_exchange(
                    number,
                    (number + 1) % self.endpoints.len(),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
            };
            match outcome {
                Ok(reply) if reply.status == 200 => {
                    return serde_json::from_slice(&reply.body)
                        .map_err(|error| KvError::Corrupt(format!("etcd's reply: {error}")));
                }
                Ok(reply) => {
                    let text = String::from_utf8_lossy(&reply.body).into_owned();
                    let error = refusal(&text, effect);
                    let is_elsewhere = matches!(error, KvError::Unavailable(_));
                    if !is_elsewhere || login::is_refused(&text) {
                        return Err(error);
                    }
                    last = format!("{}: {text}", endpoint.address());
                    next();
                }
                Err(Failure::NotSent(error)) => {
                    last = format!("{}: {error}", endpoint.address());
                    next();
                }
                Err(Failure::Lost(error)) => {
                    last = format!("{}: {error}", endpoint.address());
                    next();
                    if effect == Effect::Writes {
                        return Err(KvError::Unknown);
                    }
                }
            }
        }
        Err(KvError::Unavailable(format!("etcd is not reached at {last}")))
    }

    /// The entries of a range request, and whether there are more.
    fn read(&self, request: Value) -> Result<(Vec<Entry>, bool)> {
        let reply = self.call("/v3/kv/range", &request, Effect::Reads)?;
        Ok((entries_of(&reply)?, reply["more"].as_bool().unwrap_or(false)))
    }

    /// Several keys at once.
    fn read_keys(&self, at: Option<Version>, keys: &[Vec<u8>]) -> Result<Vec<Option<Entry>>> {
        self.read_keys_and_version(at, keys).map(|seen| seen.entries)
    }

    /// The same, and the revision that the store has.
    fn read_keys_and_version(&self, at: Option<Version>, keys: &[Vec<u8>]) -> Result<Seen> {
        self.reads.pass(Read { at, keys: keys.to_vec() }, |reads| self.send_reads(&reads))
    }

    /// One transaction that only reads, for all that is to be read.
    fn send_reads(&self, reads: &[Read]) -> Vec<Result<Seen>> {
        let gets =
            reads.iter().flat_map(|read| read.keys.iter().map(|key| get_operation(key, read.at)));
        let gets: Vec<Value> = gets.collect();
        let count = gets.len();
        let outcome = self.call("/v3/kv/txn", &json!({ "success": gets }), Effect::Reads);
        let seen = outcome.and_then(|reply| {
            Ok((revision_of(&reply["header"])?, entries_of_responses(&reply, count)?))
        });
        match seen {
            Ok((version, entries)) => {
                let mut entries = entries.into_iter();
                let mut each = |read: &Read| entries.by_ref().take(read.keys.len()).collect();
                reads.iter().map(|read| Ok(Seen { version, entries: each(read) })).collect()
            }
            // It may be so for one of them alone.
            Err(KvError::TooOld | KvError::TooLarge) if reads.len() > 1 => {
                reads.chunks(1).flat_map(|read| self.send_reads(read)).collect()
            }
            Err(error) => vec![Err(error); reads.len()],
        }
    }

    /// Compacts to the revision that was new some time ago, now and then.
    fn compact(&self, newest: Version) {
        let oldest = {
            let mut seen = self.compaction.lock();
            let now = Instant::now();
            if seen.back().is_some_and(|(at, _)| now - *at < VERSION_AGE_MAX / 2) {
                return;
            }
            seen.push_back((now, newest));
            match seen.front() {
                Some((at, version)) if now - *at >= VERSION_AGE_MAX => {
                    let version = *version;
                    seen.pop_front();
                    version
                }
                _ => return,
            }
        };
        // Another process may have done it already; what fails is done the next time.
        let request = json!({ "revision": oldest.to_string() });
        if let Err(error) = self.call("/v3/kv/compaction", &request, Effect::Reads) {
            tracing::debug!(%error, "a compaction of etcd has failed");
        }
    }
}

impl Kv for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn is_persistent(&self) -> bool {
        true
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn read_version(&self) -> Result<Version> {
        // Linearizable: the server asks the leader how far it is. No such key is needed.
        let request = json!({ "key": BASE64.encode([0]), "count_only": true });
        let reply = self.call("/v3/kv/range", &request, Effect::Reads)?;
        let version = revision_of(&reply["header"])?;
        self.compact(version);
        Ok(version)
    }

    fn read_newest(&self, keys: &[Vec<u8>]) -> Result<(Version, Vec<Option<Vec<u8>>>)> {
        assert!(keys.len() <= ENTRIES_MAX, "they are read at once");
        let Seen { version, entries } = self.read_keys_and_version(None, keys)?;
        let mut known = self.known.lock();
        let mut values = Vec::with_capacity(keys.len());
        for (key, entry) in keys.iter().zip(entries) {
            known.note(version, key, entry.as_ref().map_or(0, |entry| entry.revision));
            values.push(entry.map(|entry| entry.value));
        }
        drop(known);
        self.compact(version);
        Ok((version, values))
    }

    fn get(&self, at: Version, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let entry = self.read_keys(Some(at), &[key.to_vec()])?.into_iter().next().flatten();
        let revision = entry.as_ref().map_or(0, |entry| entry.revision);
        self.known.lock().note(at, key, revision);
        Ok(entry.map(|entry| entry.value))
    }

    fn get_many(&self, at: Version, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(ENTRIES_MAX) {
            let entries = self.read_keys(Some(at), keys)?;
            let mut known = self.known.lock();
            for (key, entry) in keys.iter().zip(entries) {
                known.note(at, key, entry.as_ref().map_or(0, |entry| entry.revision));
                values.push(entry.map(|entry| entry.value));
            }
        }
        Ok(values)
    }

    fn range(
        &self,
        at: Version,
        range: &KeyRange,
        direction: Direction,
        limit: BlockLimit,
    ) -> Result<Block> {
        if range.start >= range.end {
            return Ok(Block::default());
        }
        let entries_max = limit.entries_max.min(ENTRIES_MAX);
        // A block that may hold one byte holds one entry.
        let entries_max = entries_max.min(limit.bytes_max.max(1));
        let mut request = json!({
            "key": BASE64.encode(&range.start),
            "range_end": BASE64.encode(&range.end),
            "revision": at.to_string(),
            "limit": entries_max.to_string(),
        });
        if direction == Direction::Backward {
            request["sort_order"] = json!("DESCEND");
            request["sort_target"] = json!("KEY");
        }
        let (entries, has_more) = self.read(request)?;
        let entries = entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
        Ok(Block { entries, has_more })
    }

    fn commit(&self, commit: &Commit) -> Result<Stamp> {
        let limits = &self.limits;
        if commit.bytes() > limits.commit_bytes_max || commit.mutations.len() > limits.mutations_max
        {
            return Err(KvError::TooLarge);
        }
        for mutation in &commit.mutations {
            let (key, value) = match mutation {
                Mutation::Set(key, value) => (key.len(), value.len()),
                Mutation::Clear(key) | Mutation::Add(key, _) => (key.len(), 0),
                Mutation::ClearRange(range) => (range.start.len().max(range.end.len()), 0),
                Mutation::SetStamped { .. } => {
                    return Err(KvError::Unavailable("etcd has no stamped keys".to_owned()));
                }
            };
            if key > limits.key_bytes_max || value > limits.value_bytes_max {
                return Err(KvError::TooLarge);
            }
        }
        self.make(commit)
    }

    fn watch(&self, key: &[u8], seen: Option<&[u8]>, timeout: Duration) -> Result<bool> {
        let until = Instant::now() + timeout;
        loop {
            let found = self.read(json!({ "key": BASE64.encode(key) }))?.0.into_iter().next();
            if found.as_ref().map(|entry| entry.value.as_slice()) != seen {
                return Ok(true);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            std::thread::sleep(left.min(WATCH_STEP));
        }
    }

    fn estimate(&self, range: &KeyRange) -> Result<Estimate> {
        if range.start >= range.end {
            return Ok(Estimate { bytes: Some(0), keys: Some(0) });
        }
        let request = json!({
            "key": BASE64.encode(&range.start),
            "range_end": BASE64.encode(&range.end),
            "count_only": true,
        });
        let reply = self.call("/v3/kv/range", &request, Effect::Reads)?;
        Ok(Estimate { bytes: None, keys: Some(number_of(&reply["count"])?) })
    }

    fn split_points(&self, range: &KeyRange, parts: usize) -> Result<Vec<Vec<u8>>> {
        // etcd knows the number of keys of a range, not where its middle is. Keys alone are small.
        if range.start >= range.end {
            return Ok(Vec::new());
        }
        let request = json!({
            "key": BASE64.encode(&range.start),
            "range_end": BASE64.encode(&range.end),
            "keys_only": true,
        });
        let (entries, _) = self.read(request)?;
        let parts = parts.min(entries.len());
        Ok((1..parts).map(|part| entries[entries.len() * part / parts].key.clone()).collect())
    }

    fn status(&self) -> Result<ClusterStatus> {
        Ok(status::read(self))
    }

    fn connections(&self) -> Vec<Connections> {
        self.endpoints.iter().map(Endpoint::connections).collect()
    }
}

/// The meaning of a refusal. A write that is not known to be refused may be executed.
fn refusal(text: &str, effect: Effect) -> KvError {
    let says = |what: &str| text.contains(what);
    if says("required revision has been compacted") {
        KvError::TooOld
    } else if says("request is too large") || says("too many operations") || says("larger than max")
    {
        KvError::TooLarge
    } else if says("database space exceeded") {
        KvError::Unavailable("etcd is full (database space exceeded)".to_owned())
    } else if says("duplicate key given") || says("is not provided") {
        KvError::Corrupt(format!("etcd does not take a request: {text}"))
    } else if login::is_refused(text) || says("permission denied") {
        // Decided before anything is changed, also where it is decided after the request was
        // accepted.
        KvError::Unavailable(format!("etcd answers: {text}"))
    } else if effect == Effect::Writes && !says("no leader") && !says("too many requests") {
        KvError::Unknown
    } else {
        KvError::Unavailable(format!("etcd answers: {text}"))
    }
}

fn get_operation(key: &[u8], at: Option<Version>) -> Value {
    let mut get = json!({ "key": BASE64.encode(key) });
    if let Some(at) = at {
        get["revision"] = json!(at.to_string());
    }
    json!({ "request_range": get })
}

/// That a key was last changed at a revision; zero: that it is not there.
fn compare(key: &[u8], revision: u64) -> Value {
    json!({
        "key": BASE64.encode(key),
        "target": "MOD",
        "result": "EQUAL",
        "mod_revision": revision.to_string(),
    })
}

fn counter_of(entry: Option<&Entry>) -> (i64, u64) {
    entry.map_or((0, 0), |entry| {
        let bytes = entry.value.as_slice().try_into().ok();
        (bytes.map_or(0, i64::from_le_bytes), entry.revision)
    })
}

fn number_of(value: &Value) -> Result<u64> {
    match value {
        // Zero is left out.
        Value::Null => Some(0),
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
    .ok_or_else(|| KvError::Corrupt("etcd's reply has no number where one must be".to_owned()))
}

fn revision_of(header: &Value) -> Result<u64> {
    match number_of(&header["revision"])? {
        0 => Err(KvError::Corrupt("etcd's reply has no revision".to_owned())),
        revision => Ok(revision),
    }
}

fn bytes_of(value: &Value) -> Result<Vec<u8>> {
    let text = match value {
        Value::Null => return Ok(Vec::new()),
        value => value.as_str(),
    };
    text.and_then(|text| BASE64.decode(text).ok())
        .ok_or_else(|| KvError::Corrupt("etcd's reply has no bytes where some must be".to_owned()))
}

fn entries_of(reply: &Value) -> Result<Vec<Entry>> {
    let Some(entries) = reply["kvs"].as_array() else { return Ok(Vec::new()) };
    entries
        .iter()
        .map(|entry| {
            Ok(Entry {
                key: bytes_of(&entry["key"])?,
                value: bytes_of(&entry["value"])?,
                revision: number_of(&entry["mod_revision"])?,
            })
        })
        .collect()
}

fn entries_of_responses(reply: &Value, count: usize) -> Result<Vec<Option<Entry>>> {
    let responses = reply["responses"].as_array().map(Vec::as_slice).unwrap_or_default();
    if responses.len() != count {
        return Err(KvError::Corrupt("etcd answers another number of requests".to_owned()));
    }
    responses
        .iter()
        .map(|response| Ok(entries_of(&response["response_range"])?.into_iter().next()))
        .collect()
}

/// Puts and deletes of a commit as operations of etcd.
fn operation_of(key: &[u8], value: Option<&[u8]>) -> Value {
    match value {
        Some(value) => {
            json!({ "request_put": { "key": BASE64.encode(key), "value": BASE64.encode(value) } })
        }
        None => json!({ "request_delete_range": { "key": BASE64.encode(key) } }),
    }
}
