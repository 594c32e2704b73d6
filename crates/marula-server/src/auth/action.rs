//! Actions: the operations that a privilege permits.
//!
//! [`ACTIONS`] has every action's name in the order in which privileges are shown; a set of actions
//! is a bit mask. Source: manual "Privilege Actions"; names and order recorded from mongod 6.0.

use marula_bson::ArrayWriter;

/// Every action, in the order in which a privilege lists them.
pub(crate) static ACTIONS: &[&str] = &[
    "addShard",
    "advanceClusterTime",
    "allCollectionStats",
    "anyAction",
    "appendOplogNote",
    "applicationMessage",
    "auditConfigure",
    "auditLogRotate",
    "authCheck",
    "authenticate",
    "authSchemaUpgrade",
    "bypassDocumentValidation",
    "bypassWriteBlockingMode",
    "changeCustomData",
    "changePassword",
    "changeOwnPassword",
    "changeOwnCustomData",
    "changeStream",
    "checkFreeMonitoringStatus",
    "cleanupOrphaned",
    "clearJumboFlag",
    "closeAllDatabases",
    "collMod",
    "collStats",
    "compact",
    "compactStructuredEncryptionData",
    "connPoolStats",
    "connPoolSync",
    "convertToCapped",
    "cpuProfiler",
    "createCollection",
    "createDatabase",
    "createIndex",
    "createRole",
    "createSearchIndexes",
    "createUser",
    "dbCheck",
    "dbHash",
    "dbStats",
    "dropAllRolesFromDatabase",
    "dropAllUsersFromDatabase",
    "dropCollection",
    "dropConnections",
    "dropDatabase",
    "dropIndex",
    "dropSearchIndex",
    "dropRole",
    "dropUser",
    "emptycapped",
    "enableProfiler",
    "enableSharding",
    "exportCollection",
    "find",
    "flushRouterConfig",
    "forceUUID",
    "fsync",
    "fsyncUnlock",
    "getClusterParameter",
    "getDatabaseVersion",
    "getDefaultRWConcern",
    "getCmdLineOpts",
    "getLog",
    "getParameter",
    "getShardMap",
    "getShardVersion",
    "grantRole",
    "grantPrivilegesToRole",
    "grantRolesToRole",
    "grantRolesToUser",
    "hostInfo",
    "impersonate",
    "importCollection",
    "indexStats",
    "inprog",
    "insert",
    "internal",
    "invalidateUserCache",
    "killAnyCursor",
    "killAnySession",
    "killCursors",
    "killop",
    "listCachedAndActiveUsers",
    "listCollections",
    "listCursors",
    "listDatabases",
    "listIndexes",
    "listSearchIndexes",
    "listSessions",
    "listShards",
    "logRotate",
    "moveChunk",
    "netstat",
    "oidReset",
    "operationMetrics",
    "planCacheIndexFilter",
    "planCacheRead",
    "planCacheWrite",
    "queryStatsRead",
    "queryStatsReadTransformed",
    "refineCollectionShardKey",
    "reIndex",
    "remove",
    "removeShard",
    "renameCollection",
    "renameCollectionSameDB",
    "repairDatabase",
    "replSetConfigure",
    "replSetGetConfig",
    "replSetGetStatus",
    "replSetHeartbeat",
    "replSetReconfig",
    "replSetResizeOplog",
    "replSetStateChange",
    "reshardCollection",
    "resync",
    "revokeRole",
    "revokePrivilegesFromRole",
    "revokeRolesFromRole",
    "revokeRolesFromUser",
    "rotateCertificates",
    "runAsLessPrivilegedUser",
    "runTenantMigration",
    "serverStatus",
    "setAuthenticationRestriction",
    "setClusterParameter",
    "setDefaultRWConcern",
    "setFeatureCompatibilityVersion",
    "setFreeMonitoring",
    "setParameter",
    "setUserWriteBlockMode",
    "shardCollection",
    "shardedDataDistribution",
    "shardingState",
    "shutdown",
    "splitChunk",
    "splitVector",
    "storageDetails",
    "top",
    "touch",
    "trafficRecord",
    "unlock",
    "useTenant",
    "useUUID",
    "update",
    "updateRole",
    "updateSearchIndex",
    "updateUser",
    "validate",
    "viewRole",
    "viewUser",
    "applyOps",
];

/// Includes every action; a set that contains it is shown as it alone.
const ANY_ACTION: &str = "anyAction";

const WORDS: usize = 3;

/// A set of actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ActionSet([u64; WORDS]);

/// Returns the index of an action in [`ACTIONS`].
fn place(name: &str) -> Option<usize> {
    ACTIONS.iter().position(|&action| action == name)
}

impl ActionSet {
    /// Adds the action of this name; returns whether there is one.
    pub(crate) fn insert(&mut self, name: &str) -> bool {
        if name == ANY_ACTION {
            ACTIONS.iter().enumerate().for_each(|(at, _)| self.0[at / 64] |= 1 << (at % 64));
            return true;
        }
        let Some(at) = place(name) else { return false };
        self.0[at / 64] |= 1 << (at % 64);
        true
    }

    /// Returns whether the action of this name is in the set.
    pub(crate) fn contains(&self, name: &str) -> bool {
        place(name).is_some_and(|at| self.0[at / 64] & (1 << (at % 64)) != 0)
    }

    /// Returns whether the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// Adds all actions of `other`.
    pub(crate) fn add(&mut self, other: &ActionSet) {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
    }

    /// Removes all actions of `other`. If one of all actions is removed, `anyAction` is removed
    /// too.
    pub(crate) fn remove(&mut self, other: &ActionSet) {
        for (word, less) in self.0.iter_mut().zip(other.0) {
            *word &= !less;
        }
        if !other.is_empty()
            && let Some(at) = place(ANY_ACTION)
        {
            self.0[at / 64] &= !(1 << (at % 64));
        }
    }

    /// Appends the names in order.
    pub(crate) fn write(&self, out: &mut ArrayWriter<'_>) {
        if self.contains(ANY_ACTION) {
            out.push(ANY_ACTION);
            return;
        }
        for name in ACTIONS.iter().filter(|name| self.contains(name)) {
            out.push(*name);
        }
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::DocBuf;

    use super::*;

    fn set(names: &[&str]) -> ActionSet {
        let mut set = ActionSet::default();
        for name in names {
            assert!(set.insert(name), "{name}");
        }
        set
    }

    fn names(set: &ActionSet) -> Vec<String> {
        let doc = DocBuf::build(|out| set.write(&mut out.begin_array("a")));
        let array = doc.as_doc().get("a").and_then(|array| array.as_array()).unwrap();
        array.values().map(|name| name.as_str().unwrap().to_string()).collect()
    }

    #[test]
    fn a_set_lists_its_actions_in_the_table_s_order() {
        assert!(ACTIONS.len() <= WORDS * 64);
        assert_eq!(names(&set(&["update", "find", "insert"])), ["find", "insert", "update"]);
        assert!(!ActionSet::default().insert("nope"));
        assert!(ActionSet::default().is_empty());
    }

    #[test]
    fn any_action_is_every_action_until_one_is_taken_away() {
        let mut all = set(&["find", "anyAction"]);
        assert_eq!(names(&all), ["anyAction"]);
        assert!(all.contains("shutdown"));
        all.remove(&set(&["find"]));
        assert_eq!(names(&all).len(), ACTIONS.len() - 2);
        assert!(!all.contains("find"));
        all.remove(&set(&["anyAction"]));
        assert!(all.is_empty());
        let mut some = set(&["find", "insert"]);
        some.remove(&set(&["find"]));
        assert_eq!(names(&some), ["insert"]);
        some.remove(&set(&["insert"]));
        assert!(some.is_empty());
    }
}
