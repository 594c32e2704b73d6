"""Index builds run during reads, writes and other changes; they can be watched and ended."""
import threading

import pymongo
import pytest
from pymongo.errors import OperationFailure

SLOW = {"key": {"many": 1, "n": -1}, "name": "slow"}


@pytest.fixture
def large(c):
    """A collection whose index `SLOW` takes a second or so to build."""
    for start in range(0, 6000, 1000):
        c.insert_many([{"_id": i, "n": i, "many": [(i * 7919 + k * 104729) % 1000003 for k in range(100)]}
                       for i in range(start, start + 1000)])
    return c


class Build(threading.Thread):
    """`createIndexes` on a connection of its own."""

    def __init__(self, uri, c, *indexes):
        super().__init__(daemon=True)
        self.uri, self.names, self.indexes = uri, (c.database.name, c.name), indexes
        self.reply = self.error = None

    def run(self):
        with pymongo.MongoClient(self.uri) as client:
            try:
                self.reply = client[self.names[0]].command("createIndexes", self.names[1], indexes=list(self.indexes))
            except OperationFailure as error:
                self.error = error

    def __enter__(self):
        """Waits until the build is seen to run."""
        self.start()
        with pymongo.MongoClient(self.uri) as client:
            self.op = None
            while self.op is None:
                assert self.is_alive(), "the build was too quick to be seen: %r" % (self.reply or self.error)
                for op in client.admin.command("currentOp")["inprog"]:
                    if "Index Build" in op.get("msg", "") and op["ns"] == ".".join(self.names):
                        self.op = op
        return self

    def __exit__(self, *_):
        self.join(60)
        assert not self.is_alive()


def test_writes_and_other_changes_go_on(uri, db, large):
    with Build(uri, large, SLOW, {"key": {"n": 1}, "name": "n", "unique": True}) as build:
        done = 0
        while build.is_alive():
            large.insert_one({"_id": 10_000 + done, "n": 10_000 + done, "many": [done, 5]})
            large.update_one({"_id": done % 6000}, {"$set": {"many": [done, 7]}})
            large.delete_one({"_id": 5999 - done % 3000})
            done += 1
    assert build.error is None, build.error
    assert build.reply["numIndexesBefore"] == 1 and build.reply["numIndexesAfter"] == 3
    assert done > 5, "writes waited for the build"
    assert {d["_id"] for d in large.find({"many": 7}, {"_id": 1}).hint("slow")} == {
        d["_id"] for d in large.find({"many": 7}, {"_id": 1}).hint("_id_")}
    report = db.command("validate", large.name, full=True)
    assert report["valid"], report


def test_a_build_is_seen(uri, db, large):
    with Build(uri, large, SLOW) as build:
        op = build.op
        assert op["command"]["createIndexes"] == large.name
        assert op["progress"]["done"] <= op["progress"]["total"]
        assert op["msg"].startswith("Index Build: ")
        db.create_collection("beside")
        db.beside.create_index("x")
        assert db.beside.index_information().keys() == {"_id_", "x_1"}
        if build.is_alive():
            assert "slow" in large.index_information()
    assert "slow" in large.index_information()


def test_a_build_is_killed(uri, db, client, large):
    with Build(uri, large, SLOW) as build:
        client.admin.command("killOp", op=build.op["opid"])
    assert build.error is not None and build.error.code == 11601
    assert build.error.details["errmsg"].startswith("Index build failed: ")
    assert sorted(large.index_information()) == ["_id_"]
    large.insert_one({"many": [1]})
    assert db.command("validate", large.name, full=True)["valid"]


@pytest.mark.parametrize("what", ["index", "all", "collection", "database"])
def test_a_build_ends_when_its_index_is_dropped(uri, db, client, large, what):
    with Build(uri, large, SLOW) as build:
        if what == "index":
            large.drop_index("slow")
        elif what == "all":
            large.drop_indexes()
        elif what == "collection":
            large.drop()
        else:
            client.drop_database(db.name)
    assert build.error is not None and build.error.code == 276, build.reply
    assert "slow" not in large.index_information()


def test_what_a_build_refuses(uri, db, large):
    with Build(uri, large, SLOW, {"key": {"n": 1}, "name": "n"}) as build:
        for name, code, run in [
            ("drop one of two", 27, lambda: large.drop_index("n")),
            ("rename", 12587, lambda: large.rename("other")),
            ("collMod", 12587, lambda: db.command("collMod", large.name, validationLevel="moderate")),
            ("another index of this name", 86, lambda: large.create_index("z", name="n")),
        ]:
            with pytest.raises(OperationFailure) as error:
                run()
            assert not build.is_alive() or error.value.code == code, name
    assert build.error is None, build.error


def test_a_duplicate_that_comes_during_a_build_fails_it(uri, db, large):
    with Build(uri, large, SLOW, {"key": {"n": 1}, "name": "n", "unique": True}) as build:
        large.insert_one({"_id": "dup", "n": 5, "many": 1})
        was_alive = build.is_alive()
    if was_alive:
        assert build.error is not None and build.error.code == 11000
        assert build.error.details["keyPattern"] == {"n": 1} and build.error.details["keyValue"] == {"n": 5}
        assert sorted(large.index_information()) == ["_id_"]


def test_a_collection_that_is_dropped_before_its_build_is_created_again(uri, c):
    """A build that has begun ends with the collection; one that has not finds no collection, and creates it."""
    name, errors = c.name, []

    def create_indexes():
        with pymongo.MongoClient(uri) as client:
            for i in range(100):
                try:
                    client[c.database.name][name].create_index(f"f{i % 3}")
                except OperationFailure as error:
                    errors.append(error.code)

    threads = [threading.Thread(target=create_indexes) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        c.drop()
    for thread in threads:
        thread.join()
    assert set(errors) <= {276}, errors
