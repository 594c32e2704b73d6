//! Access control: compares the privileges that a request needs with those of its user.
//!
//! ```text
//!   Request ─► the row's `auth` ─► Check: needs (actions on a target) ─┐
//!                                                                      ├─► permitted, or refused
//!   Connection ─► Access: privileges of all roles of the user ─────────┘
//! ```
//!
//! A command's row has its needs ([`Auth`]); if they depend on the request's content, a function of
//! the command adds them to a [`Check`]. The check is made in one place, before the command's own
//! code runs, and only if access control is on. Source: manual "Privilege Actions"; recorded from
//! mongod 6.0, command by command.

use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use marula_bson::{Doc, Value};
use marula_error::{Error, Result, errors};

use super::access::Access;
use super::action::ActionSet;
use super::documents::Documents;
use super::name::Name;
use super::privilege::Privilege;
use super::resource::Resource;
use crate::connection::Connection;
use crate::log::attributes;
use crate::request::Request;
use crate::row::Auth;
use crate::server::Server;
use crate::session::Lsid;

errors! {
    /// A client that is not authenticated sent a command that requires it.
    pub(crate) requires_authentication(command: &str) = Unauthorized, "command {command} requires authentication";
    not_authorized(db: &str, command: &str) = Unauthorized, "not authorized on {db} to execute command {command}";
    session_of_another() = Unauthorized, "Unauthorized to set user digest in LogicalSessionId";
}

/// The size up to which a rejected command is shown in full.
const SHOWN_BYTES_MAX: usize = 4096;

/// The target of an action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// The server.
    Cluster,
    /// All databases, but not those of the server itself.
    EveryDatabase,
    /// Everything.
    AnyResource,
    /// A database.
    Database(String),
    /// A collection of a database.
    Collection(String, String),
}

impl Target {
    /// Returns the collection of this name.
    pub(crate) fn collection(db: &str, collection: &str) -> Self {
        Target::Collection(db.to_owned(), collection.to_owned())
    }
}

/// Actions that a request needs on a target.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    target: Target,
    actions: Vec<&'static str>,
}

impl Need {
    /// Returns whether an action on it may change users or roles.
    fn touches_users(&self) -> bool {
        let is_of_admin = match &self.target {
            Target::Cluster | Target::EveryDatabase | Target::AnyResource => true,
            Target::Database(db) | Target::Collection(db, _) => db == "admin",
        };
        is_of_admin && self.actions.iter().any(|&action| action != "find")
    }
}

impl Resource {
    /// Returns whether a privilege on it includes `target`.
    pub(crate) fn covers(&self, target: &Target) -> bool {
        // "All databases" excludes the server's own.
        let is_ordinary = |db: &str| !matches!(db, "local" | "config");
        match (self, target) {
            (Resource::Any, _) | (Resource::Cluster, Target::Cluster) => true,
            (Resource::Collections { db, collection }, Target::EveryDatabase) => {
                db.is_empty() && collection.is_empty()
            }
            (Resource::Collections { db, collection }, Target::Database(of)) => {
                collection.is_empty() && (db == of || db.is_empty() && is_ordinary(of))
            }
            (Resource::Collections { db, collection }, Target::Collection(of, name)) => {
                match (db.is_empty(), collection.is_empty()) {
                    (false, false) => db == of && collection == name,
                    (false, true) => db == of && !is_system(of, name),
                    (true, false) => collection == name,
                    (true, true) => is_ordinary(of) && !is_system(of, name),
                }
            }
            (Resource::Buckets { db, collection }, Target::Collection(of, name)) => {
                let Some(shown) = name.strip_prefix("system.buckets.") else { return false };
                (db.is_empty() || db == of) && (collection.is_empty() || collection == shown)
            }
            _ => false,
        }
    }

    /// Returns whether it is in a database.
    fn is_in(&self, db: &str) -> bool {
        match self {
            Resource::Any => true,
            Resource::Cluster => false,
            Resource::Collections { db: own, collection } if own.is_empty() => {
                !collection.is_empty() || !matches!(db, "local" | "config")
            }
            Resource::Collections { db: own, .. } => own == db,
            Resource::Buckets { db: own, .. } => own.is_empty() || own == db,
        }
    }
}

/// Returns whether a collection is the server's own, so that only a privilege that names it
/// includes it.
fn is_system(db: &str, collection: &str) -> bool {
    collection.starts_with("system.") || db == "local" && collection.starts_with("replset.")
}

/// Returns whether one of the privileges is for this action.
pub(super) fn may(privileges: &[Privilege], target: &Target, action: &str) -> bool {
    privileges.iter().any(|own| own.actions.contains(action) && own.resource.covers(target))
}

impl Access {
    /// Returns whether the user has a privilege for this action.
    pub(crate) fn may(&self, target: &Target, action: &str) -> bool {
        may(&self.privileges, target, action)
    }

    /// Returns whether the user has any privilege on a collection.
    pub(crate) fn may_touch(&self, db: &str, collection: &str) -> bool {
        let target = Target::collection(db, collection);
        self.privileges.iter().any(|own| own.resource.covers(&target))
    }

    /// Returns whether the user has any privilege in a database.
    pub(crate) fn may_enter(&self, db: &str) -> bool {
        !self.is_nobody() && self.privileges.iter().any(|own| own.resource.is_in(db))
    }
}

/// The needs of a request, as they are collected.
pub struct Check<'a> {
    /// The user's access.
    access: &'a Access,
    needs: Vec<Need>,
    is_refused: bool,
}

impl Check<'_> {
    /// Adds a need for these actions on `target`.
    pub(crate) fn needs(&mut self, target: Target, actions: &[&'static str]) {
        self.is_refused |= !actions.iter().all(|action| self.access.may(&target, action));
        self.needs.push(Need { target, actions: actions.to_vec() });
    }

    /// Adds a need for these actions on a collection.
    pub(crate) fn needs_on(&mut self, db: &str, collection: &str, actions: &[&'static str]) {
        self.needs(Target::collection(db, collection), actions);
    }

    /// Adds a need for these actions on the collection that a request names, by its name or its
    /// UUID.
    pub(crate) fn needs_on_its_collection(
        &mut self,
        request: &Request<'_>,
        actions: &[&'static str],
    ) -> Result<()> {
        if request.is_by_uuid() {
            self.needs(Target::Cluster, &["useUUID"]);
            if self.is_refused {
                return Ok(());
            }
        }
        self.needs_on(request.db, request.namespace()?.collection(), actions);
        Ok(())
    }

    /// Requires an authenticated user.
    pub(crate) fn refuse_anonymous(&mut self) {
        self.is_refused |= self.access.is_nobody();
    }

    /// Returns whether the user has a privilege for this action, without adding a need.
    pub(crate) fn may(&self, target: &Target, action: &str) -> bool {
        self.access.may(target, action)
    }

    /// Refuses the request.
    pub(crate) fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// Returns whether a need is not met.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Returns whether this is the request's user.
    pub(crate) fn is(&self, user: &Name) -> bool {
        self.access.user == *user
    }

    /// Returns whether the user has this role.
    pub(crate) fn has_role(&self, role: &Name) -> bool {
        self.access.roles.contains(role)
    }

    /// Returns whether the user has any privilege in a database.
    pub(crate) fn may_enter(&self, db: &str) -> bool {
        self.access.may_enter(db)
    }

    /// Adds the needs in the row of a request's command.
    pub(crate) fn request(&mut self, request: &Request<'_>) -> Result<()> {
        match request.command.auth {
            Auth::Anyone | Auth::User => {}
            Auth::Cluster(actions) => self.needs(Target::Cluster, actions),
            Auth::Database(actions) => {
                self.needs(Target::Database(request.db.to_owned()), actions);
            }
            Auth::Collection(actions) => self.needs_on_its_collection(request, actions)?,
            Auth::Content(tell) => tell(request, self)?,
        }
        Ok(())
    }
}

/// Checks that a request is permitted, if access control is on; returns its needs.
///
/// Errors: `requires_authentication`, `not_authorized`.
pub(crate) fn check(
    server: &Server,
    connection: &Connection,
    request: &Request<'_>,
) -> Result<Vec<Need>> {
    if !server.options.has_access_control || matches!(request.command.auth, Auth::Anyone) {
        return Ok(Vec::new());
    }
    let audit = |result: i32| audit(server, connection, request, result);
    let access = match connection.access.as_deref() {
        Some(access) => access,
        None if may_be_first(server, connection)? => &FIRST_COMER,
        None => {
            let error = requires_authentication(request.command.name);
            audit(error.code().number());
            return Err(error);
        }
    };
    let mut check = Check { access, needs: Vec::new(), is_refused: false };
    check.request(request)?;
    if check.is_refused {
        let error = refusal(request);
        log_refusal(&error);
        audit(error.code().number());
        return Err(error);
    }
    if server.options.audit.as_ref().is_some_and(|audit| audit.records_successes()) {
        audit(0);
    }
    Ok(check.needs)
}

/// Requires for a read that names a term, as other nodes do, the privilege of the nodes.
pub(crate) fn own_term(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    if request.arg("term").is_some() {
        check.needs(Target::Cluster, &["internal"]);
    }
    Ok(())
}

/// Returns the error of a message that is not a valid request; a client that is not authenticated
/// does not see details.
pub(crate) fn hide(server: &Server, connection: &Connection, body: Doc<'_>, error: Error) -> Error {
    if !server.options.has_access_control || connection.access.is_some() {
        return error;
    }
    let first = body
        .iter()
        .next()
        .and_then(|first| crate::command::find(first.name, server.db.feature_version()));
    match first {
        Some((_, command)) if !matches!(command.auth, Auth::Anyone) => {
            match may_be_first(server, connection) {
                Ok(true) => error,
                _ => requires_authentication(command.name),
            }
        }
        _ => error,
    }
}

/// Updates the access of a connection's user.
pub(crate) fn renew(server: &Server, connection: &mut Connection) {
    let Some(access) = &connection.access else { return };
    // Other nodes change users too.
    let revision = server.users.revision.load(Ordering::Acquire) + server.db.renewals();
    if access.revision != revision {
        let documents = Documents::new(&server.db, server.now_ms());
        let renewed = access.renewed(&documents, &connection.peer);
        connection.set_access(renewed.map(|access| access.of_revision(revision)));
    }
}

/// Makes the session of a request its user's own; without a user there is none.
///
/// Errors: `session_of_another`.
pub(crate) fn own_session(connection: &Connection, request: &mut Request<'_>) -> Result<()> {
    match (&connection.access, request.lsid) {
        (Some(access), Some(lsid)) => request.lsid = Some(session_of(access, lsid)?),
        (Some(_), None) => {}
        (None, _) => (request.lsid, request.txn_number, request.transaction) = (None, None, None),
    }
    Ok(())
}

/// Returns a session's id for the user of a connection.
///
/// Errors: `session_of_another`.
pub(crate) fn own_lsid(server: &Server, connection: &Connection, lsid: Lsid) -> Result<Lsid> {
    match &connection.access {
        Some(access) if server.options.has_access_control => session_of(access, lsid),
        _ => Ok(lsid),
    }
}

/// Returns a session's id for a user: sessions of different users are different. Only a user that
/// may impersonate others can name another's.
///
/// Errors: `session_of_another`.
fn session_of(access: &Access, lsid: Lsid) -> Result<Lsid> {
    let own = lsid.of_user(access.digest());
    match lsid.uid().is_none_or(|uid| own.uid() == Some(uid)) {
        true => Ok(own),
        false if access.may(&Target::Cluster, "impersonate") => Ok(lsid),
        false => Err(session_of_another()),
    }
}

/// Updates the revision after a request that may have changed users or roles.
pub(crate) fn note_changes(server: &Server, needs: &[Need]) {
    if needs.iter().any(Need::touches_users) {
        server.users.revision.fetch_add(1, Ordering::AcqRel);
    }
}

/// Returns whether the needs of opening a cursor are still permitted.
pub(crate) fn still_allows(access: &Access, needs: &[Need]) -> bool {
    needs.iter().all(|need| need.actions.iter().all(|action| access.may(&need.target, action)))
}

/// Returns the error of a request that is not permitted.
pub(crate) fn refusal(request: &Request<'_>) -> Error {
    let shown = request.with_shown_body(|body| {
        let is_short = body.as_bytes().len() <= SHOWN_BYTES_MAX;
        if is_short { body.to_string() } else { request.command.name.to_owned() }
    });
    not_authorized(request.db, &shown)
}

/// Writes to the audit log whether a request was permitted.
fn audit(server: &Server, connection: &Connection, request: &Request<'_>, result: i32) {
    let (Some(audit), Some(actor)) = (&server.options.audit, &connection.actor) else {
        return;
    };
    audit.write(actor, "authCheck", result, |param| {
        param.append("command", request.command.name);
        if request.concerned().is_some() {
            param.append("ns", request.shown_namespace().as_str());
        }
        request.with_shown_body(|body| {
            param.append("args", body);
        });
    });
}

fn log_refusal(error: &Error) {
    let attr = attributes(|out| {
        let mut out = out.begin_doc("error");
        out.append("code", error.code().number()).append("codeName", &*error.code().name());
        out.append("errmsg", error.message());
    });
    tracing::info!(target: "ACCESS", id = 20_436, attr, "Checking authorization failed");
}

/// Returns whether a client may create the first user: it is on this machine, and there is no user
/// yet.
fn may_be_first(server: &Server, connection: &Connection) -> Result<bool> {
    let is_local =
        connection.peer.remote.is_none_or(|remote| remote.ip().to_canonical().is_loopback());
    if !is_local
        || !server.parameters.flag("enableLocalhostAuthBypass")
        || server.users.had_one.load(Ordering::Acquire)
    {
        return Ok(false);
    }
    let has_one = Documents::new(&server.db, server.now_ms()).has_users()?;
    if has_one {
        server.users.had_one.store(true, Ordering::Release);
    }
    Ok(!has_one)
}

/// The access of a client while there is no user.
pub(crate) static FIRST_COMER: LazyLock<Access> = LazyLock::new(first_comer);

fn first_comer() -> Access {
    let privilege = |resource, names: &[&str]| {
        let mut actions = ActionSet::default();
        names.iter().for_each(|name| {
            actions.insert(name);
        });
        Privilege { resource, actions }
    };
    let cluster = ["replSetConfigure", "replSetGetStatus"];
    Access::stand_in(vec![
        privilege(Resource::collections("admin", ""), &["createUser", "grantRole"]),
        // The first user may be one of a certificate.
        privilege(Resource::collections("$external", ""), &["createUser"]),
        privilege(Resource::Cluster, &cluster),
    ])
}

/// Returns the collections that a field names, in this database or, if it is a document with the
/// name of one, in another. If a name occurs twice, both values count.
pub(crate) fn named(value: Value<'_>, db: &str) -> Vec<(String, String)> {
    match value {
        Value::String(collection) => vec![(db.to_owned(), collection.to_string())],
        Value::Document(doc) => {
            let mut dbs = texts(doc, "db");
            if dbs.is_empty() {
                dbs.push(db.to_owned());
            }
            // An empty name means this database.
            dbs.iter_mut().filter(|name| name.is_empty()).for_each(|name| db.clone_into(name));
            let collections = texts(doc, "coll");
            let of = |db: &String| {
                collections
                    .iter()
                    .map(|collection| (db.clone(), collection.clone()))
                    .collect::<Vec<_>>()
            };
            dbs.iter().flat_map(of).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the strings of every field of this name.
pub(crate) fn texts(doc: Doc<'_>, name: &str) -> Vec<String> {
    let fields = doc.iter().filter(|field| field.name == name);
    fields.filter_map(|field| Some(field.value.get().as_str()?.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collections(db: &str, collection: &str) -> Resource {
        Resource::collections(db, collection)
    }

    fn buckets(db: &str, collection: &str) -> Resource {
        Resource::Buckets { db: db.to_owned(), collection: collection.to_owned() }
    }

    #[track_caller]
    fn covers(resource: &Resource, covered: &[&str], not: &[&str]) {
        for (names, expected) in [(covered, true), (not, false)] {
            for name in names {
                let (db, collection) = name.split_once('.').unwrap();
                let target = Target::collection(db, collection);
                assert_eq!(resource.covers(&target), expected, "{resource:?} {name}");
            }
        }
    }

    #[test]
    fn resources_cover_collections_as_in_mongod() {
        let own = ["local.replset.minvalid", "local.system.replset", "d.system.js"];
        covers(&Resource::Any, &["d.c", "local.c", "d.system.users"], &[]);
        covers(&Resource::Cluster, &[], &["d.c"]);
        covers(
            &collections("", ""),
            &["d.c", "admin.c", "d.me.system.x"],
            &["local.c", "config.c"],
        );
        covers(&collections("", ""), &[], &own);
        covers(&collections("d", ""), &["d.c", "d.e"], &["e.c", "d.system.js", "d.system.profile"]);
        covers(&collections("local", ""), &["local.c", "local.oplog.rs"], &own);
        covers(&collections("", "c"), &["d.c", "local.c", "config.c"], &["d.e"]);
        covers(&collections("", "system.js"), &["d.system.js"], &["d.c"]);
        covers(&collections("d", "c"), &["d.c"], &["d.e", "e.c"]);
        covers(&buckets("d", "c"), &["d.system.buckets.c"], &["d.c", "d.system.buckets.e"]);
        covers(&buckets("", ""), &["d.system.buckets.c", "e.system.buckets.e"], &["d.c"]);
        covers(&buckets("", "c"), &["e.system.buckets.c"], &["e.system.buckets.e"]);
    }

    #[test]
    fn resources_cover_databases_and_the_cluster() {
        let database = |db: &str| Target::Database(db.to_owned());
        assert!(collections("d", "").covers(&database("d")));
        assert!(!collections("d", "c").covers(&database("d")));
        assert!(collections("", "").covers(&database("d")));
        assert!(!collections("", "").covers(&database("local")));
        assert!(!collections("", "c").covers(&database("d")));
        assert!(Resource::Any.covers(&database("local")));
        assert!(Resource::Cluster.covers(&Target::Cluster));
        assert!(Resource::Any.covers(&Target::Cluster));
        assert!(!collections("", "").covers(&Target::Cluster));
        assert!(collections("", "").covers(&Target::EveryDatabase));
        assert!(!collections("admin", "").covers(&Target::EveryDatabase));
    }

    #[test]
    fn the_first_comer_may_make_a_user_and_little_else() {
        let access = first_comer();
        let admin = Target::Database("admin".to_owned());
        assert!(access.may(&admin, "createUser") && access.may(&admin, "grantRole"));
        assert!(!access.may(&admin, "createRole"));
        assert!(!access.may(&Target::collection("admin", "system.users"), "find"));
        assert!(!access.may(&Target::Database("d".to_owned()), "createUser"));
        assert!(!access.may(&Target::Cluster, "shutdown"));
    }
}
