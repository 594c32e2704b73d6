"""Limits: large documents, large batches, many connections, compressed messages, deep nesting."""
import concurrent.futures
import socket
import struct

import bson
import pymongo
import pytest
from pymongo.errors import DocumentTooLarge, OperationFailure, WriteError

MAX = 16 * 1024 * 1024


def sized(total, _id=1):
    """A document whose BSON has exactly this many bytes."""
    empty = len(bson.encode({"_id": _id, "t": ""}))
    return {"_id": _id, "t": "x" * (total - empty)}


def test_a_document_of_exactly_16_megabytes(c):
    c.insert_one(sized(MAX))
    assert len(bson.encode(c.find_one())) == MAX
    with pytest.raises((DocumentTooLarge, WriteError)):
        c.insert_one(sized(MAX + 1, 2))
    with pytest.raises(WriteError) as error:
        c.update_one({"_id": 1}, {"$set": {"more": 1}})
    assert error.value.code in (17419, 17420)


def test_documents_between_stages_may_be_larger(c):
    """Only what leaves a pipeline must fit 16 MB."""
    c.insert_many([{"_id": i, "k": 1, "s": "x" * 1_000_000} for i in range(18)])
    one = c.database["one"]
    one.insert_one({"_id": 1, "k": 1})
    group = {"$group": {"_id": "all", "all": {"$push": "$s"}}}
    count = {"$project": {"_id": 0, "n": {"$size": "$all"}}}
    join = {"from": c.name, "as": "all"}
    for collection, stages in [
        (c, [group]),
        (c, [group, {"$addFields": {"again": "$all"}}, {"$sort": {"_id": 1}}]),
        (c, [group, {"$group": {"_id": None, "all": {"$first": "$all"}}}]),
        (c, [{"$facet": {"all": [{"$match": {"k": 1}}]}}]),
        (c, [{"$setWindowFields": {"output": {"all": {"$push": "$s"}}}}, {"$limit": 1}]),
        (one, [{"$lookup": {**join, "localField": "k", "foreignField": "k"}}]),
        (one, [{"$lookup": {**join, "pipeline": []}}]),
        (one, [{"$graphLookup": {**join, "startWith": "$k", "connectFromField": "x", "connectToField": "k"}}]),
    ]:
        assert list(collection.aggregate([*stages, count])) == [{"n": 18}]
        with pytest.raises(OperationFailure) as error:
            collection.aggregate(stages)
        assert error.value.code == 10334 and "First element: " in str(error.value)
    assert len(list(c.aggregate([group, {"$unwind": "$all"}]))) == 18
    for write in [{"$out": "written"}, {"$merge": "written"}]:
        with pytest.raises(OperationFailure) as error:
            c.aggregate([group, write])
        assert error.value.code == 10334
    assert c.database["written"].count_documents({}) == 0


def test_a_batch_of_100_000(c):
    documents = [{"_id": i} for i in range(100_000)]
    reply = c.database.command("insert", "c", documents=documents, ordered=False)
    assert reply["n"] == 100_000 and c.count_documents({}) == 100_000
    with pytest.raises(OperationFailure) as error:
        c.database.command("insert", "c", documents=[{"a": i} for i in range(100_001)])
    assert error.value.code == 16
    deletes = [{"q": {"_id": i}, "limit": 1} for i in range(100_000)]
    assert c.database.command("delete", "c", deletes=deletes)["n"] == 100_000


@pytest.mark.parametrize("value", [7, [7, 8]])
def test_thousands_of_conditions_on_an_indexed_field(c, value):
    """With and without arrays: planning them takes no more than their number."""
    c.insert_many([{"x": value}, {"x": 1}])
    c.create_index("x")
    assert c.count_documents({"x": {"$all": list(range(5000))}}) == 0
    assert c.count_documents({"$and": [{"x": {"$ne": n + 100}} for n in range(5000)]}) == 2
    assert c.count_documents({"$and": [{"x": {"$gt": -n}} for n in range(5000)]}, maxTimeMS=60_000) == 2


def test_a_thousand_stages(db, c):
    c.insert_one({"x": 1})
    assert len(list(c.aggregate([{"$match": {"x": 1}}] * 1000))) == 1
    with pytest.raises(OperationFailure, match="Pipeline length must be no longer than 1000 stages") as error:
        c.aggregate([{"$match": {"x": 1}}] * 1001)
    assert error.value.code == 9


def test_nesting(c):
    def nest(depth):
        doc = {}
        for _ in range(depth):
            doc = {"a": doc}
        return doc

    c.insert_one(nest(100))
    # What is empty adds no part to its path, of which there are 180.
    c.insert_one(nest(180))
    for depth in (181, 250):
        with pytest.raises((WriteError, OperationFailure)):
            c.insert_one(nest(depth))
    assert c.count_documents({}) == 2


@pytest.mark.parametrize("parts, told", [
    (180, None), (181, "Document exceeds maximum nesting depth of 180"), (200, "Document exceeds maximum nesting depth of 180"),
    (201, "cannot convert document to BSON because it exceeds the limit of 200 levels of nesting"),
])
def test_what_a_pipeline_nests(c, parts, told):
    stages = [{"$set": {".".join(["a"] * (parts - 2)): 1}}, {"$replaceWith": {"x": {"y": "$$ROOT"}}}]
    for write in (c.update_one, c.find_one_and_update):
        c.replace_one({"_id": 1}, {}, upsert=True)
        if told is None:
            write({"_id": 1}, stages)
            continue
        with pytest.raises(OperationFailure) as error:
            write({"_id": 1}, stages)
        assert error.value.code == 15 and told in str(error.value)


@pytest.mark.parametrize("target", [{"$out": "o"}, {"$merge": "o"}], ids=str)
@pytest.mark.parametrize("parts, code", [(180, None), (181, 15)])
def test_what_a_pipeline_stores_has_180_levels(db, target, parts, code):
    db.c.insert_one({"_id": 1})
    pipeline = [{"$set": {".".join(["a"] * parts): 1}}, target]
    if code is None:
        db.c.aggregate(pipeline)
    else:
        with pytest.raises(OperationFailure) as error:
            db.c.aggregate(pipeline)
        assert error.value.code == code


@pytest.mark.parametrize("compressor", ["snappy", "zlib", "zstd"])
def test_compressed_messages(uri, db, compressor):
    with pymongo.MongoClient(uri, compressors=compressor) as client:
        c = client[db.name].c
        documents = [{"_id": i, "t": "text " * 50} for i in range(2000)]
        c.insert_many(documents)
        assert list(c.find().sort("_id")) == documents
        assert client.admin.command("hello", compression=[compressor])["compression"] == [compressor]


def test_1024_connections_at_once(uri, c):
    host, port = uri.split("//")[1].split("/")[0].split(":")
    c.insert_one({"_id": 1, "n": 0})
    body = bson.encode({"find": "c", "filter": {"_id": 1}, "$db": c.database.name})
    message = struct.pack("<iiiiI", 21 + len(body), 7, 0, 2013, 0) + b"\0" + body
    sockets = [socket.create_connection((host, int(port)), timeout=30) for _ in range(1024)]
    try:
        for _ in range(3):
            for s in sockets:
                s.sendall(message)
            for s in sockets:
                size, _, to, op = struct.unpack("<iiii", receive(s, 16))
                reply = bson.decode(receive(s, size - 16)[5:])
                assert (to, op, reply["ok"], len(reply["cursor"]["firstBatch"])) == (7, 2013, 1.0, 1)
    finally:
        for s in sockets:
            s.close()


def receive(s, size):
    data = b""
    while len(data) < size:
        chunk = s.recv(size - len(data))
        assert chunk, "the server hung up"
        data += chunk
    return data


def test_many_threads_on_hot_documents_lose_nothing(uri, c):
    c.insert_many([{"_id": i, "n": 0, "l": []} for i in range(4)])
    with pymongo.MongoClient(uri, maxPoolSize=32) as client:
        hot = client[c.database.name].c

        def add(worker):
            for i in range(50):
                hot.update_one({"_id": i % 4}, {"$inc": {"n": 1}, "$push": {"l": worker}})

        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            list(pool.map(add, range(32)))
    documents = list(c.find())
    assert sum(d["n"] for d in documents) == 1600 == sum(len(d["l"]) for d in documents)


def test_a_unique_key_is_won_by_one_of_many(uri, c):
    c.create_index("k", unique=True)
    with pymongo.MongoClient(uri, maxPoolSize=16) as client:
        contested = client[c.database.name].c

        def take(worker):
            won = 0
            for k in range(50):
                try:
                    contested.insert_one({"k": k, "by": worker})
                    won += 1
                except pymongo.errors.DuplicateKeyError:
                    pass
            return won

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            assert sum(pool.map(take, range(16))) == 50
    assert sorted(d["k"] for d in c.find()) == list(range(50))
