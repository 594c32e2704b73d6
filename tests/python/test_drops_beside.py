"""Operations beside drops of their collection and of its indexes: one that reads little answers as if it came before a drop
or after it. (A mongod tells a few of a thousand pipelines that the collection was dropped.)
"""
import threading
import time

import pymongo
import pytest
import server
from pymongo.errors import OperationFailure

pytestmark = pytest.mark.skipif(server.is_mongod(), reason="a mongod tells some of a drop")

SECONDS = 1.5
# A read of several batches may meet a drop between them, and a write of several documents between
# these.
OPERATIONS = {
    "find": lambda c: list(c.find({"a": {"$gte": 0}})),
    "find by _id": lambda c: c.find_one({"_id": 1}),
    "sorted": lambda c: list(c.find({}, sort=[("a", 1)])),
    "count": lambda c: c.count_documents({"a": 1}),
    "distinct": lambda c: c.distinct("a"),
    "aggregate": lambda c: list(c.aggregate([{"$match": {"a": 1}}, {"$group": {"_id": "$a"}}])),
    "findAndModify": lambda c: c.find_one_and_update({"a": 1}, {"$set": {"b": 2}}),
}


@pytest.mark.parametrize("what", ["the collection", "an index"])
def test_no_operation_is_told_of_a_drop(uri, db, what):
    until, failures, done = time.monotonic() + SECONDS, [], {name: 0 for name in OPERATIONS}

    def dropping():
        with pymongo.MongoClient(uri) as client:
            c = client[db.name].c
            while time.monotonic() < until:
                c.insert_many([{"a": n} for n in range(3)])
                c.create_index("a")
                if what == "the collection":
                    c.drop()
                else:
                    c.drop_index("a_1")
                    c.delete_many({})

    def operating(name, operation):
        with pymongo.MongoClient(uri) as client:
            while time.monotonic() < until:
                try:
                    operation(client[db.name].c)
                    done[name] += 1
                except OperationFailure as error:
                    failures.append((name, error.code, str(error)))

    threads = [threading.Thread(target=operating, args=item) for item in OPERATIONS.items()]
    threads.append(threading.Thread(target=dropping))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, (len(failures), failures[:5], done)
    assert all(done.values()), done
