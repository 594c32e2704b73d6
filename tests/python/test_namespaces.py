"""Databases and collections: made, renamed, listed, measured, dropped; views and validators."""
import uuid

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo.errors import CollectionInvalid, OperationFailure, WriteError


def test_collections_appear_and_go(client, db):
    assert db.name not in client.list_database_names()
    db.a.insert_one({})
    db.create_collection("b", capped=True, size=4096)
    assert db.name in client.list_database_names()
    assert sorted(db.list_collection_names()) == ["a", "b"]
    infos = {i["name"]: i for i in db.list_collections()}
    assert infos["b"]["options"] == {"capped": True, "size": 4096}
    assert infos["a"]["type"] == "collection" and infos["a"]["idIndex"]["name"] == "_id_"
    with pytest.raises(CollectionInvalid):
        db.create_collection("b")
    db.b.drop()
    db.drop_collection("never was")
    assert db.list_collection_names() == ["a"]
    client.drop_database(db.name)
    assert db.name not in client.list_database_names()


def test_sizes_of_listed_databases_are_added_up(client, db):
    first, last = client[db.name + "_a"], client[db.name + "_b"]
    last.create_collection("empty")
    first.create_collection("v", viewOn="nothing", pipeline=[])
    db.c.insert_one({"pad": "x" * 3_000_000})
    try:
        reply = client.admin.command("listDatabases")
        databases = reply["databases"]
        names = [one["name"] for one in databases]
        assert names == sorted(names) and {db.name, first.name, last.name} <= set(names)
        for one in databases:
            assert list(one) == ["name", "sizeOnDisk", "empty"]
            assert one["sizeOnDisk"] > 0 and one["empty"] is False, one
        assert reply["totalSize"] == sum(one["sizeOnDisk"] for one in databases)
        assert reply["totalSizeMb"] == reply["totalSize"] >> 20
        reply = client.admin.command("listDatabases", nameOnly=True)
        assert reply["databases"] == [{"name": name} for name in names] and "totalSize" not in reply
    finally:
        for one in (first, last):
            client.drop_database(one.name)
    assert not {first.name, last.name} & set(client.list_database_names())


def test_the_version_is_a_document_from_the_first_start(client):
    assert "admin" in client.list_database_names()
    assert client.admin["system.version"].find_one({"_id": "featureCompatibilityVersion"})["version"] == "6.0"


@pytest.mark.parametrize("source, target, code, message", [
    ("none", "v", 26, "Source collection {db}.none does not exist"), ("none", "a", 26, "Source collection {db}.none does not exist"),
    ("none", "other.v", 26, "source namespace does not exist"), ("v", "v", 20, "Can't rename a collection to itself"),
    ("none", "none", 20, "Can't rename a collection to itself"), ("v", "w", 166, "cannot rename view: {db}.v"),
    ("a", "v", 48, "a view already exists with that name: {db}.v"),
])
def test_rename_of_what_is_not_there_or_a_view(client, db, source, target, code, message):
    db.a.insert_one({})
    db.create_collection("v", viewOn="a", pipeline=[])
    target = target if "." in target else f"{db.name}.{target}"
    for drops in (False, True):
        with pytest.raises(OperationFailure) as error:
            client.admin.command("renameCollection", f"{db.name}.{source}", to=target, dropTarget=drops)
        assert (error.value.code, error.value.details["errmsg"]) == (code, message.format(db=db.name))


def test_rename_moves_documents_and_indexes(client, db):
    db.a.insert_many([{"_id": i, "x": i} for i in range(10)])
    db.a.create_index("x")
    db.a.rename("b")
    assert db.list_collection_names() == ["b"] and db.b.count_documents({"x": {"$gte": 5}}) == 5
    assert "x_1" in db.b.index_information()
    db.c.insert_one({})
    with pytest.raises(OperationFailure) as error:
        db.b.rename("c")
    assert error.value.code == 48
    db.b.rename("c", dropTarget=True)
    assert db.c.count_documents({}) == 10
    with pytest.raises(OperationFailure) as error:
        db.nothing.rename("d")
    assert error.value.code == 26


def test_statistics(db):
    db.c.insert_many([{"_id": i, "t": "x" * 100} for i in range(100)])
    db.c.create_index("t")
    stats = db.command("collStats", "c")
    assert (stats["ns"], stats["count"], stats["nindexes"]) == (db.name + ".c", 100, 2)
    assert stats["size"] == 100 * stats["avgObjSize"] == 100 * len(__import__("bson").encode({"_id": 1, "t": "x" * 100}))
    stats = db.command("dbStats")
    assert (stats["db"], stats["collections"], stats["objects"], stats["indexes"]) == (db.name, 1, 100, 2)


def test_counts_and_sizes_follow_every_write(db):
    size = lambda: (lambda s: (s["count"], s["size"]))(db.command("collStats", "c"))  # noqa: E731
    db.c.insert_many([{"_id": i, "t": "x"} for i in range(10)])
    assert size() == (10, 230)
    db.c.update_many({"_id": {"$lt": 5}}, {"$set": {"t": "xyz"}})
    assert size() == (10, 240)
    db.c.delete_many({"_id": {"$gte": 8}})
    assert size() == (8, 194)
    db.c.delete_many({})
    assert size() == (0, 0)


@pytest.mark.parametrize("name, code", [("", 73), ("a$b", 73), (".a", 73), ("a" * 300, 73), ("system.x", 73)])
def test_names_that_are_refused(db, name, code):
    with pytest.raises(OperationFailure) as error:
        db.command("create", name)
    assert error.value.code == code


def test_a_view_shows_its_pipeline(db):
    db.c.insert_many([{"_id": i, "n": i} for i in range(5)])
    db.command("create", "v", viewOn="c", pipeline=[{"$match": {"n": {"$gt": 2}}}, {"$project": {"n": 0}}])
    assert list(db.v.find().sort("_id")) == [{"_id": 3}, {"_id": 4}]
    assert db.v.count_documents({}) == 2
    with pytest.raises(OperationFailure) as error:
        db.v.insert_one({})
    assert error.value.code == 166


def test_a_validator_refuses_what_does_not_match(db):
    db.create_collection("c", validator={"n": {"$gt": 0}})
    db.c.insert_one({"_id": 1, "n": 1})
    for write in (lambda: db.c.insert_one({"n": 0}), lambda: db.c.update_one({"_id": 1}, {"$set": {"n": -1}})):
        with pytest.raises(WriteError) as error:
            write()
        assert error.value.code == 121
    db.command("collMod", "c", validator={})
    db.c.insert_one({"n": 0})


def test_a_capped_collection_forgets_its_oldest(db):
    db.create_collection("log", capped=True, size=1_000_000, max=10)
    db.log.insert_many([{"_id": i} for i in range(25)])
    assert [d["_id"] for d in db.log.find()] == list(range(15, 25))
    assert [d["_id"] for d in db.log.find().sort("$natural", -1).limit(1)] == [24]


def test_diagnostics_answer(client, db):
    assert client.admin.command("ping")["ok"] == 1.0
    info = client.admin.command("buildInfo")
    assert info["versionArray"][:2] == [6, 0] and info["maxBsonObjectSize"] == 16 * 1024 * 1024
    status = client.admin.command("serverStatus")
    assert status["connections"]["current"] >= 1 and status["uptime"] >= 0
    before = status["opcounters"]["insert"]
    db.c.insert_many([{}] * 1 + [{"a": i} for i in range(9)])
    assert client.admin.command("serverStatus")["opcounters"]["insert"] == before + 10
    assert client.admin.command("hello")["maxWriteBatchSize"] == 100_000
    assert client.admin.command("listCommands")["commands"]["find"]["help"]
    assert client.admin.command("getLog", "global")["log"] is not None
    assert client.admin.command("whatsmyuri")["you"].startswith("127.0.0.1:")
    assert "find" in client.admin.command("listCommands")["commands"]


NOT_IN_A_PIPELINE = {
    "min": {"a": 1}, "max": {"a": 2}, "returnKey": True, "showRecordId": True, "noCursorTimeout": True,
    "allowPartialResults": True, "singleBatch": True,
}


def test_a_find_on_a_view_is_read_as_any_before_its_options_are_refused(db):
    db.c.insert_one({"a": 1})
    db.create_collection("plain", viewOn="c", pipeline=[])
    for name, value in NOT_IN_A_PIPELINE.items():
        for command in [{"find": "plain", name: value}, {"explain": {"find": "plain", name: value}}]:
            with pytest.raises(OperationFailure, match=f"Option {name} not supported in aggregation.") as error:
                db.command(command)
            assert error.value.code == 168
    assert db.command({"find": "plain", "limit": 1, "singleBatch": True})["ok"] == 1 and db.plain.find_one()["a"] == 1
    mistakes = [({"filter": {"$bad": 1}}, 2), ({"sort": {"a": "x"}}, 15974), ({"projection": {"a": {"$bad": 1}}}, 31325)]
    for mistake, code in mistakes:
        with pytest.raises(OperationFailure) as error:
            db.command({"find": "plain", "returnKey": True, **mistake})
        assert error.value.code == code


def test_a_command_may_say_which_collection_it_means(db):
    """By its UUID: one that is another's, or nobody's, is refused, and by a rename to another database in any case."""
    db.create_collection("c")
    db.create_collection("other")
    uuids = {info["name"]: info["info"]["uuid"] for info in db.list_collections()}
    nobody = bson.Binary(uuid.uuid4().bytes, 4)

    def commands(meant):
        yield db, {"find": "c", "collectionUUID": meant}
        yield db, {"aggregate": "c", "pipeline": [], "cursor": {}, "collectionUUID": meant}
        yield db, {"insert": "c", "documents": [{"_id": 1}], "collectionUUID": meant}
        yield db, {"update": "c", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}], "collectionUUID": meant}
        yield db, {"delete": "c", "deletes": [{"q": {}, "limit": 0}], "collectionUUID": meant}
        yield db, {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}], "collectionUUID": meant}
        yield db, {"dropIndexes": "c", "index": "*", "collectionUUID": meant}
        yield db, {"collMod": "c", "collectionUUID": meant}
        yield db.client.admin, {"renameCollection": db.name + ".c", "to": db.name + ".d", "collectionUUID": meant}
        yield db, {"drop": "d" if meant == uuids["c"] else "c", "collectionUUID": meant}

    for meant, actual in ((nobody, None), (uuids["other"], "other")):
        for where, command in commands(meant):
            try:
                details = where.command(command)["writeErrors"][0]
            except OperationFailure as error:
                details = error.details
            assert details["code"] == 361, command
            assert (details["expectedCollection"], details["actualCollection"]) == ("c", actual), command
    assert db.c.count_documents({}) == 0
    for where, command in commands(uuids["c"]):
        assert "writeErrors" not in where.command(command), command
    with pytest.raises(OperationFailure) as refused:
        db.client.admin.command("renameCollection", db.name + ".other", to="elsewhere.c", collectionUUID=uuids["other"])
    assert refused.value.code == 72


def test_a_time_series_is_named_by_its_buckets_where_its_uuid_differs(db):
    db.create_collection("k", timeseries={"timeField": "t"})
    nobody = bson.Binary(uuid.uuid4().bytes, 4)
    for command, name in (
        ({"find": "k"}, "k"),
        ({"update": "k", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]}, "system.buckets.k"),
        ({"delete": "k", "deletes": [{"q": {}, "limit": 0}]}, "system.buckets.k"),
        ({"dropIndexes": "k", "index": "a"}, "system.buckets.k"),
    ):
        try:
            details = db.command({**command, "collectionUUID": nobody})["writeErrors"][0]
        except OperationFailure as error:
            details = error.details
        assert (details["code"], details["expectedCollection"]) == (361, name), command
    db.command({"collMod": "k", "collectionUUID": nobody})
    db.command({"createIndexes": "k", "indexes": [{"key": {"a": 1}, "name": "a"}], "collectionUUID": nobody})


def test_a_view_is_refused_before_the_mistakes_of_a_write(db):
    db.command("create", "k", viewOn="c")
    for command in (
        {"update": "k", "updates": [{"q": {}, "u": {"$foo": 1}}]},
        {"update": "k", "updates": [{"q": {}, "u": {"$rename": {"x.$[e]": "d"}}, "multi": True}]},
        {"delete": "k", "deletes": [{"q": {"$foo": 1}, "limit": 0}]},
        {"delete": "k", "deletes": [{"q": {}, "limit": 0, "collation": {"locale": "xx"}}]},
    ):
        assert db.command(command)["writeErrors"][0]["code"] == 166, command


def test_a_document_with_two_ids_creates_no_collection(db):
    twice = RawBSONDocument(b"\x17\0\0\0\x10_id\0\1\0\0\0\x10_id\0\2\0\0\0\0")
    for ordered in (True, False):
        reply = db.command("insert", "twice", documents=[twice], ordered=ordered)
        assert (reply["n"], reply["writeErrors"][0]["code"]) == (0, 2)
    assert "twice" not in db.list_collection_names()


def test_a_pattern_is_reported_with_the_other_operators_of_its_path(db):
    operators = {"$regex": "a", "$options": "i", "$size": 1}
    db.create_collection("k", validator={"x": operators})
    with pytest.raises(WriteError) as error:
        db.k.insert_one({"_id": 1})
    parts = error.value.details["errInfo"]["details"]["clausesNotSatisfied"]
    assert [part["details"]["specifiedAs"] for part in parts] == [{"x": operators}, {"x": {"$size": 1}}]


def test_read_once_is_for_collections(db):
    db.c.insert_one({"_id": 1})
    db.create_collection("v", viewOn="c", pipeline=[])
    with pytest.raises(OperationFailure) as failed:
        db.command("find", "v", readOnce=True)
    assert (failed.value.code, failed.value.details["errmsg"]) == (168, "Option readOnce not supported in aggregation.")
    for name, once in (("v", False), ("c", True)):
        assert db.command("find", name, readOnce=once)["cursor"]["firstBatch"] == [{"_id": 1}]


def test_the_name_of_a_view_is_checked_before_its_collection(db):
    db.create_collection("other")
    db.create_collection("seen", viewOn="other", pipeline=[])
    db.create_collection("series", timeseries={"timeField": "t"})
    for name, code in (("system.views", 73), ("system.buckets.series", 73), ("other", 48)):
        with pytest.raises(OperationFailure) as refused:
            db.command({"create": name, "viewOn": "other", "pipeline": []})
        assert refused.value.code == code
