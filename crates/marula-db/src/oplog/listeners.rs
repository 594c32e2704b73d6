//! Listeners that wait for changes.

use std::time::Instant;

use parking_lot::Mutex;

use super::Entries;
use crate::collection::Listener;
use crate::sweep;

/// The changes that a listener is interested in.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// All changes.
    Everything,
    /// Changes in a database.
    Database(String),
    /// Changes of a collection: its database, and its full name.
    Collection(String, String),
}

impl Scope {
    /// Returns whether a change of this namespace may be in the scope. Changes of a database's
    /// catalogue have the namespace `<database>.$cmd`.
    fn includes(&self, ns: &str) -> bool {
        let is_in = |db: &str| ns.strip_prefix(db).is_some_and(|rest| rest.starts_with('.'));
        match self {
            Scope::Everything => true,
            Scope::Database(db) => is_in(db),
            Scope::Collection(db, full) => ns == full || (ns.ends_with(".$cmd") && is_in(db)),
        }
    }
}

struct Waiting {
    scope: Scope,
    until: Instant,
    listener: Listener,
}

/// Listeners, each of which is called once.
#[derive(Default)]
pub(super) struct Listeners(Mutex<Vec<Waiting>>);

impl Listeners {
    /// Adds a listener, or calls it at once if there is news already.
    pub(super) fn add(
        &self,
        scope: Scope,
        until: Instant,
        listener: Listener,
        has_more: impl FnOnce() -> bool,
    ) {
        let mut waiting = self.0.lock();
        if has_more() {
            drop(waiting);
            return listener();
        }
        if sweep::is_due(waiting.len()) {
            let now = Instant::now();
            waiting.retain(|other| other.until > now);
        }
        waiting.push(Waiting { scope, until, listener });
    }

    /// Calls the listeners whose scope may include these entries.
    pub(super) fn notify(&self, entries: &Entries) {
        let included: Vec<Waiting> = {
            let mut waiting = self.0.lock();
            if waiting.is_empty() {
                return;
            }
            let is_included =
                |one: &mut Waiting| entries.namespaces().any(|ns| one.scope.includes(ns));
            waiting.extract_if(.., is_included).collect()
        };
        included.into_iter().for_each(|one| (one.listener)());
    }

    /// Returns whether there are any.
    pub(super) fn any(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Calls all listeners.
    pub(super) fn notify_all(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        all.into_iter().for_each(|one| (one.listener)());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_what_may_concern_it() {
        let database = Scope::Database("a".into());
        let collection = Scope::Collection("a".into(), "a.b".into());
        for (ns, in_database, in_collection) in [
            ("a.b", true, true),
            ("a.c", true, false),
            ("a.$cmd", true, true),
            ("ab.c", false, false),
            ("ab.$cmd", false, false),
        ] {
            assert!(Scope::Everything.includes(ns));
            assert_eq!(database.includes(ns), in_database, "{ns}");
            assert_eq!(collection.includes(ns), in_collection, "{ns}");
        }
    }
}
