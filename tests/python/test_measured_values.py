"""Conditions on measured values: buckets whose least and greatest values exclude them are not unpacked."""
import random
from datetime import datetime, timedelta

import pytest
from bson import Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

START = datetime(2024, 1, 1)
IDS = [ObjectId(f"{number:024x}") for number in range(4)]
PATHS = ["x", "x", "y", "n", "n.g", "n.g.0", "n.h", "a", "a.0", "nothing", "m", "t", "x.y"]
OPERATORS = ["$gt", "$gte", "$lt", "$lte", "$eq", "$ne"]


def number(chance):
    return chance.choice([chance.randrange(-3, 8), chance.uniform(-3, 8), Int64(3), Decimal128("2.5"), float("nan"), float("-inf")])


def value(chance):
    return chance.choice([number(chance), number(chance), True, False, None, "a", "10", START + timedelta(seconds=chance.randrange(4200)),
                          chance.choice(IDS), Timestamp(chance.randrange(4), 1), MinKey(), MaxKey(), {"g": 1}, [1, 2], []])


def nested(chance):
    return chance.choice([{"g": number(chance)}, {"g": number(chance), "h": value(chance)}, {"g": [number(chance), number(chance)]},
                          [{"g": number(chance)}, {"g": number(chance)}], {}, number(chance)])


def measurement(chance, n):
    fields = {"x": number(chance) if chance.random() < 0.5 else n // 60, "y": value(chance), "n": nested(chance),
              "a": [number(chance) for _ in range(chance.randrange(3))]}
    kept = {name: it for name, it in fields.items() if chance.random() < 0.8}
    return {"_id": n, "t": START + timedelta(seconds=n * 7), "m": chance.randrange(3), **kept}


def leaf(chance):
    path, constant = chance.choice(PATHS), chance.choice([number, value])(chance)
    choice = chance.random()
    if choice < 0.7:
        return {path: {chance.choice(OPERATORS): constant}}
    if choice < 0.8:
        return {path: {"$in": [constant, number(chance)]}}
    return {path: chance.choice([{"$exists": True}, {"$exists": False}, {"$gt": number(chance), "$lt": number(chance)},
                                 {"$not": {"$gt": constant}}, {"$in": [Regex("a"), 1]}])}


def condition(chance, depth=0):
    if depth > 2 or chance.random() < 0.5:
        return leaf(chance)
    children = [condition(chance, depth + 1) for _ in range(chance.randrange(1, 3))]
    return {chance.choice(["$and", "$or", "$nor"]): children}


def filled(db, seed):
    """The same documents in a time-series collection, in one with indexes on them, and in an ordinary collection."""
    chance = random.Random(seed)
    docs = [measurement(chance, n) for n in range(600)]
    each = [db.create_collection(name, timeseries={"timeField": "t", "metaField": "m"}) for name in ("scanned", "indexed")]
    for keys in ([("x", 1)], [("x", -1), ("m", 1)]):
        each[1].create_index(keys)
    each.append(db.create_collection("plain"))
    for collection in each:
        collection.insert_many(docs)
    return each


def ids(cursor):
    return sorted(doc["_id"] for doc in cursor)


@pytest.mark.parametrize("seed", [0, 1, 3, 4])
def test_measurements_are_found_as_documents_are(db, seed):
    scanned, indexed, plain = filled(db, seed)
    chance = random.Random(seed)
    for _ in range(150):
        asked = condition(chance)
        found = ids(plain.find(asked))
        assert ids(scanned.find(asked)) == found, asked
        assert ids(indexed.find(asked)) == found, asked


def examined(collection, asked):
    explained = collection.database.command("explain", {"find": collection.name, "filter": asked}, verbosity="executionStats")
    cursor = explained["stages"][0]["$cursor"]
    return cursor["queryPlanner"]["parsedQuery"], cursor["executionStats"]["totalDocsExamined"]


def least(path, op, value):
    return {f"control.min.{path}": {f"$_internalExpr{op}": value}}


def greatest(path, op, value):
    return {f"control.max.{path}": {f"$_internalExpr{op}": value}}


@pytest.mark.parametrize("asked, of_buckets, buckets", [
    ({"x": 5}, {"$and": [greatest("x", "Gte", 5), least("x", "Lte", 5)]}, 1),
    ({"x": {"$lt": 5}}, least("x", "Lt", 5), 5),
    ({"x": {"$gt": 5, "$lte": 7}}, {"$and": [greatest("x", "Gt", 5), least("x", "Lte", 7)]}, 2),
    ({"x": {"$in": [1, 90]}}, {"$or": [{"$and": [greatest("x", "Gte", n), least("x", "Lte", n)]} for n in (1, 90)]}, 2),
    ({"x": START}, {"$and": [greatest("x", "Gte", START), least("x", "Lte", START)]}, 0),
], ids=str)
def test_an_index_on_a_measured_value_is_used(db, asked, of_buckets, buckets):
    m = db.create_collection("m", timeseries={"timeField": "t"})
    m.create_index("x")
    m.insert_many([{"t": START + timedelta(hours=hour), "x": hour} for hour in range(100)])
    parsed, count = examined(m, asked)
    assert parsed == of_buckets
    assert count == buckets
    assert len(list(m.find(asked))) == buckets


@pytest.mark.parametrize("asked", [{"x": None}, {"x": {"$ne": 1}}, {"x": [1]}, {"x": {"a": 1}}, {"x": Regex("a")},
                                   {"$or": [{"x": 1}, {"y": None}]}, {"$nor": [{"x": 1}]}], ids=str)
def test_conditions_that_no_bucket_can_be_excluded_by(db, asked):
    m = db.create_collection("m", timeseries={"timeField": "t"})
    m.insert_many([{"t": START + timedelta(hours=hour), "x": hour} for hour in range(9)])
    assert examined(m, asked) == ({}, 9)
