"""Places: indexes on them, searches by distance in the right order and with mongod's numbers, and what writes do."""
import math
import random

import pymongo
import pytest

EARTH = 6378100


def point(lng, lat):
    return {"type": "Point", "coordinates": [lng, lat]}


def ids(cursor):
    return [doc["_id"] for doc in cursor]


def angle(a, b):
    """The angle between two places, by another formula than the server's."""
    (x1, y1), (x2, y2) = [[math.radians(number) for number in place] for place in (a, b)]
    h = math.sin((y2 - y1) / 2) ** 2 + math.cos(y1) * math.cos(y2) * math.sin((x2 - x1) / 2) ** 2
    return 2 * math.asin(math.sqrt(h))


@pytest.fixture
def world(db):
    """Five hundred places all over the globe, in both kinds of indexes."""
    rng = random.Random(7)
    places = {n: [rng.uniform(-180, 180), math.degrees(math.asin(rng.uniform(-1, 1)))] for n in range(500)}
    for name, kind in (("round", "2dsphere"), ("flat", "2d")):
        db[name].create_index([("at", kind)])
        db[name].insert_many([{"_id": n, "at": place, "odd": n % 2} for n, place in places.items()])
    return db, places


def test_an_index_is_shown_as_mongod_shows_it(db):
    db.c.create_index([("a", 1), ("at", "2dsphere")])
    db.c.create_index([("at", "2d")], bits=20, min=-10, max=10)
    shown = {index["name"]: index for index in db.c.list_indexes()}
    assert shown["a_1_at_2dsphere"]["2dsphereIndexVersion"] == 3
    flat = shown["at_2d"]
    assert (flat["bits"], flat["min"], flat["max"]) == (20, -10.0, 10.0)


@pytest.mark.parametrize("kind, place, code", [
    ("2dsphere", "x", 16755),
    ("2dsphere", point(200, 0), 16755),
    ("2dsphere", {"type": "Polygon", "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]}, 16755),
    ("2dsphere", [500, 500], 16755),
    ("2d", [200, 0], 13027),
    ("2d", [1], 13068),
    ("2d", [1, "x"], 13026),
    ("2d", point(1, 1), 16804),
])
def test_what_is_no_place_is_refused(db, kind, place, code):
    db.c.create_index([("at", kind)])
    with pytest.raises(pymongo.errors.WriteError) as error:
        db.c.insert_one({"at": place})
    assert error.value.code == code
    db.c.insert_one({"_id": 1})
    with pytest.raises(pymongo.errors.WriteError):
        db.c.update_one({"_id": 1}, {"$set": {"at": place}})
    assert db.command("validate", "c")["valid"]


def test_near_comes_in_order_of_distance(world):
    db, places = world
    center = [13.4, 52.5]
    wanted = sorted(places, key=lambda n: angle(center, places[n]))
    assert ids(db.round.find({"at": {"$near": {"$geometry": point(*center)}}})) == wanted
    assert ids(db.round.find({"at": {"$nearSphere": center}})) == wanted
    assert ids(db.flat.find({"at": {"$nearSphere": center}})) == wanted
    plane = sorted(places, key=lambda n: math.dist(center, places[n]))
    assert ids(db.flat.find({"at": {"$near": center}}).batch_size(7)) == plane
    assert ids(db.flat.find({"at": {"$near": center}, "odd": 1}).limit(5)) == [n for n in plane if n % 2][:5]


def test_distances_bound_a_search(world):
    db, places = world
    center, least, most = [-60.0, -20.0], 1_000_000, 4_000_000
    near = {"$geometry": point(*center), "$minDistance": least, "$maxDistance": most}
    wanted = {n for n, place in places.items() if least <= angle(center, place) * EARTH <= most}
    assert set(ids(db.round.find({"at": {"$near": near}}))) == wanted
    assert len(wanted) > 5


def test_within_is_the_same_with_and_without_an_index(world):
    db, places = world
    db.none.insert_many(db.round.find())
    rng = random.Random(3)
    for _ in range(40):
        x, y, r = rng.uniform(-150, 150), rng.uniform(-60, 60), rng.uniform(1, 25)
        ring = [[x - r, y - r / 2], [x + r, y - r], [x + r, y + r], [x - r, y + r], [x - r, y - r / 2]]
        for test in ({"$geometry": {"type": "Polygon", "coordinates": [ring]}}, {"$centerSphere": [[x, y], r / 60]}):
            query = {"at": {"$geoWithin": test}}
            found = {name: sorted(ids(db[name].find(query))) for name in ("none", "round", "flat")}
            assert found["none"] == found["round"] == found["flat"]
        for test in ({"$box": [[x, y], [x + r, y + r]]}, {"$center": [[x, y], r]}, {"$polygon": ring[:-1]}):
            query = {"at": {"$geoWithin": test}}
            assert sorted(ids(db.none.find(query))) == sorted(ids(db.flat.find(query)))


def test_geo_near_adds_distances(db):
    db.c.create_index([("at", "2dsphere")])
    db.c.insert_many([
        {"_id": 1, "at": point(1, 1), "a": 1},
        {"_id": 2, "at": [2, 0], "a": 2},
        {"_id": 3, "at": {"type": "LineString", "coordinates": [[50, 50], [50, 60]]}, "a": 1},
        {"_id": 4},
    ])
    stage = {"near": point(0, 0), "distanceField": "far.away", "includeLocs": "where", "query": {"a": 1}}
    found = list(db.c.aggregate([{"$geoNear": stage}]))
    assert [(doc["_id"], doc["far"]["away"]) for doc in found] == [(1, 157424.6238723255), (3, 7302015.594948042)]
    assert found[0]["where"] == point(1, 1)
    # The last digits are mongod's.
    stage = {"near": [0, 0], "distanceField": "d", "spherical": True, "distanceMultiplier": 2}
    assert [doc["d"] for doc in db.c.aggregate([{"$geoNear": stage}, {"$limit": 2}])] == [
        2 * 0.024682056391766433, 2 * 0.03490658503988659]


@pytest.mark.parametrize("pipeline, code", [
    ([{"$geoNear": {"distanceField": "d"}}], 5860400),
    ([{"$geoNear": {"near": [0, 0]}}], 16606),
    ([{"$geoNear": {"near": [0, 0], "distanceField": "d", "num": 1}}], 50857),
    ([{"$geoNear": {"near": [0, 0], "distanceField": "d"}}], 27),
    ([{"$match": {"at": {"$near": [0, 0]}}}], 5626500),
])
def test_wrong_searches_in_pipelines(db, pipeline, code):
    db.c.insert_one({"at": [1, 1]})
    with pytest.raises(pymongo.errors.OperationFailure) as error:
        list(db.c.aggregate(pipeline))
    assert error.value.code == code


def test_a_search_needs_an_index(db):
    db.c.insert_one({"at": [1, 1]})
    with pytest.raises(pymongo.errors.OperationFailure) as error:
        list(db.c.find({"at": {"$near": [0, 0]}}))
    assert error.value.code == 291


def test_a_place_that_moves_is_found_where_it_is(db):
    db.c.create_index([("at", "2dsphere")])
    shape = {"type": "Polygon", "coordinates": [[[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]]]}
    db.c.insert_one({"_id": 1, "at": shape})
    here, there = ({"at": {"$geoIntersects": {"$geometry": point(x, 5)}}} for x in (5, 105))
    assert db.c.count_documents(here) == 1
    db.c.update_one({"_id": 1}, {"$set": {"at": point(105, 5)}})
    assert (db.c.count_documents(here), db.c.count_documents(there)) == (0, 1)
    db.c.delete_one({"_id": 1})
    assert db.command("validate", "c")["keysPerIndex"]["at_2dsphere"] == 0
