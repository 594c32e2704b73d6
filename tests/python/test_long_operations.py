"""Operations that take long: others pass them, operators see and end them, and the server ends without them."""
import struct
import time

import bson
import pytest
import raw
import server
from bson import Binary
from pymongo import MongoClient

#: Longer than any test: it ends by being ended.
SLEEP = "sleep(600000)"
SLOW_STAGES = [{"$set": {"x": {"$function": {"body": "function() { %s; }" % SLEEP, "args": [], "lang": "js"}}}}]
MAX_TIME_EXPIRED = 50
INTERRUPTED = (11601, 11600, 11602)


@pytest.fixture
def own():
    with server.Server() as own:
        yield own


@pytest.fixture
def admin(own):
    with MongoClient(own.uri) as client:
        yield client


def begin(port, body):
    """A connection that has sent a command and waits for its reply."""
    connection = raw.Raw(port)
    body = bson.encode(body)
    connection.socket.sendall(struct.pack("<iiiiI", 21 + len(body), 1, 0, 2013, 0) + b"\0" + body)
    return connection


def reply(connection):
    return bson.decode(connection.receive()[5:])


def running(client, **conditions):
    return client.admin.command({"currentOp": 1, "ns": "test.c", "active": True, **conditions})["inprog"]


def wait_for(count, look):
    """Waits until `look` finds this number."""
    until = time.monotonic() + 60
    while len(found := look()) != count:
        assert time.monotonic() < until, "there are %d, not %d" % (len(found), count)
        time.sleep(0.02)
    return found


def session(number):
    return {"id": Binary(number.to_bytes(16, "big"), 4)}


def test_many_long_operations_lock_nobody_out(own, admin):
    """More of them than threads that are usual; then all sessions are killed, and so are they."""
    count = 300
    admin.test.c.insert_one({"_id": 1})
    sleepers = [begin(own.port, {"find": "c", "filter": {"_id": 1, "$where": SLEEP}, "lsid": session(n), "$db": "test"})
                for n in range(count)]
    # Each needs a thread of its own, including those after the 256th.
    wait_for(count, lambda: running(admin, op="query"))
    assert admin.admin.command("serverStatus")["ok"] == 1
    assert admin.test.list_collection_names() == ["c"]
    assert admin.test.c.count_documents({"_id": {"$gte": 0}}) == 1
    admin.test.fresh.insert_one({"_id": 1})
    admin.test.fresh.create_index("a")
    admin.admin.command("killAllSessions", [])
    for sleeper in sleepers:
        assert reply(sleeper)["code"] in INTERRUPTED
        sleeper.socket.close()
    wait_for(0, lambda: running(admin))


@pytest.mark.skipif(server.is_mongod(), reason="mongod has a thread for each connection")
@pytest.mark.embedded
def test_more_long_operations_than_threads_lock_no_operator_out(own, admin):
    """All places for long operations are taken: further ones wait, no longer than they may, and operators do not."""
    threads, more = 1024, 40
    admin.test.c.insert_one({"_id": 1})
    sleeping = {"find": "c", "filter": {"_id": 1, "$where": SLEEP}, "$db": "test"}
    sleepers = [begin(own.port, {**sleeping, "lsid": session(n)}) for n in range(threads + more)]
    until = time.monotonic() + 120
    while len(found := running(admin, op="query")) < threads + more:
        assert time.monotonic() < until, len(found)
        time.sleep(0.1)
    # One that has to wait for a place ends when its time is over.
    began = time.monotonic()
    with raw.Raw(own.port) as connection:
        answer = connection.command("test", **{name: value for name, value in sleeping.items() if name != "$db"}, maxTimeMS=300)
    assert answer["code"] == MAX_TIME_EXPIRED and time.monotonic() - began < 3
    # Short work that needs no thread goes on, and so does what operators need.
    assert admin.test.c.find_one({"_id": 1}) == {"_id": 1}
    assert admin.admin.command("serverStatus")["ok"] == 1
    victim = running(admin, op="query")[0]["opid"]
    admin.admin.command("killOp", op=victim)
    wait_for(0, lambda: running(admin, opid=victim))
    admin.admin.command("killAllSessions", [])
    for sleeper in sleepers:
        assert reply(sleeper)["code"] in INTERRUPTED
        sleeper.socket.close()
    wait_for(0, lambda: running(admin))


@pytest.mark.skipif(server.is_mongod(), reason="of two updates of a document, mongod does the later one first")
def test_who_waits_for_another_write_ends_in_time(own, admin):
    admin.test.c.insert_one({"_id": 1})
    first = begin(own.port, {"update": "c", "updates": [{"q": {"_id": 1}, "u": SLOW_STAGES}], "$db": "test"})
    wait_for(1, lambda: running(admin))
    waits = {
        "an update": {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"y": 1}}}]},
        "a delete": {"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]},
        "findAndModify": {"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"y": 1}}},
        "collMod": {"collMod": "c", "validationLevel": "off"},
        "drop": {"drop": "c"},
        "createIndexes": {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]},
    }
    # The first is killed before it reaches the document: until then others pass it.
    nothing = {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$unset": {"y": 1}}}]}
    with raw.Raw(own.port) as connection:
        wait_for(1, lambda: [answer for answer in [connection.command("test", **nothing, maxTimeMS=100)]
                             if answer.get("code") == MAX_TIME_EXPIRED])
    for what, command in waits.items():
        with raw.Raw(own.port) as connection:
            answer = connection.command("test", **command, maxTimeMS=300)
            assert answer.get("code") == MAX_TIME_EXPIRED, (what, answer)
    # One without a limit of its own is ended from outside.
    for command in (waits["an update"], waits["collMod"]):
        waiting = begin(own.port, {**command, "comment": "ends", "$db": "test"})
        op, = wait_for(1, lambda: running(admin, **{"command.comment": "ends"}))
        admin.admin.command("killOp", op=op["opid"])
        assert reply(waiting)["code"] in INTERRUPTED
        waiting.socket.close()
    op, = wait_for(1, lambda: running(admin))
    admin.admin.command("killOp", op=op["opid"])
    assert reply(first)["code"] in INTERRUPTED
    assert admin.test.c.find_one() == {"_id": 1}
    first.socket.close()


def test_a_write_that_waits_for_fsync_is_shown(own, admin):
    admin.test.c.insert_one({"_id": 1})
    admin.admin.command({"fsync": 1, "lock": True})
    waiting = [begin(own.port, {**command, "$db": "test"}) for command in (
        {"insert": "c", "documents": [{"_id": 2}]},
        {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}]})]
    try:
        found = wait_for(2, lambda: running(admin, waitingForLock=True))
        assert {op["op"] for op in found} == {"insert", "update"}
        insert = next(op for op in found if op["op"] == "insert")
        # Inserted documents are not shown.
        assert insert["command"]["insert"] == "c" and "documents" not in insert["command"]
        with raw.Raw(own.port) as connection:
            assert connection.command("test", insert="c", documents=[{}], maxTimeMS=200)["code"] == MAX_TIME_EXPIRED
        admin.admin.command("killOp", op=insert["opid"])
        assert reply(waiting[0])["code"] in INTERRUPTED
    finally:
        admin.admin.command("fsyncUnlock")
    assert reply(waiting[1])["n"] == 1
    assert admin.test.c.find_one({"_id": 1}) == {"_id": 1, "a": 1}
    for connection in waiting:
        connection.socket.close()


def test_a_long_command_is_shown_by_its_front(own, admin):
    admin.test.c.insert_one({"_id": 1})
    long = {"find": "c", "filter": {"_id": 1, "$where": SLEEP, "a": {"$ne": "x" * 30_000}}, "comment": "why"}
    connection = begin(own.port, {**long, "$db": "test"})
    op, = wait_for(1, lambda: running(admin))
    text = op["command"]["$truncated"]
    assert text.startswith('{ find: "c", filter: { _id: 1, $where: "sleep(600000)", a: { $ne: "xxx')
    assert "x" * 150 + '..."' in text and "x" * 151 not in text
    assert op["command"]["comment"] == "why"
    stages = [{"$currentOp": {}}, {"$match": {"ns": "test.c"}}]
    whole, = admin.admin.aggregate(stages)
    assert whole["command"]["filter"] == long["filter"]
    stages[0] = {"$currentOp": {"truncateOps": True}}
    assert list(admin.admin.aggregate(stages))[0]["command"] == op["command"]
    admin.admin.command("killOp", op=op["opid"])
    assert reply(connection)["code"] in INTERRUPTED
    connection.socket.close()


def test_many_values_are_cut_too(own, admin):
    admin.test.c.insert_one({"_id": 1})
    connection = begin(own.port, {"find": "c", "filter": {"_id": 1, "a": {"$nin": list(range(100_000))},
                                                          "$where": SLEEP}, "$db": "test"})
    op, = wait_for(1, lambda: running(admin))
    assert len(op["command"]["$truncated"]) == 1000 and op["command"]["$truncated"].endswith("...")
    connection.socket.close()
    wait_for(0, lambda: running(admin))


def test_the_server_ends_without_waiting_for_them():
    """Operations that can be interrupted are: nothing waits for them until the grace period is over."""
    with server.Server() as own, MongoClient(own.uri) as client:
        client.test.c.insert_many([{"_id": i} for i in range(10)])
        held = {"update": "c", "updates": [{"q": {"_id": 1}, "u": SLOW_STAGES}]}
        connections = [begin(own.port, {**command, "$db": "test"}) for command in (
            {"find": "c", "filter": {"_id": 2, "$where": SLEEP}},
            {"aggregate": "c", "pipeline": SLOW_STAGES, "cursor": {}},
            {"mapReduce": "c", "map": "function() { %s; }" % SLEEP, "reduce": "function(k, v) {}", "out": {"inline": 1}},
            held)]
        wait_for(4, lambda: running(client))
        # These wait for the ones before.
        connections += [begin(own.port, {**command, "$db": "test"}) for command in (
            held, {"collMod": "c", "validationLevel": "off"}, {"drop": "c"})]
        wait_for(7, lambda: running(client))
        began = time.monotonic()
        assert own.terminate() == 0
        # Their grace is ten seconds.
        assert time.monotonic() - began < 5, own.tail()
        assert "did not end in time" not in own.tail(20_000)
        for connection in connections:
            connection.socket.close()
