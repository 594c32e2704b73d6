"""Compares random sequences of transactions on two servers, such as a mongod and Marula, both as replica sets of one node.

Three sessions and a client outside of them read and write two small collections, one statement at a time; what would wait is
given little time. Whatever the replies tell but for times must be the same on both.

    python tests/compare_transactions.py 27017 27018 --seed 1 --count 500 [--verbose]
"""
import argparse
import random
import uuid

from bson import Binary, Int64
from raw import Raw

SESSIONS = 3
PATIENCE_MS = 120
OWN_TO_A_SERVER = {"$clusterTime", "operationTime", "electionId", "opTime", "retriedStmtIds", "note", "commitQuorum",
                   "writeConcernError"}


def statement(rng):
    """A random command on one of the collections."""
    name = rng.choice("ccd")
    document = {"_id": rng.randrange(6), "u": rng.randrange(4), "a": rng.choice([1, 2, [1, 2], "x"])}
    query = rng.choice([{"_id": rng.randrange(6)}, {"u": rng.randrange(4)}, {"a": rng.choice([1, 2, "x"])},
                        {"u": {"$gte": rng.randrange(4)}}, {}])
    change = rng.choice([{"$set": {"u": rng.randrange(4)}}, {"$set": {"a": rng.choice([1, "x"])}}, {"$inc": {"n": 1}},
                         {"$unset": {"u": 1}}, {"$set": {"z": 1}}, {"$push": {"l": 1}}])
    join = {"$lookup": {"from": "d", "localField": "u", "foreignField": "_id", "as": "j"}}
    return rng.choice([
        {"find": name, "filter": query, "sort": {"_id": 1}},
        {"find": name, "filter": {}, "sort": {"_id": 1}, "batchSize": 2},
        {"find": name, "filter": {"u": {"$gte": 0}}, "hint": "u_1", "sort": {"u": 1}},
        {"insert": name, "documents": [document]},
        {"insert": name, "documents": [document, {"_id": rng.randrange(10, 14)}], "ordered": rng.random() < 0.5},
        {"update": name, "updates": [{"q": query, "u": change}]},
        {"update": name, "updates": [{"q": query, "u": change, "multi": True}]},
        {"update": name, "updates": [{"q": {"_id": rng.randrange(8)}, "u": change, "upsert": True}]},
        {"delete": name, "deletes": [{"q": query, "limit": rng.randrange(2)}]},
        {"findAndModify": name, "query": query, "sort": {"_id": 1}, "update": change, "new": rng.random() < 0.5},
        {"findAndModify": name, "query": query, "sort": {"_id": 1}, "remove": True},
        {"aggregate": name, "pipeline": [{"$match": query}, {"$sort": {"_id": 1}}, join], "cursor": {}},
        {"aggregate": name, "pipeline": [{"$match": query}, {"$count": "n"}], "cursor": {}},
        {"distinct": name, "key": "u", "query": query},
        {"create": rng.choice("efc")},
        {"createIndexes": rng.choice("efgc"), "indexes": [{"key": {"q": 1}, "name": "q_1"}]},
    ])


def sequence(rng):
    """Steps: a session, or none; a command, or the name of an end; whether a transaction starts, and at which level."""
    steps = []
    for _ in range(rng.randrange(6, 26)):
        session, command = rng.randrange(SESSIONS), statement(rng)
        if rng.random() < 0.35:
            # A change of the catalogue waits for transactions: it would only take time.
            if not {"create", "createIndexes"} & set(command):
                steps.append((None, {**command, "maxTimeMS": PATIENCE_MS}, False, None))
        elif rng.random() < 0.15:
            steps.append((session, rng.choice(["commitTransaction", "abortTransaction"]), False, None))
        else:
            steps.append((session, command, rng.random() < 0.25, rng.choice([None, None, "snapshot", "majority", "local"])))
    ends = [(session, rng.choice(["commitTransaction", "abortTransaction"]), False, None) for session in range(SESSIONS)]
    ends += [(session, "abortTransaction", False, None) for session in range(SESSIONS)]
    reads = [(None, {"find": name, "sort": {"_id": 1}}, False, None) for name in "cdef"]
    return steps + ends + reads + [(None, {"validate": "c", "maxTimeMS": 3000}, False, None)]


def told(reply):
    """The parts of a reply that must be the same."""
    if reply["ok"] != 1:
        return "error", reply["code"], sorted(reply.get("errorLabels", []))
    if "keysPerIndex" in reply:
        return reply["valid"], reply["nrecords"], reply["keysPerIndex"]
    if "cursor" in reply:
        cursor = reply["cursor"]
        return cursor.get("firstBatch", cursor.get("nextBatch")), cursor["id"] != 0
    reply = {name: value for name, value in reply.items() if name not in OWN_TO_A_SERVER}
    if "writeErrors" in reply:
        reply["writeErrors"] = [(error["index"], error["code"]) for error in reply["writeErrors"]]
    if "values" in reply:
        reply["values"] = sorted(map(str, reply["values"]))
    return reply


def prepare(raw):
    raw.command("admin", killAllSessions=[])
    for name in "cdefg":
        raw.command("compared", drop=name)
    raw.command("compared", insert="c", documents=[{"_id": n, "u": n, "a": n % 3} for n in range(4)])
    raw.command("compared", insert="d", documents=[{"_id": n, "u": n} for n in range(3)])
    unique = {"key": {"u": 1}, "name": "u_1", "unique": True, "sparse": True}
    raw.command("compared", createIndexes="c", indexes=[unique, {"key": {"a": 1}, "name": "a_1"}])
    raw.command("compared", createIndexes="d", indexes=[{"key": {"u": 1}, "name": "u_1"}])


def run(port, steps):
    """Returns a server's replies."""
    replies = []
    with Raw(port, timeout=20) as raw:
        prepare(raw)
        lsids = [{"id": Binary(uuid.uuid4().bytes, 4)} for _ in range(SESSIONS)]
        numbers, is_open = [0] * SESSIONS, [False] * SESSIONS
        for session, command, begins, level in steps:
            if session is None:
                replies.append(told(raw.command("compared", **command)))
                continue
            if isinstance(command, dict) and (begins or not is_open[session]):
                numbers[session] += 1
                command = {**command, "startTransaction": True, **({"readConcern": {"level": level}} if level else {})}
            inside = {"lsid": lsids[session], "txnNumber": Int64(max(numbers[session], 1)), "autocommit": False}
            is_open[session] = isinstance(command, dict)
            if isinstance(command, str):
                replies.append(told(raw.command("admin", **{command: 1}, **inside)))
                continue
            reply = raw.command("compared", **command, **inside)
            replies.append(told(reply))
            if "batchSize" in command and reply["ok"] == 1 and reply["cursor"]["id"]:
                more = raw.command("compared", getMore=reply["cursor"]["id"], collection=command["find"], **inside)
                replies.append(told(more))
    return replies


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ports", type=int, nargs=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    different = 0
    for seed in range(args.seed, args.seed + args.count):
        steps = sequence(random.Random(seed))
        try:
            first, second = (run(port, steps) for port in args.ports)
        except TimeoutError:
            print("seed %d: a server gave no answer" % seed)
            continue
        if first != second:
            different += 1
            place = next(place for place, pair in enumerate(zip(first, second)) if pair[0] != pair[1])
            print("seed %d, reply %d:\n  %s\n  %s" % (seed, place, str(first[place])[:300], str(second[place])[:300]))
            if args.verbose:
                [print("   ", step) for step in steps]
    print("%d sequences, %d of them different" % (args.count, different))


if __name__ == "__main__":
    main()
