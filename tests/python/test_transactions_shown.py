"""Transactions and sessions as tools see them: config.transactions, currentOp, serverStatus, and the bounds."""
import json
import threading
import uuid

import pymongo
import pytest
import server
from bson import Binary, Int64
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern
from raw import Raw


@pytest.fixture
def rs(replica):
    uri = "mongodb://127.0.0.1:%d/?replicaSet=rs0" % replica.port
    with pymongo.MongoClient(uri, appname="teller") as client:
        client.drop_database("tx")
        client.tx.create_collection("c")
        yield client


def record_of(client, session):
    return client.config.transactions.find_one({"_id.id": session.session_id["id"]})


def test_config_transactions_has_the_newest_numbered_write_of_each_session(rs):
    c, records = rs.tx.c, rs.config.transactions
    with rs.start_session() as session:
        c.insert_one({"_id": 1}, session=session)
        written = record_of(rs, session)
        assert list(written) == ["_id", "txnNum", "lastWriteOpTime", "lastWriteDate"]
        assert list(written["_id"]) == ["id", "uid"] and len(written["_id"]["uid"]) == 32
        number = written["txnNum"]
        assert list(written["lastWriteOpTime"]) == ["ts", "t"]
        assert isinstance(written["lastWriteOpTime"]["ts"], Timestamp)
        session.start_transaction()
        c.insert_one({"_id": 2}, session=session)
        assert record_of(rs, session)["txnNum"] == number
        session.commit_transaction()
        committed = record_of(rs, session)
        assert (committed["txnNum"], committed["state"]) == (number + 1, "committed")
        assert committed["lastWriteDate"] >= written["lastWriteDate"]
        # A transaction without lasting writes leaves no record.
        session.start_transaction()
        c.find_one({}, session=session)
        session.commit_transaction()
        session.start_transaction()
        c.insert_one({"_id": 3}, session=session)
        session.abort_transaction()
        assert record_of(rs, session) == committed
        c.update_one({"_id": 1}, {"$set": {"a": 1}}, session=session)
        assert (record_of(rs, session)["txnNum"], record_of(rs, session).get("state")) == (number + 4, None)
        own = {"_id.id": session.session_id["id"]}
        assert records.count_documents(own) == 1 == rs.config.command("count", "transactions", query=own)["n"]
        assert records.distinct("txnNum", own) == [number + 4]
        assert list(records.aggregate([{"$match": own}, {"$project": {"_id": 0, "txnNum": 1}}])) == [{"txnNum": number + 4}]
        with pytest.raises(OperationFailure) as refused:
            records.insert_one({"_id": 1}, session=session)
        assert refused.value.code == 40528
        assert list(rs.config.system.sessions.find({"_id.id": Binary(uuid.uuid4().bytes, 4)})) == []
        with pytest.raises(OperationFailure) as refused:
            list(rs.tx.c.aggregate([{"$listSessions": {}}]))
        assert refused.value.code == 73


def sections(client, session, **options):
    stage = {"$currentOp": {"allUsers": True, **options}}
    found = client.admin.aggregate([stage, {"$match": {"lsid.id": session.session_id["id"], "transaction": {"$exists": True}}}])
    return list(found)


def test_current_op_tells_of_open_transactions(rs):
    c = rs.tx.c
    c.insert_many([{"_id": n} for n in range(3)])
    fields = ["parameters", "readTimestamp", "startWallClockTime", "timeOpenMicros", "timeActiveMicros",
              "timeInactiveMicros", "expiryTime"]
    with rs.start_session(causal_consistency=False) as session:
        session.start_transaction(read_concern=ReadConcern("snapshot"))
        c.update_one({"_id": 1}, {"$set": {"a": 1}}, session=session)
        (idle,) = sections(rs, session)
        wanted = ["type", "host", "desc", "client", "connectionId", "appName", "clientMetadata", "lsid", "transaction",
                  "waitingForLock", "active", "locks", "lockStats"]
        assert list(idle) == wanted
        assert (idle["type"], idle["desc"], idle["appName"]) == ("idleSession", "inactive transaction", "teller")
        told = idle["transaction"]
        assert list(told) == fields
        assert told["parameters"]["autocommit"] is False and told["parameters"]["txnRetryCounter"] == 0
        assert told["parameters"]["readConcern"] == {"level": "snapshot", "provenance": "clientSupplied"}
        assert told["readTimestamp"] > Timestamp(0, 0)
        assert told["timeOpenMicros"] == told["timeActiveMicros"] + told["timeInactiveMicros"]
        assert sections(rs, session, idleSessions=False) == []
        inactive = {"desc": "inactive transaction", "lsid.id": session.session_id["id"]}
        assert len(rs.admin.command("currentOp", **inactive)["inprog"]) == 1

        slow = {"$expr": {"$function": {"body": "function() { sleep(60000) }", "args": [], "lang": "js"}}}

        def work():
            with pytest.raises(OperationFailure):
                list(c.find(slow, session=session))

        worker = threading.Thread(target=work)
        worker.start()
        running = []
        while not running:
            running = [found for found in sections(rs, session) if found["active"]]
        (active,) = running
        assert list(active["transaction"]) == fields and active["type"] == "op"
        assert active["transaction"]["parameters"] == told["parameters"]
        rs.admin.command("killOp", op=active["opid"])
        worker.join(60)
        assert sections(rs, session) == []
        session.abort_transaction()


def test_server_status_counts_transactions(rs):
    status = lambda: rs.admin.command("serverStatus")["transactions"]  # noqa: E731
    lsid = {"id": Binary(uuid.uuid4().bytes, 4)}
    before = status()
    with Raw(int(rs.address[1])) as raw:
        inside = {"lsid": lsid, "txnNumber": Int64(1), "autocommit": False}
        assert raw.command("tx", insert="c", documents=[{}, {}], startTransaction=True, **inside)["ok"] == 1
        assert raw.command("admin", commitTransaction=1, **inside, writeConcern={"w": 1})["ok"] == 1
        for _ in range(2):
            raw.command("tx", insert="c", documents=[{"q": 1}], lsid=lsid, txnNumber=Int64(2))
    after = status()
    assert list(after) == ["retriedCommandsCount", "retriedStatementsCount", "transactionsCollectionWriteCount", "currentActive",
                           "currentInactive", "currentOpen", "totalAborted", "totalCommitted", "totalStarted", "totalPrepared",
                           "totalPreparedThenCommitted", "totalPreparedThenAborted", "currentPrepared", "lastCommittedTransaction"]
    grown = {name: after[name] - before[name] for name in ("retriedCommandsCount", "retriedStatementsCount", "totalCommitted", "totalStarted")}
    assert set(grown.values()) == {1}, grown
    last = after["lastCommittedTransaction"]
    assert last["operationCount"] == 2 and last["oplogOperationBytes"] > 0
    assert last["writeConcern"] == {"w": 1, "wtimeout": 0, "provenance": "clientSupplied"}


def test_the_log_tells_of_slow_transactions(rs):
    c = rs.tx.c
    c.insert_many([{"_id": n} for n in range(5)])

    def lines():
        found = [json.loads(line) for line in rs.admin.command("getLog", "global")["log"] if '"id":51802' in line]
        return [line for line in found if line["attr"]["parameters"]["lsid"]["id"]["$uuid"] == own]

    rs.admin.command("profile", 0, slowms=-1)
    try:
        with rs.start_session(causal_consistency=False) as session:
            own = str(session.session_id["id"].as_uuid())
            with session.start_transaction(read_concern=ReadConcern("snapshot")):
                assert len(list(c.find({}, batch_size=3, session=session))) == 5
                c.insert_many([{"_id": 10}, {"_id": 11}], session=session)
            session.start_transaction()
            c.find_one({}, session=session)
            session.abort_transaction()
            committed, aborted = lines()
            rs.admin.command("profile", 0, slowms=60_000)
            with session.start_transaction():
                c.find_one({}, session=session)
            assert len(lines()) == 2
    finally:
        rs.admin.command("profile", 0, slowms=100)
    assert (committed["c"], committed["msg"], committed["s"]) == ("TXN", "transaction", "I")
    told = committed["attr"]
    assert list(told["parameters"]) == ["lsid", "txnNumber", "txnRetryCounter", "autocommit", "readConcern"]
    assert told["parameters"]["readConcern"] == {"level": "snapshot", "provenance": "clientSupplied"}
    assert told["readTimestamp"].startswith("Timestamp(") and told["readTimestamp"] != "Timestamp(0, 0)"
    counts = {"docsExamined": 5, "nreturned": 5, "nBatches": 2, "ninserted": 2, "keysInserted": 2}
    assert {name: told[name] for name in counts} == counts
    assert told["terminationCause"] == "committed" and aborted["attr"]["terminationCause"] == "aborted"
    assert aborted["attr"]["readTimestamp"] == "Timestamp(0, 0)"
    end = ["terminationCause", "timeActiveMicros", "timeInactiveMicros", "numYields", "locks", "storage", "wasPrepared", "durationMillis"]
    assert [name for name in told if name in end] == end


@pytest.mark.parametrize("parameter", ["transactionMemoryBytesMax", "transactionsMemoryBytesMax"])
def test_what_transactions_write_is_bounded(rs, parameter):
    if server.is_mongod():
        pytest.skip("mongod bounds them by its cache")
    # A document counts twice: what is written, and what the oplog will tell of it.
    before = rs.admin.command("getParameter", 1, **{parameter: 1})[parameter]
    rs.admin.command("setParameter", 1, **{parameter: 1 << 20})
    try:
        with rs.start_session() as session:
            session.start_transaction()
            rs.tx.c.insert_one({"_id": 0, "pad": "x" * (300 << 10)}, session=session)
            with pytest.raises(OperationFailure) as refused:
                for number in range(1, 5):
                    rs.tx.c.insert_one({"_id": number, "pad": "x" * (300 << 10)}, session=session)
            assert refused.value.code == 257
            with pytest.raises(OperationFailure) as ended:
                session.commit_transaction()
            assert ended.value.code == 251
        assert rs.tx.c.count_documents({}) == 0
    finally:
        rs.admin.command("setParameter", 1, **{parameter: before})
