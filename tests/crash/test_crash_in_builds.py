"""kill -9 during index builds under writes: documents and every index agree, and a build is there or it is not.

MARULA_CRASH_ROUNDS sets the number of rounds, MARULA_CRASH_SEED repeats a run.
"""
import os
import random
import threading
import time

import pymongo
import server
from pymongo.errors import DuplicateKeyError, PyMongoError
from test_crash import GONE, Writer

ROUNDS = int(os.environ.get("MARULA_CRASH_ROUNDS", "4"))
WRITERS, STILL = 4, 4000

INDEXES = [
    {"key": {"many": 1}, "name": "many"},
    {"key": {"u": 1}, "name": "u", "unique": True},
    {"key": {"tags": -1, "n": 1}, "name": "tags"},
    {"key": {"n": 1}, "name": "part", "partialFilterExpression": {"n": {"$gt": 500}}},
]


def build(uri):
    """Builds and drops the indexes until the server is gone."""
    with pymongo.MongoClient(uri, serverSelectionTimeoutMS=3000) as client:
        try:
            while True:
                client.t.command("createIndexes", "c", indexes=INDEXES)
                client.t.c.drop_indexes()
        except PyMongoError:
            pass


def make_unique(uri):
    """Builds an index, makes it unique and drops it until the server is gone."""
    with pymongo.MongoClient(uri, serverSelectionTimeoutMS=3000) as client:
        try:
            while True:
                client.t.still.create_index("u", name="u", prepareUnique=True)
                client.t.command("collMod", "still", index={"name": "u", "unique": True})
                client.t.still.drop_indexes()
        except PyMongoError:
            pass


def test_kill_during_index_builds():
    seed = int(os.environ.get("MARULA_CRASH_SEED", random.randrange(2**32)))
    print("repeat with MARULA_CRASH_SEED=%d MARULA_CRASH_ROUNDS=%d" % (seed, ROUNDS))
    rng = random.Random(seed)
    known, outcomes = {}, set()
    with server.Server() as own:
        with pymongo.MongoClient(own.uri) as client:
            # Documents that nobody changes make the builds long.
            for start in range(0, STILL, 1000):
                client.t.c.insert_many([{"_id": i, "u": i, "n": i, "many": [i * 31 + k for k in range(40)]}
                                        for i in range(start, start + 1000)])
                client.t.still.insert_many([{"_id": i, "u": -i} for i in range(start, start + 1000)])
        for _ in range(ROUNDS):
            writers = [Writer(own.uri, n, {k: v for k, v in known.items() if k[0] == n}, rng.random())
                       for n in range(WRITERS)]
            builders = [threading.Thread(target=work, args=(own.uri,), daemon=True) for work in (build, make_unique)]
            for thread in [*writers, *builders]:
                thread.start()
            time.sleep(rng.uniform(0.2, 2.0))
            assert own.process.poll() is None, own.tail()
            own.kill()
            for thread in [*writers, *builders]:
                thread.join(60)
                assert not thread.is_alive()
            for writer in writers:
                assert writer.failure is None, writer.failure
                known.update(writer.known)
            own.start()
            with pymongo.MongoClient(own.uri) as client:
                outcomes.add((check(client, writers, known), check_still(client)))
    print("after a kill the indexes were %s" % outcomes)


def check_still(client):
    """Returns the index that is made unique."""
    report = client.t.command("validate", "still", full=True)
    assert report["valid"] and report["nrecords"] == STILL, report
    index = {spec["name"]: spec for spec in client.t.still.list_indexes()}.get("u")
    if index is None:
        return "none"
    assert index.get("unique") != index.get("prepareUnique"), index
    assert report["keysPerIndex"]["u"] == client.t.still.count_documents({"u": {"$lte": 0}}, hint="u") == STILL
    try:
        client.t.still.insert_one({"_id": "twice", "u": -7})
        raise AssertionError("an index took a key twice: %r" % index)
    except DuplicateKeyError:
        return "unique" if index.get("unique") else "prepared"


def check(client, writers, known):
    """Returns the number of indexes; stores the expected documents in `known`."""
    c = client.t.c
    stored = {d["_id"]: d for d in c.find({"_id": {"$type": "string"}})}
    for writer in writers:
        for key in [k for k in {**known, **writer.pending} if k[0] == writer.number]:
            found = stored.pop("%d-%d" % key, GONE)
            acknowledged = known.get(key, GONE)
            assert found == acknowledged or (key in writer.pending and found == writer.pending[key]), (
                "%s: found %r, acknowledged %r" % (key, found, acknowledged))
            known[key] = found
    assert not stored, "documents that nobody wrote: %r" % list(stored)[:5]
    names = set(c.index_information()) - {"_id_"}
    assert names in (set(), {index["name"] for index in INDEXES}), "a part of a build is there: %r" % names
    report = client.t.command("validate", "c", full=True)
    assert report["valid"], report
    there = [d for d in known.values() if d is not GONE]
    assert report["nrecords"] == STILL + len(there)
    if names:
        assert report["keysPerIndex"]["u"] == report["nrecords"]
        tagged = {d["_id"] for d in c.find({"tags": {"$gte": 0}}, {"_id": 1}).hint("tags")}
        assert tagged == {d["_id"] for d in there if d["tags"]}
    return len(names)
