//! Virtual collections, which nobody has created: like views, they show server state.
//! `config.transactions` has the newest numbered write of each session, `config.system.sessions`
//! the sessions.
//!
//! Only reads see them, and only where no collection of that name exists. Source: manual "Config
//! Database"; documents recorded from mongod 6.0.

use std::sync::{Arc, LazyLock};

use marula_bson::DocBuf;

use super::options::{CollectionOptions, View};
use crate::collection::{Collection, State};
use crate::keys::Ident;
use crate::namespace::Namespace;

/// Their database.
const DATABASE: &str = "config";

/// The name of each, the stage that produces its documents, and a flag for the stage's argument.
const SHOWN: [(&str, &str, &str); 2] = [
    ("transactions", "$_internalListTransactions", ""),
    ("system.sessions", "$listSessions", "allUsers"),
];

static COLLECTIONS: LazyLock<Vec<Arc<Collection>>> = LazyLock::new(|| {
    let collection = |(name, stage, flag): (&str, &str, &str)| {
        let pipeline = DocBuf::build(|out| {
            let mut first = out.begin_doc("0");
            let mut argument = first.begin_doc(stage);
            if !flag.is_empty() {
                argument.append(flag, true);
            }
        });
        let view = Some(View { on: name.to_owned(), pipeline });
        let options = CollectionOptions { view, ..CollectionOptions::default() };
        let state = State { options, indexes: Vec::new(), building: Vec::new() };
        let namespace = Namespace::new(DATABASE, name).expect("the name is valid");
        // A virtual collection stores nothing under this ident.
        Arc::new(Collection::new(Ident(0), [0; 16], namespace, state))
    };
    SHOWN.into_iter().map(collection).collect()
});

/// The virtual collection with this name.
pub(crate) fn collection(ns: &Namespace) -> Option<Arc<Collection>> {
    if ns.db() != DATABASE {
        return None;
    }
    COLLECTIONS.iter().find(|shown| shown.namespace() == *ns).cloned()
}
