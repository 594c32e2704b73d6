"""kill -9 while transactions move money between accounts of two collections: what was acknowledged is whole, all else is
whole or absent, and the sum never changes. MARULA_CRASH_ROUNDS sets the number of rounds, MARULA_CRASH_SEED repeats a
run.
"""
import os
import random
import threading
import time

import pymongo
import server
from bson import Binary, Int64
from pymongo.errors import OperationFailure, PyMongoError
from raw import Raw

ROUNDS = int(os.environ.get("MARULA_CRASH_ROUNDS", "3"))
ACCOUNTS, BALANCE = 20, 1000
# The transfers of so many rounds stay, so that a round costs the same however many were before it.
KEPT_ROUNDS = 5
TELLERS_MAX, TRANSFERS_MAX = 100, 1_000_000


def first_number(round_):
    """The number of the first transfer of a round."""
    return round_ * TELLERS_MAX * TRANSFERS_MAX


class Teller(threading.Thread):
    """Transfers until the server is gone. Each transfer notes itself, under a number, in a third collection."""

    def __init__(self, port, number, seed):
        super().__init__(daemon=True)
        self.port, self.number, self.rng = port, number, random.Random(seed)
        self.lsid = {"id": Binary(number.to_bytes(16, "big"), 4)}
        self.acknowledged, self.unknown, self.failure, self.aborted = [], [], None, 0

    def run(self):
        try:
            with Raw(self.port) as raw:
                for turn in range(1, TRANSFERS_MAX):
                    self.transfer(raw, {"lsid": self.lsid, "txnNumber": Int64(turn), "autocommit": False}, turn)
        except (OSError, EOFError, AssertionError, PyMongoError) as error:
            if isinstance(error, AssertionError):
                self.failure = error

    def transfer(self, raw, inside, turn):
        source, target = self.rng.sample(range(ACCOUNTS), 2)
        amount, number = self.rng.randint(1, 50), self.number * TRANSFERS_MAX + turn
        steps = [
            {"update": "left", "updates": [{"q": {"_id": source}, "u": {"$inc": {"balance": -amount}}}]},
            {"update": "right", "updates": [{"q": {"_id": target}, "u": {"$inc": {"balance": amount}}}]},
            {"insert": "done", "documents": [{"_id": number, "tags": [source, target]}]},
        ]
        for place, step in enumerate(steps):
            begins = {"startTransaction": True} if place == 0 else {}
            reply = raw.command("bank", **step, **inside, **begins)
            if reply["ok"] != 1:
                assert "TransientTransactionError" in reply.get("errorLabels", []), reply
                self.aborted += 1
                return
            assert "writeErrors" not in reply, reply
        if self.rng.random() < 0.1:
            assert raw.command("admin", abortTransaction=1, **inside)["ok"] == 1
            return
        self.unknown = [(number, turn)]
        assert raw.command("admin", commitTransaction=1, **inside)["ok"] == 1
        self.unknown = []
        self.acknowledged.append(number)


def check(client, tellers, since):
    """The sum is what it was, what was acknowledged is there, and nothing else but what may be."""
    client.admin.command("ping")
    bank = client.bank
    total = sum(doc["balance"] for name in ("left", "right") for doc in bank[name].find())
    assert total == 2 * ACCOUNTS * BALANCE, "money was made or lost"
    done = {doc["_id"] for doc in bank.done.find()}
    for teller in tellers:
        missing = set(teller.acknowledged) - done
        assert not missing, "acknowledged transfers are gone: %s" % sorted(missing)[:5]
    may_be = {number for teller in tellers for number in teller.acknowledged}
    may_be |= {number for teller in tellers for number, _ in teller.unknown}
    assert done - since <= may_be, "transfers are there that were never committed"
    for name in ("left", "right", "done"):
        report = bank.command("validate", name)
        assert report["valid"], report
        assert bank[name].estimated_document_count() == report["nrecords"]
    assert bank.done.count_documents({"tags": {"$gte": 0}}, hint="tags_1") == len(done)
    return done


def retry(port, teller, done):
    """A commit that was cut is sent again: it takes effect once, or the transaction is not there."""
    for number, turn in teller.unknown:
        inside = {"lsid": teller.lsid, "txnNumber": Int64(turn), "autocommit": False}
        with Raw(port) as raw:
            reply = raw.command("admin", commitTransaction=1, **inside)
        assert (reply["ok"] == 1) == (number in done), reply
        if reply["ok"] != 1:
            assert reply["code"] == 251, reply


def test_transfers_are_whole_or_absent():
    seed = int(os.environ.get("MARULA_CRASH_SEED", random.randrange(1 << 30)))
    print("seed", seed)
    rng = random.Random(seed)
    with server.Server("--replSet", "rs0") as own:
        with pymongo.MongoClient(own.uri) as client:
            try:
                client.admin.command("replSetInitiate", {"_id": "rs0", "members": [{"_id": 0, "host": "127.0.0.1:%d" % own.port}]})
            except OperationFailure as error:
                assert error.code in (23, 59), error
            while not client.admin.command("hello")["isWritablePrimary"]:
                time.sleep(0.05)
            for name in ("left", "right"):
                client.bank[name].insert_many([{"_id": n, "balance": BALANCE} for n in range(ACCOUNTS)])
                client.bank[name].create_index("balance")
            client.bank.done.create_index("tags")
        done, count, aborted = set(), 0, 0
        for round_ in range(ROUNDS):
            tellers = [Teller(own.port, round_ * TELLERS_MAX + n, rng.random()) for n in range(6)]
            [teller.start() for teller in tellers]
            time.sleep(rng.uniform(0.3, 1.0))
            own.kill()
            [teller.join(30) for teller in tellers]
            assert not any(teller.failure for teller in tellers), [teller.failure for teller in tellers]
            count += sum(len(teller.acknowledged) for teller in tellers)
            aborted += sum(teller.aborted for teller in tellers)
            own.start()
            with pymongo.MongoClient(own.uri) as client:
                while not client.admin.command("hello")["isWritablePrimary"]:
                    time.sleep(0.05)
                before = check(client, tellers, done)
                for teller in tellers:
                    retry(own.port, teller, before)
                done = check(client, tellers, done)
                assert done == before, "a commit that was sent again took effect twice"
                client.bank.done.delete_many({"_id": {"$lt": first_number(round_ + 1 - KEPT_ROUNDS)}})
                done = {number for number in done if number >= first_number(round_ + 1 - KEPT_ROUNDS)}
            if ROUNDS > 10:
                print("round", round_ + 1, "of", ROUNDS, flush=True)
        assert count and aborted, "transfers were neither made nor refused"
        print(count, "transfers acknowledged,", aborted, "aborted,", ROUNDS, "rounds")
