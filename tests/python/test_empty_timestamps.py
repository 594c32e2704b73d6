"""Empty timestamps: a field at the top of a document that is stored whole becomes the present moment, unless the client
says to keep it, as tools do that copy documents."""
import datetime

import pymongo
import pytest
from bson import Timestamp

EMPTY = Timestamp(0, 0)
KEPT = {"bypassEmptyTsReplacement": True}


@pytest.fixture
def plain(uri):
    # Without the driver's own retries, so that `command` sends what it is given.
    with pymongo.MongoClient(uri, retryWrites=False) as client:
        client.drop_database("empty_timestamps")
        yield client.empty_timestamps
        client.drop_database("empty_timestamps")


def stored(db, **by):
    return db.c.find_one(by)


@pytest.mark.parametrize("fields", [{}, {"bypassEmptyTsReplacement": False}])
def test_they_are_filled(plain, fields):
    plain.command("insert", "c", documents=[{"_id": 1, "a": EMPTY, "n": {"a": EMPTY}, "l": [EMPTY]}], **fields)
    found = stored(plain, _id=1)
    assert found["a"] > EMPTY and found["n"]["a"] == EMPTY and found["l"] == [EMPTY]
    plain.command("update", "c", updates=[{"q": {"_id": 1}, "u": {"b": EMPTY}}], **fields)
    assert stored(plain, _id=1)["b"] > EMPTY
    found = plain.command("findAndModify", "c", query={"_id": 1}, update={"c": EMPTY}, new=True, **fields)
    assert found["value"]["c"] > EMPTY
    plain.command("update", "c", updates=[{"q": {"_id": 2}, "u": {"d": EMPTY}, "upsert": True}], **fields)
    assert stored(plain, _id=2)["d"] > EMPTY
    plain.command("delete", "c", deletes=[{"q": {}, "limit": 0}], **fields)
    assert stored(plain) is None


def test_they_are_kept(plain):
    plain.command("insert", "c", documents=[{"_id": 1, "a": EMPTY}, {"x": 1, "a": EMPTY, "_id": 2}], **KEPT)
    assert list(plain.c.find()) == [{"_id": 1, "a": EMPTY}, {"_id": 2, "x": 1, "a": EMPTY}]
    plain.command("update", "c", updates=[{"q": {"_id": 1}, "u": {"b": EMPTY}},
                                          {"q": {"_id": 3}, "u": {"b": EMPTY}, "upsert": True}], **KEPT)
    assert stored(plain, _id=1) == {"_id": 1, "b": EMPTY} and stored(plain, _id=3) == {"_id": 3, "b": EMPTY}
    # The same again changes nothing.
    reply = plain.command("update", "c", updates=[{"q": {"_id": 1}, "u": {"_id": 1, "b": EMPTY}}], **KEPT)
    assert (reply["n"], reply["nModified"]) == (1, 0)
    found = plain.command("findAndModify", "c", query={"_id": 4}, update={"c": EMPTY}, new=True, upsert=True, **KEPT)
    assert found["value"] == {"_id": 4, "c": EMPTY}
    assert plain.command("delete", "c", deletes=[{"q": {"_id": 4}, "limit": 1}], **KEPT)["n"] == 1


def test_operators_and_pipelines_keep_them(plain):
    updates = [{"q": {"_id": 1}, "u": {"$set": {"a": EMPTY}, "$setOnInsert": {"b": EMPTY}}, "upsert": True},
               {"q": {"_id": 1}, "u": {"$set": {"c": EMPTY}}},
               {"q": {"_id": 1}, "u": [{"$set": {"d": EMPTY}}]},
               {"q": {"_id": 2, "e": EMPTY}, "u": {"$set": {"f": 1}}, "upsert": True},
               {"q": {"_id": 3}, "u": [{"$replaceWith": {"_id": 3, "g": EMPTY}}], "upsert": True}]
    plain.command("update", "c", updates=updates)
    assert stored(plain, _id=1) == {"_id": 1, "a": EMPTY, "b": EMPTY, "c": EMPTY, "d": EMPTY}
    assert stored(plain, _id=2) == {"_id": 2, "e": EMPTY, "f": 1}
    assert stored(plain, _id=3) == {"_id": 3, "g": EMPTY}


def test_an_id_is_never_filled(plain):
    plain.command("insert", "c", documents=[{"_id": EMPTY}])
    assert stored(plain) == {"_id": EMPTY}


@pytest.mark.parametrize("when, matched, new", [("replace", True, True), ("merge", False, False),
                                                ("keepExisting", None, False), ([{"$replaceWith": "$$new"}], False, True)])
def test_what_merge_writes(plain, when, matched, new):
    plain.c.insert_many([{"_id": 1}, {"_id": 2}])
    plain.o.insert_one({"_id": 1})
    list(plain.c.aggregate([{"$set": {"t": EMPTY}}, {"$merge": {"into": "o", "whenMatched": when}}]))
    first, second = plain.o.find().sort("_id")
    assert first.get("t") is None if matched is None else (first["t"] > EMPTY) == matched
    assert (second["t"] > EMPTY) == new


def test_out_fills_and_measurements_keep_them(plain):
    plain.c.insert_one({"_id": 1})
    list(plain.c.aggregate([{"$set": {"t": EMPTY}}, {"$out": "o"}]))
    assert plain.o.find_one()["t"] > EMPTY
    plain.create_collection("m", timeseries={"timeField": "at", "metaField": "who"})
    plain.m.insert_one({"at": datetime.datetime(2024, 1, 1), "who": EMPTY, "v": EMPTY})
    found = plain.m.find_one()
    assert (found["who"], found["v"]) == (EMPTY, EMPTY)


@pytest.mark.parametrize("value, kind", [(1, "int"), (None, "null"), ("x", "string"), ({}, "object")])
def test_only_a_boolean_says_so(plain, value, kind):
    commands = [("insert", {"documents": [{}]}), ("update", {"updates": []}), ("delete", {"deletes": []}),
                ("findAndModify", {"update": {}})]
    for name, fields in commands:
        with pytest.raises(pymongo.errors.OperationFailure) as refused:
            plain.command(name, "c", bypassEmptyTsReplacement=value, **fields)
        assert refused.value.code == 14
        expected = "Field 'bypassEmptyTsReplacement' should be a boolean value, but found: " + kind
        assert refused.value.details["errmsg"] == expected
