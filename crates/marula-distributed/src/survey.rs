//! A look at a store from outside: its servers, and the Marula processes that serve it. It changes
//! nothing.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use marula_storage::nodes::Node;
use marula_storage::{ClusterStatus, Result};

use crate::kv::{Kv, KvError};
use crate::shared::{Shared, store_error};
use crate::{lease, nodes};

/// The time for which heartbeats are watched: a process that lives counts every second.
const WATCHED: Duration = Duration::from_secs(3);

/// The sleep between two looks.
const STEP: Duration = Duration::from_millis(200);

/// The result of a look.
#[derive(Debug)]
pub struct Survey {
    /// The store's servers.
    pub cluster: ClusterStatus,
    /// The processes that serve it; the error where the store cannot be read.
    pub processes: Result<Processes>,
}

/// The Marula processes that the store names.
#[derive(Debug)]
pub struct Processes {
    /// Those that share the store.
    pub nodes: Vec<Seen<Node>>,
    /// The name of the process that has the store for itself.
    pub owner: Option<Seen<String>>,
}

/// A process that the store names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen<T> {
    /// The process.
    pub process: T,
    /// Whether its heartbeat was seen to go on.
    pub is_alive: bool,
}

/// Looks at the store that lies below `root`. Watches the processes until each has shown that it
/// lives, for three seconds at most.
///
/// Errors: no server of the store can be reached.
pub fn survey(kv: Arc<dyn Kv>, root: &[u8]) -> Result<Survey> {
    let cluster = kv.status().map_err(store_error)?;
    let shared = Shared::new(kv, root);
    Ok(Survey { cluster, processes: processes(&shared).map_err(store_error) })
}

fn processes(shared: &Shared) -> Result<Processes, KvError> {
    let look = || Ok::<_, KvError>((nodes::beats(shared)?, lease::owner(shared)?));
    let first = look()?;
    let (mut alive, mut is_owner_alive) = (HashSet::new(), false);
    let until = Instant::now() + WATCHED;
    loop {
        let (nodes, owner) = look()?;
        let has_beaten = |now: &(Node, Vec<u8>)| {
            first.0.iter().any(|then| then.0.id == now.0.id && then.1 != now.1)
        };
        alive.extend(nodes.iter().filter(|now| has_beaten(now)).map(|(node, _)| node.id));
        is_owner_alive |= owner.is_some() && owner != first.1;
        let is_known = nodes.iter().all(|(node, _)| alive.contains(&node.id))
            && (owner.is_none() || is_owner_alive);
        if is_known || Instant::now() >= until {
            let seen = |(node, _): (Node, Vec<u8>)| Seen {
                is_alive: alive.contains(&node.id),
                process: node,
            };
            let nodes = nodes.into_iter().map(seen).collect();
            let owner = owner.map(|(name, _)| Seen { process: name, is_alive: is_owner_alive });
            return Ok(Processes { nodes, owner });
        }
        thread::sleep(STEP);
    }
}
