#!/usr/bin/env python3
"""Measures reads of a time-series collection: server CPU of each query, next to mongod where there is one.

    "$(tools/setup python)" bench/measurements.py --marula target/release/marula --mongod "$(tools/setup mongod)"

200,000 measurements of 20 sensors in some 1,100 buckets; the two servers answer each query in turn, and their answers must be the
same. `--smoke` runs everything with tiny inputs and measures nothing.
"""
import os
import random
import statistics
import sys
from datetime import datetime, timedelta


sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from production import client_of, comparison, started  # noqa: E402

START = datetime(2026, 1, 1)
HOUR = timedelta(hours=1)
SENSORS = 20
LATEST = [{"$sort": {"m.sensor": 1, "t": -1}}, {"$group": {"_id": "$m.sensor", "t": {"$first": "$t"}, "v": {"$first": "$v"}}}]


def grouped(key, **fields):
    return lambda readings: list(readings.aggregate([{"$group": {"_id": key, **fields}}]))


def hours_of_sensors(readings):
    found = [readings.find({"m.sensor": n, "t": {"$gte": START + n * HOUR, "$lt": START + (n + 1) * HOUR}}) for n in range(SENSORS)]
    return [doc for cursor in found for doc in cursor]


QUERIES = {
    "count of all": lambda readings: readings.count_documents({}),
    "average by sensor": grouped("$m.sensor", v={"$avg": "$v"}, n={"$sum": 1}),
    "average by hour": grouped({"$dateTrunc": {"date": "$t", "unit": "hour"}}, v={"$avg": "$v"}),
    "greatest by sensor": grouped("$m.sensor", v={"$max": "$v"}, t={"$max": "$t"}),
    "the latest 100": lambda readings: [doc["t"] for doc in readings.find().sort("t", -1).limit(100)],
    "the latest 100 of a sensor": lambda readings: [doc["t"] for doc in readings.find({"m.sensor": 3}).sort("t", -1).limit(100)],
    "the latest of each sensor": lambda readings: list(readings.aggregate(LATEST)),
    "an hour of each of 20 sensors": hours_of_sensors,
    "by a value, 0.1% match": lambda readings: list(readings.find({"v": {"$gte": 99.9}})),
    "by a string, a seventh matches": lambda readings: readings.count_documents({"unit": "unit-3"}),
    "all": lambda readings: sum(1 for _ in readings.find(batch_size=10_000)),
}


def canonical(answer):
    """An answer as text: documents and fields in any order, numbers to nine digits."""
    if not isinstance(answer, list):
        return answer
    rounded = [{name: round(it, 9) if isinstance(it, float) else it for name, it in sorted(doc.items())} if isinstance(doc, dict) else doc
               for doc in answer]
    return sorted(map(repr, rounded))


def load(readings, count):
    """Inserts the measurements, a thousand at a time, in the order of their times; returns nothing."""
    chance = random.Random(1)
    for first in range(0, count, 1_000):
        readings.insert_many([
            {"_id": n, "t": START + timedelta(seconds=n), "m": {"sensor": n % SENSORS}, "v": chance.randrange(100_000) / 1_000,
             "unit": "unit-%d" % (n % 7), "quality": n % 100}
            for n in range(first, min(first + 1_000, count))])


def measure(sides, count, runs, repeats, indexes):
    for side in sides.values():
        database = client_of(side).bench
        database.drop_collection("readings")
        side.readings = database.create_collection("readings", timeseries={"timeField": "t", "metaField": "m"})
        load(side.readings, count)
        if indexes:
            side.readings.create_index(indexes)
    for name, query in QUERIES.items():
        cpu_ms = {kind: [] for kind in sides}
        answers = {}
        for _ in range(runs):
            for kind, side in sides.items():
                before = side.cpu_s()
                for _ in range(repeats):
                    answers[kind] = query(side.readings)
                cpu_ms[kind].append((side.cpu_s() - before) / repeats * 1e3)
        assert len({repr(canonical(answer)) for answer in answers.values()}) == 1, name
        shown = ", ".join("%s %.1f ms" % (kind, statistics.median(each)) for kind, each in cpu_ms.items())
        print("%s%s: %s" % (name, ", index on sensor and time" if indexes else "", shown), flush=True)


def main():
    options = comparison(__doc__, 5, "query")
    count, repeats, runs = (2_000, 1, 1) if options.smoke else (200_000, 20, options.runs)
    with started(options, "measurements-") as sides:
        for indexes in ([], [("m.sensor", 1), ("t", -1)]):
            measure(sides, count, runs, repeats, indexes)


if __name__ == "__main__":
    main()
