"""MongoDB's public driver tests, through pymongo's own suite, against a server of our own.

The suite is that of pymongo's source distribution (`tools/setup unified`); it holds the unified tests of the driver
specifications as JSON. It runs once for each way in which the server presents itself: as a replica set of one node, and as a
`mongos`. Every test must pass, or be one that the suite itself leaves out for such a server, or stand in `LEFT_OUT` below
with its reason. `$MARULA_SERVE` with a mongod proves the list.

    python tests/unified/run.py --suite "$(tools/setup unified)" [--as set,mongos] [--files test_session.py,…] [-k words]
"""
import argparse
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
        "test_command_monitoring.py", "test_comment.py", "test_crud_unified.py", "test_gridfs_spec.py",
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

# The least that must have passed: a server that the suite takes for another leaves most of it out.
PASSED_AT_LEAST = {"set": 1000, "mongos": 430}

ONE_MEMBER = "waits for a second member; a mongod of one node fails it too"
CLUSTER = "is about several routers, or about shards"
# Parts of test names, and why they are not asked for.
LEFT_OUT = {
    "test_run_command_fails_with_explicit_secondary_read_preference": ONE_MEMBER,
    "test_run_command_fails_with_secondary_read_preference_from_transaction_options": ONE_MEMBER,
    "TestUnifiedReadPref::test_secondary_readPreference": ONE_MEMBER,
    "TestErrorPropagationAfterEncounteringMultipleErrors": ONE_MEMBER,
    "shardCollection_events_are_reported": CLUSTER,
    "TestUnifiedMongosRecoveryToken": CLUSTER,
    "TestUnifiedPinMongos": CLUSTER,
    "TestUnifiedMongosPinAuto": CLUSTER,
    "test_batch_splitting_retry_fails": "its fail point skips documents; Marula's skips commands (docs/differences.md)",
    "test_Running_a_command_that_is_not_part_of_the_versioned_API": "sends `testVersion2`, a command for this test alone",
}


class Filter:
    """A plugin of pytest's that takes out what is not asked for, and counts."""

    def __init__(self):
        self.passed, self.left_out = 0, 0

    def pytest_collection_modifyitems(self, config, items):
        kept = [item for item in items if not any(part in item.nodeid for part in LEFT_OUT)]
        self.left_out = len(items) - len(kept)
        items[:] = kept

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.passed += 1


def run(suite, way, port, files, words):
    """Runs the suite in a process of its own, for it keeps what it knows of the server; returns its exit status."""
    environment = {**os.environ, "DB_IP": "127.0.0.1", "DB_PORT": str(port)}
    command = [sys.executable, os.path.abspath(__file__), "--suite", suite, "--inside", way, "--files", files]
    return subprocess.call(command + (["-k", words] if words else []), env=environment, cwd=suite)


def inside(suite, way, files, words):
    """The suite itself, in the process that was made for it."""
    kept = Filter()
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
    parser.add_argument("--as", dest="ways", default="set,mongos")
    parser.add_argument("--files", default="")
    parser.add_argument("-k", default="")
    parser.add_argument("--inside", metavar="WAY", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        return inside(args.suite, args.inside, args.files.split(","), args.k)
    failed = []
    for way in args.ways.split(","):
        options = ["--replSet", "rs0"] if way == "set" else []
        with server.Server(*options, "--setParameter", "enableTestCommands=1") as own:
            if way == "set":
                initiate(own)
            print("as %s:" % way, flush=True)
            files = args.files or ",".join(FILES[way])
            if run(args.suite, way, own.port, files, args.k) != 0:
                failed.append(way)
            if own.process.poll() is not None:
                print("the server ended:\n" + own.tail())
                failed.append(way)
    return 1 if failed else 0


def initiate(own):
    """Makes a server the only member of its set; Marula is that from its start."""
    import pymongo
    with pymongo.MongoClient(own.uri) as client:
        member = {"_id": 0, "host": "127.0.0.1:%d" % own.port}
        client.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})
        while not client.admin.command("hello")["isWritablePrimary"]:
            pass


if __name__ == "__main__":
    sys.exit(main())
