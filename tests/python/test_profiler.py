"""The database profiler and the log of slow operations."""
import json
import time

import pymongo
import pytest
import server
from pymongo.errors import OperationFailure


# Returns the record of a `find` by `b`; reading the records may be recorded too.
OF_B = {"command.filter.b": {"$exists": True}}


@pytest.fixture(scope="module")
def own():
    """A server whose log is this test's, as JSON."""
    options = [] if server.is_mongod() else ["--log-format", "json"]
    with server.Server(*options) as own:
        yield own


@pytest.fixture
def db(own):
    with pymongo.MongoClient(own.uri, appname="the test") as client:
        client.drop_database("prof")
        yield client.prof
        client.prof.command("profile", 0, slowms=100, sampleRate=1.0, filter="unset")
        client.drop_database("prof")


def profiled(db, **filter):
    """The records of operations, the oldest first."""
    return list(db.system.profile.find(filter))


def fill(db):
    db.c.insert_many([{"_id": i, "a": i % 10, "b": i} for i in range(300)])
    db.c.create_index("a")


def test_everything_is_recorded_at_level_2(db):
    assert db.command("profile", 2)["was"] == 0
    assert db.system.profile.options() == {"capped": True, "size": 1048576}
    fill(db)
    list(db.c.find({"a": 3}, batch_size=5, comment="hey"))
    list(db.c.find({"b": {"$gt": 290}}).sort("x", -1).limit(3))
    db.c.update_one({"a": 3}, {"$set": {"x": 1}})
    db.c.update_one({"_id": -1}, {"$set": {"x": 1}}, upsert=True)
    db.c.bulk_write([pymongo.DeleteOne({"_id": 5}), pymongo.DeleteMany({"a": 7})])
    db.c.find_one_and_update({"_id": 6}, {"$set": {"a": 77}})
    list(db.c.aggregate([{"$group": {"_id": None, "n": {"$sum": "$b"}}}]))
    with pytest.raises(OperationFailure):
        list(db.c.find({"$bad": 1}))
    with pytest.raises(OperationFailure):
        db.c.update_one({"_id": 1}, {"$set": {"_id": 2}})
    db.command("profile", 0)
    fill2 = len(profiled(db))
    db.c.find_one()
    assert len(profiled(db)) == fill2, "an operation was recorded at level 0"

    found = profiled(db, op="query", **{"command.filter.a": 3})[0]
    found.pop("_id", None)
    assert list(found)[:3] == ["op", "ns", "command"] and found["ns"] == "prof.c"
    assert (found["keysExamined"], found["docsExamined"], found["nreturned"]) == (5, 5, 5)
    assert found["planSummary"] == "IXSCAN { a: 1 }" and found["cursorid"] > 0
    assert found["execStats"]["stage"] == "FETCH" and found["execStats"]["inputStage"]["stage"] == "IXSCAN"
    assert found["command"]["comment"] == "hey"
    assert found["protocol"] == "op_msg" and found["responseLength"] > 100 and found["millis"] >= 0
    assert found["client"] == "127.0.0.1" and found["appName"] == "the test"
    assert (found["allUsers"], found["user"]) == ([], "") and "ts" in found

    more = profiled(db, op="getmore")
    assert more[0]["cursorid"] == found["cursorid"] and more[0]["nreturned"] == 5
    assert more[0]["originatingCommand"]["filter"] == {"a": 3}
    assert more[-1]["cursorExhausted"] is True

    sorts = profiled(db, **{"command.sort": {"$exists": True}})[0]
    assert sorts["planSummary"] == "COLLSCAN" and sorts["hasSortStage"] is True
    assert sorts["docsExamined"] == 300 and sorts["nreturned"] == 3 and sorts["cursorExhausted"] is True

    insert = profiled(db, op="insert")[0]
    assert insert["ninserted"] == 300 and insert["ns"] == "prof.c"
    changed, upserted, failed = profiled(db, op="update")
    assert changed["command"] == {"q": {"a": 3}, "u": {"$set": {"x": 1}}, "multi": False, "upsert": False}
    assert (changed["nMatched"], changed["nModified"], changed["nUpserted"]) == (1, 1, 0)
    assert changed["planSummary"] == "IXSCAN { a: 1 }"
    assert (upserted["nMatched"], upserted["nUpserted"]) == (0, 1)
    assert (failed["ok"], failed["errCode"], failed["errName"]) == (0.0, 66, "ImmutableField")
    assert failed["errMsg"].startswith("Performing an update on the path '_id'")
    one, many = profiled(db, op="remove")
    assert (one["ndeleted"], many["ndeleted"]) == (1, 30)
    assert one["command"] == {"q": {"_id": 5}, "limit": 1} and many["command"]["limit"] == 0
    assert many["keysExamined"] == 30
    modified = profiled(db, **{"command.findAndModify": "c"})[0]
    assert modified["op"] == "command" and modified["nMatched"] == 1
    group = profiled(db, **{"command.aggregate": "c"})[0]
    assert group["planSummary"] == "COLLSCAN" and group["docsExamined"] == 270 and group["nreturned"] == 1
    bad = profiled(db, op="query", errCode=2)[0]
    assert bad["errName"] == "BadValue" and "planSummary" not in bad


def test_statements_are_recorded_as_they_are_executed(db):
    fill(db)
    db.command("profile", 2)
    set_x = {"$set": {"x": 1}}
    elements = {"$set": {"list.$[i]": 1}}
    for statement in (
        {"multi": True, "hint": {"a": 1}, "collation": {"locale": "simple"}, "arrayFilters": [{"i": 1}], "u": elements, "q": {"list": 1}},
        {"upsert": True, "upsertSupplied": True, "c": {"new": {"_id": -5}}, "hint": "_id_", "u": [set_x], "q": {"_id": -5}},
        {"q": {"_id": 1}, "u": set_x, "hint": {}, "arrayFilters": [], "collation": {}},
    ):
        assert "writeErrors" not in db.command("update", "c", updates=[statement], comment={"of": "update"})
    for statement in (
        {"collation": {"locale": "en"}, "hint": {"_id": 1}, "limit": 1, "q": {"_id": 7}},
        {"q": {"_id": 8}, "limit": 0, "hint": "_id_"},
    ):
        db.command({"delete": "c", "deletes": [statement], "comment": None})
    db.command("profile", 0)
    comment = {"comment": {"of": "update"}}
    assert [list(found["command"].items()) for found in profiled(db, op={"$in": ["update", "remove"]})] == [list(shown.items()) for shown in (
        {"q": {"list": 1}, "u": elements, "arrayFilters": [{"i": 1}], "hint": {"a": 1}, "multi": True, "upsert": False,
         "collation": {"locale": "simple"}, **comment},
        {"q": {"_id": -5}, "u": [set_x], "c": {"new": {"_id": -5}}, "hint": {"$hint": "_id_"}, "multi": False, "upsert": True,
         "upsertSupplied": True, **comment},
        {"q": {"_id": 1}, "u": set_x, "arrayFilters": [], "multi": False, "upsert": False, "collation": {}, **comment},
        {"q": {"_id": 7}, "limit": 1, "hint": {"_id": 1}, "collation": {"locale": "en"}, "comment": None},
        {"q": {"_id": 8}, "limit": 0, "hint": {"$hint": "_id_"}, "comment": None},
    )]


@pytest.mark.parametrize("command, plan", [
    ({"count": "c"}, "RECORD_STORE_FAST_COUNT"), ({"count": "c", "skip": 298, "limit": 5}, "RECORD_STORE_FAST_COUNT"),
    ({"count": "none", "query": {"a": 1}}, "EOF"), ({"count": "none"}, "EOF"), ({"find": "none", "sort": {"a": 1}}, "EOF"),
    ({"distinct": "none", "key": "a"}, "EOF"), ({"aggregate": "none", "pipeline": [{"$match": {"a": 1}}], "cursor": {}}, "EOF"),
    ({"aggregate": "c", "pipeline": [{"$lookup": {"from": "none", "localField": "a", "foreignField": "a", "as": "x"}}], "cursor": {}}, "COLLSCAN"),
    ({"update": "none", "updates": [{"q": {"a": 1}, "u": {"b": 1}}]}, "EOF"), ({"delete": "none", "deletes": [{"q": {}, "limit": 0}]}, "EOF"),
    ({"findAndModify": "none", "query": {"a": 1}, "remove": True}, "EOF"),
])
def test_what_needs_no_plan_is_recorded_too(db, command, plan):
    fill(db)
    db.command("profile", 2)
    db.command({**command, "comment": "it"})
    db.command("profile", 0)
    found, = profiled(db, **{"command.comment": "it"})
    assert found["planSummary"] == plan
    if plan != "COLLSCAN":
        assert "queryHash" not in found
        assert (found["keysExamined"], found["docsExamined"]) == (0, 0)
        assert found.get("cursorExhausted") is (True if next(iter(command)) in ("find", "aggregate") else None)
        assert ("execStats" in found) is ("aggregate" not in command)
    if "skip" in command:
        assert found["execStats"]["stage"] == plan
        assert (found["execStats"]["nCounted"], found["execStats"]["nSkipped"]) == (2, 298)


@pytest.mark.parametrize("command, ns", [
    ({"explain": {"find": "c"}}, "prof.c"), ({"explain": {"count": "none"}}, "prof.none"), ({"dbStats": 1}, "prof"),
    ({"dataSize": "prof.c"}, "prof.c"), ({"aggregate": 1, "pipeline": [{"$documents": []}], "cursor": {}}, "prof.$cmd.aggregate"),
    ({"aggregate": "c", "pipeline": [{"$collStats": {}}], "cursor": {}}, "prof.c"),
    ({"collStats": "c"}, "prof.c"), ({"ping": 1}, None), ({"serverStatus": 1}, None), ({"connectionStatus": 1}, None),
])
def test_the_namespace_of_what_is_not_a_query(db, command, ns):
    fill(db)
    db.command("profile", 2)
    db.command({**command, "comment": "it"})
    db.command("profile", 0)
    records = profiled(db, **{"command.comment": "it"})
    assert [found["ns"] for found in records] == ([ns] if ns else [])
    assert not any("planSummary" in found for found in records)
    if "aggregate" in command:
        assert (records[0]["keysExamined"], records[0]["docsExamined"], records[0]["cursorExhausted"]) == (0, 0, True)


def test_slow_operations_are_recorded_at_level_1(db):
    fill(db)
    db.command("profile", 1, slowms=50)
    db.c.find_one({"b": 3})
    assert profiled(db, **OF_B) == []
    db.command("profile", 1, slowms=0)
    db.c.find_one({"b": 4})
    assert profiled(db, **OF_B)[-1]["command"]["filter"] == {"b": 4}
    assert db.command("profile", 1, sampleRate=0.0)["slowms"] == 0
    db.c.find_one({"b": 5})
    assert profiled(db, **OF_B)[-1]["command"]["filter"] == {"b": 4}


def test_a_filter_takes_the_place_of_slowness(db):
    fill(db)
    reply = db.command("profile", 1, filter={"nreturned": 1, "op": "query"})
    assert reply["was"] == 0 and reply["note"].startswith("When a filter expression is set")
    db.c.find_one({"b": 3})
    list(db.c.find({"a": 3}))
    db.c.update_one({"_id": 1}, {"$set": {"x": 1}})
    assert [entry["command"]["filter"] for entry in profiled(db, **OF_B)] == [{"b": 3}]
    assert db.command("profile", -1)["filter"] == {"$and": [{"nreturned": {"$eq": 1}}, {"op": {"$eq": "query"}}]}
    db.command("profile", 1, filter="unset")
    for wrong in ({"$bad": 1}, 5):
        with pytest.raises(OperationFailure) as error:
            db.command("profile", 1, filter=wrong)
        assert error.value.code == 2


def test_the_records_are_the_servers_own(db):
    db.command("profile", 2)
    for write in (lambda: db.system.profile.insert_one({}), lambda: db.system.profile.delete_many({}),
                  lambda: db.system.profile.update_one({}, {"$set": {"a": 1}})):
        with pytest.raises(OperationFailure) as error:
            write()
        assert error.value.code == 73
    with pytest.raises(OperationFailure) as error:
        db.system.profile.drop()
    assert error.value.code == 20
    db.command("profile", 0)
    db.system.profile.drop()
    assert "system.profile" not in db.list_collection_names()


@pytest.mark.skipif(server.is_mongod(), reason="its log is where it says")
def test_slow_operations_are_in_the_log(own, db):
    fill(db)
    db.command("profile", 0, slowms=0)
    list(db.c.find({"b": {"$gte": 5}}, comment="look for me"))
    db.command("profile", 0, slowms=100)
    deadline = time.monotonic() + 10
    lines = []
    while not lines and time.monotonic() < deadline:
        lines = [line for line in own.tail(100_000).splitlines() if "look for me" in line]
    line = json.loads(lines[0])
    assert (line["msg"], line["id"], line["c"], line["s"]) == ("Slow query", 51803, "COMMAND", "I")
    attributes = line["attr"]
    assert attributes["ns"] == "prof.c" and attributes["appName"] == "the test"
    assert attributes["command"]["filter"] == {"b": {"$gte": 5}}
    assert attributes["planSummary"] == "COLLSCAN" and attributes["nreturned"] == 101
    assert attributes["docsExamined"] >= 101 and attributes["durationMillis"] >= 0
    db.c.find_one({"b": 7}, comment="not this one")
    assert "not this one" not in own.tail(100_000)


def test_what_was_looked_at_is_counted(db):
    fill(db)
    before = db.client.admin.command("serverStatus")["metrics"]["queryExecutor"]
    list(db.c.find({"a": 3}))
    after = db.client.admin.command("serverStatus")["metrics"]["queryExecutor"]
    assert after["scanned"] - before["scanned"] >= 30
    assert after["scannedObjects"] - before["scannedObjects"] >= 30


def test_queries_are_known_by_their_hashes(db):
    fill(db)
    db.c.create_index("b")
    db.command("profile", 2)
    for number in (1, 2):
        list(db.c.find({"a": number}))
    list(db.c.find({"a": 1}).hint("a_1"))
    list(db.c.find({"a": 1, "b": {"$gt": 3}}, batch_size=20).sort("x", 1))
    db.c.distinct("a")
    db.c.distinct("b", {"a": 1})
    db.c.update_many({"a": 4}, {"$set": {"x": 1}})
    db.c.delete_one({"_id": 1})
    db.command("profile", 0)
    first, second, hinted, tried, more, jumps, distinct, update, delete = profiled(db, ns="prof.c")

    names = ["queryHash", "planCacheKey", "queryFramework", "fromMultiPlanner"]
    told = lambda record: [name for name in names if name in record]
    assert told(first) == ["queryHash", "planCacheKey", "queryFramework"]
    assert [first[name] for name in names[:2]] == [second[name] for name in names[:2]]
    assert first["queryFramework"] == "classic"
    # A hinted plan is not cached.
    assert hinted["queryHash"] == first["queryHash"] and told(hinted) == ["queryHash", "queryFramework"]
    assert tried["queryHash"] != first["queryHash"] and told(tried) == names
    assert told(more) == ["queryHash", "planCacheKey", "fromMultiPlanner"]
    # As it was asked for when the cursor was opened.
    sort = more["execStats"]
    while sort["stage"] != "SORT":
        sort = sort["inputStage"]
    assert sort["sortPattern"] == {"x": 1}
    assert told(jumps) == [] and told(distinct) == ["queryHash", "planCacheKey", "queryFramework"]
    assert told(update) == ["queryHash", "planCacheKey"] and update["queryHash"] == first["queryHash"]
    assert told(delete) == [], "what is looked up by _id to be written is not planned"


def test_written_index_keys_are_counted(db):
    fill(db)
    db.command("profile", 2)
    db.c.insert_many([{"a": [1, 2, 3]}, {"x": 1}])
    db.c.update_many({"a": 4}, {"$set": {"a": 5}})
    db.c.update_many({"a": 6}, {"$set": {"x": 5}})
    db.c.update_one({"a": 6}, {"$set": {"a": [6, 7]}})
    db.c.update_one({"_id": 0}, {"$set": {"a": 0.0}})
    db.c.find_one_and_delete({"a": 8})
    db.command("profile", 0)
    counted = [
        (record.get("keysInserted"), record.get("keysDeleted"), record.get("docsExamined"))
        for record in profiled(db, ns="prof.c")
    ]
    assert counted == [(6, None, None), (30, 30, 30), (None, None, 30), (1, 0, 1), (1, 1, 1), (None, 2, 1)]


@pytest.mark.skipif(server.is_mongod(), reason="its log is where it says")
@pytest.mark.parametrize("level", [0, 1])
def test_slow_writes_are_in_the_log_with_their_plans(own, db, level):
    fill(db)
    db.command("profile", level, slowms=0)
    marks = "first %d" % level, "second %d" % level
    db.c.update_many({"b": 5}, {"$set": {"mark": marks[0]}})
    db.c.delete_many({"b": 5, "mark": {"$ne": marks[1]}})
    db.command("profile", 0, slowms=100)
    deadline = time.monotonic() + 10
    lines = []
    while len(lines) < 2 and time.monotonic() < deadline:
        lines = [json.loads(line) for line in own.tail(200_000).splitlines() if any(mark in line for mark in marks)]
        lines = [line for line in lines if line["c"] == "WRITE"]
    update, delete = (line["attr"] for line in lines)
    assert (update["type"], update["ns"], update["planSummary"]) == ("update", "prof.c", "COLLSCAN")
    assert update["command"] == {"q": {"b": 5}, "u": {"$set": {"mark": marks[0]}}, "multi": True, "upsert": False}
    assert update["nMatched"] == update["nModified"] > 0 and update["docsExamined"] >= update["nMatched"]
    assert (delete["type"], delete["command"]["limit"], delete["ndeleted"]) == ("remove", 0, update["nMatched"])


def test_counts_are_numbers_of_the_smallest_type(db):
    fill(db)
    db.command("profile", 2)
    list(db.c.find({"a": 1}, batch_size=10))
    list(db.c.aggregate([{"$match": {"a": 1}}, {"$group": {"_id": "$b"}}]))
    db.c.insert_one({"a": 1})
    db.c.update_many({"a": 2}, {"$inc": {"n": 1}})
    db.c.update_one({"a": -1}, {"$set": {"n": 1}}, upsert=True)
    db.c.delete_one({"a": 3})
    db.c.find_one_and_update({"a": 4}, {"$set": {"n": 1}})
    db.c.find_one_and_delete({"a": 5})
    db.command("profile", 0)
    seen = {name: type(value) for record in profiled(db) for name, value in record.items() if isinstance(value, int)}
    for name in ("keysExamined", "docsExamined", "ninserted", "nMatched", "nModified", "nUpserted", "ndeleted",
                 "keysInserted", "keysDeleted", "nreturned", "nBatches", "millis"):
        assert seen[name] is int, name
