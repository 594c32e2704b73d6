"""A log that is damaged after a crash: nothing that was acknowledged is lost without a word."""
import glob
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request

import pymongo
import pytest
import server

pytestmark = [pytest.mark.skipif(server.is_mongod(), reason="the files are Marula's"), pytest.mark.embedded]

DOCUMENTS = 300


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """A data folder as kill -9 leaves it after writes with j: true; its path and the log file's bytes."""
    path = str(tmp_path_factory.mktemp("crashed") / "data")
    with server.Server(dbpath=path) as own:
        with pymongo.MongoClient(own.uri, journal=True) as client:
            for i in range(DOCUMENTS):
                client.t.c.insert_one({"_id": i, "pad": "x" * 200})
        own.kill()
    log, = [name for name in glob.glob(path + "/store/*.log") if os.path.getsize(name)]
    with open(log, "rb") as f:
        return path, log, f.read()


def run(verb, path, *words):
    return subprocess.run([server.serve_command()[0], verb, "--dbpath", path, *words], capture_output=True, text=True,
                          timeout=60)


def is_told(path, log):
    """The start is refused in one line that names the file, and the check says the same."""
    before = sorted(os.listdir(path + "/store"))
    refused = run("serve", path, "--port", str(server.free_port()))
    assert refused.returncode == 1, refused.stderr
    assert "acknowledged are lost" in refused.stderr and "--repair" in refused.stderr, refused.stderr
    assert "panicked" not in refused.stderr
    assert os.path.exists(log) is False or os.path.basename(log) in refused.stderr or "log in" in refused.stderr
    assert sorted(os.listdir(path + "/store")) == before, "the refused start has changed the folder"
    found = run("check", path)
    assert found.returncode == 1 and "acknowledged are lost" in found.stdout, found


@pytest.mark.parametrize("place", [0.02, 0.25, 0.5, 0.75, 0.98, 1.0])
def test_a_flipped_byte(crashed, place):
    path, log, content = crashed
    flipped = bytearray(content)
    flipped[min(int(len(content) * place), len(content) - 1)] ^= 0x10
    with open(log, "wb") as f:
        f.write(flipped)
    try:
        is_told(path, log)
    finally:
        with open(log, "wb") as f:
            f.write(content)


def test_a_log_that_was_emptied_or_cut_off_or_is_missing(crashed):
    path, log, content = crashed
    for left in (b"", content[:len(content) // 2], content[:-1], None):
        with open(log, "wb") as f:
            f.write(left or b"")
        if left is None:
            os.remove(log)
        try:
            is_told(path, log)
        finally:
            with open(log, "wb") as f:
                f.write(content)


def lost_bytes(port):
    """The metric, once the server is ready."""
    until = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=10) as answer:
                line, = re.findall("^marula_storage_log_lost_bytes (.*)$", answer.read().decode(), re.MULTILINE)
                return int(line)
        except urllib.error.HTTPError:
            assert time.monotonic() < until
            time.sleep(0.01)


@pytest.mark.parametrize("torn", [0, 9])
def test_a_metric_has_the_size_of_a_torn_end(crashed, tmp_path, torn):
    path, log, _ = crashed
    copy = str(tmp_path / "data")
    shutil.copytree(path, copy)
    with open(os.path.join(copy, os.path.relpath(log, path)), "ab") as f:
        f.write(bytes(range(1, torn + 1)))
    port = server.free_port()
    with server.Server("--metrics-listen", str(port), dbpath=copy):
        assert lost_bytes(port) == torn


def test_the_repair_keeps_what_comes_before_and_a_torn_end_is_none(crashed):
    path, log, content = crashed
    # A write that was cut short before it was acknowledged.
    with open(log, "ab") as f:
        f.write(content[:1000][:5])
    # One more is the feature compatibility version.
    assert run("check", path).stdout.endswith("%d documents, 0 faults\n" % (DOCUMENTS + 1))
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    with open(log, "wb") as f:
        f.write(flipped)
    repaired = run("serve", path, "--repair", "--port", str(server.free_port()))
    assert repaired.returncode == 0 and "acknowledged are lost" in repaired.stdout, repaired
    with server.Server(dbpath=path) as own, pymongo.MongoClient(own.uri) as client:
        count = client.t.c.count_documents({})
        assert DOCUMENTS // 4 < count < DOCUMENTS
        assert [each["_id"] for each in client.t.c.find().sort("_id")] == list(range(count))
    assert run("check", path).returncode == 0
