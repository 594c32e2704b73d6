"""Many kinds of writes at once while servers are killed and paused: a single server, and three nodes over one etcd.

Afterwards every write is there that was acknowledged, and each once: in the collections, in their indexes, and in the change streams,
which all show the same events. MARULA_CRASH_ROUNDS sets the number of rounds, MARULA_CRASH_SEED repeats a run.
"""
import contextlib
import datetime
import os
import random
import signal
import threading
import time

import etcd_cluster
import mixed_load
import pymongo
import pytest
import server
import waiting
from pymongo.errors import PyMongoError
from update_descriptions import described

ROUNDS = int(os.environ.get("MARULA_CRASH_ROUNDS", "1"))
# Of each round: more where there are more of them, since nodes need ten to notice that another
# one has ended.
SECONDS = 8 if ROUNDS == 1 else 20
# A node is paused for less time than after which others take it for ended.
PAUSE_MAX = 3
OPTIONS = ["--setParameter", "ttlMonitorSleepSecs=1", "--setParameter", "transactionLifetimeLimitSeconds=3"]
OTHER = server.is_mongod() or "--storage-engine" in server.serve_command()
pytestmark = pytest.mark.skipif(OTHER, reason="the engines are chosen here")


class Watcher(threading.Thread):
    """Follows all changes of the database, each time on one of the servers, and makes the collections from them."""

    def __init__(self, load, seed, servers, start):
        super().__init__(daemon=True)
        self.load, self.rng, self.servers, self.start_time = load, random.Random(seed), servers, start
        self.events, self.collections, self.tokens = [], {}, set()

    def run(self):
        try:
            while not self.is_at_end():
                with contextlib.suppress(PyMongoError):
                    self.follow()
        except BaseException as error:
            self.load.fail(error)

    def is_at_end(self):
        return bool(self.events) and self.events[-1]["ns"]["coll"] == "end" and self.events[-1]["operationType"] == "insert"

    def follow(self):
        place = {"start_at_operation_time": self.start_time}
        if self.events and self.rng.random() < 0.7:
            place = {self.rng.choice(["resume_after", "start_after"]): self.events[-1]["_id"]}
        elif self.events:
            place = {"start_at_operation_time": self.events[-1]["clusterTime"]}
        options = {"full_document": "whenAvailable", "full_document_before_change": "whenAvailable", "show_expanded_events": True}
        until = time.monotonic() + self.rng.uniform(0.5, 3)
        with client_of(self.rng.choice(self.servers)) as client, \
                client.load.watch(max_await_time_ms=50, **place, **options) as stream:
            while time.monotonic() < until and not self.is_at_end():
                event = stream.try_next()
                # By a time a stream begins with the events that were seen at that time.
                if event and not ("start_at_operation_time" in place and event["_id"]["_data"] in self.tokens):
                    self.note(event)

    def note(self, event):
        token = event["_id"]["_data"]
        assert token not in self.tokens, ("twice", event)
        assert not self.events or self.events[-1]["_id"]["_data"] < token, ("out of order", self.events[-1], event)
        self.tokens.add(token)
        self.apply(event)
        self.events.append(event)

    def apply(self, event):
        kind, name = event["operationType"], event["ns"]["coll"]
        if kind == "drop":
            self.collections.pop(name, None)
        elif kind == "rename":
            self.collections[event["to"]["coll"]] = self.collections.pop(name, {})
        if "documentKey" not in event:
            return
        docs, key = self.collections.setdefault(name, {}), event["documentKey"]["_id"]
        before = docs.get(key)
        assert (before is None) == (kind == "insert"), (before, event)
        if kind == "delete":
            del docs[key]
        else:
            docs[key] = event["fullDocument"] if kind != "update" else described(before, event["updateDescription"])
        if name == "own" and kind != "insert":
            assert event["fullDocumentBeforeChange"] == before, (before, event)
            assert event.get("fullDocument") == docs.get(key), (docs.get(key), event)
            assert kind != "update" or docs[key]["v"] == before["v"] + 1, (before, event)


def client_of(own):
    return pymongo.MongoClient(own.uri, serverSelectionTimeoutMS=5_000, retryReads=False)


def prepare(client):
    """Empties the database, makes its collections, and returns the time at which all changes begin."""
    client.drop_database("load")
    db = client.load
    db.create_collection("own", changeStreamPreAndPostImages={"enabled": True})
    for name, options in (("k", {}), ("tags", {}), ("owner", {}), ("u", {"unique": True})):
        db.own.create_index(name, **options)
    db.people.create_index("email", unique=True)
    db.create_collection("capped", capped=True, size=1 << 20, max=mixed_load.CAPPED_MAX)
    db.expiring.create_index("at", expireAfterSeconds=0)
    for name in ("merged", "passing", "ledger"):
        db.create_collection(name)
    db.ledger.create_index("source")
    with client.start_session() as session:
        db.begin.insert_one({}, session=session)
        start = session.operation_time
    for name in ("left", "right"):
        db[name].insert_many([{"_id": n, "balance": mixed_load.BALANCE} for n in range(mixed_load.ACCOUNTS)])
        db[name].create_index("balance")
    return start


def disturb(rng, servers, load):
    """Kills one server after another, and lets it run again; or pauses it."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and not load.is_over.is_set():
        load.is_over.wait(rng.uniform(0.5, 2.5))
        own = rng.choice(servers)
        if rng.random() < 0.6:
            own.kill()
            time.sleep(rng.uniform(0, 1))
            own.start(60.0)
        else:
            own.process.send_signal(signal.SIGSTOP)
            time.sleep(rng.uniform(0, PAUSE_MAX))
            own.process.send_signal(signal.SIGCONT)


def check(load, db, watchers):
    """All collections are what the clients, the streams and the indexes say."""
    found = {name: {doc["_id"]: doc for doc in db[name].find(hint={"$natural": 1})} for name in db.list_collection_names()}
    for name, docs in found.items():
        report = db.command("validate", name, full=True)
        assert report["valid"], report
        assert report["nrecords"] == db[name].estimated_document_count() == len(docs), (name, report["nrecords"], len(docs))
        for index in report["keysPerIndex"]:
            assert {doc["_id"]: doc for doc in db[name].find(hint=index)} == docs, (name, index)
    assert sum(doc["balance"] for name in ("left", "right") for doc in found[name].values()) \
        == 2 * mixed_load.ACCOUNTS * mixed_load.BALANCE
    assert set(found["ledger"]) == {mark for teller in load.of(mixed_load.Teller) for mark in teller.transfers}
    own = {}
    for owner in load.of(mixed_load.Owner):
        own.update(owner.documents)
    assert found["own"] == own
    upserters = load.of(mixed_load.Upserter)
    marks = [mark for doc in found["people"].values() for mark in doc["marks"]]
    marks += [mark for upserter in upserters for mark in upserter.removed]
    assert sorted(marks) == sorted(mark for upserter in upserters for mark in upserter.marks)
    inserted = {}
    for watcher in watchers:
        assert [event["_id"] for event in watcher.events] == [event["_id"] for event in watchers[0].events]
        for name, docs in found.items():
            assert watcher.collections.get(name, {}) == docs or name == "capped", name
    for event in watchers[0].events:
        if event["operationType"] == "insert":
            inserted.setdefault(event["ns"]["coll"], []).append(event["documentKey"]["_id"])
    for name in ("capped", "expiring"):
        assert sorted(inserted.get(name, [])) == sorted(
            mark for appender in load.of(mixed_load.Appender) for mark in appender.marks[name]), name
    appended = {mark for appender in load.of(mixed_load.Appender) for mark in appender.marks["passing"]}
    lost = appended - set(inserted.get("passing", []))
    assert not lost, (lost, [name for name, docs in found.items() if lost & set(docs)],
                      [name for name, ids in inserted.items() if lost & set(ids)])
    assert len(set(inserted.get("passing", []))) == len(inserted.get("passing", []))
    kept = list(found["capped"])
    assert kept == inserted.get("capped", [])[-len(kept):]


def run(seed, servers):
    rng = random.Random(seed)
    with client_of(servers[0]) as client:
        waiting.until(lambda: client.admin.command("hello")["isWritablePrimary"])
        start = prepare(client)
        load = mixed_load.Load(seed, [own.port for own in servers])
        watchers = [Watcher(load, "%s %d" % (seed, n), servers, start) for n in range(2)]
        for watcher in watchers:
            watcher.start()
        with load:
            disturb(rng, servers, load)
        assert not load.failures, "\n".join(map(repr, load.failures))
        waiting.until(lambda: client.load.expiring.count_documents({"at": {"$lt": datetime.datetime.now(datetime.timezone.utc)}}) == 0)
        client.load.end.insert_one({"_id": "end"})
        for watcher in watchers:
            watcher.join(60)
            assert load.failures or not watcher.is_alive(), "the stream does not come to its end"
        assert not load.failures, "\n".join(map(repr, load.failures))
        check(load, client.load, watchers)
        assert all(own.done for own in load.clients), [(type(own).__name__, own.done) for own in load.clients]
        print(seed, "events", len(watchers[0].events), [(type(own).__name__, own.done) for own in load.clients])


def run_rounds(servers):
    seed = int(os.environ.get("MARULA_CRASH_SEED", random.randrange(1 << 30)))
    for round_ in range(ROUNDS):
        print("MARULA_CRASH_SEED=%d" % (seed + round_), flush=True)
        run(seed + round_, servers)


def test_one_server_is_killed():
    with server.Server("--replSet", "rs0", *OPTIONS) as own:
        run_rounds([own])


def test_nodes_are_killed():
    with contextlib.ExitStack() as stack:
        etcd = stack.enter_context(etcd_cluster.start())
        run_rounds([stack.enter_context(server.Server(*etcd.options(), "--shared", *OPTIONS, wait=60.0)) for _ in range(3)])
