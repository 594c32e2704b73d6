"""An operation without an end is ended: by its time limit, by killOp, when its client leaves. One that would take more
memory than there is is rejected before."""
import resource
import socket
import threading
import time

import bson
import pymongo
import pytest
from lateness import LATE, check_late
from pymongo.errors import OperationFailure
from waiting import until

import server

# Three times a million: nothing here is ever done.
RANGES = [stage for field in "ijk" for stage in (
    {"$set": {field: {"$range": [0, 1_000_000]}}}, {"$unwind": "$" + field})]

ENDLESS = {
    "count": RANGES + [{"$count": "n"}],
    "group": RANGES + [{"$group": {"_id": "$i", "n": {"$sum": 1}}}],
    "sort": RANGES + [{"$sort": {"k": -1}}, {"$limit": 3}],
    "facet": RANGES + [{"$facet": {"a": [{"$count": "n"}]}}],
    "redact": RANGES + [{"$redact": "$$PRUNE"}],
    "bucketAuto": RANGES + [{"$bucketAuto": {"groupBy": "$k", "buckets": 2}}],
    "addToSet": RANGES + [{"$group": {"_id": None, "s": {"$addToSet": {"$mod": ["$k", 10]}}}}],
    "match": RANGES + [{"$match": {"k": -1}}],
    "schema": RANGES + [{"$match": {"$jsonSchema": {"properties": {"k": {"maximum": -1}}}}}],
    "windows": RANGES + [{"$project": {"k": 1}}, {"$setWindowFields": {"sortBy": {"k": 1}, "output": {
        "s": {"$sum": "$k", "window": {"documents": [-1, 1]}}}}}],
    "lookup": [{"$lookup": {"from": "c", "pipeline": RANGES + [{"$match": {"k": -1}}], "as": "found"}}],
    # One search: at each position the pattern passes over the rest of the text, and goes back.
    "regexFindAll": [{"$project": {"n": {"$size": {"$regexFindAll": {"input": "$text", "regex": "[^b]*[bc]"}}}}}],
    "regexMatch": [{"$project": {"n": {"$regexMatch": {"input": "$text", "regex": "[^b]*[bc]"}}}}],
    "nested maps": [{"$project": {"n": {"$reduce": {"input": {"$range": [0, 1_000_000]}, "initialValue": 0, "in": {
        "$size": {"$filter": {"input": {"$range": [0, {"$add": [100_000, "$$this"]}]}, "cond": False}}}}}}}],
    "sleep": [{"$project": {"n": {"$function": {"body": "function() { sleep(3600000) }", "args": [], "lang": "js"}}}}],
    "numbers": [{"$project": {"n": {"$function": {
        "body": "function() { let a = 3n ** 200000n; for (;;) { const b = a * a } }", "args": [], "lang": "js"}}}}],
    "indexOf": [{"$project": {"n": {"$function": {
        "body": "function() { const a = 'a'.repeat(5e7), b = 'a'.repeat(1e6) + 'b'; for (;;) a.indexOf(b) }",
        "args": [], "lang": "js"}}}}],
}


@pytest.fixture
def endless(c):
    c.insert_one({"_id": 1, "text": "a" * 150_000})
    return c


# A single operation on these numbers takes longer.
SLOW = {"numbers": 1.0}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_time_limit_ends_it(endless, name):
    if server.is_mongod() and name in ("numbers", "indexOf"):
        pytest.skip("the engine of the other server is not asked")

    def run():
        began = time.perf_counter()
        with pytest.raises(OperationFailure) as failed:
            list(endless.aggregate(ENDLESS[name], maxTimeMS=100, allowDiskUse=True))
        assert failed.value.code == 50, failed.value
        return time.perf_counter() - began - 0.1

    check_late(run, SLOW.get(name, LATE))


LONG = {
    "or": {"$or": [{"a": i, "b": {"$gt": i}} for i in range(40_000)]},
    "or of fields": {"$or": [{"f%d" % (i % 9): i, "b": {"$gt": i}} for i in range(40_000)]},
    "and": {"$and": [{"a": {"$ne": i}} for i in range(40_000)]},
}


@pytest.mark.parametrize("name", LONG)
def test_a_time_limit_ends_the_search_for_a_plan(db, name):
    """A statement with this number of conditions takes minutes to plan."""
    db.c.insert_many([{"a": i} for i in range(10)])
    db.c.create_indexes([pymongo.IndexModel(keys) for keys in (
        *([("f%d" % i, 1)] for i in range(9)), [("a", 1)], [("a", 1), ("b", 1)], [("b", 1)])])
    with pytest.raises(OperationFailure) as failed:
        db.command("find", "c", filter=LONG[name], maxTimeMS=50)
    assert failed.value.code == 50, str(failed.value)[:300]


def running(client, db):
    ops = client.admin.aggregate([{"$currentOp": {}}, {"$match": {"ns": db.name + ".c", "op": "command"}}])
    return [op["opid"] for op in ops if "aggregate" in op.get("command", {})]


@pytest.mark.parametrize("name", ENDLESS)
def test_kill_op_ends_it(client, endless, name):
    def run():
        ended = []

        def aggregate():
            with pytest.raises(OperationFailure) as failed:
                list(endless.aggregate(ENDLESS[name], allowDiskUse=True))
            ended.append((time.perf_counter(), failed.value.code))

        thread = threading.Thread(target=aggregate)
        thread.start()
        op, = until(lambda: running(client, endless.database))
        # It is well under way.
        time.sleep(0.1)
        killed = time.perf_counter()
        client.admin.command("killOp", op=op)
        thread.join(60)
        (at, code), = ended
        assert code == 11601
        return at - killed

    check_late(run, SLOW.get(name, LATE))


@pytest.mark.parametrize("name", ENDLESS)
def test_it_ends_when_its_client_leaves(client, endless, name):
    host, port = client.address
    body = bson.encode({"aggregate": "c", "pipeline": ENDLESS[name], "cursor": {}, "allowDiskUse": True,
                        "$db": endless.database.name})
    message = (0).to_bytes(4, "little") + b"\0" + body
    head = (16 + len(message)).to_bytes(4, "little") + (1).to_bytes(4, "little") + bytes(4) + (2013).to_bytes(4, "little")

    def run():
        with socket.create_connection((host, port)) as leaver:
            leaver.sendall(head + message)
            until(lambda: running(client, endless.database))
        left = time.perf_counter()
        until(lambda: not running(client, endless.database))
        # Looking takes time, too.
        return time.perf_counter() - left - 0.1

    check_late(run, SLOW.get(name, LATE))


def test_a_search_by_distance_ends(client, db):
    """The index returns documents by distance, of which none satisfies the rest."""
    db.c.create_index([("p", "2dsphere")])
    for start in range(0, 60_000, 5_000):
        db.c.insert_many([{"p": [(i * 7 % 3600) / 10 - 180, (i % 1700) / 10 - 85]} for i in range(start, start + 5_000)])
    near = [{"$geoNear": {"near": {"type": "Point", "coordinates": [0, 0]}, "distanceField": "d", "query": {
        "$expr": {"$gt": [{"$size": {"$filter": {"input": {"$range": [0, 500]}, "cond": {"$lt": ["$$this", 0]}}}}, 0]}}}}]

    def run():
        began = time.perf_counter()
        with pytest.raises(OperationFailure) as failed:
            list(db.c.aggregate(near, maxTimeMS=100))
        assert failed.value.code == 50, failed.value
        return time.perf_counter() - began - 0.1

    check_late(run)


def test_a_waiting_change_stream_ends():
    with server.Server("--replSet", "rs") as own:
        with pymongo.MongoClient(own.uri, directConnection=True) as client:
            if server.is_mongod():
                client.admin.command("replSetInitiate", {"_id": "rs", "members": [{"_id": 0, "host": "127.0.0.1:%d" % own.port}]})
                until(lambda: client.admin.command("hello").get("isWritablePrimary"))
            client.t.c.insert_one({"_id": 1})
            cursor = client.t.command("aggregate", "c", pipeline=[{"$changeStream": {}}], cursor={})["cursor"]

            def wait():
                """One that waits as long as it may comes back empty, soon after its time."""
                began = time.perf_counter()
                reply = client.t.command({"getMore": cursor["id"], "collection": "c", "maxTimeMS": 200})
                assert reply["cursor"]["nextBatch"] == []
                return time.perf_counter() - began - 0.2

            check_late(wait)
            codes = []

            def wait_long():
                try:
                    client.t.command({"getMore": cursor["id"], "collection": "c", "maxTimeMS": 600_000})
                except OperationFailure as failed:
                    codes.append(failed.code)

            thread = threading.Thread(target=wait_long)
            thread.start()
            waiting = {"currentOp": 1, "command.getMore": cursor["id"]}
            op, = until(lambda: client.admin.command(waiting)["inprog"])
            client.admin.command("killOp", op=op["opid"])
            thread.join(30)
            assert codes == [11601]


HUGE = {
    "ranges": {"$map": {"input": {"$range": [0, 100_000]}, "in": {"$range": [0, 100_000]}}},
    "strings": {"$map": {"input": {"$range": [0, 1_000_000]}, "in": "$big"}},
    "replacement": {"$replaceAll": {"input": "$big", "find": "x", "replacement": "$text"}},
    "fields": {"f%d" % i: "$big" for i in range(300)},
    "doubling": {"$reduce": {"input": {"$range": [0, 60]}, "initialValue": ["abc"], "in": ["$$value", "$$value"]}},
}


@pytest.fixture(scope="module")
def small():
    """A server that may have three gigabytes, the space of its code and of its cache included."""
    def bound():
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    if server.is_mongod():
        pytest.skip("the other server does not start in so little")
    with server.Server("--cache-size", "64MB", preexec=bound) as own:
        with pymongo.MongoClient(own.uri) as client:
            client.t.c.insert_one({"_id": 1, "big": "x" * 1_000_000, "text": "y" * 10_000})
            yield client
        assert own.process.poll() is None, own.tail()


@pytest.mark.parametrize("name", HUGE)
def test_what_does_not_fit_is_refused(small, name):
    with pytest.raises(OperationFailure) as failed:
        list(small.t.c.aggregate([{"$project": {"r": HUGE[name]}}]))
    assert failed.value.code in (146, 10334, 13548), failed.value


def test_operations_together_have_a_bound(small):
    """Large ones are refused while others hold what there is; small ones go on."""
    push = [{"$set": {"i": {"$range": [0, 60]}}}, {"$unwind": "$i"}, {"$group": {"_id": None, "all": {"$push": "$big"}}},
            {"$project": {"n": {"$size": "$all"}}}]
    small.admin.command("setParameter", 1, operationMemoryBytesMax=40_000_000)
    try:
        with pytest.raises(OperationFailure) as failed:
            list(small.t.c.aggregate(push))
        assert failed.value.code == 146, failed.value
        assert small.t.c.count_documents({}) == 1
        assert list(small.t.c.aggregate([{"$project": {"n": {"$strLenBytes": "$big"}}}])) == [{"_id": 1, "n": 1_000_000}]
    finally:
        small.admin.command("setParameter", 1, operationMemoryBytesMax=0)
    assert list(small.t.c.aggregate(push))[0]["n"] == 60
