"""Random writes of every kind against a server that sends its log and makes backups, with kill -9 of the server and of the
program in between; many moments of it are restored, each compared with what the server held then, written on, backed up
and restored again.

MARULA_CRASH_ROUNDS sets the number of rounds, MARULA_MOMENTS_STEPS and MARULA_MOMENTS_RESTORES how long each is,
MARULA_CRASH_SEED repeats a round.
"""
import contextlib
import os
import random
import shutil
import threading
import time

import pymongo
import pytest
import server
from backups import at, backup, ids, killed, log_until_us, now_us, restored, validated, wait_for
from random_writes import RandomWrites, fingerprint

ROUNDS = int(os.environ.get("MARULA_CRASH_ROUNDS", "1"))
STEPS = int(os.environ.get("MARULA_MOMENTS_STEPS", "40"))
RESTORES = int(os.environ.get("MARULA_MOMENTS_RESTORES", "2"))

pytestmark = [pytest.mark.skipif(server.is_mongod(), reason="backups are Marula's own"), pytest.mark.embedded]


class Transfers(threading.Thread):
    """Moves amounts between two collections in transactions until it ends: the sum is the same at any moment, and the
    number of transfers that a moment holds is known from when each began and was acknowledged."""

    def __init__(self, uri, number):
        super().__init__(daemon=True)
        self.uri, self.number, self.times, self.is_over = uri, number, [], threading.Event()

    def run(self):
        with pymongo.MongoClient(self.uri, retryWrites=False, serverSelectionTimeoutMS=2000) as client:
            bank, count = client.bank, 0
            try:
                while not self.is_over.is_set():
                    count += 1
                    began = now_us()
                    with client.start_session() as session, session.start_transaction():
                        mine = {"_id": self.number}
                        bank.left.update_one(mine, {"$inc": {"amount": -count}}, upsert=True, session=session)
                        bank.right.update_one(mine, {"$inc": {"amount": count}, "$set": {"count": count}}, upsert=True,
                                              session=session)
                        bank.log.insert_one({"_id": "%d %d" % (self.number, count)}, session=session)
                    self.times.append((began, now_us()))
            except pymongo.errors.PyMongoError:
                # The server was killed.
                pass

    def check(self, client, moment):
        mine = {"_id": self.number}
        left, right = client.bank.left.find_one(mine) or {"amount": 0}, client.bank.right.find_one(mine) or {"amount": 0}
        count = right.get("count", 0)
        assert left["amount"] + right["amount"] == 0
        assert client.bank.log.count_documents({"_id": {"$regex": "^%d " % self.number}}) == count
        acknowledged = sum(ended < moment for _, ended in self.times)
        # One more may have begun when the server was killed.
        began = sum(began <= moment for began, _ in self.times) + 1
        assert acknowledged <= count <= began, (acknowledged, count, began)


def differences(expected, found):
    return {place: (expected.get(place), found.get(place)) for place in {*expected, *found}
            if expected.get(place) != found.get(place)}


@pytest.mark.parametrize("number", range(ROUNDS))
def test_moments_come_back(tmp_path, number):
    seed = int(os.environ.get("MARULA_CRASH_SEED", random.randrange(1 << 30)))
    print("seed", seed)
    rng = random.Random(seed)
    target, key = str(tmp_path / "backups"), []
    options = ["--backup-to", target, "--backup-log-every", "1s", "--backup-every", rng.choice(("1h", "3s")),
               "--backup-keep", "1h", *rng.choice(([], ["--cache-size", "64MB"]))]
    if rng.random() < 0.5:
        options += ["--repl-set", "rs0"]
    if rng.random() < 0.5:
        (tmp_path / "key").write_bytes(rng.randbytes(32))
        key = ["--key-file", str(tmp_path / "key")]
        options += ["--backup-key-file", key[1]]
    print(options)
    moments, transfers = [], []
    with server.Server(*options, dbpath=str(tmp_path / "data")) as own:
        with pymongo.MongoClient(own.uri) as client:
            wait_for(lambda: "lastBackup" in client.admin.command("backupStatus")["schedule"])
            writes = RandomWrites(client, rng.randrange(1 << 30))
            moving = None
            for step in range(STEPS):
                if moving is None:
                    moving = Transfers(own.uri, len(transfers))
                    transfers.append(moving)
                    moving.start()
                writes.step()
                if rng.random() < 0.4:
                    time.sleep(0.003)
                    moments.append((now_us(), fingerprint(client), len(writes.did)))
                    time.sleep(0.003)
                chance = rng.random()
                if chance < 0.03:
                    killed(rng, "create", target, "--host", "127.0.0.1:%d" % own.port, *key)
                elif chance < 0.05:
                    killed(rng, "prune", target, "--keep", "1h", *key)
                elif chance < 0.07:
                    killed(rng, "restore", target, "--to", str(tmp_path / "cut"), *key)
                    shutil.rmtree(tmp_path / "cut", ignore_errors=True)
                elif chance < 0.1:
                    if chance < 0.09:
                        own.kill()
                    else:
                        assert own.terminate() == 0
                    moving.join()
                    moving = None
                    own.start()
                elif chance < 0.12:
                    with contextlib.suppress(pymongo.errors.OperationFailure):
                        # Refused while another one is made.
                        client.admin.command("backup", to=str(tmp_path / "other"))
            time.sleep(0.003)
            moments.append((now_us(), fingerprint(client), len(writes.did)))
            # Transfers go on after the last moment that is noted.
            time.sleep(0.05)
            # There are none after a kill in the last step.
            if moving is not None:
                moving.is_over.set()
                moving.join()
            over = now_us()
            # A backup of the schedule may have met one that was asked for: an error that passes.
            wait_for(lambda: log_until_us(client.admin.command("backupStatus")["schedule"]) > over)
            newest = fingerprint(client)
            validated(client)
        assert own.terminate() == 0
    print(" ".join(writes.did))
    chosen = [moments[-1], *rng.sample(moments[:-1], min(RESTORES, len(moments) - 1))]
    first, last = moments[0][0], moments[-1][0]
    # Moments in the middle of writes: whole, though nobody has seen them.
    chosen += [(rng.randrange(first, last), None, None) for _ in range(RESTORES // 2)]
    for turn, (moment, expected, did) in enumerate(chosen):
        folder = tmp_path / str(turn)
        with restored(target, folder, "--at", at(moment), *key) as copy, pymongo.MongoClient(copy.uri) as client:
            if expected:
                found = fingerprint(client)
                assert found == expected, (writes.did[:did], differences(expected, found))
            validated(client)
            for one in transfers:
                one.check(client, moment)
            # It is a server as any other.
            further = RandomWrites(client, seed + turn)
            [further.step() for _ in range(10)]
            validated(client)
            if turn < 1:
                before = fingerprint(client)
                again = tmp_path / "again"
                backup("create", again, "--host", "127.0.0.1:%d" % copy.port)
                with restored(again, tmp_path / "twice") as twice, pymongo.MongoClient(twice.uri) as other:
                    assert not differences(before, fingerprint(other))
                    validated(other)
                shutil.rmtree(again)
                shutil.rmtree(tmp_path / "twice")
        shutil.rmtree(folder)
    with restored(target, tmp_path / "latest", *key) as copy, pymongo.MongoClient(copy.uri) as client:
        assert not differences(newest, fingerprint(client))
        for one in transfers:
            one.check(client, now_us())
    assert "0 faults" in backup("verify", target, *key, "--temp", tmp_path)
    assert "0 faults" in backup("verify", target, "--at", at(moments[len(moments) // 2][0]), *key, "--temp", tmp_path)
    print(len(ids(target, *key)), "backups,", len(chosen), "moments")
