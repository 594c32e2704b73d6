"""Tails of capped collections: every document once and in order; places that are lost; collections that go away."""
import threading

import pytest
from bson import Int64
from pymongo import CursorType
from pymongo.errors import OperationFailure


@pytest.mark.parametrize("inserters", [2, 4, 16])
def test_a_tail_shows_every_document_of_many_inserters_once(db, inserters):
    each, readers = 1600 // inserters, 3
    c = db.create_collection("tail", capped=True, size=1 << 24)
    c.insert_one({"_id": "first"})
    seen = [[] for _ in range(readers)]

    def read(out):
        cursor = c.find(cursor_type=CursorType.TAILABLE_AWAIT)
        for document in cursor:
            out.append(document["_id"])
            if len(out) == 1 + inserters * each or document["_id"] == "last":
                return

    def insert(number):
        for i in range(each):
            c.insert_one({"_id": number * each + i})

    reading = [threading.Thread(target=read, args=(out,)) for out in seen]
    writing = [threading.Thread(target=insert, args=(number,)) for number in range(inserters)]
    for thread in reading + writing:
        thread.start()
    for thread in writing:
        thread.join()
    # A reader that missed a document does not wait forever.
    c.insert_one({"_id": "last"})
    for thread in reading:
        thread.join()
    stored = [document["_id"] for document in c.find()][:-1]
    assert len(stored) == 1 + inserters * each
    for out in seen:
        assert out[: len(stored)] == stored


def get_more(db, cursor, collection):
    with pytest.raises(OperationFailure) as failure:
        db.command("getMore", Int64(cursor), collection=collection)
    return failure.value.code, failure.value.details["errmsg"]


@pytest.mark.parametrize("options", [{}, {"tailable": True}, {"tailable": True, "awaitData": True}, {"sort": {"$natural": -1}}])
def test_a_place_that_was_overwritten_is_lost(db, options):
    c = db.create_collection("ring", capped=True, size=4096, max=3)
    c.insert_many([{} for _ in range(3)])
    cursor = db.command("find", "ring", batchSize=1, **options)["cursor"]["id"]
    c.insert_many([{} for _ in range(9)])
    code, text = get_more(db, cursor, "ring")
    assert code == 136
    assert text.startswith("CollectionScan died due to position in capped collection being deleted. Last seen record id: RecordId(")
    assert get_more(db, cursor, "ring")[0] == 43


@pytest.mark.parametrize("filter", [{"_id": {"$gt": 5}}, {"_id": 6}, {"a": {"$gt": 3}}, {"a": 5}, {"$or": [{"a": 5}, {"_id": 6}]}])
@pytest.mark.parametrize("options", [{}, {"awaitData": True}, {"hint": {"a": 1}}, {"hint": "none"}, {"max": {"a": 1}}])
def test_a_condition_on_an_indexed_field_follows_the_collection(db, filter, options):
    """An index has not the order in which documents are added: neither it nor a hint of it is used."""
    c = db.create_collection("ring", capped=True, size=4096)
    c.create_index("a")
    c.insert_one({"_id": 1, "a": 1})
    find = {"find": "ring", "filter": filter, "tailable": True, **options}
    assert db.command("explain", find)["queryPlanner"]["winningPlan"]["stage"] == "COLLSCAN"
    cursor = db.command(find)["cursor"]["id"]
    c.insert_many([{"_id": 2, "a": 2}, {"_id": 6, "a": 5}])
    batch = db.command("getMore", Int64(cursor), collection="ring")["cursor"]["nextBatch"]
    assert [document["_id"] for document in batch] == [6]


def test_a_search_by_distance_has_no_tail(db):
    db.create_collection("ring", capped=True, size=4096)
    near = {"p": {"$near": {"$geometry": {"type": "Point", "coordinates": [0, 0]}}}}
    with pytest.raises(OperationFailure, match="Tailable cursors and geo .near cannot be used together") as failure:
        db.command("find", "ring", filter=near, tailable=True)
    assert failure.value.code == 2


@pytest.mark.parametrize("pipeline, is_lost", [([], True), ([{"$limit": 3}], True), ([{"$project": {"_id": 1}}], True),
                                               ([{"$addFields": {"x": 1}}], False)])
def test_a_pipeline_that_is_a_query_loses_its_place_too(db, pipeline, is_lost):
    """Others have read ahead."""
    c = db.create_collection("ring", capped=True, size=4096, max=3)
    c.insert_many([{"_id": number} for number in range(3)])
    cursor = db.command("aggregate", "ring", pipeline=pipeline, cursor={"batchSize": 1})["cursor"]["id"]
    c.insert_many([{} for _ in range(9)])
    if is_lost:
        code, text = get_more(db, cursor, "ring")
        assert code == 136
        assert text.startswith("CollectionScan died due to position in capped collection being deleted.")
    else:
        batch = db.command("getMore", Int64(cursor), collection="ring")["cursor"]["nextBatch"]
        assert [document["_id"] for document in batch] == [1, 2]


def test_a_capped_copy_keeps_the_maximum(db):
    db.create_collection("ring", capped=True, size=4096, max=3)
    db.command("cloneCollectionAsCapped", "ring", toCollection="copy", size=8192)
    db.command("convertToCapped", "ring", size=8192)
    for name in "ring", "copy":
        assert db[name].options() == {"capped": True, "size": 8192, "max": 3}


@pytest.mark.parametrize("batch", [1, 2])
def test_a_cursor_that_has_reached_its_limit_loses_its_place_too(db, batch):
    db.create_collection("c", capped=True, size=4096, max=3)
    db.c.insert_many([{"_id": 1}, {"_id": 2}])
    cursor = db.command("find", "c", tailable=True, batchSize=batch, limit=1)["cursor"]
    assert cursor["firstBatch"] == [{"_id": 1}]
    assert db.command("getMore", cursor["id"], collection="c")["cursor"]["nextBatch"] == []
    db.c.insert_many([{"_id": 3}, {"_id": 4}])
    with pytest.raises(OperationFailure, match="^CollectionScan died due to position in capped") as lost:
        db.command("getMore", cursor["id"], collection="c")
    assert lost.value.code == 136


def test_a_tail_that_was_overwritten_is_lost(db):
    c = db.create_collection("ring", capped=True, size=4096, max=3)
    c.insert_many([{} for _ in range(3)])
    cursor = db.command("find", "ring", tailable=True)["cursor"]["id"]
    c.insert_one({})
    assert len(db.command("getMore", cursor, collection="ring")["cursor"]["nextBatch"]) == 1
    c.insert_many([{} for _ in range(9)])
    code, text = get_more(db, cursor, "ring")
    assert code == 136
    assert text.startswith("Executor error during getMore :: caused by :: CollectionScan died due to failure to restore")


def test_a_cursor_says_that_its_collection_is_gone(db):
    def opened(pipeline=None):
        db.client.drop_database(db.name)
        db.c.insert_many([{"a": i} for i in range(5)])
        if pipeline is None:
            return db.command("find", "c", batchSize=1)["cursor"]["id"]
        return db.command("aggregate", "c", pipeline=pipeline, cursor={"batchSize": 1})["cursor"]["id"]

    def replaced():
        db.other.insert_one({})
        db.other.rename("c", dropTarget=True)

    gone = {
        "drop": lambda: db.c.drop(),
        "dropDatabase": lambda: db.client.drop_database(db.name),
        "dropTarget": replaced,
        "convertToCapped": lambda: db.command("convertToCapped", "c", size=10_000),
    }
    for name, go in gone.items():
        cursor = opened()
        go()
        code, text = get_more(db, cursor, "c")
        assert code == 175 and text.startswith("collection dropped. UUID "), (name, text)
        assert get_more(db, cursor, "c")[0] == 43
    cursor = opened()
    db.c.rename("z")
    code, text = get_more(db, cursor, "c")
    assert code == 175 and text.startswith(f"collection renamed from '{db.name}.c' to '{db.name}.z'. UUID "), text
    # A cursor that has all its documents already continues.
    cursor = opened([{"$group": {"_id": "$_id"}}])
    db.c.drop()
    assert len(db.command("getMore", cursor, collection="c")["cursor"]["nextBatch"]) == 4


@pytest.mark.parametrize("limit", [0, 5])
def test_only_a_cursor_that_waits_takes_a_time_limit(db, limit):
    db.c.insert_many([{} for _ in range(5)])
    cursor = db.command("find", "c", batchSize=1)["cursor"]["id"]
    with pytest.raises(OperationFailure) as failure:
        db.command("getMore", cursor, collection="c", maxTimeMS=limit)
    assert failure.value.code == 2
