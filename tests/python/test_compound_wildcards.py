"""Wildcard indexes with fields next to the wildcard: available since the feature compatibility version 7.0."""
import pymongo
import pytest
import server
from pymongo.errors import OperationFailure

pytestmark = pytest.mark.skipif(server.is_mongod(), reason="6.0 knows no compound wildcard index")

DOCUMENTS = [{"_id": n, "tenant": n % 3, "day": n % 7, "custom": {"name": "n%d" % (n % 10), "sizes": [n, n + 1]}}
             for n in range(60)]


@pytest.fixture(scope="module")
def client():
    with server.Server() as own:
        client = pymongo.MongoClient(own.uri, serverSelectionTimeoutMS=10_000)
        client.own = own
        yield client


@pytest.fixture
def c(client):
    client.admin.command("setFeatureCompatibilityVersion", "7.0", confirm=True)
    client.test.c.drop()
    return client.test.c


def walk(c, filter, **options):
    plan = c.find(filter, **options).explain()["queryPlanner"]["winningPlan"]
    while "inputStage" in plan:
        plan = plan["inputStage"]
    return plan


def ids(cursor):
    return sorted(d["_id"] for d in cursor)


def refused(code, c, key, **options):
    with pytest.raises(OperationFailure) as raised:
        c.create_index(list(key.items()), **options)
    assert raised.value.code == code, raised.value.details
    return raised.value.details["errmsg"]


@pytest.mark.embedded
def test_6_0_refuses_them_and_goes_on_with_those_there_are(client, c):
    c.create_index([("tenant", 1), ("custom.$**", 1)])
    client.admin.command("setFeatureCompatibilityVersion", "6.0", confirm=True)
    for key in [{"a": 1, "$**": 1}, {"$**": 1, "a": 1}, {"a": 1, "b.$**": 1}]:
        assert "wildcard indexes do not allow compounding" in refused(67, c, key)
    assert "must be positive" in refused(67, c, {"$**": -1})
    client.own.kill()
    client.own.start()
    c.insert_many(DOCUMENTS)
    assert ids(c.find({"tenant": 1, "custom.name": "n4"}, hint="tenant_1_custom.$**_1")) == [4, 34]
    assert c.database.command("validate", c.name, full=True)["valid"] is True


@pytest.mark.parametrize("key, options", [
    ({"a": 1, "$**": 1}, {}),
    ({"a": 1, "$**": 1}, {"wildcardProjection": {"b": 0}}),
    ({"a": 1, "$**": 1}, {"wildcardProjection": {"a.b": 1}}),
    ({"a.b": 1, "a.$**": 1}, {}),
    ({"a": 1, "b.$**": 1, "c.$**": 1}, {}),
    ({"a": 1, "b.$**": 1}, {"unique": True}),
    ({"a": 1, "b.$**": 1}, {"expireAfterSeconds": 5}),
    ({"b.$**": 1, "a": "hashed"}, {}),
])
def test_what_is_refused(c, key, options):
    refused(67, c, key, **options)


def test_the_projection_goes_with_the_whole_document_alone(c):
    refused(9, c, {"a": 1, "b.$**": 1}, wildcardProjection={"b": 1})
    c.create_index([("a", 1), ("$**", 1)], wildcardProjection={"custom": 1}, name="w")
    (index,) = [index for index in c.list_indexes() if index["name"] == "w"]
    assert index == {"v": 2, "key": {"a": 1, "$**": 1}, "name": "w", "wildcardProjection": {"custom": 1}}


def test_behind_fields(c):
    c.insert_many(DOCUMENTS)
    c.insert_many([{"_id": 100, "tenant": 1}, {"_id": 101, "custom": {"name": "n4"}}, {"_id": 102}])
    c.create_index([("tenant", 1), ("custom.$**", -1), ("day", 1)], name="w")
    plan = walk(c, {"tenant": 1, "custom.name": "n4", "day": {"$gt": 2}})
    assert plan["keyPattern"] == {"tenant": 1, "$_path": 1, "custom.name": -1, "day": 1}
    assert plan["indexBounds"] == {"tenant": ["[1, 1]"], "$_path": ['["custom.name", "custom.name"]'],
                                   "custom.name": ['["n4", "n4"]'], "day": ["(2, inf.0]"]}
    assert plan["multiKeyPaths"] == {"tenant": [], "$_path": [], "custom.name": [], "day": []}
    assert ids(c.find({"tenant": 1, "custom.name": "n4", "day": {"$gt": 2}})) == [4, 34]
    plan = walk(c, {"tenant": 2, "custom.sizes": {"$gte": 50}})
    assert plan["isMultiKey"] is True and plan["multiKeyPaths"]["custom.sizes"] == ["custom.sizes"]
    assert ids(c.find({"tenant": 2, "custom.sizes": {"$gte": 50}})) == [50, 53, 56, 59]
    # The fields in front alone: each document once, also where nothing is below the wildcard.
    plan = walk(c, {"tenant": 1})
    assert plan["keyPattern"] == {"tenant": 1, "$_path": 1}
    assert plan["indexBounds"] == {"tenant": ["[1, 1]"], "$_path": ["[MinKey, MinKey]", '["", {})']}
    assert ids(c.find({"tenant": 1})) == [n for n in range(60) if n % 3 == 1] + [100]
    assert c.count_documents({"tenant": 1}) == 21
    # The fields before the wildcard must be in the filter, and missing ones have no entry.
    assert walk(c, {"custom.name": "n4"})["stage"] == "COLLSCAN"
    assert walk(c, {"tenant": None})["stage"] == "COLLSCAN"
    assert ids(c.find({"tenant": None})) == [101, 102]
    assert ids(c.find({"tenant": None, "custom.name": "n4"})) == [101]
    assert walk(c, {"tenant": None, "custom.name": "n4"})["stage"] == "IXSCAN"
    assert c.database.command("validate", c.name, full=True)["valid"] is True


def test_in_front_of_fields(c):
    c.insert_many(DOCUMENTS)
    c.create_index([("$**", 1), ("tenant", -1)], wildcardProjection={"tenant": 0}, name="w")
    plan = walk(c, {"custom.name": "n4", "tenant": {"$lt": 2}})
    assert plan["keyPattern"] == {"$_path": 1, "custom.name": 1, "tenant": -1}
    assert plan["indexBounds"]["tenant"] == ["(2, -inf.0]"]
    assert ids(c.find({"custom.name": "n4", "tenant": {"$lt": 2}})) == [4, 24, 34, 54]
    assert walk(c, {"custom.name": "n4"})["stage"] == "IXSCAN"
    assert walk(c, {"tenant": 1})["stage"] == "COLLSCAN"
    assert [d["day"] for d in c.find({"day": {"$gt": 4}}, sort=[("day", -1)], limit=1)] == [6]


def test_an_array_is_not_taken_beside_the_wildcard(c):
    c.create_index([("tenant", 1), ("custom.$**", 1)])
    with pytest.raises(OperationFailure) as refused:
        c.insert_one({"tenant": [1], "custom": {"a": 1}})
    assert refused.value.code == 201
    c.insert_one({"_id": 1, "tenant": 1, "custom": [{"a": [1, 2]}, {"a": 3}]})
    with pytest.raises(OperationFailure):
        c.update_one({"_id": 1}, {"$set": {"tenant": [1, 2]}})
    c.update_one({"_id": 1}, {"$set": {"tenant": 5}, "$unset": {"custom": 1}})
    assert ids(c.find({"tenant": 5})) == [1] and ids(c.find({"tenant": 1})) == []
    # One entry, and one for each path on which there were arrays.
    assert c.database.command("validate", c.name, full=True)["keysPerIndex"]["tenant_1_custom.$**_1"] == 3


def test_the_index_covers_what_it_holds(c):
    c.insert_many(DOCUMENTS)
    c.create_index([("tenant", 1), ("custom.$**", 1), ("day", 1)])
    projection = {"tenant": 1, "day": 1, "_id": 0}
    cursor = c.find({"tenant": 1, "custom.name": "n4"}, projection)
    assert cursor.explain()["queryPlanner"]["winningPlan"]["stage"] == "PROJECTION_COVERED"
    assert list(cursor) == [{"tenant": 1, "day": 4}, {"tenant": 1, "day": 6}]
    assert c.distinct("day", {"tenant": 1, "custom.name": "n4"}) == [4, 6]
