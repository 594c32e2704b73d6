"""The maximum length of a path, stage by stage: 200 in general, one less where an expression reads it or a stage
reads and writes the field of a document."""
import pytest
from pymongo.errors import OperationFailure


def path(count):
    return ".".join(["a"] * count)


LOOKUP = {"from": "c", "localField": "n", "foreignField": "n"}
WALK = {"from": "c", "startWith": "$n", "connectFromField": "n", "connectToField": "n"}
SUM = {"x": {"$sum": 1}}
RANGE = {"step": 1, "bounds": [1, 2]}

# Returns the stage with a path of this number of parts, and the code of its error.
REFUSED = {
    "addFields": (201, lambda p: {"$addFields": {p: 1}}, 15),
    "project": (201, lambda p: {"$project": {p: 1}}, 15),
    "sort": (201, lambda p: {"$sort": {p: 1}}, 15),
    "match": (181, lambda p: {"$match": {p: 1}}, 5729100),
    "group": (200, lambda p: {"$group": {"_id": "$" + p}}, 15),
    "reference": (200, lambda p: {"$project": {"x": "$" + p}}, 15),
    "lookup": (200, lambda p: {"$lookup": {**LOOKUP, "as": p}}, 5984700),
    "graphLookup": (200, lambda p: {"$graphLookup": {**WALK, "as": p}}, 5984700),
    "depthField": (200, lambda p: {"$graphLookup": {**WALK, "as": "x", "depthField": p}}, 5984700),
    "unwind": (200, lambda p: {"$unwind": "$" + p}, 5984700),
    "includeArrayIndex": (200, lambda p: {"$unwind": {"path": "$n", "includeArrayIndex": p}}, 5984700),
    "densify": (200, lambda p: {"$densify": {"field": p, "range": RANGE}}, 5984700),
    "partitionByFields": (200, lambda p: {"$densify": {"field": "n", "partitionByFields": [p], "range": RANGE}}, 5984700),
    "distanceField": (200, lambda p: {"$geoNear": {
        "near": {"type": "Point", "coordinates": [0, 0]}, "distanceField": p}}, 5984700),
    "includeLocs": (200, lambda p: {"$geoNear": {
        "near": {"type": "Point", "coordinates": [0, 0]}, "distanceField": "d", "includeLocs": p}}, 5984700),
    "sortBy": (200, lambda p: {"$setWindowFields": {"sortBy": {p: 1}, "output": SUM}}, 15),
    "fill": (200, lambda p: {"$fill": {"sortBy": {"n": 1}, "output": {p: {"method": "locf"}}}}, 15),
    "fill sortBy": (200, lambda p: {"$fill": {"sortBy": {p: 1}, "output": {"x": {"method": "locf"}}}}, 15),
}
# The longest path of each that is taken, as far as one less is not simply the one above.
TAKEN = {
    "sortBy of two fields": (200, lambda p: {"$setWindowFields": {"sortBy": {p: 1, "b": 1}, "output": SUM}}),
    "sortBy of chance": (200, lambda p: {"$setWindowFields": {"sortBy": {p: {"$meta": "randVal"}}, "output": SUM}}),
    "localField": (200, lambda p: {"$lookup": {**LOOKUP, "localField": p, "as": "x"}}),
    "an index of nothing": (200, lambda p: {"$unwind": {"path": "$missing", "includeArrayIndex": p}}),
    "the depth of nothing": (200, lambda p: {"$graphLookup": {**WALK, "startWith": 5, "as": "x", "depthField": p}}),
    "unset": (200, lambda p: {"$unset": p}),
}
# A result nested deeper than a document may be is another error.
SKIPPED = {"lookup", "graphLookup", "depthField"}


@pytest.fixture
def one(c):
    c.insert_one({"_id": 1, "n": 1, "place": [0, 0]})
    c.create_index([("place", "2dsphere")])
    return c


@pytest.mark.parametrize("name", REFUSED)
def test_a_path_that_is_too_long(one, name):
    count, stage, code = REFUSED[name]
    with pytest.raises(OperationFailure) as failed:
        list(one.aggregate([stage(path(count))]))
    assert failed.value.code == code, failed.value
    if name not in SKIPPED:
        list(one.aggregate([stage(path(count - 1)), {"$limit": 1}, {"$count": "n"}]))


@pytest.mark.parametrize("name", TAKEN)
def test_a_path_that_is_long_enough(one, name):
    count, stage = TAKEN[name]
    list(one.aggregate([stage(path(count)), {"$count": "n"}]))


def test_a_long_path_that_meets_no_document(one):
    for stage in ({"$unwind": "$" + path(200)}, {"$lookup": {**LOOKUP, "as": path(200)}}):
        assert list(one.aggregate([{"$match": {"n": 2}}, stage])) == []
    pipeline = [{"$lookup": {**LOOKUP, "localField": "none", "foreignField": "n", "as": path(200)}},
                {"$unwind": "$" + path(200)}]
    assert list(one.aggregate(pipeline)) == []


@pytest.mark.parametrize("stage, longest", [("$addFields", 199), ("$project", 200)])
@pytest.mark.parametrize("depth", [1, 2])
def test_nested_documents_form_one_path(one, stage, longest, depth):
    """Also where the documents of a specification continue a path with dots."""
    def pipeline(parts):
        value = "$n"
        for _ in range(depth):
            value = {"a": value}
        return [{stage: {path(parts - depth): value}}, {"$count": "n"}]

    list(one.aggregate(pipeline(longest)))
    with pytest.raises(OperationFailure) as failed:
        list(one.aggregate(pipeline(longest + 1)))
    assert failed.value.code == 15, failed.value


def test_an_upsert_is_not_deeper_than_a_document_may_be(c):
    def upsert(depth):
        value = 1
        for _ in range(depth):
            value = {"b": value}
        return c.update_one({path(175): value}, {"$set": {"z": 1}}, upsert=True)

    assert upsert(5).upserted_id is not None
    with pytest.raises(OperationFailure) as failed:
        upsert(6)
    assert failed.value.code == 15
    assert c.count_documents({}) == 1


def test_conflicting_paths_come_before_nested_ones_that_are_too_long(one):
    long = "x" + 199 * ".a"
    with pytest.raises(OperationFailure) as failed:
        list(one.aggregate([{"$addFields": {"x": 1, long: {"a": {"b": 1}}}}]))
    assert failed.value.code == 40176
    with pytest.raises(OperationFailure) as failed:
        list(one.aggregate([{"$addFields": {"y": 1, long: {"a": {"b": 1}}}}]))
    assert failed.value.code == 15
