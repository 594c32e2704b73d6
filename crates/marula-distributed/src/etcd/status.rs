//! The state of etcd's servers, by its maintenance API.
//!
//! Source: etcd documentation, "API reference": `MemberList`, `Status`, `Alarm`.

use std::thread;
use std::time::Duration;

use marula_storage::ClusterStatus;
use marula_storage::cluster::{Lag, Member, MemberState, Placement};
use serde_json::{Value, json};

use super::http::{Endpoint, Failure};
use super::{Effect, Etcd, number_of};

/// The timeout of a request for a server's state.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// Upper bound on the members; etcd recommends seven.
const MEMBERS_MAX: usize = 64;

/// A member of the cluster, and its address for requests.
struct Listed {
    name: String,
    address: String,
    endpoint: Option<Endpoint>,
}

/// The reply of a server.
struct Report {
    state: MemberState,
    cluster: u64,
    /// The number of the newest commit that it knows of, and of the newest that it has applied.
    known: u64,
    applied: u64,
}

/// Asks all servers at once.
pub(super) fn read(etcd: &Etcd) -> ClusterStatus {
    let mut listed = members(etcd);
    listed.truncate(MEMBERS_MAX);
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    let reports: Vec<Result<Report, String>> = thread::scope(|scope| {
        let asked: Vec<_> =
            listed.iter().map(|member| scope.spawn(|| status_of(etcd, member))).collect();
        let report = |asked: thread::ScopedJoinHandle<'_, _>| {
            asked.join().unwrap_or_else(|_| Err("the request has failed".to_owned()))
        };
        asked.into_iter().map(report).collect()
    });
    let known = reports.iter().flatten().map(|report| report.known).max().unwrap_or(0);
    let id = reports.iter().flatten().map(|report| report.cluster).next().unwrap_or(0);
    let members = listed.into_iter().zip(reports).map(|(listed, report)| Member {
        name: listed.name,
        address: listed.address,
        state: report.map(|report| {
            let lag = Lag::Commits(known.saturating_sub(report.applied));
            MemberState { lag: Some(lag), ..report.state }
        }),
    });
    let members = members.collect();
    ClusterStatus { id, members, placement: Placement::Everywhere, faults: faults(etcd) }
}

/// The members that the cluster lists. A cluster without a leader lists none: then the endpoints
/// that this process was given.
fn members(etcd: &Etcd) -> Vec<Listed> {
    let reply = etcd.call("/v3/cluster/member/list", &json!({}), Effect::Reads);
    let listed = reply.ok().and_then(|reply| reply["members"].as_array().cloned());
    match listed {
        Some(listed) if !listed.is_empty() => {
            listed.iter().map(|member| listed_member(etcd, member)).collect()
        }
        _ => etcd
            .endpoints
            .iter()
            .map(|endpoint| {
                let address = endpoint.address().to_owned();
                Listed {
                    name: address.clone(),
                    endpoint: etcd.endpoint(&endpoint.url()).ok(),
                    address,
                }
            })
            .collect(),
    }
}

fn listed_member(etcd: &Etcd, member: &Value) -> Listed {
    let url = member["clientURLs"].get(0).and_then(Value::as_str).unwrap_or_default();
    let endpoint = etcd.endpoint(url).ok();
    let address = endpoint.as_ref().map_or(url, Endpoint::address).to_owned();
    // A member that has been added and not been started yet has no name.
    let name = member["name"].as_str().unwrap_or(&address).to_owned();
    Listed { name, address, endpoint }
}

fn status_of(etcd: &Etcd, member: &Listed) -> Result<Report, String> {
    let endpoint = member.endpoint.as_ref().ok_or("it has no address that can be used")?;
    let token = etcd.login.token();
    let path = "/v3/maintenance/status";
    let reply = endpoint.post_once(path, b"{}", token.as_deref(), STATUS_TIMEOUT);
    let reply =
        reply.map_err(|(Failure::NotSent(error) | Failure::Lost(error))| error.to_string())?;
    let text = || String::from_utf8_lossy(&reply.body).into_owned();
    if reply.status != 200 {
        return Err(text());
    }
    let status = serde_json::from_slice(&reply.body).map_err(|_| text())?;
    report(&status).ok_or_else(text)
}

/// Reads a reply to `Status`.
fn report(status: &Value) -> Option<Report> {
    let number = |value: &Value| number_of(value).ok();
    let header = &status["header"];
    let (own, leader) = (number(&header["member_id"])?, number(&status["leader"])?);
    let role = match () {
        () if status["isLearner"].as_bool() == Some(true) => "learner",
        () if leader != 0 && leader == own => "leader",
        () => "follower",
    };
    let disk_bytes = number(&status["dbSize"])?;
    let told = status["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut faults: Vec<String> =
        told.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if leader == 0 {
        faults.push("it has no leader".to_owned());
    }
    let state = MemberState {
        version: status["version"].as_str()?.to_owned(),
        role: role.to_owned(),
        disk_bytes,
        used_bytes: number(&status["dbSizeInUse"])?,
        lag: None,
        faults,
    };
    let known = number(&status["raftIndex"])?;
    let applied = match &status["raftAppliedIndex"] {
        Value::Null => known,
        applied => number(applied)?,
    };
    Some(Report { state, cluster: number(&header["cluster_id"])?, known, applied })
}

/// The alarms that are raised.
fn faults(etcd: &Etcd) -> Vec<String> {
    let reply = match etcd.call("/v3/maintenance/alarm", &json!({ "action": "GET" }), Effect::Reads)
    {
        Ok(reply) => reply,
        Err(error) => return vec![error.to_string()],
    };
    let raised = reply["alarms"].as_array().cloned().unwrap_or_default();
    raised
        .iter()
        .map(|alarm| format!("alarm {}", alarm["alarm"].as_str().unwrap_or("of an unknown kind")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read() {
        let status = json!({
            "header": { "cluster_id": "14841639068965178418", "member_id": "7", "raft_term": "2" },
            "version": "3.4.23", "dbSize": "24576", "dbSizeInUse": "8192", "leader": "7",
            "raftIndex": "12", "raftTerm": "2", "raftAppliedIndex": "10", "errors": ["NOSPACE"],
        });
        let report = report(&status).expect("it is of the known form");
        assert_eq!(report.cluster, 14_841_639_068_965_178_418);
        assert_eq!((report.known, report.applied), (12, 10));
        assert_eq!(report.state.role, "leader");
        assert_eq!((report.state.disk_bytes, report.state.used_bytes), (24_576, 8_192));
        assert_eq!(report.state.faults, ["NOSPACE"]);
    }

    #[test]
    fn a_server_without_a_leader_has_a_fault() {
        let report = report(&json!({ "header": {}, "version": "3.5.0" })).expect("it is read");
        assert_eq!(report.state.role, "follower");
        assert_eq!(report.state.faults, ["it has no leader"]);
    }

    #[test]
    fn what_is_no_status_is_refused() {
        for wrong in [
            json!(null),
            json!([]),
            json!({ "version": 3 }),
            json!({ "version": "3", "dbSize": "-1" }),
        ] {
            assert!(report(&wrong).is_none(), "{wrong}");
        }
    }
}
