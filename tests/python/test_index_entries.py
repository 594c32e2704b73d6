"""Index entries and multikey marks agree with the documents, whatever else an update writes."""
import itertools

import pymongo
import pytest
import server
from bson import MaxKey, MinKey
from pymongo.errors import DuplicateKeyError, OperationFailure

DOCUMENTS = [
    {"a": [{"b": 0}]},
    {"a": [{"b": 0}, {"b": 1}]},
    {"a": []},
    {"a": [{"b": [{"c": 1}]}]},
    {"a": {"b": 0}},
    {"a": [[{"b": 1}]]},
    {},
]
UPDATES = [
    {"$set": {"a.1.c": 0}},
    {"$set": {"a.3.c": 0}},
    {"$inc": {"a.1.c": 1}},
    {"$mul": {"a.2.c": 2}},
    {"$max": {"a.1.c": 5}},
    {"$min": {"a.1.c": 5}},
    {"$bit": {"a.1.c": {"or": 1}}},
    {"$currentDate": {"a.1.c": True}},
    {"$push": {"a.1.c": 1}},
    {"$addToSet": {"a.1.c": 1}},
    {"$set": {"a.0.b.1.d": 1}},
    {"$set": {"a.0.1.d": 1}},
    {"$rename": {"x": "y"}, "$set": {"a.2.z.1": 1}},
    {"$unset": {"a.0.b": 1}},
    {"$setOnInsert": {"a.1.c": 1}, "$set": {"q": 1}},
]
INDEXES = [
    [("a.b", 1)],
    [("a.b.c", 1)],
    [("a.0.b", 1)],
    [("a.b", 1), ("q", 1)],
    [("a.$**", 1)],
]
FILTERS = [{"a.b": None}, {"a.b": 0}, {"a.b.c": None}, {"a.0.b": None}]


def found(c, filter, hint):
    return sorted(d["_id"] for d in c.find(filter).hint(hint))


@pytest.mark.parametrize("keys", INDEXES, ids=lambda keys: "-".join(name for name, _ in keys))
def test_an_element_that_an_update_makes_has_its_keys(db, c, keys):
    hint = c.create_index(keys)
    for number, (document, update) in enumerate(itertools.product(DOCUMENTS, UPDATES)):
        c.insert_one({"_id": number, **document})
        for write in (c.update_one, c.find_one_and_update):
            try:
                write({"_id": number}, update)
            except OperationFailure as error:
                assert error.code in (2, 14, 28), (document, update, error)
    report = db.command("validate", c.name)
    assert report["valid"], report
    if keys[0][0] in ("a.0.b", "a.$**"):
        # mongod finds less by an index on a place in an array, and a wildcard index serves no
        # filter for null.
        return
    for filter in FILTERS:
        assert found(c, filter, hint) == found(c, filter, [("$natural", 1)]), filter


def test_a_unique_index_sees_elements_made_beside_its_path(c):
    c.create_index("a.b", unique=True)
    c.insert_many([{"_id": 1, "a": [{"b": 0}]}, {"_id": 2, "a": [{"b": 1}]}])
    c.update_one({"_id": 1}, {"$set": {"a.1.c": 0}})
    with pytest.raises(DuplicateKeyError):
        c.update_one({"_id": 2}, {"$set": {"a.1.c": 0}})


@pytest.mark.embedded
def test_a_mark_of_a_write_that_failed_is_stored_by_the_next():
    with server.Server() as own:
        with pymongo.MongoClient(own.uri) as client:
            c = client.test.c
            c.create_index("a")
            c.create_index("b", unique=True)
            c.create_index([("w.$**", 1)])
            c.insert_many([{"_id": 1, "a": 0, "b": 1}, {"_id": 2, "a": 0, "b": 2}])
            arrays = {"a": [1, 2], "w": {"x": [3, 4]}}
            with pytest.raises(DuplicateKeyError):
                c.update_one({"_id": 1}, {"$set": {**arrays, "b": 2}})
            with pytest.raises(DuplicateKeyError):
                c.insert_one({"_id": 3, **arrays, "b": 2})
            c.update_one({"_id": 2}, {"$set": arrays})
            assert c.database.command("validate", "c")["valid"]
        own.terminate()
        own.start()
        with pymongo.MongoClient(own.uri) as client:
            c = client.test.c
            assert found(c, {"a": {"$gte": 1}}, "a_1") == [2]
            assert c.count_documents({"a": {"$gte": 1}}, hint="a_1") == 1
            assert found(c, {"w.x": {"$gte": 3}}, "w.$**_1") == [2]
            assert c.database.command("validate", "c")["valid"]


def multikey_paths(c, hint):
    plan = c.find({}).hint(hint).explain()["queryPlanner"]["winningPlan"]
    while plan["stage"] != "IXSCAN":
        plan = plan["inputStage"]
    return plan["multiKeyPaths"]


@pytest.mark.parametrize("paths, value, refused", [
    (["x.0", "x.1"], [[1], [2]], "[1] [0]"),
    (["x.2", "x.0"], [[1], 5, []], "[0] [2]"),
    (["x.0", "x.1"], [[], []], "[1] [0]"),
    (["x.1", "x.0.1"], [[1, 2], [3, 4]], "[0] [1]"),
    (["x.1.b", "x.2"], [[], [], []], "[2] [1]"),
    (["x.1.1", "x.1.0"], [1, [[1], [2]]], "[0] [1]"),
    (["x.0.b", "x.1"], [{"b": [1]}, [2]], "[1] [b]"),
    (["x.0", "x.1"], [[1], 2], None),
    (["x.0", "x.0.0"], [[1, 2], [3]], None),
    (["x.0", "x"], [[1], [2]], None),
    (["x.1", "x.0.0"], [1, [2]], None),
], ids=str)
def test_arrays_at_two_places_of_one_array_are_parallel(c, paths, value, refused):
    c.create_index([(path, 1) for path in paths])
    if refused is None:
        c.insert_one({"x": value})
    else:
        with pytest.raises(pymongo.errors.WriteError) as error:
            c.insert_one({"x": value})
        assert error.value.details["errmsg"] == f"cannot index parallel arrays {refused}"


@pytest.mark.parametrize("path, value, arrays", [
    ("x.0.b", [[]], []), ("x.0.1", [[], 1], []), ("x.0.b", [[1]], ["x.0"]), ("x.0.b", {"0": []}, ["x.0"]), ("x.0", [[1]], []),
], ids=str)
def test_an_empty_array_at_a_place_of_an_array_is_one_value(c, path, value, arrays):
    hint = c.create_index(path)
    c.insert_one({"x": value})
    assert multikey_paths(c, hint) == {path: arrays}


VALUES = [[MaxKey()], [MinKey()], MaxKey(), MinKey(), 5, [], [5, MaxKey()], None, [[MaxKey()]], "x", [[5]], [5], [[[5]]],
          [[]], [[5], 3], [[{"b": 1}]], [[MinKey(), 5]]]
ENDS = [{op: end} for op in ("$lt", "$lte", "$gt", "$gte", "$eq", "$ne") for end in (MinKey(), MaxKey())]
NESTED = [{"$elemMatch": inner} for inner in
          ({"$in": [5]}, {"$gt": 3}, {"$elemMatch": {"$eq": 5}}, {"$not": {"$gt": 3}}, {"b": 1}, {"$lt": MaxKey()},
           {"$exists": True}, {"$size": 1}, {"$type": "number"})]
CONDITIONS = [
    *ENDS,
    *({"$not": end} for end in ENDS),
    {"$in": [MinKey(), MaxKey()]},
    {"$nin": [MaxKey()]},
    *({"$elemMatch": end} for end in ENDS),
    *({"$elemMatch": condition} for condition in NESTED),
    *({"$elemMatch": {"$not": condition}} for condition in NESTED),
    *({"$not": {"$elemMatch": condition}} for condition in NESTED),
    *({"$all": [{"$elemMatch": condition}]} for condition in NESTED),
    {"$elemMatch": {"$gt": [4], "$elemMatch": {"$eq": 5}}},
]


@pytest.mark.parametrize("keys", [[("v", 1)], [("v", -1)], [("x", 1), ("v", 1)], [("$**", 1)]], ids=str)
def test_ends_and_nested_arrays_are_found_by_an_index_as_without(c, keys):
    c.insert_many([{"_id": number, "x": 1, "v": value} for number, value in enumerate(VALUES)])
    if keys[0][0] != "$**":
        # Of this one a wildcard index knows nothing, in mongod neither.
        c.insert_one({"_id": 100, "x": 1})
    hint = c.create_index(keys)
    for condition in CONDITIONS:
        filter = {"x": 1, "v": condition} if keys[0][0] == "x" else {"v": condition}
        expected = found(c, filter, [("$natural", 1)])
        try:
            assert found(c, filter, hint) == expected, condition
        except OperationFailure as error:
            # A wildcard index does not serve every condition.
            assert error.code == 291 and keys[0][0] == "$**", condition
        assert sorted(d["_id"] for d in c.find(filter)) == expected, condition


def test_an_index_on_a_field_and_a_part_of_it_shows_the_whole(c):
    c.insert_many([{"_id": n, "a": {"b": {"c": n, "d": 1}}} for n in range(3)])
    for keys in ([("a.b.c", 1), ("a.b", 1)], [("a.b", 1), ("a.b.c", 1)]):
        hint = c.create_index(keys)
        shown = list(c.find({"a.b.c": {"$gte": 0}}, {"a.b": 1, "_id": 0}).hint(hint))
        assert shown == [{"a": {"b": {"c": n, "d": 1}}} for n in range(3)]


def test_the_key_that_led_to_a_document_is_shown_also_by_id(db, c):
    c.insert_many([{"_id": n, "k": n} for n in range(3)])
    c.create_index("k")
    for filter, key in (({"_id": 1}, {"_id": 1}), ({"_id": 1, "k": 1}, {"_id": 1}), ({"k": 2}, {"k": 2})):
        for more in ({}, {"projection": {"k": 1}}):
            reply = db.command({"find": "c", "filter": filter, "returnKey": True, **more})
            assert reply["cursor"]["firstBatch"] == [key], (filter, more)


def test_validate_counts_the_paths_on_which_a_wildcard_index_meets_arrays(c):
    c.create_index([("$**", 1)], name="i")
    c.insert_one({"_id": 1, "x": {"y": [1], "z": [{"w": []}]}})
    keys = c.database.command("validate", c.name)["keysPerIndex"]
    assert (keys, {type(count) for count in keys.values()}) == ({"_id_": 1, "i": 5}, {int})
    c.delete_many({})
    assert c.database.command("validate", c.name)["keysPerIndex"] == {"_id_": 0, "i": 3}


def test_distinct_of_a_path_beside_its_front(db):
    """An index on a field and on what is in it: the field's own key is what is shown."""
    for index in [("a.b.c", 1), ("a.b", 1)], [("a.b", 1), ("a.b.c", 1)], [("x", 1), ("a.b.c", 1), ("a", 1)]:
        db.c.drop()
        db.c.insert_many([{"x": 1, "a": [{"b": 0}]}, {"x": 1, "a": {"b": {"c": 1}}}, {"x": 1, "a": {"b": [{"c": 2}, {"c": [3]}]}}])
        db.c.create_index(index)
        assert db.c.distinct("a.b.c", {"x": {"$gte": 0}} if index[0][0] == "x" else {}) == [1, 2, 3], index


def test_distinct_of_a_field_that_is_named_like_an_operator(db):
    db.c.insert_many([{"a": [{"b": 1}], "x": 1}, {"a": {"$": 3}}])
    assert db.c.distinct("a.$") == [3] and db.c.distinct("a.b.$") == []
    with pytest.raises(OperationFailure) as failed:
        db.c.distinct("a.$.b")
    assert failed.value.code == 31394
