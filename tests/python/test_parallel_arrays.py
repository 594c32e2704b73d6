"""Arrays side by side in one index: refused as in MongoDB, taken where the index says so."""
import pymongo
import pytest
import server
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

pytestmark = pytest.mark.skipif(server.is_mongod(), reason="an option of Marula's own")

TAGS = [{"_id": n, "a": [n, n + 1], "b": ["x%d" % (n % 3), n], "c": [{"d": n, "e": [n % 2, 9]}, {"d": -n}]}
        for n in range(40)]


def walked(c, filter):
    plan = c.find(filter).explain()["queryPlanner"]["winningPlan"]
    while "inputStage" in plan:
        plan = plan["inputStage"]
    return plan


def test_only_an_index_that_says_so_takes_them(c):
    c.create_index([("a", 1), ("b", 1)], name="plain")
    with pytest.raises(OperationFailure) as refused:
        c.insert_one({"a": [1], "b": [2]})
    assert refused.value.code == 171
    c.drop_index("plain")
    c.create_index([("a", 1), ("b", 1)], parallelArrays=True)
    c.insert_one({"_id": 1, "a": [1, 2], "b": [3, 4]})
    (index,) = [index for index in c.list_indexes() if index["name"] == "a_1_b_1"]
    assert index == {"v": 2, "key": {"a": 1, "b": 1}, "name": "a_1_b_1", "parallelArrays": True}
    assert c.database.command("validate", c.name, full=True)["keysPerIndex"]["a_1_b_1"] == 4
    for name in ["a_1_b_1", "other"]:
        with pytest.raises(OperationFailure) as refused:
            c.create_index([("a", 1), ("b", 1)], name=name)
        assert refused.value.code == 85


def test_queries_find_what_they_find_without_an_index(c):
    c.insert_many(TAGS)
    filters = [
        {"a": 7, "b": "x0"}, {"a": {"$gt": 3, "$lt": 6}, "b": {"$gte": "x1"}}, {"a": {"$in": [3, 9]}, "b": 9},
        {"a": {"$elemMatch": {"$gt": 3, "$lt": 6}}, "b": {"$type": "string"}},
        {"c": {"$elemMatch": {"d": {"$gte": 4}, "e": 1}}, "a": 6}, {"c.d": 5, "c.e": 0}, {"c.d": {"$lt": -3}, "a": 8},
    ]
    without = [sorted(d["_id"] for d in c.find(filter)) for filter in filters]
    assert all(without[:5])
    c.create_index([("a", 1), ("b", -1)], parallelArrays=True, name="ab")
    c.create_index([("c.d", 1), ("a", 1), ("c.e", 1)], parallelArrays=True, name="cd")
    for filter, wanted in zip(filters, without):
        for hint in ["ab", "cd"]:
            assert sorted(d["_id"] for d in c.find(filter, hint=hint)) == wanted, (filter, hint)
        assert c.count_documents(filter) == len(wanted)
    plan = walked(c, {"a": 7, "b": "x0"})
    assert plan["indexName"] == "ab" and plan["multiKeyPaths"] == {"a": ["a"], "b": ["b"]}
    assert plan["indexBounds"] == {"a": ["[7, 7]"], "b": ['["x0", "x0"]']}


def test_each_pair_is_a_key_of_a_unique_index(c):
    c.create_index([("a", 1), ("b", 1)], parallelArrays=True, unique=True)
    c.insert_one({"_id": 1, "a": [1, 2], "b": [3, 4]})
    c.insert_one({"_id": 2, "a": [1, 2], "b": [5, 6]})
    with pytest.raises(DuplicateKeyError) as refused:
        c.insert_one({"_id": 3, "a": [7, 2], "b": [8, 4]})
    assert refused.value.details["keyValue"] == {"a": 2, "b": 4}
    c.update_one({"_id": 1}, {"$pull": {"a": 2}})
    c.insert_one({"_id": 3, "a": [7, 2], "b": [8, 4]})
    assert c.find_one({"a": 2, "b": 8})["_id"] == 3
    assert c.database.command("validate", c.name, full=True)["valid"] is True


def test_the_keys_of_one_document_are_bounded(c):
    numbers = list(range(1001))
    c.insert_one({"_id": 1, "a": numbers, "b": numbers})
    with pytest.raises(OperationFailure) as refused:
        c.create_index([("a", 1), ("b", 1)], parallelArrays=True)
    assert refused.value.code == 12582
    c.drop()
    c.create_index([("a", 1), ("b", 1)], parallelArrays=True)
    with pytest.raises(BulkWriteError) as refused:
        c.insert_many([{"a": numbers[:100], "b": numbers[:100]}, {"a": numbers, "b": numbers}])
    assert refused.value.details["writeErrors"][0]["code"] == 12582
    assert c.count_documents({"a": 50, "b": 99}) == 1


def test_the_index_gives_an_order_that_a_sort_refuses(c):
    c.insert_many(TAGS)
    order = [("a", 1), ("b", -1)]
    with pytest.raises(OperationFailure) as refused:
        list(c.find().sort(order))
    assert refused.value.code == 2 and "parallel arrays" in str(refused.value)
    c.create_index(order, parallelArrays=True)
    assert [d["_id"] for d in c.find({"a": {"$exists": True}}, hint="a_1_b_-1").sort(order)] == list(range(40))
    assert [d["_id"] for d in c.find(hint="a_1_b_-1").sort([("a", -1), ("b", 1)])] == list(range(39, -1, -1))


@pytest.mark.embedded
def test_it_is_there_after_a_restart():
    with server.Server() as own:
        c = pymongo.MongoClient(own.uri, serverSelectionTimeoutMS=10_000).test.c
        c.create_index([("a", 1), ("b", 1)], parallelArrays=True)
        own.kill()
        own.start()
        c = pymongo.MongoClient(own.uri, serverSelectionTimeoutMS=10_000).test.c
        c.insert_one({"a": [1], "b": [2]})
        assert c.index_information()["a_1_b_1"]["parallelArrays"] is True


@pytest.mark.parametrize("key", [{"a": "text"}, {"a": "2dsphere", "b": 1}, {"a": "2d"}, {"a": "hashed"}, {"$**": 1}])
def test_other_kinds_do_not_have_the_option(c, key):
    with pytest.raises(OperationFailure) as refused:
        c.create_index(list(key.items()), parallelArrays=True)
    assert refused.value.code == 67
    assert "does not support the parallelArrays option" in str(refused.value)
