"""Random updates, each followed by `validate`: no update leaves an index that disagrees with the documents.

A run of many writes that validates at its end finds only the faults that no later write covers up. Here the collections
are tiny, so that each update can be checked on its own. Paths are next to the indexed ones and beyond them: past the
ends of arrays, through arrays of arrays, at fields that become arrays or documents only by the update, at names that
are empty, look like numbers or operators, or have dots. Some collections are clustered, and now and then the server
is restarted, also right after a write that a unique index has refused: what it then knows of its indexes (where
documents have arrays, for instance) comes from the disk.

MARULA_VALIDATED_UPDATES sets their number, MARULA_RANDOM_SEED repeats a run.
"""
import os
import random

import pymongo
import pytest
import server
from bson import DBRef, MaxKey, MinKey
from pymongo import ReturnDocument
from pymongo.errors import OperationFailure

UPDATES = int(os.environ.get("MARULA_VALIDATED_UPDATES", "2400"))
# Updates to one set of collections before it is dropped and its indexes are chosen again.
ROUND = 60
# Rounds from one new start of the server to the next.
RESTART = 5

INDEXES = [
    ([("a.b", 1)], {}),
    ([("a.b", 1)], {"unique": True}),
    ([("a.b", 1)], {"sparse": True}),
    ([("a.b.c", 1), ("a.b", -1)], {}),
    ([("a", 1)], {}),
    ([("a.0", 1)], {}),
    ([("a.1.b", 1)], {}),
    ([("a.b", 1), ("d", 1)], {"unique": True}),
    ([("a.b", "hashed")], {}),
    ([("a.$**", 1)], {}),
    ([("$**", 1)], {}),
    ([("a.b", "text")], {}),
    ([("d", 1)], {"partialFilterExpression": {"a.b": {"$exists": True}}}),
    ([("d", 1)], {"partialFilterExpression": {"a.b": {"$gt": 0}}}),
    ([("d", 1)], {"expireAfterSeconds": 2**31 - 1}),
    ([("a.b", "2d")], {}),
    ([("a.b", "2dsphere"), ("d", 1)], {}),
    ([("a", "2dsphere")], {}),
    ([("d", 1), ("a.$**", "text")], {}),
    ([("a.$**", 1)], {"wildcardProjection": None, "sparse": True}),
    ([("$**", 1)], {"wildcardProjection": {"a.b": 0, "d": 0}}),
    ([("a.00", 1), ("a.-1", 1)], {}),
    ([("a.é", 1)], {"collation": {"locale": "en", "strength": 2}}),
]
# Names that are rare in documents: paths cannot name all of them.
ODD_NAMES = ["", "$b", "$ref", "b.c", "é", "0", "00", "-1", "1", "n" * 300]
PATHS = ["a", "a.b", "a.c", "a.0", "a.1", "a.2", "a.3.c", "a.0.b", "a.1.b", "a.1.c", "a.b.1", "a.b.2.c", "a.b.c",
         "a.b.0.c", "a.0.0", "a.0.1", "a.1.0.b", "a.0.b.2", "a.c.1", "d", "d.1", "d.0.c", "a.00", "a.-1", "a.é", "a.é.0",
         "a.$b", "a.", "a..b", "a." + "n" * 300]
POINTS = [[1, 2], [0, 0], {"type": "Point", "coordinates": [1, 2]}, {"x": 1, "y": 2},
          {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}]


class Maker:
    """Random documents and updates."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def value(self, depth=3):
        r = self.random
        kind = r.randrange(10 if depth else 5)
        if r.random() < 0.05:
            return r.choice(POINTS)
        if kind < 5:
            return r.choice([0, 1, 2, None, "x", "", True, MinKey(), MaxKey(), DBRef("r", 1), 2.5])
        if kind < 8:
            return [self.value(depth - 1) for _ in range(r.randrange(4))]
        names = r.sample("bcd", r.randrange(3)) + (r.sample(ODD_NAMES, 1) if r.random() < 0.15 else [])
        return {name: self.value(depth - 1) for name in names}

    def document(self, number):
        return {"_id": number, "a": self.value(), **({"d": self.value(1)} if self.random.random() < 0.6 else {})}

    def operator(self):
        r, path = self.random, self.random.choice(PATHS)
        name = r.choice(["$set", "$set", "$unset", "$inc", "$max", "$min", "$mul", "$bit", "$currentDate", "$push",
                         "$addToSet", "$pop", "$pull", "$rename"])
        argument = {
            "$inc": 1, "$mul": 2, "$bit": {"or": 1}, "$currentDate": True, "$unset": "", "$pop": r.choice([1, -1]),
            "$rename": r.choice(["d", "a.b", "a.c", "e"]),
        }.get(name)
        if argument is None:
            argument = self.value(2)
        if name in ("$push", "$addToSet") and r.random() < 0.4:
            argument = {"$each": [self.value(1) for _ in range(r.randrange(3))]}
        return {name: {path: argument}}

    def update(self):
        r = self.random
        kind = r.randrange(20)
        if kind < 16:
            return self.operator()
        if kind == 16:
            return {"a": self.value(), "d": self.value(1)}
        if kind == 17:
            return [{"$set": {r.choice(["a.b", "a.c", "a", "d"]): {"$literal": self.value(2)}}}]
        return {"$set": {"a.$[]." + r.choice("bc"): self.value(1)}}


def apply(collection, maker):
    """One random update by one of the ways that commands offer; a refusal is as good as a success."""
    r, update = maker.random, maker.update()
    selected = {"_id": r.randrange(5)}
    is_replacement = isinstance(update, dict) and not next(iter(update)).startswith("$")
    try:
        if is_replacement:
            collection.replace_one(selected, update, upsert=r.random() < 0.3)
        elif r.random() < 0.3:
            collection.find_one_and_update(selected, update, upsert=r.random() < 0.3,
                                           return_document=ReturnDocument.AFTER)
        elif r.random() < 0.3:
            collection.update_many({}, update)
        else:
            collection.update_one(selected, update, upsert=r.random() < 0.3)
    except OperationFailure:
        pass
    return selected, update


def make(database, name, maker):
    """A collection with a few indexes and documents."""
    options = {"clusteredIndex": {"key": {"_id": 1}, "unique": True}} if maker.random.random() < 0.2 else {}
    collection = database.create_collection(name, **options)
    for keys, options in maker.random.sample(INDEXES, 4):
        try:
            collection.create_index(keys, **{name: value for name, value in options.items() if value is not None})
        except OperationFailure:  # two of them have one name
            pass
    for number in range(3):
        try:
            collection.insert_one(maker.document(number))
        except OperationFailure:
            pass
    return collection


def check_indexes(collection):
    """Validates, and asks each plain index for each value that is there, and for what is missing."""
    report = collection.database.command("validate", collection.name)
    assert report["valid"], report["errors"]
    documents = list(collection.find())
    for name, index in collection.index_information().items():
        is_plain = all(direction in (1, -1) and "$**" not in path for path, direction in index["key"])
        if not is_plain or set(index) & {"partialFilterExpression", "sparse", "collation", "clustered"}:
            continue
        for path, _ in index["key"]:
            # An index by a position has no entry for the elements that lack a field of that name.
            missing = [] if any(name.isdigit() for name in path.split(".")) else [None]
            for value in [*missing, *(field for document in documents for field in below(document, path.split("."))
                                      if field is not None or missing)]:
                asked = [sorted(d["_id"] for d in collection.find({path: {"$eq": value}}, hint=hint))
                         for hint in (name, [("$natural", 1)])]
                assert asked[0] == asked[1], (documents, name, path, value)


def below(value, names):
    """Returns the values at a path, through arrays too."""
    if not names:
        return [value]
    if isinstance(value, list):
        return [found for item in value if isinstance(item, dict) for found in below(item, names)]
    return below(value[names[0]], names[1:]) if isinstance(value, dict) and names[0] in value else []


@pytest.mark.embedded
def test_every_update_leaves_valid_indexes():
    seed = int(os.environ.get("MARULA_RANDOM_SEED", random.randrange(2**32)))
    print("repeat with MARULA_RANDOM_SEED=%d MARULA_VALIDATED_UPDATES=%d" % (seed, UPDATES))
    with server.Server() as own:
        for begin in range(0, UPDATES, ROUND):
            maker = Maker(seed + begin)
            with pymongo.MongoClient(own.uri) as client:
                collection = make(client.t, "c%d" % begin, maker)
                log = list(collection.find())
                for number in range(begin, min(begin + ROUND, UPDATES)):
                    log.append(apply(collection, maker))
                    report = client.t.command("validate", collection.name)
                    assert report["valid"], (number, log, report["errors"])
            if begin // ROUND % RESTART == 0:
                own.terminate()
                own.start()
            with pymongo.MongoClient(own.uri) as client:
                check_indexes(client.t[collection.name])
                client.t.drop_collection(collection.name)
