"""Random writes of several threads over every kind of index: afterwards documents and all indexes agree.

MARULA_RANDOM_WRITES sets their number (`make writes` a million), MARULA_RANDOM_SEED repeats a run.
"""
import datetime
import os
import random
import subprocess
import threading
import time

import pymongo
import server
from pymongo import DeleteMany, DeleteOne, IndexModel, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, OperationFailure

WRITES = int(os.environ.get("MARULA_RANDOM_WRITES", "6000"))
THREADS, BATCH, IDS = 4, 100, 2000

INDEXES = [
    IndexModel("a"),
    IndexModel([("a", -1), ("b", 1)]),
    IndexModel([("t", 1), ("a", 1)]),
    IndexModel("n.x"),
    IndexModel("u", unique=True, sparse=True),
    IndexModel([("b", 1), ("u", -1)], unique=True, partialFilterExpression={"u": {"$gt": 0}}),
    IndexModel("s", sparse=True),
    IndexModel("b", partialFilterExpression={"a": {"$gt": 3}}, name="part"),
    IndexModel("c", collation={"locale": "fr", "strength": 1}),
    IndexModel([("words", "text"), ("c", "text")], weights={"c": 3}),
    IndexModel([("c", "hashed"), ("u", 1)]),
    IndexModel([("place", "2dsphere")]),
    IndexModel([("flat", "2d")], min=-10, max=10),
    IndexModel("w.$**"),
    IndexModel("when", expireAfterSeconds=1),
    IndexModel("hidden", hidden=True),
]
# The errors that may reject a write: a key that is taken, two arrays in one key, a path through a
# number.
REFUSALS = {11000, 171, 28}
WORDS = ["les", "étés", "running", "runs", "the", "Marula", "fruit", "maru-la", "42"]


class Maker:
    """Random values, documents and writes."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def value(self, deep=True):
        r = self.random
        kind = r.randrange(12 if deep else 8)
        if kind < 4:
            return r.randrange(10)
        if kind < 8:
            return [None, float(r.randrange(10)), r.choice(WORDS), r.randrange(2**40)][kind - 4]
        if kind < 10:
            return [self.value(False) for _ in range(r.randrange(4))]
        return {r.choice("xyz"): self.value(False) for _ in range(r.randrange(3))}

    def field(self, name):
        r = self.random
        if name == "u":
            return r.randrange(IDS)
        if name == "n":
            return [{"x": self.value(False)} for _ in range(r.randrange(3))]
        if name == "words":
            return " ".join(r.choices(WORDS, k=r.randrange(5)))
        if name == "place":
            return {"type": "Point", "coordinates": [r.uniform(-180, 180), r.uniform(-90, 90)]}
        if name == "flat":
            return [r.uniform(-10, 10), r.uniform(-10, 10)]
        if name == "when":
            return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=r.choice([-5, 1, 9000]))
        if name == "c":
            return r.choice([*WORDS, 7, None])
        return self.value()

    def fields(self):
        names = ["a", "b", "t", "n", "u", "s", "c", "words", "place", "flat", "w", "when", "hidden"]
        return {name: self.field(name) for name in self.random.sample(names, self.random.randrange(1, 8))}

    def update(self):
        r, fields = self.random, self.fields()
        kind = r.randrange(6)
        if kind < 3:
            return {"$set": fields}
        if kind == 3:
            return {"$unset": {name: 1 for name in fields}}
        if kind == 4:
            return {"$set": {"w.deep.%d" % r.randrange(3): self.value()}, "$currentDate": {"stamp": True}}
        return {"$set": {"t": self.value()}, "$inc": {"count": 1}, "$unset": {r.choice("abs"): 1}}

    def write(self):
        r = self.random
        one = {"_id": r.randrange(IDS)}
        few = {"_id": {"$gte": one["_id"], "$lt": one["_id"] + 4}}
        kind = r.randrange(20)
        if kind < 6:
            return InsertOne({**one, **self.fields()})
        if kind < 12:
            return UpdateOne(one, self.update(), upsert=r.random() < 0.5)
        if kind < 15:
            return ReplaceOne(one, self.fields(), upsert=r.random() < 0.5)
        if kind < 17:
            return UpdateMany(few, self.update())
        if kind < 18:
            return UpdateOne({"a": r.randrange(10)}, self.update())
        return DeleteOne(one) if kind < 19 else DeleteMany(few)


def write(uri, name, seed, count, outcome):
    maker, done, refused = Maker(seed), 0, 0
    try:
        with pymongo.MongoClient(uri) as client:
            while done < count:
                batch = [maker.write() for _ in range(min(BATCH, count - done))]
                done += len(batch)
                try:
                    client.t[name].bulk_write(batch, ordered=False)
                except BulkWriteError as error:
                    errors = error.details["writeErrors"]
                    strange = [one for one in errors if one["code"] not in REFUSALS]
                    assert not strange, strange[:3]
                    refused += len(errors)
        outcome.append((done, refused))
    except Exception as error:  # reported by the test, not by the thread
        outcome.append(error)


def rebuild(uri, name, stop):
    """Builds and drops an index over and over while others write."""
    with pymongo.MongoClient(uri) as client:
        while not stop.is_set():
            client.t[name].create_index([("t", -1), ("_id", 1)], name="again")
            time.sleep(0.05)
            try:
                client.t[name].drop_index("again")
            except OperationFailure:
                pass
    return None


def test_documents_and_indexes_agree():
    seed = int(os.environ.get("MARULA_RANDOM_SEED", random.randrange(2**32)))
    print("repeat with MARULA_RANDOM_SEED=%d MARULA_RANDOM_WRITES=%d" % (seed, WRITES))
    names, outcome, stop = ["plain", "clustered"], [], threading.Event()
    with server.Server() as own:
        with pymongo.MongoClient(own.uri) as client:
            client.admin.command("setParameter", 1, ttlMonitorSleepSecs=1)
            client.t.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
            for name in names:
                client.t[name].create_indexes(INDEXES)
            began = time.monotonic()
            share = WRITES // (THREADS * len(names))
            writers = [threading.Thread(target=write, args=(own.uri, name, seed + 7 * n + k, share, outcome))
                       for k, name in enumerate(names) for n in range(THREADS)]
            builders = [threading.Thread(target=rebuild, args=(own.uri, name, stop)) for name in names]
            for thread in [*writers, *builders]:
                thread.start()
            for thread in writers:
                thread.join()
            stop.set()
            for thread in builders:
                thread.join()
            took = time.monotonic() - began
            failures = [one for one in outcome if isinstance(one, Exception)]
            assert not failures, failures
            done, refused = (sum(column) for column in zip(*outcome))
            client.admin.command("setParameter", 1, ttlMonitorEnabled=False)
            time.sleep(1.5)
            for name in names:
                report = client.t.command("validate", name, full=True)
                assert report["valid"] and not report["errors"], report
                count = report["nrecords"]
                assert count == client.t[name].count_documents({}) > 0
                listed = client.t[name].index_information().values()
                assert len(report["keysPerIndex"]) == sum("clustered" not in index for index in listed)
                print("%s: %d documents, %d keys" % (name, count, sum(report["keysPerIndex"].values())))
            print("%d writes in %.0f s, %d refused" % (done, took, refused))
        assert own.terminate() == 0, own.tail()
        if not server.is_mongod() and not server.keeps_no_folder():
            found = subprocess.run([server.serve_command()[0], "check", "--dbpath", own.dbpath],
                                   capture_output=True, text=True)
            assert found.returncode == 0 and " 0 faults" in found.stdout, found.stdout + found.stderr
            print(found.stdout.strip())
