"""Signals: the log is rotated, the server ends cleanly, at once by a second one, and others harm nothing."""
import os
import resource
import signal
import socket
import stat
import struct
import subprocess
import threading
import time

import bson
import pymongo
import pytest
import raw
import server

own_ways = pytest.mark.skipif(server.is_mongod(), reason="of Marula's own")


def until(true, seconds=20):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


def leaving(own):
    """A client that tries nothing again, and does not look long for a server that has ended."""
    return pymongo.MongoClient(own.uri, retryReads=False, retryWrites=False, serverSelectionTimeoutMS=2000)


@pytest.fixture
def logged(tmp_path):
    """A server with a log file; the file."""
    log = tmp_path / "server.log"
    with server.Server("--logpath", str(log), "--logappend") as own:
        yield own, log


def rotated(log):
    return sorted(path for path in log.parent.iterdir() if path.name.startswith(log.name + "."))


def test_usr1_renames_the_log(logged):
    own, log = logged
    before = log.read_text()
    own.process.send_signal(signal.SIGUSR1)
    until(lambda: rotated(log) and log.exists())
    assert rotated(log)[0].read_text().startswith(before)
    with pymongo.MongoClient(own.uri) as client:
        client.admin.command("ping")


def test_log_rotate_renames_once_a_second_and_knows_its_logs(logged):
    own, log = logged
    with pymongo.MongoClient(own.uri) as client:
        run = client.admin.command
        assert run("logRotate", 1)["ok"] == 1
        assert len(rotated(log)) == 1
        codes = set()
        while not codes:
            try:
                run("logRotate", "server")
            except pymongo.errors.OperationFailure as error:
                codes.add((error.code, error.details["codeName"]))
        assert codes == {(37, "FileRenameFailed")}
        for value, code in (("audit", 4), ("x", 4), ("", 4), (None, 14), ({}, 14)):
            with pytest.raises(pymongo.errors.OperationFailure) as caught:
                run({"logRotate": value})
            assert caught.value.code == code, value
        with pytest.raises(pymongo.errors.OperationFailure) as caught:
            run({"logRotate": 1, "foo": 1})
        assert caught.value.code == 40415


def test_log_rotate_reopens_a_file_that_was_moved_away(tmp_path):
    log = tmp_path / "server.log"
    with server.Server("--logpath", str(log), "--logappend", "--logRotate", "reopen") as own:
        log.rename(tmp_path / "moved")
        with pymongo.MongoClient(own.uri) as client:
            client.admin.command("logRotate", 1)
        assert log.exists()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["moved", "server.log"]


def test_a_log_file_of_an_earlier_run_is_kept(tmp_path):
    log = tmp_path / "server.log"
    log.write_text("of an earlier run\n")
    with server.Server("--logpath", str(log)):
        # The port answers a little before the log is open.
        until(lambda: rotated(log))
        assert rotated(log)[0].read_text() == "of an earlier run\n"
    with server.Server("--logpath", str(log), "--logappend"):
        assert len(rotated(log)) == 1


@pytest.mark.embedded
@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGXCPU"])
def test_what_ends_the_server_ends_it_cleanly(name):
    with server.Server() as own:
        with pymongo.MongoClient(own.uri) as client:
            client.t.c.insert_one({"_id": 1})
        own.process.send_signal(getattr(signal, name))
        assert own.process.wait(30) == 0
        own.start()
        with pymongo.MongoClient(own.uri) as client:
            assert client.t.c.count_documents({}) == 1


@pytest.mark.parametrize("name", ["SIGUSR2", "SIGPIPE", "SIGALRM", "SIGVTALRM", "SIGPROF"])
def test_signals_without_a_meaning_harm_nothing(name):
    with server.Server() as own:
        with pymongo.MongoClient(own.uri) as client:
            client.t.c.insert_one({"_id": 1})
            own.process.send_signal(getattr(signal, name))
            if server.is_mongod() and name in ("SIGALRM", "SIGVTALRM", "SIGPROF"):
                # docs/differences.md says so.
                assert own.process.wait(30) == -getattr(signal, name)
                # The client ends its session at a server.
                own.start()
                return
            for _ in range(20):
                assert client.t.c.find_one() == {"_id": 1}
                time.sleep(0.01)
        assert own.process.poll() is None
        # It still ends cleanly by what ends it.
        assert own.terminate() == 0


def test_clients_are_told_that_the_server_ends():
    with server.Server() as own, leaving(own) as client:
        client.t.c.insert_many([{"_id": i} for i in range(5000)])
        client.t.create_collection("capped", capped=True, size=100_000).insert_one({"_id": 1})
        told = {}

        def run(name, operation):
            try:
                operation()
            except pymongo.errors.PyMongoError as error:
                told[name] = error.details["code"] if getattr(error, "details", None) else repr(error)

        def tail():
            cursor = client.t.capped.find(cursor_type=pymongo.CursorType.TAILABLE_AWAIT).max_await_time_ms(60_000)
            next(cursor)
            next(cursor)

        long = "function() { for (let end = Date.now() + 10; Date.now() < end;); return true; }"
        operations = {"update": lambda: client.t.c.update_many({"$where": long}, {"$set": {"x": 1}}),
                      "getmore": tail}
        threads = [threading.Thread(target=run, args=each) for each in operations.items()]
        for thread in threads:
            thread.start()
        def has_begun(name):
            running = [{"$currentOp": {}}, {"$match": {"op": name, "ns": {"$regex": "^t[.]"}}}]
            return name in told or list(client.admin.aggregate(running))

        until(lambda: all(map(has_begun, operations)))
        own.process.terminate()
        for thread in threads:
            thread.join(30)
        assert own.process.wait(30) == 0
        assert told == {"getmore": 11600, "update": 11600}


FOR_EVER = "function() { for (;;); }"
RANGES = [stage for field in "ijk" for stage in (
    {"$set": {field: {"$range": [0, 1_000_000]}}}, {"$unwind": "$" + field})]
ENDLESS = {
    "update": lambda db: db.c.update_many({"$where": FOR_EVER}, {"$set": {"x": 1}}),
    "sleep": lambda db: db.c.update_many({"$where": "sleep(3600000)"}, {"$set": {"x": 1}}),
    "delete": lambda db: db.c.delete_many({"$where": FOR_EVER}),
    "findAndModify": lambda db: db.c.find_one_and_delete({"$where": FOR_EVER}),
    "find": lambda db: list(db.c.find({"$where": FOR_EVER})),
    "distinct": lambda db: db.c.distinct("_id", {"$where": FOR_EVER}),
    "mapReduce": lambda db: db.command("mapReduce", "c", map=FOR_EVER, reduce="function(k, v) { return 1 }",
                                       out={"inline": 1}),
    "aggregate": lambda db: list(db.c.aggregate(RANGES + [{"$count": "n"}])),
    "sort": lambda db: list(db.c.aggregate(RANGES + [{"$sort": {"k": -1}}], allowDiskUse=True)),
    "lookup": lambda db: list(db.c.aggregate([{"$lookup": {"from": "c", "pipeline": RANGES, "as": "found"}}])),
    "regexFindAll": lambda db: list(db.c.aggregate([{"$project": {"n": {"$size": {"$regexFindAll": {
        "input": "a" * 150_000, "regex": "[^b]*[bc]"}}}}}])),
    "out": lambda db: db.c.aggregate(RANGES + [{"$project": {"_id": 0}}, {"$out": "written"}]),
    "index": lambda db: db.large.create_index([(name, 1) for name in "abcdefgh"]),
}


def test_all_that_runs_ends_with_the_server():
    """Each gets the signal, and none is waited for: the server would give them ten seconds."""
    with server.Server() as own, leaving(own) as client:
        client.t.c.insert_many([{"_id": i} for i in range(1000)])
        client.t.large.insert_many([{name: [i + j for j in range(4)] if name == "a" else i for name in "abcdefgh"}
                                    for i in range(30_000)])
        told = {}

        def run(name):
            try:
                ENDLESS[name](client.t)
                told[name] = 0
            except pymongo.errors.PyMongoError as error:
                told[name] = error.details["code"] if getattr(error, "details", None) else repr(error)

        threads = [threading.Thread(target=run, args=(name,)) for name in ENDLESS]
        for thread in threads:
            thread.start()
        running = [{"$currentOp": {}}, {"$match": {"ns": {"$regex": "^t[.]"}}}]
        until(lambda: len(list(client.admin.aggregate(running))) + len(told) == len(ENDLESS), 60)
        began = time.monotonic()
        own.process.terminate()
        assert own.process.wait(60) == 0
        assert time.monotonic() - began < 8
        for thread in threads:
            thread.join(60)
        # An index may have been built before.
        index = told.pop("index")
        assert index in (0, 11600)
        assert told == {name: 11600 for name in ENDLESS if name != "index"}
        assert server.is_mongod() or "did not end in time" not in own.tail(1 << 20)


@pytest.mark.embedded
@own_ways
@pytest.mark.parametrize("second", ["SIGTERM", "SIGINT"])
def test_a_second_signal_ends_at_once_what_the_first_waits_for(second):
    """Replies that clients do not read are what the server waits for longest: ten seconds."""
    with server.Server() as own:
        with pymongo.MongoClient(own.uri) as client:
            client.t.c.insert_many([{"_id": n, "x": b"x" * 1_000_000} for n in range(15)])
        body = bson.encode({"find": "c", "$db": "t"})
        message = struct.pack("<iiiiI", 21 + len(body), 1, 0, 2013, 0) + b"\0" + body
        clients = [socket.create_connection(("127.0.0.1", own.port)) for _ in range(3)]
        for each in clients:
            each.sendall(message)
            # It has its reply in part.
            assert each.recv(1)
        own.process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            own.process.wait(1)
        own.process.send_signal(getattr(signal, second))
        assert own.process.wait(4) == 0
        for each in clients:
            each.close()
        own.start()
        with pymongo.MongoClient(own.uri) as client:
            assert client.t.c.count_documents({}) == 15


@own_ways
def test_files_are_their_owners_alone(tmp_path):
    data, log, pid = tmp_path / "data", tmp_path / "log", tmp_path / "pid"
    with server.Server("--logpath", str(log), "--pidfilepath", str(pid), dbpath=str(data),
                       preexec=lambda: os.umask(0)) as own:
        with pymongo.MongoClient(own.uri) as client:
            client.t.c.insert_many([{"_id": i, "x": os.urandom(1000)} for i in range(100)])
            client.t.c.create_index("x")
        for folder, _, names in os.walk(data):
            assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700, folder
            for name in names:
                path = os.path.join(folder, name)
                assert stat.S_IMODE(os.stat(path).st_mode) == 0o600, path
        assert stat.S_IMODE(log.stat().st_mode) == 0o600
        assert stat.S_IMODE(pid.stat().st_mode) == 0o644


@own_ways
def test_the_limit_of_open_files_is_raised_and_told():
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 2000))

    with server.Server(preexec=limit) as own, pymongo.MongoClient(own.uri) as client:
        warnings = client.admin.command("getLog", "startupWarnings")["log"]
        assert any("Soft rlimits for open file descriptors too low" in line and '"currentValue":2000' in line for line in warnings)
        connections = client.admin.command("serverStatus")["connections"]
        assert connections["current"] + connections["available"] < 1000
        clients = [pymongo.MongoClient(own.uri, maxPoolSize=1) for _ in range(100)]
        for each in clients:
            each.admin.command("ping")
        for each in clients:
            each.close()


@own_ways
def test_a_limit_of_open_files_that_is_too_low_is_told(tmp_path):
    done = subprocess.run([*server.serve_command(), "--dbpath", str(tmp_path / "data")], capture_output=True, text=True,
                          timeout=20, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    assert done.returncode == 1 and "only 64 files" in done.stderr
    assert not (tmp_path / "data").exists()


@own_ways
def test_refused_connections_are_told_once():
    with server.Server("--maxConns", "5") as own:
        for _ in range(20):
            held = [socket.create_connection(("127.0.0.1", own.port)) for _ in range(10)]
            for each in held:
                each.close()
        until(lambda: "too many are open" in own.tail(1 << 20))
        assert own.tail(1 << 20).count("too many are open") == 1


@own_ways
def test_without_descriptors_nobody_is_let_in_until_there_are_some():
    """The connections that there are go on, and the log says it once."""
    with server.Server() as own, raw.Raw(own.port) as known:
        pid = own.process.pid
        assert known.command("admin", ping=1)["ok"] == 1
        count = len(os.listdir("/proc/%d/fd" % pid)) + 3
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (count, count))
        # The kernel takes these; the server cannot.
        waiting = [socket.create_connection(("127.0.0.1", own.port)) for _ in range(10)]
        until(lambda: "could not accept" in own.tail(1 << 20))
        for _ in range(30):
            assert known.command("admin", ping=1)["ok"] == 1
            time.sleep(0.05)
        assert own.tail(1 << 20).count("could not accept") < 5, own.tail()
        for each in waiting:
            each.close()

        def is_let_in():
            with raw.Raw(own.port) as connection:
                return connection.command("admin", ping=1)["ok"] == 1

        until(is_let_in)
