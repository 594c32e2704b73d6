//! The configuration of the replica set whose only member this server is.
//!
//! It exists from the start. `replSetInitiate` and `replSetReconfig` may change the member's name,
//! tags and priority, and the set's settings; then it is stored in `local.system.replset`, as in
//! mongod.

use std::net::{ToSocketAddrs, UdpSocket};
use std::sync::Arc;

use marula_bson::{Doc, DocBuf, DocWriter, ObjectId, Type, Value, doc, doc_fields};
use marula_db::{Db, Namespace};
use marula_error::{Error, Result, errors};
use marula_query::feature_version::FeatureVersion;
use parking_lot::{Mutex, RwLock};

use crate::context::ELECTION_ID;
use crate::fields::{self, Field, Types};

const COLLECTION: &str = "system.replset";

errors! {
    /// The configuration of a set is invalid.
    pub invalid(why: &str) = InvalidReplicaSetConfig, "{why}";
    other_name(doing: &str, name: &str, own: &str) = InvalidReplicaSetConfig, "Rejecting {doing} with a set name that differs from command line set name, {doing} set name: {name}, command line set name: {own}";
    not_newer(new: &str, old: &str, set: &str) = NewReplicaSetConfigurationIncompatible, "New replica set configuration version and term must be greater than old, but {new} is not greater than {old} for replica set {set}";
    initial_version(version: i64) = InvalidReplicaSetConfig, "Configuration used to initiate a replica set must  have version 1, but found {version}";
    member_count(count: usize) = InvalidReplicaSetConfig, "Replica set configuration contains {count} members, but must have at least 1 and no more than  50";
    no_such_node(version: &str, set: &str) = NodeNotFound, "No host described in new configuration with {version} for replica set {set} maps to this node";
    other_members() = NewReplicaSetConfigurationIncompatible, "this server is always the only member of its replica set";
    not_electable() = NewReplicaSetConfigurationIncompatible, "Replica set configuration must contain at least one non-arbiter member with priority > 0";
    no_votes() = NewReplicaSetConfigurationIncompatible, "Replica set configuration contains 0 voting members, but must be at least 1 and no more than 7";
    other_set_id(old: ObjectId, new: ObjectId) = NewReplicaSetConfigurationIncompatible, "New and old configurations differ in replica set ID; old was {old}, and new is {new}";
    modes_not_supported() = NewReplicaSetConfigurationIncompatible, "modes of write concern cannot be configured on this server";
    protocol(version: i64) = InvalidReplicaSetConfig, "BSON field 'protocolVersion' value must be >= 1, actual value '{version}'";
    version_range(version: i64) = InvalidReplicaSetConfig, "BSON field 'version' value must be > 0, actual value '{version}'";
}

const PLACE: &str = "ReplSetConfig";

const FIELDS: &[Field] = &[
    Field::required("_id", Types::STRING),
    Field::optional("version", Types::NUMBER),
    Field::optional("term", Types::NUMBER),
    Field::optional("configsvr", Types::BOOLEAN),
    Field::optional("protocolVersion", Types::NUMBER),
    Field::optional("writeConcernMajorityJournalDefault", Types::FLAG),
    Field::required("members", Types::ARRAY),
    Field::optional("settings", Types::DOCUMENT),
    Field::optional("repaired", Types::FLAG),
];

const MEMBER_FIELDS: &[Field] = &[
    Field::required("_id", Types::NUMBER),
    Field::required("host", Types::STRING),
    Field::optional("arbiterOnly", Types::FLAG),
    Field::optional("buildIndexes", Types::FLAG),
    Field::optional("hidden", Types::FLAG),
    Field::optional("priority", Types::NUMBER),
    Field::optional("tags", Types::DOCUMENT),
    Field::optional("secondaryDelaySecs", Types::NUMBER),
    Field::optional("votes", Types::NUMBER),
    Field::optional("horizons", Types::DOCUMENT),
    Field::optional("newlyAdded", Types::FLAG),
];

const SETTINGS_FIELDS: &[Field] = &[
    Field::optional("chainingAllowed", Types::FLAG),
    Field::optional("heartbeatIntervalMillis", Types::NUMBER),
    Field::optional("heartbeatTimeoutSecs", Types::NUMBER),
    Field::optional("electionTimeoutMillis", Types::NUMBER),
    Field::optional("catchUpTimeoutMillis", Types::NUMBER),
    Field::optional("catchUpTakeoverDelayMillis", Types::NUMBER),
    Field::optional("getLastErrorModes", Types::DOCUMENT),
    Field::optional("getLastErrorDefaults", Types::DOCUMENT),
    Field::optional("replicaSetId", Types::One(Type::ObjectId)),
];

/// The term of the single election.
const TERM: i64 = 1;
/// The term of a forced configuration.
const NO_TERM: i64 = -1;

/// A configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The version, which every change increases.
    pub version: i64,
    /// The term in which it was made; -1 if it was forced.
    pub term: i64,
    /// The name by which others reach this server, if one was given.
    host: Option<String>,
    member_id: i64,
    priority: f64,
    tags: DocBuf,
    settings: DocBuf,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            version: 1,
            term: TERM,
            host: None,
            member_id: 0,
            priority: 1.0,
            tags: DocBuf::new(),
            settings: DocBuf::new(),
        }
    }
}

/// The command that a new configuration comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    /// It is the first.
    Initiate,
    /// It replaces another.
    Reconfig,
    /// It replaces another, whatever the versions are.
    ForcedReconfig,
}

/// The replica set.
#[derive(Default)]
pub struct ReplicaSet {
    config: RwLock<Arc<Config>>,
    is_initiated: Mutex<bool>,
}

impl ReplicaSet {
    /// Reads the stored configuration. One that is invalid, because it was changed by hand, must
    /// not prevent a start.
    pub fn load(db: &Db, set: &str) -> Result<Self> {
        let Some(stored) = db.stored_document(&namespace()?, set)? else {
            return Ok(ReplicaSet::default());
        };
        let config = Config::parse(stored.as_doc()).unwrap_or_else(|error| {
            tracing::error!(%error, "local.system.replset holds no configuration of this set: it is as at first");
            Config::default()
        });
        Ok(ReplicaSet { config: RwLock::new(Arc::new(config)), is_initiated: Mutex::new(true) })
    }

    /// Returns the configuration.
    pub fn config(&self) -> Arc<Config> {
        self.config.read().clone()
    }

    /// Replaces the configuration and stores it; `None` if the set has been initiated before. `own`
    /// is the address that the server assumes for itself.
    ///
    /// Errors: a configuration that a set of one member cannot have, and a version that is not
    /// newer.
    pub fn change(
        &self,
        db: &Db,
        set: &str,
        own: &str,
        doing: Doing,
        new: Option<Doc<'_>>,
        now_ms: i64,
    ) -> Result<Option<()>> {
        let mut is_initiated = self.is_initiated.lock();
        if doing == Doing::Initiate && *is_initiated {
            return Ok(None);
        }
        let config = match new {
            Some(new) => self.checked(set, own, doing, new)?,
            None => Config::default(),
        };
        let document = config.to_doc(set, own);
        db.store_document(&namespace()?, document.as_doc(), now_ms)?;
        *self.config.write() = Arc::new(config);
        *is_initiated = true;
        Ok(Some(()))
    }

    fn checked(&self, set: &str, own: &str, doing: Doing, new: Doc<'_>) -> Result<Config> {
        let mut config = Config::parse(new)?;
        let name = new.get("_id").and_then(|name| name.as_str()).unwrap_or_default();
        if name != set {
            let doing = if doing == Doing::Initiate { "initiate" } else { "reconfig" };
            return Err(other_name(doing, &name.to_string(), set));
        }
        let old = self.config();
        match doing {
            Doing::Initiate if config.version != 1 => return Err(initial_version(config.version)),
            Doing::Initiate => config.term = TERM,
            Doing::Reconfig => {
                config.term = TERM;
                if (config.term, config.version) <= (old.term.max(TERM), old.version) {
                    return Err(not_newer(&config.shown_version(), &old.shown_version(), set));
                }
            }
            Doing::ForcedReconfig => {
                // Far enough ahead that a concurrent change elsewhere is not newer.
                config.version =
                    old.version.max(config.version) + 10_000 + rand::random_range(0..90_000);
                config.term = NO_TERM;
            }
        }
        if let Some(Value::ObjectId(id)) = config.settings.as_doc().get("replicaSetId")
            && doing != Doing::Initiate
            && id != set_id()
        {
            return Err(other_set_id(set_id(), id));
        }
        if config.priority <= 0.0 {
            return Err(not_electable());
        }
        let host = config.host.clone().unwrap_or_default();
        if host != own && Some(&host) != old.host.as_ref() && !is_this_machine(&host, own) {
            let error = no_such_node(&config.shown_version(), set);
            return Err(match doing {
                Doing::Initiate => invalid(error.message()),
                _ => error,
            });
        }
        Ok(config)
    }
}

fn namespace() -> Result<Namespace> {
    Namespace::new("local", COLLECTION)
}

fn set_id() -> ObjectId {
    ObjectId::from_bytes(ELECTION_ID.bytes())
}

/// Returns whether `host` names this machine and this server's port.
fn is_this_machine(host: &str, own: &str) -> bool {
    let port = |address: &str| address.rsplit_once(':').map(|(_, port)| port.to_owned());
    let with_port = if port(host).is_some() { host.to_owned() } else { format!("{host}:27017") };
    if port(&with_port) != port(own) {
        return false;
    }
    let addresses = with_port.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    // An address that can be bound is an address of this machine.
    addresses.is_ok_and(|all| all.iter().any(|address| UdpSocket::bind((address.ip(), 0)).is_ok()))
}

impl Config {
    /// Returns the address by which others reach this server; `own` is the one that it assumes for
    /// itself.
    pub fn host<'c>(&'c self, own: &'c str) -> &'c str {
        let port = |address: &str| address.rsplit_once(':').map(|(_, port)| port.to_owned());
        match &self.host {
            // A server that was restarted on another port has another address.
            Some(host) if port(host) == port(own) => host,
            _ => own,
        }
    }

    /// Returns the member's tags.
    pub fn tags(&self) -> Doc<'_> {
        self.tags.as_doc()
    }

    fn parse(doc: Doc<'_>) -> Result<Config> {
        let wrong = |error: Error| invalid(error.message());
        fields::check_doc_in(FeatureVersion::NEWEST, PLACE, FIELDS, doc).map_err(wrong)?;
        let whole = |doc: Doc<'_>, name: &str| {
            #[allow(clippy::cast_possible_truncation)]
            doc.get(name).and_then(|value| value.as_f64()).map(|number| number as i64)
        };
        if let Some(version) = whole(doc, "protocolVersion")
            && version < 1
        {
            return Err(protocol(version));
        }
        if let Some(version) = whole(doc, "version")
            && version < 1
        {
            return Err(version_range(version));
        }
        let members = doc.get("members").and_then(|members| members.as_array());
        let members: Vec<_> = members.unwrap_or(Doc::EMPTY).values().collect();
        let member = match members.as_slice() {
            [Value::Document(member)] => *member,
            [] => return Err(member_count(0)),
            _ => return Err(other_members()),
        };
        let place = "MemberConfig";
        fields::check_doc_in(FeatureVersion::NEWEST, place, MEMBER_FIELDS, member)
            .map_err(wrong)?;
        let settings = doc.get("settings").and_then(|settings| settings.as_doc());
        let settings = settings.unwrap_or(Doc::EMPTY);
        let place = "ReplSetConfigSettings";
        fields::check_doc_in(FeatureVersion::NEWEST, place, SETTINGS_FIELDS, settings)
            .map_err(wrong)?;
        let modes = settings.get("getLastErrorModes").and_then(|modes| modes.as_doc());
        if modes.is_some_and(|modes| !modes.is_empty()) {
            return Err(modes_not_supported());
        }
        let flag = |name: &str| member.get(name).is_some_and(|flag| flag.is_truthy());
        if flag("arbiterOnly") || flag("hidden") {
            return Err(not_electable());
        }
        if whole(member, "votes") == Some(0) {
            return Err(no_votes());
        }
        let host = member.get("host").and_then(|host| host.as_str()).map(|host| host.to_string());
        let tags = member.get("tags").and_then(|tags| tags.as_doc()).unwrap_or(Doc::EMPTY);
        Ok(Config {
            version: whole(doc, "version").unwrap_or(1),
            term: whole(doc, "term").unwrap_or(NO_TERM),
            host,
            member_id: whole(member, "_id").unwrap_or(0),
            priority: member.get("priority").and_then(|value| value.as_f64()).unwrap_or(1.0),
            tags: tags.to_buf(),
            settings: settings.to_buf(),
        })
    }

    fn shown_version(&self) -> String {
        format!("{{version: {}, term: {}}}", self.version, self.term)
    }

    /// Returns the configuration as `replSetGetConfig` shows it.
    pub fn to_doc(&self, set: &str, own: &str) -> DocBuf {
        DocBuf::build(|out| {
            out.append("_id", set).append("version", Value::whole(self.version));
            if self.term != NO_TERM {
                out.append("term", Value::whole(self.term));
            }
            let mut members = out.begin_array("members");
            let mut member = members.begin_doc();
            doc_fields!(member;
                "_id": Value::whole(self.member_id),
                "host": self.host(own),
                "arbiterOnly": false,
                "buildIndexes": true,
                "hidden": false,
                "priority": self.priority,
                "tags": self.tags.as_doc(),
                "secondaryDelaySecs": 0_i64,
                "votes": 1,
            );
            drop(member);
            drop(members);
            doc_fields!(out; "protocolVersion": 1_i64, "writeConcernMajorityJournalDefault": true);
            self.write_settings(&mut out.begin_doc("settings"));
        })
    }

    fn write_settings(&self, out: &mut DocWriter<'_>) {
        let defaults = doc! {
            "chainingAllowed": true,
            "heartbeatIntervalMillis": 2000,
            "heartbeatTimeoutSecs": 10,
            "electionTimeoutMillis": 10_000,
            "catchUpTimeoutMillis": -1,
            "catchUpTakeoverDelayMillis": 30_000,
            "getLastErrorModes": {},
            "getLastErrorDefaults": { "w": 1, "wtimeout": 0 },
            "replicaSetId": set_id(),
        };
        let given = self.settings.as_doc();
        for field in defaults.as_doc() {
            out.append_raw(field.name, given.get_raw(field.name).unwrap_or(field.value));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use marula_storage::memory::Memory;

    use super::*;

    const OWN: &str = "127.0.0.1:27017";

    fn config(version: i32) -> DocBuf {
        doc! { "_id": "rs0", "version": version, "members": [{ "_id": 0, "host": OWN }] }
    }

    #[test]
    fn versions_only_grow_and_outlive_a_restart() {
        let db = Db::open(Arc::new(Memory::new())).unwrap();
        let set = ReplicaSet::load(&db, "rs0").unwrap();
        let change = |set: &ReplicaSet, doing, new: &DocBuf| {
            set.change(&db, "rs0", OWN, doing, Some(new.as_doc()), 0)
        };
        assert!(change(&set, Doing::Initiate, &config(2)).is_err());
        assert!(change(&set, Doing::Initiate, &config(1)).unwrap().is_some());
        assert!(change(&set, Doing::Initiate, &config(1)).unwrap().is_none());
        assert!(change(&set, Doing::Reconfig, &config(1)).is_err());
        assert!(change(&set, Doing::Reconfig, &config(3)).unwrap().is_some());
        let set = ReplicaSet::load(&db, "rs0").unwrap();
        assert_eq!(set.config().version, 3);
        assert!(change(&set, Doing::ForcedReconfig, &config(1)).unwrap().is_some());
        assert!(set.config().version > 10_000);
    }

    #[test]
    fn only_this_server_is_a_member() {
        let db = Db::open(Arc::new(Memory::new())).unwrap();
        let set = ReplicaSet::default();
        for members in [
            doc! { "m": [] },
            doc! { "m": [{ "_id": 0, "host": "127.0.0.1:1" }] },
            doc! { "m": [{ "_id": 0, "host": OWN }, { "_id": 1, "host": OWN }] },
            doc! { "m": [{ "_id": 0, "host": OWN, "priority": 0 }] },
        ] {
            let new = DocBuf::build(|out| {
                out.append("_id", "rs0").append("version", 2);
                out.append("members", members.as_doc().get("m").unwrap());
            });
            let outcome = set.change(&db, "rs0", OWN, Doing::Reconfig, Some(new.as_doc()), 0);
            assert!(outcome.is_err(), "{members:?}");
        }
        assert!(is_this_machine("localhost:27017", OWN));
        assert!(!is_this_machine("localhost:27018", OWN));
    }
}
