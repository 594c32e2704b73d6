#!/usr/bin/env python3
"""Every field of every command with a value of every type, asked of Marula and of a mongod: is the code the same?

    sweep.py --mongod PROGRAM            starts both servers, as members of a replica set of one
    sweep.py --mongod PROGRAM --standalone
    sweep.py ... --commands find,count   these alone
    sweep.py ... --messages              compares the text of errors, too
    sweep.py --mongod PROGRAM --record   writes what mongod answers to a sample of the cases to RECORDED
    sweep.py                             compares Marula with that: no mongod is needed, and it takes seconds

COMMANDS holds a form of each command that succeeds, and the fields that it knows. One field at a time is then given
each of VALUES; the first field (the collection's name) is given NAMES as well, in DATABASES. The differences are printed by
command and field: the codes of Marula and of mongod, and the values that lead there. `term` is left out: by a greater
one a mongod learns that it is no longer the primary.

ACCEPTED are the differences that stay, with their reasons; they are counted, and not shown.
"""
import argparse
import collections
import fnmatch
import json
import os
import random
import shlex
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]
import probe  # noqa: E402
import server  # noqa: E402

RECORDED = os.path.join(HERE, "sweep-6.0.json")
# The number of values in the sample of each field of each command, and of each list of names.
SAMPLED = 2

VALUES = {
    "null": None, "undefined": {"$undefined": True}, "true": True, "false": False,
    "int 1": 1, "int 0": 0, "int -1": -1, "int 1000": 1000, "long 1": {"$numberLong": "1"}, "double 1.0": 1.0,
    "double 1.5": 1.5, "double -0.5": -0.5, "decimal 1": {"$numberDecimal": "1"},
    "decimal 1.5": {"$numberDecimal": "1.5"}, "decimal NaN": {"$numberDecimal": "NaN"},
    "long 2^31": {"$numberLong": "2147483648"}, "long 2^62": {"$numberLong": "4611686018427387904"},
    "long min": {"$numberLong": "-9223372036854775808"}, "double 1e300": 1e300, "NaN": {"$numberDouble": "NaN"},
    "string empty": "", "string": "x", "document empty": {}, "document": {"a": 1}, "operator": {"$x": 1},
    "array empty": [], "array int": [1], "array string": ["a"], "array document": [{"a": 1}], "array null": [None],
    "objectId": {"$oid": "5f5f5f5f5f5f5f5f5f5f5f5f"}, "binary": {"$binary": {"base64": "AAAA", "subType": "00"}},
    "uuid": {"$uuid": "00112233-4455-6677-8899-aabbccddeeff"},
    "uuid short": {"$binary": {"base64": "AAAA", "subType": "04"}},
    "date": {"$date": {"$numberLong": "0"}}, "timestamp": {"$timestamp": {"t": 1, "i": 1}},
    "regex": {"$regularExpression": {"pattern": "a", "options": ""}}, "code": {"$code": "1"},
    "code with scope": {"$code": "1", "$scope": {}}, "symbol": {"$symbol": "x"},
    "dbPointer": {"$dbPointer": {"$ref": "a", "$id": {"$oid": "5f5f5f5f5f5f5f5f5f5f5f5f"}}},
    "minKey": {"$minKey": 1}, "maxKey": {"$maxKey": 1},
}

NAMES = ["", ".", "..", ".a", "a.", "a..b", "$a", "a$b", "a.$b", "$cmd", "$cmd.aggregate", "$cmd.x", "a\0b", "\0", " ",
         "a b", "é", "system", "system.", "system.x", "system.x.y", "system.views", "system.js", "system.profile",
         "system.indexes", "system.namespaces", "system.users", "system.roles", "system.version", "system.keys",
         "system.sessions", "system.buckets", "system.buckets.", "system.buckets.a", "system.indexBuilds",
         "system.backup_users", "system.new_users", "system.healthlog", "system.preimages", "system.rollback.id",
         "system.replset", "oplog.rs", "oplog.$main", "startup_log", "transactions", "image_collection", "tmp.a", "a/b",
         "n" * 120, "n" * 240, "n" * 260, "n" * 5000, "x.system.y", "enxcol_.a.esc"]

# The commands that are given NAMES in other databases than their own.
NAMED = ["find", "aggregate", "count", "distinct", "insert", "update", "delete", "findAndModify", "create", "drop",
         "createIndexes", "dropIndexes", "listIndexes", "collMod", "collStats", "validate", "convertToCapped"]
DATABASES = ["sweep", "admin", "config", "local"]
# Namespaces whose change would break the servers: these are not dropped or written.
KEPT = {("local", "oplog.rs"), ("local", "system.replset"), ("admin", "system.version"), ("admin", "system.users"),
        ("admin", "system.keys"), ("config", "transactions"), ("config", "image_collection")}

# (commands, fields, values or None for all, why): patterns as of file names. docs/differences.md
# says the same in words.
OF_THE_SERVER = [repr(name) for name in (
    "system.indexBuilds", "system.preimages", "system.views", "system.rollback.id", "startup_log", "system.profile",
    "system.buckets.a", "system.sessions", "oplog.$main")]
ACCEPTED = [
    ("*", "* in admin", OF_THE_SERVER, "collections of its own that mongod keeps there"),
    ("*", "* in config", OF_THE_SERVER, "collections of its own that mongod keeps there"),
    ("*", "* in local", OF_THE_SERVER, "collections of its own that mongod keeps there"),
    ("createRole", "authenticationRestrictions.0", ["document empty"], "restrictions of roles are checked as those of users"),
    ("*", "writeConcern.wtimeout", ["long min"], "no wait, and none that is too short for it"),
]

GENERIC = ["lsid", "txnNumber", "autocommit", "startTransaction", "stmtId", "txnRetryCounter", "$db", "$readPreference",
           "$clusterTime", "comment", "maxTimeMS", "maxTimeMSOpOnly", "readConcern", "writeConcern", "apiVersion",
           "apiStrict", "apiDeprecationErrors", "databaseVersion", "shardVersion", "coordinator", "$client",
           "$configServerState", "allowImplicitCollectionCreation", "clientOperationKey", "$audit", "unknown",
           "readConcern.level", "readConcern.afterClusterTime", "readConcern.atClusterTime", "readConcern.provenance",
           "readConcern.afterOpTime", "readConcern.unknown", "writeConcern.w", "writeConcern.w.x", "writeConcern.j",
           "writeConcern.fsync", "writeConcern.wtimeout", "writeConcern.provenance", "writeConcern.getLastError",
           "writeConcern.wElectionId", "writeConcern.unknown", "$readPreference.mode", "$readPreference.tags",
           "$readPreference.maxStalenessSeconds", "$readPreference.hedge", "lsid.id", "lsid.uid",
           "collectionUUID", "encryptionInformation", "runtimeConstants", "bypassDocumentValidation",
           "bypassEmptyTsReplacement", "rawData", "let", "collation", "hint", "isTimeseriesNamespace"]
# The commands that are given all of GENERIC; the others are given those that their own code may
# look at.
GENERIC_FOR = ["ping", "find", "insert", "aggregate", "createUser", "explain", "listCollections", "count"]
GENERIC_FEW = ["comment", "maxTimeMS", "readConcern", "readConcern.level", "writeConcern", "writeConcern.w", "unknown",
               "collectionUUID", "let", "collation", "hint", "bypassDocumentValidation", "bypassEmptyTsReplacement",
               "runtimeConstants", "encryptionInformation"]


def one(text, *fields, db="sweep", before=()):
    return json.loads(text), fields, db, before


COMMANDS = {
    "abortTransaction": one('{"abortTransaction": 1}', "recoveryToken", db="admin"),
    "aggregate": one('{"aggregate": "c", "pipeline": [], "cursor": {}}', "pipeline", "cursor", "cursor.batchSize",
                     "cursor.x", "explain", "allowDiskUse", "needsMerge", "fromMongos", "requestReshardingResumeToken",
                     "exchange", "isMapReduceCommand", "allowPartialResults"),
    "applyOps": one('{"applyOps": []}', "preCondition", "allowAtomic", "alwaysUpsert", db="admin"),
    "authenticate": one('{"authenticate": 1, "mechanism": "MONGODB-X509"}', "mechanism", "user", "db"),
    "buildInfo": one('{"buildInfo": 1}'),
    "cloneCollectionAsCapped": one('{"cloneCollectionAsCapped": "c", "toCollection": "k", "size": 1000}', "toCollection",
                                   "size", "temp", before=[{"drop": "k"}]),
    "collMod": one('{"collMod": "c"}', "index", "index.name", "index.keyPattern", "index.expireAfterSeconds",
                   "index.hidden", "index.unique", "index.prepareUnique", "validator", "validationLevel",
                   "validationAction", "viewOn", "pipeline", "changeStreamPreAndPostImages",
                   "changeStreamPreAndPostImages.enabled", "expireAfterSeconds", "cappedSize", "cappedMax", "timeseries",
                   "timeseries.granularity", "dryRun", "recordPreImages", "noPadding", "usePowerOf2Sizes"),
    "collStats": one('{"collStats": "c"}', "scale", "waitForLock", "numericOnly"),
    "commitTransaction": one('{"commitTransaction": 1}', "recoveryToken", db="admin"),
    "compact": one('{"compact": "c"}', "force", "validate", "paddingFactor"),
    "connPoolStats": one('{"connPoolStats": 1}'),
    "connectionStatus": one('{"connectionStatus": 1}', "showPrivileges"),
    "convertToCapped": one('{"convertToCapped": "c", "size": 1000}', "size"),
    "count": one('{"count": "c"}', "query", "limit", "skip", "fields", "queryOptions", "mirrored", "batchSize", "x"),
    "create": one('{"create": "made"}', "capped", "autoIndexId", "idIndex", "idIndex.key", "idIndex.name", "idIndex.v",
                  "idIndex.x", "size", "max", "storageEngine", "validator", "validationLevel", "validationAction",
                  "indexOptionDefaults", "indexOptionDefaults.storageEngine", "viewOn", "pipeline",
                  "changeStreamPreAndPostImages", "timeseries", "timeseries.timeField", "timeseries.metaField",
                  "timeseries.granularity", "clusteredIndex", "clusteredIndex.key", "clusteredIndex.unique",
                  "expireAfterSeconds", "encryptedFields", "temp", "flags", "recordPreImages", "$nExtents",
                  before=[{"drop": "made"}]),
    "createIndexes": one('{"createIndexes": "c", "indexes": [{"key": {"q": 1}, "name": "q"}]}', "indexes", "indexes.0",
                         "indexes.0.key", "indexes.0.key.q", "indexes.0.name", "indexes.0.unique", "indexes.0.sparse",
                         "indexes.0.background", "indexes.0.expireAfterSeconds", "indexes.0.partialFilterExpression",
                         "indexes.0.collation", "indexes.0.v", "indexes.0.hidden", "indexes.0.storageEngine",
                         "indexes.0.weights", "indexes.0.default_language", "indexes.0.language_override",
                         "indexes.0.textIndexVersion", "indexes.0.2dsphereIndexVersion", "indexes.0.bits",
                         "indexes.0.min", "indexes.0.max", "indexes.0.bucketSize", "indexes.0.wildcardProjection",
                         "indexes.0.ns", "indexes.0.dropDups", "indexes.0.prepareUnique", "indexes.0.clustered",
                         "indexes.0.x", "indexes.0.coarsestIndexedLevel", "indexes.0.finestIndexedLevel", "commitQuorum",
                         "v", "ignoreUnknownIndexOptions", before=[{"dropIndexes": "c", "index": "*"}]),
    "createRole": one('{"createRole": "r", "privileges": [], "roles": []}', "privileges", "privileges.0", "roles",
                      "roles.0", "authenticationRestrictions", "authenticationRestrictions.0", before=[{"dropRole": "r"}]),
    "createUser": one('{"createUser": "u", "pwd": "p", "roles": []}', "pwd", "customData", "roles", "roles.0",
                      "digestPassword", "authenticationRestrictions", "mechanisms", "mechanisms.0", "passwordDigestor",
                      before=[{"dropUser": "u"}]),
    "currentOp": one('{"currentOp": 1}', "$ownOps", "$all", "$truncateOps", "op", db="admin"),
    "dataSize": one('{"dataSize": "sweep.c"}', "keyPattern", "min", "max", "estimate"),
    "dbHash": one('{"dbHash": 1}', "collections", "$_internalReadAtClusterTime"),
    "dbStats": one('{"dbStats": 1}', "scale", "freeStorage"),
    "delete": one('{"delete": "c", "deletes": [{"q": {"_id": 99}, "limit": 1}]}', "deletes", "deletes.0", "deletes.0.q",
                  "deletes.0.limit", "deletes.0.hint", "deletes.0.collation", "deletes.0.x", "ordered", "stmtIds"),
    "distinct": one('{"distinct": "c", "key": "a"}', "key", "query", "queryOptions", "unwound"),
    "driverOIDTest": one('{"driverOIDTest": {"$oid": "5f5f5f5f5f5f5f5f5f5f5f5f"}}'),
    "drop": one('{"drop": "none"}', "x"),
    "dropAllRolesFromDatabase": one('{"dropAllRolesFromDatabase": 1}'),
    "dropAllUsersFromDatabase": one('{"dropAllUsersFromDatabase": 1}'),
    "dropConnections": one('{"dropConnections": 1, "hostAndPort": []}', "hostAndPort", "hostAndPort.0", db="admin"),
    "dropDatabase": one('{"dropDatabase": 1}', db="sweep2"),
    "dropIndexes": one('{"dropIndexes": "c", "index": "*"}', "index", "index.0"),
    "dropRole": one('{"dropRole": "r0"}', before=[{"createRole": "r0", "privileges": [], "roles": []}]),
    "dropUser": one('{"dropUser": "u0"}', before=[{"createUser": "u0", "pwd": "p", "roles": []}]),
    "endSessions": one('{"endSessions": []}', "endSessions.0", "endSessions.0.id"),
    "explain": one('{"explain": {"find": "c"}}', "explain.find", "explain.filter", "explain.limit", "explain.singleBatch",
                   "explain.showRecordId", "explain.writeConcern", "explain.readConcern", "explain.maxTimeMS",
                   "explain.batchSize", "explain.hint", "explain.x", "explain.$db", "explain.comment", "explain.lsid",
                   "explain.txnNumber", "verbosity"),
    "explain update": one('{"explain": {"update": "c", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]}}',
                          "explain.update", "explain.updates", "explain.ordered", "explain.writeConcern", "explain.x"),
    "explain count": one('{"explain": {"count": "c"}}', "explain.count", "explain.query", "explain.limit",
                         "explain.skip", "explain.hint", "explain.x", "explain.fields"),
    "explain distinct": one('{"explain": {"distinct": "c", "key": "a"}}', "explain.distinct", "explain.key",
                            "explain.query", "explain.x"),
    "explain aggregate": one('{"explain": {"aggregate": "c", "pipeline": [], "cursor": {}}}', "explain.aggregate",
                             "explain.pipeline", "explain.cursor", "explain.explain", "explain.writeConcern"),
    "explain findAndModify": one('{"explain": {"findAndModify": "c", "query": {}, "remove": true}}',
                                 "explain.findAndModify", "explain.query", "explain.remove", "explain.writeConcern"),
    "features": one('{"features": 1}', "oidReset"),
    "find": one('{"find": "c"}', "filter", "projection", "sort", "skip", "limit", "batchSize", "ntoreturn", "singleBatch",
                "allowDiskUse", "min", "max", "returnKey", "showRecordId", "tailable", "oplogReplay", "noCursorTimeout",
                "awaitData", "allowPartialResults", "options", "readOnce", "allowSpeculativeMajorityRead",
                "requestResumeToken", "resumeAfter", "requestResumeToken", "snapshot", "maxScan",
                "unwrappedReadPref", "$queryOptions", "mirrored", "includeQueryStatsMetrics"),
    "find view": one('{"find": "view"}', "filter", "projection", "sort", "skip", "limit", "batchSize", "singleBatch",
                     "allowDiskUse", "min", "max", "returnKey", "showRecordId", "tailable", "oplogReplay",
                     "noCursorTimeout", "awaitData", "allowPartialResults", "options", "readOnce", "ntoreturn",
                     "allowSpeculativeMajorityRead", "requestResumeToken", "resumeAfter"),
    "findAndModify": one('{"findAndModify": "c", "query": {"_id": 99}, "update": {"$set": {"a": 1}}}', "query", "fields",
                         "sort", "arrayFilters", "remove", "update", "upsert", "new", "stmtId", "x", "batchSize"),
    "getClusterParameter": one('{"getClusterParameter": "*"}', db="admin"),
    "getCmdLineOpts": one('{"getCmdLineOpts": 1}', db="admin"),
    "getDefaultRWConcern": one('{"getDefaultRWConcern": 1}', "inMemory", db="admin"),
    "getLog": one('{"getLog": "global"}', db="admin"),
    "getMore": one('{"getMore": {"$numberLong": "1"}, "collection": "c"}', "collection", "batchSize",
                   "lastKnownCommittedOpTime"),
    "getParameter": one('{"getParameter": 1, "quiet": 1}', "quiet", "nope", "showDetails", "allParameters", db="admin"),
    "grantPrivilegesToRole": one('{"grantPrivilegesToRole": "r0", "privileges": []}', "privileges", "privileges.0"),
    "grantRolesToRole": one('{"grantRolesToRole": "r0", "roles": []}', "roles", "roles.0"),
    "grantRolesToUser": one('{"grantRolesToUser": "u0", "roles": []}', "roles", "roles.0"),
    "hello": one('{"hello": 1}', "maxAwaitTimeMS", "topologyVersion", "saslSupportedMechs", "speculativeAuthenticate",
                 "compression", "helloOk", "hostInfo", "hangUpOnStepDown", "internalClient", "loadBalanced", "forShell",
                 "client", "client.application", "client.driver", "client.os"),
    "hostInfo": one('{"hostInfo": 1}'),
    "insert": one('{"insert": "w", "documents": [{"a": 1}]}', "documents", "documents.0", "documents.0._id", "ordered",
                  "stmtIds"),
    "invalidateUserCache": one('{"invalidateUserCache": 1}'),
    "killAllSessions": one('{"killAllSessions": []}', "killAllSessions.0", "killAllSessions.0.user",
                           "killAllSessions.0.db", db="admin"),
    "killAllSessionsByPattern": one('{"killAllSessionsByPattern": []}', "killAllSessionsByPattern.0",
                                    "killAllSessionsByPattern.0.lsid", "killAllSessionsByPattern.0.lsid.id",
                                    "killAllSessionsByPattern.0.lsid.uid", "killAllSessionsByPattern.0.uid",
                                    "killAllSessionsByPattern.0.users", "killAllSessionsByPattern.0.users.0",
                                    "killAllSessionsByPattern.0.users.0.user", "killAllSessionsByPattern.0.users.0.db",
                                    "killAllSessionsByPattern.0.roles", "killAllSessionsByPattern.0.roles.0",
                                    "killAllSessionsByPattern.0.x", db="admin"),
    "killCursors": one('{"killCursors": "c", "cursors": [{"$numberLong": "1"}]}', "cursors", "cursors.0"),
    "killOp": one('{"killOp": 1, "op": 123456789}', "op", db="admin"),
    "killSessions": one('{"killSessions": []}', "killSessions.0", "killSessions.0.id"),
    "listCollections": one('{"listCollections": 1}', "cursor", "cursor.batchSize", "cursor.x", "filter", "nameOnly",
                           "authorizedCollections"),
    "listCommands": one('{"listCommands": 1}'),
    "listDatabases": one('{"listDatabases": 1}', "filter", "nameOnly", "authorizedDatabases", db="admin"),
    "listIndexes": one('{"listIndexes": "c"}', "cursor", "cursor.batchSize", "cursor.x", "includeBuildUUIDs",
                       "includeIndexBuildInfo"),
    "lockInfo": one('{"lockInfo": 1}', "includeStorageEngineDump", db="admin"),
    "logout": one('{"logout": 1}'),
    "mapReduce": one('{"mapReduce": "c", "map": {"$code": "function(){emit(1,1)}"}, "reduce": {"$code": '
                     '"function(k,v){return 1}"}, "out": {"inline": 1}}', "map", "reduce", "out", "out.inline",
                     "finalize", "query", "sort", "limit", "scope", "verbose", "jsMode"),
    "ping": one('{"ping": 1}'),
    "planCacheClear": one('{"planCacheClear": "c"}', "query", "sort", "projection"),
    "planCacheClearFilters": one('{"planCacheClearFilters": "c"}', "query", "sort", "projection"),
    "planCacheListFilters": one('{"planCacheListFilters": "c"}'),
    "planCacheSetFilter": one('{"planCacheSetFilter": "c", "query": {"a": 1}, "indexes": [{"a": 1}]}', "query", "sort",
                              "projection", "indexes", "indexes.0"),
    "profile": one('{"profile": -1}', "slowms", "sampleRate", "filter"),
    "reIndex": one('{"reIndex": "c"}'),
    "refreshSessions": one('{"refreshSessions": []}', "refreshSessions.0", "refreshSessions.0.id"),
    "renameCollection": one('{"renameCollection": "sweep.none", "to": "sweep.none2"}', "to", "dropTarget", "stayTemp",
                            db="admin"),
    "replSetGetConfig": one('{"replSetGetConfig": 1}', "commitmentStatus", db="admin"),
    "replSetGetStatus": one('{"replSetGetStatus": 1}', "initialSync", db="admin"),
    "revokePrivilegesFromRole": one('{"revokePrivilegesFromRole": "r0", "privileges": []}', "privileges"),
    "revokeRolesFromRole": one('{"revokeRolesFromRole": "r0", "roles": []}', "roles"),
    "revokeRolesFromUser": one('{"revokeRolesFromUser": "u0", "roles": []}', "roles"),
    "rolesInfo": one('{"rolesInfo": 1}', "rolesInfo.0", "showPrivileges", "showBuiltinRoles",
                     "showAuthenticationRestrictions"),
    "saslContinue": one('{"saslContinue": 1, "conversationId": 1, "payload": ""}', "conversationId", "payload"),
    "saslStart": one('{"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": ""}', "mechanism", "payload",
                     "autoAuthorize", "options"),
    "serverStatus": one('{"serverStatus": 1}', "repl", "nope"),
    "setFeatureCompatibilityVersion": one('{"setFeatureCompatibilityVersion": "6.0"}', db="admin"),
    "setIndexCommitQuorum": one('{"setIndexCommitQuorum": "c", "indexNames": ["q"], "commitQuorum": 1}', "indexNames",
                                "indexNames.0", "commitQuorum"),
    "setParameter": one('{"setParameter": 1, "quiet": false}', "quiet", "logLevel", "logComponentVerbosity",
                        "logComponentVerbosity.verbosity", "logComponentVerbosity.query",
                        "logComponentVerbosity.storage.verbosity", "logComponentVerbosity.x", "ttlMonitorEnabled",
                        "ttlMonitorSleepSecs", "notablescan", "cursorTimeoutMillis",
                        "internalQueryExecMaxBlockingSortBytes", "nope", db="admin"),
    "startSession": one('{"startSession": 1}'),
    "update": one('{"update": "c", "updates": [{"q": {"_id": 99}, "u": {"$set": {"a": 1}}}]}', "updates", "updates.0",
                  "updates.0.q", "updates.0.u", "updates.0.c", "updates.0.multi", "updates.0.upsert",
                  "updates.0.collation", "updates.0.arrayFilters", "updates.0.hint", "updates.0.x",
                  "updates.0.upsertSupplied", "ordered", "stmtIds"),
    "updateRole": one('{"updateRole": "r0", "privileges": []}', "privileges", "roles", "authenticationRestrictions"),
    "updateUser": one('{"updateUser": "u0", "customData": {}}', "pwd", "customData", "roles", "digestPassword",
                      "authenticationRestrictions", "mechanisms"),
    "usersInfo": one('{"usersInfo": 1}', "usersInfo.0", "usersInfo.user", "showCredentials", "showPrivileges",
                     "showAuthenticationRestrictions", "showCustomData", "filter"),
    "validate": one('{"validate": "c"}', "full", "scandata", "repair", "metadata", "background", "enforceFastCount",
                    "checkBSONConformance"),
    "whatsmyuri": one('{"whatsmyuri": 1}'),
}


def planted(command, path, value):
    """`command` with `value` at the dotted path; parents that are missing are made."""
    name, _, rest = path.partition(".")
    if isinstance(command, list):
        at = int(name)
        items = list(command) or [{}]
        items[at] = planted(items[at], rest, value) if rest else value
        return items
    base = dict(command) if isinstance(command, dict) else {}
    default = [] if rest[:1].isdigit() else {}
    base[name] = planted(base.get(name, default), rest, value) if rest else value
    return base


class Side(object):
    """One server, and a connection that is made again whenever it broke."""

    def __init__(self, uri):
        self.uri, self.conn = uri, None

    def ask(self, doc):
        try:
            if self.conn is None:
                self.conn = probe.Conn(probe.Server(self.uri), timeout=5)
            self.conn.limit(5)
            return self.conn.cmd(doc)
        except Exception as error:
            self.conn = None
            return {"ok": 0, "code": "no answer: %s" % type(error).__name__}

    def fixture(self):
        for command in ({"dropDatabase": 1}, {"insert": "c", "documents": [{"_id": i, "a": i} for i in range(3)]},
                        {"insert": "w", "documents": [{"_id": 0}]}, {"create": "view", "viewOn": "c", "pipeline": []},
                        {"createUser": "u0", "pwd": "p", "roles": []},
                        {"createRole": "r0", "privileges": [], "roles": []}):
            self.ask(dict(command, **{"$db": "sweep"}))


def outcome(reply, with_message):
    """The compared result: success, or the code; for writes also the codes of their errors."""
    code = "ok" if reply.get("ok") == 1 else reply.get("code", "none")
    errors = ["w%s" % error.get("code") for error in reply.get("writeErrors") or []]
    concern = reply.get("writeConcernError")
    if concern:
        errors.append("wc%s" % concern.get("code"))
    text = [str(code)] + errors
    if with_message:
        text.append(reply.get("errmsg", ""))
        text += [error.get("errmsg", "") for error in reply.get("writeErrors") or []]
    return " ".join(text)


def cases(name):
    """(what is asked, the name of the value, the command)."""
    base, fields, db, _ = COMMANDS[name]
    base = dict(base, **{"$db": db})
    first = next(iter(base))
    nested = isinstance(base[first], dict) and name.startswith("explain")
    generic = GENERIC if name in GENERIC_FOR else GENERIC_FEW
    for label, value in VALUES.items():
        yield first, label, planted(base, first, value)
        for field in list(fields) + generic:
            if field == "maxTimeMS" and label.split(" ")[-1] in ("1", "1.0", "1000") or field in base and field == "let":
                continue
            yield field, label, planted(base, field, value)
    if not isinstance(base[first], str) and not nested:
        return
    for other in (DATABASES if name in NAMED else [db]):
        for text in NAMES:
            if (other, text) in KEPT and name not in ("find", "count", "aggregate"):
                continue
            # The other database may exist on one of them alone: the case is about its collections.
            spoilt = planted(base, first if not nested else "explain." + next(iter(base[first])), text)
            label = repr(text) if len(text) < 30 else "%r, %d times" % (text[0], len(text))
            yield "%s in %s" % (first, other), label, dict(spoilt, **{"$db": other})


def is_accepted(name, field, label, outcomes):
    """Whether this difference is one that stays."""
    # A limit of time may or may not be reached.
    if any("50" in outcome.replace("wc", "").split() for outcome in outcomes):
        return True
    return any(fnmatch.fnmatchcase(name, names) and fnmatch.fnmatchcase(field, fields)
               and (labels is None or label in labels) for names, fields, labels, _ in ACCEPTED)


def asked(name):
    """The cases of a command in their order, each with the commands before it."""
    _, _, db, before = COMMANDS[name]
    before = [dict(command, **{"$db": db}) for command in before]
    for field, label, command in cases(name):
        yield field, label, before, command


def ask(side, before, command, args):
    """Returns a server's reply to a case."""
    for command_before in before:
        side.ask(command_before)
    return outcome(side.ask(probe.from_ejson(command, probe.Env("sweep"))), args.messages)


def tell(name, found):
    for (field, marula, mongod), labels in found.items():
        print("%s, %s: marula %s, mongod %s with %s" % (name, field, marula, mongod, ", ".join(labels)[:300]))
    sys.stdout.flush()


def run(sides, args):
    """Asks all; prints what differs, command by command. True where nothing does."""
    total = different = accepted = 0
    for name in args.commands.split(",") if args.commands else COMMANDS:
        found = collections.OrderedDict()
        for side in sides:
            side.fixture()
        for field, label, before, command in asked(name):
            outcomes = [ask(side, before, command, args) for side in sides]
            total += 1
            if outcomes[0] == outcomes[1]:
                continue
            if is_accepted(name, field, label, outcomes):
                accepted += 1
                continue
            found.setdefault((field, *outcomes), []).append(label)
            different += 1
        tell(name, found)
    print("%d cases, %d differ, %d as accepted" % (total, different, accepted))
    return different == 0


def sample(name, seed):
    """Some cases of a command, the same for the same seed."""
    by_field = collections.OrderedDict()
    for field, label, before, command in asked(name):
        by_field.setdefault(field, []).append((field, label, before, command))
    chosen = random.Random("%s %s" % (seed, name))
    for each in by_field.values():
        picked = sorted(chosen.sample(range(len(each)), min(SAMPLED, len(each))))
        yield from (each[at] for at in picked)


def record(sides, args):
    """Records mongod's replies to a sample of the cases; those to which Marula replies differently are left out and printed."""
    marula, mongod = sides
    answers, left_out = collections.OrderedDict(), 0
    for name in COMMANDS:
        for side in sides:
            side.fixture()
        kept = answers.setdefault(name, [])
        for field, label, before, command in sample(name, args.seed):
            outcomes = [ask(side, before, command, args) for side in (marula, mongod)]
            if outcomes[0] == outcomes[1]:
                kept.append([field, label, outcomes[1]])
            elif not is_accepted(name, field, label, outcomes):
                print("%s, %s: marula %s, mongod %s with %s" % (name, field, *outcomes, label))
                left_out += 1
    with open(RECORDED, "w", encoding="utf-8") as out:
        out.write('{"seed": %s, "answers": {\n' % json.dumps(args.seed))
        out.write(",\n".join("%s: %s" % (json.dumps(name), json.dumps(kept)) for name, kept in answers.items()))
        out.write("\n}}\n")
    print("%d answers recorded, %d left out" % (sum(map(len, answers.values())), left_out))
    return left_out == 0


def replay(side, args):
    """Compares a server with what is recorded. True where nothing differs."""
    with open(RECORDED, encoding="utf-8") as recorded:
        answers = json.load(recorded)["answers"]
    total = different = 0
    for name in args.commands.split(",") if args.commands else COMMANDS:
        wanted = {(field, label): answer for field, label, answer in answers.get(name, [])}
        found = collections.OrderedDict()
        side.fixture()
        for field, label, before, command in asked(name):
            expected = wanted.get((field, label))
            if expected is None:
                continue
            total += 1
            answer = ask(side, before, command, args)
            if answer != expected:
                found.setdefault((field, answer, expected), []).append(label)
                different += 1
        tell(name, found)
    print("%d cases, %d differ" % (total, different))
    return different == 0


def started(command, args):
    """A server of one kind: `MARULA_SERVE` says which."""
    os.environ["MARULA_SERVE"] = command
    options = [] if args.standalone else ["--replSet", "rs0"]
    one_server = server.Server(*options)
    if not args.standalone:
        conn = probe.Conn(probe.Server(one_server.uri), timeout=20)
        conn.cmd({"replSetInitiate": {}, "$db": "admin"})
        while not conn.cmd({"hello": 1, "$db": "admin"}).get("isWritablePrimary"):
            probe.time.sleep(0.05)
        conn.close()
    return one_server


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--mongod", help="the program to compare with; without one, what is recorded")
    options.add_argument("--record", action="store_true", help="write what mongod answers to a sample")
    options.add_argument("--seed", default="6.0", help="chooses the sample")
    options.add_argument("--commands", help="names in COMMANDS, with commas between")
    options.add_argument("--messages", action="store_true")
    options.add_argument("--standalone", action="store_true")
    args = options.parse_args()
    marula = " ".join(shlex.quote(word) for word in server.serve_command())
    with started(marula, args) as one_server:
        if not args.mongod:
            sys.exit(0 if replay(Side(one_server.uri), args) else 1)
        with started(args.mongod, args) as other:
            sides = [Side(one_server.uri), Side(other.uri)]
            is_same = (record if args.record else run)(sides, args)
    sys.exit(0 if is_same else 1)


if __name__ == "__main__":
    main()
