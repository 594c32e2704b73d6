"""Stages that must be the first of their pipeline, on views: they follow the view's own stages."""
import pytest
from pymongo.errors import OperationFailure

TEXT = {"$match": {"$text": {"$search": "x"}}}
FIRST = [{"$indexStats": {}}, {"$planCacheStats": {}}, {"$listCatalog": {}}, {"$documents": [{"a": 1}]},
         {"$collStats": {"count": {}}}, TEXT]


@pytest.fixture
def on(db):
    """A collection `c`; a view `plain` without stages, `cut` with one, `above` without on that; measurements `m`."""
    db.c.insert_many([{"_id": n, "a": n, "s": "x"} for n in range(3)])
    db.c.create_index([("s", "text")])
    db.create_collection("plain", viewOn="c", pipeline=[])
    db.create_collection("cut", viewOn="plain", pipeline=[{"$match": {"a": 1}}])
    db.create_collection("above", viewOn="cut", pipeline=[])
    db.create_collection("m", timeseries={"timeField": "t"})
    return db


def refused(run):
    with pytest.raises(OperationFailure) as error:
        run()
    return error.value.code, error.value.details["errmsg"]


def misplaced(stage):
    name = next(iter(stage))
    if name == "$match":
        return 17313, "$match with $text is only allowed as the first pipeline stage"
    return 40602, f"{name} is only valid as the first stage in a pipeline"


@pytest.mark.parametrize("view", ["cut", "above", "m"])
@pytest.mark.parametrize("stage", FIRST[:3] + [TEXT], ids=lambda stage: next(iter(stage)))
def test_it_follows_the_stages_of_a_view(on, view, stage):
    if (view, *stage) == ("m", "$indexStats"):
        assert list(on[view].aggregate([stage])) == []
        return
    for pipeline in ([stage], [stage, {"$match": {"a": 1}}], [stage, {"$project": {"a": {"$divide": [1, 0]}}}]):
        assert refused(lambda: on[view].aggregate(pipeline)) == misplaced(stage)


@pytest.mark.parametrize("view", ["cut", "above", "m"])
@pytest.mark.parametrize("stage", FIRST, ids=lambda stage: next(iter(stage)))
def test_it_follows_them_inside_other_stages(on, view, stage):
    lookup = {"$lookup": {"from": view, "as": "r", "pipeline": [stage]}}
    union = {"$unionWith": {"coll": view, "pipeline": [stage]}}
    for pipeline in ([lookup], [union], [{"$lookup": {"from": "c", "as": "r", "pipeline": [union]}}]):
        assert refused(lambda: on.c.aggregate(pipeline)) == misplaced(stage)
    on.create_collection("joins", viewOn="c", pipeline=[lookup])
    assert refused(lambda: on.joins.find_one()) == misplaced(stage)
    assert refused(lambda: on.c.aggregate([{"$unionWith": "joins"}])) == misplaced(stage)


def test_a_view_without_stages_is_the_collection(on):
    assert {i["name"] for i in on.plain.aggregate([{"$indexStats": {}}])} == {"_id_", "s_text"}
    on.create_collection("twice", viewOn="plain", pipeline=[])
    assert {i["name"] for i in on.twice.aggregate([{"$indexStats": {}}])} == {"_id_", "s_text"}
    assert len(list(on.plain.aggregate([TEXT]))) == 3
    joined = list(on.c.aggregate([{"$limit": 1}, {"$lookup": {
        "from": "twice", "as": "r", "pipeline": [{"$collStats": {"count": {}}}, {"$project": {"ns": 1, "count": 1}}]}}]))
    assert joined[0]["r"] == [{"ns": f"{on.name}.c", "count": 3}]


def test_the_statistics_of_a_view_are_its_own(on):
    found = list(on.cut.aggregate([{"$collStats": {"latencyStats": {}}}]))
    assert [i["ns"] for i in found] == [f"{on.name}.cut"]
    code, message = refused(lambda: on.cut.aggregate([{"$collStats": {"count": {}}}]))
    assert (code, message.rpartition(":: ")[2]) == (166, f"Namespace {on.name}.cut is a view, not a collection")


def test_a_view_of_statistics(on):
    on.create_collection("of_indexes", viewOn="c", pipeline=[{"$indexStats": {}}])
    assert on.of_indexes.count_documents({}) == 2
    on.create_collection("of_cut", viewOn="cut", pipeline=[{"$indexStats": {}}])
    assert refused(lambda: on.of_cut.find_one()) == misplaced({"$indexStats": 1})
    on.create_collection("of_measurements", viewOn="m", pipeline=[{"$indexStats": {}}])
    assert on.of_measurements.find_one() is None


@pytest.mark.parametrize("view", ["plain", "cut", "above", "m"])
def test_a_find_has_no_text_index_on_a_view(on, view):
    text = TEXT["$match"]
    missing = (27, f"text index required for $text query (no such collection '{on.name}.{view}')")
    for query in (text, {"$and": [{"a": 1}, text]}):
        assert refused(lambda: on[view].find_one(query)) == missing
        assert refused(lambda: on.command("explain", {"find": view, "filter": query})) == missing
        assert refused(lambda: on[view].distinct("a", query)) == missing
    if view == "plain":
        assert on.command("count", view, query=text)["n"] == 3
    else:
        assert refused(lambda: on.command("count", view, query=text)) == misplaced(TEXT)


def test_a_join_by_fields_comes_before_a_search(on):
    def joined(of):
        return list(on[of].aggregate([{"$lookup": {"from": "c", "as": "r", "localField": "a", "foreignField": "a",
                                                   "pipeline": [TEXT]}}]))

    code, message = refused(lambda: joined("c"))
    assert (code, message.rpartition(":: ")[2]) == misplaced(TEXT)
    assert joined("nothing") == []


@pytest.mark.parametrize("stage", FIRST, ids=lambda stage: next(iter(stage)))
def test_a_join_by_fields_comes_before_a_stage_that_must_be_the_first(on, stage):
    join = {"$lookup": {"from": "c", "localField": "a", "foreignField": "a", "pipeline": [stage], "as": "found"}}
    if "$documents" in stage:
        # The condition follows these.
        assert [len(one["found"]) for one in on.c.aggregate([{"$sort": {"_id": 1}}, join])] == [0, 1, 0]
        return
    code, message = misplaced(stage)
    assert refused(lambda: list(on.c.aggregate([join]))) == (code, f"PlanExecutor error during aggregation :: caused by :: {message}")
    assert list(on.none.aggregate([join])) == [], "of no document"


@pytest.mark.parametrize("search", [
    {"$alwaysFalse": 1, **TEXT["$match"]}, {"$or": [{"$alwaysTrue": 1}, TEXT["$match"]]}, {"$and": [{"a": 1}, TEXT["$match"]]},
], ids=str)
def test_a_search_anywhere_in_a_condition_must_be_the_first(on, search):
    assert refused(lambda: list(on.c.aggregate([{"$match": {}}, {"$match": search}]))) == misplaced(TEXT)


@pytest.mark.parametrize("view", ["plain", "cut", "m"])
def test_a_projection_of_find_that_no_pipeline_has(on, view):
    message = "Unsupported in view pipeline: Invalid $project :: caused by :: Cannot use $elemMatch in this context"
    projection = {"a": {"$elemMatch": {"$gt": 1}}}
    assert refused(lambda: list(on[view].find({}, projection))) == (168, message)
    assert refused(lambda: on.command("explain", {"find": view, "projection": projection})) == (168, message)


def test_a_view_is_joined_twice(on):
    union = {"$unionWith": "cut"}
    assert len(list(on.c.aggregate([union, union]))) == 5
    misplaced_one = {"$unionWith": {"coll": "cut", "pipeline": [{"$indexStats": {}}]}}
    for pipeline in ([union, misplaced_one], [misplaced_one, union]):
        assert refused(lambda: on.c.aggregate(pipeline)) == misplaced({"$indexStats": 1})
