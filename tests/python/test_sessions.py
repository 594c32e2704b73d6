"""Sessions, retryable writes, transactions and change streams, against a server that is a replica set of one."""
import pymongo
import pytest
from bson import Binary, Int64
from pymongo.errors import OperationFailure


@pytest.fixture
def rs(replica):
    with pymongo.MongoClient("mongodb://127.0.0.1:%d/?replicaSet=rs0" % replica.port) as client:
        client.drop_database("sessions")
        yield client


def test_a_replica_set_of_one(rs):
    hello = rs.admin.command("hello")
    assert hello["setName"] == "rs0" and hello["isWritablePrimary"] is True
    assert rs.primary is not None and hello["hosts"] == ["%s:%d" % rs.primary]


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


def test_a_retried_write_happens_once(rs):
    db = rs.sessions
    lsid = {"id": Binary(b"0123456789abcdef", 4)}
    command = dict(documents=[{"_id": 1, "n": 0}, {"_id": 2, "n": 0}], lsid=lsid, txnNumber=Int64(1))
    for _ in range(2):
        assert db.command("insert", "c", **command)["n"] == 2
    update = dict(updates=[{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}], lsid=lsid, txnNumber=Int64(2))
    for _ in range(3):
        reply = db.command("update", "c", **update)
        assert (reply["n"], reply["nModified"]) == (1, 1)
    change = dict(query={"_id": 2}, update={"$inc": {"n": 5}}, new=True, lsid=lsid, txnNumber=Int64(3))
    for _ in range(2):
        assert db.command("findAndModify", "c", **change)["value"] == {"_id": 2, "n": 5}
    delete = dict(deletes=[{"q": {"_id": 2}, "limit": 1}], lsid=lsid, txnNumber=Int64(4))
    for _ in range(2):
        assert db.command("delete", "c", **delete)["n"] == 1
    assert list(db.c.find()) == [{"_id": 1, "n": 1}]
    with pytest.raises(OperationFailure) as error:
        db.command("insert", "c", documents=[{}], lsid=lsid, txnNumber=Int64(1))
    assert error.value.code == 225
