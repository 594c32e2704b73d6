//! Open cursors, which a client reads by `getMore`.
//!
//! ```text
//!   open ──► parked ◄──────────────┐
//!              │ take              │ park, or wait for documents
//!              ▼                   │
//!            taken by a command ───┘
//!              │ finish: the last batch       parked for ten minutes: closed
//!              ▼                              killed while a command reads it or waits:
//!            closed                           the command ends
//! ```
//!
//! At most one thread has a cursor at a time. Its documents come from its [`Source`]. The table has
//! shards and a limit.
//! Source: manual "Cursors"; errors recorded from mongod 6.0.

pub(crate) mod idle;
mod life;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use marula_bson::{ArrayWriter, DocBuf};
use marula_db::Namespace;
use marula_error::{Error, Result, errors};
use marula_operation::documents::{FindDocuments, Tail};
use parking_lot::Mutex;

use crate::auth::check::Need;
use crate::auth::name::Name;
use crate::context::{Context, Watch};
use crate::session::Lsid;
use crate::snapshots::Snapshot;

/// Milliseconds after which an idle cursor is closed: mongod's parameter `cursorTimeoutMillis`.
pub(crate) const TIMEOUT_MS: i64 = 600_000;
/// The maximum number of open cursors; each holds resources, and a client may open any number.
const CURSORS_MAX: usize = 1_000_000;
const SHARDS: usize = 16;

pub(crate) use idle::History;
pub(crate) use life::{LIFESPANS, Life, Lives};
pub(crate) use marula_operation::documents::{BATCH_BYTES_MAX, Filled};

errors! {
    /// A getMore names a cursor that was closed or timed out.
    pub not_found(id: i64) = CursorNotFound, "cursor id {id} not found";
    in_use(id: i64) = CursorInUse, "cursor id {id} is already in use";
    other_namespace(requested: &str, owner: &str) = Unauthorized, "Requested getMore on namespace '{requested}', but cursor belongs to a different namespace {owner}";
    without_session(id: i64, owner: &str) = 50_737, "Cannot run getMore on cursor {id}, which was created in session {owner}, without an lsid";
    in_transaction(id: i64, number: i64) = 50_739, "Cannot run getMore on cursor {id}, which was not created in a transaction, in transaction {number}";
    without_number(id: i64, owner: i64) = 50_740, "Cannot run getMore on cursor {id}, which was created in transaction {owner}, without a txnNumber";
    other_number(id: i64, owner: i64, number: i64) = 50_741, "Cannot run getMore on cursor {id}, which was created in transaction {owner}, in transaction {number}";
    not_its_session(id: i64, lsid: &str) = 50_736, "Cannot run getMore on cursor {id}, which was not created in a session, in session {lsid}";
    other_session(id: i64, owner: &str, lsid: &str) = 50_738, "Cannot run getMore on cursor {id}, which was created in session {owner}, in session {lsid}";
    too_many() = ExceededMemoryLimit, "there are too many open cursors on this server";
}

/// Ends the command that reads a cursor, or waits for its documents.
pub(crate) type End = Box<dyn FnOnce() + Send>;

/// The source of a cursor's batches.
pub trait Source: Send {
    /// Appends the next documents, at most `documents_max` of them and about [`BATCH_BYTES_MAX`]
    /// bytes.
    fn fill(
        &mut self,
        context: &Context<'_>,
        documents_max: usize,
        batch: &mut ArrayWriter<'_>,
    ) -> Result<Filled>;

    /// Returns the one-line summary of the plan, if there is one.
    fn plan_summary(&self) -> Option<String> {
        None
    }

    /// Returns whether it waits for further documents at its end.
    fn tail(&self) -> Tail {
        Tail::No
    }

    /// For callers that know the concrete type.
    fn as_any(&mut self) -> &mut dyn std::any::Any;
}

impl Source for FindDocuments {
    fn fill(
        &mut self,
        ctx: &Context<'_>,
        documents_max: usize,
        batch: &mut ArrayWriter<'_>,
    ) -> Result<Filled> {
        Watch::renew(&self.execution().query().context, ctx);
        FindDocuments::fill(self, &ctx.env(), documents_max, batch)
    }

    fn plan_summary(&self) -> Option<String> {
        Some(self.execution().plan().summary())
    }

    fn tail(&self) -> Tail {
        FindDocuments::tail(self)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// A source of documents in memory.
pub(crate) struct Documents {
    rest: std::vec::IntoIter<DocBuf>,
    pushed_back: Option<DocBuf>,
}

impl Documents {
    /// Returns a source of these documents.
    pub(crate) fn new(documents: Vec<DocBuf>) -> Self {
        Documents { rest: documents.into_iter(), pushed_back: None }
    }

    /// [`Source::fill`], which for documents in memory neither waits nor fails.
    pub(crate) fn fill_now(&mut self, documents_max: usize, batch: &mut ArrayWriter<'_>) -> Filled {
        for _ in 0..documents_max {
            let Some(document) = self.pushed_back.take().or_else(|| self.rest.next()) else {
                break;
            };
            if batch.count() > 0 && batch.size() + document.len() > BATCH_BYTES_MAX {
                self.pushed_back = Some(document);
                break;
            }
            batch.push(document.as_doc());
        }
        match self.pushed_back.is_none() && self.rest.len() == 0 {
            true => Filled::Exhausted,
            false => Filled::More,
        }
    }
}

impl Source for Documents {
    fn fill(
        &mut self,
        _: &Context<'_>,
        documents_max: usize,
        batch: &mut ArrayWriter<'_>,
    ) -> Result<Filled> {
        Ok(self.fill_now(documents_max, batch))
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// A cursor between two commands.
pub struct Parked {
    /// The source of its documents.
    pub source: Box<dyn Source>,
    /// The namespace that its `getMore`s must name.
    pub namespace: Namespace,
    /// The session it was opened in.
    pub lsid: Option<Lsid>,
    /// The moment that it reads at.
    pub snapshot: Option<Snapshot>,
    /// The rest of its `maxTimeMS`, of which only commands take: not the time between them.
    pub time_left: Option<Duration>,
    /// The number of the transaction it was opened in.
    pub transaction: Option<i64>,
    /// Whether it has no timeout.
    pub no_timeout: bool,
    /// The command that opened it, for `currentOp` and the log.
    pub origin: DocBuf,
    /// Its user, and the privileges that were needed to open it, if access control is on.
    pub(crate) owner: Option<Owner>,
    /// Its lifetime, which starts when it is opened.
    pub life: Life,
    /// The number of documents and batches that it has returned.
    pub history: History,
}

impl Parked {
    /// A cursor of this command, whose first batch, of `count` documents, is in the reply. `lsid`
    /// is its session and `origin` its body.
    pub(crate) fn new(
        ctx: &Context<'_>,
        source: Box<dyn Source>,
        namespace: Namespace,
        lsid: Option<Lsid>,
        origin: DocBuf,
        count: usize,
    ) -> Self {
        // The `maxTimeMS` of a cursor that waits for data limits its first batch only.
        let time_left = ctx.time_left().filter(|_| source.tail() != Tail::AwaitData);
        Parked {
            source,
            namespace,
            lsid,
            snapshot: ctx.snapshot.cloned(),
            time_left,
            transaction: ctx.entered.map(|entered| entered.number),
            no_timeout: false,
            origin,
            owner: Owner::of(ctx),
            life: Life::default(),
            history: History::begin(ctx, count),
        }
    }
}

/// The bounds that the `getMore`s of a cursor have from the command that opened it.
#[derive(Default)]
pub(crate) struct Inherited {
    /// The moment that they read at.
    pub(crate) snapshot: Option<Snapshot>,
    /// The time that they have together.
    pub(crate) time_left: Option<Duration>,
}

/// The owner of a cursor.
#[derive(Clone)]
pub(crate) struct Owner {
    /// The user.
    pub(crate) user: Name,
    /// The privileges that were needed to open it.
    pub(crate) needs: Vec<Need>,
}

impl Owner {
    /// Returns the user of this command.
    pub(crate) fn of(ctx: &Context<'_>) -> Option<Self> {
        ctx.restrained().map(|access| Owner { user: access.user.clone(), needs: ctx.needs.clone() })
    }
}

enum Entry {
    Idle {
        cursor: Box<Parked>,
        last_use_ms: i64,
        /// The command that waits for its documents.
        waits: Option<End>,
    },
    /// A command reads it.
    Taken {
        namespace: Namespace,
        lsid: Option<Lsid>,
        user: Option<Name>,
        reader: Option<End>,
        is_killed: bool,
        no_timeout: bool,
    },
}

impl Entry {
    fn lsid(&self) -> Option<&Lsid> {
        match self {
            Entry::Idle { cursor, .. } => cursor.lsid.as_ref(),
            Entry::Taken { lsid, .. } => lsid.as_ref(),
        }
    }

    fn namespace(&self) -> &Namespace {
        match self {
            Entry::Idle { cursor, .. } => &cursor.namespace,
            Entry::Taken { namespace, .. } => namespace,
        }
    }
}

/// `serverStatus.metrics.cursor`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Cursors open now.
    pub open: u64,
    /// Of these, the ones that a command reads now.
    pub pinned: u64,
    /// Of these, the ones without a timeout.
    pub no_timeout: u64,
    /// Cursors opened since the start.
    pub total_opened: u64,
    /// Cursors that timed out since the start.
    pub timed_out: u64,
}

/// The open cursors.
pub struct Cursors {
    shards: [Mutex<HashMap<i64, Entry>>; SHARDS],
    total_opened: AtomicU64,
    timed_out: AtomicU64,
    timeout_ms: AtomicI64,
    lives: Arc<Lives>,
}

impl Default for Cursors {
    fn default() -> Self {
        Cursors {
            shards: std::array::from_fn(|_| Mutex::new(HashMap::new())),
            total_opened: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            timeout_ms: AtomicI64::new(TIMEOUT_MS),
            lives: Arc::default(),
        }
    }
}

impl Cursors {
    fn shard(&self, id: i64) -> &Mutex<HashMap<i64, Entry>> {
        let low_bits = usize::try_from(id & 0xFF).expect("a byte fits");
        &self.shards[low_bits % SHARDS]
    }

    /// Counts a cursor as opened; returns its lifetime. A pipeline's begins before its first batch,
    /// also if that will be its only one; a query's begins when [`Cursors::open`] parks it.
    pub fn begin_life(&self) -> Life {
        self.total_opened.fetch_add(1, Ordering::Relaxed);
        Life::begin(&self.lives)
    }

    /// Parks a new cursor; returns its id, which is never zero.
    ///
    /// Errors: `too_many`.
    pub fn open(&self, mut cursor: Parked, now_ms: i64) -> Result<i64> {
        if !cursor.life.has_begun() {
            cursor.life = self.begin_life();
        }
        loop {
            // Ids cannot be guessed: the id permits reading the cursor.
            let id = rand::random::<i64>() & i64::MAX;
            let mut shard = self.shard(id).lock();
            if shard.len() >= CURSORS_MAX / SHARDS {
                return Err(too_many());
            }
            if id == 0 || shard.contains_key(&id) {
                continue;
            }
            shard.insert(
                id,
                Entry::Idle { cursor: Box::new(cursor), last_use_ms: now_ms, waits: None },
            );
            return Ok(id);
        }
    }

    /// Takes a cursor to read it; `reader` ends the command that does. Give it back by
    /// [`Cursors::park`] or [`Cursors::wait`], or end it by [`Cursors::finish`].
    ///
    /// Errors: `not_found`, `in_use`, and those of a cursor of another namespace or session.
    pub fn take(
        &self,
        id: i64,
        namespace: &Namespace,
        lsid: Option<&Lsid>,
        reader: Option<End>,
    ) -> Result<Box<Parked>> {
        let mut shard = self.shard(id).lock();
        let entry = shard.get_mut(&id).ok_or_else(|| not_found(id))?;
        if entry.namespace() != namespace {
            return Err(other_namespace(namespace.as_str(), entry.namespace().as_str()));
        }
        check_session(id, entry.lsid(), lsid)?;
        let Entry::Idle { cursor, .. } = entry else { return Err(in_use(id)) };
        let taken = Entry::Taken {
            namespace: cursor.namespace.clone(),
            lsid: cursor.lsid,
            user: cursor.owner.as_ref().map(|owner| owner.user.clone()),
            reader,
            is_killed: false,
            no_timeout: cursor.no_timeout,
        };
        match std::mem::replace(entry, taken) {
            Entry::Idle { mut cursor, .. } => {
                cursor.life.go_on();
                Ok(cursor)
            }
            Entry::Taken { .. } => Err(in_use(id)),
        }
    }

    /// Parks a cursor again; returns whether it stays open. One that was killed in the meantime is
    /// closed.
    pub fn park(&self, id: i64, cursor: Box<Parked>, now_ms: i64) -> bool {
        self.put_back(id, cursor, now_ms, None)
    }

    /// Parks a cursor while the command `waits` for its documents.
    pub fn wait(&self, id: i64, cursor: Box<Parked>, now_ms: i64, waits: End) {
        self.put_back(id, cursor, now_ms, Some(waits));
    }

    fn put_back(&self, id: i64, cursor: Box<Parked>, last_use_ms: i64, waits: Option<End>) -> bool {
        let mut shard = self.shard(id).lock();
        match shard.get_mut(&id) {
            Some(entry @ Entry::Taken { is_killed: false, .. }) => {
                *entry = Entry::Idle { cursor, last_use_ms, waits };
                true
            }
            _ => {
                shard.remove(&id);
                false
            }
        }
    }

    /// Returns the bounds that a `getMore` of this cursor inherits; none if it is not idle.
    pub(crate) fn inherited(&self, id: i64) -> Inherited {
        match self.shard(id).lock().get(&id) {
            Some(Entry::Idle { cursor, .. }) => {
                Inherited { snapshot: cursor.snapshot.clone(), time_left: cursor.time_left }
            }
            _ => Inherited::default(),
        }
    }

    /// Ends a cursor that was taken.
    pub fn finish(&self, id: i64) {
        self.shard(id).lock().remove(&id);
    }

    /// Returns whether a cursor that was taken has been killed since.
    pub fn is_killed(&self, id: i64) -> bool {
        matches!(self.shard(id).lock().get(&id), None | Some(Entry::Taken { is_killed: true, .. }))
    }

    /// Returns whether a cursor belongs to this user; one that does not exist belongs to any user.
    pub(crate) fn is_of(&self, id: i64, user: &Name) -> bool {
        match self.shard(id).lock().get(&id) {
            None => true,
            Some(Entry::Idle { cursor, .. }) => {
                cursor.owner.as_ref().is_some_and(|owner| owner.user == *user)
            }
            Some(Entry::Taken { user: owner, .. }) => owner.as_ref() == Some(user),
        }
    }

    /// Closes a cursor; returns whether there was one. mongod does not check its namespace.
    pub fn kill(&self, id: i64) -> bool {
        let mut shard = self.shard(id).lock();
        let is_open = match shard.get(&id) {
            None | Some(Entry::Taken { is_killed: true, .. }) => false,
            Some(_) => true,
        };
        kill_entry(&mut shard, id);
        is_open
    }

    /// Closes the cursors for which `condemned` is true; returns their number.
    pub fn kill_where(&self, condemned: impl Fn(&Namespace, Option<&Lsid>) -> bool) -> usize {
        let mut killed = 0;
        for shard in &self.shards {
            let mut shard = shard.lock();
            let ids: Vec<i64> = shard
                .iter()
                .filter(|(_, entry)| condemned(entry.namespace(), entry.lsid()))
                .map(|(&id, _)| id)
                .collect();
            killed += ids.len();
            ids.into_iter().for_each(|id| kill_entry(&mut shard, id));
        }
        killed
    }

    /// Drops the resources of idle cursors whose transactions are over. They can still be closed,
    /// but not read.
    pub fn empty_ended(&self, is_open: &dyn Fn(&Lsid, i64) -> bool) {
        for shard in &self.shards {
            for entry in shard.lock().values_mut() {
                let Entry::Idle { cursor, .. } = entry else { continue };
                if let (Some(lsid), Some(number)) = (&cursor.lsid, cursor.transaction)
                    && !is_open(lsid, number)
                {
                    cursor.source = Box::new(Documents::new(Vec::new()));
                }
            }
        }
    }

    /// Closes cursors that have been idle for too long.
    pub fn expire(&self, now_ms: i64) {
        // A client may have set any number.
        let before_ms = now_ms.saturating_sub(self.timeout_ms.load(Ordering::Relaxed));
        for shard in &self.shards {
            let mut expired = 0;
            shard.lock().retain(|_, entry| match entry {
                Entry::Idle { cursor, last_use_ms, .. } => {
                    let stays = cursor.no_timeout || *last_use_ms >= before_ms;
                    expired += u64::from(!stays);
                    stays
                }
                Entry::Taken { .. } => true,
            });
            self.timed_out.fetch_add(expired, Ordering::Relaxed);
        }
    }

    /// Returns the lifetimes of the cursors that have ended.
    pub fn lives(&self) -> &Lives {
        &self.lives
    }

    /// Sets the idle timeout.
    pub fn set_timeout_ms(&self, timeout_ms: i64) {
        self.timeout_ms.store(timeout_ms, Ordering::Relaxed);
    }

    /// Returns the numbers of cursors.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = Statistics {
            total_opened: self.total_opened.load(Ordering::Relaxed),
            timed_out: self.timed_out.load(Ordering::Relaxed),
            ..Statistics::default()
        };
        for shard in &self.shards {
            for entry in shard.lock().values() {
                statistics.open += 1;
                let (pinned, no_timeout) = match entry {
                    Entry::Idle { cursor, .. } => (false, cursor.no_timeout),
                    Entry::Taken { no_timeout, .. } => (true, *no_timeout),
                };
                statistics.pinned += u64::from(pinned);
                statistics.no_timeout += u64::from(no_timeout);
            }
        }
        statistics
    }
}

fn kill_entry(shard: &mut HashMap<i64, Entry>, id: i64) {
    let reader = match shard.get_mut(&id) {
        Some(Entry::Taken { is_killed, reader, .. }) => {
            *is_killed = true;
            reader.take()
        }
        _ => match shard.remove(&id) {
            Some(Entry::Idle { waits, .. }) => waits,
            _ => None,
        },
    };
    if let Some(reader) = reader {
        reader();
    }
}

/// Checks that a cursor is read in the transaction in which it was opened, or outside transactions
/// if it was opened outside.
///
/// Errors: `in_transaction`, `without_number`, `other_number`.
pub(crate) fn check_transaction(id: i64, owner: Option<i64>, number: Option<i64>) -> Result<()> {
    match (owner, number) {
        (None, Some(number)) => Err(in_transaction(id, number)),
        (Some(owner), None) => Err(without_number(id, owner)),
        (Some(owner), Some(number)) if owner != number => Err(other_number(id, owner, number)),
        _ => Ok(()),
    }
}

fn check_session(id: i64, owner: Option<&Lsid>, lsid: Option<&Lsid>) -> Result<(), Error> {
    let text = Lsid::shown;
    match (owner, lsid) {
        (None, None) => Ok(()),
        (Some(owner), Some(lsid)) if owner == lsid => Ok(()),
        (Some(owner), None) => Err(without_session(id, &text(owner))),
        (None, Some(lsid)) => Err(not_its_session(id, &text(lsid))),
        (Some(owner), Some(lsid)) => Err(other_session(id, &text(owner), &text(lsid))),
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;

    use super::*;

    fn parked(lsid: Option<Lsid>) -> Parked {
        Parked {
            source: Box::new(Documents::new(vec![doc! { "a": 1 }, doc! { "a": 2 }])),
            namespace: Namespace::new("d", "c").unwrap(),
            lsid,
            snapshot: None,
            time_left: None,
            transaction: None,
            no_timeout: false,
            origin: DocBuf::new(),
            owner: None,
            life: Life::default(),
            history: History::default(),
        }
    }

    #[test]
    fn a_cursor_is_with_one_reader_at_a_time() {
        let cursors = Cursors::default();
        let ns = Namespace::new("d", "c").unwrap();
        let id = cursors.open(parked(None), 0).unwrap();
        let taken = cursors.take(id, &ns, None, None).unwrap();
        assert_eq!(cursors.take(id, &ns, None, None).err().unwrap().code().number(), 143);
        assert!(cursors.park(id, taken, 0));
        let taken = cursors.take(id, &ns, None, None).unwrap();
        assert!(cursors.kill(id));
        assert!(cursors.is_killed(id));
        assert!(!cursors.park(id, taken, 0));
        assert_eq!(cursors.take(id, &ns, None, None).err().unwrap().code().number(), 43);
        assert!(!cursors.kill(id));
    }

    #[test]
    fn a_cursor_belongs_to_its_namespace_and_session() {
        let cursors = Cursors::default();
        let ns = Namespace::new("d", "c").unwrap();
        let other = Namespace::new("d", "x").unwrap();
        let lsid = Lsid::of_uuid([1; 16]);
        let id = cursors.open(parked(Some(lsid)), 0).unwrap();
        let code =
            |ns, lsid| cursors.take(id, ns, lsid, None).err().map(|error| error.code().number());
        assert_eq!(code(&other, Some(&lsid)), Some(13));
        assert_eq!(code(&ns, None), Some(50_737));
        assert_eq!(code(&ns, Some(&Lsid::of_uuid([2; 16]))), Some(50_738));
        assert_eq!(cursors.kill_where(|_, owner| owner == Some(&lsid)), 1);
    }

    #[test]
    fn idle_cursors_expire() {
        let cursors = Cursors::default();
        cursors.open(parked(None), 0).unwrap();
        cursors.open(Parked { no_timeout: true, ..parked(None) }, 0).unwrap();
        cursors.expire(TIMEOUT_MS);
        assert_eq!(cursors.statistics().open, 2);
        cursors.expire(TIMEOUT_MS + 1);
        let statistics = cursors.statistics();
        assert_eq!((statistics.open, statistics.timed_out, statistics.no_timeout), (1, 1, 1));
        cursors.set_timeout_ms(i64::MIN);
        cursors.open(parked(None), i64::MAX).unwrap();
        cursors.expire(TIMEOUT_MS);
        cursors.set_timeout_ms(i64::MAX);
        cursors.expire(TIMEOUT_MS);
        assert_eq!(cursors.statistics().open, 2);
    }

    #[test]
    fn documents_at_hand_come_in_batches() {
        let mut source = Documents::new(vec![doc! { "a": 1 }, doc! { "a": 2 }, doc! { "a": 3 }]);
        let mut bytes = Vec::new();
        let mut batch = ArrayWriter::new(&mut bytes);
        assert_eq!(source.fill_now(0, &mut batch), Filled::More);
        assert_eq!(source.fill_now(2, &mut batch), Filled::More);
        assert_eq!(source.fill_now(1, &mut batch), Filled::Exhausted);
        assert_eq!(batch.count(), 3);
    }
}
