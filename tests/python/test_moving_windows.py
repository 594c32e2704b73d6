"""Accumulators over windows whose start moves. Recorded from mongod 6.0, with the choice among equal values."""
import pytest
from bson.int64 import Int64

VALUES = [2, 1, 1.0, None, "b", Int64(2), "B", 1, [1], "a", 2.0]
COLLATION = {"locale": "en", "strength": 2}


@pytest.mark.parametrize("function, collation, expected", [
    ({"$maxN": {"n": 2, "input": "$v"}}, None, [
        [2, 1], [2, 1.0], [2, 1.0], ["b", 1.0], ["b", 2], ["b", "B"], ["b", "B"], [[1], "B"], [[1], "a"], [[1], "a"], [[1], "a"],
        ["a", 2.0]]),
    ({"$minN": {"n": 2, "input": "$v"}}, None, [
        [1, 2], [1, 1.0], [1, 1.0], [1, 1.0], [1.0, 2], [2, "B"], [1, 2], [1, 2], [1, "B"], [1, 2.0], [2.0, "a"], [2.0, "a"]]),
    ({"$firstN": {"n": 2, "input": "$v"}}, None, [
        [2, 1], [2, 1], [2, 1], [1, 1.0], [1.0, None], [None, "b"], ["b", 2], [2, "B"], ["B", 1], [1, [1]], [[1], "a"], ["a", 2.0]]),
    ({"$lastN": {"n": 2, "input": "$v"}}, None, [
        [2, 1], [1, 1.0], [1.0, None], [None, "b"], ["b", 2], [2, "B"], ["B", 1], [1, [1]], [[1], "a"], ["a", 2.0], [2.0, None],
        [2.0, None]]),
    ({"$top": {"output": "$_id", "sortBy": {"w": 1}}}, None, [
        0, 0, 0, 3, 3, 3, 6, 6, 6, 9, 9, 9]),
    ({"$bottom": {"output": "$_id", "sortBy": {"w": 1}}}, None, [
        1, 2, 2, 2, 5, 5, 5, 8, 8, 8, 8, 11]),
    ({"$topN": {"n": 2, "output": "$v", "sortBy": {"v": 1}}}, None, [
        [1, 2], [1, 1.0], [None, 1], [None, 1], [None, 1.0], [None, 2], [1, 2], [1, [1]], [1, [1]], [1, [1]], [None, [1]], [None, 2.0]]),
    ({"$bottomN": {"n": 2, "output": "$v", "sortBy": {"w": 1}}}, None, [
        [2, 1], [1, 1.0], [1, 1.0], ["b", 1.0], [1.0, 2], ["b", 2], [1, 2], [2, [1]], [1, [1]], [2.0, [1]], [None, [1]], [2.0, None]]),
    ({"$push": "$v"}, None, [
        [2, 1], [2, 1, 1.0], [2, 1, 1.0, None], [1, 1.0, None, "b"], [1.0, None, "b", 2], [None, "b", 2, "B"], ["b", 2, "B", 1],
        [2, "B", 1, [1]], ["B", 1, [1], "a"], [1, [1], "a", 2.0], [[1], "a", 2.0], ["a", 2.0]]),
    ({"$addToSet": "$v"}, None, [
        [1, 2], [1, 2], [None, 1, 2], [None, 1, "b"], [None, 1.0, 2, "b"], [None, 2, "B", "b"], [1, 2, "B", "b"], [1, 2, "B", [1]],
        [1, "B", "a", [1]], [1, 2.0, "a", [1]], [2.0, "a", [1]], [2.0, "a"]]),
    ({"$maxN": {"n": 2, "input": "$v"}}, COLLATION, [
        [2, 1], [2, 1.0], [2, 1.0], ["b", 1.0], ["b", 2], ["B", "b"], ["B", "b"], [[1], "B"], [[1], "B"], [[1], "a"], [[1], "a"],
        ["a", 2.0]]),
    ({"$addToSet": "$v"}, COLLATION, [
        [1, 2], [1, 2], [None, 1, 2], [None, 1, "b"], [None, 1.0, 2, "b"], [None, 2, "b"], [1, 2, "b"], [1, 2, "B", [1]],
        [1, "a", "B", [1]], [1, 2.0, "a", [1]], [2.0, "a", [1]], [2.0, "a"]]),
])
def test_values_enter_and_leave_a_moving_window(c, function, collation, expected):
    c.insert_many([{"_id": n, "w": n % 3, "v": value} for n, value in enumerate(VALUES)] + [{"_id": len(VALUES), "w": 1}])
    window = {"sortBy": {"_id": 1}, "output": {"x": {**function, "window": {"documents": [-2, 1]}}}}
    found = c.aggregate([{"$setWindowFields": window}, {"$sort": {"_id": 1}}], collation=collation)
    # The text distinguishes 1 from 1.0.
    assert repr([document["x"] for document in found]) == repr(expected)
