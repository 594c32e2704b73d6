"""Tables that are damaged under a running server fail each operation that reads them; no document is left out silently.

A flip in a block that is not in the cache yet, as a failing disk makes it. Each reading starts a server of its own
over the same files, so that nothing of what it reads is in a cache.
"""
import contextlib
import os
import shutil

import pymongo
import pytest
import server
from pymongo.errors import OperationFailure

pytestmark = [pytest.mark.skipif(server.is_mongod(), reason="the files are Marula's"), pytest.mark.embedded]

COUNT = 6000
CORRUPT = 8000001


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data folder with a collection and an index in tables."""
    path = str(tmp_path_factory.mktemp("tables") / "data")
    with server.Server(dbpath=path) as own:
        with pymongo.MongoClient(own.uri) as client:
            client.t.c.insert_many([{"_id": i, "a": i, "pad": os.urandom(150)} for i in range(COUNT)])
            client.t.c.create_index("a")
            client.t.other.insert_one({"_id": 1})
        own.kill()
        # Started again, the server writes its log into tables.
        own.start()
        own.terminate()
    return path


def tables(path):
    return sorted((os.path.join(folder, name) for folder, _, names in os.walk(path)
                   for name in names if name.endswith(".sst")), key=os.path.getsize)


def flip(name, part):
    """Flips a bit at this part of a file, in place: an open file sees it."""
    with open(name, "r+b") as f:
        at = int(os.path.getsize(name) * part)
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 16]))


@contextlib.contextmanager
def running(folder, tmp_path):
    """A server over a copy of the folder."""
    path = str(tmp_path / "data")
    shutil.copytree(folder, path)
    with server.Server(dbpath=path) as own:
        with pymongo.MongoClient(own.uri) as client:
            client.admin.command("ping")
            yield own, client.t
            # It goes on.
            assert client.t.other.find_one() == {"_id": 1}
        with open(own.log, errors="replace") as log:
            assert "panicked" not in log.read()


def all_of(cursor):
    return [document["_id"] for document in cursor]


READS = {
    "find": lambda c: all_of(c.find()),
    "find backwards": lambda c: all_of(c.find().sort("$natural", -1)),
    "find in small batches": lambda c: all_of(c.find(batch_size=50)),
    "find with a filter": lambda c: all_of(c.find({"pad": {"$exists": True}})),
    "find by an index": lambda c: all_of(c.find({"a": {"$gte": 0}}).hint("a_1")),
    "find by an index backwards": lambda c: all_of(c.find({"a": {"$gte": 0}}).sort("a", -1).hint("a_1")),
    "find one by one": lambda c: [c.find_one({"_id": i})["_id"] for i in range(COUNT)],
    "find by two indexes": lambda c: all_of(c.find({"$or": [{"a": {"$gte": 0}}, {"_id": {"$lt": 5}}]})),
    "find by many values": lambda c: all_of(c.find({"a": {"$in": list(range(COUNT))}})),
    "sort": lambda c: all_of(c.find().sort("pad", 1).allow_disk_use(True)),
    "count": lambda c: range(c.count_documents({"pad": {"$exists": True}})),
    "count by an index": lambda c: range(c.count_documents({"a": {"$gte": 0}, "pad": {"$exists": True}})),
    "aggregate": lambda c: range(next(c.aggregate([{"$group": {"_id": None, "n": {"$sum": {"$strLenCP": {"$toString": "$_id"}}},
                                                               "c": {"$sum": 1}}}]))["c"]),
    "aggregate with $lookup": lambda c: all_of(c.aggregate([{"$lookup": {
        "from": "c", "localField": "a", "foreignField": "a", "as": "x"}}, {"$match": {"x.0": {"$exists": True}}}])),
    "distinct": lambda c: c.distinct("pad"),
    "mapReduce": lambda c: range(int(c.database.command(
        "mapReduce", "c", map="function() { emit(1, 1) }", reduce="function(k, v) { return Array.sum(v) }",
        out={"inline": 1})["results"][0]["value"])),
    "update": lambda c: range(c.update_many({}, {"$set": {"b": 1}}).matched_count),
    "update by an index": lambda c: range(c.update_many({"a": {"$gte": 0}}, {"$inc": {"a": 1}}).matched_count),
    "delete": lambda c: range(c.delete_many({}).deleted_count),
    "findAndModify": lambda c: [c.find_one_and_update({"a": i}, {"$set": {"b": 1}})["_id"] for i in range(COUNT)],
    "$out": lambda c: (c.aggregate([{"$out": "copy"}]), all_of(c.database.copy.find()))[1],
    "createIndexes": lambda c: (c.create_index("pad"), all_of(c.find().hint("pad_1")))[1],
    "convertToCapped": lambda c: (c.database.command("convertToCapped", "c", size=1 << 26), all_of(c.find()))[1],
    "renameCollection to another database": lambda c: (
        c.database.client.admin.command("renameCollection", "t.c", to="u.c"), all_of(c.database.client.u.c.find()))[1],
}


@pytest.mark.parametrize("name", READS)
def test_reading_damaged_documents_is_an_error_that_names_the_file(name, folder, tmp_path):
    with running(folder, tmp_path) as (own, db):
        table = tables(own.dbpath)[-1]
        flip(table, 0.5)
        with pytest.raises(OperationFailure) as error:
            found = READS[name](db.c)
            assert len(found) == COUNT
        assert error.value.code == CORRUPT, error.value
        assert os.path.basename(table) in str(error.value)
        with open(own.log, errors="replace") as log:
            assert os.path.basename(table) in log.read()


INDEX_READS = ["find by an index", "find by an index backwards", "find by two indexes", "count by an index",
               "update by an index", "findAndModify", "find by many values"]


@pytest.mark.parametrize("name", INDEX_READS + ["covered", "count of keys", "distinct by keys"])
def test_reading_a_damaged_index_is_an_error_that_names_the_file(name, folder, tmp_path):
    reads = {**READS,
             "covered": lambda c: [d["a"] for d in c.find({"a": {"$gte": 0}}, {"_id": 0, "a": 1})],
             "count of keys": lambda c: range(c.count_documents({"a": {"$gte": 0}})),
             "distinct by keys": lambda c: c.distinct("a")}
    with running(folder, tmp_path) as (own, db):
        damaged = []
        for table in tables(own.dbpath)[:-1]:
            if os.path.getsize(table) > 20_000:
                # The entries of the index on _id lie before those of the other.
                flip(table, 0.75)
                damaged.append(os.path.basename(table))
        assert damaged
        with pytest.raises(OperationFailure) as error:
            found = reads[name](db.c)
            assert len(found) == COUNT
        assert error.value.code == CORRUPT, error.value
        assert any(table in str(error.value) for table in damaged)


@pytest.mark.parametrize("options", [{}, {"full": True}])
def test_validate_tells_of_damaged_documents(options, folder, tmp_path):
    with running(folder, tmp_path) as (own, db):
        table = tables(own.dbpath)[-1]
        flip(table, 0.5)
        reply = db.command("validate", "c", **options)
        assert reply["valid"] is False
        assert any(os.path.basename(table) in error for error in reply["errors"])
        assert reply["advice"].startswith("A corrupt namespace has been detected.")
        # The indexes can be read, and what is not damaged counts.
        assert reply["keysPerIndex"] == {"_id_": COUNT, "a_1": COUNT}
        assert 0 < reply["nrecords"] < COUNT
        with open(own.log, errors="replace") as log:
            assert os.path.basename(table) in log.read()
        assert db.command("validate", "other")["valid"] is True


def test_validate_tells_of_a_damaged_index(folder, tmp_path):
    with running(folder, tmp_path) as (own, db):
        damaged = []
        for table in tables(own.dbpath)[:-1]:
            if os.path.getsize(table) > 20_000:
                flip(table, 0.75)
                damaged.append(os.path.basename(table))
        reply = db.command("validate", "c")
        assert reply["valid"] is False
        assert reply["nrecords"] == COUNT
        assert any(table in error for table in damaged for error in reply["errors"])
        assert reply["indexDetails"]["a_1"]["valid"] is False
        assert "advice" in reply


def test_a_damaged_collection_can_be_dropped(folder, tmp_path):
    with running(folder, tmp_path) as (own, db):
        damaged = [table for table in tables(own.dbpath) if os.path.getsize(table) > 20_000]
        for table in damaged:
            flip(table, 0.5)
        db.c.drop()
        assert db.c.find_one() is None
        try:
            db.c.insert_one({"_id": 1})
        except OperationFailure as refused:
            # Ranges of a dropped collection are compacted in the background. Where that meets the
            # damage before this write, the write is refused with the cause, as below.
            assert any(os.path.basename(table) in str(refused) for table in damaged)


def test_a_compaction_that_meets_damage_fails_and_writes_are_refused_with_the_cause(folder, tmp_path):
    with running(folder, tmp_path) as (own, db):
        table = tables(own.dbpath)[-1]
        flip(table, 0.5)
        with pytest.raises(OperationFailure, match=os.path.basename(table)):
            db.command("compact", "c")
        with open(own.log, errors="replace") as log:
            assert os.path.basename(table) in log.read()
            log.seek(0)
            assert "the end of the log" not in log.read()
        # Writes are refused with the cause; reads go on.
        for write in (lambda: db.other.insert_one({"_id": 2}), lambda: db.c.insert_one({"_id": -1})):
            with pytest.raises(OperationFailure, match=os.path.basename(table)):
                write()
        assert db.client.admin.command("serverStatus")["marula"]["engine"]["background.errors"] > 0
        assert db.c.find_one({"_id": 0})["a"] == 0
        assert own.process.poll() is None
