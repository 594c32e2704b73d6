"""Rejected commands and their codes: names of collections, types of fields, concerns.

Every row holds on mongod 6.0, too. tests/surface/sweep.py compares each command, with each value
of each field, with a mongod.
"""
import datetime
import uuid

import pytest
from bson import Binary, Decimal128, Int64
from bson.binary import UuidRepresentation
from pymongo.errors import OperationFailure

SHORT_UUID = Binary(b"abc", 4)
SOME_UUID = Binary.from_uuid(uuid.UUID(int=7), UuidRepresentation.STANDARD)
NO_NAMES = [5, 1.5, True, None, [], {}, Binary(b"abc", 0), datetime.datetime(2026, 1, 1)]

BY_NAME = [
    {"insert": 0, "documents": [{}]}, {"update": 0, "updates": [{"q": {}, "u": {}}]},
    {"delete": 0, "deletes": [{"q": {}, "limit": 0}]}, {"findAndModify": 0, "query": {}, "remove": True},
    {"create": 0}, {"drop": 0}, {"createIndexes": 0, "indexes": [{"key": {"a": 1}, "name": "a"}]},
    {"dropIndexes": 0, "index": "*"}, {"collMod": 0}, {"killCursors": 0, "cursors": []},
]
OLD_BY_NAME = [
    {"collStats": 0}, {"validate": 0}, {"convertToCapped": 0, "size": 1000}, {"planCacheClear": 0},
    {"planCacheListFilters": 0},
]
BY_UUID = [{"find": 0}, {"listIndexes": 0}]
OLD_BY_UUID = [{"count": 0}, {"distinct": 0, "key": "a"}]


def code(db, command):
    """The code of the error of a command, or of its first write; 0 where there is none."""
    try:
        reply = db.command(command)
    except OperationFailure as error:
        return error.code
    return (reply.get("writeErrors") or [{"code": 0}])[0]["code"]


def named(command, name):
    return {**command, next(iter(command)): name}


@pytest.mark.parametrize("commands, refused_as", [(BY_NAME + BY_UUID, 2), (OLD_BY_NAME + OLD_BY_UUID, 73)])
def test_a_collection_is_named_by_a_string(db, commands, refused_as):
    for command in commands:
        for name in NO_NAMES:
            assert code(db, named(command, name)) == refused_as, (command, name)
        short = 207 if command in BY_UUID + OLD_BY_UUID else refused_as
        assert code(db, named(command, SHORT_UUID)) == short, command
        for name in ("", ".a"):
            assert code(db, named(command, name)) == 73, (command, name)


def test_an_explained_command_is_named_as_older_ones_are(db):
    for name in NO_NAMES + [SOME_UUID]:
        for inner in ({"find": name}, {"count": name}, {"distinct": name, "key": "a"}):
            assert code(db, {"explain": inner}) == 73, inner
        if name is not SOME_UUID:
            number = isinstance(name, (int, float)) and not isinstance(name, bool)
            assert code(db, {"aggregate": name, "pipeline": [], "cursor": {}}) == (9 if number else 14), name


def test_a_uuid_stands_for_a_name_where_it_may(db, client):
    db.c.insert_many([{"a": 1}, {"a": 2}])
    [info] = db.list_collections(filter={"name": "c"})
    own = info["info"]["uuid"]
    own = own if isinstance(own, Binary) else Binary.from_uuid(own, UuidRepresentation.STANDARD)
    assert db.command({"find": own})["cursor"]["ns"] == db.name + ".c"
    assert db.command({"count": own})["n"] == 2
    assert sorted(db.command({"distinct": own, "key": "a"})["values"]) == [1, 2]
    assert db.command({"listIndexes": own})["cursor"]["ns"] == db.name + ".c"
    first = db.command({"find": own, "batchSize": 1})["cursor"]
    assert len(db.command({"getMore": first["id"], "collection": "c"})["cursor"]["nextBatch"]) == 1
    for command in BY_UUID + OLD_BY_UUID:
        assert code(db, named(command, SOME_UUID)) == 26, command
        # The collection is another database's.
        assert code(client[db.name + "_other"], named(command, own)) == 26, command
    for command in BY_NAME:
        assert code(db, named(command, own)) == 2, command
    for command in OLD_BY_NAME:
        assert code(db, named(command, own)) == 73, command
    db.c.drop()
    assert code(db, {"find": own}) == 26


def test_collections_of_the_server_are_not_written(db):
    names = {"system.x": 73, "system.views": 73, "system.profile": 73, "system.sessions": 73, "a$b": 73, "$cmd": 73,
             "system.roles": 73, "system.buckets.": 73, "x.system.y": 2, "n" * 250: 73, "system.js": 0}
    for name, expected in names.items():
        for command in ({"insert": name, "documents": [{}]}, {"update": name, "updates": [{"q": {}, "u": {"a": 1}}]},
                        {"delete": name, "deletes": [{"q": {}, "limit": 0}]},
                        {"findAndModify": name, "query": {}, "remove": True},
                        {"createIndexes": name, "indexes": [{"key": {"a": 1}, "name": "a"}]}):
            assert code(db, command) == expected, (name, command)
    assert code(db, {"dropIndexes": "system.views", "index": "*"}) == 51070
    for name in ("a$b", "$cmd"):
        for command in ({"find": name}, {"count": name}, {"distinct": name, "key": "a"}):
            assert code(db, command) == 73, command
    assert code(db, {"aggregate": "$cmd.aggregate", "pipeline": [], "cursor": {}}) == 73


def test_collections_of_the_server_are_not_dropped(db):
    db["system.js"].insert_one({"_id": "f"})
    assert code(db, {"drop": "system.js"}) == 20
    assert code(db, {"drop": "system.x"}) == 26


@pytest.mark.parametrize("field", ["singleBatch", "allowDiskUse", "returnKey", "showRecordId", "tailable", "oplogReplay",
                                   "noCursorTimeout", "awaitData", "allowPartialResults", "readOnce"])
def test_switches_of_find_are_booleans(db, field):
    for value in (None, 0, 1, 1.0, Decimal128("1"), "x", {}):
        assert code(db, {"find": "c", field: value}) == 14, value


@pytest.mark.parametrize("command, expected", [
    ({"find": "c", "filter": None}, 14), ({"find": "c", "sort": None}, 14), ({"find": "c", "min": None}, 14),
    ({"find": "c", "collation": None}, 14), ({"find": "c", "hint": None}, 9), ({"count": "c", "hint": None}, 9),
    ({"aggregate": "c", "pipeline": [], "cursor": {}, "hint": None}, 9),
    ({"aggregate": "c", "pipeline": [], "cursor": {}, "explain": None}, 14),
    ({"aggregate": "c", "pipeline": [], "cursor": {}, "needsMerge": True}, 9),
    ({"delete": "c", "deletes": [{"q": {}, "limit": 1, "hint": 1}]}, 9),
    ({"delete": "c", "deletes": [{"q": {}, "limit": 1.5}]}, 9),
    ({"insert": "c", "documents": [{}], "let": {}}, 40415),
    ({"insert": "c", "documents": [{}], "stmtId": Int64(1)}, 14),
    ({"find": "c", "maxTimeMS": Decimal128("1000.5")}, 0), ({"find": "c", "maxTimeMS": 1000.5}, 2),
    ({"find": "c", "maxTimeMS": None}, 2), ({"find": "c", "maxTimeMS": "x"}, 2),
    ({"aggregate": "c", "pipeline": [], "cursor": {}, "maxTimeMS": "x"}, 14),
    ({"count": "c", "limit": None}, 2), ({"count": "c", "limit": "x"}, 2), ({"count": "c", "limit": 1.5}, 9),
    ({"count": "c", "limit": 1e300}, 9), ({"count": "c", "limit": Int64(-2 ** 63)}, 2), ({"count": "c", "limit": -1}, 0),
    ({"count": "c", "fields": 1}, 0), ({"count": "c", "queryOptions": {}}, 40415),
    ({"count": "c", "collectionUUID": SOME_UUID}, 40415), ({"count": "c", "x": 1}, 40415),
    ({"explain": None}, 40414), ({"explain": {"find": "c", "limit": -1}}, 51024),
    ({"explain": {"count": "c", "limit": 1.5}}, 9), ({"explain": {"find": "c", "$db": 1}}, 13111),
    ({"explain": {"find": "c", "writeConcern": {"w": 1}}}, 0), ({"explain": {"find": "c"}, "writeConcern": {"w": 1}}, 72),
    ({"explain": {"find": "c", "txnNumber": 1}}, 0),
    ({"find": "c", "collectionUUID": 1}, 14), ({"find": "c", "collectionUUID": SHORT_UUID}, 207),
    ({"find": "c", "collectionUUID": Binary(b"abc", 0)}, 14), ({"find": "c", "collectionUUID": SOME_UUID}, 361),
    ({"drop": "c", "collectionUUID": SOME_UUID}, 361), ({"collMod": "c", "collectionUUID": SOME_UUID}, 361),
    ({"dropIndexes": "c", "index": "*", "collectionUUID": SOME_UUID}, 361),
    ({"find": "c", "$readPreference": {}}, 4), ({"find": "c", "$readPreference": {"mode": 1}}, 14),
    ({"find": "c", "$readPreference": {"mode": "x"}}, 2),
    ({"find": "c", "clientOperationKey": 1}, 207),
    ({"find": "c", "readConcern": {"provenance": 1}}, 14), ({"find": "c", "readConcern": {"provenance": "x"}}, 2),
    ({"find": "c", "readConcern": {"provenance": "clientSupplied"}}, 0), ({"find": "c", "readConcern": {"level": "x"}}, 9),
    ({"insert": "c", "documents": [{}], "writeConcern": {"w": {"x": "y"}}}, 9),
    ({"insert": "c", "documents": [{}], "writeConcern": {"w": 1, "provenance": "x"}}, 2),
    ({"insert": "c", "documents": [{}], "writeConcern": {"w": 1, "provenance": "clientSupplied"}}, 0),
    ({"collStats": "c", "waitForLock": 1}, 14), ({"listIndexes": "c", "includeBuildUUIDs": 1}, 0),
    ({"killCursors": "c", "cursors": None}, 10065), ({"endSessions": None}, 10065), ({"endSessions": [None]}, 0),
], ids=str)
def test_fields_are_refused_by_mongod_s_codes(db, command, expected):
    db.c.insert_one({"_id": 1})
    assert code(db, command) == expected


def test_another_uuid_tells_both_names(db):
    db.c.insert_one({})
    with pytest.raises(OperationFailure) as caught:
        db.command({"find": "c", "collectionUUID": SOME_UUID})
    details = caught.value.details
    assert (details["db"], details["expectedCollection"], details["actualCollection"]) == (db.name, "c", None)


def test_a_filter_of_databases_sees_what_is_shown(client, db):
    db.c.insert_one({})
    admin = client.admin

    def names(**options):
        return [one["name"] for one in admin.command("listDatabases", **options)["databases"]]

    assert names(filter={"name": db.name}) == [db.name]
    assert names(filter={"sizeOnDisk": {"$gte": 0}, "name": db.name}) == [db.name]
    assert names(filter={"sizeOnDisk": {"$gte": 0}, "name": db.name}, nameOnly=True) == []
    assert code(admin, {"listDatabases": 1, "authorizedDatabases": 1}) == 14


@pytest.mark.parametrize("pattern, expected", [
    (None, 0), (1, 14), ({"x": 1}, 40415), ({"users": None}, 10065), ({"users": 1}, 14), ({"users": [1]}, 14),
    ({"users": [{}]}, 40414), ({"users": [{"user": "a", "db": "b"}]}, 0), ({"roles": [{"x": 1}]}, 40415),
    ({"roles": [{"role": "a", "db": "b"}]}, 0), ({"uid": Binary(b"abc", 0)}, 12), ({"uid": SOME_UUID}, 14),
    ({"uid": Binary(bytes(32), 0)}, 0), ({"lsid": {"id": SHORT_UUID, "uid": Binary(bytes(32), 0)}}, 207),
    ({"lsid": {"id": SOME_UUID, "uid": Binary(b"abc", 0)}}, 12), ({"lsid": {"id": SOME_UUID}}, 40414),
], ids=str)
def test_patterns_of_sessions_are_checked(client, pattern, expected):
    assert code(client.admin, {"killAllSessionsByPattern": [pattern]}) == expected


def test_large_names_are_told_whole(client):
    """As mongod does: an error is as long as what it names, and still fits into a message."""
    large = "x" * 4_000_000
    for command in ({"find": "c", "filter": {"$" + large: 1}}, {"aggregate": "c", "pipeline": [{"$" + large: 1}], "cursor": {}}):
        with pytest.raises(OperationFailure) as caught:
            client.test.command(command)
        assert len(caught.value.details["errmsg"]) > len(large)
    assert client.admin.command("ping")["ok"] == 1


@pytest.mark.parametrize("command, code", [
    ({"findAndModify": "n", "update": {"$foo": 1}, "upsert": True}, 9),
    ({"findAndModify": "n", "query": {"$bad": 1}, "update": {"$set": {"a": 1}}, "upsert": True}, 2),
    ({"findAndModify": "n", "update": {"$set": {"a": 1}}, "sort": {"a": 7}, "upsert": True}, 15975),
    ({"insert": "n", "documents": [{"_id": [1]}]}, 53),
    ({"insert": "n", "documents": [{"_id": [1]}, {"_id": 2}]}, 53),
    ({"insert": "n", "documents": [{"_id": [1]}, {"_id": {"$a": 1}}], "ordered": False}, 53),
])
def test_a_write_that_cannot_be_leaves_no_collection(c, command, code):
    reply = c.database.command(command, check=False) if "insert" in command else refused_with(c, command)
    assert (reply["writeErrors"][0]["code"] if "writeErrors" in reply else reply["code"]) == code
    assert "n" not in c.database.list_collection_names()


@pytest.mark.parametrize("command, code", [
    ({"findAndModify": "n", "query": {"_id": [1]}, "update": {"$set": {"a": 1}}, "upsert": True}, 53),
    ({"findAndModify": "n", "update": {"$set": {"a": 1}}, "fields": {"a": 1, "b": 0}, "upsert": True}, 31254),
    ({"insert": "n", "documents": [{"_id": [1]}, {"_id": 2}], "ordered": False}, 53),
])
def test_a_write_that_fails_later_leaves_one(c, command, code):
    reply = c.database.command(command, check=False) if "insert" in command else refused_with(c, command)
    assert (reply["writeErrors"][0]["code"] if "writeErrors" in reply else reply["code"]) == code
    assert "n" in c.database.list_collection_names()


def refused_with(c, command):
    with pytest.raises(OperationFailure) as refused:
        c.database.command(command)
    return refused.value.details


@pytest.mark.parametrize("command, place", [
    ({"find": "c"}, "FindCommandRequest"),
    ({"ping": 1}, "ping"),
    ({"explain": {"find": "c", "jsonSchema": {}}}, "FindCommandRequest"),
    ({"find": "c", "collation": {"locale": "en", "jsonSchema": 1}}, "collation"),
    ({"update": "c", "updates": [{"q": {}, "u": {}, "jsonSchema": 1}]}, "update.updates"),
    ({"insert": "c", "documents": [{}], "writeConcern": {"jsonSchema": 1}}, "WriteConcernOptions"),
    ({"aggregate": "c", "cursor": {}, "pipeline": [{"$fill": {"output": {}, "jsonSchema": 1}}]}, "$fill"),
])
def test_a_command_for_mongocryptd_says_so(db, command, place):
    """mongocryptd encrypts for a driver, which may have connected to the wrong process."""
    if "jsonSchema" not in str(command):
        command = {**command, "jsonSchema": {}, "isRemoteSchema": True}
    with pytest.raises(OperationFailure) as caught:
        db.command(command)
    assert caught.value.code == 4662500
    assert caught.value.details["errmsg"] == (
        f"BSON field '{place}.jsonSchema' is an unknown field."
        " This command may be meant for a mongocryptd process.")


def test_other_fields_of_mongocryptd_are_unknown_as_any(db):
    assert code(db, {"find": "c", "isRemoteSchema": True}) == 40415
    assert code(db, {"find": "c", "zork": 1, "jsonSchema": {}}) == 40415
