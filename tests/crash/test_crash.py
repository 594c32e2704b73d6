"""kill -9 at random moments under load: what was acknowledged is there, and everything agrees with everything.

Each writer owns its documents and knows the state of each after the last acknowledged write and, if a write was in
progress when the server died, the state after that too. After the restart every document must be in one
of the two. The same data folder goes through all rounds. MARULA_CRASH_ROUNDS sets their number, MARULA_CRASH_SEED
repeats a run.
"""
import os
import random
import subprocess
import threading
import time

import pymongo
import pytest
import server
from bson import Binary, Int64
from pymongo.errors import AutoReconnect, ConnectionFailure, DuplicateKeyError, NetworkTimeout
from raw import Raw

ROUNDS = int(os.environ.get("MARULA_CRASH_ROUNDS", "4"))
WRITERS, KEYS = 8, 60
RESTART_SECONDS = 5.0
GONE = None
# mongod acknowledges before its journal is written, unless asked to.
JOURNAL = {"journal": True} if server.is_mongod() else {}


class Writer(threading.Thread):
    """One client with documents of its own; ends when the server does."""

    def __init__(self, uri, number, known, seed):
        super().__init__(daemon=True)
        self.uri, self.number, self.known = uri, number, known
        self.rng = random.Random(seed)
        self.pending, self.done, self.failure = {}, 0, None

    def run(self):
        try:
            with pymongo.MongoClient(self.uri, retryWrites=False, serverSelectionTimeoutMS=3000, **JOURNAL) as client:
                while True:
                    self.step(client.t.c)
        except (AutoReconnect, ConnectionFailure, NetworkTimeout):
            pass
        except Exception as error:  # noqa: BLE001 - shown by the test, which would else see a silent thread
            self.failure = error

    def step(self, c):
        if self.rng.random() < 0.2:
            self.batch(c)
            return
        key = (self.number, self.rng.randrange(KEYS))
        now = self.known.get(key, GONE)
        _id = "%d-%d" % key
        if now is GONE:
            after = {"_id": _id, "w": self.number, "n": self.rng.randrange(1000), "u": _id, "tags": self.tags(),
                     "pad": "x" * self.rng.randrange(2000)}
            self.write({key: after}, lambda: c.insert_one(dict(after)))
        elif self.rng.random() < 0.3:
            self.write({key: GONE}, lambda: c.delete_one({"_id": _id}))
        else:
            change = {"n": self.rng.randrange(1000), "u": "%s/%d" % (_id, self.rng.randrange(10**9)),
                      "tags": self.tags()}
            self.write({key: {**now, **change}}, lambda: c.update_one({"_id": _id}, {"$set": change}))

    def batch(self, c):
        """Several inserts in one command: each of them may have happened when the answer does not come."""
        keys = [k for k in ((self.number, self.rng.randrange(KEYS)) for _ in range(10)) if self.known.get(k) is GONE]
        after = {k: {"_id": "%d-%d" % k, "w": self.number, "n": 1, "u": "b%d-%d" % k, "tags": [], "pad": ""}
                 for k in keys}
        if after:
            self.write(after, lambda: c.insert_many([dict(d) for d in after.values()]))

    def tags(self):
        return [self.rng.randrange(20) for _ in range(self.rng.randrange(4))]

    def write(self, after, run):
        self.pending = after
        run()
        self.known.update(after)
        self.pending = {}
        self.done += len(after)


def check(client, writers, known):
    c = client.t.c
    stored = {d["_id"]: d for d in c.find()}
    for writer in writers:
        for key in [(writer.number, k) for k in range(KEYS)]:
            found = stored.pop("%d-%d" % key, GONE)
            acknowledged = known.get(key, GONE)
            assert found == acknowledged or (key in writer.pending and found == writer.pending[key]), (
                "%s: found %r, acknowledged %r, under way %r" % (key, found, acknowledged, writer.pending.get(key)))
            # From here on the truth is what the server has.
            known[key] = found
    assert not stored, "documents that nobody wrote: %r" % list(stored)[:5]

    there = [d for d in known.values() if d is not GONE]
    if not server.is_mongod():  # whose counts are estimates after a crash
        assert client.t.command("count", "c")["n"] == len(there)
        assert client.t.command("collStats", "c")["count"] == len(there)
    report = client.t.command("validate", "c", full=True)
    assert report["valid"] and not report["errors"], report
    assert report["nrecords"] == len(there)
    keys = report["keysPerIndex"]
    assert (keys["_id_"], keys["u_1"], keys["w_1_n_-1"]) == (len(there),) * 3
    # An array without elements has one key too.
    assert keys["tags_1"] == sum(max(1, len(set(d["tags"]))) for d in there)
    for writer in writers:
        by_index = {d["_id"] for d in c.find({"w": writer.number}).hint("w_1_n_-1")}
        assert by_index == {d["_id"] for d in there if d["w"] == writer.number}
    for tag in range(20):
        assert c.count_documents({"tags": tag}, hint="tags_1") == sum(tag in d["tags"] for d in there)


def test_nothing_acknowledged_is_lost():
    seed = int(os.environ.get("MARULA_CRASH_SEED") or random.randrange(1 << 32))
    print("repeat with MARULA_CRASH_SEED=%d MARULA_CRASH_ROUNDS=%d" % (seed, ROUNDS))
    rng = random.Random(seed)
    known, written, slowest = {}, 0, 0.0
    with server.Server() as own:
        with pymongo.MongoClient(own.uri) as client:
            c = client.t.c
            c.create_index([("w", 1), ("n", -1)])
            c.create_index("u", unique=True)
            c.create_index("tags")
        for number in range(ROUNDS):
            writers = [Writer(own.uri, n, {k: v for k, v in known.items() if k[0] == n}, rng.random())
                       for n in range(WRITERS)]
            for writer in writers:
                writer.start()
            time.sleep(rng.uniform(0.05, 1.5))
            assert own.process.poll() is None, own.tail()
            own.kill()
            for writer in writers:
                writer.join(60)
                assert not writer.is_alive() and writer.failure is None, writer.failure
                known.update(writer.known)
                written += writer.done
            took = own.start()
            with pymongo.MongoClient(own.uri) as client:
                client.admin.command("ping")
                slowest = max(slowest, took)
                assert took < RESTART_SECONDS
                check(client, writers, known)
            if ROUNDS > 10:
                print("round %d: %d writes so far, %d documents, restart %.2f s" % (
                    number + 1, written, sum(d is not GONE for d in known.values()), took), flush=True)
        assert written > ROUNDS
        if not server.is_mongod():
            assert own.terminate() == 0
            done = subprocess.run([server.serve_command()[0], "check", "--dbpath", own.dbpath], capture_output=True,
                                  text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    print("%d rounds, %d writes, slowest restart %.2f s" % (ROUNDS, written, slowest))


def test_a_retried_write_is_known_after_a_crash():
    with server.Server("--replSet", "rs0") as own:
        with pymongo.MongoClient(own.uri) as client:
            try:
                client.admin.command("replSetInitiate", {"_id": "rs0", "members": [
                    {"_id": 0, "host": "127.0.0.1:%d" % own.port}]})
            except pymongo.errors.OperationFailure:
                pass
            wait_for_primary(client)
        concern = {"lsid": {"id": Binary(b"crash-crash-0001", 4)}, "writeConcern": {"w": 1, "j": True}}
        insert = dict(insert="c", documents=[{"_id": i, "n": 0} for i in range(5)], txnNumber=Int64(1), **concern)
        update = dict(update="c", updates=[{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}], txnNumber=Int64(2), **concern)
        with Raw(own.port) as raw:
            assert raw.command("t", **insert)["n"] == 5
            assert raw.command("t", **update)["nModified"] == 1
        own.kill()
        own.start()
        with pymongo.MongoClient(own.uri) as client, Raw(own.port) as raw:
            wait_for_primary(client)
            reply = raw.command("t", **update)
            assert (reply["n"], reply["nModified"]) == (1, 1)
            assert client.t.c.find_one({"_id": 1})["n"] == 1
            assert raw.command("t", **insert)["code"] == 225
            assert client.t.c.count_documents({}) == 5


def wait_for_primary(client):
    for _ in range(400):
        if client.admin.command("hello").get("isWritablePrimary"):
            return
        time.sleep(0.05)
    raise AssertionError("the server did not become primary")


def test_ddl_survives_a_crash():
    with server.Server() as own:
        with pymongo.MongoClient(own.uri, **JOURNAL) as client:
            client.t.old.insert_many([{"_id": i} for i in range(100)])
            client.t.old.rename("new")
            client.t.new.create_index("x", name="by x")
            client.t.create_collection("capped", capped=True, size=4096)
            client.t.gone.insert_one({})
            client.t.gone.drop()
            client.other.c.insert_one({})
            client.drop_database("other")
            if server.is_mongod():
                client.t.new.insert_one({"_id": "last"})
                client.t.new.delete_one({"_id": "last"})
        own.kill()
        own.start()
        with pymongo.MongoClient(own.uri) as client:
            assert sorted(client.t.list_collection_names()) == ["capped", "new"]
            assert client.t.new.count_documents({}) == 100
            assert sorted(client.t.new.index_information()) == ["_id_", "by x"]
            assert client.t.capped.options()["capped"] is True
            assert "other" not in client.list_database_names()


def test_a_multikey_mark_of_a_write_that_failed_survives_a_crash():
    """The first write fails after it has met an array in `a`; the second one is the first that is stored with it."""
    with server.Server() as own:
        with pymongo.MongoClient(own.uri, **JOURNAL) as client:
            c = client.t.c
            c.create_index("a")
            c.create_index("b", unique=True)
            c.insert_many([{"_id": 1, "b": 1}, {"_id": 2, "b": 2}, {"_id": 3}])
            with pytest.raises(DuplicateKeyError):
                c.update_one({"_id": 2}, {"$set": {"a": [1, 2], "b": 1}})
            c.update_one({"_id": 3}, {"$set": {"a": [1, 2]}})
        own.kill()
        own.start()
        with pymongo.MongoClient(own.uri) as client:
            c = client.t.c
            # Without the mark it would be found once for each element.
            assert list(c.find({"a": {"$gte": 1}}).hint("a_1")) == [{"_id": 3, "a": [1, 2]}]
            assert c.count_documents({"a": {"$gte": 1}}, hint="a_1") == 1
            report = client.t.command("validate", "c", full=True)
            assert report["valid"] and not report["errors"], report
            plan = c.find({"a": 1}).hint("a_1").explain()["queryPlanner"]["winningPlan"]["inputStage"]
            assert plan["isMultiKey"] is True and plan["multiKeyPaths"] == {"a": ["a"]}
