//! The row of a command: the properties that the frame needs before the command's own code runs.
//!
//! The frame (request, dispatch, access control, counters) knows commands only by these types; the
//! table of all commands is [`COMMANDS`](crate::command::COMMANDS).

use std::time::Instant;

use marula_bson::{Doc, DocWriter};
use marula_db::latencies::Class;
use marula_error::Result;
use marula_error::codes::{self, Code};
use marula_query::feature_version::FeatureVersion;

use crate::auth::check::Check;
use crate::context::Context;
use crate::fields::Fields;
use crate::net::service::Arm;
use crate::request::Request;

/// A command's row.
///
/// Write rows as `Command { name: …, run, ..Command::DEFAULT }`.
pub struct Command {
    /// The name on the wire.
    pub name: &'static str,
    /// Other names on the wire.
    pub aliases: &'static [&'static str],
    /// The first release with this command.
    pub since: FeatureVersion,
    /// Whether only a test server has it, with the parameter `enableTestCommands`.
    pub is_for_tests: bool,
    /// Whether only a server over a distributed store has it.
    pub needs_cluster: bool,
    /// A description in a sentence or two, for `listCommands` and the reference page.
    pub help: &'static str,
    /// The thread that runs it.
    pub place: CommandPlace,
    /// Its counter in `serverStatus.opcounters`.
    pub kind: Kind,
    /// Whether it may only be sent to the database `admin`.
    pub admin_only: bool,
    /// Whether it changes data: it then waits while `fsync` locks writes.
    pub writes: bool,
    /// Whether it ends when its client disconnects, as nobody else needs its result. A command that
    /// changes something is completed, as in mongod: the client may have sent it without waiting
    /// for its reply. In the forms that write, a command ends by itself, whatever its row says.
    pub ends_with_client: bool,
    /// Whether a secondary executes it; `None` if that follows from the rest, see
    /// [`Command::on_secondary`].
    pub secondary: Option<OnSecondary>,
    /// Whether it permits a `writeConcern`; the frame then waits accordingly.
    pub takes_write_concern: bool,
    /// Whether it permits one with this body; `None` if with any.
    pub write_concern_with: Option<fn(Doc<'_>) -> bool>,
    /// Whether a `writeConcern` of the wrong type is reported as a field of the command.
    pub write_concern_is_field: bool,
    /// The levels of `readConcern` that it permits in addition to `local`.
    pub read_concern: ReadConcernLevels,
    /// Whether it permits `afterClusterTime`.
    pub takes_after_cluster_time: bool,
    /// Whether `txnNumber` may number its statements, so that a retry is not executed twice.
    pub is_retryable_write: bool,
    /// Whether it may run inside a multi-document transaction.
    pub in_transaction: bool,
    /// Whether it belongs to version 1 of the Stable API.
    pub in_api_v1: bool,
    /// Whether `maxTimeMS` is read by the command itself and is not its deadline.
    pub own_max_time: bool,
    /// The fields that it permits.
    pub fields: Fields,
    /// The form of its collection's name, if its first field is one.
    pub named: Named,
    /// Fields with secrets: neither the log nor other clients see their values.
    pub secrets: &'static [&'static str],
    /// The privileges that its user needs.
    pub auth: Auth,
    /// Executes it.
    pub run: fn(&mut Context<'_>, &Request<'_>, &mut DocWriter<'_>) -> Result<Outcome>,
}

impl Command {
    /// Returns whether it permits a `writeConcern` with this body.
    pub fn permits_write_concern(&self, body: Doc<'_>) -> bool {
        self.takes_write_concern && self.write_concern_with.is_none_or(|permits| permits(body))
    }

    /// Returns whether a secondary executes it.
    pub fn on_secondary(&self) -> OnSecondary {
        let reads = !matches!(self.read_concern, ReadConcernLevels::Local);
        self.secondary.unwrap_or(match (self.writes, reads) {
            (true, _) => OnSecondary::Never,
            (false, true) => OnSecondary::IfPreferred,
            (false, false) => OnSecondary::Always,
        })
    }

    /// Returns its class in `opLatencies`.
    pub fn class(&self) -> Class {
        match self.kind {
            Kind::Query | Kind::GetMore => Class::Reads,
            Kind::Insert | Kind::Update | Kind::Delete => Class::Writes,
            Kind::Command if self.is_retryable_write => Class::Writes,
            Kind::Command if !matches!(self.read_concern, ReadConcernLevels::Local) => Class::Reads,
            Kind::Command => Class::Commands,
        }
    }

    /// The row that others are based on: a read that runs in the pool.
    pub const DEFAULT: Command = Command {
        name: "",
        aliases: &[],
        since: FeatureVersion::V6_0,
        is_for_tests: false,
        needs_cluster: false,
        help: "",
        place: CommandPlace::Pool,
        kind: Kind::Command,
        admin_only: false,
        writes: false,
        ends_with_client: false,
        secondary: None,
        takes_write_concern: false,
        write_concern_with: None,
        write_concern_is_field: false,
        read_concern: ReadConcernLevels::Local,
        takes_after_cluster_time: true,
        is_retryable_write: false,
        in_transaction: false,
        in_api_v1: false,
        own_max_time: false,
        fields: Fields::Any,
        named: Named::BY_NAME,
        secrets: &[],
        // A row without `auth` is for the server's own use: an omission grants no access.
        auth: Auth::Cluster(&["internal"]),
        run: |_, _, _| Ok(Outcome::Done),
    };
}

/// Whether a secondary of a replica set executes a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnSecondary {
    /// Only the primary does.
    Never,
    /// It does for a client whose read preference permits secondaries.
    IfPreferred,
    /// It does.
    Always,
}

/// The form of a collection's name in a command.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The code of the error for a value that is not a name.
    pub refused_as: Code,
    /// Whether the collection's UUID may replace its name.
    pub may_be_uuid: bool,
}

impl Named {
    /// By name: most commands.
    pub const BY_NAME: Named = Named { refused_as: codes::BadValue, may_be_uuid: false };
    /// By name, for older commands.
    pub const OLD_BY_NAME: Named =
        Named { refused_as: codes::InvalidNamespace, may_be_uuid: false };
    /// By name or UUID.
    pub const BY_UUID: Named = Named { may_be_uuid: true, ..Named::BY_NAME };
    /// By name or UUID, for older commands.
    pub const OLD_BY_UUID: Named = Named { may_be_uuid: true, ..Named::OLD_BY_NAME };
}

/// The thread that runs a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandPlace {
    /// The network worker that read it: it is short and waits for nothing.
    Inline,
    /// A pool thread, on which it may take any time.
    Pool,
    /// A pool thread, some of which are reserved: for commands that operators need when everything
    /// else is busy. It is short and waits for no other operation.
    Reserved,
    /// It is called on the network worker, and may be
    /// [postponed](marula_error::Error::postponed) before it has done anything.
    Decides,
}

/// The counters of `serverStatus.opcounters`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    Insert,
    Query,
    Update,
    Delete,
    GetMore,
    Command,
}

impl Kind {
    /// Returns its name in `currentOp` and the profiler.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Insert => "insert",
            Kind::Query => "query",
            Kind::Update => "update",
            Kind::Delete => "remove",
            Kind::GetMore => "getmore",
            Kind::Command => "command",
        }
    }
}

/// The levels of read concern that a command permits in addition to `local` and `available`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadConcernLevels {
    /// None.
    Local,
    /// `majority` and `linearizable`.
    Majority,
    /// All, including `snapshot`.
    Snapshot,
}

/// The privileges that a user needs, checked before a command runs if access control is on.
#[derive(Clone, Copy)]
pub enum Auth {
    /// None: the command is part of connecting.
    Anyone,
    /// Any authenticated user.
    User,
    /// These actions on the collection that the command names.
    Collection(&'static [&'static str]),
    /// These actions on the database that the command is sent to.
    Database(&'static [&'static str]),
    /// These actions on the cluster.
    Cluster(&'static [&'static str]),
    /// They depend on the content of the request; the function adds them.
    Content(fn(&Request<'_>, &mut Check<'_>) -> Result<()>),
}

/// The result of a command that did not fail.
pub enum Outcome {
    /// The reply's fields are written.
    Done,
    /// The reply's fields are written; `ok` is an int, as in mongod for a pipeline on a view.
    DoneOnView,
    /// The reply's fields are written, and it ends with `ok: 0` and this message: a failure without
    /// a code, as some old commands have.
    Failed(String),
    /// The reply's fields are written, and the client reads a stream: call again with the same
    /// request.
    Stream,
    /// There is no reply yet: call again on a pool thread when woken, or at this time.
    Retry(Arm, Instant),
    /// There is no reply: close the connection.
    HangUp,
}
