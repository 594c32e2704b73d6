//! The row of a command: what the frame must know before the command's own code runs.
//!
//! The frame (request, dispatch, access control, counters) knows commands by these types alone; the
//! table of all commands is [`COMMANDS`](crate::command::COMMANDS).

use std::time::Instant;

use marula_bson::DocWriter;
use marula_db::latencies::Class;
use marula_error::Result;
use marula_error::codes::{self, Code};
use marula_query::feature_version::FeatureVersion;

use crate::auth::check::Check;
use crate::context::Context;
use crate::fields::Fields;
use crate::net::service::Arm;
use crate::request::Request;

/// A command's row: what the frame must know of it.
///
/// Write rows as `Command { name: …, run, ..Command::DEFAULT }`.
pub struct Command {
    /// The name on the wire.
    pub name: &'static str,
    /// Other names on the wire.
    pub aliases: &'static [&'static str],
    /// The release that has it first.
    pub since: FeatureVersion,
    /// Whether a server has it only for tests, with the parameter `enableTestCommands`.
    pub is_for_tests: bool,
    /// What it does, in a sentence or two, for `listCommands` and the reference page.
    pub help: &'static str,
    /// Where it runs.
    pub place: Place,
    /// Which counter of `serverStatus.opcounters` it adds to.
    pub kind: Kind,
    /// Whether it may only be sent to the database `admin`.
    pub admin_only: bool,
    /// Whether it changes data: it waits while `fsync` holds writes off.
    pub writes: bool,
    /// Whether it takes a `writeConcern`; the frame then waits as that says.
    pub takes_write_concern: bool,
    /// Whether a `writeConcern` of the wrong type is reported as a field of the command.
    pub write_concern_is_field: bool,
    /// Which levels of `readConcern` it takes beside `local`.
    pub read_concern: ReadConcernLevels,
    /// Whether it may be asked to see what was written until a time.
    pub takes_after_cluster_time: bool,
    /// Whether `txnNumber` may number its statements, so that a retry is not done again.
    pub is_retryable_write: bool,
    /// Whether it may run inside a multi-document transaction.
    pub in_transaction: bool,
    /// Whether it belongs to the Stable API, version 1.
    pub in_api_v1: bool,
    /// Whether `maxTimeMS` is the command's own to read rather than its deadline.
    pub own_max_time: bool,
    /// The fields it takes; others are refused.
    pub fields: Fields,
    /// How it takes the name of its collection, where its first field is one.
    pub named: Named,
    /// Fields whose values are secrets: neither the log nor another client is shown them.
    pub secrets: &'static [&'static str],
    /// What a user needs to be allowed.
    pub auth: Auth,
    /// Answers it.
    pub run: fn(&mut Context<'_>, &Request<'_>, &mut DocWriter<'_>) -> Result<Outcome>,
}

impl Command {
    /// Among which of `opLatencies` it counts.
    pub fn class(&self) -> Class {
        match self.kind {
            Kind::Query | Kind::GetMore => Class::Reads,
            Kind::Insert | Kind::Update | Kind::Delete => Class::Writes,
            Kind::Command if self.is_retryable_write => Class::Writes,
            Kind::Command if !matches!(self.read_concern, ReadConcernLevels::Local) => Class::Reads,
            Kind::Command => Class::Commands,
        }
    }

    /// The row that others start from: a read that runs where it may take its time.
    pub const DEFAULT: Command = Command {
        name: "",
        aliases: &[],
        since: FeatureVersion::V6_0,
        is_for_tests: false,
        help: "",
        place: Place::Pool,
        kind: Kind::Command,
        admin_only: false,
        writes: false,
        takes_write_concern: false,
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
        // A row that says nothing is for the server's own: forgetting it lets nobody in.
        auth: Auth::Cluster(&["internal"]),
        run: |_, _, _| Ok(Outcome::Done),
    };
}

/// How a command takes the name of its collection.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The code of the error for a value that is no name.
    pub refused_as: Code,
    /// Whether the collection's UUID may stand in place of its name.
    pub may_be_uuid: bool,
}

impl Named {
    /// By name: most commands.
    pub const BY_NAME: Named = Named { refused_as: codes::BadValue, may_be_uuid: false };
    /// By name, to a command of the older kind.
    pub const OLD_BY_NAME: Named =
        Named { refused_as: codes::InvalidNamespace, may_be_uuid: false };
    /// By name or UUID.
    pub const BY_UUID: Named = Named { may_be_uuid: true, ..Named::BY_NAME };
    /// By name or UUID, to a command of the older kind.
    pub const OLD_BY_UUID: Named = Named { may_be_uuid: true, ..Named::OLD_BY_NAME };
}

/// Where a command runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// On the network worker that read it: it is short and waits for nothing.
    Inline,
    /// On a pool thread, where it may take its time.
    Pool,
    /// On a pool thread, for which some are kept free: what operators need when everything else is
    /// busy. It takes little time and waits for no other operation.
    Reserved,
    /// It is called on the network worker and may answer [`Outcome::ToPool`] before it has done
    /// anything.
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
    /// What `currentOp` and the profiler call it.
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

/// Which levels of read concern a command takes beside `local` and `available`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadConcernLevels {
    /// None.
    Local,
    /// `majority` and `linearizable`.
    Majority,
    /// All, `snapshot` too.
    Snapshot,
}

/// What a user must be allowed, checked before a command runs once access control is on.
#[derive(Clone, Copy)]
pub enum Auth {
    /// Nothing: the command is part of connecting.
    Anyone,
    /// A known user, whoever it is.
    User,
    /// These actions on the collection that the command names.
    Collection(&'static [&'static str]),
    /// These actions on the database that the command is sent to.
    Database(&'static [&'static str]),
    /// These actions on the cluster.
    Cluster(&'static [&'static str]),
    /// What the request holds decides; the function tells.
    Content(fn(&Request<'_>, &mut Check<'_>) -> Result<()>),
}

/// How a command went, when it did not fail.
pub enum Outcome {
    /// The reply's fields are written.
    Done,
    /// The reply's fields are written; `ok` is an int, as where mongod answers by a pipeline on a
    /// view.
    DoneOnView,
    /// The reply's fields are written, and it ends with `ok: 0` and this message: a failure that
    /// has no code, as some old commands have.
    Failed(String),
    /// The reply's fields are written, and the client takes a stream: call again with the same
    /// request.
    Stream,
    /// Nothing was done: call again on a pool thread.
    ToPool,
    /// There is nothing to say yet: call again on a pool thread when woken, or at this moment.
    Retry(Arm, Instant),
    /// There is no reply: close the connection.
    HangUp,
}
