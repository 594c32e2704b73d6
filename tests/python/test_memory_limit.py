"""--memory-limit bounds what sorts, groups, replies and other work hold together: they use the disk, are smaller, or are refused."""
import concurrent.futures
import contextlib

import pymongo
import pytest
import raw
import server
from pymongo.errors import OperationFailure

pytestmark = [pytest.mark.skipif(server.is_mongod(), reason="mongod has no such option"), pytest.mark.embedded]

LIMIT_MB = 512
COUNT = 60_000
# Together they would hold some 700 MB, each less than its own limit of 100 MB.
CLIENTS = 10
GROUP = {"$group": {"_id": "$a", "s": {"$push": "$s"}}}
SUM = {"$group": {"_id": None, "n": {"$sum": 1}, "sum": {"$sum": "$_id"}}}

WINDOW = {"$setWindowFields": {"sortBy": {"a": 1}, "output": {"r": {"$documentNumber": {}}}}}
LAST = {"$group": {"_id": None, "n": {"$sum": 1}, "s": {"$last": "$s"}}}


@pytest.fixture(scope="module")
def small():
    with server.Server("--memory-limit", "%dMB" % LIMIT_MB) as own, pymongo.MongoClient(own.uri) as client:
        documents = ({"_id": i, "a": i * 7919 % COUNT, "s": "%d" % i * 200} for i in range(COUNT))
        client.t.c.insert_many(documents)
        yield own, client


def highest_mb(own):
    """The most memory that the process has had."""
    with open("/proc/%d/status" % own.process.pid) as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) >> 10


def at_once(run):
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        return [done.result() for done in [pool.submit(run) for _ in range(CLIENTS)]]


def test_sorts_go_to_the_disk_when_the_server_is_short(small):
    own, client = small

    def run():
        # Replies are not a sort's: small ones.
        return [d["a"] for d in client.t.c.find({}, {"a": 1, "s": 1}).sort("a", 1).batch_size(500)]

    assert at_once(run) == [list(range(COUNT))] * CLIENTS
    assert highest_mb(own) < LIMIT_MB


def test_batches_are_small_when_the_server_is_short(small):
    own, _ = small
    find = {"find": "c", "projection": {"s": 1}, "batchSize": COUNT}
    # Nobody reads these replies yet: with 16 MB each they would be as large as the limit.
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(raw.Raw(own.port)) for _ in range(LIMIT_MB // 16)]
        [connection.send({**find, "$db": "t"}) for connection in slow]
        cursors = [connection.reply()["cursor"] for connection in slow]
        counts = []
        for connection, cursor in zip(slow, cursors):
            counts.append(len(cursor["firstBatch"]))
            ids = [document["_id"] for document in cursor["firstBatch"]]
            while cursor["id"]:
                cursor = connection.command("t", getMore=cursor["id"], collection="c", batchSize=COUNT)["cursor"]
                ids += [document["_id"] for document in cursor["nextBatch"]]
            assert ids == list(range(COUNT))
    assert min(counts) < max(counts)
    assert highest_mb(own) < LIMIT_MB


def test_groups_go_to_the_disk_when_the_server_is_short(small):
    own, client = small
    expected = [{"_id": None, "n": COUNT, "sum": COUNT * (COUNT - 1) // 2}]
    for pipeline in ([GROUP, SUM], [{"$bucketAuto": {"groupBy": "$a", "buckets": 1, "output": {"n": {"$sum": 1}, "sum": {"$sum": "$_id"}}}},
                                    {"$project": {"_id": None, "n": 1, "sum": 1}}]):
        assert at_once(lambda: list(client.t.c.aggregate(pipeline))) == [expected] * CLIENTS
    assert highest_mb(own) < LIMIT_MB


def test_stages_without_a_disk_are_refused_and_others_go_on(small):
    own, client = small
    # A cursor that holds much of what operations may hold: its partition, twice.
    held = [{"$match": {"_id": {"$lt": COUNT * 3 // 5}}}, WINDOW]
    holder = client.t.c.aggregate(held, batchSize=1)
    next(holder)
    for pipeline, options in [
        ([WINDOW, LAST], {}),
        ([{"$facet": {"all": [{"$match": {}}]}}], {}),
        ([{"$sort": {"a": 1}}, LAST], {"allowDiskUse": False}),
        ([GROUP, LAST], {"allowDiskUse": False}),
        ([{"$group": {"_id": None, "all": {"$push": "$s"}}}, {"$project": {"n": {"$size": "$all"}}}], {}),
    ]:
        with pytest.raises(OperationFailure) as refused:
            list(client.t.c.aggregate(pipeline, **options))
        assert refused.value.code == 146, pipeline
        assert client.t.c.count_documents({"s": {"$regex": "^59999"}}) == 1
    # Those that use the disk go on.
    assert list(client.t.c.aggregate([{"$sort": {"a": 1}}, LAST]))[0]["n"] == COUNT
    assert list(client.t.c.aggregate([GROUP, SUM]))[0]["n"] == COUNT
    holder.close()
    assert list(client.t.c.aggregate([*held, LAST]))[0]["n"] == COUNT * 3 // 5
    assert highest_mb(own) < LIMIT_MB
