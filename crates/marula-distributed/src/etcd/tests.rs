//! The promises of a backend and of an engine, kept with real etcd servers on loopback.
//!
//! The server is found by `tools/setup etcd`. Where there is none the tests say so and pass.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use marula_storage::cluster::Member;
use marula_storage::contract::{self, Folder};
use marula_storage::{Space, Store};

use super::*;
use crate::kv_contract::{self, Scope};
use crate::{Distributed, LeaseOptions, Options};

/// Servers that end with the test.
struct Cluster {
    servers: Vec<Child>,
    endpoints: Vec<String>,
    _folder: Folder,
}

impl Cluster {
    /// Starts servers that are one cluster; `None` where there is no etcd.
    fn start(count: usize) -> Option<Self> {
        let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/setup");
        let found = Command::new(setup).arg("etcd").stderr(Stdio::null()).output().ok();
        let found = found.filter(|found| found.status.success());
        let Some(found) = found.and_then(|found| String::from_utf8(found.stdout).ok()) else {
            eprintln!("SKIPPED: there is no etcd here, see tools/setup etcd");
            return None;
        };
        let binary = PathBuf::from(found.trim());
        let folder = Folder::new();
        // Held until all are chosen, so that none is chosen twice.
        let held: Vec<TcpListener> = (0..2 * count)
            .map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"))
            .collect();
        let urls: Vec<String> = held
            .iter()
            .map(|port| format!("http://{}", port.local_addr().expect("it has one")))
            .collect();
        drop(held);
        let (clients, peers) = urls.split_at(count);
        let members: Vec<String> =
            peers.iter().enumerate().map(|(number, url)| format!("n{number}={url}")).collect();
        let servers = (0..count)
            .map(|number| {
                Command::new(&binary)
                    .args(["--name", &format!("n{number}")])
                    .arg("--data-dir")
                    .arg(folder.path().join(number.to_string()))
                    .args(["--listen-client-urls", &clients[number]])
                    .args(["--advertise-client-urls", &clients[number]])
                    .args(["--listen-peer-urls", &peers[number]])
                    .args(["--initial-advertise-peer-urls", &peers[number]])
                    .args(["--initial-cluster", &members.join(",")])
                    .args(["--max-request-bytes", "10485760", "--max-txn-ops", "50000"])
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .expect("etcd starts")
            })
            .collect();
        let cluster = Cluster { servers, endpoints: clients.to_vec(), _folder: folder };
        let until = Instant::now() + Duration::from_secs(60);
        while let Err(error) = cluster.client().read_version() {
            assert!(Instant::now() < until, "etcd does not come up: {error}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(cluster)
    }

    fn client(&self) -> Etcd {
        Etcd::new(&self.endpoints, None).expect("the endpoints are addresses")
    }

    fn open(
        &self,
        root: &str,
        lease: Option<LeaseOptions>,
    ) -> marula_storage::Result<Arc<dyn Store>> {
        let options = Options { root: root.as_bytes().to_vec(), lease, is_shared: false };
        Ok(Arc::new(Distributed::open(Arc::new(self.client()), options)?))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

#[test]
fn etcd_keeps_the_promises_of_a_backend() {
    let Some(cluster) = Cluster::start(1) else { return };
    macro_rules! promises {
        ($($promise:ident)*) => { $({
            let kv = cluster.client();
            let root = concat!(stringify!($promise), "/").as_bytes().to_vec();
            kv_contract::$promise(&Scope { kv: &kv, root });
        })* };
    }
    crate::for_each_kv_promise!(promises);
}

#[test]
fn three_servers_keep_the_promises_of_an_engine() {
    let Some(cluster) = Cluster::start(3) else { return };
    let open =
        |folder: &Path| cluster.open(&folder.display().to_string(), None).expect("the store opens");
    macro_rules! promises {
        ($($promise:ident)*) => { $({
            let began = Instant::now();
            contract::$promise(&open);
            println!("{}: {} ms", stringify!($promise), began.elapsed().as_millis());
        })* };
    }
    marula_storage::for_each_promise!(promises);
}

#[test]
fn a_server_that_dies_is_not_missed() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    let store = cluster.open("died/", None).expect("the store opens");
    let write = |number: u32| {
        let mut txn = store.begin();
        txn.put(Space::Records, &number.to_be_bytes(), b"x");
        txn.add(b"count", 1);
        txn.commit().expect("a commit succeeds");
    };
    for number in 0..60 {
        if number == 20 {
            // The one that requests go to, which may be the leader.
            let server = &mut cluster.servers[0];
            server.kill().expect("it can be killed");
            server.wait().expect("it has ended");
        }
        write(number);
    }
    let mut count = 0;
    store
        .get(Space::Catalog, b"count", &mut |value| {
            count = i64::from_le_bytes(value.try_into().expect("8 bytes"));
        })
        .expect("it reads");
    assert_eq!(count, 60, "each commit was made once");
}

#[test]
fn one_process_serves_a_store() {
    let Some(cluster) = Cluster::start(1) else { return };
    let lease = || {
        Some(LeaseOptions {
            beat: Duration::from_millis(50),
            expiry: Duration::from_secs(30),
            ..LeaseOptions::new("first".to_owned())
        })
    };
    let first = cluster.open("one/", lease()).expect("the store opens");
    let refused = cluster.open("one/", lease()).err().expect("a second process is refused");
    assert!(refused.to_string().contains("in use by another Marula process (first)"), "{refused}");
    cluster.open("other/", lease()).expect("another store opens");
    first.close().expect("it closes");
    cluster.open("one/", lease()).expect("the store opens again at once");
}

/// Each server reports itself, and one that has been killed is a member with an error.
#[test]
fn members_report_themselves() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    let client = cluster.client();
    // A server that has just started has not published its address yet.
    let until = Instant::now() + Duration::from_secs(60);
    let mut status = client.status().expect("it has a status");
    while !status.is_healthy() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        status = client.status().expect("it has a status");
    }
    let names: Vec<&str> = status.members.iter().map(|member| &*member.name).collect();
    assert_eq!(names, ["n0", "n1", "n2"]);
    assert!(status.is_healthy() && status.id != 0, "{status:?}");
    let state = |member: &Member| member.state.clone().expect("it runs");
    let roles: Vec<String> = status.members.iter().map(|member| state(member).role).collect();
    assert_eq!(roles.iter().filter(|role| *role == "leader").count(), 1, "{roles:?}");
    assert!(status.members.iter().all(|member| state(member).disk_bytes > 0));
    let leader = roles.iter().position(|role| role == "leader").expect("there is one");
    cluster.servers[leader].kill().expect("it can be killed");
    cluster.servers[leader].wait().expect("it has ended");
    // The others choose a leader within a second or so.
    let until = Instant::now() + Duration::from_secs(60);
    let later = loop {
        let later = client.status().expect("it has a status");
        let is_led = |member: &Member| member.state.as_ref().is_ok_and(|it| it.role == "leader");
        if later.members.len() == 3 && later.members.iter().any(is_led) {
            break later;
        }
        assert!(Instant::now() < until, "no other leads: {later:?}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(later.id, status.id);
    assert!(!later.is_healthy() && later.members[leader].state.is_err(), "{later:?}");
    let healthy = later.members.iter().filter(|member| member.is_healthy()).count();
    assert_eq!(healthy, 2, "{later:?}");
}

#[test]
fn addresses_are_checked() {
    assert!(Etcd::new(&[], None).is_err());
    assert!(Etcd::new(&["nonsense".to_owned()], None).is_err());
    let nobody = Etcd::new(&["http://127.0.0.1:1".to_owned()], None).expect("an address");
    assert!(matches!(nobody.read_version(), Err(KvError::Unavailable(_))));
}

#[test]
fn refusals_are_told_apart() {
    let writes = |text| refusal(text, Effect::Writes);
    let is_unavailable = |error| matches!(error, KvError::Unavailable(_));
    assert_eq!(writes("etcdserver: mvcc: required revision has been compacted"), KvError::TooOld);
    assert_eq!(writes("etcdserver: request is too large"), KvError::TooLarge);
    assert_eq!(writes("etcdserver: request timed out"), KvError::Unknown);
    assert_eq!(writes("etcdserver: leader changed"), KvError::Unknown);
    assert!(is_unavailable(writes("etcdserver: no leader")));
    assert!(is_unavailable(writes("etcdserver: invalid auth token")));
    assert!(is_unavailable(writes("etcdserver: permission denied")));
    assert!(is_unavailable(refusal("etcdserver: request timed out", Effect::Reads)));
}
