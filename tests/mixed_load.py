"""Clients that write at the same time, each of which knows the effects of all that it does: for tests that end servers meanwhile.

Every write is numbered or in a transaction, so that it has one known outcome: a client whose connection is lost sends it again,
to another server of the set, until it is answered.
"""
import contextlib
import datetime
import random
import threading
import time
import uuid

from bson import Binary, Int64
from raw import Raw

ACCOUNTS, BALANCE = 8, 1000
# A server is given up for another one after so many seconds, and a write after so many.
REPLY_MAX, ANSWER_MAX = 5, 90
# Outages: the server ends, has lost its store, or another one changes the same keys.
OUTAGES = {6, 11, 91, 112, 189, 11600, 11602}
CAPPED_MAX = 50


class Lost(Exception):
    """The connection ended before the reply."""


class Client(threading.Thread):
    """Works until it is over, on one server at a time."""

    def __init__(self, load, number, ports):
        super().__init__(daemon=True)
        self.load, self.number, self.ports = load, number, ports
        self.rng = random.Random("%s %s %d" % (load.seed, type(self).__name__, number))
        self.lsid = {"id": Binary.from_uuid(uuid.UUID(int=self.rng.getrandbits(128)))}
        self.raw, self.turn, self.done = None, 0, 0

    def run(self):
        try:
            while not self.load.is_over.is_set():
                self.work()
                self.done += 1
        except BaseException as error:
            self.load.fail(error)
        finally:
            self.leave()

    def leave(self):
        if self.raw:
            self.raw.socket.close()
            self.raw = None

    def ask(self, db, **command):
        """The reply of a server; now and then the client leaves before it comes, and the server works on."""
        try:
            self.raw = self.raw or Raw(self.rng.choice(self.ports), timeout=REPLY_MAX)
            self.raw.send({**command, "$db": db})
            if self.rng.random() < 0.02:
                raise EOFError("the client leaves")
            reply = self.raw.reply()
        except (OSError, EOFError) as error:
            self.leave()
            raise Lost from error
        if reply.get("code") in OUTAGES:
            self.leave()
        return reply

    def answer(self, db, **command):
        """The final reply to a command that may be sent more than once."""
        until = time.monotonic() + ANSWER_MAX
        while True:
            with contextlib.suppress(Lost):
                reply = self.ask(db, **command)
                if reply.get("code") not in OUTAGES:
                    return reply
            assert time.monotonic() < until, "no final reply to %s" % command
            time.sleep(0.05)

    def numbered(self, **command):
        self.turn += 1
        return self.answer("load", **command, lsid=self.lsid, txnNumber=Int64(self.turn))

    def transaction(self, *steps):
        """Whether the transaction of these commands has been committed."""
        self.turn += 1
        inside = {"lsid": self.lsid, "txnNumber": Int64(self.turn), "autocommit": False}
        for place, step in enumerate(steps):
            try:
                reply = self.ask("load", **step, **inside, **({"startTransaction": True} if place == 0 else {}))
            except Lost:
                return False
            if reply["ok"] != 1:
                is_known = reply.get("code") in OUTAGES or "TransientTransactionError" in reply.get("errorLabels", [])
                assert is_known, (step, reply)
                return False
            assert "writeErrors" not in reply, reply
        # An outage may be the end of the transaction, which is known only by another try.
        reply = self.answer("admin", commitTransaction=1, **inside)
        assert reply["ok"] == 1 or reply["code"] == 251, reply
        return reply["ok"] == 1


class Teller(Client):
    """Moves money between two collections, with a record of each transfer; now and then a record goes where others drop collections."""

    def __init__(self, *args):
        super().__init__(*args)
        self.transfers = set()

    def work(self):
        source, target = self.rng.sample(range(ACCOUNTS), 2)
        amount, mark = self.rng.randint(1, 50), "transfer %d-%d" % (self.number, self.turn)
        committed = self.transaction(
            {"update": "left", "updates": [{"q": {"_id": source}, "u": {"$inc": {"balance": -amount}}}]},
            {"update": "right", "updates": [{"q": {"_id": target}, "u": {"$inc": {"balance": amount}}}]},
            {"insert": "ledger", "documents": [{"_id": mark, "source": source, "target": target, "amount": amount}]},
            *([{"insert": "passing", "documents": [{"_id": mark}]}] if self.rng.random() < 0.2 else []))
        if committed:
            self.transfers.add(mark)


class Owner(Client):
    """Changes documents that nobody else changes, so that each reply and each state is known."""

    def __init__(self, *args):
        super().__init__(*args)
        self.documents = {}

    def fields(self):
        return {"k": self.rng.randrange(20), "tags": self.rng.sample(range(9), self.rng.randrange(4)), "owner": self.number}

    def work(self):
        kind, mark = self.rng.randrange(5), self.turn
        if kind == 0 or not self.documents:
            new = [{"_id": "%d-%d-%d" % (self.number, mark, n), "u": "%d-%d-%d" % (self.number, mark, n), "v": 1, **self.fields()}
                   for n in range(self.rng.randint(1, 4))]
            reply = self.numbered(insert="own", documents=new)
            self.expect(reply, n=len(new))
            self.documents.update({doc["_id"]: doc for doc in new})
        elif kind == 1:
            ids = self.rng.sample(sorted(self.documents), min(len(self.documents), 3))
            changes = [self.fields() for _ in ids]
            reply = self.numbered(update="own", updates=[{"q": {"_id": id_}, "u": {"$set": change, "$inc": {"v": 1}}}
                                                         for id_, change in zip(ids, changes)])
            self.expect(reply, n=len(ids), nModified=len(ids))
            for id_, change in zip(ids, changes):
                self.documents[id_] = {**self.documents[id_], **change, "v": self.documents[id_]["v"] + 1}
        elif kind == 2:
            id_, change = self.rng.choice(sorted(self.documents)), self.fields()
            is_new = self.rng.random() < 0.5
            reply = self.numbered(findAndModify="own", query={"_id": id_}, update={"$set": change, "$inc": {"v": 1}}, new=is_new)
            before = self.documents[id_]
            after = self.documents[id_] = {**before, **change, "v": before["v"] + 1}
            self.expect(reply, value=after if is_new else before)
        elif kind == 3:
            ids = self.rng.sample(sorted(self.documents), min(len(self.documents), 2))
            reply = self.numbered(delete="own", deletes=[{"q": {"_id": id_}, "limit": 1} for id_ in ids])
            self.expect(reply, n=len(ids))
            for id_ in ids:
                del self.documents[id_]
        else:
            hint = self.rng.choice(["$natural", "k", "tags", "u", "owner"])
            reply = self.answer("load", find="own", filter={"owner": self.number}, hint={hint: 1}, batchSize=10_000)
            assert reply["ok"] == 1, reply
            found = {doc["_id"]: doc for doc in reply["cursor"]["firstBatch"]}
            assert found == self.documents, (hint, found, self.documents)

    def expect(self, reply, **fields):
        assert reply["ok"] == 1 and "writeErrors" not in reply, reply
        assert {name: reply.get(name) for name in fields} == fields, (reply, fields)


class Upserter(Client):
    """Upserts and removes documents under a unique key that others upsert too; each mark is in one of them."""

    def __init__(self, *args):
        super().__init__(*args)
        self.marks, self.removed = set(), []

    def work(self):
        email, mark = self.rng.randrange(5), "%d-%d" % (self.number, self.turn)
        if self.rng.random() < 0.15:
            reply = self.numbered(findAndModify="people", query={"email": email}, remove=True)
            assert reply["ok"] == 1, reply
            self.removed += (reply["value"] or {"marks": []})["marks"]
            return
        push = {"$push": {"marks": mark}}
        if self.rng.random() < 0.5:
            reply = self.numbered(findAndModify="people", query={"email": email}, update=push, upsert=True)
        else:
            reply = self.numbered(update="people", updates=[{"q": {"email": email}, "u": push, "upsert": True}])
        assert reply["ok"] == 1 and "writeErrors" not in reply, reply
        self.marks.add(mark)


class Appender(Client):
    """Inserts into a capped collection, one with a time to live, and one that is dropped and renamed."""

    def __init__(self, *args):
        super().__init__(*args)
        self.marks = {"capped": [], "expiring": [], "passing": []}

    def work(self):
        name = self.rng.choice(sorted(self.marks))
        mark = "%d-%d" % (self.number, self.turn)
        at = datetime.datetime(2020 if self.rng.random() < 0.8 else 2120, 1, 1)
        reply = self.numbered(insert=name, documents=[{"_id": mark, "at": at}])
        if name == "passing" and reply["ok"] != 1:
            # The collection was dropped by another server meanwhile.
            assert reply["code"] == 26, reply
            return
        assert reply["ok"] == 1 and "writeErrors" not in reply, reply
        self.marks[name].append(mark)


class Cataloguer(Client):
    """Drops and renames a collection into which others write, and builds and drops an index on another."""

    def work(self):
        command = self.rng.choice([
            ("load", {"drop": "passing"}),
            ("admin", {"renameCollection": "load.passing", "to": "load.passed", "dropTarget": True}),
            ("load", {"create": "other"}),
            ("load", {"drop": "other"}),
            ("load", {"createIndexes": "own", "indexes": [{"key": {"v": 1}, "name": "v"}]}),
            ("load", {"dropIndexes": "own", "index": "v"}),
            ("load", {"collMod": "own", "index": {"name": "k_1", "hidden": False}}),
            ("load", {"aggregate": "ledger", "pipeline": [{"$merge": "merged"}], "cursor": {}})])
        reply = self.answer(command[0], **command[1])
        # There is no such collection or index, or there is one already.
        assert reply["ok"] == 1 or reply["code"] in (26, 27, 48), reply
        time.sleep(self.rng.uniform(0, 0.2))


class Reader(Client):
    """Sees whole transactions only: at each moment the balances follow from the records."""

    def work(self):
        stages = [{"$project": {"balance": 1}},
                  {"$unionWith": {"coll": "right", "pipeline": [{"$project": {"balance": 1}}]}},
                  {"$unionWith": {"coll": "ledger", "pipeline": [{"$project": {"amount": 1}}]}}]
        reply = self.answer("load", aggregate="left", pipeline=stages, cursor={"batchSize": 100_000},
                            readConcern={"level": "snapshot"}, lsid=self.lsid)
        assert reply["ok"] == 1 or reply["code"] == 239, reply
        if reply["ok"] == 1:
            docs = reply["cursor"]["firstBatch"]
            accounts, records = docs[:2 * ACCOUNTS], docs[2 * ACCOUNTS:]
            moved = sum(doc["balance"] for doc in accounts[ACCOUNTS:]) - ACCOUNTS * BALANCE
            assert sum(doc["balance"] for doc in accounts) == 2 * ACCOUNTS * BALANCE, accounts
            assert moved == sum(doc["amount"] for doc in records), (moved, len(records))
        time.sleep(0.1)


class Load:
    """All clients at once; the first failure ends them."""

    def __init__(self, seed, ports):
        self.seed, self.is_over, self.failures = seed, threading.Event(), []
        counts = {Teller: 3, Owner: 3, Upserter: 2, Appender: 2, Cataloguer: 1, Reader: 1}
        self.clients = [kind(self, n, ports) for kind, count in counts.items() for n in range(count)]

    def fail(self, error):
        self.failures.append(error)
        self.is_over.set()

    def of(self, kind):
        return [client for client in self.clients if isinstance(client, kind)]

    def __enter__(self):
        for client in self.clients:
            client.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for client in self.clients:
            client.join(2 * ANSWER_MAX)
