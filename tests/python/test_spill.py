"""Sorts and groups that need more memory than they may go on on the disk, or say so."""
import contextlib

import pytest
from bson import SON
from pymongo.errors import OperationFailure

LIMITS = {"internalQueryMaxBlockingSortMemoryUsageBytes": 100 << 20, "internalDocumentSourceGroupMaxMemoryBytes": 100 << 20,
          "internalDocumentSourceSetWindowFieldsMaxMemoryBytes": 100 << 20, "internalQueryMaxPushBytes": 100 << 20,
          "internalQueryMaxAddToSetBytes": 100 << 20, "internalQueryTopNAccumulatorBytes": 100 << 20,
          "allowDiskUseByDefault": True}


@contextlib.contextmanager
def limits(client, **values):
    try:
        for name, value in values.items():
            client.admin.command(SON([("setParameter", 1), (name, value)]))
        yield
    finally:
        for name in values:
            client.admin.command(SON([("setParameter", 1), (name, LIMITS[name])]))


@pytest.fixture
def full(c):
    c.insert_many([{"_id": i, "a": i * 7919 % 3000, "g": i % 400, "s": "x" * 1000} for i in range(3000)])
    return c


SMALL = {"internalQueryMaxBlockingSortMemoryUsageBytes": 1_000_000, "internalDocumentSourceGroupMaxMemoryBytes": 100_000}

PIPELINES = [
    [{"$sort": {"a": 1}}],
    [{"$addFields": {"b": {"$mod": ["$a", 7]}}}, {"$sort": {"b": -1, "_id": 1}}],
    [{"$sort": {"a": -1}}, {"$skip": 100}, {"$limit": 2000}],
    [{"$group": {"_id": "$g", "n": {"$sum": "$a"}, "all": {"$push": "$_id"}}}, {"$sort": {"_id": 1}}],
    [{"$group": {"_id": "$_id", "s": {"$first": "$s"}}}, {"$sort": {"_id": 1}}],
    [{"$group": {"_id": None, "all": {"$push": "$s"}}}],
    [{"$bucketAuto": {"groupBy": "$a", "buckets": 7, "output": {"n": {"$sum": 1}, "ids": {"$push": "$_id"}}}}],
    [{"$setWindowFields": {"partitionBy": "$g", "sortBy": {"a": 1}, "output": {"r": {"$rank": {}}}}}, {"$sort": {"_id": 1}}],
    [{"$sortByCount": "$g"}, {"$sort": {"_id": 1}}],
    [{"$setWindowFields": {"sortBy": {"a": 1}, "output": {
        "sum": {"$sum": "$_id", "window": {"documents": [-3, 2]}}, "near": {"$push": "$g", "window": {"documents": [-1, 1]}}}}},
     {"$sort": {"_id": 1}}],
    [{"$facet": {
        "sorted": [{"$sort": {"a": 1}}, {"$project": {"s": 0}}],
        "grouped": [{"$group": {"_id": "$_id", "s": {"$first": "$s"}}}, {"$sort": {"_id": 1}}, {"$project": {"s": 0}}],
        "buckets": [{"$bucketAuto": {"groupBy": "$a", "buckets": 5, "output": {"s": {"$push": "$s"}, "ids": {"$push": "$_id"}}}},
                    {"$project": {"output.s": 0, "s": 0}}],
        "windows": [{"$setWindowFields": {"partitionBy": "$g", "sortBy": {"a": -1}, "output": {"n": {"$documentNumber": {}}}}},
                    {"$sort": {"_id": 1}}, {"$project": {"s": 0}}]}}],
]


def test_answers_are_those_of_enough_memory(client, full):
    expected = [list(full.aggregate(p)) for p in PIPELINES]
    found = list(full.find({}, {"s": 0}).sort([("g", 1), ("a", -1)]))
    one_megabyte = {name: 1_000_000 for name in SMALL}
    with limits(client, **one_megabyte):
        for pipeline, answer in zip(PIPELINES, expected):
            assert list(full.aggregate(pipeline, allowDiskUse=True)) == answer, pipeline
    with limits(client, **SMALL):
        for pipeline, answer in zip(PIPELINES, expected):
            assert list(full.aggregate(pipeline)) == answer, pipeline
            assert list(full.aggregate(pipeline, allowDiskUse=True)) == answer, pipeline
        assert list(full.find({}, {"s": 0}).sort([("g", 1), ("a", -1)])) == found
        assert [d["a"] for d in full.find().sort("a", 1).batch_size(7)] == list(range(3000))


def test_who_may_not_use_the_disk_is_told(client, full):
    def code(run):
        with pytest.raises(OperationFailure) as error:
            run()
        return error.value.code
    with limits(client, **SMALL):
        for pipeline in (PIPELINES[0], PIPELINES[3], PIPELINES[4]):
            assert code(lambda: list(full.aggregate(pipeline, allowDiskUse=False))) == 292
        assert code(lambda: list(full.find(sort=[("a", 1)], allow_disk_use=False))) == 292
        # Few rows of many need little memory.
        assert [d["a"] for d in full.find(sort=[("a", 1)], limit=5, allow_disk_use=False)] == list(range(5))
        with limits(client, allowDiskUseByDefault=False):
            assert code(lambda: list(full.find(sort=[("a", 1)]))) == 292
            assert len(list(full.find(sort=[("a", 1)], allow_disk_use=True))) == 3000


def test_limits_of_lists_and_partitions(client, full):
    def code(pipeline):
        with pytest.raises(OperationFailure) as error:
            list(full.aggregate(pipeline))
        return error.value.code
    with limits(client, internalQueryMaxPushBytes=100_000, internalQueryMaxAddToSetBytes=100_000,
                internalDocumentSourceSetWindowFieldsMaxMemoryBytes=1_000_000):
        assert code([{"$group": {"_id": None, "a": {"$push": "$s"}}}]) == 146
        assert code([{"$group": {"_id": None, "a": {"$addToSet": {"$concat": ["$s", {"$toString": "$_id"}]}}}}]) == 146
        assert code([{"$setWindowFields": {"sortBy": {"a": 1}, "output": {"n": {"$push": "$s"}}}}]) == 5414201


@pytest.mark.parametrize("accumulator", [
    {"$firstN": {"n": 900, "input": "$s"}}, {"$lastN": {"n": 900, "input": "$s"}},
    {"$minN": {"n": 900, "input": "$s"}}, {"$maxN": {"n": 900, "input": "$s"}},
    {"$topN": {"n": 900, "sortBy": {"s": 1}, "output": 1}}, {"$bottomN": {"n": 900, "sortBy": {"_id": 1}, "output": "$s"}},
    {"$top": {"sortBy": {"_id": 1}, "output": ["$s"] * 60}}, {"$bottom": {"sortBy": {"_id": 1}, "output": ["$s"] * 60}},
], ids=lambda accumulator: next(iter(accumulator)))
def test_a_list_of_a_number_of_values_has_a_limit(client, db, accumulator):
    """A single list cannot be spilled to disk."""
    db.c.insert_many([{"_id": i, "s": "x" * 1000 + str(i)} for i in range(100)])
    name = next(iter(accumulator))
    with limits(client, internalQueryTopNAccumulatorBytes=50_000):
        for stage in {"$group": {"_id": None, "x": accumulator}}, {
                "$setWindowFields": {"sortBy": {"_id": 1}, "output": {"x": accumulator}}}:
            with pytest.raises(OperationFailure) as failed:
                list(db.c.aggregate([stage]))
            assert failed.value.code == 146
            assert failed.value.details["errmsg"].endswith(
                f"{name} used too much memory and spilling to disk cannot reduce memory consumption any further."
                " Memory limit: 50000 bytes")
        if "n" in accumulator[name]:
            # Fewer are kept, and what goes makes room for what comes.
            few = {name: {**accumulator[name], "n": 10}}
            list(db.c.aggregate([{"$group": {"_id": None, "x": few}}]))


def test_explain_tells_of_the_disk(client, full):
    def sort():
        explained = full.database.command("explain", {"find": "c", "sort": {"a": 1}}, verbosity="executionStats")
        return explained["executionStats"]["executionStages"]
    assert (sort()["usedDisk"], sort()["spills"], sort()["memLimit"]) == (False, 0, 100 << 20)
    with limits(client, **SMALL):
        assert sort()["usedDisk"] and sort()["spills"] >= 3 and sort()["memLimit"] == 1_000_000


@pytest.mark.embedded
def test_nothing_is_left_in_the_folder(client, full):
    parsed = client.admin.command("getCmdLineOpts")["parsed"]
    dbpath = parsed.get("storage", {}).get("dbPath")
    if dbpath is None:
        pytest.skip("the data is not in a folder that is known")
    import pathlib
    with limits(client, **SMALL):
        cursor = full.find().sort("a", 1).batch_size(10)
        next(cursor)
        assert list((pathlib.Path(dbpath) / "_tmp").iterdir()) == []
        cursor.close()
