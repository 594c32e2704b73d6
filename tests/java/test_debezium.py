"""Debezium's embedded engine against a replica set of one node: a snapshot, what follows, a transaction, a restart."""
import json
import os
import shutil
import subprocess
import threading
import time

import pymongo
import pytest
import server

HERE = os.path.dirname(os.path.abspath(__file__))
WAIT_SECONDS = 120

pytestmark = pytest.mark.skipif(not (shutil.which("java") and shutil.which("javac") and shutil.which("mvn")),
                                reason="there is no Java (17 or later) with Maven here")


@pytest.fixture(scope="module")
def classes():
    setup = os.path.join(server.ROOT, "tools", "setup")
    return subprocess.run([setup, "java"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


class Engine:
    """The engine, in a process of its own; `events` grows as it reports changes."""

    def __init__(self, classes, uri, offsets, mode):
        self.events, self.said = [], []
        command = ["java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classes, "Follow", uri, offsets, mode]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            topic, _, rest = line.rstrip("\n").partition("\t")
            key, _, value = rest.partition("\t")
            if topic.startswith("t."):
                self.events.append((topic, key, value))
            else:
                self.said.append(line)

    def take(self, count):
        """The first `count` changes of documents: operation, topic, key, document after, and whether in a transaction."""
        began = time.monotonic()
        while len(changes := self.changes()) < count:
            assert time.monotonic() - began < WAIT_SECONDS and self.process.poll() is None, (changes, self.said[-20:])
            time.sleep(0.05)
        return changes

    def changes(self):
        told = []
        for topic, key, value in list(self.events):
            value = json.loads(value) if value != "null" else None
            # A delete is followed by a mark without a value; the ends of transactions have a topic
            # of their own.
            if value is not None and "op" in value:
                after = value.get("after")
                told.append((value["op"], topic, json.loads(json.loads(key)["id"]), after and json.loads(after),
                             value.get("transaction") is not None))
        return told

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0


@pytest.mark.parametrize("mode", ["change_streams_update_full", "change_streams_update_full_with_pre_image"])
def test_debezium_follows(classes, replica, tmp_path, mode):
    uri, offsets = "mongodb://127.0.0.1:%d/?replicaSet=rs0" % replica.port, str(tmp_path / "offsets")
    with pymongo.MongoClient(uri) as client:
        client.drop_database("shop")
        images = {"changeStreamPreAndPostImages": {"enabled": True}} if mode.endswith("image") else {}
        orders = client.shop.create_collection("orders", **images)
        orders.insert_many([{"_id": number, "total": number} for number in range(5)])
        engine = Engine(classes, uri, offsets, mode)
        try:
            assert sorted(engine.take(5), key=str) == [
                ("r", "t.shop.orders", number, {"_id": number, "total": number}, False) for number in range(5)]
            orders.insert_one({"_id": 10, "total": 1})
            orders.update_one({"_id": 1}, {"$set": {"total": 9}})
            orders.replace_one({"_id": 3}, {"sent": True})
            orders.delete_one({"_id": 2})
            with client.start_session() as session, session.start_transaction():
                orders.insert_one({"_id": 20}, session=session)
                orders.update_one({"_id": 4}, {"$inc": {"total": 5}}, session=session)
            told = engine.take(11)[5:]
            assert told == [
                ("c", "t.shop.orders", 10, {"_id": 10, "total": 1}, False),
                ("u", "t.shop.orders", 1, {"_id": 1, "total": 9}, False),
                ("u", "t.shop.orders", 3, {"_id": 3, "sent": True}, False),
                ("d", "t.shop.orders", 2, None, False),
                ("c", "t.shop.orders", 20, {"_id": 20}, True),
                ("u", "t.shop.orders", 4, {"_id": 4, "total": 9}, True),
            ]
        finally:
            engine.close()
        # It continues after its last token, and reports nothing twice.
        orders.insert_one({"_id": 30})
        engine = Engine(classes, uri, offsets, mode)
        try:
            orders.insert_one({"_id": 31})
            assert [change[2] for change in engine.take(2)] == [30, 31]
        finally:
            engine.close()
