#!/usr/bin/env python3
"""Measures operations at two sizes, one four times the other: server CPU of each, next to mongod where there is one.

    "$(tools/setup python)" bench/growth.py --marula target/release/marula --mongod "$(tools/setup mongod)"

The cost of each should grow with its size, that is fourfold, and not with the square of it. `--smoke` runs everything with tiny inputs
and measures nothing.
"""
import itertools
import os
import random
import statistics
import sys

import pymongo
from bson import Decimal128

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from production import client_of, comparison, started  # noqa: E402

NUMBERS = itertools.count()


def reset(db, size):
    for name in db.list_collection_names():
        db.drop_collection(name)
    db.many.insert_many([{"_id": n, "n": n, "d": Decimal128("%d.%02d" % (n, n % 100))} for n in range(size)])
    db.one.insert_one({"a": list(range(size))})
    db.create_collection("capped", capped=True, size=100_000)


def computed(expression):
    """The expression on one document with an array of the size."""
    return lambda db, size: list(db.one.aggregate([{"$project": {"x": expression(size)}}]))


def updates(db, size):
    value = next(NUMBERS)
    db.many.bulk_write([pymongo.UpdateOne({"_id": n}, {"$set": {"n": value}}) for n in range(size)])


def upserts(db, size):
    start = size * (1 + next(NUMBERS))
    db.upserted.bulk_write([pymongo.UpdateOne({"_id": start + n}, {"$set": {"n": 1}}, upsert=True) for n in range(size)])


def large_updates(db, size):
    """Each of a hundred documents of twenty times the size in bytes."""
    place = db.large
    if place.find_one({"_id": 99}, {"n": 1}) is None:
        place.insert_many([{"_id": n, "n": 0, "text": random.Random(n).randbytes(size * 10).hex()} for n in range(100)])
    place.bulk_write([pymongo.UpdateOne({"_id": n}, {"$inc": {"n": 1}}) for n in range(100)])


def moving(function):
    """The function over windows of a tenth of the documents."""
    return lambda db, size: list(db.many.aggregate([
        {"$setWindowFields": {"sortBy": {"_id": 1}, "output": {"x": {**function, "window": {"documents": [-(size // 20), size // 20]}}}}},
        {"$group": {"_id": None, "x": {"$max": "$x"}}}]))


def queue(db, size):
    start = size * next(NUMBERS)
    db.queue.insert_many([{"_id": start + n} for n in range(size)])
    for _ in range(size):
        db.queue.find_one_and_delete({}, sort=[("_id", 1)])


EACH = {"$range": [0, {"$size": "$a"}]}
OPERATIONS = {
    "bulkWrite of updates": updates,
    "bulkWrite of upserts": upserts,
    "bulkWrite of 100 $inc in documents of 20 times the size in bytes": large_updates,
    "insertMany into a full capped collection": lambda db, size: db.capped.insert_many([{"n": n, "s": "x" * 50} for n in range(size)]),
    "a queue, filled and taken": queue,
    "$map with $arrayElemAt": computed(lambda size: {"$map": {"input": EACH, "in": {"$arrayElemAt": ["$a", "$$this"]}}}),
    "$map with $slice": computed(lambda size: {"$map": {"input": EACH, "in": {"$slice": ["$a", "$$this", 2]}}}),
    "$arrayToObject": computed(lambda size: {"$arrayToObject": {"$map": {"input": "$a", "in": {"k": {"$toString": "$$this"}, "v": 1}}}}),
    "$map with $in of the document's list": computed(lambda size: {"$map": {"input": "$a", "in": {"$in": ["$$this", "$a"]}}}),
    "$map with $indexOfArray of the document's list": computed(lambda size: {
        "$map": {"input": "$a", "in": {"$indexOfArray": ["$a", "$$this"]}}}),
    "$reduce that appends": computed(lambda size: {
        "$reduce": {"input": "$a", "initialValue": [], "in": {"$concatArrays": ["$$value", ["$$this"]]}}}),
    "$reduce that prepends": computed(lambda size: {
        "$reduce": {"input": "$a", "initialValue": [], "in": {"$concatArrays": [["$$this"], "$$value"]}}}),
    "$mergeObjects of an array of documents": computed(lambda size: {
        "$mergeObjects": {"$map": {"input": "$a", "in": {"$arrayToObject": [[{"k": {"$toString": "$$this"}, "v": "$$this"}]]}}}}),
    "$in of a constant list, a document in four": lambda db, size: list(db.many.aggregate([
        {"$group": {"_id": {"$in": ["$n", list(range(0, size, 4))]}, "n": {"$sum": 1}}}])),
    "$indexOfArray of a constant list, a document in four": lambda db, size: list(db.many.aggregate([
        {"$group": {"_id": {"$gte": [{"$indexOfArray": [list(range(0, size, 4)), "$n"]}, 0]}, "n": {"$sum": 1}}}])),
    "$addFields of new fields": lambda db, size: list(db.one.aggregate([{"$addFields": {"f%d" % n: n for n in range(size)}}])),
    "$addFields of fields that are there": lambda db, size: list(db.one.aggregate([
        {"$addFields": {"f%d" % n: n for n in range(size)}}, {"$addFields": {"f%d" % n: n + 1 for n in range(size)}}])),
    "$maxN of moving windows": moving({"$maxN": {"n": 3, "input": "$n"}}),
    "$bottom of moving windows": moving({"$bottom": {"output": "$_id", "sortBy": {"n": 1}}}),
    "$lastN of moving windows": moving({"$lastN": {"n": 3, "input": "$n"}}),
    "$addToSet of few values in moving windows": moving({"$addToSet": {"$mod": ["$n", 7]}}),
    "$in of a list, without an index": lambda db, size: db.many.count_documents({"n": {"$in": list(range(0, size, 4))}}),
    "sum of products of decimals": lambda db, size: list(db.many.aggregate([
        {"$group": {"_id": None, "x": {"$sum": {"$multiply": ["$d", "$d"]}}}}])),
    "$round of doubles": lambda db, size: list(db.many.aggregate([
        {"$group": {"_id": None, "x": {"$sum": {"$round": [{"$divide": ["$n", 7]}, 2]}}}}])),
    "$sample of ten": lambda db, size: list(db.many.aggregate([{"$sample": {"size": 10}}])),
}


def measure(sides, sizes, runs, least_s):
    for name, operation in OPERATIONS.items():
        cpu_ms = {kind: [] for kind in sides}
        for size in sizes:
            for side in sides.values():
                reset(side.db, size)
                operation(side.db, size)
            found = {kind: [] for kind in sides}
            for _ in range(runs):
                for kind, side in sides.items():
                    before, count = side.cpu_s(), 0
                    while count == 0 or side.cpu_s() - before < least_s:
                        operation(side.db, size)
                        count += 1
                    found[kind].append((side.cpu_s() - before) / count * 1e3)
            for kind, each in found.items():
                cpu_ms[kind].append(statistics.median(each))
        shown = ", ".join("%s %s ms" % (kind, " → ".join("%.2f" % ms for ms in each)) for kind, each in cpu_ms.items())
        print("%s: %s" % (name, shown), flush=True)


def main():
    options = comparison(__doc__, 3, "operation")
    sizes, runs, least_s = ((10, 40), 1, 0.0) if options.smoke else ((2_000, 8_000), options.runs, 0.3)
    with started(options, "growth-") as sides:
        for side in sides.values():
            side.db = client_of(side).bench
        print("server CPU at sizes %d and %d" % sizes, flush=True)
        measure(sides, sizes, runs, least_s)


if __name__ == "__main__":
    main()
