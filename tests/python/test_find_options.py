"""Options of `find` and of other commands that generated commands found wrong: open ends of `min` and `max`, the read
concern `available`."""
import pytest
from bson import MaxKey, MinKey
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
