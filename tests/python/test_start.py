"""Starting and ending: mistakes are one clear line and touch nothing; SIGTERM ends cleanly; the data is there again."""
import os
import signal
import socket
import subprocess
import time

import pymongo
import pytest
import server

own_ways = pytest.mark.skipif(server.is_mongod(), reason="another server has other words for it")


def attempt(*words, timeout=20):
    """Runs a start that must fail; returns its exit status and what it said on stderr."""
    done = subprocess.run([*server.serve_command(), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=timeout)
    return done.returncode, done.stderr.strip()


def content(folder):
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(path, name), "rb") as f:
                found[os.path.relpath(os.path.join(path, name), folder)] = f.read()
    return found


def refused(tmp_path, *words):
    """One line, a non-zero status, an untouched folder."""
    before = content(tmp_path)
    status, said = attempt(*words)
    assert status != 0
    assert said and "\n" not in said, said
    assert "panicked" not in said
    assert content(tmp_path) == before
    return said


@own_ways
def test_an_unknown_option(tmp_path):
    assert "--nonsense" in refused(tmp_path, "--dbpath", str(tmp_path), "--nonsense")


@own_ways
@pytest.mark.parametrize("words, said", [
    (["--port", "abc"], "net.port 'abc' is not a port: a number from 0 to 65535"),
    (["--port", "70000"], "net.port '70000' is not a port: a number from 0 to 65535"),
    (["--maxConns", "many"], "'many' is not a number of connections"),
    (["--maxConns", "0"], "net.maxIncomingConnections must not be 0"),
    (["--cache-size", "99999GB"], "storage.cacheSize '99999GB' is more than 10000 GB"),
    (["--cache-size", "some"], "'some' is not a size such as 512MB or 2GB"),
    (["--wiredTigerCacheSizeGB", "x"], "'x' is not a size in gigabytes"),
    (["--wiredTigerCacheSizeGB", "10001"], "'10001' is not a size from 0 to 10000 gigabytes"),
    (["--logRotate", "x"], "systemLog.logRotate 'x' is not one of rename, reopen"),
    (["--logRotate", "reopen"], "systemLog.logRotate 'reopen' needs systemLog.logAppend"),
    (["--setParameter", "x"], "is not of the form name=value")])
def test_a_mistake_in_an_option(tmp_path, words, said):
    assert said in refused(tmp_path, "--dbpath", str(tmp_path), *words)


@pytest.mark.embedded
@own_ways
def test_a_cache_larger_than_the_memory_is_limited_and_told():
    with server.Server("--cache-size", "9999GB") as own, pymongo.MongoClient(own.uri) as client:
        warnings = client.admin.command("getLog", "startupWarnings")["log"]
        assert any("larger than this machine's memory" in line for line in warnings)


@own_ways
def test_a_port_in_use(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = str(s.getsockname()[1])
        assert port in refused(tmp_path, "--dbpath", str(tmp_path), "--port", port)


@pytest.mark.embedded
@own_ways
def test_a_folder_with_foreign_files(tmp_path):
    (tmp_path / "letter.txt").write_text("dear diary")
    (tmp_path / "WiredTiger.wt").write_bytes(b"something else's")
    said = refused(tmp_path, "--dbpath", str(tmp_path), "--port", str(server.free_port()))
    assert str(tmp_path) in said


@pytest.mark.embedded
@own_ways
def test_a_file_instead_of_a_folder(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    refused(tmp_path, "--dbpath", str(path), "--port", str(server.free_port()))


@pytest.mark.embedded
@own_ways
def test_a_folder_that_another_server_has_open(tmp_path):
    with server.Server() as first:
        status, said = attempt("--dbpath", first.dbpath, "--port", str(server.free_port()))
        assert status != 0 and said and "\n" not in said
        with pymongo.MongoClient(first.uri) as client:
            client.t.c.insert_one({"_id": 1})


@pytest.mark.embedded
def test_sigterm_ends_cleanly_and_the_data_is_there_again():
    with server.Server() as own:
        with pymongo.MongoClient(own.uri) as client:
            client.t.c.insert_many([{"_id": i} for i in range(1000)])
            client.t.c.create_index("x")
            cursor = client.t.c.find(batch_size=2)
            next(cursor)
            began = time.monotonic()
            assert own.terminate() == 0
            assert time.monotonic() - began < 15
        assert own.start() < 5
        with pymongo.MongoClient(own.uri) as client:
            assert client.t.c.count_documents({}) == 1000
            assert "x_1" in client.t.c.index_information()


def nested(depth, name="a"):
    """A document of so many levels."""
    document = 1
    for _ in range(depth):
        document = {name: document}
    return document


def schema(depth):
    """A schema of properties within properties."""
    document = {}
    for _ in range(depth):
        document = {"properties": {"a": document}}
    return document


@pytest.mark.embedded
def test_the_deepest_options_are_there_again():
    with server.Server() as running:
        db = pymongo.MongoClient(running.uri).deep
        db.create_collection("validated", validator=nested(199))
        db.create_collection("schema", validator={"$jsonSchema": schema(95)})
        db.create_collection("c")
        db.create_collection("v", viewOn="c", pipeline=[{"$project": {"v": {"$literal": nested(190)}}}])
        db.command("collMod", "v", viewOn="c", pipeline=[{"$project": {"w": {"$literal": nested(189)}}}])
        db.command("createIndexes", "c", indexes=[{"key": {"a": 1}, "name": "part", "partialFilterExpression": nested(197)}])
        before = list(db.list_collections()), db.c.index_information()
        for end in (running.terminate, running.kill):
            end()
            running.start()
            db = pymongo.MongoClient(running.uri).deep
            assert (sorted(map(repr, db.list_collections())), db.c.index_information()) == (sorted(map(repr, before[0])), before[1])
            assert db["system.views"].count_documents({"_id": "deep.v"}) == 1


@pytest.mark.embedded
def test_a_collection_has_room_for_indexes_of_16_megabytes():
    """Index specifications that the catalogue could not hold are refused, before they are built."""
    with server.Server() as running:
        db = pymongo.MongoClient(running.uri).large
        db.c.insert_one({"a": "x"})
        for number in range(2):
            db.c.create_index("a", name="i%d" % number, partialFilterExpression={"a": "%d" % number + "x" * (7 << 20)})
        with pytest.raises(pymongo.errors.OperationFailure, match="BSONObj size: ") as error:
            db.c.create_index("a", name="i2", partialFilterExpression={"a": "2" + "x" * (7 << 20)})
        assert error.value.code == 10334
        with pytest.raises(pymongo.errors.OperationFailure, match="View pipeline is too large and exceeds the maximum size of 16000000 bytes"):
            db.create_collection("v", viewOn="c", pipeline=[{"$match": {"a": "x" * 16_000_000}}])
        running.terminate()
        running.start()
        db = pymongo.MongoClient(running.uri).large
        assert sorted(db.c.index_information()) == ["_id_", "i0", "i1"]
        assert db.list_collection_names() == ["c"]


def test_the_shutdown_command_ends_the_server():
    with server.Server() as own:
        with pymongo.MongoClient(own.uri) as client:
            with pytest.raises(pymongo.errors.AutoReconnect):
                client.admin.command("shutdown")
        assert own.process.wait(20) == 0


def test_a_configuration_file_in_the_form_of_mongod_conf(tmp_path):
    port, data, log = server.free_port(), tmp_path / "data", tmp_path / "server.log"
    data.mkdir()
    config = tmp_path / "mongod.conf"
    config.write_text("""
# as a package of mongod has it
storage:
  dbPath: %s
net:
  port: %d
  bindIp: 127.0.0.1
systemLog:
  destination: file
  path: %s
  logAppend: true
""" % (data, port, log))
    process = subprocess.Popen([*server.serve_command(), "--config", str(config)], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with pymongo.MongoClient("127.0.0.1", port, serverSelectionTimeoutMS=20_000) as client:
            parsed = client.admin.command("getCmdLineOpts")["parsed"]
            assert parsed["net"]["port"] == port and parsed["storage"]["dbPath"] == str(data)
        assert log.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@own_ways
@pytest.mark.parametrize("text, word", [
    ("net:\n  prot: 1\n", "prot"), ("net: [1\n", "conf"), ("storage:\n  engine: stone\n", "stone"),
    ("net:\n  port: many\n", "many")])
def test_a_mistake_in_the_configuration_file(tmp_path, text, word):
    config = tmp_path / "mongod.conf"
    config.write_text(text)
    assert word in refused(tmp_path, "--dbpath", str(tmp_path / "data"), "--config", str(config))


@own_ways
def test_help_and_version():
    binary = server.serve_command()[0]
    for words in (["--help"], ["serve", "--help"], ["--version"]):
        done = subprocess.run([binary, *words], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout and not done.stderr
    assert "--dbpath" in subprocess.run([binary, "serve", "--help"], capture_output=True, text=True).stdout


@own_ways
def test_memory_leaves_nothing_behind(tmp_path):
    with server.Server("--storage-engine", "memory", dbpath=str(tmp_path)) as own:
        with pymongo.MongoClient(own.uri) as client:
            client.t.c.insert_one({"_id": 1})
            assert client.t.c.find_one() == {"_id": 1}
        assert own.terminate() == 0
    assert content(tmp_path) == {}
