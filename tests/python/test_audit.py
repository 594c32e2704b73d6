"""The audit log, in the shapes of MongoDB's manual ("System Event Audit Messages"): mongod has it in its paid edition
alone, so that nothing here is compared with one."""
import json
import os
import re
import sys
import threading
import time

import bson
import pymongo
import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server  # noqa: E402

pytestmark = pytest.mark.skipif(server.is_mongod(), reason="MongoDB's community edition has no audit log")


class Audited(server.Server):
    """A server with access control, an audit log, and the user root."""

    def __init__(self, folder, *args, form="JSON", auth=True):
        self.path = str(folder / "audit")
        self.form = form
        words = ["--auditDestination", "file", "--auditFormat", form, "--auditPath", self.path]
        super().__init__(*words, *(["--auth"] if auth else []), *args)
        with pymongo.MongoClient(self.uri) as client:
            client.admin.command("createUser", "root", pwd="planted", roles=["root"])

    def as_user(self, user="root", password="planted", db="admin"):
        return pymongo.MongoClient(self.uri, username=user, password=password, authSource=db, appname="audited")

    def events(self, kind=None, path=None):
        with open(path or self.path, "rb") as f:
            content = f.read()
        if self.form == "BSON":
            found = bson.decode_all(content)
        else:
            found = [json.loads(line) for line in content.decode().splitlines()]
        return [event for event in found if kind in (None, event["atype"])]

    def one(self, kind, wait=10, **param):
        """The last event of this kind with these params; events are written before the reply, but for an end."""
        until = time.monotonic() + wait
        while True:
            found = [event for event in self.events(kind)
                     if all(event["param"].get(name) == value for name, value in param.items())]
            if found or time.monotonic() > until:
                assert found, (kind, param, self.events(kind))
                return found[-1]
            time.sleep(0.02)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    with Audited(tmp_path_factory.mktemp("audit")) as own:
        yield own


@pytest.fixture
def root(own):
    with own.as_user() as client:
        yield client


def test_an_event_has_the_fields_of_the_manual(own, root):
    root.t.create_collection("shape")
    event = own.one("createCollection", ns="t.shape")
    assert list(event) == ["atype", "ts", "uuid", "local", "remote", "users", "roles", "param", "result"]
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d$", event["ts"]["$date"])
    assert event["uuid"]["$type"] == "04" and len(event["uuid"]["$binary"]) == 24
    assert event["local"] == {"ip": "127.0.0.1", "port": own.port}
    assert event["remote"]["ip"] == "127.0.0.1" and event["remote"]["port"] != own.port
    assert event["users"] == [{"user": "root", "db": "admin"}]
    assert {"role": "root", "db": "admin"} in event["roles"]
    assert event["param"] == {"ns": "t.shape"} and event["result"] == 0


def test_logins(own):
    with own.as_user() as client:
        client.admin.command("ping")
        event = own.one("authenticate", user="root")
        assert event["param"] == {"user": "root", "db": "admin", "mechanism": "SCRAM-SHA-256"} and event["result"] == 0
        metadata = own.one("clientMetadata")
        assert metadata["param"]["localEndpoint"] == {"ip": "127.0.0.1", "port": own.port}
        assert metadata["param"]["clientMetadata"]["application"] == {"name": "audited"}
        client.admin.command("logout")
        out = own.one("logout", reason="Logging out on user request")
        assert out["param"]["initialUsers"] == [{"user": "root", "db": "admin"}] and out["param"]["updatedUsers"] == []
    with own.as_user() as client:
        client.admin.command("ping")
    own.one("logout", reason="Client has disconnected")
    for user in ("root", "nobody"):
        with pytest.raises(pymongo.errors.OperationFailure):
            own.as_user(user, "wrong").admin.command("ping")
        assert own.one("authenticate", user=user)["result"] == 18
    with pymongo.MongoClient(own.uri) as client, pytest.raises(pymongo.errors.OperationFailure):
        client.admin.command("saslStart", 1, mechanism="PLAIN", payload=b"")
    assert own.one("authenticate", mechanism="PLAIN")["result"] == 334


def test_failed_logins_are_held_back(tmp_path):
    """Each reply comes after the delay and no thread waits for it: other clients log in meanwhile, and the delays of several
    replies overlap."""
    delay_s, together = 3, 40
    with Audited(tmp_path, "--setParameter", "authFailedDelayMs=%d" % (delay_s * 1000)) as own:
        waits = []

        def fail(user):
            client = own.as_user(user, password="wrong")
            began = time.monotonic()
            with client, pytest.raises(pymongo.errors.OperationFailure) as caught:
                client.admin.command("ping")
            waits.append((time.monotonic() - began, caught.value.code))

        # A user that is not there takes as long as one that is.
        failing = [threading.Thread(target=fail, args=(("root", "nobody")[number % 2],)) for number in range(together)]
        began = time.monotonic()
        [thread.start() for thread in failing]
        with own.as_user() as root:
            assert root.admin.command("ping")["ok"] == 1
            assert root.admin.command("getParameter", 1, authFailedDelayMs=1)["authFailedDelayMs"] == delay_s * 1000
        assert not waits, "who has the password waits for nobody"
        [thread.join() for thread in failing]
        assert time.monotonic() - began < delay_s * together / 2, "one after the other"
        assert [code for _, code in waits] == [18] * together
        assert min(wait for wait, _ in waits) >= delay_s
        failed = [event["param"]["user"] for event in own.events("authenticate") if event["result"] == 18]
        assert failed.count("root") == together / 2


def test_refusals_and_what_was_allowed(own, root):
    root.t.command("createUser", "ro", pwd="planted", roles=["read"])
    with own.as_user("ro", db="t") as ro, pytest.raises(pymongo.errors.OperationFailure):
        ro.t.c.insert_one({"x": 1})
    event = own.one("authCheck", command="insert")
    assert event["result"] == 13 and event["param"]["ns"] == "t.c" and event["param"]["args"]["insert"] == "c"
    assert event["users"] == [{"user": "ro", "db": "t"}] and event["roles"] == [{"role": "read", "db": "t"}]
    with pymongo.MongoClient(own.uri) as nobody, pytest.raises(pymongo.errors.OperationFailure):
        nobody.t.c.find_one()
    event = own.one("authCheck", command="find")
    assert event["result"] == 13 and event["users"] == []
    assert not [event for event in own.events("authCheck") if event["result"] == 0]
    root.admin.command("setParameter", 1, auditAuthorizationSuccess=True)
    root.t.c.find_one({"mark": 1})
    root.admin.command("setParameter", 1, auditAuthorizationSuccess=False)
    event = own.one("authCheck", ns="t.c")
    assert event["result"] == 0 and event["param"]["args"]["filter"] == {"mark": 1}
    count = len(own.events("authCheck"))
    root.t.c.find_one()
    assert len(own.events("authCheck")) == count


def test_changes_of_the_catalogue(own, root):
    db = root.made
    db.c.insert_one({"x": 1})
    assert own.one("createDatabase", ns="made")["result"] == 0
    own.one("createCollection", ns="made.c")
    db.create_collection("v", viewOn="c", pipeline=[{"$match": {"x": 1}}])
    assert own.one("createCollection", ns="made.v")["param"] == {
        "ns": "made.v", "viewOn": "c", "pipeline": [{"$match": {"x": 1}}]}
    db.c.create_index("x", name="by_x")
    states = [event["param"]["indexBuildState"] for event in own.events("createIndex")
              if event["param"]["indexName"] == "by_x"]
    assert states == ["IndexBuildStarted", "IndexBuildSucceeded"]
    event = own.one("createIndex", indexName="by_x")
    assert event["param"]["ns"] == "made.c" and event["param"]["indexSpec"]["key"] == {"x": 1}
    db.c.insert_one({"x": 1})
    with pytest.raises(pymongo.errors.OperationFailure):
        db.c.create_index([("x", -1)], name="unique", unique=True)
    assert own.one("createIndex", indexName="unique", indexBuildState="IndexBuildAborted")["result"] == 11000
    db.c.drop_index("by_x")
    own.one("dropIndex", ns="made.c", indexName="by_x")
    db.c.rename("d")
    own.one("renameCollection", old="made.c", new="made.d")
    db.d.drop()
    own.one("dropCollection", ns="made.d")
    root.drop_database("made")
    own.one("dropDatabase", ns="made")
    assert all(event["users"] == [{"user": "root", "db": "admin"}] for event in own.events("dropDatabase"))


def test_users_and_roles(own, root):
    db = root.people
    read = {"role": "read", "db": "people"}
    privilege = {"resource": {"db": "people", "collection": "c"}, "actions": ["find"]}
    db.command("createUser", "u", pwd="planted", roles=["read"], customData={"of": "x"})
    assert own.one("createUser", user="u")["param"] == {"user": "u", "db": "people", "customData": {"of": "x"}, "roles": [read]}
    db.command("updateUser", "u", pwd="planted2")
    assert own.one("updateUser", user="u")["param"] == {"user": "u", "db": "people", "passwordChanged": True}
    db.command("updateUser", "u", roles=[])
    assert own.one("updateUser", passwordChanged=False)["param"]["roles"] == []
    db.command("grantRolesToUser", "u", roles=[{"role": "read", "db": "other"}])
    assert own.one("grantRolesToUser")["param"]["roles"] == [{"role": "read", "db": "other"}]
    db.command("revokeRolesFromUser", "u", roles=[{"role": "read", "db": "other"}])
    own.one("revokeRolesFromUser", user="u", db="people")
    db.command("createRole", "r", privileges=[privilege], roles=["read"])
    assert own.one("createRole", role="r")["param"] == {
        "role": "r", "db": "people", "roles": [read], "privileges": [privilege]}
    db.command("updateRole", "r", privileges=[])
    db.command("grantPrivilegesToRole", "r", privileges=[privilege])
    assert own.one("grantPrivilegesToRole")["param"]["privileges"] == [privilege]
    db.command("revokePrivilegesFromRole", "r", privileges=[privilege])
    db.command("grantRolesToRole", "r", roles=["readWrite"])
    db.command("revokeRolesFromRole", "r", roles=["readWrite"])
    for kind in ("updateRole", "revokePrivilegesFromRole", "grantRolesToRole", "revokeRolesFromRole"):
        assert own.one(kind, role="r", db="people")["result"] == 0
    db.command("dropRole", "r")
    db.command("dropUser", "u")
    own.one("dropRole", role="r")
    own.one("dropUser", user="u", db="people")
    db.command("dropAllUsersFromDatabase")
    db.command("dropAllRolesFromDatabase")
    assert own.one("dropAllUsersFromDatabase")["param"] == {"db": "people"}
    own.one("dropAllRolesFromDatabase", db="people")
    with pytest.raises(pymongo.errors.OperationFailure):
        db.command("dropUser", "nobody")
    assert own.one("dropUser", user="nobody")["result"] == 11


def test_the_server_begins_and_ends_and_rotates(tmp_path):
    with Audited(tmp_path) as own:
        begun = own.events("startup")[0]
        assert begun["local"] == {"isSystemUser": True} and begun["users"] == []
        assert begun["param"]["options"]["auditLog"]["destination"] == "file"
        with own.as_user() as root:
            root.admin.command("logRotate", "audit")
            old, = [path for path in tmp_path.iterdir() if path.name != "audit"]
            assert own.events("startup", path=old)
            turned = own.events()[0]
            assert turned["atype"] == "rotateLog" and turned["param"]["logRotationStatus"]["status"] == "OK"
            assert turned["users"] == [{"user": "root", "db": "admin"}]
            with pytest.raises(pymongo.errors.OperationFailure):
                root.admin.command("logRotate", "nope")
        own.terminate()
        ended = own.events()[-1]
        assert ended["atype"] == "shutdown" and ended["param"] == {} and ended["result"] == 0
        # A start goes on in the file that is there.
        own.start()
        own.one("startup")
        assert own.events()[0]["atype"] == "rotateLog"


def test_bson(tmp_path):
    with Audited(tmp_path, form="BSON") as own:
        with own.as_user() as root:
            root.t.create_collection("c")
        event = own.one("createCollection", ns="t.c")
        assert event["result"] == 0 and event["users"] == [{"user": "root", "db": "admin"}]
        assert event["ts"].year >= 2024 and len(bytes(event["uuid"])) == 16


def test_a_filter_chooses(tmp_path):
    chosen = "{ atype: { $in: [ 'createCollection', \"dropCollection\" ] }, \"param.ns\": { $regex: '^kept[.]' } }"
    with Audited(tmp_path, "--auditFilter", chosen, auth=False) as own:
        with pymongo.MongoClient(own.uri) as client:
            for name in ("kept", "other"):
                client[name].create_collection("c")
                client[name].c.drop()
        assert [(event["atype"], event["param"]["ns"]) for event in own.events()] == [
            ("createCollection", "kept.c"), ("dropCollection", "kept.c")]


def test_half_an_audit_log_stops_the_start(tmp_path):
    import subprocess
    for words, reason in ((["--auditDestination", "file"], "needs auditLog.format and auditLog.path"),
                          (["--auditDestination", "syslog"], "say file or console"),
                          (["--auditPath", "x"], "needs auditLog.destination"),
                          (["--auditDestination", "console", "--auditFilter", "{ a: { $nope: 1 } }"], "auditLog.filter: unknown operator"),
                          (["--auditDestination", "console", "--auditFilter", "{ a: "], "is not a document"),
                          (["--auditDestination", "console", "--auditCompressionMode", "zstd"], "neither compressed nor encrypted"),
                          (["--auditDestination", "console", "--auditSchema", "OCSF"], "own schema alone"),
                          (["--auditDestination", "file", "--auditFormat", "JSON", "--auditPath", str(tmp_path / "no" / "x")],
                           "cannot write audit log")):
        done = subprocess.run([server.serve_command()[0], "--storage-engine", "memory", "--port", "0", *words],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and reason in done.stderr, (words, done.stderr)
