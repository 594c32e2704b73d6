"""Members of a replica set: times advance with each write, and failed writes say whether their concern holds. Routers: what
their sessions and their clients' versions of the API need."""
import uuid

import pymongo
import pytest
import server
from pymongo.errors import OperationFailure
from raw import Raw

# A mongod is a router or requires versions only in a cluster.
ROUTER = pytest.mark.skipif(server.is_mongod(), reason="a mongod alone is no router")


@pytest.fixture
def own(replica):
    with pymongo.MongoClient(replica.uri, directConnection=True) as client:
        name = "t_" + uuid.uuid4().hex[:12]
        yield client[name]
        client.drop_database(name)


def test_each_write_has_a_time_of_its_own(own):
    writes = [own.command("insert", "c", documents=[{"_id": i}]) for i in range(3)]
    writes.append(own.command("update", "c", updates=[{"q": {"_id": 1}, "u": {"$set": {"x": 1}}}]))
    writes.append(own.command("delete", "c", deletes=[{"q": {"_id": 2}, "limit": 1}]))
    times = [reply["operationTime"] for reply in writes]
    assert times == sorted(set(times))
    for reply in writes:
        assert reply["opTime"]["ts"] == reply["operationTime"] and "electionId" in reply
    assert own.command("find", "c")["operationTime"] >= times[-1]


@pytest.mark.parametrize(
    "command, code",
    [
        ({"drop": "nope"}, 26),
        ({"create": "c", "capped": True, "size": 4096}, 48),
        ({"create": "c", "capped": True}, 72),
        ({"dropIndexes": "c", "index": "q"}, 27),
        ({"collMod": "nope"}, 26),
        ({"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"u": 2}}}, 11000),
        ({"findAndModify": "c", "query": {"_id": 1}, "update": {"$bad": 2}}, 9),
        ({"convertToCapped": "nope", "size": 1000}, 26),
    ],
)
def test_a_failed_write_tells_of_its_concern(own, command, code):
    own.c.create_index("u", unique=True)
    own.c.insert_many([{"_id": 1, "u": 1}, {"_id": 2, "u": 2}])
    try:
        reply = own.command({**command, "writeConcern": {"w": 5, "wtimeout": 50}})
    except OperationFailure as failure:
        reply = failure.details
    except pymongo.errors.WriteConcernError as failure:
        reply = failure.details
    if code in (9, 72):
        assert "writeConcernError" not in reply
    else:
        assert reply["writeConcernError"]["code"] == 100, reply
    if code is not None:
        assert reply["code"] == code


@ROUTER
def test_a_session_of_a_router_has_times_without_an_oplog():
    """Drivers take the server for a router, whose sessions are causally consistent."""
    with server.Server() as own, pymongo.MongoClient(own.uri) as client:
        with client.start_session(causal_consistency=True) as session:
            client.t.c.insert_one({"_id": 1}, session=session)
            written = session.operation_time
            assert written is not None and session.cluster_time is not None
            assert client.t.c.find_one({}, session=session) == {"_id": 1}
            assert session.operation_time >= written
            with pytest.raises(OperationFailure):
                client.t.command("find", "c", sort={"a": 2}, session=session)
            assert session.operation_time >= written
        with Raw(own.port) as raw:
            assert "operationTime" not in raw.command("t", ping=1), "none is told who has no use for it"


@ROUTER
def test_a_version_of_the_api_may_be_required():
    # Its monitor, which names no version, connects only at the start.
    rarely = {"serverMonitoringMode": "poll", "heartbeatFrequencyMS": 600_000}
    with server.Server() as own, pymongo.MongoClient(own.uri, **rarely) as client:
        assert client.admin.command("getParameter", 1, requireApiVersion=1)["requireApiVersion"] is False
        assert client.admin.command("setParameter", 1, requireApiVersion=True)["was"] is False
        for command in ({"ping": 1}, {"setParameter": 1, "requireApiVersion": False}):
            with pytest.raises(OperationFailure) as failure:
                client.admin.command(command)
            assert failure.value.code == 498870
            assert client.admin.command({**command, "apiVersion": "1"})["ok"] == 1
        assert client.admin.command("ping")["ok"] == 1
        for version, text in (("2", "Cannot accept API version 2"), ("two", 'API version must be "1"')):
            with pytest.raises(OperationFailure, match=text) as failure:
                client.admin.command("ping", apiVersion=version)
            assert failure.value.code == 322
