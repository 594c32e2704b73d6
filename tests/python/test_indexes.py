"""Indexes: made, listed, used, unique, dropped."""
import pytest
import server
from bson import MinKey
from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure


def test_indexes_are_listed_as_they_were_made(c):
    c.create_index([("a", ASCENDING), ("b.c", DESCENDING)])
    c.create_indexes([IndexModel("u", unique=True, name="mine"), IndexModel("s", sparse=True),
                      IndexModel("p", partialFilterExpression={"p": {"$gt": 5}}),
                      IndexModel("d", expireAfterSeconds=3600)])
    listed = {i["name"]: i for i in c.list_indexes()}
    assert dict(listed["_id_"]) == {"v": 2, "key": {"_id": 1}, "name": "_id_"}
    assert dict(listed["a_1_b.c_-1"]) == {"v": 2, "key": {"a": 1, "b.c": -1}, "name": "a_1_b.c_-1"}
    assert listed["mine"]["unique"] is True and listed["s_1"]["sparse"] is True
    assert listed["p_1"]["partialFilterExpression"] == {"p": {"$gt": 5}}
    assert listed["d_1"]["expireAfterSeconds"] == 3600
    c.drop_index("mine")
    c.drop_index([("s", 1)])
    assert sorted(c.index_information()) == ["_id_", "a_1_b.c_-1", "d_1", "p_1"]
    c.drop_indexes()
    assert sorted(c.index_information()) == ["_id_"]


def test_a_unique_violation_names_key_and_value(c):
    c.create_index([("a", 1), ("b", -1)], unique=True)
    c.insert_one({"a": 1, "b": "x"})
    with pytest.raises(DuplicateKeyError) as error:
        c.insert_one({"a": 1, "b": "x"})
    assert error.value.details["keyPattern"] == {"a": 1, "b": -1}
    assert error.value.details["keyValue"] == {"a": 1, "b": "x"}
    assert error.value.details["errmsg"] == (
        "E11000 duplicate key error collection: %s index: a_1_b_-1 dup key: { a: 1, b: \"x\" }" % c.full_name)
    c.insert_one({"_id": 2, "a": 2, "b": "x"})
    with pytest.raises(DuplicateKeyError):
        c.update_one({"_id": 2}, {"$set": {"a": 1}})
    assert c.find_one({"_id": 2})["a"] == 2


def test_a_unique_index_over_duplicates_is_refused(c):
    c.insert_many([{"a": 1}, {"a": 1}])
    with pytest.raises(DuplicateKeyError):
        c.create_index("a", unique=True)
    assert sorted(c.index_information()) == ["_id_"]


def test_missing_counts_as_null_unless_sparse(c):
    c.create_index("a", unique=True)
    c.create_index("s", unique=True, sparse=True)
    c.insert_one({"x": 1})
    with pytest.raises(DuplicateKeyError):
        c.insert_one({"x": 2})
    c.insert_one({"a": 1})


def test_an_unordered_bulk_goes_on_after_a_violation(c):
    c.create_index("a", unique=True)
    with pytest.raises(BulkWriteError) as error:
        c.insert_many([{"a": 1}, {"a": 1}, {"a": 2}], ordered=False)
    assert error.value.details["nInserted"] == 2
    assert error.value.details["writeErrors"][0]["keyValue"] == {"a": 1}


def winning(explained):
    """The stages of the winning plan, outermost first."""
    plan, stages = explained["queryPlanner"]["winningPlan"], []
    plan = plan.get("queryPlan", plan)
    while plan:
        stages.append(plan["stage"])
        plan = plan.get("inputStage")
    return stages


def test_an_index_is_used(c):
    c.insert_many([{"_id": i, "a": i % 10, "b": i} for i in range(1000)])
    assert "COLLSCAN" in winning(c.find({"a": 3}).explain())
    c.create_index([("a", 1), ("b", 1)])
    assert winning(c.find({"a": 3}).explain()) == ["FETCH", "IXSCAN"]
    explained = c.database.command("explain", {"find": "c", "filter": {"a": 3, "b": {"$lt": 100}}},
                                   verbosity="executionStats")["executionStats"]
    assert (explained["nReturned"], explained["totalKeysExamined"], explained["totalDocsExamined"]) == (10, 10, 10)
    assert [d["b"] for d in c.find({"a": 3}).sort("b", -1).limit(2)] == [993, 983]
    assert "SORT" not in winning(c.find({"a": 3}).sort("b", -1).explain())
    assert list(c.find({"a": 3, "b": 13}, {"_id": 0, "a": 1, "b": 1})) == [{"a": 3, "b": 13}]
    assert c.count_documents({"a": 3}) == 100
    assert c.count_documents({"a": 3}, hint="a_1_b_1") == 100


def test_answers_are_the_same_with_and_without_an_index(c):
    values = [None, 1, 1.5, "a", "B", [], [1, 2], [[1]], {"x": 1}, True, float("nan"), [None], ["a", 1]]
    c.insert_many([{"_id": i, "v": v} for i, v in enumerate(values)] + [{"_id": 99}])
    filters = [{"v": f} for f in (
        None, 1, [1, 2], {"$gt": 0}, {"$lte": 1.5}, {"$in": ["a", None]}, {"$ne": 1}, {"$exists": False},
        {"$gte": "B"}, {"$type": "array"}, {"$not": {"$lt": 2}}, {"$elemMatch": {"$gt": 1}}, {"x": 1}, [], float("nan"),
        {"$nin": [1, "a"]}, {"$size": 2}, {"$all": [1, 2]})]
    plain = [sorted(d["_id"] for d in c.find(f)) for f in filters]
    order = [d["_id"] for d in c.find().sort([("v", 1), ("_id", 1)])]
    c.create_index([("v", 1), ("_id", 1)])
    for f, expected in zip(filters, plain):
        assert sorted(d["_id"] for d in c.find(f).hint("v_1__id_1")) == expected, f
    assert [d["_id"] for d in c.find().sort([("v", 1), ("_id", 1)])] == order


@pytest.mark.parametrize("key, options, code", [
    ({"a": 0}, {}, 67), ({"a": "nope"}, {}, 67), ({"": 1}, {}, 67), ({"a": 1}, {"name": ""}, 67),
    ({"a.$b": 1}, {}, 67), ({"a": 1}, {"expireAfterSeconds": -1}, 67), ({"_id": 1}, {"sparse": True}, 197)])
def test_bad_indexes_are_refused(c, key, options, code):
    c.insert_one({})
    spec = {"key": key, "name": "bad", **options}
    with pytest.raises(OperationFailure) as error:
        c.database.command("createIndexes", "c", indexes=[spec])
    assert error.value.code == code


def test_the_same_index_twice_is_one_and_another_of_its_name_an_error(c):
    c.create_index("a")
    assert c.create_index("a") == "a_1"
    for key, options, code in ((("b", 1), {"name": "a_1"}, 86), (("a", 1), {"unique": True}, 86),
                               (("a", 1), {"name": "z"}, 85)):
        with pytest.raises(OperationFailure) as error:
            c.create_index([key], **options)
        assert error.value.code == code, options


def test_an_index_over_existing_documents_finds_them(c):
    c.insert_many([{"_id": i, "t": ["x%d" % i, "all"]} for i in range(3000)])
    c.create_index("t")
    assert c.find_one({"t": "x2999"})["_id"] == 2999
    assert sum(1 for _ in c.find({"t": "all"})) == 3000
    assert c.database.command("validate", "c", full=True)["valid"] is True


def test_hashed_indexes_find_and_refuse(c):
    c.create_index([("a", "hashed"), ("b", 1)])
    c.insert_many([{"_id": 1, "a": 1.5, "b": 1}, {"_id": 2, "a": 1}, {"_id": 3}, {"_id": 4, "a": {"x": "y"}}])
    assert [d["_id"] for d in c.find({"a": 1})] == [2]
    assert [d["_id"] for d in c.find({"a": {"$in": [1.5, None]}}).sort("_id", 1)] == [1, 3]
    plan = c.find({"a": {"x": "y"}}).explain()["queryPlanner"]["winningPlan"]
    assert plan["inputStage"]["keyPattern"] == {"a": "hashed", "b": 1}
    with pytest.raises(OperationFailure) as error:
        c.insert_one({"a": [1]})
    assert error.value.code == 16766
    with pytest.raises(OperationFailure) as error:
        c.create_index([("z", "hashed")], unique=True)
    assert error.value.code == 16764


def test_wildcard_indexes_serve_the_paths_they_hold(c):
    c.create_index([("$**", 1)], wildcardProjection={"secret": 0}, name="w")
    c.insert_many([{"_id": i, "a": {"b": [i, "x%d" % i]}, "secret": i} for i in range(50)])
    c.insert_one({"_id": 99, "a": {}})

    def walked(filter):
        plan = c.find(filter).explain()["queryPlanner"]["winningPlan"]
        return plan.get("inputStage", plan).get("keyPattern")

    assert walked({"a.b": 7}) == {"$_path": 1, "a.b": 1}
    assert [d["_id"] for d in c.find({"a.b": "x7"})] == [7]
    assert c.count_documents({"a": {"$exists": True}}, hint="w") == 51
    assert walked({"secret": 7}) is None and walked({"a.b": None}) is None
    assert c.count_documents({"a.b": None}) == 1
    with pytest.raises(OperationFailure) as error:
        list(c.find({"secret": 7}, hint="w"))
    assert error.value.code == 291
    c.update_many({"a.b": 7}, {"$set": {"a.b": 8}})
    assert sorted(d["_id"] for d in c.find({"a.b": 8})) == [7, 8]
    assert c.database.command("validate", "c")["valid"]


def stages(plan):
    found = []
    while plan:
        found.append(plan)
        plan = plan.get("inputStage")
    return [stage["stage"] for stage in found], found[-1]


def test_wildcard_indexes_cover_and_count(c):
    c.create_index([("$**", 1)])
    c.insert_many([{"_id": i, "a": i % 10, "b": {"x": i}, "tags": [i, i + 1]} for i in range(40)])
    cursor = c.find({"a": {"$gt": 7}}, {"a": 1, "_id": 0}).sort("a", -1)
    names, walk = stages(cursor.explain()["queryPlanner"]["winningPlan"])
    assert names == ["PROJECTION_COVERED", "IXSCAN"] and walk["direction"] == "backward"
    assert [d["a"] for d in cursor] == [9] * 4 + [8] * 4
    assert list(c.find({"b.x": 3}, {"b.x": 1, "_id": 0})) == [{"b": {"x": 3}}]

    def explained(**command):
        return stages(c.database.command("explain", command)["queryPlanner"]["winningPlan"])

    names, walk = explained(count=c.name, query={"a": 3})
    assert names == ["COUNT", "COUNT_SCAN"]
    assert walk["indexBounds"]["startKey"] == {"$_path": "a", "a": 3}
    assert c.database.command("count", c.name, query={"a": 3})["n"] == 4
    assert c.database.command("count", c.name, query={"tags": 3})["n"] == 2
    names, walk = explained(distinct=c.name, key="a", query={"a": {"$gte": 8}})
    assert names == ["PROJECTION_COVERED", "DISTINCT_SCAN"]
    assert c.distinct("a", {"a": {"$gte": 8}}) == [8, 9]
    assert c.distinct("tags", {"tags": {"$gte": 39}}) == [38, 39, 40]
    # An array is not determined by its elements.
    assert stages(c.find({"tags": 3}, {"tags": 1, "_id": 0}).explain()["queryPlanner"]["winningPlan"])[0][1] == "FETCH"


def test_wildcard_indexes_serve_elements_and_places(c):
    c.create_index([("$**", 1)])
    c.insert_many([{"_id": i, "a": [i, i + 1], "b": [{"x": i, "y": 1}, {"x": 3, "y": i}], "d": {"0": i}}
                   for i in range(20)])

    def check(filter, bounds, ids):
        names, walk = stages(c.find(filter).explain()["queryPlanner"]["winningPlan"])
        assert walk["stage"] == "IXSCAN" and walk["indexBounds"] == bounds, filter
        assert sorted(d["_id"] for d in c.find(filter)) == ids, filter

    check({"a": {"$elemMatch": {"$gt": 17, "$lt": 19}}}, {"$_path": ['["a", "a"]'], "a": ["(17, 19)"]}, [17, 18])
    check({"b": {"$elemMatch": {"x": 5}}}, {"$_path": ['["b.x", "b.x"]'], "b.x": ["[5, 5]"]}, [5])
    check({"a.0": 4}, {"$_path": ['["a", "a"]', '["a.0", "a.0"]'], "a.0": ["[4, 4]"]}, [4])
    check({"b.1.y": 7}, {"$_path": ['["b.1.y", "b.1.y"]', '["b.y", "b.y"]'], "b.1.y": ["[7, 7]"]}, [7])
    check({"d.0": 7}, {"$_path": ['["d.0", "d.0"]'], "d.0": ["[7, 7]"]}, [7])
    assert c.find({"d.0": 7}).explain()["queryPlanner"]["winningPlan"].get("filter") is None


@pytest.mark.skipif(server.is_mongod(), reason="6.0 misses documents here")
def test_a_place_in_an_array_of_an_array_is_found(c):
    c.create_index([("$**", 1)])
    c.insert_many([{"_id": 1, "a": [[{"b": 1}]]}, {"_id": 2, "a": [{"b": 1}]}, {"_id": 3}])
    assert [d["_id"] for d in c.find({"a.0.b": 1})] == [1, 2]
    assert sorted(d["_id"] for d in c.find({"z": {"$gte": MinKey()}})) == [1, 2, 3]
    c.drop()
    c.create_index([("$**", 1)], wildcardProjection={"a.b": 0})
    c.insert_many([{"_id": 2, "a": [{"b": 1}]}, {"_id": 3, "a": {"0": {"b": 1}}}])
    assert [d["_id"] for d in c.find({"a.0.b": 1})] == [2, 3]


def test_one_condition_of_several_that_asks_for_one_document_is_enough(c):
    c.create_index("b", unique=True)
    c.create_index("c")
    c.insert_many([{"_id": i, "b": i, "c": 1} for i in range(20)])
    for filter, index in [({"b": 5, "c": 1}, "b_1"), ({"_id": 5, "c": 1, "b": 5}, "_id_"),
                          ({"b": 5, "$or": [{"c": 1}, {"_id": 3}]}, "b_1")]:
        planner = c.find(filter).explain()["queryPlanner"]
        assert planner["rejectedPlans"] == [] and planner["winningPlan"]["inputStage"]["indexName"] == index
    plan = c.find({"b": {"$eq": 5, "$gt": 3}, "c": 1}).explain()["queryPlanner"]["winningPlan"]
    assert plan["filter"] == {"$and": [{"b": {"$gt": 3}}, {"c": {"$eq": 1}}]}
    assert [d["_id"] for d in c.find({"b": {"$eq": 5, "$gt": 3}, "c": 1})] == [5]
    assert list(c.find({"b": {"$eq": 5, "$gt": 7}, "c": 1})) == []
    assert c.find({"b": 5, "c": 1}, {"c": 1}).explain()["queryPlanner"]["rejectedPlans"] != []
    assert c.find({"b": {"$gt": 5}, "c": 1}).explain()["queryPlanner"]["rejectedPlans"] != []


@pytest.mark.parametrize("documents, second, code", [
    ([], {"key": {"b": 1}, "name": "x"}, 68),
    ([{}], {"key": {"b": 1}, "name": "x"}, 96),
    ([{}], {"key": {"b": 1}, "name": "y"}, 85),
    ([{}], {"key": {"c": 1}, "name": "x"}, 86),
    ([{}], {"key": {"c": 1}, "name": "x\0"}, 67),
])
def test_indexes_of_one_command_that_clash(c, documents, second, code):
    c.database.create_collection(c.name)
    if documents:
        c.insert_many(documents)
    with pytest.raises(OperationFailure) as failed:
        c.database.command("createIndexes", c.name, indexes=[{"key": {"b": 1}, "name": "x"}, second])
    assert failed.value.code == code
    assert list(c.index_information()) == ["_id_"]


def test_what_is_there_already_is_noted(c):
    def create(*names):
        specs = [{"key": {name: 1}, "name": name} for name in names]
        reply = c.database.command("createIndexes", c.name, indexes=specs)
        return reply["numIndexesBefore"], reply["numIndexesAfter"], reply.get("note")

    c.insert_one({})
    assert create("a") == (1, 2, None)
    assert create("a") == (2, 2, "all indexes already exist")
    assert create("a", "b", "c") == (2, 4, "index already exists")
    assert create("d", "b") == (4, 5, "index already exists")


def test_an_index_is_prepared_next_to_fields_that_are_no_change(db):
    db.create_collection("c", capped=True, size=4096)
    db.c.create_index("a")
    info = next(db.list_collections(filter={"name": "c"}))["info"]

    def change(change, **more):
        return db.command({"collMod": "c", "index": {"name": "a_1", **change}, **more})

    for more in ({"collectionUUID": info["uuid"]}, {"cappedSize": 8192}, {"cappedMax": 5}, {"isTimeseriesNamespace": False}):
        assert change({"prepareUnique": True}, **more)["prepareUnique_new"] is True
        if "cappedSize" not in more and "cappedMax" not in more:
            change({"unique": True}, dryRun=True, **more)
        change({"prepareUnique": False}, **more)
    for more in ({"validator": {}}, {"validationLevel": "off"}):
        with pytest.raises(OperationFailure, match="cannot be combined with any other modification") as refused:
            change({"prepareUnique": True}, **more)
        assert refused.value.code == 72


def test_an_index_is_made_unique_in_steps(c):
    rows, db = c, c.database
    rows.insert_many([{"_id": 1, "a": 1}, {"_id": 2, "a": 2}, {"_id": 3, "a": 2}])
    rows.create_index("a", sparse=True)

    def change(dry_run=False, **index):
        return db.command("collMod", c.name, index={"name": "a_1", **index}, dryRun=dry_run)

    with pytest.raises(OperationFailure) as refused:
        change(unique=True)
    assert refused.value.code == 72
    reply = change(prepareUnique=True)
    assert (reply["prepareUnique_old"], reply["prepareUnique_new"]) == (False, True)
    with pytest.raises(DuplicateKeyError):
        rows.insert_one({"_id": 4, "a": 1})
    with pytest.raises(DuplicateKeyError):
        rows.update_one({"_id": 1}, {"$set": {"a": 2}})
    for dry_run in (True, False):
        with pytest.raises(OperationFailure) as refused:
            change(dry_run, unique=True)
        assert refused.value.code == 359
        assert refused.value.details["violations"] == [{"ids": [2, 3]}]
    rows.delete_one({"_id": 3})
    change(True, unique=True)
    assert change(unique=True)["unique_new"] is True
    (index,) = [spec for spec in rows.list_indexes() if spec["name"] == "a_1"]
    assert list(index) == ["v", "key", "name", "unique", "sparse"]
    with pytest.raises(DuplicateKeyError):
        rows.insert_one({"_id": 5, "a": 2})
    assert db.command("validate", c.name, full=True)["valid"]


def test_a_cursor_over_a_dropped_index_is_killed(c):
    c.insert_many([{"a": n} for n in range(1000)])
    c.create_index("a")
    cursor = c.find({"a": {"$gte": 0}}, batch_size=10)
    next(cursor)
    c.drop_index("a_1")
    with pytest.raises(OperationFailure) as killed:
        list(cursor)
    assert killed.value.code == 175
    assert killed.value.details["errmsg"] == "query plan killed :: index 'a_1' dropped"
