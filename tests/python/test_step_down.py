"""A forced step down: for a time the only member of a set is a secondary, as in mongod."""
import threading
import time

import pymongo
import pytest
from bson import Binary, Decimal128, Int64
from raw import Raw

FORCED = {"replSetStepDown": 60, "force": True}
SECONDARY = {"$readPreference": {"mode": "secondaryPreferred"}}
LSID = {"id": Binary(b"steps-down-abcde", 4)}


@pytest.fixture
def raw(replica):
    with Raw(replica.port) as raw:
        raw.command("step", drop="c")
        raw.command("step", insert="c", documents=[{"_id": number} for number in range(5)])
        yield raw
        step_up(raw)


def step_up(raw):
    raw.command("admin", replSetFreeze=0)
    wait_for_primary(raw)


def wait_for_primary(raw):
    while not raw.command("admin", hello=1)["isWritablePrimary"]:
        time.sleep(0.01)


def answer(reply):
    return reply.get("code", 0), reply.get("errmsg")


def test_a_secondary_says_so(raw):
    before = raw.command("admin", hello=1)
    assert before["primary"] == before["me"] and "electionId" in before
    assert raw.command("admin", **FORCED)["ok"] == 1
    hello = raw.command("admin", hello=1)
    assert (hello["isWritablePrimary"], hello["secondary"]) == (False, True)
    assert "primary" not in hello and "electionId" not in hello and hello["me"] == before["me"]
    assert hello["topologyVersion"]["counter"] > before["topologyVersion"]["counter"]
    assert raw.command("admin", isMaster=1)["ismaster"] is False
    status = raw.command("admin", replSetGetStatus=1)
    member = status["members"][0]
    assert (status["myState"], member["state"], member["stateStr"]) == (2, 2, "SECONDARY")
    assert "electionTime" not in member
    repl = raw.command("admin", serverStatus=1)["repl"]
    assert (repl["isWritablePrimary"], repl["secondary"]) == (False, True)
    step_up(raw)
    status = raw.command("admin", replSetGetStatus=1)
    assert (status["myState"], status["members"][0]["stateStr"]) == (1, "PRIMARY")


NOT_PRIMARY = (10107, "not master")
NO_SECONDARY_OK = (13435, "not master and slaveOk=false")


@pytest.mark.parametrize("db, command, plain, preferring", [
    ("step", {"insert": "c", "documents": [{"_id": 9}]}, NOT_PRIMARY, NOT_PRIMARY),
    ("step", {"update": "c", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]}, NOT_PRIMARY, NOT_PRIMARY),
    ("step", {"delete": "c", "deletes": [{"q": {}, "limit": 0}]}, NOT_PRIMARY, NOT_PRIMARY),
    ("step", {"findAndModify": "c", "query": {}, "remove": True}, NOT_PRIMARY, NOT_PRIMARY),
    ("step", {"create": "d"}, NOT_PRIMARY, NOT_PRIMARY),
    ("step", {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]}, NOT_PRIMARY, NOT_PRIMARY),
    ("step", {"drop": "nothing"}, NOT_PRIMARY, NOT_PRIMARY),
    ("step", {"collMod": "c"}, NOT_PRIMARY, NOT_PRIMARY),
    ("step", {"dropDatabase": 1}, NOT_PRIMARY, NOT_PRIMARY),
    ("step", {"createUser": "u", "pwd": "p", "roles": []}, NOT_PRIMARY, NOT_PRIMARY),
    ("admin", {"renameCollection": "step.c", "to": "step.d"}, NOT_PRIMARY, NOT_PRIMARY),
    ("admin", {"setFeatureCompatibilityVersion": "6.0"}, NOT_PRIMARY, NOT_PRIMARY),
    ("admin", {"setDefaultRWConcern": 1, "defaultReadConcern": {"level": "local"}}, NOT_PRIMARY, NOT_PRIMARY),
    ("admin", {"applyOps": []}, NOT_PRIMARY, NOT_PRIMARY),
    ("admin", {"commitTransaction": 1}, NOT_PRIMARY, NOT_PRIMARY),
    ("step", {"insert": "c"}, (40414, None), (40414, None)),
    ("step", {"find": "c"}, NO_SECONDARY_OK, (0, None)),
    ("step", {"count": "c"}, NO_SECONDARY_OK, (0, None)),
    ("step", {"distinct": "c", "key": "_id"}, NO_SECONDARY_OK, (0, None)),
    ("step", {"aggregate": "c", "pipeline": [], "cursor": {}}, NO_SECONDARY_OK, (0, None)),
    ("step", {"explain": {"find": "c"}}, NO_SECONDARY_OK, (0, None)),
    ("step", {"validate": "c"}, NO_SECONDARY_OK, (0, None)),
    ("step", {"listCollections": 1}, NO_SECONDARY_OK, (0, None)),
    ("step", {"listIndexes": "c"}, NO_SECONDARY_OK, (0, None)),
    ("step", {"planCacheClear": "c"}, NO_SECONDARY_OK, (0, None)),
    ("step", {"usersInfo": 1}, NO_SECONDARY_OK, (0, None)),
    ("step", {"rolesInfo": 1}, NO_SECONDARY_OK, (0, None)),
    ("admin", {"listDatabases": 1}, NO_SECONDARY_OK, (0, None)),
    ("step", {"mapReduce": "c", "map": "function(){}", "reduce": "function(){}", "out": {"inline": 1}},
     NO_SECONDARY_OK, (0, None)),
    ("step", {"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}}, NO_SECONDARY_OK,
     (189, "PlanExecutor error during aggregation :: caused by :: No primary exists currently")),
    ("step", {"mapReduce": "c", "map": "function(){}", "reduce": "function(){}", "out": "d"}, NO_SECONDARY_OK,
     (189, "MapReduce internal error :: caused by :: No primary exists currently")),
    ("step", {"find": "c", "readConcern": {"level": "majority"}}, NO_SECONDARY_OK, (0, None)),
    ("step", {"find": "c", "readConcern": {"level": "linearizable"}}, NO_SECONDARY_OK,
     (10107, "cannot satisfy linearizable read concern on non-primary node")),
    ("step", {"collStats": "c"}, (0, None), (0, None)),
    ("step", {"dbStats": 1}, (0, None), (0, None)),
    ("step", {"dbHash": 1}, (0, None), (0, None)),
    ("admin", {"ping": 1}, (0, None), (0, None)),
    ("admin", {"endSessions": []}, (0, None), (0, None)),
    ("admin", {"replSetStepDown": 5, "force": True}, (10107, "not primary so can't step down"),
     (10107, "not primary so can't step down")),
    ("admin", {"replSetStepDown": 5}, (2, None), (2, None)),
    ("admin", {"replSetStepUp": 1}, (125, "Election failed."), (125, "Election failed.")),
], ids=lambda value: "-".join(map(str, value))[:40] if isinstance(value, dict) else "")
def test_what_a_secondary_executes(raw, db, command, plain, preferring):
    raw.command("admin", **FORCED)
    for more, wanted in [({}, plain), (SECONDARY, preferring)]:
        reply = raw.command(db, **command, **more)
        code, message = answer(reply)
        assert (code, message if wanted[1] else None) == wanted
        assert ("topologyVersion" in reply) == (code in (189, 10107, 13435))


def test_a_client_that_knows_hello_reads_its_words(raw, replica):
    raw.command("admin", **FORCED)
    with Raw(replica.port) as other:
        other.command("admin", hello=1, helloOk=True)
        assert other.command("step", insert="c", documents=[{}])["errmsg"] == "not primary"
        assert other.command("step", find="c")["errmsg"] == "not primary and secondaryOk=false"


def test_a_retryable_write_is_labelled(raw):
    raw.command("admin", **FORCED)
    reply = raw.command("step", insert="c", documents=[{}], lsid=LSID, txnNumber=Int64(1))
    assert reply["code"] == 10107 and reply["errorLabels"] == ["RetryableWriteError"]


def test_a_cursor_goes_on_and_a_transaction_does_not(raw):
    cursor = raw.command("step", find="c", batchSize=2)["cursor"]["id"]
    part = {"lsid": LSID, "txnNumber": Int64(2), "autocommit": False}
    assert raw.command("step", insert="c", documents=[{"_id": "part"}], startTransaction=True, **part)["ok"] == 1
    raw.command("admin", **FORCED)
    assert len(raw.command("step", getMore=Int64(cursor), collection="c")["cursor"]["nextBatch"]) == 3
    reply = raw.command("step", find="c", **part)
    assert reply["code"] == 10107 and reply["errorLabels"] == ["TransientTransactionError"]
    reply = raw.command("admin", commitTransaction=1, **part)
    assert reply["code"] == 10107 and reply["errorLabels"] == ["RetryableWriteError"]
    part["txnNumber"] = Int64(3)
    reply = raw.command("step", find="c", startTransaction=True, **part, **SECONDARY)
    assert reply["code"] == 10107 and reply["errorLabels"] == ["TransientTransactionError"]
    step_up(raw)
    part["txnNumber"] = Int64(2)
    assert raw.command("admin", commitTransaction=1, **part)["code"] in (225, 251)
    assert raw.command("step", count="c", query={"_id": "part"})["n"] == 0


def test_running_writes_end_and_reads_go_on(raw, replica):
    def run(replies, **command):
        with Raw(replica.port) as own:
            replies.append(own.command("step", **command))

    slow = {"$where": "sleep(300) || true"}
    function = {"body": "function() { sleep(300); return true; }", "args": [], "lang": "js"}
    writes, reads, pipelines = [], [], []
    threads = [
        threading.Thread(target=run, args=(writes,),
                         kwargs={"update": "c", "updates": [{"q": slow, "u": {"$set": {"a": 1}}, "multi": True}]}),
        threading.Thread(target=run, args=(reads,), kwargs={"find": "c", "filter": slow, **SECONDARY}),
        threading.Thread(target=run, args=(pipelines,),
                         kwargs={"aggregate": "c", "cursor": {},
                                 "pipeline": [{"$match": {"$expr": {"$function": function}}}, {"$out": "d"}]}),
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    assert raw.command("admin", **FORCED)["ok"] == 1
    # From here on nothing is written.
    written = raw.command("step", find="c", **SECONDARY)["cursor"]["firstBatch"]
    for thread in threads:
        thread.join()
    assert raw.command("step", find="c", **SECONDARY)["cursor"]["firstBatch"] == written
    assert writes[0]["code"] in (10107, 11602)
    assert reads[0]["ok"] == 1 and len(reads[0]["cursor"]["firstBatch"]) == 5
    assert pipelines[0]["code"] in (189, 11601, 11602)


def test_nothing_is_acknowledged_by_a_secondary(raw, replica):
    acknowledged, stop = [], threading.Event()

    def write(first):
        with Raw(replica.port) as own:
            number = first
            while not stop.is_set():
                if own.command("step", insert="many", documents=[{"_id": number}]).get("n") == 1:
                    acknowledged.append(number)
                number += 1

    raw.command("step", drop="many")
    threads = [threading.Thread(target=write, args=(first * 10**9,)) for first in range(8)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            time.sleep(0.05)
            assert raw.command("admin", **FORCED)["ok"] == 1
            count = raw.command("step", count="many", query={"_id": {"$gte": 0}}, **SECONDARY)["n"]
            time.sleep(0.05)
            assert raw.command("step", count="many", query={"_id": {"$gte": 0}}, **SECONDARY)["n"] == count
            step_up(raw)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    found = raw.command("step", count="many", query={"_id": {"$gte": 0}})["n"]
    # A write that was interrupted may be there.
    assert found >= len(acknowledged) > 0
    assert raw.command("step", count="many", query={"_id": {"$in": acknowledged}})["n"] == len(acknowledged)


def test_the_time_ends_by_itself_and_waiting_clients_see_it(raw, replica):
    with Raw(replica.port) as waiting:
        version = waiting.command("admin", hello=1)["topologyVersion"]
        seen, began = [], time.monotonic()
        waiting.send({"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 20_000, "$db": "admin"})
        raw.command("admin", replSetStepDown=2, force=True)
        while not seen or not seen[-1]["isWritablePrimary"] or seen[-1]["topologyVersion"] == version:
            seen.append(waiting.reply())
            if not seen[-1]["isWritablePrimary"]:
                waiting.send({"hello": 1, "topologyVersion": seen[-1]["topologyVersion"], "maxAwaitTimeMS": 20_000,
                              "$db": "admin"})
        assert 1.9 < time.monotonic() - began < 15
        assert any(hello["secondary"] for hello in seen)


@pytest.mark.parametrize("period, freeze, reply", [
    (2, 1, {"warning": "you really want to freeze for only 1 second?"}),
    (60, 0, {"info": "unfreezing"}),
    (60, "x", {"info": "unfreezing"}),
    (60, 0.5, {"info": "unfreezing"}),
    (2, 1.5, {"warning": "you really want to freeze for only 1 second?"}),
    (2, -1, {}),
])
def test_freeze(raw, period, freeze, reply):
    began = time.monotonic()
    raw.command("admin", replSetStepDown=period, force=True)
    answered = raw.command("admin", replSetFreeze=freeze)
    assert {name: answered[name] for name in ("info", "warning") if name in answered} == reply
    wait_for_primary(raw)
    assert ("info" in reply) == (time.monotonic() - began < 1.9)
    assert answer(raw.command("admin", replSetFreeze=freeze))[0] == 95


@pytest.mark.parametrize("fields, code", [
    ({"replSetStepDown": float("nan")}, 2),
    ({"replSetStepDown": float("inf")}, 2),
    ({"replSetStepDown": Decimal128("NaN")}, 2),
    ({"replSetStepDown": Int64(2**62)}, 159),
    ({"replSetStepDown": 5, "secondaryCatchUpPeriodSecs": float("nan")}, 2),
    ({"replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 1.5}, 2),
    ({"replSetStepDown": 5, "secondaryCatchUpPeriodSecs": True}, 14),
])
def test_numbers_that_are_no_seconds(raw, fields, code):
    assert raw.command("admin", **fields, force=True)["code"] == code
    assert raw.command("admin", hello=1)["isWritablePrimary"] is True


def test_a_driver_finds_the_primary_again(replica, raw):
    with pymongo.MongoClient("mongodb://127.0.0.1:%d/?replicaSet=rs0" % replica.port) as client:
        c = client.step.driver
        c.drop()
        c.insert_one({"_id": 0})
        raw.command("admin", replSetStepDown=1, force=True)
        # The driver waits for a primary, and sends the write again.
        c.insert_one({"_id": 1})
        assert c.count_documents({}) == 2
        assert c.with_options(read_preference=pymongo.ReadPreference.SECONDARY_PREFERRED).count_documents({}) == 2
