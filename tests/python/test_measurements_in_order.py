"""Sorts of measurements by time, and groups of them by the meta value: buckets are read in order, and unpacked no further than needed."""
import random
from datetime import datetime, timedelta

import pytest

START = datetime(2024, 1, 1)
SORTED = "$_internalBoundedSort"


def measurement(chance, n, spread):
    fields = {"v": chance.choice([chance.randrange(-9, 9), chance.uniform(-9, 9), True, START, {"x": n % 7, "y": n % 3}, [n % 5, n % 3], "s%d" % (n % 4)]),
              "w": chance.choice([chance.randrange(99), chance.random()]), "m": {"g": chance.choice("ab"), "h": chance.randrange(4)}}
    kept = {name: it for name, it in fields.items() if chance.random() < 0.9}
    time = START + timedelta(milliseconds=chance.randrange(spread) * 500)
    return {"_id": n, "t": time, **kept}


def filled(db, seed):
    """The same documents in a time-series collection and in an ordinary one, and the indexes that `seed` chooses."""
    chance = random.Random(seed)
    spread = chance.choice([1_000, 30_000, 1_000_000])
    docs = [measurement(chance, n, spread) for n in range(1_200)]
    measurements = db.create_collection("measurements", timeseries={"timeField": "t", "metaField": "m", "granularity": "seconds"})
    for n in range(0, len(docs), 100):
        measurements.insert_many(docs[n:n + 100])
    db.plain.insert_many(docs)
    for keys in chance.choice([[], [[("m.h", 1), ("t", 1)]], [[("m.h", 1), ("t", -1)]], [[("t", 1)], [("m.h", -1)]]]):
        measurements.create_index(keys)
    return chance, measurements, db.plain


def conditions(chance):
    chosen = {}
    if chance.random() < 0.5:
        chosen["m.h"] = chance.choice([1, {"$in": [0, 2]}, {"$gt": 1}, None])
    if chance.random() < 0.3:
        chosen["t"] = {chance.choice(["$gt", "$lte"]): START + timedelta(seconds=chance.randrange(20_000))}
    if chance.random() < 0.3:
        chosen["w"] = {"$gt": chance.randrange(99)}
    return [{"$match": chosen}] if chosen else []


@pytest.mark.parametrize("seed", range(6))
def test_measurements_come_in_the_order_of_their_times(db, seed):
    chance, measurements, plain = filled(db, seed)
    for _ in range(25):
        between = chance.choice([[], [], [{"$addFields": {"z": 1}}], [{"$addFields": {"t": "$t"}}], [{"$project": {"t": 1}}]])
        pipeline = conditions(chance) + between + [{"$sort": {"t": chance.choice([1, -1])}}]
        found, expected = list(measurements.aggregate(pipeline)), list(plain.aggregate(pipeline))
        assert [doc["t"] for doc in found] == [doc["t"] for doc in expected], pipeline
        assert {doc["_id"] for doc in found} == {doc["_id"] for doc in expected}, pipeline
        pipeline += chance.choice([[{"$limit": 7}], [{"$skip": 3}, {"$limit": 200}], [{"$skip": 1_100}]])
        part = list(measurements.aggregate(pipeline, batchSize=5))
        assert [doc["t"] for doc in part] == [doc["t"] for doc in plain.aggregate(pipeline)], pipeline
        assert len({doc["_id"] for doc in part}) == len(part), pipeline


@pytest.mark.parametrize("seed", range(6))
def test_groups_by_the_meta_value(db, seed):
    chance, measurements, plain = filled(db, seed)
    keys = ["$m.h", "$m.h", "$m", {"h": "$m.h", "g": "$m.g"}, None, {"$concat": ["x", "$m.g"]}, "$w"]

    def groups(collection, pipeline):
        return sorted((repr(doc) for doc in collection.aggregate(pipeline)))

    for _ in range(25):
        fields = {"f%d" % n: {chance.choice(["$min", "$max"]): chance.choice(["$w", "$w", "$t", "$m.g"])} for n in range(chance.randrange(3))}
        pipeline = conditions(chance) + [{"$group": {"_id": chance.choice(keys), **fields}}]
        assert groups(measurements, pipeline) == groups(plain, pipeline), pipeline
        key, descending = chance.choice(["m.h", "m"]), chance.random() < 0.5
        sort = {"t": -1 if descending else 1}
        sort = sort if chance.random() < 0.5 else {key: chance.choice([1, -1]), **sort}
        takes = chance.choice(["$first", "$last"])
        pipeline = conditions(chance) + [{"$sort": sort}, {"$group": {"_id": "$" + key, "t": {takes: "$t"}, "one": {takes: "$_id"}}}]
        latest = list(measurements.aggregate(pipeline))
        times = {doc["_id"]: doc["t"] for doc in plain.find()}
        assert all(times[doc["one"]] == doc["t"] for doc in latest), pipeline
        expected = list(plain.aggregate(pipeline))
        assert sorted((repr(doc["_id"]), doc["t"]) for doc in latest) == sorted((repr(doc["_id"]), doc["t"]) for doc in expected), pipeline


def test_the_greatest_document_is_one_that_exists(db):
    """A bucket's `control` puts the extremes of documents and arrays together from several; mongod returns these."""
    measurements = db.create_collection("measurements", timeseries={"timeField": "t", "metaField": "m"})
    measurements.insert_many([{"t": START, "m": 1, "v": {"a": 1, "b": 5}, "l": [1, 9]}, {"t": START, "m": 1, "v": {"a": 2, "b": 1}, "l": [2, 3]}])
    group = {"_id": "$m", "v": {"$max": "$v"}, "l": {"$max": "$l"}}
    assert list(measurements.aggregate([{"$group": group}])) == [{"_id": 1, "v": {"a": 2, "b": 1}, "l": [2, 3]}]


def stages(collection, pipeline):
    explained = collection.database.command("explain", {"aggregate": collection.name, "pipeline": pipeline, "cursor": {}}, verbosity="executionStats")
    return explained["stages"]


def days(db, *keys):
    """300 buckets: one a day, of each of three sensors."""
    measurements = db.create_collection("measurements", timeseries={"timeField": "t", "metaField": "m", "granularity": "seconds"})
    docs = [{"t": START + timedelta(days=day, minutes=n), "m": {"h": sensor}, "v": day, "text": "x" * 8_000} for day in range(100) for sensor in range(3) for n in range(5)]
    measurements.insert_many(docs)
    measurements.create_index(list(keys)) if keys else None
    return measurements


def read(shown):
    return shown[0]["$cursor"]["executionStats"]["totalDocsExamined"]


@pytest.mark.parametrize("direction", [1, -1])
def test_the_first_measurements_are_in_the_first_buckets(db, direction):
    measurements = days(db)
    shown = stages(measurements, [{"$sort": {"t": direction}}, {"$limit": 10}])
    sort = next(stage[SORTED] for stage in shown if SORTED in stage)
    assert sort == {"sortKey": {"t": direction}, "bound": {"base": "min", "offsetSeconds": 0 if direction == 1 else 3600}, "limit": 10}
    # The buckets of the days are read in the order of their `_id`, some megabytes ahead.
    db.command("profile", 2)
    found = list(measurements.find({"m.h": 1}).sort("t", direction).limit(7))
    db.command("profile", 0)
    assert [doc["v"] for doc in found] == ([0] * 5 + [1] * 2 if direction == 1 else [99] * 5 + [98] * 2)
    recorded = db["system.profile"].find_one({"command.find": "measurements"})
    assert 2 <= recorded["docsExamined"] < 200


@pytest.mark.parametrize("by", [1, -1])
@pytest.mark.parametrize("direction", [1, -1])
def test_an_index_on_the_meta_value_and_the_time_gives_the_order(db, by, direction):
    measurements = days(db, ("m.h", 1), ("t", by))
    shown = stages(measurements, [{"$match": {"m.h": 1}}, {"$sort": {"t": direction}}])
    sort = next(stage[SORTED] for stage in shown if SORTED in stage)
    base = "min" if by == 1 else "max"
    offset = {("min", 1): 0, ("min", -1): 3600, ("max", 1): -3600, ("max", -1): 0}[base, direction]
    assert sort["bound"] == {"base": base, "offsetSeconds": offset}
    assert read(shown) == 100


def test_the_latest_of_each_comes_from_the_last_buckets(db):
    measurements = days(db, ("m.h", 1), ("t", -1))
    pipeline = [{"$sort": {"m.h": 1, "t": -1}}, {"$group": {"_id": "$m.h", "v": {"$first": "$v"}}}]
    assert read(stages(measurements, pipeline)) == 3
    assert sorted(doc["_id"] for doc in measurements.aggregate(pipeline) if doc["v"] == 99) == [0, 1, 2]


def test_only_the_fields_that_are_read_are_unpacked(db):
    measurements = days(db)
    shown = stages(measurements, [{"$group": {"_id": "$m.h", "n": {"$sum": "$v"}}}])
    assert shown[1]["$_internalUnpackBucket"]["include"] == ["v", "m"]
    # A condition on the meta value selects whole buckets.
    shown = stages(measurements, [{"$match": {"m.h": 1}}, {"$group": {"_id": "$v"}}])
    assert shown[1]["$_internalUnpackBucket"]["include"] == ["v"]
    assert read(shown) in (100, 300)


def test_strings_bound_buckets_under_their_own_collation(db):
    measurements = db.create_collection("measurements", timeseries={"timeField": "t", "metaField": "m"}, collation={"locale": "en", "strength": 2})
    measurements.insert_many([{"t": START + timedelta(days=day), "m": 1, "s": name} for day, name in enumerate(["a", "B", "c", "D"])])
    measurements.create_index("s")

    def found(condition, **options):
        return sorted(doc["s"] for doc in measurements.find(condition, **options))

    assert found({"s": {"$gt": "b"}}) == ["D", "c"]
    assert found({"s": {"$lte": "b"}}) == ["B", "a"]
    assert found({"s": {"$in": ["A", "d"]}}) == ["D", "a"]
    assert found({"s": {"$gt": "b"}}, collation={"locale": "simple"}) == ["c"]
    assert found({"s": "d"}, collation={"locale": "simple"}) == []
    assert read(stages(measurements, [{"$match": {"s": "d"}}])) == 1
