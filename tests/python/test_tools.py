"""The messages of MongoDB's command line tools, sent again as they were recorded: each reply has the form of mongod's.

`tests/tools/` holds the conversations; its README says how they are written. They run against one server, in an order in
which each finds what it needs: what one tool dumps or exports was made by the test, what another restores it made itself.
"""
import datetime
import glob
import json
import os
import struct
import uuid

import bson
import pymongo
import pytest
import server
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp, json_util
from raw import Raw

FOLDER = os.path.join(server.ROOT, "tests", "tools")

# Every conversation, in the order in which they were held.
CONVERSATIONS = [
    "mongodump",
    "mongodump-archive-gzip",
    "mongodump-all-oplog",
    "mongodump-users",
    "mongorestore",
    "mongorestore-drop-preserve",
    "mongorestore-oplogReplay",
    "mongorestore-archive",
    "mongoexport",
    "mongoimport",
    "mongofiles",
    "mongostat",
    "mongotop",
]

NAMES = {bool: "bool", int: "int", Int64: "long", float: "double", str: "string", datetime.datetime: "date",
         ObjectId: "objectId", Timestamp: "timestamp", bytes: "binData", Binary: "binData", uuid.UUID: "binData",
         Decimal128: "decimal", Regex: "regex", Code: "javascript", MinKey: "minKey", MaxKey: "maxKey", type(None): "null"}


def form(value):
    """The form of a value: of a document its fields with theirs, of an array the different ones of its elements, of
    others the type."""
    if isinstance(value, dict):
        return {key: form(inner) for key, inner in value.items()}
    if isinstance(value, list):
        inner = {json.dumps(form(element), sort_keys=True) for element in value}
        return [json.loads(text) for text in sorted(inner)]
    return NAMES[type(value)]


def differences(expected, found, path=""):
    """Where a form is not the expected one: (path, expected, found)."""
    if expected == "…":
        return
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in list(expected) + [key for key in found if key not in expected]:
            inner = path + "." + key if path else key
            if key not in found:
                yield inner, "there", "missing"
            elif key not in expected:
                yield inner, "missing", "there"
            else:
                yield from differences(expected[key], found[key], inner)
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) == len(found) == 1:
            yield from differences(expected[0], found[0], path + "[]")
        elif expected != found:
            yield path, "%d forms" % len(expected), "%d forms" % len(found)
    elif expected != found:
        yield path, json.dumps(expected)[:200], json.dumps(found)[:200]


class Tool:
    """One connection of a tool: sends a recorded request and returns the reply."""

    def __init__(self, port):
        self.raw = Raw(port)

    def send(self, request, body):
        encoded = bson.encode(body)
        if "ns" in request:
            # OP_QUERY: flags, namespace, skip, return; the reply has 20 bytes in front of its
            # document.
            message = struct.pack("<i", 0) + request["ns"].encode() + b"\0" + struct.pack("<ii", 0, -1) + encoded
            opcode, skip = 2004, 20
        else:
            message, opcode, skip = struct.pack("<I", 0) + b"\0" + encoded, 2013, 5
            for name, documents in request.get("sequences", {}).items():
                section = name.encode() + b"\0" + b"".join(bson.encode(read(document)) for document in documents)
                message += b"\1" + struct.pack("<i", 4 + len(section)) + section
        self.raw.socket.sendall(struct.pack("<iiii", 16 + len(message), 1, 0, opcode) + message)
        return bson.decode(self.raw.receive()[skip:])


def read(recorded):
    """A recorded document as one to be sent."""
    return json_util.loads(json.dumps(recorded), json_options=json_util.CANONICAL_JSON_OPTIONS)


def replay(port, name):
    """Holds a conversation: yields each request, its expected form of reply and the reply."""
    with open(os.path.join(FOLDER, name + ".json"), encoding="utf-8") as file:
        conversation = json.load(file)
    connections, sessions, cluster_time, newest = {}, {}, None, None

    def session(number):
        return sessions.setdefault(number, {"id": Binary(uuid.uuid4().bytes, 4)})

    try:
        for connection, request, number, reply in conversation["exchanges"]:
            if connection not in connections:
                connections[connection] = Tool(port)
            request = conversation["requests"][request]
            body = read(request["body"])
            if number is not None:
                body["lsid"] = session(number)
            if "endSessions" in body:
                body["endSessions"] = [session(number) for number in body["endSessions"]]
            if body.pop("$clusterTime", None) and cluster_time:
                body["$clusterTime"] = cluster_time
            if body.get("find") == "oplog.rs" and body["filter"] and newest:
                body["filter"] = {"$and": [{"ts": {"$gte": newest}}, {"ts": {"$lte": newest}}]}
            found = connections[connection].send(request, body)
            if body.get("find") == "oplog.rs" and body["sort" if "sort" in body else "filter"] == {"$natural": -1}:
                newest = (found["cursor"]["firstBatch"] or [{}])[0].get("ts")
            cluster_time = found.get("$clusterTime", cluster_time)
            yield body, conversation["replies"][reply], found
    finally:
        for tool in connections.values():
            tool.raw.socket.close()


def make_shop(client):
    """The data that the tools dump and export: every kind of collection, and values of every kind."""
    shop = client.shop

    def document(n):
        return {"_id": n, "s": "x%d" % n, "l": Int64(n), "d": n / 3, "dec": Decimal128("1.2%d" % n), "b": Binary(b"ab", 5),
                "t": Timestamp(n + 1, 1), "dt": datetime.datetime(2020, 1, n + 1), "o": ObjectId(), "a": [1, {"z": None}],
                "r": Regex("^a", "i"), "mn": MinKey(), "mx": MaxKey(), "bo": True, "js": Code("function(){}")}

    shop.types.insert_many([document(n) for n in range(8)] + [{"_id": "other", "t": 1}])
    shop.types.create_index("s", unique=True)
    shop.types.create_index([("d", -1), ("l", 1)])
    shop.types.create_index("l", name="part", partialFilterExpression={"l": {"$gt": 5}})
    shop.create_collection("capped", capped=True, size=65536, max=100)
    shop.capped.insert_many([{"_id": n} for n in range(5)])
    shop.create_collection("valid", validator={"$jsonSchema": {"required": ["q"]}}, collation={"locale": "fr"})
    shop.valid.insert_one({"_id": 1, "q": 1})
    shop.create_collection("v", viewOn="types", pipeline=[{"$match": {"l": {"$gt": 3}}}])
    shop.create_collection("series", timeseries={"timeField": "at", "metaField": "who"})
    shop.series.insert_many([{"at": datetime.datetime(2020, 1, 1, 0, n), "who": "a", "v": n} for n in range(3)])


# Where Marula's reply has another form, and why: (conversation, a word of the request, path,
# expected, found). All but these are alike, and each of these is as it says here.
# docs/differences.md has them in words.
OWN_WAYS = [
    # Its own version, in addition to MongoDB's.
    ("*", "buildInfo", "marula", "missing", "there"),
    ("*", "serverStatus", "marula", "missing", "there"),
    # mongod's allocator.
    ("mongostat", "serverStatus", "tcmalloc", "there", "missing"),
    # The databases `local` and `config` hold nothing until something is written there.
    ("mongodump-all-oplog", "listCollections", "cursor.firstBatch", "2 forms", "0 forms"),
]


@pytest.fixture(scope="module")
def conversations():
    """Every conversation's differences, held in their order against one replica set of one member."""
    found = {}
    with server.Server("--replSet", "rs0") as own:
        with pymongo.MongoClient(own.uri, retryWrites=False) as client:
            member = {"_id": 0, "host": "127.0.0.1:%d" % own.port}
            client.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})
            while not client.admin.command("hello")["isWritablePrimary"]:
                pass
            make_shop(client)
            for name in CONVERSATIONS:
                if name == "mongodump-users":
                    client.shop.command("createRole", "clerk", privileges=[], roles=["read"])
                    client.shop.command("createUser", "ann", pwd="p", roles=["clerk", "readWrite"])
                found[name] = []
                for request, expected, reply in replay(own.port, name):
                    shown = {**form(reply), **({"code": reply["code"]} if "code" in reply else {})}
                    found[name] += [(request, *difference) for difference in differences(expected, shown)]
    return found


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_replies_have_mongods_form(conversations, name):
    own_ways = [] if server.is_mongod() else [way for way in OWN_WAYS if way[0] in ("*", name)]
    if server.keeps_no_folder():
        # A mongos, which a server over a distributed store is to clients, has a section more.
        own_ways.append(("*", "serverStatus", "sharding", "missing", "there"))
    used = set()
    for request, path, expected, found in conversations[name]:
        words = json.dumps(list(request.items())[:1], default=str)
        ways = [way for way in own_ways if way[1] in words and way[2:] == (path, expected, found)]
        assert ways, "%s: %s is %s, not %s" % (words, path, found, expected)
        used.update(ways)
    unused = [way for way in own_ways if way[0] == name and way not in used]
    assert not unused, "these are alike now: %s" % unused


def test_every_conversation_is_held():
    names = {os.path.basename(path)[:-len(".json")] for path in glob.glob(os.path.join(FOLDER, "*.json"))}
    assert names == set(CONVERSATIONS)
