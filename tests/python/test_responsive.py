"""Nobody waits for another's costly statement: pings of other connections are answered while it runs."""
import contextlib
import os
import re
import socket
import struct
import threading
import time
import zlib

import bson
import pymongo
import pytest
import raw
import server
from bson import Regex
from pymongo import MongoClient

#: Connections that send the costly statement: more than there are network workers.
SENDERS = 8
#: Connections that ping meanwhile: enough for every worker to have some.
PINGERS = 6
#: The bound, in seconds, for every ping while the statements are received, parsed and executed.
#: The time for which the worker or this thread waited for a processor does not count.
BOUND = 0.050
#: The time for which pings are sent.
PERIOD = 0.5
#: A run in which the machine itself was late is repeated; a worker that is held is so in each.
TRIES = 6

EVIL = "(a|aa)+$"
DEEP = {"$map": {"input": {"$range": [0, 1000]}, "in": {
    "$size": {"$filter": {"input": {"$range": [0, 1000]}, "cond": {"$gt": ["$$this", 5]}}}}}}
SLOW = {"$size": DEEP}
SLEEP = "sleep(600000)"


def nested(depth):
    doc = {"a": 1}
    for _ in range(depth):
        doc = {"a": doc}
    return doc


def ring(count):
    from math import cos, pi, sin
    points = [[40 * cos(2 * pi * i / count), 40 * sin(2 * pi * i / count)] for i in range(count)]
    return {"type": "Polygon", "coordinates": [points + points[:1]]}


def find(filter, **more):
    return {"find": "c", "filter": filter, **more}


def update(change, query=None, **more):
    return {"update": "c", "updates": [{"q": query or {"_id": 1}, "u": change, **more}]}


#: The costliest of what the language allows, all of it of one document found by its `_id`, or of
#: a long statement.
STATEMENTS = {
    "$where": lambda: find({"_id": 1, "$where": SLEEP}),
    "$expr": lambda: find({"_id": 1, "$expr": {"$gt": [SLOW, -1]}}),
    "$jsonSchema": lambda: find({"_id": 1, "$jsonSchema": {"properties": {"s": {"pattern": EVIL}}}}),
    "$regex": lambda: find({"_id": 1, "s": {"$regex": EVIL}}),
    "regex in $in": lambda: find({"_id": 1, "s": {"$in": [Regex(EVIL)]}}),
    "projection": lambda: find({"_id": 1}, projection={"x": SLOW}),
    "projection by regex": lambda: find({"_id": 1}, projection={
        "x": {"$regexFindAll": {"input": "$s", "regex": "(a?){20}b"}}}),
    "projection of arrays": lambda: find({"_id": 1}, projection={f"x{i}": ["$a"] for i in range(500)}),
    "let": lambda: find({"_id": 1}, let={"x": SLOW}),
    "$or of many": lambda: find({"$or": [{"_id": i} for i in range(150_000)]}),
    "$in of many": lambda: find({"_id": {"$in": list(range(1_000_000))}}),
    "$nin of many": lambda: find({"_id": 1, "s": {"$nin": [str(i) for i in range(300_000)]}}),
    "$and of $or": lambda: find({"$and": [{"$or": [{f"f{i}": j} for j in range(30)]} for i in range(30)]}),
    "deep": lambda: find({"_id": 1, **nested(90)}),
    "long path": lambda: find({"_id": 1, ".".join(["0"] * 190): 1}),
    "polygon": lambda: find({"_id": 1, "p": {"$geoWithin": {"$geometry": ring(20_000)}}}),
    "text": lambda: find({"_id": 1, "$text": {"$search": " ".join(f"word{i}" for i in range(50_000))}}),
    "sort by collation": lambda: find({"_id": 1}, sort={f"f{i}": 1 for i in range(30)},
                                      collation={"locale": "zh", "strength": 5}),
    "large documents": lambda: find({"_id": {"$in": ["large0", "large1", "large2"]}}),
    "count": lambda: {"count": "c", "query": {"_id": 1, "$where": SLEEP}},
    "distinct": lambda: {"distinct": "c", "key": "s", "query": {"_id": 1, "$where": SLEEP}},
    "explain": lambda: {"explain": find({"_id": 1, "$where": SLEEP}), "verbosity": "executionStats"},
    "aggregate": lambda: {"aggregate": "c", "pipeline": [{"$match": {"_id": 1}}, {"$set": {"x": SLOW}}],
                          "cursor": {}},
    "update by pipeline": lambda: update([{"$set": {"x": SLOW}}]),
    "update by $where": lambda: update({"$set": {"x": 1}}, {"_id": 1, "$where": SLEEP}),
    "update with arrayFilters": lambda: update({"$set": {"a.$[e].b": 1}}, arrayFilters=[
        {"e.s": {"$regex": EVIL}}]),
    "update of many fields": lambda: update({"$set": {f"f{i}": i for i in range(30_000)}}),
    "update by $pull": lambda: update({"$pull": {"a": {"s": {"$regex": EVIL}}}}),
    "update by $pullAll": lambda: update({"$pullAll": {"a": list(range(100_000, 300_000))}}),
    "update by $addToSet": lambda: update({"$addToSet": {"a": {"$each": list(range(100_000, 130_000))}}}),
    "update of a large document": lambda: update({"$inc": {"n": 1}}, {"_id": "large0"}),
    "update under a validator": lambda: {**update({"$inc": {"n": 1}}), "update": "v"},
    "insert under a validator": lambda: {"insert": "v", "documents": [{"s": "a" * 40 + "b"}]},
    "upsert": lambda: update([{"$set": {"x": SLOW}}], {"_id": 7}, upsert=True),
    "delete": lambda: {"delete": "c", "deletes": [{"q": {"_id": 1, "$where": SLEEP}, "limit": 1}]},
    "findAndModify": lambda: {"findAndModify": "c", "query": {"_id": 1}, "update": [{"$set": {"x": SLOW}}]},
    "findAndModify that shows": lambda: {"findAndModify": "c", "query": {"_id": 1}, "update": {"$inc": {"n": 1}},
                                         "fields": {"x": SLOW}},
    "large insert": lambda: {"insert": "w", "documents": [{"a": list(range(1000))} for _ in range(1000)]},
    "insert of many keys": lambda: {"insert": "m", "documents": [{"a": list(range(4000))}]},
    "insert of places": lambda: {"insert": "p", "documents": [{"p": ring(1500)}]},
    "mapReduce": lambda: {"mapReduce": "c", "map": "function() { sleep(600000); }",
                          "reduce": "function(k, v) { return 1; }", "out": {"inline": 1}},
    "listCollections": lambda: {"listCollections": 1, "filter": {"$where": SLEEP}},
}


@pytest.fixture(scope="module")
def own():
    """A server of its own: operations that it cannot end must not affect other tests."""
    with server.Server() as own:
        with MongoClient(own.uri) as client:
            db = client.costly
            db.c.insert_one({"_id": 1, "s": "a" * 60 + "b", "a": list(range(2000)), "n": 0, "p": [1, 1],
                             "0": [{"0": [{"0": 1}]}]})
            db.c.insert_many([{"_id": i} for i in range(2, 100)])
            for i in range(3):
                db.c.insert_one({"_id": f"large{i}", "a": ["x" * 100] * 140_000})
            db.c.create_index([("s", "text")])
            for i in range(10):
                db.c.create_index(f"f{i}")
            db.create_collection("v", validator={"$and": [{"s": {"$not": {"$regex": EVIL}}},
                                                          {"$expr": {"$gt": [SLOW, -1]}}]})
            db.v.insert_one({"_id": 1, "s": "x", "n": 0}, bypass_document_validation=True)
            db.m.create_indexes([pymongo.IndexModel([("a", 1), (f"b{i}", 1)]) for i in range(20)])
            db.p.create_index([("p", "2dsphere")])
        yield own
        assert own.process.poll() is None, own.tail()


def message(body, opcode=2013):
    payload = struct.pack("<I", 0) + b"\0" + body
    return struct.pack("<iiii", 16 + len(payload), 1, 0, opcode) + payload


def compressed(plain, level=1, says=None):
    """The same message, inflated by its receiver; `says` is the length that it claims to have then."""
    packed = zlib.compress(plain[16:], level)
    head = struct.pack("<iiB", 2013, len(plain) - 16 if says is None else says, 2)
    return struct.pack("<iiii", 16 + len(head) + len(packed), 1, 0, 2012) + head + packed


class Senders:
    """Connections that send messages and read nothing."""

    def __init__(self, port, messages):
        self.sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(SENDERS)]
        for sock in self.sockets:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
        self.messages = messages
        self.left = [b""] * SENDERS

    def send(self):
        """Sends the messages once, as fast as they are taken, on a thread."""
        thread = threading.Thread(target=self.send_once)
        thread.start()
        return thread

    def push(self):
        """Sends as much as is taken."""
        for number, sock in enumerate(self.sockets):
            left = self.left[number] or self.messages
            try:
                sent = sock.send(left)
                self.left[number] = left[sent:] if sent < len(left) else b""
            except BlockingIOError:
                self.left[number] = left

    def send_once(self):
        for sock in self.sockets:
            sock.settimeout(30)
            sock.sendall(self.messages)

    def close(self):
        for sock in self.sockets:
            sock.close()


class Processors:
    """The time that network workers, and this thread, have waited for a processor, which others used."""

    def __init__(self, own):
        tasks = "/proc/%d/task" % own.process.pid
        self.files = ["/proc/thread-self/schedstat"]
        for task in os.listdir(tasks):
            # mongod has a thread for each connection, which may have ended.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), open("%s/%s/comm" % (tasks, task)) as comm:
                if re.fullmatch(r"net-\d+\n", comm.read()):
                    self.files.append("%s/%s/schedstat" % (tasks, task))
        assert len(self.files) > 1 or server.is_mongod(), "there are no network workers"

    def waits(self):
        """Of this thread and of each worker, in seconds."""
        found = []
        for name in self.files:
            with open(name) as stat:
                found.append(int(stat.read().split()[1]) / 1e9)
        return found


def slowest_ping(own, pingers, period, between=lambda: None):
    """The time of the slowest ping within a period, without the time in which no processor was free."""
    processors = Processors(own)
    slowest, until, before = 0, time.perf_counter() + period, processors.waits()
    while time.perf_counter() < until:
        for connection in pingers:
            between()
            began = time.perf_counter()
            assert connection.command("admin", ping=1)["ok"] == 1
            taken = time.perf_counter() - began
            now = processors.waits()
            client, *workers = [after - earlier for after, earlier in zip(now, before)]
            before = now
            slowest = max(slowest, taken - client - max(workers, default=0))
    return slowest


def quiet(client):
    """Waits until nothing runs but the one who asks."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        running = client.admin.aggregate([{"$currentOp": {}}, {"$match": {"ns": {"$regex": "^costly"}}}])
        if not [op for op in running if op.get("active")]:
            return
        time.sleep(0.02)


@contextlib.contextmanager
def connections(own, messages):
    pingers = [raw.Raw(own.port) for _ in range(PINGERS)]
    senders = Senders(own.port, messages)
    try:
        yield pingers, senders
    finally:
        senders.close()
        for pinger in pingers:
            pinger.socket.close()


@pytest.mark.parametrize("name", STATEMENTS)
def test_others_are_answered_beside(own, name):
    command = {**STATEMENTS[name](), "$db": "costly"}
    command.setdefault("maxTimeMS", 1000)
    messages = message(bson.encode(command))
    began, slowest = os.path.getsize(own.log), []
    while not slowest or slowest[-1] >= BOUND:
        assert len(slowest) < TRIES, "slowest pings of %d runs: %s\n%s" % (TRIES, slowest, own.tail(600))
        with connections(own, messages) as (pingers, senders):
            sending = senders.send()
            slowest.append(slowest_ping(own, pingers, PERIOD))
            sending.join(30)
        with MongoClient(own.uri) as client:
            quiet(client)
    with open(own.log) as log:
        log.seek(began)
        assert not [line for line in log if "held up" in line]


def test_large_messages_are_inflated_aside(own):
    """Fifteen kilobytes that become fifteen megabytes, one after the other from many connections."""
    large = {"ping": 1, "$db": "admin", "a": [b"\0" * 1_000_000] * 15}
    packed = compressed(message(bson.encode(large)))
    assert len(packed) < 100_000
    slowest = []
    while not slowest or slowest[-1] >= BOUND:
        assert len(slowest) < TRIES, slowest
        with connections(own, packed) as (pingers, senders):
            slowest.append(slowest_ping(own, pingers, PERIOD, senders.push))


def is_closed(sock):
    sock.settimeout(20)
    try:
        return sock.recv(100) == b""
    except ConnectionResetError:
        return True


reads_little = pytest.mark.skipif(server.is_mongod(), reason="mongod 6.0 reads what strangers send, however much it is")


@reads_little
def test_strangers_send_little():
    with server.Server("--auth") as own:
        for size, opens in [(10_000, True), (20_000, False), (40_000_000, False)]:
            body = bson.encode({"ping": b"\0" * size, "$db": "admin"})
            for sent in (message(body), compressed(message(body))):
                with socket.create_connection(("127.0.0.1", own.port)) as sock:
                    # A message that is too long is recognized by its start.
                    sock.sendall(sent[:9000] if not opens else sent)
                    if opens:
                        assert len(sock.recv(1000)) > 16
                    else:
                        assert is_closed(sock)


def memory(own):
    """Returns the maximum memory of the process so far, in bytes."""
    with open("/proc/%d/status" % own.process.pid) as status:
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read())[1]) << 10


def test_a_message_that_lies_about_its_length_is_rejected():
    """Of a client that has not logged in: fifteen kilobytes that become fifteen megabytes are not inflated."""
    large, small = (message(bson.encode({"ping": b"\0" * size, "$db": "admin"})) for size in (15_000_000, 100))
    lies = [compressed(large, 9, says) for says in (0, 100, 10_000)]
    lies += [compressed(small, 9, says) for says in (-1, 0, 50, 5000, 48_000_000, (1 << 31) - 1)]
    assert max(map(len, lies)) < 16_000
    with server.Server("--auth") as own:
        with socket.create_connection(("127.0.0.1", own.port)) as sock:
            sock.sendall(compressed(small))
            assert len(sock.recv(1000)) > 16
        before = memory(own)
        for _ in range(5):
            for lie in lies:
                with socket.create_connection(("127.0.0.1", own.port)) as sock:
                    sock.sendall(lie)
                    assert is_closed(sock)
        assert memory(own) - before < 14_000_000
        with raw.Raw(own.port) as known:
            assert known.command("admin", ping=1)["ok"] == 1


@reads_little
def test_strangers_starve_nobody():
    """Each sends a message that would become large, and comes again when it is sent away."""
    body = bson.encode({"ping": b"\0" * 15_000_000, "$db": "admin"})
    packed = compressed(message(body), 9)
    assert len(packed) < 16_000
    with server.Server("--auth") as own:
        with raw.Raw(own.port) as first:
            # The port answers before there are workers.
            assert first.command("admin", ping=1)["ok"] == 1
        strangers = []

        def come():
            while len(strangers) >= SENDERS:
                strangers.pop(0).close()
            strangers.append(socket.create_connection(("127.0.0.1", own.port)))
            strangers[-1].sendall(packed)

        slowest = []
        while not slowest or slowest[-1] >= BOUND:
            assert len(slowest) < TRIES, slowest
            with connections(own, b"") as (pingers, _):
                slowest.append(slowest_ping(own, pingers, PERIOD, come))
        for sock in strangers:
            sock.close()
