"""`{ $meta: … }` in projections, stages and filters. Recorded from mongod 6.0."""
import pytest
from pymongo.errors import OperationFailure


@pytest.fixture
def c(db):
    db.one.insert_one({"_id": 1})
    db.c.create_index([("s", "text")])
    db.c.create_index([("p", "2d")])
    db.c.insert_many([{"_id": number, "a": number % 2, "s": "foo bar", "p": [number, 1]} for number in (1, 2)])
    return db.c


def answer(db, command):
    try:
        return db.command(command)["cursor"]["firstBatch"]
    except OperationFailure as error:
        return f"{error.code} {error.details['errmsg']}"


def find(**fields):
    return {"find": "c", **fields}


def aggregate(*stages, on="c"):
    return {"aggregate": on, "pipeline": list(stages), "cursor": {}}


def meta(name, within=None):
    return {"_id": 1, "m": [{"$meta": name}] if within is None else within({"$meta": name})}


UNSORTED = "2 cannot use sortKey $meta projection without a sort"
NO_SCORE = "40218 query requires text score metadata, but it is not available"
NO_TIME = "40218 query requires timeseries bucket min time metadata, but it is not available"
LATE = "PlanExecutor error during aggregation :: caused by :: "
SORT = {"$sort": {"a": 1, "_id": 1}}
KEYS = [{"_id": 2, "m": [[0, 2]]}, {"_id": 1, "m": [[1, 1]]}]


@pytest.mark.parametrize("command, expected", [
    # Values that the query sorts by, in expressions too; an empty array without a sort, which is a
    # mistake in its projection.
    (find(projection=meta("sortKey"), sort={"a": 1, "_id": 1}), KEYS),
    (find(projection={"_id": 0, "m": [{"$meta": "sortKey"}]}, sort={"a": 1}), [{"m": [[0]]}, {"m": [[1]]}]),
    (find(projection={"_id": 1, "m": {"$meta": "sortKey"}}, sort={"a": 1}), [{"_id": 2, "m": [0]}, {"_id": 1, "m": [1]}]),
    (find(projection=meta("sortKey")), UNSORTED),
    (find(projection=meta("sortKey", lambda it: {"$ifNull": [it, 1]})), UNSORTED),
    (aggregate(SORT, {"$project": meta("sortKey")}), KEYS),
    (aggregate(SORT, {"$unwind": "$a"}, {"$project": meta("sortKey")}), KEYS),
    (aggregate({"$addFields": {"a": 1}}, SORT, {"$project": meta("sortKey")}), [{"_id": 1, "m": [[]]}, {"_id": 2, "m": [[]]}]),
    (aggregate({"$group": {"_id": "$_id"}}, SORT, {"$project": {"m": {"$meta": "sortKey"}}}), [{"_id": 1}, {"_id": 2}]),
    (aggregate(SORT, {"$project": {"_id": 0, "m": {"$meta": "sortKey"}}}), [{"m": [0, 2]}, {"m": [1, 1]}]),
    (aggregate({"$project": meta("sortKey")}), UNSORTED),
    (aggregate({"$match": {"a": 1}}, {"$project": meta("sortKey")}), UNSORTED),
    (aggregate({"$skip": 1}, {"$project": meta("sortKey")}), [{"_id": 2, "m": [[]]}]),
    (aggregate({"$skip": 1}, {"$project": {"m": {"$meta": "sortKey"}}}), [{"_id": 2, "m": []}]),
    # An index's entry has them in the fields that are asked for, and no others.
    (find(projection={"_id": {"$meta": "sortKey"}, "r": {"$meta": "recordId"}}, sort={"_id": 1}, returnKey=True, limit=1),
     [{"_id": [1]}]),
    (find(projection={"k": {"$meta": "sortKey"}}, sort={"_id": 1}, returnKey=True, limit=1), [{"_id": 1, "k": [1]}]),
    (find(projection={"k": {"$meta": "sortKey"}}, sort={"a": 1, "_id": 1}, returnKey=True), [{"k": [0, 2]}, {"k": [1, 1]}]),
    (find(filter={"_id": {"$gt": 0}}, projection={"k": {"$meta": "sortKey"}}, sort={"a": 1}, returnKey=True),
     [{"_id": 2, "k": [0]}, {"_id": 1, "k": [1]}]),
    # The record id: only of what the query gives.
    (find(projection=meta("recordId")), [{"_id": 1, "m": [1]}, {"_id": 2, "m": [2]}]),
    # Its own name and those of other metadata may be given to it, although they begin with a
    # dollar sign.
    (find(projection={"a": 1, "$recordId": {"$meta": "recordId"}}), [{"_id": 1, "a": 1, "$recordId": 1}, {"_id": 2, "a": 0, "$recordId": 2}]),
    (aggregate({"$project": {"$sortKey": {"$meta": "recordId"}}}), [{"_id": 1, "$sortKey": 1}, {"_id": 2, "$sortKey": 2}]),
    (aggregate({"$project": {"b.$recordId": "$a", "c": "$b.$searchScore", "$searchSortValues": "$_id"}}),
     [{"_id": 1, "b": {"$recordId": 1}, "$searchSortValues": 1}, {"_id": 2, "b": {"$recordId": 0}, "$searchSortValues": 2}]),
    (aggregate({"$project": meta("recordId", lambda it: {"$add": [it, 1]})}), [{"_id": 1, "m": 2}, {"_id": 2, "m": 3}]),
    (aggregate({"$skip": 1}, {"$project": meta("recordId")}), [{"_id": 2, "m": [None]}]),
    (aggregate({"$addFields": {"z": 1}}, {"$project": meta("recordId")}), [{"_id": 1, "m": [None]}, {"_id": 2, "m": [None]}]),
    (aggregate(SORT, {"$unwind": "$a"}, {"$project": meta("recordId")}), [{"_id": 2, "m": [None]}, {"_id": 1, "m": [None]}]),
    # A place in the plane is its hash; an entry of a text index is shown without a search only.
    (find(filter={"p": {"$geoWithin": {"$center": [[1, 1], 0.1]}}}, projection={"_id": 0, "m": {"$meta": "indexKey"}, "p": 1}),
     [{"p": [1, 1], "m": {"p": bytes.fromhex("c000cf3c00cf3000")}}]),
    (find(filter={"$text": {"$search": "foo"}, "a": 1}, projection={"a": 1, "m": {"$meta": "indexKey"}}), [{"_id": 1, "a": 1}]),
    (find(hint="s_text", filter={"a": 1}, projection={"_id": 0, "a": 1, "m": {"$meta": "indexKey"}}),
     [{"a": 1, "m": {"_fts": "bar", "_ftsx": 0.75}}]),
    # A lookup by an index of which only the record is needed has its entry all the same.
    (find(filter={"_id": {"$in": [1]}}, projection={"_id": 0, "m": {"$meta": "indexKey"}, "a": 1}), [{"a": 1, "m": {"_id": 1}}]),
    (find(filter={"$or": [{"_id": 1}, {"_id": 7}]}, projection=meta("indexKey")), [{"_id": 1, "m": [{"_id": 1}]}]),
    (find(filter={"_id": 1}, projection=meta("indexKey")), [{"_id": 1, "m": [None]}]),
    # No filter has metadata: in a find it is missing, in a stage it is a mistake.
    (find(filter={"$expr": {"$gt": [{"$meta": "textScore"}, 0]}}), []),
    (aggregate({"$match": {"$text": {"$search": "foo"}}}, {"$match": {"$expr": {"$gt": [{"$meta": "textScore"}, 0]}}}), NO_SCORE),
    (aggregate({"$match": {"$expr": {"$gt": [{"$meta": "timeseriesBucketMinTime"}, 0]}}}), NO_TIME),
    # A pipeline of another fails when it starts.
    (aggregate({"$lookup": {"from": "c", "pipeline": [{"$project": meta("textScore")}], "as": "j"}}, on="one"),
     NO_SCORE.replace(" ", " " + LATE, 1)),
    (aggregate({"$lookup": {"from": "c", "pipeline": [{"$project": meta("textScore")}], "as": "j"}}, on="none"), []),
    (aggregate({"$unionWith": {"coll": "c", "pipeline": [{"$project": meta("textScore")}]}}, on="one"),
     NO_SCORE.replace(" ", " " + LATE, 1)),
    (aggregate({"$lookup": {"from": "c", "pipeline": [{"$match": {"$expr": {"$meta": "textScore"}}}], "as": "j"}}, on="none"),
     NO_SCORE),
    (aggregate({"$facet": {"x": [{"$project": meta("textScore")}]}}, on="one"), NO_SCORE),
    # All other mistakes come first, in the projection of a find and in a pipeline; but a filter.
    (find(projection={"a": {"$meta": "textScore"}, "b": {"$meta": 5}}), "17307 $meta only supports string arguments"),
    (find(projection={"a": {"$add": {"$meta": "textScore"}}, "b": 1, "c": 0}),
     "31254 Cannot do exclusion on field c in inclusion projection"),
    (find(projection={"a": {"$meta": "textScore"}}, sort={"a": {"$meta": "x"}}), NO_SCORE),
    (aggregate({"$project": {"a": {"$meta": "geoNearPoint"}}}, {"$project": {"a": {"$bad": 1}}}),
     "31325 Invalid $project :: caused by :: Unknown expression $bad"),
    (aggregate({"$group": {"_id": {"$meta": "textScore"}, "x": {"$bad": 1}}}), "15952 unknown group operator '$bad'"),
    (aggregate({"$project": {"a": {"$meta": "textScore"}}}, {"$project": {"a": {"$divide": [1, 0]}}}),
     "2 Failed to optimize pipeline :: caused by :: can't $divide by zero"),
    (aggregate({"$facet": {"x": [{"$project": {"a": {"$meta": "textScore"}}}, {"$project": {"a": {"$bad": 1}}}]}}),
     "31325 Invalid $project :: caused by :: Unknown expression $bad"),
    (aggregate({"$lookup": {"from": "c", "pipeline": [{"$project": {"a": {"$meta": "textScore"}, "b": {"$bad": 1}}}], "as": "j"}}),
     "31325 Invalid $project :: caused by :: Unknown expression $bad"),
    (aggregate({"$match": {"$expr": {"$meta": "textScore"}}}, {"$project": {"a": {"$bad": 1}}}), NO_SCORE),
    (aggregate({"$lookup": {"from": "c", "pipeline": [{"$project": meta("sortKey")}], "as": "j"}}, on="one"),
     UNSORTED.replace(" ", " " + LATE, 1)),
])
def test_metadata(db, c, command, expected):
    found = answer(db, command)
    if isinstance(found, list):
        for one in found:
            if isinstance(one.get("m"), dict):
                one["m"] = {name: bytes(key) if name == "p" else key for name, key in one["m"].items()}
    assert found == expected


KEY = {"$meta": "sortKey"}


@pytest.mark.parametrize("command, expected", [
    # An index that has the projection's other fields covers it, and shows its fields in its order.
    (find(projection={"b": 1, "a": 1, "_id": 0, "m": KEY}, sort={"a": -1, "b": 1}),
     [{"a": 2, "b": 1, "m": [2, 1]}, {"a": 1, "b": None, "m": [1, None]}]),
    (find(projection={"a": 1, "_id": 0, "m": KEY}, sort={"b": 1}, hint="i"), [{"a": 1, "m": [None]}, {"a": 2, "m": [1]}]),
    (find(projection={"b": 1, "_id": 0, "m": {"$first": KEY}}, sort={"a": -1}), [{"b": 1, "m": 2}, {"b": None, "m": 1}]),
    (find(projection={"b": 1, "_id": 0, "m": {"x": KEY}}, sort={"a": -1}), [{"b": 1, "m": {"x": [2]}}, {"m": {"x": [1]}}]),
    # It is added to an index's entry at any depth.
    (find(projection={"m": {"x": KEY, "y": 1}}, sort={"a": 1}, returnKey=True),
     [{"a": 1, "b": None, "m": {"x": [1]}}, {"a": 2, "b": 1, "m": {"x": [2]}}]),
    (find(projection={"a.x": KEY}, sort={"a": 1}, returnKey=True, limit=1), [{"a": {"x": [1]}, "b": None}]),
    # A scan from group to group does not have it.
    (aggregate({"$sort": {"a": -1, "b": 1}}, {"$group": {"_id": "$a", "m": {"$first": KEY}}}, {"$sort": {"_id": 1}}),
     [{"_id": 1, "m": [1, None]}, {"_id": 2, "m": [2, 1]}]),
])
def test_a_sort_key_over_an_index(db, command, expected):
    db.c.create_index([("a", -1), ("b", 1)], name="i")
    db.c.insert_many([{"_id": 1, "a": 1}, {"_id": 2, "b": 1, "a": 2}])
    assert repr(answer(db, command)) == repr(expected)


def test_a_search_by_distance_is_planned_without_a_projection(db, c):
    db.c.drop_indexes()
    search = {"$geoNear": {"near": [0, 0], "distanceField": "d", "key": "p"}}
    assert "\nProj: {}\n" in answer(db, aggregate(search, {"$project": {"a": 1}}))


@pytest.mark.parametrize("command", [
    find(showRecordId=True),
    find(showRecordId=True, filter={"_id": "abcdef"}),
    find(showRecordId=True, filter={"a": 1}),
    find(projection={"r": {"$meta": "recordId"}}),
    {"aggregate": "c", "pipeline": [{"$match": {"a": 1}}, {"$project": {"r": {"$meta": "recordId"}}}], "cursor": {}},
])
def test_a_record_of_a_clustered_collection_has_its_key_as_its_id(db, command):
    # The key of a text of six bytes is as long as a number of a record, and is no number.
    db.command("create", "c", clusteredIndex={"key": {"_id": 1}, "unique": True})
    db.c.create_index("a")
    db.c.insert_one({"_id": "abcdef", "a": 1})
    [found] = answer(db, command)
    shown = found.get("$recordId", found.get("r"))
    assert shown == b"\x3cabcdef\x00"


NEAR = {"p": {"$near": [1, 1]}}


@pytest.mark.parametrize("asked, name, shown", [
    # The metadata is that of the document as it was found.
    ({"query": {"a": 1}}, "indexKey", {"a": 1}), ({"query": {}, "sort": {"a": -1}}, "indexKey", {"a": 1}),
    ({"query": {"a": 1}, "sort": {"s": 1}}, "indexKey", {"a": 1}),
    ({"query": {"_id": 1}}, "indexKey", None), ({"query": {}}, "indexKey", None),
    ({"query": NEAR}, "geoNearDistance", 0), ({"query": NEAR}, "geoNearPoint", [1, 1]),
    ({"query": {**NEAR, "a": 1}, "sort": {"a": 1}}, "geoNearDistance", 0),
    ({"query": {"a": 1}}, "geoNearDistance", None), ({"query": {"a": 1}}, "textScore", None),
    ({"query": {"$text": {"$search": "foo"}, "a": 1}}, "textScore", 0.75),
])
def test_find_and_modify_shows_metadata(c, asked, name, shown):
    c.create_index("a")
    before = c.find_one({"_id": 1})
    expected = {"_id": 1} if shown is None else {"_id": 1, "m": shown}
    change = {"$set": {"p": [5, 5], "s": "foo foo foo bar", "a": 7}}
    for action in ({"update": change}, {"update": change, "new": True}, {"update": change, "upsert": True}, {"remove": True}):
        fields = {"_id": 1, "m": {"$meta": name}}
        assert c.database.command({"findAndModify": "c", **asked, "fields": fields, **action})["value"] == expected
        c.replace_one({"_id": 1}, before, upsert=True)


def test_an_inserted_document_has_no_metadata(c):
    for name in ("indexKey", "textScore", "geoNearDistance"):
        found = c.database.command({
            "findAndModify": "c", "query": {"$text": {"$search": "nothing"}}, "fields": {"_id": 0, "m": {"$meta": name}, "a": 1},
            "update": {"$set": {"a": 1}}, "upsert": True, "new": True})
        assert found["value"] == {"a": 1}


def test_the_score_of_a_vector_search_is_missing(c):
    db, shown = c.database, {"m": {"$meta": "vectorSearchScore"}}
    assert answer(db, find(projection={"a": 1, **shown}, filter={"_id": 1})) == [{"_id": 1, "a": 1}]
    assert answer(db, aggregate({"$match": {"_id": 1}}, {"$project": shown})) == [{"_id": 1}]
    assert answer(db, aggregate({"$group": {"_id": shown["m"]}})) == [{"_id": None}]
    assert answer(db, find(sort=shown)) == '31138 Illegal $meta sort: $meta: "vectorSearchScore"'
    assert answer(db, aggregate({"$match": {"$expr": shown["m"]}})) == \
        "40218 query requires $vectorSearch distance metadata, but it is not available"


@pytest.mark.parametrize("name, text", [("geoNearDistance", "$geoNear distance"), ("geoNearPoint", "$geoNear point")])
def test_a_missing_distance_is_reported_before_the_sort(c, name, text):
    for sort in ({"a": 7}, {"m": {"$meta": "recordId"}}, {"m": {"$meta": name}}):
        assert answer(c.database, find(projection={"m": {"$meta": name}}, sort=sort)) == \
            f"40218 query requires {text} metadata, but it is not available"
