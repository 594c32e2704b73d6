"""A disk that is full: writes are answered with errors, nothing acknowledged is lost, space brings writes back."""
import os
import subprocess
import tempfile
import time

import pymongo
import pytest
import server
from pymongo.errors import PyMongoError

SIZE_MB = 320


@pytest.fixture
def small_disk():
    """A file system of a few megabytes in memory; only root may mount one."""
    folder = tempfile.mkdtemp(prefix="marula-disk-")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%dm" % SIZE_MB, "marula-test", folder],
                             capture_output=True)
    if mounted.returncode != 0:
        os.rmdir(folder)
        pytest.skip("no permission to mount a small file system")
    yield folder
    subprocess.run(["umount", folder], check=True)
    os.rmdir(folder)


@pytest.mark.skipif(server.is_mongod(), reason="another server ends when its disk is full")
def test_a_full_disk(small_disk):
    data, ballast = os.path.join(small_disk, "data"), os.path.join(small_disk, "ballast")
    os.mkdir(data)
    acknowledged = set()
    with server.Server(dbpath=data) as own:
        with pymongo.MongoClient(own.uri, retryWrites=False, socketTimeoutMS=60_000) as client:
            c = client.t.c
            c.create_index("n")
            c.insert_many([{"_id": i, "n": i} for i in range(100)])
            acknowledged.update(range(100))
            free = os.statvfs(small_disk)
            with open(ballast, "wb") as f:
                f.write(b"\0" * max(0, free.f_bavail * free.f_frsize - 12_000_000))
            refused = None
            # More than the disk holds, whatever the server has set aside for its log beforehand.
            for i in range(100, 100 + 10 * SIZE_MB):
                try:
                    c.insert_one({"_id": i, "n": i, "pad": os.urandom(100_000)})
                    acknowledged.add(i)
                except PyMongoError as error:
                    refused = error
                    break
            assert refused is not None, "the disk was never full"
            assert getattr(refused, "code", None) is not None, "not answered: %r" % refused
            # Reads go on.
            assert c.find_one({"_id": 50}) == {"_id": 50, "n": 50}
            assert {d["_id"] for d in c.find({}, {"_id": 1})} >= acknowledged
            os.remove(ballast)
            assert recovers(c), own.tail()
            acknowledged.add("after")
        own.kill()
        own.start()
        with pymongo.MongoClient(own.uri) as client:
            stored = {d["_id"] for d in client.t.c.find({}, {"_id": 1})}
            assert stored >= acknowledged
            report = client.t.command("validate", "c", full=True)
            assert report["valid"], report


def recovers(c):
    """Whether a write succeeds without a restart; the engine looks for space every few seconds."""
    for _ in range(200):
        try:
            c.insert_one({"_id": "after", "n": 0})
            return True
        except pymongo.errors.DuplicateKeyError:
            return True
        except PyMongoError:
            time.sleep(0.1)
    return False
