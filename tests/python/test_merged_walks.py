"""Walks over indexes that are merged by their order (SORT_MERGE): equal rows, duplicates, writes between two batches."""
import pytest


def walks(c):
    """Two indexes whose walks a sort by `c` merges, and eight documents that alternate between the branches."""
    c.create_index([("a", 1), ("c", 1)])
    c.create_index([("b", 1), ("c", 1)])
    c.insert_many([{"_id": i, "a": 1 + i % 2, "b": 2 - i % 2, "c": i, "x": 1} for i in range(8)])


def stages(plan):
    inputs = plan.get("inputStages") or ([plan["inputStage"]] if "inputStage" in plan else [])
    return {plan["stage"]}.union(*map(stages, inputs))


def test_equal_rows_come_by_their_places_in_the_heap(c):
    c.create_index([("a", 1), ("c", 1)])
    c.insert_many([{"_id": 10 * a + i, "a": a, "c": 0} for a in range(5) for i in range(2)])
    two = c.find({"a": {"$in": [0, 1]}}).sort("c").hint("a_1_c_1")
    assert [d["_id"] for d in two] == [0, 10, 1, 11]
    five = c.find({"a": {"$in": [0, 1, 2, 3, 4]}}).sort("c").hint("a_1_c_1")
    assert "SORT_MERGE" in stages(five.clone().explain()["queryPlanner"]["winningPlan"])
    assert [d["_id"] for d in five] == [0, 20, 40, 1, 21, 41, 10, 30, 11, 31]


def test_a_row_that_another_input_has_given_is_passed_over_at_once(c):
    walks(c)
    cursor = c.find({"$or": [{"a": 1}, {"b": {"$in": [1, 2]}}]}).sort("c")
    plan = cursor.clone().explain()["executionStats"]["executionStages"]
    while plan["stage"] != "SORT_MERGE":
        plan = plan["inputStage"]
    assert [plan[name] for name in ("works", "advanced", "needTime", "dupsTested", "dupsDropped")] == [23, 8, 15, 12, 4]
    assert [d["_id"] for d in cursor] == list(range(8))


PLAIN = {"$or": [{"a": 1}, {"b": 1}]}
FETCHED = {"$or": [{"a": 1, "x": 1}, {"b": 1, "x": 1}]}
BEHIND = {"x": 1, "$or": [{"a": 1}, {"b": 1}]}


@pytest.mark.parametrize("filter, change, rest", [
    # The document of a row that was read ahead is read now: it must still have the entry that led
    # to it.
    (PLAIN, {"a": 9, "b": 9}, []),
    (PLAIN, {"c": 100}, [2, 3, 4, 5, 6, 7]),
    (PLAIN, {"c": -100}, []),
    (PLAIN, {"x": 0}, [1, 2, 3, 4, 5, 6, 7]),
    (BEHIND, {"a": 9, "b": 9}, []),
    (BEHIND, {"x": 0}, []),
    # One that was read to look at more than its entry is given as it was.
    (FETCHED, {"a": 9, "b": 9}, [1]),
    (FETCHED, {"x": 0}, [1]),
    (FETCHED, {"c": 100}, [1, 2, 3, 4, 5, 6, 7]),
])
def test_rows_read_ahead_are_looked_at_again(c, filter, change, rest):
    walks(c)
    cursor = c.find(filter, batch_size=1).sort("c")
    assert "SORT_MERGE" in stages(cursor.clone().explain()["queryPlanner"]["winningPlan"])
    assert next(cursor)["_id"] == 0
    c.update_many({}, {"$set": change})
    assert [d["_id"] for d in cursor] == rest


def test_a_row_that_still_has_its_entry_is_given(c):
    walks(c)
    cursor = c.find(PLAIN, batch_size=1).sort("c")
    next(cursor)
    # The same number of another type has the same entry.
    c.update_many({}, [{"$set": {"c": {"$toDouble": "$c"}, "m": 1}}])
    assert [(d["_id"], d["m"], type(d["c"])) for d in cursor] == [(i, 1, float) for i in range(1, 8)]
