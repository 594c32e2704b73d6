"""Options of `find` and of other commands that generated commands found wrong: open ends of `min` and `max`, the read
concern `available`."""
import pytest
from bson import Decimal128, MaxKey, MinKey
from pymongo.errors import OperationFailure


@pytest.mark.parametrize("direction, options, found", [
    # The end that is left out is the last key of the index, which is no part of the range.
    (1, {"min": {"b": 0}}, [3, 5]), (-1, {"min": {"b": 0}}, [4]),
    (1, {"min": {"b": MinKey()}}, [1, 4, 3, 5]), (-1, {"min": {"b": MaxKey()}}, [2, 5, 3, 4]),
    (1, {"max": {"b": 9}}, [1, 4, 3]), (-1, {"max": {"b": 9}}, [2, 5]),
    # So nothing can begin there.
    (1, {"min": {"b": MaxKey()}}, None), (1, {"max": {"b": MinKey()}}, None),
    (-1, {"min": {"b": MinKey()}}, None), (-1, {"max": {"b": MaxKey()}}, None),
])
def test_an_open_end_of_min_and_max(db, c, direction, options, found):
    c.create_index([("b", direction)], name="i")
    c.insert_many([{"_id": 1, "b": MinKey()}, {"_id": 2, "b": MaxKey()}, {"_id": 3, "b": 5}, {"_id": 4},
                   {"_id": 5, "b": "x"}])
    command = {"find": c.name, "hint": "i", **options}
    if found is None:
        with pytest.raises(OperationFailure) as failed:
            db.command(command)
        assert failed.value.code == 51175
    else:
        assert [doc["_id"] for doc in db.command(command)["cursor"]["firstBatch"]] == found


def test_an_open_end_of_a_compound_index(db, c):
    c.create_index([("a", 1), ("b", -1)], name="i")
    c.insert_many([{"_id": 1, "a": 1, "b": MinKey()}, {"_id": 2, "a": MaxKey(), "b": MinKey()},
                   {"_id": 3, "a": MaxKey(), "b": 1}])
    reply = db.command({"find": c.name, "hint": "i", "min": {"a": 0, "b": 0}})
    assert [doc["_id"] for doc in reply["cursor"]["firstBatch"]] == [1, 3]


@pytest.mark.parametrize("command, is_taken", [
    ({"find": "c"}, True), ({"count": "c"}, True), ({"distinct": "c", "key": "a"}, True),
    ({"aggregate": "c", "pipeline": [], "cursor": {}}, True),
    ({"ping": 1}, False), ({"insert": "c", "documents": [{}]}, False), ({"listCollections": 1}, False),
    ({"update": "c", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]}, False),
    ({"findAndModify": "c", "remove": True}, False), ({"create": "new"}, False), ({"dbStats": 1}, False),
])
def test_reads_alone_take_the_read_concern_available(db, command, is_taken):
    command = {**command, "readConcern": {"level": "available"}}
    if is_taken:
        assert db.command(command)["ok"] == 1
    else:
        with pytest.raises(OperationFailure) as failed:
            db.command(command)
        assert failed.value.code == 72
        assert db.list_collection_names() == []


@pytest.mark.parametrize("value", [1, "a", None])
def test_oplog_replay_of_a_wrong_type_has_a_text_of_its_own(db, value):
    with pytest.raises(OperationFailure, match="Expected field oplogReplayto be of type object") as failed:
        db.command({"find": "c", "oplogReplay": value})
    assert failed.value.code == 14


@pytest.mark.parametrize("value, is_backward", [
    (1, False), (-1, True), (-2.5, True), (-0.5, False), (Decimal128("-0.6"), True), (Decimal128("-0.5"), False),
    (True, False), ("x", False), (None, False), ({"$meta": "textScore"}, False), (MinKey(), False),
])
def test_a_natural_order_is_backward_by_a_negative_whole_number(db, value, is_backward):
    db.c.insert_many([{"_id": n} for n in range(3)])
    expected = [2, 1, 0] if is_backward else [0, 1, 2]
    for asked in ({"sort": {"$natural": value}}, {"hint": {"$natural": value}}):
        found = db.command({"find": "c", **asked})["cursor"]["firstBatch"]
        assert [doc["_id"] for doc in found] == expected
        changed = db.command({"findAndModify": "c", "query": {}, "update": {"$set": {"a": 1}}, **asked})
        assert changed["value"]["_id"] == expected[0]
    with pytest.raises(OperationFailure, match="Cannot include '.natural' in compound sort"):
        db.command({"find": "c", "sort": {"$natural": value, "a": 1}})
    with pytest.raises(OperationFailure, match="in the same direction"):
        db.command({"find": "c", "sort": {"$natural": value}, "hint": {"$natural": 1 if is_backward else -1}})


def test_a_clustered_collection_checks_the_sort_of_a_single_document(db):
    """Elsewhere the document of an `_id` is found without one."""
    db.command("create", "k", clusteredIndex={"key": {"_id": 1}, "unique": True})
    db.command("create", "c")
    wrong = {"query": {"_id": 0}, "sort": {"d": True}, "update": {"$set": {"a": 1}}}
    assert db.command({"findAndModify": "c", **wrong})["value"] is None
    with pytest.raises(OperationFailure) as failure:
        db.command({"findAndModify": "k", **wrong})
    assert failure.value.code == 15974


def test_a_sort_by_natural_on_a_view_is_the_order_of_the_collection(db, c):
    c.create_index([("a", 1)])
    c.insert_many([{"_id": n, "a": n % 2} for n in range(5)])
    db.create_collection("plain", viewOn=c.name, pipeline=[])
    db.create_collection("cut", viewOn="plain", pipeline=[{"$match": {"a": {"$gte": 0}}}, {"$project": {"a": 1}}])
    for view in ("plain", "cut"):
        for direction, found in ((1, [0, 1, 2, 3, 4]), (-1, [4, 3, 2, 1, 0])):
            sort = {"$natural": direction}
            assert [i["_id"] for i in db[view].find(sort=sort)] == found
            assert [i["_id"] for i in db[view].find(sort=sort, hint={"$natural": direction}, limit=2)] == found[:2]
            assert [i["_id"] for i in db[view].find({"_id": {"$lt": 3}}, sort=sort)] == [i for i in found if i < 3]
            shown = db.command("explain", {"find": view, "sort": sort})["command"]
            assert shown["hint"] == sort and {"$sort": sort} not in shown["pipeline"]


def test_a_find_and_modify_may_ask_for_a_score_without_a_search(c):
    c.insert_one({"_id": 1})
    score = {"score": {"$meta": "textScore"}}
    assert c.find_one_and_update({"_id": 1}, {"$set": {"a": 1}}, score) == {"_id": 1}
    with pytest.raises(OperationFailure, match="query requires text score metadata") as refused:
        c.find_one_and_delete({}, sort=[("score", score["score"])])
    assert refused.value.code == 40218
    assert c.find_one_and_delete({}, score) == {"_id": 1, "a": 1}


@pytest.mark.parametrize("projection, found", [
    (None, {"_id": 1, "a": 5, "$recordId": 1}), ({"a": 1}, {"_id": 1, "a": 5, "$recordId": 1}),
    ({"a": 0}, {"_id": 1, "$recordId": 1}), ({"$recordId": {"$meta": "recordId"}, "a": 1}, {"_id": 1, "$recordId": 1, "a": 5}),
    # A field of the same name takes the place of the record id.
    ({"$recordId": 1}, {"_id": 1}), ({"$recordId": 0}, {"_id": 1, "a": 5}), ({"$recordId": "$a"}, {"_id": 1, "$recordId": 5}),
    ({"$recordId": {"$meta": "indexKey"}, "a": 1}, {"_id": 1, "$recordId": {"a": 5}, "a": 5}),
    ({"$recordId.a": 1}, 31250), ({"$recordId.a": {"$meta": "recordId"}}, 31250),
])
def test_a_record_id_is_part_of_the_projection(db, projection, found):
    db.c.create_index("a")
    db.c.insert_one({"_id": 1, "a": 5})
    command = {"find": "c", "filter": {"a": 5}, "projection": projection or {}, "showRecordId": True}
    if isinstance(found, dict):
        (doc,) = db.command(command)["cursor"]["firstBatch"]
        assert doc == found
        return
    for asked in (command, {**command, "find": "missing"}, {**command, "returnKey": True}, {"explain": command}):
        with pytest.raises(OperationFailure, match="Path collision at .recordId") as failure:
            db.command(asked)
        assert failure.value.code == found


@pytest.mark.parametrize("asked, key, stages", [
    ({}, {"_id": 1.0}, ["RETURN_KEY", "IDHACK"]), ({"sort": {"a": 1}}, {"_id": 1.0}, ["RETURN_KEY", "IDHACK"]),
    ({"projection": {"a": 1}}, {"_id": 1.0}, ["RETURN_KEY", "IDHACK"]),
    ({"sort": {"a": 1}, "projection": {"m": {"$meta": "sortKey"}}}, {"_id": 1.0, "m": [5]}, None),
    ({"showRecordId": True}, {"_id": 1.0}, ["RETURN_KEY", "IXSCAN"]),
    ({"hint": "_id_"}, {"_id": 1.0}, ["RETURN_KEY", "IXSCAN"]), ({"filter": {"_id": 2}}, None, ["RETURN_KEY", "IDHACK"]),
])
def test_the_key_of_a_document_that_is_found_by_its_id(db, asked, key, stages):
    db.c.insert_one({"_id": 1.0, "a": 5})
    command = {"find": "c", "filter": {"_id": 1}, "returnKey": True, **asked}
    assert db.command(command)["cursor"]["firstBatch"] == ([] if key is None else [key])
    stage = db.command({"explain": command, "verbosity": "queryPlanner"})["queryPlanner"]["winningPlan"]
    assert stages in (None, [stage["stage"], stage["inputStage"]["stage"]])
