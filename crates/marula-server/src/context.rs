//! What a command works with beside its request.

use std::sync::Arc;
use std::time::Instant;

use marula_bson::{ByteSlice, DocBuf, DocWriter, ObjectId, Value};
use marula_db::{Db, Transaction, Unit};
use marula_error::{Result, errors};
use marula_query::context::{Check, Context as QueryContext};
use parking_lot::Mutex;

use crate::auth::access::Access;
use crate::auth::check;
use crate::auth::check::Need;
use crate::connection::Connection;
use crate::ended::Statements;
use crate::memory::Memory;
use crate::net::service::{Call, Disconnected};
use crate::operation::{self, Operation};
use crate::server::Server;
use crate::session::Lsid;
use crate::snapshots::Snapshot;
use crate::stored_code;
use crate::transactions::Entered;

errors! {
    time_limit() = MaxTimeMSExpired, "operation exceeded time limit";
    disconnected() = 279, "operation was interrupted because a client disconnected";
}

/// What a command works with: the server, its connection, and when it must end.
pub struct Context<'a> {
    /// What all connections share.
    pub server: &'a Arc<Server>,
    /// What its operation reads and writes.
    pub unit: Unit<'a>,
    /// The moment that it reads at, outside transactions.
    pub snapshot: Option<&'a Snapshot>,
    /// The client's transaction that it belongs to.
    pub entered: Option<&'a Entered>,
    /// The connection that the command came on.
    pub connection: &'a mut Connection,
    /// Where and why it runs.
    pub call: &'a Call,
    /// When it must have ended; a command with a `maxTimeMS` of its own sets it itself.
    pub deadline: Option<Instant>,
    /// The moment that the command sees as now, in milliseconds since 1970: one for all its
    /// documents.
    pub now_ms: i64,
    /// The statements of a write that are to be recorded one by one; `None` where they are not.
    pub statements: Option<Statements>,
    /// The command that opened the cursor which this one reads, where that is to be told.
    pub origin: Option<DocBuf>,
    /// Whether the operation will or may be recorded by the profiler.
    pub is_profiled: bool,
    /// What the command needed to be allowed; nothing where access control is off.
    pub(crate) needs: Vec<Need>,
}

impl Context<'_> {
    /// Has `work` read and write within a transaction.
    pub(crate) fn within<T>(
        &mut self,
        transaction: &Transaction,
        work: impl FnOnce(&mut Context<'_>) -> T,
    ) -> T {
        let mut inner = Context {
            server: self.server,
            unit: self.unit.within(transaction),
            snapshot: self.snapshot,
            entered: self.entered,
            connection: &mut *self.connection,
            call: self.call,
            deadline: self.deadline,
            now_ms: self.now_ms,
            statements: self.statements.take(),
            origin: self.origin.take(),
            is_profiled: self.is_profiled,
            needs: std::mem::take(&mut self.needs),
        };
        let done = work(&mut inner);
        let Context { statements, origin, needs, .. } = inner;
        (self.statements, self.origin, self.needs) = (statements, origin, needs);
        done
    }

    /// Fails once the command must end: it was killed, its time is over, its client is gone, or the
    /// server stops. Long work asks every few hundred documents.
    #[inline]
    pub fn check_interrupt(&self) -> Result<()> {
        if let Some(error) = self.connection.operation.interruption() {
            return Err(error);
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(time_limit());
        }
        if self.connection.peer.disconnected.get() {
            return Err(disconnected());
        }
        if self.server.shutdown.is_requested() {
            return Err(operation::shutting_down());
        }
        Ok(())
    }

    /// What the user may do, where access control is on; `None` where everything may be done.
    pub(crate) fn restrained(&self) -> Option<&Access> {
        let is_restrained = self.server.options.has_access_control;
        // Who is no user may no more than who comes first.
        is_restrained.then(|| self.connection.access.as_deref().unwrap_or(&check::FIRST_COMER))
    }

    /// A session's id as this user's: sessions of different users are different.
    pub(crate) fn own_session(&self, lsid: Lsid) -> Lsid {
        self.restrained().map_or(lsid, |access| lsid.of_user(access.digest()))
    }

    /// What ends this command, to keep.
    pub fn interrupt(&self) -> Interrupt {
        Interrupt {
            operation: self.connection.operation.clone(),
            deadline: self.deadline,
            disconnected: self.connection.peer.disconnected.clone(),
        }
    }

    /// Appends what a member of a replica set adds to the reply of a write: `electionId` and
    /// `opTime`.
    pub fn append_op_time(&self, reply: &mut DocWriter<'_>) {
        if self.server.options.repl_set.is_some() {
            reply.append("electionId", ELECTION_ID);
            let mut op_time = reply.begin_doc("opTime");
            self.server.append_op_time(&mut op_time);
        }
    }

    /// Appends `atClusterTime`, the time of what a read at the level `snapshot` has seen, where it
    /// is such a read.
    pub fn append_snapshot_time(&self, out: &mut DocWriter<'_>) {
        if let Some(snapshot) = self.snapshot {
            out.append("atClusterTime", Value::Timestamp(snapshot.time));
        }
    }

    /// The client's name for itself, for logs and `currentOp`.
    pub fn app_name(&self) -> Option<String> {
        let metadata = self.connection.metadata.as_ref()?;
        let application = metadata.as_doc().get("application")?.as_doc()?;
        Some(application.get("name")?.as_str()?.to_str_lossy().into_owned())
    }
}

/// What ends a command, for work that outlives the borrow of its [`Context`]: a pipeline between
/// two batches.
#[derive(Clone)]
pub struct Interrupt {
    operation: Arc<Operation>,
    deadline: Option<Instant>,
    disconnected: Disconnected,
}

impl Interrupt {
    /// That of `operation`, which ends by `deadline` and when its client has gone.
    pub fn new(
        operation: Arc<Operation>,
        deadline: Option<Instant>,
        disconnected: Disconnected,
    ) -> Self {
        Interrupt { operation, deadline, disconnected }
    }
}

impl Check for Interrupt {
    fn check(&self) -> Result<()> {
        Interrupt::check(self)
    }
}

impl Interrupt {
    /// Fails once the command must end.
    pub fn check(&self) -> Result<()> {
        if let Some(error) = self.operation.interruption() {
            return Err(error);
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(time_limit());
        }
        if self.disconnected.get() {
            return Err(disconnected());
        }
        Ok(())
    }
}

/// What a command reads and writes, for work that outlives the borrow of its [`Context`].
#[derive(Clone)]
pub(crate) struct Work {
    db: Arc<Db>,
    operation: Arc<Operation>,
    transaction: Option<Arc<Transaction>>,
    snapshot: Option<Snapshot>,
}

impl Work {
    /// That of a command.
    pub(crate) fn of(ctx: &Context<'_>) -> Self {
        let (db, operation) = (ctx.server.db.clone(), ctx.connection.operation.clone());
        let transaction = ctx.entered.and_then(|entered| entered.transaction.clone());
        Work { db, operation, transaction, snapshot: ctx.snapshot.cloned() }
    }

    /// The unit of work.
    pub(crate) fn unit(&self) -> Unit<'_> {
        let unit = Unit::new(&self.db).tallied(&self.operation.tally);
        if let Some(snapshot) = &self.snapshot {
            return unit.seeing(&*snapshot.view);
        }
        self.transaction.as_deref().map_or(unit, |transaction| unit.within(transaction))
    }
}

/// What ends the operation of a query. A cursor lives over several commands, each with an end of
/// its own.
pub(crate) struct Watch {
    interrupt: Mutex<Interrupt>,
    memory: Memory,
    db: Arc<Db>,
}

impl Watch {
    /// The operation ends with the command.
    pub(crate) fn new(ctx: &Context<'_>) -> Self {
        let (memory, db) = (Memory::of(ctx.server), ctx.server.db.clone());
        Watch { interrupt: Mutex::new(ctx.interrupt()), memory, db }
    }

    /// The operation goes on in another command, and ends with that.
    pub(crate) fn renew(query: &QueryContext, ctx: &Context<'_>) {
        if let Some(watch) =
            query.interrupt.as_ref().and_then(|interrupt| interrupt.made_of::<Watch>())
        {
            *watch.interrupt.lock() = ctx.interrupt();
        }
    }
}

impl Check for Watch {
    fn check(&self) -> Result<()> {
        self.interrupt.lock().check()
    }

    fn ask(&self, bytes: usize) -> Result<()> {
        self.memory.ask(bytes)
    }

    fn is_short_of(&self, bytes: usize) -> bool {
        self.memory.is_short_of(bytes)
    }

    fn stored_code(&self) -> Result<DocBuf> {
        let ns = self.interrupt.lock().operation.namespace();
        let database = ns.as_deref().and_then(|ns| ns.split('.').next());
        database.map_or_else(|| Ok(DocBuf::new()), |name| stored_code::read(&self.db, name))
    }
}

/// The election of the only member of a set: its first.
pub(crate) const ELECTION_ID: ObjectId =
    ObjectId::from_bytes([0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1]);
