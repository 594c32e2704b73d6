"""Several Marula processes over one store, which is a real etcd: what one does is true on all of them."""
import bson
import contextlib
import random
import signal
import threading
import time
import uuid

import etcd_cluster
import pymongo
import pytest
import raw
import server
from pymongo import WriteConcern
from pymongo.errors import AutoReconnect, DuplicateKeyError, NotPrimaryError, OperationFailure, PyMongoError, WriteError

OTHER = server.is_mongod() or "--storage-engine" in server.serve_command()
pytestmark = pytest.mark.skipif(OTHER, reason="the engine is chosen here")

# A node that shows no sign of life for ten seconds has ended.
EXPIRY = 10
# For so long a node is stopped: etcd no longer has the versions that it has read.
PAUSE = 61


@pytest.fixture(scope="module")
def etcd():
    with etcd_cluster.start() as cluster:
        yield cluster


class Nodes:
    """Servers of one store, and a client of each."""

    def __init__(self, etcd, count, *options):
        """Starts them. They reach etcd over its network, if it has one, where they are called m0, m1 and so on."""
        self.servers, self.clients = [], []
        for n in range(count):
            self.options = [*etcd.options("m%d" % n if etcd.network else None), "--shared", *options]
            self.servers.append(server.Server(*self.options, wait=60.0))
        for own in self.servers:
            self.clients.append(pymongo.MongoClient(own.uri, retryWrites=False, serverSelectionTimeoutMS=30_000))

    def close(self):
        for client in self.clients:
            client.close()
        for own in self.servers:
            own.close()

    def databases(self, name):
        return [client[name] for client in self.clients]


@contextlib.contextmanager
def nodes_of(etcd, count, *options):
    nodes = Nodes(etcd, count, *options)
    try:
        yield nodes
    finally:
        nodes.close()


@pytest.fixture(scope="module")
def nodes(etcd):
    with nodes_of(etcd, 3) as nodes:
        yield nodes


@pytest.fixture
def databases(nodes, request):
    """The database of one test, as each node has it."""
    name = request.node.name[:60]
    yield nodes.databases(name)
    nodes.clients[0].drop_database(name)


def at_once(*works):
    """Runs functions on threads, and raises what one of them raised."""
    failures = []

    def run(work):
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
        assert not thread.is_alive(), "it does not end"
    if failures:
        raise failures[0]


def check_valid(databases, name):
    """Documents, indexes and counters of a collection agree, and each node shows the same."""
    shown = [sorted(db[name].find(), key=lambda doc: repr(doc["_id"])) for db in databases]
    assert all(docs == shown[0] for docs in shown)
    report = databases[0].command("validate", name, full=True)
    assert report["valid"], report
    assert [db[name].estimated_document_count() for db in databases] == [len(shown[0])] * len(databases)
    return shown[0]


def test_a_store_is_shared_by_all_or_none(etcd, nodes):
    with server.Server(*etcd.options(), wait=60.0) as alone:
        # Its port is taken before the store is opened.
        assert alone.process.wait(60) != 0
        assert "in use by another Marula process" in alone.tail()
    assert nodes.clients[0].admin.command("ping")["ok"] == 1


def test_what_one_creates_and_drops_the_others_know(databases):
    one, other, third = databases
    one.c.insert_one({"_id": 1, "a": 1})
    assert other.c.find_one() == {"_id": 1, "a": 1}
    assert third.list_collection_names() == ["c"]
    other.c.create_index("a", name="by_a")
    assert "by_a" in third.c.index_information()
    third.command("collMod", "c", validator={"a": {"$lt": 10}})
    with pytest.raises(WriteError):
        one.c.insert_one({"a": 10})
    one.c.rename("d")
    assert other.d.count_documents({"a": 1}) == 1 and other.c.count_documents({}) == 0
    other.d.drop()
    assert third.list_collection_names() == []
    third.create_collection("d", capped=True, size=10_000)
    assert one.d.options()["capped"]
    one.command("create", "v", viewOn="d", pipeline=[])
    assert sorted(other.list_collection_names()) == ["d", "system.views", "v"]
    assert list(third.v.find()) == []


def test_created_at_once_on_all(databases):
    """Idents are given once, and each name is one collection."""
    for n in range(8):
        at_once(*[lambda db=db, i=i: db["c%d" % n].insert_one({"_id": i, "u": i}) for i, db in enumerate(databases)],
                *[lambda db=db, i=i: db["own%d_%d" % (n, i)].insert_one({"_id": i}) for i, db in enumerate(databases)])
    for n in range(8):
        assert len(check_valid(databases, "c%d" % n)) == 3
        for i in range(3):
            assert check_valid(databases, "own%d_%d" % (n, i)) == [{"_id": i}]


def test_a_unique_index_is_built_while_others_insert_duplicates(databases):
    builder, *writers = databases
    for round in range(4):
        name = "c%d" % round
        builder[name].insert_many([{"_id": n, "u": n, "tags": [n]} for n in range(1_000)])
        is_over = threading.Event()
        inserted = []

        def write(db, seed):
            dice = random.Random(seed)
            while not is_over.is_set():
                u = dice.randrange(2_000)
                try:
                    db[name].insert_one({"u": u, "tags": [u, u + 1]})
                    inserted.append(u)
                except DuplicateKeyError:
                    pass

        def build():
            try:
                while len(inserted) < 3:
                    time.sleep(0.001)
                try:
                    builder[name].create_index("u", unique=True)
                    assert builder[name].index_information()["u_1"]["unique"]
                except DuplicateKeyError:
                    # A duplicate came before the build: then it is there.
                    values = [doc["u"] for doc in builder[name].find()]
                    assert len(values) > len(set(values))
                    assert "u_1" not in writers[0][name].index_information()
                builder[name].create_index("tags")
                # Later inserts are in both.
                before = len(inserted)
                until = time.monotonic() + 20
                while len(inserted) < before + 3 and time.monotonic() < until:
                    time.sleep(0.001)
            finally:
                is_over.set()

        at_once(build, *[lambda db=db, n=n: write(db, n) for n, db in enumerate(writers)])
        docs = check_valid(databases, name)
        if "u_1" in builder[name].index_information():
            assert len({doc["u"] for doc in docs}) == len(docs)
        for tag in (5, 500):
            expected = sorted(repr(doc["_id"]) for doc in docs if tag in doc["tags"])
            for db in databases:
                found = db[name].find({"tags": tag}).hint("tags_1")
                assert sorted(repr(doc["_id"]) for doc in found) == expected


def test_unique_keys_are_unique_over_all(databases):
    databases[0].c.create_index("u", unique=True)
    taken = [[], [], []]

    def claim(n):
        for u in range(60):
            try:
                databases[n].c.insert_one({"u": u, "by": n})
                taken[n].append(u)
            except DuplicateKeyError:
                pass

    at_once(*[lambda n=n: claim(n) for n in range(3)])
    assert sorted(sum(taken, [])) == list(range(60))
    assert len(check_valid(databases, "c")) == 60


def test_the_same_documents_are_changed_by_all(databases):
    """No update is lost, and indexes and counters stay right."""
    databases[0].c.insert_many([{"_id": n, "n": 0, "tags": []} for n in range(5)])
    databases[0].c.create_index("n")
    databases[0].c.create_index("tags")

    def change(db, seed):
        dice = random.Random(seed)
        for _ in range(40):
            db.c.update_one({"_id": dice.randrange(5)}, {"$inc": {"n": 1}, "$push": {"tags": dice.randrange(50)}})
            if dice.random() < 0.2:
                db.c.insert_one({"_id": bson.ObjectId(), "n": -1, "tags": dice.randrange(50)})
            if dice.random() < 0.2:
                db.c.find_one_and_delete({"n": -1})

    at_once(*[lambda db=db, n=n: change(db, n) for n, db in enumerate(databases)])
    docs = check_valid(databases, "c")
    assert sum(doc["n"] for doc in docs if doc["n"] >= 0) == 120


def test_a_collection_is_dropped_while_others_write(databases):
    dropper, *writers = databases
    is_over = threading.Event()

    def write(db, seed):
        n = 0
        while not is_over.is_set():
            try:
                db.c.insert_one({"_id": "%d-%d" % (seed, n), "n": n})
                db.c.update_one({"_id": "%d-%d" % (seed, n)}, {"$inc": {"n": 1}})
                n += 1
            except OperationFailure as error:
                assert error.code == 26, error

    def drop():
        try:
            for _ in range(8):
                dropper.c.drop()
                dropper.c.insert_one({"_id": str(uuid.uuid4())})
                dropper.c.create_index("n")
        finally:
            is_over.set()

    at_once(drop, *[lambda db=db, n=n: write(db, n) for n, db in enumerate(writers)])
    check_valid(databases, "c")
    # Writes acknowledged after the last drop are present, on all nodes.
    writers[0].c.insert_one({"_id": "last"})
    assert all(db.c.find_one({"_id": "last"}) for db in databases)


def test_a_collection_is_renamed_while_others_write(databases):
    """What is inserted under the old name is not in a collection that has been renamed before."""
    is_over = threading.Event()

    def insert(node):
        n = 0
        while not is_over.is_set():
            n += 1
            with contextlib.suppress(OperationFailure):
                databases[node].c.insert_one({"_id": "%d-%d" % (node, n)})

    def rename():
        try:
            for n in range(15):
                databases[2].c.insert_one({})
                ignoring(lambda: databases[2].c.rename("r", dropTarget=True))
        finally:
            is_over.set()

    with databases[1].watch(max_await_time_ms=100) as stream:
        at_once(rename, lambda: insert(0), lambda: insert(1))
        databases[0].last.insert_one({})
        names = [event["ns"]["coll"] for event in events_of_inserts(stream)]
    assert set(names) == {"c", "last"}


def test_a_collection_becomes_capped_while_others_write(databases):
    """What is acknowledged is in the new collection."""
    databases[0].c.insert_many([{"_id": n, "x": "y" * 100} for n in range(100)])
    is_over, inserted = threading.Event(), []

    def insert(node):
        n = 0
        while not is_over.is_set():
            n += 1
            databases[node].c.insert_one({"_id": "%d-%d" % (node, n)})
            inserted.append("%d-%d" % (node, n))

    def convert():
        try:
            for _ in range(3):
                databases[2].command("convertToCapped", "c", size=100 << 20)
        finally:
            is_over.set()

    at_once(convert, lambda: insert(0), lambda: insert(1))
    found = {doc["_id"] for doc in databases[0].c.find()}
    assert [name for name in inserted if name not in found] == []


def events_of_inserts(stream):
    """The inserts up to the one into the last collection."""
    for event in stream:
        if event["operationType"] == "insert":
            yield event
            if event["ns"]["coll"] == "last":
                return


def test_an_index_becomes_multikey_while_others_plan(databases):
    writer, *readers = databases
    for n in range(15):
        name = "c%d" % n
        writer[name].insert_many([{"_id": i, "a": i, "b": {"c": i}} for i in range(20)])
        writer[name].create_index([("a", 1), ("b.c", 1)])
        for db in readers:
            assert len(list(db[name].find({"a": {"$gte": 0}}))) == 20
        writer[name].update_one({"_id": 3}, {"$set": {"a": [3, 4, 5]}})
        writer[name].insert_one({"_id": 20, "a": 20, "b": [{"c": 1}, {"c": 2}]})
        for db in readers:
            # Each document once, and sorted by its least element.
            assert [doc["_id"] for doc in db[name].find({"a": {"$gte": 0}}).sort("a", 1)] == list(range(21))
            assert db[name].count_documents({"a": {"$elemMatch": {"$gt": 3, "$lt": 5}}}) == 1
            assert [doc["_id"] for doc in db[name].find({"a": 20, "b.c": 1, "b.c": 2})] == [20]


def test_capped_collections_take_from_all(databases):
    databases[0].create_collection("c", capped=True, size=100_000, max=20)
    at_once(*[lambda db=db, i=i: [db.c.insert_one({"_id": "%d-%d" % (i, n), "i": i, "n": n}) for n in range(25)]
              for i, db in enumerate(databases)])
    shown = [list(db.c.find()) for db in databases]
    assert len(shown[0]) == 20 and all(docs == shown[0] for docs in shown)
    for i in range(3):
        own = [doc["n"] for doc in shown[0] if doc["i"] == i]
        # The newest of each, in the order of their inserts.
        assert own == list(range(25 - len(own), 25))
    assert databases[0].command("validate", "c", full=True)["valid"]


def test_a_tailable_cursor_sees_what_another_inserts(databases):
    one, other, _ = databases
    one.create_collection("c", capped=True, size=100_000)
    one.c.insert_one({"_id": 0})
    cursor = other.c.find(cursor_type=pymongo.CursorType.TAILABLE_AWAIT).max_await_time_ms(20_000)
    assert cursor.next() == {"_id": 0}
    found = []
    reader = threading.Thread(target=lambda: found.append(cursor.next()))
    reader.start()
    one.c.insert_one({"_id": 1})
    reader.join(15)
    assert found == [{"_id": 1}]


def ask(nodes, n, lsid, number, db, **command):
    """Runs a numbered command on a node as no driver would: with the same session as on another."""
    with raw.Raw(nodes.servers[n].port, timeout=60) as connection:
        return connection.command(db, **command, lsid={"id": lsid}, txnNumber=bson.Int64(number))


def new_lsid():
    return bson.Binary.from_uuid(uuid.uuid4())


def increment(nodes, n, lsid, number, db):
    updates = [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]
    reply = ask(nodes, n, lsid, number, db, update="c", updates=updates)
    assert reply["ok"] == 1 and reply["nModified"] == 1, reply


def test_a_numbered_write_is_made_once_on_whichever_node(nodes, databases):
    databases[0].c.insert_one({"_id": 1, "n": 0})
    lsid = new_lsid()
    for number in range(1, 25):
        at_once(*[lambda n=n: increment(nodes, n, lsid, number, databases[0].name) for n in range(3)])
        assert databases[number % 3].c.find_one()["n"] == number
        increment(nodes, number % 3, lsid, number, databases[0].name)
        assert databases[1].c.find_one()["n"] == number
    late = ask(nodes, 1, lsid, 3, databases[0].name, delete="c", deletes=[{"q": {}, "limit": 1}])
    assert late["codeName"] == "TransactionTooOld", late


def test_many_statements_are_made_once(nodes, databases):
    """The same insert on all nodes at once, with an index that is built meanwhile."""
    for n in range(6):
        name, lsid = "c%d" % n, new_lsid()
        databases[0].create_collection(name)
        docs = [{"_id": i, "a": [i, n]} for i in range(100)]
        replies = []

        def insert(node):
            replies.append(ask(nodes, node, lsid, 1, databases[0].name, insert=name, documents=docs))

        at_once(*[lambda node=node: insert(node) for node in range(3)],
                lambda: databases[n % 3][name].create_index("a"))
        assert [(reply.get("n"), reply.get("writeErrors")) for reply in replies] == [(100, None)] * 3, replies
        assert len(check_valid(databases, name)) == 100


def test_a_commit_is_asked_for_on_another_node(nodes, databases):
    databases[0].c.insert_one({"_id": 0})
    for number in range(1, 13):
        lsid = new_lsid()
        inside = {"startTransaction": True, "autocommit": False}
        reply = ask(nodes, 0, lsid, number, databases[0].name, insert="c", documents=[{"_id": number}], **inside)
        assert reply["ok"] == 1, reply
        outcomes = []

        def commit(n):
            reply = ask(nodes, n, lsid, number, "admin", commitTransaction=1, autocommit=False)
            if reply["ok"] != 1:
                assert reply["codeName"] in ("NoSuchTransaction", "WriteConflict"), reply
                assert reply["errorLabels"] == ["TransientTransactionError"], reply
            outcomes.append(reply["ok"] == 1)

        if number % 3 == 0:
            # The other one first: the transaction will never be committed.
            commit(1)
            commit(0)
            assert outcomes == [False, False]
        elif number % 3 == 1:
            commit(0)
            commit(1)
            assert outcomes == [True, True]
        else:
            at_once(lambda: commit(0), lambda: commit(1))
            assert outcomes[0] == outcomes[1], outcomes
        assert databases[2].c.count_documents({"_id": number}) == int(outcomes[0])


def test_transactions_of_several_nodes_meet(nodes, databases):
    databases[0].c.insert_many([{"_id": n, "n": 0} for n in range(3)])
    with nodes.clients[0].start_session() as one, nodes.clients[1].start_session() as other:
        one.start_transaction()
        other.start_transaction()
        databases[0].c.update_one({"_id": 0}, {"$inc": {"n": 1}}, session=one)
        databases[1].c.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=other)
        databases[1].c.update_one({"_id": 0}, {"$inc": {"n": 1}}, session=other)
        one.commit_transaction()
        with pytest.raises(OperationFailure) as failure:
            other.commit_transaction()
        assert failure.value.code == 112 and failure.value.has_error_label("TransientTransactionError")
        # An ordinary write of another node counts too, and a change of the collection.
        one.start_transaction()
        databases[0].c.update_one({"_id": 2}, {"$inc": {"n": 1}}, session=one)
        databases[1].c.update_one({"_id": 2}, {"$inc": {"n": 10}})
        with pytest.raises(OperationFailure):
            one.commit_transaction()
        one.start_transaction()
        databases[0].c.update_one({"_id": 2}, {"$inc": {"n": 1}}, session=one)
        databases[1].c.create_index("n")
        with pytest.raises(OperationFailure) as failure:
            one.commit_transaction()
        assert failure.value.has_error_label("TransientTransactionError")
        # Unrelated changes do not end it.
        one.start_transaction()
        databases[0].c.update_one({"_id": 2}, {"$inc": {"n": 1}}, session=one)
        databases[1].other.insert_one({"_id": 1, "a": [1]})
        databases[1].other.create_index("a")
        one.commit_transaction()
    assert [doc["n"] for doc in check_valid(databases, "c")] == [1, 0, 11]


def transfer(client, name, dice, is_over):
    """Moves money between two accounts in transactions until it is over, or its node is."""
    accounts = client[name].accounts
    while not is_over.is_set():
        one, other = dice.sample(range(6), 2)
        try:
            with client.start_session() as session, session.start_transaction(write_concern=WriteConcern("majority")):
                accounts.update_one({"_id": one}, {"$inc": {"balance": -1}}, session=session)
                accounts.update_one({"_id": other}, {"$inc": {"balance": 1}}, session=session)
        except OperationFailure as error:
            assert error.has_error_label("TransientTransactionError"), error
        except AutoReconnect:
            return


def test_money_is_neither_made_nor_lost_while_a_node_is_killed(etcd):
    name = "bank"
    with nodes_of(etcd, 3) as nodes:
        accounts = nodes.clients[0][name].accounts
        accounts.insert_many([{"_id": n, "balance": 100} for n in range(6)])
        accounts.create_index("balance")
        is_over = threading.Event()
        sums = []

        def read(client):
            while not is_over.is_set():
                with client.start_session(snapshot=True) as session:
                    sums.append(sum(doc["balance"] for doc in client[name].accounts.find(session=session)))

        def kill():
            try:
                while len(sums) < 10:
                    time.sleep(0.01)
                nodes.servers[2].kill()
                before = len(sums)
                while len(sums) < before + 40:
                    time.sleep(0.01)
            finally:
                is_over.set()

        at_once(kill, lambda: read(nodes.clients[0]),
                *[lambda n=n, c=c: transfer(c, name, random.Random(n), is_over)
                  for n, c in enumerate([*nodes.clients, nodes.clients[2]])])
        assert set(sums) == {600}
        docs = check_valid(nodes.databases(name)[:2], "accounts")
        assert sum(doc["balance"] for doc in docs) == 600
        nodes.clients[0].drop_database(name)


def test_a_build_ends_with_its_node(etcd):
    with nodes_of(etcd, 2) as nodes:
        one, other = nodes.databases("builds")
        one.c.insert_many([{"_id": n, "a": n, "pad": "x" * 1000} for n in range(6_000)])
        builder = threading.Thread(target=lambda: ignoring(lambda: one.c.create_index([("pad", 1), ("a", 1)])))
        builder.start()
        until = time.monotonic() + 60
        while not building(other):
            assert time.monotonic() < until, "the build is not seen"
            time.sleep(0.005)
        nodes.servers[0].kill()
        builder.join(60)
        # Writers go on, whether or not it is known that the builder has ended.
        other.c.insert_one({"_id": -1, "a": -1, "pad": "y"})
        until = time.monotonic() + 4 * EXPIRY
        while building(other):
            assert time.monotonic() < until, "the build is not forgotten"
            time.sleep(0.1)
        assert list(other.c.index_information()) == ["_id_"]
        other.c.create_index("a")
        assert other.command("validate", "c", full=True)["valid"]
        other.client.drop_database("builds")


def building(db):
    return db.command("collStats", "c")["indexBuilds"]


def ignoring(work):
    with contextlib.suppress(PyMongoError):
        work()


def tells_of_end(own, pid):
    lines = own.tail(1 << 24).splitlines()
    return any("has ended without a word" in line and "process %d\"" % pid in line for line in lines)


def test_a_node_that_was_stopped_harms_nothing(etcd, nodes):
    """It changes the catalogue when it is stopped; the others go on without it, and it cannot write any more."""
    others = nodes
    with nodes_of(etcd, 2) as nodes:
        one, other = nodes.databases("stopped")
        one.c.insert_one({"_id": 0})
        is_over = threading.Event()

        def change():
            n = 0
            while not is_over.is_set():
                ignoring(lambda: one["d%d" % n].insert_one({"_id": n}))
                n += 1

        changer = threading.Thread(target=change)
        changer.start()
        time.sleep(0.5)
        process = nodes.servers[0].process
        process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            # This waits for the lock that the other may hold.
            other.create_collection("after", check_exists=False)
            other.c.insert_one({"_id": 1})
            until = time.monotonic() + 4 * EXPIRY
            while not any(tells_of_end(own, process.pid) for own in [nodes.servers[1], *others.servers]):
                assert time.monotonic() < until, "no node says that the stopped one has ended"
                time.sleep(0.1)
            other.c.drop()
            other.c.insert_one({"_id": 2})
            time.sleep(max(0, PAUSE - (time.monotonic() - stopped)))
        finally:
            process.send_signal(signal.SIGCONT)
        is_over.set()
        changer.join(60)
        until = time.monotonic() + 2 * EXPIRY
        while True:
            try:
                one.c.insert_one({"_id": 3})
            except NotPrimaryError as error:
                assert "must be restarted" in str(error), error
                break
            except OperationFailure as error:
                assert error.code == 112, error
            else:
                raise AssertionError("a node that others take for ended has written")
            assert time.monotonic() < until
        assert list(other.c.find()) == [{"_id": 2}]
        # Restarted it is a node again.
        nodes.servers[0].kill()
        nodes.servers[0].start(60.0)
        for name in other.list_collection_names():
            check_valid(nodes.databases("stopped"), name)
        other.client.drop_database("stopped")


def test_leaders_of_etcd_are_paused_and_killed():
    """A leader that is stopped and goes on later, and one that is killed: what was acknowledged stays, and writes go on."""
    with etcd_cluster.start() as etcd, nodes_of(etcd, 2) as nodes:
        nodes.clients[0].leaders.c.create_index("n", unique=True)
        acknowledged = [[], []]
        ended = threading.Event()

        def write(i):
            c, n = nodes.clients[i].leaders.c, 0
            while not ended.is_set():
                n += 1
                try:
                    c.insert_one({"_id": {"node": i, "n": n}, "n": 2 * n + i})
                    acknowledged[i].append(n)
                except (AutoReconnect, OperationFailure) as error:
                    assert not isinstance(error, DuplicateKeyError), error
                    # It may be there or not. The next one has another key.
                    time.sleep(0.05)

        def leader():
            until = time.monotonic() + 60
            while True:
                [shard] = nodes.clients[0].admin.command("listShards")["shards"]
                for n, member in enumerate(shard["members"]):
                    if member.get("stateStr") == "leader" and member["health"] == 1:
                        return etcd.processes[n]
                assert time.monotonic() < until, shard

        def go_on():
            seen = [len(of) for of in acknowledged]
            until = time.monotonic() + 90
            while any(len(of) < before + 3 for of, before in zip(acknowledged, seen)):
                assert time.monotonic() < until, "no write is acknowledged any more"
                time.sleep(0.05)

        writers = [threading.Thread(target=write, args=(i,)) for i in range(2)]
        for writer in writers:
            writer.start()
        try:
            go_on()
            paused = leader()
            paused.send_signal(signal.SIGSTOP)
            try:
                go_on()
            finally:
                paused.send_signal(signal.SIGCONT)
            go_on()
            killed = leader()
            killed.kill()
            killed.wait()
            go_on()
        finally:
            ended.set()
            for writer in writers:
                writer.join(90)
        docs = check_valid(nodes.databases("leaders"), "c")
        there = {(doc["_id"]["node"], doc["_id"]["n"]) for doc in docs}
        assert all((i, n) in there for i in range(2) for n in acknowledged[i])


def test_users_are_the_same_on_all(etcd):
    with nodes_of(etcd, 2, "--auth") as nodes:
        ports = [own.port for own in nodes.servers]
        nodes.clients[0].admin.command("createUser", "root", pwd="secret", roles=["root"])

        def client(n, name):
            return pymongo.MongoClient("127.0.0.1", ports[n], username=name, password="secret", directConnection=True)

        with client(1, "root") as root, client(0, "root") as root0:
            root.admin.command("createUser", "ann", pwd="secret", roles=[{"role": "read", "db": "users"}])
            root0.users.c.insert_one({"_id": 1})
            with client(0, "ann") as ann:
                assert ann.users.c.find_one() == {"_id": 1}
                with pytest.raises(OperationFailure):
                    ann.users.c.insert_one({"_id": 2})
                root.admin.command("grantRolesToUser", "ann", roles=[{"role": "readWrite", "db": "users"}])
                ann.users.c.insert_one({"_id": 2})
                root.admin.command("revokeRolesFromUser", "ann",
                                   roles=[{"role": role, "db": "users"} for role in ("readWrite", "read")])
                with pytest.raises(OperationFailure):
                    ann.users.c.find_one()
                root.admin.command("dropUser", "ann")
                with pytest.raises(OperationFailure):
                    ann.users.c.find_one()
            root.drop_database("users")
            root.admin.command("dropUser", "root")


def test_roles_granted_at_once_are_all_there(nodes, databases):
    name = databases[0].name
    for db in databases[:1]:
        db.command("createUser", "ann", pwd="secret", roles=[])
        db.command("createRole", "heir", roles=[], privileges=[])
        for n in range(12):
            db.command("createRole", "r%d" % n, roles=[], privileges=[])

    def grant(db, mine):
        for n in mine:
            db.command("grantRolesToUser", "ann", roles=["r%d" % n])
            db.command("grantRolesToRole", "heir", roles=["r%d" % n])
            db.command("grantPrivilegesToRole", "heir",
                       privileges=[{"resource": {"db": name, "collection": "c%d" % n}, "actions": ["find"]}])

    at_once(*[lambda db=db, i=i: grant(db, range(i, 12, 3)) for i, db in enumerate(databases)])
    granted = sorted("r%d" % n for n in range(12))
    for db in databases:
        [ann] = db.command("usersInfo", "ann")["users"]
        assert sorted(role["role"] for role in ann["roles"]) == granted
        [heir] = db.command("rolesInfo", "heir", showPrivileges=True)["roles"]
        assert sorted(role["role"] for role in heir["roles"]) == granted
        assert len(heir["privileges"]) == 12

    at_once(*[lambda db=db, i=i: [db.command("revokeRolesFromUser", "ann", roles=["r%d" % n])
                                  for n in range(i, 12, 3)] for i, db in enumerate(databases)])
    assert databases[1].command("usersInfo", "ann")["users"][0]["roles"] == []
    databases[2].command("dropUser", "ann")
    databases[0].command("dropAllRolesFromDatabase")


def test_measurements_of_all_nodes(databases):
    """Buckets are filled by all nodes at once; none loses a measurement."""
    databases[0].create_collection("t", timeseries={"timeField": "t", "metaField": "m"})
    begin = bson.datetime.datetime(2026, 1, 1)

    def measure(db, i):
        for n in range(30):
            moments = [begin + bson.datetime.timedelta(seconds=60 * n + k) for k in range(4)]
            db.t.insert_many([{"t": t, "m": n % 3, "node": i, "v": n} for t in moments])

    at_once(*[lambda db=db, i=i: measure(db, i) for i, db in enumerate(databases)])
    databases[1].t.create_index([("m", 1), ("t", 1)])
    for db in databases:
        assert db.t.count_documents({}) == 360
        by_meta = db.t.aggregate([{"$group": {"_id": ["$m", "$node"], "n": {"$sum": 1}, "v": {"$sum": "$v"}}},
                                  {"$sort": {"_id": 1}}])
        expected = [{"_id": [m, i], "n": 40, "v": 4 * sum(range(m, 30, 3))} for m in range(3) for i in range(3)]
        assert list(by_meta) == expected
        last = begin + bson.datetime.timedelta(seconds=60 * 29)
        assert db.t.count_documents({"m": 2, "t": {"$gte": last}}) == 12
    # Those of one sensor go while others are measured.
    at_once(lambda: databases[0].t.delete_many({"m": 0}),
            lambda: databases[2].t.insert_many([{"t": begin, "m": 1, "node": 2, "v": 0} for _ in range(50)]))
    assert [db.t.count_documents({}) for db in databases] == [290] * 3
    report = databases[1].command("validate", "system.buckets.t", full=True)
    assert report["valid"], report


def test_documents_expire_on_a_shared_store(nodes, databases):
    for client in nodes.clients:
        client.admin.command("setParameter", 1, ttlMonitorSleepSecs=1)
    databases[1].c.create_index("at", expireAfterSeconds=0)
    databases[2].c.insert_many([{"at": bson.datetime.datetime(2020, 1, 1)} for _ in range(50)] + [{"_id": 1}])
    until = time.monotonic() + 30
    while databases[0].c.count_documents({}) > 1:
        assert time.monotonic() < until
        time.sleep(0.1)
    check_valid(databases, "c")


SLEEPING = [{"$project": {"x": {"$function": {"lang": "js", "args": [], "body": "function() { sleep(600000) }"}}}}]


class Sleeper:
    """An operation that runs until it is killed; `code` is the code of the error with which it ends."""

    def __init__(self, collection, comment, session=None):
        self.code = None

        def run():
            try:
                list(collection.aggregate(SLEEPING, comment=comment, session=session))
            except OperationFailure as failure:
                self.code = failure.code

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def ended_with(self):
        self.thread.join(30)
        assert not self.thread.is_alive(), "it does not end"
        return self.code


def shown(client, comment, **options):
    """The operation with this comment, as the stage shows it; waits until it is there."""
    until = time.monotonic() + 30
    while True:
        pipeline = [{"$currentOp": options}, {"$match": {"command.comment": comment}}]
        found = list(client.admin.aggregate(pipeline))
        if found:
            assert len(found) == 1
            return found[0]
        assert time.monotonic() < until
        time.sleep(0.05)


def test_operations_of_all_nodes_are_listed_and_killed(nodes, databases):
    databases[1].c.insert_one({"_id": 1})
    sleeper = Sleeper(databases[1].c, "asleep")
    here, there, third = [nodes.clients[n] for n in (1, 0, 2)]
    own = shown(here, "asleep")["opid"]
    assert isinstance(own, int)
    remote = shown(there, "asleep")
    name, number = remote["opid"].split(":")
    assert name.startswith("node") and int(number) == own
    assert remote["ns"] == databases[1].name + ".c" and remote["active"] is True
    assert remote["opid"] == shown(third, "asleep")["opid"]
    # The command shows the same, and the stage of this node alone does not.
    listed = there.admin.command({"currentOp": 1, "command.comment": "asleep"})["inprog"]
    assert [one["opid"] for one in listed] == [remote["opid"]]
    local = there.admin.aggregate([{"$currentOp": {"localOps": True}}, {"$match": {"opid": remote["opid"]}}])
    assert list(local) == []
    # The number alone is of the node itself, where no operation has it or another one.
    for wrong, code in (("node4000:1", 70), ("node0", 28625), ("node0:x", 28625), (":", 28625)):
        with pytest.raises(OperationFailure) as failure:
            there.admin.command("killOp", op=wrong)
        assert failure.value.code == code
    assert third.admin.command("killOp", op=remote["opid"])["info"] == "attempting to kill op"
    assert sleeper.ended_with() == 11601
    # Where it runs it can be called by both names.
    sleeper = Sleeper(databases[1].c, "again")
    shown(here, "again")
    here.admin.command("killOp", op="%s:%d" % (name, shown(here, "again")["opid"]))
    assert sleeper.ended_with() == 11601


def test_sessions_are_killed_on_all_nodes(nodes, databases):
    databases[1].c.insert_one({"_id": 1})
    with nodes.clients[1].start_session() as asleep, nodes.clients[2].start_session() as idle:
        sleeper = Sleeper(databases[1].c, "session", asleep)
        shown(nodes.clients[1], "session")
        idle.start_transaction()
        databases[2].c.insert_one({"_id": 2}, session=idle)
        assert shown_sessions(nodes.clients[0]) == [idle.session_id["id"]]
        nodes.clients[0].admin.command("killSessions", [asleep.session_id])
        assert sleeper.ended_with() == 11601
        assert shown_sessions(nodes.clients[0]) == [idle.session_id["id"]]
        nodes.clients[0].admin.command("killAllSessionsByPattern", [{"lsid": {
            "id": idle.session_id["id"], "uid": bson.Binary(bytes(32), 0)}}])
        assert shown_sessions(nodes.clients[0]), "it is another user's"
        nodes.clients[0].admin.command("killAllSessions", [])
        assert shown_sessions(nodes.clients[0]) == []
        with pytest.raises(OperationFailure) as failure:
            databases[2].c.insert_one({"_id": 3}, session=idle)
        assert failure.value.code == 251
    assert check_valid(databases, "c") == [{"_id": 1}]


def shown_sessions(client):
    """The sessions of open transactions without an operation, of all nodes."""
    idle = client.admin.aggregate([{"$currentOp": {}}, {"$match": {"type": "idleSession"}}])
    return [one["lsid"]["id"] for one in idle]


def test_users_see_and_kill_their_own_operations_on_all_nodes(etcd):
    with nodes_of(etcd, 2, "--auth") as nodes:
        nodes.clients[0].admin.command("createUser", "root", pwd="secret", roles=["root"])

        def client(n, name):
            return pymongo.MongoClient("127.0.0.1", nodes.servers[n].port, username=name, password="secret",
                                       directConnection=True)

        with client(0, "root") as root, client(1, "root") as root1:
            for name in ("ann", "bob"):
                root.admin.command("createUser", name, pwd="secret", roles=[{"role": "read", "db": "own"}])
            root.own.c.insert_one({"_id": 1})
            with client(1, "ann") as ann1, client(0, "ann") as ann, client(0, "bob") as bob:
                sleeper = Sleeper(ann1.own.c, "own")
                opid = shown(root, "own", allUsers=True)["opid"]
                assert shown(ann, "own")["opid"] == opid
                assert not list(bob.admin.aggregate([{"$currentOp": {}}, {"$match": {"opid": opid}}]))
                own = [{"$ownOps": True}, {"opid": opid}]
                for user, count in ((ann, 1), (bob, 0)):
                    listed = user.admin.command({"currentOp": 1, **own[0], **own[1]})["inprog"]
                    assert len(listed) == count
                with pytest.raises(OperationFailure) as failure:
                    bob.admin.command("killOp", op=opid)
                assert failure.value.code == 13
                ann.admin.command("killOp", op=opid)
                assert sleeper.ended_with() == 11601
            root.drop_database("own")
            for name in ("ann", "bob", "root"):
                root1.admin.command("dropUser", name)


def test_a_node_without_a_reply_is_left_out(etcd):
    with nodes_of(etcd, 2) as nodes:
        nodes.servers[1].process.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            assert nodes.clients[0].admin.command("currentOp")["inprog"]
            assert time.monotonic() - began < EXPIRY
            # A kill that has not been everywhere is not reported as one that has.
            with pytest.raises(OperationFailure) as failure:
                nodes.clients[0].admin.command("killAllSessions", [])
            assert failure.value.code == 6
        finally:
            nodes.servers[1].process.send_signal(signal.SIGCONT)
        # Nodes of earlier tests may not have been found to have ended yet.
        until = time.monotonic() + EXPIRY + 10
        while True:
            try:
                nodes.clients[0].admin.command("killAllSessions", [])
                break
            except OperationFailure as failure:
                assert failure.code == 6 and time.monotonic() < until
