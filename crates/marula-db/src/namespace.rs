//! Names of databases and collections, and their rules.
//!
//! Source: manual "Naming Restrictions"; messages recorded from mongod 6.0.

use std::fmt;

use marula_error::{Result, errors};

use crate::catalog::views::SYSTEM_VIEWS;

/// The maximum length of a database name in bytes.
pub const DATABASE_NAME_BYTES_MAX: usize = 63;
/// The maximum length of `<database>.<collection>` in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 255;

errors! {
    invalid_namespace(ns: &str) = InvalidNamespace, "Invalid namespace specified '{ns}'";
    embedded_nul() = InvalidNamespace, "namespaces cannot have embedded null characters";
    /// The collection name begins with a dot.
    pub leading_dot(name: &str) = InvalidNamespace, "Collection names cannot start with '.': {name}";
    invalid_collection(name: &str) = InvalidNamespace, "Invalid collection name: {name}";
    invalid_system(ns: &str) = InvalidNamespace, "Invalid system namespace: {ns}";
    reserved_view() = InvalidNamespace, "Cannot create a view called 'system.views': this is a reserved system namespace";
    view_of_system() = InvalidNamespace, "View name cannot start with 'system.', which is reserved for system namespaces";
    system_within(ns: &str) = BadValue, "Invalid namespace: {ns}";
    too_long(ns: &str) = InvalidNamespace, "Fully qualified namespace is too long. Namespace: {ns} Max: 255";
}

/// A database and a collection in it. A value of this type has names that may be *read*;
/// [`Namespace::check_creatable`] checks the remaining rules.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace {
    full: String,
    dot: usize,
}

impl Namespace {
    /// Combines a database and a collection name.
    ///
    /// Errors: `invalid_namespace` for an invalid database name or an empty collection name,
    /// `embedded_nul`.
    pub fn new(db: &str, collection: &str) -> Result<Self> {
        // Every command on a collection comes through here; formatting costs five times as much.
        let mut full = String::with_capacity(db.len() + 1 + collection.len());
        full.push_str(db);
        full.push('.');
        full.push_str(collection);
        if full.contains('\0') {
            return Err(embedded_nul());
        }
        if !is_database_name(db) || collection.is_empty() || collection.starts_with('.') {
            if collection.starts_with('.') && is_database_name(db) {
                return Err(leading_dot(collection));
            }
            return Err(invalid_namespace(&full));
        }
        Ok(Namespace { dot: db.len(), full })
    }

    /// Splits `<database>.<collection>` at its first dot.
    pub fn parse(full: &str) -> Result<Self> {
        match full.split_once('.') {
            Some((db, collection)) => Namespace::new(db, collection),
            None => Err(invalid_namespace(full)),
        }
    }

    /// Checks the rules for collections that are about to be created.
    pub fn check_creatable(&self) -> Result<()> {
        let name = self.collection();
        if self.full.len() > NAMESPACE_BYTES_MAX {
            return Err(too_long(&self.full));
        }
        if name.contains('$') {
            return Err(invalid_collection(name));
        }
        if name.starts_with("system.") && !is_system_collection(self.db(), name) {
            return Err(invalid_system(&self.full));
        }
        if name.contains(".system.") && !name.starts_with("system.") {
            return Err(system_within(&self.full));
        }
        Ok(())
    }

    /// Checks the rules for views that are about to be created: none has a name of the server's own
    /// collections, so that the collection of views is never a view itself.
    pub fn check_creatable_view(&self) -> Result<()> {
        self.check_creatable()?;
        match self.collection() {
            SYSTEM_VIEWS => Err(reserved_view()),
            _ if self.is_system() => Err(view_of_system()),
            _ => Ok(()),
        }
    }

    /// The name of the database.
    pub fn db(&self) -> &str {
        &self.full[..self.dot]
    }

    /// The name of the collection.
    pub fn collection(&self) -> &str {
        &self.full[self.dot + 1..]
    }

    /// `<database>.<collection>`.
    pub fn as_str(&self) -> &str {
        &self.full
    }

    /// Returns whether the collection is one of the server's own.
    pub fn is_system(&self) -> bool {
        self.collection().starts_with("system.")
    }
}

/// Returns whether `name` is a valid database name.
pub fn is_database_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= DATABASE_NAME_BYTES_MAX
        && !name.bytes().any(|byte| matches!(byte, b'/' | b'\\' | b'.' | b' ' | b'"' | b'$' | 0))
}

/// Returns whether clients may create this `system.` collection by writing to it.
fn is_system_collection(db: &str, name: &str) -> bool {
    let of_database: &[&str] = match db {
        "admin" => &[
            "system.roles",
            "system.version",
            "system.keys",
            "system.backup_users",
            "system.new_users",
        ],
        "config" => &["system.sessions", "system.indexBuilds", "system.preimages"],
        "local" => &["system.replset", "system.healthlog"],
        _ => &[],
    };
    let of_any = ["system.js", "system.users", "system.views", "system.profile"];
    let buckets = name.strip_prefix("system.buckets.");
    of_any.contains(&name)
        || of_database.contains(&name)
        || buckets.is_some_and(|shown| !shown.is_empty())
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(db: &str, collection: &str, expected: Result<(), &str>) {
        let outcome = Namespace::new(db, collection).and_then(|ns| ns.check_creatable());
        assert_eq!(outcome.as_ref().map_err(|error| error.message()).copied(), expected);
    }

    #[test]
    fn names_obey_the_manual() {
        check("a", "b", Ok(()));
        check("a", "b..c.", Ok(()));
        check("a*b", "c", Ok(()));
        check("a", "", Err("Invalid namespace specified 'a.'"));
        check("", "b", Err("Invalid namespace specified '.b'"));
        check("a", ".b", Err("Collection names cannot start with '.': .b"));
        check("a", "b$c", Err("Invalid collection name: b$c"));
        check("a", "system.x", Err("Invalid system namespace: a.system.x"));
        check("a", "system.js", Ok(()));
        check("a", "b\0c", Err("namespaces cannot have embedded null characters"));
        check(&"d".repeat(63), "c", Ok(()));
        let long = "d".repeat(64);
        check(&long, "c", Err(&format!("Invalid namespace specified '{long}.c'")));
        check("abcd", &"x".repeat(250), Ok(()));
        assert!(Namespace::new("abcd", &"x".repeat(251)).unwrap().check_creatable().is_err());
    }

    #[test]
    fn a_view_has_no_system_name() {
        let check = |name| Namespace::new("a", name).unwrap().check_creatable_view().is_ok();
        assert!(check("b"));
        for name in ["system.views", "system.js", "system.buckets.b", "system.x", "b$c"] {
            assert!(!check(name), "{name}");
        }
    }
}
