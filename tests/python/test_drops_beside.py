"""Operations beside drops and renames of their collection and drops of its indexes: one that reads little answers as if it
came before them or after. (A mongod tells a few of a thousand pipelines that the collection was dropped.) No write goes into
a collection that has been dropped or renamed before, and no change of a collection is lost or brings it back.
"""
import contextlib
import itertools
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
    "update": lambda c: c.update_one({"a": 1}, {"$inc": {"b": 1}}),
    "delete": lambda c: c.delete_one({"a": 2}),
    "upsert": lambda c: c.update_one({"_id": 0}, {"$inc": {"b": 1}}, upsert=True),
    "insert": lambda c: c.insert_many([{"a": 1}, {"a": 2}]),
    "$merge": lambda c: list(c.aggregate([{"$limit": 1}, {"$set": {"b": 3}}, {"$merge": "c"}])),
}


@pytest.mark.parametrize("what", ["the collection", "its name", "an index"])
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
                elif what == "its name":
                    c.rename("d", dropTarget=True)
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


def test_no_validation_finds_a_collection_half_dropped(uri, db):
    until, invalid, done = time.monotonic() + SECONDS, [], []

    def validating():
        with pymongo.MongoClient(uri) as client:
            while time.monotonic() < until:
                try:
                    reply = client[db.name].command("validate", "c")
                    done.append(reply["nrecords"])
                    invalid.extend(reply["errors"])
                except OperationFailure as error:
                    assert error.code == 26 and "does not exist to validate" in str(error)

    threads = [threading.Thread(target=validating) for _ in range(3)]
    for thread in threads:
        thread.start()
    while time.monotonic() < until:
        db.c.insert_many([{"a": n} for n in range(30)])
        db.c.create_index("a")
        db.c.drop()
    for thread in threads:
        thread.join()
    assert not invalid, (len(invalid), invalid[:3])
    assert any(done), len(done)


@pytest.mark.parametrize("dropped", ["the index", "the collection"])
def test_an_index_that_becomes_unique_may_be_dropped(uri, db, dropped):
    """The change came before the drop or after it: then it finds nothing to change."""
    until, refusals = time.monotonic() + SECONDS, set()
    index = {"name": "a_1", "prepareUnique": True}

    def changing():
        with pymongo.MongoClient(uri) as client:
            while time.monotonic() < until:
                try:
                    client[db.name].command("collMod", "c", index=index)
                    client[db.name].command("collMod", "c", index={"name": "a_1", "unique": True})
                except OperationFailure as error:
                    refusals.add((error.code, error.details["errmsg"]))

    thread = threading.Thread(target=changing)
    thread.start()
    while time.monotonic() < until:
        if not db.c.estimated_document_count():
            db.c.insert_many([{"a": n} for n in range(2000)])
        # The index may be unique still.
        with contextlib.suppress(OperationFailure):
            db.c.create_index("a")
            time.sleep(0.01)
        db.c.drop_indexes() if dropped == "the index" else db.c.drop()
    thread.join()
    namespace = db.c.full_name
    assert refusals <= {
        (26, "ns does not exist"),
        (26, "ns does not exist for unique index conversion: " + namespace),
        (27, "cannot find index a_1 for ns " + namespace),
        (72, "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it first."),
    }
    assert refusals


@pytest.mark.parametrize("change", ["drop", "renameCollection"])
def test_a_write_goes_into_no_collection_that_was_dropped_or_renamed_before(replica, change):
    client, until = pymongo.MongoClient(replica.uri), time.monotonic() + SECONDS
    db = client["drops_beside_" + change]
    works = [
        lambda n: db.c.insert_one({"_id": n}),
        lambda n: db.c.update_one({"_id": n}, {"$set": {"a": 1}}, upsert=True),
        lambda n: db.c.insert_many([{"_id": "%s-%d" % (n, k)} for k in range(3)]),
    ]

    def writing(number):
        for n in itertools.count():
            if time.monotonic() > until:
                return
            works[number]("%d-%d" % (number, n))

    def changing():
        while time.monotonic() < until:
            db.c.insert_one({})
            db.c.drop() if change == "drop" else db.c.rename("d", dropTarget=True)

    with client, db.watch(show_expanded_events=True) as stream:
        threads = [threading.Thread(target=writing, args=(number,)) for number in range(len(works))]
        threads.append(threading.Thread(target=changing))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        db.last.insert_one({})
        dropped, counts = set(), {}
        for event in stream:
            kind = event["operationType"]
            counts[kind] = counts.get(kind, 0) + 1
            if kind == "drop":
                dropped.add(event["collectionUUID"])
            elif kind == "insert":
                if event["ns"]["coll"] == "last":
                    break
                assert event["collectionUUID"] not in dropped
                assert event["ns"]["coll"] == "c"
    assert counts["insert"] > 100 and counts["drop" if change == "drop" else "rename"] > 10, counts


def test_a_conversion_to_a_capped_collection_loses_no_write(uri, db):
    db.c.insert_many([{"_id": n, "n": 0, "x": "y" * 200} for n in range(3000)])
    inserted, counts, is_over = [], {}, threading.Event()

    def inserting():
        with pymongo.MongoClient(uri) as client:
            for n in itertools.count(3000):
                if is_over.is_set():
                    return
                client[db.name].c.insert_one({"_id": n})
                inserted.append(n)

    def updating():
        with pymongo.MongoClient(uri) as client:
            for n in itertools.cycle(range(3000)):
                if is_over.is_set():
                    return
                counts[n] = counts.get(n, 0) + client[db.name].c.update_one({"_id": n}, {"$inc": {"n": 1}}).modified_count

    threads = [threading.Thread(target=inserting), threading.Thread(target=updating)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            time.sleep(0.05)
            db.command("convertToCapped", "c", size=100 << 20)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    found = {doc["_id"]: doc.get("n") for doc in db.c.find()}
    assert [n for n in inserted if n not in found] == []
    assert {n: found[n] for n in counts} == counts


COUNT = 60
# Each returns one number per document of the collection.
READS = {
    "find": lambda c: [doc["version"] for doc in c.find()],
    "by an index": lambda c: [doc["version"] for doc in c.find({"a": {"$gte": 0}})],
    "sorted": lambda c: [doc["version"] for doc in c.find().sort("b")],
    "count": lambda c: [0] * c.count_documents({}),
    "fast count": lambda c: [0] * c.estimated_document_count(),
    "distinct": lambda c: [0] * len(c.distinct("a")),
    "aggregate": lambda c: [doc["version"] for doc in c.aggregate([{"$sort": {"b": 1}}])],
    "view": lambda c: [doc["version"] for doc in c.database.view.find()],
    "$lookup": lambda c: [
        0 for doc in c.database.keys.aggregate(
            [{"$lookup": {"from": "c", "localField": "_id", "foreignField": "a", "as": "found"}}]) if doc["found"]],
    "update": lambda c: [0] * COUNT * c.update_one({"a": 7}, {"$inc": {"n": 1}}).matched_count,
    "findAndModify": lambda c: [0] * COUNT if c.find_one_and_update({"a": 7}, {"$inc": {"n": 1}}) else [],
}


@pytest.mark.parametrize("how", ["renameCollection", "$out"])
def test_a_collection_that_takes_the_place_of_another_is_always_there(uri, db, how):
    documents = [{"_id": n, "a": n, "b": -n, "version": 0} for n in range(COUNT)]
    for name in ("c", "source", "keys"):
        db[name].insert_many(documents)
    db.c.create_index("a")
    db.command("create", "view", viewOn="c", pipeline=[{"$match": {"a": {"$gte": 0}}}])
    until, swaps, failures, done = time.monotonic() + SECONDS, 0, [], {name: 0 for name in READS}

    def reading(name, read):
        with pymongo.MongoClient(uri) as client:
            while time.monotonic() < until:
                try:
                    found = read(client[db.name].c)
                    done[name] += 1
                    if len(found) != COUNT or len(set(found)) != 1:
                        failures.append((name, found))
                except (OperationFailure, IndexError) as error:
                    failures.append((name, str(error)))

    threads = [threading.Thread(target=reading, args=item) for item in READS.items()]
    for thread in threads:
        thread.start()
    while time.monotonic() < until:
        swaps += 1
        if how == "$out":
            db.source.aggregate([{"$set": {"version": swaps}}, {"$out": "c"}])
            continue
        db.other.insert_many([doc | {"version": swaps} for doc in documents])
        db.other.create_index("a")
        db.other.rename("c", dropTarget=True)
    for thread in threads:
        thread.join()
    assert not failures, (swaps, len(failures), failures[:3])
    assert swaps > 5 and all(done.values()), (swaps, done)


def test_changes_of_a_collection_at_the_same_time_are_all_there(uri, db):
    """Each is made from the options that the others have left."""
    db.c.create_index("a")
    until, lost, done = time.monotonic() + SECONDS, [], []
    # The change with a number, and what shows it.
    changes = [
        lambda n: {"validationLevel": ("strict", "moderate")[n % 2]},
        lambda n: {"validationAction": ("error", "warn")[n % 2]},
        lambda n: {"validator": {"x": {"$ne": n}}},
    ]

    def changing(change):
        with pymongo.MongoClient(uri) as client:
            for n in itertools.count():
                if time.monotonic() > until:
                    return
                client[db.name].command("collMod", "c", **change(n))
                done.append(n)
                # Nobody else changes this option.
                if not change(n).items() <= client[db.name].c.options().items():
                    lost.append(change(n))

    threads = [threading.Thread(target=changing, args=(change,)) for change in changes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not lost, (len(lost), len(done), lost[:3])


@pytest.mark.embedded
def test_no_change_brings_a_dropped_collection_back(tmp_path):
    """The catalogue in memory does not show it: the next start would."""
    names, until = ["c0"], time.monotonic() + SECONDS
    changes = [
        lambda c: c.database.command("collMod", c.name, validator={"x": {"$exists": False}}),
        lambda c: c.database.command("collMod", c.name, index={"name": "a_1", "hidden": True}),
        lambda c: c.drop_index("b_1"),
        lambda c: c.create_index("x"),
    ]

    def changing(change):
        with pymongo.MongoClient(own.uri) as client:
            while time.monotonic() < until:
                with contextlib.suppress(OperationFailure):
                    change(client.db[names[-1]])

    with server.Server(dbpath=str(tmp_path / "data")) as own:
        with pymongo.MongoClient(own.uri) as client:
            threads = [threading.Thread(target=changing, args=(change,)) for change in changes]
            for thread in threads:
                thread.start()
            while time.monotonic() < until:
                names.append("c%d" % len(names))
                c = client.db[names[-1]]
                c.insert_one({"a": 1})
                c.create_indexes([pymongo.IndexModel("a"), pymongo.IndexModel("b")])
                c.drop()
            for thread in threads:
                thread.join()
            known = set(client.db.list_collection_names())
        own.kill()
        own.start()
        with pymongo.MongoClient(own.uri) as client:
            assert set(client.db.list_collection_names()) == known
    assert len(names) > 20
