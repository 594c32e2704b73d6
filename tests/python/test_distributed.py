"""Data in a distributed store: the simulated one with FoundationDB's limits, and a real etcd."""
import ctypes.util
import threading
import time

import etcd_cluster
import pymongo
import pytest
import server

OTHER = server.is_mongod() or "--storage-engine" in server.serve_command()
pytestmark = pytest.mark.skipif(OTHER, reason="the engine is chosen here")


@pytest.fixture(scope="module")
def etcd():
    with etcd_cluster.start() as cluster:
        yield cluster


def on_etcd(etcd):
    return server.Server(*etcd.options(), wait=60.0)


def refusal(*options, **more):
    """Returns the output of a server that ends before it serves."""
    try:
        with server.Server(*options, **more) as own:
            # Its port is taken before the store is opened.
            assert own.process.wait(60) != 0
            return own.tail()
    except RuntimeError as error:
        return str(error)


def test_limits_of_the_store_are_not_those_of_documents():
    with server.Server("--storage-engine", "sim") as own, pymongo.MongoClient(own.uri) as client:
        c = client.test.c
        c.create_index("long")
        c.create_index("unique", unique=True)
        big = {"_id": 1, "text": "x" * (15 << 20), "long": "k" * 200_000, "unique": 1}
        c.insert_one(big)
        assert c.find_one({"_id": 1}) == big
        assert c.find_one({"long": big["long"]}, {"long": 1})["_id"] == 1
        with pytest.raises(pymongo.errors.DuplicateKeyError):
            c.insert_one({"_id": 2, "unique": 1})
        # Keys that differ after the length that the store can order.
        c.insert_many([{"_id": 10 + n, "long": "k" * 5_000 + chr(ord("a") + n), "unique": 10 + n} for n in range(20)])
        ids = [doc["_id"] for doc in c.find({"_id": {"$gte": 10}}, {"_id": 1}).sort("long", -1).hint("long_1")]
        assert ids == list(range(29, 9, -1))
        c.update_one({"_id": 1}, {"$set": {"text": "y" * (15 << 20)}})
        assert c.find_one({"_id": 1})["text"] == "y" * (15 << 20)
        c.insert_many([{"_id": 1000 + n, "pad": "p" * 1000, "unique": 1000 + n} for n in range(5_000)])
        assert c.count_documents({}) == 5_021 == c.estimated_document_count()
        assert c.delete_many({"_id": {"$gte": 1000}}).deleted_count == 5_000
        assert client.test.command("validate", "c")["valid"]
        assert client.admin.command("serverStatus")["storageEngine"]["name"] == "sim"


def test_one_process_serves_a_store(etcd):
    with on_etcd(etcd) as own, pymongo.MongoClient(own.uri) as client:
        client.test.c.insert_one({"_id": 1})
        said = refusal(*etcd.options(), wait=60.0)
        assert "in use by another Marula process (" in said and "process %d)" % own.process.pid in said, said
        assert client.test.c.count_documents({}) == 1
        # Or it would look for the server at its own end.
        client.close()
        assert own.terminate() == 0
        own.start(60.0)
        with pymongo.MongoClient(own.uri) as again:
            assert again.test.c.find_one() == {"_id": 1}
            again.test.drop_collection("c")
        assert own.terminate() == 0


def test_data_survives_kills_of_both(etcd):
    """Marula is killed, then an etcd server: all that was acknowledged is there, and nothing twice."""
    with on_etcd(etcd) as own:
        with pymongo.MongoClient(own.uri) as client:
            c = client.test.kills
            c.create_index("n", unique=True)
            c.insert_many([{"_id": n, "n": n} for n in range(100)])
        own.kill()
        # It waits until the killed one's lease has run out.
        assert own.start(60.0) > 0
        with pymongo.MongoClient(own.uri) as client:
            c = client.test.kills
            assert c.count_documents({}) == 100 == c.estimated_document_count()
            acknowledged = []

            def write():
                for n in range(100, 160):
                    c.insert_one({"_id": n, "n": n})
                    acknowledged.append(n)

            writer = threading.Thread(target=write)
            writer.start()
            while len(acknowledged) < 20 and writer.is_alive():
                time.sleep(0.005)
            victim = etcd.processes[0]
            victim.kill()
            victim.wait()
            writer.join(120)
            assert acknowledged == list(range(100, 160))
            assert sorted(doc["_id"] for doc in c.find()) == list(range(160))
            assert c.estimated_document_count() == 160
            assert client.test.command("validate", "kills", full=True)["valid"]


def test_options_of_clusters_are_checked(tmp_path):
    for options, message in [
        (["--cluster-file", "fdb.cluster"], "--cluster-file is for --storage-engine fdb"),
        (["--storage-engine", "fdb", "--cluster-file", str(tmp_path / "none")], "there is no cluster file"),
        (["--endpoints", "http://127.0.0.1:1"], "--endpoints is for --storage-engine etcd"),
        (["--storage-engine", "etcd"], "needs --endpoints"),
        (["--storage-engine", "sim", "--repair"], "--repair is for data folders"),
        (["--storage-engine", "etcd", "--endpoints", "nonsense"], "is not of the form http://host:port"),
        (["--storage-engine", "etcd", "--endpoints", "http://u@127.0.0.1:1"], "is not of the form http://user:<password>@host:port"),
        (["--storage-engine", "etcd", "--endpoints", "http://127.0.0.1:1", "--endpoints-ca-file", "ca.pem"],
         "TLS to etcd needs endpoints of the form https://host:port"),
        (["--storage-engine", "etcd", "--endpoints", "https://127.0.0.1:1", "--endpoints-ca-file", str(tmp_path / "none")],
         "none'"),
        (["--endpoints-ca-file", "ca.pem"], "--endpoints is for --storage-engine etcd"),
    ]:
        assert message in refusal(*options, dbpath=str(tmp_path))


@pytest.mark.skipif(ctypes.util.find_library("fdb_c") is not None, reason="FoundationDB's client library is here")
def test_a_missing_client_library_is_told(tmp_path):
    cluster = tmp_path / "fdb.cluster"
    cluster.write_text("x:y@127.0.0.1:4500")
    said = refusal("--storage-engine", "fdb", "--cluster-file", str(cluster), dbpath=str(tmp_path))
    assert "cannot load FoundationDB's client library 'libfdb_c.so' (package foundationdb-clients)" in said


def test_a_snapshot_of_etcd_is_a_backup(tmp_path):
    """A snapshot taken while two nodes write is one moment: what was acknowledged before is in it, what began later is
    not, and a transaction is in it as a whole or not at all."""
    file = str(tmp_path / "snapshot.db")
    with etcd_cluster.start() as etcd, \
            server.Server(*etcd.options(), "--shared", wait=60.0) as one, pymongo.MongoClient(one.uri) as client, \
            server.Server(*etcd.options(), "--shared", wait=60.0) as two, pymongo.MongoClient(two.uri) as other:
        before = [{"_id": n, "u": n, "text": "t" * 200} for n in range(500)] + [{"_id": "big", "u": -1, "text": "x" * 5_000_000}]
        client.test.c.create_index("u", unique=True)
        client.test.c.insert_many(before)
        client.test.bank.insert_many([{"_id": n, "money": 100} for n in range(10)])
        client.admin.command("createUser", "ann", pwd="secret", roles=["readAnyDatabase"])
        ended = threading.Event()
        moved = []

        def move():
            n = 0
            with other.start_session() as session:
                while not ended.is_set() or not moved:
                    n += 1

                    def transfer(session):
                        other.test.bank.update_one({"_id": n % 10}, {"$inc": {"money": -7}}, session=session)
                        other.test.bank.update_one({"_id": (n + 3) % 10}, {"$inc": {"money": 7}}, session=session)
                    session.with_transaction(transfer)
                    moved.append(n)

        mover = threading.Thread(target=move)
        mover.start()
        try:
            until = time.monotonic() + 60
            while len(moved) < 3:
                assert time.monotonic() < until and mover.is_alive()
                time.sleep(0.01)
            etcd.snapshot(file)
        finally:
            ended.set()
            mover.join(60)
        client.test.c.insert_one({"_id": "later", "u": -2})
        client.test.c.delete_many({"_id": {"$lt": 100}})
        client.test.late.insert_one({})
    with etcd_cluster.start(snapshot=file) as etcd, server.Server(*etcd.options(), "--shared", wait=60.0) as own, \
            pymongo.MongoClient(own.uri) as client:
        assert sorted(client.test.list_collection_names()) == ["bank", "c"]
        by_u = lambda doc: doc["u"]
        assert sorted(client.test.c.find(), key=by_u) == sorted(before, key=by_u)
        assert [doc["u"] for doc in client.test.c.find({"u": {"$gt": 490}}).hint("u_1")] == list(range(491, 500))
        assert sum(doc["money"] for doc in client.test.bank.find()) == 1_000
        assert client.admin.command("usersInfo", "ann")["users"][0]["roles"] == [{"role": "readAnyDatabase", "db": "admin"}]
        for name in ["bank", "c"]:
            report = client.test.command("validate", name, full=True)
            assert report["valid"], report
        # It goes on from there.
        client.test.c.insert_one({"_id": "later", "u": -2})
        with pytest.raises(pymongo.errors.DuplicateKeyError):
            client.test.c.insert_one({"u": 7})
