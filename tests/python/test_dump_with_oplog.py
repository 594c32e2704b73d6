"""The steps of `mongodump --oplog` under load and of `mongorestore --oplogReplay`: the copy is equal to the original.

The steps are those of the tools (100.x): collections are read one after the other while others write, then the oplog from
the start to the end of that; collections and indexes are made again, and each entry is applied, those of a transaction together.
"""
import collections
import random
import threading

import pymongo
import pytest
import server
from bson import Timestamp

DOCUMENTS, WRITERS = 3_000, 4
NAMES = ("a", "b", "c")


@pytest.fixture
def two():
    with server.Server("--replSet", "rs0") as source, server.Server("--replSet", "rs0") as target:
        clients = []
        for one in (source, target):
            with pymongo.MongoClient(one.uri) as client:
                member = {"_id": 0, "host": "127.0.0.1:%d" % one.port}
                client.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})
                while not client.admin.command("hello")["isWritablePrimary"]:
                    pass
            clients.append(pymongo.MongoClient(one.uri))
        yield clients
        for client in clients:
            client.close()


class Writer(threading.Thread):
    """Changes documents of all collections by every kind of write, and the collections too, until it is stopped."""

    def __init__(self, client, number):
        super().__init__(daemon=True)
        self.client, self.number, self.rng = client, number, random.Random(number)
        self.stop, self.count, self.failure = threading.Event(), 0, None

    def run(self):
        try:
            while not self.stop.is_set():
                self.write(self.client.load, self.client.load[self.rng.choice(NAMES)])
                self.count += 1
        except Exception as failure:
            self.failure = failure

    def write(self, db, c):
        rng = self.rng
        key = {"_id": rng.randrange(DOCUMENTS)}
        kind = rng.randrange(9)
        if kind == 0:
            c.insert_one({"_id": "%d-%d" % (self.number, self.count), "n": self.count})
        elif kind == 1:
            c.delete_one(key)
        elif kind == 2:
            c.update_one(key, {"$inc": {"n": 1}, "$push": {"list": {"$each": [rng.random()], "$slice": -5}}}, upsert=True)
        elif kind == 3:
            c.update_one(key, [{"$set": {"twice": {"$multiply": ["$n", 2]}, "list": {"$slice": ["$list", 2]}}}])
        elif kind == 4:
            c.replace_one(key, {"n": self.count, "new": True}, upsert=True)
        elif kind == 5:
            c.update_many({"n": {"$mod": [997, rng.randrange(997)]}}, {"$unset": {"list": 1}, "$set": {"marked": self.number}})
        elif kind == 6 and self.count % 20 == 0:
            name = "made_%d_%d" % (self.number, self.count)
            db.create_collection(name, collation={"locale": "en", "strength": 2})
            db[name].create_index("x", unique=True)
            db[name].insert_many([{"x": n} for n in range(3)])
        else:
            with self.client.start_session() as session:
                session.with_transaction(lambda session: self.transact(db, session))

    def transact(self, db, session):
        key = self.rng.randrange(DOCUMENTS)
        db.a.update_one({"_id": key}, {"$inc": {"balance": -1}}, upsert=True, session=session)
        db.b.update_one({"_id": key}, {"$inc": {"balance": 1}}, upsert=True, session=session)
        db.c.delete_one({"_id": self.rng.randrange(DOCUMENTS)}, session=session)


def newest(client):
    return client.local["oplog.rs"].find_one(sort=[("$natural", -1)])["ts"]


def dump(client, stop):
    """Collections, read during the writes, and the entries of the oplog since before that."""
    start = newest(client)
    copies = {}
    for info in client.load.list_collections():
        c = client.load[info["name"]]
        copies[info["name"]] = (info["options"], list(c.list_indexes()), list(c.find(hint="_id_", batch_size=100)))
    stop()
    end = newest(client)
    assert client.local["oplog.rs"].find_one(sort=[("$natural", 1)])["ts"] <= start, "the oplog was trimmed meanwhile"
    entries = list(client.local["oplog.rs"].find({"ts": {"$gte": start, "$lte": end}}))
    assert entries[0]["ts"] == start and entries[-1]["ts"] == end
    return copies, entries


def restore(client, copies, entries):
    for name, (options, indexes, documents) in copies.items():
        client.load.command("create", name, **options)
        if documents:
            client.load[name].insert_many(documents)
        build(client, name, indexes)
    parts = collections.defaultdict(list)
    for entry in entries:
        if entry["op"] == "n" or not entry["ns"].startswith(("load.", "admin.$cmd")):
            continue
        if entry["op"] == "c" and "applyOps" in entry["o"]:
            # A transaction: of several entries the last one is without `partialTxn`.
            number = (str(entry.get("lsid")), entry.get("txnNumber"))
            parts[number] += entry["o"]["applyOps"]
            if not entry["o"].get("partialTxn"):
                for operation in parts.pop(number):
                    apply(client, operation)
        else:
            apply(client, entry)
    assert not parts


def build(client, name, indexes):
    specs = [{field: spec[field] for field in spec if field != "ns"} for spec in indexes if spec["name"] != "_id_"]
    if specs:
        client.load.command("createIndexes", name, indexes=specs)


def apply(client, entry):
    o = dict(entry["o"])
    if entry["op"] == "c" and "createIndexes" in o:
        build(client, o.pop("createIndexes"), [o])
    elif entry["op"] == "c" and "commitIndexBuild" in o:
        build(client, o["commitIndexBuild"], o["indexes"])
    elif entry["op"] == "c" and "startIndexBuild" in o:
        pass
    else:
        fields = {name: entry[name] for name in ("op", "ns", "o", "o2") if name in entry}
        if "create" in o:
            o.pop("idIndex", None)
            fields["o"] = o
        client.admin.command("applyOps", [fields])


def test_a_dump_with_its_oplog_is_the_original(two):
    source, target = two
    for name in NAMES:
        source.load[name].create_index([("n", 1), ("list", 1)])
        source.load[name].insert_many([{"_id": n, "n": n, "list": [n, n + 1]} for n in range(DOCUMENTS)])
    writers = [Writer(source, number) for number in range(1, WRITERS + 1)]
    for writer in writers:
        writer.start()
    while min(writer.count for writer in writers) < 20 and not any(writer.failure for writer in writers):
        pass

    def stop():
        for writer in writers:
            writer.stop.set()
        for writer in writers:
            writer.join(60)
            assert writer.failure is None, writer.failure

    copies, entries = dump(source, stop)
    assert len(entries) > 50 and entries[0]["ts"] > Timestamp(0, 0)
    restore(target, copies, entries)
    hashes = [client.load.command("dbHash")["collections"] for client in two]
    assert hashes[0] == hashes[1]
    for name in source.load.list_collection_names():
        infos = [client.load[name].index_information() for client in two]
        assert infos[0] == infos[1], name
        assert target.load.command("validate", name)["valid"]
