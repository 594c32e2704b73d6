"""MongoDB's public driver tests, through pymongo and the Node driver, against a server of our own.

The suite is that of pymongo's source distribution (`tools/setup unified`); it holds the unified tests of the driver
specifications as JSON. Pymongo runs its own suite; for the Node driver, `node/run.js` reads the JSON. Each runs once per
way in which the server presents itself: as a replica set of one node, and as a `mongos`; the Node driver also as a
replica set with the features of 8.0. Every test must pass, or be one that the suite itself leaves out for such a server,
or be in `left_out.json` with its reason. `$MARULA_SERVE` with a mongod proves the list.

    python tests/unified/run.py --suite "$(tools/setup unified)" [--as set,mongos,8.0] [--drivers pymongo,node]
        [--files test_session.py,…] [--areas sessions,…] [-k words] [--prove-list]

`--files` are pymongo's. `--areas`, folders of JSON, and `--prove-list`, which also runs the tests of the list and reports
each that passes, are for the Node driver; `$NODE_PATH` has its packages (`tools/setup node`).
"""
import argparse
import json
import os
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import server  # noqa: E402

# Those that ask something of a server; the others are about the driver itself, or take minutes.
FILES = {
    "set": [
        "test_causal_consistency.py", "test_change_stream.py", "test_collation.py", "test_collection_management.py",
        "test_command_monitoring.py", "test_comment.py", "test_connections_survive_primary_stepdown_spec.py",
        "test_crud_unified.py", "test_gridfs_spec.py",
        "test_index_management.py", "test_read_write_concern_spec.py",
        "test_retryable_reads_unified.py", "test_retryable_writes.py", "test_retryable_writes_unified.py",
        "test_run_command.py", "test_session.py", "test_sessions_unified.py", "test_transactions.py",
        "test_transactions_unified.py", "test_unified_format.py", "test_versioned_api.py",
        "test_versioned_api_integration.py",
    ],
    "mongos": [
        "test_change_stream.py", "test_retryable_writes_unified.py", "test_session.py", "test_sessions_unified.py",
        "test_transactions.py", "test_transactions_unified.py",
    ],
}

# The ways of running the server, with the drivers that test it: a replica set, a `mongos`, and a
# replica set with the feature compatibility version 8.0, for the tests of features added after 6.0.
DRIVERS = {"set": ["pymongo", "node"], "mongos": ["pymongo", "node"], "8.0": ["node"]}

# The least that must have passed: a server that the suite takes for another leaves most of it out.
PASSED_AT_LEAST = {"set": 1000, "mongos": 430}

HERE = os.path.dirname(os.path.abspath(__file__))


def left_out(way):
    """Parts of the names of tests that are not asked for; the file has the reasons."""
    with open(os.path.join(HERE, "left_out.json")) as file:
        return [part for entry in json.load(file) if way in entry.get("as", [way]) for part in entry["pymongo"]]


class Filter:
    """A plugin of pytest's that takes out what is not asked for, and counts."""

    def __init__(self, not_asked_for):
        self.not_asked_for = not_asked_for
        self.passed, self.left_out = 0, 0

    def pytest_collection_modifyitems(self, config, items):
        kept = [item for item in items if not any(part in item.nodeid for part in self.not_asked_for)]
        self.left_out = len(items) - len(kept)
        items[:] = kept

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.passed += 1


def run_pymongo(suite, way, port, files, words):
    """Runs the suite in a process of its own, for it keeps what it knows of the server; returns its exit status."""
    environment = {**os.environ, "DB_IP": "127.0.0.1", "DB_PORT": str(port)}
    command = [sys.executable, os.path.abspath(__file__), "--suite", suite, "--inside", way, "--files", files]
    return subprocess.call(command + (["-k", words] if words else []), env=environment, cwd=suite)


def run_node(suite, way, port, areas, words, prove_list):
    command = ["node", os.path.join(HERE, "node", "run.js"), "--suite", suite, "--way", way,
               "--uri", "mongodb://127.0.0.1:%d/" % port, "--areas", areas, "-k", words]
    return subprocess.call(command + (["--prove-list"] if prove_list else []))


def inside(suite, way, files, words):
    """The suite itself, in the process that was made for it."""
    kept = Filter(left_out(way))
    markers = ["-m", "default", "-W", "ignore::pytest.PytestUnknownMarkWarning"]
    sys.path.insert(0, suite)
    args = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", suite, "--tb=short", "-rfE", *markers,
            *(["-k", words] if words else []), *(os.path.join("test", name) for name in files)]
    status = pytest.main(args, plugins=[kept])
    print("%d passed, %d left out by the list" % (kept.passed, kept.left_out))
    is_whole = files == FILES[way] and not words
    if is_whole and kept.passed < PASSED_AT_LEAST[way]:
        print("of these at least %d must pass" % PASSED_AT_LEAST[way])
        return 1
    return int(status)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--suite", required=True)
    parser.add_argument("--as", dest="ways", default="set,mongos,8.0")
    parser.add_argument("--drivers", default="pymongo,node")
    parser.add_argument("--files", default="")
    parser.add_argument("--areas", default="")
    parser.add_argument("--prove-list", action="store_true")
    parser.add_argument("-k", default="")
    parser.add_argument("--inside", metavar="WAY", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        return inside(args.suite, args.inside, args.files.split(","), args.k)
    failed = []
    for way in args.ways.split(","):
        drivers = [driver for driver in args.drivers.split(",") if driver in DRIVERS[way]]
        if not drivers or way == "8.0" and server.is_mongod():
            continue
        options = [] if way == "mongos" else ["--replSet", "rs0"]
        with server.Server(*options, "--setParameter", "enableTestCommands=1") as own:
            if way != "mongos":
                initiate(own)
            if way == "8.0":
                offer_later_features(own)
            for driver in drivers:
                print("as %s, by %s:" % (way, driver), flush=True)
                if driver == "pymongo":
                    status = run_pymongo(args.suite, way, own.port, args.files or ",".join(FILES[way]), args.k)
                else:
                    status = run_node(args.suite, way, own.port, args.areas, args.k, args.prove_list)
                if status != 0:
                    failed.append((way, driver))
            if own.process.poll() is not None:
                print("the server ended:\n" + own.tail())
                failed.append((way, "the server"))
    return 1 if failed else 0


def initiate(own):
    """Makes a server the only member of its set; Marula is that from its start."""
    import pymongo
    with pymongo.MongoClient(own.uri) as client:
        member = {"_id": 0, "host": "127.0.0.1:%d" % own.port}
        client.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})
        while not client.admin.command("hello")["isWritablePrimary"]:
            pass


def offer_later_features(own):
    import pymongo
    with pymongo.MongoClient(own.uri) as client:
        client.admin.command({"setFeatureCompatibilityVersion": "8.0", "confirm": True})


if __name__ == "__main__":
    sys.exit(main())
