//! The built-in roles: a row each.
//!
//! A row has the rows that a role includes, and its further privileges. `Own` roles exist in every
//! database, with privileges on that database; the others exist only in `admin`.
//!
//! Source: manual "Built-In Roles"; privileges recorded from mongod 6.0.

use marula_db::namespace::is_database_name;

use super::action::ActionSet;
use super::name::Name;
use super::privilege::{self, Privilege};
use super::resource::Resource;

/// The databases in which a built-in role exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Home {
    /// In every database.
    EveryDatabase,
    /// In `admin`.
    Admin,
}

/// The resource of a row's privilege.
#[derive(Clone, Copy, Debug)]
enum On {
    /// This collection of the role's own database; empty means all.
    Own(&'static str),
    /// This collection of every database; empty means all.
    Every(&'static str),
    /// A collection of a database.
    In(&'static str, &'static str),
    /// The buckets of all time-series collections.
    Buckets,
    /// The cluster.
    Cluster,
    /// Everything.
    Anything,
}

/// A built-in role.
struct BuiltinRole {
    name: &'static str,
    home: Home,
    includes: &'static [&'static str],
    adds: &'static [(On, &'static [&'static str])],
}

const READ: &[&str] = &[
    "changeStream",
    "collStats",
    "dbHash",
    "dbStats",
    "find",
    "killCursors",
    "listCollections",
    "listIndexes",
    "listSearchIndexes",
    "planCacheRead",
];
const WRITE: &[&str] = &[
    "compactStructuredEncryptionData",
    "convertToCapped",
    "createCollection",
    "createIndex",
    "createSearchIndexes",
    "dropCollection",
    "dropIndex",
    "dropSearchIndex",
    "insert",
    "remove",
    "renameCollectionSameDB",
    "update",
    "updateSearchIndex",
];
const ADMINISTER: &[&str] = &[
    "bypassDocumentValidation",
    "collMod",
    "collStats",
    "compact",
    "convertToCapped",
    "createCollection",
    "createIndex",
    "createSearchIndexes",
    "dbStats",
    "dropCollection",
    "dropDatabase",
    "dropIndex",
    "dropSearchIndex",
    "enableProfiler",
    "listCollections",
    "listIndexes",
    "listSearchIndexes",
    "planCacheIndexFilter",
    "planCacheRead",
    "planCacheWrite",
    "reIndex",
    "renameCollectionSameDB",
    "storageDetails",
    "updateSearchIndex",
    "validate",
];
const ADMINISTER_PROFILE: &[&str] = &[
    "changeStream",
    "collStats",
    "convertToCapped",
    "createCollection",
    "dbHash",
    "dbStats",
    "dropCollection",
    "find",
    "killCursors",
    "listCollections",
    "listIndexes",
    "listSearchIndexes",
    "planCacheRead",
];
const ADMINISTER_USERS: &[&str] = &[
    "changeCustomData",
    "changePassword",
    "createRole",
    "createUser",
    "dropRole",
    "dropUser",
    "grantRole",
    "revokeRole",
    "setAuthenticationRestriction",
    "viewRole",
    "viewUser",
];
const INDEX: &[&str] = &["createIndex", "createSearchIndexes", "dropIndex", "dropSearchIndex"];
const MONITOR: &[&str] =
    &["collStats", "dbStats", "getDatabaseVersion", "getShardVersion", "indexStats"];
const SHARD: &[&str] = &[
    "clearJumboFlag",
    "enableSharding",
    "moveChunk",
    "refineCollectionShardKey",
    "reshardCollection",
    "splitChunk",
    "splitVector",
];
const FIND: &[&str] = &["find"];
const MODIFY: &[&str] = &["insert", "remove", "update"];
const RESTORE: &[&str] = &[
    "bypassDocumentValidation",
    "collMod",
    "convertToCapped",
    "createCollection",
    "createIndex",
    "createSearchIndexes",
    "dropCollection",
    "insert",
    "updateSearchIndex",
];

use Home::{Admin, EveryDatabase};
use On::{Anything, Buckets, Cluster, Every, In, Own};

/// Every built-in role, by name.
static ROWS: &[BuiltinRole] = &[
    BuiltinRole {
        name: "__queryableBackup",
        home: Admin,
        includes: &[],
        adds: &[
            (Anything, &["collStats", "listCollections", "listIndexes", "listSearchIndexes"]),
            (Cluster, &["getParameter", "listDatabases", "useUUID"]),
            (Every(""), FIND),
            (Every("system.js"), FIND),
            (Every("system.profile"), FIND),
            (Every("system.users"), FIND),
            (Buckets, FIND),
            (In("admin", "system.backup_users"), FIND),
            (In("admin", "system.roles"), FIND),
            (In("admin", "system.version"), FIND),
            (In("config", ""), FIND),
            (In("config", "settings"), FIND),
            (In("local", ""), FIND),
            (In("local", "replset.election"), FIND),
            (In("local", "replset.minvalid"), FIND),
        ],
    },
    BuiltinRole {
        name: "__system",
        home: Admin,
        includes: &[],
        adds: &[(Anything, &["anyAction"])],
    },
    BuiltinRole {
        name: "backup",
        home: Admin,
        includes: &["__queryableBackup"],
        adds: &[
            (Cluster, &["appendOplogNote", "serverStatus", "setUserWriteBlockMode"]),
            (In("config", "settings"), &["insert", "update"]),
        ],
    },
    BuiltinRole {
        name: "clusterAdmin",
        home: Admin,
        includes: &["clusterMonitor", "hostManager", "clusterManager"],
        adds: &[
            (Anything, &["exportCollection", "importCollection"]),
            (Every(""), &["dropDatabase"]),
        ],
    },
    BuiltinRole {
        name: "clusterManager",
        home: Admin,
        includes: &[],
        adds: &[
            (Anything, &["dbCheck"]),
            (
                Cluster,
                &[
                    "addShard",
                    "appendOplogNote",
                    "applicationMessage",
                    "cleanupOrphaned",
                    "flushRouterConfig",
                    "getClusterParameter",
                    "getDefaultRWConcern",
                    "listSessions",
                    "listShards",
                    "removeShard",
                    "replSetConfigure",
                    "replSetGetConfig",
                    "replSetGetStatus",
                    "replSetStateChange",
                    "resync",
                    "runTenantMigration",
                    "setClusterParameter",
                    "setDefaultRWConcern",
                    "setFeatureCompatibilityVersion",
                ],
            ),
            (Every(""), SHARD),
            (Buckets, SHARD),
            (In("config", ""), READ),
            (In("config", ""), MODIFY),
            (In("config", ""), SHARD),
            (In("config", "system.js"), READ),
            (In("local", ""), MODIFY),
            (In("local", ""), SHARD),
            (In("local", "replset.election"), MODIFY),
            (In("local", "replset.minvalid"), MODIFY),
            (In("local", "system.healthlog"), READ),
            (In("local", "system.replset"), READ),
        ],
    },
    BuiltinRole {
        name: "clusterMonitor",
        home: Admin,
        includes: &[],
        adds: &[
            (
                Cluster,
                &[
                    "allCollectionStats",
                    "connPoolStats",
                    "getCmdLineOpts",
                    "getDefaultRWConcern",
                    "getLog",
                    "getParameter",
                    "getShardMap",
                    "hostInfo",
                    "inprog",
                    "listDatabases",
                    "listSessions",
                    "listShards",
                    "netstat",
                    "operationMetrics",
                    "queryStatsRead",
                    "queryStatsReadTransformed",
                    "replSetGetConfig",
                    "replSetGetStatus",
                    "serverStatus",
                    "shardedDataDistribution",
                    "shardingState",
                    "top",
                    "useUUID",
                ],
            ),
            (Every(""), MONITOR),
            (Every("system.profile"), FIND),
            (In("config", ""), READ),
            (In("config", ""), MONITOR),
            (In("config", "system.js"), READ),
            (In("config", "system.sessions"), MONITOR),
            (In("local", ""), READ),
            (In("local", ""), MONITOR),
            (In("local", "replset.election"), FIND),
            (In("local", "replset.minvalid"), FIND),
            (In("local", "system.js"), READ),
            (In("local", "system.replset"), FIND),
        ],
    },
    BuiltinRole {
        name: "dbAdmin",
        home: EveryDatabase,
        includes: &[],
        adds: &[(Own(""), ADMINISTER), (Own("system.profile"), ADMINISTER_PROFILE)],
    },
    BuiltinRole {
        name: "dbAdminAnyDatabase",
        home: Admin,
        includes: &[],
        adds: &[
            (Every(""), ADMINISTER),
            (Every("system.profile"), ADMINISTER_PROFILE),
            (Buckets, ADMINISTER),
            (Cluster, &["applyOps", "listDatabases"]),
        ],
    },
    BuiltinRole {
        name: "dbOwner",
        home: EveryDatabase,
        includes: &["readWrite", "dbAdmin", "userAdmin"],
        adds: &[],
    },
    BuiltinRole { name: "directShardOperations", home: Admin, includes: &[], adds: &[] },
    BuiltinRole {
        name: "enableSharding",
        home: EveryDatabase,
        includes: &[],
        adds: &[(Every(""), &["enableSharding", "refineCollectionShardKey", "reshardCollection"])],
    },
    BuiltinRole {
        name: "hostManager",
        home: Admin,
        includes: &[],
        adds: &[
            (
                Cluster,
                &[
                    "applicationMessage",
                    "auditConfigure",
                    "connPoolSync",
                    "dropConnections",
                    "flushRouterConfig",
                    "fsync",
                    "invalidateUserCache",
                    "killAnyCursor",
                    "killAnySession",
                    "killop",
                    "logRotate",
                    "oidReset",
                    "replSetResizeOplog",
                    "resync",
                    "rotateCertificates",
                    "setParameter",
                    "shutdown",
                    "touch",
                    "trafficRecord",
                    "unlock",
                ],
            ),
            (Every(""), &["killCursors"]),
        ],
    },
    BuiltinRole {
        name: "read",
        home: EveryDatabase,
        includes: &[],
        adds: &[(Own(""), READ), (Own("system.js"), READ)],
    },
    BuiltinRole {
        name: "readAnyDatabase",
        home: Admin,
        includes: &[],
        adds: &[
            (Every(""), READ),
            (Every("system.js"), READ),
            (Buckets, READ),
            (Cluster, &["listDatabases"]),
        ],
    },
    BuiltinRole {
        name: "readWrite",
        home: EveryDatabase,
        includes: &["read"],
        adds: &[(Own(""), WRITE), (Own("system.js"), WRITE)],
    },
    BuiltinRole {
        name: "readWriteAnyDatabase",
        home: Admin,
        includes: &["readAnyDatabase"],
        adds: &[(Every(""), WRITE), (Every("system.js"), WRITE), (Buckets, WRITE)],
    },
    BuiltinRole {
        name: "restore",
        home: Admin,
        includes: &[],
        adds: &[
            (Anything, &["listCollections"]),
            (
                Cluster,
                &[
                    "applyOps",
                    "bypassWriteBlockingMode",
                    "forceUUID",
                    "getParameter",
                    "setUserWriteBlockMode",
                    "useUUID",
                ],
            ),
            (Every(""), RESTORE),
            (Every(""), ADMINISTER_USERS),
            (Every("system.js"), RESTORE),
            (Every("system.users"), RESTORE),
            (Every("system.users"), &["find", "remove", "update"]),
            (Every("system.views"), &["dropCollection"]),
            (Buckets, RESTORE),
            (In("admin", "system.backup_users"), RESTORE),
            (In("admin", "system.roles"), &["createIndex", "createSearchIndexes"]),
            (In("admin", "system.version"), RESTORE),
            (In("admin", "system.version"), FIND),
            (In("admin", "temproles"), FIND),
            (In("admin", "tempusers"), FIND),
            (In("config", ""), RESTORE),
            (In("local", ""), RESTORE),
            (In("local", "replset.election"), RESTORE),
            (In("local", "replset.minvalid"), RESTORE),
            (In("local", "system.replset"), RESTORE),
        ],
    },
    BuiltinRole {
        name: "root",
        home: Admin,
        includes: &[
            "readWriteAnyDatabase",
            "dbAdminAnyDatabase",
            "userAdminAnyDatabase",
            "clusterAdmin",
            "restore",
            "backup",
        ],
        adds: &[
            (Anything, &["validate"]),
            (Cluster, &["useTenant"]),
            (In("config", "system.preimages"), &["find", "remove"]),
        ],
    },
    BuiltinRole {
        name: "userAdmin",
        home: EveryDatabase,
        includes: &[],
        adds: &[(Own(""), ADMINISTER_USERS)],
    },
    BuiltinRole {
        name: "userAdminAnyDatabase",
        home: Admin,
        includes: &[],
        adds: &[
            (Every(""), ADMINISTER_USERS),
            (Every(""), &["listCachedAndActiveUsers"]),
            (Every("system.users"), READ),
            (Cluster, &["authSchemaUpgrade", "invalidateUserCache", "listDatabases", "viewUser"]),
            (In("admin", "system.backup_users"), READ),
            (In("admin", "system.roles"), READ),
            (In("admin", "system.roles"), INDEX),
            (In("admin", "system.users"), READ),
            (In("admin", "system.users"), INDEX),
            (In("admin", "system.version"), READ),
            (In("config", ""), ADMINISTER_USERS),
            (In("local", ""), ADMINISTER_USERS),
        ],
    },
];

impl On {
    fn resource(self, own: &str) -> Resource {
        match self {
            On::Own(collection) => Resource::collections(own, collection),
            On::Every(collection) => Resource::collections("", collection),
            On::In(db, collection) => Resource::collections(db, collection),
            On::Buckets => Resource::Buckets { db: String::new(), collection: String::new() },
            On::Cluster => Resource::Cluster,
            On::Anything => Resource::Any,
        }
    }
}

fn find(name: &Name) -> Option<&'static BuiltinRole> {
    let row = ROWS.iter().find(|row| row.name == name.name)?;
    is_in(row, &name.db).then_some(row)
}

fn is_in(row: &BuiltinRole, db: &str) -> bool {
    db == "admin" || row.home == Home::EveryDatabase && is_database_name(db)
}

/// Returns whether a role is built in.
pub(crate) fn is_builtin(name: &Name) -> bool {
    find(name).is_some()
}

/// Returns the privileges of a built-in role; `None` for another role.
pub(crate) fn privileges(name: &Name) -> Option<Vec<Privilege>> {
    let mut list = Vec::new();
    gather(find(name)?, &name.db, &mut list);
    Some(list)
}

fn gather(row: &BuiltinRole, db: &str, list: &mut Vec<Privilege>) {
    for included in ROWS.iter().filter(|other| row.includes.contains(&other.name)) {
        gather(included, db, list);
    }
    for (on, names) in row.adds {
        let mut actions = ActionSet::default();
        names.iter().for_each(|name| {
            actions.insert(name);
        });
        privilege::add(list, Privilege { resource: on.resource(db), actions });
    }
}

/// Returns the built-in roles of a database.
pub(crate) fn of_database(db: &str) -> Vec<Name> {
    ROWS.iter().filter(|row| is_in(row, db)).map(|row| Name::new(row.name, db)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::action::ACTIONS;

    #[test]
    fn every_row_names_actions_and_roles_that_exist() {
        for row in ROWS {
            for (_, names) in row.adds {
                for name in *names {
                    assert!(ACTIONS.contains(name), "{}: {name}", row.name);
                }
            }
            for included in row.includes {
                assert!(ROWS.iter().any(|row| row.name == *included), "{}: {included}", row.name);
            }
        }
        assert!(ROWS.is_sorted_by_key(|row| row.name));
    }

    #[test]
    fn roles_are_where_they_belong() {
        assert!(is_builtin(&Name::new("read", "d")));
        assert!(is_builtin(&Name::new("read", "admin")));
        assert!(is_builtin(&Name::new("root", "admin")));
        assert!(!is_builtin(&Name::new("root", "d")));
        assert!(!is_builtin(&Name::new("read", "$external")));
        assert!(!is_builtin(&Name::new("read", "")));
        assert!(!is_builtin(&Name::new("mine", "admin")));
        assert_eq!(of_database("d").len(), 6);
        assert_eq!(of_database("admin").len(), ROWS.len());
    }

    #[test]
    fn a_role_about_its_database_names_it() {
        let list = privileges(&Name::new("dbOwner", "d")).unwrap();
        assert_eq!(list.len(), 3);
        assert!(list.iter().all(|privilege| privilege.resource.is_of_database("d")));
        let own = list.iter().find(|own| own.resource == Resource::collections("d", "")).unwrap();
        assert!(own.actions.contains("find") && own.actions.contains("createUser"));
        assert!(!own.actions.contains("shutdown"));
    }
}
