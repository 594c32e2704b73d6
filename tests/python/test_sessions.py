"""Sessions, retryable writes, concerns and preferences, against a server that is a replica set of one."""
import time
import uuid

import pymongo
import pytest
from bson import Binary, Int64, Timestamp
from pymongo import ReadPreference
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern
from raw import Raw


@pytest.fixture
def rs(replica):
    with pymongo.MongoClient("mongodb://127.0.0.1:%d/?replicaSet=rs0" % replica.port) as client:
        client.drop_database("sessions")
        yield client


def test_a_replica_set_of_one(rs):
    hello = rs.admin.command("hello")
    assert hello["setName"] == "rs0" and hello["isWritablePrimary"] is True
    assert rs.primary is not None and hello["hosts"] == ["%s:%d" % rs.primary]


@pytest.mark.parametrize("command, code", [
    ({"replSetStepDown": -1}, 2),
    ({"replSetStepDown": -1, "force": True}, 2),
    ({"replSetStepDown": 2}, 2),
    ({"replSetStepDown": 2, "force": True, "secondaryCatchUpPeriodSecs": 3}, 2),
    ({"replSetStepDown": 2, "secondaryCatchUpPeriodSecs": -1}, 2),
    ({"replSetStepDown": 2, "secondaryCatchUpPeriodSecs": "1"}, 14),
    ({"replSetStepDown": 2, "secondaryCatchUpPeriodSecs": 0}, 262),
    ({"replSetStepDown": 0, "secondaryCatchUpPeriodSecs": 0}, 262),
    ({"replSetStepDown": "a", "secondaryCatchUpPeriodSecs": 1}, 262),
])
def test_a_step_down_that_is_refused(rs, command, code):
    assert rs.admin.command(command, check=False)["code"] == code
    assert rs.admin.command("hello")["isWritablePrimary"] is True


def test_a_session_lives_and_ends(rs):
    c = rs.sessions.c
    with rs.start_session(causal_consistency=True) as session:
        c.insert_one({"_id": 1}, session=session)
        assert c.find_one({"_id": 1}, session=session)
        assert session.operation_time is not None
        cursor = c.find({}, session=session)
        assert len(list(cursor)) == 1
    with pytest.raises(pymongo.errors.InvalidOperation):
        c.find_one({}, session=session)


def test_a_session_that_was_ended_begins_again_at_its_next_use(replica):
    lsid = {"id": Binary(b"begins-again-abc", 4)}

    def is_listed(raw):
        listed = raw.command("sessions", aggregate=1, pipeline=[{"$listLocalSessions": {}}], cursor={})
        return lsid["id"] in [session["_id"]["id"] for session in listed["cursor"]["firstBatch"]]

    # Two connections have used it, so that each is not alone in remembering it.
    with Raw(replica.port) as first, Raw(replica.port) as second, Raw(replica.port) as other:
        for raw in (first, second):
            raw.command("sessions", ping=1, lsid=lsid)
        assert is_listed(other)
        other.command("admin", endSessions=[lsid])
        assert not is_listed(other)
        first.command("sessions", ping=1, lsid=lsid)
        assert is_listed(other)


def test_a_retried_write_happens_once(replica, rs):
    lsid = {"id": Binary(b"0123456789abcdef", 4)}
    with Raw(replica.port) as raw:
        def run(number, **command):
            return raw.command("sessions", **command, lsid=lsid, txnNumber=Int64(number))

        for _ in range(2):
            assert run(1, insert="c", documents=[{"_id": 1, "n": 0}, {"_id": 2, "n": 0}])["n"] == 2
        for _ in range(3):
            reply = run(2, update="c", updates=[{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}])
            assert (reply["n"], reply["nModified"]) == (1, 1)
        assert reply["retriedStmtIds"] == [0]
        for _ in range(2):
            reply = run(3, findAndModify="c", query={"_id": 2}, update={"$inc": {"n": 5}}, new=True)
            assert reply["value"] == {"_id": 2, "n": 5}
        for _ in range(2):
            assert run(4, delete="c", deletes=[{"q": {"_id": 2}, "limit": 1}])["n"] == 1
        assert list(rs.sessions.c.find()) == [{"_id": 1, "n": 1}]
        # Older numbers are rejected; writes of many documents cannot be retried.
        assert run(1, insert="c", documents=[{}])["code"] == 225
        assert run(5, update="c", updates=[{"q": {}, "u": {"$set": {"a": 1}}, "multi": True}])["writeErrors"][0]["code"] == 72
        refused = run(6, delete="c", deletes=[{"q": {}, "limit": 0}])["writeErrors"][0]
        assert (refused["code"], refused["errmsg"]) == (72, "Cannot use (or request) retryable writes with limit=0")


RETRIED_WRITES = {
    "insert": {"insert": "c", "documents": [{"_id": 1}]},
    "update": {"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$inc": {"n": 1}}}]},
    "upsert": {"update": "c", "updates": [{"q": {"_id": 5}, "u": {"$inc": {"n": 1}}, "upsert": True}]},
    "delete": {"delete": "c", "deletes": [{"q": {"_id": 3}, "limit": 1}]},
    "modify": {"findAndModify": "c", "query": {"_id": 2}, "update": {"$inc": {"n": 1}}},
    "modify, new": {"findAndModify": "c", "query": {"_id": 2}, "update": {"$inc": {"n": 1}}, "new": True},
    "modify or insert": {"findAndModify": "c", "query": {"_id": 4}, "update": {"$inc": {"n": 1}}, "upsert": True},
    "modify or insert, new": {"findAndModify": "c", "query": {"_id": 4}, "update": {"$inc": {"n": 1}}, "upsert": True,
                              "new": True},
    "remove": {"findAndModify": "c", "query": {"_id": 3}, "remove": True},
}


def retried(replica, rs, first, second):
    """The reply to the second write, which has the number of the first. Nothing is written a second time."""
    rs.retried.c.drop()
    rs.retried.c.insert_many([{"_id": 2, "n": 0}, {"_id": 3}])
    fields = {"lsid": {"id": Binary(uuid.uuid4().bytes, 4)}, "txnNumber": Int64(1)}
    with Raw(replica.port) as raw:
        assert raw.command("retried", **first, **fields)["ok"] == 1
        before = list(rs.retried.c.find().sort("_id", 1))
        reply = raw.command("retried", **second, **fields)
    assert list(rs.retried.c.find().sort("_id", 1)) == before
    return reply


@pytest.mark.parametrize("first, second, expected", [
    *((first, "insert", {}) for first in RETRIED_WRITES if first != "insert"),
    *((first, "delete", {}) for first in RETRIED_WRITES if first != "delete"),
    ("modify", "update", {"nModified": 1}),
    ("modify or insert", "update", {"nModified": 0, "upserted": [{"index": 0, "_id": 4}]}),
])
def test_a_statement_that_was_another_kind_of_write_is_not_executed(replica, rs, first, second, expected):
    """The number of the statement decides, as in mongod."""
    reply = retried(replica, rs, RETRIED_WRITES[first], RETRIED_WRITES[second])
    shown = {name: reply.get(name) for name in ("ok", "n", "retriedStmtIds", *expected)}
    assert shown == {"ok": 1, "n": 1, "retriedStmtIds": [0], **expected}
    assert "writeErrors" not in reply


@pytest.mark.parametrize("first, second, code", [
    ("delete", "update", 40638),
    ("remove", "update", 40638),
    ("delete", "modify", 40606),
    ("remove", "modify or insert", 40606),
    ("delete", "remove", 40607),
    ("insert", "modify", 40608),
    ("upsert", "remove", 40608),
    ("modify or insert", "modify, new", 40608),
    ("update", "modify, new", 40611),
    ("update", "modify or insert", 40612),
    ("update", "remove", 40612),
])
def test_a_record_without_a_reply_of_the_other_command_is_refused(replica, rs, first, second, code):
    reply = retried(replica, rs, RETRIED_WRITES[first], RETRIED_WRITES[second])
    assert (reply["ok"], reply.get("code")) == (0, code)


@pytest.mark.parametrize("first, second, inserted, value", [
    ("modify or insert", "modify or insert, new", 4, {"_id": 4, "n": 1}),
    ("modify or insert, new", "modify or insert", 4, None),
    ("upsert", "modify or insert", 5, None),
])
def test_a_retry_returns_the_inserted_document_if_it_requests_it(replica, rs, first, second, inserted, value):
    reply = retried(replica, rs, RETRIED_WRITES[first], RETRIED_WRITES[second])
    assert reply["lastErrorObject"] == {"n": 1, "updatedExisting": False, "upserted": inserted}
    assert (reply["value"], reply["retriedStmtId"]) == (value, 0)


@pytest.mark.parametrize("name, whole", [
    ("modify", {"_id": 2, "n": 0}),
    ("modify, new", {"_id": 2, "n": 1}),
    ("modify or insert, new", {"_id": 4, "n": 1}),
    ("remove", {"_id": 3}),
])
def test_a_retry_returns_the_whole_document(replica, rs, name, whole):
    """As in mongod, whose record has the document and not the projection."""
    write = {**RETRIED_WRITES[name], "fields": {"n": 1, "_id": 0}}
    reply = retried(replica, rs, write, write)
    assert (reply["value"], reply["retriedStmtId"]) == (whole, 0)


def test_a_write_that_changed_nothing_is_executed_again(replica, rs):
    """Only what wrote has a record: a retry of anything else is executed, and may find more by then."""
    lsid = {"id": Binary(b"fedcba9876543210", 4)}
    rs.sessions.c.insert_one({"_id": 1, "x": 1})
    with Raw(replica.port) as raw:
        def run(number, **command):
            reply = raw.command("sessions", **command, lsid=lsid, txnNumber=Int64(number))
            assert "retriedStmtIds" not in reply, reply
            return reply

        update = {"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$set": {"x": 2}}}]}
        delete = {"delete": "c", "deletes": [{"q": {"_id": 3}, "limit": 1}]}
        modify = {"findAndModify": "c", "query": {"_id": 4}, "update": {"$set": {"x": 2}}}
        same = {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"x": 1}}}]}
        for number, command in enumerate([update, delete, modify]):
            assert run(number, **command).get("n", 0) == 0
            rs.sessions.c.insert_one({"_id": number + 2})
            reply = run(number, **command)
            assert (reply.get("lastErrorObject") or reply)["n"] == 1
        for _ in range(2):
            reply = run(9, **same)
            assert (reply["n"], reply["nModified"]) == (1, 0)
    records = [doc for doc in rs.config.transactions.find() if doc["_id"]["id"] == lsid["id"]]
    assert [doc["txnNum"] for doc in records] == [2]


def test_a_driver_retries_by_itself(rs):
    c = rs.sessions.c
    c.insert_one({"_id": 1})
    with rs.start_session() as session:
        for i in range(5):
            c.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        c.insert_many([{} for _ in range(10)], session=session)
    assert c.find_one({"_id": 1})["n"] == 5 and c.count_documents({}) == 11


def test_write_concerns(rs):
    for concern in ({"w": 1}, {"w": "majority"}, {"w": 1, "j": True}, {"w": 1, "wtimeout": 1000}):
        c = rs.sessions.get_collection("c", write_concern=pymongo.WriteConcern(**concern))
        c.insert_one(concern)
    reply = rs.sessions.command("insert", "c", documents=[{}], writeConcern={"w": 2, "wtimeout": 100}, check=False)
    assert reply["n"] == 1 and reply["writeConcernError"]["code"] == 100
    unacknowledged = rs.sessions.get_collection("c", write_concern=pymongo.WriteConcern(w=0))
    assert unacknowledged.insert_one({"_id": "w0"}).acknowledged is False
    assert wait_for(lambda: rs.sessions.c.find_one({"_id": "w0"}))


@pytest.mark.parametrize("concern, is_told", [
    ({"w": 0}, False), ({"w": 0, "j": False}, False), ({"w": 0, "wtimeout": 5}, False),
    ({"w": 0, "j": True}, True), ({"w": 0, "fsync": True}, True), ({"w": 1}, True)])
def test_a_write_whose_result_is_not_wanted_is_answered_without_one(rs, concern, is_told):
    db = rs.sessions
    db.c.insert_one({"_id": 1})

    def told(*command, **fields):
        reply = db.command(*command, writeConcern=concern, check=False, **fields)
        return {name: reply[name] for name in reply if name not in ("operationTime", "$clusterTime", "electionId", "opTime")}

    inserted = told("insert", "c", documents=[{"_id": 2}, {"_id": 1}])
    updated = told("update", "c", updates=[{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}, {"q": {}, "u": {"$bad": 1}}])
    deleted = told("delete", "c", deletes=[{"q": {"_id": 1}, "limit": 1}])
    if is_told:
        assert inserted["n"] == 1 and inserted["writeErrors"][0]["code"] == 11000
        assert (updated["n"], updated["nModified"]) == (1, 1) and updated["writeErrors"][0]["code"] == 9
        assert deleted == {"n": 1, "ok": 1}
    else:
        assert (inserted, updated, deleted) == ({"n": 0, "ok": 1}, {"n": 0, "nModified": 0, "ok": 1}, {"n": 0, "ok": 1})
    # They are done in either case, and what fails before the first statement is told.
    assert [d["_id"] for d in db.c.find()] == [2]
    assert told("insert", "c", documents=[])["code"] == 16


def test_read_concerns_and_preferences(rs):
    c = rs.sessions.c
    c.with_options(write_concern=pymongo.WriteConcern("majority")).insert_one({"_id": 1})
    for level in ("local", "available", "majority", "linearizable"):
        assert c.with_options(read_concern=ReadConcern(level)).find_one({"_id": 1}), level
    for preference in (ReadPreference.PRIMARY, ReadPreference.PRIMARY_PREFERRED, ReadPreference.SECONDARY_PREFERRED,
                       ReadPreference.NEAREST):
        assert c.with_options(read_preference=preference).find_one({"_id": 1}), preference
    with pytest.raises(OperationFailure):
        rs.sessions.command("find", "c", readConcern={"level": "nonsense"})


@pytest.mark.parametrize("preference,code,words", [
    ({"mode": "primary", "tags": [{"a": "b"}]}, 2, "Only empty tags are allowed with primary read preference"),
    ({"mode": "primary", "tags": [{}]}, None, None),
    ({"mode": "nearest", "tags": 5}, 14, '"tags" had the wrong type. Expected array, found int'),
    ({"mode": "nearest", "maxStalenessSeconds": 89}, 160, "maxStalenessSeconds value can not be less than 90"),
    ({"mode": "primary", "maxStalenessSeconds": 90}, 2, "maxStalenessSeconds can not be set for the primary mode"),
    ({"mode": "primary", "maxStalenessSeconds": 0}, None, None),
    ({"mode": "nearest", "maxStalenessSeconds": -1}, 2, "maxStalenessSeconds must be a non-negative integer"),
    ({"mode": "nearest", "maxStalenessSeconds": 2 ** 63 - 1}, 2, "maxStalenessSeconds value can not exceed 9223372036854775807"),
    ({"mode": "nearest", "maxStalenessSeconds": 90.5}, 2, 'Expected field "maxStalenessSeconds" to have a value exactly representable as a '
                                                          '64-bit integer, but found maxStalenessSeconds: 90.5'),
    ({"mode": "nearest", "maxStalenessSeconds": "x"}, 14, 'Expected field "maxStalenessSeconds" to have numeric type, but found string'),
    ({"mode": "primary", "hedge": {}}, 72, 'cannot enable hedging for $readPreference mode "primaryOnly"'),
    ({"mode": "primary", "hedge": {"enabled": False}}, None, None),
    ({"mode": "nearest", "hedge": 5, "tags": 5}, 14, "hedge field must be of type object if provided; found hedge: 5"),
    ({"mode": "nearest", "hedge": {"x": 1}}, 40415, "BSON field 'hedge.x' is an unknown field."),
])
def test_a_read_preference_is_checked(replica, rs, preference, code, words):
    with Raw(replica.port) as raw:
        reply = raw.command("sessions", find="c", **{"$readPreference": preference})
    assert (reply.get("code"), reply.get("errmsg")) == (code, words)


@pytest.mark.parametrize("command,concern,words", [
    ({"find": "c"}, {"afterClusterTime": Timestamp(0, 0)}, "afterClusterTime cannot be a null timestamp"),
    ({"find": "c"}, {"level": "available", "afterClusterTime": Timestamp(1, 1)},
     "afterClusterTime field can be set only if level is equal to majority, local, or snapshot"),
    ({"find": "c"}, {"level": "snapshot", "atClusterTime": Timestamp(0, 0)}, "atClusterTime cannot be a null timestamp"),
    ({"count": "c"}, {"level": "snapshot", "afterClusterTime": Timestamp(1, 1)},
     'Command count does not support { readConcern: { level: "snapshot", afterClusterTime: Timestamp(1, 1), provenance: "clientSupplied" } } '
     ':: caused by :: read concern snapshot not supported'),
    ({"explain": {"find": "c"}}, {"level": "majority"},
     'Command explain does not support { readConcern: { level: "majority", provenance: "clientSupplied" } } :: caused by :: '
     'read concern not supported'),
])
def test_the_times_of_a_read_concern_are_checked(replica, rs, command, concern, words):
    with Raw(replica.port) as raw:
        reply = raw.command("sessions", **command, readConcern=concern)
        assert (reply.get("code"), reply.get("errmsg")) == (72, words)
        reply = raw.command("sessions", find="c", readConcern={"afterClusterTime": Timestamp(4_000_000_000, 1)})
    assert reply["code"] == 72 and reply["errmsg"].startswith(
        "readConcern afterClusterTime value must not be greater than the current clusterTime. Requested clusterTime: "
        "{ ts: Timestamp(4000000000, 1) }; current clusterTime: { ts: Timestamp("), reply


def wait_for(condition):
    for _ in range(200):
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    return None


def test_statements_have_the_numbers_they_are_given(replica, rs):
    numbered = {"lsid": {"id": Binary(b"numbers of stmts", 4)}, "txnNumber": Int64(1)}
    with Raw(replica.port) as raw:
        def insert(ids, numbers):
            documents = [{"_id": n} for n in ids]
            return raw.command("sessions", insert="c", documents=documents, stmtIds=numbers, **numbered)

        assert "retriedStmtIds" not in insert([1, 2], [5, 3])
        reply = insert([2, 3], [3, 9])
        assert reply["n"] == 2 and reply["retriedStmtIds"] == [3]
        assert insert([4, 5], [11])["code"] == 16
    assert rs.sessions.c.count_documents({}) == 3


def test_a_transaction_that_was_not_started_is_told_so(replica, rs):
    numbered = {"lsid": {"id": Binary(b"no transaction..", 4)}, "txnNumber": Int64(3), "autocommit": False}
    with Raw(replica.port) as raw:
        for database, command in [("sessions", {"find": "c"}), ("admin", {"commitTransaction": 1}),
                                  ("admin", {"abortTransaction": 1})]:
            reply = raw.command(database, **command, **numbered)
            assert reply["code"] == 251 and reply["errorLabels"] == ["TransientTransactionError"]
            assert reply["errmsg"].endswith("The active transaction number is -1")
        assert raw.command("admin", commitTransaction=1)["code"] == 125
        assert raw.command("sessions", commitTransaction=1, **numbered)["code"] == 13


def test_there_is_nobody_to_authenticate(replica):
    with Raw(replica.port) as raw:
        start = {"saslStart": 1, "payload": b"n,,n=nobody,r=abcdef"}
        for mechanism, code in [("SCRAM-SHA-256", 18), ("SCRAM-SHA-1", 18), ("PLAIN", 334), ("FOO", 334)]:
            assert raw.command("admin", **start, mechanism=mechanism)["code"] == code
        assert raw.command("admin", saslContinue=1, conversationId=1, payload=b"")["code"] == 17
        assert raw.command("admin", authenticate=1, mechanism="MONGODB-X509")["code"] == 18
