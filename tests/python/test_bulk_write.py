"""`bulkWrite`: several collections in one command, as MongoDB 8.0 has it; mongod 6.0 does not know it."""
import threading
import time

import pytest
import server
from bson import Binary, Int64
from pymongo.errors import OperationFailure
from raw import Raw

pytestmark = pytest.mark.skipif(server.is_mongod(), reason="a command of MongoDB 8.0")

SUMS = ("nErrors", "nInserted", "nMatched", "nModified", "nUpserted", "nDeleted")


def bulk(client, ops, names=("bulk.a", "bulk.b"), **options):
    return client.admin.command({"bulkWrite": 1, "ops": ops, "nsInfo": [{"ns": name} for name in names], **options})


def sums(reply):
    return tuple(reply[name] for name in SUMS)


@pytest.fixture(autouse=True)
def empty(client):
    client.admin.command("setFeatureCompatibilityVersion", "8.0", confirm=True)
    client.drop_database("bulk")
    yield
    client.drop_database("bulk")
    client.admin.command("setFeatureCompatibilityVersion", "6.0", confirm=True)


def test_operations_of_several_collections(client):
    reply = bulk(client, [
        {"insert": 0, "document": {"_id": 1, "n": 1}},
        {"insert": 0, "document": {"_id": 2, "n": 2}},
        {"insert": 1, "document": {"_id": 1}},
        {"update": 0, "filter": {"n": {"$gte": 1}}, "updateMods": {"$inc": {"n": 10}}, "multi": True},
        {"update": 0, "filter": {"_id": 2}, "updateMods": [{"$set": {"m": {"$add": ["$n", 1]}}}]},
        {"update": 1, "filter": {"_id": 7}, "updateMods": {"$set": {"x": 1}}, "upsert": True},
        {"delete": 1, "filter": {"_id": 1}},
        {"delete": 1, "filter": {"_id": 99}},
    ])
    assert sums(reply) == (0, 3, 3, 3, 1, 1)
    assert reply["cursor"]["id"] == 0 and reply["cursor"]["ns"] == "admin.$cmd.bulkWrite"
    assert reply["cursor"]["firstBatch"] == [
        {"ok": 1.0, "idx": 0, "n": 1},
        {"ok": 1.0, "idx": 1, "n": 1},
        {"ok": 1.0, "idx": 2, "n": 1},
        {"ok": 1.0, "idx": 3, "n": 2, "nModified": 2},
        {"ok": 1.0, "idx": 4, "n": 1, "nModified": 1},
        {"ok": 1.0, "idx": 5, "n": 1, "nModified": 0, "upserted": {"_id": 7}},
        {"ok": 1.0, "idx": 6, "n": 1},
        {"ok": 1.0, "idx": 7, "n": 0},
    ]
    assert list(client.bulk.a.find(sort=[("_id", 1)])) == [{"_id": 1, "n": 11}, {"_id": 2, "n": 12, "m": 13}]
    assert list(client.bulk.b.find()) == [{"_id": 7, "x": 1}]


@pytest.mark.parametrize("ordered, wanted, left", [(True, (1, 1, 0, 0, 0, 0), 1), (False, (1, 3, 1, 1, 0, 0), 3)])
def test_an_error_ends_an_ordered_list_only(client, ordered, wanted, left):
    reply = bulk(client, [
        {"insert": 0, "document": {"_id": 1}},
        {"insert": 0, "document": {"_id": 1}},
        {"insert": 0, "document": {"_id": 2}},
        {"insert": 0, "document": {"_id": 3}},
        {"update": 0, "filter": {"_id": 1}, "updateMods": {"$set": {"x": 1}}},
    ], ordered=ordered, errorsOnly=True)
    assert sums(reply) == wanted
    entry, = reply["cursor"]["firstBatch"]
    assert entry["ok"] == 0.0 and entry["idx"] == 1 and entry["code"] == 11000 and entry["n"] == 0
    assert entry["keyPattern"] == {"_id": 1} and entry["keyValue"] == {"_id": 1}
    assert client.bulk.a.count_documents({}) == left


def test_results_come_through_a_cursor(client):
    ops = [{"insert": n % 2, "document": {"_id": n}} for n in range(10)]
    reply = bulk(client, ops, cursor={"batchSize": 4})
    seen = reply["cursor"]["firstBatch"]
    assert len(seen) == 4 and reply["cursor"]["id"] != 0
    more = client.admin.command({"getMore": reply["cursor"]["id"], "collection": "$cmd.bulkWrite"})
    assert more["cursor"]["id"] == 0
    assert [entry["idx"] for entry in seen + more["cursor"]["nextBatch"]] == list(range(10))


def test_a_retry_is_not_done_again(client):
    command = {
        "ops": [
            {"insert": 0, "document": {"_id": 1}},
            {"insert": 1, "document": {"_id": 1, "n": 0}},
            {"update": 1, "filter": {"_id": 1}, "updateMods": {"$inc": {"n": 1}}},
            {"delete": 0, "filter": {"_id": 1}},
        ],
        "nsInfo": [{"ns": "bulk.a"}, {"ns": "bulk.b"}],
        "lsid": {"id": Binary(b"bulk write retry", 4)},
        "txnNumber": Int64(1),
    }
    with Raw(client.address[1]) as raw:
        first, again = (raw.command("admin", bulkWrite=1, **command) for _ in range(2))
    assert sums(first) == sums(again) == (0, 2, 1, 1, 0, 1)
    assert first["cursor"]["firstBatch"] == again["cursor"]["firstBatch"]
    assert again["retriedStmtIds"] == [0, 1, 2, 3] and "retriedStmtIds" not in first
    assert client.bulk.b.find_one() == {"_id": 1, "n": 1}


@pytest.mark.parametrize("ops, code", [
    ([], 16),
    ([{"insert": 2, "document": {}}], 2),
    ([{"insert": -1, "document": {}}], 2),
    ([{"insert": 0}], 40414),
    ([{"insert": 0, "document": {}, "upsert": True}], 40415),
    ([{"replace": 0, "document": {}}], 9),
    ([{"update": 0, "filter": {}, "updateMods": 1}], 9),
    ([{"delete": 0, "filter": 1}], 14),
])
def test_what_is_malformed_fails_before_anything_is_written(client, ops, code):
    with pytest.raises(OperationFailure) as failed:
        bulk(client, [{"insert": 0, "document": {"_id": 0}}] * bool(ops) + ops)
    assert failed.value.code == code
    assert client.bulk.list_collection_names() == []


def test_only_on_admin(client):
    with pytest.raises(OperationFailure) as failed:
        client.bulk.command({"bulkWrite": 1, "ops": [{"insert": 0, "document": {}}], "nsInfo": [{"ns": "bulk.a"}]})
    assert failed.value.code == 13


@pytest.mark.parametrize("operation, wanted", [
    ({"insert": 0, "document": {"_id": 2}}, (0, 1, 0, 0, 0, 0)),
    ({"update": 0, "filter": {"_id": 1}, "updateMods": {"$inc": {"n": 1}}}, (0, 0, 1, 1, 0, 0)),
    ({"delete": 0, "filter": {"_id": 1}}, (0, 0, 0, 0, 0, 1)),
])
def test_an_operation_waits_for_the_document_of_a_transaction(client, operation, wanted):
    client.bulk.a.insert_one({"_id": 1, "n": 1})
    done = []
    with client.start_session() as session:
        session.start_transaction()
        client.bulk.a.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        client.bulk.a.insert_one({"_id": 2}, session=session)
        waiting = threading.Thread(target=lambda: done.append(bulk(client, [operation])))
        waiting.start()
        deadline = time.monotonic() + 10
        while not list(client.admin.aggregate([{"$currentOp": {}}, {"$match": {"command.bulkWrite": 1}}])):
            assert waiting.is_alive() and time.monotonic() < deadline, done
            time.sleep(0.01)
        session.abort_transaction()
    waiting.join()
    assert sums(done[0]) == wanted
