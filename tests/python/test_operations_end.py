"""Commands that change or look through collections end in time, and when they are killed, as they wait and as they work."""
import threading
import time

import pymongo
import pytest
import server
from lateness import LATE, check_late
from pymongo.errors import OperationFailure

MAX_TIME_EXPIRED, INTERRUPTED = 50, 11601
#: Enough documents that each of the commands takes far longer than it may.
COUNT, MAX_TIME_MS = 100_000, 40


@pytest.fixture(scope="module")
def own():
    with server.Server() as own:
        with pymongo.MongoClient(own.uri) as client:
            for start in range(0, COUNT, 5000):
                client.t.large.insert_many([{"_id": i, "many": [i * 31 + k for k in range(30)], "pad": "x" * 300}
                                            for i in range(start, start + 5000)])
        yield own


@pytest.fixture
def client(own):
    with pymongo.MongoClient(own.uri) as client:
        yield client


BUILD = {"createIndexes": "large", "indexes": [{"key": {"many": 1}, "name": "many"}]}
WORK = {
    "createIndexes": BUILD,
    "validate": {"validate": "large", "full": True},
    "compact": {"compact": "large"},
    "convertToCapped": {"convertToCapped": "large", "size": 1 << 28},
    "$out": {"aggregate": "large", "pipeline": [{"$out": "copied"}], "cursor": {}},
    "$merge": {"aggregate": "large", "pipeline": [{"$merge": "merged"}], "cursor": {}},
}

#: In seconds, for what ends later than the rest: `compact` ends between its steps, and this
#: collection is one step.
BOUNDS = {"compact": 2.0}
if server.is_mongod() or server.keeps_no_folder():
    # It finds nothing to rewrite in files that are new, or where there are none.
    del WORK["compact"]
if server.is_mongod():
    # It ends, and then takes as long as it has worked.
    BOUNDS = {"convertToCapped": 10.0}


def is_whole(client):
    assert client.t.large.estimated_document_count() == COUNT
    assert list(client.t.large.index_information()) == ["_id_"]
    assert "capped" not in client.t.large.options()
    left = [name for name in client.t.list_collection_names() if name.startswith("tmp")]
    # mongod leaves what a conversion has made so far until its next start.
    assert not left or server.is_mongod()


@pytest.mark.parametrize("name", WORK)
def test_work_ends_in_time(name, client):
    def run():
        began = time.perf_counter()
        with pytest.raises(OperationFailure) as error:
            client.t.command({**WORK[name], "maxTimeMS": MAX_TIME_MS})
        late = time.perf_counter() - began - MAX_TIME_MS / 1000
        assert error.value.code == MAX_TIME_EXPIRED, error.value
        is_whole(client)
        return late

    check_late(run, BOUNDS.get(name, LATE))


@pytest.mark.parametrize("name", WORK)
def test_work_ends_when_it_is_killed(name, client):
    def run():
        late = kill(client, WORK[name])
        is_whole(client)
        return late

    check_late(run, BOUNDS.get(name, LATE))


def kill(client, command):
    """Begins a command, kills it, and returns how late it has ended."""
    ended = []
    comment = "to be killed"

    def run():
        with pytest.raises(OperationFailure) as error:
            client.t.command({**command, "comment": comment})
        ended.append((time.perf_counter(), error.value.code))

    thread = threading.Thread(target=run)
    thread.start()
    until, found = time.monotonic() + 60, []
    while not found:
        assert time.monotonic() < until and thread.is_alive()
        found = client.admin.command({"currentOp": 1, "command.comment": comment, "active": True})["inprog"]
    # It works: mongod aborts if an index build is killed as it begins.
    time.sleep(0.03)
    killed = time.perf_counter()
    client.admin.command("killOp", op=found[0]["opid"])
    thread.join()
    (at, code), = ended
    assert code == INTERRUPTED
    return at - killed


WAITING = {
    "create": {"create": "new"},
    "drop": {"drop": "other"},
    "dropIndexes": {"dropIndexes": "other", "index": "a"},
    "createIndexes": {"createIndexes": "other", "indexes": [{"key": {"b": 1}, "name": "b"}]},
    "renameCollection": {"renameCollection": "t.other", "to": "t.renamed"},
    "convertToCapped": {"convertToCapped": "other", "size": 1 << 20},
    "collMod": {"collMod": "other", "validationLevel": "moderate"},
    "dropDatabase": {"dropDatabase": 1},
}


@pytest.mark.parametrize("name", WAITING)
def test_who_waits_for_fsync_ends_in_time(name, client):
    client.t.other.insert_one({"a": 1})
    client.t.other.create_index("a", name="a")
    database = client.admin if name == "renameCollection" else client.t
    client.admin.command("fsync", lock=True)
    try:
        with pytest.raises(OperationFailure) as error:
            database.command({**WAITING[name], "maxTimeMS": MAX_TIME_MS})
        assert error.value.code == MAX_TIME_EXPIRED, error.value
    finally:
        client.admin.command("fsyncUnlock")
    names = client.t.list_collection_names()
    assert {"large", "other"} <= set(names) and not {"new", "renamed"} & set(names)
    assert set(client.t.other.index_information()) == {"_id_", "a"}
    client.t.other.drop()
