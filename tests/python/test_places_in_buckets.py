"""`2dsphere` indexes on a field of measurements: a bucket has an entry for each point in it."""
import random
from datetime import datetime, timedelta

import pymongo
import pytest
import server

START = datetime(2024, 1, 1)
SQUARE = [[[0, 0], [5, 0], [5, 5], [0, 5], [0, 0]]]
CIRCLES = [{"$centerSphere": [[x, y], radius]} for x, y, radius in [(0, 0, 0.05), (170, 10, 0.3), (-40, 60, 1), (0, 0, 3)]]
CONDITIONS = [{"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": SQUARE}}},
              {"$geoIntersects": {"$geometry": {"type": "Polygon", "coordinates": SQUARE}}},
              {"$geoWithin": {"$box": [[-5, -5], [40, 5]]}}, *({"$geoWithin": circle} for circle in CIRCLES)]


def place(chance):
    x, y = chance.choice([(chance.uniform(-180, 180), chance.uniform(-90, 90)), (chance.uniform(-6, 6), chance.uniform(-6, 6))])
    return {"type": "Point", "coordinates": [x, y]}


def measurements(chance):
    for number in range(400):
        measured = {"_id": number, "t": START + timedelta(seconds=number * 90), "m": number % 4, "x": number % 7}
        if chance.random() < 0.9:
            measured["g"] = place(chance)
        measured["n"] = chance.choice([{"g": place(chance)}, [{"g": place(chance)}, {"g": place(chance)}], {"g": None}, 1, {}])
        yield measured


@pytest.fixture
def plain(db):
    plain = db.create_collection("plain", timeseries={"timeField": "t", "metaField": "m"})
    plain.insert_many(list(measurements(random.Random(7))))
    return plain


@pytest.fixture
def indexed(db, plain):
    indexed = db.create_collection("indexed", timeseries={"timeField": "t", "metaField": "m"})
    # Before some of the measurements, and after others.
    indexed.insert_many(list(plain.find({"_id": {"$lt": 200}})))
    indexed.create_index([("g", "2dsphere")], name="g")
    indexed.create_index([("n.g", "2dsphere"), ("m", 1), ("t", -1), ("x", 1)], name="n")
    indexed.insert_many(list(plain.find({"_id": {"$gte": 200}})))
    return indexed


def ids(cursor):
    return sorted(doc["_id"] for doc in cursor)


def stages(plan):
    return [plan["stage"], *(stages(plan["inputStage"]) if "inputStage" in plan else [])]


def winning_plan(collection, pipeline):
    explain = collection.database.command("explain", {"aggregate": collection.name, "pipeline": pipeline, "cursor": {}})
    return explain["stages"][0]["$cursor"]["queryPlanner"]["winningPlan"]


@pytest.mark.parametrize("path", ["g", "n.g"])
@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_the_index_finds_what_a_scan_does(plain, indexed, path, condition):
    for other in ({}, {"m": 1}, {"x": {"$lt": 3}}, {"t": {"$gt": START + timedelta(hours=4)}}):
        asked = {path: condition, **other}
        found = ids(plain.find(asked))
        assert ids(indexed.find(asked)) == found
        assert ids(indexed.find(asked, hint="g" if path == "g" else "n")) == found
        assert indexed.count_documents(asked) == len(found)
    assert ids(indexed.find({"$nor": [{path: condition}]})) == ids(plain.find({"$nor": [{path: condition}]}))


@pytest.mark.parametrize("path", ["g", "n.g"])
@pytest.mark.parametrize("options", [{}, {"maxDistance": 400_000}, {"maxDistance": 3e6, "minDistance": 1e5}, {"maxDistance": 2.1e7}],
                         ids=str)
def test_geo_near_finds_what_a_scan_does(plain, indexed, path, options):
    near = {"$geoNear": {"near": {"type": "Point", "coordinates": [2, 3]}, "distanceField": "d", "key": path, **options}}
    found = [(doc["_id"], doc["d"]) for doc in plain.aggregate([near])]
    assert [(doc["_id"], doc["d"]) for doc in indexed.aggregate([near])] == found


def test_it_is_used(indexed):
    within = CONDITIONS[0]
    assert stages(winning_plan(indexed, [{"$match": {"g": within}}])) == ["FETCH", "IXSCAN"]
    plan = winning_plan(indexed, [{"$match": {"g": within}}])
    assert plan["filter"] == {"$_internalBucketGeoWithin": {"withinRegion": within["$geoWithin"], "field": "g"}}
    assert plan["inputStage"]["keyPattern"] == {"data.g": "2dsphere_bucket"}
    assert stages(winning_plan(indexed, [{"$match": {"n.g": within}}])) == ["FETCH", "IXSCAN"]
    near = {"near": {"type": "Point", "coordinates": [2, 3]}, "distanceField": "d", "key": "g", "maxDistance": 1000}
    assert stages(winning_plan(indexed, [{"$geoNear": near}])) == ["FETCH", "IXSCAN"]
    # In the plane there are places that have no cell of the globe.
    assert stages(winning_plan(indexed, [{"$match": {"g": CONDITIONS[2]}}])) == ["COLLSCAN"]


def test_it_is_listed_as_on_measurements(db, indexed):
    assert [dict(index["key"]) for index in indexed.list_indexes()] == [
        {"g": "2dsphere"}, {"n.g": "2dsphere", "m": 1, "t": -1, "x": 1}]
    of_buckets = {index["name"]: index for index in db["system.buckets.indexed"].list_indexes()}
    assert dict(of_buckets["n"]["key"]) == {"data.n.g": "2dsphere_bucket", "meta": 1, "control.max.t": -1, "control.min.t": -1,
                                           "control.min.x": 1, "control.max.x": 1}
    assert of_buckets["g"]["2dsphereIndexVersion"] == 3
    assert db.command("validate", "indexed", full=True)["valid"]


def test_it_follows_deletes_of_buckets(db, plain, indexed):
    asked = {"g": {"$geoWithin": CIRCLES[3]}}
    for each in (plain, indexed):
        each.delete_many({"m": 2})
    assert ids(indexed.find(asked, hint="g")) == ids(plain.find(asked))
    db.command("dropIndexes", "indexed", index={"g": "2dsphere"})
    assert ids(indexed.find(asked)) == ids(plain.find(asked))
    assert db.command("validate", "indexed", full=True)["valid"]


@pytest.mark.skipif(server.keeps_no_folder(), reason="it starts without data")
def test_it_is_there_after_a_restart():
    with server.Server() as own:
        near = {"g": {"$geoWithin": {"$centerSphere": [[1, 2], 0.001]}}}
        with pymongo.MongoClient(own.uri) as client:
            m = client.d.create_collection("m", timeseries={"timeField": "t", "metaField": "m"})
            m.create_index([("g", "2dsphere")], name="g")
            m.insert_many([{"t": START, "m": x, "g": [x, 2]} for x in range(3)])
        own.terminate()
        own.start()
        with pymongo.MongoClient(own.uri) as client:
            client.d.m.insert_one({"t": START, "m": 1, "g": [1, 2]})
            assert client.d.m.count_documents(near, hint="g") == 2
            assert client.d.command("validate", "m", full=True)["valid"]


@pytest.mark.parametrize("path, value, code", [
    ("g", "x", 183934), ("g", 5, 183934), ("g", {"type": "Point", "coordinates": [1000, 1]}, 183934), ("g", [[1, 2], [3, 4]], 183934),
    ("g", {"type": "Polygon", "coordinates": SQUARE}, 183493), ("g", {"type": "MultiPoint", "coordinates": [[1, 1]]}, 183493),
    ("n", {"g": "x"}, 183934), ("n", [{"g": "x"}], 183934),
], ids=str)
def test_a_measurement_with_no_point_is_refused(db, indexed, path, value, code):
    count = indexed.count_documents({})
    docs = [{"t": START, "m": 9}, {"t": START, "m": 9, path: value}, {"t": START, "m": 9}]
    reply = db.command("insert", "indexed", documents=docs)
    assert (reply["n"], [(error["index"], error["code"]) for error in reply["writeErrors"]]) == (1, [(1, code)])
    # Without an order those fail that share the bucket's document.
    reply = db.command("insert", "indexed", documents=docs, ordered=False)
    assert (reply["n"], [(error["index"], error["code"]) for error in reply["writeErrors"]]) == (0, [(at, code) for at in range(3)])
    assert indexed.count_documents({}) == count + 1


@pytest.mark.parametrize("value", [None, [], {}, [1, 2], [1, 2, 3], {"type": "Point", "coordinates": [1, 2]}], ids=str)
def test_a_measurement_with_a_point_or_none_is_taken(indexed, value):
    indexed.insert_one({"t": START, "m": 9, "g": value, "n": {"g": value}})
    near = {"g": {"$geoWithin": {"$centerSphere": [[1, 2], 0.001]}}, "m": 9}
    assert indexed.count_documents(near, hint="g") == bool(value)


@pytest.mark.parametrize("key, options, code", [
    ({"g": "2dsphere"}, {"2dsphereIndexVersion": 2}, 67), ({"g": "2dsphere", "m.g": "2dsphere"}, {}, 67), ({"g": "2d"}, {}, 67),
    ({"t": "2dsphere"}, {"unique": True}, 67), ({"g": "2dsphere_bucket"}, {}, 67), ({"g": "2dsphere"}, {"unique": True}, 72),
    ({"g": "2dsphere"}, {"sparse": True}, 72), ({"x": "2dsphere"}, {}, 183934),
], ids=str)
def test_indexes_that_are_refused(db, plain, key, options, code):
    reply = db.command("createIndexes", "plain", indexes=[{"key": key, "name": "i", **options}], check=False)
    assert reply["code"] == code


@pytest.mark.parametrize("key, documents, refused", [
    ({"m.g": "2dsphere"}, [{"m": {"g": [1, 1]}}, {"m": {"g": "x"}}, {"m": 1}], 16755),
    ({"m.x": 1, "m.y": 1}, [{"m": 1}, {"m": {"x": [1, 2], "y": [1, 2]}}, {"m": 1}], 171),
    ({"m.x": "hashed"}, [{"m": 1}, {"m": {"x": [1]}}, {"m": 2}], 16766),
], ids=str)
def test_what_an_index_on_the_meta_value_refuses_is_an_error_of_the_measurement(db, key, documents, refused):
    db.create_collection("meta", timeseries={"timeField": "t", "metaField": "m"})
    db.command("createIndexes", "meta", indexes=[{"key": key, "name": "i"}])
    reply = db.command("insert", "meta", documents=[{"t": START, **one} for one in documents])
    assert (reply["n"], [(error["index"], error["code"]) for error in reply["writeErrors"]]) == (1, [(1, refused)])
