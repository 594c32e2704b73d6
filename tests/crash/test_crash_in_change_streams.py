"""kill -9 while a change stream is followed: a mirror that has followed the stream up to any token, and continues after
a restart, becomes equal to the collection. No event is false or repeated, and none of an acknowledged write is missing.
MARULA_CRASH_ROUNDS sets the number of rounds, MARULA_CRASH_SEED repeats a run.
"""
import os
import random
import threading
import time

import pymongo
import server
from bson import Binary, Int64
from pymongo.errors import OperationFailure, PyMongoError
from raw import Raw
from update_descriptions import described

ROUNDS = int(os.environ.get("MARULA_CRASH_ROUNDS", "3"))
KEYS = 30
# The inserted documents of so many rounds stay, so that a round costs the same however many were
# before it. For the same reason the log keeps no more than this, which is that of many rounds.
KEPT_ROUNDS, LOG_MB = 5, "64"
WRITERS_MAX, WRITES_MAX = 100, 1_000_000


def first_mark(round_):
    """The mark of the first write of a round."""
    return round_ * WRITERS_MAX * WRITES_MAX


class Writer(threading.Thread):
    """Changes documents by every kind of write until the server is gone, and marks each change with a number."""

    def __init__(self, port, number, seed):
        super().__init__(daemon=True)
        self.port, self.number, self.rng = port, number, random.Random(seed)
        self.lsid = {"id": Binary(number.to_bytes(16, "big"), 4)}
        self.acknowledged, self.failure = [], None

    def run(self):
        try:
            with Raw(self.port) as raw:
                for turn in range(1, WRITES_MAX):
                    self.write(raw, turn, self.number * WRITES_MAX + turn)
        except (OSError, EOFError, PyMongoError):
            pass
        except AssertionError as error:
            self.failure = error

    def write(self, raw, turn, mark):
        key = self.rng.randrange(KEYS)
        by_key = {"q": {"_id": key}, "upsert": True}
        kind = self.rng.randrange(6)
        if kind < 3:
            update = [{"$set": {"mark": mark}, "$push": {"r": {"$each": [mark], "$slice": -3}}},
                      [{"$set": {"mark": mark, "a": {"$ifNull": ["$mark", 0]}}}], {"mark": mark}][kind]
            reply = raw.command("mirror", update="c", updates=[{**by_key, "u": update}])
        elif kind == 3:
            reply = raw.command("mirror", insert="c", documents=[{"_id": "%d" % mark, "mark": mark}])
        elif kind == 4:
            reply = raw.command("mirror", delete="c", deletes=[{"q": {"_id": key}, "limit": 1}])
            mark = None
        else:
            inside = {"lsid": self.lsid, "txnNumber": Int64(turn), "autocommit": False}
            first = raw.command("mirror", update="c", updates=[{**by_key, "u": {"$set": {"mark": mark}}}],
                                startTransaction=True, **inside)
            if first["ok"] != 1:
                return
            second = raw.command("mirror", insert="c", documents=[{"_id": "%d" % mark, "mark": mark}], **inside)
            if second["ok"] != 1:
                return
            reply = raw.command("admin", commitTransaction=1, **inside)
        assert reply["ok"] == 1, reply
        # An upsert may meet another's.
        if mark is not None and "writeErrors" not in reply:
            self.acknowledged.append(mark)


class Mirror:
    """Follows a stream through crashes, from the last event that it has seen."""

    def __init__(self):
        self.documents, self.token, self.tokens, self.marks = {}, None, set(), set()

    def follow(self, event):
        data = event["_id"]["_data"]
        assert data not in self.tokens and (self.token is None or data > self.token["_data"]), "told twice, or out of order"
        self.tokens.add(data)
        self.token = event["_id"]
        key = event["documentKey"]["_id"]
        if event["operationType"] == "delete":
            del self.documents[key]
            return
        before, shown = self.documents.get(key), event.get("fullDocument")
        if event["operationType"] == "update":
            shown = described(before, event["updateDescription"])
        elif event["operationType"] == "insert":
            assert before is None, "inserted twice"
        self.documents[key] = shown
        self.marks.add(shown["mark"])

    def until_gone(self, client):
        try:
            with client.mirror.c.watch(resume_after=self.token, max_await_time_ms=20) as stream:
                for event in stream:
                    self.follow(event)
        except PyMongoError:
            pass

    def to_the_end(self, client):
        end = "end %d" % len(self.tokens)
        client.mirror.c.insert_one({"_id": end, "mark": -1})
        with client.mirror.c.watch(resume_after=self.token, max_await_time_ms=20) as stream:
            for event in stream:
                self.follow(event)
                if event["documentKey"]["_id"] == end:
                    return


def test_a_mirror_becomes_the_collection():
    seed = int(os.environ.get("MARULA_CRASH_SEED", random.randrange(1 << 30)))
    print("seed", seed)
    rng = random.Random(seed)
    options = "directConnection=true&serverSelectionTimeoutMS=10000&retryReads=false"
    with server.Server("--replSet", "rs0", "--oplogSize", LOG_MB) as own:
        uri = "mongodb://127.0.0.1:%d/?%s" % (own.port, options)
        mirror, told, acknowledged = Mirror(), 0, set()
        with pymongo.MongoClient(uri) as client:
            try:
                client.admin.command("replSetInitiate")
            except OperationFailure as error:
                assert error.code == 23, error
            while not client.admin.command("hello")["isWritablePrimary"]:
                time.sleep(0.05)
            with client.mirror.c.watch(max_await_time_ms=20) as stream:
                client.mirror.c.insert_one({"_id": "first", "mark": 0})
                mirror.follow(next(stream))
        for round_ in range(ROUNDS):
            writers = [Writer(own.port, round_ * WRITERS_MAX + n, rng.random()) for n in range(4)]
            follower_client = pymongo.MongoClient(uri)
            follower = threading.Thread(target=mirror.until_gone, args=(follower_client,), daemon=True)
            [thread.start() for thread in [*writers, follower]]
            time.sleep(rng.uniform(0.3, 1.0))
            own.kill()
            # Its driver would look for the server for ten seconds, to resume.
            follower_client.close()
            [thread.join(30) for thread in [*writers, follower]]
            assert not follower.is_alive(), "the follower still follows"
            assert not any(writer.failure for writer in writers), [writer.failure for writer in writers]
            own.start()
            with pymongo.MongoClient(uri) as client:
                while not client.admin.command("hello")["isWritablePrimary"]:
                    time.sleep(0.05)
                mirror.to_the_end(client)
                assert mirror.documents == {doc["_id"]: doc for doc in client.mirror.c.find()}
                acknowledged = {mark for writer in writers for mark in writer.acknowledged}
                assert acknowledged <= mirror.marks, "acknowledged writes were not told of"
                for name in ("mirror.c", "local.oplog.rs"):
                    db, collection = name.split(".", 1)
                    if not (server.is_mongod() and db == "local"):
                        assert client[db].command("validate", collection)["valid"]
                told += len(acknowledged)
                kept = first_mark(round_ + 1 - KEPT_ROUNDS)
                client.mirror.c.delete_many({"_id": {"$type": "string"}, "mark": {"$lt": kept}})
            if ROUNDS > 10:
                print("round", round_ + 1, "of", ROUNDS, flush=True)
        print("%d rounds, %d acknowledged writes, %d events" % (ROUNDS, told, len(mirror.tokens)))
        assert told > 0
