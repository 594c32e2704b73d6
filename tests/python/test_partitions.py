"""Several Marula processes over one etcd, while parts of the network between all of them are cut and heal."""
import contextlib
import threading
import time

import etcd_cluster
import partitions
import pymongo
import pytest
import server
from pymongo.errors import AutoReconnect, DuplicateKeyError, NotPrimaryError, OperationFailure, PyMongoError
# The mark, too: the engine is chosen here.
from test_nodes import EXPIRY, check_valid, nodes_of, pytestmark, tells_of_end  # noqa: F401

NODES = 3
# A request into a cut may take long: etcd holds it for seven seconds, and a node turns to the
# next server after four.
PATIENCE = 90


class Register:
    """A number that all nodes increment and read: no read may be older than what was acknowledged before it."""

    def __init__(self, collections):
        self.collections = collections
        collections[0].insert_one({"_id": "register", "n": 0})
        self.lock = threading.Lock()
        self.tried = self.acknowledged = 0
        # Increments and reads of each node that were answered.
        self.increments, self.reads = [0] * len(collections), [0] * len(collections)
        self.wrong = []
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=work, args=(n,)) for n in range(len(collections)) for work in (self.write, self.read)]

    def write(self, n):
        while not self.is_over.is_set():
            with self.lock:
                self.tried += 1
            try:
                self.collections[n].update_one({"_id": "register"}, {"$inc": {"n": 1}})
            except (AutoReconnect, OperationFailure):
                # It may have been made or not.
                time.sleep(0.05)
                continue
            with self.lock:
                self.acknowledged += 1
                self.increments[n] += 1

    def read(self, n):
        while not self.is_over.is_set():
            with self.lock:
                least = self.acknowledged
            try:
                found = self.collections[n].find_one({"_id": "register"})["n"]
            except (AutoReconnect, OperationFailure):
                time.sleep(0.05)
                continue
            with self.lock:
                self.reads[n] += 1
                if not least <= found <= self.tried:
                    self.wrong.append((n, least, found, self.tried))

    def answered(self, nodes):
        with self.lock:
            return {n: (self.increments[n], self.reads[n]) for n in nodes}

    def go_on(self, nodes):
        """Waits until increments and reads of these nodes have been answered."""
        seen = [*self.increments], [*self.reads]
        until = time.monotonic() + PATIENCE
        while any(now[n] < before[n] + 3 for now, before in zip((self.increments, self.reads), seen) for n in nodes):
            assert time.monotonic() < until, (seen, self.increments, self.reads)
            time.sleep(0.05)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join(PATIENCE)


@pytest.fixture(scope="module")
def network():
    with contextlib.closing(partitions.Network()) as network:
        yield network


@pytest.fixture(scope="module")
def etcd(network):
    with etcd_cluster.start(network=network) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def nodes(etcd):
    with nodes_of(etcd, NODES) as nodes:
        yield nodes


SERVERS = ["n0", "n1", "n2"]


def roles(nodes):
    """The leader's name, and those of the others."""
    until = time.monotonic() + 60
    while True:
        [shard] = nodes.clients[0].admin.command("listShards")["shards"]
        by_name = {member["name"]: member.get("stateStr") for member in shard["members"]}
        leaders = [name for name, role in by_name.items() if role == "leader"]
        if len(leaders) == 1 and sorted(by_name) == SERVERS:
            return leaders[0], [name for name in SERVERS if name != leaders[0]]
        assert time.monotonic() < until, shard
        time.sleep(0.1)


def leader_alone(network, leader, others):
    network.cut_off(leader, others)
    return range(NODES)


def follower_alone(network, leader, others):
    network.cut_off(others[0], [leader, others[1]])
    return range(NODES)


def leader_unheard(network, leader, others):
    """It hears the others, and none hears it."""
    network.cut(*[(leader, other) for other in others])
    return range(NODES)


def all_apart(network, leader, others):
    """No two servers hear each other: nobody is served."""
    network.cut_off(leader, others)
    network.cut_off(others[0], others[1:])
    return []


def node_without_leader(network, leader, others):
    network.cut_off("m0", [leader])
    return range(NODES)


def replies_lost(network, leader, others):
    """What a node asks arrives, and it hears no server."""
    network.cut(*[(name, "m0") for name in SERVERS])
    return range(1, NODES)


def node_alone(network, leader, others):
    network.cut_off("m0", SERVERS)
    return range(1, NODES)


@pytest.mark.parametrize("cut", [leader_alone, follower_alone, leader_unheard, all_apart, node_without_leader, replies_lost,
                                 node_alone])
def test_a_cut_harms_nothing_and_heals(network, nodes, cut):
    """For a shorter time than after which a node counts as ended: then all go on as before."""
    databases = nodes.databases("cut_" + cut.__name__)
    with Register([db.c for db in databases]) as register:
        register.go_on(range(NODES))
        leader, others = roles(nodes)
        goes_on = cut(network, leader, others)
        try:
            # What was on its way when the cut was made arrives.
            time.sleep(1)
            before = register.answered(set(range(NODES)) - set(goes_on))
            began = time.monotonic()
            register.go_on(goes_on)
            # A follower that nobody hears has begun an election meanwhile.
            time.sleep(max(0, EXPIRY / 2 - (time.monotonic() - began)))
            assert register.answered(set(range(NODES)) - set(goes_on)) == before, "they are not cut off"
        finally:
            network.heal()
        register.go_on(range(NODES))
    if cut in (leader_alone, leader_unheard):
        assert roles(nodes)[0] != leader
    assert register.wrong == []
    [doc] = check_valid(databases, "c")
    assert register.acknowledged <= doc["n"] <= register.tried
    nodes.clients[0].drop_database(databases[0].name)


def test_a_node_that_was_cut_off_for_long_writes_nothing_later(network, etcd, nodes):
    """What it has sent into the cut arrives when others have taken it for ended, and changes nothing."""
    with server.Server(*etcd.options("late"), "--shared", wait=60.0) as own, pymongo.MongoClient(own.uri, retryWrites=False) as client:
        late, other = client.late.c, nodes.clients[1].late.c
        late.insert_one({"_id": "before"})
        network.cut_off("late", SERVERS)
        outcomes = {}

        def write(n):
            try:
                late.insert_one({"_id": n})
                outcomes[n] = "acknowledged"
            except PyMongoError as error:
                assert not isinstance(error, DuplicateKeyError), error
                outcomes[n] = error

        writers = [threading.Thread(target=write, args=(n,)) for n in range(20)]
        try:
            for writer in writers:
                writer.start()
            until = time.monotonic() + 4 * EXPIRY
            while not any(tells_of_end(node, own.process.pid) for node in nodes.servers):
                assert time.monotonic() < until, "no node says that it has ended"
                time.sleep(0.1)
            other.insert_one({"_id": "meanwhile"})
        finally:
            network.heal()
        for writer in writers:
            writer.join(PATIENCE)
        assert sorted(outcomes) == list(range(20))
        assert "acknowledged" not in outcomes.values(), outcomes
        with pytest.raises(NotPrimaryError, match="must be restarted"):
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until:
                try:
                    late.insert_one({"_id": "later"})
                except NotPrimaryError:
                    raise
                except (AutoReconnect, OperationFailure):
                    time.sleep(0.2)
        # Natural order is that of one node.
        assert sorted(doc["_id"] for doc in other.find()) == ["before", "meanwhile"]
        own.kill()
        own.start(60.0)
        late.insert_one({"_id": "again"})
        check_valid([late.database, other.database], "c")
        other.database.client.drop_database("late")
