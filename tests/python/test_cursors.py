"""Cursors: batches, kills, time limits, tails of capped collections."""
import threading
import time

import pymongo
import pytest
from bson import Int64
from pymongo import CursorType
from pymongo.errors import CursorNotFound, ExecutionTimeout, OperationFailure


@pytest.fixture
def many(c):
    c.insert_many([{"_id": i} for i in range(2500)])
    return c


@pytest.mark.parametrize("batch_size", [1, 2, 100, 101, 102, 1000, 2500, 5000])
def test_batches_add_up_and_keep_order(many, batch_size):
    filter = {"_id": {"$lt": 300}}
    assert [d["_id"] for d in many.find(filter).batch_size(batch_size).sort("_id")] == list(range(300))


def test_the_first_batch_is_101_and_the_rest_follows(many):
    first = many.database.command("find", "c")["cursor"]
    assert (len(first["firstBatch"]), first["id"] != 0, first["ns"]) == (101, True, many.full_name)
    more = many.database.command("getMore", first["id"], collection="c")["cursor"]
    assert (len(more["nextBatch"]), more["id"]) == (2399, 0)


def test_a_batch_is_at_most_16_megabytes(c):
    c.insert_many([{"_id": i, "t": "x" * 1_000_000} for i in range(40)])
    cursor = c.database.command("find", "c", batchSize=1000)["cursor"]
    assert len(cursor["firstBatch"]) <= 16 and cursor["id"] != 0
    assert sum(1 for _ in c.find()) == 40


def test_limit_and_single_batch_leave_no_cursor(many):
    for options in ({"limit": 5}, {"singleBatch": True, "batchSize": 5}, {"limit": 5, "batchSize": 5}):
        cursor = many.database.command("find", "c", **options)["cursor"]
        assert (len(cursor["firstBatch"]), cursor["id"]) == (5, 0), options


def test_a_cursor_of_batch_size_zero_waits(many):
    cursor = many.database.command("find", "c", batchSize=0)["cursor"]
    assert cursor["firstBatch"] == [] and cursor["id"] != 0
    many.database.command("killCursors", "c", cursors=[cursor["id"]])


def test_a_killed_cursor_is_gone(many):
    db = many.database
    cursor = db.command("find", "c", batchSize=2)["cursor"]["id"]
    reply = db.command("killCursors", "c", cursors=[cursor, Int64(12345)])
    assert (reply["cursorsKilled"], reply["cursorsNotFound"]) == ([cursor], [12345])
    with pytest.raises(CursorNotFound):
        db.command("getMore", cursor, collection="c")


def test_a_cursor_belongs_to_its_collection(many):
    db = many.database
    cursor = db.command("find", "c", batchSize=2)["cursor"]["id"]
    with pytest.raises(OperationFailure) as error:
        db.command("getMore", cursor, collection="other")
    assert error.value.code == 13


def test_a_cursor_sees_the_end_of_a_dropped_collection(many):
    cursor = many.find(batch_size=2)
    next(cursor)
    many.drop()
    with pytest.raises(OperationFailure) as error:
        list(cursor)
    assert error.value.code in (43, 175)


QUERIES = {
    "nothing": [], "match": [{"$match": {"a": {"$gte": 0}}}], "project": [{"$project": {"a": 1}}],
    "computed": [{"$project": {"b": {"$add": ["$a", 1]}}}], "sort": [{"$sort": {"z": 1}}], "skip": [{"$skip": 1}],
    "sort and project": [{"$sort": {"z": 1}}, {"$project": {"a": 1}}], "limit": [{"$limit": 4000}],
    "match and limit": [{"$match": {"a": {"$gte": 0}}}, {"$limit": 1000}],
}
PIPELINES = {
    "group": [{"$group": {"_id": "$_id"}}], "set": [{"$match": {"_id": {"$lt": 10}}}, {"$set": {"b": 1}}],
    "windows": [{"$setWindowFields": {"sortBy": {"_id": 1}, "output": {"n": {"$sum": "$a"}}}}],
}


@pytest.fixture
def opened(many):
    """Opens a cursor of a pipeline that has given two documents, of several."""
    many.update_many({}, [{"$set": {"a": "$_id", "z": {"$subtract": [0, "$_id"]}}}])
    many.create_index("a")
    return lambda stages: many.aggregate(stages, batchSize=2)


def rest(cursor):
    """Returns the number of remaining documents, or the error."""
    try:
        return len(list(cursor)) - 2
    except OperationFailure as error:
        return error.code, error.details["errmsg"]


@pytest.mark.parametrize("name", QUERIES)
def test_a_pipeline_that_is_a_query_ends_with_its_collection(many, opened, name):
    dropped, renamed = opened(QUERIES[name]), opened(QUERIES[name])
    many.rename("other")
    code, text = rest(renamed)
    assert code == 175 and text.startswith("collection renamed from '%s'" % many.full_name), text
    many.database.other.drop()
    code, text = rest(dropped)
    # It was renamed first.
    assert code == 175 and text.startswith("collection dropped"), text


@pytest.mark.parametrize("name", PIPELINES)
def test_other_pipelines_go_on_with_what_was_read(many, opened, name):
    cursor = opened(PIPELINES[name])
    many.drop()
    assert rest(cursor) in (2498, 8)


def test_a_pipeline_that_is_a_query_ends_with_its_index(many, opened):
    query, pipeline = opened([{"$match": {"a": {"$gte": 0}}}]), opened([{"$group": {"_id": "$a"}}])
    many.drop_index("a_1")
    code, text = rest(query)
    assert code == 175 and text == "query plan killed :: index 'a_1' dropped"
    assert rest(pipeline) == 2498


def test_aggregation_cursors_have_batches_too(many):
    cursor = many.aggregate([{"$match": {"_id": {"$gte": 500}}}, {"$sort": {"_id": 1}}], batchSize=7)
    assert [d["_id"] for d in cursor] == list(range(500, 2500))


def test_a_time_limit_ends_a_scan(c):
    c.insert_many([{"_id": i, "t": "x" * 500} for i in range(20_000)])
    with pytest.raises(ExecutionTimeout) as error:
        list(c.find({"t": {"$regex": "[^y]*[yz]"}}).max_time_ms(5))
    assert error.value.code == 50
    assert c.find_one({"_id": 1}, max_time_ms=10_000)


# A tenth of a second for each document.
SLOW = {"$expr": {"$function": {
    "body": "function() { const end = Date.now() + 100; while (Date.now() < end) {} return true }", "args": [], "lang": "js"}}}


@pytest.mark.parametrize("opening", [
    {"find": "c", "filter": SLOW, "batchSize": 0},
    {"find": "c", "filter": SLOW, "batchSize": 2},
    {"find": "view", "filter": SLOW, "batchSize": 2},
    {"find": "log", "filter": SLOW, "batchSize": 2, "tailable": True},
    {"aggregate": "c", "pipeline": [{"$match": SLOW}], "cursor": {"batchSize": 2}},
])
def test_the_time_limit_of_a_cursor_is_for_all_of_its_batches(db, opening):
    db.create_collection("log", capped=True, size=100_000)
    db.command("create", "view", viewOn="c", pipeline=[])
    for c in (db.c, db.log):
        c.insert_many([{"_id": i} for i in range(50)])
    name = opening.get("find") or opening["aggregate"]
    cursor = db.command({**opening, "maxTimeMS": 2000})["cursor"]
    more = {"getMore": cursor["id"], "collection": name, "batchSize": 2}
    # The time between the batches does not count.
    time.sleep(2)
    assert len(db.command(more)["cursor"]["nextBatch"]) == 2
    with pytest.raises(ExecutionTimeout) as error:
        # 48 documents take more than twice the time.
        for _ in range(24):
            assert db.command(more)["cursor"]["id"] == cursor["id"]
    assert error.value.details["errmsg"].endswith("operation exceeded time limit")
    with pytest.raises(CursorNotFound):
        db.command(more)


def test_a_cursor_that_waits_for_data_has_its_time_limit_for_the_first_batch_alone(db):
    db.create_collection("log", capped=True, size=100_000)
    db.log.insert_many([{"_id": i} for i in range(20)])
    find = {"find": "log", "filter": SLOW, "batchSize": 2, "tailable": True, "awaitData": True, "maxTimeMS": 1000}
    cursor = db.command(find)["cursor"]
    more = {"getMore": cursor["id"], "collection": "log", "batchSize": 15}
    assert len(db.command(more)["cursor"]["nextBatch"]) == 15


def test_a_tail_of_a_capped_collection_waits_for_data(db):
    db.create_collection("log", capped=True, size=100_000)
    db.log.insert_many([{"_id": i} for i in range(3)])
    cursor = db.log.find(cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(3000)
    assert [next(cursor)["_id"] for _ in range(3)] == [0, 1, 2]
    inserter = threading.Timer(0.3, lambda: db.log.insert_one({"_id": "late"}))
    began = time.monotonic()
    inserter.start()
    assert next(cursor)["_id"] == "late"
    assert 0.2 < time.monotonic() - began < 2.5
    # Without news the wait ends after its time, and the cursor lives on.
    cursor = db.log.find(cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(300)
    assert len([next(cursor) for _ in range(4)]) == 4
    began = time.monotonic()
    with pytest.raises(StopIteration):
        next(cursor)
    assert 0.2 < time.monotonic() - began < 2 and cursor.alive
    cursor.close()


def test_a_plain_tail_does_not_wait(db):
    db.create_collection("log", capped=True, size=4096, max=3)
    db.log.insert_many([{"_id": i} for i in range(5)])
    cursor = db.log.find(cursor_type=CursorType.TAILABLE)
    assert [d["_id"] for d in cursor] == [2, 3, 4]
    db.log.insert_one({"_id": 5})
    assert [d["_id"] for d in cursor] == [5]


def test_only_a_capped_collection_can_be_tailed(many):
    with pytest.raises(OperationFailure) as error:
        list(many.find(cursor_type=CursorType.TAILABLE))
    assert error.value.code == 2


def test_a_get_more_that_waits_is_seen_and_killed(db, client):
    db.create_collection("log", capped=True, size=4096)
    db.log.insert_one({})
    opened = db.command({"find": "log", "tailable": True, "awaitData": True})["cursor"]["id"]
    failure = []

    def wait():
        try:
            db.command({"getMore": opened, "collection": "log", "maxTimeMS": 8_000})
        except OperationFailure as error:
            failure.append(error.code)

    waiting = threading.Thread(target=wait)
    began = time.monotonic()
    waiting.start()
    found = []
    while not found and time.monotonic() - began < 10:
        found = client.admin.command("currentOp", **{"command.getMore": opened})["inprog"]
    assert found and found[0]["op"] == "getmore" and found[0]["ns"] == db.name + ".log"
    client.admin.command("killOp", op=found[0]["opid"])
    waiting.join()
    assert failure == [11601] and time.monotonic() - began < 15
    assert not client.admin.command("currentOp", **{"command.getMore": opened})["inprog"]


@pytest.mark.parametrize("opening", [
    {"find": "c", "tailable": True, "awaitData": True},
    {"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}},
], ids=["tailable", "change stream"])
def test_a_killed_cursor_ends_the_getmore_that_waits(replica, opening):
    with pymongo.MongoClient(replica.uri) as client:
        db = client.killed_cursors
        db.drop_collection("c")
        db.create_collection("c", capped=True, size=10_000)
        db.c.insert_one({})
        cursor = Int64(db.command(opening)["cursor"]["id"])
        replies = []
        more = {"getMore": cursor, "collection": "c", "maxTimeMS": 20_000}
        thread = threading.Thread(target=lambda: replies.append(db.command(more, check=False)))
        thread.start()
        waiting = [{"$currentOp": {}}, {"$match": {"command.getMore": cursor}}]
        while not list(client.admin.aggregate(waiting)):
            time.sleep(0.01)
        assert db.command("killCursors", "c", cursors=[cursor])["cursorsKilled"] == [cursor]
        thread.join(60)
        assert replies[0]["code"] == 237
        assert replies[0]["errmsg"] == "Executor error during getMore :: caused by :: operation was interrupted"
        with pytest.raises(CursorNotFound):
            db.command(more)
        client.drop_database("killed_cursors")
