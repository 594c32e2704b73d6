"""Change streams of several Marula processes over one store, which is a real etcd: one order of events on all of them."""
import random
import threading
import time

import etcd_cluster
import pymongo
import server
from pymongo.errors import OperationFailure
# The fixtures, too: each module has its own cluster.
from test_nodes import at_once, databases, etcd, nodes, nodes_of, pytestmark, transfer

def events_of(stream, count):
    """The next events; fails if one does not come for ten seconds."""
    found = []
    until = time.monotonic() + 10
    while len(found) < count:
        event = stream.try_next()
        if event is not None:
            found.append(event)
            until = time.monotonic() + 10
        assert time.monotonic() < until, (len(found), count, found[-1:])
    return found


def changed(event):
    return event["operationType"], event["documentKey"]["_id"]


def test_the_oplog_begins_while_all_write():
    """Every insert that begins after the first stream was opened is in it once, on whichever node it is made."""
    with etcd_cluster.start() as etcd, nodes_of(etcd, 3) as nodes:
        nodes.clients[0].begin.create_collection("c")
        is_over, is_open = threading.Event(), threading.Event()
        due = [[] for _ in nodes.clients]

        def insert(node, client):
            n = 0
            while not is_over.is_set():
                is_due = is_open.is_set()
                client.begin.c.insert_one({"_id": "%d-%d" % (node, n)})
                if is_due:
                    due[node].append("%d-%d" % (node, n))
                n += 1

        def watch():
            try:
                time.sleep(0.5)
                with nodes.clients[1].begin.c.watch(max_await_time_ms=100) as stream:
                    is_open.set()
                    until = time.monotonic() + 60
                    while not all(len(ids) >= 30 for ids in due):
                        assert time.monotonic() < until, due
                        time.sleep(0.02)
                    is_over.set()
                    time.sleep(0.5)
                    count = sum(len(ids) for ids in due)
                    seen = []
                    while not set(seen) >= {one for ids in due for one in ids}:
                        event = stream.try_next()
                        assert event is not None or time.monotonic() < until, (len(seen), count)
                        seen += [event["documentKey"]["_id"]] if event else []
                    assert len(seen) == len(set(seen))
            finally:
                is_open.set()
                is_over.set()

        at_once(watch, *[lambda n=n, c=c: insert(n, c) for n, c in enumerate(nodes.clients)])


def test_a_stream_begins_where_it_is_opened(databases):
    for n, (one, other) in enumerate(zip(databases, databases[1:] + databases[:1])):
        one.c.insert_one({"_id": "before %d" % n})
        with other.c.watch(max_await_time_ms=100) as stream:
            one.c.insert_one({"_id": "after %d" % n})
            assert [changed(event) for event in events_of(stream, 1)] == [("insert", "after %d" % n)]


def test_all_nodes_show_one_order(databases):
    """Streams of two nodes show the same events, and what they say makes the collection."""
    with databases[0].c.watch(max_await_time_ms=100) as one, databases[2].c.watch(max_await_time_ms=100) as other:
        def write(node, database):
            chance = random.Random(node)
            for n in range(60):
                key = chance.randrange(8)
                if chance.random() < 0.2:
                    database.c.delete_one({"_id": key})
                else:
                    database.c.update_one({"_id": key}, {"$inc": {"n": 1}, "$set": {"by": [node, n]}}, upsert=True)

        at_once(*[lambda n=n, d=d: write(n, d) for n, d in enumerate(databases)])
        databases[1].c.insert_one({"_id": "last"})
        seen = []
        while not seen or changed(seen[-1]) != ("insert", "last"):
            seen += events_of(one, 1)
        assert [event["_id"] for event in seen] == [event["_id"] for event in events_of(other, len(seen))]
        tokens = [event["_id"]["_data"] for event in seen]
        assert tokens == sorted(set(tokens))
        mirror = {}
        for event in seen:
            key = event["documentKey"]["_id"]
            if event["operationType"] == "insert":
                mirror[key] = event["fullDocument"]
            elif event["operationType"] == "update":
                mirror[key] = {**mirror[key], **event["updateDescription"]["updatedFields"]}
            else:
                del mirror[key]
        assert mirror == {doc["_id"]: doc for doc in databases[1].c.find()}
        # Each event is a place from which any node goes on.
        for database in databases:
            middle = len(seen) // 2
            with database.c.watch(resume_after=seen[middle]["_id"], max_await_time_ms=100) as rest:
                left = events_of(rest, len(seen) - middle - 1)
                assert [event["_id"] for event in left] == [event["_id"] for event in seen[middle + 1:]]


def test_a_waiting_stream_is_woken_by_another_node(databases):
    with databases[0].c.watch(max_await_time_ms=20_000) as stream:
        timer = threading.Timer(0.5, lambda: databases[1].c.insert_one({"_id": 1}))
        timer.start()
        began = time.monotonic()
        assert changed(stream.next()) == ("insert", 1)
        assert time.monotonic() - began < 10
        timer.join()


def test_transactions_are_whole(nodes, databases):
    databases[0].create_collection("c")
    with databases[2].c.watch(max_await_time_ms=100) as stream:
        for n, client in enumerate(nodes.clients):
            with client.start_session() as session, session.start_transaction():
                c = databases[n].c
                c.insert_one({"_id": "a%d" % n}, session=session)
                c.insert_one({"_id": "b%d" % n}, session=session)
        seen = events_of(stream, 6)
        assert [event["documentKey"]["_id"] for event in seen] == ["a0", "b0", "a1", "b1", "a2", "b2"]
        for first, second in zip(seen[::2], seen[1::2]):
            assert first["lsid"] == second["lsid"] and first["txnNumber"] == second["txnNumber"]
            assert first["clusterTime"] == second["clusterTime"]


def test_transactions_that_are_committed_beside_changes_of_the_catalogue(nodes, databases):
    """Such a commit is tried again; the stream shows it all the same."""
    one, two = databases[:2]
    one.create_collection("money")
    count, is_over = 30, threading.Event()

    def change():
        while not is_over.is_set():
            two.create_collection("other")
            two.other.drop()
            time.sleep(0.05)

    def commit():
        try:
            with nodes.clients[0].start_session() as session:
                for n in range(count):
                    insert = lambda session, n=n: one.money.insert_one({"_id": n}, session=session)
                    session.with_transaction(insert)
        finally:
            is_over.set()

    with two.money.watch(max_await_time_ms=100) as stream:
        at_once(change, commit)
        events = [changed(event) for event in events_of(stream, count)]
    assert events == [("insert", n) for n in range(count)]


def test_the_catalogue_of_all_nodes(databases):
    databases[0].create_collection("c")
    with databases[0].watch(max_await_time_ms=100, show_expanded_events=True) as stream:
        databases[1].create_collection("d")
        databases[2].d.create_index("x")
        databases[1].d.rename("e")
        databases[2].e.insert_one({"_id": 1})
        databases[0].e.drop()
        kinds = [event["operationType"] for event in events_of(stream, 5)]
        assert kinds == ["create", "createIndexes", "rename", "insert", "drop"]
    with databases[0].c.watch(max_await_time_ms=100) as stream:
        databases[1].c.drop()
        assert [event["operationType"] for event in events_of(stream, 2)] == ["drop", "invalidate"]


def test_images_of_all_nodes(databases):
    databases[0].create_collection("c", changeStreamPreAndPostImages={"enabled": True})
    databases[1].c.insert_one({"_id": 1, "n": 1})
    options = {"full_document": "required", "full_document_before_change": "required", "max_await_time_ms": 100}
    with databases[2].c.watch(**options) as stream:
        for n, database in enumerate(databases):
            database.c.update_one({"_id": 1}, {"$set": {"n": n + 2}})
        seen = events_of(stream, 3)
        assert [(event["fullDocumentBeforeChange"]["n"], event["fullDocument"]["n"]) for event in seen] == [
            (1, 2), (2, 3), (3, 4)]


def test_mirrors_of_money_while_a_node_is_killed(etcd):
    """In a mirror that applies whole transactions the sum never changes, and in the end it is the collection."""
    name = "mirrored"
    with nodes_of(etcd, 3) as nodes:
        accounts = nodes.clients[0][name].accounts
        accounts.insert_many([{"_id": n, "balance": 100} for n in range(6)])
        is_over = threading.Event()
        sums = []
        mirror = {n: 100 for n in range(6)}

        def follow(stream):
            transaction = None
            while True:
                event = stream.try_next()
                if event is None:
                    if is_over.is_set():
                        return
                    continue
                if event["operationType"] == "insert":
                    return
                of = (event["lsid"]["id"], event["txnNumber"])
                if transaction not in (None, of):
                    sums.append(sum(mirror.values()))
                transaction = of
                mirror[event["documentKey"]["_id"]] = event["updateDescription"]["updatedFields"]["balance"]

        def kill():
            try:
                until = time.monotonic() + 60
                while len(sums) < 10 and time.monotonic() < until:
                    time.sleep(0.01)
                nodes.servers[2].kill()
                before = len(sums)
                while len(sums) < before + 20 and time.monotonic() < until:
                    time.sleep(0.01)
            finally:
                is_over.set()

        with accounts.watch(max_await_time_ms=100) as stream:
            at_once(kill, lambda: follow(stream),
                    *[lambda n=n, c=c: transfer(c, name, random.Random(n), is_over)
                      for n, c in enumerate([*nodes.clients, nodes.clients[2]])])
            accounts.insert_one({"_id": "end", "balance": 0})
            follow(stream)
        assert len(sums) >= 30 and set(sums) == {600}
        assert mirror == {doc["_id"]: doc["balance"] for doc in accounts.find({"_id": {"$ne": "end"}})}
        nodes.clients[0].drop_database(name)


def test_a_process_has_the_store_for_itself_in_between():
    """What it writes is in the streams that nodes continue afterwards."""
    with etcd_cluster.start() as etcd:
        with nodes_of(etcd, 2) as nodes:
            with nodes.clients[0].t.c.watch(max_await_time_ms=100) as stream:
                nodes.clients[1].t.c.insert_one({"_id": 1})
                token = events_of(stream, 1)[0]["_id"]
        with server.Server(*etcd.options(), wait=60.0) as alone, pymongo.MongoClient(alone.uri) as client:
            client.t.c.insert_one({"_id": 2})
            with client.t.c.watch(resume_after=token, max_await_time_ms=100) as stream:
                assert [changed(event) for event in events_of(stream, 1)] == [("insert", 2)]
        with nodes_of(etcd, 2) as nodes:
            nodes.clients[0].t.c.insert_one({"_id": 3})
            for client in nodes.clients:
                with client.t.c.watch(resume_after=token, max_await_time_ms=100) as stream:
                    assert [changed(event) for event in events_of(stream, 2)] == [("insert", 2), ("insert", 3)]


def test_what_was_trimmed_on_one_node_is_gone_on_all(etcd):
    with nodes_of(etcd, 2, "--oplogSize", "1") as nodes:
        one, other = nodes.databases("trimmed")
        with other.c.watch(max_await_time_ms=100) as stream:
            one.c.insert_one({"_id": "first"})
            token = events_of(stream, 1)[0]["_id"]
        until = time.monotonic() + 60
        lost = None
        while lost is None:
            one.c.insert_many([{"text": "x" * 100_000} for _ in range(10)])
            try:
                other.c.watch(resume_after=token).close()
            except OperationFailure as failure:
                lost = failure
            assert time.monotonic() < until, "the oplog is not trimmed"
        assert lost.code == 286
        one.client.drop_database("trimmed")
