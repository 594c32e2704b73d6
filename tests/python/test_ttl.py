"""Time to live: documents go once their date has passed, within a pass of the monitor."""
import datetime
import time

import pymongo
import pytest
import server

# The clock of the servers is that of the tests.
NOW = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
OLD, NEW = NOW - datetime.timedelta(hours=1), NOW + datetime.timedelta(hours=1)


@pytest.fixture(scope="module")
def quick():
    """A server whose monitor makes a pass every second."""
    with server.Server("--setParameter", "ttlMonitorSleepSecs=1") as own:
        with pymongo.MongoClient(own.uri) as client:
            yield client


def passes(client):
    return client.admin.command("serverStatus")["metrics"]["ttl"]["passes"]


def wait_for_passes(client, count=2):
    """Waits until a whole pass has been made since the call: the one that runs may have begun before it."""
    until = passes(client) + count
    for _ in range(200):
        if passes(client) >= until:
            return
        time.sleep(0.1)
    raise AssertionError("the monitor makes no passes")


def test_what_has_expired_goes(quick):
    db = quick.ttl
    docs = [{"_id": 1, "d": OLD}, {"_id": 2, "d": NEW}, {"_id": 3, "d": "x"}, {"_id": 4}, {"_id": 5, "d": [NEW, OLD]}]
    db.plain.create_index("d", expireAfterSeconds=0)
    db.partial.create_index("d", expireAfterSeconds=0, partialFilterExpression={"_id": {"$gt": 4}})
    db.later.create_index("d", expireAfterSeconds=7200)
    for c in (db.plain, db.partial, db.later):
        c.insert_many(docs)
    db.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True}, expireAfterSeconds=0)
    db.clustered.insert_many([{"_id": OLD}, {"_id": NEW}, {"_id": 1}])
    before = quick.admin.command("serverStatus")["metrics"]
    wait_for_passes(quick)
    assert [d["_id"] for d in db.plain.find()] == [2, 3, 4]
    assert [d["_id"] for d in db.partial.find()] == [1, 2, 3, 4]
    assert db.later.count_documents({}) == 5
    assert db.clustered.count_documents({}) == 2
    after = quick.admin.command("serverStatus")["metrics"]
    assert after["ttl"]["deletedDocuments"] - before["ttl"]["deletedDocuments"] <= 4
    # They are not counted as a client's deletions.
    assert after["document"]["deleted"] == before["document"]["deleted"]
    for name in ("plain", "partial", "clustered"):
        assert db.command("validate", name, full=True)["valid"]

    db.command("collMod", "later", index={"keyPattern": {"d": 1}, "expireAfterSeconds": 60})
    wait_for_passes(quick)
    assert [d["_id"] for d in db.later.find()] == [2, 3, 4]


def test_the_monitor_can_be_stopped(quick):
    quick.admin.command("setParameter", 1, ttlMonitorEnabled=False)
    try:
        time.sleep(1.5)
        made = passes(quick)
        quick.ttl.stopped.create_index("d", expireAfterSeconds=0)
        quick.ttl.stopped.insert_one({"d": OLD})
        time.sleep(2.5)
        assert passes(quick) == made
        assert quick.ttl.stopped.count_documents({}) == 1
    finally:
        quick.admin.command("setParameter", 1, ttlMonitorEnabled=True)
    wait_for_passes(quick)
    assert quick.ttl.stopped.count_documents({}) == 0


def test_the_time_of_a_clustered_collection_is_changed(quick):
    db = quick.ttl
    db.create_collection("moved", clusteredIndex={"key": {"_id": 1}, "unique": True}, expireAfterSeconds=10)
    for given, kept in ((7, 7), ("off", None), (2.7, 2), (float("nan"), 0), ("off", None)):
        db.command("collMod", "moved", expireAfterSeconds=given)
        assert db.moved.options().get("expireAfterSeconds") == kept
    for given in ("7", -1, 1e12):
        with pytest.raises(pymongo.errors.OperationFailure) as error:
            db.command("collMod", "moved", expireAfterSeconds=given)
        assert error.value.code == 72
    with pytest.raises(pymongo.errors.OperationFailure) as error:
        db.create_collection("capped", capped=True, size=4096).create_index("d", expireAfterSeconds=1)
    assert error.value.code == 67
