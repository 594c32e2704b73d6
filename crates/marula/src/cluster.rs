//! `marula cluster status`: a look at a distributed store and the processes that serve it, from
//! outside.

use std::process::ExitCode;

use marula_distributed::survey::{Processes, Seen, Survey, survey};
use marula_storage::cluster::{Lag, Member, MemberState, Placement};
use marula_storage::nodes::Node;
use serde_json::{Value, json};

use crate::Failure;
use crate::cli::{ClusterCommand, ClusterStatusArgs, ServeArgs};
use crate::engine;
use crate::settings::Settings;

pub(crate) fn run(command: ClusterCommand) -> Result<ExitCode, Failure> {
    match command {
        ClusterCommand::Status(args) => status(args),
    }
}

fn status(args: ClusterStatusArgs) -> Result<ExitCode, Failure> {
    let ClusterStatusArgs { storage_engine, cluster, config, json } = args;
    let of_serve = ServeArgs { storage_engine, cluster, config, ..ServeArgs::default() };
    let settings = Settings::gather(&of_serve)?;
    let kv = engine::cluster(&settings)?;
    let name = kv.name();
    let seen = survey(kv, &marula_distributed::Options::default().root)
        .map_err(|error| format!("the store in {name} cannot be read: {error}"))?;
    match json {
        true => println!("{}", document(name, &seen)),
        false => print(name, &seen),
    }
    Ok(if is_healthy(&seen) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether the store is healthy, and every process that it names lives.
fn is_healthy(seen: &Survey) -> bool {
    let is_alive = |Processes { nodes, owner }: &Processes| {
        nodes.iter().all(|node| node.is_alive) && owner.as_ref().is_none_or(|owner| owner.is_alive)
    };
    seen.cluster.is_healthy() && seen.processes.as_ref().is_ok_and(is_alive)
}

fn document(name: &str, seen: &Survey) -> Value {
    let Survey { cluster, processes } = seen;
    let moving = match cluster.placement {
        Placement::Everywhere => Value::Null,
        Placement::Divided { moving_bytes } => json!(moving_bytes),
    };
    let node = |Seen { process, is_alive }: &Seen<Node>| {
        let Node { number, host, version, started_ms, ping_ms, .. } = process;
        json!({
            "number": number, "host": host, "version": version, "started_ms": started_ms,
            "ping_ms": ping_ms, "alive": is_alive,
        })
    };
    let (nodes, owner, error) = match processes {
        Ok(Processes { nodes, owner }) => (nodes.as_slice(), owner.as_ref(), None),
        Err(error) => (&[][..], None, Some(error.to_string())),
    };
    json!({
        "store": name,
        "healthy": is_healthy(seen),
        "faults": cluster.faults,
        "moving_bytes": moving,
        "members": cluster.members.iter().map(member_document).collect::<Vec<_>>(),
        "nodes": nodes.iter().map(node).collect::<Vec<_>>(),
        "owner": owner.map(|owner| json!({ "name": owner.process, "alive": owner.is_alive })),
        "error": error,
    })
}

fn member_document(member: &Member) -> Value {
    let Member { name, address, state } = member;
    match state {
        Err(error) => json!({ "name": name, "address": address, "healthy": false, "error": error }),
        Ok(MemberState { version, role, disk_bytes, used_bytes, lag, faults }) => {
            let (commits, ms) = match lag {
                None => (None, None),
                Some(Lag::Commits(count)) => (Some(count), None),
                Some(Lag::Ms(ms)) => (None, Some(ms)),
            };
            json!({
                "name": name, "address": address, "healthy": member.is_healthy(), "role": role,
                "version": version, "disk_bytes": disk_bytes, "used_bytes": used_bytes,
                "lag_commits": commits, "lag_ms": ms, "faults": faults,
            })
        }
    }
}

fn print(name: &str, seen: &Survey) {
    let Survey { cluster, processes } = seen;
    println!("store {name}: {}", if cluster.is_healthy() { "healthy" } else { "NOT HEALTHY" });
    for fault in &cluster.faults {
        println!("  {fault}");
    }
    if let Placement::Divided { moving_bytes } = cluster.placement {
        println!("  {} are being moved", megabytes(moving_bytes));
    }
    println!(
        "\n{:<20} {:<22} {:<10} {:<10} {:>11} {:>11} {:>12}  state",
        "server", "address", "role", "version", "on disk", "in use", "lag"
    );
    for Member { name, address, state } in &cluster.members {
        print!("{name:<20} {address:<22} ");
        match state {
            Err(error) => {
                println!("{:<10} {:<10} {:>11} {:>11} {:>12}  {error}", "-", "-", "-", "-", "-")
            }
            Ok(MemberState { version, role, disk_bytes, used_bytes, lag, faults }) => {
                let lag = match lag {
                    None => "-".to_owned(),
                    Some(Lag::Commits(count)) => format!("{count} commits"),
                    Some(Lag::Ms(ms)) => format!("{ms} ms"),
                };
                let state =
                    if faults.is_empty() { "healthy".to_owned() } else { faults.join("; ") };
                let (disk, used) = (megabytes(*disk_bytes), megabytes(*used_bytes));
                println!("{role:<10} {version:<10} {disk:>11} {used:>11} {lag:>12}  {state}");
            }
        }
    }
    match processes {
        Ok(processes) => print_processes(processes),
        Err(error) => println!("\nthe processes are not known: {error}"),
    }
}

fn print_processes(Processes { nodes, owner }: &Processes) {
    println!("\n{:<4} {:<30} {:<10} {:>12}  state", "node", "host", "version", "up");
    for Seen { process, is_alive } in nodes {
        let up_s = process.ping_ms.saturating_sub(process.started_ms).max(0) / 1_000;
        let (number, host, version) = (process.number, &process.host, &process.version);
        println!("{number:<4} {host:<30} {version:<10} {up_s:>10} s  {}", life(*is_alive));
    }
    if let Some(Seen { process, is_alive }) = owner {
        println!("the only one: {process}, {}", life(*is_alive));
    }
    if nodes.is_empty() && owner.is_none() {
        println!("no Marula process serves the store");
    }
}

fn life(is_alive: bool) -> &'static str {
    if is_alive { "alive" } else { "NO SIGN OF LIFE" }
}

#[allow(clippy::cast_precision_loss)]
fn megabytes(bytes: u64) -> String {
    format!("{:.2} MB", bytes as f64 / 1e6)
}
