"""Commands of operators and connectors: top, splitVector, filemd5 and others. mongod has the same replies."""
import hashlib
import itertools
import os
import threading
import time

import bson
import pymongo
import pytest
import server
from bson import MinKey
from pymongo.errors import OperationFailure


def refused(code, database, command, *args, **fields):
    with pytest.raises(OperationFailure) as error:
        database.command(command, *args, **fields)
    assert error.value.code == code, error.value.details
    return error.value.details["errmsg"]


@pytest.fixture
def rs(replica):
    with pymongo.MongoClient("mongodb://127.0.0.1:%d/?directConnection=true" % replica.port, retryWrites=False) as client:
        wait_for_primary(client)
        client.drop_database("ops")
        yield client
        client.drop_database("ops")


# ---- top


def counts(client, ns):
    shown = client.admin.command("top")["totals"].get(ns, {})
    return {name: part["count"] for name, part in shown.items() if part["count"]}


def test_top_counts_what_each_collection_is_used_for(client, db):
    c, ns = db.c, db.name + ".c"
    c.insert_many([{"_id": n} for n in range(5)])
    assert counts(client, ns) == {"total": 1, "writeLock": 1, "insert": 1}
    list(c.find(batch_size=2))
    assert counts(client, ns) == {"total": 4, "writeLock": 1, "insert": 1, "readLock": 3, "queries": 1, "getmore": 2}
    db.command("update", "c", updates=[{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}, {"q": {"_id": 2}, "u": {"$set": {"a": 1}}}])
    db.command("delete", "c", deletes=[{"q": {"_id": 3}, "limit": 1}])
    db.command("count", "c")
    c.find_one_and_update({"_id": 1}, {"$set": {"a": 2}})
    assert counts(client, ns) == {"total": 9, "writeLock": 5, "insert": 1, "update": 2, "remove": 1, "readLock": 4,
                                  "queries": 1, "getmore": 2, "commands": 2}
    totals = client.admin.command("top")["totals"]
    assert totals["note"] == "all times in microseconds"
    assert all(set(part) == {"time", "count"} for part in totals[ns].values())
    assert totals[ns]["total"]["time"] > 0
    c.drop()
    assert ns not in client.admin.command("top")["totals"]


def test_top_is_for_admin(db):
    refused(13, db, "top")


# ---- splitVector and checkShardingIndex


@pytest.fixture(scope="module")
def split(client):
    db = client.split_vector
    client.drop_database(db.name)
    filler = "z" * 20_000
    db.c.insert_many([{"_id": n, "x": n, "n": {"z": n % 7}, "y": filler} for n in range(200)])
    db.c.create_index("x")
    db.c.create_index([("n.z", 1), ("_id", 1)])
    db.c.create_index("sparse", sparse=True)
    db.c.create_index("partial", partialFilterExpression={"x": {"$gt": 5}})
    db.few.insert_many([{"x": n // 90, "y": filler} for n in range(200)])
    db.few.create_index("x")
    db.create_collection("view", viewOn="c", pipeline=[])
    db.arrays.insert_one({"x": [1, 2]})
    db.arrays.create_index("x")
    yield db
    client.drop_database(db.name)


@pytest.mark.parametrize("fields, expected", [
    ({"keyPattern": {"_id": 1}, "maxChunkSize": 1}, [{"_id": n} for n in range(26, 200, 27)]),
    ({"keyPattern": {"x": 1}, "maxChunkSizeBytes": 1 << 20}, [{"x": n} for n in range(26, 200, 27)]),
    ({"keyPattern": {"x": 1}, "maxChunkSize": 1, "maxSplitPoints": 2}, [{"x": 26}, {"x": 53}]),
    ({"keyPattern": {"x": 1}, "maxChunkSize": 1, "maxChunkObjects": 10}, [{"x": n} for n in range(10, 200, 11)]),
    ({"keyPattern": {"x": 1}, "maxChunkSize": 1, "min": {"x": 50}, "max": {"x": 150}}, [{"x": 76}, {"x": 103}, {"x": 130}]),
    ({"keyPattern": {"x": 1}, "force": True}, [{"x": 100}]),
    ({"keyPattern": {"x": 1}, "force": True, "min": {"x": 0}, "max": {"x": 100}}, [{"x": 50}]),
    ({"keyPattern": {"n.z": 1}, "maxChunkSize": 1}, [{"n.z": n} for n in range(1, 7)]),
    ({"keyPattern": {"n.z": 1, "_id": 1}, "maxChunkSize": 1, "min": {"n.z": 1}, "max": {"n.z": 3}},
     [{"n.z": 1, "_id": 183}, {"n.z": 2, "_id": 170}]),
    ({"keyPattern": {"n.z": 1, "_id": 1}, "maxChunkSize": 1, "min": {"n.z": 1, "_id": MinKey()}, "max": {"n.z": 3, "_id": MinKey()}},
     [{"n.z": 1, "_id": 183}, {"n.z": 2, "_id": 170}]),
    ({"keyPattern": {"x": 1}, "maxChunkSize": 1024}, []),
])
def test_split_vector_cuts(split, client, fields, expected):
    assert client.admin.command("splitVector", "split_vector.c", **fields)["splitKeys"] == expected


def test_split_vector_never_parts_equal_keys(split, client):
    found = client.admin.command("splitVector", "split_vector.few", keyPattern={"x": 1}, maxChunkSize=1)
    assert found["splitKeys"] == [{"x": 1}, {"x": 2}]


@pytest.mark.parametrize("code, collection, fields", [
    (None, "split_vector.c", {}),
    (None, "split_vector.c", {"keyPattern": {"x": 1}, "maxChunkSize": 1, "min": {"x": 1}}),
    (72, "split_vector.c", {"keyPattern": {"x": 1}}),
    (72, "split_vector.c", {"keyPattern": {"x": 1}, "maxChunkSize": 0}),
    (72, "split_vector.c", {"keyPattern": {"x": 1}, "maxChunkSize": 1025}),
    (72, "split_vector.c", {"keyPattern": {"x": 1}, "maxChunkSizeBytes": 1000}),
    (72, "split_vector.c", {"keyPattern": {"x": 1}, "maxChunkSize": 1, "maxChunkObjects": 0}),
    (27, "split_vector.c", {"keyPattern": {"q": 1}, "maxChunkSize": 1}),
    (27, "split_vector.c", {"keyPattern": {"x": -1}, "maxChunkSize": 1}),
    (27, "split_vector.c", {"keyPattern": {"sparse": 1}, "maxChunkSize": 1}),
    (27, "split_vector.c", {"keyPattern": {"partial": 1}, "maxChunkSize": 1}),
    (16634, "split_vector.c", {"keyPattern": {"x": 1}, "maxChunkSize": 1, "min": {"y": 1}, "max": {"x": 2}}),
    (96, "split_vector.c", {"keyPattern": {"x": 1}, "maxChunkSize": 1, "min": {"x": 150}, "max": {"x": 60}}),
    (26, "split_vector.nope", {"keyPattern": {"x": 1}, "maxChunkSize": 1}),
    (166, "split_vector.view", {"keyPattern": {"x": 1}, "maxChunkSize": 1}),
    (73, "c", {"keyPattern": {"x": 1}, "maxChunkSize": 1}),
    (2, 1, {"keyPattern": {"x": 1}, "maxChunkSize": 1}),
])
def test_split_vector_refuses(split, client, code, collection, fields):
    refused(code, client.admin, "splitVector", collection, **fields)


def test_check_sharding_index(split):
    def check(key, collection="c"):
        return split.command("checkShardingIndex", "split_vector." + collection, keyPattern=key)

    assert check({"_id": 1})["idskip"] is True
    for key in {"x": 1}, {"n.z": 1}, {"n.z": 1, "_id": 1}:
        assert check(key)["ok"] == 1 and "idskip" not in check(key)
    message = refused(72, split, "checkShardingIndex", "split_vector.arrays", keyPattern={"x": 1})
    assert message == ("couldn't find valid index for shard key"
                       "\nIndex _id_ cannot be used for sharding because: Shard key is not a prefix of index key."
                       "\nIndex x_1 cannot be used for sharding because: Index key is multikey.")
    assert "sparse_1 cannot be used for sharding because: Index key is sparse.\n" in refused(
        72, split, "checkShardingIndex", "split_vector.c", keyPattern={"sparse": 1})
    refused(None, split, "checkShardingIndex", "split_vector.c")
    refused(None, split, "checkShardingIndex", "split_vector.nope", keyPattern={"x": 1})
    refused(166, split, "checkShardingIndex", "split_vector.view", keyPattern={"x": 1})
    refused(73, split, "checkShardingIndex", "c", keyPattern={"x": 1})


# ---- filemd5


def test_filemd5(db):
    chunks = db["fs.chunks"]
    parts = [b"abc", b"def", os.urandom(100)]
    chunks.insert_many([{"files_id": 1, "n": n, "data": data} for n, data in enumerate(parts)])
    chunks.insert_many([{"files_id": 2, "n": 0, "data": b"x"}, {"files_id": 2, "n": 2, "data": b"y"},
                        {"files_id": 3, "n": 0, "data": "text"}, {"files_id": 4, "n": 0}])
    refused(291, db, "filemd5", 1)
    chunks.create_index([("files_id", 1), ("n", 1)])
    expected = hashlib.md5(b"".join(parts)).hexdigest()
    found = db.command("filemd5", 1, root="fs")
    assert (found["md5"], found["numChunks"]) == (expected, 3)
    empty = hashlib.md5().hexdigest()
    for file, fields in (99, {}), (1, {"root": "other"}):
        found = db.command("filemd5", file, **fields)
        assert (found["md5"], found["numChunks"]) == (empty, 0)
    refused(10040, db, "filemd5", 2)
    refused(50849, db, "filemd5", 3)
    refused(50848, db, "filemd5", 4)
    refused(73, db, "filemd5", 1, root=1)


def test_filemd5_goes_on_from_a_part(db):
    chunks = db["fs.chunks"]
    chunks.create_index([("files_id", 1), ("n", 1)])
    chunks.insert_many([{"files_id": 1, "n": n, "data": data} for n, data in enumerate([b"abc", b"def"])])
    part = db.command("filemd5", 1, partialOk=True)
    assert part["numChunks"] == 2
    chunks.insert_one({"files_id": 1, "n": 2, "data": b"ghi"})
    found = db.command("filemd5", 1, partialOk=True, md5state=part["md5state"], startAt=2)
    assert (found["md5"], found["numChunks"]) == (hashlib.md5(b"abcdefghi").hexdigest(), 3)


# ---- validateDBMetadata, compactStructuredEncryptionData, getDiagnosticData


def test_validate_db_metadata(db):
    db.c.create_index("s", sparse=True)
    db.c.create_index([("t", "text")])
    db.c.create_index("plain")
    found = db.command("validateDBMetadata", apiParameters={"version": "1", "strict": True}, db=db.name)
    assert found["apiVersionErrors"] == [
        {"ns": db.name + ".c", "code": 323, "codeName": "APIStrictError",
         "errmsg": "The index with name %s is not allowed in API version 1." % name} for name in ("s_1", "t_text")]
    for fields in {"collection": "other"}, {"db": "other"}:
        fields = {"db": db.name, **fields}
        assert db.command("validateDBMetadata", apiParameters={"version": "1", "strict": True}, **fields)["apiVersionErrors"] == []
    assert db.command("validateDBMetadata", apiParameters={"version": "1"})["apiVersionErrors"] == []
    db.create_collection("v", viewOn="c", pipeline=[{"$indexStats": {}}])
    refused(323, db, "validateDBMetadata", apiParameters={"version": "1", "strict": True}, db=db.name)
    refused(40414, db, "validateDBMetadata", apiParameters={"strict": True})
    refused(40414, db, "validateDBMetadata")
    refused(40415, db, "validateDBMetadata", apiParameters={"version": "1", "more": 1})
    refused(14, db, "validateDBMetadata", apiParameters={"version": "1", "strict": 1})


def test_compact_structured_encryption_data(db):
    db.create_collection("c")
    db.create_collection("v", viewOn="c", pipeline=[])
    command = "compactStructuredEncryptionData"
    refused(6346807, db, command, "c", compactionTokens={})
    refused(26, db, command, "nope", compactionTokens={})
    refused(166, db, command, "v", compactionTokens={})
    refused(40414, db, command, "c")
    refused(14, db, command, "c", compactionTokens=1)


def test_get_diagnostic_data(client, rs, db):
    data = client.admin.command("getDiagnosticData")["data"]
    assert list(data)[0] == "start" and list(data)[-1] == "end" and "replSetGetStatus" not in data
    for part in "serverStatus", "systemMetrics":
        assert list(data[part])[0] == "start" and list(data[part])[-1] == "end"
    assert data["serverStatus"]["opcounters"]["insert"] >= 0
    machine = data["systemMetrics"]
    assert machine["cpu"]["num_cpus"] == os.cpu_count()
    assert machine["memory"]["MemTotal_kb"] > machine["memory"]["MemFree_kb"] > 0
    assert machine["vmstat"]["pgfault"] > 0 and machine["mounts"]
    assert "replSetGetStatus" in rs.admin.command("getDiagnosticData")["data"]
    refused(13, db, "getDiagnosticData")


# ---- setUserWriteBlockMode


@pytest.fixture
def blocked(rs):
    rs.ops.c.insert_one({"_id": 1})
    rs.ops.c.create_index("a")
    rs.admin.command("setUserWriteBlockMode", **{"global": True})
    yield rs
    rs.admin.command("setUserWriteBlockMode", **{"global": False})
    rs.ops.c.insert_one({})


WRITES = [
    {"insert": "c", "documents": [{}]},
    {"insert": "new", "documents": [{}]},
    {"update": "c", "updates": [{"q": {}, "u": {"$set": {"b": 1}}}]},
    {"update": "new", "updates": [{"q": {}, "u": {"$set": {"b": 1}}, "upsert": True}]},
    {"delete": "c", "deletes": [{"q": {}, "limit": 0}]},
]

CHANGES = [
    {"findAndModify": "c", "query": {}, "remove": True},
    {"create": "new"},
    {"create": "view", "viewOn": "c", "pipeline": []},
    {"drop": "c"},
    {"dropDatabase": 1},
    {"createIndexes": "c", "indexes": [{"key": {"b": 1}, "name": "b"}]},
    {"createIndexes": "new", "indexes": [{"key": {"b": 1}, "name": "b"}]},
    {"dropIndexes": "c", "index": "*"},
    {"collMod": "c", "validationLevel": "off"},
    {"aggregate": "c", "pipeline": [{"$out": "new"}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$merge": "new"}], "cursor": {}},
    {"mapReduce": "c", "map": "function() { emit(1, 1); }", "reduce": "function() { return 1; }", "out": "new"},
    {"convertToCapped": "c", "size": 1000},
    {"cloneCollectionAsCapped": "c", "toCollection": "new", "size": 1000},
]


def test_users_writes_are_blocked(blocked):
    db = blocked.ops
    for command in WRITES:
        reply = db.command(command)
        assert reply["n"] == 0 and [error["code"] for error in reply["writeErrors"]] == [371], command
    for command in CHANGES:
        refused(371, db, command)
    refused(371, blocked.admin, "renameCollection", "ops.c", to="ops.d")
    assert list(db.c.find()) == [{"_id": 1}] and db.list_collection_names() == ["c"]
    assert len(list(db.c.list_indexes())) == 2


def test_what_is_not_blocked(blocked):
    db = blocked.ops
    # Commands without a change succeed; others fail for another reason.
    assert db.command("update", "c", updates=[{"q": {"_id": 9}, "u": {"$set": {"b": 1}}}])["n"] == 0
    assert db.command("update", "c", updates=[{"q": {}, "u": {"$set": {"_id": 1}}}])["n"] == 1
    assert db.command("delete", "c", deletes=[{"q": {"_id": 9}, "limit": 1}])["n"] == 0
    assert "note" in db.command("createIndexes", "c", indexes=[{"key": {"a": 1}, "name": "a_1"}])
    refused(48, db, "create", "c")
    refused(26, db, "drop", "nope")
    refused(26, db, "collMod", "nope")
    assert blocked.not_there.command("dropDatabase")["ok"] == 1
    # The server's own databases stay writable.
    for name in "admin", "config", "local":
        blocked[name].probe.insert_one({"_id": 1})
        blocked[name].probe.drop()
    assert blocked.config.user_writes_critical_sections.find_one() == {
        "_id": "", "blockNewUserShardedDDL": False, "blockUserWrites": True}


def test_no_write_comes_after_the_block(rs):
    """Neither one that had begun before, nor one of a transaction."""
    c, is_over, numbers, late = rs.ops.c, threading.Event(), itertools.count(), []

    def writing(write):
        with pymongo.MongoClient(rs.address[0], rs.address[1], directConnection=True, retryWrites=False) as client:
            while not is_over.is_set():
                try:
                    write(client)
                except OperationFailure as error:
                    assert error.code == 371 or error.has_error_label("TransientTransactionError"), error.details
                    time.sleep(0.001)

    def in_transaction(client):
        with client.start_session() as session, session.start_transaction():
            for _ in range(3):
                client.ops.c.insert_one({}, session=session)

    c.insert_one({})
    writes = [
        lambda client: client.ops.c.insert_one({}),
        lambda client: client.ops.command("insert", "c", documents=[{} for _ in range(200)]),
        lambda client: client.ops.c.update_one({"_id": next(numbers)}, {"$set": {"a": 1}}, upsert=True),
        in_transaction,
    ]
    threads = [threading.Thread(target=writing, args=(write,)) for write in writes]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            rs.admin.command("setUserWriteBlockMode", **{"global": True})
            before = c.count_documents({})
            time.sleep(0.02)
            late.append(c.count_documents({}) - before)
            rs.admin.command("setUserWriteBlockMode", **{"global": False})
            time.sleep(0.01)
    finally:
        rs.admin.command("setUserWriteBlockMode", **{"global": False})
        is_over.set()
        for thread in threads:
            thread.join()
    assert not any(late), late
    assert c.count_documents({}) > 100


def test_the_block_waits_for_open_transactions(rs):
    rs.ops.c.insert_one({})
    with rs.start_session() as session:
        session.start_transaction()
        rs.ops.c.insert_one({}, session=session)
        done = []
        thread = threading.Thread(target=lambda: done.append(
            rs.admin.command("setUserWriteBlockMode", **{"global": True})))
        thread.start()
        try:
            time.sleep(0.2)
            assert not done
            rs.ops.c.insert_one({}, session=session)
            session.commit_transaction()
            thread.join()
            refused(371, rs.ops, "drop", "c")
        finally:
            rs.admin.command("setUserWriteBlockMode", **{"global": False})
    assert rs.ops.c.count_documents({}) == 3


def test_the_block_is_checked_and_is_of_sets_alone(rs, client):
    refused(40414, rs.admin, "setUserWriteBlockMode")
    refused(14, rs.admin, "setUserWriteBlockMode", **{"global": 1})
    refused(40415, rs.admin, "setUserWriteBlockMode", **{"global": True, "more": 1})
    refused(20, client.admin, "setUserWriteBlockMode", **{"global": True})


# ---- default concerns and configurations outlive a restart: servers of their own


@pytest.fixture
def own():
    with server.Server("--replSet", "rs0") as own:
        with pymongo.MongoClient(own.uri, retryWrites=False) as client:
            yield own, client


def initiate(own, client, **fields):
    member = {"_id": 0, "host": "127.0.0.1:%d" % own.port, **fields}
    return client.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})


def wait_for(is_so, seconds=60):
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, "it has not come"


def wait_for_primary(client):
    wait_for(lambda: client.admin.command("hello")["isWritablePrimary"])


def test_a_set_is_initiated_once(own):
    own, client = own
    member = {"_id": 0, "host": "127.0.0.1:%d" % own.port}
    for code, config in [(93, {"_id": "rs1", "members": [member]}), (93, {"_id": "rs0", "members": []}),
                         (93, {"_id": "rs0"}), (93, {"_id": "rs0", "version": 5, "members": [member]}),
                         (93, {"_id": "rs0", "more": 1, "members": [member]}),
                         (93, {"_id": "rs0", "members": [{"_id": 0, "host": "127.0.0.1:9"}]})]:
        refused(code, client.admin, "replSetInitiate", config)
    assert initiate(own, client, host="localhost:%d" % own.port, tags={"dc": "east"})["ok"] == 1
    refused(23, client.admin, "replSetInitiate", {})
    wait_for_primary(client)
    hello = client.admin.command("hello")
    assert hello["hosts"] == ["localhost:%d" % own.port] and hello["me"] == hello["primary"] == hello["hosts"][0]
    assert hello["tags"] == {"dc": "east"}
    config = client.admin.command("replSetGetConfig")["config"]
    assert config["members"][0]["host"] == hello["me"] and config["version"] == 1


def test_a_set_is_reconfigured(own):
    own, client = own
    initiate(own, client)
    wait_for_primary(client)
    # The first election writes its term into the configuration.
    wait_for(lambda: client.admin.command("replSetGetConfig")["config"]["term"] == 1)
    config = client.admin.command("replSetGetConfig")["config"]

    def reconfig(changed, **fields):
        return client.admin.command("replSetReconfig", {**config, **changed}, **fields)

    refused(103, client.admin, "replSetReconfig", config)
    for code, changed in [(93, {"version": 3, "_id": "rs1"}), (93, {"version": 0}), (103, {"version": 1}), (93, {"version": 3, "more": 1}),
                          (103, {"version": 3, "members": [{**config["members"][0], "priority": 0}]}),
                          (74, {"version": 3, "members": [{**config["members"][0], "host": "127.0.0.1:9"}]})]:
        refused(code, client.admin, "replSetReconfig", {**config, **changed})
    assert reconfig({"version": config["version"] + 1})["ok"] == 1
    assert reconfig({"version": config["version"] + 5, "settings": {**config["settings"], "electionTimeoutMillis": 5000}})["ok"] == 1
    found = client.admin.command("replSetGetConfig")["config"]
    assert found["version"] == config["version"] + 5 and found["settings"]["electionTimeoutMillis"] == 5000
    assert client.admin.command("hello")["setVersion"] == found["version"]
    assert reconfig({"version": 1}, force=True)["ok"] == 1
    assert client.admin.command("replSetGetConfig")["config"]["version"] > 10_000
    refused(None, client.admin, "replSetReconfig", 1)


@pytest.mark.embedded
def test_default_concerns(own):
    own, client = own
    initiate(own, client)
    wait_for_primary(client)
    admin = client.admin
    before = admin.command("getDefaultRWConcern")
    assert before["defaultWriteConcern"] == {"w": "majority", "wtimeout": 0} and before["defaultWriteConcernSource"] == "implicit"
    assert "updateOpTime" not in before

    def set_to(**fields):
        return admin.command("setDefaultRWConcern", **fields)

    refused(2, admin, "setDefaultRWConcern")
    for code, concern in [(2, {"level": "snapshot"}), (2, {"level": "linearizable"}), (9, {"level": "nope"}),
                          (2, {"afterClusterTime": bson.Timestamp(1, 1)})]:
        refused(code, admin, "setDefaultRWConcern", defaultReadConcern=concern)
    for code, concern in [(2, {"j": True}), (2, {"w": 0}), (79, {"w": "nope"}), (9, {"w": 51})]:
        refused(code, admin, "setDefaultRWConcern", defaultWriteConcern=concern)
    found = set_to(defaultReadConcern={"level": "majority"})
    assert found["defaultReadConcern"] == {"level": "majority"} and found["defaultReadConcernSource"] == "global"
    assert found["defaultWriteConcernSource"] == "implicit" and found["updateOpTime"] and found["updateWallClockTime"]
    found = set_to(defaultWriteConcern={"w": 1})
    assert found["defaultWriteConcern"] == {"w": 1, "wtimeout": 0} and found["defaultWriteConcernSource"] == "global"
    assert found["defaultReadConcern"] == {"level": "majority"}
    refused(20, admin, "setDefaultRWConcern", defaultWriteConcern={})
    assert set_to(defaultReadConcern={})["defaultReadConcernSource"] == "implicit"
    stored = client.config.settings.find_one({"_id": "ReadWriteConcernDefaults"})
    assert stored["defaultWriteConcern"] == {"w": 1, "wtimeout": 0} and "defaultReadConcern" not in stored
    shown = admin.command("getDefaultRWConcern", inMemory=True)
    assert shown["inMemory"] is True and shown["defaultWriteConcern"] == {"w": 1, "wtimeout": 0}
    assert admin.command("serverStatus")["defaultRWConcern"]["defaultWriteConcern"] == {"w": 1, "wtimeout": 0}
    refused(14, admin, "getDefaultRWConcern", inMemory=1)
    # A write that names no concern has the default; one that names its own keeps it.
    set_to(defaultWriteConcern={"w": 2, "wtimeout": 1})
    reply = client.ops.command("insert", "c", documents=[{}])
    assert reply["n"] == 1 and reply["writeConcernError"]["code"] in (64, 100)
    assert "writeConcernError" not in client.ops.command("insert", "c", documents=[{}], writeConcern={"w": 1})


@pytest.mark.embedded
def test_settings_outlive_a_restart():
    with server.Server("--replSet", "rs0") as own:
        with pymongo.MongoClient(own.uri) as client:
            initiate(own, client, tags={"a": "b"})
            wait_for_primary(client)
            client.admin.command("setDefaultRWConcern", defaultWriteConcern={"w": 1, "wtimeout": 7})
            client.admin.command("setUserWriteBlockMode", **{"global": True})
        own.terminate()
        own.start()
        with pymongo.MongoClient(own.uri) as client:
            wait_for_primary(client)
            assert client.admin.command("getDefaultRWConcern")["defaultWriteConcern"] == {"w": 1, "wtimeout": 7}
            assert client.admin.command("replSetGetConfig")["config"]["members"][0]["tags"] == {"a": "b"}
            with pytest.raises(pymongo.errors.WriteError) as error:
                client.ops.c.insert_one({})
            assert error.value.code == 371
            refused(23, client.admin, "replSetInitiate", {})


# ---- what dbStats and others tell


def test_db_stats_of_the_file_system(client, db):
    db.c.insert_one({})
    one, thousand = db.command("dbStats"), db.command("dbStats", scale=1000)
    for name in "fsUsedSize", "fsTotalSize":
        assert one[name] > 0 and isinstance(one[name], float)
        assert abs(one[name] / 1000 - thousand[name]) < 1e9
    assert one["fsTotalSize"] / 1000 == thousand["fsTotalSize"]


def test_current_op_shows_its_caller(client):
    for shown in (client.admin.command("currentOp")["inprog"], list(client.admin.aggregate([{"$currentOp": {}}]))):
        own = [operation for operation in shown
               if "currentOp" in operation.get("command", {}) or "aggregate" in operation.get("command", {})]
        assert own and own[0]["active"] is True and own[0]["ns"] == "admin.$cmd.aggregate", shown


def test_too_many_indexes_name_the_key(db):
    db.c.insert_one({})
    db.command("createIndexes", "c", indexes=[{"key": {"f%d" % n: 1}, "name": "f%d" % n} for n in range(63)])
    message = refused(67, db, "createIndexes", "c", indexes=[{"key": {"z": 1}, "name": "z_1"}])
    assert message == "add index fails, too many indexes for %s.c key:{ z: 1 }" % db.name
    message = refused(67, db, "createIndexes", "d", indexes=[{"key": {"g%d" % n: 1}, "name": "g%d" % n} for n in range(64)])
    assert message.endswith("key:{ g63: 1 }")
    assert "d" not in db.list_collection_names()
    db.create_collection("e")
    # Only this number of them are compared with each other.
    message = refused(67, db, "createIndexes", "e",
                      indexes=[{"key": {"h%d" % n: 1}, "name": "h%d" % n} for n in range(20_000)], maxTimeMS=20_000)
    assert message.startswith("Index build failed: ") and message.endswith("key:{ h63: 1 }")


@pytest.mark.parametrize("command", [
    {"find": "c", "mayBypassWriteBlocking": True},
    {"insert": "c", "documents": [{}], "mayBypassWriteBlocking": True},
    {"findAndModify": "c", "query": {}, "remove": True, "batchSize": 1, "singleBatch": True},
    {"listIndexes": "c", "isTimeseriesNamespace": True},
    {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}], "isTimeseriesNamespace": True},
])
def test_fields_that_programs_send(db, command):
    db.create_collection("c")
    assert db.command(command)["ok"] == 1


def test_fields_that_are_unknown(client, db):
    refused(40415, db, "insert", "c", documents=[{}], let={})
    refused(40415, client.admin, "getCmdLineOpts", 1, hint={})
