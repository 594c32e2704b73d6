//! The machines of a distributed store, as the store itself reports them.

/// A distributed store at one moment. A field that the store does not report is empty.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ClusterStatus {
    /// Names the cluster: the same for every process that uses it, for as long as it exists.
    pub id: u64,
    /// Its servers, in the order of their names.
    pub members: Vec<Member>,
    /// How data is placed on the members.
    pub placement: Placement,
    /// Faults of the whole, in the store's words, such as a full disk. Empty means healthy.
    pub faults: Vec<String>,
}

/// How a store places data on its members.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Placement {
    /// Every member has all data: nothing moves between them.
    #[default]
    Everywhere,
    /// The store divides data among its members, and moves them.
    Divided {
        /// Bytes that are being moved, or wait for it.
        moving_bytes: u64,
    },
}

/// A server of a distributed store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its name in the cluster.
    pub name: String,
    /// Host and port that clients use.
    pub address: String,
    /// Its own report; the error if it cannot be reached.
    pub state: Result<MemberState, String>,
}

/// A member's own report.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MemberState {
    /// The release of the store's software.
    pub version: String,
    /// Its roles, in the store's words, such as `leader`.
    pub role: String,
    /// Bytes that its data takes on disk.
    pub disk_bytes: u64,
    /// Bytes of these that are in use.
    pub used_bytes: u64,
    /// Its distance from the others.
    pub lag: Option<Lag>,
    /// Its faults, in the store's words. Empty means healthy.
    pub faults: Vec<String>,
}

/// The distance of a member from the newest commit that another one has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lag {
    /// Commits.
    Commits(u64),
    /// Milliseconds.
    Ms(u64),
}

/// The connections of this process to a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connections {
    /// Host and port of the member.
    pub address: String,
    /// Those that carry a request.
    pub in_use: u64,
    /// Those that are open and idle.
    pub available: u64,
    /// Those made since the start.
    pub created: u64,
}

impl Member {
    /// Whether it can be reached and reports no fault.
    pub fn is_healthy(&self) -> bool {
        self.state.as_ref().is_ok_and(|state| state.faults.is_empty())
    }
}

impl ClusterStatus {
    /// Whether the store and each of its members are healthy.
    pub fn is_healthy(&self) -> bool {
        self.faults.is_empty() && self.members.iter().all(Member::is_healthy)
    }

    /// The name of the store with the addresses of its members, in the form of a replica set:
    /// `etcd/10.0.0.1:2379,10.0.0.2:2379`.
    pub fn connection_string(&self, name: &str) -> String {
        let addresses: Vec<&str> =
            self.members.iter().map(|member| member.address.as_str()).collect();
        format!("{name}/{}", addresses.join(","))
    }
}
