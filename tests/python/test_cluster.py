"""A server over a distributed store shows to the tools of sharded clusters: itself, the other Marula processes, and
the store's own servers, which are a real etcd."""
import contextlib
import datetime
import json
import subprocess
import time

import bson
import etcd_cluster
import pymongo
import pytest
import server
from pymongo.errors import OperationFailure
from test_nodes import nodes_of

OTHER = server.is_mongod() or "--storage-engine" in server.serve_command()
pytestmark = pytest.mark.skipif(OTHER, reason="the engine is chosen here")


@pytest.fixture(scope="module")
def etcd():
    with etcd_cluster.start() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def nodes(etcd):
    with nodes_of(etcd, 3) as nodes:
        yield nodes


@pytest.fixture
def client(nodes):
    return nodes.clients[0]


@contextlib.contextmanager
def fails(code, *words):
    """Expects a failure with this code whose message has these words."""
    with pytest.raises(OperationFailure) as failure:
        yield
    assert failure.value.code == code and all(word in str(failure.value) for word in words), failure.value


def hosts_of(etcd):
    return sorted(url.removeprefix("http://") for url in etcd.clients)


def test_the_store_is_the_one_shard(etcd, nodes, client):
    [shard] = client.admin.command("listShards")["shards"]
    assert shard["_id"] == "etcd" and shard["state"] == 1 and shard["healthy"]
    name, _, hosts = shard["host"].partition("/")
    assert name == "etcd" and sorted(hosts.split(",")) == hosts_of(etcd)
    members = shard["members"]
    assert [member["name"] for member in members] == ["n0", "n1", "n2"]
    assert sorted(member["stateStr"] for member in members) == ["follower", "follower", "leader"]
    assert all(member["health"] == 1 and member["version"].startswith("3.") for member in members)
    assert all(0 < member["sizeInUse"] <= member["sizeOnDisk"] and member["lagCommits"] < 100 for member in members)
    assert [found["_id"] for found in nodes.clients[1].config.shards.find()] == ["etcd"]
    shards = client.admin.command("getShardMap")
    assert sorted(shards["hosts"]) == hosts_of(etcd) and set(shards["hosts"].values()) == {"etcd"}
    assert shards["map"]["etcd"] == shard["host"]
    assert client.admin.command("isdbgrid")["isdbgrid"] == 1


def test_the_processes_are_the_mongos(nodes):
    before = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    seen = [list(client.config.mongos.find().sort("_id")) for client in nodes.clients]
    own = sorted("%s:%d" % client.address for client in nodes.clients)
    for routers in seen:
        assert [router["_id"] for router in routers] == own
        for router in routers:
            assert router["mongoVersion"] == nodes.clients[0].server_info()["version"]
            assert router["created"] <= router["ping"]
            assert abs((before - router["ping"]).total_seconds()) < 60
            assert router["up"] == int((router["ping"] - router["created"]).total_seconds())
    # Each shows its signs of life.
    until = time.monotonic() + 60
    while any(then["ping"] == now["ping"] for then, now in
              zip(seen[0], nodes.clients[0].config.mongos.find().sort("_id"))):
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_collection_gets_a_shard_key(nodes):
    one, other, third = (client.sharded for client in nodes.clients)
    assert one.client.admin.command("enableSharding", "sharded")["ok"] == 1
    shown = one.client.admin.command("shardCollection", "sharded.c", key={"a": 1, "b": "hashed"})
    assert shown["collectionsharded"] == "sharded.c" and shown["ok"] == 1
    assert "a_1_b_hashed" in other.c.index_information()
    # Once is enough, and another key is another wish.
    other.client.admin.command("shardCollection", "sharded.c", key={"a": 1, "b": "hashed"})
    with fails(23, "already enabled"):
        third.client.admin.command("shardCollection", "sharded.c", key={"a": 1})
    [shown] = other.client.config.collections.find()
    uuid = next(one.list_collections(filter={"name": "c"}))["info"]["uuid"]
    assert shown["_id"] == "sharded.c" and shown["uuid"] == uuid
    assert shown["key"] == {"a": 1, "b": "hashed"} and shown["unique"] is False and shown["noBalance"] is True
    [chunk] = third.client.config.chunks.find({"uuid": uuid})
    assert chunk["shard"] == "etcd"
    assert chunk["min"] == {"a": bson.MinKey(), "b": bson.MinKey()}
    assert chunk["max"] == {"a": bson.MaxKey(), "b": bson.MaxKey()}
    # It stays with the collection, whatever its options, and goes with it.
    third.command("collMod", "c", validationLevel="moderate")
    third.c.create_index("d")
    other.c.rename("e")
    assert [doc["_id"] for doc in one.client.config.collections.find()] == ["sharded.e"]
    one.e.drop()
    assert list(other.client.config.collections.find()) == list(other.client.config.chunks.find()) == []
    third.client.drop_database("sharded")


def test_a_shard_key_survives_a_restart(etcd, nodes):
    nodes.clients[0].admin.command("shardCollection", "kept.c", key={"a": 1}, unique=True)
    with server.Server(*nodes.options, wait=60.0) as late, pymongo.MongoClient(late.uri) as client:
        [shown] = client.config.collections.find({"_id": "kept.c"})
        assert shown["key"] == {"a": 1} and shown["unique"]
        assert client.kept.c.index_information()["a_1"]["unique"]
        client.drop_database("kept")


def test_a_shard_key_needs_an_index(client):
    db = client.needs_index
    shard = lambda name, **options: client.admin.command("shardCollection", "needs_index." + name, **options)
    db.c.insert_one({"a": 1})
    with fails(72, "create an index"):
        shard("c", key={"a": 1})
    db.c.create_index([("a", 1), ("b", 1)])
    with fails(72, "not unique"):
        shard("c", key={"a": 1}, unique=True)
    shard("c", key={"a": 1})
    shard("d", key={"_id": 1})
    assert list(db.d.index_information()) == ["_id_"]
    for key in [{}, {"a": -1}, {"a": "text"}, {"a": "hashed", "b": "hashed"}]:
        with fails(2):
            shard("e", key=key)
    with fails(72, "Hashed"):
        shard("e", key={"a": "hashed"}, unique=True)
    with fails(73):
        client.admin.command("shardCollection", "needs_index", key={"a": 1})
    with fails(20):
        client.admin.command("shardCollection", "config.x", key={"a": 1})
    db.create_collection("t", timeseries={"timeField": "t"})
    with fails(115):
        shard("t", key={"t": 1})
    db.command("create", "v", viewOn="c", pipeline=[])
    with fails(166):
        shard("v", key={"a": 1})
    assert "e" not in db.list_collection_names()
    client.drop_database("needs_index")


def test_what_the_store_does_itself_is_refused(client):
    admin = client.admin
    assert admin.command("balancerStatus").items() >= {"mode": "off", "inBalancerRound": False}.items()
    assert admin.command("balancerStop")["ok"] == 1
    with fails(20, "each server of the store 'etcd' has all data"):
        admin.command("balancerStart")
    admin.command("shardCollection", "moved.c", key={"a": 1})
    # Data that is there already need not be moved.
    for command in [{"moveChunk": "moved.c", "find": {"a": 1}, "to": "etcd"}, {"movePrimary": "moved", "to": "etcd"},
                    {"moveRange": "moved.c", "min": {"a": 1}, "toShard": "etcd"},
                    {"enableSharding": "moved", "primaryShard": "etcd"}]:
        assert admin.command(command)["ok"] == 1
    for command in [{"moveChunk": "moved.c", "find": {"a": 1}, "to": "shard1"}, {"movePrimary": "moved", "to": "x"},
                    {"moveRange": "moved.c", "min": {"a": 1}, "toShard": "x"},
                    {"enableSharding": "moved", "primaryShard": "x"}]:
        with fails(70):
            admin.command(command)
    with fails(118):
        admin.command({"moveChunk": "moved.d", "find": {"a": 1}, "to": "etcd"})
    for command in [{"addShard": "a/b:1"}, {"removeShard": "etcd"}, {"split": "moved.c", "middle": {"a": 1}},
                    {"mergeChunks": "moved.c", "bounds": []}, {"addShardToZone": "etcd", "zone": "z"},
                    {"removeShardFromZone": "etcd", "zone": "z"}, {"reshardCollection": "moved.c", "key": {"b": 1}},
                    {"updateZoneKeyRange": "moved.c", "min": {}, "max": {}, "zone": "z"}]:
        with fails(20, next(iter(command)), "store 'etcd' places the data"):
            admin.command(command)
    client.drop_database("moved")


def test_what_is_shown_is_not_written(client):
    for name in ["version", "shards", "mongos", "databases", "collections", "chunks", "settings"]:
        held = list(client.config[name].find())
        for write in [lambda: client.config[name].insert_one({}),
                      lambda: client.config[name].update_one({}, {"$set": {"a": 1}}, upsert=True),
                      lambda: client.config[name].delete_many({}),
                      lambda: client.config[name].find_one_and_delete({}),
                      lambda: client.config.create_collection(name),
                      lambda: client.config[name].create_index("a")]:
            with fails(73, "cannot be written"):
                write()
        assert client.config[name].count_documents({}) == len(held)
        assert name not in client.config.list_collection_names()


def test_its_connections_are_counted(etcd, client):
    stats = client.admin.command("connPoolStats")
    assert sorted(stats["hosts"]) == hosts_of(etcd)
    assert stats["totalCreated"] > 0
    assert stats["totalCreated"] == sum(host["created"] for host in stats["hosts"].values())
    status = client.admin.command("serverStatus")
    assert status["process"] == "mongos"
    assert sorted(status["sharding"]["configsvrConnectionString"].removeprefix("etcd/").split(",")) == hosts_of(etcd)


def test_rights_are_those_of_mongos(etcd, nodes):
    with nodes_of(etcd, 1, "--auth") as own:
        [client] = own.clients
        client.admin.command("createUser", "root", pwd="p", roles=["root"])
        as_user = lambda name: pymongo.MongoClient(own.servers[0].uri, username=name, password="p")
        with as_user("root") as root:
            root.admin.command("createUser", "manager", pwd="p", roles=["clusterManager"])
            root.admin.command("createUser", "reader", pwd="p", roles=["readAnyDatabase"])
            with as_user("manager") as manager, as_user("reader") as reader:
                commands = [{"listShards": 1}, {"getShardMap": 1}, {"balancerStatus": 1}, {"balancerStop": 1},
                            {"enableSharding": "x"}, {"shardCollection": "rights.c", "key": {"a": 1}}]
                for command in commands:
                    with fails(13):
                        reader.admin.command(command)
                    if "getShardMap" not in command:
                        manager.admin.command(command)
                assert [shard["_id"] for shard in manager.config.shards.find()] == ["etcd"]
                with fails(13):
                    list(reader.config.shards.find())
            root.drop_database("rights")
            for name in ["manager", "reader", "root"]:
                root.admin.command("dropUser", name)


def cluster_status(etcd, *options):
    command = [*server.serve_command()[:-1], "cluster", "status", "--storage-engine", "etcd",
               "--endpoints", ",".join(etcd.clients), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_program_shows_the_cluster(etcd, nodes):
    # The processes that other tests have killed are named until the others have noticed their end.
    until = time.monotonic() + 60
    while (shown := cluster_status(etcd, "--json")).returncode != 0:
        assert time.monotonic() < until, shown
    status = json.loads(shown.stdout)
    assert status["healthy"] and status["store"] == "etcd", shown
    assert sorted(member["address"] for member in status["members"]) == hosts_of(etcd)
    assert sorted(node["host"] for node in status["nodes"]) == sorted("%s:%d" % c.address for c in nodes.clients)
    assert all(node["alive"] for node in status["nodes"]) and status["owner"] is None
    table = cluster_status(etcd)
    assert table.returncode == 0 and table.stdout.startswith("store etcd: healthy\n"), table
    assert table.stdout.count(" alive\n") == 3 and "leader" in table.stdout


def test_dead_servers_and_processes_are_seen():
    with etcd_cluster.start() as etcd, nodes_of(etcd, 2) as nodes:
        nodes.servers[1].process.kill()
        nodes.servers[1].process.wait()
        etcd.processes[2].kill()
        etcd.processes[2].wait()
        # If it was the leader, nobody's heartbeats are written until another one is elected.
        until = time.monotonic() + 60
        while True:
            shown = cluster_status(etcd, "--json")
            status = json.loads(shown.stdout)
            assert shown.returncode == 1 and not status["healthy"]
            assert [member["healthy"] for member in status["members"]] == [True, True, False]
            # The other one may have found out already, and removed it.
            if sum(node["alive"] for node in status["nodes"]) == 1:
                break
            assert time.monotonic() < until, status
        [shard] = nodes.clients[0].admin.command("listShards")["shards"]
        assert not shard["healthy"] and [member["health"] for member in shard["members"]] == [1, 1, 0]
        assert "errmsg" in shard["members"][2]
        assert "NOT HEALTHY" in cluster_status(etcd).stdout
        until = time.monotonic() + 60
        while nodes.clients[0].config.mongos.count_documents({}) != 1:
            assert time.monotonic() < until, "the dead process is shown for ever"
            time.sleep(0.2)
        # With one of three there is no majority, and the one that is left reports it.
        etcd.processes[1].kill()
        etcd.processes[1].wait()
        until = time.monotonic() + 60
        while "it has no leader" not in (table := cluster_status(etcd)).stdout:
            assert time.monotonic() < until, table
        assert table.returncode == 1 and "the processes are not known" in table.stdout, table


def test_one_machine_has_no_cluster():
    with server.Server() as alone, pymongo.MongoClient(alone.uri) as client:
        for command in [{"listShards": 1}, {"shardCollection": "a.b", "key": {"a": 1}}, {"addShard": "x"}]:
            with fails(59, "no such command"):
                client.admin.command(command)
        assert "listShards" not in client.admin.command("listCommands")["commands"]
        assert client.config.shards.find_one() is None
        assert client.config.settings.insert_one({"_id": 1}).acknowledged
        assert "sharding" not in client.admin.command("serverStatus")
