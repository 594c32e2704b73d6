"""Shared by all Python suites: one server per run, a fresh database per test."""
import os
import sys
import uuid

import pymongo
import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server  # noqa: E402


def pytest_runtest_setup(item):
    if item.get_closest_marker("embedded") and server.keeps_no_folder():
        pytest.skip("of the embedded engine")


@pytest.fixture(scope="session")
def uri():
    """The address under test: $MARULA_TEST_URI, or a server of our own."""
    if os.environ.get("MARULA_TEST_URI"):
        yield os.environ["MARULA_TEST_URI"]
        return
    with server.Server() as own:
        yield own.uri
        assert own.process.poll() is None, "the server ended during the tests:\n" + own.tail()


@pytest.fixture(scope="session")
def client(uri):
    with pymongo.MongoClient(uri, serverSelectionTimeoutMS=10_000) as client:
        yield client


@pytest.fixture
def db(client):
    """A database of the test's own, dropped afterwards."""
    name = "t_" + uuid.uuid4().hex[:12]
    yield client[name]
    client.drop_database(name)


@pytest.fixture
def c(db):
    return db.c


@pytest.fixture(scope="session")
def replica():
    """A server that presents itself as a one-node replica set: writes can be retried."""
    with server.Server("--replSet", "rs0") as own:
        with pymongo.MongoClient(own.uri) as client:
            try:
                client.admin.command("replSetInitiate",
                                     {"_id": "rs0", "members": [{"_id": 0, "host": "127.0.0.1:%d" % own.port}]})
            except pymongo.errors.OperationFailure as error:
                # Already initiated (23), or initiated by itself.
                assert error.code in (23, 59), error
        yield own
        assert own.process.poll() is None, "the server ended during the tests:\n" + own.tail()
