//! The state of a FoundationDB cluster: the document at [`KEY`].
//!
//! Source: FoundationDB documentation, "Machine-Readable Status". Its form is not a part of the
//! interface, so each field may be missing.

use marula_storage::ClusterStatus;
use marula_storage::cluster::{Lag, Member, MemberState, Placement};
use serde_json::Value;

use crate::kv::{KvError, Result};

/// The key of the document.
pub(super) const KEY: &[u8] = b"\xFF\xFF/status/json";

/// The processes that are shown, at most.
const MEMBERS_MAX: usize = 1_000;

/// Reads the document.
///
/// Errors: [`KvError::Corrupt`] if it is no JSON.
pub(super) fn parse(document: &[u8]) -> Result<ClusterStatus> {
    let status: Value = serde_json::from_slice(document)
        .map_err(|error| KvError::Corrupt(format!("FoundationDB's status: {error}")))?;
    let cluster = &status["cluster"];
    let moving = &cluster["data"]["moving_data"];
    let moving_bytes = bytes(&moving["in_flight_bytes"]) + bytes(&moving["in_queue_bytes"]);
    let processes = cluster["processes"].as_object().into_iter().flatten();
    let mut members: Vec<Member> = processes.map(|(id, process)| member(id, process)).collect();
    members.sort_by(|one, other| one.address.cmp(&other.address));
    members.truncate(MEMBERS_MAX);
    let mut faults = Vec::new();
    if status["client"]["database_status"]["available"].as_bool() == Some(false) {
        faults.push("the database is not available".to_owned());
    }
    let data = &cluster["data"]["state"];
    if data["healthy"].as_bool() == Some(false) {
        let what = data["description"].as_str().or(data["name"].as_str());
        faults.push(what.unwrap_or("the data is not healthy").to_owned());
    }
    faults.extend(texts(&status["client"]["messages"]));
    faults.extend(texts(&cluster["messages"]));
    Ok(ClusterStatus {
        id: id(&cluster["connection_string"]),
        members,
        placement: Placement::Divided { moving_bytes },
        faults,
    })
}

/// A number of the cluster: its connection string begins with `description:id@`, and the id does
/// not change with the coordinators.
fn id(connection_string: &Value) -> u64 {
    let text = connection_string.as_str().unwrap_or_default();
    let name = text.split_once('@').map_or("", |(name, _)| name);
    // FNV-1a.
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

fn member(id: &str, process: &Value) -> Member {
    let roles: Vec<&Value> = process["roles"].as_array().into_iter().flatten().collect();
    let mut names: Vec<&str> = roles.iter().filter_map(|role| role["role"].as_str()).collect();
    names.dedup();
    let storage = || roles.iter().filter(|role| role["role"] == "storage");
    let seconds = storage().filter_map(|role| role["data_lag"]["seconds"].as_f64());
    let seconds =
        seconds.fold(None, |most: Option<f64>, one| Some(most.map_or(one, |m| m.max(one))));
    let mut faults = texts(&process["messages"]);
    if process["degraded"].as_bool() == Some(true) {
        faults.push("it is degraded".to_owned());
    }
    if process["excluded"].as_bool() == Some(true) {
        faults.push("it is excluded".to_owned());
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let lag = seconds.map(|seconds| Lag::Ms((seconds * 1_000.0) as u64));
    Member {
        name: id.to_owned(),
        address: process["address"].as_str().unwrap_or_default().to_owned(),
        state: Ok(MemberState {
            version: process["version"].as_str().unwrap_or_default().to_owned(),
            role: names.join(", "),
            disk_bytes: storage().map(|role| bytes(&role["kvstore_used_bytes"])).sum(),
            used_bytes: storage().map(|role| bytes(&role["stored_bytes"])).sum(),
            lag,
            faults,
        }),
    }
}

/// The descriptions of messages.
fn texts(messages: &Value) -> Vec<String> {
    let messages = messages.as_array().into_iter().flatten();
    let text = |message: &Value| {
        message["description"].as_str().or(message["name"].as_str()).map(str::to_owned)
    };
    messages.filter_map(text).collect()
}

/// A number of bytes; zero where it is missing or negative. At most 2^53, so that sums fit.
fn bytes(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0).min(1 << 53)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read() {
        let document = br#"{
            "client": { "database_status": { "available": true }, "messages": [] },
            "cluster": {
                "connection_string": "prod:a1b2@10.0.0.1:4500",
                "data": {
                    "state": { "healthy": false, "name": "healing", "description": "Only two replicas remain of some data" },
                    "moving_data": { "in_flight_bytes": 5, "in_queue_bytes": 7 }
                },
                "processes": {
                    "b": { "address": "10.0.0.2:4500", "version": "7.3.1", "messages": [],
                           "roles": [{ "role": "log" }] },
                    "a": { "address": "10.0.0.1:4500", "version": "7.3.1", "degraded": true,
                           "messages": [{ "name": "io_error", "description": "io_error occured" }],
                           "roles": [{ "role": "storage", "stored_bytes": 10, "kvstore_used_bytes": 30,
                                       "data_lag": { "seconds": 1.5, "versions": 1500000 } }] }
                }
            }
        }"#;
        let status = parse(document).expect("it is JSON");
        assert_eq!(status.placement, Placement::Divided { moving_bytes: 12 });
        assert_eq!(status.faults, ["Only two replicas remain of some data"]);
        assert_eq!(status.connection_string("fdb"), "fdb/10.0.0.1:4500,10.0.0.2:4500");
        let state = status.members[0].state.as_ref().expect("it is reported");
        assert_eq!((state.disk_bytes, state.used_bytes), (30, 10));
        assert_eq!(state.lag, Some(Lag::Ms(1_500)));
        assert_eq!(state.faults, ["io_error occured", "it is degraded"]);
        assert!(!status.members[0].is_healthy());
        assert!(status.members[1].is_healthy());
    }

    #[test]
    fn the_id_does_not_change_with_the_coordinators() {
        let id = |text: &str| id(&Value::from(text));
        assert_eq!(id("prod:a1b2@10.0.0.1:4500"), id("prod:a1b2@10.0.0.7:4500,10.0.0.8:4500"));
        assert_ne!(id("prod:a1b2@10.0.0.1:4500"), id("prod:a1b3@10.0.0.1:4500"));
    }

    #[test]
    fn a_document_without_its_fields_is_empty() {
        for document in ["{}", "[]", r#"{ "cluster": { "processes": 3, "messages": {} } }"#] {
            assert_eq!(parse(document.as_bytes()).expect("it is JSON").members, []);
        }
        assert!(parse(b"{").is_err());
    }
}
