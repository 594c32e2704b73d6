"""mongod's options and configuration files: those that packages install start a server, an option
without a meaning here is reported, and one whose absence would give the user less than expected stops the start."""
import json
import os
import re
import socket
import stat
import subprocess
import sys
import time

import pymongo
import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server  # noqa: E402

pytestmark = pytest.mark.skipif(server.is_mongod(), reason="of Marula's own ways")
BINARY = server.serve_command()[0]

# The files that MongoDB's packages for Debian and Red Hat install, and files by administrators.
DEBIAN = """
# Where and how to store data.
storage:
  dbPath: %(data)s
#  engine:
#  wiredTiger:

# where to write logging data.
systemLog:
  destination: file
  logAppend: true
  path: %(log)s

# network interfaces
net:
  port: %(port)d
  bindIp: 127.0.0.1

# how the process runs
processManagement:
  timeZoneInfo: /usr/share/zoneinfo

#security:
#operationProfiling:
#replication:
#sharding:
## Enterprise-Only Options:
#auditLog:
"""
RED_HAT_44 = """
systemLog:
  destination: file
  logAppend: true
  path: %(log)s
storage:
  dbPath: %(data)s
  journal:
    enabled: true
processManagement:
  fork: true  # fork and run in background
  pidFilePath: %(data)s.pid
  timeZoneInfo: /usr/share/zoneinfo
net:
  port: %(port)d
  bindIp: 127.0.0.1  # Enter 0.0.0.0,:: to bind to all IPv4 and IPv6 addresses or, alternatively, use the net.bindIpAll setting.
"""
TUNED = """
storage:
  dbPath: %(data)s
  directoryPerDB: true
  syncPeriodSecs: 30
  journal: { enabled: false, commitIntervalMs: 50 }
  engine: wiredTiger
  wiredTiger:
    engineConfig: { cacheSizeGB: 0.25, journalCompressor: zstd, directoryForIndexes: true }
    collectionConfig: { blockCompressor: zstd }
    indexConfig: { prefixCompression: true }
systemLog:
  destination: file
  path: %(log)s
  logAppend: true
  logRotate: reopen
  traceAllExceptions: false
  timeStampFormat: iso8601-utc
  component: { network: { verbosity: 1 }, storage: { journal: { verbosity: 2 } } }
net:
  port: %(port)d
  bindIp: 127.0.0.1
  ipv6: true
  maxIncomingConnections: 200
  wireObjectCheck: true
  unixDomainSocket: { enabled: true, pathPrefix: %(data)s.run, filePermissions: 0660 }
  compression: { compressors: "snappy,zstd" }
operationProfiling: { mode: slowOp, slowOpThresholdMs: 7, slowOpSampleRate: 0.5 }
replication: { oplogSizeMB: 64, enableMajorityReadConcern: true }
security: { authorization: disabled, javascriptEnabled: true }
cloud: { monitoring: { free: { state: "off" } } }
setParameter: { enableLocalhostAuthBypass: true, ttlMonitorEnabled: false }
"""


def written(tmp_path, text):
    """A configuration file, its log and its port."""
    values = {"data": tmp_path / "data", "log": tmp_path / "mongod.log", "port": server.free_port()}
    os.makedirs(str(values["data"]) + ".run", exist_ok=True)
    path = tmp_path / "mongod.conf"
    path.write_text(text % values)
    return path, values["log"], values["port"]


def lines(log):
    with open(log, errors="replace") as text:
        return [json.loads(line) for line in text if line.startswith("{")]


def without_effect(log):
    return {line["attr"]["option"]: line["attr"]["reason"] for line in lines(log)
            if line["msg"] == "This option has no effect in Marula"}


def client_of(port):
    return pymongo.MongoClient("127.0.0.1", port, directConnection=True, serverSelectionTimeoutMS=20_000)


def run(*words, timeout=60):
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=timeout)


class Started:
    """A server by these words alone, as a script would start it."""

    def __init__(self, *words):
        self.process = subprocess.Popen([BINARY, *map(str, words)], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def test_debians_file_starts(tmp_path):
    path, log, port = written(tmp_path, DEBIAN)
    with Started("--config", path), client_of(port) as client:
        client.t.c.insert_one({"x": 1})
        assert set(without_effect(log)) == {"processManagement.timeZoneInfo"}


def test_red_hats_file_forks(tmp_path):
    path, log, port = written(tmp_path, RED_HAT_44)
    done = run("-f", path)
    pid_file = tmp_path / "data.pid"
    pid = int(pid_file.read_text())
    try:
        assert done.returncode == 0, done
        assert done.stdout.splitlines() == [
            "about to fork child process, waiting until server is ready for connections.",
            "forked process: %d" % pid, "child process started successfully, parent exiting"]
        with client_of(port) as client:
            client.t.c.insert_one({"x": 1})
        # It leads a session of its own, and holds no stream of its parent.
        assert os.getsid(pid) == pid
        assert {os.readlink("/proc/%d/fd/%d" % (pid, fd)) for fd in (0, 1, 2)} == {"/dev/null"}
    finally:
        os.kill(pid, 15)
    until = time.monotonic() + 30
    while pid_file.exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert not pid_file.exists()
    assert set(without_effect(log)) == {"processManagement.timeZoneInfo"}


def test_a_child_that_fails_fails_its_parent(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run("--fork", "--logpath", tmp_path / "log", "--dbpath", tmp_path / "d", "--port", taken.getsockname()[1])
    assert done.returncode == 1 and "child process failed, exited with 1" in done.stdout
    assert "already in use by another process" in done.stderr
    done = run("--fork", "--dbpath", tmp_path / "d")
    assert done.returncode == 1 and "--fork has to be used with --logpath" in done.stderr


def test_a_tuned_file_starts_with_a_warning_for_each_option_without_effect(tmp_path):
    path, log, port = written(tmp_path, TUNED)
    with Started("--config", path), client_of(port) as client:
        settings = client.t.command("profile", -1)
        assert (settings["was"], settings["slowms"], settings["sampleRate"]) == (1, 7, 0.5)
        levels = client.admin.command("getParameter", logComponentVerbosity=1)["logComponentVerbosity"]
        assert levels["network"]["verbosity"] == 1 and levels["storage"]["journal"]["verbosity"] == 2
        assert client.admin.command("getParameter", ttlMonitorEnabled=1)["ttlMonitorEnabled"] is False
        parsed = client.admin.command("getCmdLineOpts")["parsed"]
        assert parsed["storage"]["wiredTiger"]["engineConfig"]["journalCompressor"] == "zstd"
        name = tmp_path / "data.run" / ("mongodb-%d.sock" % port)
        assert stat.S_IMODE(name.stat().st_mode) == 0o660
        with pymongo.MongoClient("mongodb://" + str(name).replace("/", "%2F"), directConnection=True) as local:
            local.admin.command("ping")
    assert set(without_effect(log)) == {
        "storage.directoryPerDB", "storage.syncPeriodSecs", "storage.journal.enabled",
        "storage.journal.commitIntervalMs", "storage.engine", "storage.wiredTiger.engineConfig.journalCompressor",
        "storage.wiredTiger.engineConfig.directoryForIndexes", "storage.wiredTiger.collectionConfig.blockCompressor",
        "storage.wiredTiger.indexConfig.prefixCompression", "cloud.monitoring.free.state"}


def test_check_config_lists_everything_at_once(tmp_path):
    path, _, _ = written(tmp_path, DEBIAN)
    done = run("check-config", path)
    assert done.returncode == 0, done
    assert "ignored  processManagement.timeZoneInfo: the time zones are built in" in done.stdout
    assert "ok       storage.dbPath" in done.stdout
    assert done.stdout.splitlines()[-1] == "0 errors, 1 options without effect"
    path.write_text("""
net: { port: 70000, portt: 1 }
security: { javascriptEnabled: perhaps, redactClientLogData: true, kmip: { serverName: k } }
sharding: { clusterRole: shardsvr }
systemLog: { destination: syslog }
setParameter: { authenticationMechanisms: "PLAIN", noSuchParameter: 1, ttlMonitorEnabled: true }
storage: { syncPeriodSecs: 60 }
""")
    done = run("check-config", path)
    assert done.returncode == 1
    said = dict(re.match(r"(?:error|ignored|ok) +([^:]+)(?:: (.*))?$", line).groups()
                for line in done.stdout.splitlines()[:-1])
    errors = {line.split()[1].rstrip(":") for line in done.stdout.splitlines() if line.startswith("error ")}
    assert errors == {"net.port", "net.portt", "security.javascriptEnabled", "security.redactClientLogData",
                      "security.kmip.serverName", "sharding.clusterRole", "systemLog.destination",
                      "setParameter.authenticationMechanisms", "setParameter.noSuchParameter"}
    assert "KMIP" in said["security.kmip.serverName"]
    assert done.stdout.splitlines()[-1] == "9 errors, 1 options without effect"
    done = run("check-config", tmp_path / "none")
    assert done.returncode == 1 and "cannot read configuration file" in done.stderr


@pytest.mark.parametrize("words, reason", [
    (["--redactClientLogData"], "the log is not redacted"),
    (["--enableEncryption"], "data on disk is not encrypted"),
    (["--encryptionKeyFile", "x"], "data on disk is not encrypted"),
    (["--kmipServerName", "x"], "KMIP"),
    (["--ldapServers", "x"], "there is no LDAP"),
    (["--syslog"], "the log goes to a file or to stdout"),
    (["--tlsFIPSMode"], "FIPS"),
    (["--tlsOnNormalPorts"], "without specifying a chain of trust"),
    (["--sslOnNormalPorts"], "without specifying a chain of trust"),
    (["--shardsvr"], "a node stands alone"),
    (["--configsvr"], "a node stands alone"),
    (["--configExpand", "exec"], "nothing in the file is expanded"),
    (["--storageEngine", "mmapv1"], "is not one of rocksdb, memory"),
    (["--setParameter", "authenticationMechanisms=GSSAPI"], "GSSAPI"),
    (["--transitionToAuth"], "--transitionToAuth must be used with keyFile"),
    (["--keyFile", "/nonexistent"], "cannot read key file"),
    (["--slowOpSampleRate", "2"], "not a number from 0 to 1"),
    (["--profile", "5"], "is not one of off, slowOp, all"),
    (["--filePermissions", "x"], "is not a mode"),
])
def test_what_would_be_less_than_was_asked_for_stops_the_start(tmp_path, words, reason):
    done = run(*words, "--dbpath", tmp_path / "d", "--port", "0")
    assert done.returncode == 1, done
    assert reason in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert not (tmp_path / "d").exists()


def test_mongods_command_line_works_and_stands_in_the_help(tmp_path):
    shown = run("serve", "--help").stdout
    port, log = server.free_port(), tmp_path / "log"
    words = ["--dbpath", tmp_path / "d", "--port", port, "--bind_ip", "127.0.0.1", "--logpath", log, "--logappend",
             "--pidfilepath", tmp_path / "pid", "--nojournal", "--wiredTigerCacheSizeGB", "0.25", "--storageEngine",
             "wiredTiger", "--setParameter", "ttlMonitorEnabled=false", "--oplogSize", "64", "--unixSocketPrefix",
             tmp_path, "--maxConns", "100", "--directoryperdb", "--syncdelay", "10", "--slowms", "3", "--profile", "2",
             "--noscripting", "--notablescan", "--networkMessageCompressors", "snappy", "--ipv6", "--timeZoneInfo", "/x",
             "--wiredTigerJournalCompressor", "none", "--enableMajorityReadConcern", "--noauth", "--logRotate", "rename"]
    with Started(*words), client_of(port) as client:
        with pytest.raises(pymongo.errors.OperationFailure):
            client.t.c.insert_one({})
            list(client.t.c.find({"x": 1}))
        assert client.t.command("profile", -1)["was"] == 2
        assert (tmp_path / ("mongodb-%d.sock" % port)).exists() and (tmp_path / "pid").exists()
    assert set(without_effect(log)) == {
        "storage.journal.enabled", "storage.engine", "storage.directoryPerDB", "storage.syncPeriodSecs",
        "processManagement.timeZoneInfo", "storage.wiredTiger.engineConfig.journalCompressor"}
    for word in [word for word in words if str(word).startswith("--")] + ["--bind_ip_all", "--fork", "--keyFile",
                                                                         "--transitionToAuth", "--replSet"]:
        assert re.search(re.escape(word) + r"\b", shown), word


def test_ephemeral_for_test_is_in_memory(tmp_path):
    port = server.free_port()
    with Started("--storageEngine", "ephemeralForTest", "--dbpath", tmp_path / "d", "--port", port), client_of(port) as client:
        client.t.c.insert_one({})
        assert not (tmp_path / "d").exists()


def test_the_advertised_host_is_what_hello_tells(tmp_path):
    with server.Server("--replSet", "rs0", "--advertise-host", "db.example.net") as own:
        with pymongo.MongoClient(own.uri) as client:
            name = "db.example.net:%d" % own.port
            hello = client.admin.command("hello")
            assert (hello["me"], hello["primary"], hello["hosts"]) == (name, name, [name])
            assert client.admin.command("replSetGetConfig")["config"]["members"][0]["host"] == name
    with server.Server("--replSet", "rs0", "--advertise-host", "db.example.net:1234") as own:
        with pymongo.MongoClient(own.uri) as client:
            assert client.admin.command("hello")["me"] == "db.example.net:1234"


def key_file(tmp_path, text="c2VjcmV0a2V5\n", mode=0o600):
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_key_file_implies_access_control(tmp_path):
    with server.Server("--keyFile", key_file(tmp_path)) as own, pymongo.MongoClient(own.uri) as client:
        with pytest.raises(pymongo.errors.OperationFailure) as caught:
            client.t.c.find_one()
        assert caught.value.code == 13
    for text, mode, reason in (("c2VjcmV0a2V5", 0o644, "are too open"), ("abc", 0o600, "from 6 to 1024"),
                               ("a*b*c*d*", 0o600, "base64"), ("x" * 2000, 0o600, "from 6 to 1024")):
        done = run("--keyFile", key_file(tmp_path, text, mode), "--dbpath", tmp_path / "d", "--port", "0")
        assert done.returncode == 1 and reason in done.stderr, done
    with server.Server("--keyFile", key_file(tmp_path, "- firstkey\n- secondkey\n")):
        pass


@pytest.mark.embedded
def test_a_running_system_changes_to_authentication(tmp_path):
    """As a mongod: in the transition clients may log in and need not, and nobody is restricted; a wrong password and an
    address that is not allowed are refused all the same. Asked of mongod 6.0 by hand."""
    data, key = str(tmp_path / "d"), key_file(tmp_path)
    with server.Server(dbpath=data) as own, pymongo.MongoClient(own.uri) as client:
        client.t.c.insert_one({"_id": 1})
        own.terminate()
    with server.Server("--keyFile", key, "--transitionToAuth", dbpath=data) as own, pymongo.MongoClient(own.uri) as client:
        client.admin.command("createUser", "root", pwd="p", roles=["root"])
        client.t.command("createUser", "ro", pwd="p", roles=["read"])
        client.t.command("createUser", "far", pwd="p", roles=["read"],
                         authenticationRestrictions=[{"clientSource": ["10.0.0.1"]}])
        assert client.t.c.find_one() == {"_id": 1}
        assert client.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"] == []
        with pymongo.MongoClient(own.uri, username="ro", password="p", authSource="t") as ro:
            ro.t.c.insert_one({"_id": 2})
            assert ro.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"] == [{"user": "ro", "db": "t"}]
        for user, password in (("ro", "bad"), ("far", "p")):
            with pymongo.MongoClient(own.uri, username=user, password=password, authSource="t") as refused:
                with pytest.raises(pymongo.errors.OperationFailure) as caught:
                    refused.t.c.find_one()
                assert caught.value.code == 18
        assert client.admin.command("getCmdLineOpts")["parsed"]["security"] == {"keyFile": key, "transitionToAuth": True}
        warnings = client.admin.command("getLog", "startupWarnings")["log"]
        assert not [line for line in warnings if "Access control is not enabled" in line]
        own.terminate()
    with server.Server("--keyFile", key, dbpath=data) as own:
        with pymongo.MongoClient(own.uri) as nobody, pytest.raises(pymongo.errors.OperationFailure):
            nobody.t.c.find_one()
        with pymongo.MongoClient(own.uri, username="ro", password="p", authSource="t") as ro:
            assert ro.t.c.count_documents({}) == 2
            with pytest.raises(pymongo.errors.OperationFailure):
                ro.t.c.insert_one({"_id": 3})
