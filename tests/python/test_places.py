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


MANY = {"type": "MultiPoint", "coordinates": [[1, 1], [2, 2]]}


@pytest.mark.parametrize("version, document, reason", [
    # Version 1 holds single geometries, and takes no empty value in their place.
    (1, {"at": {"x": MANY}}, "given geometry can't be indexed in the old index format"),
    (1, {"at": {"x": {"type": "GeometryCollection", "geometries": [point(1, 1)]}}},
     "given geometry can't be indexed in the old index format"),
    (1, {"at": {"x": None}}, "geo element must be an array or object: x: null"),
    (1, {"at": {"x": []}}, "Point must only contain numeric elements"),
    (1, {"at": {"x": {}}}, "unknown GeoJSON type: {}"),
    (1, {"at": [{"x": point(1, 1)}, {}]}, None), (1, {}, None),
    # The others take an empty value that is the only one. The first in the order of values is the
    # error.
    (2, {"at": {"x": MANY}}, None), (3, {"at": {"x": None}}, None), (3, {"at": [{"x": None}, {"x": None}, {}]}, None),
    (3, {"at": [{"x": point(1, 1)}, {"x": None}]}, "geo element must be an array or object: x: null"),
    (2, {"at": [{"x": []}, {"x": point(1, 1)}, {"x": {}}]}, "unknown GeoJSON type: {}"),
    (3, {"at": [{"x": 5}, {"x": None}]}, "geo element must be an array or object: x: null"),
])
def test_places_that_a_version_does_not_index(db, version, document, reason):
    db.c.create_index([("at.x", "2dsphere")], **{"2dsphereIndexVersion": version})
    if reason is None:
        db.c.insert_one(document)
        assert db.command("validate", "c")["valid"]
        return
    with pytest.raises(pymongo.errors.WriteError) as error:
        db.c.insert_one(document)
    assert error.value.code == 16755
    assert error.value.details["errmsg"].endswith("  " + reason)


def test_a_hole_shares_one_vertex_with_the_ring_around_it(c):
    """The ring around it may be another hole."""
    rings = [
        [[0, 2], [2.5, 1], [0, 1], [0, 2]],
        [[0.5625, 1.225], [1.1875, 1.225], [0.5625, 1.475], [0.5625, 1.225]],
        [[0.5625, 1.225], [0.75, 1.325], [0.5625, 1.475], [0.65625, 1.4], [0.5625, 1.225]],
    ]
    with pytest.raises(pymongo.errors.OperationFailure, match="^Loop 2 shares more than one vertex with its parent loop 1"):
        list(c.find({"p": {"$geoIntersects": {"$geometry": {"type": "Polygon", "coordinates": rings}}}}))


def test_a_search_from_outside_the_plane(c):
    """Each command says what it was doing."""
    c.create_index([("p", "2d")])
    for doing, run in (
        ("Executor error during find command", lambda where: list(c.find(where))),
        ("Executor error during distinct command", lambda where: c.distinct("a", where)),
        ("Plan executor error during findAndModify", lambda where: c.find_one_and_delete(where)),
    ):
        with pytest.raises(pymongo.errors.OperationFailure) as failure:
            run({"p": {"$near": [200, 1]}})
        assert failure.value.code == 16433
        text = doing + " :: caused by :: point not in interval of [ -180, 180 ] :: caused by :: { 0: 200.0, 1: 1.0 }"
        assert failure.value.details["errmsg"] == text


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


def test_the_point_of_geo_near_is_an_expression(db):
    """Without fields of documents; inside a $lookup it may be one of its variables."""
    db.c.create_index([("at", "2dsphere")])
    db.c.insert_many([{"_id": 1, "at": [1, 1], "from": point(5, 5)}, {"_id": 2, "at": [6, 6], "from": [1, 1]}])

    def near(place):
        return {"$geoNear": {"near": place, "distanceField": "d", "spherical": True}}

    for place, variables in (([{"$add": [1, 5]}, 6], {}), ({"$literal": [6, 6]}, {}), ("$$p", {"p": [6, 6]})):
        assert [doc["_id"] for doc in db.c.aggregate([near(place)], let=variables)] == [2, 1]
    found = db.c.aggregate([
        {"$lookup": {"from": "c", "let": {"p": "$from"}, "pipeline": [near("$$p"), {"$project": {"d": 1}}], "as": "near"}},
        {"$sort": {"_id": 1}}])
    assert [[(other["_id"], round(other["d"], 3)) for other in doc["near"]] for doc in found] == [
        [(2, 157065.624), (1, 629218.605)], [(1, 0.0), (2, 0.123)]]
    for place, code in (
        ("$from", 5860402), (["$x", 1], 5860402), ([{"$rand": {}}, 1], 5860402), ("text", 5860401), ({"$add": [1]}, 5860401),
        ("$$unknown", 17276), ({"$ln": -1}, 28766), ([1, "$"], 16872),
    ):
        with pytest.raises(pymongo.errors.OperationFailure) as error:
            list(db.c.aggregate([near(place)]))
        assert error.value.code == code, place


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


def test_a_search_uses_an_index_whose_other_fields_are_bounded(db):
    db.c.insert_many([{"_id": 1, "a": 1, "at": [0, 0]}, {"_id": 2, "a": 2, "at": [0, 1]}])
    db.c.create_index([("a", 1), ("at", "2dsphere")])
    near = {"at": {"$nearSphere": [0, 0]}}
    with pytest.raises(pymongo.errors.OperationFailure) as error:
        list(db.c.find(near))
    assert error.value.code == 291
    assert ids(db.c.find({"a": 2, **near})) == [2]
    db.c.create_index([("at", "2dsphere")], name="alone")
    assert ids(db.c.find(near)) == [1, 2]
    assert "'alone'" in str(db.c.find(near).explain()["queryPlanner"]["winningPlan"])


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


def explained(collection, condition, **options):
    """The counts of a search: the totals, the stage that searches, and its inputs."""
    command = {"find": collection.name, "filter": {"at": condition}, **options}
    stats = collection.database.command({"explain": command, "verbosity": "executionStats"})["executionStats"]
    stage = stats["executionStages"]
    while "inputStage" in stage and not stage["stage"].startswith("GEO"):
        stage = stage["inputStage"]
    return stats, stage


def test_squares_cover_a_circle_as_in_mongod(world):
    """Recorded from mongod 6.0.27: the squares by the first digits of their hashes, and what was looked at."""
    db, _ = world
    stats, scan = explained(db.flat, {"$geoWithin": {"$center": [[10, 45], 2]}})
    squares = [
        ("C176C00000000000", "C176FFFFFFFFFFFF"),
        ("C177000000000000", "C177FFFFFFFFFFFF"),
        ("C17C000000000000", "C17CFFFFFFFFFFFF"),
        ("C17D000000000000", "C17DFFFFFFFFFFFF"),
        ("C17E000000000000", "C17EFFFFFFFFFFFF"),
        ("C17F000000000000", "C17FFFFFFFFFFFFF"),
        ("C1D4000000000000", "C1D4FFFFFFFFFFFF"),
        ("C1D5000000000000", "C1D5FFFFFFFFFFFF"),
        ("C422000000000000", "C422FFFFFFFFFFFF"),
        ("C423800000000000", "C423BFFFFFFFFFFF"),
        ("C428000000000000", "C428FFFFFFFFFFFF"),
        ("C429000000000000", "C429FFFFFFFFFFFF"),
        ("C42A000000000000", "C42AFFFFFFFFFFFF"),
        ("C42B000000000000", "C42BFFFFFFFFFFFF"),
        ("C480000000000000", "C480FFFFFFFFFFFF"),
        ("C481000000000000", "C481FFFFFFFFFFFF"),
    ]
    assert scan["indexBounds"]["at"] == [f"[BinData(128, {low}), BinData(128, {high})]" for low, high in squares]
    assert (stats["totalKeysExamined"], scan["seeks"]) == (4, 4)


def test_cells_cover_a_cap_as_in_mongod(world):
    """Recorded from mongod 6.0.27: each cell by its smallest ones, and those around it down to the second level."""
    db, _ = world
    stats, scan = explained(db.round, {"$geoWithin": {"$centerSphere": [[10, 45], 0.01]}})
    assert scan["indexBounds"]["at"] == [
        "[1351079888211148800, 1351079888211148800]",
        "[1355583487838519296, 1355583487838519296]",
        "[1356709387745361920, 1356709387745361920]",
        "[1356902901791850496, 1356902901791850496]",
        "[1356902901791850497, 1356911697884872703]",
        "[1356920493977894912, 1356920493977894912]",
        "[1356920493977894913, 1356955678349983743]",
        "[1356990862722072576, 1356990862722072576]",
        "[1357026047094161409, 1357061231466250239]",
        "[1357061231466250240, 1357061231466250240]",
        "[1357061231466250241, 1357096415838339071]",
        "[1369094286720630784, 1369094286720630784]",
        "[5116089176692883456, 5116089176692883456]",
        "[5134103575202365440, 5134103575202365440]",
        "[5147614374084476928, 5147614374084476928]",
        "[5150992073805004800, 5150992073805004800]",
        "[5151836498735136768, 5151836498735136768]",
        "[5151977236223492097, 5152012420595580927]",
        "[5152047604967669760, 5152047604967669760]",
        "[5152100381525803008, 5152100381525803008]",
        "[5152100381525803009, 5152109177618825215]",
        "[5152117973711847425, 5152258711200202751]",
        "[5152258711200202753, 5152399448688558079]",
        "[5152399448688558080, 5152399448688558080]",
        "[5152399448688558081, 5152434633060646911]",
        "[5152434633060646913, 5152469817432735743]",
        "[5152469817432735744, 5152469817432735744]",
        "[5152469817432735745, 5152478613525757951]",
        "[5152478613525757953, 5152480812549013503]",
        "[5152483011572269056, 5152483011572269056]",
        "[5152487409618780160, 5152487409618780160]",
        "[5152505001804824577, 5152540186176913407]",
        "[5152557778362957824, 5152557778362957824]",
        "[5152557778362957825, 5152566574455980031]",
        "[5152566574455980033, 5152575370549002239]",
        "[5152575370549002241, 5152610554921091071]",
        "[5152610554921091072, 5152610554921091072]",
        "[5152610554921091073, 5152645739293179903]",
        "[5153243873618690048, 5153243873618690048]",
        "[5154017929804644352, 5154017929804644352]",
        "[5154017929804644353, 5154053114176733183]",
        "[5154088298548822016, 5154088298548822016]",
        "[5154123482920910849, 5154158667292999679]",
        "[5154158667292999680, 5154158667292999680]",
        "[5154167463386021889, 5154176259479044095]",
        "[5154176259479044096, 5154176259479044096]",
        "[5156621573339217920, 5156621573339217920]",
        "[5170132372221329408, 5170132372221329408]",
    ]
    assert (stats["totalKeysExamined"], scan["seeks"]) == (4, 4)


@pytest.mark.parametrize(
    "name, near, limit, works, examined, rings",
    [
        (
            "round",
            {"$near": {"$geometry": {"type": "Point", "coordinates": [10, 45]}}},
            20,
            177,
            (133, 110),
            [
                (0.0, 1745064.5992172293, 16, 12),
                (1745064.5992172293, 5235193.797651688, 94, 8),
            ],
        ),
        (
            "round",
            {"$near": {"$geometry": {"type": "Point", "coordinates": [10, 45]}, "$minDistance": 1000, "$maxDistance": 2000000}},
            0,
            75,
            (35, 17),
            [
                (1000.0, 1746064.5992172293, 16, 12),
                (1746064.5992172293, 2000000.0, 1, 2),
            ],
        ),
        (
            "flat",
            {"$near": [10, 45]},
            20,
            161,
            (97, 79),
            [
                (0.0, 16.875, 16, 10),
                (16.875, 50.625, 63, 10),
            ],
        ),
        (
            "flat",
            {"$near": [10, 45], "$minDistance": 3, "$maxDistance": 20},
            0,
            81,
            (22, 17),
            [
                (2.999999999999986, 19.875, 12, 12),
                (19.875, 20.000000000000014, 0, 0),
            ],
        ),
        (
            "flat",
            {"$nearSphere": [10, 60], "$minDistance": 0.1, "$maxDistance": 0.3},
            0,
            289,
            (252, 207),
            [
                (637810.0, 657847.3921038611, 15, 0),
                (657847.3921038611, 697922.1763115833, 0, 1),
                (697922.1763115833, 778071.7447270275, 1, 0),
                (778071.7447270275, 938370.881557916, 3, 0),
                (938370.881557916, 1258969.155219693, 42, 2),
                (1258969.155219693, 1900165.702543247, 146, 5),
                (1900165.702543247, 1913430.0, 0, 1),
            ],
        ),
        (
            "flat",
            {"$nearSphere": [10, -88], "$maxDistance": 0.05},
            0,
            480,
            (447, 421),
            [
                (0.0, 20037.39210386106, 0, 0),
                (20037.39210386106, 60112.176311583185, 8, 0),
                (60112.176311583185, 140261.74472702743, 96, 1),
                (140261.74472702743, 300560.88155791594, 306, 0),
                (300560.88155791594, 318905.0, 11, 0),
            ],
        ),
        (
            "round",
            {"$near": {"$geometry": {"type": "Point", "coordinates": [10, 45]}, "$minDistance": 1500000, "$maxDistance": 2000000}},
            0,
            59,
            (23, 14),
            [(1500000.0, 2000000.0, 14, 6)],
        ),
    ],
)
def test_rings_are_as_wide_as_in_mongod(world, name, near, limit, works, examined, rings):
    """Recorded from mongod 6.0.27: how far each ring goes, how much lies there, and all that was done on the way."""
    db, _ = world
    stats, search = explained(db[name], near, limit=limit)
    shown = [(it["minDistance"], it["maxDistance"], it["nBuffered"], it["nReturned"]) for it in search["searchIntervals"]]
    assert shown == rings
    assert search["works"] == works
    assert (stats["totalKeysExamined"], stats["totalDocsExamined"]) == examined
    assert [it["maxInclusive"] for it in search["searchIntervals"][:-1]] == [False] * (len(rings) - 1)


@pytest.mark.parametrize("place, most, cells, examined", [
    ([10, 45], 1_800_000, [35, 26], [16, 1]),
    ([-60, 20], 3_600_000, [38, 38], [43, 2]),
    ([100, -30], 900_000, [56, 69], [2, 0]),
])
def test_a_ring_looks_at_none_of_a_cell_that_lies_beyond_it(world, place, most, cells, examined):
    """Recorded from mongod 6.0.27: of a cell that an earlier ring has looked at in part, only what is in the ring is left."""
    db, places = world
    stats, search = explained(db.round, {"$near": {"$geometry": point(*place), "$maxDistance": most}})
    reads = search["inputStages"]
    assert [len(read["inputStage"]["indexBounds"]["at"]) for read in reads] == cells
    assert [read["docsExamined"] for read in reads] == examined
    assert stats["nReturned"] == sum(angle(place, it) * EARTH <= most for it in places.values())


def test_a_limit_behind_geo_near_is_a_stage_of_its_own(world):
    """As in mongod the plan below is shown as if all documents were wanted."""
    db, _ = world
    stages = [{"$geoNear": {"near": [10, 45], "distanceField": "d", "maxDistance": 20}}, {"$skip": 1}, {"$limit": 3}]
    command = {"aggregate": "flat", "pipeline": [*stages, {"$project": {"d": 1}}], "cursor": {}}
    cursor, *rest = db.command({"explain": command, "verbosity": "executionStats"})["stages"]
    below = cursor.pop("$geoNearCursor")["executionStats"]
    assert (below["nReturned"], below["executionStages"]["stage"]) == (12, "GEO_NEAR_2D")
    assert cursor == {"nReturned": 4, "executionTimeMillisEstimate": 0}
    given = {"nReturned": 3, "executionTimeMillisEstimate": 0}
    assert rest == [{"$skip": 1, **given}, {"$limit": 3, **given}, {"$project": {"_id": True, "d": True}, **given}]


def test_a_distinct_with_a_search_shows_all_of_a_document_where_its_index_has_the_field(db):
    db.c.insert_one({"at": [1, 1], "a": 1})
    db.c.create_index([("at", "2d"), ("a", 1)])
    command = {"distinct": "c", "key": "a", "query": {"at": {"$near": [0, 0]}}}
    plan = db.command({"explain": command, "verbosity": "queryPlanner"})["queryPlanner"]["winningPlan"]
    assert plan["stage"] == "GEO_NEAR_2D"
    db.c.create_index("b")
    plan = db.command({"explain": {**command, "key": "b"}, "verbosity": "queryPlanner"})["queryPlanner"]["winningPlan"]
    assert plan["stage"] == "PROJECTION_SIMPLE"


def test_a_search_goes_on_from_batch_to_batch(world):
    db, places = world
    for name in ("round", "flat"):
        near = {"at": {"$near": [10, 45] if name == "flat" else {"$geometry": point(10, 45)}}}
        whole = ids(db[name].find(near))
        batches = db[name].find(near, batch_size=7)
        assert ids(batches) == whole
        assert sorted(whole) == sorted(places)


def test_a_place_as_large_as_a_continent_is_found(db):
    """Its cells are no larger than the second level, below which a search does not look."""
    db.c.create_index([("at", "2dsphere")])
    corners = [[-40, -40], [40, -40], [40, 40], [-40, 40], [-40, -40]]
    db.c.insert_one({"_id": 1, "at": {"type": "Polygon", "coordinates": [corners]}})
    for at in ([1, 1], [-30, 20], [35, -35]):
        assert ids(db.c.find({"at": {"$geoIntersects": {"$geometry": point(*at)}}})) == [1]
    db.c.delete_one({"_id": 1})
    assert db.command("validate", "c")["keysPerIndex"]["at_2dsphere"] == 0


def test_places_in_a_document_are_in_the_index_and_in_no_search(db):
    db.c.create_index([("p", "2d")])
    db.c.insert_many([{"_id": 1, "p": {"a": [10, 0]}}, {"_id": 2, "p": [[10, 0], []]}, {"_id": 3, "p": {"a": {}}},
                      {"_id": 4, "p": {"x": 1, "y": 1}}])
    assert ids(db.c.find({"p": {"$near": [1, 1]}})) == [4, 2]
    near = {"$geoNear": {"near": [1, 1], "distanceField": "d", "key": "p"}}
    assert ids(db.c.aggregate([near])) == [4, 2]
    assert db.command("validate", "c")["keysPerIndex"]["p_2d"] == 3


@pytest.mark.parametrize("key, filter, answer", [
    # A condition on the first field is enough.
    ({"p": 1, "q": 1, "g": "2dsphere"}, {"p": 1}, [2, 1]),
    ({"p": 1, "q": 1, "g": "2dsphere"}, {"p": 1, "q": 7}, [1]),
    ({"p": 1, "q": 1, "g": "2dsphere"}, {"$or": [{"p": 1}, {"p": 2}]}, [2, 1, 3]),
    # An index that a condition names, but cannot bound, is one.
    ({"p": 1, "g": "2dsphere"}, {"p": {"$geoWithin": {"$center": [[0, 0], 1]}}}, "No query solutions"),
    ({"p": "2dsphere", "g": "2dsphere"}, {"p": {"$exists": True}}, "No query solutions"),
    ({"p": 1, "q": 1, "g": "2dsphere"}, {"q": 7}, "unable to find index for .geoNear query"),
    ({"p": 1, "g": "2dsphere"}, {}, "unable to find index for .geoNear query"),
])
def test_an_index_for_a_search_has_a_condition_on_its_first_field(c, key, filter, answer):
    c.create_index(list(key.items()))
    if "2dsphere" != key["p"]:
        c.insert_many([{"_id": 1, "p": 1, "q": 7, "g": [1, 1]}, {"_id": 2, "p": 1, "g": [0, 0]}, {"_id": 3, "p": 2, "g": [2, 2]}])
    search = {**filter, "g": {"$nearSphere": [0, 0]}}
    if isinstance(answer, list):
        assert ids(c.find(search)) == answer
    else:
        with pytest.raises(pymongo.errors.OperationFailure, match=answer) as failure:
            c.find_one(search)
        assert failure.value.code == 291


CAP = {
    "of four meridians": [[0, 80], [90, 80], [180, 80], [-90, 80], [0, 80]],
    "of three": [[0, 80], [120, 80], [-120, 80], [0, 80]],
    "to the pole by two meridians": [[170, 85], [-170, 85], [180, 90], [170, 85]],
}


@pytest.mark.parametrize("name", CAP)
@pytest.mark.parametrize("is_indexed", [False, True])
def test_places_at_the_pole(c, name, is_indexed):
    """Recorded from mongod 6.0: the places of each polygon around or up to the pole, by number."""
    places = [[180, 89], [-180, 89], [0, 89], [90, 89.9], [-90, 85], [0, 90], [123, 90], [180, -89]]
    if is_indexed:
        c.create_index([("at", "2dsphere")])
    c.insert_many([{"_id": n, "at": place} for n, place in enumerate(places)])
    polygon = {"$geometry": {"type": "Polygon", "coordinates": [CAP[name]]}}
    around = list(range(7))
    expected = {"to the pole by two meridians": [0, 1, 5, 6]}.get(name, around)
    for operator in ("$geoWithin", "$geoIntersects"):
        assert ids(c.find({"at": {operator: polygon}}).sort("_id")) == expected, operator


def test_a_hint_lets_a_search_use_an_index_behind_another_field(db):
    db.c.create_index([("a", 1), ("p", "2dsphere")], name="behind")
    db.c.insert_many([{"_id": 1, "a": 1, "p": [0, 1]}, {"_id": 2, "p": [0, 2]}, {"_id": 3, "a": 1}])
    near = {"p": {"$nearSphere": [0, 1]}}
    with pytest.raises(pymongo.errors.OperationFailure) as failed:
        list(db.c.find(near))
    assert failed.value.code == 291
    assert sorted(one["_id"] for one in db.c.find(near).hint("behind")) == [1, 2]
    assert [one["_id"] for one in db.c.find({**near, "a": 1}).hint("behind")] == [1]


@pytest.mark.parametrize("more", [
    {"projection": {"a": {"$bad": 1}}}, {"projection": {"a": {"$meta": "textScore"}}}, {"sort": {"a": {"$meta": "x"}}},
])
def test_a_search_by_distance_refuses_the_natural_order_before_what_follows(db, more):
    db.c.insert_one({"p": [0, 1]})
    with pytest.raises(pymongo.errors.OperationFailure, match="geoNear expression not allowed with .natural hint"):
        db.command("find", "c", filter={"p": {"$geoNear": [0, 1]}}, hint={"$natural": 1}, **more)


@pytest.mark.parametrize("query, text", [
    ({"p": {"$elemMatch": {"$near": [0, 3]}}}, "geo .near must be top-level expr"),
    ({"p": {"$not": {"$near": [0, 3]}}}, "geo .near must be top-level expr"),
    ({"p": {"$elemMatch": {"$near": [0, 3]}}, "g": {"$elemMatch": {"$near": [0, 3]}}}, "Too many geoNear expressions"),
    ({"$nor": [{"p": {"$near": [0, 3]}}], "g": {"$near": [0, 3]}}, "Too many geoNear expressions"),
    ({"p": {"$near": [0, 3]}, "g": {"$near": [0, 3]}}, "Too many geoNear expressions"),
])
def test_searches_by_distance_are_counted_before_their_places_are_looked_at(db, query, text):
    db.c.insert_one({"p": [0, 1]})
    with pytest.raises(pymongo.errors.OperationFailure, match=text):
        list(db.c.find(query))


HINTED = {
    "find": lambda query: {"find": "c", "filter": query, "hint": "places"},
    "count": lambda query: {"count": "c", "query": query, "hint": "places"},
    "aggregate": lambda query: {"aggregate": "c", "pipeline": [{"$match": query}], "cursor": {}, "hint": "places"},
    "update": lambda query: {"update": "c", "updates": [
        {"q": query, "u": {"$set": {"x": 1}}, "multi": True, "hint": "places"}]},
    "findAndModify": lambda query: {
        "findAndModify": "c", "query": query, "update": {"$set": {"x": 2}}, "hint": "places"},
    "delete": lambda query: {"delete": "c", "deletes": [{"q": query, "limit": 0, "hint": "places"}]},
}


def count(reply):
    """Returns the number of documents that a command has found."""
    if "cursor" in reply:
        return len(reply["cursor"]["firstBatch"])
    return reply["lastErrorObject"]["n"] if "lastErrorObject" in reply else reply["n"]


@pytest.mark.parametrize("key", [
    {"p": "2d"}, {"p": "2d", "a": 1}, {"p": "2dsphere"}, {"p": "2dsphere", "a": 1},
], ids=str)
def test_a_hint_without_a_place_scans_the_whole_index(db, key):
    """A document without a place is not in it, and not found by it."""
    db.c.create_index(list(key.items()), name="places")
    db.c.insert_many([{"_id": 1, "p": [1, 2], "a": 1}, {"_id": 2, "a": 1}])
    for query, expected in (({}, 1), ({"a": 1}, 1), ({"_id": 2}, 0), ({"p": None}, 0), ({"p": {"$exists": True}}, 1)):
        for name, command in HINTED.items():
            assert count(db.command(command(query))) == expected, (query, name)
        assert db.c.count_documents({"_id": 2, "x": {"$exists": False}}) == 1
        db.c.replace_one({"_id": 1}, {"p": [1, 2], "a": 1}, upsert=True)
    plan = db.c.find({"a": 1}).hint("places").explain()["queryPlanner"]["winningPlan"]
    assert (plan["stage"], plan["inputStage"]["stage"]) == ("FETCH", "IXSCAN"), plan
    with pytest.raises(pymongo.errors.OperationFailure) as failed:
        db.command("distinct", "c", key="a", hint="places")
    assert failed.value.code == 40415


def test_a_hint_of_an_index_that_does_not_serve_the_search_is_rejected(db):
    """A `2dsphere` index does not serve a search on the plane."""
    db.c.create_index([("p", "2dsphere")], name="places")
    db.c.create_index([("p", "2d")], name="plane")
    db.c.insert_one({"_id": 1, "p": [1, 2]})
    for name, command in HINTED.items():
        if name != "aggregate":
            try:
                codes = [error["code"] for error in db.command(command({"p": {"$near": [0, 0]}}))["writeErrors"]]
            except pymongo.errors.OperationFailure as error:
                codes = [error.code]
            assert codes == [291], name
    assert list(db.c.find()) == [{"_id": 1, "p": [1, 2]}]


STRICT = {"type": "name", "properties": {"name": "urn:x-mongodb:crs:strictwinding:EPSG:4326"}}


@pytest.mark.parametrize("coordinates, message", [
    ([], "Only one simple loop is allowed in a big polygon: []"),
    (5, "Coordinates of polygon must be an array"),
    ([[[0, 0], [1, 0], [0, 0]]],
     "Loop must have at least 3 different vertices: [ [ [ 0, 0 ], [ 1, 0 ], [ 0, 0 ] ] ]"),
])
def test_mistakes_of_a_big_polygon(c, coordinates, message):
    polygon = {"type": "Polygon", "coordinates": coordinates, "crs": STRICT}
    with pytest.raises(pymongo.errors.OperationFailure) as error:
        c.find_one({"place": {"$geoWithin": {"$geometry": polygon}}})
    assert (error.value.code, error.value.details["errmsg"]) == (2, message)


@pytest.mark.parametrize("is_spherical", [True, False])
def test_a_search_by_distance_without_an_index_says_whether_it_is_on_the_globe(c, is_spherical):
    c.insert_one({"_id": 1})
    point = {"type": "Point", "coordinates": [1, 2]}
    near = {"near": point, "distanceField": "d", "key": "place", "spherical": is_spherical}
    with pytest.raises(pymongo.errors.OperationFailure, match=f"isNearSphere={int(is_spherical)}"):
        list(c.aggregate([{"$geoNear": near}]))
