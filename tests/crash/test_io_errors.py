"""Failures of the environment other than a full disk, under a running server.

The process may not open another file, may not make a file any longer, or its folder of files is moved away. While that
lasts, clients are answered with errors and reads go on; when it is over and the server was started again, everything
acknowledged is there and writing goes on. The tests of the engine (`marula-embedded`, `tests/processes/faults.rs`) have
damaged and lost tables.
"""
import contextlib
import os
import resource

import pymongo
import pytest
import server
from pymongo.errors import PyMongoError

pytestmark = pytest.mark.skipif(server.is_mongod(), reason="another server ends at such failures")


@contextlib.contextmanager
def no_more_files(own):
    """Every file descriptor that the process may have is taken."""
    pid = own.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    taken = max(int(fd) for fd in os.listdir("/proc/%d/fd" % pid)) + 1
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (taken, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def no_longer_files(own):
    """No file may grow beyond two megabytes."""
    pid = own.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (2 << 20, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def folder_moved_away(own):
    """New files cannot be made, and those that are open go on."""
    files = os.path.join(own.dbpath, "store")
    os.rename(files, files + ".aside")
    yield
    os.rename(files + ".aside", files)


@pytest.mark.parametrize("fault", [no_more_files, no_longer_files, folder_moved_away])
def test_an_input_output_error(fault):
    acknowledged = {}
    # A small cache has small memtables: files are made often.
    with server.Server("--cache-size", "64MB") as own:
        with pymongo.MongoClient(own.uri, retryWrites=False, socketTimeoutMS=60_000, maxPoolSize=1) as client:
            c = client.t.c
            c.create_index("n")
            c.insert_many([{"_id": i, "n": i} for i in range(200)])
            acknowledged.update({i: i for i in range(200)})
            with fault(own):
                refused = fill(c, acknowledged)
                assert refused is not None, "the failure was never met"
                assert getattr(refused, "code", None) is not None, "not answered: %r" % refused
                # Reads go on; other writes are done or refused, and say which.
                assert c.find_one({"_id": 50})["n"] == 50
                assert {d["_id"] for d in c.find({}, {"_id": 1})} >= set(acknowledged)
                unsure = {i: 1000 + i for i in range(20) if not update(c, acknowledged, i)}
                try:
                    c.create_index("m")
                    built = True
                except PyMongoError as error:
                    assert getattr(error, "code", None) is not None, "not answered: %r" % error
                    built = False
                assert own.process.poll() is None, own.tail()
        own.kill()
        own.start()
        with pymongo.MongoClient(own.uri) as client:
            c = client.t.c
            stored = {d["_id"]: d["n"] for d in c.find({}, {"n": 1})}
            # A failed write may have been executed.
            wrong = {i: (stored.get(i), n) for i, n in acknowledged.items()
                     if stored.get(i) != n and stored.get(i) != unsure.get(i, n)}
            assert not wrong, "acknowledged and lost: %r" % list(wrong.items())[:5]
            assert ("m_1" in c.index_information()) == built
            report = client.t.command("validate", "c", full=True)
            assert report["valid"], report
            c.insert_one({"_id": "after", "n": 0})


def fill(c, acknowledged, count=2000):
    """Inserts until one is refused; answers the error."""
    for i in range(len(acknowledged), len(acknowledged) + count):
        try:
            c.insert_one({"_id": i, "n": i, "pad": os.urandom(50_000)})
            acknowledged[i] = i
        except PyMongoError as error:
            return error
    return None


def update(c, acknowledged, i):
    try:
        c.update_one({"_id": i}, {"$set": {"n": 1000 + i}})
        acknowledged[i] = 1000 + i
        return True
    except PyMongoError as error:
        assert getattr(error, "code", None) is not None, "not answered: %r" % error
        return False
