"""Sizes of what is stored: of documents that are in memory alone, of empty collections, of the file system."""
import os

import pymongo
import pytest
import server

PAGE = 4096
COUNT, PAD = 5000, 400


@pytest.fixture(scope="module")
def own():
    with server.Server() as own:
        with pymongo.MongoClient(own.uri) as client:
            client.full.c.insert_many([{"_id": i, "a": i, "pad": os.urandom(PAD)} for i in range(COUNT)])
            client.full.c.create_index("a")
            client.few.c.insert_one({"_id": 1, "a": 1})
            client.few.c.create_index("a")
            client.empty.create_collection("c")
            client.empty.c.create_index("a")
            yield own


@pytest.fixture
def client(own):
    with pymongo.MongoClient(own.uri) as client:
        yield client


@pytest.mark.parametrize("name", ["full", "few", "empty"])
def test_sizes_are_never_nothing_and_add_up(client, name):
    stats = client[name].command("collStats", "c")
    assert set(stats["indexSizes"]) == {"_id_", "a_1"}
    assert min(stats["indexSizes"].values()) >= PAGE
    assert stats["totalIndexSize"] == sum(stats["indexSizes"].values())
    assert stats["storageSize"] >= PAGE
    assert stats["totalSize"] == stats["storageSize"] + stats["totalIndexSize"]
    assert all(size % PAGE == 0 for size in [stats["storageSize"], *stats["indexSizes"].values()])
    storage = next(client[name].c.aggregate([{"$collStats": {"storageStats": {}}}]))["storageStats"]
    assert storage["size"] == stats["size"]
    assert storage["storageSize"] >= PAGE and storage["totalIndexSize"] >= 2 * PAGE
    database = client[name].command("dbStats")
    assert database["storageSize"] >= PAGE and database["indexSize"] >= 2 * PAGE
    assert database["totalSize"] == database["storageSize"] + database["indexSize"]


@pytest.mark.skipif(server.is_mongod(), reason="mongod counts what it has written to its files")
def test_what_is_in_memory_counts(client):
    stats = client.full.command("collStats", "c")
    # The bytes cannot be compressed.
    assert 0.5 * COUNT * PAD < stats["storageSize"] < 3 * stats["size"]
    assert all(4 * COUNT < size < 100 * COUNT for size in stats["indexSizes"].values()), stats["indexSizes"]
    listed = {d["name"]: d for d in client.list_databases()}
    assert listed["full"]["sizeOnDisk"] > 0.5 * COUNT * PAD
    assert not listed["full"]["empty"]


def test_sizes_of_empty_collections_are_small(client):
    stats = client.empty.command("collStats", "c")
    assert stats["size"] == 0 and stats["storageSize"] == PAGE
    assert set(stats["indexSizes"].values()) == {PAGE}


def test_the_file_system_is_that_of_the_data(own, client):
    stats = client.full.command("dbStats")
    disk = os.statvfs(own.dbpath)
    assert stats["fsTotalSize"] == disk.f_blocks * disk.f_frsize
    used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize, (disk.f_blocks - disk.f_bavail) * disk.f_frsize
    # Others write meanwhile.
    slack = stats["fsTotalSize"] * 0.05
    assert used[0] - slack <= stats["fsUsedSize"] <= used[1] + slack
    scaled = client.full.command("dbStats", scale=1024)
    assert scaled["fsTotalSize"] == stats["fsTotalSize"] / 1024
