//! Virtual collections, which nobody has created: like views, they show server state.
//! `config.transactions` has the newest numbered write of each session, `config.system.sessions`
//! the sessions. Over a distributed store, collections such as `config.shards` show
//! the store and its nodes, in the form of a sharded cluster.
//!
//! Only reads see them, and only where no collection of that name exists. Source: manual "Config
//! Database"; documents recorded from mongod 6.0.

use std::sync::{Arc, LazyLock};

use marula_bson::DocBuf;
use marula_error::{Result, errors};

use super::options::{CollectionOptions, View};
use crate::collection::{Collection, State};
use crate::keys::Ident;
use crate::namespace::Namespace;

errors! {
    not_writable(ns: &Namespace) = InvalidNamespace, "{ns} shows the state of the distributed store and of its nodes, and cannot be written";
}

/// Their database.
const DATABASE: &str = "config";

/// A virtual collection.
struct Shown {
    name: &'static str,
    /// The stage that produces its documents.
    stage: &'static str,
    /// A flag in the stage's argument.
    flag: &'static str,
    /// Whether only a server over a distributed store has it.
    is_of_cluster: bool,
}

const fn of_server(name: &'static str, stage: &'static str, flag: &'static str) -> Shown {
    Shown { name, stage, flag, is_of_cluster: false }
}

const fn of_cluster(name: &'static str) -> Shown {
    Shown { name, stage: "$_internalListCluster", flag: "", is_of_cluster: true }
}

const SHOWN: [Shown; 9] = [
    of_server("transactions", "$_internalListTransactions", ""),
    of_server("system.sessions", "$listSessions", "allUsers"),
    of_cluster("version"),
    of_cluster("shards"),
    of_cluster("mongos"),
    of_cluster("databases"),
    of_cluster("collections"),
    of_cluster("chunks"),
    of_cluster("settings"),
];

static COLLECTIONS: LazyLock<Vec<Arc<Collection>>> = LazyLock::new(|| {
    let collection = |Shown { name, stage, flag, .. }: &Shown| {
        let pipeline = DocBuf::build(|out| {
            let mut first = out.begin_doc("0");
            let mut argument = first.begin_doc(stage);
            if !flag.is_empty() {
                argument.append(flag, true);
            }
        });
        let view = Some(View { on: (*name).to_owned(), pipeline });
        let options = CollectionOptions { view, ..CollectionOptions::default() };
        let state = State { options, indexes: Vec::new(), building: Vec::new(), sharding: None };
        let namespace = Namespace::new(DATABASE, name).expect("the name is valid");
        // A virtual collection stores nothing under this ident.
        Arc::new(Collection::new(Ident(0), [0; 16], namespace, state))
    };
    SHOWN.iter().map(collection).collect()
});

/// The virtual collection with this name; `has_cluster` says whether the store is distributed.
pub(crate) fn collection(ns: &Namespace, has_cluster: bool) -> Option<Arc<Collection>> {
    if ns.db() != DATABASE {
        return None;
    }
    let place = SHOWN
        .iter()
        .position(|shown| shown.name == ns.collection() && (has_cluster || !shown.is_of_cluster));
    place.map(|place| COLLECTIONS[place].clone())
}

/// Checks that a name is not that of a collection that shows a cluster.
///
/// Errors: `not_writable`.
pub fn check_not_of_cluster(ns: &Namespace, has_cluster: bool) -> Result<()> {
    let is_shown = has_cluster
        && ns.db() == DATABASE
        && SHOWN.iter().any(|shown| shown.is_of_cluster && shown.name == ns.collection());
    if is_shown { Err(not_writable(ns)) } else { Ok(()) }
}
