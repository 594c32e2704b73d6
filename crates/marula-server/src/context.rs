//! The context of a command, in addition to its request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use marula_bson::{ByteSlice, DocBuf, DocWriter, ObjectId, Value};
use marula_db::{Db, Transaction, Unit};
use marula_error::{Result, errors};
use marula_operation::pipeline;
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

/// The context of a command: the server, its connection, and its deadline.
pub struct Context<'a> {
    /// The state that all connections share.
    pub server: &'a Arc<Server>,
    /// The unit of work of its operation.
    pub unit: Unit<'a>,
    /// The moment that it reads at, outside transactions.
    pub snapshot: Option<&'a Snapshot>,
    /// The client's transaction that it belongs to.
    pub entered: Option<&'a Entered>,
    /// The connection that the command came from.
    pub connection: &'a mut Connection,
    /// The thread and the reason of this call.
    pub call: &'a Call,
    /// The deadline; a command that reads `maxTimeMS` itself sets it itself.
    pub deadline: Option<Instant>,
    /// The current time for the command, in milliseconds since 1970: the same for all its
    /// documents.
    pub now_ms: i64,
    /// The statements of a write that are recorded one by one; `None` if they are not.
    pub statements: Option<Statements>,
    /// The command that opened the cursor that this one reads, if the profiler wants it.
    pub origin: Option<DocBuf>,
    /// Whether the profiler records the operation, or may record it.
    pub is_profiled: bool,
    /// The privileges that the command needed; empty if access control is off.
    pub(crate) needs: Vec<Need>,
}

impl Context<'_> {
    /// Runs `work` with the reads and writes of a transaction.
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

    /// Returns the time that the command has until its deadline, if it has one.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Fails once the command must end: it was killed, its time is over, its client has
    /// disconnected and it [ends with it](crate::row::Command::ends_with_client), or the server
    /// stops. Long work calls it every few hundred documents.
    #[inline]
    pub fn check_interrupt(&self) -> Result<()> {
        let peer = &self.connection.peer;
        check(&self.connection.operation, self.deadline, &peer.disconnected)?;
        if self.server.shutdown.is_requested() {
            return Err(operation::shutting_down());
        }
        Ok(())
    }

    /// Returns the user's privileges if access control is on; `None` if everything is permitted.
    pub(crate) fn restrained(&self) -> Option<&Access> {
        let is_restrained = self.server.options.has_access_control;
        // Clients that are not authenticated have the privileges of the first user before there are
        // any.
        is_restrained.then(|| self.connection.access.as_deref().unwrap_or(&check::FIRST_COMER))
    }

    /// Returns a session's id for this user.
    ///
    /// Errors: it is another user's.
    pub(crate) fn own_session(&self, lsid: Lsid) -> Result<Lsid> {
        check::own_lsid(self.server, self.connection, lsid)
    }

    /// Returns an owned handle of the conditions that end this command.
    pub fn interrupt(&self) -> Interrupt {
        Interrupt {
            operation: self.connection.operation.clone(),
            deadline: self.deadline,
            disconnected: self.connection.peer.disconnected.clone(),
        }
    }

    /// Appends the fields that a member of a replica set adds to the reply of a write: `electionId`
    /// and `opTime`.
    pub fn append_op_time(&self, reply: &mut DocWriter<'_>) {
        if self.server.options.repl_set.is_some() {
            reply.append("electionId", ELECTION_ID);
            let mut op_time = reply.begin_doc("opTime");
            self.server.append_op_time(&mut op_time);
        }
    }

    /// Appends `atClusterTime`, the time of a read at the level `snapshot`, if this is one.
    pub fn append_snapshot_time(&self, out: &mut DocWriter<'_>) {
        if let Some(snapshot) = self.snapshot {
            out.append("atClusterTime", Value::Timestamp(snapshot.time));
        }
    }

    /// Returns the client's application name, for logs and `currentOp`.
    pub fn app_name(&self) -> Option<String> {
        let metadata = self.connection.metadata.as_ref()?;
        let application = metadata.as_doc().get("application")?.as_doc()?;
        Some(application.get("name")?.as_str()?.to_str_lossy().into_owned())
    }
}

/// The conditions that end a command, for work that outlives the borrow of its [`Context`]: a
/// pipeline between two batches.
#[derive(Clone)]
pub struct Interrupt {
    operation: Arc<Operation>,
    deadline: Option<Instant>,
    disconnected: Disconnected,
}

impl Interrupt {
    /// Returns those of `operation`, which ends by `deadline`.
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
        check(&self.operation, self.deadline, &self.disconnected)
    }
}

/// Fails once `operation`, which ends by `deadline`, must end.
#[inline]
fn check(
    operation: &Operation,
    deadline: Option<Instant>,
    client_gone: &Disconnected,
) -> Result<()> {
    if let Some(error) = operation.interruption() {
        return Err(error);
    }
    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        return Err(time_limit());
    }
    if client_gone.get() && operation.ends_with_client() {
        return Err(disconnected());
    }
    Ok(())
}

/// The unit of work of a command, for work that outlives the borrow of its [`Context`].
#[derive(Clone)]
pub(crate) struct Work {
    db: Arc<Db>,
    operation: Arc<Operation>,
    transaction: Option<Arc<Transaction>>,
    snapshot: Option<Snapshot>,
}

impl Work {
    /// Returns that of a command.
    pub(crate) fn of(ctx: &Context<'_>) -> Self {
        let (db, operation) = (ctx.server.db.clone(), ctx.connection.operation.clone());
        let transaction = ctx.entered.and_then(|entered| entered.transaction.clone());
        Work { db, operation, transaction, snapshot: ctx.snapshot.cloned() }
    }
}

impl pipeline::Work for Work {
    fn unit(&self) -> Unit<'_> {
        let unit = self.operation.unit(&self.db);
        if let Some(snapshot) = &self.snapshot {
            return unit.seeing(&*snapshot.view);
        }
        self.transaction.as_deref().map_or(unit, |transaction| unit.within(transaction))
    }
}

/// The conditions that end the operation of a query. A cursor spans several commands, each with its
/// own conditions.
pub(crate) struct Watch {
    interrupt: Mutex<Interrupt>,
    memory: Memory,
    db: Arc<Db>,
}

impl Watch {
    /// Returns those of a command.
    pub(crate) fn new(ctx: &Context<'_>) -> Self {
        let (memory, db) = (Memory::of(ctx.server), ctx.server.db.clone());
        Watch { interrupt: Mutex::new(ctx.interrupt()), memory, db }
    }

    /// Replaces them when the operation continues in another command.
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

    fn check_room(&self, bytes: usize) -> Result<()> {
        self.memory.check_room(bytes)
    }

    fn is_short_of(&self, bytes: usize) -> bool {
        self.memory.is_short_of(bytes)
    }

    fn stored_code(&self) -> Result<DocBuf> {
        let ns = self.interrupt.lock().operation.namespace();
        let database = ns.as_deref().and_then(|ns| ns.split('.').next());
        database.map_or_else(|| Ok(DocBuf::new()), |name| stored_code::read(&self.db, name))
    }

    fn next_timestamp(&self, now_ms: i64) -> Option<u64> {
        Some(self.db.next_timestamp(now_ms))
    }
}

/// The id of the single election of the set's only member.
pub(crate) const ELECTION_ID: ObjectId =
    ObjectId::from_bytes([0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1]);
