"""Random updates and what change streams tell of them.

A case is a document and an update: operators, positional ones and array filters, pipelines, names with dots, dollars and
digits. `described` applies an `updateDescription` to a document. As a program it compares two servers, such as a mongod and
Marula, both as replica sets of one node; what they tell must be the same, and must make the new document of the old:

    python tests/update_descriptions.py mongodb://127.0.0.1:27017 mongodb://127.0.0.1:27018 --seed 1 --count 5000
    python tests/update_descriptions.py mongodb://127.0.0.1:27017 --seed 1 --count 300 --record tests/python/update_descriptions.json
"""
import argparse
import copy
import random
import sys

import bson
import pymongo
from bson import json_util

NAMES = ["a", "b", "c", "0", "1", "2", "10", "aa", "é"]
# No other name is the beginning of one with a dot: at the top of a document mongod 6.0 does not
# tell such a name from a path.
ODD_NAMES = ["x.y", "$z", "9.1", "z.", "-1", "00", "$"]
BATCH = 250


def scalar(rng):
    return rng.choice([0, 1, 2, 2.5, -1, "x", "", "long " * 8, None, True, bson.Int64(7), bson.MinKey(), b"bytes"])


def value(rng, depth=0):
    if depth < 3 and rng.random() < 0.45 - depth * 0.1:
        if rng.random() < 0.5:
            names = rng.sample(NAMES, rng.randrange(4))
            if rng.random() < 0.1:
                names.append(rng.choice(ODD_NAMES))
            return {name: value(rng, depth + 1) for name in names}
        return [value(rng, depth + 1) for _ in range(rng.choice([0, 1, 2, 3, 3, 5, 8]))]
    return scalar(rng)


def document(rng):
    names = rng.sample(NAMES, rng.randrange(1, 6))
    return {**{name: value(rng) for name in names}, "r": [value(rng, 2) for _ in range(rng.randrange(7))],
            "d": [{"k": rng.randrange(3), "v": value(rng, 2), "w": [1, 2, 3]} for _ in range(rng.randrange(4))]}


def paths_of(node, path=()):
    """The paths of everything in a document, in the language of updates."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, inner in items:
        if "." in str(name) or str(name).startswith("$") or not str(name):
            continue
        yield ".".join([*path, str(name)])
        yield from paths_of(inner, (*path, str(name)))


def path(rng, doc):
    known = [*paths_of(doc)]
    base = rng.choice(known) if known and rng.random() < 0.85 else rng.choice(NAMES)
    return base + rng.choice(["", "", "", "." + rng.choice(NAMES), "." + str(rng.randrange(6))])


def operators(rng, doc):
    update, filters = {}, []
    for _ in range(rng.choice([1, 1, 2, 3])):
        name = rng.choice(["$set", "$set", "$set", "$unset", "$unset", "$inc", "$mul", "$min", "$push", "$push", "$pop", "$pull",
                           "$pullAll", "$addToSet", "$rename", "$bit", "each", "positional"])
        arrays = [at for at in paths_of(doc) if isinstance(get(doc, at), list)] or ["r"]
        array, at = rng.choice(arrays), path(rng, doc)
        if name == "each":
            each = {"$each": [value(rng, 2) for _ in range(rng.randrange(4))]}
            if rng.random() < 0.5:
                each["$slice"] = rng.choice([0, 1, 2, 5, -1, -3])
            if rng.random() < 0.3:
                each["$position"] = rng.choice([0, 1, -1])
            if rng.random() < 0.3:
                each["$sort"] = rng.choice([1, -1])
            update.setdefault("$push", {})[array] = each
        elif name == "positional":
            kind = rng.randrange(3)
            if kind == 0:
                update.setdefault("$set", {})["d.$[].v"] = value(rng, 2)
            elif kind == 1 and not filters:
                update.setdefault("$set", {})["d.$[e]." + rng.choice(["v", "n", "w.1", "w.5"])] = value(rng, 2)
                filters = [{"e.k": rng.randrange(3)}]
            else:
                update.setdefault("$inc", {})["d.$[].k"] = 1
        elif name in ("$push", "$addToSet"):
            update.setdefault(name, {})[array] = value(rng, 2)
        elif name == "$pop":
            update.setdefault(name, {})[array] = rng.choice([1, -1])
        elif name == "$pull":
            update.setdefault(name, {})[array] = rng.choice([{"$in": [0, 1, 2, "x"]}, {"$gte": 1}, 1])
        elif name == "$pullAll":
            update.setdefault(name, {})[array] = [scalar(rng), scalar(rng)]
        elif name in ("$inc", "$mul", "$min"):
            update.setdefault(name, {})[at] = rng.choice([1, 2, 0.5, bson.Int64(3)])
        elif name == "$bit":
            update.setdefault(name, {})[at] = {"or": 5}
        elif name == "$rename":
            update.setdefault(name, {})[rng.choice(NAMES)] = rng.choice(["n", "aa.n", *NAMES])
        else:
            update.setdefault(name, {})[at] = value(rng, 1) if name == "$set" else 1
    return update, filters


def pipeline(rng, doc):
    stages = []
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice([*doc, *NAMES])
        # Unlike in an operator's path, digits name a field here.
        at = rng.choice([name, name, name + "." + rng.choice(["a", "b", "n"]), "d.v", "d.k"])
        literal = {"$literal": value(rng, 1)}
        stages.append(rng.choice([
            {"$set": {at: literal}}, {"$unset": at}, {"$set": {"r": {"$concatArrays": ["$r", [literal]]}}},
            {"$set": {"r": {"$slice": ["$r", rng.randrange(1, 4)]}}}, {"$set": {"r": {"$reverseArray": "$r"}}},
            {"$set": {"d": {"$filter": {"input": "$d", "cond": {"$gt": ["$$this.k", 0]}}}}},
            {"$set": {"d": {"$map": {"input": "$d", "in": {"$mergeObjects": ["$$this", {"m": 1}]}}}}},
            {"$replaceWith": {"$setField": {"field": {"$literal": rng.choice(ODD_NAMES)}, "input": "$$ROOT", "value": literal}}},
            {"$replaceWith": {"$unsetField": {"field": {"$literal": rng.choice(ODD_NAMES)}, "input": "$$ROOT"}}},
            {"$replaceWith": {"$mergeObjects": ["$$ROOT", {"n": {"xy": 1}}, {"a": literal}]}},
            {"$project": {rng.choice([*doc]): 0}}, {"$project": {name: 1, "r": 1}},
            {"$set": {"r": {"$map": {"input": "$r", "in": {"$cond": [{"$isNumber": "$$this"}, {"$add": ["$$this", 1]}, "$$this"]}}}}},
        ]))
    return stages


def get(node, dotted):
    for part in dotted.split("."):
        node = node[int(part)] if isinstance(node, list) else node[part]
    return node


def case(rng):
    """A document, the update of it, and its array filters."""
    doc = document(rng)
    if rng.random() < 0.15:
        doc["x.y"] = value(rng, 1)
    kind = rng.random()
    if kind < 0.35:
        return doc, pipeline(rng, doc), []
    if kind < 0.4:
        return doc, {**document(rng)}, []
    update, filters = operators(rng, doc)
    return doc, update, filters


def parts_of(name, doc, description):
    ambiguous = description.get("disambiguatedPaths") or {}
    if name in ambiguous:
        return ambiguous[name]
    parts = name.split(".")
    return parts if parts[0] in doc and name not in doc else [name]


def described(doc, description):
    """A document with an `updateDescription` applied to it."""
    doc = copy.deepcopy(doc)

    def walk(parts):
        node = doc
        for part in parts:
            node = node[int(part) if isinstance(node, list) else part]
        return node

    for truncated in description.get("truncatedArrays", []):
        del walk(parts_of(truncated["field"], doc, description))[truncated["newSize"]:]
    for name in description["removedFields"]:
        *parents, last = parts_of(name, doc, description)
        del walk(parents)[last]
    for name, new in description["updatedFields"].items():
        *parents, last = parts_of(name, doc, description)
        node = walk(parents)
        if isinstance(node, list):
            node.extend([None] * (int(last) + 1 - len(node)))
            node[int(last)] = new
        else:
            node[last] = new
    return doc


def told(client, cases, database="described"):
    """The result of each case on a server and its description: the document before, the one after, the event or None."""
    client.drop_database(database)
    c = client[database].create_collection("c")
    results = []
    for start in range(0, len(cases), BATCH):
        some = cases[start:start + BATCH]
        ids = range(start, start + len(some))
        c.insert_many([{"_id": number, **doc} for number, (doc, _, _) in zip(ids, some)])
        befores = {doc["_id"]: doc for doc in c.find({"_id": {"$gte": start}})}
        with c.watch(show_expanded_events=True, max_await_time_ms=200) as stream:
            updates = [{"q": {"_id": number}, "u": update, **({"arrayFilters": filters} if filters else {})}
                       for number, (_, update, filters) in zip(ids, some)]
            # A statement that cannot be read fails the command: each is one of its own.
            for update in updates:
                client[database].command("update", "c", updates=[update], check=False)
            c.insert_one({"_id": "end%d" % start})
            events = {}
            for event in stream:
                if event["operationType"] == "insert":
                    break
                assert event["documentKey"]["_id"] not in events, event
                events[event["documentKey"]["_id"]] = event
        afters = {doc["_id"]: doc for doc in c.find({"_id": {"$gte": start}})}
        results += [(befores[number], afters[number], events.get(number)) for number in ids]
    return results


def ordered(node):
    """A value in which the order of fields counts, for Python's dictionaries do not compare it."""
    if isinstance(node, dict):
        return ("doc", [(name, ordered(inner)) for name, inner in node.items()])
    if isinstance(node, list):
        return ("array", [ordered(inner) for inner in node])
    return (type(node).__name__, node)


def essence(event):
    """The parts of an event that must be the same on two servers."""
    if event is None:
        return None
    return {name: event.get(name) for name in ("operationType", "updateDescription", "fullDocument")}


def check(before, after, event):
    """Asserts that an event makes the document after of the one before."""
    if event is None:
        assert ordered(before) == ordered(after), (before, after)
    elif event["operationType"] == "replace":
        assert ordered(event["fullDocument"]) == ordered(after), event
    else:
        assert event["operationType"] == "update", event
        made = described(before, event["updateDescription"])
        assert made == after, (before, event["updateDescription"], made, after)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("uris", nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--record")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    cases = [case(rng) for _ in range(args.count)]
    clients = [pymongo.MongoClient(uri, directConnection=True) for uri in args.uris]
    sides = [told(client, cases) for client in clients]
    differences, changed = 0, 0
    for number, (doc, update, filters) in enumerate(cases):
        changed += sides[0][number][2] is not None
        for side in sides:
            try:
                check(*side[number])
            except (AssertionError, KeyError, IndexError, TypeError, ValueError) as error:
                differences += 1
                print("case %d of seed %d on %s: %r\n  %s\n  %s" % (number, args.seed, args.uris[sides.index(side)], error, doc, update))
        for side in sides[1:]:
            same = (ordered(side[number][1]) == ordered(sides[0][number][1])
                    and ordered(essence(side[number][2])) == ordered(essence(sides[0][number][2])))
            if not same:
                differences += 1
                print("case %d of seed %d differs\n  document %s\n  update %s %s" % (number, args.seed, doc, update, filters))
                for one in (sides[0], side):
                    print("    after %s\n    told %s" % (one[number][1], essence(one[number][2])))
    if args.record:
        lines = [json_util.dumps({"doc": doc, "update": update, "filters": filters, "told": essence(sides[0][number][2])},
                                 ensure_ascii=False, json_options=json_util.CANONICAL_JSON_OPTIONS)
                 for number, (doc, update, filters) in enumerate(cases)]
        with open(args.record, "w", encoding="utf-8") as out:
            out.write("[\n" + ",\n".join(lines) + "\n]\n")
    print("%d cases, %d changed something, %d differences" % (len(cases), changed, differences))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
