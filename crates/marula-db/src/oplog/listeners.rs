//! Those who wait for changes.

use std::time::Instant;

use parking_lot::Mutex;

use super::Entries;
use crate::collection::Listener;

/// Of which changes someone wants to be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Of all.
    Everything,
    /// Of those in a database.
    Database(String),
    /// Of those of a collection: its database, and its full name.
    Collection(String, String),
}

impl Scope {
    /// Whether a change under this name may concern it. Changes of a database's catalogue have the
    /// name `<database>.$cmd`.
    fn concerns(&self, ns: &str) -> bool {
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

/// Those whose time is over are cleared out once there are so many.
const KEPT: usize = 64;

impl Listeners {
    /// Adds a listener, unless there is something to hear already: then it is called.
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
        if waiting.len() >= KEPT && waiting.len().is_power_of_two() {
            let now = Instant::now();
            waiting.retain(|other| other.until > now);
        }
        waiting.push(Waiting { scope, until, listener });
    }

    /// Calls those whom these entries may concern.
    pub(super) fn tell(&self, entries: &Entries) {
        let concerned: Vec<Waiting> = {
            let mut waiting = self.0.lock();
            if waiting.is_empty() {
                return;
            }
            let is_concerned =
                |one: &mut Waiting| entries.namespaces().any(|ns| one.scope.concerns(ns));
            waiting.extract_if(.., is_concerned).collect()
        };
        concerned.into_iter().for_each(|one| (one.listener)());
    }

    /// Calls all.
    pub(super) fn tell_all(&self) {
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
            assert!(Scope::Everything.concerns(ns));
            assert_eq!(database.concerns(ns), in_database, "{ns}");
            assert_eq!(collection.concerns(ns), in_collection, "{ns}");
        }
    }
}
