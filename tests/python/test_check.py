"""`marula check`: says what is wrong with a data folder, and changes nothing in it."""
import os
import subprocess

import pymongo
import pytest
import server

pytestmark = [pytest.mark.skipif(server.is_mongod(), reason="a command of Marula's own"), pytest.mark.embedded]


def check(dbpath):
    return subprocess.run([server.serve_command()[0], "check", "--dbpath", dbpath], capture_output=True, text=True)


def files(dbpath):
    """Every file with its size and time of change."""
    found = {}
    for folder, _, names in os.walk(dbpath):
        for name in names:
            stat = os.stat(os.path.join(folder, name))
            found[os.path.join(folder, name)] = (stat.st_size, stat.st_mtime_ns)
    return found


@pytest.fixture
def own():
    with server.Server() as own:
        with pymongo.MongoClient(own.uri) as client:
            client.t.c.insert_many([{"_id": i, "a": i % 7, "t": [i, "x"], "pad": os.urandom(500)} for i in range(2000)])
            client.t.c.create_indexes([pymongo.IndexModel("a"), pymongo.IndexModel([("t", -1), ("a", 1)])])
            client.t.c.delete_many({"a": 3})
            client.t.create_collection("capped", capped=True, size=4096)
            client.u.gone.insert_one({})
            client.u.gone.drop()
        yield own


def test_a_folder_that_is_sound(own):
    busy = check(own.dbpath)
    assert busy.returncode != 0 and "another process" in busy.stderr
    own.kill()
    before = files(own.dbpath)
    found = check(own.dbpath)
    assert (found.returncode, found.stdout) == (0, "3 collections, 1715 documents, 0 faults\n"), found.stderr
    assert files(own.dbpath) == before, "the check has changed the folder"
    own.start()
    with pymongo.MongoClient(own.uri) as client:
        assert client.t.c.count_documents({}) == 1714


def test_a_folder_that_is_none_of_marulas(tmp_path):
    found = check(str(tmp_path))
    assert found.returncode != 0 and "is not a data folder of marula" in found.stderr
    assert "there is no data folder" in check(str(tmp_path / "none")).stderr


def test_a_folder_that_is_damaged(own):
    # Started again, the server has written its log into tables.
    own.kill()
    own.start()
    with pymongo.MongoClient(own.uri) as client:
        client.admin.command("ping")
    assert own.terminate() == 0
    tables = [path for path in files(own.dbpath) if path.endswith(".sst")]
    largest = max(tables, key=os.path.getsize)
    with open(largest, "r+b") as table:
        table.seek(os.path.getsize(largest) // 2)
        table.write(b"\xa5" * 64)
    found = check(own.dbpath)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "corrupt" in found.stdout.lower() or "checksum" in found.stdout.lower(), found.stdout


def test_what_is_no_data_folder(tmp_path):
    for path in (tmp_path / "nothing", tmp_path):
        found = check(str(path))
        assert found.returncode != 0 and found.stderr.startswith("marula: "), found
    assert list(tmp_path.iterdir()) == [], "the check has made a file"
