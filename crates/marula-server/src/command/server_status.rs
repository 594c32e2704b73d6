//! `serverStatus`: the server's statistics, by section.
//!
//! A section is a row of [`SECTIONS`] and a function of a module of this folder. A field of the
//! command omits a section (`metrics: 0`). Counters of features that this server does not have are
//! zero.
//! Source: manual "serverStatus"; names, order and types recorded from mongod 6.0.

mod catalog;
mod metrics;
mod network;
mod operations;
mod process;
mod reads;
mod replication;
mod security;
mod storage;

use std::sync::Arc;

use marula_bson::{DocWriter, Value, long};
use marula_error::Result;

use super::build_info::compatible_version;
use super::{Auth, Command, CommandPlace, Outcome};
use crate::context::Context;
use crate::counters::Counter;
use crate::host;
use crate::request::Request;
use crate::server::Server;

pub(crate) use operations::write_latencies;

pub(super) static COMMAND: Command = Command {
    name: "serverStatus",
    takes_after_cluster_time: false,
    help: "Returns the server's statistics: operations, connections, memory, network, storage engine and more.",
    place: CommandPlace::Reserved,
    auth: Auth::Cluster(&["serverStatus"]),
    run,
    ..Command::DEFAULT
};

type Write = fn(&Section<'_>, &mut DocWriter<'_>);

struct Section<'a> {
    server: &'a Arc<Server>,
    now_ms: i64,
}

impl Section<'_> {
    /// The time at which the server started, in milliseconds since 1970.
    fn started_ms(&self) -> i64 {
        let uptime = self.server.started.elapsed().as_millis();
        self.now_ms.saturating_sub(long(uptime))
    }
}

const SECTIONS: &[(&str, Write)] = &[
    ("activeIndexBuilds", catalog::active_index_builds),
    ("asserts", operations::asserts),
    ("batchedDeletes", operations::batched_deletes),
    ("catalogStats", catalog::catalog_stats),
    ("connections", network::connections),
    ("defaultRWConcern", replication::default_concerns),
    ("electionMetrics", replication::elections),
    ("extra_info", process::extra_info),
    ("featureCompatibilityVersion", catalog::feature_compatibility_version),
    ("flowControl", storage::flow_control),
    ("globalLock", operations::global_lock),
    ("indexBulkBuilder", catalog::index_bulk_builder),
    ("indexStats", catalog::index_stats),
    ("locks", operations::locks),
    ("logicalSessionRecordCache", operations::logical_sessions),
    ("network", network::network),
    ("opLatencies", operations::op_latencies),
    ("opcounters", operations::opcounters),
    ("opcountersRepl", replication::opcounters),
    ("oplogTruncation", replication::oplog_truncation),
    ("readConcernCounters", reads::concerns),
    ("readPreferenceCounters", reads::preferences),
    ("repl", replication::repl),
    ("scramCache", security::scram_cache),
    ("security", security::security),
    ("sharding", storage::sharding),
    ("storageEngine", storage::storage_engine),
    ("tenantMigrations", replication::tenant_migrations),
    ("trafficRecording", network::traffic_recording),
    ("transactions", operations::transactions),
    ("transportSecurity", security::transport_security),
    ("twoPhaseCommitCoordinator", replication::two_phase_commits),
    ("wiredTiger", storage::wired_tiger),
    ("mem", process::mem),
    ("metrics", metrics::metrics),
    ("marula", storage::engine),
];

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    write(context, request, reply);
    Ok(Outcome::Done)
}

/// Writes the whole status, without the sections that the request omits.
pub(super) fn write(context: &Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) {
    let server = context.server;
    let uptime = server.started.elapsed();
    let uptime_ms = long(uptime.as_millis());
    reply.append("host", host::name_and_special_port(server).as_str());
    let (version, _) = compatible_version(request.version);
    reply.append("version", version);
    let process = if server.options.repl_set.is_some() { "mongod" } else { "mongos" };
    reply.append("process", process);
    reply.append("pid", i64::from(std::process::id()));
    reply.append("uptime", uptime.as_secs_f64().floor());
    reply.append("uptimeMillis", uptime_ms);
    reply.append("uptimeEstimate", uptime_ms / 1000);
    reply.append("localTime", Value::DateTime(context.now_ms));
    let section = Section { server, now_ms: context.now_ms };
    let only_in_set = |name: &str| matches!(name, "repl" | "defaultRWConcern");
    for (name, write) in SECTIONS {
        if request.arg(name).is_some_and(|wanted| !wanted.is_truthy()) {
            continue;
        }
        if only_in_set(name) && server.options.repl_set.is_none() {
            continue;
        }
        if *name == "sharding" && !server.db.engine().is_remote {
            continue;
        }
        write(&section, &mut reply.begin_doc(name));
    }
}

fn int(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn count(counter: &Counter) -> i64 {
    long(counter.get())
}
