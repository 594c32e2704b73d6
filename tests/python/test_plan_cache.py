"""The plan cache: the entries from trials, replanning; index filters."""
import pytest
from pymongo import IndexModel
from pymongo.errors import OperationFailure


def planner_of(c, filter, **more):
    command = {"find": c.name, "filter": filter, **more}
    return c.database.command("explain", command, verbosity="queryPlanner")["queryPlanner"]


def entries(c):
    return list(c.aggregate([{"$planCacheStats": {}}]))


def test_the_plan_cache_keeps_what_won(c):
    c.insert_many([{"a": n % 10, "b": n % 7} for n in range(200)])
    c.create_indexes([IndexModel("a"), IndexModel("b")])
    asked = {"a": 1, "b": 1}
    assert len(list(c.find(asked))) == 3 and len(list(c.find({"a": 1}))) == 20
    (entry,) = entries(c)
    assert list(entry) == ["version", "queryHash", "planCacheKey", "isActive", "works", "timeOfCreation",
                           "createdFromQuery", "cachedPlan", "creationExecStats", "candidatePlanScores",
                           "indexFilterSet", "estimatedSizeBytes", "host"]
    assert entry["createdFromQuery"] == {"query": asked, "sort": {}, "projection": {}}
    assert not entry["isActive"] and entry["works"] == 21
    assert entry["cachedPlan"]["inputStage"]["indexName"] == "a_1"
    list(c.find({"a": 3, "b": 5}))
    (entry,) = entries(c)
    assert entry["isActive"]
    planner = planner_of(c, asked)
    assert (planner["queryHash"], planner["planCacheKey"]) == (entry["queryHash"], entry["planCacheKey"])
    c.create_index("a", sparse=True, name="sparse")
    assert not entries(c), "another set of indexes"
    changed = planner_of(c, asked)
    assert changed["queryHash"] == entry["queryHash"] and changed["planCacheKey"] != entry["planCacheKey"]
    list(c.find(asked)), list(c.find(asked, sort=[("z", 1)]))
    assert len(entries(c)) == 2
    c.database.command("planCacheClear", c.name, query={"a": 9, "b": 9})
    assert [entry["createdFromQuery"]["sort"] for entry in entries(c)] == [{"z": 1}]
    c.database.command("planCacheClear", c.name)
    assert not entries(c)


def test_a_cached_plan_that_has_come_to_cost_much_is_tried_anew(c):
    c.insert_many([{"a": "few", "b": "few"} for _ in range(5)])
    c.insert_many([{"a": "many", "b": n} for n in range(5000)])
    c.insert_many([{"a": n, "b": "many"} for n in range(2000)])
    c.create_indexes([IndexModel("a"), IndexModel("b")])
    for _ in range(3):
        assert len(list(c.find({"a": "few", "b": "few"}))) == 5
    assert entries(c)[0]["isActive"]
    c.database.command("profile", 2)
    try:
        assert len(list(c.find({"a": "many", "b": 4000}))) == 1
    finally:
        c.database.command("profile", 0)
    (record,) = c.database["system.profile"].find({"command.filter": {"a": "many", "b": 4000}})
    assert record["keysExamined"] < 100, "the other index took over"
    assert entries(c)[0]["cachedPlan"]["inputStage"]["indexName"] == "b_1"


def test_an_index_filter_goes_before_a_hint(c):
    c.insert_many([{"a": n % 10, "b": n % 7} for n in range(200)])
    c.create_indexes([IndexModel("a"), IndexModel("b")])
    db, asked = c.database, {"a": 1, "b": 1}

    def index_of(filter, **more):
        planner = planner_of(c, filter, **more)
        plan = planner["winningPlan"]
        return planner["indexFilterSet"], plan.get("inputStage", plan).get("indexName", plan["stage"])

    assert index_of(asked) == (False, "a_1")
    db.command({"planCacheSetFilter": c.name, "query": {"a": 0, "b": 0}, "indexes": [{"b": 1}]})
    assert index_of(asked) == (True, "b_1")
    assert index_of(asked, hint="a_1") == (True, "b_1")
    # A scan between two keys has no index then, not even one that the filter allows.
    for hint in ("a_1", "b_1", "none"):
        with pytest.raises(OperationFailure) as refused:
            list(c.find(asked).min([("b", 1)]).hint(hint))
        assert refused.value.code == 51173
    assert index_of({"a": 1}) == (False, "a_1")
    assert len(list(c.find(asked))) == 3
    db.command({"planCacheSetFilter": c.name, "query": {"a": 0}, "indexes": ["none", "none"]})
    assert index_of({"a": 1}) == (True, "COLLSCAN")
    listed = db.command("planCacheListFilters", c.name)["filters"]
    assert listed == [{"query": {"a": 0, "b": 0}, "sort": {}, "projection": {}, "indexes": [{"b": 1}]},
                      {"query": {"a": 0}, "sort": {}, "projection": {}, "indexes": ["none"]}]
    db.command({"planCacheClearFilters": c.name, "query": {"a": 5}})
    assert index_of({"a": 1}) == (False, "a_1")
    db.command("planCacheClearFilters", c.name)
    assert db.command("planCacheListFilters", c.name)["filters"] == []


@pytest.mark.parametrize("projection, equal", [
    # Any part of a document may be needed.
    ({"b": 0}, {}), ({"_id": 0}, {}), ({"r": {"$meta": "recordId"}}, {}), ({"b.c": 0, "_id": 0}, {}),
    ({"a": 1, "x": "$$ROOT"}, {}),
    # The needed fields, however they are shown.
    ({"x": "$a"}, {"a": 1}), ({"a": 1, "r": {"$meta": "recordId"}}, {"a": 1}), ({"a": 1, "x": {"$add": ["$b", 1]}}, {"b": 1, "a": 1}),
    ({"a": {"$literal": 1}}, {"_id": 1}),
    # A field that is read twice.
    ({"a": 1, "x": {"$add": ["$a", 1]}}, {"a": 1}),
    # Elements of arrays may be chosen by any part.
    ({"a.$": 1}, {}), ({"a": {"$elemMatch": {"b": 1}}}, {}), ({"a": {"$slice": 1}, "b": 1}, {}),
    ({"a.$": 1, "b": {"$slice": 1}}, {}), ({"b.c": {"$slice": 1}, "_id": 0, "a": 1}, {}),
])
def test_a_projection_is_its_needed_fields_in_a_shape(c, projection, equal):
    def shape(projection):
        return planner_of(c, {"a": 1, "b": 2}, projection=projection)["queryHash"]

    c.create_index("a")
    assert shape(projection) == shape(equal)
    assert len({shape({}), shape({"a": 1}), shape({"a": 1, "_id": 0}), shape({"a.b": 1})}) == 4


def test_a_read_by_id_has_a_shape(db):
    db.c.insert_one({"_id": 1, "a": [1]})

    def has_shape(**command):
        return "queryHash" in db.command({"explain": command, "verbosity": "queryPlanner"})["queryPlanner"]

    one = {"_id": 1}
    assert has_shape(find="c", filter=one)
    assert has_shape(find="c", filter=one, projection={"a": 1})
    assert has_shape(findAndModify="c", query=one, update={"$set": {"b": 1}}, fields={"a": 1})
    # The filter of a write by `_id` is not parsed.
    assert not has_shape(findAndModify="c", query=one, update={"$set": {"b": 1}})
    assert not has_shape(update="c", updates=[{"q": one, "u": {"$set": {"b": 1}}}])
    assert not has_shape(delete="c", deletes=[{"q": one, "limit": 1}])
    assert has_shape(delete="c", deletes=[{"q": one, "limit": 1, "hint": "_id_"}])
