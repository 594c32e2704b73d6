"""The log: MongoDB's structured lines with its ids, components and attributes, so that programs that read mongod's
logs read this one. Lines that mongod writes too are compared with it: run with MARULA_SERVE=mongod."""
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time

import pymongo
import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server  # noqa: E402

ours = pytest.mark.skipif(server.is_mongod(), reason="of Marula's own ways")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d$")


def lines(own):
    with open(own.log, errors="replace") as log:
        return [json.loads(line) for line in log if line.startswith("{")]


def found(own, number, wait=10, **attr):
    """The lines of this id whose attributes have these values; waits for the first."""
    until = time.monotonic() + wait
    while True:
        all_lines = lines(own)
        fits = [line for line in all_lines if line["id"] == number
                and all(line.get("attr", {}).get(name) == value for name, value in attr.items())]
        if fits or time.monotonic() > until:
            assert fits, "no line %d %s among %s" % (number, attr, [(line["id"], line["msg"]) for line in all_lines])
            return fits
        time.sleep(0.02)


@pytest.fixture(scope="module")
def own():
    with server.Server() as own:
        yield own


@pytest.fixture
def client(own):
    with pymongo.MongoClient(own.uri, appname="the app") as client:
        yield client


def test_lines_are_json_with_mongods_fields_in_its_order(own, client):
    client.admin.command("ping")
    for line in lines(own):
        assert list(line)[:6] == ["t", "s", "c", "id", "ctx", "msg"], line
        assert set(line) <= {"t", "s", "c", "id", "ctx", "msg", "attr", "tags"}, line
        assert TIME.match(line["t"]["$date"]), line
        assert line["s"] in ("F", "E", "W", "I", "D1", "D2", "D3", "D4", "D5"), line
    with open(own.log) as log:
        raw = log.readlines()
    # In columns, as mongod writes them.
    accepted = next(line for line in raw if '"id":22943' in line)
    assert '"s":"I",  "c":"NETWORK",  "id":22943,   "ctx":"listener","msg":"Connection accepted","attr":{' in accepted
    # Nothing is printed as a debugger would.
    assert not [line for line in raw if "Some(" in line or "None" in line], raw


@pytest.mark.embedded
def test_the_banner_says_what_was_started(own):
    start = found(own, 4615611)[0]
    assert (start["c"], start["ctx"]) == ("CONTROL", "initandlisten")
    assert start["attr"]["pid"] > 0 and start["attr"]["port"] == own.port
    assert start["attr"]["dbPath"] == own.dbpath and start["attr"]["architecture"] == "64-bit"
    build = found(own, 23403)[0]["attr"]["buildInfo"]
    assert build["version"].startswith("6.0.") and "gitVersion" in build
    assert set(found(own, 51765)[0]["attr"]["os"]) == {"name", "version"}
    options = found(own, 21951)[0]["attr"]["options"]
    assert options["storage"]["dbPath"] == own.dbpath and options["net"]["port"] == own.port
    ready = found(own, 23016)[0]
    assert ready["msg"] == "Waiting for connections" and ready["ctx"] == "listener"
    assert ready["attr"]["port"] == own.port and ready["attr"]["ssl"] == "off"
    assert found(own, 23015, address="127.0.0.1")
    assert found(own, 22120)[0]["tags"] == ["startupWarnings"]


def test_connections_begin_and_end(own, client):
    client.admin.command("ping")
    metadata = found(own, 51800)
    of_app = [line for line in metadata if line["attr"]["doc"].get("application") == {"name": "the app"}][0]
    assert of_app["attr"]["doc"]["driver"]["name"].startswith("PyMongo")
    assert re.match(r"conn\d+$", of_app["ctx"]) and of_app["attr"]["client"] == of_app["ctx"]
    assert of_app["attr"]["negotiatedCompressors"] == []
    remote = of_app["attr"]["remote"]
    began = found(own, 22943, remote=remote)[0]["attr"]
    assert began["connectionId"] == int(of_app["ctx"][4:]) and began["connectionCount"] >= 1
    assert re.match(r"[0-9a-f]{8}-", began["uuid"])
    client.close()
    ended = found(own, 22944, remote=remote)[0]
    assert ended["attr"]["uuid"] == began["uuid"] and ended["attr"]["connectionId"] == began["connectionId"]


def test_slow_operations_have_mongods_attributes(own, client):
    db = client.slow
    db.c.insert_many([{"_id": i, "x": i % 10} for i in range(300)])
    db.command("profile", 0, slowms=0)
    list(db.c.find({"x": {"$gt": 3}}).sort("x", 1).comment("hi").limit(5))
    db.command("profile", 0, slowms=100)
    line = [line for line in found(own, 51803, ns="slow.c") if "find" in line["attr"]["command"]][0]
    assert (line["s"], line["c"], line["msg"]) == ("I", "COMMAND", "Slow query")
    attr = line["attr"]
    assert attr["type"] == "command" and attr["appName"] == "the app" and attr["planSummary"] == "COLLSCAN"
    assert attr["command"]["filter"] == {"x": {"$gt": 3}} and attr["command"]["$db"] == "slow"
    assert (attr["keysExamined"], attr["docsExamined"], attr["nreturned"]) == (0, 300, 5)
    assert attr["hasSortStage"] is True and attr["numYields"] == 0
    assert re.match(r"[0-9A-F]{8}$", attr["queryHash"]) and attr["locks"] is not None and attr["storage"] is not None
    assert attr["protocol"] == "op_msg" and attr["remote"].startswith("127.0.0.1:") and "durationMillis" in attr
    order = [name for name in attr if name in ("type", "ns", "appName", "command", "planSummary", "keysExamined",
                                               "docsExamined", "numYields", "nreturned", "queryHash", "reslen",
                                               "locks", "storage", "remote", "protocol", "durationMillis")]
    assert order == ["type", "ns", "appName", "command", "planSummary", "keysExamined", "docsExamined", "numYields",
                     "nreturned", "queryHash", "reslen", "locks", "storage", "remote", "protocol", "durationMillis"]


def test_changes_of_the_catalogue(own, client):
    db = client.ddl
    db.create_collection("a", capped=True, size=4096)
    created = found(own, 20320, namespace="ddl.a")[0]
    assert (created["c"], created["msg"]) == ("STORAGE", "createCollection")
    assert created["attr"]["options"] == {"capped": True, "size": 4096}
    uuid = created["attr"]["uuid"]["uuid"]["$uuid"]
    db.b.insert_many([{"x": i} for i in range(100)])
    db.b.create_index("x", name="by_x")
    assert found(own, 20438, namespace="ddl.b")[0]["attr"]["firstIndex"] == {"name": "by_x"}
    assert found(own, 20384, namespace="ddl.b")[0]["attr"]["properties"]["key"] == {"x": 1}
    assert found(own, 20345, namespace="ddl.b", index="by_x")[0]["c"] == "INDEX"
    done = found(own, 20663, namespace="ddl.b")[0]["attr"]
    assert (done["indexesBuilt"], done["numIndexesBefore"], done["numIndexesAfter"]) == (["by_x"], 1, 2)
    db.c.insert_many([{"x": 1}, {"x": 1}])
    with pytest.raises(pymongo.errors.OperationFailure):
        db.c.create_index("x", unique=True)
    failed = found(own, 20649, namespace="ddl.c")[0]["attr"]["error"]
    assert (failed["code"], failed["codeName"]) == (11000, "DuplicateKey") and "dup key" in failed["errmsg"]
    db.b.drop_index("by_x")
    assert found(own, 51806, namespace="ddl.b")[0]["attr"]["indexes"] == "by_x"
    db.a.rename("z")
    renamed = found(own, 20319, fromName="ddl.a", toName="ddl.z")[0]
    assert renamed["attr"]["uuid"]["uuid"]["$uuid"] == uuid
    assert found(own, 20400, sourceNamespace="ddl.a", targetNamespace="ddl.z", dropTarget="no")
    db.z.drop()
    assert found(own, 518070, namespace="ddl.z")[0]["msg"] == "CMD: drop"
    assert found(own, 20318, namespace="ddl.z")[0]["attr"]["uuid"]["uuid"]["$uuid"] == uuid
    client.drop_database("ddl")
    assert found(own, 20336, db="ddl")[0]["attr"]["numCollectionsDropped"] == 2


def test_commands_of_administrators(own, client):
    client.admin.command("setParameter", 1, cursorTimeoutMillis=600001)
    line = found(own, 23435, parameterName="cursorTimeoutMillis")[0]
    assert (line["attr"]["newValue"], line["attr"]["oldValue"]) == ("600001", "600000")
    client.admin.command("killOp", op=123)
    assert found(own, 20482, opId=123)[0]["c"] == "COMMAND"
    client.admin.command("fsync", lock=True)
    client.admin.command("fsyncUnlock")
    assert found(own, 20461, lock=True) and found(own, 20462, lockCount=1) and found(own, 20466, lockCount=0)
    client.some.command("profile", 0, sampleRate=0.5)
    change = found(own, 48742)[-1]["attr"]
    assert change["from"]["sampleRate"] == 1 and change["to"]["sampleRate"] == 0.5
    client.some.command("profile", 0, sampleRate=1.0)
    client.some.c.insert_one({})
    client.some.command("validate", "c")
    assert found(own, 20514, namespace="some.c") and found(own, 20306, namespace="some.c")


def test_a_warning_of_a_validator(own, client):
    db = client.warned
    db.create_collection("c", validator={"x": {"$gt": 5}}, validationAction="warn")
    db.c.insert_one({"_id": 7, "x": 1})
    line = found(own, 20294, namespace="warned.c")[0]
    assert (line["s"], line["c"], line["msg"]) == ("W", "STORAGE", "Document would fail validation")
    assert line["attr"]["errInfo"]["failingDocumentId"] == 7


def test_a_request_that_is_none_ends_its_connection(own):
    with socket.create_connection(("127.0.0.1", own.port)) as broken:
        broken.sendall(struct.pack("<iiii", 8, 1, 0, 2013))
        assert broken.recv(100) == b""
    assert found(own, 22988)[0]["msg"] == "Error receiving request from client. Ending connection from remote"


def test_levels_act_by_component(own, client):
    def set_levels(**levels):
        client.admin.command("setParameter", 1, logComponentVerbosity=levels)

    def verbosity():
        return client.admin.command("getParameter", logComponentVerbosity=1)["logComponentVerbosity"]

    def debugging():
        return {line["c"] for line in lines(own)[seen:] if line["s"].startswith("D")}

    def work():
        client.levels.c.insert_one({})
        client.levels.c.drop()
        with pytest.raises(pymongo.errors.OperationFailure):
            client.levels.command("find", "c", filter={"$nope": 1})

    seen = len(lines(own))
    work()
    assert debugging() == set()
    set_levels(command={"verbosity": 1})
    assert verbosity()["command"]["verbosity"] == 1
    work()
    assert debugging() == {"COMMAND"}
    said = found(own, 21962)[-1]["attr"]
    assert said["command"] == "find" and said["db"] == "levels" and said["error"].startswith("BadValue: ")
    # Every operation is logged, not only the slow ones.
    told = [line["attr"]["command"] for line in found(own, 51803)]
    assert [one["insert"] for one in told if "insert" in one] == ["c"] and any("drop" in one for one in told)
    set_levels(command={"verbosity": -1})
    seen = len(lines(own))
    work()
    assert debugging() == set()
    client.admin.command("setParameter", 1, logLevel=1)
    assert verbosity()["verbosity"] == 1
    work()
    assert "COMMAND" in debugging()
    client.admin.command("setParameter", 1, logLevel=0)
    seen = len(lines(own))
    work()
    assert debugging() == set()


def test_get_log_has_the_lines(own, client):
    client.admin.command("ping")
    log = client.admin.command("getLog", "global")
    assert log["totalLinesWritten"] >= len(log["log"])
    written = [json.dumps(line, sort_keys=True) for line in lines(own)]
    for line in log["log"]:
        # mongod's lines hold a hash of the address family of what they shorten; all are JSON.
        assert json.dumps(json.loads(line), sort_keys=True) in written
    warnings = client.admin.command("getLog", "startupWarnings")["log"]
    assert all(json.loads(line)["tags"] == ["startupWarnings"] for line in warnings) and warnings


def test_authentication_is_logged():
    with server.Server("--auth") as own:
        with pymongo.MongoClient(own.uri) as client:
            client.admin.command("createUser", "root", pwd="planted-root", roles=["root"])
        with pymongo.MongoClient(own.uri, username="root", password="planted-root") as client:
            client.t.command("createUser", "ro", pwd="planted-ro", roles=["read"])
        line = found(own, 20250, principalName="root")[0]
        assert (line["c"], line["msg"]) == ("ACCESS", "Authentication succeeded")
        assert line["attr"]["mechanism"] == "SCRAM-SHA-256" and line["attr"]["authenticationDatabase"] == "admin"
        assert line["attr"]["speculative"] is True and line["attr"]["remote"].startswith("127.0.0.1:")
        for user, password, cause in (("root", "planted-wrong", "AuthenticationFailed: "), ("nobody", "x", "UserNotFound: ")):
            with pytest.raises(pymongo.errors.OperationFailure) as caught:
                pymongo.MongoClient(own.uri, username=user, password=password).t.command("ping")
            assert caught.value.code == 18 and caught.value.details["errmsg"] == "Authentication failed."
            line = found(own, 20249, principalName=user)[0]
            assert line["msg"] == "Authentication failed" and line["attr"]["error"].startswith(cause)
        assert found(own, 20251, user={"user": "nobody", "db": "admin"})
        with pymongo.MongoClient(own.uri, username="ro", password="planted-ro", authSource="t") as client:
            with pytest.raises(pymongo.errors.OperationFailure):
                client.t.c.insert_one({})
        refused = found(own, 20436)[0]["attr"]["error"]
        assert refused["codeName"] == "Unauthorized" and "not authorized on t to execute command { insert" in refused["errmsg"]
        with open(own.log) as log:
            assert "planted" not in log.read()


def test_a_clean_end_is_told():
    with server.Server() as own:
        found(own, 23016)
        own.process.terminate()
        own.process.wait(30)
        assert found(own, 23377, signal=15) and found(own, 23138, exitCode=0) and found(own, 20565)
    with server.Server() as own:
        with pymongo.MongoClient(own.uri) as client:
            with pytest.raises(pymongo.errors.AutoReconnect):
                client.admin.command("shutdown")
        own.process.wait(30)
        assert found(own, 4695400, force=False)


@pytest.mark.embedded
@ours
def test_an_unclean_end_is_told_at_the_next_start(tmp_path):
    with server.Server(dbpath=str(tmp_path / "d")) as own:
        assert found(own, 23016) and not [line for line in lines(own) if line["c"] == "RECOVERY"]
        with pymongo.MongoClient(own.uri) as client:
            client.t.c.insert_many([{"x": i} for i in range(100)])
        own.kill()
        before = len(lines(own))
        own.start()
        with pymongo.MongoClient(own.uri) as client:
            assert client.t.c.count_documents({}) == 100
        recovery, = [line for line in lines(own)[before:] if line["c"] == "RECOVERY"]
        assert recovery["s"] == "W" and recovery["attr"]["logBytes"] > 0 and "durationMillis" in recovery["attr"]
        own.terminate()
        before = len(lines(own))
        own.start()
        until = time.monotonic() + 10
        while 23016 not in [line["id"] for line in lines(own)[before:]] and time.monotonic() < until:
            time.sleep(0.02)
        assert not [line for line in lines(own)[before:] if line["c"] == "RECOVERY"]


def test_times_in_utc_and_quiet_connections():
    with server.Server("--timeStampFormat", "iso8601-utc", "--quiet", preexec=lambda: os.environ.update(TZ="Asia/Tokyo")) as own:
        with pymongo.MongoClient(own.uri) as client:
            client.admin.command("ping")
            assert client.admin.command("getParameter", quiet=1)["quiet"] is True
        assert found(own, 23016)
        assert not [line for line in lines(own) if line["id"] in (22943, 22944, 51800)]
        with pymongo.MongoClient(own.uri) as client:
            client.admin.command("setParameter", 1, quiet=False)
        with pymongo.MongoClient(own.uri) as client:
            client.admin.command("ping")
        assert found(own, 51800)
        assert all(line["t"]["$date"].endswith(("+00:00", "Z")) for line in lines(own))


@ours
def test_the_own_form_is_an_option_and_what_a_terminal_gets():
    with server.Server("--log-format", "readable") as own:
        with pymongo.MongoClient(own.uri) as client:
            client.admin.command("ping")
        text = own.tail()
        assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d  INFO NETWORK  \[listener\] Waiting for connections",
                         text, re.M), text
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    process = subprocess.Popen([server.serve_command()[0], "serve", "--storage-engine", "memory", "--port", "0"], stdout=slave,
                               stderr=slave, stdin=subprocess.DEVNULL)
    os.close(slave)
    try:
        text = b""
        while b"Waiting for connections" not in text:
            text += os.read(master, 4096)
        assert b'{"t":' not in text and b"INFO CONTROL" in text
    finally:
        process.kill()
        process.wait()
        os.close(master)
