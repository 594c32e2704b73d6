"""Members of a replica set: times advance with each write, and failed writes say whether their concern holds."""
import uuid

import pymongo
import pytest
from pymongo.errors import OperationFailure


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
