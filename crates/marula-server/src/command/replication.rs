//! The commands of replica sets: `replSetGetStatus`, `replSetGetConfig`, `replSetInitiate` and
//! others.
//!
//! With `--repl-set` this server is the primary of an initiated set with one member. Commands that
//! change members fail with the errors of a primary. Without the option, the server does not run
//! with replication.
//! Source: manual "Replication Commands"; errors recorded from mongod 6.0.

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
    negative_catch_up() = BadValue, "secondaryCatchUpPeriodSecs period must be a positive or absent";
    period_too_short() = BadValue, "stepdown period must be longer than secondaryCatchUpPeriodSecs";
    only_member() = ExceededTimeLimit, "This server is the only member of its replica set and stays the primary, with {{force: true}} too";
    no_other_member() = ExceededTimeLimit, "No electable secondaries caught up. Please use the replSetStepDown command with the argument {{force: true}} to force node to step down.";
}

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
    help: "Prevents a member from seeking election. It fails on a primary.",
    run: |context, _, _| refuse(context, cannot_freeze()),
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
    help: "Steps a primary down if another member can take over; here none can.",
    run: |context, request, _| refuse(context, not_stepping_down(request)),
    auth: Auth::Cluster(&["replSetStateChange"]),
    ..BASE
};

pub(super) static STEP_UP: Command = Command {
    name: "replSetStepUp",
    help: "Makes a member seek election; the only member is already the primary.",
    run: |context, _, _| {
        check(context)?;
        Ok(Outcome::Done)
    },
    auth: Auth::Cluster(&["replSetStateChange"]),
    ..BASE
};

/// Returns the reason for which this primary does not step down, at once: mongod waits for members
/// to catch up, but there are none.
fn not_stepping_down(request: &Request<'_>) -> Error {
    let is_forced = request.flag("force");
    let seconds = |value: Value<'_>| value.as_f64().map(f64::trunc);
    // Zero, and what is not a number, means the default, a minute.
    let period = seconds(request.first.value.get()).filter(|seconds| *seconds != 0.0);
    let catch_up = match request.body.get("secondaryCatchUpPeriodSecs") {
        None => Ok(if is_forced { 0.0 } else { 10.0 }),
        Some(given) => seconds(given).ok_or_else(|| catch_up_type(given.kind().alias())),
    };
    match (period.unwrap_or(60.0), catch_up) {
        (period, _) if period < 0.0 => negative_period(),
        (_, Err(error)) => error,
        (_, Ok(catch_up)) if catch_up < 0.0 => negative_catch_up(),
        (period, Ok(catch_up)) if period < catch_up => period_too_short(),
        _ if is_forced => only_member(),
        _ => no_other_member(),
    }
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
    let doing = match request.flag("force") {
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
        "myState": 1,
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
    drop(election);
    let mut members = reply.begin_array("members");
    let mut member = members.begin_doc();
    doc_fields!(member;
        "_id": 0,
        "name": config.host(&server.options.host),
        "health": 1.0,
        "state": 1,
        "stateStr": "PRIMARY",
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
        "electionTime": started_at,
        "electionDate": started,
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
