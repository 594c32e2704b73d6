"""Plans over clustered collections: what bounds a walk over records, what it looks at, what notablescan lets through."""
import pytest
from pymongo.errors import OperationFailure

FOREIGN = {"locale": "en", "strength": 2}


@pytest.fixture
def clustered(db):
    c = db.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    c.insert_many([{"_id": i, "a": i % 3} for i in range(0, 20, 2)])
    c.insert_many([{"_id": i} for i in ("a", "b", "c", None, {"x": 1}, True)])
    return c


def explained(c, **find):
    return c.database.command("explain", {"find": c.name, **find}, verbosity="executionStats")


def walk(stage):
    """The walk over the records of a plan, and the names of the stages above."""
    above = []
    while "inputStage" in stage:
        above.append(stage["stage"])
        stage = stage["inputStage"]
    return stage, above


def test_a_walk_looks_at_a_record_on_either_side(clustered):
    for find, given, looked_at, works in [
        ({"filter": {"_id": 4}}, 1, 2, 2),
        ({"filter": {"_id": 5}}, 0, 2, 2),
        ({"filter": {"_id": {"$gt": 4}}}, 7, 9, 9),
        ({"filter": {"_id": {"$gte": 4}}}, 8, 9, 9),
        ({"filter": {"_id": {"$lt": 4}}}, 2, 4, 4),
        ({"filter": {"_id": {"$gt": 6, "$lt": 4}}}, 0, 1, 1),
        ({"filter": {"_id": {"$in": [4, 8]}}}, 2, 4, 4),
        ({"filter": {"_id": {"$gt": 4}}, "sort": {"_id": -1}}, 7, 10, 10),
        ({"filter": {"_id": {"$lte": 4}}, "sort": {"_id": -1}}, 3, 4, 4),
        ({"filter": {"_id": {"$gt": 4, "$lt": 10}}, "sort": {"_id": -1}}, 2, 4, 4),
        ({"filter": {}, "min": {"_id": 5}, "hint": {"_id": 1}}, 12, 13, 14),
        ({"filter": {"_id": {"$gt": 100}}}, 0, 2, 2),
    ]:
        stage, _ = walk(explained(clustered, **find)["executionStats"]["executionStages"])
        assert stage["stage"] == "CLUSTERED_IXSCAN", find
        assert (stage["nReturned"], stage["docsExamined"], stage["works"]) == (given, looked_at, works), find


def test_a_walk_backward_gives_what_its_bounds_include(clustered):
    found = clustered.find({"_id": {"$gte": 4, "$lt": 10}}).sort("_id", -1)
    assert [d["_id"] for d in found] == [8, 6, 4]
    found = clustered.find({"_id": {"$gt": 4, "$lte": 10}}).sort("_id", -1)
    assert [d["_id"] for d in found] == [10, 8, 6]


def test_what_bounds_a_walk(clustered):
    nothing = object()
    for find, low, high in [
        ({"filter": {"_id": [1]}}, [1], [1]),
        ({"filter": {"$expr": {"$gt": ["$_id", 4]}}}, 4, nothing),
        ({"filter": {"$expr": {"$lte": ["$_id", "b"]}}}, nothing, "b"),
        ({"filter": {"$expr": {"$gt": ["$_id", 4]}, "_id": {"$lt": 10}}}, 4, 10),
        ({"filter": {"_id": {"$gt": "a"}}}, "a", {}),
        ({"filter": {"_id": {"$gt": "a"}}, "collation": FOREIGN}, "", {}),
        ({"filter": {"_id": {"$in": [4, "b"]}}, "collation": FOREIGN}, 4, {}),
        ({"filter": {"_id": {"$lt": {"x": 2}}}, "collation": FOREIGN}, {}, {"x": 2}),
    ]:
        stage, _ = walk(explained(clustered, **find)["queryPlanner"]["winningPlan"])
        assert (stage.get("minRecord", nothing), stage.get("maxRecord", nothing)) == (low, high), find


def test_records_need_no_sorting_where_their_order_is_the_one_asked_for(clustered):
    numbers = {"_id": {"$in": [4, 8]}}
    for find, above in [
        ({"filter": numbers, "sort": {"_id": 1}, "collation": FOREIGN}, []),
        ({"filter": {"_id": {"$gt": "a"}}, "sort": {"_id": 1}, "collation": FOREIGN}, ["SORT"]),
        ({"filter": {}, "sort": {"_id": -1}, "hint": {"$natural": -1}}, []),
    ]:
        assert walk(explained(clustered, **find)["queryPlanner"]["winningPlan"])[1] == above, find


@pytest.mark.parametrize("find, code", [
    ({"min": {"_id": "a"}, "collation": FOREIGN}, 6137400),
    ({"min": {"_id": {"x": 5}}, "collation": FOREIGN}, 6137400),
    ({"min": {"_id": 4, "a": 1}}, 6137400),
    ({"min": {"_id": 4}, "max": {"_id": 4}}, 6137401),
    ({"min": {"_id": 4}, "sort": {"_id": -1}}, 6137402),
])
def test_what_min_and_max_cannot_say(clustered, find, code):
    with pytest.raises(OperationFailure) as error:
        clustered.database.command({"find": clustered.name, "hint": {"_id": 1}, **find})
    assert error.value.code == code


def test_notablescan_lets_a_bounded_walk_through(client, clustered):
    bounded = {"_id": {"$gt": 4}}
    client.admin.command("setParameter", 1, notablescan=True)
    try:
        assert len(list(clustered.find(bounded))) == 7
        assert len(list(clustered.find(bounded).sort("_id", -1))) == 7
        assert clustered.update_many(bounded, {"$set": {"b": 1}}).matched_count == 7
        for refused in (
            clustered.find({"a": 1}), clustered.find({"_id": {"$ne": 4}}), clustered.find(bounded).sort("a"),
            clustered.find(bounded).limit(1), clustered.find(bounded, {"_id": 1}),
        ):
            with pytest.raises(OperationFailure, match="No indexed plans available") as error:
                list(refused)
            assert error.value.code == 291
        assert clustered.find_one_and_update(bounded, {"$set": {"b": 2}})["_id"] == 6
        with pytest.raises(OperationFailure, match="No indexed plans available"):
            clustered.find_one_and_update(bounded, {"$set": {"b": 2}}, sort=[("_id", -1)])
        with pytest.raises(OperationFailure, match="hint .natural is not allowed"):
            list(clustered.find(bounded, hint={"$natural": 1}, min={"_id": 1}))
    finally:
        client.admin.command("setParameter", 1, notablescan=False)
