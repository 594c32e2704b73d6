"""Time-series collections: measurements in buckets, and what clients see of them."""
from datetime import datetime, timedelta, timezone

import pytest
from bson import SON, ObjectId, encode
from bson.raw_bson import RawBSONDocument
from pymongo.errors import BulkWriteError, OperationFailure, WriteError

START = datetime(2024, 1, 1, 0, 0, 30)


def at(seconds):
    return START + timedelta(seconds=seconds)


@pytest.fixture
def m(db):
    return db.create_collection("m", timeseries={"timeField": "t", "metaField": "s"})


def buckets(m):
    return list(m.database["system.buckets." + m.name].find())


def test_it_is_listed_with_its_buckets(db, m):
    found = {i["name"]: i for i in db.list_collections()}
    assert set(found) == {"m", "system.buckets.m", "system.views"}
    shown = found["m"]
    assert shown["type"] == "timeseries" and shown["info"] == {"readOnly": False}
    assert shown["options"] == {"timeseries": {"timeField": "t", "metaField": "s", "granularity": "seconds",
                                               "bucketMaxSpanSeconds": 3600}}
    options = found["system.buckets.m"]["options"]
    assert options["clusteredIndex"] is True and "$jsonSchema" in options["validator"]
    m.drop()
    assert db.list_collection_names() == ["system.views"]


@pytest.mark.parametrize("options, code", [
    ({"timeField": "a.b"}, 72), ({"timeField": "t", "metaField": "t"}, 72), ({"timeField": "t", "metaField": "_id"}, 72),
    ({"metaField": "s"}, 40414), ({"timeField": "t", "granularity": "days"}, 2),
    ({"timeField": "t", "bucketMaxSpanSeconds": 60}, 5510500), ({"timeField": "t", "more": 1}, 40415),
])
def test_wrong_options_are_refused(db, options, code):
    with pytest.raises(OperationFailure) as error:
        db.create_collection("x", timeseries=options)
    assert error.value.code == code


def test_measurements_of_one_meta_value_and_hour_share_a_bucket(m):
    m.insert_many([{"_id": 0, "t": at(0), "s": {"b": 1, "a": 2}, "v": 1},
                   {"_id": 1, "t": at(60), "s": {"a": 2, "b": 1}, "v": 3.5, "w": "x"},
                   {"_id": 2, "t": at(30), "v": 9}])
    one, two = sorted(buckets(m), key=lambda b: "meta" not in b)
    assert one["control"] == {"version": 1, "min": {"_id": 0, "t": datetime(2024, 1, 1), "v": 1, "w": "x"},
                              "max": {"_id": 1, "t": at(60), "v": 3.5, "w": "x"}}
    assert one["meta"] == {"a": 2, "b": 1} and one["_id"].generation_time.replace(tzinfo=None) == datetime(2024, 1, 1)
    assert one["data"]["t"] == {"0": at(0), "1": at(60)} and one["data"]["w"] == {"1": "x"}
    assert two["data"]["v"] == {"0": 9} and two["_id"].generation_time.replace(tzinfo=None) == datetime(2024, 1, 1, 0, 1)
    assert list(m.find({}, sort=[("_id", 1)])) == [
        {"t": at(0), "s": {"a": 2, "b": 1}, "_id": 0, "v": 1},
        {"t": at(60), "s": {"a": 2, "b": 1}, "_id": 1, "v": 3.5, "w": "x"}, {"t": at(30), "_id": 2, "v": 9}]


def test_a_bucket_ends_by_count_time_type_and_size(m):
    def closed():
        stats = m.database.command("collStats", "m")["timeseries"]
        return {name[len("numBucketsClosedDueTo"):]: n for name, n in stats.items() if "ClosedDueTo" in name and n}
    m.insert_many([{"t": at(i / 1000), "s": "count"} for i in range(1001)])
    assert closed() == {"Count": 1}
    m.insert_one({"t": at(3569), "s": "time"})
    m.insert_one({"t": at(3569 + 3600), "s": "time"})
    m.insert_one({"t": at(0), "s": "time"})
    assert closed() == {"Count": 1, "TimeForward": 1, "TimeBackward": 1}
    m.insert_many([{"t": at(0), "s": "type", "v": v} for v in (1, 2.5, "x", [1], {"a": 1})])
    assert closed()["SchemaChange"] == 3
    m.insert_many([{"t": at(0), "s": "size", "v": "x" * 20_000} for _ in range(30)])
    assert closed()["Size"] == 4
    assert m.count_documents({}) == 1001 + 3 + 5 + 30


def test_a_measurement_needs_its_moment(db, m):
    for bad in ({}, {"t": 5}, {"t": [at(0)]}):
        with pytest.raises(WriteError) as error:
            m.insert_one(bad)
        assert error.value.code == 2
    with pytest.raises(BulkWriteError):
        m.insert_many([{"t": at(0)}, {"t": 1}, {"t": at(1)}], ordered=False)
    assert m.count_documents({}) == 2
    reply = db.command("insert", "m", documents=[{"t": at(0)}, {"t": 1}])
    assert reply["n"] == 2 and [e["index"] for e in reply["writeErrors"]] == [1]


@pytest.mark.parametrize("with_indexes", [False, True])
def test_queries_answer_as_on_plain_documents(db, m, with_indexes):
    documents = [{"_id": i, "t": at(i * 97), "s": {"d": i % 7, "k": [i % 3]}, "v": i * 1.5} for i in range(500)]
    m.insert_many(documents)
    db.plain.insert_many(documents)
    if with_indexes:
        m.create_index("s.d")
        m.create_index([("t", -1)])
    for query in ({}, {"s.d": 3}, {"s.k": 1}, {"s": {"d": 3, "k": [0]}}, {"t": {"$gte": at(9000)}}, {"t": {"$lt": at(970)}},
                  {"t": at(970)}, {"t": {"$gt": at(970), "$lte": at(9700)}, "s.d": {"$in": [1, 2]}}, {"v": {"$gt": 700}},
                  {"$or": [{"s.d": 1}, {"s.d": 2}]}, {"$or": [{"s.d": 1}, {"v": 3}]}, {"t": {"$ne": at(0)}},
                  {"$nor": [{"s.d": 1}, {"t": {"$lt": at(9000)}}]}, {"s.d": {"$exists": False}}, {"t": 5}, {"_id": 17}):
        key = lambda d: d["_id"]  # noqa: E731
        assert sorted(m.find(query), key=key) == sorted(db.plain.find(query), key=key), query
        assert m.count_documents(query) == db.plain.count_documents(query)
    assert sorted(m.distinct("s.d")) == list(range(7))
    group = [{"$match": {"t": {"$gte": at(9700)}}}, {"$group": {"_id": "$s.d", "n": {"$sum": "$v"}}}, {"$sort": {"_id": 1}}]
    assert list(m.aggregate(group)) == list(db.plain.aggregate(group))


def test_a_condition_on_time_or_meta_reads_few_buckets(m):
    m.insert_many([{"t": at(h * 3600), "s": h % 2} for h in range(200)])
    def examined(query):
        explained = m.database.command("explain", {"find": "m", "filter": query}, verbosity="executionStats")
        return explained["stages"][0]["$cursor"]["executionStats"]["totalDocsExamined"]
    assert len(buckets(m)) == 200
    assert examined({"t": {"$gte": at(190 * 3600)}}) <= 12
    # The bucket, and one on either side.
    assert examined({"t": at(100 * 3600)}) == 3
    m.create_index("s")
    assert examined({"s": 1}) == 100


def test_moments_before_1970_and_after_2038_are_found(m):
    old, new = datetime(1960, 1, 1), datetime(2200, 1, 1)
    m.insert_many([{"_id": 1, "t": old}, {"_id": 2, "t": at(0)}, {"_id": 3, "t": new}])
    ids = lambda query: sorted(d["_id"] for d in m.find(query))  # noqa: E731
    assert ids({"t": {"$lt": at(0)}}) == [1] and ids({"t": {"$gt": at(0)}}) == [3]
    assert ids({"t": {"$lte": at(0)}}) == [1, 2] and ids({"t": old}) == [1] and ids({}) == [1, 2, 3]


def test_indexes_are_named_as_the_client_named_them(db, m):
    m.create_index([("s.d", 1), ("t", -1)])
    m.create_index("v")
    m.create_index("s.x", partialFilterExpression={"s.y": {"$gt": 1}})
    shown = [(i["name"], dict(i["key"])) for i in m.list_indexes()]
    assert shown == [("s.d_1_t_-1", {"s.d": 1, "t": -1}), ("v_1", {"v": 1}), ("s.x_1", {"s.x": 1})]
    real = [dict(i["key"]) for i in db["system.buckets.m"].list_indexes()]
    assert real == [{"meta.d": 1, "control.max.t": -1, "control.min.t": -1}, {"control.min.v": 1, "control.max.v": 1},
                    {"meta.x": 1}]
    for keys, options in (("s", {"unique": True}), ("t", {"expireAfterSeconds": 5}), ([("s", "text")], {})):
        with pytest.raises(OperationFailure) as error:
            m.create_index(keys, **options)
        assert error.value.code == 72
    m.drop_index([("s.d", 1), ("t", -1)])
    m.drop_index("v_1")
    assert [i["name"] for i in m.list_indexes()] == ["s.x_1"]


def test_only_the_meta_value_can_be_changed_or_deleted_by(db, m):
    m.insert_many([{"t": at(i), "s": {"d": i % 3}, "v": i} for i in range(30)])
    assert m.update_many({"s.d": 1}, {"$set": {"s.e": 5}}).modified_count == 10
    assert m.count_documents({"s.e": 5}) == 10
    # Later measurements of the old meta value start a new bucket.
    m.insert_one({"t": at(1), "s": {"d": 1}, "v": 1})
    assert m.count_documents({"s": {"d": 1}}) == 1
    assert m.delete_many({"s.d": 1}).deleted_count == 11
    assert m.count_documents({}) == 20
    for statement in (dict(q={"v": 1}, u={"$set": {"s": 1}}, multi=True), dict(q={}, u={"$set": {"v": 1}}, multi=True),
                      dict(q={}, u={"$set": {"s": 1}}, multi=False), dict(q={}, u={"s": 1}, multi=True),
                      dict(q={}, u={"$set": {"s": 1}}, multi=True, upsert=True), dict(q={}, u=[{"$set": {"s": 1}}], multi=True),
                      dict(q={"$expr": True}, u={"$set": {"s": 1}}, multi=True)):
        assert db.command("update", "m", updates=[statement])["writeErrors"][0]["code"] == 72
    assert db.command("delete", "m", deletes=[{"q": {"v": 1}, "limit": 0}])["writeErrors"][0]["code"] == 72
    assert db.command("delete", "m", deletes=[{"q": {}, "limit": 1}])["writeErrors"][0]["code"] == 20
    with pytest.raises(OperationFailure) as error:
        m.find_one_and_delete({})
    assert error.value.code == 166
    assert m.delete_many({}).deleted_count == 20 and buckets(m) == []


def test_granularity_grows_and_does_not_shrink(db, m):
    m.insert_one({"t": at(0)})
    db.command("collMod", "m", timeseries={"granularity": "hours"}, expireAfterSeconds=100)
    shown = next(db.list_collections(filter={"name": "m"}))["options"]
    assert shown["expireAfterSeconds"] == 100 and shown["timeseries"]["bucketMaxSpanSeconds"] == 2592000
    for granularity, code in (("minutes", 72), ("days", 2)):
        with pytest.raises(OperationFailure) as error:
            db.command("collMod", "m", timeseries={"granularity": granularity})
        assert error.value.code == code
    m.insert_one({"t": at(86400 * 20)})
    assert len(buckets(m)) == 1 and m.count_documents({"t": {"$gt": at(86400)}}) == 1


def test_what_a_time_series_collection_does_not_do(client, db, m):
    m.insert_one({"t": at(0)})
    for command in (SON(convertToCapped="m", size=10_000), SON(dataSize=db.name + ".m")):
        with pytest.raises(OperationFailure) as error:
            db.command(command)
        assert error.value.code == 166
    with pytest.raises(OperationFailure) as error:
        m.rename("n")
    assert error.value.code == 166
    with pytest.raises(OperationFailure) as error:
        db.create_collection("m", timeseries={"timeField": "t"}, check_exists=False)
    assert error.value.code == 48
    with pytest.raises(OperationFailure) as error:
        db.drop_collection("system.views")
    assert error.value.code == 125
    assert db.command("validate", "m")["valid"] and db.command("validate", "m")["ns"] == db.name + ".system.buckets.m"


def test_bad_buckets_harm_no_one(db, m):
    raw = db["system.buckets.m"]
    with pytest.raises(WriteError) as error:
        raw.insert_one({"_id": ObjectId(), "control": 5, "data": {}})
    assert error.value.code == 121
    control = {"version": 1, "min": {"t": at(0)}, "max": {"t": at(0)}}
    raw.insert_one({"_id": ObjectId.from_datetime(at(0).replace(tzinfo=timezone.utc)), "control": control, "meta": 1,
                    "data": {"t": {"0": at(0), "7": at(1)}, "v": {"7": "late", "x": 1}, "w": {}}})
    assert list(m.find()) == [{"t": at(0), "s": 1}, {"t": at(1), "s": 1, "v": "late"}]
    m.insert_one({"t": at(0), "s": 1})
    assert m.count_documents({"s": 1}) == 3


@pytest.mark.parametrize("keys", [[("s", 1), ("v", 1)], [("v", -1), ("s.x", 1)], [("s", 1), ("t", 1)]])
@pytest.mark.parametrize("meta", [[1, 2], [], {"x": [1, 2]}, [{"x": 1}, {"x": 2}]])
def test_an_array_in_the_meta_value_may_be_indexed_beside_a_measurement(m, keys, meta):
    before, after = {"t": at(0), "s": meta, "v": 1}, {"t": at(1), "s": meta}
    m.insert_one(before)
    m.create_index(keys, name="i")
    m.insert_one(after)
    for query in ({}, {"s": meta}, {"s": meta, "v": 1}):
        found = sum(doc["s"] == meta for doc in m.find(query, hint="i"))
        assert found == (1 if "v" in query else 2), query
    if "v" in dict(keys):
        with pytest.raises(WriteError) as error:
            m.insert_one({"t": at(2), "s": meta, "v": [1]})
        assert error.value.code == 5930501


@pytest.mark.parametrize(
    "key, options, code",
    [
        ({"s": 1}, {"partialFilterExpression": {"s": 1}, "collation": {"locale": "en"}}, 85),
        ({"s": 1}, {"partialFilterExpression": {}, "collation": {"locale": "simple"}}, 85),
        ({"v": "2dsphere"}, {"collation": {"locale": "en"}}, 67),
        ({"s": 1, "v": "2dsphere"}, {"collation": {"locale": "en"}}, 67),
        ({"v": "2dsphere"}, {"collation": {"locale": "simple"}}, None),
        ({"s": "2dsphere"}, {"collation": {"locale": "en"}}, None),
    ],
)
def test_options_of_an_index_on_measurements_go_together(db, m, key, options, code):
    index = {"key": key, "name": "i", **options}
    if code is None:
        db.command("createIndexes", "m", indexes=[index])
        return
    with pytest.raises(OperationFailure) as error:
        db.command("createIndexes", "m", indexes=[index])
    assert error.value.code == code


@pytest.mark.parametrize("options", [{}, {"2dsphereIndexVersion": 3}])
def test_the_version_of_an_index_of_places_is_listed_if_it_was_given(db, m, options):
    db.command("createIndexes", "m", indexes=[{"key": {"v": "2dsphere"}, "name": "i", **options}])
    listed = [index for index in m.list_indexes() if index["name"] == "i"]
    assert listed == [{"v": 2, "key": {"v": "2dsphere"}, "name": "i", **options}]


@pytest.mark.parametrize(
    "condition, reason",
    [
        ({"v": None}, "can't handle comparison to null: { v: { $eq: null } }"),
        ({"v": {"$gt": [1]}}, "operand can't be an object or array: { v: { $gt: [ 1 ] } }"),
        ({"v": {"$in": [{"x": 1}]}}, "operand can't be an object or array: { v: { $eq: { x: 1 } } }"),
        ({"t": 5}, "can't handle comparison of time field to a non-Date type: { t: { $eq: 5 } }"),
        ({"t": {"$in": [at(0), 5]}}, "can't handle comparison of time field to a non-Date type: { t: { $eq: 5 } }"),
        ({"v": {"$in": [1, None]}}, "can't handle {$eq: null} predicate (inside $in predicate): { v: { $in: [ null, 1 ] } }"),
        ({"$or": [{"s": 1}, {"v": {"$type": 2}}]}, "can't handle this predicate: { v: { $type: [ 2 ] } }"),
        ({"s": {"$type": 2}, "v": {"$ne": 1}}, "can't handle this predicate: { v: { $not: { $eq: 1 } } }"),
    ],
)
def test_a_partial_index_has_a_condition_that_buckets_can_meet(m, condition, reason):
    with pytest.raises(OperationFailure) as error:
        m.create_index("s", partialFilterExpression=condition)
    assert error.value.code == 5916301
    prefix = "Error translating non-metadata time-series predicate to operate on buckets: "
    assert error.value.details["errmsg"] == prefix + reason


def test_an_index_on_a_measurement_takes_no_array(db, m):
    db.command("createIndexes", "m", indexes=[{"key": {"v": 1}, "name": "v", "unique": False}])
    [index] = [index for index in m.list_indexes() if index["name"] == "v"]
    assert index["unique"] is False
    count = m.count_documents({})
    with pytest.raises(WriteError) as error:
        m.insert_one({"t": at(0), "s": 1, "v": [1]})
    assert error.value.code == 5930501
    m.insert_one({"t": at(0), "s": 1, "v": 1})
    assert m.count_documents({}) == count + 1
    m.drop_index("v")
    m.insert_one({"t": at(0), "s": 1, "v": [1]})
    with pytest.raises(OperationFailure) as error:
        m.create_index("v")
    assert error.value.code == 5930501


@pytest.mark.parametrize("ordered, values, counted, refused, kept", [
    # In order it is as if they came one by one.
    (True, [None, [1], 3], 1, [1], [None]),
    (True, [[1], 3], 0, [0], []),
    # Otherwise those fail together that share a bucket's document, and those of later documents.
    # A number and an array share none.
    (False, [None, [1], 3], 0, [0, 1, 2], []),
    (False, [2, [1], 3], 1, [1, 2], [2]),
    (False, [3, 4, [1]], 2, [2], [3, 4]),
])
@pytest.mark.parametrize("has_bucket", [False, True])
def test_an_array_in_an_index_fails_measurements_of_its_bucket(db, m, ordered, values, counted, refused, kept, has_bucket):
    m.create_index("v")
    if has_bucket:
        m.insert_one({"t": at(0), "s": 1})
    docs = [{"t": at(n), "s": 1, **({} if value is None else {"v": value})} for n, value in enumerate(values)]
    reply = db.command("insert", "m", documents=docs, ordered=ordered)
    assert reply["n"] == counted
    assert [(error["index"], error["code"]) for error in reply["writeErrors"]] == [(at, 5930501) for at in refused]
    assert sorted(doc.get("v", 0) for doc in m.find()) == [0] * has_bucket + [value or 0 for value in kept]
    db.command("insert", "m", documents=[{"t": at(9), "s": 1, "v": 9}])
    assert db.command("validate", "m")["valid"]


def test_buckets_are_written_in_the_order_of_their_first_measurements(db, m):
    m.create_index("v")
    docs = [{"t": at(0), "s": s, "v": v} for s, v in [("a", 1), ("b", [2]), ("c", 3), ("a", 4), ("b", 5)]]
    reply = db.command("insert", "m", documents=docs, ordered=False)
    assert [error["index"] for error in reply["writeErrors"]] == [1, 2, 4]
    assert sorted(doc["v"] for doc in m.find()) == [1, 4]


def test_a_field_that_a_measurement_has_twice_harms_no_other(db, m):
    twice = b"\x10v\0\1\0\0\0" * 2
    first = RawBSONDocument(encode_document({"t": at(0), "s": 5}, twice))
    db.command("insert", "m", documents=[first, {"t": at(1), "s": 5, "v": 7}, {"t": at(2), "s": 5, "v": 8}])
    m.insert_one({"t": at(3), "s": 5, "v": 9})
    assert [d["v"] for d in m.find({"s": 5}).sort("t", 1)] == [1, 7, 8, 9]


def test_a_join_with_another_collation_is_refused(db, m):
    db.c.insert_one({"_id": 1})
    for stage in ({"$lookup": {"from": "m", "localField": "a", "foreignField": "a", "as": "x"}}, {"$unionWith": "m"},
                  {"$merge": "m"}, {"$merge": {"into": "m"}}, {"$out": "m"}):
        with pytest.raises(OperationFailure) as error:
            db.command("aggregate", "c", pipeline=[stage], cursor={}, collation={"locale": "en"})
        assert error.value.code == 167, stage


def encode_document(document, more):
    """The bytes of a document with these elements after its own."""
    fields = encode(document)[4:-1] + more
    return (len(fields) + 5).to_bytes(4, "little") + fields + b"\0"


@pytest.mark.parametrize("query, operator", [
    ({"s": {"$elemMatch": {"$expr": "$d"}}}, "$expr"), ({"s": {"$elemMatch": {"$where": "1"}}}, "$where"),
    ({"s": {"$not": {"$elemMatch": {"$or": [{"$expr": 1}]}}}}, "$expr"), ({"s": {"$in": [{"$expr": 1}]}}, "$expr"),
    ({"s": {"x": {"$where": 1}}}, "$where"), ({"$or": [{"s": 1}, {"$expr": {"$bad": 1}}]}, "$expr"),
])
def test_a_write_names_no_operator_that_computes(db, m, query, operator):
    error, = db.command("delete", "m", deletes=[{"q": query, "limit": 0}])["writeErrors"]
    text = f"Cannot use {operator} when performing an update or delete on a time-series collection"
    assert (error["code"], error["errmsg"]) == (72, text)


POINT = {"type": "Point", "coordinates": [1, 1]}


def near(**options):
    return {"$geoNear": {"near": POINT, "distanceField": "d", "key": "g", **options}}


@pytest.fixture
def places(m):
    m.insert_many([{"_id": n, "t": at(n), "s": {"k": n, "g": [n, n]}, "g": [n, 1]} for n in range(4)]
                  + [{"_id": 4, "t": at(4), "s": {"k": 0}, "g": "nowhere"}, {"_id": 5, "t": at(5), "s": {"k": 1}}])
    return m


@pytest.mark.parametrize("options, found", [
    ({}, [1, 2, 0, 3]), ({"maxDistance": 120_000}, [1, 2, 0]), ({"minDistance": 1, "maxDistance": 120_000}, [2, 0]),
    ({"near": [1, 1], "maxDistance": 1}, [1, 0, 2]), ({"near": [1, 1], "spherical": True}, [1, 2, 0, 3]),
    ({"key": "other"}, []), ({"key": "t"}, []), ({"distanceField": "s.d"}, [1, 2, 0, 3]), ({"query": {}}, [1, 2, 0, 3]),
    ({"key": "s.g"}, [1, 2, 0, 3]), ({"key": "s.g", "maxDistance": 160_000}, [1, 2, 0]),
], ids=str)
def test_geo_near_of_measurements(places, options, found):
    places.create_index([("s.g", "2dsphere")])
    assert [i["_id"] for i in places.aggregate([near(**options)])] == found
    assert [i["_id"] for i in places.aggregate([near(**options), {"$limit": 2}])] == found[:2]
    db = places.database
    db.create_collection("plain", viewOn="m", pipeline=[])
    assert [i["_id"] for i in db.plain.aggregate([near(**options)])] == found
    db.one.insert_one({})
    joined = db.one.aggregate([{"$lookup": {"from": "m", "as": "r", "pipeline": [near(**options)]}}])
    assert [i["_id"] for i in joined.next()["r"]] == found


def test_geo_near_adds_the_distance_to_a_measurement(places):
    found = places.aggregate([near(maxDistance=120_000, distanceMultiplier=0.001), {"$project": {"d": 1}}])
    assert [(i["_id"], round(i["d"], 2)) for i in found] == [(1, 0), (2, 111.3), (0, 111.3)]


def test_what_geo_near_adds_to_a_bucket(places):
    """A search by the meta value is one of the buckets, so that only fields within the meta value are seen."""
    places.create_index([("s.g", "2dsphere")])
    assert all("d" not in i for i in places.aggregate([near(key="s.g")]))
    found = list(places.aggregate([near(key="s.g", distanceField="meta.d", includeLocs="meta.at", maxDistance=160_000)]))
    assert [(round(i["s"]["d"]), i["s"]["at"]) for i in found] == [(0, [1, 1]), (157401, [2, 2]), (157425, [0, 0])]


@pytest.mark.parametrize("stages, code", [
    ([{"$geoNear": {"near": POINT, "distanceField": "d"}}], 5892921), ([near(query={"a": 1})], 1938439),
    ([near(key="s.g", query={"a": 1})], 1938439), ([near(includeLocs="at")], 5860208), ([near(key="s.g")], 291),
    ([near(near=[500, 1], spherical=True)], 6330900), ([near(near="$x")], 40603),
    ([{"$match": {"g": [1, 1]}}, near()], 40603), ([{"$sort": {"_id": 1}}, near()], 40603), ([near(), near()], 40603),
    ([{"$match": {"s.k": 1}}, near(key="s.g")], 40603), ([{"$match": {"$or": [{"s.k": 1}, {"g": 1}]}}, near()], 40603),
], ids=str)
def test_geo_near_of_measurements_is_refused(places, stages, code):
    with pytest.raises(OperationFailure) as error:
        places.aggregate(stages)
    assert error.value.code == code


def test_geo_near_of_measurements_after_conditions_on_the_meta_value(places):
    conditions = [{"$match": {"s.k": {"$gt": 0}}}, {"$match": {"$or": [{"s.k": 3}, {"s.k": 2}]}}]
    assert [i["_id"] for i in places.aggregate([*conditions, near()])] == [2, 3]
    places.database.create_collection("cut", viewOn="m", pipeline=conditions)
    assert [i["_id"] for i in places.database.cut.aggregate([near()])] == [2, 3]


@pytest.mark.parametrize("key, found", [("g", [2, 3, 1, 0]), ("s.g", [2, 3, 1, 0])])
def test_geo_near_of_measurements_from_a_variable(places, key, found):
    places.create_index([("s.g", "2dsphere")])
    one = places.database.one
    one.insert_one({"from": {"type": "Point", "coordinates": [2.4, 1.9]}})
    search = near(near="$$from", key=key)
    joined = one.aggregate([{"$lookup": {"from": "m", "as": "r", "let": {"from": "$from"}, "pipeline": [search]}}]).next()
    assert [i["_id"] for i in joined["r"]] == found


def test_geo_near_of_measurements_is_explained(places):
    shown = places.database.command("explain", {"aggregate": "m", "pipeline": [near()], "cursor": {}}, verbosity="executionStats")
    names = [next(iter(stage)) for stage in shown["stages"]]
    assert names == ["$cursor", "$_internalUnpackBucket", "$_internalComputeGeoNearDistance", "$sort"]


@pytest.mark.parametrize("scale", [1, 10, 1024])
def test_the_average_size_of_buckets_is_not_scaled(db, scale):
    db.create_collection("c", timeseries={"timeField": "t"})
    db.c.insert_one({"t": datetime(2020, 1, 1)})
    bytes_in_all = db.command("collStats", "c")["size"]
    stats = db.command("collStats", "c", scale=scale)
    assert stats["size"] == bytes_in_all // scale
    assert stats["timeseries"]["avgBucketSize"] == bytes_in_all
