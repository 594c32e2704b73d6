"""Transactions while the catalogue changes under them: indexes are built and dropped in every phase, collections renamed,
altered, dropped and made again, and documents expire. A committed transaction is there as a whole, in the collections and in
their indexes; a failed one may be tried again, and has left nothing.
"""
import datetime
import random
import threading

import pymongo
import pytest
import server
from pymongo.errors import ExecutionTimeout, OperationFailure

WORKERS, CHANGES, DOCUMENTS = 4, 40, 3_000
# A collection that was dropped or renamed meanwhile, or that is being changed.
TOLD = {26, 27, 48, 24, 112, 246, 251, 239, 225, 276}


@pytest.fixture(scope="module")
def own():
    with server.Server("--replSet", "rs0", "--setParameter", "ttlMonitorSleepSecs=1") as own:
        with pymongo.MongoClient(own.uri) as client:
            member = {"_id": 0, "host": "127.0.0.1:%d" % own.port}
            client.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})
            while not client.admin.command("hello")["isWritablePrimary"]:
                pass
        with pymongo.MongoClient(own.uri) as client:
            yield client


class Worker(threading.Thread):
    """Inserts pairs: a document into each of two collections by one transaction, and changes an older one of the first."""

    def __init__(self, client, number):
        super().__init__(daemon=True)
        self.client, self.number = client, number
        self.stop, self.committed, self.failed, self.failure = threading.Event(), set(), 0, None

    def run(self):
        db, rng = self.client.beside, random.Random(self.number)
        with self.client.start_session() as session:
            for turn in range(1_000_000):
                if self.stop.is_set():
                    return
                number = self.number * 1_000_000 + turn
                try:
                    session.start_transaction()
                    db.left.insert_one({"_id": number, "a": turn % 5, "tags": [turn, -turn]}, session=session)
                    db.left.update_one({"_id": rng.randrange(DOCUMENTS)}, {"$inc": {"a": 1}}, session=session)
                    db.right.insert_one({"_id": number, "u": number}, session=session)
                    session.commit_transaction()
                    self.committed.add(number)
                except OperationFailure as error:
                    self.failed += 1
                    if error.code not in TOLD or not (error.has_error_label("TransientTransactionError") or error.code == 26):
                        self.failure = error
                        return
                    if session.in_transaction:
                        session.abort_transaction()


def change(rng, db):
    """Changes the catalogue in one way; whether that was done within its time."""
    kind = rng.randrange(8)
    name = rng.choice("xyz")
    try:
        if kind <= 1:
            keys = {"x": {"a": 1}, "y": {"tags": 1, "a": -1}, "z": {"a": "hashed"}}[name]
            db.command("createIndexes", "left", indexes=[{"key": keys, "name": name}], maxTimeMS=20_000)
        elif kind == 2:
            db.command("createIndexes", "right", indexes=[{"key": {"u": 1}, "name": "u", "unique": True}], maxTimeMS=20_000)
        elif kind == 3:
            db.command("dropIndexes", "left", index=name, maxTimeMS=20_000)
        elif kind == 4:
            db.command("dropIndexes", "right", index="u", maxTimeMS=20_000)
        elif kind == 5:
            db.command("collMod", "left", validator={"a": {"$gte": 0}}, validationLevel=rng.choice(["off", "strict"]),
                       maxTimeMS=20_000)
        elif kind == 6:
            admin = db.client.admin
            admin.command("renameCollection", "beside.right", to="beside.away", maxTimeMS=20_000)
            admin.command("renameCollection", "beside.away", to="beside.right", dropTarget=True)
        else:
            db.drop_collection("other")
            db.create_collection("other")
        return True
    except ExecutionTimeout:
        return False
    except OperationFailure as error:
        assert error.code in (26, 27), error
        return False


def test_pairs_stay_pairs_whatever_happens_to_the_catalogue(own):
    db, seed = own.beside, random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    db.left.insert_many([{"_id": n, "a": n % 7, "tags": [n]} for n in range(DOCUMENTS)])
    db.create_collection("right")
    workers = [Worker(own, number) for number in range(1, WORKERS + 1)]
    for worker in workers:
        worker.start()
    try:
        done = sum(change(rng, db) for _ in range(CHANGES))
    finally:
        for worker in workers:
            worker.stop.set()
        for worker in workers:
            worker.join(60)
    assert not any(worker.failure for worker in workers), [worker.failure for worker in workers]
    committed = set().union(*(worker.committed for worker in workers))
    assert done > CHANGES / 4 and committed, (done, len(committed))
    left = {doc["_id"] for doc in db.left.find({"_id": {"$gte": 1_000_000}}, {"_id": 1})}
    # A transaction that came between the two renames made a collection of its own, which the
    # second one replaced.
    right = {doc["_id"] for doc in db.right.find({}, {"_id": 1})}
    assert left == committed
    assert right <= committed
    for name in ("left", "right"):
        report = db.command("validate", name, full=True)
        assert report["valid"] and not report["errors"], report


def test_documents_expire_beside_transactions(own):
    """TTL waits for a document that a transaction has changed, and goes by what was committed."""
    c = own.expiring.c
    past, later = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=hours) for hours in (-1, 1))
    c.insert_many([{"_id": 1, "at": later}, {"_id": 2, "at": later}, {"_id": 3, "at": later}])
    c.create_index("at", expireAfterSeconds=0)
    passes = lambda: own.admin.command("serverStatus")["metrics"]["ttl"]["passes"]
    with own.start_session() as kept, own.start_session() as dropped:
        kept.start_transaction()
        c.update_one({"_id": 1}, {"$set": {"n": 1}}, session=kept)
        dropped.start_transaction()
        c.update_one({"_id": 2}, {"$set": {"at": past}}, session=dropped)
        c.update_one({"_id": 3}, {"$set": {"at": past}})
        # Uncommitted documents do not expire, and committed ones do.
        while c.count_documents({"_id": 3}):
            pass
        assert [doc["_id"] for doc in c.find()] == [1, 2]
        dropped.commit_transaction()
        while c.count_documents({"_id": 2}):
            pass
        kept.abort_transaction()
        kept.start_transaction()
        # One that has expired and that a transaction holds stays until its end.
        c.update_one({"_id": 1}, {"$set": {"at": past}}, session=kept)
        before = passes()
        while passes() < before + 1:
            pass
        assert c.count_documents({"_id": 1}) == 1
        kept.commit_transaction()
        while c.count_documents({"_id": 1}):
            pass
    assert own.expiring.command("validate", "c")["valid"]
