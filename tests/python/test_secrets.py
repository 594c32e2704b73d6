"""Secrets that clients and options carry are in no log, profile, currentOp, audit log, error or answer."""
import base64
import os
import subprocess
import sys
import threading
import time

import pymongo
import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server  # noqa: E402

PLANTED = "plantedSecret"


def is_clean(where, text):
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    at = text.find(PLANTED)
    assert at < 0, "%s: %s" % (where, text[max(0, at - 200):at + 100])
    encoded = base64.b64encode(PLANTED.encode()).decode().rstrip("=")[:-1]
    assert encoded not in text, where


@pytest.fixture(params=["slow", "verbose"])
def own(request, tmp_path):
    """A server that logs, profiles and audits everything it can."""
    audit = [] if server.is_mongod() else ["--auditDestination", "file", "--auditFormat", "JSON", "--auditPath",
                                          str(tmp_path / "audit"), "--setParameter", "auditAuthorizationSuccess=true"]
    words = ["--auth", "--slowms", "0", "--profile", "2", *audit]
    with server.Server(*words, *(["-vvvvv"] if request.param == "verbose" else [])) as own:
        own.audit = tmp_path / "audit"
        yield own


def test_no_secret_is_shown(own):
    answers = []

    def ask(db, command, value=1, **fields):
        try:
            answers.append(db.command(command, value, **fields))
        except pymongo.errors.PyMongoError as error:
            answers.append((str(error), getattr(error, "details", None)))

    with pymongo.MongoClient(own.uri) as first:
        first.admin.command("createUser", "root", pwd=PLANTED + "0", roles=["root"])
    with pymongo.MongoClient(own.uri, username="root", password=PLANTED + "0") as root:
        db, seen, over = root.t, [], threading.Event()

        def watch():
            while not over.is_set():
                seen.append(root.admin.command("currentOp", True))
                seen.append(list(root.admin.aggregate([{"$currentOp": {"allUsers": True, "idleConnections": True}}])))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            for round_ in range(3):
                user = "u%d" % round_
                # Some work, some fail while they are read, and some are not allowed.
                ask(db, "createUser", user, pwd=PLANTED, roles=["read"])
                ask(db, "createUser", user, pwd=PLANTED, roles=["read"])
                ask(db, "createUser", user + "x", pwd=PLANTED, roles=["nope"])
                ask(db, "createUser", user + "y", pwd=PLANTED, roles=5)
                ask(db, "createUser", user + "y", pwd=PLANTED, roles=[], nope=1)
                ask(db, "createUser", "", pwd=PLANTED, roles=[])
                ask(db, "updateUser", user, pwd=PLANTED + "2")
                ask(db, "updateUser", user, pwd=PLANTED, nope=PLANTED[:0])
                ask(db, "updateUser", "nobody", pwd=PLANTED)
                ask(db, "createUser", user + "z", pwd=PLANTED, roles=[], mechanisms=["nope"])
                # A password in another type or place.
                ask(db, "createUser", user + "z", pwd=[PLANTED], roles=[])
                with pymongo.MongoClient(own.uri, username=user, password=PLANTED + "2", authSource="t") as low:
                    ask(low.t, "createUser", "v", pwd=PLANTED, roles=[])
                    ask(low.t, "updateUser", user, pwd=PLANTED)
                    ask(low.t, "updateUser", user, pwd=PLANTED + "3", customData={})
                for mechanism, payload in (("SCRAM-SHA-256", b"n,,n=%s,r=%s" % (user.encode(), PLANTED.encode() * 2)),
                                           ("PLAIN", b"\0%s\0%s" % (user.encode(), PLANTED.encode())),
                                           ("SCRAM-SHA-256", PLANTED.encode()), ("NOPE", PLANTED)):
                    with pymongo.MongoClient(own.uri) as nobody:
                        ask(nobody.t, "saslStart", mechanism=mechanism, payload=payload)
                        ask(nobody.t, "saslContinue", conversationId=1, payload=PLANTED.encode())
                        ask(nobody.admin, "hello", saslSupportedMechs="t." + user, speculativeAuthenticate={
                            "saslStart": 1, "mechanism": mechanism, "payload": payload, "db": "t"})
                        ask(nobody.t, "createUser", "w", pwd=PLANTED, roles=[])
                        ask(nobody.t, "authenticate", mechanism="MONGODB-CR", user=user, key=PLANTED, nonce="x")
                with pymongo.MongoClient(own.uri, username=user, password=PLANTED + "wrong", authSource="t") as wrong:
                    ask(wrong.t, "ping")
                ask(db, "usersInfo", {"user": user, "db": "t"})
                ask(db, "dropUser", user)
        finally:
            over.set()
            watcher.join()
        answers += [list(root[name]["system.profile"].find()) for name in ("admin", "t")]
        answers.append(root.admin.command("getLog", "global"))
        answers.append(root.admin.command("getCmdLineOpts"))
        answers.append(root.admin.command("serverStatus"))
        assert len(seen) > 3
    time.sleep(0.05)
    for answer in answers:
        if isinstance(answer, dict):
            # SCRAM's server repeats the client's nonce, which is no secret.
            answer = {name: value for name, value in answer.items() if name not in ("payload", "speculativeAuthenticate")}
        is_clean("an answer", answer)
    for one in seen:
        is_clean("currentOp", one)
    with open(own.log, "rb") as log:
        text = log.read()
        assert b"createUser" in text
        is_clean("the log", text)
    if own.audit.exists():
        text = own.audit.read_bytes()
        assert b"createUser" in text and b"authenticate" in text
        is_clean("the audit log", text)
    is_clean("the command line", open("/proc/%d/cmdline" % own.process.pid, "rb").read())


@pytest.mark.skipif(server.is_mongod(), reason="of Marula's own ways")
def test_no_secret_of_an_option_is_shown(tmp_path):
    (tmp_path / "key").write_text(PLANTED)
    (tmp_path / "key").chmod(0o600)
    conf = tmp_path / "conf"
    conf.write_text("net: { tls: { clusterPassword: %s } }\n" % PLANTED)
    words = ["--tlsClusterPassword", PLANTED + "2", "--keyFile", str(tmp_path / "key"), "--config", str(conf)]
    with server.Server(*words) as own, pymongo.MongoClient(own.uri) as client:
        client.admin.command("createUser", "root", pwd="p", roles=["root"])
        with pymongo.MongoClient(own.uri, username="root", password="p") as root:
            is_clean("getCmdLineOpts", root.admin.command("getCmdLineOpts"))
            is_clean("getLog", root.admin.command("getLog", "global"))
        with open(own.log) as log:
            text = log.read()
            assert "net.tls.clusterPassword" in text
            is_clean("the log", text)
    for name in ("security: { ldap: { bind: { queryPassword: %s } } }", "awsIam: { sessionToken: %s }"):
        conf.write_text(name % PLANTED)
        for verb in (["serve", "--config"], ["check-config"]):
            done = subprocess.run([server.serve_command()[0], *verb, str(conf)], capture_output=True, text=True, timeout=60)
            assert done.returncode == 1
            is_clean(verb, done.stdout + done.stderr)
