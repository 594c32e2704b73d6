//! The commands of replica sets: `replSetGetStatus`, `replSetGetConfig`, `replSetInitiate` and
//! others.
//!
//! With `--repl-set` this server is the primary of an initiated set with one member; it steps down
//! if it is forced to. Commands that change members fail with the errors of a primary. Without the
//! option, the server does not run with replication.
//! Source: manual "Replication Commands"; errors recorded from mongod 6.0.

use std::thread;
use std::time::Duration;

use marula_bson::{DocWriter, Value, doc_fields};
use marula_error::{Error, Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::context::Context;
use crate::replica_set::{self, Doing};
use crate::request::Request;

errors! {
    commitment_type(kind: &str) = TypeMismatch, "Expected boolean or number type for field \"commitmentStatus\", found {kind}";
    initial_sync_type(kind: &str) = TypeMismatch, "Expected boolean or number type for field \"initialSync\", found {kind}";
    no_replication() = NoReplicationEnabled, "not running with --replSet";
    no_replication_to_initiate() = NoReplicationEnabled, "This node was not started with replication enabled.";
    already_initialized() = AlreadyInitialized, "already initialized";
    cannot_freeze() = NotSecondary, "Cannot freeze node when primary or running for election, state: Primary";
    no_catch_up() = IllegalOperation, "The node is not in catch-up mode.";
    no_maintenance() = NotSecondary, "primaries can't modify maintenance mode";
    no_sync_from() = NotSecondary, "primaries don't sync";
    negative_period() = BadValue, "stepdown period must be a positive integer";
    catch_up_type(kind: &str) = TypeMismatch, "Expected field \"secondaryCatchUpPeriodSecs\" to have numeric type, but found {kind}";
    period_too_long() = DurationOverflow, "Overflow casting from a lower-precision duration to a higher-precision duration";
    catch_up_not_whole(value: &Value<'_>) = BadValue, "Expected field \"secondaryCatchUpPeriodSecs\" to have a value exactly representable as a 64-bit integer, but found secondaryCatchUpPeriodSecs: {value}";
    negative_catch_up() = BadValue, "secondaryCatchUpPeriodSecs period must be a positive or absent";
    period_too_short() = BadValue, "stepdown period must be longer than secondaryCatchUpPeriodSecs";
    not_stepping_down() = NotWritablePrimary, "not primary so can't step down";
    reconfig_on_secondary() = NotWritablePrimary, "New config is rejected :: caused by :: replSetReconfig should only be run on a writable PRIMARY. Current state SECONDARY;";
    election_failed() = CommandFailed, "Election failed.";
    no_other_member() = ExceededTimeLimit, "No electable secondaries caught up. Please use the replSetStepDown command with the argument {{force: true}} to force node to step down.";
}

/// The time within which a write that begins is seen by other threads, many times over.
const WRITES_SETTLE: Duration = Duration::from_millis(2);

const BASE: Command =
    Command { admin_only: true, auth: Auth::Cluster(&["replSetConfigure"]), ..Command::DEFAULT };

pub(super) static GET_STATUS: Command = Command {
    name: "replSetGetStatus",
    help: "Returns the state of the replica set as this member sees it.",
    fields: Fields::Known {
        place: "replSetGetStatus",
        fields: &[Field::optional("initialSync", Types::FLAG).or(initial_sync_type)],
    },
    auth: Auth::Cluster(&["replSetGetStatus"]),
    run: get_status,
    ..BASE
};

pub(super) static GET_CONFIG: Command = Command {
    name: "replSetGetConfig",
    help: "Returns the configuration of the replica set.",
    fields: Fields::Known {
        place: "replSetGetConfig",
        fields: &[Field::optional("commitmentStatus", Types::FLAG).or(commitment_type)],
    },
    auth: Auth::Cluster(&["replSetGetConfig"]),
    run: get_config,
    ..BASE
};

pub(super) static GET_RBID: Command = Command {
    name: "replSetGetRBID",
    help: "Returns the number of times that this member has rolled back writes, plus one.",
    run: |context, _, reply| {
        check(context)?;
        reply.append("rbid", 1);
        Ok(Outcome::Done)
    },
    auth: Auth::Cluster(&["internal"]),
    ..BASE
};

pub(super) static INITIATE: Command = Command {
    name: "replSetInitiate",
    help: "Initiates a replica set. The set of a Marula server is initiated by its first start and has one member.",
    run: initiate,
    ..BASE
};

pub(super) static RECONFIG: Command = Command {
    name: "replSetReconfig",
    help: "Changes the configuration of a replica set; the set of a Marula server has one member.",
    run: reconfig,
    ..BASE
};

pub(super) static FREEZE: Command = Command {
    name: "replSetFreeze",
    help: "Keeps a secondary from becoming the primary for a time. It fails on a primary.",
    run: freeze,
    auth: Auth::Cluster(&["replSetStateChange"]),
    ..BASE
};

pub(super) static ABORT_CATCH_UP: Command = Command {
    name: "replSetAbortPrimaryCatchUp",
    help: "Ends the catch-up of a new primary. It fails, because the only member never catches up.",
    run: |context, _, _| refuse(context, no_catch_up()),
    auth: Auth::Cluster(&["replSetStateChange"]),
    ..BASE
};

pub(super) static MAINTENANCE: Command = Command {
    name: "replSetMaintenance",
    help: "Puts a secondary into maintenance mode. It fails on a primary.",
    run: |context, _, _| refuse(context, no_maintenance()),
    auth: Auth::Cluster(&["replSetStateChange"]),
    ..BASE
};

pub(super) static SYNC_FROM: Command = Command {
    name: "replSetSyncFrom",
    help: "Selects the member that a secondary replicates from. It fails on a primary.",
    run: |context, _, _| refuse(context, no_sync_from()),
    auth: Auth::Cluster(&["replSetStateChange"]),
    ..BASE
};

pub(super) static STEP_DOWN: Command = Command {
    name: "replSetStepDown",
    help: "With force, makes the primary a secondary for a time, in which it takes no writes. Without, it fails, because no other member can take over.",
    run: step_down,
    auth: Auth::Cluster(&["replSetStateChange"]),
    ..BASE
};

pub(super) static STEP_UP: Command = Command {
    name: "replSetStepUp",
    help: "Makes a member seek election. It fails on one that has stepped down; the primary stays the primary.",
    run: |context, _, _| {
        check(context)?;
        let is_primary = context.server.primacy.is_primary();
        is_primary.then_some(Outcome::Done).ok_or_else(election_failed)
    },
    auth: Auth::Cluster(&["replSetStateChange"]),
    ..BASE
};

/// Returns the time for which a primary is to step down.
///
/// Errors: those of the command's fields, and `no_other_member` without `force`: mongod waits for
/// members to catch up, but there are none.
fn stepped_down_for(request: &Request<'_>) -> Result<Duration> {
    let is_forced = request.flag("force");
    // Zero, and a value that is not a number, means the default, a minute.
    let period = match seconds(request.first.value.get()) {
        None | Some(0) => 60,
        Some(period) => period,
    };
    if period < 0 {
        return Err(negative_period());
    }
    let catch_up = match request.body.get("secondaryCatchUpPeriodSecs") {
        None if is_forced => 0,
        None => 10,
        Some(given) if !given.kind().is_number() => {
            return Err(catch_up_type(given.kind().alias()));
        }
        Some(given) => given.as_exact_i64().ok_or_else(|| catch_up_not_whole(&given))?,
    };
    if catch_up < 0 {
        return Err(negative_catch_up());
    }
    if period < catch_up {
        return Err(period_too_short());
    }
    if period > i64::MAX / 1_000 {
        return Err(period_too_long());
    }
    is_forced.then(|| duration(period)).ok_or_else(no_other_member)
}

/// Returns a number in whole seconds. One that is beyond them, or NaN, is the least.
fn seconds(value: Value<'_>) -> Option<i64> {
    #[allow(clippy::cast_possible_truncation)]
    let whole = |seconds: f64| match seconds.abs() < i64::MAX as f64 {
        true => seconds as i64,
        false => i64::MIN,
    };
    value.as_exact_i64().or_else(|| value.as_f64().map(whole))
}

/// Returns this number of seconds, at most a day, as a duration; a negative number is over.
fn duration(seconds: i64) -> Duration {
    Duration::from_secs(seconds.clamp(0, 24 * 3600).unsigned_abs())
}

fn step_down(
    context: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    check(context)?;
    let time = stepped_down_for(request)?;
    let server = context.server;
    if !server.primacy.step_down(time) {
        return Err(not_stepping_down());
    }
    // A write that has just begun may have seen the primary, and shows itself after a moment.
    thread::sleep(WRITES_SETTLE);
    server.transactions.abort_of(&|_| true);
    while !server.primacy.is_primary() && server.operations.kill_writes() {
        context.check_interrupt()?;
        thread::sleep(WRITES_SETTLE);
    }
    Ok(Outcome::Done)
}

fn freeze(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    check(context)?;
    let seconds = seconds(request.first.value.get()).unwrap_or(0);
    let time = (seconds != 0).then(|| duration(seconds));
    if !context.server.primacy.freeze(time) {
        return Err(cannot_freeze());
    }
    if seconds == 0 {
        reply.append("info", "unfreezing");
    }
    if seconds == 1 {
        reply.append("warning", "you really want to freeze for only 1 second?");
    }
    Ok(Outcome::Done)
}

fn initiate(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let server = ctx.server;
    let Some(set) = &server.options.repl_set else { return Err(no_replication_to_initiate()) };
    // No document, or an empty one, means the default configuration.
    let given = request.first.value.get().as_doc().filter(|config| !config.is_empty());
    let own = &server.options.host;
    let changed =
        server.replica_set.change(&server.db, set, own, Doing::Initiate, given, ctx.now_ms)?;
    changed.map(|()| Outcome::Done).ok_or_else(already_initialized)
}

fn reconfig(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let set = check(ctx)?;
    let Value::Document(config) = request.first.value.get() else {
        return Ok(Outcome::Failed("no configuration specified".to_owned()));
    };
    if config.get("_id").is_some() && config.get("version").is_none() {
        return Err(replica_set::invalid(
            "BSON field 'ReplSetConfig.version' is missing but a required field",
        ));
    }
    let is_forced = request.flag("force");
    if !is_forced && !ctx.server.primacy.is_primary() {
        return Err(reconfig_on_secondary());
    }
    let doing = match is_forced {
        true => Doing::ForcedReconfig,
        false => Doing::Reconfig,
    };
    let server = ctx.server;
    let own = &server.options.host;
    server.replica_set.change(&server.db, &set, own, doing, Some(config), ctx.now_ms)?;
    Ok(Outcome::Done)
}

fn check(context: &Context<'_>) -> Result<String> {
    context.server.options.repl_set.clone().ok_or_else(no_replication)
}

fn refuse(context: &Context<'_>, error: Error) -> Result<Outcome> {
    check(context)?;
    Err(error)
}

fn get_status(
    context: &mut Context<'_>,
    _: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    write_status(context, reply)?;
    Ok(Outcome::Done)
}

/// Writes the state of the set as this member sees it.
pub(super) fn write_status(context: &Context<'_>, reply: &mut DocWriter<'_>) -> Result<()> {
    let set = check(context)?;
    let server = context.server;
    let config = server.replica_set.config();
    let is_primary = server.primacy.is_primary();
    let state = if is_primary { 1 } else { 2 };
    let newest = server.db.last_write_timestamp(context.now_ms);
    let written_ms = i64::try_from(newest >> 32).expect("a second fits 32 bits") * 1000;
    let written = Value::DateTime(written_ms);
    let uptime = i32::try_from(server.started.elapsed().as_secs()).unwrap_or(i32::MAX);
    let started_seconds = server.process_id.unix_seconds();
    let started = Value::DateTime(i64::from(started_seconds) * 1000);
    let started_at = Value::Timestamp(u64::from(started_seconds) << 32 | 1);
    doc_fields!(reply;
        "set": &set,
        "date": Value::DateTime(context.now_ms),
        "myState": state,
        "term": 1_i64,
        "syncSourceHost": "",
        "syncSourceId": -1,
        "heartbeatIntervalMillis": 2000_i64,
        "majorityVoteCount": 1,
        "writeMajorityCount": 1,
        "votingMembersCount": 1,
        "writableVotingMembersCount": 1,
    );
    let mut optimes = reply.begin_doc("optimes");
    for (name, wall) in [
        ("lastCommittedOpTime", Some("lastCommittedWallTime")),
        ("readConcernMajorityOpTime", None),
        ("appliedOpTime", None),
        ("durableOpTime", Some("lastAppliedWallTime")),
    ] {
        server.append_op_time(&mut optimes.begin_doc(name));
        if let Some(wall) = wall {
            optimes.append(wall, written);
        }
    }
    optimes.append("lastDurableWallTime", written);
    drop(optimes);
    reply.append("lastStableRecoveryTimestamp", Value::Timestamp(newest));
    if is_primary {
        let mut election = reply.begin_doc("electionCandidateMetrics");
        doc_fields!(election;
            "lastElectionReason": "electionTimeout",
            "lastElectionDate": started,
            "electionTerm": 1_i64,
            "numVotesNeeded": 1,
            "priorityAtElection": 1.0,
            "electionTimeoutMillis": 10_000_i64,
            "newTermStartDate": started,
            "wMajorityWriteAvailabilityDate": started,
        );
    }
    let mut members = reply.begin_array("members");
    let mut member = members.begin_doc();
    doc_fields!(member;
        "_id": 0,
        "name": config.host(&server.options.host),
        "health": 1.0,
        "state": state,
        "stateStr": if is_primary { "PRIMARY" } else { "SECONDARY" },
        "uptime": uptime,
    );
    server.append_op_time(&mut member.begin_doc("optime"));
    doc_fields!(member;
        "optimeDate": written,
        "lastAppliedWallTime": written,
        "lastDurableWallTime": written,
        "syncSourceHost": "",
        "syncSourceId": -1,
        "infoMessage": "Could not find member to sync from",
    );
    if is_primary {
        member.append("electionTime", started_at).append("electionDate", started);
    }
    doc_fields!(member;
        "configVersion": Value::whole(config.version),
        "configTerm": Value::whole(config.term),
        "self": true,
        "lastHeartbeatMessage": "",
    );
    Ok(())
}

fn get_config(
    context: &mut Context<'_>,
    _: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let set = check(context)?;
    let server = context.server;
    let config = server.replica_set.config().to_doc(&set, &server.options.host);
    reply.append("config", &config);
    Ok(Outcome::Done)
}
